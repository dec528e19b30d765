"""Plans that come into force while loads change: what waits for what, who hears of what, who keeps serving."""

import pytest
from cases.variants import machines

import hetplan as hp
from hetplan.dispatch.replanning import Replanning
from hetplan.planner.next_state import next_state
from hetplan.profiles.load import load_inputs
from hetplan.simulator.autoscale import OfflineWork, autoscale

FORMULA = {"sizing": "formula"}
"""Plans are sized by their formula for queues: they are asked for every second, and few tests are about their size."""

EVERY_S = Replanning(every_s=1.0, hold_s=2.0)


def documents(load_s):
    """Two applications with a model each; instances serve 100 queries/s and take so long to load."""
    profile = {
        "format": "hetplan/profile/1.0",
        "hardware": {"cpu": {"kind": "cpu"}},
        "tasks": {"t": {}},
        "tables": {"t": {"quantity": "latency_ms", "axes": {"batch": [1]}, "mean": [10.0]}},
        "variants": {
            name: {
                "task": "t",
                "family": name,
                "runs": [
                    {"hardware": "cpu", "latency": "t", "saturation_qps": 100, "load_s": seconds, "price_per_hour": "1"}
                ],
            }
            for name, seconds in load_s.items()
        },
    }
    apps = {
        name: {
            "family": name,
            "latency": {"p99_ms": 200},
            "rate_qps": 40,
        }
        for name in load_s
    }
    return profile, {"format": "hetplan/slo/1.0", "change": {"slack": 1.5}, "apps": apps}


def played(load_s, series, *, said=None, options=FORMULA, **how):
    profile, slo = documents(load_s)
    planner = hp.Planner(profile, slo, formulation="variants", options=options)
    first = planner.plan().require()

    def plan_for(rates, now):
        if said is not None:
            said.append(dict(rates))
        return planner.plan(rates, state=next_state(now)).plan

    return autoscale(
        first, load_inputs(profile, slo), plan_for, series=series, period_s=10.0, replanning=EVERY_S, **how
    )


def late(report, app):
    return report.apps[app].figures["violations"].value


def test_who_loads_quickly_waits_for_nobody():
    rising = {"quick": [40.0, 250.0, 250.0], "slow": [40.0, 250.0, 250.0]}
    report = played({"quick": 0.5, "slow": 15.0}, rising)
    assert late(report, "quick") < 0.25
    assert late(report, "slow") > 2 * late(report, "quick")


@pytest.mark.slow
def test_loading_is_felt_and_paid_for():
    rising = {"a": [40.0, 250.0, 250.0]}
    instant, slow = played({"a": 0.0}, rising), played({"a": 8.0}, rising)
    assert late(slow, "a") > late(instant, "a") + 0.2
    assert slow.cost_per_hour.value == pytest.approx(instant.cost_per_hour.value, rel=0.25)


def test_who_waits_goes_on_asking():
    said = []
    # A burst shorter than loading takes: what was asked for is not sent away before it has come.
    played({"a": 9.0}, {"a": [40.0, 300.0, 40.0, 40.0]}, said=said)
    most = max(range(len(said)), key=lambda k: said[k]["a"])
    assert said[most]["a"] > 250
    assert all(rates["a"] >= 250 for rates in said[12:18])
    assert said[-1]["a"] < 80


@pytest.mark.slow
def test_a_load_that_stays_changes_nothing():
    report = played({"a": 3.0}, {"a": [40.0] * 4}, options={})
    assert report.cost_per_hour.value == pytest.approx(1.0, rel=0.35)
    assert late(report, "a") < 0.02


def test_what_has_no_plan_stays_as_it_is():
    profile, slo = documents({"a": 1.0})
    first = hp.solve(profile, slo, formulation="variants").require()
    report = autoscale(
        first, load_inputs(profile, slo), lambda rates, now: None, series={"a": [40.0] * 2}, replanning=EVERY_S
    )
    assert report.cost_per_hour.value == pytest.approx(1.0)


def test_offline_work_goes_where_plans_go():
    report = played({"a": 0.5}, {"a": [20.0, 150.0, 20.0]}, offline=OfflineWork(job_ms=20.0, rate_qps=5.0))
    assert report.apps["offline-work"].figures["rate_qps"].value > 0


def on_one_machine(series, *, load_s=1.0, follows=True):
    """Applications that share a machine of eight cores, which would take 1000 s to start; an instance takes two."""
    variants = {f"{app}-v": ("cpu", 10.0, 100.0, 1.0, {"cpu_cores": 2.0}) for app in series}
    profile, slo, _ = machines({"cpu": (1, {"cpu_cores": 8.0})}, variants, dict.fromkeys(series, 40.0))
    profile["hardware"]["cpu"]["startup_s"] = 1000.0
    profile["variants"]["a-v"]["runs"][0]["load_s"] = load_s
    planner = hp.Planner(profile, slo, formulation="variants", options=FORMULA)
    first = planner.plan().require()

    def plan_for(rates, now):
        if not follows:
            return None
        return planner.plan(rates, state=next_state(now)).plan

    return autoscale(first, load_inputs(profile, slo), plan_for, series=series, period_s=10.0, replanning=EVERY_S)


def test_a_machine_that_runs_only_loads_what_it_has_not():
    series = {"a": [40.0, 250.0, 250.0]}
    stays, follows = on_one_machine(series, follows=False), on_one_machine(series)
    assert late(stays, "a") > 0.8
    assert late(follows, "a") < 0.4
    assert {line.by for line in follows.lines} == {"slo"}


@pytest.mark.slow
def test_what_a_machine_had_before_is_not_started_anew():
    """One instance, three for a while, and one again: nobody waits for the machine, nor pays for both."""
    report = on_one_machine({"a": [40.0, 250.0, 40.0, 40.0, 40.0, 40.0]})
    assert 1.2 < report.cost_per_hour.value < 2.0


@pytest.mark.slow
def test_what_is_loading_goes_on_loading_while_more_is_asked_for():
    """Of `a` one more comes, which takes 14 s; `b` asks for one more meanwhile, which takes one: neither is misled."""
    rising = [40.0, 115.0, 115.0, 115.0]
    alone = on_one_machine({"a": rising, "b": [40.0] * 4}, load_s=14.0)
    beside = on_one_machine({"a": rising, "b": [40.0, 40.0, 115.0, 115.0]}, load_s=14.0)
    assert late(beside, "a") == pytest.approx(late(alone, "a"), rel=0.05)
    assert late(beside, "b") < 0.2
