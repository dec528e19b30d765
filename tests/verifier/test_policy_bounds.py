"""Bounds of policies are worked out anew from the files; what is claimed beyond them, or of another process, is not."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cases.policy import files, g1, random_process, solve
from cases.policy_plans import WISHES, planned

import hetplan as hp
from hetplan.planner.forms.queue_process import Batching, Empty, Late, Overflow, PerWhat, QueueProcess, Reward
from hetplan.profiles.plan import Plan
from hetplan.profiles.plan_file import plan_dict
from hetplan.profiles.plan_policy import write_runs
from hetplan.verifier.check import verify_plan
from hetplan.verifier.claims_again import Word
from hetplan.verifier.policy import check
from hetplan.verifier.policy_bounds import Process
from hetplan.verifier.policy_chain import Chain

Document = dict[str, Any]


def process_of(form: QueueProcess, model: np.ndarray, batch: np.ndarray) -> Process:
    rates = form.stage_rates[form.rates_by_queue]
    idle = form.empty is Empty.PAPER
    chain = Chain(form.latency_s, form.grid_s, form.stages, rates, model, batch, form.over_batch, idle)
    return Process(
        chain,
        form.accuracy,
        variable=form.batching is Batching.VARIABLE,
        drops=form.late is Late.DROP,
        per_query=form.objective is PerWhat.PER_QUERY,
        by_share=form.reward is Reward.B_OVER_N,
    )


KINDS: tuple[dict[str, Any], ...] = (
    {},
    {"objective": PerWhat.PER_DECISION},
    {"batching": Batching.VARIABLE},
    {"late": Late.DROP},
    {"late": Late.DROP, "batching": Batching.VARIABLE, "slacks": 30},
    {"overflow": Overflow.TRUNCATE},
    {"empty": Empty.PAPER},
    {"empty": Empty.PAPER, "objective": PerWhat.PER_DECISION},
    {"objective": PerWhat.PER_DECISION, "reward": Reward.B_OVER_N, "batching": Batching.VARIABLE},
    {"stages": 1, "rates": 2, "rate_of": np.array([0, 0, 0, 1, 1, 1]), "batching": Batching.VARIABLE},
)


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("how", KINDS, ids=str)
def test_no_policy_is_better_than_the_bound_and_the_best_attains_it(how: dict[str, Any]) -> None:
    """From the best table, and from a poor one; every action of the form is one here, and no other is."""
    for seed in (1, 2, 3):
        form = random_process(seed, **how)
        answer = solve(form)
        first = form.policy(form.actions.first[:-1])
        for table in (answer.point, first):
            process = process_of(form, table.model, table.batch)
            bound = process.bound(answer.value, answer.value)
            assert bound == pytest.approx(answer.value, abs=1e-8)
            assert bound >= answer.value - 1e-11
        ours = {
            (n, int(j), int(m), b)
            for n in range(1, form.queue + 1)
            for b, models, slacks in process.actions(n)
            for m, j in zip(models, slacks, strict=True)
        }
        theirs = form.actions
        listed = zip(theirs.waiting, theirs.slack, theirs.model, theirs.batch, strict=True)
        assert ours == {tuple(int(x) for x in one) for one in listed}


def test_a_value_that_no_policy_has_is_bounded_from_where_it_is() -> None:
    """Claimed too low, the bound is still no less than what the best policy earns."""
    form = random_process(4)
    answer = solve(form)
    process = process_of(form, answer.point.model, answer.point.batch)
    for value in (0.5 * answer.value, answer.value - 1e-3):
        assert process.bound(value, value) >= answer.value - 1e-11


@pytest.mark.parametrize("accuracy", [0.88, 0.9])
def test_by_hand_all_tables_of_the_smallest_process(accuracy: float) -> None:
    """One waiting, three slacks, two models: every table is evaluated by powers of its own matrix."""
    form = g1(accuracy)
    rows = np.array([[0.0, 0.346574, 0.5, 0.153426], [0.173287, 0.173287, 0.25, 0.403426]])
    late = np.array([0.173287, 0.173287, 0.25, 0.403426])
    worth = []
    for b_at_full in (0, 1):
        matrix = np.vstack([rows[0], rows[0], rows[b_at_full], late])
        mass = np.linalg.matrix_power(matrix / matrix.sum(axis=1, keepdims=True), 4000)[0]
        accurate = mass @ np.array([0.0, 0.5, (0.5, accuracy)[b_at_full], 0.0])
        worth.append(accurate / (mass @ np.array([1.0, 1.0, 1.0, 2.0])))
    process = process_of(form, np.zeros((1, 3), np.int64), np.ones((1, 3), np.int64))
    assert process.bound(max(worth), max(worth)) == pytest.approx(max(worth), abs=1e-5)


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("name", sorted(WISHES))
def test_bounds_of_every_kind_of_plan_are_proved_again(name: str) -> None:
    plan, inputs = planned(name)
    report = verify_plan(plan, inputs, check)
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
    report = verify_plan(hp.read_plan(document, trust_digest=True), inputs, check)
    assert [one.word for one in report.claims] == [Word.OPEN], report.claims
    assert "proof" in {one.code for one in report.violations}


def test_the_value_of_a_claim_is_that_of_its_table() -> None:
    """Raised up to the bound with the solve that it names, it would close the gap."""
    plan, inputs = planned("over a range")
    claim = plan.claims[0].model_copy(update={"value": plan.claims[0].value - 0.01, "gap": None})
    solves = tuple(
        one.model_copy(update={"value": claim.value}) if one.id == claim.solve else one for one in plan.solves
    )
    forged: Plan = plan.model_copy(update={"claims": (claim, *plan.claims[1:]), "solves": solves})
    texts = [one.text for one in verify_plan(forged, inputs, check).violations if one.at == "claims[0]"]
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

    options = {"size": "planned", "queue_max": 4, "grid": "fld{8}", "batching": "max"}
    plan = hp.solve(*asked(9.0), options=options).require()
    report = verify_plan(plan, hp.load_inputs(*asked(room)), check)
    assert [one.word is Word.PROVED for one in report.claims] == [proved] * len(plan.claims)


@pytest.mark.parametrize("accuracy", [0.0, 0.7, 0.83])
def test_the_fewest_workers_have_the_time_for_what_is_wanted(accuracy: float) -> None:
    """One more is their writer's word."""
    profile, slo = files(workers=(1, 40), rate_qps=400.0, quality={"min": accuracy})
    slo["objective"] = [{"min": "servers"}]
    plan = hp.solve(profile, slo, options={"size": "planned", "queue_max": 4, "grid": "fld{8}"}).require()
    (claim,) = (one for one in plan.claims if one.about == "servers")
    assert claim.bound is not None
    for bound, word in ((claim.bound, Word.PROVED), (claim.bound + 1.0, Word.OPEN)):
        forged = plan.model_copy(update={"claims": (claim.model_copy(update={"bound": bound}),)})
        report = verify_plan(forged, hp.load_inputs(profile, slo), check)
        assert [one.word for one in report.claims] == [word]
