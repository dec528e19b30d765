"""Forged claims, held against the question solved anew."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from once import once

import hetplan as hp
from benchmarks.forged_plans import EXAMPLES as EXAMPLES_OF_ALL
from hetplan.proved_again import Again, prove
from hetplan.verifier.claims_again import Word

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
FILES = {
    "pool": ("pool/profile.json", "pool/slo.json", None),
    "pipeline": ("pipeline/profile.json", "pipeline/slo.json", None),
    "variants": ("variants/profile.json", "variants/slo.json", "variants/state.json"),
    "packing": ("compound/candidates-profile.json", "compound/candidates-slo.json", None),
}


def inputs_of(name: str) -> hp.Inputs:
    profile, slo, state = FILES[name]
    return hp.load_inputs(EXAMPLES / profile, EXAMPLES / slo, state=state and EXAMPLES / state)


@cache
def plan_of(name: str) -> hp.Plan:
    profile, slo, state = FILES[name]
    files = (EXAMPLES / profile, EXAMPLES / slo)
    return once(f"to be proved {name}", lambda: hp.solve(*files, state=state and EXAMPLES / state).require())


def document_of(name: str) -> dict[str, Any]:
    return plan_of(name).model_dump(mode="json", by_alias=True)


@pytest.fixture(scope="module", params=sorted(FILES))
def case(request: pytest.FixtureRequest) -> tuple[hp.Inputs, dict[str, Any]]:
    return inputs_of(request.param), document_of(request.param)


def held(document: dict[str, Any], inputs: hp.Inputs) -> Again:
    return prove(hp.read_plan(document, trust_digest=True), inputs)


@pytest.mark.quick_cases(1)
def test_an_honest_plan_is_found_again_as_it_is(case: tuple[hp.Inputs, dict[str, Any]]) -> None:
    inputs, document = case
    again = held(document, inputs)
    assert not again.refuted
    assert not again.differs
    assert {one.word for one in again.claims} <= {Word.PROVED, Word.FOUND}


@pytest.mark.quick_cases(1)
def test_a_bound_that_a_plan_beats_is_refuted(case: tuple[hp.Inputs, dict[str, Any]]) -> None:
    inputs, honest = case
    document = copy.deepcopy(honest)
    claim = document["claims"][0]
    worse = 0.5 if claim["sense"] == "max" else 2.0
    claim.update(value=claim["value"] * worse, bound=claim["value"] * worse, gap=0.0, vouched="certified")
    again = held(document, inputs)
    assert [one.at for one in again.refuted] == ["claims[0]"]
    assert "exists" in again.refuted[0].text


def test_a_looser_bound_is_true_and_one_that_is_too_near_stays_the_writers_word() -> None:
    inputs = inputs_of("packing")
    document = document_of("packing")
    claim = document["claims"][0]
    bound = claim["bound"]
    claim["bound"] = bound * 1.1
    assert held(document, inputs).claims[0].word is Word.PROVED
    claim["bound"] = (claim["value"] + bound) / 2.0
    assert held(document, inputs).claims[0].word is Word.OPEN


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("dispatch", lambda plan: plan["dispatch"]["cameras"].update(late="drop")),
        ("dispatch", lambda plan: plan["dispatch"]["cameras"].update(backup=[])),
        ("actions", lambda plan: plan.update(actions=[])),
        ("warnings", lambda plan: plan.update(warnings=[{"code": "W-ok", "at": "", "text": "audited"}])),
        ("valid", lambda plan: plan["valid"].update(rate_qps={"cameras": [0, 1e9]})),
        ("workers", lambda plan: plan["workers"][0].update(queue="per-load")),
        ("routing", lambda plan: plan["routing"].update(cameras=plan["routing"]["cameras"][::-1])),
    ],
)
def test_what_runs_otherwise_is_named(part: str, change: Any) -> None:
    inputs = inputs_of("pipeline")
    document = document_of("pipeline")
    change(document)
    assert any(what.startswith(part) for what in held(document, inputs).differs)


@pytest.mark.slow
def test_the_command_ends_with_6_where_a_bound_is_refuted(tmp_path: Path) -> None:
    profile, slo = (str(EXAMPLES / one) for one in FILES["pool"][:2])
    document = document_of("pool")
    honest, forged = tmp_path / "honest.json", tmp_path / "forged.json"
    honest.write_text(json.dumps(document))
    for claim in document["claims"]:
        claim.update(value=claim["value"] / 2, bound=claim["value"] / 2)
    forged.write_text(json.dumps(document))
    ended = {}
    for plan in (honest, forged):
        words = [sys.executable, "-m", "hetplan", "verify", str(plan), profile, slo, "--prove", "--json"]
        ran = subprocess.run(words, capture_output=True, text=True, check=False)
        ended[plan] = ran.returncode
        lines = [json.loads(line) for line in ran.stdout.splitlines()]
        assert {line["claim"]["about"] for line in lines if "claim" in line} == {"max rate_qps", "max fluid_rate_qps"}
    assert ended == {honest: 0, forged: 6}


QUICK = ["pool", "pool-llm", "pipeline-social", "variants", "compound"]
LONG = ["policy", "fleet"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        *QUICK,
        *(pytest.param(one, marks=pytest.mark.slow) for one in EXAMPLES_OF_ALL if one not in (*QUICK, *LONG)),
        pytest.param("policy", marks=pytest.mark.longest),
    ],
)
def test_every_bound_of_a_shipped_example_is_proved_where_that_is_asked_for(name: str) -> None:
    profile, slo, more = EXAMPLES_OF_ALL[name]
    files = {key: EXAMPLES / one for key, one in more.items()}
    outcome = hp.solve(EXAMPLES / profile, EXAMPLES / slo, **files, require_proof=True)
    assert outcome.exit_code == 0, outcome.violations
    assert {claim.vouched for claim in outcome.claims if claim.bound is not None} == {"certified"}


@pytest.mark.longest
def test_verify_solves_anew_what_its_proofs_do_not_show_where_every_bound_must_be_proved(tmp_path: Path) -> None:
    profile, slo = (str(EXAMPLES / one) for one in FILES["variants"][:2])
    plan = tmp_path / "plan.json"
    document = hp.solve(profile, slo).require().model_dump(mode="json", by_alias=True)
    # As a plan of an engine that proves nothing.
    claim = document["claims"][0]
    solve = next(one for one in document["solves"] if one["id"] == claim["solve"])
    claim["vouched"] = solve["vouched"] = "claimed"
    del solve["proof"], solve["certified_bound"]
    claim["bound"] = solve["bound"] = claim["value"] * (1.0 - 1e-6)
    claim["gap"] = (claim["value"] - claim["bound"]) / claim["value"]
    plan.write_text(json.dumps({**document, "digest": None}))
    ended = {}
    for asked in ((), ("--require-proof",), ("--require-proof", "--gap", "1e-9")):
        words = [sys.executable, "-m", "hetplan", "verify", str(plan), profile, slo, "--json", *asked]
        ran = subprocess.run(words, capture_output=True, text=True, check=False)
        lines = [json.loads(line) for line in ran.stdout.splitlines()]
        ended[asked] = ran.returncode, [line["claim"]["word"] for line in lines if "claim" in line]
    assert ended[()] == (0, ["not proved here"])
    assert ended["--require-proof",] == (0, ["proved again"])
    assert ended["--require-proof", "--gap", "1e-9"][0] == 4


@pytest.mark.longest
def test_verify_solves_anew_where_a_plan_says_that_it_has_no_room_for_a_proof(tmp_path: Path) -> None:
    profile, slo = (EXAMPLES / one for one in FILES["pool"][:2])
    honest = document_of("pool")
    # The best pool for half the money, sold as the best for all of it.
    wish = json.loads(slo.read_text())
    wish["limits"]["cost_per_hour"] = "1.5"
    poor = hp.solve(profile, wish).require().model_dump(mode="json", by_alias=True)
    assert poor["claims"][0]["vouched"] == "certified"
    ended = {}
    for name, document in (("honest", honest), ("forged", poor)):
        for number, hidden in enumerate(({"proof": {"left_out": "tree: 9000 leaves"}}, {"proof": None, "count": 2})):
            plan = tmp_path / f"{name}{number}.json"
            solves = [{**one, **hidden} for one in document["solves"]]
            said = {**document, "inputs": honest["inputs"], "solves": solves, "digest": None}
            plan.write_text(json.dumps(said))
            words = [sys.executable, "-m", "hetplan", "verify", str(plan), str(profile), str(slo), "--json"]
            ran = subprocess.run(words, capture_output=True, text=True, check=False)
            lines = [json.loads(line) for line in ran.stdout.splitlines()]
            ended[name, number] = ran.returncode, {line["claim"]["word"] for line in lines if "claim" in line}
            anew, as_it_is = (hp.verify(said, profile, slo, prove=prove) for prove in (None, False))
            assert {str(one.word) for one in anew.claims} == ended[name, number][1]
            assert anew.ok == (name == "honest")
            assert {one.word for one in as_it_is.claims} == {Word.OPEN}
            assert as_it_is.ok
            assert not as_it_is.differs
    assert ended["honest", 0] == ended["honest", 1] == (0, {"proved again"})
    assert ended["forged", 0] == ended["forged", 1] == (6, {"refuted"})


@pytest.mark.slow
def test_a_report_says_what_solving_anew_says() -> None:
    profile, slo = (EXAMPLES / one for one in FILES["pool"][:2])
    document = document_of("pool")
    honest = hp.verify(document, profile, slo, prove=True)
    assert honest.ok
    assert not honest.differs
    assert {one.word for one in honest.claims} == {Word.PROVED}
    document["solves"] = [{**one, "proof": None} for one in document["solves"]]
    for claim in document["claims"]:
        claim.update(value=claim["value"] / 2, bound=claim["value"] / 2, vouched="claimed")
    document["actions"] = []
    said = hp.verify(document, profile, slo, prove=False)
    assert {one.word for one in said.claims} == {Word.OPEN}
    forged = hp.verify(document, profile, slo, prove=True)
    assert not forged.ok
    assert [one.word for one in forged.claims] == [Word.REFUTED] * 2
    assert [what for what in forged.differs if what.startswith("actions")]
