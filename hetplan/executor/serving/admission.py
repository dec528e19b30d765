"""Which queries of an application are taken, and which are given up: what cannot be in time is not served.

Without a bound a queue grows until all that is answered is late. So a query is refused on arrival when those before it
fill the time that the workers have until its deadline, and given up later once no worker can make it any more. What the
workers have is what the plan says: their service times and their servers, put right by how long they really take.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from time import monotonic
from typing import Any, NamedTuple

from hetplan.executor.serving.links import Lane
from hetplan.executor.serving.query_tree import QueryState, Steps, Task

__all__ = ["Admission"]

_ANEW_S = 0.25
"""How long what was worked out of a class of query holds. A worker that comes to be slower or quicker is seen so much
later; in return each class is worked out four times a second at most, however many queries come.
"""
_MOST_OVER = 0.8
"""Of the time to spare. However slow workers were, a query that comes to idle ones is tried: else none would ever be
seen to be quick again. Any share below one does that; nothing that was
measured speaks for this one.
"""
_MOST_CLASSES = 10_000


class _Prospect(NamedTuple):
    """What the workers that are up make of a class of query at a step.

    `planned_s` is the fastest one's time by the plan and `least_s` as it is seen to be; `share_s` is by how much such a
    query fills all of them together.
    """

    planned_s: float
    least_s: float
    share_s: float
    until_s: float


class Admission:
    """The bound of one application. It does nothing (`active`) without a deadline, and where all are to be served."""

    def __init__(
        self, steps: Steps, lanes_of: Callable[[str], Sequence[Lane]], limit_s: float, *, serves_all: bool,
        before: Admission | None,
    ) -> None:  # fmt: skip
        self.active = limit_s < inf and not serves_all
        self._steps, self._lanes_of, self._limit_s = steps, lanes_of, limit_s
        self._backlog_s: dict[str, float] = before._backlog_s if before is not None else {}
        self._known: dict[tuple[str, tuple[Any, ...]], _Prospect] = {}
        self._planned: dict[tuple[Any, ...], float] = {}

    def forget_workers(self) -> None:
        """Workers came or went."""
        self._known.clear()
        self._planned.clear()

    def refusal(self, query: QueryState) -> str:
        """Why a query that arrives now is not taken; nothing where it is."""
        if not self.active or all(self._path_s(node, query) <= self._limit_s for node in self._steps.entries):
            return ""
        if self._planned_s(query) > self._limit_s:
            return "no worker answers this in time"
        return "too many are before it to be in time"

    def enter(self, task: Task) -> None:
        """It is at a step now."""
        if self.active and not task.share_s:
            share_s = self._prospect(task.node, task.query).share_s
            task.share_s = share_s if share_s < inf else 0.0
            self._backlog_s[task.node] = self._backlog_s.get(task.node, 0.0) + task.share_s

    def leave(self, task: Task) -> None:
        """It is done there, or given up."""
        if task.share_s:
            left_s = self._backlog_s.get(task.node, 0.0) - task.share_s
            self._backlog_s[task.node] = left_s if left_s > 1e-9 else 0.0
            task.share_s = 0.0

    def takes(self, task: Task, lane: Lane, until_s: float) -> bool:
        """Whether a worker's own queue has room for it, so that it is done by then; if so, it has a place there."""
        one_s, share_s = self._room(task.node, task.query, lane)
        line = lane.line
        if until_s < inf and monotonic() + max(one_s, line.backlog_s + share_s) > until_s:
            return False
        task.line_s = share_s if share_s < inf else 0.0
        line.backlog_s += task.line_s
        return True

    def time_s(self, node: str, query: QueryState, lane: Lane, size: int) -> float:
        """How long a batch takes there from its begin to the router, by the plan and by what was seen."""
        planned_s = lane.median_s(query.at, size)
        spare_s = self._limit_s - self._planned_s(query) + self._prospect(node, query).planned_s - planned_s
        return planned_s + min(lane.over_s, max(_MOST_OVER * spare_s / len(self._steps.nodes), 0.0))

    def hopeless(self, task: Task, now: float, until_s: float) -> bool:
        """Whether no worker that is up could be done by then."""
        return until_s < inf and now + self._prospect(task.node, task.query).least_s > until_s

    def rest_s(self, node: str, query: QueryState) -> float:
        """The least time that the steps take which follow in any case."""
        return max(
            (self._prospect(to, query).least_s + self.rest_s(to, query) for to in self._follow(node)), default=0.0
        )

    def _path_s(self, node: str, query: QueryState) -> float:
        """When a query would be through from this step on, with what is before it there."""
        _, least_s, share_s, _ = self._prospect(node, query)
        here_s = max(least_s, self._backlog_s.get(node, 0.0) + share_s)
        return here_s + max((self._path_s(to, query) for to in self._follow(node)), default=0.0)

    def _planned_s(self, query: QueryState) -> float:
        """The time of a query that waits nowhere, by the plan."""
        found = self._planned.get(query.kind)
        if found is None:
            if len(self._planned) > _MOST_CLASSES:
                self._planned.clear()
            found = self._planned[query.kind] = max(self._planned_from(node, query) for node in self._steps.entries)
        return found

    def _planned_from(self, node: str, query: QueryState) -> float:
        times = [lane.median_s(query.at, 1) for lane in self._lanes_of(node) if lane.open]
        return min(times, default=0.0) + max((self._planned_from(to, query) for to in self._follow(node)), default=0.0)

    def _follow(self, node: str) -> list[str]:
        edges = self._steps.nodes[node].edges
        return [edge.to for edge in edges if edge.on is None and min(edge.by_variant.values(), default=0.0) >= 1.0]

    def _prospect(self, node: str, query: QueryState) -> _Prospect:
        now, key = monotonic(), (node, query.kind)
        found = self._known.get(key)
        if found is not None and found.until_s > now:
            return found
        if len(self._known) > _MOST_CLASSES:
            self._known.clear()
        up = [lane for lane in self._lanes_of(node) if lane.open]
        planned_s = min((lane.median_s(query.at, 1) for lane in up), default=0.0)
        # Of workers that are not there nothing is known: it waits for one, or is lost, as without a deadline.
        found = self._known[key] = _Prospect(planned_s, planned_s, 0.0, now + _ANEW_S)
        if up:
            least_s, rates = inf, dict[Any, float]()
            for lane in up:
                one_s, share_s = self._room(node, query, lane)
                if share_s < inf:
                    least_s = min(least_s, one_s)
                    rates[lane.line] = max(rates.get(lane.line, 0.0), 1.0 / max(share_s, 1e-9))
            share_s = 1.0 / sum(rates.values()) if rates else inf
            found = self._known[key] = _Prospect(planned_s, least_s, share_s, now + _ANEW_S)
        return found

    def _room(self, node: str, query: QueryState, lane: Lane) -> tuple[float, float]:
        """The time of one alone at a worker, and by how much one among many fills it; infinite where it is late."""
        one_s = self.time_s(node, query, lane, 1)
        if one_s > self._limit_s:
            return inf, inf
        each_s, full = one_s, lane.max_batch
        if full > 1 and (full_s := self.time_s(node, query, lane, full)) <= self._limit_s:
            each_s = min(each_s, full_s / full)
        return one_s, each_s / lane.servers
