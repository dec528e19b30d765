"""Bounds of fleets that make text are proved again from what a plan carries; forged ones are not."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

import hetplan as hp
from hetplan.profiles.plan_file import plan_dict
from hetplan.verifier.claims_again import Word
from hetplan.verifier.report import Report
from tests.cases import texts

Document = dict[str, Any]
OBSERVED = {
    "axes": ["output_tokens", "input_tokens"],
    "bins": [[80, 200], [120, 1000], [60, 3000]],
    "observed": [[70, 150], [80, 900], [110, 800], [20, 2900], [60, 200], [33, 40]],
}


def files(name: str) -> tuple[Document, Document]:
    """Wishes that have other rows each."""
    profile, slo = texts.profile(), texts.slo(90.0)
    if name == "limits":
        slo["limits"] = {"cost_per_hour": "40", "instances": {"big": [1, 30], "small": [0, 20]}}
        profile["offers"]["small-spot"] = {"hardware": "small", "price_per_hour": "0.4", "stock": 3}
    if name == "observed":
        slo["apps"]["chat"]["demand"]["mix"] = copy.deepcopy(OBSERVED)
        profile["engines"]["slow"].update(reserves=True, context_tokens=2048)
        profile["hardware"]["big"]["provides"] = {"gpu": 4}
        profile["engines"]["fast"]["tensor"] = 2
    if name == "roles":
        profile["engines"]["fast"].update(role="prefill", kv_bytes_per_token=131072)
        profile["engines"]["slow"]["role"] = "decode"
        profile["hardware"]["big"]["tier"], profile["hardware"]["small"]["tier"] = "a", "b"
        profile["tiers"] = ["a", "b"]
        profile["links"] = [{"between": ["a", "b"], "bandwidth_mbps": 100_000}]
    if name == "late":
        slo["apps"]["chat"]["latency"][0].update(max_ms=150, percentile=85)
    return profile, slo


@cache
def sound(name: str) -> Document:
    return plan_dict(hp.solve(*files(name), options={"size": "planned"}).require())


def verified(document: Document, name: str) -> Report:
    return hp.verify(hp.read_plan(document, trust_digest=True), *files(name))


@pytest.mark.parametrize("name", ["plain", "limits", "observed", "roles", "late"])
def test_the_bound_is_proved_again(name: str) -> None:
    report = verified(sound(name), name)
    assert report.ok, report.violations
    assert [one.word for one in report.claims] == [Word.PROVED]


def tree(plan: Document) -> Document:
    found: Document = plan["solves"][0]["proof"]["tree"]
    return found


def raised(plan: Document) -> None:
    for place in (plan["claims"][0], plan["solves"][0]):
        place["bound"] *= 1.01


FORGED: dict[str, Callable[[Document], object]] = {
    "a higher bound": raised,
    "no proof": lambda p: p["solves"][0].pop("proof"),
    "other multipliers": lambda p: tree(p).update(leaves=[" ".join("3" for _ in x.split()) for x in tree(p)["leaves"]]),
    "no numbers": lambda p: tree(p).update(leaves=[" ".join("inf" for _ in x.split()) for x in tree(p)["leaves"]]),
    "a leaf less": lambda p: tree(p).update(leaves=tree(p)["leaves"][:-1]),
    "rows that nobody has": lambda p: tree(p).update(rows=[f"{row}x" for row in tree(p)["rows"]]),
    "the proof of another solve": lambda p: p["claims"][0].update(solve=2),
    "a wider scope": lambda p: p["claims"][0].update(scope="problem"),
    "another quantity": lambda p: p["claims"][0].update(about="gpus"),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_bound_that_the_proof_does_not_show_is_no_proved_one(name: str) -> None:
    plan = copy.deepcopy(sound("plain"))
    FORGED[name](plan)
    report = verified(plan, "plain")
    assert Word.PROVED not in {one.word for one in report.claims}
    assert not report.ok


def test_a_bound_is_of_the_rate_and_the_prices_of_the_files() -> None:
    plan, (profile, slo) = sound("plain"), files("plain")
    for offer in profile["offers"].values():
        offer["price_per_hour"] = "0.9"
    report = hp.verify(hp.read_plan(plan, trust_digest=True), profile, slo)
    assert [one.word for one in report.claims] == [Word.OPEN]
