"""A pipeline as a tree of tasks, with the configurations of each task and the prefixes of its paths.

A configuration is a variant on a hardware with a batch size. A prefix is a choice of one configuration per task from
the entrance down to some task. Prefixes that cannot end in time are never made, so that no row speaks of latency.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.choices import Choice

__all__ = [
    "ON_LIMIT_MS",
    "Level",
    "Mask",
    "Places",
    "Task",
    "Tree",
    "Vector",
    "all_levels",
    "anyhow_ms",
    "at_levels",
    "best_at",
    "count_prefixes",
    "ends_of",
    "forest_of",
    "forest_of_variants",
    "prefixes",
    "restore_stated",
    "thin_out",
    "top_variants",
    "variant_tree",
    "with_gains_of",
    "with_least_loads",
    "without_dominated",
]

Vector = NDArray[np.float64]

Places = NDArray[np.int64]

Mask = NDArray[np.bool_]

ON_LIMIT_MS = 1e-9
"""A path this little above its limit is on it: sums of times are rounded."""

LEAST_LOAD = 1e-5
"""The least load of a configuration, in servers: engines take less for no server at all, and routes lead there."""


@dataclass(frozen=True)
class Task:
    """A step t: its variants k with quality and factors, and its configurations (k, g, b), one entry per array each."""

    id: str
    parent: int
    variants: tuple[str, ...]
    quality: Vector
    factor: Mapping[int, Vector]
    """Queries sent on per query, by child task, per variant."""
    variant: Places
    hardware: Places
    batch: Places
    choices: tuple[Choice, ...]
    run: Places
    """Which of these each configuration is, at one batch."""
    ms: Vector
    k: Places
    """Instances on one server: as many as its resources have room for."""
    qps: Vector
    """What one server carries: q = (1 - headroom) k b / l."""
    fee: Vector
    """What one costs by itself, currency units per hour, where runs are paid and not their server."""
    places: Places
    """Places that one takes, where steps share its server; else 1."""

    @property
    def size(self) -> int:
        """How many configurations there are."""
        return int(self.ms.size)

    def keeping(self, mask: Mask) -> Task:
        """With some of the configurations only."""
        cut = {
            name: getattr(self, name)[mask]
            for name in ("variant", "hardware", "batch", "run", "ms", "k", "qps", "fee", "places")
        }
        return replace(self, **cut)

    def choice(self, place: int) -> Choice:
        """The run of a configuration."""
        return self.choices[int(self.run[place])]

    def label(self, place: int, hardware: Sequence[str]) -> str:
        """A configuration in words: step/variant@hardware x batch."""
        name, where = self.variants[self.variant[place]], hardware[self.hardware[place]]
        return f"{self.id}/{name}@{where} x{self.batch[place]}"


@dataclass(frozen=True)
class Tree:
    """One application's pipeline: tasks (parents first), limits and demand.

    `limit_ms` is H per last task: (slo - network per hop x hops) / slo_divisor. `paths` holds measured qualities of
    whole paths by "node=variant/...".
    """

    app: str
    tasks: tuple[Task, ...]
    limit_ms: Mapping[int, float]
    demand: float
    weight: float
    floor: float | None
    rule: str = "product"
    weights: Mapping[str, float] | None = None
    paths: Mapping[str, float] | None = None
    spare: float = 0.0
    """Instances that every group in use keeps free, so that queries need not wait long."""
    late: float = 0.0
    """In a bound: the share of queries that may take any path, and need no server of those in time; the others come."""
    late_quality: float = 0.0
    """The most that these add to the accuracy of all."""

    def with_late(self, quality: float) -> float:
        """At most the accuracy of all queries, where those in time have this one."""
        return (1.0 - self.late) * quality + self.late_quality

    @cached_property
    def children(self) -> tuple[tuple[int, ...], ...]:
        """Child tasks of each task."""
        return tuple(tuple(c for c, task in enumerate(self.tasks) if task.parent == t) for t in range(len(self.tasks)))

    @cached_property
    def roots(self) -> tuple[int, ...]:
        """Tasks at the entrance."""
        return tuple(t for t, task in enumerate(self.tasks) if task.parent < 0)

    @cached_property
    def sinks(self) -> tuple[int, ...]:
        """Tasks that send nothing on."""
        return tuple(t for t, below in enumerate(self.children) if not below)

    @cached_property
    def room_ms(self) -> Vector:
        """Per task, what a prefix that ends there may take, so that every last task below can still be in time."""
        room = np.full(len(self.tasks), np.inf)
        for t in reversed(range(len(self.tasks))):
            if not self.children[t]:
                room[t] = self.limit_ms[t]
            for child in self.children[t]:
                least = self.tasks[child].ms.min() if self.tasks[child].size else np.inf
                room[t] = min(room[t], room[child] - least)
        return room

    def keeping(self, masks: Sequence[Mask]) -> Tree:
        """With some of the configurations only."""
        return replace(self, tasks=tuple(task.keeping(mask) for task, mask in zip(self.tasks, masks, strict=True)))

    def by_task(self, values: NDArray[Any]) -> list[NDArray[Any]]:
        """What belongs to the configurations of each task, of something that has an entry for each."""
        return np.split(values, np.cumsum([task.size for task in self.tasks])[:-1])

    def path(self, task: int) -> tuple[int, ...]:
        """Tasks from the entrance to this one."""
        found: list[int] = []
        while task >= 0:
            found.append(task)
            task = self.tasks[task].parent
        return tuple(reversed(found))

    def gains_at_steps(self, edges: Sequence[tuple[int, int]]) -> list[float]:
        """Queries that reach each step per query at the entrance; where branches meet, the least that one brings."""
        return [min(several) for several in self.gains_by_branch(edges)]

    def gains_by_branch(self, edges: Sequence[tuple[int, int]]) -> list[list[float]]:
        """Queries that reach each step per query at the entrance, as each step before it says."""
        found: list[list[float]] = []
        for t in range(len(self.tasks)):
            before = [u for u, v in edges if v == t]
            found.append([found[u][0] * float(self.tasks[u].factor[t][0]) for u in before] or [1.0])
        return found

    def fastest_ms(self, sink: int) -> float:
        """The least time of a path to a last task."""
        return float(sum(self.tasks[t].ms.min() if self.tasks[t].size else np.inf for t in self.path(sink)))


@dataclass(frozen=True)
class Level:
    """The prefixes that end at one task; entries side by side."""

    parent: Places
    """Which prefix of the parent task it continues (0 at a root)."""
    config: Places
    ms: Vector
    gain: Vector
    """Queries that arrive here per query at the entrance, had all of them taken this prefix: the product of the
    factors before this task."""
    quality: Vector
    """Product (or weighted sum) so far; at a last task the quality of the path."""
    variants: Places
    """The variants chosen, one column per task of the path."""

    @property
    def size(self) -> int:
        """How many prefixes there are."""
        return int(self.config.size)


def without_dominated(tree: Tree) -> Tree:
    """The same pipeline without configurations that are never worth choosing.

    Too slow for any path; or slower than another batch of the same variant and hardware (and as many places) that
    carries no less; or faster than one that carries no less and is in time whatever else is chosen.
    """
    before = -1
    while before != (now := sum(task.size for task in tree.tasks)):
        before, least = now, _least_before(tree)
        tree = tree.keeping([task.ms + least[t] <= tree.room_ms[t] + ON_LIMIT_MS for t, task in enumerate(tree.tasks)])
    anyhow = anyhow_ms(tree)
    return tree.keeping([_is_worth(task, float(anyhow[t])) for t, task in enumerate(tree.tasks)])


def anyhow_ms(tree: Tree) -> Vector:
    """Per task, how long it may take beside the slowest of all others; nothing where branches join (see `factor`)."""
    if any(set(task.factor) != set(below) for task, below in zip(tree.tasks, tree.children, strict=True)):
        return np.full(len(tree.tasks), -np.inf)
    slowest = np.array([task.ms.max(initial=0.0) for task in tree.tasks])
    anyhow = np.full(len(tree.tasks), np.inf)
    for sink in tree.sinks:
        path = list(tree.path(sink))
        anyhow[path] = np.minimum(anyhow[path], tree.limit_ms[sink] - slowest[path].sum() + slowest[path])
    return anyhow


def with_least_loads(tree: Tree) -> Tree:
    """The same pipeline where no step gets next to nothing: its demand and factors raised to what engines can see."""
    tasks = list(tree.tasks)
    demand = max([tree.demand, *(LEAST_LOAD * tasks[t].qps.max(initial=0.0) for t in tree.roots)])
    least = np.full(len(tasks), demand)
    for t, task in enumerate(tasks):
        factor = {}
        for child, values in task.factor.items():
            floor = LEAST_LOAD * tasks[child].qps.max(initial=0.0) / least[t]
            factor[child] = np.maximum(values, floor)
            least[child] = least[t] * factor[child].min()
        tasks[t] = replace(task, factor=factor)
    return replace(tree, tasks=tuple(tasks), demand=demand)


def restore_stated(tree: Tree, stated: Tree) -> Tree:
    """The same pipeline with demand and factors as the files state them: `with_least_loads` undone."""
    tasks = (replace(task, factor=own.factor) for task, own in zip(tree.tasks, stated.tasks, strict=True))
    return replace(tree, tasks=tuple(tasks), demand=stated.demand)


def with_gains_of(tree: Tree, levels: Sequence[Level]) -> list[Level]:
    """The same prefixes with the gains that this pipeline's factors make.

    Where branches join, no task has a parent here, and all variants of a task send on alike.
    """
    found: list[Level] = []
    for t, (task, level) in enumerate(zip(tree.tasks, levels, strict=True)):
        gain = np.ones(level.size)
        if task.parent >= 0:
            above = found[task.parent]
            gain = (above.gain * tree.tasks[task.parent].factor[t][above.variants[:, -1]])[level.parent]
        elif before := [u for u in range(t) if t in tree.tasks[u].factor]:
            gain *= found[before[0]].gain[0] * tree.tasks[before[0]].factor[t][0]
        found.append(replace(level, gain=gain))
    return found


def ends_of(took: Sequence[float], edges: Sequence[tuple[int, int]]) -> list[float]:
    """When each step ends, where it takes so long and begins after all before it.

    >>> ends_of([1.0, 2.0, 5.0, 1.0], [(0, 1), (0, 2), (1, 3), (2, 3)])
    [1.0, 3.0, 6.0, 7.0]
    """
    ended = list(took)
    for u, v in sorted(edges, key=lambda edge: edge[1]):
        ended[v] = max(ended[v], ended[u] + took[v])
    return ended


def _least_before(tree: Tree) -> Vector:
    """Per task, the least time of the tasks before it."""
    least = np.zeros(len(tree.tasks))
    for t, task in enumerate(tree.tasks):
        if task.parent >= 0:
            above = tree.tasks[task.parent]
            least[t] = least[task.parent] + (above.ms.min() if above.size else np.inf)
    return least


def _is_worth(task: Task, anyhow_ms: float) -> Mask:
    """Slower ones carry more; of those that are in time anyhow, only the one that carries most is kept."""
    order = np.lexsort((-task.qps, np.where(task.ms <= anyhow_ms, -np.inf, task.ms)))
    keep = np.zeros(task.size, dtype=bool)
    best: dict[tuple[int, ...], float] = {}
    for place in order:
        alike = int(task.variant[place]), int(task.hardware[place]), int(task.places[place])
        if task.qps[place] > best.get(alike, -1.0):
            best[alike], keep[place] = float(task.qps[place]), True
    return keep


def count_prefixes(tree: Tree) -> int:
    """At most how many prefixes there are, without making them."""
    sizes: list[int] = []
    for task in tree.tasks:
        sizes.append(task.size * (sizes[task.parent] if task.parent >= 0 else 1))
    return sum(sizes)


def prefixes(tree: Tree) -> list[Level]:
    """All prefixes that can end in time, task by task."""
    levels: list[Level] = []
    for t, task in enumerate(tree.tasks):
        above = levels[task.parent] if task.parent >= 0 else None
        parents, before = (above.size, above.ms) if above is not None else (1, np.zeros(1))
        ms = before[:, None] + task.ms[None, :]
        parent, config = np.nonzero(ms <= tree.room_ms[t] + ON_LIMIT_MS)
        variant = task.variant[config]
        gain, quality = np.ones(parent.size), np.ones(parent.size)
        variants = variant[:, None]
        own = task.quality[variant]
        if tree.rule == "additive":
            own, quality = own * (tree.weights or {}).get(task.id, 1.0), np.zeros(parent.size)
        if above is not None:
            assert parents == above.variants.shape[0]
            sent = tree.tasks[task.parent].factor[t][above.variants[:, -1]]
            gain, quality = (above.gain * sent)[parent], above.quality[parent]
            variants = np.concatenate([above.variants[parent], variants], axis=1)
        quality = quality + own if tree.rule == "additive" else quality * own
        if tree.paths and not tree.children[t]:
            quality = _measured_quality(tree, t, variants, quality)
        levels.append(Level(parent, config, ms[parent, config], gain, quality, variants))
    return levels


def forest_of(trees: Iterable[Tree]) -> list[tuple[Tree, list[Level]]]:
    """Trees with their prefixes."""
    return [(tree, prefixes(tree)) for tree in trees]


def forest_of_variants(trees: Iterable[Tree]) -> list[tuple[Tree, list[Level]]]:
    """Trees of variants alone, each as fast as it can be, with their prefixes."""
    return forest_of(map(variant_tree, trees))


def _measured_quality(tree: Tree, sink: int, variants: Places, quality: Vector) -> Vector:
    """Qualities of whole paths, as measured where they were."""
    tasks = [tree.tasks[t] for t in tree.path(sink)]
    distinct, place = np.unique(variants, axis=0, return_inverse=True)
    keys = ["/".join(f"{task.id}={task.variants[k]}" for task, k in zip(tasks, row, strict=True)) for row in distinct]
    known = np.array([(tree.paths or {}).get(key, np.nan) for key in keys])[place.ravel()]
    return np.where(np.isnan(known), quality, known)


def variant_tree(tree: Tree) -> Tree:
    """The tree of variants: one configuration each, the fastest that it has.

    Where any server of a variant may be met on any path, a path is in time when its slowest servers are. Who keeps
    paths in time is left to the formulations.
    """
    return replace(tree, tasks=tuple(_variants_only(task) for task in tree.tasks))


def _variants_only(task: Task) -> Task:
    variants, place = np.unique(task.variant, return_inverse=True)
    ms = np.full(variants.size, np.inf)
    np.minimum.at(ms, place, task.ms)
    zeros = np.zeros(variants.size, np.int64)
    none = np.zeros(variants.size)
    one = zeros + 1
    return replace(
        task, variant=variants, hardware=zeros, batch=one, ms=ms, k=one, qps=none, fee=none, places=one
    )  # fmt: skip


def top_variants(tree: Tree) -> Tree:
    """Only the most accurate variant of each task."""
    return tree.keeping([task.quality[task.variant] >= task.quality.max() - 1e-12 for task in tree.tasks])


def all_levels(tree: Tree) -> list[np.ndarray]:
    """Per task, the distinct latencies that leave time for the fastest others."""
    return [np.unique(task.ms) for task in tree.tasks]


def thin_out(values: np.ndarray, count: int) -> np.ndarray:
    """So many of them, evenly by rank, first and last included."""
    if values.size <= count:
        return values
    return values[[round(i * (values.size - 1) / (count - 1)) for i in range(count)]]


def best_at(tree: Tree, t: int, level_ms: float) -> Places:
    """Of every variant and hardware of a task (and places that one takes), the configuration that carries most and
    takes no longer than this."""
    task, best = tree.tasks[t], dict[tuple[int, ...], int]()
    for place in np.argsort(task.qps, kind="stable"):
        if task.ms[place] <= level_ms + ON_LIMIT_MS:
            best[int(task.variant[place]), int(task.hardware[place]), int(task.places[place])] = int(place)
    return np.array(sorted(best.values()), dtype=np.int64)


def at_levels(tree: Tree, chosen: Sequence[float]) -> Tree:
    """Only the best configurations at one level per task."""
    masks = []
    for t, task in enumerate(tree.tasks):
        mask = np.zeros(task.size, dtype=bool)
        mask[best_at(tree, t, chosen[t])] = True
        masks.append(mask)
    return tree.keeping(masks)
