"""The matching rule: Kairos' Eqs. 1 to 8 and what hetplan adds to decide ties."""

from __future__ import annotations

from itertools import permutations
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hetplan.dispatch.matching import Matching, weights
from hetplan.dispatch.matching_kernels import IDLE, Seen, match, scratch
from hetplan.dispatch.parts import parts_of_pool, split_pool
from hetplan.dispatch.snapshot import Pair, Snapshot
from hetplan.errors import InputError
from tests.dispatch.plain_matching import plain_mates

PENALTIES = ("paper", "absolute", "lexicographic")
G1 = [[10.0, 20.0], [40.0, 200.0]]  # a small and a large query on the base and on the auxiliary type


def cost_of(rule: Matching, snapshot: Snapshot, pairs: tuple[Pair, ...]) -> float:
    cost = rule.cost(snapshot)
    return float(sum(cost[pair.query, pair.instance] for pair in pairs))


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    queries, instances, types = draw(st.integers(1, 4)), draw(st.integers(1, 4)), draw(st.integers(1, 3))
    whole = draw(st.booleans())
    time = st.integers(1, 12).map(lambda tens: 10.0 * tens) if whole else st.floats(1.0, 150.0)
    busy = st.one_of(st.just(0.0), time)
    kind = draw(st.lists(st.integers(0, types - 1), min_size=instances, max_size=instances))
    return Snapshot.of(
        waited_ms=sorted(draw(st.lists(time, min_size=queries, max_size=queries)), reverse=True),
        service_ms=draw(st.lists(st.lists(time, min_size=types, max_size=types), min_size=queries, max_size=queries)),
        kind=kind,
        busy_ms=draw(st.lists(busy, min_size=instances, max_size=instances)),
    )


RULES = st.builds(
    Matching,
    slo_ms=st.sampled_from([50.0, 100.0, 160.0]),
    weight=st.lists(st.sampled_from([1.0, 0.5, 0.2, 0.05]), min_size=3, max_size=3).map(tuple),
    penalty=st.sampled_from(PENALTIES),
    merge=st.booleans(),
)


def test_g10_the_small_query_goes_to_the_weak_type() -> None:
    snapshot = Snapshot.of(waited_ms=[0, 0], service_ms=G1, kind=[0, 1])
    rule = Matching(slo_ms=100, weight=(1.0, 0.2))
    pairs = rule.decide(snapshot)
    assert pairs == (Pair(0, 1), Pair(1, 0))
    assert cost_of(rule, snapshot, pairs) == pytest.approx(44)
    assert cost_of(rule, snapshot, (Pair(0, 0), Pair(1, 1))) == pytest.approx(210)


@pytest.mark.slow
@settings(max_examples=250, deadline=None)
@given(snapshots(), RULES)
def test_no_other_pairing_is_cheaper(snapshot: Snapshot, rule: Matching) -> None:
    pairs = rule.matched(snapshot)
    queries, instances = snapshot.waited_ms.size, snapshot.kind.size
    pairs_due = min(queries, instances)
    assert len({pair.query for pair in pairs}) == len({pair.instance for pair in pairs}) == len(pairs) == pairs_due
    cost = rule.cost(snapshot)[: 2 * instances]  # the window
    if queries > instances:
        cost = cost.T
    best = min(
        sum(cost[row, column] for row, column in enumerate(p)) for p in permutations(range(cost.shape[1]), pairs_due)
    )
    assert cost_of(rule, snapshot, pairs) == pytest.approx(best, rel=1e-12)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(snapshots(), RULES)
def test_only_pairs_with_idle_instances_are_sent(snapshot: Snapshot, rule: Matching) -> None:
    assert rule.decide(snapshot) == tuple(p for p in rule.matched(snapshot) if snapshot.idle[p.instance])


def test_a_query_waits_for_a_busy_instance_that_suits_it_better() -> None:
    snapshot = Snapshot.of(waited_ms=[0], service_ms=[[40, 200]], kind=[0, 1], busy_ms=[11, 0])
    rule = Matching(slo_ms=100, weight=(1.0, 0.2))
    assert rule.matched(snapshot) == (Pair(0, 0),)
    assert rule.decide(snapshot) == ()


