"""Where servers are planned so busy that waiting alone would break a step's time budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from hetplan.problems.pipeline.tree import Tree
from hetplan.profiles.plan import Notice

__all__ = ["notices_of", "too_busy"]

SHOWN = 5


def too_busy(
    tree: Tree, counts: np.ndarray, loads: Sequence[np.ndarray], budgets: Mapping[str, float]
) -> dict[str, float]:
    """Steps that would wait longer than their budget leaves room for, each with the use of its servers.

    The work that waits before c servers at use u is taken to be l u^sqrt(2(c+1)) / (c (1 - u)) / 2 (the queue by
    Sakasegawa, of times of little variance, counted in batches). That is a rule of thumb: servers of a group are picked
    at random, which queues longer, and batches that are not full are done sooner.
    """
    found: dict[str, float] = {}
    start = 0
    for task, load in zip(tree.tasks, loads, strict=True):
        c = counts[start : start + task.size]
        start += task.size
        for y in np.flatnonzero((load > 0) & (c > 0)):
            use = min(float(load[y]) * float(task.ms[y]) / (1000.0 * float(task.batch[y]) * float(c[y])), 0.999999)
            own = float(task.ms[y])
            waiting = own * use ** np.sqrt(2.0 * (float(c[y]) + 1.0)) / (float(c[y]) * (1.0 - use)) / 2.0
            if own + waiting > budgets[task.id]:
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
