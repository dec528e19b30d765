"""Rules under which queries wait in the router until a worker is free: matching, first come first served, two queues
by size, and one queue for all workers under a policy.

What comes alone is decided on at once, and what comes close together at the end of the event loop's turn, as the
simulator decides together on what happens at one instant.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from math import inf
from time import monotonic
from typing import Any, Protocol

import numpy as np

from hetplan.dispatch.matching import Matching
from hetplan.dispatch.matching_kernels import IDLE, Seen, match, scratch
from hetplan.dispatch.parts import parts_of_pool
from hetplan.dispatch.policy_lookup import PolicySelector
from hetplan.executor.serving.choosers import Chooser
from hetplan.executor.serving.law import OffTable, ServiceLaw
from hetplan.executor.serving.links import Lane
from hetplan.executor.serving.query_tree import Task
from hetplan.serving.route_choice import is_large, preferred_first

__all__ = ["DealtChooser", "InOrderChooser", "MatchingChooser", "PolicyChooser", "Times", "parts_of"]

NEVER_MS = 1e9
"""The time that a query takes where it cannot be served at all."""


class Deadlines(Protocol):
    """What a chooser asks of an application whose late queries are not served."""

    def drop_hopeless(self, queue: deque[Task], *, all_of_them: bool = False) -> None:
        """Give up those at the head of a queue, or all in it, that no worker could answer in time any more."""

    def in_time(self, task: Task, lane: Lane, size: int = 1) -> bool:
        """Whether a worker that begins now answers it in time, in a batch of this size."""
        ...

    def give_up(self, task: Task) -> None:
        """It is not served."""


Send = Callable[[Lane, list[Task]], None]
GiveUp = Callable[[Task, str], None]


class Times:
    """Predicted service times: a row per class of query, a column per type (a group of workers with one load)."""

    def __init__(self, lanes: Sequence[Lane], predict: Mapping[str, Any]) -> None:
        self.types = list(dict.fromkeys(self.type_of(lane) for lane in lanes))
        laws = {}
        for lane in lanes:
            law = predict.get(f"{lane.variant}@{lane.hardware}")
            laws[self.type_of(lane)] = ServiceLaw(law) if law is not None else lane.expected
        self._laws = [laws[one] for one in self.types]
        self._rows: dict[tuple[Any, ...], int] = {}
        self.service_ms = np.zeros((0, len(self.types)))

    @staticmethod
    def type_of(lane: Lane) -> tuple[str, str]:
        """The type of a lane."""
        return lane.worker, lane.name

    def row(self, task: Task) -> int:
        """The row of a query's class; OffTable where no type can serve it."""
        found = self._rows.get(task.query.kind)
        if found is None:
            times = [self._time(law, task.query.at) for law in self._laws]
            if times and min(times) >= NEVER_MS:
                raise OffTable(f"no table holds a time for {task.query.at}")
            if len(self._rows) > 10_000:
                self._rows, self.service_ms = {}, np.zeros((0, len(self.types)))
            found = self._rows[task.query.kind] = len(self.service_ms)
            self.service_ms = np.vstack([self.service_ms, times]) if times else self.service_ms
        return found

    @staticmethod
    def _time(law: ServiceLaw | None, at: Mapping[str, float]) -> float:
        try:
            return law.mean_ms(at, 1) if law is not None else 0.0
        except OffTable:
            return NEVER_MS


class _Central(Chooser):
    """A queue in the router. `settle` is called once per turn of the event loop in which something happened."""

    def __init__(
        self, lanes: Sequence[Lane], send: Send, soon: Callable[[Callable[[], None]], Any], late: Deadlines | None
    ) -> None:  # fmt: skip
        self.lanes = [lane for lane in lanes if lane.open]
        self.waiting: deque[Task] = deque()
        self.queues = (self.waiting,)
        self._late = late
        self._send, self._soon, self._asked = send, soon, False

    def place(self, task: Task) -> Lane | None:
        """It waits."""
        self.waiting.append(task)
        self._wake()
        return None

    def finished(self, lane: Lane, task: Task) -> None:  # noqa: ARG002 (other rules look at them)
        """A server is free."""
        if len(self):
            self._wake()

    def settle(self) -> None:
        """Send what shall be sent now."""
        raise NotImplementedError

    def _longest(self, task: Task, lane: Lane, most: int) -> int:
        """Of how many queries a batch may be at most that this one is in, so that it is in time."""
        if self._late is None:
            return most
        while most > 1 and not self._late.in_time(task, lane, most):
            most -= 1
        return most

    def _wake(self) -> None:
        if not self._asked:
            self._asked = True
            self._soon(self._settled)

    def _settled(self) -> None:
        self._asked = False
        before = len(self)
        while before:
            self.settle()
            left = len(self)
            # A worker that serves several at once got one of them.
            before = left if left < before and any(lane.idle for lane in self.lanes) else 0


