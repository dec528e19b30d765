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
from hetplan.executor.render.rules import RULES, choose, elsewhere, refused
from hetplan.executor.site import read_site
from hetplan.profiles.plan_dispatch_rules import EarliestDispatch, RoundRobinDispatch
from hetplan.profiles.plan_sections import MatchingDispatch, Route

CLUSTERS = ("kubernetes", "kserve", "llm-d", "dynamo", "ray-serve", "skyserve")
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


@pytest.mark.parametrize(
    "odd",
    [
        {}, {"machines_per_worker": 2}, {"role": "prefill"}, {"apps": ("shop", "more")}, {"apps": ()},
        {"model": "other"}, {"machines_per_worker": 2, "apps": ("shop", "more")},
    ],
)  # fmt: skip
@pytest.mark.parametrize("text", [False, True])
def test_a_refusal_of_a_group_names_the_targets_that_take_the_plan_and_no_others(text: bool, odd: Any) -> None:
    plan, inputs, written = random_case(4, ids=("shop", "more"), text=text)
    fleet = groups(plan, inputs, read_site(written))
    first, *others = fleet.groups
    fleet = replace(fleet, groups=(replace(first, **odd), *others))
    listed = set(re.findall(r"[a-z-]+", elsewhere(fleet))) & set(CLUSTERS)
    taking = {target for target in CLUSTERS if not refused(target, fleet)}
    assert listed <= taking
    if odd == {"machines_per_worker": 2, "apps": ("shop", "more")} and not text:
        assert "plan again" in elsewhere(fleet)
    if not odd:
        assert {"kubernetes", "kserve", "ray-serve", "skyserve"} <= listed
        assert ("llm-d" in listed) == text
    for target in CLUSTERS:
        for fault in refused(target, fleet):
            assert target not in re.findall(r"[a-z-]+", fault.remedy)
            assert " or " not in fault.why, "one cause in one message"
            if target in ("llm-d", "dynamo") and not text and not odd:
                assert fault.why.endswith("makes no text")
