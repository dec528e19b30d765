"""A query on its way through the steps of an application: its jobs, what follows each, and what it comes to.

The same as in the simulator: a job of a step is followed, along each edge, by as many jobs as the model's answer says,
or as its mean fan-out says (rounded down or up at random, so that the mean is kept). What the answer comes to may
decide which edges are followed; a job that follows none ends there. A step with several parents begins when all that
leads to it is done. Quality is multiplied or added along a path, and averaged over its ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import ceil, inf
from random import Random
from typing import Any

from hetplan.serving.system import sent_on

__all__ = ["Edge", "Hop", "Node", "QueryState", "Steps", "Task", "fan_out", "joined_jobs", "joined_quality"]


@dataclass(frozen=True, slots=True)
class Edge:
    """What a step sends on to another: queries per query, by the variant upstream ("*" for any other).

    `on` are the outcomes after which it is followed; empty where it always is.
    """

    to: str
    fanout: Mapping[str, float]
    on: tuple[str, ...] = ()

    def mean(self, variant: str | None) -> float:
        """Queries per query of this variant."""
        return sent_on(self.fanout, variant)


@dataclass(frozen=True)
class Node:
    """A step: what follows it. `worth` is what a job counts by its outcome, more where it comes to fewer ends."""

    name: str
    edges: tuple[Edge, ...]
    parents: tuple[str, ...]
    ancestors: frozenset[str]
    worth: Mapping[str, float] = field(default_factory=dict)

    def followed(self, outcome: str) -> tuple[Edge, ...]:
        """The edges that a job of this outcome follows."""
        return tuple(edge for edge in self.edges if not edge.on or outcome in edge.on) if self.worth else self.edges


class Steps:
    """The steps of an application.

    >>> steps = Steps({"d": {"edges": [{"to": "c", "fanout": {"*": 2.0}}]}, "c": {"edges": []}})
    >>> steps.entries, steps.sinks, steps.joins
    (('d',), 1, False)
    """

    def __init__(self, nodes: Mapping[str, Any]) -> None:
        edges = {
            name: tuple(Edge(e["to"], e["fanout"], tuple(e.get("on", ()))) for e in node["edges"])
            for name, node in nodes.items()
        }
        parents = {name: tuple(one for one in nodes if any(e.to == name for e in edges[one])) for name in nodes}
        outcomes = {name: node.get("outcomes", ()) for name, node in nodes.items()}
        self.nodes = {
            name: Node(
                name, edges[name], parents[name], frozenset(_ancestors(name, parents)), _worth(name, edges, outcomes)
            )
            for name in nodes
        }
        self.entries = tuple(name for name in nodes if not parents[name])
        self.sinks = (
            sum(_ends(name, edges, outcomes) for name in self.entries)
            if any(outcomes.values())
            else sum(not node.edges for node in self.nodes.values())
        )
        self.joins = any(len(node.parents) > 1 for node in self.nodes.values())

    @cached_property
    def single(self) -> bool:
        """Whether there is one step only."""
        return len(self.nodes) == 1

    @cached_property
    def alone(self) -> bool:
        """Whether there is one step only, and nothing depends on what its answer comes to."""
        return self.single and not any(node.edges or node.worth for node in self.nodes.values())


def _after(name: str, edges: Mapping[str, tuple[Edge, ...]], outcomes: Mapping[str, Any], outcome: str) -> int:
    """To how many ends at most the jobs of a step come that have this outcome; 0 where nothing follows."""
    return sum(_ends(edge.to, edges, outcomes) for edge in edges[name] if not edge.on or outcome in edge.on)


def _ends(name: str, edges: Mapping[str, tuple[Edge, ...]], outcomes: Mapping[str, Any]) -> int:
    """To how many ends at most a job of a step comes."""
    return max(1, *(_after(name, edges, outcomes, outcome) for outcome in outcomes[name] or ("",)))


def _worth(name: str, edges: Mapping[str, tuple[Edge, ...]], outcomes: Mapping[str, Any]) -> dict[str, float]:
    """By outcome, what a job counts that comes to fewer ends than another outcome's."""
    return {
        outcome: _ends(name, edges, outcomes) / max(1, _after(name, edges, outcomes, outcome))
        for outcome in outcomes[name]
    }


def _ancestors(name: str, parents: Mapping[str, tuple[str, ...]]) -> set[str]:
    found: set[str] = set()
    look = list(parents[name])
    while look:
        parent = look.pop()
        if parent not in found:
            found.add(parent)
            look += parents[parent]
    return found


@dataclass(slots=True)
class Hop:
    """What one step did for a query; it waited in the router first, then in the worker's queue."""

    node: str
    load: str
    variant: str | None
    unit: str
    router_ms: float
    queue_ms: float
    service_ms: float
    batch: int
    outcome: str = ""


@dataclass(slots=True, eq=False)
class Task:
    """One job: a query at one step. At `asked_s` a worker was asked for it.

    `path` are the loads that it has passed, `steps` the same as measured paths name them, `outcomes` what the answers
    came to (step and outcome). `share_s` and `line_s` are by how much it fills its step, and the queue of its worker.
    """

    query: QueryState
    node: str
    body: bytes
    path: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()
    outcomes: tuple[tuple[str, str], ...] = ()
    weight: float = 1.0
    quality: float = 1.0
    entered_s: float = 0.0
    asked_s: float = 0.0
    attempts: int = 0
    lane: Any = None
    expected_s: float = 0.0
    share_s: float = 0.0
    line_s: float = 0.0
    cancelled: bool = False


@dataclass(slots=True, eq=False)
class QueryState:
    """A query of a client, until its last job is over. `judged`: the quality of some step on its way is known."""

    app: Any
    exchange: Any
    at: dict[str, float]
    kind: tuple[Any, ...]
    arrived_s: float
    deadline_s: float = inf
    brief: bool = False
    open: int = 0
    quality: float = 0.0
    judged: bool = False
    outcome: str = ""
    why: str = ""
    hops: list[Hop] = field(default_factory=list)
    outputs: list[tuple[str, bytes]] = field(default_factory=list)
    meetings: dict[str, list[float]] | None = None
    """Per step of a graph with joins: jobs open, jobs done, their qualities, arrivals waiting for the others."""

    def meeting(self, node: str) -> list[float]:
        """The counts of a step."""
        assert self.meetings is not None
        found = self.meetings.get(node)
        if found is None:
            found = self.meetings[node] = [0.0, 0.0, 0.0, 0.0]
        return found


def fan_out(mean: float, random: Random) -> int:
    """A whole number of this mean: it rounded down or up."""
    whole = int(mean)
    return whole + (random.random() < mean - whole)


def joined_jobs(query: QueryState, steps: Steps) -> list[tuple[str, int]]:
    """The steps where branches meet that may begin now, and with how many jobs; their arrivals are taken."""
    ready = []
    for node in steps.nodes.values():
        if len(node.parents) < 2:
            continue
        meeting = query.meeting(node.name)
        under_way = any(
            query.meeting(other)[0] > 0.0 or (query.meeting(other)[3] > 0.0 and other != node.name)
            for other in node.ancestors
        )
        if meeting[3] > 0.0 and not under_way:
            ready.append((node.name, ceil(meeting[3] / len(node.parents))))
            meeting[3] = 0.0
    return ready


def joined_quality(query: QueryState, product: bool) -> float:
    """Quality over a graph with joins: the steps' mean qualities, multiplied or added."""
    total = 1.0 if product else 0.0
    for _, done, sum_of_qualities, _ in (query.meetings or {}).values():
        if done:
            mean = sum_of_qualities / done
            total = total * mean if product else total + mean
    return total
