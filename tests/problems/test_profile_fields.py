"""Field by field: what each question does with a profile and a state, as `hetplan.problems.profile_marks` declares.

Each field is set in small files of each question (`profile_scenes`, `profile_tries`). What is kept changes the plan (or
shows that there is none), what is refused is an error that names it, what is warned of is named, and all that says
nothing to a question is set at once and changes nothing.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import hetplan as hp
from hetplan.api.solve import plan_for
from hetplan.problems.field_marks import QUESTIONS
from hetplan.problems.profile_marks import MODELS, field_in_file, fields_of_file, line_of, mark_in, table_of
from hetplan.profiles.lint import lint
from hetplan.profiles.load import load_inputs
from hetplan.profiles.plan import Plan
from hetplan.profiles.plan_file import plan_bytes
from hetplan.serving.planned_system import planned_systems
from hetplan.serving.tokens import text_system
from hetplan.simulator.plan_transition import scenes_of
from hetplan.simulator.simulate import demands_of
from tests.problems.profile_scenes import beside_others, running, scene_of
from tests.problems.profile_tries import OF_PROFILE, OF_STATE, ZONE, set_everywhere
from tests.problems.test_fields import Files

ROOT = Path(__file__).resolve().parents[2]
RUNS = {f"tables.*.points.*.{name}" for name in ("at", "rate_qps", "given")}
UNTRIED = {"format", "requires", "extensions", *RUNS}
"""Versions, features, data of the user's own, runs of benchmarks: each has tests of its own."""

NOT_TRIED = {
    ("compound", "workers.*.loads.*.variant"): "a state names variants of the profile, and operators are none",
    ("fleet", "variants.*.runs.*.load_s"): "played hour by hour: simulator/test_day.py",
    ("pipeline", "tables.*.outside"): "what is read beyond a table does not verify",
    ("variants", "tables.*.outside"): "what is read beyond a table does not verify",
    **{
        (one, "tables.*.quantity"): "a file says it by the name of the column"
        for one in ("compound", "pipeline", "policy", "pool")
    },
    ("variants", "tables.*.quantity"): "a file says it by the name of the column",
    ("variants", "workers.*.loads.*.serve.max_batch"): "what runs at another batch is unknown, and there is no room",
    ("fleet", "workers.*.loads.*.app"): "whose machines are is asked where there are two: fleet/test_between.py",
}
"""What small files cannot show, and why."""

NAMED = {
    ("compound", "metrics.*.better"): "quality",
    ("compound", "pipelines.*.knobs"): "configuration",
    ("llm", "engines.*.context_tokens"): "context",
    ("pipeline", "pipelines.*.nodes.*.device"): "operators",
    ("compound", "pipelines.*.metric"): "quality",
    ("pipeline", "variants.*.runs.*.rate"): "latency",
    ("policy", "variants.*.runs.*.rate"): "latency",
    ("variants", "tables.*.axes"): "batch",
}
"""What an error names in place of the field: the wish that the field contradicts, or the field to write instead."""


def _read(files: Files) -> Any:
    return load_inputs(files.profile, files.slo, state=files.state, measured=files.measured)


def said(files: Files) -> tuple[str, Plan | None]:
    """What comes of the files, without the tables and the summary that a plan repeats: what they say moves no query."""
    try:
        inputs = _read(files)
        outcome = plan_for(inputs, question=files.question, options=files.options, try_repairs=False)
    except hp.InputError as error:
        return f"refused: {error}", None
    assert not outcome.violations, "what is planned is verified"
    if outcome.plan is None:
        return f"{outcome.status}: {outcome.why}", None
    document = json.loads(plan_bytes(outcome.plan))
    for aside in ("tables", "inputs", "digest", "summary"):
        document.pop(aside, None)
    named = json.dumps(document).replace(f"-{ZONE}", "")  # a price in a zone is called by it
    return f"{outcome.status}: {named}", outcome.plan


def played(files: Files, plan: Plan) -> str:
    """What a simulation of this plan would play, from what runs to the plan's own."""
    inputs = _read(files)
    if files.question == "llm":
        return repr(text_system(plan, inputs, next(iter(inputs.slo.apps))))
    way = scenes_of(plan, inputs) if plan.actions else ()
    return repr((planned_systems(plan, inputs), demands_of(plan, inputs), way))


def tried(file: str, question: str, marks: Sequence[str]) -> Iterator[str]:
    """The fields of a file with one of these marks that are tried."""
    for field in fields_of_file(file):
        if field not in UNTRIED and mark_in(file, question, field) in marks and (question, field) not in NOT_TRIED:
            yield field


LONG = {("profile", "compound"), ("profile", "fleet"), ("state", "compound"), ("state", "policy"), ("state", "fleet")}
"""Whose plans take so long that all of them are tried with the longer tests."""


def cases(*marks: str) -> list[Any]:
    return [
        pytest.param(file, question, one, marks=[pytest.mark.slow] if (file, question) in LONG else [])
        for file in MODELS
        for question in QUESTIONS
        for one in tried(file, question, marks)
    ]


