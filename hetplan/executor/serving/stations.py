"""The queues of a worker: which queries a free server takes as one batch, and which are given up before it.

The same rules as the simulator's: a station is a set of servers with one lane per load; a free server takes the lane
whose oldest query has waited longest, as many as its largest batch allows; a lane that waits for more is left alone
until its time is up. Under a policy (rule queue-slack/1) all loads of the worker share one lane, and the table says
which of them serves how many.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from time import monotonic
from typing import TYPE_CHECKING

from hetplan.executor.serving.frames import DROPPED, FAILED
from hetplan.executor.serving.law import OffTable, ServiceLaw
from hetplan.executor.serving.metrics import Histogram
from hetplan.executor.serving.models import Model, Result, Streams
from hetplan.executor.serving.query_body import Query

if TYPE_CHECKING:
    from hetplan.dispatch.policy_lookup import PolicySelector

__all__ = ["Counters", "HeldLoad", "Job", "Lane", "Station"]


@dataclass(slots=True, eq=False)
class Job:
    """A query in a worker; `finish` gets its result, how long it waited and was served, and by which load."""

    query: Query
    entered_s: float
    finish: Callable[[Result, float, float, int, str], None]
    deadline_s: float = inf
    give_up_s: float = inf


@dataclass(slots=True)
class Counters:
    """What a load has done since it was loaded."""

    arrived: int = 0
    served: int = 0
    dropped: int = 0
    failed: int = 0
    batches: int = 0
    busy_ms: float = 0.0
    queue_ms: float = 0.0


@dataclass
class HeldLoad:
    """A load that a worker holds, ready to serve."""

    id: str
    model: Model
    servers: int
    max_batch: int
    max_wait_s: float
    expected: ServiceLaw | None
    streams: Streams | None = None
    """The model, where its answers can come piece by piece."""
    counters: Counters = field(default_factory=Counters)
    seconds: Histogram = field(default_factory=Histogram)
    """From the begin of a batch to its end."""

    def mean_s(self, query: Query, size: int) -> float:
        """How long a batch of this size should take; 0 where nobody knows."""
        if self.expected is None:
            return 0.0
        try:
            return self.expected.mean_ms(query.at, size) / 1000.0
        except OffTable:
            return 0.0


@dataclass
class Lane:
    """A queue: of one load, or of all loads under a policy."""

    loads: dict[str, HeldLoad]
    selector: PolicySelector | None = None
    waiting: deque[Job] = field(default_factory=deque)
    rate_qps: float = 0.0

    def __post_init__(self) -> None:
        self.only = next(iter(self.loads.values()))
        """The load of a lane without a policy."""
        self.at_once = self.selector is None and (self.only.max_wait_s <= 0.0 or self.only.max_batch == 1)
        """Whether a query that nobody is before is served by itself, where a server is free."""

    def ripe_s(self) -> float:
        """When its oldest query stops waiting for others to join it."""
        load = self.only
        if self.selector is not None or load.max_wait_s <= 0.0 or len(self.waiting) >= load.max_batch:
            return 0.0
        return self.waiting[0].entered_s + load.max_wait_s


class Station:
    """Servers that share lanes. `wake_at` calls `start` again at a moment."""

    def __init__(self, servers: int, lanes: Sequence[Lane], wake_at: Callable[..., object]) -> None:
        self.servers, self.lanes, self.busy = servers, list(lanes), 0
        self._starting = False
        self._wake_at = wake_at

    def put(self, lane: Lane, job: Job, load: HeldLoad) -> None:
        """A query joins a lane."""
        load.counters.arrived += 1
        free = self.busy < self.servers
        if free and len(self.lanes) == 1 and not lane.waiting and lane.at_once and job.give_up_s == inf:
            self.serve(load, [job])
            return
        lane.waiting.append(job)
        if free:
            self.start()

    def start(self) -> None:
        """Give every free server a batch, as far as lanes have one."""
        if self._starting:
            return  # a model answered within the call: the caller goes on
        self._starting = True
        try:
            while self.busy < self.servers:
                now = monotonic()
                lane = self._ready(now)
                if lane is None:
                    return
                chosen = self._by_policy(lane, now) if lane.selector is not None else self._in_order(lane, now)
                if chosen is not None:
                    self.serve(*chosen)
        finally:
            self._starting = False

    def serve(self, load: HeldLoad, jobs: list[Job]) -> None:
        """Run these queries as one batch now."""
        began = monotonic()
        self.busy += 1
        load.counters.batches += 1
        for job in jobs:
            load.counters.queue_ms += 1000.0 * (began - job.entered_s)

        def done(results: Sequence[Result]) -> None:
            took = monotonic() - began
            self.busy -= 1
            load.counters.busy_ms += 1000.0 * took
            load.seconds.add(took)
            self.start()
            for job, result in zip(jobs, results, strict=True):
                if result.outcome == FAILED:
                    load.counters.failed += 1
                else:
                    load.counters.served += 1
                job.finish(result, began - job.entered_s, took, len(jobs), load.id)

        load.model.run([job.query for job in jobs], done)

    def cancel(self, lane: Lane, job: Job, load: HeldLoad) -> None:
        """Nobody waits for a query any more: it leaves its queue, where it has not begun."""
        if job in lane.waiting:
            lane.waiting.remove(job)
            self._give_up(load, job, monotonic(), b"its client has hung up")

    @property
    def idle(self) -> bool:
        """Whether nothing waits and nothing is served."""
        return self.busy == 0 and not any(lane.waiting for lane in self.lanes)

    def _ready(self, now: float) -> Lane | None:
        best, soonest = None, inf
        for lane in self.lanes:
            if not lane.waiting:
                continue
            ripe = lane.ripe_s()
            if ripe > now:
                soonest = min(soonest, ripe)
            elif best is None or lane.waiting[0].entered_s < best.waiting[0].entered_s:
                best = lane
        if best is None and soonest < inf:
            self._wake_at(soonest, self.start)
        return best

    def _in_order(self, lane: Lane, now: float) -> tuple[HeldLoad, list[Job]] | None:
        load = lane.only
        size = min(len(lane.waiting), load.max_batch)
        jobs: list[Job] = []
        while lane.waiting and len(jobs) < size:
            job = lane.waiting.popleft()
            if job.give_up_s < inf and now + load.mean_s(job.query, size) > job.give_up_s:
                self._give_up(load, job, now)
            else:
                jobs.append(job)
        return (load, jobs) if jobs else None

    def _by_policy(self, lane: Lane, now: float) -> tuple[HeldLoad, list[Job]] | None:
        assert lane.selector is not None
        while lane.waiting:
            slack_ms = 1000.0 * (lane.waiting[0].deadline_s - now)
            found = lane.selector.select(waiting=len(lane.waiting), slack_ms=slack_ms, rate_qps=lane.rate_qps)
            load = next((one for name, one in lane.loads.items() if name == found.model), None)
            if load is None:
                raise LookupError(f"the policy chooses {found.model}, which this worker does not hold")
            size = min(found.batch, len(lane.waiting), load.max_batch)
            head = lane.waiting[0]
            # A batch that would be late is made smaller, or its oldest query is given up for the others.
            fits = size
            while fits > 0 and now + load.mean_s(head.query, fits) > head.give_up_s:
                fits -= 1
            size = fits if 2 * fits >= size else 0
            if size > 0:
                return load, [lane.waiting.popleft() for _ in range(size)]
            self._give_up(load, lane.waiting.popleft(), now)
        return None

    def _give_up(self, load: HeldLoad, job: Job, now: float, why: bytes = b"too late") -> None:
        load.counters.dropped += 1
        job.finish(Result(DROPPED, b"", why), now - job.entered_s, 0.0, 0, load.id)
