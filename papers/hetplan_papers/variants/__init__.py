"""Other ways to choose variants: INFaaS' greedy rule, its baselines, and every choice one by one."""
