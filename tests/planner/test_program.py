"""The program over machines: against all counts of tiny cases, and every limit that is stated names its field."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import replace

import numpy as np
import pytest

from hetplan import registry
from hetplan.planner.answer import Limits, Status
from hetplan.planner.elastic import explain
from hetplan.planner.forms.milp import Builder
from hetplan.planner.machine_limits import budget_in_whole_machines, floors_of, keeps, machine_limits
from hetplan.planner.program import Expression, Uses, limit_moves, lose, pay_starts, rent, rent_by_period, weighted_sum
from hetplan.planner.request import PLENTY, Commitment, MachineType, Offer, Request
from hetplan.planner.solver_calls import Asking
from hetplan.profiles.fleet_fields import OfferLimit

NANO = 10**9
MOST = 4
"""So many of each offer are enough in all cases here."""


def drawn(seed: int) -> tuple[Request, dict[str, float], float]:
    """Types with offers and limits, what one machine of each carries, and how much is to be carried."""
    rng = random.Random(seed)
    machines, carries = [], {}
    for name in ("a", "b")[: rng.randint(1, 2)]:
        offers = [
            Offer(f"{name}{k}", name, rng.randint(1, 9) * NANO // 10, rng.choice([1, 2, PLENTY]))
            for k in range(rng.randint(1, 2))
        ]
        least = rng.choice([0, 0, 1])
        most = rng.choice([PLENTY, PLENTY, least + 1])
        cheapest = tuple(sorted(offers, key=lambda offer: (offer.nanos, offer.name)))
        machines.append(MachineType(name, cheapest, {"watts": rng.choice([100.0, 250.0])}, least, most))
        carries[name] = rng.choice([1.0, 1.5, 2.0])
    budget = rng.choice([None, rng.randint(5, 30) * NANO // 10])
    resources = {"watts": rng.choice([500.0, 1000.0])} if rng.random() < 0.5 else {}
    return Request(tuple(machines), budget, "USD", resources), carries, rng.choice([0.5, 2.0, 3.0, 5.0])


def allowed(request: Request, counts: tuple[int, ...]) -> bool:
    """Whether stock, counts, budget and totals allow machines of each offer."""
    by_type = {kind.id: 0 for kind in request.machines}
    for offer, n in zip(request.offers, counts, strict=True):
        by_type[offer.machine] += n
    cost = sum(offer.nanos * n for offer, n in zip(request.offers, counts, strict=True))
    watts = sum(request.of(name).provides["watts"] * n for name, n in by_type.items())
    return (
        all(n <= offer.stock for offer, n in zip(request.offers, counts, strict=True))
        and all(kind.least <= by_type[kind.id] <= kind.most for kind in request.machines)
        and (request.budget is None or cost <= request.budget)
        and watts <= request.resources.get("watts", math.inf)
    )


def carried(request: Request, carries: dict[str, float], counts: tuple[int, ...]) -> float:
    return sum(carries[offer.machine] * n for offer, n in zip(request.offers, counts, strict=True))


def written(request: Request, carries: dict[str, float], wanted: float):
    """The cheapest machines that carry what is wanted: a sub-problem of one row."""
    m = Builder("min")
    names = [kind.id for kind in request.machines]
    used = m.columns("used", names)
    m.add(m.rows("carried", ["all"], lower=wanted), used, [carries[name] for name in names])
    uses = Uses({name: Expression(used[[place]]) for place, name in enumerate(names)}, most=dict.fromkeys(names, MOST))
    return m, uses, rent(m, request, uses, priced=True)


@pytest.mark.parametrize("seed", range(60))
def test_the_cheapest_machines_are_those_of_all_counts(seed: int) -> None:
    request, carries, wanted = drawn(seed)
    m, _, n = written(request, carries, wanted)
    answer = Asking(registry.solvers("milp"), Limits())(m.build(), gap=0.0)
    costs = [
        sum(offer.nanos * count for offer, count in zip(request.offers, counts, strict=True))
        for counts in itertools.product(range(MOST + 1), repeat=len(request.offers))
        if allowed(request, counts) and carried(request, carries, counts) >= wanted
    ]
    if not costs:
        assert answer.status is Status.INFEASIBLE
        return
    assert answer.point is not None
    counts = tuple(int(one) for one in np.rint(answer.point[n]))
    assert allowed(request, counts)
    assert carried(request, carries, counts) >= wanted - 1e-6
    assert sum(offer.nanos * count for offer, count in zip(request.offers, counts, strict=True)) == min(costs)


FREE = Request(
    (MachineType("a", (Offer("a-spot", "a", NANO // 2, 2), Offer("a", "a", NANO)), {"watts": 300.0}),), None, "USD"
)


@pytest.mark.parametrize(
    ("limited", "field", "repair"),
    [
        (replace(FREE, budget=NANO), "slo.limits.cost_per_hour", 3.0),
        (replace(FREE, resources={"watts": 500.0}), "slo.limits.provides.watts", 1200.0),
        (replace(FREE, machines=(replace(FREE.machines[0], most=2),)), "slo.limits.instances.a[1]", 4.0),
        (
            replace(FREE, machines=(replace(FREE.machines[0], offers=(Offer("a", "a", NANO, 3),)),)),
            "profile.offers.a.stock",
            4.0,
        ),
    ],
)
def test_a_limit_that_forbids_every_plan_names_its_field_and_what_would_do(
    limited: Request, field: str, repair: float
) -> None:
    m, _, _ = written(limited, {"a": 1.0}, 4.0)
    ask = Asking(registry.solvers("milp"), Limits())
    form = m.build()
    assert ask(form).status is Status.INFEASIBLE
    why = explain(form, ask)
    assert [(one.field, one.to) for one in why.repairs] == [(field, pytest.approx(repair))]


def test_a_budget_is_lowered_to_what_whole_machines_can_cost() -> None:
    request = replace(FREE, budget=1_750_000_000)
    assert budget_in_whole_machines(request) == 1_500_000_000
    m, _, n = written(request, {"a": 1.0}, 2.0)
    answer = Asking(registry.solvers("milp"), Limits())(m.build())
    assert answer.point is not None
    assert answer.point[n] @ [0.5, 1.0] <= 1.5


def test_what_must_be_there_is_rented_whether_it_is_used_or_not() -> None:
    request = replace(FREE, machines=(replace(FREE.machines[0], least=3),))
    m, _, n = written(request, {"a": 1.0}, 1.0)
    answer = Asking(registry.solvers("milp"), Limits())(m.build())
    assert answer.point is not None
    assert [int(one) for one in np.rint(answer.point[n])] == [2, 1]


def test_where_nothing_may_stand_idle_all_that_is_rented_is_used() -> None:
    request = replace(FREE, machines=(replace(FREE.machines[0], least=3),))
    m = Builder("min")
    used = m.columns("used", ["a"])
    m.add(m.rows("carried", ["all"], lower=1.0), used, 1.0)
    rent(m, request, Uses({"a": Expression(used)}, idle=False), priced=True)
    answer = Asking(registry.solvers("milp"), Limits())(m.build())
    assert answer.point is not None
    assert answer.point[used] == pytest.approx(3.0)


def test_offers_of_one_name_draw_on_one_stock_and_types_of_one_hardware_are_limited_together() -> None:
    own = MachineType("a!", (Offer("a", "a!", 0, 3),), {"watts": 300.0}, 0, 4, "a")
    whole = MachineType("a", (Offer("a", "a", NANO, 3),), {"watts": 300.0}, 0, 4)
    dear = MachineType("a-dear", (Offer("a-dear", "a-dear", 2 * NANO),), {"watts": 300.0}, 0, 4, "a")
    request = Request((whole, dear, own))
    assert keeps(machine_limits(request), [1, 1, 2])
    assert not keeps(machine_limits(request), [2, 0, 2])
    assert not keeps(machine_limits(request), [3, 2, 0])

    def asked(own_used: float, most: int) -> tuple[Status, list[float]]:
        limited = replace(request, machines=tuple(replace(kind, most=most) for kind in request.machines))
        m = Builder("min")
        used = m.columns("used", ["a", "a-dear", "a!"], whole=True)
        rows = m.rows("wanted", ["paid", "own"], lower=[2.0, own_used])
        m.add(rows[0], used[:2], 1.0)
        m.add(rows[1], used[2], 1.0)
        machines = {kind.id: Expression(used[[place]]) for place, kind in enumerate(request.machines)}
        n = rent(m, limited, Uses(machines, counted=frozenset(machines)), priced=True)
        assert n.size == 0
        answer = Asking(registry.solvers("milp"), Limits())(m.build())
        return answer.status, [] if answer.point is None else answer.point.tolist()

    assert asked(2.0, 4) == (Status.OPTIMAL, [1.0, 1.0, 2.0])  # one of three is left to pay for, and one dear one
    assert asked(2.0, 3)[0] is Status.INFEASIBLE
    assert asked(4.0, 9)[0] is Status.INFEASIBLE


def test_fees_are_paid_within_the_budget_and_lower_it_to_what_can_be_paid() -> None:
    request = replace(FREE, budget=1_750_000_000)
    assert budget_in_whole_machines(request, 300_000_000) == 1_700_000_000
    m = Builder("min")
    used = m.columns("used", ["a", "own"], whole=True)
    m.add(m.rows("carried", ["all"], lower=5.0), used, [1.0, 1.0])
    uses = Uses({"a": Expression(used[:1])}, counted=frozenset("a"), fees=Expression(used[1:], 0.3), most={"a": 9.0})
    rent(m, request, uses, priced=True)
    answer = Asking(registry.solvers("milp"), Limits())(m.build())
    assert answer.value == pytest.approx(1.5)
    m.add(m.rows("whole", ["a"], lower=2.0), used[0], 1.0)
    assert Asking(registry.solvers("milp"), Limits())(m.build()).status is Status.INFEASIBLE


def test_new_instances_are_limited_by_group_and_the_limit_says_what_would_do() -> None:
    m = Builder("min")
    x = m.columns("x", ["a", "b", "c"], lower=[2.0, 0.0, 3.0], upper=9.0)
    new = limit_moves(m, Expression(x, [1.0, 1.0, 2.0]), np.array([0, 0, 1]), [1, 4], 2.0)
    form, ask = m.build(), Asking(registry.solvers("milp"), Limits())
    assert new.size == 2
    assert ask(form).status is Status.INFEASIBLE
    assert [(one.field, one.to) for one in explain(form, ask).repairs] == [("slo.limits.changes", 3)]


def over_time(seed: int) -> tuple[Request, dict[int, float], list[int]]:
    """A type sold on demand and as spot in two zones, one of them for the whole horizon too; hours and what is used."""
    rng = random.Random(seed)
    ahead = rng.choice([None, Commitment(rng.randint(2, 6) * NANO // 10), Commitment(NANO // 10, NANO, 36_000.0)])
    offers = (
        Offer("a-east", "a", NANO, rng.choice([1, 2, PLENTY]), zone="east", ahead=ahead, start_hours=0.25),
        Offer("a-spot", "a", rng.randint(2, 7) * NANO // 10, 2, zone="west", spot=True, start_hours=0.25),
    )
    shares = {"spot": OfferLimit(max_share=rng.choice([0.4, 0.5, 1.0]))} if rng.random() < 0.7 else {}
    if rng.random() < 0.3:
        shares["reserved"] = OfferLimit(max=1)
    return (
        Request(
            (MachineType("a", offers, {"gpu": 2.0}),),
            rng.choice([None, 2 * NANO]),
            shares=shares,
            quotas={"west": {"gpu": rng.choice([2.0, 4.0])}},
        ),
        {0: 1.0, 1: rng.choice([1.0, 3.0])},
        [rng.randint(0, 3), rng.randint(0, 3)],
    )


def kept_by_hand(request: Request, ahead: tuple[int, int], rented: tuple[int, int]) -> bool:
    """Whether stock, the quota of the west, shares and the budget allow machines on demand and spot in a period."""
    east, spot = request.offers
    firm, taken, paid = ahead[0] + rented[0], ahead[1] + rented[1], east.ahead
    cost = rented[0] * east.nanos + taken * spot.nanos + (ahead[0] * paid.price * NANO if paid else 0.0)
    shares = request.shares
    return (
        firm <= east.stock
        and taken <= spot.stock
        and 2.0 * taken <= request.quotas["west"]["gpu"]
        and ("spot" not in shares or taken <= shares["spot"].max_share * (firm + taken) + 1e-9)
        and ("reserved" not in shares or sum(ahead) <= 1)
        and (request.budget is None or cost <= request.budget + 1)
    )


@pytest.mark.parametrize("seed", range(30))
def test_over_time_the_cheapest_machines_are_those_of_all_counts(seed: int) -> None:
    """Committed ones are there in all periods; who starts is paid while it does; the first follows the last."""
    request, hours, used = over_time(seed)
    offers, most = request.offers, 3
    sold = np.array([float(most * (one.ahead is not None)) for one in offers])
    m, none = Builder("min"), np.zeros(2)
    limits = list(machine_limits(request, commits=True))
    machines = rent_by_period(m, offers, limits, hours, most=(sold, np.full(2, most)), whole=True)
    for p, count in enumerate(used):
        row = m.rows(f"used in {p}", ["a"], lower=float(count))
        m.add(row, [*machines.committed, *machines.hourly[p]], 1.0)
        more = weighted_sum([(Expression(machines.hourly[p]), 1.0), (Expression(machines.hourly[1 - p]), -1.0)])
        pay_starts(m, offers, more, np.array([0, 1, 0, 1]), none, share=1.0, about=f"before {p}")
    answer = Asking(registry.solvers("milp"), Limits())(m.build(), gap=0.0)

    each, costs = range(most + 1), list[float]()
    for ahead in [(n, 0) for n in (each if offers[0].ahead else [0])]:
        for hourly in itertools.product(itertools.product(each, each), repeat=2):
            enough = all(sum(ahead) + sum(own) >= count for own, count in zip(hourly, used, strict=True))
            by_hand = [kept_by_hand(request, ahead, own) for own in hourly]
            assert by_hand == [keeps(limits, np.add(ahead, own), np.array(ahead)) for own in hourly]
            if not enough or not all(by_hand):
                continue
            cost = ahead[0] * (offers[0].reserved_price or 0.0) * sum(hours.values())
            for p, own in enumerate(hourly):
                cost += sum(n * one.price * hours[p] for n, one in zip(own, offers, strict=True))
                new = np.maximum(np.subtract(own, hourly[1 - p]), 0)
                cost += sum(n * one.price * one.start_hours for n, one in zip(new, offers, strict=True))
            costs.append(float(cost))
    if costs:
        assert answer.value == pytest.approx(min(costs), abs=1e-6)
    else:
        assert answer.status is Status.INFEASIBLE


@pytest.mark.parametrize(("count", "left"), [(0, 3.0), (2, 1.0), (5, 0.0)])
def test_no_more_machines_are_lost_than_there_are(count: int, left: float) -> None:
    m = Builder("min")
    x = m.columns("x", ["a", "b"], lower=[1.0, 2.0], upper=[1.0, 2.0], whole=True)
    there = m.columns("there", ["all"], cost=-1.0)
    row = m.rows("there", ["all"], lower=0.0)
    m.add(row, [*x, *lose(m, x, count, 9.0, "any")], 1.0)
    m.add(row, there, -1.0)
    answer = Asking(registry.solvers("milp"), Limits())(m.build())
    assert answer.value == pytest.approx(-left)


def test_what_must_be_there_of_a_hardware_is_so_of_all_its_types_together() -> None:
    """Also where the last of its types states none; and of a hardware that nobody sells there is none."""
    whole = MachineType("a", (Offer("a", "a", NANO),), least=2, most=4)
    own = MachineType("a!", (Offer("a", "a!", 0),), most=4, hardware="a")
    limits = list(machine_limits(Request((whole, own))))
    assert [(one.name, one.label, one.lower, one.upper) for one in limits] == [
        ("least", "a", 2.0, math.inf),
        ("most", "a", -math.inf, 4.0),
    ]
    assert [keeps(limits, counts) for counts in ([1, 0], [1, 1], [3, 2])] == [False, True, False]
    unsold = list(machine_limits(Request((whole,), instances={"a": (2, 4), "b": (1, None)})))
    assert [(one.name, one.label) for one in unsold] == [("least", "b"), ("least", "a"), ("most", "a")]
    assert not keeps(unsold, [3])


def test_a_share_names_the_number_that_is_stated() -> None:
    """Also where every offer is of that kind: what would do is looked for from there."""
    request = replace(FREE, shares={"on_demand": OfferLimit(max_share=0.5)})
    (share,) = [one for one in machine_limits(request) if one.name == "share"]
    (floor,) = floors_of(share)
    assert (floor.verb, floor.stated) == ("raise", 0.5)
    assert keeps([floor.at(1.0)], [0, 3])
    assert not keeps([share], [0, 3])
