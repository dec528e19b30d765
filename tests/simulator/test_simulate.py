"""Plans simulated: promised against simulated, the load that is simulated, and plans that the simulator must refuse."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hetplan.errors import InputError
from hetplan.planner.promise_figures import Verdict
from hetplan.serving.system import Rule
from hetplan.simulator.report import Line, lines_of
from hetplan.simulator.run_records import Glance
from hetplan.simulator.simulate import Failure, demands_of, simulate, simulate_system
from hetplan.simulator.simulation import Simulation


def line(report: Any, quantity: str, by: str | None = None) -> Line:
    found = [item for item in report.lines if item.quantity == quantity and by in (None, item.by)]
    assert len(found) == 1, [str(item) for item in report.lines]
    return found[0]


def test_a_plan_that_keeps_its_promises(plans: Any) -> None:
    promises = [
        {"app": "rank", "quantity": "rate_qps", "relation": ">=", "value": 30.0, "model": "simulation/1"},
        {"app": "rank", "quantity": "fluid_rate_qps", "relation": ">=", "value": 90.0, "model": "fluid"},
        {"quantity": "cost_per_hour", "relation": "=", "value": 1.75, "model": "no-queueing"},
    ]
    report = simulate(*plans.pool(promises=promises), seeds=3)
    assert report.ok
    assert line(report, "response_ms").verdict is Verdict.MET
    assert line(report, "rate_qps").verdict is Verdict.MET
    assert line(report, "fluid_rate_qps").simulated is None
    cost = line(report, "cost_per_hour")
    assert cost.verdict is Verdict.REPORTED
    assert cost.simulated is not None
    assert cost.simulated.value == pytest.approx(1.75, abs=1e-9)
    assert report.apps["rank"].offered_qps == 30.0
    assert report.groups["w2"].workers == 3


def test_a_broken_percentile_fails_the_plan_though_its_promise_was_fluid(plans: Any) -> None:
    promises = [{"app": "rank", "quantity": "rate_qps", "relation": ">=", "value": 90.0, "model": "fluid"}]
    report = simulate(*plans.pool(rate="max", promises=promises), seeds=3)
    assert report.apps["rank"].offered_qps == 90.0
    assert [item.by for item in report.broken] == ["slo"]
    assert line(report, "rate_qps").verdict is Verdict.REPORTED
    assert "broken" in str(report.broken[0])


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(
    ("promise", "verdict"),
    [
        ({"quantity": "rate_qps", "relation": ">=", "value": 90.0}, Verdict.BROKEN),
        ({"quantity": "response_ms", "percentile": 95, "relation": "<=", "value": 30.0}, Verdict.BROKEN),
        ({"quantity": "response_ms", "relation": "<=", "value": 1e6}, Verdict.MET),
        ({"quantity": "violations", "relation": "<=", "value": 0.01}, Verdict.BROKEN),
        ({"quantity": "violations", "relation": "<=", "value": 1.0}, Verdict.MET),
        ({"quantity": "goodput_qps", "relation": ">=", "value": 89.5}, Verdict.BROKEN),
        ({"quantity": "colour", "relation": ">=", "value": 80.0}, Verdict.NOT_SIMULATED),
    ],
)
def test_promises_that_a_simulation_made_are_judged(plans: Any, promise: dict[str, Any], verdict: Verdict) -> None:
    said = {"app": "rank", "model": "simulation/1", **promise}
    report = simulate(*plans.pool(rate=90.0, promises=[said]), seeds=3)
    assert report.lines[-1].verdict is verdict
    reported = simulate(*plans.pool(rate=90.0, promises=[{**said, "model": "fluid"}]), seeds=3)
    assert reported.lines[-1].verdict is Verdict.REPORTED


def test_a_run_too_short_for_its_percentile_proves_nothing(plans: Any) -> None:
    report = simulate(*plans.pool(), seeds=3, duration_s=30.0)
    assert [code for code, _, _ in report.warnings] == ["W-short-run"]
    assert line(report, "response_ms").verdict is Verdict.UNDECIDED
    assert report.ok


def test_violations_of_the_wish_are_judged(plans: Any) -> None:
    calm = simulate(*plans.pool(app={"latency": {"p50_ms": 100}}), seeds=3)
    assert line(calm, "response_ms").verdict is Verdict.MET
    tight = simulate(*plans.pool(rate=95.0, app={"latency": {"p99_ms": 100}}), seeds=3)
    assert line(tight, "response_ms").verdict is Verdict.BROKEN


def test_time_to_first_token_is_not_what_this_simulates(plans: Any) -> None:
    report = simulate(*plans.pool(app={"latency": {"ttft_p99_ms": 500}}), seeds=2)
    assert line(report, "ttft_ms").verdict is Verdict.NOT_SIMULATED
    assert report.ok


@pytest.mark.parametrize("arrivals", [None, "poisson", "gamma:4", "deterministic", "mmpp:0.8,5/1.2,5"])
def test_any_process_may_be_asked_for(plans: Any, arrivals: str | None) -> None:
    report = simulate(*plans.pool(), seeds=2, duration_s=120.0, arrivals=arrivals)
    assert report.apps["rank"].figures["rate_qps"].value == pytest.approx(30.0, rel=0.1)


def test_burstier_arrivals_make_longer_waits(plans: Any) -> None:
    waits = [
        simulate(*plans.pool(rate=60.0), seeds=3, arrivals=how).apps["rank"].figures["mean_ms"].value
        for how in ("gamma:9", "poisson", "gamma:0.3")
    ]
    assert waits == sorted(waits)
    assert waits[2] > 1.3 * waits[1]


def test_a_trace_is_replayed_as_it_is(plans: Any) -> None:
    trace = np.sort(np.random.default_rng(0).random(5000) * 100.0)
    report = simulate(*plans.pool(), seeds=2, trace=trace)
    assert report.apps["rank"].arrivals == "as recorded"
    assert report.apps["rank"].queries_per_seed == 5000
    assert report.duration_s == pytest.approx(trace[-1])


def test_a_trace_of_the_files_is_scaled_to_a_stated_rate(plans: Any) -> None:

    plan, inputs = plans.pool(rate=40.0)
    recorded = np.sort(np.random.default_rng(0).random(5000) * 1000.0)
    report = simulate(plan, replace(inputs, traces={"rank": recorded}), seeds=2, duration_s=500.0)
    assert report.apps["rank"].arrivals == "empirical"
    assert report.apps["rank"].figures["rate_qps"].value == pytest.approx(40.0, rel=0.1)


def test_noise_comes_from_the_table(plans: Any) -> None:
    spread = {"std": [5, 20], "p99": [25, 100], "max": [30, 120]}
    fixed = simulate(*plans.pool((2, 0), table=spread), seeds=3, noise="mean").apps["rank"]
    drawn = simulate(*plans.pool((2, 0), table=spread), seeds=3, noise="table").apps["rank"]
    worst = simulate(*plans.pool((2, 0), table=spread), seeds=3, noise="p99").apps["rank"]
    assert fixed.figures["mean_ms"].value < drawn.figures["mean_ms"].value < worst.figures["mean_ms"].value
    with pytest.raises(InputError, match="needs std"):
        simulate(*plans.pool(), noise="lognormal")
    with pytest.raises(InputError, match="no such noise"):
        simulate(*plans.pool(), noise="loud")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="at least one"):
        simulate(*plans.pool(), seeds=0)


def test_a_dispatcher_that_mispredicts_does_worse_but_not_much(plans: Any) -> None:
    exact, wrong, wild = (
        simulate(*plans.pool(rate=70.0), seeds=3, misprediction=error).apps["rank"].figures["violations"].value
        for error in (0.0, 0.05, 0.8)
    )
    assert wrong == pytest.approx(exact, rel=0.35)
    assert wild > exact


def test_the_same_plan_by_shares(plans: Any) -> None:
    """Without looking at sizes a quarter of the queries is late on the auxiliary type however small the load."""
    report = simulate(*plans.pool(rate=5.0, dispatch={"rule": "shares/1"}), seeds=2)
    assert report.apps["rank"].figures["late"].value == pytest.approx(0.125, abs=0.02)


def test_a_failure_shows_in_the_timeline(plans: Any) -> None:
    plan, inputs = plans.pool(rate=40.0)
    failed = simulate(plan, inputs, seeds=2, failures=[Failure(200.0, "w1", back_s=300.0)])
    late = failed.timeline.late
    during = [share for n, share in enumerate(late) if 210 <= n * failed.timeline.width_s <= 280]
    before = [share for n, share in enumerate(late) if n * failed.timeline.width_s <= 190]
    assert np.mean(during) > 10 * max(np.mean(before), 0.01)


def test_the_report_is_plain_json_and_the_same_every_time(plans: Any) -> None:
    said = [
        json.dumps(simulate(*plans.pool(), seeds=2, duration_s=60.0).as_dict(), allow_nan=False, sort_keys=True)
        for _ in range(2)
    ]
    assert said[0] == said[1]
    read = json.loads(said[0])
    assert next(iter(simulate(*plans.pool(), seeds=2, duration_s=60.0).as_dict())) == "format"
    assert read["format"] == "hetplan/simulation/1.0"
    assert set(read["apps"]["rank"]["percentiles_ms"]) == {"50", "90", "95", "99"}
    other = simulate(*plans.pool(), seeds=2, seed=9, duration_s=60.0).as_dict()
    assert other["apps"] != read["apps"]


def test_overload_with_drops_is_reported_in_json_without_infinities(plans: Any) -> None:
    late = {"rule": "shares/1", "late": "drop"}
    report = simulate(*plans.pool(rate=200.0, dispatch=late), seeds=2)
    json.dumps(report.as_dict(), allow_nan=False)
    assert report.apps["rank"].as_dict()["percentiles_ms"]["99"]["value"] is None
    assert not report.ok
    assert "never reached" in str(report.broken[0])


def test_a_pipeline_with_fan_out_tiers_and_measured_paths(plans: Any) -> None:
    """An idle pipeline: 1 + d + (4 + 1 ms for 10 kB over 80 Mbps + 1 hop) + c with two at once."""
    plan, inputs = plans.pipeline()
    report = simulate(plan, inputs, seeds=2, arrivals="deterministic", duration_s=100.0, noise="mean")
    found = report.apps["cars"]
    # d1 (8) or d2 (4), then two (or, after d2, sometimes one) in a batch of 7 (or 5) ms.
    assert found.percentiles_ms[99.0].value == pytest.approx(1 + 8 + 6 + 7)
    assert found.percentiles_ms[50.0].value >= 1 + 4 + 6 + 5 - 1e-9
    # Measured: 0.75 through d1; by the product rule 0.7 x 0.8 through d2.
    assert found.figures["accuracy"].value == pytest.approx((0.75 + 0.56) / 2, abs=0.01)
    # Siblings go to either of two workers at random, so half the pairs part.
    assert report.groups["w3"].batch.value == pytest.approx(1.3, abs=0.15)


def test_routes_by_path(plans: Any) -> None:
    routing = {
        "cars": [
            {"node": "d", "to": {"w1.a": 0.5, "w2.a": 0.5}},
            {"prefix": ["w1.a"], "node": "c", "to": {"w3.a": 1.0}},
            {"prefix": ["w2.a"], "node": "c", "to": {"w4.a": 1.0}},
        ]
    }
    plan, inputs = plans.pipeline(routing=routing)
    fourth = plan.workers[2].model_copy(
        update={"id": "w4", "loads": (plan.workers[2].loads[0].model_copy(update={"id": "w4.a"}),)}
    )
    report = simulate(plan.model_copy(update={"workers": (*plan.workers, fourth)}), inputs, seeds=2, duration_s=100.0)
    # 50 queries/s each: twice as many jobs after d1, 1.5 times after d2.
    assert report.groups["w3"].batch.value > report.groups["w4"].batch.value
    broken = plan.model_copy(update={"routing": {"cars": plan.routing["cars"][:2]}})
    with pytest.raises(InputError, match="no entry routes"):
        simulate(broken, inputs, seeds=1, duration_s=10.0)


def test_periods_follow_each_other(plans: Any) -> None:
    """By night one base worker is left of three: the same load, three times the use."""
    plan, inputs = plans.pool((3, 0), rate=30.0, dispatch={"rule": "shares/1"})
    day = plan.workers[0].model_copy(update={"period": "day"})
    load = day.loads[0].model_copy(update={"id": "n1.m"})
    night = day.model_copy(update={"id": "n1", "count": 1, "period": "night", "loads": (load,)})
    periods = [{"id": "day", "start_s": 0, "end_s": 100}, {"id": "night", "start_s": 100, "end_s": 200}]
    changed = plan.model_validate(
        plan.model_dump(mode="json", by_alias=True)
        | {
            "workers": [day.model_dump(mode="json"), night.model_dump(mode="json")],
            "periods": periods,
            "routing": {"rank": [{"to": {"w1.m": 0.5, "n1.m": 0.5}}]},
        }
    )
    report = simulate(changed, inputs, seeds=3, arrivals="deterministic", duration_s=200.0)
    use, workers = report.timeline.utilisation, report.timeline.workers
    # The new worker is ready three seconds (startup_s) into the night.
    assert workers[:60].tolist() == [3.0] * 60
    assert workers[65:].tolist() == [1.0] * 55
    assert use[:55].mean() == pytest.approx(30 * 0.0175 / 3, rel=0.1)
    assert use[65:].mean() == pytest.approx(30 * 0.0175, rel=0.1)


def test_replanning_while_it_runs(plans: Any) -> None:
    """Who doubles the workers once they are busy for more than 90% of the time keeps the queue from growing."""

    from hetplan.serving.planned_system import planned_systems

    plan, inputs = plans.pool((1, 0), rate=70.0)
    first = planned_systems(plan, inputs)[0].system
    seen: list[Glance] = []

    def control(run: Simulation) -> None:
        def look() -> None:
            seen.append(run.glance(["w1"]))
            if seen[-1].use > 0.9 and seen[-1].wanted == 1:
                run.change(replace(first, groups=(replace(first.groups[0], count=2),)))
            if run.now_ms < run.horizon_ms:
                run.at(run.now_ms + 5000.0, look)

        run.at(5000.0, look)

    stuck, demands = simulate(plan, inputs, seeds=2), demands_of(plan, inputs)
    helped = simulate_system(first, demands, seeds=2, control=control, noise="table")
    assert stuck.apps["rank"].figures["violations"].value > 0.9
    assert helped.apps["rank"].figures["violations"].value < 0.2
    assert len(seen) > 10
    assert helped.timeline.workers[0] < helped.timeline.workers[-1]


def test_a_model_selection_plan(plans: Any) -> None:
    """RAMSIS: two models behind one queue per worker, a table per load; which one counts is estimated all along."""
    profile = {
        "hardware": {"g": {"kind": "gpu"}},
        "tasks": {"t": {}},
        "variants": {
            name: {"task": "t", "quality": {"value": worth}, "runs": [{"hardware": "g", "latency": name}]}
            for name, worth in (("big", 0.9), ("small", 0.6))
        },
        "tables": {"big": plans.latency([40, 70]), "small": plans.latency([10, 12])},
    }
    slo = {
        "apps": {
            "images": {
                "task": "t",
                "latency": {"p95_ms": 100},
                "dispatch": "round-robin",
                "rate_qps": 20,
            }
        }
    }

    def table(rate: float, model: str) -> dict[str, Any]:
        return {
            "workers": "w",
            "slo_ms": 100,
            "rate_qps": rate,
            "queue_max": 2,
            "slack_ms": [0, 50],
            "models": ["big", "small"],
            "choice": {"1": f"smallx1 {model}x1", "2": "smallx2"},
            "batch": {"1": "1x2", "2": "2x2"},
            "otherwise": {"model": "small", "batch": "max"},
        }

    loads = [
        {"id": f"w.{name}", "app": "images", "variant": name, "serve": {"max_batch": 2}} for name in ("big", "small")
    ]
    body = {
        "question": "policy",
        "workers": [{"id": "w", "hardware": "g", "count": 2, "loads": loads}],
        "routing": {"images": [{"to": {"w.big": 1.0}}]},
        "policies": {"images": [table(50.0, "small"), table(25.0, "big")]},
    }
    plan, inputs = plans.read(profile, slo, body)
    calm = simulate(plan, inputs, seeds=2)
    assert calm.apps["images"].figures["accuracy"].value > 0.8
    busy = simulate(plan, at_rate(inputs, 45.0), seeds=2)
    assert busy.apps["images"].figures["accuracy"].value < calm.apps["images"].figures["accuracy"].value - 0.05


def at_rate(inputs: Any, rate: float) -> Any:
    app = inputs.slo.apps["images"]
    changed = app.model_copy(update={"rate_qps": rate})
    return replace(inputs, slo=inputs.slo.model_copy(update={"apps": {"images": changed}}))


def test_plans_for_other_files_are_refused(plans: Any) -> None:
    plan, inputs = plans.pool()

    empty = replace(inputs, slo=inputs.slo.model_copy(update={"apps": {}}))
    with pytest.raises(InputError, match="there is no such application"):
        simulate(plan, empty)
    gone = replace(inputs, profile=inputs.profile.model_copy(update={"variants": {}}))
    with pytest.raises(InputError, match="no such variant"):
        simulate(plan, gone)
    moved = plan.model_copy(update={"workers": (plan.workers[0].model_copy(update={"hardware": "none"}),)})
    with pytest.raises((InputError, KeyError)):
        simulate(moved, inputs)
    silent = plans.pool(rate=0.0)
    with pytest.raises(InputError, match="no load"):
        simulate(*silent)


def test_more_batches_at_once_than_memory_holds_are_refused(plans: Any) -> None:
    plan, inputs = plans.pool(counts=(1, 3))
    first, *others = plan.workers
    (load,) = first.loads
    wide = first.model_copy(update={"loads": (load.model_copy(update={"instances": 20_000_000}),)})
    with pytest.raises(InputError, match="more than 10000000 batches would be served at once"):
        simulate(plan.model_copy(update={"workers": (wide, *others)}), inputs)


def test_every_rule_of_the_engine_is_a_code_of_the_kernels() -> None:
    from hetplan.serving import system
    from hetplan.simulator import world_kernels

    assert [int(rule) for rule in Rule] == [
        world_kernels.BY_SHARE,
        world_kernels.ROUND_ROBIN,
        world_kernels.SHORTEST,
        world_kernels.EARLIEST,
        world_kernels.CENTRAL,
    ]
    assert [int(late) for late in system.Late] == [
        world_kernels.SERVE_LATE,
        world_kernels.DROP_LATE,
        world_kernels.DROP_LAST_TASK,
        world_kernels.DROP_PER_TASK,
        world_kernels.OPPORTUNISTIC,
    ]
    assert [int(noise) for noise in system.Noise] == [
        world_kernels.FIXED,
        world_kernels.LOGNORMAL,
        world_kernels.EXPONENTIAL,
    ]
    assert [int(inner) for inner in system.Inner] == [
        world_kernels.INNER_RANDOM,
        world_kernels.INNER_ROUND,
        world_kernels.INNER_SHORTEST,
    ]


@pytest.mark.parametrize("promised", [49.4, 5000.0])
def test_a_rate_above_the_one_played_is_not_called_kept(plans: Any, promised: float) -> None:
    said = {"app": "rank", "quantity": "rate_qps", "relation": ">=", "value": promised, "model": "simulation/1"}
    report = simulate(*plans.pool(rate=30.0, promises=[said]), seeds=2)
    assert report.lines[-1].verdict is Verdict.NOT_SIMULATED
    assert report.lines[-1] in report.undecided
    assert "W-rate-not-played" in [code for code, _, _ in report.warnings]
    played = simulate(*plans.pool(rate="max", promises=[said | {"value": 15.0}]), seeds=2)
    assert played.lines[-1].verdict is Verdict.MET
    assert not played.warnings


def test_an_interval_wholly_over_the_limit_is_broken_and_one_wholly_within_is_kept(plans: Any) -> None:
    report = simulate(*plans.pool(rate=60.0), seeds=3)
    found = line(report, "response_ms").simulated
    assert found is not None
    verdicts = {}
    for limit in (0.999 * found.low, 0.5 * (found.low + found.value), found.value, 1.001 * found.high):
        plan, inputs = plans.pool(rate=60.0, max_ms=limit)
        verdicts[limit] = lines_of(plan, inputs, report)[0].verdict
    assert list(verdicts.values()) == [Verdict.BROKEN, Verdict.UNDECIDED, Verdict.UNDECIDED, Verdict.MET]


def test_other_inputs_than_the_plans_are_reported(plans: Any) -> None:
    plan, inputs = plans.pool()
    other = replace(inputs, digests={**inputs.digests, "slo": "sha256:" + "3" * 64})
    report = simulate(plan, other, seeds=2)
    assert [(code, at) for code, at, _ in report.warnings] == [("W-other-inputs", "slo")]


def test_bad_traces_are_refused_through_the_api(plans: Any) -> None:
    with pytest.raises(InputError, match="too short"):
        simulate(*plans.pool(), trace=np.zeros(5))
    with pytest.raises(InputError, match="before"):
        simulate(*plans.pool(), trace={"rank": np.array([3.0, 1.0])})
