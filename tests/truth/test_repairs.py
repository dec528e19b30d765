"""What is said to make a wish possible does, and little less does not.

Random wishes of each problem are made infeasible by one requirement. Every repair that is offered is applied to the
files: they have a plan, which verifies. With 5% of the change taken back, or one step of what comes in wholes, they
have none. The same planner says so: it is the answer for which the repair was offered.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from build import Files, example, random_files
from face import EXIT, Answer, command, has_plan, solve, verify

REQUIREMENTS = ("rate", "budget", "stock", "quality", "latency")
UNPRICED = ("pipeline", "policy")
"""Problems whose machines are given: limits are on their number."""
ONE_QUALITY = ("pool", "llm", "fleet")
BEST = {"variants": 0.82, "pipeline": 0.99, "policy": 0.775}
"""A floor on quality near the best that any model has; for policies above it: one worker more keeps any below."""

SHORTER = [("variants", "budget"), ("llm", "latency"), ("fleet", "quality")]
"""Of default plans the tests of these are the shorter ones; all others take up to a minute and a half each."""


def infeasible(problem: str, seed: int, by: str, sizing: str) -> Files | None:
    """A random wish with so little of one requirement that its own plan is far from enough; None where it has none."""
    wish = random_files(problem, seed)
    free = solve(wish, sizing)
    if not free.is_plan or (by == "quality" and problem in ONE_QUALITY) or (by == "budget" and problem in UNPRICED):
        return None
    periods = {one.period for one in free.machines}
    counts = {name: max(free.count(name, period=one or None) for one in periods) for name in wish.machine_types}
    if by == "stock":
        few = {name: count // 2 for name, count in counts.items()}
        if problem not in UNPRICED:
            return wish.stocked(few)
        bounds = {name: (n if problem == "policy" else 0, n) for name, n in few.items()}
        return _targeted(problem, wish, free).limited(counts=bounds)
    as_fleet = None if problem == "pool" else wish.problem  # no pool has a budget and a rate
    if by == "budget":
        return wish.limited(cost=0.6 * free.cost).asked_as(as_fleet)
    bound = _targeted(problem, wish, free) if problem in UNPRICED else wish.limited(cost=free.cost).asked_as(as_fleet)
    if by == "quality":
        return bound.of_quality(BEST[problem])
    return bound.scaled_rates(2.5) if by == "rate" else bound.scaled_limits(0.4)


def _targeted(problem: str, wish: Files, free: Answer) -> Files:
    """A policy keeps nothing that is not a target."""
    return wish.rarely_late(0.05).of_quality(0.765) if problem == "policy" else wish


def off(wish: Files, said: Answer, sizing: str) -> Iterator[str]:
    """The repairs of which less would do; all of them have a plan that verifies."""
    for repair in said.changes:
        changed = repair.applied(wish)
        again = solve(changed, sizing)
        assert again.code == EXIT["ok"], (repair.text, again.conflict)
        assert verify(again.plan, changed).is_ok, repair.text
        if any(has_plan(less, sizing) for less in repair.with_less(wish)):
            yield repair.text


def checked(problem: str, by: str, sizing: str, seeds: range) -> tuple[list[str], int]:
    """The repairs of which less would do, and how many there are in all."""
    far, count = [], 0
    for seed in seeds:
        wish = infeasible(problem, seed, by, sizing)
        said = solve(wish, sizing) if wish is not None else None
        if said is not None and not said.is_plan:
            assert len(said.changes) == len(said.repairs), said.repairs
            count += len(said.changes)
            far += [f"{seed}: {text}" for text in off(wish, said, sizing)]
    return far, count


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize(
    ("problem", "by"),
    [
        ("variants", "budget"), ("pool", "rate"), ("pool", "stock"), ("pipeline", "stock"),
        *((problem, by) for problem in ("pool", "variants", "pipeline", "llm", "fleet") for by in REQUIREMENTS),
    ],
)  # fmt: skip
def test_repairs_at_fluid_rates(problem: str, by: str) -> None:
    far, _ = checked(problem, by, "fluid", range(1))
    assert not far


@pytest.mark.parametrize(
    ("problem", "by"),
    [
        pytest.param(problem, by, marks=pytest.mark.slow if (problem, by) in SHORTER else pytest.mark.longest)
        for problem in ("pool", "variants", "pipeline", "llm", "fleet", "policy")
        for by in REQUIREMENTS
    ],
)
def test_repairs_of_default_plans(problem: str, by: str) -> None:
    far, _ = checked(problem, by, "simulation", range(1 if problem == "policy" else 2))
    assert not far


@pytest.mark.longest
@pytest.mark.parametrize(("rate", "cost"), [(440.0, 1.5), (1323.0, 3.0)])
def test_the_shipped_pool_is_asked_for_more_than_its_budget_carries(rate: float, cost: float) -> None:
    """It said "lower to 281" where 333 does, and asked 440 it said 330."""
    wish = example("pool").rated(rate).limited(cost=cost).aiming("min cost")
    said = solve(wish)
    assert said.changes
    assert not list(off(wish, said, "simulation"))


def test_a_repair_of_stock_is_applied(tmp_path: Path) -> None:
    """Only repairs of the SLO were; the profile is written."""
    wish = infeasible("pool", 0, "stock", "fluid")
    assert wish is not None
    paths, changed = wish.write(tmp_path), tmp_path / "changed.json"
    said = solve(wish, "fluid")
    number = next(n for n, one in enumerate(said.changes, start=1) if one.changes == {"profile"})
    fluid = ("--set", "sizing=fluid")
    assert command("solve", *paths, *fluid, "--apply-repair", number, "-o", changed).code == EXIT["ok"]
    assert command("solve", changed, paths[1], *fluid).code == EXIT["ok"]