def test_an_overdue_instance_is_not_idle() -> None:
    rule = Matching(slo_ms=100, weight=(1.0,))
    overdue = Snapshot.of(waited_ms=[0], service_ms=[[40]], kind=[0], busy_ms=[0], idle=[False])
    assert rule.matched(overdue) == (Pair(0, 0),)
    assert rule.decide(overdue) == ()
    beside = Snapshot.of(waited_ms=[0], service_ms=[[40]], kind=[0, 0], busy_ms=[0, 0], idle=[False, True])
    assert rule.decide(beside) == (Pair(0, 1),)


def test_the_window_is_the_oldest_two_per_instance() -> None:
    waited = [9.0, 8.0, 7.0, 6.0, 5.0]
    snapshot = Snapshot.of(waited_ms=waited, service_ms=[[50], [40], [30], [20], [1]], kind=[0, 0])
    pairs = Matching(slo_ms=1000, weight=(1.0,)).decide(snapshot)
    assert {pair.query for pair in pairs} == {2, 3}, "the cheapest of the oldest four, not the cheapest of all"


def test_xi_keeps_a_margin() -> None:
    snapshot = Snapshot.of(waited_ms=[0], service_ms=[[99, 500]], kind=[0, 1], busy_ms=[0, 0])
    assert Matching(slo_ms=100, weight=(1.0, 0.2)).decide(snapshot) == (Pair(0, 1),), "99 > 98: late on both"
    assert Matching(slo_ms=100, weight=(1.0, 0.2), xi=1.0).decide(snapshot) == (Pair(0, 0),)


def test_where_a_light_type_would_win_the_penalty_is_scaled() -> None:
    """C = 0.05: ten times the target there costs 50, less than 60 in time on the base."""
    snapshot = Snapshot.of(waited_ms=[0], service_ms=[[60, 500]], kind=[0, 1])
    rule = Matching(slo_ms=100, weight=(1.0, 0.05))
    assert rule.scaled
    assert rule.decide(snapshot) == (Pair(0, 0),)
    assert rule.late_cost().tolist() == pytest.approx([20000, 1000])
    assert not Matching(slo_ms=100, weight=(1.0, 0.098)).scaled
    assert not Matching(slo_ms=100, weight=(1.0, 0.05), penalty="lexicographic").scaled


def test_the_penalties_differ_where_they_should() -> None:
    """Two queries, two instances: either one is late cheaply, or none is late at a high price."""
    snapshot = Snapshot.of(waited_ms=[0, 0], service_ms=[[10, 90], [1, 95]], kind=[0, 1])
    none_late = Matching(slo_ms=92, xi=1.0, weight=(1.0, 50.0), penalty="lexicographic")
    assert none_late.decide(snapshot) == (Pair(0, 1), Pair(1, 0))
    assert Matching(slo_ms=92, xi=1.0, weight=(1.0, 50.0), penalty="absolute").decide(snapshot) == (
        Pair(0, 0),
        Pair(1, 1),
    )


def test_older_first_among_alike_instances() -> None:
    rule = Matching(slo_ms=100, weight=(1.0,))
    alike = Snapshot.of(waited_ms=[9, 3], service_ms=[[30], [20]], kind=[0, 0], busy_ms=[5, 0])
    assert rule.matched(alike) == (Pair(0, 1), Pair(1, 0))
    tight = Snapshot.of(waited_ms=[9, 3], service_ms=[[30], [94.5]], kind=[0, 0], busy_ms=[5, 0])
    assert rule.matched(tight) == (Pair(0, 0), Pair(1, 1)), "the younger would be late on the busy one"


def test_late_queries_keep_to_the_first_of_alike_instances() -> None:
    late_anyway = Snapshot.of(waited_ms=[500], service_ms=[[30]], kind=[0, 0, 0], busy_ms=[20, 0, 0])
    for merge in (True, False):
        rule = Matching(slo_ms=100, weight=(1.0,), merge=merge)
        assert rule.matched(late_anyway) == (Pair(0, 0),)
        assert rule.decide(late_anyway) == ()


