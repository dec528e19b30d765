"""The order in which files list things changes no plan: not that of keys, and not that of lists that are sets."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from build import Files, example, random_files, relisted, shuffled
from face import Answer, content, solve

Wished = Callable[[], Files]


def of(problem: str, seed: int) -> Wished:
    return lambda: random_files(problem, seed)


def shipped(name: str) -> Wished:
    return lambda: example(name)


def cases(quick: tuple[tuple[str, Wished, str], ...], slow: tuple[tuple[str, Wished, str], ...]) -> list[object]:
    return [
        pytest.param(name, wish, sizing, id=f"{name}-{sizing}", marks=marks)
        for several, marks in ((quick, ()), (slow, pytest.mark.slow))
        for name, wish, sizing in several
    ]


BUILT = [(f"{name}-{seed}", of(name, seed)) for name in ("pool", "variants") for seed in (0, 1)]
CASES = cases(
    (
        *((name, wish, "fluid") for name, wish in BUILT),
        ("pool-example", shipped("pool"), "fluid"),
        ("variants-example", shipped("variants"), "fluid"),
    ),
    (
        *((f"{name}-{seed}", of(name, seed), "fluid") for name in ("pipeline", "llm", "fleet") for seed in (0, 1)),
        *((f"{name}-example", shipped(name), "fluid") for name in ("pipeline", "llm", "llm-disaggregated")),
        *((name, shipped(name), "simulation") for name in ("compound", "compound-rate")),
        *((f"{name}-0", of(name, 0), "simulation") for name in ("pool", "variants", "pipeline", "llm", "policy")),
    ),
)


@pytest.mark.parametrize(("name", "wish", "sizing"), CASES)
def test_the_order_of_keys_changes_no_plan(name: str, wish: Wished, sizing: str) -> None:
    files = wish()
    plan = content(solve(files, sizing))
    for seed in (1, 2):
        assert content(solve(shuffled(files, seed), sizing)) == plan


@pytest.mark.slow_cases(16)
@pytest.mark.parametrize(("name", "wish", "sizing"), CASES)
def test_the_order_of_lists_changes_no_plan(name: str, wish: Wished, sizing: str) -> None:
    files = wish()
    plan, other = solve(files, sizing), solve(relisted(files, 3), sizing)
    if name.startswith(("pool", "fleet")):
        # Which machine type is the base of a pool, of equally good ones, is told by the order of its measurements.
        assert worth(other) == pytest.approx(worth(plan), rel=1e-6)
    else:
        assert content(other) == content(plan)


def worth(answer: Answer) -> tuple[float, ...]:
    return tuple(one for one in (answer.cost, answer.value) if one is not None)
