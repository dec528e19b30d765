"""Arguments of public functions: what they do not take is refused by name, before any work begins."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hetplan as hp
from hetplan.planner.outcome import Outcome

FILES = ("examples/pool/profile.json", "examples/pool/slo.json")
PLANNED = {"sizing": "fluid"}


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    return hp.solve(*FILES, options=PLANNED)


@pytest.mark.parametrize(
    ("named", "given"),
    [
        ("formulation", 3), ("solver", 3), ("options", {3: 3}), ("options", 3), ("cancel", True), ("on_event", 3),
        ("start", 3), ("evaluate", 3), ("gap", "x"), ("require_proof", "yes"), ("time_limit", "x"),
        ("time_limit", math.nan), ("seed", 1.5), ("jobs", "two"),
    ],
)  # fmt: skip
def test_solve_names_an_argument_that_it_does_not_take(named: str, given: Any) -> None:
    _refused(named, lambda: hp.solve(*FILES, **{named: given}))


def test_all_wrong_arguments_are_named_at_once() -> None:
    with pytest.raises(hp.InputError) as caught:
        hp.solve(*FILES, solver=3, require_proof="yes", time_limit="x")  # type: ignore[arg-type]
    assert {fault.path for fault in caught.value.faults} == {"solver", "require_proof", "time_limit"}


@pytest.mark.parametrize(
    ("named", "call"),
    [
        ("seeds", lambda plan: hp.simulate(plan, *FILES, seeds="x")),
        ("seeds", lambda plan: hp.simulate(plan, *FILES, seeds=0)),
        ("duration_s", lambda plan: hp.simulate(plan, *FILES, duration_s="x")),
        ("duration_s", lambda plan: hp.simulate(plan, *FILES, duration_s=-1)),
        ("duration_s", lambda plan: hp.simulate(plan, *FILES, duration_s=math.nan)),
        ("robust", lambda plan: hp.whatif(*FILES, robust="much")),
        ("prove", lambda plan: hp.verify(plan, *FILES, prove=3)),
        ("rates", lambda plan: hp.Planner(*FILES, options=PLANNED).plan(3)),
        ("deadline_s", lambda plan: hp.Planner(*FILES, deadline_s="x")),
        ("source", lambda plan: hp.Plan.read(3)),
    ],
)  # fmt: skip
def test_others_name_an_argument_that_they_do_not_take(
    named: str, call: Callable[[Any], Any], outcome: Outcome
) -> None:  # fmt: skip
    _refused(named, lambda: call(outcome.require()))


@pytest.mark.parametrize("function", [hp.verify, hp.report, hp.simulate, hp.explain, hp.compare])
def test_an_outcome_in_place_of_its_plan_is_told_what_to_give(function: Any, outcome: Outcome) -> None:
    with pytest.raises(hp.InputError, match=r"Give outcome\.plan"):
        function(outcome, *FILES)
    with pytest.raises(hp.InputError, match=r"Give outcome\.plan"):
        function(outcome.require(), *FILES, outcome)


@pytest.mark.parametrize("rate", [np.float32(60), np.int64(60), Decimal(60)])
def test_a_number_of_any_library_is_a_rate(rate: Any, outcome: Outcome) -> None:
    slo = json.loads(Path(FILES[1]).read_text())
    slo.pop("objective", None)
    slo["limits"].pop("cost_per_hour", None)
    (app,) = slo["apps"]
    slo["apps"][app]["rate_qps"] = 5
    planner = hp.Planner(FILES[0], slo, options=PLANNED)
    assert planner.plan({app: rate}).require().workers == planner.plan({app: 60.0}).require().workers


@pytest.mark.parametrize("given", [{"time_limit": Decimal(60)}, {"seed": np.int64(0)}, {"jobs": np.int64(1)}])
def test_a_number_of_any_library_is_a_setting(given: dict[str, Any], outcome: Outcome) -> None:
    assert hp.solve(*FILES, options=PLANNED, **given).require().workers == outcome.require().workers


def test_a_plan_for_a_folder_that_is_missing_says_which_file(outcome: Outcome, tmp_path: Path) -> None:
    with pytest.raises(hp.HetplanError, match=r"missing.plan\.json"):
        outcome.require().write(tmp_path / "missing" / "plan.json")


def _refused(named: str, call: Callable[[], Any]) -> None:
    with pytest.raises(hp.InputError) as caught:
        call()
    assert [fault.path for fault in caught.value.faults] == [named]
    assert all(fault.remedy for fault in caught.value.faults)
