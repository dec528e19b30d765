"""Bounds of plans, proved again by the planner's programs: honest ones are, and nothing better than they are."""

from __future__ import annotations

import json
import threading
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from build import SHIPPED, Files, example, random_files, shipped, tiny
from face import (
    EXIT,
    Answer,
    about,
    bounded,
    carried,
    claimed_twice,
    command,
    made_by,
    made_for,
    proved_by,
    solve,
    solved_example,
    tightened,
    verify,
    with_option,
    without_prices,
)

PROVED = "proved again"
EXAMPLES = [
    ("pool", "fluid"),
    ("pool", "formula"),
    ("pipeline", "formula"),
    ("variants", "fluid"),
    ("variants", "formula"),
    ("llm", "fluid"),
    ("llm-disaggregated", "fluid"),
    pytest.param("fleet", "fluid", marks=pytest.mark.slow),
    pytest.param("policy", "fluid", marks=pytest.mark.longest),
]
RANDOM = [
    (problem, sizing, seed)
    for problem in ("pool", "variants", "pipeline", "llm")
    for sizing in ("fluid", "formula")
    for seed in range(40, 43)
]
RANDOM += [("fleet", "fluid", seed) for seed in range(40, 42)]
FEW = [
    *RANDOM,
    *(pytest.param("policy", "fluid", seed, marks=pytest.mark.slow) for seed in range(40, 43)),
    *(pytest.param("fleet", "fluid", seed, marks=pytest.mark.slow) for seed in range(42, 46)),
]
ONE = [("pool", 40), ("variants", None), ("pipeline", 40), ("llm", 40)]


@cache
def made(problem: str, sizing: str, seed: int | None) -> tuple[Files, Answer]:
    """A random wish with its plan, or a shipped one."""
    wish = example(problem) if seed is None else random_files(problem, seed)
    return wish, solve(wish, sizing)


def check_bounds(wish: Files, answer: Answer) -> None:
    """An honest plan's certified bounds are proved, and none of them is when it is better by a hundredth."""
    assert answer.plan is not None
    said = verify(answer.plan, wish, simulate=False)
    assert said.is_ok, said.findings
    certified = [number for number, one in enumerate(answer.claims) if one.is_certified]
    assert certified
    assert {said.bounds[number] for number in certified} == {PROVED}
    for number in certified:
        forgery = verify(tightened(answer.plan, number, 0.01), wish, simulate=False)
        assert not forgery.is_ok
        assert forgery.bounds[number] != PROVED


@pytest.mark.parametrize(("name", "sizing"), EXAMPLES)
def test_bounds_of_shipped_examples(name: str, sizing: str) -> None:
    check_bounds(example(name), solved_example(name, sizing))


def test_bounds_of_stated_candidates() -> None:
    folder = SHIPPED / "compound"
    wish = Files(*(shipped(folder / f"candidates-{one}.json") for one in ("profile", "slo")))
    check_bounds(wish, solve(wish, "fluid"))


@pytest.mark.quick_sample(10)
@pytest.mark.parametrize(("problem", "sizing", "seed"), FEW)
def test_bounds_of_random_wishes(problem: str, sizing: str, seed: int) -> None:
    check_bounds(*made(problem, sizing, seed))


@pytest.mark.quick_sample(8)
@pytest.mark.parametrize("how", ["scaled", "without the largest", "none", "long", "nonsense"])
@pytest.mark.parametrize(("problem", "seed"), ONE)
def test_a_proof_that_shows_nothing(problem: str, seed: int | None, how: str) -> None:
    """It proves no bound, and is refused. Solved anew a true bound is proved, and a better one is not."""
    wish, answer = made(problem, "fluid", seed)
    assert answer.plan is not None
    plan = proved_by(answer.plan, 0, how)
    unsolved = verify(plan, wish, prove=False, simulate=False)
    assert unsolved.bounds[0] == "not proved here"
    assert unsolved.is_ok == (how == "long")
    solved = verify(plan, wish, simulate=False)
    assert (solved.bounds[0], solved.is_ok) == (
        (PROVED, True) if how in ("none", "long") else ("not proved here", False)
    )
    anew = verify(plan, wish, prove=True, simulate=False)
    assert (anew.bounds[0], anew.is_ok) == (PROVED, how in ("none", "long"))
    better = verify(tightened(plan, 0, 0.01), wish, simulate=False)
    assert not better.is_ok
    assert better.bounds[0] != PROVED


@pytest.mark.parametrize(("problem", "seed"), ONE)
def test_another_solve_proves_nothing(problem: str, seed: int | None) -> None:
    wish, answer = made(problem, "fluid", seed)
    assert answer.plan is not None
    said = verify(proved_by(answer.plan, 0, "other"), wish, prove=False, simulate=False)
    assert not said.is_ok
    assert said.bounds[:1] != (PROVED,)


