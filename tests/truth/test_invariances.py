"""What must not change a plan: the unit of money, the unit of time, a machine type named twice, a dearer one more.

At planned size, where nothing is played, the same is asked exactly; default plans are asked in the slow tier.
"""

from __future__ import annotations

from functools import cache

import pytest
from build import Files, random_files
from face import Answer, solve
from truth.worth import worth

MONEY = ("pool", "variants", "llm", "fleet")
ALL = (*MONEY, "pipeline", "policy")
SIZINGS = ["fluid", pytest.param("simulation", marks=pytest.mark.slow)]


@cache
def planned(problem: str, seed: int, sizing: str) -> tuple[Files, Answer]:
    wish = random_files(problem, seed)
    answer = solve(wish, sizing)
    assert answer.is_plan, answer.conflict
    return wish, answer


def cases(problems: tuple[str, ...]) -> list[object]:
    """Of each problem three seeds; policies take seconds each."""
    slow = {0: (), 1: pytest.mark.slow, 2: pytest.mark.longest}
    policy = {0: pytest.mark.slow, 1: pytest.mark.longest, 2: pytest.mark.longest}
    return [
        pytest.param(problem, seed, marks=(policy if problem == "policy" else slow)[seed])
        for problem in problems
        for seed in (0, 1, 2)
    ]


@pytest.mark.parametrize("sizing", SIZINGS)
@pytest.mark.parametrize("factor", [7.0, pytest.param(0.125, marks=pytest.mark.longest)])
@pytest.mark.parametrize(("problem", "seed"), cases(ALL))
def test_money_has_no_unit(problem: str, seed: int, factor: float, sizing: str) -> None:
    """Prices k times as high: the bill is k times as high."""
    wish, answer = planned(problem, seed, sizing)
    scaled = solve(wish.scaled_prices(factor), sizing)
    if problem in MONEY:
        assert scaled.cost == pytest.approx(factor * answer.cost, rel=1e-9)
    else:
        assert worth(scaled) == pytest.approx(worth(answer), rel=1e-9)


@pytest.mark.parametrize("sizing", SIZINGS)
@pytest.mark.parametrize(("problem", "seed"), cases(("pool", "variants", "llm")))
def test_the_bill_is_the_sum_of_the_prices(problem: str, seed: int, sizing: str) -> None:
    """Machines of one offer each, times its price."""
    wish, answer = planned(problem, seed, sizing)
    bill = sum(group.count * wish.price(group.machine) for group in answer.machines)
    assert answer.cost == pytest.approx(bill, rel=1e-9)


@pytest.mark.parametrize("sizing", SIZINGS)
@pytest.mark.parametrize("factor", [4.0, pytest.param(0.1, marks=pytest.mark.longest)])
@pytest.mark.parametrize(("problem", "seed"), cases(ALL))
def test_time_has_no_unit(problem: str, seed: int, factor: float, sizing: str) -> None:
    """Times and limits k times as long, rates k times as low: the same plan."""
    wish, answer = planned(problem, seed, sizing)
    scaled = solve(wish.scaled_times(factor).scaled_limits(factor).scaled_rates(1.0 / factor), sizing)
    # Value iteration ends within 1e-6 of the goodput; which of several policies simulation likes best is settled there.
    close = 1e-6 if (problem, sizing) == ("policy", "simulation") else 1e-9
    assert worth(scaled) == pytest.approx(worth(answer), rel=close)


@pytest.mark.parametrize("sizing", SIZINGS)
@pytest.mark.parametrize("dearer", [1.3, pytest.param(1.0, marks=pytest.mark.longest)])
@pytest.mark.parametrize(("problem", "seed"), cases((*MONEY, "pipeline")))
def test_a_machine_type_more_makes_nothing_worse(problem: str, seed: int, dearer: float, sizing: str) -> None:
    """One just like another, at its price or dearer. (It brings stock of its own, so a plan may get better.)"""
    wish, answer = planned(problem, seed, sizing)
    more = solve(wish.with_copy(wish.machine_types[0], "twin", dearer), sizing)
    allowed = 0.0 if sizing == "fluid" and answer.status == "optimal" else 0.02
    assert worth(more) <= worth(answer) + (allowed + 1e-9) * abs(worth(answer))


@pytest.mark.parametrize("sizing", SIZINGS)
@pytest.mark.parametrize(("problem", "seed"), cases(("variants", "llm")))
def test_a_machine_type_named_twice_changes_little(problem: str, seed: int, sizing: str) -> None:
    """Of as many machines as are wanted of each type: a second name for one of them is worth nothing."""
    wish, answer = planned(problem, seed, sizing)
    twice = solve(wish.with_copy(wish.machine_types[-1], "twin"), sizing)
    assert worth(twice) == pytest.approx(worth(answer), rel=0.02)
