"""A refusal of a rule lists ways out that are ways out."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from cases.rendered import random_case

from hetplan.executor.render import TARGETS, render
from hetplan.executor.render.groups import groups
from hetplan.executor.render.names import CannotRender
from hetplan.executor.render.rules import RULES, choose
from hetplan.executor.render.site import read_site
from hetplan.profiles.plan_dispatch_rules import EarliestDispatch, RoundRobinDispatch
from hetplan.profiles.plan_sections import MatchingDispatch, Route

MATCHING = MatchingDispatch(slo_ms=400.0)
RULE = EarliestDispatch(slo_ms=400.0)


def chosen(target: str, plan: Any, inputs: Any, written: Any, rule: str | None = None) -> Any:
    return choose(target, plan, groups(plan, inputs, read_site(written)), rule)


@pytest.mark.parametrize("target", sorted(TARGETS))
def test_rules_that_a_refusal_lists_are_taken_and_others_are_not(target: str) -> None:
    refused = 0
    for seed in range(8):
        plan, inputs, written = random_case(seed, ids=("shop",), text=target == "dynamo", periods=bool(seed % 2))
        plan = plan.model_copy(update={"dispatch": {"shop": RULE}})
        fleet = groups(plan, inputs, read_site(written))
        fleet = replace(fleet, apps={"shop": replace(fleet.apps["shop"], moves=bool(seed % 2))})
        try:
            choose(target, plan, fleet)
        except CannotRender as error:
            listed = set(re.findall(r"--set rule=([a-z-]+)", str(error)))
        else:
            continue
        refused += 1
        for rule in RULES:
            try:
                choose(target, plan, fleet, rule)
                assert rule in listed
            except CannotRender:
                assert rule not in listed
    assert refused


@pytest.mark.parametrize("target", sorted(TARGETS))
def test_of_one_replica_a_rule_is_kept_and_a_matching_which_may_turn_queries_round_is_simulated(target: str) -> None:
    text = target in ("llm-d", "dynamo")
    plan, inputs, written = random_case(4, ids=("shop",), text=text)
    (worker,) = [one.model_copy(update={"count": 1}) for one in plan.workers[:1]]
    load = worker.loads[0].model_copy(update={"instances": 1})
    plan = plan.model_copy(
        update={"workers": (worker.model_copy(update={"loads": (load,)}),), "dispatch": {"shop": RULE},
                "routing": {"shop": (Route(to={load.id: 1.0}),)}}
    )  # fmt: skip
    choice = chosen(target, plan, inputs, written)
    again = chosen(target, plan.model_copy(update={"dispatch": {"shop": MATCHING}}), inputs, written)
    assert again.changed == ("shop",)
    assert (choice.changed, choice.plan, choice.fleet.rules) == ((), plan, {"shop": RULE.rule})
    assert render(target, choice.fleet, read_site(written))


def test_a_router_of_ones_own_has_no_other_beside_it() -> None:
    for text in (False, True):
        plan, inputs, written = random_case(4, ids=("shop",), text=text)
        made = render("kserve", chosen("kserve", plan, inputs, written, "own").fleet, read_site(written))
        assert "HTTPRoute" not in made["kserve.yaml"]
        assert "router:" not in made["kserve.yaml"]
    for target in ("haproxy", "llm-d", "dynamo"):
        plan, inputs, written = random_case(4, ids=("shop",), text=target != "haproxy")
        plan = plan.model_copy(update={"dispatch": {"shop": RoundRobinDispatch()}})
        with pytest.raises(CannotRender, match="is the router here"):
            chosen(target, plan, inputs, written, "own")
