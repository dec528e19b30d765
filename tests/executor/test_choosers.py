"""The router's rules without processes: what they choose is what `hetplan.dispatch` decides."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from time import monotonic
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hetplan.dispatch.matching import Matching
from hetplan.dispatch.policy_lookup import PolicySelector
from hetplan.dispatch.snapshot import Snapshot
from hetplan.executor.serving import central_choosers
from hetplan.executor.serving.applications import Application, Asks
from hetplan.executor.serving.central_choosers import (
    DealtChooser,
    InOrderChooser,
    MatchingChooser,
    PolicyChooser,
    Times,
    parts_of,
)
from hetplan.executor.serving.choosers import (
    Chooser,
    EarliestChooser,
    NoWorker,
    ShareChooser,
    TurnChooser,
    by_class,
)
from hetplan.executor.serving.law import OffTable
from hetplan.executor.serving.links import Lane
from hetplan.executor.serving.query_tree import QueryState, Task
from hetplan.profiles.plan import Route
from hetplan.profiles.plan_policy import PolicyTable


@dataclass
class FakeLink:
    ready: bool = True
    pending: dict[int, Task] = field(default_factory=dict)


def lane(name: str, unit: str, *, hardware: str = "cpu", ms: Sequence[float] = (1.0, 2.0), **fields: Any) -> Lane:
    law = {"axes": {"batch": [1.0, 8.0]}, "mean": list(ms)}
    load = {"id": name, "app": "app", "node": None, "variant": name, "servers": 1, "max_batch": 1, "quality": 1.0,
            "expected": law, **fields}  # fmt: skip
    return Lane(FakeLink(), {"name": unit, "worker": name, "hardware": hardware, "standby": False}, load)  # type: ignore[arg-type]


def task(batch: float = 1.0, *, arrived_s: float | None = None, slo_s: float = 1.0, path: tuple[str, ...] = ()) -> Task:
    at = {"batch": batch}
    arrived = monotonic() if arrived_s is None else arrived_s
    query = QueryState(None, None, at, tuple(at.items()), arrived, arrived + slo_s)
    return Task(query, "serve", b"", path, entered_s=arrived)


class Sent:
    """Takes what a chooser sends, and lets it settle at once."""

    def __init__(self) -> None:
        self.pairs: list[tuple[Lane, list[Task]]] = []
        self.given_up: list[Task] = []
        self.later: list[Callable[[], None]] = []

    def send(self, lane: Lane, tasks: list[Task]) -> None:
        lane.bound += len(tasks)
        self.pairs.append((lane, tasks))

    def give_up(self, task: Task, why: str) -> None:
        self.given_up.append(task)

    def soon(self, call: Callable[[], None]) -> None:
        self.later.append(call)

    def settle(self) -> None:
        for call in self.later:
            call()
        self.later.clear()


RULE = {"slo_ms": 100.0}


def put(chooser: Chooser, one: Task, sent: Sent) -> None:
    """As the router does: what need not wait is sent."""
    where = chooser.place(one)
    if where is not None:
        sent.send(where, [one])


def line_up(chooser: MatchingChooser, one: Task) -> None:
    """It waits, as if others had come in the same instant."""
    chooser._times.row(one)
    super(MatchingChooser, chooser).place(one)


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests may stop the clock; it goes on after them."""
    monkeypatch.setattr(central_choosers, "monotonic", monotonic)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from([1.0, 4.0, 8.0]), min_size=1, max_size=6), st.lists(st.booleans(), min_size=4, max_size=4)
)
def test_matching_sends_what_the_rule_decides(batches: list[float], busy: list[bool]) -> None:
    lanes = [lane("fast", f"f{i}", hardware="gpu", ms=(4.0, 30.0)) for i in range(2)]
    lanes += [lane("slow", f"s{i}", ms=(8.0, 90.0)) for i in range(2)]
    now = 1000.0
    central_choosers.monotonic = lambda: now  # type: ignore[attr-defined]
    for one, taken in zip(lanes, busy, strict=True):
        one.bound, one.due_s = int(taken), now + 0.02
    sent, weight = Sent(), {"gpu": 1.0, "cpu": 0.3}
    chooser = MatchingChooser(lanes, Times(lanes, {}), {**RULE, "weight": weight}, sent.send, sent.soon, None)
    tasks = [task(batch, arrived_s=now - 0.01 * (len(batches) - n)) for n, batch in enumerate(batches)]
    for one in tasks:
        put(chooser, one, sent)
    sent.settle()
    snapshot = Snapshot.of(
        waited_ms=[1e3 * (now - one.query.arrived_s) for one in tasks],
        service_ms=[[lanes[0].mean_s(t.query.at, 1) * 1e3, lanes[2].mean_s(t.query.at, 1) * 1e3] for t in tasks],
        kind=[0, 0, 1, 1],
        busy_ms=[20.0 * taken for taken in busy],
        idle=[not taken for taken in busy],
    )
    decided = Matching(slo_ms=100.0, weight=(1.0, 0.3)).decide(snapshot)
    wanted = {(tasks.index(t), lanes.index(where)) for where, (t,) in sent.pairs}
    assert wanted == {(pair.query, pair.instance) for pair in decided}
    assert len(chooser) == len(batches) - len(decided)