class MatchingChooser(_Central):
    """Rule matching/1, by the same kernel as in the simulator."""

    def __init__(
        self, lanes: Sequence[Lane], times: Times, dispatch: Mapping[str, Any], send: Send,
        soon: Callable[[Callable[[], None]], Any], late: Deadlines | None,
    ) -> None:  # fmt: skip
        super().__init__(lanes, send, soon, late)
        rule, weight, late_costs = Matching.of(dispatch, [lane.hardware for lane in self.lanes])
        # The heaviest type is the base: where nothing else decides, it is asked first.
        self.lanes.sort(key=lambda lane: -weight[lane.hardware])
        ordered = list(dict.fromkeys(times.type_of(lane) for lane in self.lanes))
        self._times = times
        self._columns = np.array([times.types.index(one) for one in ordered], np.int64)
        self._rows_known, self._predicted = -1, np.zeros((0, len(ordered)))
        self._only_ms: list[float] = []
        count = len(self.lanes)
        self._kind = np.array([ordered.index(times.type_of(lane)) for lane in self.lanes], np.int64)
        self._first = np.searchsorted(self._kind, np.arange(len(ordered) + 1)).astype(np.int64)
        self._ends = np.zeros(count)
        window = max(2 * count, 1)
        self._order, self._rows = np.arange(window, dtype=np.int64), np.zeros(window, np.int64)
        self._arrived, self._mates = np.zeros(window), np.zeros(window, np.int64)
        self._room = scratch(count, window)
        hardware = {times.type_of(lane): lane.hardware for lane in self.lanes}
        weights = np.array([weight[hardware[one]] for one in ordered])
        late_cost = np.array([late_costs[hardware[one]] for one in ordered])
        self._costs = (weights, late_cost, rule.limit_ms, rule.merges)
        self._warm_up(len(ordered))

    def _warm_up(self, types: int) -> None:
        """The first call of the compiled kernel loads it, which no query should wait for."""
        if self.lanes:
            self._match(0.0, 1, np.ones((1, types)))

    def place(self, task: Task) -> Lane | None:
        """The first worker, where nobody waits and all are idle and alike, else it waits.

        OffTable at once where no type could serve it.
        """
        task.expected_s = 0.0
        row = self._times.row(task)
        if not self.waiting and self._late is None and self.lanes and all(lane.idle for lane in self.lanes):
            self._refresh()
            if self._only_ms:
                lane = self.lanes[0]
                lane.due_s = monotonic() + self._only_ms[row] / 1e3
                return lane
        return super().place(task)

    def settle(self) -> None:
        """Match the oldest queries with all workers and send those whose mate is idle."""
        if self._late is not None:
            self._late.drop_hopeless(self.waiting)
        now = monotonic()
        self._refresh()
        while self._only_ms and self.waiting and all(lane.idle for lane in self.lanes) and self._in_order(1e3 * now):
            for lane in self.lanes[: len(self.waiting)]:
                task = self.waiting.popleft()
                lane.due_s = now + self._only_ms[self._times.row(task)] / 1e3
                self._send(lane, [task])
        idle = [lane.idle for lane in self.lanes]
        queries = min(len(self.waiting), 2 * len(self.lanes))
        if not queries or not any(idle):
            return
        tasks = list(islice(self.waiting, queries))
        rows = [self._times.row(task) for task in tasks]
        for k, task in enumerate(tasks):
            self._arrived[k] = 1e3 * task.query.arrived_s
            self._rows[k] = rows[k]
        for number, lane in enumerate(self.lanes):
            self._ends[number] = IDLE if idle[number] else 1e3 * lane.due_s
        self._match(1e3 * now, queries, self._predicted)
        self._send_mates(tasks, rows, idle, now)

    def _send_mates(self, tasks: Sequence[Task], rows: Sequence[int], idle: Sequence[bool], now: float) -> None:
        """Send the queries whose mate is idle; the others stay in line."""
        mates, sent = self._mates[: len(tasks)].tolist(), False
        for task, row, mate in zip(tasks, rows, mates, strict=False):
            if mate >= 0 and idle[mate]:
                lane = self.lanes[mate]
                lane.due_s = now + float(self._predicted[row, self._kind[mate]]) / 1e3
                task.lane = lane
                sent = True
        if sent:
            for _ in tasks:
                self.waiting.popleft()
            for task in reversed(tasks):
                if task.lane is None:
                    self.waiting.appendleft(task)
            for task in tasks:
                if task.lane is None:
                    continue
                if self._late is None or self._late.in_time(task, task.lane):
                    self._send(task.lane, [task])
                else:  # the rule knows no worker that answers it in time
                    self._late.give_up(task)

    def _refresh(self) -> None:
        """Know the times of all classes that have come; of one type of worker as a list, which is quicker to read."""
        if self._rows_known != len(self._times.service_ms):
            self._rows_known = len(self._times.service_ms)
            self._predicted = np.ascontiguousarray(self._times.service_ms[:, self._columns])
            self._only_ms = self._predicted[:, 0].tolist() if len(self._first) == 2 else []

    def _in_order(self, now_ms: float) -> bool:
        """Whether the kernel would have the oldest served, one by each worker, where all are idle and of one type.

        Each query costs the same on every worker then. It may be otherwise where they are too many and too different.
        """
        count = len(self.lanes)
        if len(self.waiting) <= count:
            return True
        seen = list(islice(self.waiting, 2 * count))
        row, oldest_ms = self._times.row(seen[0]), 1e3 * min([task.query.arrived_s for task in seen])
        alike = all(self._times.row(task) == row for task in seen)
        return alike and self._only_ms[row] + (now_ms - oldest_ms) <= self._costs[2]

    def _match(self, now_ms: float, queries: int, predicted: Any) -> None:
        seen = Seen(
            now_ms, self._order, queries, self._arrived, self._rows, predicted, self._first, self._kind, self._ends
        )  # fmt: skip
        match(seen, self._costs, self._mates, self._room)


