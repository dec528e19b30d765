"""Simulated figures, intervals and warnings mean the same, whether machines serve batches or make text."""

from __future__ import annotations

from functools import cache
from math import isfinite

import pytest
from build import Files, example, limits_at, tiny
from face import Answer, Refused, Simulated, simulate, solve, solved_example

from hetplan import load
from hetplan.profiles.plan import Plan
from hetplan.simulator.simulate import simulate as simulate_plan

KINDS = ("pool", "llm")


@cache
def planned(kind: str) -> tuple[Files, Answer]:
    wish = tiny(kind)
    return wish, solve(wish, "fluid")


def run(kind: str, *, at: Files | None = None, **how: object) -> Simulated:
    wish, answer = planned(kind)
    assert answer.plan is not None
    return simulate(answer.plan, at or wish, **how)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_too_short_for_its_percentile_says_so_and_decides_nothing(kind: str) -> None:
    wish, _ = planned(kind)
    found = run(kind, duration_s=600 / wish.first_rate, seeds=2)
    assert "W-short-run" in found.warned()
    limits = [one for one in found.verdicts if one.is_of_slo and one.percentile is not None]
    assert limits
    assert {one.verdict for one in limits} <= {"undecided", "broken"}
    assert "W-short-run" not in run(kind, seeds=2).warned(), "the usual length is enough"


@pytest.mark.parametrize("kind", KINDS)
def test_the_usual_length_is_enough_for_a_high_percentile(kind: str) -> None:
    wish, _ = planned(kind)
    (app,) = wish.slo["apps"].values()
    strict = limits_at(98.5, app["latency"])
    higher = Files(wish.profile, {**wish.slo, "apps": {wish.apps[0]: {**app, "latency": strict}}}, problem=wish.problem)
    assert "W-short-run" not in run(kind, at=higher, seeds=2).warned()


@pytest.mark.parametrize("kind", KINDS)
def test_what_machines_cannot_serve_is_said_to_be_too_much(kind: str) -> None:
    wish, _ = planned(kind)
    assert "W-unstable" in run(kind, at=wish.scaled_rates(4), seeds=2).warned()
    assert "W-unstable" not in run(kind, at=wish.scaled_rates(0.5), seeds=2).warned()


@pytest.mark.slow
def test_the_first_token_of_the_last_request_is_no_sign_of_too_much() -> None:
    """Its prefill takes a good part of two seconds, and all is in time."""
    wish, answer = example("llm"), solved_example("llm")
    assert "W-unstable" not in simulate(answer.plan, wish, seeds=5, seed=0, duration_s=2.0).warned()


def test_long_answers_after_the_last_request_are_no_sign_of_too_much() -> None:
    """Machines that stand nearly idle take a good part of a short run for the answers that they have begun."""
    wish, _ = planned("llm")
    found = run("llm", at=wish.scaled_rates(0.1), seeds=3, duration_s=32.0)
    assert found.percentiles[wish.apps[0]][90.0].value > 0.08 * 32_000
    assert "W-unstable" not in found.warned()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seconds", [60.0, 240.0])
def test_the_rate_is_that_of_the_queries_that_come(kind: str, seconds: float) -> None:
    wish, _ = planned(kind)
    found = run(kind, duration_s=seconds, seeds=2, arrivals="deterministic")
    figures = found.figures[wish.apps[0]]
    assert figures["rate_qps"].value == pytest.approx(wish.first_rate, rel=2 / (0.4 * seconds * wish.first_rate))
    in_time = 1.0 - figures["violations"].value
    assert figures["goodput_qps"].value == pytest.approx(in_time * figures["rate_qps"].value)


@pytest.mark.parametrize("kind", KINDS)
def test_one_run_has_intervals_of_its_stretches(kind: str) -> None:
    found = run(kind, seeds=1)
    (app,) = found.figures
    assert "W-one-seed" in found.warned()
    whole = run(kind, seeds=8)
    for name in ("mean_ms", "rate_qps", "goodput_qps"):
        one = found.figures[app][name]
        assert one.low < one.value < one.high, name
    for at, one in found.percentiles[app].items():
        assert isfinite(one.low), at
        assert one.low <= one.value <= one.high
        # Of one run with five stretches and of eight runs: intervals of the same figure meet.
        assert one.low <= whole.percentiles[app][at].high
        assert one.high >= whole.percentiles[app][at].low
    if kind == "llm":
        for name in ("ttft p95 ms", "tpot p95 ms"):
            assert found.figures[app][name].low < found.figures[app][name].high
    wish, _ = planned(kind)
    idle = run(kind, at=wish.scaled_rates(0.5), seeds=1)
    decided = {one.verdict for one in idle.verdicts if one.is_of_slo}
    assert decided <= {"met", "broken"}, "far from a limit one run decides"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", [{}, {"duration_s": 500.0}])
def test_where_nothing_comes_no_longer_run_is_advised(kind: str, how: dict[str, float]) -> None:
    wish, _ = planned(kind)
    with pytest.raises(Refused, match=r"rate is 0") as said:
        run(kind, at=wish.rated(0), seeds=2, **how)
    assert "--duration" not in str(said.value)


@pytest.mark.parametrize("kind", ["pool"])
def test_a_promised_share_is_not_called_kept_by_a_run_too_short_for_it(kind: str) -> None:
    """The same share was undecided as a limit, and kept as a promise."""
    wish = tiny(kind)
    found = simulate(solve(wish).plan, wish, duration_s=600 / wish.first_rate, seeds=2)
    assert "W-short-run" in found.warned()
    shares = [one for one in found.verdicts if one.quantity == "violations" and not one.is_of_slo]
    assert shares
    assert {one.verdict for one in shares} <= {"undecided", "broken"}


@pytest.mark.parametrize("times", [1, 5])
def test_of_text_as_many_requests_count_as_the_percentile_needs(times: float) -> None:
    """Where machines fill half the run, 148 requests were left beyond p95, and nothing was said; docs promise 200."""
    wish = example("llm").scaled_rates(times)
    plan = solve(example("llm"), "fluid").plan
    inputs = load(wish.profile, wish.slo)
    (app,) = simulate_plan(Plan.model_validate(plan), inputs, seeds=2).apps.values()
    assert app.queries_per_seed >= 0.95 * 200 / 0.05