class ByKernel(MatchingChooser):
    """Every decision by the kernel."""

    def _in_order(self, *_: Any) -> None:
        return None


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 4), st.lists(st.tuples(st.sampled_from([1.0, 4.0, 8.0]), st.floats(0.0, 300.0)), max_size=9))
def test_idle_workers_of_one_type_get_what_the_kernel_would_give_them(
    count: int, came: list[tuple[float, float]]
) -> None:
    """Alike and different queries, timely and late ones, fewer and more than there are workers."""
    now, chosen = monotonic(), []
    central_choosers.monotonic = lambda: now  # type: ignore[attr-defined]
    for kind in (MatchingChooser, ByKernel):
        sent, lanes = Sent(), [lane("a", f"a{number}", ms=(1.0, 150.0)) for number in range(count)]
        chooser = kind(lanes, Times(lanes, {}), RULE, sent.send, sent.soon, None)
        for batch, ago_ms in sorted(came, key=lambda one: -one[1]):
            line_up(chooser, task(batch, arrived_s=now - ago_ms / 1e3))
        chooser.settle()
        chosen.append(
            [(one.unit, [(each.query.at["batch"], each.entered_s) for each in tasks]) for one, tasks in sent.pairs]
        )
    assert chosen[0] == chosen[1]


@pytest.mark.parametrize("ago_ms", [0.0, 60.0, 99.0, 250.0])
@pytest.mark.parametrize("batch", [1.0, 8.0])
def test_who_comes_alone_is_sent_at_once_where_the_kernel_would_send_it(batch: float, ago_ms: float) -> None:
    now, chosen = monotonic(), []
    central_choosers.monotonic = lambda: now  # type: ignore[attr-defined]
    for kind in (MatchingChooser, ByKernel):
        sent, lanes = Sent(), [lane("a", f"a{number}", ms=(1.0, 150.0)) for number in range(3)]
        chooser = kind(lanes, Times(lanes, {}), RULE, sent.send, sent.soon, None)
        one = task(batch, arrived_s=now - ago_ms / 1e3)
        if kind is MatchingChooser:
            put(chooser, one, sent)
            assert not sent.later
        else:
            line_up(chooser, one)
            chooser.settle()
        chosen.append([(where.unit, where.due_s, len(tasks)) for where, tasks in sent.pairs])
    assert chosen[0] == chosen[1] != []


def test_who_does_not_come_alone_waits_for_its_match() -> None:
    alike = [lane("a", f"a{number}") for number in range(2)]
    for lanes, busy, drop in (
        (alike, True, None), ([lane("a", "a0"), lane("b", "b0", hardware="gpu")], False, None), (alike, False, print)
    ):  # fmt: skip
        sent = Sent()
        lanes[0].bound = int(busy)
        chooser = MatchingChooser(lanes, Times(lanes, {}), RULE, sent.send, sent.soon, drop)  # type: ignore[arg-type]
        assert chooser.place(task()) is None
        assert len(chooser) == 1
        lanes[0].bound = 0
        assert chooser.place(task()) is None, "another waits"


