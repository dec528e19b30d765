"""Random small fleets: where machines are said to come in, to change or to hold is tried by solving there."""

from __future__ import annotations

import random
from copy import deepcopy
from typing import Any

import pytest
from cases.random_fleets import random_fleet

import hetplan as hp
from hetplan.studies.axes import Files as Documents
from hetplan.studies.axes import factor
from hetplan.studies.robust import Box, robust_for

Json = dict[str, Any]
PLANNED = {"sizing": "fluid"}


def fleet(profile: Json, slo: Json) -> dict[str, int] | None:
    """The machines of the best plan."""
    plan = hp.solve(profile, slo, options=PLANNED).plan
    if plan is None:
        return None
    return {w.offer or "": sum(o.count for o in plan.workers if o.offer == w.offer) for w in plan.workers}


def sold_at(profile: Json, offer: str, price: float) -> Json:
    found = deepcopy(profile)
    found["offers"][offer]["price_per_hour"] = f"{price:.9f}"
    return found


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    "seed", [3, 10, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (0, 5, 9, 11, 13, 15))]
)
def test_a_machine_comes_in_at_the_price_that_is_said_and_not_above_it(seed: int) -> None:
    profile, slo = random_fleet(seed)
    found = hp.explain(hp.solve(profile, slo, options=PLANNED).require(), profile, slo)
    assert any(one.enters_at_price is not None for one in found.absent)
    for one in found.absent:
        price = one.enters_at_price
        assert price is not None
        assert one.price is not None
        beside = 3e-5 * one.price
        cheaper = sold_at(profile, one.offer, price - beside)
        if "limits" in slo:  # within a budget fleets with it and without it may carry the same
            with_it = {**slo, "limits": {**slo["limits"], "instances": {one.offer: [1, None]}}}
            best, held = (hp.solve(cheaper, asked, options=PLANNED).require().claims[0] for asked in (slo, with_it))
            assert held.value == pytest.approx(best.value)
        else:
            assert one.offer in (fleet(cheaper, slo) or {})
            assert one.offer not in (fleet(sold_at(profile, one.offer, price + beside), slo) or {})


def varied(profile: Json, slo: Json, rng: random.Random) -> tuple[str, float, float, list[Any]]:
    """An axis of these files, its ends, and the steps to what it changes."""
    if rng.random() < 0.5:
        offer = rng.choice(sorted(profile["offers"]))
        now = float(profile["offers"][offer]["price_per_hour"])
        return f"price:{offer}", round(now * 0.3, 3), round(now * 1.7, 3), [profile, "offers", offer, "price_per_hour"]
    if "limits" in slo:
        return "budget", 2.0, 8.0, [slo, "limits", "cost_per_hour"]
    rate = slo["apps"]["app"]["rate_qps"]
    return "rate", round(rate * 0.5, 1), round(rate * 1.5, 1), [slo, "apps", "app", "rate_qps"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 3, 4, 12, 14, 16])
def test_between_the_changes_that_are_found_the_fleet_is_the_one_that_is_said(seed: int) -> None:
    profile, slo = random_fleet(seed)
    name, low, high, (at, *steps) = varied(profile, slo, random.Random(seed))
    found = hp.whatif(profile, slo, vary=f"{name}={low}:{high}", confirm=False, options=PLANNED)
    tried, width = 0, 1.1e-3 * (high - low)
    for number in range(40):
        value = low + (high - low) * (number + 0.37) / 40
        if any(one.low - width <= value <= one.high + width for one in found.breakpoints):
            continue
        passed = [one for one in found.breakpoints if one.high <= value]
        said = passed[-1].after if passed else found.segments[0].fleet
        inner = at
        for step in steps[:-1]:
            inner = inner[step]
        inner[steps[-1]] = value if name == "rate" else f"{value:.9f}"
        assert fleet(profile, slo) == said, (name, value)
        tried += 1
    assert tried > 20


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 3, 5, 10, 16])
def test_machines_for_a_box_hold_anywhere_in_it(seed: int) -> None:
    profile, slo = random_fleet(seed)
    rng = random.Random(seed)
    found = robust_for(hp.load(profile, slo), options=PLANNED, box=Box(demand=0.15, latency=0.1))
    if found.box is None:
        assert any("box" in note for note in found.notes)
        return
    held = {kind: list(span) for kind, span in found.box.instances.items()}
    held |= {kind: [0, 0] for kind in profile["hardware"] if kind not in held}
    documents = Documents.of(hp.load(profile, slo)).documents
    for _ in range(12):
        inside = factor(documents, "demand", 1 + rng.uniform(-0.15, 0.15)) if "limits" not in slo else documents
        for kind in profile["hardware"]:
            inside = factor(inside, f"latency:{kind}", 1 + rng.uniform(-0.1, 0.1))
        wish = deepcopy(dict(inside["slo"]))
        wish["limits"] = {**wish.get("limits", {}), "instances": held}
        outcome = hp.solve(dict(inside["profile"]), wish, options=PLANNED)
        assert outcome.plan is not None, outcome.why
        if "limits" in slo:
            assert outcome.claims[0].value >= found.box.value - 1e-6 * abs(found.box.value)
