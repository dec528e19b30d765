"""Operators of compound plans take what the journal measured: nobody invents a time."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hetplan as hp
from hetplan.errors import InputError
from hetplan.executor.background import Background
from hetplan.executor.serving.law import ServiceLaw
from hetplan.executor.site import read_site
from hetplan.serving.operators import operators_of

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "compound"


def hosts(**more: Any) -> dict[str, Any]:
    return {
        "files": [str(EXAMPLE / "profile.json"), str(EXAMPLE / "slo.json")],
        "targets": {"here": {"kind": "local"}},
        "hosts": {"box": {"target": "here", "machines": ["any"], "count": 9}}, **more,
    }  # fmt: skip


@pytest.fixture(scope="module")
def made() -> tuple[hp.Plan, hp.Inputs]:
    """A plan of measurements in which one operator took different times."""
    document = json.loads((EXAMPLE / "measured.json").read_text())
    plan = hp.solve(EXAMPLE / "profile.json", EXAMPLE / "slo.json", document).require()
    return plan, hp.load(EXAMPLE / "profile.json", EXAMPLE / "slo.json", document)


def test_each_operator_sleeps_as_long_as_it_was_measured(made: Any) -> None:
    plan, inputs = made
    known = Background.of(
        read_site(hosts(files=[str(EXAMPLE / f"{name}.json") for name in ("profile", "slo", "measured")]))
    )
    operators = operators_of(plan, inputs)
    assert operators
    for worker in plan.workers:
        for load in worker.loads:
            law = known.law(plan, load, worker.hardware)
            assert law is not None
            assert ServiceLaw(law).mean_ms({}, 1) == pytest.approx(operators[load.id].mean_ms)


def test_times_vary_as_they_did_and_never_beyond_the_longest(made: Any) -> None:
    plan, inputs = made
    rng = np.random.default_rng(0)
    each = {node: rng.lognormal(-3, 0.5, 200).tolist() for node in ("sample", "detect", "track")}
    apps = {
        app: [
            {**one, "runs": {"seconds": each, "bytes": each, "input_bytes": [1.0] * 200},
             "seconds": {node: float(np.mean(times)) for node, times in each.items()}}
            for one in plans
        ]
        for app, plans in inputs.measured["apps"].items()
    }  # fmt: skip
    known = Background(inputs.profile, inputs.slo, None, replace(inputs, measured={**inputs.measured, "apps": apps}))
    worker, load = next((w, one) for w in plan.workers for one in w.loads if one.node == "detect")
    law = known.law(plan, load, worker.hardware)
    assert law is not None
    drawn = ServiceLaw(law, seed=1)
    times = [drawn.draw_ms([{}]) for _ in range(4000)]
    slow = law["mean"][0] / np.mean(each["detect"])
    assert np.mean(times) == pytest.approx(law["mean"][0], rel=0.05)
    assert np.std(times) == pytest.approx(slow * np.std(each["detect"]), rel=0.15)
    assert max(times) <= slow * max(each["detect"]) * (1 + 1e-9)


def test_without_the_plans_measurement_it_is_refused(made: Any) -> None:
    plan, inputs = made
    known = Background(inputs.profile, inputs.slo, None, replace(inputs, measured={"apps": {}}))
    with pytest.raises(InputError, match="no measurement"):
        known.law(plan, plan.workers[0].loads[0], plan.workers[0].hardware)