def test_who_waited_is_sent_where_workers_that_came_are_idle() -> None:
    sent, lanes = Sent(), [lane("a", "a0"), lane("a", "a1")]
    lanes[0].bound = lanes[1].bound = 1
    entry = {"dispatch": {"rule": "matching/1", "slo_ms": 100.0}, "late": "serve", "slo_ms": 100.0, "paths": {},
             "combine": "product", "nodes": {"serve": {"edges": []}}, "routes": [], "predict": {}}  # fmt: skip
    asks = Asks(sent.send, sent.give_up, sent.soon)
    app = Application("app", entry, lanes, {}, random.Random(1), asks, None)
    waits = task()
    assert app.choosers["serve"].place(waits) is None
    lanes[0].bound = lanes[1].bound = 0
    app.arrange()
    assert sent.pairs == [(lanes[0], [waits])]
    assert app.waiting == 0


def test_a_pool_above_the_split_is_matched_part_by_part() -> None:
    lanes = [lane("slow", f"s{i}", ms=(8.0, 90.0)) for i in range(4)]
    lanes += [lane("fast", f"f{i}", hardware="gpu", ms=(4.0, 30.0)) for i in range(2)]
    weight = {"gpu": 1.0, "cpu": 0.3}
    parts = parts_of(lanes, 3, weight)
    assert [[one.unit for one in part] for part in parts] == [["f0", "s0", "s2"], ["f1", "s1", "s3"]]
    assert [len(part) for part in parts_of(lanes, 6, weight)] == [6]
    assert [len(part) for part in parts_of(lanes[4:], 1, weight)] == [1, 1]
    assert parts_of([], 1, weight) == [[]], "workers that are not up yet"
    sent, times = Sent(), Times(lanes, {})
    made = [MatchingChooser(part, times, {**RULE, "weight": weight}, sent.send, sent.soon, None) for part in parts]
    chooser = DealtChooser(made)
    tasks = [task() for _ in range(8)]
    for one in tasks:
        chooser.place(one)
    sent.settle()
    # Each part had every second query, and three workers for four of them.
    for part, mine in zip(parts, (tasks[::2], tasks[1::2]), strict=True):
        served = [(where, one) for where, (one,) in sent.pairs if where in part]
        assert len(served) == 3
        assert all(one in mine for _, one in served)
    assert len(chooser) == 2
    freed = parts[1][0]
    freed.bound = 0
    chooser.finished(freed, tasks[1])
    sent.settle()
    assert sent.pairs[-1][0] is freed
    assert len(chooser) == 1
    assert [one in tasks[::2] for one in chooser.left()] == [True]
    assert len(chooser) == 0


def test_a_query_that_no_table_holds_is_refused_at_once() -> None:
    lanes, sent = [lane("m", "u")], Sent()
    chooser = MatchingChooser(lanes, Times(lanes, {}), RULE, sent.send, sent.soon, None)
    with pytest.raises(OffTable):
        chooser.place(task(9.0))
    assert len(chooser) == 0


def test_first_come_first_served_prefers_and_fills_batches() -> None:
    lanes = [lane("slow", "s"), lane("fast", "f", hardware="gpu", max_batch=3)]
    sent = Sent()
    chooser = InOrderChooser(lanes, {"rule": "fcfs/1", "prefer": ["gpu"]}, sent.send, sent.soon, None)
    tasks = [task(arrived_s=float(n)) for n in range(5)]
    for one in tasks:
        chooser.place(one)
    sent.settle()
    assert sent.pairs[0] == (lanes[1], [tasks[0], tasks[2], tasks[3]])
    assert sent.pairs[1] == (lanes[0], [tasks[1]])
    assert chooser.left() == [tasks[4]]


def test_under_a_threshold_large_queries_wait_for_the_base() -> None:
    base, other, sent = lane("b", "b", hardware="gpu"), lane("o", "o"), Sent()
    base.bound = 1
    rule = {"rule": "threshold/1", "threshold": 4.0, "base": "gpu"}
    chooser = InOrderChooser([base, other], rule, sent.send, sent.soon, None)
    large, small = task(8.0), task(1.0)
    chooser.place(large)
    chooser.place(small)
    sent.settle()
    assert sent.pairs == [(other, [small])]
    base.bound = 0
    chooser.finished(base, small)
    sent.settle()
    assert sent.pairs[1] == (base, [large])


def test_a_long_queue_is_not_gone_through_for_every_decision() -> None:
    lanes, sent = [lane("m", "u")], Sent()
    chooser = InOrderChooser(lanes, {"rule": "fcfs/1"}, sent.send, sent.soon, None)
    for n in range(1000):
        chooser.place(task(arrived_s=float(n)))
    sent.settle()
    assert (len(sent.pairs), len(chooser)) == (1, 999)


