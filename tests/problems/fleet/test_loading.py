"""Pipelines whose models load slowly: after a failure machines go on with what they hold, or a warning says not."""

from __future__ import annotations

import random
from typing import Any

import pytest

import hetplan as hp
from hetplan.planner.request import read_request
from hetplan.problems.fleet.after_failure import max_reload_s
from hetplan.problems.pipeline.draft import Need, spread_over_offers
from hetplan.profiles.load import load_inputs
from hetplan.profiles.plan import Plan
from hetplan.simulator.day import HowPlayed, play_day

Json = dict[str, Any]


def _files(load_s: float, rate: float = 60.0, zones: str = "ab", name_ms: float = 20.0) -> tuple[Json, Json]:
    """Two steps with a model each; any zone may be lost."""
    steps = {"find": 10.0, "name": name_ms}
    profile = {
        "format": "hetplan/profile/1.0",
        "metrics": {"top1": {"better": "higher", "range": [0, 1], "kind": "bernoulli"}},
        "hardware": {"gpu": {"kind": "gpu", "startup_s": 60}},
        "zones": {zone: {} for zone in zones},
        "offers": {f"gpu-{zone}": {"hardware": "gpu", "zone": zone, "price_per_hour": "1", "stock": 9}
                   for zone in zones},
        "tasks": {step: {"metric": "top1"} for step in steps},
        "variants": {f"{step}-net": {"task": step, "quality": {"value": 0.8}, "runs": [
            {"hardware": "gpu", "latency": step, "load_s": load_s}]} for step in steps},
        "tables": {step: {"quantity": "latency_ms", "axes": {"batch": [1]}, "mean": [ms]}
                   for step, ms in steps.items()},
        "pipelines": {"look": {"nodes": {step: {"task": step} for step in steps},
                               "edges": [{"from": "find", "to": "name"}]}},
    }  # fmt: skip
    slo = {
        "format": "hetplan/slo/1.0",
        "limits": {"survive": {"zones": 1}},
        "horizon": {"period_s": 3600, "periods": 1},
        "apps": {"look": {"question": "pipeline", "pipeline": "look",
                          "latency": {"p99_ms": 400}, "rate_qps": {"series": [rate]}}},
    }  # fmt: skip
    return profile, slo


def _plan(files: tuple[Json, Json], sizing: str = "fluid") -> Plan:
    return hp.solve(*files, options={"sizing": sizing, "savings": False}, formulation="fleet").require()


def _loads_s(plan: Plan, files: tuple[Json, Json]) -> float:
    """The longest that machines load after any failure."""
    (period,), parts = plan.periods, plan.parts or {}
    (name,) = period.parts or ()
    request = read_request(load_inputs(*files))
    after = [parts[one] for names in (period.failures or {}).values() for one in names]
    return max(max_reload_s(request, parts[name], one) for one in after)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("zones", ["ab", "abc"])
def test_after_a_failure_machines_go_on_with_what_they_hold(zones: str) -> None:
    files = _files(40.0, zones=zones)
    plan = _plan(files)
    assert _loads_s(plan, files) == 0.0
    assert not [one for one in plan.warnings if one.code == "W-loading"]
    assert hp.verify(plan, *files).ok
    quick = _plan(_files(1.0, zones=zones))
    assert plan.bill is not None
    assert quick.bill is not None
    assert plan.bill.cost_per_hour == quick.bill.cost_per_hour, "it costs nothing here: machines are only dealt out"


@pytest.mark.slow
def test_that_is_kept_where_it_is_played_and_broken_without(monkeypatch: pytest.MonkeyPatch) -> None:
    files = _files(200.0)
    how = HowPlayed(seeds=2, seed=5, queries=2e4)
    kept = play_day(_plan(files), load_inputs(*files), how)
    assert not kept.broken
    assert min(one.at_first["look"].value for one in kept.failures) > 0.9, "in the minute of the failure, too"
    monkeypatch.setattr("hetplan.problems.fleet.after_failure.is_slow", lambda part: False)
    before = _plan(files)
    assert _loads_s(before, files) == 200.0
    assert play_day(before, load_inputs(*files), how).broken


def test_where_it_cannot_be_a_warning_says_how_long_they_load() -> None:
    """Two machines a zone, three zones: of any two zones three name and one finds, which takes seven machines."""
    files = _files(40.0, rate=95.0, zones="abc", name_ms=30.0)
    plan = _plan(files)
    assert sum(worker.count for worker in (plan.parts or {})["look-1"].workers) == 6
    assert _loads_s(plan, files) == 40.0
    (warned,) = [one for one in plan.warnings if one.code == "W-loading"]
    assert "up to 40 s after" in warned.text
    assert hp.verify(plan, *files).ok


@pytest.mark.longest
def test_where_parts_are_played_there_are_more_machines_instead() -> None:
    files = _files(40.0, rate=95.0, zones="abc", name_ms=30.0)
    plan = _plan(files, "simulation")
    assert _loads_s(plan, files) == 0.0
    assert hp.verify(plan, *files).ok


@pytest.mark.parametrize("seed", range(20))
def test_servers_are_dealt_out_whole_and_within_the_room(seed: int) -> None:
    """All are of some offer, none has more than there are, those that run stay, and no step is on few offers."""
    chance = random.Random(seed)
    offers = [f"o{n}" for n in range(chance.randint(1, 4))]
    needs = [Need(("app", step, 0), 0, f"s{step}", chance.randint(0, 9)) for step in range(chance.randint(1, 4))]
    total = sum(need.count for need in needs)
    room = {(0, offer): 0 for offer in offers}
    for _ in range(total + chance.randint(0, 3)):
        room[0, chance.choice(offers)] += 1
    taken = spread_over_offers(needs, room, {})
    for need in needs:
        own = [taken[need.place, offer] for offer in offers]
        assert sum(own) == need.count
    for offer in offers:
        assert sum(taken[need.place, offer] for need in needs) <= room[0, offer]
    had = {(need.content, offer): taken[need.place, offer] for need in needs for offer in offers}
    assert spread_over_offers(needs, room, had) == taken
