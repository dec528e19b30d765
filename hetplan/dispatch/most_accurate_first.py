"""Routing filled most accurate first (Loki, Algorithm 1): greedy, per server, blind to the paths of the plan.

The frontend sends to the first tasks by the same rule, which the paper leaves out; factors are those of the variant.
What no server has room for is reported as unserved. It is for comparison and for repairing a routing between plans:
the shares of a plan are better, and keep paths in time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["FRONTEND", "Filled", "Host", "most_accurate_first"]

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