def files_for(file: str, question: str, field: str) -> Files:
    return scene_of(question, field) if file == "profile" else running(question)


@cache
def _come_of(scene: str) -> tuple[str, Plan | None]:
    return said(replace(_FILES[scene]))


def before_it(files: Files) -> tuple[str, Plan | None]:
    """What comes of files before a field is set, worked out once for all that are alike."""
    scene = repr(files)
    _FILES.setdefault(scene, copy.deepcopy(files))
    return _come_of(scene)


_FILES: dict[str, Files] = {}


def changed(file: str, files: Files, field: str) -> int:
    return set_everywhere(files.profile if file == "profile" else files.state or {}, field, files.profile)


def stated(files: Files, field: str) -> None:
    """The section of a field at a step of a pipeline of tasks, which has none."""
    for name, held in (("calls", [{"api": "acme", "where": {"model": ["s"]}}]), ("outcomes", {"share": {"yes": 1}})):
        if f".{name}." in field:
            files.profile["pipelines"]["street"]["nodes"]["detect"][name] = held


def names(text: str, question: str, field: str) -> bool:
    """Whether an error names a field: one of its last two steps, or what is declared instead."""
    steps = [step.rstrip("s") for step in field.split(".") if step != "*"][-2:]
    return any(step in text for step in (*steps, *([NAMED[question, field]] if (question, field) in NAMED else ())))


@pytest.mark.parametrize("file", MODELS)
def test_every_field_is_declared_and_tried(file: str) -> None:
    fields = set(fields_of_file(file))
    assert not [field for field in fields if line_of(file, field) is None], "a new field needs a line of marks"
    assert fields - UNTRIED == set(OF_PROFILE if file == "profile" else OF_STATE), "and a way to set it"


@pytest.mark.quick_sample(20, 80)
@pytest.mark.parametrize(("file", "question", "field"), cases("kept"))
def test_what_is_kept_changes_the_plan_or_is_named(file: str, question: str, field: str) -> None:
    files = files_for(file, question, field)
    before, plan = before_it(files)
    assert plan is not None, before
    assert changed(file, files, field)
    after, _ = said(files)
    assert (after == before) is False, "it changes nothing"
    if after.startswith("refused"):
        assert names(after, question, field), after


@pytest.mark.parametrize(("file", "question", "field"), cases("refused"))
def test_what_is_refused_is_an_error_that_names_it(file: str, question: str, field: str) -> None:
    files = files_for(file, question, field)
    before, plan = before_it(files)
    assert plan is not None, before
    if not changed(file, files, field):
        stated(files, field)
    after, _ = said(files)
    assert after.startswith("refused")
    assert names(after, question, field)


@pytest.mark.quick_sample(25)
@pytest.mark.parametrize(("file", "question", "field"), cases("played"))
def test_what_is_played_moves_no_plan_and_changes_what_is_played(file: str, question: str, field: str) -> None:
    files = files_for(file, question, field)
    before, plan = before_it(files)
    assert plan is not None, before
    calm = copy.deepcopy(files)
    assert changed(file, files, field)
    assert (said(files)[0] == before) is True, "it changes the plan"
    assert (played(files, plan) == played(calm, plan)) is False, "it changes nothing"


@pytest.mark.quick_sample(12)
@pytest.mark.parametrize(("file", "question", "field"), cases("warned"))
def test_what_is_warned_of_moves_no_plan_and_is_named(file: str, question: str, field: str) -> None:
    files = files_for(file, question, field)
    before, _ = before_it(files)
    assert changed(file, files, field)
    after, plan = said(files)
    assert after == before
    assert plan is not None
    section = field_in_file(field).split(".")[0] if file == "profile" else field.split(".")[0]
    notices = [(one.code, one.at or "") for one in plan.warnings] + [(one[0], one[1]) for one in lint(_read(files))]
    assert any(at.startswith(f"{section}.") and code in ("W-commit", "W-unused") for code, at in notices)


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("file", MODELS)
def test_what_says_nothing_to_a_question_changes_no_plan(file: str, question: str) -> None:
    joined = ("pipelines.*.edges.*.from", "pipelines.*.edges.*.to", "pipelines.*.edges.*.on")  # by what is there only
    fields = [field for field in tried(file, question, ("unused", "-")) if field not in joined]

    def with_all(some: Sequence[str], *, change: bool) -> str:
        files = beside_others(question) if file == "profile" else running(question)
        for field in sorted(some, key=lambda one: not one.startswith("tables.")) if change else ():
            changed(file, files, field)
        return said(files)[0]

    calm = with_all((), change=False)
    assert not calm.startswith("refused"), calm
    after = with_all(fields, change=True)
    if after != calm:  # which of them it was
        assert not [field for field in fields if with_all([field], change=True) != calm], after


@pytest.mark.parametrize("file", MODELS)
def test_the_tables_in_the_docs_are_the_declaration(file: str) -> None:
    """`python -c "from hetplan.problems.profile_marks import table_of; print(table_of('state'))"` writes it anew."""
    assert table_of(file) in (ROOT / "docs" / "reference" / "marks.md").read_text()
