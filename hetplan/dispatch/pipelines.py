"""Where a request of a pipeline goes, and what becomes of one that is late (Loki).

**Most accurate first** (Algorithm 1) fills a routing greedily, per server, blind to the paths of the plan.

The frontend sends to the first tasks by the same rule, which the paper leaves out; factors are those of the variant.
What no server has room for is reported as unserved. It is for comparison and for repairing a routing between plans:
the shares of a plan are better, and keep paths in time.

**Path shares** (rule ``path-shares/1``): a request goes on by the shares of the path that it has taken so far.

**Late requests** go on their own way if that is fast enough, else to a backup with capacity left. The budget of a
step is made for its longest execution y. A request that comes late by d keeps within it on a server that takes no
longer than y - d, be that its own or another. Of the others the most accurate is taken.

By when a query must be done at a step, or be given up there, is `decision_kernels.behind`: all policies look before
a query is served, when its execution time is known. Who is dropped then spares others the wait.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import inf
from typing import TYPE_CHECKING

from hetplan.dispatch.decision_kernels import has_room_for, spare_in_second
from hetplan.errors import InputError
from hetplan.serving.route_choice import best_route

if TYPE_CHECKING:
    from hetplan.profiles.plan import Route
    from hetplan.profiles.plan_dispatch_rules import BackupEntry

__all__ = [
    "FRONTEND",
    "Backups",
    "Filled",
    "Host",
    "PathShares",
    "most_accurate_first",
]

FRONTEND = ""
"""The source of the tables by which queries enter."""


@dataclass(frozen=True, slots=True)
class Host:
    """One server: what it runs for which task, how well, how much of it, and what it sends on per query."""

    id: str
    task: str
    quality: float
    capacity_qps: float
    factor: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Filled:
    """Routing tables: source -> child task -> (host, share); per task what is left over, and what found no room.

    Shares of a source sum to less than 1 where some of its queries found no room.
    """

    tables: Mapping[str, Mapping[str, tuple[tuple[str, float], ...]]]
    left_qps: Mapping[str, Mapping[str, float]]
    unserved_qps: Mapping[str, float]
    load_qps: Mapping[str, float]


def most_accurate_first(hosts: Sequence[Host], tasks: Mapping[str, Sequence[str]], demand_qps: float) -> Filled:
    """Fill the servers of each task in order of accuracy (ties by id), for each source in the same order.

    `tasks` maps each task to its children, parents first. Linear in servers and table entries.

    >>> hosts = [Host("a1", "a", 1.0, 10, {"b": 3}), Host("a2", "a", 0.8, 20, {"b": 2}),
    ...     Host("b1", "b", 1.0, 25), Host("b2", "b", 0.9, 20), Host("b3", "b", 0.7, 30)]
    >>> filled = most_accurate_first(hosts, {"a": ["b"], "b": []}, 25)
    >>> filled.tables[""]["a"], filled.tables["a2"]["b"]
    ((('a1', 0.4), ('a2', 0.6)), (('b2', 0.5), ('b3', 0.5)))
    >>> filled.left_qps["a"], filled.left_qps["b"]
    ({'a2': 5}, {'b3': 15.0})
    """
    by_task: dict[str, list[Host]] = {task: [] for task in tasks}
    for host in sorted(hosts, key=lambda one: (-one.quality, one.id)):
        by_task[host.task].append(host)
    reached = {child for below in tasks.values() for child in below}
    incoming: dict[str, list[tuple[str, float]]] = {
        task: [] if task in reached else [(FRONTEND, demand_qps)] for task in tasks
    }
    tables: dict[str, dict[str, tuple[tuple[str, float], ...]]] = {}
    left: dict[str, dict[str, float]] = {}
    unserved: dict[str, float] = {}
    loads: dict[str, float] = {}
    for task, children in tasks.items():
        own = by_task[task]
        room = [host.capacity_qps for host in own]
        at, missed = 0, 0.0
        for source, rate in incoming[task]:
            wanted, entries = rate, []
            while wanted > 0.0 and at < len(own):
                sent = min(wanted, room[at])
                if sent > 0.0:
                    entries.append((own[at].id, sent / rate))
                    room[at] -= sent
                    wanted -= sent
                if room[at] <= 1e-12 * own[at].capacity_qps:
                    room[at] = 0.0
                    at += 1
                if wanted <= 1e-12 * rate:
                    wanted = 0.0
            missed += wanted
            tables.setdefault(source, {})[task] = tuple(entries)
        left[task] = {host.id: spare for host, spare in zip(own, room, strict=True) if spare > 0.0}
        unserved[task] = missed
        for host, spare in zip(own, room, strict=True):
            load = loads[host.id] = host.capacity_qps - spare
            if load > 0.0:
                for child in children:
                    incoming[child].append((host.id, load * host.factor.get(child, 1.0)))
    return Filled(tables, left, unserved, loads)


Key = tuple[tuple[str, ...], str | None]


class PathShares:
    """The routing section of one application, ready to be asked.

    The route is that of `serving.route_choice`: its `prefix` is the whole path, else the last load alone, else none.

    >>> from hetplan.profiles.plan import Route
    >>> rule = PathShares([Route(node="a", to={"a1": 0.25, "a2": 0.75}), Route(prefix=("a1",), node="b", to={"b1": 1})])
    >>> rule.choose((), "a", 0.2), rule.choose((), "a", 0.3), rule.choose(("a1",), "b", 0.9)
    ('a1', 'a2', 'b1')
    """

    def __init__(self, routes: Iterable[Route]) -> None:
        self._routes: dict[str | None, list[Route]] = {}
        for route in routes:
            self._routes.setdefault(route.node, []).append(route)
        self._table: dict[Key, tuple[list[float], list[str]]] = {}

    def choose(self, path: tuple[str, ...], node: str | None, draw: float) -> str:
        """The load that serves this request next; `draw` is uniform in [0, 1)."""
        upto, loads = self._table.get((path, node)) or self._look_up(path, node)
        return loads[min(bisect_right(upto, draw * upto[-1]), len(loads) - 1)]

    def _look_up(self, path: tuple[str, ...], node: str | None) -> tuple[list[float], list[str]]:
        route = best_route(self._routes.get(node, ()), path=path)
        if route is not None:
            found = self._table[path, node] = (list(accumulate(route.to.values())), list(route.to))
            return found
        raise InputError.one(
            file="plan",
            path="$.routing",
            value=" > ".join(path) or "the entrance",
            why=f"no route leads from there to {node}",
            remedy="Make the plan again.",
        )


@dataclass
class Backups:
    """The backup table of one step, with what is left of it in the second under way.

    >>> from hetplan.profiles.plan_dispatch_rules import BackupEntry
    >>> table = [BackupEntry(to="b2", node="b", left_qps=1, latency_ms=20, quality=0.9),
    ...     BackupEntry(to="b3", node="b", left_qps=5, latency_ms=10, quality=0.7)]
    >>> backups = Backups.of(table, "b")
    >>> backups.take(0.1, late_ms=30, exec_ms=50), backups.take(0.2, late_ms=30, exec_ms=50)
    ('b2', 'b3')
    >>> backups.take(1.1, late_ms=30, exec_ms=50), backups.take(1.1, late_ms=45, exec_ms=50)
    ('b2', None)
    """

    entries: tuple[BackupEntry, ...]
    _left: dict[str, tuple[float, float]] = field(default_factory=dict, repr=False)
    """What is left of each, and until when."""

    @classmethod
    def of(cls, table: Iterable[BackupEntry], node: str) -> Backups:
        """The entries of one step, most accurate first."""
        own = (entry for entry in table if entry.node == node)
        return cls(tuple(sorted(own, key=lambda entry: (-entry.quality, entry.to))))

    def take(self, now_s: float, *, late_ms: float, exec_ms: float, draw: float = 0.0) -> str | None:
        """The load that takes a request late by `late_ms` at a step whose budget is made for `exec_ms`; None: drop it.

        Among those that make up the time and have capacity left in this second, the best accuracy; of equals one at
        random (`draw` in [0, 1)). What it takes is gone until the next second.
        """
        fitting: list[BackupEntry] = []
        for entry in self.entries:
            left, until_ms = self._left.get(entry.to, (0.0, -inf))
            left, _ = self._left[entry.to] = spare_in_second(left, until_ms, entry.left_qps, 1e3 * now_s)
            if has_room_for(1.0, left, exec_ms, entry.latency_ms, late_ms):
                fitting.append(entry)
        if not fitting:
            return None
        best = [entry for entry in fitting if entry.quality == fitting[0].quality]
        chosen = best[min(int(draw * len(best)), len(best) - 1)].to
        left, until_ms = self._left[chosen]
        self._left[chosen] = (left - 1.0, until_ms)
        return chosen
