"""The way from a state to a plan: what serves when, and what becomes of the queries meanwhile."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hetplan.planner.transition import transition
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Action, Plan
from hetplan.profiles.state import State
from hetplan.profiles.workers import Worker
from hetplan.simulator.plan_transition import scenes_of
from hetplan.simulator.simulate import simulate


def from_state(case: tuple[Plan, Inputs], workers: tuple[Worker, ...], **changes: Any) -> tuple[Plan, Inputs]:
    """The plan with the actions that lead to it from these workers."""
    plan, inputs = case
    actions = transition(workers, plan.workers)
    inputs = replace(inputs, state=State(workers=workers))
    return plan.model_copy(update={"actions": actions, **changes}), inputs


def loading(inputs: Inputs, load_s: float) -> Inputs:
    """The same with so long a load on every run."""
    profile = inputs.profile.model_dump(mode="json", by_alias=True, exclude_unset=True)
    for run in profile["variants"]["m"]["runs"]:
        run["load_s"] = load_s
    return replace(inputs, profile=type(inputs.profile).model_validate(profile))


def counts(workers: tuple[Worker, ...]) -> dict[str, int]:
    return {worker.id: worker.count for worker in workers}


def test_machines_come_up_after_boot_and_load_and_go_at_once(plans: Any) -> None:
    """One base machine more (3 s to boot, its load 2 s), three new auxiliary ones (no boot), one old group away."""
    plan, inputs = plans.pool((2, 3))
    base = plan.workers[0].model_copy(update={"count": 1})
    old = plan.workers[1].model_copy(
        update={"id": "w9", "loads": (plan.workers[1].loads[0].model_copy(update={"id": "w9.m"}),)}
    )
    plan, inputs = from_state((plan, loading(inputs, 2.0)), (base, old))
    scenes = [(scene.at_s, counts(scene.workers)) for scene in scenes_of(plan, inputs)]
    assert scenes == [
        (0.0, {"w1": 1, "w9": 3}),
        # Machines of the new group are there at once, and serve when they have loaded.
        (0.0, {"w1": 1, "w9": 3}),
        (2.0, {"w1": 1, "w9": 3, "w2": 3}),
        # The old ones go when all that is new is up: here the base machine is the last.
        (5.0, {"w1": 2, "w2": 3}),
    ]


def test_queries_on_the_way_by_a_plain_loop(plans: Any) -> None:
    """Nothing runs; a machine is up after 3 s and works off what waits, one by one."""
    plan, inputs = from_state(plans.pool((1, 0), rate=10.0, max_ms=1000.0), ())
    report = simulate(plan, inputs, seeds=1, arrivals="deterministic", noise="mean", duration_s=20.0)
    way = report.transition
    assert way is not None
    assert way.seconds == 3.0
    assert [text for _, text in way.steps] == ["start 1 w1, load w1.m"]
    arrivals = np.arange(0.1, 3.0 - 1e-9, 0.1)
    # However large the queries are: who came first waits longest, and the last ones are in time.
    slowest, fastest = (3.0 + size * np.arange(1, len(arrivals) + 1) for size in (0.04, 0.01))
    least, most = (float((ends - arrivals <= 1.0).mean()) for ends in (slowest, fastest))
    assert 0.0 <= least < way.apps["rank"].in_time.value <= most < 0.5
    assert way.apps["rank"].dropped.value == 0.0
    assert way.apps["rank"].settled_s is not None
    assert ("W-transition", "apps.rank") in [(code, at) for code, at, _ in report.warnings]


@pytest.mark.parametrize("rule", ["matching/1", "fcfs/1", "earliest/1", "shares/1"])
def test_what_runs_already_serves_while_the_rest_comes(plans: Any, rule: str) -> None:
    """Half of the machines carry the load until the others are there: nobody is late, whatever the rule."""
    needs = {"matching/1": {"slo_ms": 100.0, "weight": {"base": 1.0, "aux": 0.2}}, "earliest/1": {"slo_ms": 100.0}}
    plan, inputs = plans.pool((4, 2), rate=30.0, dispatch={"rule": rule, **needs.get(rule, {})})
    if rule == "shares/1":
        routing = {"rank": [{"to": {"w1.m": 1.0}, "when": {"batch": 2}}, {"to": {"w1.m": 0.6, "w2.m": 0.4}}]}
        plan = Plan.model_validate(plan.model_dump(mode="json", by_alias=True) | {"routing": routing})
    plan, inputs = from_state((plan, inputs), (plan.workers[0].model_copy(update={"count": 3}),))
    report = simulate(plan, inputs, seeds=2, duration_s=60.0)
    assert report.transition is not None
    found = report.transition.apps["rank"]
    assert found.in_time.value > 0.97
    assert found.settled_s == 0.0


def test_too_little_until_the_new_machine_is_up(plans: Any) -> None:
    """65 queries/s of 17.5 ms: one machine is overloaded for three seconds, two work the queue off."""
    plan, inputs = plans.pool((2, 0), rate=65.0)
    plan, inputs = from_state((plan, inputs), (plan.workers[0].model_copy(update={"count": 1}),))
    report = simulate(plan, inputs, seeds=4)
    assert report.transition is not None
    found = report.transition.apps["rank"]
    assert found.in_time.value < 0.8
    assert found.settled_s is not None
    assert 0.0 < found.settled_s < 15.0
    # What is judged is the plan itself, which keeps its target.
    assert report.ok
    again = simulate(plan, inputs, seeds=4, threads=1)
    assert json.dumps(again.as_dict()) == json.dumps(report.as_dict())
    assert "transition" in report.as_dict()


def test_routes_hold_once_all_that_they_name_is_up(plans: Any) -> None:
    """By the plan's routes everything goes to w2, which is not there yet: w1 serves until it is, and then stops."""
    plan, inputs = plans.pool((2, 2), rate=20.0, max_ms=400.0, dispatch={"rule": "shares/1"})
    old, new = plan.workers
    routing = {"rank": [{"to": {"w2.m": 1.0}}]}
    plan = Plan.model_validate(
        plan.model_dump(mode="json", by_alias=True) | {"routing": routing, "workers": [new.model_dump(mode="json")]}
    )
    plan, inputs = from_state((plan, loading(inputs, 4.0)), (old,))
    assert [counts(scene.workers) for scene in scenes_of(plan, inputs)][-2:] == [{"w1": 2}, {"w2": 2}]
    way = simulate(plan, inputs, seeds=2).transition
    assert way is not None
    assert way.seconds == 4.0
    assert way.apps["rank"].in_time.value > 0.95


