"""Margins are where machines fail and are too dear; machines for a box hold in every corner of it."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

import hetplan as hp
from hetplan.errors import InputError
from hetplan.planner.spread import Spread
from hetplan.studies.axes import Files as Documents
from hetplan.studies.axes import factor
from hetplan.studies.robust import Box, Robustness, robust_for

Files = tuple[dict[str, Any], dict[str, Any]]
PLANNED = {"sizing": "fluid"}


def asked(files: Files, **how: Any) -> Robustness:
    return robust_for(hp.load(*files), options=PLANNED, **how)


def least_cost(files: Files, factors: dict[str, float], fleet: dict[str, int] | None = None) -> float | None:
    """The least cost of all machines, or whether these alone do."""
    known = Documents.of(hp.load(*files))
    documents = known.documents
    for name, value in factors.items():
        documents = factor(documents, name, value)
    if fleet is not None:
        for name, offer in documents["profile"]["offers"].items():
            offer["stock"] = fleet.get(name, 0)
    outcome = hp.solve(documents["profile"], documents["slo"], options=PLANNED)
    return outcome.claims[0].value if outcome.plan is not None else None


@pytest.mark.slow
def test_the_machines_fail_and_are_too_dear_from_where_it_is_said(small: Files) -> None:
    found = asked(small)
    bill = found.value
    margins = {one.what: one for one in found.margins}
    for name in ("demand", "latency"):
        fails, dear = margins[name].fails_from, margins[name].too_dear_below
        assert fails is not None
        assert dear is not None
        assert least_cost(small, {name: fails}, found.fleet) is None
        assert least_cost(small, {name: fails - 0.0051}, found.fleet) is not None
        for place, too_dear in ((dear, True), (dear + 0.0051, False)):
            best = least_cost(small, {name: place})
            assert best is not None
            assert (bill > 1.05 * best) is too_dear
    offer = next(name for name in found.fleet if margins[f"prices:{name}"].too_dear_from is not None)
    place = margins[f"prices:{offer}"].too_dear_from
    assert place is not None
    price = float(Documents.of(hp.load(*small)).documents["profile"]["offers"][offer]["price_per_hour"])
    best = least_cost(small, {f"prices:{offer}": place})
    assert best is not None
    assert bill + (place - 1) * price * found.fleet[offer] > 1.05 * best


@pytest.mark.longest
def test_machines_for_a_box_hold_in_every_corner_and_cost_no_more_than_needed(small: Files) -> None:
    box = Box(demand=0.2, latency=0.3, gamma=1)
    found = asked(small, box=box)
    assert found.box is not None
    corners = [{"demand:web": 1.2}, *({f"latency:{kind}": 1.3} for kind in ("small", "big", "slow"))]
    assert found.box.corners == len(corners)
    assert all(least_cost(small, corner, found.box.fleet) is not None for corner in corners)
    costs = [least_cost(small, corner) or 0.0 for corner in corners]
    assert found.box.bound == pytest.approx(max(costs))
    prices = {"small": 1.0, "big-spot": 2.5, "slow": 0.9}
    for counts in product(range(10), range(6), range(4)):  # no fleet is cheaper that holds everywhere
        fleet = dict(zip(prices, counts, strict=True))
        bill = sum(prices[name] * count for name, count in fleet.items())
        if max(costs) - 1e-9 <= bill < found.box.value - 1e-9:
            assert any(least_cost(small, corner, fleet) is None for corner in corners), fleet
    everything = asked(small, box=Box(demand=0.2, latency=0.3))
    assert everything.box is not None
    assert everything.box.corners == 1
    assert everything.box.value >= found.box.value
    instances = {"limits": {"instances": everything.box.instances}}
    taken = hp.solve(small[0], {**small[1], **instances}, options=PLANNED).require()
    assert sum(worker.count for worker in taken.workers) == sum(everything.box.fleet.values())


@pytest.mark.slow
def test_a_fleet_for_one_error_at_a_time_holds_in_each(small: Files) -> None:
    found = asked(small, box=Box(demand=0.2, latency=0.3, gamma=1), numbers=())
    assert found.box is not None
    corners = [{"demand:web": 1.2}, *({f"latency:{kind}": 1.3} for kind in ("small", "big", "slow"))]
    assert found.box.corners == len(corners)
    assert all(least_cost(small, corner, found.box.fleet) is not None for corner in corners)
    assert any(least_cost(small, corner, found.fleet) is None for corner in corners)


class Ended(Spread):
    """Work in which a limit ends each plan that would be simulated in the corners."""

    def all(self, *given: Any, about: str, **how: Any) -> list[dict[str, Any]]:
        found = super().all(*given, about=about, **how)
        return [one | {"status": "not-simulated"} for one in found] if about == "corners confirmed" else found


@pytest.mark.slow
def test_without_errors_it_says_what_solve_says(small: Files) -> None:
    """Simulation asks for machines that the program alone would leave out."""
    profile, slo = small
    slo["apps"]["web"] |= {"rate_qps": 60, "arrivals": {"process": "gamma", "shape": 0.3}}
    cost = hp.solve(profile, slo).claims[0].value
    alone = least_cost(small, {})
    assert cost is not None
    assert alone is not None
    assert cost > 1.4 * alone
    found = robust_for(hp.load(profile, slo), numbers=(), box=Box())
    assert found.box is not None
    assert (found.value, found.box.value, found.box.price) == pytest.approx((cost, cost, 0.0))
    assert found.box.confirmed
    ended = robust_for(hp.load(profile, slo), numbers=(), box=Box(), spread=Ended()).box
    assert ended is not None
    assert not ended.confirmed


def test_errors_of_prices_choose_machines_by_their_worst_bill(small: Files) -> None:
    found = asked(small, box=Box(prices=0.5, gamma=1), numbers=())
    assert found.box is not None
    prices = {"small": 1.0, "big-spot": 2.5, "slow": 0.9}
    bills = [prices[name] * count for name, count in found.box.fleet.items()]
    assert found.box.bill_at_worst == pytest.approx(sum(bills) + 0.5 * max(bills))
    assert found.box.nominal_bill_at_worst is not None
    assert found.box.bill_at_worst <= found.box.nominal_bill_at_worst + 1e-9  # type: ignore[operator]


@pytest.mark.slow
def test_a_wish_for_the_most_loses_in_the_worst_corner(small: Files) -> None:
    profile, slo = small
    slo["objective"] = ["max rate"]
    slo["limits"] = {"cost_per_hour": "6"}
    slo["apps"]["web"]["rate_qps"] = "max"
    found = asked((profile, slo), box=Box(latency=0.1, gamma=1), numbers=["latency"])
    assert found.box is not None
    assert found.box.value < found.value
    assert found.box.bound is not None
    assert found.box.value <= found.box.bound * (1 + 1e-6)
    assert found.margins[0].fails_from is not None


@pytest.mark.slow
def test_a_plan_that_is_given_is_the_one_that_is_looked_at(small: Files) -> None:
    profile, slo = small
    bigger = {
        **slo,
        "apps": {"web": {**slo["apps"]["web"], "rate_qps": 400}},
    }
    plan = hp.solve(profile, bigger, options=PLANNED).require()
    found = robust_for(hp.load(profile, slo), plan=plan, numbers=["demand"])
    assert sum(found.fleet.values()) == sum(worker.count for worker in plan.workers)
    (margin,) = found.margins
    assert margin.fails_from is not None
    assert margin.fails_from > 1.3


def test_what_cannot_be_asked_is_named(small: Files) -> None:
    profile, slo = small
    with pytest.raises(InputError, match="from 0 to 4"):
        Box(demand=-0.1)
    with pytest.raises(InputError, match="no plan to look at"):
        asked((profile, {**slo, "limits": {"instances": {"small": [0, 1], "big": [0, 0], "slow": [0, 0]}}}))
    with pytest.raises(InputError, match="of a fleet"):
        asked((profile, {**slo, "limits": {"cost_per_hour": "1"}}))
    profile["hosts"] = {"h1": {"offer": "small"}}
    with pytest.raises(InputError, match=r"\$\.hosts"):
        asked(small)
