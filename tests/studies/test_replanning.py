"""Plans that follow one another: no more machines move at a look than `limits.changes` allows, and all in the end."""

import copy
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
from cases.pipelines import fluid
from studies.test_ways import FLEET_PROFILE, FLEET_SLO

import hetplan as hp
from hetplan.api.plans_by_rate import Recipes
from hetplan.profiles.load import load_inputs
from hetplan.serving.system import System
from hetplan.studies.fleet_strategies import FleetPlayed
from hetplan.studies.replanning import replanned_fleet
from hetplan_papers.datasets.loki_by_hand import tiny

FEW = {"rank": 30.0, "sort": 30.0}
MANY = {"rank": 300.0, "sort": 30.0}


def machines(system: System) -> Counter[str]:
    return Counter({group.id: group.count for group in system.groups})


def walk(recipes: Recipes, first: dict[str, float], then: dict[str, float], looks: int) -> list[Counter[str]]:
    """What runs at the first rates, and after each look at the others."""
    system = recipes.system_for(first)
    assert system is not None
    found = [machines(system)]
    for _ in range(looks):
        system = recipes.system_for(then, system) or system
        found.append(machines(system))
    return found


def moved(steps: list[Counter[str]]) -> list[int]:
    return [(after - before).total() for before, after in pairwise(steps)]


def fleet(moves: int | None) -> tuple[Any, Any]:
    slo = copy.deepcopy(FLEET_SLO)
    plan = hp.solve(FLEET_PROFILE, slo, options={"savings": False, "sizing": "fluid"}, formulation="fleet").require()
    if moves is not None:
        slo["limits"] = {"changes": moves}
    return plan, load_inputs(FLEET_PROFILE, slo)


@pytest.mark.slow
def test_a_fleet_gets_there_by_as_many_moves_as_are_allowed() -> None:
    played = FleetPlayed(*fleet(None))
    free = walk(played.recipes(played.by_the_hour), FEW, MANY, 1)
    assert moved(free) == [3], "else the limit would not bind"
    played = FleetPlayed(*fleet(1))
    few = walk(played.recipes(played.by_the_hour), FEW, MANY, 4)
    assert moved(few) == [1, 1, 1, 0]
    assert few[-1] == free[-1]


@pytest.mark.slow
@pytest.mark.parametrize(("moves", "more"), [(None, True), (0, False)])
def test_without_moves_a_fleet_stays_as_it_begins_however_much_comes(moves: int | None, more: bool) -> None:
    report = replanned_fleet(*fleet(moves), every_s=20.0, seeds=1, noise="mean")["plan"]
    begins = 1.3  # a machine on demand, and a spot one
    cost = report.cost_per_hour.value
    assert cost > begins + 0.2 if more else cost == pytest.approx(begins)
    assert any(code == "W-no-plan" for code, *_ in report.warnings) is not more


def test_servers_of_a_pipeline_change_few_at_a_time() -> None:
    profile, slo = tiny(0.2, 50)
    first = fluid(profile, slo).require()
    assert max(moved(walk(Recipes(first, load_inputs(profile, slo)), {"x": 20.0}, {"x": 60.0}, 1))) > 1
    slo["limits"]["changes"] = 1
    steps = walk(Recipes(first, load_inputs(profile, slo)), {"x": 20.0}, {"x": 60.0}, 5)
    assert max(moved(steps)) == 1
    assert sum(moved(steps)) > 1
