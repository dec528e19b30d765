"""Which queries of an application are taken, and which are given up: what cannot be in time is not served.

Without a bound a queue grows until all that is answered is late. So a query is refused on arrival when those before it
fill the time that the workers have until its deadline, and given up later once no worker can make it any more. What the
workers have is what the plan says: their service times and their servers, put right by how long they really take.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf
from time import monotonic
from typing import Any, NamedTuple

from hetplan.executor.serving.links import Lane
from hetplan.executor.serving.query_tree import QueryState, Steps, Task

__all__ = ["Admission"]

_ANEW_S = 0.25
"""How long what was worked out of a class of query holds: workers come to be slower or quicker."""
_MOST_OVER = 0.9
"""Of the deadline. However slow a worker was, one that is idle is tried with what comes, else it was shut out for good.
"""
_MOST_CLASSES = 10_000


class _Prospect(NamedTuple):
    """What the workers that are up make of a class of query at a step.

    `least_s` is the fastest one's time, `share_s` by how much such a query fills all of them together.
    """

    least_s: float
    share_s: float
    until_s: float


class Admission:
    """The bound of one application. It does nothing (`active`) without a deadline, and where all are to be served."""

    def __init__(
        self, steps: Steps, lanes_of: Callable[[str], Sequence[Lane]], slo_s: float, *, serves_all: bool,
        before: Admission | None,
    ) -> None:  # fmt: skip
        self.active = slo_s < inf and not serves_all
        self._steps, self._lanes_of, self._slo_s = steps, lanes_of, slo_s
        self._backlog_s: dict[str, float] = before._backlog_s if before is not None else {}
        self._known: dict[tuple[str, tuple[Any, ...]], _Prospect] = {}

    def forget_workers(self) -> None:
        """Workers came or went."""
        self._known.clear()

    def refusal(self, query: QueryState) -> str:
        """Why a query that arrives now is not taken; nothing where it is."""
        if not self.active or all(self._path_s(node, query) <= self._slo_s for node in self._steps.entries):
            return ""
        alone = max(self._least(node, query).least_s + self.rest_s(node, query) for node in self._steps.entries)
        return "no worker answers this in time" if alone > self._slo_s else "too many are before it to be in time"

    def enter(self, task: Task) -> None:
        """It is at a step now."""
        if self.active and not task.share_s:
            share_s = self._least(task.node, task.query).share_s
            task.share_s = share_s if share_s < inf else 0.0
            self._backlog_s[task.node] = self._backlog_s.get(task.node, 0.0) + task.share_s

    def leave(self, task: Task) -> None:
        """It is done there, or given up."""
        if task.share_s:
            left_s = self._backlog_s.get(task.node, 0.0) - task.share_s
            self._backlog_s[task.node] = left_s if left_s > 1e-9 else 0.0
            task.share_s = 0.0

    def takes(self, task: Task, lane: Lane, limit_s: float) -> bool:
        """Whether a worker's own queue has room for it, so that it is done by then; if so, it has a place there."""
        one_s, share_s = self._room(lane, task.query.at)
        line = lane.line
        if limit_s < inf and monotonic() + max(one_s, line.backlog_s + share_s) > limit_s:
            return False
        task.line_s = share_s if share_s < inf else 0.0
        line.backlog_s += task.line_s
        return True

    def time_s(self, lane: Lane, at: Mapping[str, float], size: int) -> float:
        """How long a batch takes there from its begin to the router, by the plan and by what was seen."""
        planned_s = lane.tail_s(at, size)
        return max(planned_s, min(planned_s + lane.over_s, _MOST_OVER * self._slo_s))

    def hopeless(self, task: Task, now: float, limit_s: float) -> bool:
        """Whether no worker that is up could be done by then."""
        return limit_s < inf and now + self._least(task.node, task.query).least_s > limit_s

    def rest_s(self, node: str, query: QueryState) -> float:
        """The least time that the steps take which follow in any case."""
        return max((self._least(to, query).least_s + self.rest_s(to, query) for to in self._follow(node)), default=0.0)

    def _path_s(self, node: str, query: QueryState) -> float:
        """When a query would be through from this step on, with what is before it there."""
        least_s, share_s, _ = self._least(node, query)
        here_s = max(least_s, self._backlog_s.get(node, 0.0) + share_s)
        return here_s + max((self._path_s(to, query) for to in self._follow(node)), default=0.0)

    def _follow(self, node: str) -> list[str]:
        edges = self._steps.nodes[node].edges
        return [edge.to for edge in edges if not edge.on and min(edge.fanout.values(), default=0.0) >= 1.0]

    def _least(self, node: str, query: QueryState) -> _Prospect:
        now, key = monotonic(), (node, query.kind)
        found = self._known.get(key)
        if found is not None and found.until_s > now:
            return found
        least_s, rates, up = inf, dict[Any, float](), False
        for lane in self._lanes_of(node):
            if lane.open:
                up = True
                one_s, share_s = self._room(lane, query.at)
                if share_s < inf:
                    least_s = min(least_s, one_s)
                    rates[lane.line] = max(rates.get(lane.line, 0.0), 1.0 / max(share_s, 1e-9))
        # Of workers that are not there nothing is known: it waits for one, or is lost, as without a deadline.
        share_s = (1.0 / sum(rates.values()) if rates else inf) if up else 0.0
        if len(self._known) > _MOST_CLASSES:
            self._known.clear()
        found = self._known[key] = _Prospect(least_s if up else 0.0, share_s, now + _ANEW_S)
        return found

    def _room(self, lane: Lane, at: Mapping[str, float]) -> tuple[float, float]:
        """The time of one alone at a worker, and by how much one among many fills it; infinite where it is late."""
        one_s = self.time_s(lane, at, 1)
        if one_s > self._slo_s:
            return inf, inf
        each_s, full = one_s, lane.max_batch
        if full > 1 and (full_s := self.time_s(lane, at, full)) <= self._slo_s:
            each_s = min(each_s, full_s / full)
        return one_s, each_s / lane.servers
