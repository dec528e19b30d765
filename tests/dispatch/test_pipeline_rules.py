"""Decisions on the way through a pipeline: shares of paths, most accurate first, dropping, backups, monitors."""

import random
from math import inf

import pytest

from hetplan.dispatch.decision_kernels import behind
from hetplan.dispatch.monitors import DemandMonitor, forecast
from hetplan.dispatch.pipelines import FRONTEND, Backups, Host, PathShares, most_accurate_first
from hetplan.errors import InputError
from hetplan.profiles.plan import Route
from hetplan.profiles.plan_dispatch_rules import BackupEntry
from hetplan.serving.system import LATE_POLICIES

TREE = {"a": ["b"], "b": []}


def hosts():
    return [
        Host("a1", "a", 1.0, 10, {"b": 3}),
        Host("a2", "a", 0.8, 20, {"b": 2}),
        Host("b1", "b", 1.0, 25),
        Host("b2", "b", 0.9, 20),
        Host("b3", "b", 0.7, 30),
    ]


def test_the_golden_filling():
    filled = most_accurate_first(hosts(), TREE, 25)
    assert filled.tables[FRONTEND]["a"] == (("a1", 0.4), ("a2", 0.6))
    assert dict(filled.tables["a1"]["b"]) == pytest.approx({"b1": 0.8333333, "b2": 0.1666667})
    assert dict(filled.tables["a2"]["b"]) == pytest.approx({"b2": 0.5, "b3": 0.5})
    assert filled.left_qps == {"a": {"a2": 5}, "b": {"b3": 15}}
    assert filled.unserved_qps == {"a": 0, "b": 0}
    quality = {host.id: host.quality for host in hosts()}
    accuracy = sum(
        first * quality[a] * sum(second * quality[b] for b, second in filled.tables[a]["b"])
        for a, first in filled.tables[FRONTEND]["a"]
    )
    assert accuracy == pytest.approx(0.777333, abs=1e-6)


def test_excess_is_unserved():
    filled = most_accurate_first(hosts(), TREE, 40)
    assert filled.unserved_qps["a"] == pytest.approx(10)
    assert sum(share for _, share in filled.tables[FRONTEND]["a"]) == pytest.approx(0.75)
    assert filled.left_qps["a"] == {}


def test_equals_go_by_id_and_nothing_is_overfilled():
    chance = random.Random(3)
    for _ in range(50):
        servers = [Host(f"a{i}", "a", chance.choice([0.5, 1.0]), chance.uniform(1, 9), {"b": 2.0}) for i in range(5)]
        servers += [Host(f"b{i}", "b", chance.choice([0.5, 1.0]), chance.uniform(1, 9)) for i in range(5)]
        filled = most_accurate_first(servers, TREE, chance.uniform(0, 40))
        for host in servers:
            assert filled.load_qps[host.id] <= host.capacity_qps * (1 + 1e-9)
        first = [name for name, _ in filled.tables[FRONTEND]["a"]]
        order = sorted((host for host in servers if host.task == "a"), key=lambda host: (-host.quality, host.id))
        assert first == [host.id for host in order][: len(first)]


def test_paths_have_their_own_shares():
    rule = PathShares(
        [
            Route(node="a", to={"a1": 0.5, "a2": 0.5}),
            Route(prefix=("a1",), node="b", to={"b1": 1.0}),
            Route(node="b", to={"b2": 1.0}),
            Route(prefix=("a1", "b1"), node="c", to={"c1": 1.0}),
            Route(prefix=("b1",), node="c", to={"c2": 1.0}),
        ]
    )
    assert rule.choose(("a1",), "b", 0.5) == "b1"
    assert rule.choose(("a2",), "b", 0.5) == "b2"
    assert rule.choose(("a1", "b1"), "c", 0.99) == "c1"
    assert rule.choose(("a2", "b1"), "c", 0.0) == "c2"
    with pytest.raises(InputError, match="no route"):
        rule.choose(("a1",), "z", 0.1)


def test_shares_are_met_on_the_mean():
    rule, chance = PathShares([Route(node="a", to={"x": 0.2, "y": 0.8})]), random.Random(1)
    drawn = [rule.choose((), "a", chance.random()) for _ in range(5000)]
    assert drawn.count("x") / 5000 == pytest.approx(0.2, abs=0.02)


@pytest.mark.parametrize(
    ("policy", "facts", "missed"),
    [
        ("serve", {"is_last": True, "now": 500.0, "deadline": 100.0}, -inf),
        ("drop", {"now": 101.0, "deadline": 100.0}, 1.0),
        ("drop", {"now": 90.0, "takes": 30.0, "deadline": 100.0}, 20.0),
        ("drop-last-task", {"now": 99.0, "takes": 50.0, "deadline": 100.0}, -inf),
        ("drop-last-task", {"is_last": True, "now": 50.0, "takes": 50.0, "deadline": 100.0}, 0.0),
        ("drop-last-task", {"is_last": True, "now": 51.0, "takes": 50.0, "deadline": 100.0}, 1.0),
        ("drop-per-task", {"now": 160.0, "entered": 100.0, "budget": 60.0}, 0.0),
        ("drop-per-task", {"is_last": True, "now": 150.0, "takes": 11.0, "entered": 100.0, "budget": 60.0}, 1.0),
        ("reroute", {"now": 161.0, "entered": 100.0, "budget": 60.0}, 1.0),
        ("reroute", {"is_last": True, "now": 50.0, "entered": -600.0, "budget": 60.0, "deadline": 100.0}, -50.0),
        ("reroute", {"is_last": True, "now": 51.0, "takes": 50.0, "deadline": 100.0}, 1.0),
    ],
)
def test_by_how_much_a_query_misses_what_its_policy_asks(policy, facts, missed):
    plain = {"is_last": False, "now": 0.0, "takes": 0.0, "entered": 0.0, "deadline": inf, "budget": inf}
    assert behind(int(LATE_POLICIES[policy]), **{**plain, **facts}) == missed


def test_backups_give_the_best_that_makes_up_the_time_until_they_are_full():
    table = [
        BackupEntry(to="slow", node="b", left_qps=9, latency_ms=40, quality=1.0),
        BackupEntry(to="good", node="b", left_qps=1.5, latency_ms=20, quality=0.9),
        BackupEntry(to="same", node="b", left_qps=1, latency_ms=15, quality=0.9),
        BackupEntry(to="fast", node="b", left_qps=9, latency_ms=5, quality=0.5),
        BackupEntry(to="other", node="c", left_qps=9, latency_ms=1, quality=1.0),
    ]
    backups = Backups.of(table, "b")
    assert {backups.take(0.0, late_ms=20, exec_ms=40, draw=draw) for draw in (0.1, 0.9)} == {"good", "same"}
    assert backups.take(0.5, late_ms=20, exec_ms=40) == "fast"  # half a query is no query
    assert backups.take(1.0, late_ms=20, exec_ms=40) in ("good", "same")
    assert backups.take(1.0, late_ms=38, exec_ms=40) is None
    assert backups.take(2.0, late_ms=36, exec_ms=40) is None
    assert backups.take(2.0, late_ms=35, exec_ms=40) == "fast"


def test_forecasts():
    assert forecast([100, 200]) == pytest.approx(138.4615, abs=1e-4)
    assert forecast([100, 200, 400]) == pytest.approx(239.0533, abs=1e-4)
    assert forecast([]) == 0.0
    with pytest.raises(ValueError, match="0 or more"):
        DemandMonitor().observe(-1)
    with pytest.raises(ValueError, match="above 0"):
        DemandMonitor(com=0)
