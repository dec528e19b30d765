"""Figures, intervals, run lengths and verdicts."""

from __future__ import annotations

import math
import threading
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hetplan.errors import InputError, Interrupted
from hetplan.planner.promise_figures import Estimate, Verdict, judge
from hetplan.profiles.plan import Promise
from hetplan.profiles.slo import Arrivals
from hetplan.serving.service import noise_of
from hetplan.serving.system import Late, Load, Rule, Service, Way
from hetplan.simulator import runs
from hetplan.simulator.demand import AppDemand
from hetplan.simulator.figures import (
    HIGHEST_PERCENTILE,
    estimate,
    estimate_of_one,
    figures_of,
    queries_needed,
    rates_of,
    run_length_s,
    warm_up_queries,
)
from hetplan.simulator.report import lines_of
from hetplan.simulator.runs import MOST_QUERIES_PER_RUN, check_size, is_settled, run_all, seed_of, settled_length_s
from hetplan.simulator.simulate import demands_of, simulate, simulate_system
from hetplan.simulator.simulation import Simulation, Stream


def test_students_interval_holds_the_mean_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    holds = 0
    for _ in range(2000):
        found = estimate(rng.normal(5.0, 2.0, 5).tolist())
        holds += found.low <= 5.0 <= found.high
    assert holds / 2000 == pytest.approx(0.95, abs=0.015)


def test_intervals_of_degenerate_samples() -> None:
    assert estimate([3.0]) == Estimate(3.0, 3.0, 3.0)
    assert estimate([3.0, 3.0]) == Estimate(3.0, 3.0, 3.0)
    assert estimate([2.0, float("inf")]).as_dict() == {"value": None, "interval": [2.0, None]}
    assert np.isnan(estimate([]).value)
    assert estimate([1.0, float("nan"), 3.0]).value == 2.0


def test_runs_are_never_too_short() -> None:
    """200 queries beyond the percentile, 200 limits' worth of time, and the warm-up on top."""
    assert queries_needed(99.0, rate_qps=10.0, slo_ms=100.0) == 20_000
    assert queries_needed(99.9, rate_qps=10.0, slo_ms=100.0) == 200_000
    assert queries_needed(99.999, rate_qps=10.0, slo_ms=100.0) == 20_000_000
    assert queries_needed(50.0, rate_qps=2000.0, slo_ms=500.0) == 200_000
    for percentile in (50.0, 95.0, 99.0):
        for rate in (0.5, 20.0, 5000.0):
            for slo_ms in (5.0, 300.0, 5000.0):
                length = run_length_s(percentile, rate_qps=rate, slo_ms=slo_ms, arrivals=Arrivals())
                count = int(length * rate)
                warm = warm_up_queries(count, rate_qps=rate, slo_ms=slo_ms, arrivals=Arrivals())
                assert count - warm >= queries_needed(percentile, rate_qps=rate, slo_ms=slo_ms) - 2


def test_runs_hold_whole_days_and_many_stays() -> None:
    day = Arrivals(process="diurnal", peak=2.0, period_s=86_400.0)
    assert run_length_s(99.0, rate_qps=1000.0, slo_ms=50.0, arrivals=day) == 86_400.0
    assert warm_up_queries(10_000, rate_qps=1000.0, slo_ms=50.0, arrivals=day) == 0
    states = Arrivals(process="mmpp", relative_rates=(0.5, 1.5), stay_s=(300.0, 300.0))
    assert run_length_s(99.0, rate_qps=1000.0, slo_ms=50.0, arrivals=states) == 6000.0


