"""From one plan to the next: moves counted and limited, a safe way, routing refreshed on servers that stay."""

import pytest
from cases.pipelines import fluid

import hetplan as hp
from hetplan.errors import InputError
from hetplan_papers.datasets.loki_by_hand import depth_3, tiny


def state_of(plan):
    return {
        "format": "hetplan/state/1.0",
        "workers": [w.model_dump(mode="json", exclude_none=True) for w in plan.workers],
    }


def promised(plan, quantity):
    return next(promise.value for promise in plan.promises if promise.quantity == quantity)


def test_a_plan_for_the_running_state_moves_nothing():
    first = fluid(*tiny(0.2, 60)).plan
    again = fluid(*tiny(0.2, 60), state_of(first))
    assert again.reason == "verified", again.violations
    assert again.plan.actions == ()
    assert promised(again.plan, "changes") == 0


def test_moves_are_counted_and_the_way_is_safe():
    first = fluid(*tiny(0.2, 20)).plan
    second = fluid(*tiny(0.2, 100), state_of(first))
    assert second.reason == "verified", second.violations
    old, new = ({}, {})
    for plan, placed in ((first, old), (second.plan, new)):
        for worker in plan.workers:
            variant = worker.loads[0].variant
            placed[variant] = placed.get(variant, 0) + worker.count
    moves = sum(max(0, count - old.get(variant, 0)) for variant, count in new.items())
    assert promised(second.plan, "changes") == moves > 0


def test_moves_are_limited():
    first = fluid(*tiny(0.2, 50)).plan
    profile, slo = tiny(0.2, 60)
    free = fluid(profile, slo, state_of(first)).plan
    assert promised(free, "changes") >= 1
    slo["limits"]["changes"] = 0
    stuck = fluid(profile, slo, state_of(first))
    assert stuck.plan is None  # three of a1 carry 60, but two of b2 do not carry twice that
    assert "changes: 0 are too few" in stuck.why
    assert [one.to for one in stuck.repairs if one.field == "slo.limits.changes"] == [1]
    slo["limits"]["changes"] = 1
    moved = fluid(profile, slo, state_of(first))
    assert moved.reason == "verified", moved.violations
    assert promised(moved.plan, "changes") <= 1


def test_few_moves_can_be_a_goal():
    first = fluid(*tiny(0.2, 20)).plan
    profile, slo = tiny(0.2, 25)
    slo["objective"] = ["max quality", "min changes", "min machines"]
    outcome = fluid(profile, slo, state_of(first))
    assert outcome.reason == "verified", outcome.violations
    assert [claim.about for claim in outcome.plan.claims] == ["quality", "changes", "servers"]


@pytest.mark.parametrize("demand", [110, 105, 80])
def test_routing_is_refreshed_with_the_servers_fixed(demand):
    first = fluid(*depth_3(110)).plan
    again = fluid(*depth_3(demand), formulation="pipeline-routes", start=first)
    assert again.reason == "verified", again.violations
    placed = [sorted((w.loads[0].variant, w.count) for w in plan.workers) for plan in (first, again.plan)]
    assert placed[0] == placed[1]
    assert promised(again.plan, "quality") >= promised(first, "quality") - 1e-9


def test_beyond_their_capacity_the_rest_is_said_to_be_unserved():
    first = fluid(*depth_3(110)).plan
    again = fluid(*depth_3(400), formulation="pipeline-routes", start=first)
    assert again.reason == "verified", again.violations
    assert promised(again.plan, "rate_qps") + again.plan.unserved[0].rate_qps == pytest.approx(400)


def test_rerouting_needs_a_plan():
    with pytest.raises(InputError, match="previous plan"):
        fluid(*depth_3(100), formulation="pipeline-routes")


@pytest.mark.slow
def test_through_the_planner():
    profile, slo = depth_3(110)
    first = hp.Planner(profile, slo).plan().plan
    again = hp.Planner(profile, slo, formulation="pipeline-routes").plan({"x": 100}, start=first)
    assert promised(again.plan, "rate_qps") == 100


def warned(outcome):
    return [notice.text for notice in outcome.plan.warnings if notice.code == "W-routing"]


def test_shares_per_step_only_where_they_keep_the_plan():
    outcome = fluid(*depth_3(150), options={"routing": "node"})
    assert outcome.reason == "verified"
    assert "0.444444" in warned(outcome)[0]
    easy = fluid(*tiny(0.2, 50), options={"routing": "node"})
    assert warned(easy) == []
    assert all(route.prefix == () for route in easy.plan.routing["x"])


def test_most_accurate_first_says_what_it_would_lose():
    outcome = fluid(*depth_3(150), options={"routing": "most-accurate-first"})
    assert outcome.reason == "verified"
    assert "0.444444" in warned(outcome)[0]
    easy = fluid(*tiny(0.2, 50), options={"routing": "most-accurate-first"})
    assert easy.reason == "verified"
    assert easy.plan.requires == ("most-accurate-first/1",)


def test_a_plan_reads_back():
    from hetplan.profiles.plan_file import plan_dict
    from hetplan.profiles.read_plan import read_plan

    plan = fluid(*tiny(0.2, 60)).plan
    assert read_plan(plan_dict(plan)) == plan
