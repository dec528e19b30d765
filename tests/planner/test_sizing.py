"""How plans are confirmed: how often runs that are at a limit are called within it, and when one stops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from hetplan.planner.confidence import LEAST_RUNS, sequence, share_interval, student
from hetplan.planner.sizing import ALPHA, LOOKS, ErrorBudget, LimitShares, Verdict, confirm

ALLOWED = 0.01
Draw = Callable[[np.random.Generator, int], Any]


@dataclass
class Drawn:
    """Runs whose shares are drawn."""

    draw: Draw
    rng: np.random.Generator
    queries: float = 30_000
    is_settled: bool = True
    allowed: float = ALLOWED
    cycles: float = float("inf")
    shares: list[float] = field(default_factory=list)
    seeds: list[int] = field(default_factory=list)

    def add(self, count: int, seed: int, apps: Sequence[str] | None = None) -> None:
        self.shares += [float(one) for one in self.draw(self.rng, count)]
        self.seeds.append(seed)

    def limits(self) -> list[LimitShares]:
        runs = len(self.shares)
        return [LimitShares("a", self.allowed, tuple(self.shares), self.queries * runs, self.cycles * runs)]


def normal(mean: float, spread: float = 0.2) -> Draw:
    return lambda rng, count: np.maximum(rng.normal(mean, spread * mean, count), 0.0)


def skewed(mean: float, shape: float) -> Draw:
    return lambda rng, count: rng.gamma(shape, mean / shape, count)


def often_met(draw: Draw, times: int = 2000, **how: Any) -> float:
    rng = np.random.default_rng(5)
    found = [confirm(Drawn(draw, rng, **how), ErrorBudget(0)).verdict is Verdict.MET for _ in range(times)]
    return float(np.mean(found))


@pytest.mark.parametrize("spread", [0.05, 0.3])
def test_a_plan_a_hair_beyond_its_limit_is_confirmed_less_often_than_alpha(spread: float) -> None:
    draw = normal(ALLOWED * 1.0001, spread)
    assert often_met(draw) <= ALPHA / 2.0 + 3.0 * (ALPHA / 2.0 / 2000) ** 0.5


@pytest.mark.parametrize("shape", [4.0, 1.0])
def test_runs_that_are_skewed_are_confirmed_no_more_often(shape: float) -> None:
    """A few long queues make most of what is late: of most runs little is, of some many times what may be."""
    assert often_met(skewed(ALLOWED * 1.0001, shape)) <= ALPHA


@pytest.mark.slow
def test_students_interval_looked_at_again_and_again_errs_far_more_often() -> None:
    rng, wrong, times = np.random.default_rng(5), 0, 1000
    for _ in range(times):
        shares = normal(ALLOWED * 1.0001, 0.3)(rng, LOOKS[-1])
        wrong += any(share_interval(shares[:n], student(n))[1] <= ALLOWED for n in range(4, LOOKS[-1] + 1))
    assert wrong / times > 3.0 * ALPHA / 2.0


def test_what_is_well_within_is_confirmed_soon_and_what_is_near_later() -> None:
    well, near = (
        [confirm(Drawn(normal(part * ALLOWED), np.random.default_rng(n)), ErrorBudget(0)) for n in range(50)]
        for part in (0.6, 0.85)
    )
    assert all(one.verdict is Verdict.MET for one in well)
    assert np.mean([one.runs for one in well]) < LEAST_RUNS + 1
    assert sum(one.verdict is Verdict.MET for one in near) > 25
    assert np.mean([one.runs for one in near]) > LEAST_RUNS + 1


def test_what_is_late_or_hopelessly_near_is_given_up_early() -> None:
    late = confirm(Drawn(normal(1.5 * ALLOWED), np.random.default_rng(1)), ErrorBudget(0))
    assert (late.verdict, late.runs, late.violated) == (Verdict.BROKEN, LEAST_RUNS, ("a",))
    near = confirm(Drawn(lambda rng, n: rng.normal(0.0098, 0.002, n), np.random.default_rng(3)), ErrorBudget(0))
    assert near.verdict is not Verdict.MET
    assert near.runs < LOOKS[-1]


def test_every_plan_has_half_the_budget_of_the_one_before_and_seeds_of_its_own() -> None:
    budget, seen, alphas = ErrorBudget(7), set[int](), list[float]()
    for _ in range(5):
        runs = Drawn(normal(0.97 * ALLOWED, 0.1), np.random.default_rng(2))
        alphas.append(confirm(runs, budget).alpha)
        assert not seen & set(range(min(runs.seeds), min(runs.seeds) + LOOKS[-1]))
        seen |= set(range(min(runs.seeds), min(runs.seeds) + LOOKS[-1]))
    assert alphas == [ALPHA / 2.0**j for j in range(1, 6)]
    assert sum(alphas) < ALPHA


def test_no_late_query_among_few_is_no_proof() -> None:
    """Of 100 queries none is late although 2% are: of 6 runs of 20 that is nothing, of 50 it is something."""
    none: Draw = lambda _rng, count: np.zeros(count)  # noqa: E731
    found = confirm(Drawn(none, np.random.default_rng(0), queries=20), ErrorBudget(0))
    assert (found.verdict, found.runs, found.unjudged) == (Verdict.MET, 20, ())
    for few in ({"queries": 3}, {"queries": 0}, {"allowed": 1e-6}, {"allowed": 0.0}):
        found = confirm(Drawn(none, np.random.default_rng(0), **few), ErrorBudget(0))
        assert (found.verdict, found.runs, found.unjudged) == (Verdict.MET, LEAST_RUNS, ("a",)), few


def test_the_interval_of_none_is_not_nothing() -> None:
    one = LimitShares("a", ALLOWED, (0.0,) * 6, 600.0)
    assert one.interval(0.025) == pytest.approx((0.0, 3.689 / 600), rel=1e-3)


def test_bursts_that_hardly_a_run_sees_confirm_nothing() -> None:
    draw = normal(0.2 * ALLOWED)
    seldom, never = (Drawn(draw, np.random.default_rng(0), cycles=part) for part in (0.3, 0.05))
    found = confirm(seldom, ErrorBudget(0))
    assert (found.verdict, found.runs, found.unjudged) == (Verdict.MET, 20, ())
    assert confirm(never, ErrorBudget(0)).unjudged == ("a",)
    late = Drawn(normal(2.0 * ALLOWED), np.random.default_rng(0), cycles=0.05)
    assert confirm(late, ErrorBudget(0)).verdict is Verdict.BROKEN


def test_queues_that_are_remembered_for_long_confirm_nothing() -> None:
    runs = Drawn(normal(0.2 * ALLOWED), np.random.default_rng(0), is_settled=False)
    found = confirm(runs, ErrorBudget(0))
    assert (found.verdict, found.runs, found.unjudged) == (Verdict.MET, LOOKS[-1], ("a",))


def test_a_limit_ends_it_after_a_look() -> None:
    runs = Drawn(normal(0.85 * ALLOWED, 0.3), np.random.default_rng(0))
    found = confirm(runs, ErrorBudget(0), may_go_on=lambda: False)
    assert (found.verdict, found.runs) == (Verdict.UNDECIDED, LEAST_RUNS)


def test_the_sequence_is_wider_than_students_interval_and_shrinks() -> None:
    widths = [sequence(count, 0.025) for count in LOOKS]
    assert widths == sorted(widths, reverse=True)
    assert all(width > student(count) for width, count in zip(widths, LOOKS, strict=True))
    assert sequence(LEAST_RUNS - 1, 0.025) == float("inf")


@dataclass
class Apart:
    """Two applications that wait apart: one is hardly late, of the other more runs are needed."""

    rng: np.random.Generator
    is_settled: bool = True
    shares: dict[str, list[float]] = field(default_factory=lambda: {"clear": [], "near": []})
    asked: list[tuple[str, ...] | None] = field(default_factory=list)

    def add(self, count: int, seed: int, apps: Sequence[str] | None = None) -> None:
        self.asked.append(None if apps is None else tuple(apps))
        for name, part in (("clear", 0.1), ("near", 0.85)):
            if apps is None or name in apps:
                self.shares[name] += normal(part * ALLOWED)(self.rng, count).tolist()

    def limits(self) -> list[LimitShares]:
        return [LimitShares(name, ALLOWED, tuple(by_run), 30_000.0) for name, by_run in self.shares.items()]


def test_an_application_that_is_confirmed_is_run_no_more() -> None:
    runs = Apart(np.random.default_rng(1))
    found = confirm(runs, ErrorBudget(0))
    assert found.verdict is Verdict.MET
    assert runs.asked[0] is None
    assert set(runs.asked[1:]) == {("near",)}
    assert len(runs.shares["clear"]) == LOOKS[0] < len(runs.shares["near"]) == found.runs


def test_none_is_left_out_while_queues_are_remembered_for_longer_than_all_runs() -> None:
    runs = Apart(np.random.default_rng(1), is_settled=False)
    confirm(runs, ErrorBudget(0))
    assert set(runs.asked) == {None}