def test_figures_by_hand(queues: Any) -> None:
    """One worker of 10 ms, limit 25: at 0, 0, 0, 0 and 100 responses are 10, 20, 30, 40, 10."""
    result = queues.run(queues.system(1, slo_ms=25.0), [0.0, 0.0, 0.0, 0.0, 100.0], horizon_ms=1000.0)
    figures = figures_of(result, "ask", percentiles=(50.0, 80.0, 100.0))
    assert figures.values["mean_ms"] == 22.0
    assert figures.times["response"].percentiles_ms == {50.0: 20.0, 80.0: 30.0, 100.0: 40.0}
    assert tuple(figures.values[name] for name in ("in_time", "late", "dropped")) == (0.6, 0.4, 0.0)
    assert figures.values["goodput_qps"] == pytest.approx(3.0)
    assert result.busy.sum() * (1000.0 / 120) == pytest.approx(50.0)


def test_a_query_without_an_answer_has_the_longest_response(queues: Any) -> None:
    system = queues.system(1, slo_ms=25.0, rule=Rule.SHARES, app={"late": Late.DROP})
    result = queues.run(system, [0.0, 0.0, 0.0, 0.0, 100.0], horizon_ms=1000.0)
    figures = figures_of(result, "ask", percentiles=(60.0, 61.0))
    assert figures.values["dropped"] == 0.4
    assert figures.times["response"].percentiles_ms == {60.0: 20.0, 61.0: float("inf")}
    assert figures.values["mean_ms"] == pytest.approx(40.0 / 3)


def test_a_single_seed_is_cut_into_stretches(queues: Any) -> None:
    demand = AppDemand("ask", 0, 80.0, Arrivals(), 100.0, 99.0)
    one = simulate_system(queues.system(1), [demand], seeds=1, duration_s=500.0, noise="exponential")
    many = simulate_system(queues.system(1), [demand], seeds=10, duration_s=500.0, noise="exponential")
    single, several = one.apps["ask"].figures["mean_ms"], many.apps["ask"].figures["mean_ms"]
    assert single.low < 50.0 < single.high
    assert several.low < 50.0 < several.high
    assert several.high - several.low < single.high - single.low


@pytest.mark.slow
def test_intervals_over_seeds_hold_the_truth(queues: Any) -> None:
    """M/M/1 at 0.7: of twenty reports most intervals hold the mean of 33.3 ms."""
    demand = AppDemand("ask", 0, 70.0, Arrivals(), 100.0, 99.0)
    holds = 0
    for seed in range(20):
        report = simulate_system(queues.system(1), [demand], seeds=4, seed=seed, duration_s=200.0, noise="exponential")
        found = report.apps["ask"].figures["mean_ms"]
        holds += found.low <= 100.0 / 3 <= found.high
    assert holds >= 16


@pytest.mark.longest
def test_intervals_near_capacity_hold_the_truth_as_often_as_they_should(queues: Any) -> None:
    """M/M/1 at 0.97, runs as long as `simulate` makes them: of 12 intervals at 95% no more than 3 miss."""
    demand = AppDemand("ask", 0, 97.0, Arrivals(), 100.0, 99.0)
    mean = 10.0 / 0.03
    truth = {"mean_ms": mean, "violations": math.exp(-100.0 / mean)} | {
        at: -mean * math.log(1.0 - at / 100.0) for at in (50.0, 90.0, 99.0)
    }
    held = dict.fromkeys(truth, 0)
    for seed in range(12):
        found = simulate_system(queues.system(1), [demand], seed=seed, noise="exponential").apps["ask"]
        for name, true in truth.items():
            interval = found.figures[name] if isinstance(name, str) else found.percentiles_ms[name]
            held[name] += interval.low <= true <= interval.high
    assert min(held.values()) >= 9, held


def test_a_high_percentile_lengthens_runs(plans: Any) -> None:
    plan, inputs = plans.pool(rate=20.0, app={"latency": {"p99.9_ms": 1e6}})
    (demand,) = demands_of(plan, inputs)
    assert demand.percentile == pytest.approx(99.9)
    assert demand.length_s() == run_length_s(demand.percentile, rate_qps=20.0, slo_ms=1e6, arrivals=Arrivals())
    never, inputs = plans.pool(rate=20.0, app={"latency": {"p100_ms": 1e6}})
    assert demands_of(never, inputs)[0].percentile == HIGHEST_PERCENTILE
    promise = {"app": "rank", "quantity": "violations", "value": 0.002, "model": "simulation/1"}
    promised, inputs = plans.pool(rate=20.0, promises=[promise])
    assert demands_of(promised, inputs)[0].percentile == pytest.approx(99.8)


