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
from hetplan.planner.ask import Asking
from hetplan.planner.elastic import explain
from hetplan.planner.forms.milp import Builder
from hetplan.planner.program import Expression, Uses, budget_in_whole_machines, limit_moves, rent
from hetplan.planner.request import PLENTY, MachineType, Offer, Request

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
        (replace(FREE, resources={"watts": 500.0}), "slo.limits.resources.watts", 1200.0),
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
    assert request.allows([1, 1, 2])
    assert not request.allows([2, 0, 2])
    assert not request.allows([3, 2, 0])

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
    assert [(one.field, one.to) for one in explain(form, ask).repairs] == [("slo.limits.moves", 3)]
