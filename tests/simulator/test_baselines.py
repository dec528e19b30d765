"""What people run today: sized for the peak, the cheapest type, scaled by utilisation."""

from __future__ import annotations

from typing import Any

import pytest

from hetplan.errors import InputError
from hetplan.simulator.baselines import BASELINES, TARGET_UTILISATION, Autoscaler, baseline, compare
from hetplan.simulator.simulate import demands_of, simulate, simulate_system
from hetplan.simulator.simulation import Observation


def seen(now_s: float, use: float, workers: int) -> Observation:
    return Observation(now_s * 1000.0, 15_000.0, {}, {"w": use}, {}, {"w": workers})


def test_the_autoscaler_goes_up_at_once_and_down_after_its_window() -> None:
    """The rule of Kubernetes: ceil(workers x use / target), nothing within 10%, down to the largest wish of 300 s."""
    scaler = Autoscaler("w", target=0.5, down_window_s=300.0)
    assert scaler.wanted(seen(0.0, 0.8, 5)) == 8
    assert scaler.wanted(seen(15.0, 0.52, 8)) == 8
    assert scaler.wanted(seen(30.0, 0.1, 8)) == 8
    assert scaler.wanted(seen(60.0, 0.3, 8)) == 8
    assert scaler.wanted(seen(320.0, 0.1, 8)) == 5
    assert scaler.wanted(seen(700.0, 0.0, 5)) == 1


def test_sizes_and_types(plans: Any) -> None:
    """75 % small and 25 % large queries: 17.5 ms a query on the base type, 65 ms on the auxiliary one."""
    plan, inputs = plans.pool(rate=80.0)
    demands = demands_of(plan, inputs)
    static, cheap, scaled = (baseline(name, plan, inputs, demands) for name in BASELINES)
    assert (static.hardware, static.system.groups[0].count) == ({"rank": "base"}, 2)
    assert (cheap.hardware, cheap.system.groups[0].count) == ({"rank": "aux"}, 8)
    assert scaled.hardware == {"rank": "base"}
    assert scaled.control is not None
    with pytest.raises(InputError, match="no such baseline"):
        baseline("fixed", plan, inputs, demands)  # type: ignore[arg-type]


def test_static_peak_is_sized_for_the_peak_of_the_day(plans: Any) -> None:
    plan, inputs = plans.pool(rate=200.0)
    flat, day = (
        baseline("static-peak", plan, inputs, demands_of(plan, inputs, arrivals=how)).system.groups[0].count
        for how in ("poisson", "diurnal:2,3600")
    )
    assert (flat, day) == (5, 10)


def test_the_autoscaler_follows_a_day_and_costs_less_than_the_peak(plans: Any) -> None:
    plan, inputs = plans.pool(rate=120.0)
    demands = demands_of(plan, inputs, arrivals="diurnal:2,3600")
    reports = {}
    for name in ("static-peak", "autoscaled"):
        made = baseline(name, plan, inputs, demands)
        reports[name] = simulate_system(made.system, demands, control=made.control, seeds=1, duration_s=3600.0)
    workers = reports["autoscaled"].timeline.workers
    assert workers.max() > 2 * workers[10:].min()
    static, scaled = (reports[name].cost_per_hour for name in ("static-peak", "autoscaled"))
    assert static is not None
    assert scaled is not None
    assert scaled.value < 0.8 * static.value
    use = reports["autoscaled"].timeline.utilisation
    # While the load grows it keeps to its target; when it falls, the window holds it back.
    assert float(use[10:55].mean()) == pytest.approx(TARGET_UTILISATION, abs=0.08)
    assert use[90:].mean() < 0.5


def test_plans_and_baselines_side_by_side(plans: Any) -> None:
    """The cheapest type is late for every large query; a plan that knows sizes is cheaper than the peak of the best."""
    reports = compare(*plans.pool((1, 3), rate=30.0), seeds=2)
    assert list(reports) == ["plan", *BASELINES]
    late = {name: report.apps["rank"].figures["violations"].value for name, report in reports.items()}
    assert late["plan"] < 0.01
    assert late["cheapest-type"] > 0.2
    assert reports["plan"].events > 0


def test_a_pipeline_is_compared_stage_by_stage(plans: Any) -> None:
    plan, inputs = plans.pipeline()
    made = baseline("static-peak", plan, inputs, demands_of(plan, inputs))
    counts = {group.id: group.count for group in made.system.groups}
    # 100/s x 6 ms per image in pairs; 200/s x 2.75 ms in fours: the better variant, d1, is run.
    assert counts == {"cars.d": 1, "cars.c": 1}
    assert made.system.groups[0].loads[0].quality == 0.9


def test_baselines_stand_beside_a_plan_that_mispredicts(plans: Any) -> None:
    """The plan in a comparison is the plan simulated alone with the same misprediction."""
    plan, inputs = plans.pool((1, 3), rate=70.0)
    common: dict[str, Any] = {"seeds": 2, "duration_s": 60.0, "misprediction": 0.8}
    compared = compare(plan, inputs, names=("static-peak",), **common)
    alone, exact = simulate(plan, inputs, **common), simulate(plan, inputs, **common | {"misprediction": 0.0})
    assert compared["plan"].as_dict() == alone.as_dict()
    assert alone.as_dict()["apps"] != exact.as_dict()["apps"]
