"""Plans of pipelines, played: joins at the front end, variants that are swapped, routing rules, late requests."""

from __future__ import annotations

import copy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from cases.pipelines import diamond, fluid

from hetplan.profiles.load import load_inputs
from hetplan.profiles.plan import Plan
from hetplan.simulator.simulate import simulate
from hetplan_papers.datasets import loki_by_hand, loki_generator

EVEN = {"arrivals": "deterministic", "noise": "mean", "seeds": 1, "threads": 1}


def with_mean(profile: dict) -> dict:
    """The same profile with means beside the medians."""
    for table in profile["tables"].values():
        table.setdefault("mean", table["p50"])
    return profile


def state_of(plan: Plan) -> dict:
    workers = [worker.model_dump(mode="json", exclude_none=True) for worker in plan.workers]
    return {"format": "hetplan/state/1.0", "workers": workers}


def test_the_front_end_waits_for_every_branch() -> None:
    """25 ms at a, then 100 ms at b and 50 ms at c side by side: an answer after 125 ms, each hop 2 ms more, and the way
    to the client 7 ms once.
    """
    profile, slo = loki_by_hand.two_sinks(1)
    slo["apps"]["x"] |= {"network_ms_per_hop": 2.0, "network_ms_once": 7.0}
    plan = fluid(profile, slo).require()
    figures = simulate(plan, load_inputs(profile, slo), duration_s=30.0, **EVEN).apps["x"].figures
    assert figures["mean_ms"].value == pytest.approx(136.0)
    assert next(one.value for one in plan.promises if one.quantity == "service_ms") == pytest.approx(136.0)
    assert figures["accuracy"].value == pytest.approx(1.0)


@pytest.mark.parametrize(("slo_ms", "response_ms", "accuracy"), [(120, 60.0, 1.0), (100, 50.0, 0.875)])
def test_a_step_where_branches_meet_begins_when_both_are_there(
    slo_ms: float, response_ms: float, accuracy: float
) -> None:
    """a, b beside c, d of 20 ms each: 60 ms. Under a limit of 100, a or d is the fast one of 10 ms (0.5)."""
    profile, slo = diamond(2, slo_ms)
    profile = with_mean(profile)
    plan = fluid(profile, slo).require()
    figures = simulate(plan, load_inputs(profile, slo), duration_s=60.0, **EVEN).apps["x"].figures
    assert figures["mean_ms"].value == pytest.approx(response_ms)
    assert figures["accuracy"].value == pytest.approx(accuracy)


def one_step(demand: float) -> tuple[dict, dict]:
    """One server; v1 (1, 50 ms), v2 (0.8, 20 ms), either loads for two seconds."""
    profile, slo = loki_by_hand.two_gpus(demand)
    for variant in profile["variants"].values():
        variant["runs"] = [run | {"load_s": 2.0} for run in variant["runs"] if run["hardware"] == "g"]
    slo["limits"]["instances"] = {"g": [0, 1]}
    slo["apps"]["x"]["latency"]["p99_ms"] = 1000.0
    slo["apps"]["x"]["arrivals"] = {"process": "deterministic"}
    return profile, slo


@pytest.mark.parametrize(("late", "in_time", "settled_s"), [("serve", 0.0, 3.1), ("reroute", 39 / 80, 0.0)])
def test_a_server_that_swaps_its_variant_serves_nobody_meanwhile(late: str, in_time: float, settled_s: float) -> None:
    """The only server goes from v1 to v2 for 40 queries/s: nothing is served for 2 s. The k-th query, come at k / 40 s,
    is done at 2 + 0.02 (k + 1): in time (1 s) from the 204th on, which comes 3.1 s after the way. Where
    hopeless ones are dropped (the first 41, at 2 s), all that came since 1.025 s are in time."""
    before = fluid(*one_step(10)).require()
    profile, slo = one_step(40)
    slo["apps"]["x"]["late"] = late
    state = state_of(before)
    plan = fluid(profile, slo, state).require()
    assert [action.do for action in plan.actions] == ["stop", "start", "load"]
    report = simulate(plan, load_inputs(profile, slo, state=state), duration_s=30.0, **EVEN)
    way = report.transition
    assert way is not None
    assert way.seconds == 2.0
    assert way.apps["x"].in_time.value == pytest.approx(in_time)
    assert way.apps["x"].settled_s == pytest.approx(settled_s, abs=0.5)  # measured by stretches of half a second


def test_with_room_for_both_the_old_one_serves_until_the_new_one_has_loaded() -> None:
    before = fluid(*one_step(10)).require()
    profile, slo = one_step(40)
    slo["limits"]["instances"] = {"g": [0, 2]}
    slo["limits"]["changes"] = 1
    slo["apps"]["x"]["latency"]["p99_ms"] = 90.0  # v1 is too slow for 45 ms, so that the plan is v2 alone
    state = state_of(before)
    plan = fluid(profile, slo, state).require()
    assert [action.do for action in plan.actions] == ["start", "load", "stop"]


def test_most_accurate_first_is_played_as_planned() -> None:
    """Algorithm 1 fills a1, a2 and b2 to the brim, as the plan does: the same shares, the same accuracy."""
    profile, slo = loki_by_hand.tiny(0.2, 50)
    plan = fluid(profile, slo, options={"routing": "most-accurate-first"}).require()
    assert plan.dispatch["x"].rule == "most-accurate-first/1"
    slo["apps"]["x"]["rate_qps"] = 20
    played = simulate(plan, load_inputs(profile, slo), seeds=2, duration_s=60.0, threads=1).apps["x"].figures
    promised = next(promise.value for promise in plan.promises if promise.quantity == "quality")
    assert played["accuracy"].value == pytest.approx(promised, abs=0.01)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rush", "worse", "better"), [(1.4, "serve", "drop-last-task"), (1.2, "drop-per-task", "reroute")]
)
def test_what_dropping_and_rerouting_save(rush: float, worse: str, better: str) -> None:
    """A tree planned with headroom, under more than planned. Near full load, giving up hopeless ones at the last step
    saves others; below, rerouting keeps many whom the budgets of the steps alone would drop."""
    shares = {}
    for late in (worse, better):
        profile, slo = loki_generator.inputs(((1, 2), (), ()), servers=16, utilisation=1.3)
        slo["apps"]["x"]["late"] = late
        plan = fluid(profile, slo, options={"headroom": 0.3, "budget_factor": 1.0}, formulation="loki").require()
        hurried = copy.deepcopy(slo)
        hurried["apps"]["x"]["rate_qps"] *= rush
        report = simulate(plan, load_inputs(profile, hurried), seeds=2, duration_s=10.0, noise="p50", threads=1)
        shares[late] = report.apps["x"].figures["violations"].value
    assert shares[better] < shares[worse]
