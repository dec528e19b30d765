"""A scheduler that plans again every 5 seconds, from asyncio, and keeps the last plan through an overload.

Run it in the folder of the repository: `python examples/scheduler.py` takes a minute. At 20 s the rate becomes five
times as high, more than all machines serve: then the answer is infeasible, with what would help, and the last plan
stays. At 40 s the rate falls back, and there is a plan again.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hetplan as hp

EVERY_S, DEADLINE_S, LENGTH_S = 5.0, 4.0, 60.0
STOCK = {"t4": 4, "cpu16": 2, "cpu4": 8}
POOL = Path(__file__).resolve().parent / "pool"


@dataclass(frozen=True)
class Step:
    """One look: when, the rate that came, what planning said, the machines that run from now on."""

    at_s: float
    rate_qps: float
    outcome: hp.Outcome
    running: hp.Plan | None


def rate_qps(at_s: float) -> float:
    """300 queries per second; five times as many from 20 to 40 s."""
    return 1500.0 if 20.0 <= at_s < 40.0 else 300.0


def files() -> tuple[dict[str, Any], dict[str, Any]]:
    """The pool's example with a limited stock, for the least cost at a rate."""
    profile, slo = (json.loads((POOL / f"{name}.json").read_text()) for name in ("profile", "slo"))
    for name, count in STOCK.items():
        profile["machines"][name]["stock"] = count
    del slo["limits"]["cost_per_hour"]
    slo["objective"], slo["apps"]["ranking"]["rate_qps"] = "min cost", rate_qps(0.0)
    return profile, slo


async def replan(
    planner: hp.Planner, now_s: Callable[[], float], sleep: Callable[[float], Awaitable[None]]
) -> AsyncIterator[Step]:
    """Plan for the rate that comes, every 5 s; other tasks go on meanwhile."""
    began_s = now_s()
    while (at_s := now_s() - began_s) < LENGTH_S:
        rate = rate_qps(at_s)
        outcome = await planner.aplan({"ranking": rate}, start=planner.last)
        yield Step(at_s, rate, outcome, planner.last)
        await sleep(max(0.0, at_s + EVERY_S - (now_s() - began_s)))


async def main() -> None:
    """Print a line for each look."""
    planner = hp.Planner(*files(), deadline_s=DEADLINE_S)
    try:
        async for step in replan(planner, time.monotonic, asyncio.sleep):
            machines = 0 if step.running is None else sum(row.count for row in step.running.rows())
            help_ = step.outcome.repairs[0].text if step.outcome.repairs else ""
            print(f"{step.at_s:3.0f} s  {step.rate_qps:5.0f}/s  {step.outcome.status:16}  {machines} machines  {help_}")
    finally:
        planner.close()


if __name__ == "__main__":
    asyncio.run(main())