def test_runs_are_long_enough_for_a_stated_accuracy() -> None:
    """Ten runs whose accuracies differ by one percent have to be 25 times as long, and no run more than 40 times."""

    def runs(spread: float, events: int = 1000) -> list[Any]:
        values = 0.8 * (1.0 + spread * np.array([-1.5, -0.5, 0.5, 1.5] * 3)[:10])
        return [
            SimpleNamespace(
                apps={"ask": SimpleNamespace(values={"accuracy": value})},
                stretches={"ask": ()},
                busiest=0.2,
                events=events,
            )
            for value in values
        ]

    demand = AppDemand("ask", 0, 50.0, Arrivals(), 100.0, 99.0, states_accuracy=True)
    seen = float(np.std([run.apps["ask"].values["accuracy"] for run in runs(0.01)], ddof=1)) / 0.8
    assert settled_length_s([demand], 100.0, runs(0.01)) == pytest.approx(100.0 * (seen / 0.002) ** 2, rel=0.01)
    assert settled_length_s([demand], 100.0, runs(0.001)) == 100.0
    assert settled_length_s([demand], 100.0, runs(0.1)) == 4000.0
    assert settled_length_s([demand], 100.0, runs(0.1, events=400_000)) == 500.0
    assert settled_length_s([replace(demand, states_accuracy=False)], 100.0, runs(0.1)) == 100.0


def test_runs_hold_long_queues_enough_for_their_percentile_or_say_that_they_do_not() -> None:
    """At 90% a span is 100 queries: of a run, 600 of them or those that hold nine beyond the percentile of all runs."""

    ask = {"ask": SimpleNamespace(values={"accuracy": 1.0})}

    def runs(busy: float, overrun: float = 0.0) -> list[Any]:
        one = SimpleNamespace(
            apps=ask, stretches={"ask": ()}, busiest=busy, busiest_of={"idle": 0.1}, events=1000, overrun=overrun
        )
        return [one] * 5

    demand = AppDemand("ask", 0, 100.0, Arrivals(), 100.0, 99.0)
    strict = replace(demand, percentile=99.9)
    assert settled_length_s([demand], 300.0, runs(0.9)) == pytest.approx(600.0)
    assert settled_length_s([strict], 300.0, runs(0.9)) == pytest.approx(1800.0)
    assert settled_length_s([strict], 300.0, runs(0.9)[:3]) == pytest.approx(3000.0)
    # Overload has no spans, and a day is as long as it is.
    assert settled_length_s([strict], 300.0, runs(1.0)) == 300.0
    assert is_settled(99.9, demand, 1001.0, runs(0.9))
    assert not is_settled(99.9, demand, 999.0, runs(0.9))
    assert is_settled(99.0, demand, 999.0, runs(0.9))
    assert is_settled(99.9, demand, 999.0, runs(0.5))
    assert is_settled(99.9, demand, 999.0, runs(1.0, overrun=0.1))
    assert not is_settled(99.0, demand, 999.0, runs(0.997))
    # Workers of others are nothing to an application.
    assert is_settled(99.9, replace(demand, app="idle"), 999.0, runs(0.997))
    assert is_settled(99.9, replace(demand, from_start=True), 999.0, runs(0.9))


