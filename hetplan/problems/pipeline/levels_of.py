"""Latency levels of a task: which there are, how they are thinned, what runs best within one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hetplan.problems.pipeline.rows import Places
from hetplan.problems.pipeline.tree import ON_LIMIT_MS, Tree

__all__ = ["all_levels", "at_levels", "best_at", "thinned"]


def all_levels(tree: Tree) -> list[np.ndarray]:
    """Per task, the distinct latencies that leave time for the fastest others."""
    return [np.unique(task.ms) for task in tree.tasks]


def thinned(values: np.ndarray, count: int) -> np.ndarray:
    """So many of them, evenly by rank, first and last included."""
    if values.size <= count:
        return values
    return values[[round(i * (values.size - 1) / (count - 1)) for i in range(count)]]


def best_at(tree: Tree, t: int, level_ms: float) -> Places:
    """Of every variant and hardware of a task, the configuration that carries most and takes no longer than this."""
    task, best = tree.tasks[t], dict[tuple[int, int], int]()
    for place in np.argsort(task.qps, kind="stable"):
        if task.ms[place] <= level_ms + ON_LIMIT_MS:
            best[int(task.variant[place]), int(task.hardware[place])] = int(place)
    return np.array(sorted(best.values()), dtype=np.int64)


def at_levels(tree: Tree, chosen: Sequence[float]) -> Tree:
    """Only the best configurations at one level per task."""
    masks = []
    for t, task in enumerate(tree.tasks):
        mask = np.zeros(task.size, dtype=bool)
        mask[best_at(tree, t, chosen[t])] = True
        masks.append(mask)
    return tree.keeping(masks)
