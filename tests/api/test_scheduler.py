"""The example of a scheduler, with a clock that the test moves: an overload of five times, and back."""

from __future__ import annotations

import asyncio
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

import hetplan as hp

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "scheduler.py"


@pytest.fixture(scope="module")
def scheduler() -> SimpleNamespace:
    return SimpleNamespace(**runpy.run_path(str(EXAMPLE)))


def test_the_last_plan_is_kept_through_an_overload_and_others_are_not_held_up(scheduler: SimpleNamespace) -> None:
    now, ticks = [0.0], [0]

    async def sleep(seconds: float) -> None:
        now[0] += seconds
        await asyncio.sleep(0)

    async def others() -> None:
        while True:
            ticks[0] += 1
            await asyncio.sleep(0.01)

    async def steps() -> list[object]:
        planner = hp.Planner(*scheduler.files(), options={"sizing": "fluid"}, deadline_s=scheduler.DEADLINE_S)
        beside = asyncio.ensure_future(others())
        found = []
        async for step in scheduler.replan(planner, lambda: now[0], sleep):
            found.append(step)
        beside.cancel()
        planner.close()
        return found

    found = asyncio.run(steps())
    assert [step.at_s for step in found] == [5.0 * number for number in range(12)]
    assert ticks[0] > 12, "another task went on while plans were made"
    calm, over, after = found[:4], found[4:8], found[8:]
    assert all(step.outcome.status not in ("infeasible", "nothing") for step in (*calm, *after))
    for step in over:
        assert step.outcome.status == "infeasible"
        assert step.outcome.conflict
        assert step.running == calm[-1].running, "the last plan stays"
    assert {step.running.summary.cost_per_hour for step in after} == {calm[0].running.summary.cost_per_hour}