@pytest.mark.slow
def test_a_percentile_of_too_few_long_queues_is_only_known_not_to_be_lower(queues: Any) -> None:
    strict = AppDemand("ask", 0, 97.0, Arrivals(), 100.0, 99.9)
    how: dict[str, Any] = {"noise": "exponential", "percentiles": (50.0, 99.0, 99.9)}
    report = simulate_system(queues.system(1), [strict], duration_s=2000.0, **how)
    found = report.apps["ask"].percentiles_ms
    assert found[99.9].high == math.inf
    assert found[99.9].low <= found[99.9].value < math.inf
    assert math.isfinite(found[99.0].high)
    assert "W-percentile-open" in [code for code, _, _ in report.warnings]
    calm = simulate_system(queues.system(3), [strict], seeds=2, **how)
    assert math.isfinite(calm.apps["ask"].percentiles_ms[99.9].high)
    assert calm.warnings == ()


def test_workers_of_one_application_say_nothing_of_the_long_queues_of_another(queues: Any) -> None:
    busy, system = AppDemand("ask", 0, 97.0, Arrivals(), 100.0, 99.0), queues.system(1)
    load = Load("serve2", {"calm": Service(np.array([[10.0]]))})
    both = replace(
        system,
        apps=(*system.apps, replace(system.apps[0], id="calm")),
        groups=(*system.groups, replace(system.groups[0], id="own", loads=(load,))),
        routes=(*system.routes, replace(system.routes[0], app="calm", ways=(Way("own", "serve2"),))),
    )
    calm = replace(busy, app="calm", number=1, rate_qps=10.0)
    report = simulate_system(both, [busy, calm], duration_s=100.0, seeds=2, noise="exponential")
    assert report.apps["ask"].percentiles_ms[99.0].high == math.inf
    assert math.isfinite(report.apps["calm"].percentiles_ms[99.0].high)
    assert ("W-percentile-open", "apps.calm") not in [(code, at) for code, at, _ in report.warnings]


def test_what_too_few_long_queues_seem_to_keep_is_undecided(plans: Any) -> None:
    plan, inputs = plans.pool(rate=5.0)
    report = simulate(plan, inputs, seeds=2, duration_s=5000.0)
    (kept,) = report.lines
    assert kept.verdict is Verdict.MET
    warned = replace(report, warnings=(("W-percentile-open", "apps.rank", "few long queues"),))
    assert lines_of(plan, inputs, warned) == report.lines  # of a stricter percentile: this one's interval has an end
    mine = report.apps["rank"]
    open_ = {at: replace(found, high=math.inf) for at, found in mine.percentiles_ms.items()}
    warned = replace(warned, apps={"rank": replace(mine, percentiles_ms=open_)})
    assert [line.verdict for line in lines_of(plan, inputs, warned)] == [Verdict.UNDECIDED]
    elsewhere = replace(report, warnings=(("W-percentile-open", "apps.other", "few long queues"),))
    assert lines_of(plan, inputs, elsewhere) == report.lines
    promise = Promise(
        app="rank", quantity="response_ms", percentile=kept.percentile, relation="<=", value=kept.promised,
        model="simulation/1", seeds=5,
    )  # fmt: skip
    promising = plan.model_copy(update={"promises": (promise,)})
    assert lines_of(promising, inputs, report)[-1].verdict is Verdict.MET
    assert lines_of(promising, inputs, warned)[-1].verdict is Verdict.UNDECIDED


def test_too_much_load_is_reported(queues: Any) -> None:
    demand = AppDemand("ask", 0, 150.0, Arrivals(), 100.0, 99.0)
    report = simulate_system(queues.system(1), [demand], seeds=2, duration_s=100.0)
    codes = [code for code, _, _ in report.warnings]
    assert codes == ["W-short-run", "W-unstable"]
    calm = simulate_system(queues.system(3), [demand], seeds=2)
    assert calm.warnings == ()