def parts_of(lanes: Sequence[Lane], most: int, weight: Mapping[str, float]) -> list[list[Lane]]:
    """The workers in the parts into which a pool of more than `most` is divided (`hetplan.dispatch.matching`).

    As in the simulator, the workers of each hardware are dealt out in turn, whatever groups they are in.
    """
    counts = Counter(lane.hardware for lane in lanes)
    weights = [weight.get(name, 1.0) for name in counts]
    parts: list[list[Lane]] = [[] for _ in range(parts_of_pool(list(counts.values()), weight=weights, most=most))]
    dealt: Counter[str] = Counter()
    for lane in sorted(lanes, key=lambda one: -weight.get(one.hardware, 1.0)):
        parts[dealt[lane.hardware] % len(parts)].append(lane)
        dealt[lane.hardware] += 1
    return parts


class DealtChooser(Chooser):
    """Queries dealt out in turn to the parts of a divided pool, each a chooser of its own."""

    def __init__(self, parts: Sequence[MatchingChooser]) -> None:
        self._parts, self.queues = parts, [part.waiting for part in parts]
        self._of = {id(lane): part for part in parts for lane in part.lanes}
        self._next = -1

    def place(self, task: Task) -> Lane | None:
        """It waits, with the part whose turn it is."""
        self._next = (self._next + 1) % len(self._parts)
        return self._parts[self._next].place(task)

    def finished(self, lane: Lane, task: Task) -> None:
        """A server is free."""
        part = self._of.get(id(lane))
        if part is not None:
            part.finished(lane, task)