@pytest.mark.parametrize("penalty", PENALTIES)
def test_merging_alike_instances_costs_nothing(penalty: str) -> None:
    rng = np.random.default_rng(3)
    for queries in (1, 2, 5, 9, 20, 41, 70):
        kind = np.repeat([0, 1, 2], [3, 20, 18])
        snapshot = Snapshot.of(
            waited_ms=np.sort(rng.uniform(0, 90, queries))[::-1],
            service_ms=rng.uniform(5, 110, (queries, 3)),
            kind=kind,
            busy_ms=np.where(rng.random(kind.size) < 0.4, 0.0, rng.uniform(0, 80, kind.size)),
        )
        rules = [Matching(slo_ms=100, weight=(1.0, 0.4, 0.2), penalty=penalty, merge=merge) for merge in (True, False)]
        one, other = (cost_of(rule, snapshot, rule.matched(snapshot)) for rule in rules)
        assert rules[0].merges
        if penalty == "lexicographic":
            one, other = (cost_of(rules[1], snapshot, rule.matched(snapshot)) for rule in rules)
        assert one == pytest.approx(other, rel=1e-12)


def test_no_merging_where_late_is_cheaper_than_timely() -> None:
    assert not Matching(slo_ms=2000, weight=(1.0,), penalty="absolute", penalty_ms=500).merges
    assert Matching(slo_ms=350, weight=(1.0,), penalty="absolute", penalty_ms=500).merges


@pytest.mark.parametrize("penalty", [0, 1, 2])
def test_the_same_mates_without_numba(interpreted: dict[str, ModuleType], penalty: int) -> None:
    rng = np.random.default_rng(penalty)
    for turn in range(25):
        first = np.array([0, 1, 4, 6])
        kind = np.repeat(np.arange(3), np.diff(first))
        queries = 1 + turn % 12
        arrived = np.sort(np.floor(rng.uniform(0, 100, queries)))
        service = np.floor(rng.uniform(1, 12, (queries, 3))) * 10
        ends = np.where(rng.random(6) < 0.4, IDLE, 100 + np.floor(rng.uniform(-5, 8, 6)) * 10)
        weight = np.array([1.0, 0.5, 0.2])
        late_cost = (weight * 1000.0, np.full(3, 500.0), np.full(3, -1.0))[penalty]
        found = []
        for run in (match, interpreted["matching_kernels"].match):
            mates = np.full(queries, -1)
            costs = (weight, late_cost, 98.0, turn % 2 == 0)
            order = np.arange(queries)
            seen = Seen(100.0, order, queries, arrived, order, service, first, kind, ends)
            run(seen, costs, mates, scratch(6, 12))
            found.append(mates.tolist())
        assert found[0] == found[1]


def queue(rng: np.random.Generator, queries: int, counts: list[int]) -> tuple[Seen, tuple]:
    """What a matching looks at, drawn so that much of it is alike: sizes, times to go, and who is idle."""
    first = np.concatenate([[0], np.cumsum(counts)])
    kind, sizes = np.repeat(np.arange(len(counts)), counts), int(rng.choice([1, 3, 5, queries]))
    step, waited = rng.choice([1e-12, 0.5, 10.0]), rng.choice([0.0, 20.0, 70.0, 400.0])
    service = 5.0 + rng.uniform(1.0, 30.0, (sizes, 1)) * rng.uniform(1.0, 3.0, (1, len(counts)))
    service = (
        np.round(service / step) * step
        if step > 0.1
        else 20.0 + step * np.arange(sizes)[:, None] * np.ones((1, len(counts)))
    )
    ends = 100.0 + rng.choice([np.floor(rng.uniform(-2, 8, kind.size)) * 5, rng.uniform(-1, 40, kind.size)])
    ends[rng.random(kind.size) < rng.choice([0.0, 0.1, 0.5])] = IDLE
    ends[rng.integers(kind.size)] = IDLE
    arrived = np.sort(100.0 - rng.choice([np.floor(rng.uniform(0, waited + 1, queries)), waited + np.zeros(queries)]))
    weight = np.array([1.0, 0.4, 0.05])[: len(counts)]
    late = [weight * 1000.0, np.full(len(counts), 500.0), np.full(len(counts), -1.0), weight * 1e9]
    costs = (weight, late[rng.choice(4, p=[0.7, 0.1, 0.1, 0.1])], 98.0, bool(rng.random() < 0.9))
    order = np.arange(queries)
    return Seen(100.0, order, queries, arrived, rng.integers(sizes, size=queries), service, first, kind, ends), costs


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("most", [3, 8, 30])
def test_the_quick_way_decides_as_the_plain_one(most: int) -> None:
    rng = np.random.default_rng(most)
    for _ in range({3: 1500, 8: 600, 30: 60}[most]):
        counts = rng.integers(1, most + 1, int(rng.choice([1, 1, 2, 3]))).tolist()
        queries = int(rng.integers(1, 2 * sum(counts) + 1))
        seen, costs = queue(rng, queries, counts)
        mates = np.full(queries, -1)
        match(seen, costs, mates, scratch(sum(counts), 2 * sum(counts)))
        assert mates.tolist() == plain_mates(seen, costs)


