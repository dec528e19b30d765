"""`solve` and `Planner` as other schedulers use them: parse once, plan often, from many threads, in silence."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

import hetplan as hp
from hetplan.api.planner import Confirmed
from hetplan.api.solve import choose, options_of, pose
from hetplan.planner.status import Found
from hetplan.profiles.plan import Notice, Plan
from hetplan.profiles.plan_file import plan_bytes, with_digest
from hetplan.registry import formulation, problem

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "pool"
PROFILE, SLO = EXAMPLE / "profile.json", EXAMPLE / "slo.json"
PLANNED = {"size": "planned"}
"""Without simulation: what the door does is the same."""


@pytest.fixture(scope="module")
def slo() -> dict:
    return json.loads(SLO.read_text())


def with_rate(slo: dict, rate: float | str) -> dict:
    changed = json.loads(json.dumps(slo))
    changed["objective"] = [{"min": "cost"}]
    del changed["limits"]["cost_per_hour"]
    (app,) = changed["apps"].values()
    app["demand"]["rate_qps"] = rate
    return changed


def test_a_planner_plans_again_and_again_and_demand_replaces_the_files(slo: dict) -> None:
    planner = hp.Planner(PROFILE)
    (name,) = slo["apps"]
    costs = []
    for rate in (50.0, 200.0, 400.0):
        plan = planner.plan(with_rate(slo, 1.0), demand={name: rate}, options=PLANNED).require()
        claim = next(claim for claim in plan.claims if claim.about == "cost_per_hour")
        costs.append(claim.value)
        assert hp.verify(plan, PROFILE, with_rate(slo, rate)).ok
    assert costs == sorted(costs)
    assert costs[0] < costs[-1]


def test_demand_replaces_the_rate_of_files_that_name_others_beside_them(slo: dict, tmp_path: Path) -> None:
    changed = with_rate(slo, 15.0)
    (name,) = changed["apps"]
    changed["apps"][name]["demand"]["trace"] = {"file": "arrivals.csv"}
    (tmp_path / "arrivals.csv").write_text("arrival_s\n" + "".join(f"{n / 50}\n" for n in range(1, 100)))
    (tmp_path / "slo.json").write_text(json.dumps(changed))
    outcome = hp.Planner(PROFILE).plan(tmp_path / "slo.json", demand={name: 20.0}, options=PLANNED)
    assert outcome.exit_code == 0
    assert outcome.require().inputs.traces


def test_demand_for_an_unknown_application_is_an_input_error(slo: dict) -> None:
    with pytest.raises(hp.InputError, match="no such application"):
        hp.Planner(PROFILE).plan(slo, demand={"nobody": 5.0})


def test_many_threads_get_the_same_plan_and_nothing_is_printed(slo: dict, capfd: pytest.CaptureFixture[str]) -> None:
    planner = hp.Planner(PROFILE)
    with ThreadPoolExecutor(6) as pool:
        plans = list(pool.map(lambda _: plan_bytes(planner.plan(slo, options=PLANNED).require()), range(12)))
    assert len(set(plans)) == 1
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
def test_a_plan_comes_at_once_and_the_confirmed_one_by_an_event() -> None:
    """Of three questions: what comes at once is not played and says so, what follows is the plan of the defaults."""
    for name in ("llm-disaggregated", "variants", "pool"):
        files = [EXAMPLE.parent / name / file for file in ("profile.json", "slo.json")]
        heard, there = list[object](), threading.Event()

        def hear(event: object, heard: list[object] = heard, there: threading.Event = there) -> None:
            if isinstance(event, Confirmed):
                heard.append(event)
                there.set()

        first = hp.Planner(files[0]).plan(files[1], at_once=True, on_event=hear)
        assert not heard
        assert not any(one.model.startswith("simulation") for one in first.require().promises)
        assert "W-unconfirmed" in {one.code for one in first.warnings}
        assert there.wait(120)
        (event,) = heard
        assert isinstance(event, Confirmed)
        assert event.outcome is not None
        assert event.outcome.require().digest == hp.solve(*files).require().digest
        assert any(one.model.startswith("simulation") for one in event.outcome.require().promises)


def test_a_plan_at_once_needs_somebody_who_hears_of_the_other() -> None:
    with pytest.raises(hp.InputError, match="nobody hears"):
        hp.Planner(PROFILE).plan(SLO, at_once=True)


def test_a_plan_whose_size_is_named_is_what_comes_at_once() -> None:
    outcome = hp.Planner(PROFILE).plan(SLO, at_once=True, on_event=lambda _: None, options=PLANNED)
    assert outcome.require().digest == hp.solve(PROFILE, SLO, options=PLANNED).require().digest
    assert "W-unconfirmed" not in {one.code for one in outcome.warnings}


def test_a_cancelled_plan_is_an_outcome_not_an_exception(slo: dict) -> None:
    cancel = threading.Event()
    cancel.set()
    sized = hp.Planner(PROFILE).plan(slo, cancel=cancel)
    assert (sized.status, sized.exit_code) == ("not-simulated", 130), "a formula needs no time"
    outcome = hp.Planner(PROFILE).plan(slo, cancel=cancel, options=PLANNED)
    assert outcome.plan is None
    assert outcome.found is Found.NOTHING
    assert outcome.exit_code == 130
    with pytest.raises(hp.Interrupted) as caught:
        outcome.require()
    assert caught.value.exit_code == 130


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
        ({"question": "teleport"}, "no such question"),
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


def test_the_question_is_inferred_and_papers_names_are_aliases(slo: dict) -> None:
    inputs = hp.load_inputs(PROFILE, slo)
    assert choose(inputs).problem.question == "pool"
    by_paper = choose(inputs, question="Kairos", formulation="fluid_milp", options={"latency-stat": "mean"})
    assert by_paper.problem.question == "pool"
    assert pose(inputs, by_paper).question == "pool"
    assert options_of(formulation(problem("pool"), "fluid-milp"), {"derate": 0.7}).model_dump()["derate"] == 0.7


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
    [("variants", PLANNED), ("pipeline", PLANNED), ("llm", PLANNED), ("pool", {"evaluations": 4, "seeds": 2})],
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
