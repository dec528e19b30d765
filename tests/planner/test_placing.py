"""Machines that are shared: against every way to put things on them, and what is read off a point fits."""

from __future__ import annotations

import math
import random
from collections import Counter

import pytest

from hetplan import registry
from hetplan.planner import machine_packing
from hetplan.planner.answer import Limits, Status
from hetplan.planner.forms.milp import Builder
from hetplan.planner.machine_packing import Sharing, place, read_fillings, total_of
from hetplan.planner.solver_calls import Asking

PLENTY = 10**9


def drawn(seed: int) -> tuple[Sharing, list[dict[str, float]], list[int], list[int]]:
    """Things, some of them alike, what each needs, the company that it bears, and how many there are to place."""
    rng = random.Random(seed)
    needs = [
        {"gpu": rng.choice([0.2, 0.25, 0.5, 0.6]), "gib": rng.choice([2.0, 5.0])} for _ in range(rng.randint(1, 3))
    ]
    needs += [dict(needs[0])]
    company = [rng.choice([PLENTY, PLENTY, 2]) for _ in needs]
    counts = [rng.randint(0, 3) for _ in needs]
    return Sharing("card", {"gpu": 1.0, "gib": 16.0}, range(len(needs)), needs, company), needs, company, counts


def fits(held: list[int], needs: list[dict[str, float]], company: list[int]) -> bool:
    """Whether these things fit one card, and bear each other's company."""
    return (
        sum(needs[i]["gpu"] for i in held) <= 1.0 + 1e-9
        and sum(needs[i]["gib"] for i in held) <= 16.0 + 1e-9
        and all(len(held) <= company[i] for i in held)
    )


def fewest(left: list[int], needs: list[dict[str, float]], company: list[int]) -> float:
    """The fewest cards that hold all of these, by trying every way."""
    best = math.inf

    def put(left: list[int], cards: list[list[int]]) -> None:
        nonlocal best
        if len(cards) >= best:
            return
        if not left:
            best = len(cards)
            return
        for card in cards:
            if fits([*card, left[0]], needs, company):
                card.append(left[0])
                put(left[1:], cards)
                card.pop()
        put(left[1:], [*cards, [left[0]]])

    put(left, [])
    return best


def solved(sharing: Sharing, counts: list[int]):
    m = Builder("min")
    x = m.columns("x", str, size=len(counts), lower=counts, upper=counts, whole=True)
    machines = place(m, sharing, x, counts, str)
    m.pay(machines.columns, machines.coefficients)
    form = m.build()
    return form, Asking(registry.solvers("milp"), Limits())(form, gap=0.0)


@pytest.mark.parametrize("seed", range(60))
def test_no_fewer_machines_hold_it_and_each_holds_what_fits(seed: int) -> None:
    sharing, needs, company, counts = drawn(seed)
    form, answer = solved(sharing, counts)
    assert answer.point is not None
    assert answer.value == pytest.approx(fewest([i for i, n in enumerate(counts) for _ in range(n)], needs, company))
    found = read_fillings(form, answer.point, sharing, counts, dict(enumerate(counts)))
    assert found is not None
    held = Counter[int]()
    for one in found:
        assert fits([i for i, n in one.holds.items() for _ in range(n)], needs, company)
        for i, n in one.holds.items():
            held[i] += n * one.count
    assert held == Counter(dict(enumerate(counts)))
    assert sum(one.count for one in found) == answer.value


def test_things_that_need_the_same_are_one_kind() -> None:
    needs = [{"gpu": 0.25}] * 30
    sharing = Sharing("card", {"gpu": 1.0}, range(30), needs, [PLENTY] * 30)
    assert sharing.patterns([5] * 30) == ((4,),)
    _, answer = solved(sharing, [1] * 30)
    assert answer.value == 8


def test_where_there_are_too_many_patterns_totals_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_packing, "MOST_PATTERNS", 1)
    sharing = Sharing("card", {"gpu": 1.0}, range(2), [{"gpu": 0.6}, {"gpu": 0.4}], [PLENTY] * 2)
    machine_packing._patterns.cache_clear()
    try:
        form, answer = solved(sharing, [5, 2])
        assert answer.value == 4  # 3.8 cards are taken; one by one it is 5
        assert answer.point is not None
        assert read_fillings(form, answer.point, sharing, [5, 2], {0: 5, 1: 2}) is None
        assert sharing.min_machines([5, 2]) == 4
    finally:
        machine_packing._patterns.cache_clear()


def test_totals_may_be_lowered_by_what_found_no_place() -> None:
    m = Builder("min")
    sharing = Sharing("card", {"gpu": 1.0}, [0], [{"gpu": 0.6}], [PLENTY])
    x = m.columns("x", ["a"], lower=2.0, upper=2.0)
    machines = m.columns("machines", ["all"], cost=1.0)
    there = [(machine_packing.Expression(machines), sharing.provides)]
    machine_packing.in_total(m, sharing, x, there, less={total_of("gpu", "card"): 0.5})
    answer = Asking(registry.solvers("milp"), Limits())(m.build())
    assert answer.status is Status.OPTIMAL
    assert answer.value == pytest.approx(1.7)