def test_only_the_plans_own_state_is_a_beginning(plans: Any) -> None:
    plan, inputs = from_state(plans.pool((2, 0)), ())
    other = replace(inputs, digests={**inputs.digests, "state": "sha256:" + "9" * 64})
    report = simulate(plan, other, seeds=1, duration_s=20.0)
    assert report.transition is None
    assert report.as_dict()["transition"] is None
    assert ("W-other-inputs", "state") in [(code, at) for code, at, _ in report.warnings]
    still = simulate(plan.model_copy(update={"actions": ()}), inputs, seeds=1, duration_s=20.0)
    assert still.transition is None


def test_upgrades_in_place_take_their_time(plans: Any) -> None:
    """An action of another kind: the load comes on a machine that is up, and the old one leaves after it."""
    plan, inputs = plans.pool((1, 0), rate=10.0, max_ms=400.0)
    (planned,) = plan.workers
    old = planned.model_copy(update={"loads": (planned.loads[0].model_copy(update={"id": "w1.old"}),)})
    actions = (Action(id=1, do="upgrade", load="w1.m"), Action(id=2, do="unload", load="w1.old", after=(1,)))
    plan = plan.model_copy(update={"actions": actions, "dispatch": {}})
    inputs = replace(loading(inputs, 2.5), state=State(workers=(old,)))
    scenes = scenes_of(plan, inputs)
    assert [(scene.at_s, [load.id for load in scene.workers[0].loads]) for scene in scenes] == [
        (0.0, ["w1.old"]),
        (2.5, ["w1.m"]),
    ]
    way = simulate(plan, inputs, seeds=2).transition
    assert way is not None
    assert way.seconds == 2.5
    assert way.apps["rank"].in_time.value == 1.0