def test_verdicts() -> None:
    assert judge(Estimate(0.5, 0.4, 0.6), ">=", 0.4) is Verdict.MET
    assert judge(Estimate(0.5, 0.4, 0.6), ">=", 0.45) is Verdict.UNDECIDED
    assert judge(Estimate(0.5, 0.4, 0.6), ">=", 0.55) is Verdict.UNDECIDED
    assert judge(Estimate(0.5, 0.4, 0.6), ">=", 0.65) is Verdict.BROKEN
    assert judge(Estimate(0.5, 0.4, 0.6), "=", 0.55) is Verdict.MET
    assert judge(Estimate(0.5, 0.4, 0.6), "=", 0.65) is Verdict.BROKEN
    assert judge(Estimate(0.5, float("nan"), float("nan")), "=", 0.65) is Verdict.UNDECIDED
    assert judge(Estimate(float("inf"), float("inf"), float("inf")), "<=", 100.0) is Verdict.BROKEN
    assert judge(Estimate(float("nan"), float("nan"), float("nan")), "<=", 100.0) is Verdict.NOT_SIMULATED


def test_runs_go_on_in_order_and_tell_how_far_they_are() -> None:
    said = []

    def job(number: int) -> Any:
        def work(stop: threading.Event, share: Any) -> int:
            for step in range(4):
                time.sleep(0.03)
                share(step / 4)
            if number == 4:
                share(1.0)
                time.sleep(0.3)
            return number

        return work

    assert run_all([job(n) for n in range(5)], threads=2, on_event=lambda event: said.append(event.done)) == list(
        range(5)
    )
    assert said == sorted(said)
    assert said.count(1.0) == 1, "a run that has not ended is not done, whatever it says of itself"
    assert said[-1] == 1.0
    assert [seed_of(1, n) for n in range(2)] == [1000003, 1000004]


def test_an_error_in_one_run_ends_all() -> None:
    def fails(stop: threading.Event, share: Any) -> None:
        raise ValueError("no")

    def waits(stop: threading.Event, share: Any) -> None:
        assert stop.wait(20.0)

    with pytest.raises(ValueError, match="no"):
        run_all([fails, waits], threads=2, cancel=threading.Event())


def test_the_reason_is_that_of_the_run_that_failed_not_of_one_that_was_stopped_for_it() -> None:
    begun = threading.Event()

    def stopped(stop: threading.Event, share: Any) -> None:
        begun.set()
        assert stop.wait(20.0)
        raise Interrupted("stopped")

    def fails(stop: threading.Event, share: Any) -> None:
        assert begun.wait(20.0)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        run_all([stopped, fails], threads=2, cancel=threading.Event())


def test_cancelling_ends_a_run_soon(queues: Any) -> None:
    cancel = threading.Event()
    demand = AppDemand("ask", 0, 90.0, Arrivals(), 100.0, 99.0)
    seen = []

    def on_event(event: Any) -> None:
        seen.append(event.done)
        cancel.set()

    with pytest.raises(Interrupted):
        simulate_system(
            queues.system(1), [demand], seeds=2, duration_s=12_000.0, cancel=cancel, on_event=on_event, threads=2
        )
    assert seen
    assert seen[0] < 1.0


def test_a_run_can_be_cancelled_from_outside(queues: Any) -> None:
    cancel = threading.Event()
    cancel.set()
    run = Simulation(queues.system(1), [Stream("ask", np.arange(500_000.0) * 11.0)])
    with pytest.raises(Interrupted):
        run.run(cancel=cancel)


def test_the_value_of_a_single_run_is_that_of_the_whole_run(queues: Any) -> None:
    """A percentile of short stretches is lower on average than that of the run; the busy share has no spread to see."""
    demand = AppDemand("ask", 0, 90.0, Arrivals(), 100.0, 99.0)
    report = simulate_system(queues.system(1), [demand], seeds=1, duration_s=120.0, noise="exponential")
    run = Simulation(
        queues.system(1),
        [demand.stream(report.seeds[0], 120.0)],
        seed=report.seeds[0],
        noise=noise_of("exponential"),
        horizon_ms=120_000.0,
    ).run()
    warm_up = demand.warm_up(len(run.queries))
    whole = figures_of(run, "ask", percentiles=(99.0,), warm_up=warm_up).times["response"].percentiles_ms[99.0]
    found = report.apps["ask"].percentiles_ms[99.0]
    assert found.value == whole
    assert 0.0 <= found.low < whole < found.high
    (group,) = report.groups.values()
    assert 0.5 < group.utilisation.value < 1.0
    assert group.utilisation.as_dict()["interval"] == [None, None]
    assert "W-one-seed" in [code for code, _, _ in report.warnings]
    assert estimate_of_one(float("inf"), [1.0, 2.0]).value == float("inf")


