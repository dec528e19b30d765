"""Samples from service: on disk before they count, the same decision after a kill, and a plan from what is known."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

import hetplan as hp
from hetplan.errors import InputError
from hetplan.measure.journal import Journal
from hetplan.measure.live_samples import InService
from hetplan.profiles.sampled import sampled_of

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "compound"
FILES = (EXAMPLE / "profile.json", EXAMPLE / "slo.json")


@pytest.fixture(scope="module")
def made() -> tuple[hp.Plan, hp.Inputs]:
    measured = json.loads((EXAMPLE / "measured.json").read_text())
    return hp.solve(*FILES, measured).require(), hp.load(*FILES)


def journal_of(inputs: hp.Inputs, path: Path) -> Journal:
    """A journal that holds what the example's document holds."""
    journal = Journal(path, of=sampled_of(inputs))
    for app, plans in json.loads((EXAMPLE / "measured.json").read_text())["apps"].items():
        for plan in plans:
            journal.add_plan(app, plan["knobs"], {key: value for key, value in plan.items() if key != "knobs"})
    return journal


def quality(plan: hp.Plan, app: str) -> Any:
    return next(one for one in plan.promises if one.app == app and one.quantity == "quality")


def write(path: Path, app: str, chance: float, count: int, seed: int = 0) -> None:
    rng = random.Random(seed)
    with open(path, "a") as file:
        for _ in range(count):
            file.write(json.dumps({"app": app, "score": float(rng.random() < chance)}) + "\n")


def test_nothing_is_noticed_while_the_plan_does_what_it_promised(made: Any, tmp_path: Path) -> None:
    plan, inputs = made
    service = InService(plan, inputs, journal_of(inputs, tmp_path / "j.jsonl"))
    write(tmp_path / "live", "gate", quality(plan, "gate").value, 3000)
    assert service.read(tmp_path / "live") is None
    assert service.read(tmp_path / "live") is None


def test_a_fall_is_noticed_and_what_was_measured_becomes_old(made: Any, tmp_path: Path) -> None:
    plan, inputs = made
    path = tmp_path / "j.jsonl"
    journal = journal_of(inputs, path)
    before = len(journal.document()["apps"]["gate"])
    service = InService(plan, inputs, journal)
    target = inputs.slo.apps["gate"].quality.min
    write(tmp_path / "live", "gate", 0.97, 500)
    write(tmp_path / "live", "gate", target - 0.1, 2500, seed=1)
    found = service.read(tmp_path / "live")
    assert found is not None
    assert (found.app, found.quantity) == ("gate", "accuracy")
    assert 400 <= found.since <= 700
    assert found.samples < 2500
    service.conclude(found)
    knobs = dict(plan.dispatch["gate"].knobs)
    judged = journal.plan("gate", knobs)
    assert judged is not None
    assert not judged["passes"]
    assert judged["mean"] == pytest.approx(target - 0.1, abs=0.05)
    assert len(journal.document()["apps"]["gate"]) == 1
    assert len(journal.known()["apps"]["gate"]) == before
    assert len(journal.document()["apps"]["dock"]) > 1
    # From what is known: the plan that fell short is not chosen again.
    again = hp.solve(*FILES, journal.known())
    gate = again.plan.dispatch.get("gate") if again.plan is not None else None
    assert gate is None or dict(gate.knobs) != knobs
    journal.close()
    read = Journal(path, of=sampled_of(inputs))
    assert (read.document(), read.known(), read.drifted) == (journal.document(), journal.known(), True)
    read.close()


def test_after_a_kill_the_same_samples_give_the_same_decision(made: Any, tmp_path: Path) -> None:
    plan, inputs = made
    target = inputs.slo.apps["gate"].quality.min
    write(tmp_path / "live", "gate", 0.97, 300)
    write(tmp_path / "live", "gate", target - 0.1, 3000, seed=1)
    whole = InService(plan, inputs, journal_of(inputs, tmp_path / "whole.jsonl")).read(tmp_path / "live")
    lines = (tmp_path / "live").read_bytes().splitlines(keepends=True)
    (tmp_path / "part").write_bytes(b"".join(lines[:350]) + lines[350][:9])
    killed = journal_of(inputs, tmp_path / "killed.jsonl")
    assert InService(plan, inputs, killed).read(tmp_path / "part") is None
    killed.close()
    (tmp_path / "part").write_bytes(b"".join(lines))
    later = Journal(tmp_path / "killed.jsonl", of=sampled_of(inputs))
    assert later.read == sum(map(len, lines[:350]))
    assert InService(plan, inputs, later).read(tmp_path / "part") == whole
    later.close()
    # Killed between the alarm and what follows from it: the alarm is there again.
    again = Journal(tmp_path / "killed.jsonl", of=sampled_of(inputs))
    assert InService(plan, inputs, again).read(tmp_path / "part") == whole
    again.close()


def test_late_responses_are_noticed(made: Any, tmp_path: Path) -> None:
    plan, inputs = made
    journal = journal_of(inputs, tmp_path / "j.jsonl")
    service = InService(plan, inputs, journal)
    limit = next(one for one in plan.promises if one.app == "gate" and one.quantity == "response_ms")
    slow = [{"response_ms": limit.value * (1.2 if n % 3 else 0.8)} for n in range(2000)]
    found = service.take("gate", slow)
    assert found is not None
    assert found.quantity == f"p{limit.percentile:g}"
    journal.close()


@pytest.mark.parametrize("line", ["{}", '{"app": "gate"}', '{"app": "gate", "score": "x"}', "no json"])
def test_a_line_that_is_no_sample_is_refused_by_its_place(made: Any, tmp_path: Path, line: str) -> None:
    plan, inputs = made
    (tmp_path / "live").write_text(line + "\n")
    with pytest.raises(InputError, match="byte 0"):
        InService(plan, inputs, Journal()).read(tmp_path / "live")
