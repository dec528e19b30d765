"""`verify` plays what a plan promises by simulation: the plan as it is written, not as it was made."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from build import PROBLEMS, Files, app, files, machine, model, pipeline, random_files, tiny
from face import (
    EXIT,
    RULES,
    Answer,
    Json,
    Refused,
    called_simulated,
    command,
    dispatched,
    dressed,
    forged,
    in_one_queue,
    made_for,
    misnamed,
    overstated,
    retold,
    sent_by,
    solve,
    surer,
    text_sent_by,
    thinned,
    unpromised,
    verify,
)

QUICK = ("pool", "llm")


@cache
def most() -> tuple[Files, Answer]:
    """A pool that carries the most that its money buys."""
    wish = tiny("pool").rated("max").limited(cost=2.0).aiming("max rate")
    return wish, solve(wish)


def spread(std: float) -> Files:
    """A pool of services whose times differ by this part of their mean."""
    runs = {
        name: {"batch": [1, 8, 32], "mean": mean, "std": [std * ms for ms in mean]}
        for name, mean in (("m0", [4.0, 9.0, 24.0]), ("m1", [6.0, 15.0, 45.0]))
    }
    machines = {"m0": machine(1.0, stock=12), "m1": machine(0.5, stock=12)}
    ranking = app("ranker", rate=80.0, limits={99: 70.0}, sizes={1: 0.5, 8: 0.3, 32: 0.2})
    return files(machines=machines, models={"ranker": model(runs)}, apps={"ranking": ranking}, problem="pool")


@pytest.mark.parametrize("problem", [pytest.param(one, marks=[] if one in QUICK else pytest.mark.slow)
                                     for one in PROBLEMS])  # fmt: skip
def test_a_plan_that_keeps_what_it_promises_is_verified_in_the_same_words_each_time(problem: str) -> None:
    wish = random_files(problem, 3)
    plan = solve(wish).plan
    assert plan is not None
    found = verify(plan, wish)
    assert found.is_ok, found.findings
    assert found.verdicts == {"met"}
    assert found.said == "verified"
    assert verify(plan, wish) == found


def test_seeds_follow_from_what_the_plan_says() -> None:
    wish = random_files("pool", 3)
    plan = solve(wish).plan
    assert plan is not None
    other = forged(plan, lambda forgery: forgery["extensions"].update(note="x"))
    assert verify(other, wish).simulated != verify(plan, wish).simulated
    # And from nothing that a plan may choose: its digest is not believed.
    assert verify(misnamed(plan), wish).simulated == verify(plan, wish).simulated


@pytest.mark.parametrize("problem", QUICK)
def test_no_promise_is_surer_than_its_runs(problem: str) -> None:
    """More runs than confirm any plan, others than of the next promise, or a share surer than so few runs tell."""
    wish = random_files(problem, 3)
    plan = solve(wish).plan
    assert plan is not None
    assert verify(plan, wish).is_ok
    for more in (surer(plan, runs=600), surer(plan, runs=50, of=0)):
        assert not verify(more, wish).is_ok
    if problem == "pool":  # this text promises times alone, of which runs tell no share
        assert not verify(surer(plan, sure=0.9999), wish).is_ok


def test_what_was_not_played_is_not_called_verified() -> None:
    wish = random_files("pool", 3)
    plan = solve(wish).plan
    assert plan is not None
    found = verify(plan, wish, simulate=False)
    assert found.is_ok
    assert found.verdicts == {"not simulated"}
    assert found.said.startswith("not simulated")
    # Nothing of a plan that promises nothing by simulation is left out.
    fluid = solve(wish, "fluid").plan
    assert fluid is not None
    assert [verify(fluid, wish, simulate=how).said for how in (True, False)] == ["verified", "verified"]


def test_the_command_says_so_too(tmp_path: Path) -> None:
    wish = random_files("pool", 5)
    made = solve(wish)
    fluid = solve(wish, "fluid").plan
    assert made.plan is not None
    assert fluid is not None
    written = {}
    for name, plan in (("kept", made.plan), ("broken", dressed(fluid, made.plan))):
        written[name] = tmp_path / f"{name}.json"
        written[name].write_text(json.dumps(plan))
    given = wish.write(tmp_path)
    kept, left_out, broken = (
        command("verify", written["kept"], *given),
        command("verify", written["broken"], *given, "--no-simulate"),
        command("verify", written["broken"], *given),
    )
    assert [one.code for one in (kept, left_out, broken)] == [EXIT["ok"], EXIT["ok"], EXIT["broken"]]
    assert kept.out.startswith("verified\n")
    assert left_out.out.startswith("not simulated")
    assert "verified" not in left_out.out
    assert "take longer than" in broken.out


@pytest.mark.slow
@pytest.mark.parametrize("factor", [1.08, 1.1, 1.12])
def test_a_rate_that_is_raised_is_refused(factor: float) -> None:
    """Machines could carry each of these, if nothing waited."""
    wish, made = most()
    assert made.plan is not None
    bad = overstated(made.plan, factor)
    assert verify(bad, wish, simulate=False).is_ok
    found = verify(bad, wish)
    assert not found.is_ok
    assert "broken" in found.verdicts
    assert all("simulation" in one for one in found.findings)


@pytest.mark.slow
def test_a_machine_less_is_refused() -> None:
    """The others could make as much text, if nothing waited."""
    wish = random_files("llm", 3).rated(40.0)
    plan = solve(wish).plan
    assert plan is not None
    bad = thinned(plan, wish)
    assert verify(bad, wish, simulate=False).is_ok
    assert "broken" in verify(bad, wish).verdicts


@pytest.mark.slow
@pytest.mark.parametrize("parts", [1, 2])
def test_a_pool_that_is_divided_is_refused(parts: int) -> None:
    """In parts so small each has to wait for its own machines."""
    wish, made = most()
    assert made.plan is not None
    assert verify(made.plan, wish).is_ok
    assert "broken" in verify(dispatched(made.plan, split_above=parts), wish).verdicts


@pytest.mark.parametrize(
    ("problem", "seed"),
    [("pool", 5), *(pytest.param(*one, marks=pytest.mark.slow)
                    for one in (("variants", 5), ("pipeline", 2), ("pipeline", 6)))],
)  # fmt: skip
def test_a_plan_sized_without_simulation_is_refused_as_a_simulated_one(problem: str, seed: int) -> None:
    wish = random_files(problem, seed)
    made, fluid = solve(wish), solve(wish, "fluid")
    assert made.plan is not None
    assert fluid.plan is not None
    bad = dressed(fluid.plan, made.plan)
    judged = verify(bad, wish)
    if problem == "pipeline":  # its bound of plans that are simulated is another one than that of plans that are not
        assert not judged.is_ok
        return
    assert verify(bad, wish, simulate=False).is_ok
    assert "broken" in judged.verdicts


@pytest.mark.slow
def test_what_ten_times_the_planning_cannot_tell_is_left_undecided() -> None:
    """Nearly as many are late as may be."""
    wish = random_files("llm", 24)
    made, fluid = solve(wish), solve(wish, "fluid")
    assert made.plan is not None
    assert fluid.plan is not None
    found = verify(dressed(fluid.plan, made.plan), wish)
    assert found.is_ok
    assert "undecided" in found.verdicts
    least = min(queries for _, verdict, queries in found.simulated if verdict == "undecided")
    assert found.said == f"not refuted by {least} queries"
    assert least > 250_000


@pytest.mark.slow
@pytest.mark.parametrize(("times", "verdict"), [(1.0, "met"), (3.0, "broken"), (4.0, "broken")])
def test_other_service_times_under_a_renewed_digest_are_refused(times: float, verdict: str) -> None:
    plan = solve(spread(0.2)).plan
    assert plan is not None
    other = spread(0.2 * times)
    assert verdict in verify(made_for(plan, other), other).verdicts


@pytest.mark.slow
@pytest.mark.parametrize(("quantity", "factor"), [("goodput", 1.05), ("quality", 1.02), ("goodput", 0.95)])
def test_a_told_figure_of_a_policy_is_refused(quantity: str, factor: float) -> None:
    wish = random_files("policy", 3)
    plan = solve(wish).plan
    assert plan is not None
    assert verify(plan, wish).verdicts == {"met"}
    assert "broken" in verify(retold(plan, quantity, factor), wish).verdicts


@pytest.mark.parametrize("problem", ["pool", "variants", "pipeline", pytest.param("fleet", marks=pytest.mark.slow)])
def test_a_plan_of_rates_alone_that_calls_itself_simulated_is_not_called_verified(problem: str) -> None:
    """It promises no response time, and no longer warns of that."""
    wish = tiny(problem)
    plan = solve(wish, "fluid").plan
    assert plan is not None
    assert verify(plan, wish).said == "verified"
    found = verify(called_simulated(plan), wish)
    assert found.findings or found.verdicts == {"not simulated"}
    assert problem != "fleet" or not found.findings
    assert found.said != "verified"


def test_what_a_plan_says_that_no_run_confirmed_is_not_verified() -> None:
    """A plan of two applications, one of which too few queries come to: it said so, and was called verified."""
    wish = tiny("variants")
    (photos,) = wish.slo["apps"].values()
    seldom = {**photos, "rate_qps": photos["rate_qps"] * 1e-5}
    wish = replace(wish, slo={**wish.slo, "apps": {"photos": photos, "seldom": seldom}})
    answer = solve(wish)
    assert "W-unconfirmed" in answer.warned()
    assert answer.plan is not None
    found = verify(answer.plan, wish)
    assert found.said.startswith("not simulated")
    assert found.verdicts == {"met", "not simulated"}


@cache
def after_failures() -> tuple[Files, Json]:
    """A pool of which a machine may be lost: what is left then carries what is kept."""
    wish = tiny("fleet").limited(survive_machines=1)
    apps = {"ranking": wish.slo["apps"]["ranking"]}
    wish = replace(wish, slo={**wish.slo, "apps": apps})
    plan = solve(wish).plan
    assert plan is not None
    return wish, plan


@pytest.mark.slow
def test_a_part_that_promises_no_response_time_needs_no_simulation() -> None:
    """A fleet whose every promise is met was called not simulated; what is not promised is said by part."""
    wish, plan = after_failures()
    found = verify(plan, wish)
    assert found.verdicts == {"met"}
    assert found.said.startswith("verified")
    assert not verify(plan, wish, simulate=False).said.startswith("verified")


@pytest.mark.parametrize("what", ["while nothing failed", "and calls itself simulated"])
def test_a_part_that_is_said_to_be_simulated_and_promises_no_response_time_is_not_verified(what: str) -> None:
    wish, plan = after_failures()
    found = verify(unpromised(plan, after_failures=what != "while nothing failed"), wish)
    assert found.findings or "not simulated" in found.verdicts
    assert not found.said.startswith("verified")


def test_a_rate_after_a_failure_is_promised_by_what_sized_the_part_that_runs_then() -> None:
    """All rates were said to be simulated; with one machine less such a part broke its limit, and was "verified"."""
    wish, plan = after_failures()
    sized = {name: part["promises"][0]["model"] for name, part in plan["parts"].items()}
    seen = set()
    for period in plan["periods"]:
        for situation, names in {None: period["parts"], **period["failures"]}.items():
            (name,) = names
            (model,) = [
                one["model"] for one in plan["promises"]
                if (one.get("period"), one.get("situation"), one["quantity"]) == (period["id"], situation, "rate_qps")
            ]  # fmt: skip
            assert model == sized[name]
            seen.add(model)
    assert seen == {"simulation/1"}

    def change(plan: Json) -> None:
        for one in plan["promises"]:
            if one.get("situation"):
                one["model"] = "simulation/1" if one["model"] == "fluid" else "fluid"

    assert not verify(forged(plan, change), wish).is_ok


@pytest.mark.parametrize("rule", sorted({*RULES} - {"matched"}))
@pytest.mark.parametrize("sizing", ["fluid", "formula"])
def test_a_rate_that_nobody_simulated_is_refused_with_another_rule(rule: str, sizing: str) -> None:
    wish = random_files("pool", 1)
    plan = solve(wish, sizing).plan
    assert plan is not None
    assert verify(sent_by(plan, "matched"), wish).is_ok
    assert not verify(sent_by(plan, rule), wish).is_ok


@pytest.mark.quick_sample(2)
@pytest.mark.parametrize("rule", ["in turn", "by shares"])
@pytest.mark.parametrize("sizing", ["fluid", "formula", "simulation"])
def test_requests_for_text_are_sent_as_they_were_planned(rule: str, sizing: str) -> None:
    wish = random_files("llm", 1)
    plan = solve(wish, sizing).plan
    assert plan is not None
    assert not verify(text_sent_by(plan, rule), wish).is_ok


def test_turns_over_machines_that_make_text_are_not_planned_without_simulation() -> None:
    wish = random_files("llm", 1)
    in_turn = {name: {**app, "dispatch": "round-robin"} for name, app in wish.slo["apps"].items()}
    with pytest.raises(Refused, match="simulated"):
        solve(replace(wish, slo={**wish.slo, "apps": in_turn}), "fluid")


def halves(problem: str) -> Files:
    """Models that take half a machine each."""
    runs, machines = {"a": {1: 6, 4: 12}}, {"a": machine(1.0, provides={"gpu": 1.0}, stock=9)}
    if problem == "pool":
        apps = {"x": app("m", rate=300.0, limits={99: 60.0}, sizes={1: 0.6, 4: 0.4})}
        return files(machines=machines, models={"m": model(runs, needs={"gpu": 0.5})}, apps=apps, problem=problem)
    models = {name: model(runs, needs={"gpu": 0.5}, quality=0.8, task=name) for name in ("t", "u")}
    if problem == "variants":
        apps = {name: app(name, rate=100.0, limits={99: 80.0}, by="task") for name in models}
        return files(machines=machines, models=models, apps=apps, problem=problem)
    steps = {"p": pipeline([("t", "u", 1.0)], ["t", "u"])}
    apps = {"x": app("p", rate=20.0, limits={99: 200.0}, by="pipeline")}
    return files(machines=machines, models=models, apps=apps, pipelines=steps, problem=problem)


@pytest.mark.parametrize("problem", ["pool", "variants", "pipeline"])
def test_models_on_one_machine_do_not_wait_in_one_queue(problem: str) -> None:
    wish = halves(problem)
    answer = solve(wish, "fluid", options={"share_machines": True} if problem == "pipeline" else {})
    plan = answer.plan
    assert plan is not None
    assert verify(plan, wish).is_ok
    assert max(len(one.replicas) for one in answer.machines) == 2
    assert not verify(in_one_queue(plan), wish).is_ok