def test_intervals_stay_where_figures_can_be(queues: Any) -> None:
    demand = AppDemand("ask", 0, 99.0, Arrivals(), 100.0, 99.0)
    report = simulate_system(queues.system(1), [demand], seeds=2, duration_s=20.0, noise="exponential")
    app = report.apps["ask"]
    for found in (*app.figures.values(), *app.percentiles_ms.values()):
        assert not found.low < 0.0
    assert app.figures["violations"].high <= 1.0


def test_runs_near_capacity_are_longer_or_named(queues: Any) -> None:
    demand = AppDemand("ask", 0, 96.0, Arrivals(), 100.0, 90.0)
    usual = run_length_s(90.0, rate_qps=96.0, slo_ms=100.0, arrivals=Arrivals())
    found = simulate_system(queues.system(1), [demand], seeds=2, noise="exponential")
    assert usual * 20 < found.duration_s <= usual * 40
    short = simulate_system(queues.system(1), [demand], seeds=4, duration_s=100.0, noise="exponential")
    assert "W-near-capacity" in [code for code, _, _ in short.warnings]
    calm = AppDemand("ask", 0, 50.0, Arrivals(), 100.0, 90.0)
    length = run_length_s(90.0, rate_qps=50.0, slo_ms=100.0, arrivals=Arrivals())
    assert simulate_system(queues.system(1), [calm], seeds=2, noise="exponential").duration_s == length


def test_a_percentile_beyond_what_a_run_holds_is_reported() -> None:
    demand = AppDemand("ask", 0, 100.0, Arrivals(), 100.0, 99.999)
    assert demand.length_s() * 100.0 < 3e6
    assert demand.is_too_short(demand.length_s())
    assert not demand.is_too_short(demand.enough_s())


@pytest.mark.parametrize(
    ("rate_qps", "length_s", "seeds", "asked", "remedy"),
    [
        (10.0, 1e12, 1, True, "Lower --duration"),
        (10.0, float("inf"), 1, True, "Write 600"),
        (1e9, 60.0, 1, False, "lower the rate"),
        (MOST_QUERIES_PER_RUN / 100.0, 100.0, 11, True, "Lower --seeds to 10"),
    ],
)
def test_more_queries_than_memory_holds_are_refused(
    rate_qps: float, length_s: float, seeds: int, asked: bool, remedy: str
) -> None:
    demand = AppDemand("ask", 0, rate_qps, Arrivals(), 100.0, 99.0)
    with pytest.raises(InputError, match=remedy):
        check_size([demand], length_s, seeds=seeds, asked=asked)
    check_size([demand], 0.01, seeds=1, asked=asked)


def test_the_first_run_says_that_the_simulator_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    for ready in (False, True):
        monkeypatch.setattr(runs, "is_ready", lambda _kernel, ready=ready: ready)
        run_all([lambda _stop, _note: 1], on_event=lambda event: said.append(event.what))
    assert said.count("compile") == 1
    assert said[0] == "compile"


def test_a_stretch_of_few_queries_has_no_rate_of_a_thousand_million() -> None:
    """Its span ends with its last query: a single one spans nothing."""
    in_time = np.ones(3, dtype=bool)
    assert rates_of(np.array([0.0, 500.0, 1000.0]), in_time, 9e9, last=False)["rate_qps"] == pytest.approx(2.0)
    assert np.isnan(rates_of(np.array([0.0]), in_time[:1], 9e9, last=False)["rate_qps"])
    assert rates_of(np.array([0.0, 500.0]), in_time[:2], 1000.0, last=True)["goodput_qps"] == pytest.approx(2.0)
