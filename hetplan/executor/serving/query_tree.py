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

from hetplan.serving.system import App, Edge, Stage

__all__ = ["Hop", "Node", "QueryState", "Steps", "Task", "fan_out", "joined_jobs", "joined_quality"]


@dataclass(frozen=True)
class Node:
    """A step: what follows it. `worth` is what a job counts by its outcome, more where it comes to fewer ends."""

    stage: Stage
    parents: tuple[str, ...]
    ancestors: frozenset[str]
    worth: Mapping[str, float]

    @property
    def edges(self) -> tuple[Edge, ...]:
        """What may follow it."""
        return self.stage.edges


class Steps:
    """The steps of an application.

    >>> steps = Steps({"d": {"edges": [{"to": "c", "fanout": {"*": 2.0}}]}, "c": {"edges": []}})
    >>> steps.entries, steps.sinks, steps.joins
    (('d',), 1, False)
    """

    def __init__(self, nodes: Mapping[str, Any]) -> None:
        stages = tuple(
            Stage(name, tuple(map(_edge, node["edges"])), outcomes=tuple(node.get("outcomes", ())))
            for name, node in nodes.items()
        )
        app = App("", stages, inf)
        self.nodes = {
            stage.id: Node(stage, app.parents[stage.id], app.above(stage.id), app.worth(stage)) for stage in stages
        }
        self.entries = tuple(name for name, node in self.nodes.items() if not node.parents)
        self.sinks = app.sinks
        self.joins = any(len(node.parents) > 1 for node in self.nodes.values())

    @cached_property
    def single(self) -> bool:
        """Whether there is one step only."""
        return len(self.nodes) == 1

    @cached_property
    def alone(self) -> bool:
        """Whether there is one step only, and nothing depends on what its answer comes to."""
        return self.single and not any(node.edges or node.worth for node in self.nodes.values())


def _edge(said: Mapping[str, Any]) -> Edge:
    return Edge(said["to"], by_variant=said["fanout"], on=next(iter(said.get("on", ())), None))


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
    for name, node in steps.nodes.items():
        if len(node.parents) < 2:
            continue
        meeting = query.meeting(name)
        under_way = any(
            query.meeting(other)[0] > 0.0 or (query.meeting(other)[3] > 0.0 and other != name)
            for other in node.ancestors
        )
        if meeting[3] > 0.0 and not under_way:
            ready.append((name, ceil(meeting[3] / len(node.parents))))
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
