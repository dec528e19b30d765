"""The registry of rules, and the rules without a matching."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hetplan.dispatch.queue_rules import Earliest, Fcfs, Threshold
from hetplan.dispatch.rules import ALIASES, RULES, decide, rule_name, rule_of
from hetplan.dispatch.snapshot import Pair, Snapshot
from hetplan.errors import InputError

PARAMETERS = {"matching/1": {"slo_ms": 100.0, "weight": (1.0, 0.5)}, "threshold/1": {"threshold": 3.0}}


def some(queries: int = 3) -> Snapshot:
    return Snapshot.of(
        waited_ms=np.arange(queries)[::-1],
        service_ms=[[10.0, 20.0]] * queries,
        kind=[1, 0, 1, 0],
        busy_ms=[0, 4, 0, 0],
        size=range(1, queries + 1),
    )


def test_every_name_leads_to_a_rule_of_that_name() -> None:
    assert {name: rule.name for name, rule in RULES.items()} == {name: name for name in RULES}
    assert set(ALIASES.values()) == set(RULES)
    for alias, name in ALIASES.items():
        assert rule_name(alias.upper()) == name


@pytest.mark.parametrize("name", sorted(RULES))
def test_every_rule_decides_and_touches_nothing(name: str) -> None:
    snapshot = some()
    before = [array.copy() for array in (snapshot.waited_ms, snapshot.service_ms, snapshot.busy_ms, snapshot.kind)]
    parameters = PARAMETERS.get(name, {})
    pairs = decide(snapshot, name, **parameters)
    assert pairs == rule_of(name, parameters).decide(snapshot) == decide(snapshot, rule_of(name, parameters))
    assert pairs
    assert len({pair.query for pair in pairs}) == len(pairs)
    after = (snapshot.waited_ms, snapshot.service_ms, snapshot.busy_ms, snapshot.kind)
    assert all((one == other).all() for one, other in zip(before, after, strict=True))
    if name != "earliest/1":
        assert all(snapshot.idle[pair.instance] for pair in pairs)


def test_unknown_names_and_parameters_are_reported_with_a_remedy() -> None:
    with pytest.raises(InputError, match="matching/1"):
        rule_name("machting/1")
    with pytest.raises(InputError, match="earliest/1, fcfs/1"):
        rule_name("zzz")
    with pytest.raises(InputError, match="no such parameter"):
        rule_of("fcfs", {"threshold": 3})
    with pytest.raises(InputError, match="slo_ms"):
        rule_of("matching", {})


def test_first_come_first_served_prefers_types_in_order() -> None:
    assert Fcfs().decide(some()) == (Pair(0, 3), Pair(1, 0), Pair(2, 2))
    assert Fcfs(prefer=(1,)).decide(some()) == (Pair(0, 0), Pair(1, 2), Pair(2, 3))


def test_threshold_parts_queries_by_size() -> None:
    assert Threshold(1).decide(some()) == (Pair(0, 0), Pair(1, 3)), "the third waits for the busy base"
    assert Threshold(9).decide(some()) == (Pair(0, 0), Pair(1, 2))
    assert Threshold(1, base=1).decide(some()) == (Pair(0, 3), Pair(1, 0), Pair(2, 2))
    with pytest.raises(InputError, match="size"):
        Threshold(1).decide(Snapshot.of(waited_ms=[0], service_ms=[[1]], kind=[0]))


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_earliest_completion_is_earliest(data: st.DataObject) -> None:
    times = st.integers(1, 9).map(float)
    instances, queries = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 5))
    busy = data.draw(st.lists(st.one_of(st.just(0.0), times), min_size=instances, max_size=instances))
    kind = data.draw(st.lists(st.integers(0, 1), min_size=instances, max_size=instances))
    service = data.draw(st.lists(st.tuples(times, times), min_size=queries, max_size=queries))
    pairs = Earliest().decide(Snapshot.of(waited_ms=[0.0] * queries, service_ms=service, kind=kind, busy_ms=busy))
    ends = list(busy)
    for pair, of_query in zip(pairs, service, strict=True):
        done = [end + of_query[of_type] for end, of_type in zip(ends, kind, strict=True)]
        assert pair.instance == done.index(min(done))
        ends[pair.instance] = done[pair.instance]


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"service_ms": [[1.0]]}, "service_ms"),
        ({"busy_ms": [0.0]}, "busy_ms"),
        ({"idle": [True]}, "busy_ms"),
        ({"kind": [0, 2]}, "kind"),
        ({"size": [1]}, "size"),
        ({"waited_ms": [0.0, float("nan")]}, "waited_ms"),
        ({"busy_ms": [0.0, -1.0]}, "busy_ms"),
    ],
)
def test_a_wrong_snapshot_is_reported(wrong: dict[str, object], field: str) -> None:
    right = {"waited_ms": [1.0, 0.0], "service_ms": [[1.0, 2.0], [1.0, 2.0]], "kind": [0, 1]}
    Snapshot.of(**right)  # type: ignore[arg-type]
    with pytest.raises(InputError) as caught:
        Snapshot.of(**{**right, **wrong})  # type: ignore[arg-type]
    assert caught.value.faults[0].path == field


def test_numba_is_loaded_only_by_a_decision_that_needs_it() -> None:
    code = (
        "import sys; import hetplan.dispatch.rules, hetplan.simulator.pool_allowable;"
        "assert 'numba' not in sys.modules and 'scipy' not in sys.modules;"
        "from hetplan.dispatch.snapshot import Snapshot;"
        "hetplan.dispatch.rules.decide(Snapshot.of(waited_ms=[0], service_ms=[[1]], kind=[0]), 'fcfs');"
        "assert 'numba' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_numba_decisions_are_the_same() -> None:
    code = (
        "import sys; sys.modules['numba'] = None;"
        "from hetplan.compiled import is_compiled; assert not is_compiled();"
        "from hetplan.dispatch.rules import decide; from hetplan.dispatch.snapshot import Snapshot;"
        "snapshot = Snapshot.of(waited_ms=[0, 0], service_ms=[[10, 20], [40, 200]], kind=[0, 1]);"
        "print([tuple(pair) for pair in decide(snapshot, 'matching', slo_ms=100, weight=(1.0, 0.2))])"
    )
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert said.strip() == "[(0, 1), (1, 0)]"
