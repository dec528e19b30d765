"""The search for room ends where less than enough has no plan, and finds what whole servers leave room for."""

from __future__ import annotations

import threading

import pytest
from cases.pipelines import simulator_saying

import hetplan as hp
from benchmarks.kept_pipelines import fair, pipeline
from hetplan.api.solve import plan_for
from hetplan.planner.answer import Limits
from hetplan.planner.contract import Event, Tools
from hetplan.profiles.load import load_inputs

MOST = 1000
"""Events of such a solve: 160."""


@pytest.mark.slow
@pytest.mark.parametrize("rate", [324.015, 300.0])
def test_a_pipeline_that_has_a_plan_with_more_room_and_none_with_less_is_answered(rate: float) -> None:
    profile, slo = pipeline(256)
    slo["apps"]["x"]["rate_qps"] = rate
    ends, seen = threading.Event(), list[str]()

    def note(event: Event) -> None:
        seen.append(event.what)
        if len(seen) > MOST:
            ends.set()

    outcome = hp.solve(profile, slo, on_event=note, cancel=ends)
    assert not ends.is_set(), "it asks for ever"
    assert outcome.exit_code == 0
    assert "simulated" in seen


def test_a_pipeline_that_has_no_plan_with_the_least_room_is_answered() -> None:
    ends, seen = threading.Event(), list[str]()

    def note(event: Event) -> None:
        seen.append(event.what)
        if len(seen) > MOST:
            ends.set()

    never = Tools(simulate=simulator_saying(lambda _: 0.05))
    outcome = plan_for(
        load_inputs(*fair(208)), options={"slo_divisor": 1.8}, on_event=note, limits=Limits(cancel=ends),
        tools=never, try_repairs=False,
    )  # fmt: skip
    assert not ends.is_set(), "it asks for ever"
    assert outcome.exit_code == 3


@pytest.mark.slow
def test_the_most_room_that_there_is_a_plan_for_is_looked_for() -> None:
    """Three servers for two steps: there is a plan with .73 servers free, none with .98, and .58 is too little here."""
    some = Tools(simulate=simulator_saying(lambda plan: 0.005 if plan.method.options["spare"] > 0.6 else 0.05))
    plan = plan_for(hp.load(*pipeline(216)), options={"slo_divisor": 1.4}, tools=some).require()
    assert 0.6 < plan.method.options["spare"] < 0.98


@pytest.mark.slow
def test_a_share_of_capacity_is_tried_beside_many_spare_servers() -> None:
    """With 2.8 servers free in each group it is .886."""
    plan = hp.solve(*pipeline(206), options={"slo_divisor": 1.8}).require()
    assert next(one.value for one in plan.promises if one.quantity == "quality") > 0.91
