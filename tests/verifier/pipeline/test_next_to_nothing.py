"""Pipelines that are asked for next to nothing: honest plans are accepted, and what is spoilt in them is named."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from cases.pipelines import diamond, fluid, random_pipeline

import hetplan as hp
from hetplan.api.solve import verified
from hetplan.profiles.plan_file import plan_dict
from hetplan.profiles.read_plan import read_plan
from hetplan_papers.datasets.loki_by_hand import depth_3, tiny, two_pipelines

Document = dict[str, Any]
FORMULATIONS = ("pipeline-milp", "loki", "loki-budget")
RATES = (1e-9, 4e-4, 0.03)
FILES: dict[str, Callable[[float], tuple[Document, Document]]] = {
    "tiny": lambda rate: tiny(0.2, rate),
    "depth_3": depth_3,
    "sends next to nothing on": lambda rate: sending(1e-7, rate),
    "sends nothing on": lambda rate: sending(0.0, rate),
}


def sending(fanout: float, rate: float) -> tuple[Document, Document]:
    """`tiny`, whose first step sends on next to nothing, or nothing."""
    profile, slo = tiny(0.2, rate)
    profile["pipelines"]["p"]["edges"][0]["fanout"] = {"a1": fanout, "a2": fanout}
    return profile, slo


@cache
def made(name: str, formulation: str, rate: float) -> tuple[Document, hp.Inputs]:
    files = FILES[name](rate)
    outcome = fluid(*files, formulation=formulation)
    return plan_dict(outcome.require()), hp.load(*files)


def codes(document: Document, inputs: hp.Inputs) -> set[str]:
    return {one.code for one in verified(read_plan(document, trust_digest=True), inputs).violations}


@pytest.mark.quick_sample(20)
@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("formulation", FORMULATIONS)
@pytest.mark.parametrize("name", sorted(FILES))
def test_an_honest_plan_is_accepted(name: str, formulation: str, rate: float) -> None:
    document, inputs = made(name, formulation, rate)
    assert codes(document, inputs) == set()
    (promised,) = [one["value"] for one in document["promises"] if one["quantity"] == "rate_qps"]
    assert promised == pytest.approx(rate, rel=1e-11, abs=0)


def test_branches_that_join_and_pipelines_beside_others_are_accepted() -> None:
    joined = diamond(1e-6, 120)
    beside = two_pipelines(4)
    beside[1]["apps"]["y"]["rate_qps"] = 1e-8
    for files in (joined, beside):
        plan = fluid(*files).require()
        assert hp.verify(plan, *files).violations == ()
        wanted = {name: app["rate_qps"] for name, app in files[1]["apps"].items()}
        assert {one.app: one.value for one in plan.promises if one.quantity == "rate_qps"} == pytest.approx(wanted)


def promised(plan: Document, factor: float) -> None:
    """The rate that is promised is another, and so is what the plan holds for."""
    (promise,) = [one for one in plan["promises"] if one["quantity"] == "rate_qps"]
    promise["value"] *= factor
    plan["valid"]["rate_qps"]["x"][1] *= factor


def left_over(plan: Document, part: float) -> None:
    entry = plan["dispatch"]["x"]["backup"][0]
    entry["left_qps"] *= part


def unserved(plan: Document) -> None:
    plan["unserved"] = [{"app": "x", "rate_qps": 1e-10, "why": "beyond what the servers carry"}]


SPOILT: list[tuple[str, Callable[[Document], None], str]] = [
    ("half the rate", lambda plan: promised(plan, 0.5), "demand"),
    ("more is left over", lambda plan: left_over(plan, 1.00001), "backup"),
    ("unserved is more than is wanted", unserved, "promise-wish"),
]


@pytest.mark.quick_sample(15)
@pytest.mark.parametrize("formulation", FORMULATIONS)
@pytest.mark.parametrize(("spoil", "code"), [one[1:] for one in SPOILT], ids=[words for words, *_ in SPOILT])
def test_what_is_spoilt_is_named(spoil: Callable[[Document], None], code: str, formulation: str) -> None:
    for name in ("tiny", "depth_3"):
        document, inputs = made(name, formulation, 1e-9)
        spoilt = copy.deepcopy(document)
        spoil(spoilt)
        assert code in codes(spoilt, inputs), name


@pytest.mark.parametrize("rate", [1e-9, 4e-4, 0.008])
@pytest.mark.parametrize("formulation", ["pipeline-milp", "loki"])
def test_a_bound_by_servers_in_parts_is_one_for_what_is_asked(formulation: str, rate: float) -> None:
    """Loads that engines can see need more of a server than next to nothing does."""
    files = depth_3(rate)
    plan = fluid(*files, formulation=formulation, options={"sizing": "formula"}).require()
    assert plan.claims[1].scope == "relaxation"
    assert plan.claims[1].vouched == "certified"
    assert hp.verify(plan, *files).violations == ()


@pytest.mark.parametrize("price", ["0.0004", "0.0000007", "20000"])
def test_bounds_at_any_price_are_proved_again(price: str) -> None:
    profile, slo = random_pipeline(1258, gpus=2, tasks=2)
    slo["apps"]["x"]["rate_qps"] = 4e-4
    slo["objective"] = ["max quality", "min cost"]
    profile["offers"] = {f"{gpu}": {"hardware": gpu, "price_per_hour": price} for gpu in profile["hardware"]}
    plan = fluid(profile, slo, formulation="pipeline-milp", options={"spare": 0.1}).require()
    assert [(one.about, one.vouched) for one in plan.claims] == [
        ("quality", "certified"),
        ("cost_per_hour", "certified"),
    ]
    report = hp.verify(plan, profile, slo, prove=False)
    assert report.violations == ()
    assert {one.word for one in report.claims} == {"proved again"}
