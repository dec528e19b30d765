"""Large trees of tasks over three server types, from a seed: the scale cases of Loki's specification.

Per task K variants of growing accuracy and time, per variant and child a factor; latency on a type is
(fix + per x batch) / speed. `demand` puts a wished utilisation on the cluster when every task runs its top variant.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hetplan_papers.datasets.loki import POWERS, app, cluster, wish
from hetplan_papers.datasets.sources import Json

__all__ = ["SPEEDS", "T5", "T7", "Tree", "demand", "inputs", "make", "servers_of", "shared_cluster"]

SPEEDS = {"a": 1.0, "b": 1.7, "c": 2.6}
T5 = ((1, 2), (3,), (4,), (), ())
"""Children of each task: 0 -> 1, 2; 1 -> 3; 2 -> 4."""
T7 = ((1, 2), (3, 4), (5, 6), (), (), (), ())
VARIANTS = 10


@dataclass(frozen=True)
class Tree:
    """One generated pipeline: `accuracy[t][k]`, `fix_ms[t][k]`, `per_ms[t][k]`, `factor[t, child][k]`."""

    children: tuple[tuple[int, ...], ...]
    accuracy: tuple[tuple[float, ...], ...]
    fix_ms: tuple[tuple[float, ...], ...]
    per_ms: tuple[tuple[float, ...], ...]
    factor: Mapping[tuple[int, int], tuple[float, ...]]

    def latency_ms(self, task: int, variant: int, batch: int, hardware: str) -> float:
        """Milliseconds per batch."""
        return (self.fix_ms[task][variant] + self.per_ms[task][variant] * batch) / SPEEDS[hardware]


def make(children: tuple[tuple[int, ...], ...], seed: int = 1, variants: int = VARIANTS) -> Tree:
    """Draw a tree: per task a base, then per variant time, overhead and accuracy; then a factor per edge."""
    chance = random.Random(seed)
    accuracy, fix_ms, per_ms = [], [], []
    for _ in children:
        base = chance.uniform(6, 18)
        drawn = []
        for k in range(variants):
            f = k / (variants - 1)
            per = base * (0.25 + 0.75 * f) * chance.uniform(0.9, 1.1)
            fix = per * chance.uniform(0.5, 1.5)
            quality = 1 - 0.35 * (1 - f) ** 1.5 * chance.uniform(0.8, 1.2)
            drawn.append((1.0 if k == variants - 1 else quality, fix, 0.6 * per))
        columns = tuple(zip(*drawn, strict=True))
        accuracy.append(columns[0])
        fix_ms.append(columns[1])
        per_ms.append(columns[2])
    factor: dict[tuple[int, int], tuple[float, ...]] = {}
    for task, below in enumerate(children):
        for child in below:
            top = chance.uniform(1, 4)
            factor[task, child] = tuple(top * (0.4 + 0.6 * k / (variants - 1)) for k in range(variants))
    return Tree(children, tuple(accuracy), tuple(fix_ms), tuple(per_ms), factor)


def servers_of(count: int) -> dict[str, int]:
    """So many servers: half of the slowest type, a fifth of the fastest, the rest between."""
    slow, fast = count // 2, count // 5
    return {"a": slow, "b": count - slow - fast, "c": fast}


def demand(tree: Tree, count: int, utilisation: float) -> float:
    """Root queries per second that keep `count` servers so busy when every task runs its top variant at batch 4."""
    servers, top = servers_of(count), len(tree.accuracy[0]) - 1
    gain = [1.0] * len(tree.children)
    for task, below in enumerate(tree.children):
        for child in below:
            gain[child] = gain[task] * tree.factor[task, child][top]
    load = 0.0
    for task, passes in enumerate(gain):
        capacity = sum(n * 4000 / tree.latency_ms(task, top, 4, gpu) for gpu, n in servers.items()) / count
        load += passes / capacity
    return utilisation * count / load


def _part(tree: Tree, name: str) -> tuple[Json, Json]:
    """The variants and tables of one tree, and its pipeline."""
    profile: Json = {"variants": {}, "tables": {}}
    for task in range(len(tree.children)):
        for k in range(len(tree.accuracy[task])):
            variant = f"{name}-t{task}-v{k}"
            profile["variants"][variant] = {
                "task": f"{name}-t{task}",
                "quality": {"value": tree.accuracy[task][k]},
                "runs": [{"hardware": gpu, "latency": f"{variant}-{gpu}"} for gpu in SPEEDS],
            }
            for gpu in SPEEDS:
                profile["tables"][f"{variant}-{gpu}"] = {
                    "quantity": "latency_ms",
                    "axes": {"batch": list(POWERS)},
                    "p50": [tree.latency_ms(task, k, batch, gpu) for batch in POWERS],
                }
    edges = [
        {
            "from": f"t{task}",
            "to": f"t{child}",
            "fanout": {f"{name}-t{task}-v{k}": factor for k, factor in enumerate(tree.factor[task, child])},
        }
        for task, below in enumerate(tree.children)
        for child in below
    ]
    return profile, {
        "nodes": {f"t{task}": {"task": f"{name}-t{task}"} for task in range(len(tree.children))},
        "edges": edges,
    }


def inputs(
    children: tuple[tuple[int, ...], ...],
    *,
    servers: int,
    utilisation: float,
    seed: int = 1,
    slo_ms: float = 300.0,
    variants: int = VARIANTS,
) -> tuple[Json, Json]:
    """One tree on its own cluster."""
    tree = make(children, seed, variants)
    profile, pipeline = _part(tree, "p")
    whole = cluster([profile], {"p": pipeline}, SPEEDS)
    del whole["sources"]
    return whole, wish({"x": app("p", demand(tree, servers, utilisation), slo_ms)}, servers=servers_of(servers))


def shared_cluster(
    seeds: Iterable[int] = (1, 2, 3, 4), *, servers: int = 2000, each: int = 500, slo_ms: float = 300.0
) -> tuple[Json, Json]:
    """Trees of five tasks on one cluster, each with the demand that `each` servers alone would have at 1.5."""
    parts = {f"p{seed}": (make(T5, seed), _part(make(T5, seed), f"p{seed}")) for seed in seeds}
    whole = cluster(
        [profile for _, (profile, _) in parts.values()],
        {name: pipeline for name, (_, (_, pipeline)) in parts.items()},
        SPEEDS,
    )
    del whole["sources"]
    apps = {f"x{name}": app(name, demand(tree, each, 1.5), slo_ms) for name, (tree, _) in parts.items()}
    return whole, wish(apps, servers=servers_of(servers))
