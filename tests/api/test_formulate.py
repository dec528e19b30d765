"""The program of a problem as an object: by names, for any solver, and back to a plan."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

import hetplan as hp

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
FLUID = {"sizing": "fluid"}


def files(name: str) -> tuple[Path, Path]:
    return EXAMPLES / name / "profile.json", EXAMPLES / name / "slo.json"


@pytest.mark.parametrize(
    ("name", "formulation"), [("pool", None), ("pipeline", None), ("variants", "variants-milp"), ("llm", None)]
)
def test_what_a_solver_says_of_it_is_read_as_the_plan_that_solve_makes(name: str, formulation: str | None) -> None:
    program = hp.formulate(*files(name), formulation=formulation)
    solved = program.solve("highs")
    assert solved.status == "optimal"
    read = program.read(solved.point)
    made = hp.solve(program.inputs, formulation=formulation, options=FLUID).require()
    assert read.claims[0].value == pytest.approx(made.claims[0].value)
    assert sum(row.count for row in read.rows()) == sum(row.count for row in made.rows())
    assert hp.verify(read, *files(name), simulate=False).ok


def test_it_is_the_program_that_its_text_says_by_name() -> None:
    program = hp.formulate(*files("pool"))
    for name, variable in program.variables.items():
        assert variable.lower <= program.solve().point[name] <= variable.upper + 1e-9
    solved = program.solve()
    for row in program.rows.values():
        value = sum(number * solved.point[name] for name, number in row.terms.items())
        assert row.lower - 1e-6 <= value <= row.upper + 1e-6
    (objective,) = program.objectives
    value = objective.constant + sum(number * solved.point[name] for name, number in objective.terms.items())
    assert value == pytest.approx(solved.value)
    assert objective.sense == "max"
    assert program.to_lp().count("\n served.") == sum(name.startswith("served") for name in program.rows)
    assert "OBJSENSE" in program.to_mps()


def test_a_point_by_hand_is_another_plan() -> None:
    """One machine more than the cheapest plan needs: it costs what that machine costs."""
    program = hp.formulate(*files("variants"), formulation="variants-milp")
    best = program.solve().point
    whole = [name for name, one in program.variables.items() if one.whole and best[name] >= 1]
    plans = []
    for name in whole:
        more = {**best, name: best[name] + 1.0}
        try:
            plans.append(program.read(more))
        except hp.InputError:
            continue
    before = program.read(best).summary
    assert before is not None
    assert before.cost_per_hour is not None
    assert any(
        one.summary is not None and one.summary.cost_per_hour is not None
        and one.summary.cost_per_hour > before.cost_per_hour
        for one in plans
    )  # fmt: skip


def test_a_point_that_breaks_a_row_or_names_nothing_is_refused() -> None:
    program = hp.formulate(*files("pool"))
    with pytest.raises(hp.InputError, match="no such variable"):
        program.read({"nobody": 1.0})
    name = next(name for name, one in program.variables.items() if one.whole and math.isfinite(one.upper))
    with pytest.raises(hp.InputError, match="leaves"):
        program.read({name: program.variables[name].upper + 5.0})


def test_a_formulation_without_a_linear_program_is_refused() -> None:
    with pytest.raises(hp.InputError, match="no linear program"):
        hp.formulate(*files("policy"), options={"sizing": "fluid"})


def test_pyomo_gets_the_same_program() -> None:
    pytest.importorskip("pyomo")
    program = hp.formulate(*files("pool"))
    model = program.to_pyomo()
    assert len(model.x) == len(program.variables)
