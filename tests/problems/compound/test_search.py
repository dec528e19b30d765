"""The first stage: acquisitions and tightening of the specification, processes, searches end to end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import hetplan as hp
from hetplan.api.solve import plan_for
from hetplan.measure.evaluator_profiler import Profiler, Setup, measuring
from hetplan.measure.journal import Journal, measured_document
from hetplan.planner.answer import Answer, Limits, Status
from hetplan.planner.forms.black_box import (
    BlackBox,
    Measured,
    Operator,
    OutOfTime,
    Past,
    Placed,
    Verdict,
    antichain,
    cheapest,
    trimmed,
)
from hetplan.planner.forms.form import certify
from hetplan.planner.request import read_request
from hetplan.planner.terms import Tools
from hetplan.problems.compound.pipeline_query import PipelineQuery, read_pipeline_queries
from hetplan.profiles.plan_file import with_digest
from hetplan.solvers.gaussian_process import LightProcess, normal_below
from hetplan.solvers.search import BlackBoxEngine, Cmbo, CmboCi, RandomPlans, Struct, StructCi
from hetplan_papers.datasets.circinus_generator import APPS, SyntheticQuery, draw

ENGINES = [StructCi(), Struct(), Cmbo(), CmboCi(), RandomPlans()]


def two_operators(limit_s: float = 0.51, **how: object) -> BlackBox:
    """Two operators in a chain, on the one tier there is, of 0.1 and 0.2 s."""
    placed = Placed(np.ones(1), np.array([3.67]), np.zeros((1, 1)), np.zeros((1, 1)))
    measured = Measured(0, 0.9, 0.01, 100, Verdict.PASS, True, (0.1, 0.2), (0.0, 0.0))
    form = BlackBox(
        levels=(1,), operators=(Operator("a", (0,)), Operator("b", (0,), (0,))), placed=placed, target=0.5,
        limit_s=limit_s, measure=lambda c: measured, placements=np.zeros((1, 2), np.int64), **how,
    )  # fmt: skip
    form.observe(0)
    return form


def sought_of(query: SyntheticQuery) -> PipelineQuery:
    """A synthetic query as the planner reads it."""
    from hetplan.problems.compound.request import read_tiers
    from hetplan.problems.faults import Faults
    from hetplan.profiles.load import load_inputs

    inputs = load_inputs(query.profile(), query.slo())
    request = read_request(inputs)
    faults = Faults.of(inputs)
    (sought,) = read_pipeline_queries(inputs, request, read_tiers(inputs.profile, request, faults), faults)
    return sought


def box(name: str, seed: int, **how: object) -> BlackBox:
    """A synthetic query as the planner poses it."""
    from hetplan.problems.compound.options import CompoundOptions

    query = draw(name, seed)
    sought = sought_of(query)
    profiler = Profiler(Setup.of(**sought.setup(CompoundOptions())), query)
    form = sought.box(lambda c: profiler(c, sought.knobs(c)), CompoundOptions())
    return replace(form, **how)  # type: ignore[arg-type]


def test_tightening_has_the_specified_antichain():
    form = two_operators()
    shares, dollars = antichain(form, form.journal[0], 0)
    assert shares.tolist() == [[0.5, 0.75], [1.0, 0.5]]
    assert dollars == pytest.approx([4.5875, 5.505])
    assert form.value(0) == pytest.approx(4.5875)


def test_the_greedy_way_keeps_the_limit_and_is_seldom_far_off():
    for limit_s in (0.3, 0.4, 0.6, 1.0, 3.0):
        form = two_operators(limit_s)
        shares = trimmed(form, form.journal[0], 0)
        best, _ = cheapest(form, form.journal[0], 0)
        assert shares is not None
        assert 0.1 / shares[0] + 0.2 / shares[1] <= limit_s + 1e-9
        assert best <= 3.67 * shares.sum() <= 1.4 * best
    assert trimmed(two_operators(0.29), two_operators().journal[0], 0) is None
    assert cheapest(two_operators(0.29), two_operators().journal[0], 0)[0] == np.inf


def test_a_batched_operator_keeps_its_time():
    form = two_operators()
    batched = replace(form, operators=(form.operators[0], replace(form.operators[1], by_share=False)))
    assert antichain(batched, form.journal[0], 0)[0].tolist() == [[0.5, 0.125]]


def test_the_specified_acquisition():
    accuracy = normal_below(np.array([(0.80 - 0.75) / 0.05, (0.90 - 0.75) / 0.05]))
    in_time = normal_below(np.full(2, (np.log(0.6) - np.log(0.5)) / 0.2))
    assert accuracy[0] == pytest.approx(0.841345, abs=1e-6)
    assert in_time[0] == pytest.approx(0.819012, abs=1e-6)
    assert accuracy * in_time / [30, 60] == pytest.approx([0.0229691, 0.0136318], abs=1e-7)
    assert accuracy * in_time * (7.34 - np.array([4.5875, 6.15])) == pytest.approx([1.89667, 0.973309], abs=1e-5)


def test_rows_added_to_the_factor_agree_with_all_computed_anew():
    rng = np.random.default_rng(0)
    process = LightProcess(rng.integers(0, 4, (300, 5)), width=0.4, jitter=0.01, refit=100)
    for at in rng.choice(300, 20, replace=False):
        process.add(int(at), float(rng.normal()), 0.01)
        mean, sd = process.posterior()
    process._rebuild()
    again_mean, again_sd = process.posterior()
    assert mean == pytest.approx(again_mean, abs=1e-4)
    assert sd == pytest.approx(again_sd, abs=1e-4)


def test_a_process_knows_what_it_saw_and_doubts_the_rest():
    points = np.array([[i, j] for i in range(6) for j in range(6)])
    process = LightProcess(points, jitter=1e-3)
    for at in (0, 7, 14, 21):
        process.add(at, float(points[at].sum()))
    mean, sd = process.posterior()
    assert mean[[0, 7, 14, 21]] == pytest.approx([0, 2, 4, 6], abs=0.1)
    assert sd[0] < 0.2 < sd[35]


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)
def test_every_search_is_sound_repeatable_and_never_asks_twice(engine: BlackBoxEngine):
    answers, asked = [], []
    for _ in range(2):
        form = box("ACG", 2, most=15)
        seen: list[int] = []
        inner = form.measure
        form = replace(form, measure=lambda c, inner=inner, seen=seen: (seen.append(c), inner(c))[1])
        answers.append(engine.solve(form, Limits(seed=4)))
        asked.append(seen)
        assert len(set(seen)) == len(seen)
        assert certify(form, answers[-1]).sound
    assert asked[0] == asked[1]
    assert (answers[0].point, answers[0].value) == (answers[1].point, answers[1].value)


@pytest.mark.slow
@pytest.mark.parametrize("name", APPS)
def test_the_default_search_finds_a_compliant_plan_soon(name: str):
    firsts = []
    for seed in (300, 301, 302, 303, 304):
        query, form = draw(name, seed), box(name, seed, most=12, first_random=3)
        answer = StructCi().solve(form, Limits(seed=seed))
        assert answer.point is not None
        firsts.append(answer.work["to_first"])
        # The form numbers configurations by the names of knobs, the truth in the order in which it draws them.
        configuration, placement = divmod(answer.point, len(form.placements))
        truth = query.configuration(sought_of(query).knobs(configuration))
        assert query.latency_s()[truth, placement] <= query.latency_max_s
    assert np.median(firsts) <= 8


@pytest.mark.slow
def test_limits_end_a_search():
    assert StructCi().solve(box("SR", 0), Limits(work=2)).work["measured"] <= 2
    assert StructCi().solve(box("SR", 0, gpu_s=1.0), Limits()).work["measured"] == 1
    assert StructCi().solve(box("SR", 0), Limits(seconds=0.0)).status is Status.NO_ANSWER
    hard = box("ACG", 0, limit_s=1e-6, most=200)
    answer = StructCi().solve(hard, Limits())
    assert answer.status is Status.INFEASIBLE
    assert len(hard.journal) == len(hard.configurations)


def test_planted_answers_are_found_out():
    form = box("ACG", 0, most=5)
    answer = StructCi().solve(form, Limits())
    unmeasured = next(c for c in range(len(form.configurations)) if c not in form.journal)
    assert certify(form, Answer(Status.FEASIBLE, point=unmeasured * len(form.placements))).faults
    assert certify(form, Answer(Status.INFEASIBLE)).faults
    if answer.point is not None:
        assert certify(form, replace(answer, value=answer.value + 1)).faults


def test_several_at_once_find_plans_too():
    form = box("VT", 300, parallel=4, most=16)
    answer = StructCi().solve(form, Limits())
    assert answer.point is not None
    assert len(form.journal) == 16 or answer.value == 0


def test_what_cannot_be_measured_is_passed_over():
    form = box("ACG", 1, most=20)
    inner = form.measure
    form = replace(form, measure=lambda c: Measured(c, reason="broke") if c % 3 == 0 else inner(c))
    answer = StructCi().solve(form, Limits())
    assert answer.point is not None
    assert all(one.reason == "broke" for one in form.failed)


@pytest.mark.slow
def test_past_queries_vote_where_to_begin():
    past = []
    for seed in (400, 401, 402):
        earlier = box("LVC", seed, most=8)
        StructCi().solve(earlier, Limits(seed=seed))
        past.append(Past(str(seed), tuple(earlier.journal.values())))
    form = box("LVC", 403, most=8, past=tuple(past))
    answer = StructCi().solve(form, Limits())
    assert certify(form, answer).sound
    assert len(form.journal) <= 8


@pytest.mark.slow
def test_old_measurements_are_believed_with_doubt_and_the_running_plan_comes_first():
    before = box("VT", 100, most=15)
    answer = StructCi().solve(before, Limits())
    asked: list[int] = []
    after = box("VT", 100, most=6, old=tuple(before.journal.values()), drift=0.05)
    inner = after.measure
    after = replace(after, measure=lambda c: (asked.append(c), inner(c))[1])
    StructCi().solve(after, Limits(), start=answer.point)
    assert asked[0] == answer.point // len(before.placements)


@pytest.mark.slow
def test_solve_measures_plans_packs_and_the_journal_verifies_it(tmp_path):
    query, path = draw("DVC", 0), tmp_path / "journal.jsonl"
    slo = query.slo(gpus=(4, 4))
    journal = Journal(path)
    measure = measuring(query, journal=journal)
    found = hp.solve(query.profile(), slo, evaluate=measure, options={"max_measurements": 15})
    journal.close()
    assert (found.status, found.exit_code) == ("best-of-measured", 0)
    measured = measured_document(path)
    again = hp.solve(query.profile(), slo, measured)
    assert again.exit_code == 0
    assert again.plan.dispatch == found.plan.dispatch
    assert hp.verify(again.plan, query.profile(), slo, measured).ok
    for spoil in ("share", "placement", "response", "knobs"):
        plan = again.plan
        rule = plan.dispatch["query"]
        if spoil == "share":
            change = {"share": dict.fromkeys(rule.share, 1.0) | {next(iter(rule.share)): 0.3}}
        elif spoil == "placement":
            change = {"placement": {**rule.placement, next(iter(rule.placement)): "mec"}}
        else:
            change = {"knobs": {**rule.knobs, "rate": 99}}
        spoilt = plan.model_copy(update={"dispatch": {"query": rule.model_copy(update=change)}})
        if spoil == "response":
            faster = tuple(
                one.model_copy(update={"value": one.value / 2}) if one.quantity == "response_ms" else one
                for one in plan.promises
            )
            spoilt = plan.model_copy(update={"promises": faster})
        assert not hp.verify(with_digest(spoilt), query.profile(), slo, measured).ok, spoil


@pytest.mark.slow
def test_a_slower_link_is_planned_anew_from_the_same_measurements(tmp_path):
    query, path = draw("DVC", 0), tmp_path / "journal.jsonl"
    journal = Journal(path)
    slo = query.slo()
    first = hp.solve(query.profile(), slo, evaluate=measuring(query, journal=journal))
    journal.close()
    measured = measured_document(path)
    kept = hp.solve(query.profile(), slo, measured, start=first.plan)
    assert kept.plan.dispatch == first.plan.dispatch
    slower = query.slo()
    slower["apps"]["query"]["device"]["links"][1]["bandwidth_mbps"] /= 2
    replanned = hp.solve(query.profile(), slower, measured, start=first.plan)
    assert replanned.exit_code == 0
    before = next(one.value for one in first.plan.promises if one.quantity == "response_ms")
    after = next(one.value for one in replanned.plan.promises if one.quantity == "response_ms")
    (limit,) = slower["apps"]["query"]["latency"].values()
    assert before <= limit
    assert after <= limit


@pytest.mark.longest
def test_nothing_compliant_says_which_target_binds_and_what_would_do():
    query = draw("ACG", 0)
    slo = query.slo()
    slo["apps"]["query"]["latency"] = dict.fromkeys(slo["apps"]["query"]["latency"], 1.0)
    outcome = hp.solve(query.profile(), slo, evaluate=measuring(query), options={"max_measurements": 200})
    assert outcome.exit_code == 3
    assert "latency binds (proved" in outcome.why[0]
    slo = query.slo()
    slo["apps"]["query"]["quality"]["min"] = 0.999
    outcome = hp.solve(query.profile(), slo, evaluate=measuring(query), options={"max_measurements": 10})
    assert "accuracy binds (not found in 10" in outcome.why[0]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda profile, app: profile.pop("links"), "no link joins"),
        (lambda profile, app: app["quality"].update(min=7), "in its metric.s range"),
        (lambda profile, app: app.pop("quality"), "accuracy target"),
        (
            lambda profile, app: profile["pipelines"]["acg"]["nodes"].update(
                {f"n{k}": {"device": "gpu"} for k in range(9)}
            ),
            "20000 are the most",
        ),
        (
            lambda profile, app: profile["hardware"].pop("v100") and profile["offers"].pop("v100-gpu"),
            "no machine type is of",
        ),
        (lambda profile, app: app.update(latency={}), "latency target"),
        (lambda profile, app: app.pop("streams"), "as a stream"),
        (
            lambda profile, app: profile["pipelines"]["acg"]["nodes"]["code"].update(needs={"gpu_mem_gib": 80}),
            "no tier",
        ),
    ],
)
def test_bad_inputs_are_reported(change, why: str):
    query = draw("ACG", 0)
    profile, slo = query.profile(), query.slo()
    slo["apps"]["query"]["device"].pop("links")
    change(profile, slo["apps"]["query"])
    with pytest.raises(hp.InputError, match=why):
        hp.solve(profile, slo, evaluate=measuring(query), formulation="compound")


def test_nobody_to_measure_is_reported():
    query = draw("ACG", 0)
    with pytest.raises(hp.InputError, match="have to be measured"):
        hp.solve(query.profile(), query.slo())


@pytest.mark.slow
def test_memory_counts_beside_the_share():
    query = draw("ACG", 0)
    profile = query.profile()
    for hardware, memory in (("v100", 16), ("a100", 80), ("edge-device", 8)):
        profile["hardware"][hardware]["provides"]["gpu_mem_gib"] = memory
    for node in profile["pipelines"]["acg"]["nodes"].values():
        node["needs"] = {"gpu_mem_gib": 50}
    plan = hp.solve(profile, query.slo(gpus=(4, 4)), evaluate=measuring(query)).require()
    assert {worker.hardware for worker in plan.workers} == {"a100"}
    assert len(plan.workers) == 2


def test_confirmed_plans_are_measured_on():
    query = draw("SR", 5)
    measure = measuring(query)
    outcome = hp.solve(
        query.profile(), query.slo(), evaluate=measure, options={"confirm": True, "max_measurements": 15}
    )
    assert outcome.exit_code == 0


def test_a_search_that_goes_on_from_its_journal_asks_for_nothing_twice(tmp_path):
    query, path = draw("VT", 102), tmp_path / "journal.jsonl"
    asked: list[str] = []

    class Counting:
        def many(self, knobs, begin, count):
            asked.append(repr(sorted(knobs.items())))
            return query.many(knobs, begin, count)

        def __call__(self, *sample):
            raise AssertionError("asked one by one")

    def run(steps: int) -> list[dict]:
        journal = Journal(path)
        measure = measuring(Counting(), journal=journal)
        hp.solve(query.profile(), query.slo(), evaluate=measure, options={"max_measurements": steps})
        journal.close()
        return [plan["knobs"] for plan in measured_document(path)["apps"]["query"]]

    first = run(5)
    before = set(asked)
    asked.clear()
    again = run(8)
    assert again[: len(first)] == first
    assert not before & set(asked)


def test_levels_that_rise_or_fall_have_an_order_and_near_ones_are_alike():
    from hetplan.planner.forms.space import is_ordered

    assert [is_ordered(levels) for levels in ([1, 2, 4], [4, 2, 1], [1, 3, 2], ["n", "s"], [True, False], [1])] == [
        True, True, False, False, False, False,
    ]  # fmt: skip
    points = np.array([[i] for i in range(9)])
    by_order, by_name = LightProcess(points, (True,), width=2.0), LightProcess(points, width=2.0)
    for process in (by_order, by_name):
        process.add(0, 1.0)
        process.add(8, -1.0)
    mean = by_order.posterior()[0]
    assert mean[1] > mean[3] > mean[5] > mean[7]
    assert np.ptp(by_name.posterior()[0][1:8]) < 1e-6


def test_what_rises_along_an_order_is_expected_to_go_on_rising():
    points = np.array([[i] for i in range(9)])
    by_order, by_name = LightProcess(points, (True,), width=2.0), LightProcess(points, width=2.0)
    for process in (by_order, by_name):
        for at in (0, 2, 4):
            process.add(at, float(at))
    assert by_order.posterior()[0][8] > 3.0
    assert by_name.posterior()[0][8] == pytest.approx(2.0, abs=0.3), "without an order, back to the mean"


def test_the_default_search_begins_in_the_middle():
    asked: list[int] = []
    form = box("ACG", 2, most=1)
    inner = form.measure
    form = replace(form, measure=lambda c: (asked.append(c), inner(c))[1])
    StructCi().solve(form, Limits())
    assert form.configurations[asked[0]].tolist() in ([4, 5], [4, 6], [5, 5], [5, 6])


@pytest.mark.slow
def test_a_plan_over_a_link_that_is_not_there_fails_its_verification():
    query, journal = draw("DVC", 0), Journal()
    measure = measuring(query, journal=journal)
    hp.solve(query.profile(), query.slo(), evaluate=measure, options={"max_measurements": 15})
    measured, slo = journal.document(), query.slo()
    plan = hp.solve(query.profile(), slo, measured).require()
    slo["apps"]["query"]["device"].pop("links")
    profile = query.profile()
    profile["links"] = []
    report = hp.verify(plan, profile, slo, measured)
    assert "link" in {one.code for one in report.violations}


@pytest.mark.slow
@pytest.mark.parametrize("objective", [None, ["min cost"]])
@pytest.mark.parametrize("on_gpu", [(), ("track",)])
def test_operators_on_processors_that_need_nothing_are_packed_and_not_paid_for(objective, on_gpu):
    query, journal = draw("VT", 100), Journal()
    profile, slo = query.profile(), query.slo()
    (pipeline,) = profile["pipelines"].values()
    for name, node in pipeline["nodes"].items():
        if name not in on_gpu:
            node["device"] = "cpu"
            node.pop("share_law", None)
    if objective is not None:
        slo["objective"] = objective
    searched = hp.solve(profile, slo, evaluate=measuring(query, journal=journal), options={"max_measurements": 8})
    assert searched.exit_code == 0, searched.why
    measured = journal.document()
    plan = hp.solve(profile, slo, measured).require()
    assert any(
        load.share is None for worker in plan.workers for load in worker.loads if worker.hardware != "edge-device"
    )
    shares = [load.share.gpu for worker in plan.workers for load in worker.loads if load.share is not None]
    assert len(shares) == len(on_gpu)
    price = max(float(offer["price_per_hour"]) for offer in profile["offers"].values())
    (cost,) = (one.value for one in plan.promises if one.quantity == "cost_per_hour")
    assert cost == pytest.approx(price * sum(shares)), "shares are paid for, and processors have none"
    assert hp.verify(plan, profile, slo, measured).ok
    played = hp.simulate(plan, profile, slo, measured)
    assert (0.0 if played.cost_per_hour is None else played.cost_per_hour.value) == pytest.approx(cost)


@pytest.mark.parametrize(
    "change",
    [{"mean": 7.5}, {"mean": -7.5}, {"mean": float("nan")}, {"se": -1.0}, {"samples": 0}, {"input_bytes": -1.0}],
)
def test_measurements_that_cannot_be_are_refused(change):
    query, journal = draw("VT", 100), Journal()
    measure = measuring(query, journal=journal)
    hp.solve(query.profile(), query.slo(), evaluate=measure, options={"max_measurements": 2})
    document = journal.document()
    document["apps"]["query"][0].update(change)
    with pytest.raises(hp.InputError):
        hp.solve(query.profile(), query.slo(), document)
    first = next(iter(document["apps"]["query"][0]["seconds"]))
    document["apps"]["query"][0].update(mean=0.5, se=0.1, samples=50, input_bytes=0.0)
    document["apps"]["query"][0]["seconds"][first] = -0.1
    with pytest.raises(hp.InputError, match="operator"):
        hp.solve(query.profile(), query.slo(), document)


@pytest.mark.slow
def test_a_history_of_something_else_is_reported():
    query = draw("VT", 100)
    past = {"apps": {"other": [{"knobs": {"size": 1}, "verdict": "pass"}]}}
    tools = Tools(evaluate=measuring(query), extra={"history": lambda: past})
    outcome = plan_for(hp.load(query.profile(), query.slo()), tools=tools, options={"max_measurements": 8})
    assert "W-history" in [one.code for one in outcome.plan.warnings]


def test_confirming_measures_nothing_that_is_too_slow():
    query, asked = draw("ACG", 0), []
    slo = query.slo()
    slo["apps"]["query"]["latency"] = dict.fromkeys(slo["apps"]["query"]["latency"], 1.0)
    begin = measuring(query)

    def watched(**setup):
        measure = begin(**setup)

        def one(configuration, knobs, *, confirm=False):
            asked.append(confirm)
            return measure(configuration, knobs, confirm=confirm)

        return one

    outcome = hp.solve(query.profile(), slo, evaluate=watched, options={"max_measurements": 12, "confirm": True})
    assert outcome.plan is None
    assert asked
    assert not any(asked)


@pytest.mark.slow
def test_a_plan_that_time_left_unconfirmed_says_so():
    query = draw("VT", 100)
    begin = measuring(query)

    def in_a_hurry(**setup: Any) -> Any:
        measure = begin(**setup)

        def ask(configuration: int, knobs: Any, *, confirm: bool = False) -> Measured:
            if confirm:
                raise OutOfTime("no time is left")
            return measure(configuration, knobs)

        return ask

    outcome = hp.solve(
        query.profile(), query.slo(), evaluate=in_a_hurry, options={"max_measurements": 10, "confirm": True}
    )
    assert outcome.exit_code == 0
    assert "W-unconfirmed" in [one.code for one in outcome.require().warnings]
