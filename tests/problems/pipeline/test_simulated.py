"""The headroom found by simulation: plans that keep their response times, and what the search says where none does."""

from math import inf
from pathlib import Path
from types import SimpleNamespace

import pytest
from cases.pipelines import fluid

import hetplan as hp
from hetplan.planner.contract import Tools
from hetplan.problems.pipeline.size import WIDTH

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "pipeline"
FILES = (EXAMPLE / "profile.json", EXAMPLE / "slo.json")


def in_time_from(least):
    """A simulator to which plans are in time from this headroom on; it remembers what it was asked."""
    asked = []

    def simulate(plan, inputs, *, seeds, seed):
        headroom = plan.method.options["headroom"]
        asked.append((headroom, seeds))
        value = 200.0 if headroom >= least else 300.0
        # Of one run the interval may be without end: a stretch of it that loses too many has no percentile.
        held = SimpleNamespace(value=value, low=value - 5.0, high=value + 5.0 if seeds > 1 else inf)
        return SimpleNamespace(apps={"cameras": SimpleNamespace(percentiles_ms={99.0: held})})

    return simulate, asked


def solved(simulate, **options):
    return hp.solve(*FILES, options={"size": "simulated", **options}, tools=Tools(simulate=simulate))


def test_the_least_headroom_that_is_enough():
    simulate, asked = in_time_from(0.17)
    plan = solved(simulate).require()
    found = plan.method.options["headroom"]
    assert 0.17 <= found <= 0.17 + WIDTH
    assert found == min(headroom for headroom, seeds in asked if seeds > 1)
    assert plan.status == "best-of-measured"
    shown = [one for one in plan.promises if one.model == "simulation/1"]
    assert [(one.quantity, one.value, one.interval) for one in shown] == [("response_ms", 250.0, (195.0, 205.0))]
    assert [one.seeds for one in shown] == [5]
    assert hp.verify(plan, *FILES).ok


def test_no_search_where_nothing_is_late():
    simulate, asked = in_time_from(0.0)
    plan = solved(simulate).require()
    assert {headroom for headroom, _ in asked} == {0.0}
    assert plan.method.options["headroom"] == 0.0


def test_a_search_begins_at_the_headroom_that_is_asked_for():
    simulate, asked = in_time_from(0.0)
    solved(simulate, headroom=0.1).require()
    assert {headroom for headroom, _ in asked} == {0.1}


def test_late_with_every_headroom_that_leaves_room_is_said():
    simulate, _ = in_time_from(1.0)
    outcome = solved(simulate, headroom=0.4)
    assert outcome.exit_code == 3
    assert "late in simulation even with a headroom of" in outcome.why[0]
    assert "cameras" in outcome.why[0]
    assert "more was not tried" not in outcome.why[0]


def test_few_evaluations_end_the_search_early():
    simulate, asked = in_time_from(0.17)
    outcome = solved(simulate, evaluations=2)
    assert outcome.exit_code == 3
    assert {headroom for headroom, _ in asked} == {0.0, 0.05}
    assert "more was not tried" in outcome.why[0]


def test_servers_filled_to_the_brim_are_warned_of():
    codes = {notice.code for notice in fluid(*FILES).require().warnings}
    assert "W-queueing" in codes
    roomy = fluid(*FILES, options={"headroom": 0.3}).require()
    assert "W-queueing" not in {notice.code for notice in roomy.warnings}


@pytest.mark.slow
def test_what_simulation_promised_holds_on_other_seeds():
    plan = hp.solve(*FILES, options={"size": "simulated"}).require()
    report = hp.simulate(plan, *FILES, seed=4711)
    assert report.apps["cameras"].percentiles_ms[99].value <= 250.0
