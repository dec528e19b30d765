"""The papers' figures and tables beside ours: ``python -m hetplan_papers.reproduce pool``."""
