"""More money, stock and time, fewer queries, one restriction less: no plan gets worse, and no bound either.

Exact at planned size, where nothing is played. Of default plans, at most 1 of 100 may be worse by over 2%, and none by
over 5% (the slow tier asks a sample).
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from build import Files, random_files
from face import solve
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


@pytest.mark.slow
@pytest.mark.parametrize("problem", PROBLEMS)
def test_planned_sizes_and_bounds_of_more_wishes(problem: str) -> None:
    assert not sample(problem, range(1, 8))


@pytest.mark.slow
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
