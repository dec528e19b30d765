"""Other ways to plan pipelines: what Loki is compared with."""
