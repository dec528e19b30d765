"""Other ways to choose a pool: Kairos' baselines and Ribbon's searches (`formulations` lists them by name)."""
