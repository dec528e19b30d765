"""What a plan promises: of every application with a limit on response times, in every period, that limit."""

from __future__ import annotations

import pytest
from build import Files, example, random_files
from face import Answer, retold, silent, solve, verify


def unpromised(answer: Answer) -> set[tuple[str | None, str | None]]:
    """Applications and periods whose rate is promised when nothing fails, and no percentile."""
    normal = [one for one in answer.promises if one.failure is None and one.app is not None]
    rates = {(one.app, one.period) for one in normal if one.quantity == "rate_qps"}
    return rates - {(one.app, one.period) for one in normal if one.percentile is not None and one.is_simulated}


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize(
    "wish",
    [
        random_files("pool", 1),
        *(random_files("fleet", seed) for seed in (2, 1, 3, 4, 5)),
        random_files("fleet", 4).limited(survive_machines=1),
    ],
    ids=["pool", "fleet 2", "fleet 1", "fleet 3", "fleet 4", "fleet 5", "fleet after failures"],
)
def test_every_application_of_every_period_has_its_percentile(wish: Files) -> None:
    answer = solve(wish)
    assert answer.is_plan
    assert not unpromised(answer)
    for one in answer.promises:
        if one.app is not None and one.percentile is not None:
            assert one.value == wish.limits_ms(one.app)[one.percentile]


@pytest.mark.slow
def test_it_is_so_of_the_shipped_fleet() -> None:
    answer = solve(example("fleet"), options={"levers": False})
    assert not unpromised(answer)
    assert verify(answer.plan, example("fleet")).is_ok


@pytest.mark.parametrize("seed", [2])
def test_a_fleet_says_what_its_parts_say(seed: int) -> None:
    wish = random_files("fleet", seed)
    answer = solve(wish)
    assert answer.plan is not None
    assert verify(answer.plan, wish).is_ok
    assert not verify(silent(answer.plan), wish).is_ok
    assert not verify(retold(answer.plan, "response_ms", 0.5), wish).is_ok