def test_where_all_are_alike_nothing_is_searched(interpreted: dict[str, ModuleType]) -> None:
    """One type, and each query timely on all instances or late on all: the matching is written down."""
    kernels, rng, written = interpreted["matching_kernels"], np.random.default_rng(5), 0
    for _ in range(100):
        seen, costs = queue(rng, 12, [9])
        room, mates = scratch(9, 18), np.full(12, -1)
        columns = kernels.candidates(12, seen.first, seen.ends_ms, costs[3], room[2][4])
        if kernels.pair_in_turn(seen, costs, columns, mates, room):
            written += 1
            assert sorted(mates[mates >= 0].tolist()) == list(range(9))
    assert written >= 5


def test_nothing_waits_or_nothing_runs() -> None:
    rule = Matching(slo_ms=100, weight=(1.0,))
    assert rule.decide(Snapshot.of(waited_ms=[], service_ms=[], kind=[0])) == ()
    assert rule.decide(Snapshot.of(waited_ms=[1], service_ms=[[5]], kind=[])) == ()


def test_weights_are_relative_to_the_base() -> None:
    assert weights([[1, 30], [2, 60], [4, 15]]) == (1.0, 0.5, 2.0)
    assert weights([[1, 30], [2, 60], [4, 15]], base=2) == (0.5, 0.25, 1.0)


@pytest.mark.parametrize(
    ("counts", "weight", "most", "parts"),
    [
        ((2, 0, 61, 0), (1.0, 0.5, 0.2, 0.1), 50, 2),
        ((6, 0, 113), (1.0, 0.5, 0.2), 50, 3),
        ((1, 99), (1.0, 0.2), 50, 1),
        ((0, 90), (1.0, 0.2), 50, 2),
        ((1, 0, 99), (1.0, 0.2, 1.5), 50, 2),
        ((20, 30), (1.0, 0.2), 50, 1),
        ((20, 31), (1.0, 0.2), 50, 2),
        ((0, 2, 1), (1.0, 0.5, 0.2), 1, 2),
    ],
)
def test_a_split_pool_keeps_its_instances_and_its_bases(
    counts: tuple[int, ...], weight: tuple[float, ...], most: int, parts: int
) -> None:
    split = split_pool(counts, weight=weight, most=most)
    assert len(split) == parts == parts_of_pool(counts, weight=weight, most=most)
    assert tuple(map(sum, zip(*split, strict=True))) == counts
    assert max(map(sum, split)) - min(map(sum, split)) <= len(counts)
    assert min(map(sum, split)) > 0
    strong = [number for number, own in enumerate(weight) if counts[number] and own >= 1.0]
    assert not strong or all(any(part[number] for number in strong) for part in split)


@pytest.mark.parametrize(
    ("field", "value"),
    [("slo_ms", 0.0), ("weight", ()), ("weight", (1.0, 0.0)), ("xi", 1.5), ("penalty", "none"), ("penalty_ms", -1.0)],
)
def test_bad_parameters_are_reported(field: str, value: object) -> None:
    with pytest.raises(InputError) as caught:
        Matching(**{"slo_ms": 100.0, "weight": (1.0,), field: value})  # type: ignore[arg-type]
    assert caught.value.faults[0].path == field
