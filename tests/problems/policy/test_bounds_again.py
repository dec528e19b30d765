"""Bounds of policies: every process is written again as it was solved, and no other one proves a claim."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from cases.policy import files
from cases.policy_plans import WISHES, planned

import hetplan as hp
from hetplan.api.solve import verified
from hetplan.planner.bound_verdicts import Word
from hetplan.profiles.plan import Plan
from hetplan.profiles.plan_file import plan_dict
from hetplan.profiles.plan_policy import write_runs
from hetplan.profiles.read_plan import read_plan

Document = dict[str, Any]


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("name", sorted(WISHES))
def test_bounds_of_every_kind_of_plan_are_proved_again(name: str) -> None:
    plan, inputs = planned(name)
    report = verified(plan, inputs)
    assert report.ok, report.violations
    certified = [claim.vouched == "certified" for claim in plan.claims]
    assert [one.word is Word.PROVED for one in report.claims] == certified


def lower(plan: Document, by: float = 1e-3) -> None:
    """A bound, and the value with it, that better policies pass."""
    claim, table = plan["claims"][0], plan["policies"]["a"][0]
    solve = next(one for one in plan["solves"] if one["id"] == claim["solve"])
    for place, field in ((claim, "bound"), (solve, "bound"), (solve, "certified_bound")):
        place[field] = claim["value"] * (1.0 - by)
    for place, field in ((claim, "value"), (solve, "value"), (table, "gain")):
        place[field] *= 1.0 - by


def poorer(plan: Document) -> None:
    """A table that runs the fastest alone, sold as the best, with all that follows from it."""
    (table,) = plan["policies"]["a"]
    slacks = len(table["slack_ms"])
    for n in range(1, table["queue_max"] + 1):
        table["choice"][str(n)] = write_runs(["fast"] * slacks)
        table["batch"][str(n)] = write_runs([str(n)] * slacks)


def without(model: str) -> Callable[[Document], None]:
    """A model less, as if there were none."""

    def forge(plan: Document) -> None:
        poorer(plan)
        for table in plan["policies"]["a"]:
            table["models"] = [name for name in table["models"] if name != model]
        for worker in plan["workers"]:
            gone = [load["id"] for load in worker["loads"] if load["variant"] == model]
            worker["loads"] = [load for load in worker["loads"] if load["variant"] != model]
        plan["actions"] = [action for action in plan["actions"] if action.get("load") not in gone]

    return forge


FORGED: dict[str, Callable[[Document], object]] = {
    "better by a thousandth": lower,
    "better by a millionth": lambda p: lower(p, 1e-6),
    "a poor table": lambda p: (poorer(p), lower(p, 0.05)),
    "no slow model": lambda p: (without("slow")(p), lower(p)),
    "other slacks": lambda p: p["method"]["options"].update(grid="fld{16}"),
    "of other batches": lambda p: p["claims"][0].update(note="over all policies of any batches on 9 slacks"),
    "batches that need not be whole": lambda p: p["policies"]["a"][0].update(batching="variable"),
    "of another objective": lambda p: p["claims"][0].update(about="accuracy_per_decision"),
    "of another table": lambda p: p["claims"][0].update(about="goodput[b on cpu@100qps]"),
    "fewer beyond the table": lambda p: p["method"]["options"].update(overflow="truncate"),
}


@pytest.mark.parametrize("name", FORGED)
def test_forged_bounds_are_not_proved(name: str) -> None:
    sound, inputs = planned("all that wait")
    document = copy.deepcopy(plan_dict(sound))
    FORGED[name](document)
    report = verified(read_plan(document, trust_digest=True), inputs)
    assert not report.ok
    assert Word.PROVED not in {one.word for one in report.claims}, report.claims


def test_the_value_of_a_claim_is_that_of_its_table() -> None:
    """Raised up to the bound with the solve that it names, it would close the gap."""
    plan, inputs = planned("over a range")
    claim = plan.claims[0].model_copy(update={"value": plan.claims[0].value - 0.01, "gap": None})
    solves = tuple(
        one.model_copy(update={"value": claim.value}) if one.id == claim.solve else one for one in plan.solves
    )
    forged: Plan = plan.model_copy(update={"claims": (claim, *plan.claims[1:]), "solves": solves})
    texts = [one.text for one in verified(forged, inputs).violations if one.at == "claims[0]"]
    assert any("claims goodput" in text for text in texts)


@pytest.mark.parametrize(("room", "proved"), [(9.0, True), (12.0, False)])
def test_models_may_be_left_out_where_they_do_not_fit_beside_those_that_are_held(room: float, proved: bool) -> None:
    """A plan for a worker of less memory, verified for one that has room for all."""

    def asked(room: float) -> tuple[Document, Document]:
        profile, slo = files()
        profile["hardware"]["cpu"]["provides"] = {"mem_gib": room}
        for variant in profile["variants"].values():
            variant["runs"][0]["needs"] = {"mem_gib": 4.0}
        return profile, slo

    options = {"sizing": "fluid", "queue_max": 4, "grid": "fld{8}", "batching": "max"}
    plan = hp.solve(*asked(9.0), options=options).require()
    report = verified(plan, hp.load(*asked(room)))
    assert [one.word is Word.PROVED for one in report.claims] == [proved] * len(plan.claims)


@pytest.mark.parametrize("accuracy", [0.0, 0.7, 0.83])
def test_the_fewest_workers_have_the_time_for_what_is_wanted(accuracy: float) -> None:
    """One more is their writer's word."""
    profile, slo = files(workers=(1, 40), rate_qps=400.0, quality={"min": accuracy})
    slo["objective"] = ["min machines"]
    plan = hp.solve(profile, slo, options={"sizing": "fluid", "queue_max": 4, "grid": "fld{8}"}).require()
    (claim,) = (one for one in plan.claims if one.about == "servers")
    assert claim.bound is not None
    for bound, word in ((claim.bound, Word.PROVED), (claim.bound + 1.0, Word.OPEN)):
        forged = plan.model_copy(update={"claims": (claim.model_copy(update={"bound": bound}),)})
        report = verified(forged, hp.load(profile, slo))
        assert [one.word for one in report.claims] == [word]