@pytest.mark.parametrize(
    ("problem", "sizing", "scope"),
    [("pool", "fluid", "model"), ("pool", "formula", "model"), ("llm", "fluid", "problem"), ("llm", "fluid", "model"),
     ("pipeline", "fluid", "model"), ("variants", "fluid", "restriction")],
)  # fmt: skip
def test_a_bound_of_something_else_is_not_proved(problem: str, sizing: str, scope: str) -> None:
    wish, answer = made(problem, sizing, 1)
    assert answer.plan is not None
    said = verify(about(answer.plan, 0, scope=scope), wish, simulate=False)
    assert not said.is_ok
    assert said.bounds[0] != PROVED


def test_an_engines_word_is_proved_where_that_is_asked_and_no_word_is_better_than_what_exists() -> None:
    pytest.importorskip("ortools")
    wish, answer = made("pool", "fluid", 40)
    assert answer.plan is not None
    plan = about(proved_by(answer.plan, 0, "none"), 0, vouched="claimed")
    assert verify(plan, wish).bounds[0] == "not proved here"
    assert verify(plan, wish, prove=True).bounds[0] == PROVED
    assert verify(plan, wish, solver="mathopt-scip", prove=True).bounds[0] in (PROVED, "found again by an engine")
    # A bound that a plan beats: the claim is that of a dearer pool.
    worse = about(plan, 0, value=2.0 * answer.claims[0].value, bound=2.0 * answer.claims[0].value)
    said = verify(worse, wish, prove=True)
    assert not said.is_ok
    # Raised to certified, it is solved anew: nobody's word is taken.
    raised = about(tightened(plan, 0, 0.01), 0, vouched="certified")
    assert not verify(raised, wish, simulate=False).is_ok


@pytest.mark.parametrize("problem", ["pool", "variants", "llm", "pipeline"])
def test_what_is_cheaper_or_faster_now_makes_an_old_bound_too_good(problem: str) -> None:
    """Prices fell, or machines are twice as fast: the plan of before says too much of how good it is."""
    wish, answer = made(problem, "fluid", 40)
    assert answer.plan is not None
    now = wish.scaled_times(0.5) if problem == "pipeline" else wish.scaled_prices(0.9)
    said = verify(made_for(answer.plan, now), now, simulate=False)
    assert not said.is_ok
    assert said.bounds[-1 if problem == "pipeline" else 0] != PROVED


def test_nothing_that_a_plan_carries_is_too_strange() -> None:
    wish, answer = made("pool", "fluid", 41)
    assert answer.plan is not None
    proof = carried(answer.plan, 0)
    assert proof is not None
    strange: list[Any] = [
        {}, {"row_duals": 3}, {"row_duals": {"capacity[m0]": "nan"}}, {"tree": {}}, {"tree": None},
        {"tree": {**proof["tree"], "splits": ["0 1 0 0"]}}, {"tree": {**proof["tree"], "leaves": []}},
        {"tree": {**proof["tree"], "leaves": ["inf " * len(proof["tree"]["rows"])] * len(proof["tree"]["leaves"])}},
        {"tree": {**proof["tree"], "splits": ["-1 0 -1 -2", *proof["tree"]["splits"]]}},
    ]  # fmt: skip
    for one in strange:
        said = verify(proved_by(answer.plan, 0, one), wish, prove=False, simulate=False)
        assert said.bounds[0] == "not proved here", one


@pytest.mark.parametrize(
    "name", ["pool", "variants", "compound", "llm", pytest.param("policy", marks=pytest.mark.slow)]
)
def test_plans_of_which_every_bound_must_be_proved(name: str) -> None:
    answer = solve(example(name), "fluid", require_proof=True)
    assert answer.claims
    assert all(one.is_certified for one in answer.claims)


def test_the_command_asks_for_proof(tmp_path: Path) -> None:
    """Its ends: a bound that is wrong, one that is not proved, one that is farther than it may be."""
    wish, answer = made("pool", "fluid", 40)
    assert answer.plan is not None
    word = about(proved_by(answer.plan, 0, "none"), 0, vouched="claimed")
    wrong = about(word, 0, bound=2.0 * answer.claims[0].value, value=2.0 * answer.claims[0].value)
    given, ended = wish.write(tmp_path), {}
    for name, plan in (("word", word), ("wrong", wrong)):
        (tmp_path / f"{name}.plan.json").write_text(json.dumps(plan))
        for flags in ((), ("--prove",), ("--require-proof",), ("--require-proof", "--gap", "0.01")):
            ended[name, flags[-1] if flags else ""] = command("verify", tmp_path / f"{name}.plan.json", *given, *flags)
    assert "not proved here" in ended["word", ""].out
    assert "proved again by the planner's program" in ended["word", "--prove"].out
    codes = {of: ran.code for of, ran in ended.items()}
    assert {codes["word", flag] for flag in ("", "--prove", "--require-proof", "0.01")} == {EXIT["ok"]}
    assert codes["wrong", "--prove"] == EXIT["broken"]
    loose = tmp_path / "loose.plan.json"
    wide, sized = made("pool", "simulation", 1)
    loose.write_text(json.dumps(sized.plan))
    files = wide.write(tmp_path)
    assert command("verify", loose, *files, "--require-proof", "--no-simulate").code == EXIT["ok"]
    assert command("verify", loose, *files, "--require-proof", "--gap", "0.01").code == EXIT["gap"]
    assert (
        command("verify", tmp_path / "word.plan.json", *files, "--prove", "--solver", "nobody").code
        == EXIT["bad input"]
    )


