"""The names that `import hetplan` offers, and what people read off the objects behind them."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
from build import example

import hetplan as hp

FILES = [Path(__file__).resolve().parents[2] / "examples" / "pool" / f"{name}.json" for name in ("profile", "slo")]
FLUID = {"sizing": "fluid"}
NAMES = """
    solve formulate load verify simulate explain whatif compare diff report
    Planner Outcome Plan Inputs Profile Slo State Event Repair
    HetplanError InputError Infeasible Interrupted SolverError PlanRejected HostsError __version__
"""


def test_these_names_and_no_other() -> None:
    assert set(dir(hp)) == set(NAMES.split())
    assert len(dir(hp)) == 27
    for name in dir(hp):
        thing = getattr(hp, name)
        assert name == "__version__" or inspect.getdoc(thing), name
    with pytest.raises(AttributeError):
        hp.Limits  # type: ignore[attr-defined]  # noqa: B018


def test_files_come_in_any_order_and_form() -> None:
    wish = example("pool")
    digest = hp.solve(*FILES, options=FLUID).require().digest
    inputs = hp.load(*FILES)
    forms: list[tuple[Any, ...]] = [
        tuple(reversed(FILES)), (str(FILES[1]), wish.profile), (wish.slo, FILES[0].read_bytes()), (inputs,),
        (*FILES, None),
    ]  # fmt: skip
    for files in forms:
        assert hp.solve(*files, options=FLUID).require().digest == digest, files


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ((FILES[0],), "a profile and an SLO file are needed"),
        ((*FILES, FILES[1]), "a second SLO file"),
        ((hp.load(*FILES), FILES[0]), "read before"),
        ((*FILES, 3), "a path, the bytes of a file"),
    ],
)
def test_files_that_do_not_fit_are_refused_by_name(files: tuple[Any, ...], says: str) -> None:
    with pytest.raises(hp.InputError, match=says):
        hp.solve(*files)


@pytest.mark.parametrize(
    ("how", "place"),
    [
        ({"time_limit": "soon"}, "time_limit"), ({"gap": -1}, "gap"), ({"gap": 5}, "gap"),
        ({"seed": 0.5}, "seed"), ({"jobs": 0}, "jobs"),
        ({"options": "fluid"}, "options"), ({"formulation": "pool-none"}, "formulation"),
    ],
)  # fmt: skip
def test_keywords_of_the_wrong_kind_are_refused_with_their_place(how: dict[str, Any], place: str) -> None:
    with pytest.raises(hp.InputError, match=place):
        hp.solve(*FILES, **how)


def test_a_formulation_names_its_problem_too() -> None:
    by_name = [hp.solve(*FILES, formulation=name, options=FLUID).require() for name in ("pool", "pool/pool-milp")]
    assert by_name[0] == by_name[1] == hp.solve(*FILES, formulation="pool-milp", options=FLUID).require()


def test_an_outcome_says_what_is_printed_first() -> None:
    outcome = hp.solve(*FILES, options=FLUID)
    assert outcome.plan is not None
    assert outcome.plan.summary is not None
    assert (outcome.cost_per_hour, outcome.cost_per_month) == (
        outcome.plan.summary.cost_per_hour, outcome.plan.summary.cost_per_month,
    )  # fmt: skip
    assert outcome.bound is not None
    assert outcome.gap is not None
    assert {row.app for row in outcome.slo} == {"ranking"}
    lines = repr(outcome).split("\n")
    assert len(lines) == 5
    assert "a month" in lines[0]
    assert any(line.startswith("Bound:") for line in lines)


def test_where_there_is_no_plan_the_outcome_and_the_error_name_conflict_and_repairs() -> None:
    wish = example("pool")
    (app,) = wish.slo["apps"].values()
    app["latency"]["p99_ms"] = 0.001
    outcome = hp.solve(wish.profile, wish.slo, options=FLUID)
    assert (outcome.plan, outcome.cost_per_hour, outcome.bound, outcome.slo) == (None, None, None, ())
    assert outcome.conflict
    assert repr(outcome).startswith("infeasible")
    with pytest.raises(hp.Infeasible) as caught:
        outcome.require()
    assert caught.value.conflict[1:] == outcome.conflict
    assert caught.value.repairs == outcome.repairs


def test_a_plan_is_written_read_and_listed(tmp_path: Path) -> None:
    plan = hp.solve(*FILES, options=FLUID).require()
    plan.write(tmp_path / "plan.json")
    assert hp.Plan.read(tmp_path / "plan.json") == plan
    assert sum(row.count for row in plan.rows()) == sum(worker.count for worker in plan.workers)
    day = hp.solve(FILES[0].parents[1] / "fleet" / "profile.json", FILES[0].parents[1] / "fleet" / "slo.json",
                   options={**FLUID, "savings": False}).require()  # fmt: skip
    assert {row.app for row in day.rows()} >= set(hp.load(*(FILES[0].parents[1] / "fleet" / f"{n}.json" for n in
                                                          ("profile", "slo"))).slo.apps)  # fmt: skip
    assert all(row.hours for row in day.rows())


def test_plans_side_by_side_and_a_page_of_one(tmp_path: Path) -> None:
    plan = hp.solve(*FILES, options=FLUID).require()
    plan.write(tmp_path / "now.json")
    assert hp.diff(tmp_path / "now.json", plan, *FILES).names == ("now", "plan 2")
    assert hp.report(plan, *FILES, simulate=False).startswith("<!doctype html>")
    with pytest.raises(hp.InputError, match="a plan file is needed"):
        hp.diff(plan)