TABLE = PolicyTable(
    workers="w", slo_ms=1e6, rate_qps=5, queue_max=2, slack_ms=(0, 5e5, 1e6), models=("fast", "good"),
    choice={"1": "fastx1 goodx2", "2": "fastx3"}, batch={"1": "1x3", "2": "0x1 2x2"}, otherwise={"model": "fast"},
)  # fmt: skip


def test_one_queue_under_a_policy_takes_what_the_table_says() -> None:
    lanes = [lane("fast", "u", max_batch=4), lane("good", "u", max_batch=4)]
    sent = Sent()
    chooser = PolicyChooser(lanes, PolicySelector([TABLE]), lambda: 1.0, sent.send, sent.soon, sent.give_up)
    chooser.place(task(slo_s=900.0))
    sent.settle()
    assert [(one.name, len(tasks)) for one, tasks in sent.pairs] == [("good", 1)]
    for one in lanes:
        one.bound = 0
    late, other = task(slo_s=100.0), task(slo_s=900.0)
    chooser.place(late)
    chooser.place(other)
    sent.settle()
    assert sent.given_up == [late], "a batch of 0 drops the oldest"
    assert sent.pairs[1][1] == [other]


def test_shares_are_kept_and_pass_over_groups_that_are_down() -> None:
    lanes = [lane("a", "a"), lane("b", "b0"), lane("b", "b1")]
    routes = [Route(to={"a": 0.25, "b": 0.75})]
    chooser = ShareChooser(routes, "serve", lanes, random.Random(1))
    counts = Counter(chooser.place(task()).unit for _ in range(4000))  # type: ignore[union-attr]
    assert counts["a"] / 4000 == pytest.approx(0.25, abs=0.03)
    assert counts["b0"] / 4000 == pytest.approx(0.375, abs=0.03)
    lanes[1].link.ready = lanes[2].link.ready = False
    alone = ShareChooser(routes, "serve", lanes, random.Random(1))
    assert {alone.place(task()).unit for _ in range(20)} == {"a"}  # type: ignore[union-attr]
    lanes[0].standby = True
    with pytest.raises(NoWorker):
        ShareChooser(routes, "serve", lanes, random.Random(1)).place(task())


def test_the_path_so_far_decides() -> None:
    lanes = [lane("b1", "x", node="b"), lane("b2", "y", node="b")]
    routes = [Route(node="b", prefix=("a1",), to={"b1": 1.0}), Route(node="b", prefix=("a2",), to={"b2": 1.0})]
    chooser = ShareChooser(routes, "b", lanes, random.Random(1))
    assert chooser.place(task(path=("a2",))) is lanes[1]
    assert chooser.place(task(path=("a1",))) is lanes[0]


def test_what_the_shares_leave_over_is_given_up_where_the_rule_says_so() -> None:
    chooser = ShareChooser([Route(to={"a": 0.5})], "serve", [lane("a", "a")], random.Random(1), sheds=True)
    lost = 0
    for _ in range(1000):
        try:
            chooser.place(task())
        except NoWorker:
            lost += 1
    assert lost / 1000 == pytest.approx(0.5, abs=0.06)


def test_classes_between_those_of_the_plan_go_to_the_next_larger() -> None:
    routes = [Route(when={"batch": size}, to={name: 1.0}) for size, name in ((8.0, "a"), (64.0, "b"))]

    def chosen(batch: float) -> str:
        return next(iter(by_class(routes, {"batch": batch})[0].to))

    assert [chosen(batch) for batch in (1.0, 8.0, 9.0, 64.0, 99.0)] == ["a", "a", "b", "b", "b"]
    routes.append(Route(to={"any": 1.0}))
    assert [chosen(batch) for batch in (1.0, 8.0, 9.0, 64.0)] == ["any", "a", "any", "b"]
    assert next(iter(by_class(routes, {})[0].to)) == "any"


def test_turns_and_shortest_queues_count_a_worker_once() -> None:
    lanes = [lane(f"{variant}", unit) for unit in ("u1", "u2", "u3") for variant in ("m", "n")]
    turns = TurnChooser(None, lanes, "round_robin", random.Random(0))
    assert [turns.place(task()).unit for _ in range(6)] == ["u1", "u2", "u3"] * 2  # type: ignore[union-attr]
    lanes[0].bound, lanes[2].bound, lanes[4].bound = 3, 1, 2
    shortest = TurnChooser(None, lanes, "shortest_queue", random.Random(0))
    assert {shortest.place(task()).unit for _ in range(4)} == {"u2"}  # type: ignore[union-attr]
    lanes[4].servers = 4
    assert {shortest.place(task()).unit for _ in range(4)} == {"u3"}, "two of its four servers are free"  # type: ignore[union-attr]