@pytest.mark.parametrize("how", ["long", "none"])
def test_a_poor_plan_is_not_called_the_best_because_its_proof_is_hidden(how: str) -> None:
    """The best pool for half the money, sold as the best for all of it."""
    wish = random_files("pool", 40).rated("max")
    rich, poor = wish.limited(cost=3.0).aiming("max rate"), wish.limited(cost=1.0).aiming("max rate")
    answer = solve(poor, "fluid")
    assert answer.plan is not None
    assert answer.claims[0].is_certified
    sold = made_for(proved_by(answer.plan, 0, how), rich)
    said = verify(sold, rich)
    assert not said.is_ok
    assert said.bounds[0] == "refuted"
    assert verify(sold, rich, prove=False).bounds[0] == "not proved here"


def test_no_point_of_a_relaxation_refutes_a_plan() -> None:
    """Such a pool may say less than the fluid program does: points of that are no plans."""
    wish = tiny("pool").rated("max").limited(cost=1.0).aiming("max rate")
    answer = solve(wish, "fluid", formulation="kairos-plus")
    assert answer.plan is not None
    for how in ({"prove": True}, {"solver": "highs"}):
        said = verify(answer.plan, wish, simulate=False, **how)
        assert said.is_ok, said.findings
        assert "refuted" not in said.bounds


def test_a_word_above_a_relaxation_is_not_refuted_and_no_proof_of_it_is_believed() -> None:
    wish, answer = made("llm", "fluid", 40)
    assert answer.plan is not None
    best = answer.claims[0].value
    word = about(bounded(answer.plan, 0, 0.9 * best), 0, vouched="claimed")
    said = verify(proved_by(word, 0, "none"), wish, prove=True, simulate=False)
    assert said.is_ok, said.findings
    assert said.bounds[0] == "not proved here"
    # A word with a proof that shows less is none.
    for prove in (False, True):
        said = verify(word, wish, prove=prove, simulate=False)
        assert not said.is_ok
        assert any("its proof shows" in one for one in said.findings), said.findings
    # Certified it is no word: its program cannot show so much, and no proof is too long for that.
    hidden = bounded(proved_by(answer.plan, 0, "long"), 0, best)
    assert verify(hidden, wish, prove=False, simulate=False).is_ok
    assert not verify(hidden, wish, simulate=False).is_ok


@pytest.mark.parametrize("problem", ["llm", "variants"])
@pytest.mark.parametrize("how", ["option", "formulation"])
def test_no_proof_is_too_long_for_a_question_that_cannot_be_asked(problem: str, how: str) -> None:
    wish, answer = made(problem, "fluid", 40)
    assert answer.plan is not None
    plan = proved_by(answer.plan, 0, "long")
    assert verify(plan, wish, prove=False, simulate=False).is_ok
    forgery = with_option(plan, "nonsense", 1) if how == "option" else made_by(plan, formulation="nonsense")
    for prove in (False, None, True):
        assert not verify(forgery, wish, prove=prove, simulate=False).is_ok


def test_a_plan_of_a_question_that_is_not_installed(tmp_path: Path) -> None:
    """Nobody can say anything of its bounds: that it is unchecked is all that is wrong with it."""
    wish, answer = made("pool", "fluid", 40)
    (tmp_path / "plan.json").write_text(json.dumps(made_by(answer.plan, question="elsewhere")))
    given = ("verify", tmp_path / "plan.json", *wish.write(tmp_path))
    assert command(*given).code == EXIT["broken"]
    ran = command(*given, "--allow-unchecked")
    assert ran.code == EXIT["ok"], ran.out


@pytest.mark.parametrize(("problem", "seed"), ONE)
def test_a_proof_by_names_of_another_version(problem: str, seed: int | None) -> None:
    """It shows nothing here, nor is it wrong: the program is solved anew, and then judged."""
    wish, answer = made(problem, "fluid", seed)
    plan = proved_by(answer.plan, 0, "renamed")
    unsolved = verify(plan, wish, prove=False, simulate=False)
    assert (unsolved.bounds[0], unsolved.is_ok) == ("not proved here", True)
    solved = verify(plan, wish, simulate=False)
    assert (solved.bounds[0], solved.is_ok) == (PROVED, True)
    # The claim is that of another wish's plan.
    worse = about(plan, 0, value=2.0 * answer.claims[0].value)
    assert not verify(worse, wish, simulate=False).is_ok


