"""Pipelines to plan for, and a generator of random ones."""

import random
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT))
sys.path.insert(0, str(ROOT / "tests"))


def claimed(outcome, about="quality"):
    """A claim's value."""
    return next(claim.value for claim in outcome.plan.claims if claim.about == about)


def servers(outcome):
    """How many servers a plan rents."""
    return sum(worker.count for worker in outcome.plan.workers)


__all__ = ["ROOT", "claimed", "random", "servers"]
