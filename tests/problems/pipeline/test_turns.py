"""Servers of a group take turns: plan, simulator and router name the same balancing, and budgets leave time to wait."""

from collections import defaultdict
from pathlib import Path

import pytest

import hetplan as hp
from hetplan.executor.background import Background
from hetplan.profiles.load import load_inputs
from hetplan.serving.planned_system import planned_systems
from hetplan.serving.system import Inner

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "pipeline"
FILES = (EXAMPLE / "profile.json", EXAMPLE / "slo.json")


@pytest.fixture(scope="module")
def plan():
    return hp.solve(*FILES, options={"sizing": "fluid"}).require()


def test_the_plan_names_turns_and_simulator_and_router_take_them(plan):
    assert plan.dispatch["cameras"].balancing == "round_robin"
    inputs = load_inputs(*FILES)
    ways = [way for route in planned_systems(plan, inputs)[0].system.routes for way in route.ways]
    assert {way.inner for way in ways} == {Inner.ROUND_ROBIN}
    said = Background(profile=inputs.profile, slo=inputs.slo).app(plan, "cameras")
    assert said["balancing"] == "round_robin"


@pytest.mark.slow
def test_other_routings_take_turns_too():
    routed = hp.solve(*FILES, options={"sizing": "fluid", "headroom": 0.2, "routing": "most-accurate-first"}).require()
    assert routed.dispatch["cameras"].balancing == "round_robin"


@pytest.mark.slow
def test_budgets_are_half_as_long_again_as_the_room_that_paths_keep(plan):
    tables = load_inputs(*FILES).profile.tables
    runs = load_inputs(*FILES).profile.variants
    longest: dict[str, float] = defaultdict(float)
    for worker in plan.workers:
        for load in worker.loads:
            run = next(run for run in runs[load.variant].runs if run.hardware == worker.hardware)
            table = tables[run.latency]
            at = table.axes["batch"].index(load.serve.max_batch)
            longest[load.node] = max(longest[load.node], table.p50[at])
    assert plan.dispatch["cameras"].budget_ms == pytest.approx({step: 1.5 * 2.0 * ms for step, ms in longest.items()})
    stated = hp.solve(*FILES, formulation="loki", options={"budget_factor": 1.0, "sizing": "fluid"}).require()
    assert stated.dispatch["cameras"].budget_ms == pytest.approx(longest)


def test_turns_lose_less_than_half_of_what_dice_lose(plan):
    how = {"seeds": 2, "seed": 3, "duration_s": 30_000 / 589.6}
    turns = hp.simulate(plan, *FILES, **how).apps["cameras"].figures["violations"]
    dice = plan.model_copy(update={"dispatch": {
        "cameras": plan.dispatch["cameras"].model_copy(update={"balancing": None})}})  # fmt: skip
    assert turns.value < 0.5 * hp.simulate(dice, *FILES, **how).apps["cameras"].figures["violations"].value
