"""Option `sizing` in all questions: the same three words, and plans that say what they rest on."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pytest

import hetplan as hp
from hetplan import registry
from hetplan.planner.terms import Sizing
from hetplan.profiles.plan_file import with_digest
from tests.build import shipped

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
SIZES = get_args(Sizing)
QUESTIONS = ("pool", "pipeline", "variants", "policy", "compound", "llm", "fleet")
PLAYED = {
    "pool": ("rate_qps",), "pipeline": ("response_ms",), "variants": ("response_ms",), "policy": ("violations",),
    "compound": ("response_ms",), "llm": ("ttft_ms", "tpot_ms"), "fleet": ("ttft_ms", "tpot_ms"),
}  # fmt: skip
"""What a play says of a plan of each question."""
CALCULATED = ("fluid", "no-queueing", "stationary/1", "measured")
FEW = {"queries": 400}
Json = dict[str, Any]


def read(name: str) -> Json:
    return shipped(EXAMPLES / name)


def files(question: str) -> tuple[Json, Json, Json | None]:
    of = "llm" if question == "fleet" else question
    profile, slo = read(f"{of}/profile.json"), read(f"{of}/slo.json")
    if question == "compound":
        return profile, read("compound/rate-slo.json"), read("compound/measured.json")
    if question == "policy":
        slo["apps"]["images"]["rate_qps"] = 300
    if question == "fleet":
        app = slo["apps"]["assistant"]
        app["rate_qps"] = {"series": [app["rate_qps"] / 5]}
        slo["horizon"] = {"period_s": 3600, "periods": 1}
    return profile, slo, None


QUICK: dict[str, Json] = {
    "policy": {"queue_max": 6}, "llm": FEW, "fleet": {"savings": False, "parts": {"assistant": FEW}}
}  # fmt: skip


@cache
def solved(question: str, size: str) -> tuple[hp.Outcome, hp.Report]:
    profile, slo, measured = files(question)
    options = {"sizing": size, **QUICK.get(question, {})}
    outcome = hp.solve(profile, slo, measured, options=options, formulation=question)
    return outcome, hp.verify(outcome.require(), profile, slo, measured)


def said(document: Any) -> Iterator[tuple[str, str]]:
    """Every quantity that a plan promises, with its model, also in the plans of its parts."""
    if isinstance(document, dict):
        if "quantity" in document and "model" in document:
            yield document["quantity"], document["model"]
        for one in document.values():
            yield from said(one)
    elif isinstance(document, list):
        for one in document:
            yield from said(one)


def test_every_question_has_the_three_words_and_says_what_they_mean() -> None:
    assert set(QUESTIONS) == set(registry.PROBLEMS)
    for question in QUESTIONS:
        formulations = list(registry.problem(question).formulations.values())
        for options in formulations:
            assert get_args(options.model_fields["sizing"].annotation) == SIZES, (question, options)
        field = formulations[0].model_fields["sizing"]
        assert field.default == "simulation"
        assert not [size for size in SIZES if not re.search(rf"\b{size}(:|, formula:)", field.description or "")]


def _marks(question: str, size: str) -> list[pytest.MarkDecorator]:
    slow = size == "simulation" and question in ("pool", "pipeline", "variants", "fleet")
    return [pytest.mark.slow] if slow else []


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize(
    ("question", "size"),
    [pytest.param(question, size, marks=_marks(question, size)) for question in QUESTIONS for size in SIZES],
)
def test_plans_of_each_size_are_sealed_and_promise_by_what_they_rest_on(question: str, size: str) -> None:
    outcome, report = solved(question, size)
    assert (outcome.exit_code, report.violations) == (0, ())
    plan = outcome.require()
    assert plan.method.options["sizing"] == size
    promised = list(said(json.loads(plan.model_dump_json(by_alias=True))))
    by_play = {quantity for quantity, model in promised if model.startswith("simulation/")}
    if size in ("fluid", "formula"):
        assert not by_play
        assert {model for _, model in promised} <= set(CALCULATED)
    else:
        assert set(PLAYED[question]) <= by_play
        assert "W-queueing" not in {warning.code for warning in plan.warnings}


def test_a_plan_with_the_word_of_another_size_does_not_verify() -> None:
    plan = solved("compound", "fluid")[0].require()
    renamed = plan.method.model_copy(update={"options": {**plan.method.options, "sizing": "simulation"}})
    profile, slo, measured = files("compound")
    report = hp.verify(with_digest(plan.model_copy(update={"method": renamed})), profile, slo, measured)
    assert report.violations


@pytest.mark.slow
def test_compound_plans_are_dearer_the_more_room_they_leave() -> None:
    costs = [
        next(one.value for one in solved("compound", size)[0].require().promises if one.quantity == "cost_per_hour")
        for size in ("fluid", "simulation")
    ]
    assert costs[0] < costs[1]


def test_streams_of_compound_wait_for_nobody_so_each_size_is_the_same_plan() -> None:
    profile, slo, measured = (read(f"compound/{name}.json") for name in ("profile", "slo", "measured"))
    plans = [hp.solve(profile, slo, measured, options={"sizing": size}).require() for size in SIZES]
    assert all(one.workers == plans[0].workers and one.promises == plans[0].promises for one in plans)
