"""Runs that put a plan to the test: how long they are."""

from __future__ import annotations

from typing import Any

import pytest
from build import app, files, machine, model
from cases.simulated import app_saying, report_of

from hetplan.problems.simulated import LEAST_SPANS, MOST_LONGER, PlanRuns
from hetplan.profiles.load import load_inputs


@pytest.mark.parametrize(("spans", "longer"), [(0.0, MOST_LONGER), (LEAST_SPANS / 2, 2.0), (2 * LEAST_SPANS, 1.0)])
def test_runs_near_full_use_are_longer_and_always_busy_machines_are_no_error(spans: float, longer: float) -> None:
    """A queue that never forgets, of machines that are always busy, is spanned 0 times."""
    wish = files(
        machines={"m0": machine(1.0)}, models={"net": model({"m0": {1: 10.0}})}, apps={"ask": app("net", rate=50.0)}
    )
    asked = list[float]()

    def simulate(_plan: Any, _inputs: Any, *, seeds: int, seed: int, duration_s: float) -> Any:
        asked.append(duration_s)
        one = app_saying(0.005, seeds)
        one.spans = spans * seeds
        return report_of({"ask": one}, {}, seeds=seeds, duration_s=duration_s)

    runs = PlanRuns(simulate, None, load_inputs(wish.profile, wish.slo), ("ask",), 100.0)  # type: ignore[arg-type]
    runs.add(6, 1)
    runs.add(2, 7)
    assert asked[-1] == pytest.approx(100.0 * longer)
    assert len(runs.reports) == 2
