"""More money, stock and time, fewer queries, one restriction less: no plan gets worse, and no bound either.

Exact at planned size, where nothing is played. Of default plans, at most 1 of 100 may be worse by over 2%, and none by
over 5% (the slow tier asks a sample).
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from build import Files, app, example, files, machine, model, random_files
from face import EXIT, solve
from truth.cases import late_shares
from truth.worth import least, worth

PROBLEMS = ("pool", "variants", "pipeline", "llm", "fleet")


def looser(problem: str, seed: int) -> Iterator[tuple[str, Files, Files]]:
    """Pairs of a tighter and a looser wish, by what is looser."""
    rng, wish = random.Random(f"looser {problem} {seed}"), random_files(problem, seed)
    factor = rng.uniform(1.05, 1.6)
    yield "a longer limit", wish, wish.scaled_limits(factor)
    yield "fewer queries", wish, wish.scaled_rates(1.0 / factor)
    if problem != "pipeline":
        kept = rng.choice(wish.machine_types)
        yield "a restriction less", wish.only(kept), wish
        few = {name: rng.randint(1, 3) for name in wish.machine_types}
        yield "more stock", wish.stocked(few), wish.stocked({name: n + 1 for name, n in few.items()})
    else:
        few = {name: (0, rng.randint(1, 3)) for name in wish.machine_types}
        yield (
            "more machines",
            wish.limited(counts=few),
            wish.limited(counts={k: (0, n + 1) for k, (_, n) in few.items()}),
        )
    if problem == "pool":
        most = wish.rated("max").aiming("max rate")
        cost = rng.uniform(1.0, 4.0)
        yield "more money", most.limited(cost=cost), most.limited(cost=cost * factor)
    elif problem != "pipeline":
        cost = rng.uniform(0.5, 4.0)
        yield "more money", wish.limited(cost=cost), wish.limited(cost=cost * factor)


def sample(problem: str, seeds: range) -> list[str]:
    """Pairs whose looser wish is answered worse, exactly, or proved to be."""
    worse = []
    for seed in seeds:
        for what, tight, loose in looser(problem, seed):
            before, after = solve(tight, "fluid"), solve(loose, "fluid")
            slack = 1e-9 * abs(worth(before)) if before.is_plan else 0.0
            if worth(after) > worth(before) + slack:
                worse.append(f"{seed} {what}: {worth(before)} {worth(after)}")
            if before.is_plan and least(after) > least(before) + 1e-6 * abs(least(before)):
                worse.append(f"{seed} {what}, bound: {least(before)} {least(after)}")
    return worse


@pytest.mark.parametrize("problem", [*PROBLEMS[:-1], pytest.param("fleet", marks=pytest.mark.slow)])
def test_planned_sizes_and_bounds(problem: str) -> None:
    assert not sample(problem, range(1))


@pytest.mark.longest
@pytest.mark.parametrize("problem", PROBLEMS)
def test_planned_sizes_and_bounds_of_more_wishes(problem: str) -> None:
    assert not sample(problem, range(1, 8))


@pytest.mark.longest
@pytest.mark.parametrize("problem", ["pool", "variants", "pipeline"])
def test_default_sizes(problem: str) -> None:
    """Some 25 pairs of each: none worse by over 5%, one by over 2% at most."""
    off = []
    for seed in range(5):
        for what, tight, loose in looser(problem, seed):
            before = worth(solve(tight))
            after = worth(solve(loose)) if before < float("inf") else 0.0
            off.append(((after - before) / abs(before) if before < float("inf") else 0.0, f"{seed} {what}"))
    assert max(off)[0] <= 0.05, max(off)
    assert sum(worse > 0.02 for worse, _ in off) <= 1, sorted(off)[-3:]


@pytest.mark.slow
def test_more_money_carries_no_less_of_the_shipped_pool() -> None:
    """At 2.58 the program's pool, two fast machines, carries less than three fast ones that cost 2.46."""
    rates = [worth(solve(example("pool").limited(cost=cost))) for cost in (1.92, 2.04, 2.46, 2.58, 2.76)]
    assert rates == sorted(rates, reverse=True)


@pytest.mark.slow
def test_the_most_rate_is_that_of_the_best_pool_around() -> None:
    """Two random wishes where the program's pool carries a fifth and a tenth less than another for the same money."""
    for seed, cost, lowest in ((50012, 1.58, 340.0), (50001, 2.01, 455.0)):
        wish = random_files("pool", seed).rated("max").aiming("max rate").limited(cost=cost)
        assert -worth(solve(wish)) >= lowest


def vit(rate: float) -> Files:
    """A vision model in batches of up to 32, on four machine types."""
    times = {"t4": (5.6, 4.4), "a10g": (3.0, 1.55), "l4": (3.4, 1.75), "cpu16": (42.0, 39.0)}
    batches = (1, 2, 4, 8, 16, 32)
    runs = {}
    for name, (first, each) in times.items():
        mean = [round(first + each * (size - 1), 2) for size in batches]
        runs[name] = {"batch": batches, "mean": mean, "p99": [round(1.12 * one, 2) for one in mean]}
    prices = {"t4": 0.526, "a10g": 1.006, "l4": 0.805, "cpu16": 0.68}
    machines = {name: machine(price, stock=20) for name, price in prices.items()}
    wanted = app("vit", rate=rate, limits={99: 120})
    return files(machines=machines, models={"vit": model(runs)}, apps={"embed": wanted}, problem="variants")


@pytest.mark.slow
@pytest.mark.parametrize("rate", [480.0, 510.0])
def test_one_machine_that_is_enough_is_found_among_others_too(rate: float) -> None:
    """Where nothing but one l4 may be rented, it is; the plain simulator agrees that it is enough.

    At 515 qps it is late in .86% of the queries, of 1% that may be: too near to the limit for runs to confirm it.
    """
    wish = vit(rate)
    one = wish.only("l4").limited(counts={"l4": (0, 1)})
    alone, free = solve(one), solve(wish)
    assert alone.code == EXIT["ok"]
    assert late_shares(alone, one, queries=10_000)["embed"] < 0.005
    assert worth(free) <= worth(alone)


@pytest.mark.slow
@pytest.mark.parametrize("rate", [30.0, 40.0])
def test_more_cards_in_stock_are_never_dearer_for_a_compound_query(rate: float) -> None:
    """Machines are paid whole: half cards are dearer by their share, and pack better."""
    wish = example("compound-rate").rated(rate).paid_whole()
    costs = [worth(solve(wish.stocked({"a100": stock}))) for stock in (2, 3, 4, 6)]
    assert costs == sorted(costs, reverse=True)