class InOrderChooser(_Central):
    """Rules fcfs/1 and threshold/1: the oldest query to each worker that is idle, those of preferred hardware first.

    Under threshold/1 small and large queries queue apart, for other workers; large ones wait also for a base that is
    not up. Only as many of the oldest are looked at as there are idle workers, so that a long queue costs no more than
    a short one; where late queries are given up, all that come before the first that a worker answers in time.
    """

    def __init__(
        self, lanes: Sequence[Lane], dispatch: Mapping[str, Any], send: Send,
        soon: Callable[[Callable[[], None]], Any], late: Deadlines | None,
    ) -> None:  # fmt: skip
        super().__init__(lanes, send, soon, late)
        by_size = dispatch["rule"] == "threshold/1"
        self._threshold: float = dispatch["threshold"] if by_size else inf
        base = dispatch["base"] if by_size else None
        order = preferred_first(dispatch.get("prefer", ()), [lane.hardware for lane in self.lanes])
        self.lanes.sort(key=lambda lane: order.index(lane.hardware))
        self._large: deque[Task] = deque()
        self.queues = (self.waiting, self._large)
        self._served_by = (
            (self.waiting, [lane for lane in self.lanes if lane.hardware != base]),
            (self._large, [lane for lane in self.lanes if lane.hardware == base]),
        )

    def place(self, task: Task) -> Lane | None:
        """It waits, with those of its size."""
        if is_large(task.query.at, self._threshold):
            self._large.append(task)
            self._wake()
            return None
        return super().place(task)

    def settle(self) -> None:
        """The oldest queries to the workers that are idle."""
        for queue, lanes in self._served_by:
            if self._late is not None:
                self._late.drop_hopeless(queue)
            idle = [lane for lane in lanes if lane.idle][: len(queue)]
            pairs = [(lane, first) for lane in idle if (first := self._oldest(queue, lane))]
            for lane, batch in pairs:
                self._fill(batch, queue, lane)

    def _oldest(self, queue: deque[Task], lane: Lane) -> list[Task]:
        """The one that has waited longest of those that this worker answers in time; the others wait for a faster."""
        if self._late is not None:
            place = next((n for n, task in enumerate(queue) if self._late.in_time(task, lane)), None)
            if place is None:
                return []
            found = queue[place]
            del queue[place]
            return [found]
        return [queue.popleft()]

    def _fill(self, batch: list[Task], queue: deque[Task], lane: Lane) -> None:
        """Send it with those that follow, as many as its server takes; with none that waits for a faster worker."""
        most = self._longest(batch[0], lane, min(lane.max_batch, len(queue) + 1)) if queue else 1
        place = 0
        while place < len(queue) and len(batch) < most:
            if self._late is not None and not self._late.in_time(queue[place], lane, most):
                place += 1
            else:
                batch.append(queue[place])
                del queue[place]
        self._send(lane, batch)


class PolicyChooser(_Central):
    """Rule queue-slack/1 with one queue for all workers of a group: a worker that is free takes what the table says."""

    def __init__(
        self, lanes: Sequence[Lane], selector: PolicySelector, rate_qps: Callable[[], float], send: Send,
        soon: Callable[[Callable[[], None]], Any], give_up: GiveUp, late: Deadlines | None = None,
    ) -> None:  # fmt: skip
        super().__init__(lanes, send, soon, late)
        self._selector, self._rate_qps, self._give_up = selector, rate_qps, give_up
        self._units: dict[str, dict[str, Lane]] = {}
        for lane in self.lanes:
            self._units.setdefault(lane.unit, {})[lane.variant or lane.name] = lane

    def settle(self) -> None:
        """Fill the workers that are free."""
        rate = self._rate_qps()
        for held in self._units.values():
            if any(lane.bound for lane in held.values()):
                continue
            while self.waiting:
                if self._late is not None:
                    self._late.drop_hopeless(self.waiting)
                    if not self.waiting:
                        break
                slack_ms = 1e3 * (self.waiting[0].query.deadline_s - monotonic())
                chosen = self._selector.select(waiting=len(self.waiting), slack_ms=slack_ms, rate_qps=rate)
                lane = held[chosen.model]
                size = min(chosen.batch, len(self.waiting), lane.max_batch)
                # A batch that would be late is made smaller, or its oldest query is given up for the others.
                fits = self._longest(self.waiting[0], lane, size)
                size = fits if 2 * fits >= size else 0
                if size > 0 and (self._late is None or self._late.in_time(self.waiting[0], lane, size)):
                    self._send(lane, [self.waiting.popleft() for _ in range(size)])
                    break
                self._give_up(self.waiting.popleft(), "too late")
