"""Where servers are planned so busy that waiting alone would break a step's time budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from hetplan.problems.pipeline.tree import Tree
from hetplan.problems.waiting import MOST_BUSY, waiting_ms
from hetplan.profiles.plan import Notice

__all__ = ["notices_of", "too_busy"]

SHOWN = 5


def too_busy(
    tree: Tree, counts: np.ndarray, loads: Sequence[np.ndarray], budgets: Mapping[str, float]
) -> dict[str, float]:
    """Steps that would wait longer than their budget leaves room for, each with the use of its servers.

    Counted in batches. Servers of a group are picked at random, which queues longer than the rule says, and batches
    that are not full are done sooner.
    """
    found: dict[str, float] = {}
    start = 0
    for task, load in zip(tree.tasks, loads, strict=True):
        c = counts[start : start + task.size]
        start += task.size
        for y in np.flatnonzero((load > 0) & (c > 0)):
            own, servers = float(task.ms[y]), float(c[y])
            use = min(float(load[y]) * own / (1000.0 * float(task.batch[y]) * servers), MOST_BUSY)
            if own + waiting_ms(own, use, servers) > budgets[task.id]:
                found[task.id] = max(found.get(task.id, 0.0), use)
    return found


def notices_of(busy: Mapping[str, Mapping[str, float]]) -> list[Notice]:
    """One notice for all applications (`busy`: app -> step -> use)."""
    told = sorted(((use, app, step) for app, steps in busy.items() for step, use in steps.items()), reverse=True)
    if not told:
        return []
    named = ", ".join(f"{app}/{step} ({use:.0%} busy)" for use, app, step in told[:SHOWN])
    text = (
        f"queries would wait longer than their budget leaves room for at {len(told)} steps: {named}; set size to "
        "simulated, which finds the headroom that keeps them in time, or set headroom"
    )
    return [Notice(code="W-queueing", at="promises", text=text)]
