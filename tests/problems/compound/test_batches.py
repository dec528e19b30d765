"""Operators that serve several queries at once: sized by a law of batches, verified, played, and told to workers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hetplan as hp
from hetplan.errors import InputError
from hetplan.executor.background import Background
from hetplan.problems.batch_queue import line_of
from hetplan.profiles.load import load_inputs
from hetplan.profiles.workers import Serve
from hetplan.serving.planned_system import planned_systems
from hetplan.verifier.batch_waits import busy_and_waits
from tests.build import shipped

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "compound"
MEASURED = EXAMPLE / "measured.json"
FORMULA = {"sizing": "formula", "search": "struct-ci"}
GROWN = {"quantity": "latency_ms", "mean": [10, 13, 31]}


def profile(*, batches: bool = True, **more: Any) -> dict[str, Any]:
    found = shipped(EXAMPLE / "profile.json")
    found["tables"] = {"grown": {**GROWN, "axes": {"batch": [1, 2, 8]}, **more}}
    for name in ("detect", "track") if batches else ():
        found["pipelines"]["track"]["nodes"][name]["batches"] = "grown"
    return found


def wish(rate: float, percentile: float = 95, max_ms: float = 400, **demand: Any) -> dict[str, Any]:
    slo = shipped(EXAMPLE / "rate-slo.json")
    latency = {f"p{percentile:g}_ms": max_ms}
    app = {**slo["apps"]["gate"], "latency": latency, "rate_qps": None, **(demand or {"rate_qps": rate})}
    return {**slo, "apps": {"gate": app}}


def cost(plan: hp.Plan) -> float:
    return next(one.value for one in plan.promises if one.quantity == "cost_per_hour")


def solve(one: dict[str, Any], slo: dict[str, Any], **how: Any) -> hp.Outcome:
    return hp.solve(one, slo, MEASURED, **how)


def served(plan: hp.Plan) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    for load in (load for worker in plan.workers for load in worker.loads):
        found.setdefault(str(load.node), set()).add(load.serve.max_batch)
    return found


def with_serve(plan: hp.Plan, serve: Serve) -> hp.Plan:
    """The plan with other batches at every load of the operators that have a table."""
    workers = tuple(
        worker.model_copy(update={"loads": tuple(
            load.model_copy(update={"serve": serve}) if load.node in ("detect", "track") else load
            for load in worker.loads
        )})
        for worker in plan.workers
    )  # fmt: skip
    return plan.model_copy(update={"workers": workers})


@pytest.fixture(scope="module")
def plan() -> hp.Plan:
    return solve(profile(), wish(60), options=FORMULA).require()


@pytest.mark.slow
def test_the_bill_falls_where_batches_help(plan: hp.Plan):
    one_by_one = solve(profile(batches=False), wish(60), options=FORMULA).require()
    assert cost(plan) < 0.8 * cost(one_by_one)
    assert served(one_by_one) == {"sample": {1}, "detect": {1}, "track": {1}}
    assert served(plan) == {"sample": {1}, "detect": {8}, "track": {8}}


@pytest.mark.slow
def test_batches_that_take_as_long_as_one_by_one_are_not_formed():
    plain = profile(mean=[10, 25, 100])
    assert served(solve(plain, wish(20), options=FORMULA).require())["detect"] == {1}


def test_streams_have_operators_for_themselves():
    found = solve(profile(), wish(0, streams=2)).require()
    assert served(found)["detect"] == {1}
    assert hp.verify(found, profile(), wish(0, streams=2), MEASURED).ok


@pytest.mark.slow
def test_the_verifier_counts_batches_and_waits_again(plan: hp.Plan):
    slo = wish(60)
    assert hp.verify(plan, profile(), slo, MEASURED).ok

    def found(changed: hp.Plan, one: dict[str, Any] | None = None, asked: dict[str, Any] = slo) -> str:
        return " ".join(f"{v.code} {v.text}" for v in hp.verify(changed, one or profile(), asked, MEASURED).violations)

    assert "batches of 8 at most" in found(with_serve(plan, Serve(max_batch=9)))
    assert "batches of 8 at most" in found(with_serve(plan, Serve(max_batch=8, max_wait_ms=5)))
    assert "overrun" in found(with_serve(plan, Serve()))
    assert "one query at a time" in found(plan, profile(batches=False))
    assert "overrun" in found(plan, asked=wish(600))
    said = [one.model_copy(update={"value": 0.8 * one.value}) if one.quantity == "response_ms" else one
            for one in plan.promises]  # fmt: skip
    assert "by the waits of its operators" in found(plan.model_copy(update={"promises": tuple(said)}))


def test_both_laws_of_waits_are_one():
    times = (1.0, 1.3, 1.6, 1.9)
    for use in (0.2, 0.6, 0.9):
        often, (wait, _, likely) = busy_and_waits(times, use)
        line = line_of(times, use)
        assert often == pytest.approx(line.busy, rel=1e-3)
        order = np.argsort(wait)
        theirs = np.interp([0.5, 0.9, 0.99], np.cumsum(likely[order]), wait[order])
        from_line = line.drawn(np.array([0.5, 0.9, 0.99]), np.full(3, 0.5))[0]
        assert theirs == pytest.approx(from_line, rel=0.07, abs=0.1)


def test_a_batch_takes_as_long_as_its_slowest_member_times_what_the_table_says(plan: hp.Plan):
    inputs = load_inputs(profile(), wish(60), measured=MEASURED)
    loads = {load.id: load for worker in plan.workers for load in worker.loads}
    seen = 0
    for load in (load for group in planned_systems(plan, inputs)[0].system.groups for load in group.loads):
        times = load.services["gate"].mean_ms
        if loads[load.id].node != "sample":
            assert times.shape[1] == 8
            assert times[:, 7] == pytest.approx(3.1 * times[:, 0])
            assert times[:, 2] == pytest.approx(1.6 * times[:, 0])
            seen += 1
            known = Background(inputs.profile, inputs.slo, None, inputs).law(plan, loads[load.id], "a100")
            assert known is not None
            assert known["mean"][7] >= 3.1 * known["mean"][0] * (1 - 1e-9)
            assert known["axes"] == {"batch": list(range(1, 9))}
        else:
            assert times.shape[1] == 1
    assert seen


@pytest.mark.parametrize(
    ("change", "at"),
    [
        (lambda one: one["tables"]["grown"]["axes"].update(batch=[2, 4, 8]), "from 1"),
        (lambda one: one["pipelines"]["track"]["nodes"]["track"].update(task="t", device=None), "of an operator"),
    ],
)
def test_a_table_that_says_nothing_of_batches_is_refused(change: Any, at: str):
    one = profile()
    change(one)
    with pytest.raises(InputError, match=at):
        solve(one, wish(20))


@pytest.mark.slow
@pytest.mark.parametrize(("rate", "percentile", "max_ms"), [(40, 95, 400), (100, 90, 350), (15, 99, 600)])
def test_promises_are_kept_by_seeds_that_chose_nothing(rate: float, percentile: float, max_ms: float):
    slo = wish(rate, percentile, max_ms)
    found = solve(profile(), slo).require()
    (said,) = [one for one in found.promises if one.quantity == "response_ms"]
    assert said.model == "simulation/1"
    assert hp.verify(found, profile(), slo, MEASURED).ok
    length = 40 / (1 - percentile / 100) / rate * 20
    report = hp.simulate(found, profile(), slo, MEASURED, seeds=1, seed=4321, duration_s=length)
    late = report.as_dict()["apps"]["gate"]["figures"]["violations"]["value"]
    assert late <= 1 - percentile / 100


@pytest.mark.slow
def test_callers_of_one_model_share_replicas_that_serve_batches():
    one, slo, document = profile(), wish(0), json.loads(MEASURED.read_text())
    for name, node in one["pipelines"]["track"]["nodes"].items():
        node["model"] = name
    latency = {"p95_ms": 450}
    gate = {**slo["apps"]["gate"], "latency": latency}
    slo["apps"] = {app: {**gate, "rate_qps": rate} for app, rate in (("gate", 12), ("dock", 9), ("yard", 7))}
    document["apps"] = dict.fromkeys(slo["apps"], document["apps"]["gate"])
    plan = hp.solve(one, slo, document).require()
    assert "shared-loads/1" in plan.requires
    assert served(plan)["detect"] == {8}
    assert hp.verify(plan, one, slo, document).ok
    played = hp.simulate(plan, one, slo, document, seeds=1, seed=77, duration_s=600).as_dict()["apps"]
    assert all(played[app]["figures"]["violations"]["value"] <= 0.05 for app in slo["apps"])
