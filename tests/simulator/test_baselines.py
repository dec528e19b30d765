"""What people run today: sized for the peak, the cheapest type, scaled by utilisation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hetplan.errors import InputError
from hetplan.simulator.baselines import BASELINES, TARGET_UTILISATION, baseline, compare
from hetplan.simulator.simulate import demands_of, simulate, simulate_system


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


def test_machines_come_from_the_cheapest_offers_as_far_as_they_go(plans: Any) -> None:
    """Eight of the cheapest type are wanted: three are on spot, two on demand, and there are no more."""
    plan, inputs = plans.pool(rate=80.0)
    offers = dict(inputs.profile.offers)
    offers["a"] = offers["a"].model_copy(update={"stock": 2})
    offers["s"] = offers["a"].model_copy(update={"stock": 3, "price_per_hour": 100_000_000})
    inputs = replace(inputs, profile=inputs.profile.model_copy(update={"offers": offers}))
    cheap = baseline("cheapest-type", plan, inputs, demands_of(plan, inputs))
    prices = [(group.count, group.price_nanos) for group in cheap.system.groups]
    assert prices == [(3, 100_000_000), (2, 250_000_000)]


def test_static_peak_is_sized_for_the_peak_of_the_day(plans: Any) -> None:
    plan, inputs = plans.pool(rate=200.0)
    flat, day = (
        baseline("static-peak", plan, inputs, demands_of(plan, inputs, arrivals=how)).system.groups[0].count
        for how in ("poisson", "diurnal:2,3600")
    )
    assert (flat, day) == (5, 10)


@pytest.mark.slow
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
