"""A worker's queues by themselves: batches, waiting for more, turns, what is given up, policies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any

from hetplan.dispatch.policy_lookup import PolicySelector
from hetplan.executor.serving.frames import DROPPED, FAILED, SERVED
from hetplan.executor.serving.law import ServiceLaw
from hetplan.executor.serving.models import Result, SleepModel
from hetplan.executor.serving.query_body import Query
from hetplan.executor.serving.stations import HeldLoad, Job, Lane, Station
from hetplan.profiles.plan_policy import PolicyTable


class Slow:
    """A model that is done when the test says so."""

    def __init__(self) -> None:
        self.batches: list[tuple[Sequence[Query], Callable[[Sequence[Result]], None]]] = []

    async def prepare(self) -> None: ...

    def run(self, queries: Sequence[Query], done: Callable[[Sequence[Result]], None]) -> None:
        self.batches.append((queries, done))

    def close(self) -> None: ...

    def finish(self, outcome: int = SERVED) -> None:
        queries, done = self.batches.pop(0)
        done([Result(outcome)] * len(queries))


def held(name: str, *, max_batch: int = 1, max_wait_s: float = 0.0, ms: float = 10.0) -> HeldLoad:
    return HeldLoad(name, Slow(), 1, max_batch, max_wait_s, ServiceLaw({"ms": ms}))  # type: ignore[arg-type]


class Bench:
    """Lanes with one load each on one station."""

    def __init__(self, *loads: HeldLoad, servers: int = 1, shared: Lane | None = None) -> None:
        self.ended: list[tuple[str, int, int]] = []
        self.alarms: list[tuple[float, Callable[[], None]]] = []
        self.loads = {load.id: load for load in loads}
        self.lanes = {load.id: shared or Lane({load.id: load}) for load in loads}
        lanes = [shared] if shared else list(self.lanes.values())
        self.station = Station(servers, lanes, lambda when, call: self.alarms.append((when, call)))

    def ask(self, name: str, *, ago_s: float = 0.0, **limits: float) -> None:
        def finish(result: Result, waited_s: float, took_s: float, batch: int, load: str) -> None:
            self.ended.append((load, result.outcome, batch))

        job = Job(Query({}), monotonic() - ago_s, finish, **limits)
        self.station.put(self.lanes[name], job, self.loads[name])

    def model(self, name: str) -> Any:
        return self.loads[name].model


def test_what_waits_is_taken_together_up_to_the_largest_batch() -> None:
    bench = Bench(held("a", max_batch=3))
    for _ in range(6):
        bench.ask("a")
    sizes = []
    for _ in range(3):
        sizes.append(len(bench.model("a").batches[0][0]))
        bench.model("a").finish()
    assert sizes == [1, 3, 2]
    counters = bench.loads["a"].counters
    assert (counters.arrived, counters.served, counters.batches) == (6, 6, 3)
    assert bench.station.idle


def test_the_lane_that_has_waited_longest_is_next() -> None:
    bench = Bench(held("a"), held("b"))
    bench.ask("a")
    bench.ask("b", ago_s=1.0)
    bench.ask("a", ago_s=2.0)
    bench.model("a").finish()
    assert len(bench.model("a").batches) == 1
    bench.model("a").finish()
    assert len(bench.model("b").batches) == 1


def test_a_lane_may_wait_for_more_but_not_for_ever() -> None:
    bench = Bench(held("a", max_batch=2, max_wait_s=500.0))
    before_s = monotonic()
    bench.ask("a")
    assert not bench.model("a").batches
    assert before_s + 500.0 <= bench.alarms[0][0] <= monotonic() + 500.0
    bench.ask("a")
    assert len(bench.model("a").batches[0][0]) == 2, "full: it waits no longer"
    bench.model("a").finish()
    bench.ask("a", ago_s=501.0)
    assert len(bench.model("a").batches) == 1, "its time is up"


def test_as_many_batches_at_once_as_there_are_servers() -> None:
    bench = Bench(held("a"), servers=2)
    for _ in range(3):
        bench.ask("a")
    assert len(bench.model("a").batches) == 2


def test_a_query_that_cannot_be_in_time_is_given_up_and_the_next_one_served() -> None:
    bench = Bench(held("a", ms=50.0))
    bench.ask("a")
    bench.ask("a", give_up_s=monotonic() + 0.01)
    bench.ask("a", give_up_s=monotonic() + 600.0)
    bench.model("a").finish()
    assert bench.ended == [("a", DROPPED, 0), ("a", SERVED, 1)]
    bench.model("a").finish()
    assert [outcome for _, outcome, _ in bench.ended] == [DROPPED, SERVED, SERVED]
    assert bench.loads["a"].counters.dropped == 1


def test_a_failed_batch_is_reported_and_counted() -> None:
    bench = Bench(held("a"))
    bench.ask("a")
    bench.model("a").finish(FAILED)
    assert bench.ended == [("a", FAILED, 1)]
    assert bench.loads["a"].counters.failed == 1


TABLE = PolicyTable(
    workers="w", slo_ms=1e6, rate_qps=5, queue_max=2, slack_ms=(0, 5e5, 1e6), models=("fast", "good"),
    choice={"1": "fastx1 goodx2", "2": "fastx3"}, batch={"1": "1x3", "2": "0x1 2x2"}, otherwise={"model": "fast"},
)  # fmt: skip


def test_under_a_policy_the_table_chooses_model_and_batch() -> None:
    loads = [held("fast", max_batch=8), held("good", max_batch=8)]
    lane = Lane({load.id: load for load in loads}, PolicySelector([TABLE]))
    bench = Bench(*loads, shared=lane)
    bench.ask("fast", deadline_s=monotonic() + 900.0)
    assert len(bench.model("good").batches) == 1, "enough slack for the better one"
    bench.ask("fast", deadline_s=monotonic() + 100.0)
    bench.ask("fast", deadline_s=monotonic() + 900.0)
    bench.model("good").finish()
    assert ("fast", DROPPED, 0) in bench.ended, "a batch of 0 gives up the oldest"
    assert len(bench.model("good").batches) == 1
    for _ in range(4):
        bench.ask("fast", deadline_s=monotonic() + 900.0)
    bench.model("good").finish()
    assert len(bench.model("fast").batches[0][0]) == 4, "more than the table tells apart: all that wait"


def test_a_model_that_answers_at_once_empties_a_long_queue() -> None:
    """Each answer makes room for the next batch: within one call, not one inside the other."""
    bench = Bench(held("a"))
    bench.ask("a")
    slow = bench.model("a")
    for _ in range(3000):
        bench.ask("a")
    model = SleepModel(ServiceLaw({"ms": 1e-6}), None)  # type: ignore[arg-type]
    bench.loads["a"].model = model
    slow.finish()
    assert bench.ended == [("a", SERVED, 1)] * 3001
    assert bench.station.idle
