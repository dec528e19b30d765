"""Searches that Circinus is compared with: engines pass the kit of their form; a plan found by one verifies."""

from __future__ import annotations

import pytest

import hetplan as hp
from hetplan.extend import BlackBoxEngine, measuring
from hetplan.testing import check_solver
from hetplan_papers.compound.searches import VideoStorm, Vulcan
from hetplan_papers.datasets.circinus_generator import draw


@pytest.mark.parametrize("engine", [VideoStorm(), Vulcan()], ids=lambda engine: engine.name)
def test_an_engine_passes_the_conformance_kit(engine: BlackBoxEngine) -> None:
    check_solver(engine)


@pytest.mark.slow
@pytest.mark.parametrize("search", ["videostorm", "vulcan"])
def test_a_plan_is_found_and_verifies(search: str) -> None:
    query = draw("SR", 3)
    measure, options = measuring(query), {"search": search, "max_measurements": 60, "samples_min": 60}
    outcome = hp.solve(query.profile(), query.slo(), evaluate=measure, options=options)
    assert (outcome.exit_code, outcome.violations) == (0, ())
    assert {solve.solver.split()[0] for solve in outcome.require().solves if solve.form == "black-box"} == {search}


@pytest.mark.parametrize("search", ["videostorm", "vulcan"])
def test_they_look_for_the_least_cost_alone(search: str) -> None:
    query = draw("ACG", 3)
    slo = {**query.slo(), "objective": ["front quality cost"]}
    with pytest.raises(hp.InputError, match="least cost only"):
        hp.solve(query.profile(), slo, evaluate=measuring(query), options={"search": search})
