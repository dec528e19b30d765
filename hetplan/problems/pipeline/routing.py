"""Other routings of the same servers: shares per step that forget the path, and the paper's most-accurate-first.

Neither knows which paths are in time. A plan takes them only where a check shows that they keep what it promises;
otherwise it keeps its path shares and says what would have been lost.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hetplan.dispatch.pipelines import FRONTEND, Filled, Host, most_accurate_first
from hetplan.problems.pipeline.climb import Solved, quality_of
from hetplan.problems.pipeline.tree import ON_LIMIT_MS, Level, Tree, prefixes

__all__ = ["Lost", "by_filling", "by_node", "fill", "lost_by_filling"]

Shares = Mapping[tuple[tuple[int, int] | None, int], Mapping[int, float]]

SLIGHT = 1e-6
"""Shares and accuracies nearer than this are the same."""


@dataclass(frozen=True)
class Lost:
    """What a routing loses: share of the queries unserved, share on paths over the limit, accuracy of the rest."""

    unserved: float
    too_slow: float
    quality: float


def by_node(found: Solved) -> tuple[Solved | None, str]:
    """The same servers with one share per step and load; or why that would not keep the plan."""
    forest: list[tuple[Tree, list[Level]]] = []
    shares = []
    for number, ((tree, levels), n, counts) in enumerate(zip(found.forest, found.shares, found.counts, strict=True)):
        free = replace(tree, limit_ms=dict.fromkeys(tree.sinks, np.inf))
        wide = prefixes(free)
        spread: list[np.ndarray] = []
        start = 0
        for t, task in enumerate(tree.tasks):
            load = np.bincount(levels[t].config, weights=levels[t].gain * n[t], minlength=task.size)
            own = load / load.sum()
            parent = task.parent
            above = spread[parent][wide[t].parent] if parent >= 0 else 1.0
            spread.append(above * own[wide[t].config])
            used = spread[t] > 1e-12
            if (wide[t].ms[used] > tree.room_ms[t] + ON_LIMIT_MS).any():
                return None, f"at {task.id} of {tree.app}, paths over the latency limit would be used"
            rate = (found.served or {}).get(tree.app, tree.demand)
            load = np.bincount(wide[t].config, weights=rate * wide[t].gain * spread[t], minlength=task.size)
            if (load > task.qps * counts[start : start + task.size] * (1 + SLIGHT)).any():
                return None, f"servers of {task.id} of {tree.app} would be overloaded"
            start += task.size
        if quality_of(free, wide, spread) < found.qualities[number] - SLIGHT:
            return None, f"the accuracy of {tree.app} would fall to {quality_of(free, wide, spread):.6g}"
        forest.append((tree, wide))
        shares.append(spread)
    return replace(found, forest=forest, shares=shares), ""


def by_filling(found: Solved) -> Solved | str:
    """The same servers routed most accurate first; or what that would lose."""
    losses, shares, worse = [], [], False
    forest: list[tuple[Tree, list[Level]]] = []
    for (tree, _), counts, had in zip(found.forest, found.counts, found.qualities, strict=True):
        rate = (found.served or {}).get(tree.app, tree.demand)
        lost, to = lost_by_filling(tree, counts, rate)
        losses.append(lost)
        worse = worse or lost.quality < had - SLIGHT
        levels, spread = _spread(tree, to)
        forest.append((tree, levels))
        shares.append(spread)
    if worse or any(lost.unserved > SLIGHT or lost.too_slow > SLIGHT for lost in losses):
        return in_words(losses)
    return replace(found, forest=forest, shares=shares)


def fill(tree: Tree, counts: np.ndarray, rate: float) -> tuple[Filled, dict[str, tuple[int, int]]]:
    """Most accurate first over the single servers of a plan; and which configuration each server is."""
    hosts: list[Host] = []
    place: dict[str, tuple[int, int]] = {}
    start = 0
    for t, task in enumerate(tree.tasks):
        for c in range(task.size):
            k = int(task.variant[c])
            factor = {tree.tasks[child].id: float(values[k]) for child, values in task.factor.items()}
            for server in range(int(counts[start + c])):
                name = f"{t:02d}.{c:04d}.{server:04d}"
                hosts.append(Host(name, task.id, float(task.quality[k]), float(task.qps[c]), factor))
                place[name] = (t, c)
        start += task.size
    tasks = {task.id: [tree.tasks[c].id for c in tree.children[t]] for t, task in enumerate(tree.tasks)}
    return most_accurate_first(hosts, tasks, rate), place


def lost_by_filling(tree: Tree, counts: np.ndarray, rate: float) -> tuple[Lost, Shares]:
    """What most-accurate-first loses, and its shares per configuration: (source, child task) -> configuration.

    Unserved is the largest share that finds no room at a last task; lateness is of whole paths.
    """
    filled, place = fill(tree, counts, rate)
    number = {task.id: t for t, task in enumerate(tree.tasks)}
    sent: dict[tuple[tuple[int, int] | None, int], dict[int, float]] = defaultdict(lambda: defaultdict(float))
    weight: dict[tuple[tuple[int, int] | None, int], float] = defaultdict(float)
    for source, tables in filled.tables.items():
        own = place[source] if source != FRONTEND else None
        load = filled.load_qps[source] if source != FRONTEND else rate
        for child, entries in tables.items():
            key = (own, number[child])
            weight[key] += load
            for host, share in entries:
                sent[key][place[host][1]] += load * share
    shares = {key: {c: part / weight[key] for c, part in to.items()} for key, to in sent.items()}
    wide, spread = _spread(tree, shares)
    served = np.array([n.sum() for n in spread])
    quality = np.array([level.quality @ n for level, n in zip(wide, spread, strict=True)])
    late = np.zeros(len(wide))
    for sink in tree.sinks:
        late[sink] = spread[sink][wide[sink].ms > tree.limit_ms[sink] + ON_LIMIT_MS].sum()
    sinks = list(tree.sinks)
    total = float(served[sinks].sum()) or 1.0
    missing = sum(filled.unserved_qps.values())
    unserved = float(1.0 - served[sinks].min()) if missing > SLIGHT else 0.0
    return Lost(max(0.0, unserved), float(late[sinks].max()), float(quality[sinks].sum()) / total), shares


def _spread(tree: Tree, shares: Shares) -> tuple[list[Level], list[np.ndarray]]:
    """Shares that look at the last server alone, laid over all paths."""
    wide = prefixes(replace(tree, limit_ms=dict.fromkeys(tree.sinks, np.inf)))
    spread: list[np.ndarray] = []
    for t, level in enumerate(wide):
        parent = tree.tasks[t].parent
        n = np.array([
            shares.get(((parent, int(wide[parent].config[p])) if parent >= 0 else None, t), {}).get(int(c), 0.0)
            for p, c in zip(level.parent, level.config, strict=True)
        ])  # fmt: skip
        spread.append(n * (spread[parent][level.parent] if parent >= 0 else 1.0))
    return wide, spread


def in_words(lost: Sequence[Lost]) -> str:
    """In words, what is lost by the worst off."""
    worst = max(lost, key=lambda one: (one.unserved, one.too_slow))
    return (
        f"most-accurate-first would leave {100 * worst.unserved:.2g}% unserved and send {100 * worst.too_slow:.2g}% on "
        f"paths over the latency limit, at accuracy {worst.quality:.6g}"
    )
