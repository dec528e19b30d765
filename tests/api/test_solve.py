"""`solve` and `Planner` as other schedulers use them: parse once, plan often, from many threads, in silence."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

import hetplan as hp
from hetplan.api.solve import choose, options_of, pose
from hetplan.planner.status import Found
from hetplan.profiles.plan import Notice, Plan
from hetplan.profiles.plan_file import plan_bytes, with_digest
from hetplan.registry import formulation, problem

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "pool"
PROFILE, SLO = EXAMPLE / "profile.json", EXAMPLE / "slo.json"
PLANNED = {"sizing": "fluid"}
"""Without simulation: what the door does is the same."""


@pytest.fixture(scope="module")
def slo() -> dict:
    return json.loads(SLO.read_text())


def with_rate(slo: dict, rate: float | str) -> dict:
    changed = json.loads(json.dumps(slo))
    changed["objective"] = ["min cost"]
    del changed["limits"]["cost_per_hour"]
    (app,) = changed["apps"].values()
    app["rate_qps"] = rate
    return changed


def test_a_planner_plans_again_and_again_and_rates_replace_those_of_the_files(slo: dict) -> None:
    planner = hp.Planner(PROFILE, with_rate(slo, 1.0), options=PLANNED)
    (name,) = slo["apps"]
    costs = []
    for rate in (50.0, 200.0, 400.0):
        plan = planner.plan({name: rate}).require()
        claim = next(claim for claim in plan.claims if claim.about == "cost_per_hour")
        costs.append(claim.value)
        assert hp.verify(plan, PROFILE, with_rate(slo, rate)).ok
        assert planner.last == plan
    assert costs == sorted(costs)
    assert costs[0] < costs[-1]


def test_rates_replace_that_of_a_file_that_names_others(slo: dict, tmp_path: Path) -> None:
    changed = with_rate(slo, 15.0)
    (name,) = changed["apps"]
    changed["apps"][name]["rate_qps"] = {"mean": 15.0, "trace": {"file": "arrivals.csv"}}
    (tmp_path / "arrivals.csv").write_text("arrival_s\n" + "".join(f"{n / 50}\n" for n in range(1, 100)))
    (tmp_path / "slo.json").write_text(json.dumps(changed))
    outcome = hp.Planner(PROFILE, tmp_path / "slo.json", options=PLANNED).plan({name: 20.0})
    assert outcome.exit_code == 0
    assert outcome.require().inputs.traces


@pytest.mark.parametrize(
    ("rates", "place"), [({"nobody": 5.0}, "rates"), ({"ranking": "x"}, "rates.ranking"), ({"ranking": -1}, "ranking")]
)
def test_rates_that_are_none_are_refused_with_their_place(slo: dict, rates: dict, place: str) -> None:
    with pytest.raises(hp.InputError, match=place):
        hp.Planner(PROFILE, slo).plan(rates)


def test_many_threads_get_the_same_plan_and_nothing_is_printed(slo: dict, capfd: pytest.CaptureFixture[str]) -> None:
    planner = hp.Planner(PROFILE, slo, options=PLANNED)
    with ThreadPoolExecutor(6) as pool:
        plans = list(pool.map(lambda _: plan_bytes(planner.plan().require()), range(12)))
    assert len(set(plans)) == 1
    assert capfd.readouterr() == ("", "")


def test_a_cancelled_plan_is_an_outcome_not_an_exception(slo: dict) -> None:
    cancel = threading.Event()
    cancel.set()
    sized = hp.Planner(PROFILE, slo).plan(cancel=cancel)
    assert (sized.status, sized.exit_code) == ("not-simulated", 130), "a formula needs no time"
    planner = hp.Planner(PROFILE, slo, options=PLANNED)
    outcome = planner.plan(cancel=cancel)
    assert outcome.plan is None
    assert planner.last is None
    assert outcome.found is Found.NOTHING
    assert outcome.exit_code == 130
    with pytest.raises(hp.Interrupted) as caught:
        outcome.require()
    assert caught.value.exit_code == 130


def test_a_task_that_awaits_a_plan_is_cancelled_and_ends_the_work(slo: dict) -> None:
    """A wish that takes seconds: the task ends at once, and the thread soon after it."""
    planner, begun = hp.Planner(PROFILE, slo), threading.Event()

    async def cancelled() -> float:
        work = asyncio.ensure_future(planner.aplan(on_event=lambda _: begun.set()))
        while not begun.is_set():
            await asyncio.sleep(0.01)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        since = time.process_time()
        planner.close()
        return time.process_time() - since

    assert asyncio.run(cancelled()) < 1.5
    with pytest.raises(hp.Interrupted, match="closed"):
        planner.plan()


def test_tasks_plan_side_by_side_and_get_what_plan_gives(slo: dict) -> None:
    planner = hp.Planner(PROFILE, slo, options=PLANNED)

    async def two() -> list[hp.Outcome]:
        return list(await asyncio.gather(planner.aplan(), planner.aplan()))

    assert {one.require().digest for one in asyncio.run(two())} == {planner.plan().require().digest}


def test_events_tell_what_is_going_on(slo: dict) -> None:
    heard: list[hp.Event] = []
    hp.solve(PROFILE, slo, on_event=heard.append, options=PLANNED)
    assert any(event.what == "solve" for event in heard)


def test_a_warm_start_and_a_named_engine_change_no_answer(slo: dict) -> None:
    pytest.importorskip("ortools")
    first = hp.solve(PROFILE, slo, options=PLANNED).require()
    again = hp.solve(PROFILE, slo, start=first, solver="mathopt-scip", options=PLANNED).require()
    assert again.claims[0].value == pytest.approx(first.claims[0].value, rel=1e-4)
    assert again.solves[0].solver.startswith("mathopt-scip")


@pytest.mark.parametrize(
    ("choice", "says"),
    [
        ({"formulation": "teleport/milp"}, "no such question"),
        ({"formulation": "teleport"}, "no such formulation"),
        ({"solver": "teleport"}, "no such solver"),
        ({"options": {"derat": 0.5}}, "derate"),
        ({"options": {"derate": 80}}, "derate"),
    ],
)
def test_a_wrong_choice_is_named_with_its_remedy(slo: dict, choice: dict, says: str) -> None:
    with pytest.raises(hp.InputError) as caught:
        hp.solve(PROFILE, slo, **choice)
    assert says in str(caught.value)
    assert all(fault.remedy for fault in caught.value.faults)


def test_the_question_is_inferred_and_a_formulation_says_it(slo: dict) -> None:
    inputs = hp.load(PROFILE, slo)
    assert choose(inputs).problem.question == "pool"
    named = choose(inputs, formulation="Kairos", options={"statistic": "mean"})
    assert (named.problem.question, named.formulation) == ("pool", "kairos")
    assert pose(inputs, named).question == "pool"
    with pytest.raises(hp.InputError, match="Write pool-milp"):
        choose(inputs, formulation="fluid_milp")
    with pytest.raises(hp.InputError, match="Write sizing: fluid"):
        choose(inputs, options={"size": "planned"})
    assert options_of(formulation(problem("pool"), "pool-milp"), {"derate": 0.7}).model_dump()["derate"] == 0.7


def test_every_public_name_is_there() -> None:
    for name in hp.__all__:
        assert getattr(hp, name) is not None
    assert set(hp.__all__) <= set(dir(hp))
    with pytest.raises(AttributeError):
        hp.teleport  # noqa: B018


def test_an_engine_for_another_kind_of_form_is_not_silently_left_out(slo: dict) -> None:
    pytest.importorskip("ortools")
    with pytest.raises(hp.SolverError, match="another kind of form"):
        hp.solve(PROFILE, slo, solver="exhaustive", options=PLANNED)
    assert hp.solve(PROFILE, slo, solver="mathopt-scip", options=PLANNED).exit_code == 0


def test_a_plan_of_another_question_does_not_verify(slo: dict) -> None:
    plan = hp.solve(PROFILE, slo, options=PLANNED).require()
    for question in ("pipeline", "teleport"):
        report = hp.verify(plan.model_copy(update={"question": question}), PROFILE, slo)
        assert report.violations or report.unchecked


def overstated(plan: Plan) -> Plan:
    """The plan of a maker who says that it holds for any rate. Its warning in other words is no fault."""
    odd = Notice(code="W-odd", at="workers", text="nothing")
    valid = plan.valid.model_copy(update={"rate_qps": dict.fromkeys(plan.valid.rate_qps, (0.0, 1e9))})
    return with_digest(plan.model_copy(update={"warnings": (*plan.warnings, odd), "valid": valid}))


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("question", "options"),
    [("variants", PLANNED), ("pipeline", PLANNED), ("llm", PLANNED), ("pool", {"max_simulations": 4, "seeds": 2})],
)
def test_what_verify_would_refuse_is_refused_by_the_solve(
    question: str, options: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [str(EXAMPLE.parent / question / name) for name in ("profile.json", "slo.json")]
    sound = hp.solve(*files, options=options)
    assert not sound.violations
    made = replace(sound, plan=overstated(sound.require()))
    monkeypatch.setattr("hetplan.api.solve.make_plan", lambda *_, **__: made)
    refused = hp.solve(*files, options=options)
    again = hp.verify(refused.plan, *files, prove=False).violations
    assert {one.split(" at ")[0] for one in refused.violations} == {one.code for one in again} == {"valid"}
    assert refused.exit_code == 6


@pytest.mark.parametrize(
    ("question", "option", "said", "not_said"),
    [
        ("fleet", {"evaluations": 3}, "Known here: ", "max_simulations"),
        ("pool", {"evaluations": 3}, "Write max_simulations", "Known"),
        ("llm", {"latency_stat": "p99"}, "Known here: ", "Write"),
        ("pool", {"latency_stat": "p99"}, "Write statistic", "Known"),
        ("llm", {"rule": "shares"}, r"apps\.APP\.dispatch", "Known"),
        ("policy", {"most_workers": 3}, r"limits\.instances", "Known"),
        ("pool", {"sizing": "planned"}, "Write fluid", "fluid'"),
        ("llm", {"sizing": "auto"}, "Write simulation", "fluid'"),
        ("variants", {"sizing": "estimated"}, "Write formula", "fluid'"),
    ],
)
def test_an_old_option_is_refused_with_what_this_question_has_in_its_place(
    question: str, option: dict, said: str, not_said: str
) -> None:
    kind = problem(question)
    with pytest.raises(hp.InputError, match=said) as caught:
        options_of(formulation(kind, next(iter(kind.formulations))), option)
    assert not_said not in str(caught.value)


def test_a_fault_in_the_options_of_a_part_says_of_which() -> None:
    files = [str(EXAMPLE.parent / "fleet" / name) for name in ("profile.json", "slo.json")]
    with pytest.raises(hp.InputError) as caught:
        hp.solve(*files, options={"parts": {"ranking": {"size": 3}}})
    assert [one.path for one in caught.value.faults] == ["$.parts.ranking.size"]


def test_what_cannot_be_met_is_said_in_the_places_of_the_files() -> None:
    profile = {
        "format": "hetplan/profile/1.0",
        "machines": {"t4": {"price_per_hour": 1, "hosts": ["m1"]}},
        "models": {"net": {"runs": {"t4": {"batch": [1, 8], "mean_ms": [6, 24]}}}},
    }
    app = {"model": "net", "latency": {"p99_ms": 80}, "rate_qps": 3000}
    found = hp.solve(profile, {"format": "hetplan/slo/1.0", "apps": {"a": app}}, options=PLANNED)
    assert found.exit_code == 3
    assert "profile.machines.t4.hosts cannot be met" in found.why
    assert any(one.text.endswith("to profile.machines.t4.hosts") for one in found.repairs)


def test_a_statistic_that_was_not_measured_is_asked_for_where_the_file_would_say_it() -> None:
    profile = {
        "format": "hetplan/profile/1.0",
        "machines": {"t4": {"price_per_hour": 1}},
        "models": {"net": {"batch": [1, 8], "runs": {"t4": {"mean_ms": [6, 24]}}}},
    }
    app = {"model": "net", "latency": {"p99_ms": 80}, "rate_qps": 30}
    with pytest.raises(hp.InputError) as caught:
        hp.solve(profile, {"format": "hetplan/slo/1.0", "apps": {"a": app}}, options={"statistic": "p99"})
    assert [one.path for one in caught.value.faults] == ["$.models.net.runs.t4.p99_ms"]
