"""Machines that applications of a fleet share: fewer than each needs alone, checked, played and paid in parts."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from typing import Any

import pytest
from cases.shared_fleets import Files, Json, cost, goes_on, solved

import hetplan as hp
from hetplan.planner.bound_verdicts import Word
from hetplan.profiles.load import load_inputs
from hetplan.profiles.plan_file import with_digest
from hetplan.simulator.day import HowPlayed, play_day


def _files(rates: dict[str, list[float]], gpu: float = 0.3, **limits: Any) -> Files:
    """Applications with a model each; one instance takes a part of a card, and 100 queries a second."""
    profile = {
        "format": "hetplan/profile/1.0",
        "hardware": {"card": {"kind": "gpu", "provides": {"gpu": 1}}},
        "offers": {f"card-{zone}": {"hardware": "card", "zone": zone, "price_per_hour": "1", "stock": 9,
                                    "commit": {"term_s": 86400, "discount": 0.4}} for zone in "ab"},
        "tasks": {name: {} for name in rates},
        "variants": {f"of-{name}": {"task": name, "runs": [
            {"hardware": "card", "at": {"batch": 1}, "latency": "t", "needs": {"gpu": gpu}, "saturation_qps": 100}]}
            for name in rates},
        "tables": {"t": {"quantity": "latency_ms", "axes": {"batch": [1]}, "mean": [10]}},
    }  # fmt: skip
    slo = {
        "format": "hetplan/slo/1.0",
        "limits": limits,
        "horizon": {"period_s": 3600, "periods": len(next(iter(rates.values()))), "repeats": 24},
        "apps": {name: {"question": "variants", "model": f"of-{name}",
                        "latency": {"p95_ms": 200}, "rate_qps": {"series": series}}
                 for name, series in rates.items()},
    }  # fmt: skip
    return profile, slo


SLACK = 1.05
"""What the question leaves free of an instance."""
FACES = {"faces": [90.0, 90.0], "plates": [80.0, 10.0]}


@pytest.mark.slow
def test_loads_that_fit_together_share_a_machine_and_the_bill_says_what_that_saves() -> None:
    """Either needs a part of a card: one of the cards is left out, in every hour."""
    files = _files(FACES)
    own, plan = solved(files, share_machines=False).require(), solved(files).require()
    assert own.bill is not None
    assert plan.bill is not None
    assert (own.bill.cost_per_hour, plan.bill.cost_per_hour) == pytest.approx((1.2, 0.6))
    assert [one.name for one in plan.bill.levers][-1] == "shared"
    assert all(one.verified for one in plan.bill.levers)
    assert plan.bill.levers[-1].saves_per_hour == pytest.approx(0.6)
    assert plan.bill.apps == pytest.approx({"faces": 0.3, "plates": 0.3})
    assert goes_on(files, plan)
    assert hp.verify(plan, *files).ok
    (claim,) = plan.claims
    assert claim.bound is not None
    assert claim.bound == 0.0, "all of them may share, and count as free"
    assert [one.word for one in hp.verify(plan, *files).claims] == [Word.PROVED], "nothing costs less than none"


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("seed", range(4))
def test_cards_are_as_few_as_all_instances_fill(seed: int) -> None:
    """Three instances fill a card, whosever they are."""
    chance = random.Random(seed)
    rates = {name: [chance.uniform(20.0, 700.0)] for name in ("one", "two", "three")}
    files = _files(rates)
    for offer in files[0]["offers"].values():
        del offer["commit"]
    instances = sum(math.ceil(SLACK * rate / 100.0) for (rate,) in rates.values())
    assert cost(solved(files)) == pytest.approx(math.ceil(instances / 3))


def test_what_a_failure_leaves_carries_all_that_share_and_so_it_is_played() -> None:
    """A zone may be lost: a card in each zone for both, where each alone has one in each."""
    files = _files({"faces": [60.0], "plates": [50.0]}, survive={"zones": 1, "serve": 0.9})
    assert cost(solved(files, share_machines=False)) == pytest.approx(2.4)
    plan = solved(files).require()
    (names,) = {period.failures["zone a lost"] for period in plan.periods if period.failures is not None}
    parts = plan.parts or {}
    assert [parts[name].rate_qps for name in names] == [pytest.approx({"faces": 54.0, "plates": 45.0})]
    assert [worker.offer for name in names for worker in parts[name].workers] == ["card-b"]
    day = play_day(plan, load_inputs(*files), HowPlayed(seeds=1, queries=5e3))
    assert day.ok
    assert {app for one in day.failures for app in one.after} == {"faces", "plates"}
    assert all(found.value > 0.99 for found in day.in_time.values())


@pytest.mark.parametrize(
    "change",
    [
        lambda slo: slo["limits"].update(changes=9),
        lambda slo: slo["limits"].update(spot={"max_share": 0.99}),
        lambda slo: slo["limits"].update(on_demand={"min": 2}),
        lambda slo: slo["limits"].update(instances={"card": [2, 9]}),
    ],
)
def test_beside_limits_that_fewer_machines_may_break_nothing_is_shared(change: Any) -> None:
    profile, slo = _files(FACES)
    change(slo)
    assert all(
        len(part.rate_qps) == 1 for part in (solved((profile, slo), savings=False).require().parts or {}).values()
    )


def _loading(files: Files, load_s: float) -> Files:
    """The same files, where a variant is loaded in so long and machines start in 90 s."""
    for variant in files[0]["variants"].values():
        variant["runs"][0]["load_s"] = load_s
    files[0]["hardware"]["card"]["startup_s"] = 90
    return files


def test_a_machine_for_a_failure_holds_ahead_what_it_serves_then() -> None:
    files = _loading(_files({"faces": [60.0]}, gpu=1.0, survive={"zones": 1, "serve": 1.0}), load_s=70)
    plan = solved(files, savings=False).require()
    (part,) = [(plan.parts or {})[name] for name in plan.periods[0].parts or ()]
    assert {worker.offer: [load.variant for load in worker.loads] for worker in part.workers} == {
        "card-a": ["of-faces"], "card-b": ["of-faces"],
    }  # fmt: skip
    assert len(part.routing["faces"][0].to) == 1, "it gets no queries before"
    assert hp.verify(plan, *files).ok
    day = play_day(plan, load_inputs(*files), HowPlayed(seeds=1, queries=5e3))
    assert min(one.after["faces"].value for one in day.failures) > 0.99


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(("load_s", "cards"), [(5.0, 3), (40.0, 4)])
def test_a_machine_goes_over_to_another_application_only_where_that_is_soon(load_s: float, cards: int) -> None:
    """Two need a card each, whichever of three zones is lost: a third card for either of them has to load."""
    limits = {"survive": {"zones": 1, "serve": 1.0}}
    profile, slo = _loading(_files({"faces": [60.0], "plates": [50.0]}, gpu=1.0, **limits), load_s)
    profile["offers"]["card-c"] = {**profile["offers"]["card-a"], "zone": "c"}
    plan = solved((profile, slo), savings=False).require()
    assert plan.bill is not None
    assert plan.bill.cost_per_hour == pytest.approx(0.6 * cards)
    day = play_day(plan, load_inputs(profile, slo), HowPlayed(seeds=1, queries=5e3))
    assert min(found.value for one in day.failures for found in one.after.values()) > 0.95


def test_two_that_do_not_fit_on_a_card_have_one_each() -> None:
    assert cost(solved(_files(FACES, gpu=0.6))) == pytest.approx(1.2)


def _forged(plan: Json, what: str) -> None:
    part = plan["parts"]["faces-plates-1"]
    if what == "load":
        part["workers"][0]["loads"].pop()
    elif what == "bill":
        for line in plan["bill"]["lines"]:
            line["cost_per_hour"] *= 1.5 if line["app"] == "faces" else 0.5
        plan["bill"]["apps"] = {"faces": 0.45, "plates": 0.15}
    else:
        plan["claims"][0] |= {"bound": 0.5, "gap": 1 / 6, "vouched": "certified"}


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("what", ["load", "bill", "bound"])
def test_the_verifier_sees_what_is_wrong_of_machines_that_are_shared(what: str) -> None:
    files = _files(FACES)
    said = json.loads(solved(files).require().model_dump_json(by_alias=True, exclude_none=True))
    assert hp.verify(with_digest(hp.Plan.model_validate(said)), *files).ok
    _forged(said, what)
    assert not hp.verify(with_digest(hp.Plan.model_validate(said)), *files).ok


def _pipelines(rates: Sequence[float]) -> Files:
    """Two pipelines of two steps; an instance takes one card of a node of four."""
    steps = ("see", "name", "read", "tell")
    profile: Json = {
        "format": "hetplan/profile/1.0",
        "tasks": {step: {} for step in steps},
        "hardware": {"node": {"kind": "gpu", "provides": {"gpu": 4}}},
        "offers": {"node": {"hardware": "node", "price_per_hour": "8"}},
        "tables": {"t": {"quantity": "latency_ms", "axes": {"batch": [1, 4]}, "mean": [8, 16]}},
        "variants": {
            step: {"task": step, "quality": {"value": 0.9},
                   "runs": [{"hardware": "node", "needs": {"gpu": 1}, "latency": "t"}]}
            for step in steps
        },
        "pipelines": {
            name: {
                "nodes": {first: {"task": first}, last: {"task": last}}, "quality": {"rule": "product"},
                "edges": [{"from": first, "to": last, "fanout": 1}],
            }
            for name, first, last in (("p", "see", "name"), ("q", "read", "tell"))
        },
    }  # fmt: skip
    app: Json = {"latency": {"p99_ms": 200}, "rate_qps": {"series": list(rates)}}
    apps = {name: {**app, "pipeline": one} for name, one in (("left", "p"), ("right", "q"))}
    horizon = {"period_s": 3600, "periods": len(rates)}
    limits = {"instances": {"node": [0, 9]}}
    return profile, {"format": "hetplan/slo/1.0", "horizon": horizon, "apps": apps, "limits": limits}


@pytest.mark.slow
def test_pipelines_share_nodes_and_are_played_so() -> None:
    """One node carries all four steps, where each pipeline alone has a node of its own."""
    files = _pipelines([60.0, 120.0])
    plan = solved(files).require()
    assert plan.bill is not None
    assert plan.bill.cost_per_hour == pytest.approx(8.0)
    assert plan.bill.apps == pytest.approx({"left": 4.0, "right": 4.0})
    assert cost(solved(files, share_machines=False)) == pytest.approx(16.0)
    assert hp.verify(plan, *files).ok
    day = play_day(plan, load_inputs(*files), HowPlayed(seeds=1, queries=1e4))
    assert day.ok
    assert min(found.value for found in day.in_time.values()) > 0.99
    assert goes_on(files, plan)


@pytest.mark.slow
def test_a_bound_counts_those_who_may_share_as_free_where_nobody_does() -> None:
    """Nodes can be shared, and no fewer of these carry both: other hardware, shared, might cost less."""
    files = _pipelines([100.0, 300.0])
    files[0]["hardware"]["one"] = {"kind": "gpu", "provides": {"gpu": 1}}
    files[0]["offers"]["one"] = {"hardware": "one", "price_per_hour": "3"}
    for variant in files[0]["variants"].values():
        variant["runs"].append({**variant["runs"][0], "hardware": "one"})
    files[1]["limits"]["instances"]["one"] = [0, 9]
    plan = solved(files).require()
    (claim,) = plan.claims
    assert claim.bound is not None
    files[1]["limits"]["instances"]["one"] = [0, 0]
    assert claim.bound <= cost(solved(files)) + 1e-9
    assert "count as free" in (claim.note or "")