def test_of_equally_short_queues_the_one_in_turn() -> None:
    """The one that has served longest will be free first; whoever takes the first of the list waits for the last."""
    lanes = [lane("m", unit) for unit in ("u1", "u2", "u3")]
    chooser = ShareChooser([Route(to={"m": 1.0})], "only", lanes, random.Random(0), balancing="shortest_queue")
    taken = []
    for _ in range(9):
        where = chooser.place(task())
        assert where is not None
        where.bound += 1
        taken.append(where.unit)
    assert taken == taken[:3] * 3
    assert set(taken) == {"u1", "u2", "u3"}
    assert [chooser.place(task()).unit for _ in range(3)] == taken[:3], "and where all are equal, not one for all"  # type: ignore[union-attr]
    lanes[1].bound = 0
    assert {chooser.place(task()).unit for _ in range(3)} == {"u2"}  # type: ignore[union-attr]


def test_earliest_completion_counts_what_is_queued() -> None:
    lanes = [lane("fast", "f", ms=(10.0, 10.0)), lane("slow", "s", ms=(25.0, 25.0))]
    chooser = EarliestChooser(lanes, Times(lanes, {}))
    chosen = []
    for _ in range(4):
        where = chooser.place(task())
        assert where is not None
        where.bound += 1
        chosen.append(where.name)
    assert chosen == ["fast", "fast", "slow", "fast"]


def test_a_type_that_cannot_serve_a_class_is_never_preferred() -> None:
    lanes = [lane("small", "a"), lane("large", "b")]
    predict = {"large@cpu": {"axes": {"batch": [1.0, 64.0]}, "mean": [5.0, 50.0]}}
    times = Times(lanes, predict)
    row = times.row(task(32.0))
    assert times.service_ms[row, 0] > 1e8
    assert np.isfinite(times.service_ms).all()
    assert inf not in times.service_ms


@pytest.mark.parametrize("rule", ["fcfs/1", "threshold/1", "matching/1"])
def test_a_worker_that_serves_several_at_once_gets_all_that_it_can_take_in_one_turn(rule: str) -> None:
    sent, wide = Sent(), lane("a", "u1", servers=3)
    if rule == "matching/1":
        times = Times([wide], {})
        how = (times, RULE, sent.send, sent.soon, None)
        chooser: MatchingChooser | InOrderChooser = MatchingChooser([wide], *how)
    else:
        dispatch = {"rule": rule, "threshold": 0.0, "base": "cpu"}
        chooser = InOrderChooser([wide], dispatch, sent.send, sent.soon, None)
    tasks = [task(arrived_s=monotonic() + number / 1e6) for number in range(5)]
    for one in tasks:
        put(chooser, one, sent)
    sent.settle()
    assert [one for _, batch in sent.pairs for one in batch] == tasks[:3]
    assert len(chooser) == 2


@pytest.mark.parametrize("rule", ["fcfs/1", "threshold/1"])
def test_who_waits_for_a_faster_worker_is_in_no_batch_of_a_slow_one(rule: str) -> None:
    """It was passed over as late there, and went with the next one."""

    class Drop:
        def drop_hopeless(self, queue: object) -> None:
            del queue

        def in_time(self, task: Task, lane: Lane, size: int = 1) -> bool:
            return monotonic() + lane.mean_s(task.query.at, size) <= task.query.deadline_s

    fast, slow = lane("fast", "f"), lane("slow", "s", ms=(100.0, 200.0), max_batch=4)
    fast.bound, sent = 1, Sent()
    dispatch = {"rule": rule, "threshold": 8.0, "base": "none"}
    chooser = InOrderChooser([fast, slow], dispatch, sent.send, sent.soon, Drop())  # type: ignore[arg-type]
    urgent, patient = task(slo_s=0.05), task(slo_s=5.0)
    for one in (urgent, patient):
        chooser.place(one)
    chooser.settle()
    assert sent.pairs == [(slow, [patient])]
    assert list(chooser.waiting) == [urgent]
