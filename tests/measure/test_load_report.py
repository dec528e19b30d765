"""Figures of a measured load, and what they make of promises and wishes."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from hetplan.measure.load_report import figures_of, judge, load_report
from hetplan.measure.load_send import Sent
from hetplan.planner.promise_figures import Estimate, Verdict
from hetplan.profiles.plan import InputHashes, Method, Plan, Promise
from hetplan.profiles.slo import Slo


def sent(response_ms: np.ndarray, **more: object) -> Sent:
    count = len(response_ms)
    held: dict[str, object] = {
        "app": "rank",
        "due_s": np.arange(count) * 0.01,
        "kinds": np.zeros(count, np.int32),
        "late_ms": np.full(count, 0.05),
        "response_ms": response_ms,
        "status": np.full(count, 200, np.int16),
        "outcome": ["served"] * count,
        "quality": np.full(count, 0.8),
        "connections": 8,
    }
    return Sent(**{**held, **more})  # type: ignore[arg-type]


def test_figures_of_a_run_worked_out_by_hand() -> None:
    response = np.array([10.0] * 70 + [60.0] * 20 + [10.0] * 10)
    status = np.full(100, 200, np.int16)
    status[90:95] = 503
    status[95:] = 0
    response[95:] = np.inf
    outcome = ["served"] * 90 + ["dropped"] * 5 + [""] * 5
    quality = np.where(np.arange(100) < 70, 0.5, 0.9)
    found = figures_of(sent(response, status=status, outcome=outcome, quality=quality), slo_ms=50.0)
    values = {name: figure.value for name, figure in found.figures.items()}
    assert values["in_time"] == 0.7
    assert values["violations"] == pytest.approx(0.3)
    assert values["late"] == 0.2
    assert values["dropped"] == 0.05
    assert values["accuracy"] == 0.5
    assert values["served_accuracy"] == pytest.approx((70 * 0.5 + 20 * 0.9) / 90)
    assert values["goodput"] == pytest.approx(0.35)
    assert values["mean_ms"] == pytest.approx((70 * 10 + 20 * 60) / 90)
    assert found.percentiles_ms[90.0].value == 60.0
    assert math.isinf(found.percentiles_ms[95.0].value)
    assert found.statuses == {"200": 90, "503": 5, "none": 5}
    assert found.offered_qps == pytest.approx(100 / 0.99)
    json.dumps(found.as_dict(), allow_nan=False)


def test_requests_that_were_not_sent_do_not_count() -> None:
    status = np.array([200] * 50 + [-1] * 50, np.int16)
    response = np.array([10.0] * 50 + [np.inf] * 50)
    found = figures_of(sent(response, status=status), slo_ms=50.0, warm_up=10)
    assert (found.requests, found.warm_up) == (40, 10)
    assert found.figures["violations"].value == 0.0


def test_no_violation_seen_is_no_proof_of_none() -> None:
    found = figures_of(sent(np.full(100, 10.0)), slo_ms=50.0).figures["violations"]
    assert found.value == 0.0
    # 0 of 100: the exact 97.5% bound is 1 - 0.025 ** (1 / 100).
    assert found.high == pytest.approx(0.0362, abs=1e-4)


@pytest.mark.slow
def test_the_interval_comes_from_the_spread_over_stretches() -> None:
    """Waiting makes neighbours alike: intervals that took responses for independent would be far too narrow."""
    rng = np.random.default_rng(0)
    covered, narrow = 0, 0
    for _ in range(200):
        levels = np.repeat(rng.normal(100.0, 10.0, 40), 50)
        found = figures_of(sent(levels + rng.normal(0, 1, 2000)), percentiles=[50.0]).figures["mean_ms"]
        covered += int(found.low <= 100.0 <= found.high)
        narrow += int(abs(found.value - 100.0) > 2 * np.std(levels) / math.sqrt(2000))
    assert covered >= 180
    assert narrow > 100


def test_judging() -> None:
    assert judge(Estimate(1, 0.9, 1.1), ">=", 1.2) is Verdict.BROKEN
    assert judge(Estimate(1.15, 1.1, 1.3), ">=", 1.2) is Verdict.UNDECIDED
    assert judge(Estimate(1.2, 1.1, 1.3), ">=", 1.2) is Verdict.UNDECIDED
    assert judge(Estimate(1.25, 1.2, 1.3), ">=", 1.2) is Verdict.MET
    assert judge(Estimate(math.inf, 40.0, math.inf), "<=", 50) is Verdict.UNDECIDED
    assert judge(Estimate(math.inf, 60.0, math.inf), "<=", 50) is Verdict.BROKEN
    assert judge(Estimate(math.nan, math.nan, math.nan), "<=", 50) is Verdict.NOT_MEASURED


SLO = Slo.model_validate(
    {
        "apps": {
            "rank": {
                "model": "m",
                "latency": {"p90_ms": 50},
                "quality": {"min": 0.7},
            }
        }
    }
)


def plan(*promises: Promise) -> Plan:
    hashes = InputHashes(profile="a", slo="b")
    return Plan(question="pool", method=Method(formulation="f"), inputs=hashes, promises=promises)


def test_wishes_and_simulated_promises_are_judged_others_reported() -> None:
    simulated = "simulation/1"
    promises = (
        Promise(app="rank", quantity="violations", relation="=", value=0.001, interval=(0, 0.002), model=simulated),
        Promise(app="rank", quantity="quality", relation="=", value=0.7, model=simulated),
        Promise(app="rank", quantity="rate_qps", relation=">=", value=100.0, model=simulated),
        Promise(app="rank", quantity="service_ms", relation="<=", value=5.0, model="no-queueing"),
        Promise(quantity="cost_per_hour", relation="=", value=5.0, model="no-queueing"),
        Promise(app="rank", quantity="rate_qps", relation=">=", value=500.0, model="fluid"),
    )
    slow = figures_of(sent(np.tile([10.0, 60.0], 500)), slo_ms=50.0, percentiles=[50.0, 90.0], scored=True)
    beside = {("rank", "response_ms", 90.0): (55.0, 50.0, 60.0), ("rank", "violations", None): (0.4, 0.3, 0.5)}
    report = load_report(plan(*promises), [slow], duration_s=10.0, slo=SLO, simulated=beside)
    verdicts = {(line.by, line.quantity): line.verdict for line in report.lines}
    assert verdicts["slo", "response_ms"] is Verdict.BROKEN
    assert verdicts["slo", "accuracy"] is Verdict.MET
    assert verdicts["simulation/1", "violations"] is Verdict.BROKEN
    # Better than a promised estimate is not broken.
    assert verdicts["simulation/1", "quality"] is Verdict.MET
    assert verdicts["simulation/1", "rate_qps"] is Verdict.BROKEN
    assert verdicts["fluid", "rate_qps"] is Verdict.REPORTED
    assert verdicts["no-queueing", "service_ms"] is Verdict.REPORTED
    assert not report.ok
    said = {(line.by, line.quantity): line.simulated for line in report.lines}
    assert said["slo", "response_ms"] == (55.0, 50.0, 60.0)
    assert said["simulation/1", "violations"] == (0.4, 0.3, 0.5)
    json.dumps(report.as_dict(), allow_nan=False)


def test_a_rate_above_the_one_sent_is_not_measured() -> None:
    promise = Promise(app="rank", quantity="rate_qps", relation=">=", value=300.0, model="simulation/1")
    fine = figures_of(sent(np.full(1000, 10.0)), slo_ms=50.0, percentiles=[50.0, 90.0])
    report = load_report(plan(promise), [fine], duration_s=10.0, slo=SLO)
    assert report.ok
    assert next(line for line in report.lines if line.by == "simulation/1").verdict is Verdict.NOT_MEASURED


def test_warnings() -> None:
    short = figures_of(sent(np.full(100, 10.0), late_ms=np.full(100, 30.0)), slo_ms=50.0)
    codes = [code for code, _, _ in load_report(plan(), [short], duration_s=1.0).warnings]
    assert codes == ["W-late-sender", "W-short-run"]