def test_a_bound_that_an_engine_finds_again_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine has no time left to prove it."""
    wish, answer = made("pool", "fluid", 40)
    plan = proved_by(answer.plan, 0, "none")
    monkeypatch.setattr("hetplan.solvers.milp_engine.MilpEngine.prove", lambda self, form, answer, limits: answer)
    said = verify(plan, wish, simulate=False)
    assert said.bounds[0] == "found again by an engine"
    assert said.is_ok, said.findings


def test_an_engine_that_breaks_ends_no_verification(monkeypatch: pytest.MonkeyPatch) -> None:
    wish, answer = made("pool", "fluid", 40)
    plan = about(proved_by(answer.plan, 0, "none"), 0, vouched="claimed")

    def broken(*_: object) -> Any:
        raise RuntimeError("no engine today")

    monkeypatch.setattr("hetplan.registry.Engines.of", broken)
    said = verify(plan, wish, prove=True, simulate=False)
    assert (said.bounds[0], said.is_ok) == ("not proved here", True)


def test_as_good_as_a_bound_that_nobody_proved_is_not_called_verified(tmp_path: Path) -> None:
    wish, answer = made("pool", "fluid", 40)
    word = about(proved_by(answer.plan, 0, "none"), 0, vouched="claimed")
    assert verify(word, wish).said == "verified, but for its bound"
    assert verify(word, wish, prove=True).said == "verified"
    (tmp_path / "plan.json").write_text(json.dumps(word))
    ran = command("verify", tmp_path / "plan.json", *wish.write(tmp_path))
    assert (ran.code, ran.out.splitlines()[0]) == (EXIT["ok"], "verified, but for its bound")
    # A hair wider, and said to be feasible only, it is as little proved.
    lower = word["claims"][0]["value"] * (1.0 - 1e-5)
    wider = about(word, 0, bound=lower, gap=1e-5)
    solves = [{**one, "bound": lower} if one["id"] == 1 else one for one in wider["solves"]]
    kept = {key: one for key, one in wider.items() if key != "summary"}
    said = verify({**kept, "status": "feasible", "solves": solves}, wish)
    assert said.said == "verified, but for its bound"


def test_the_bound_of_a_fleet_without_its_prices_is_found_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hetplan.problems.fleet.formulations.FEW_AT_ONCE", 0)  # by prices, as large fleets are planned
    wish = random_files("fleet", 40)
    answer = solve(wish, "fluid")
    assert answer.plan is not None
    (tmp_path / "plan.json").write_text(json.dumps(about(without_prices(answer.plan), 0, vouched="claimed")))
    given = ("verify", tmp_path / "plan.json", *wish.write(tmp_path), "--no-simulate")
    assert "not proved again here: the plan carries no prices" in command(*given).out
    assert "proved again by the planner's program" in command(*given, "--prove").out


def test_a_claim_is_made_once() -> None:
    wish, answer = made("pool", "fluid", 40)
    assert answer.plan is not None
    said = verify(claimed_twice(answer.plan, 9), wish, simulate=False)
    assert len([one for one in said.findings if "claimed twice" in one]) == 8
    assert not said.is_ok


def test_bounds_are_looked_at_until_somebody_cancels_or_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    from hetplan.errors import Interrupted

    wish, answer = made("pool", "fluid", 40)
    assert answer.plan is not None
    cancel = threading.Event()
    cancel.set()
    for prove in (False, None):
        with pytest.raises(Interrupted):
            verify(answer.plan, wish, prove=prove, simulate=False, cancel=cancel)
    monkeypatch.setattr("hetplan.api.verify_and_simulate.ANEW_S", 0.0)
    said = verify(answer.plan, wish, simulate=False)
    assert set(said.bounds) == {"not proved here"}
    assert said.is_ok


@pytest.mark.parametrize("problem", ["pool", "pipeline"])
def test_a_word_that_a_plan_beats_is_refuted(problem: str) -> None:
    """The best for twice the load, sold as the best for this one."""
    wish, answer = made(problem, "fluid", 41)
    assert answer.plan is not None
    less, last = wish.scaled_rates(0.5), -1 if problem == "pipeline" else 0
    number = range(len(answer.claims))[last]
    word = about(proved_by(answer.plan, number, "none"), number, vouched="claimed")
    said = verify(made_for(word, less), less, prove=True, simulate=False)
    assert said.bounds[number] == "refuted"
    assert not said.is_ok
