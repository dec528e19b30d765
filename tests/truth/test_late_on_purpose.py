"""Who may be late may be so on purpose, on machines that are slow and cheap: no bound is above such a plan.

Two fast machines answer all queries in time. One of them answers two fifths, and the limit asks for no more; slow
ones answer the others a little later, at a quarter of the price of the second. The plain simulator shows that they do.
"""

from __future__ import annotations

from typing import Any

import pytest
from build import Files, app, files, machine, model, pipeline
from face import bounded, solve, verify
from truth.plain_simulator import App, Bank, Way, play

RATE, LIMIT_MS, PERCENTILE = 190.0, 60.0, 35.0
FAST_MS, SLOW_MS, SLOW_PRICE, SLOW = 10.0, 100.0, 0.02, 12
COST = 1.0 + SLOW * SLOW_PRICE


def wish(problem: str) -> Files:
    """One model on a fast and a slow machine type; a fleet over two hours, too."""
    net = model({"fast": {1: FAST_MS}, "slow": {1: SLOW_MS}}, quality=1.0, task="net")
    of, _, how = problem.partition(" ")
    periods = 2 if how else None
    rate: Any = [RATE] * periods if periods else RATE
    by: Any = {"by": "pipeline"} if of == "pipeline" else {}
    wanted = app("row" if by else "net", rate=rate, limits={PERCENTILE: LIMIT_MS}, **by)
    if by:
        wanted["late"] = "serve"
    return files(
        machines={"fast": machine(1.0, stock=20), "slow": machine(SLOW_PRICE, stock=40)}, models={"net": net},
        pipelines={"row": pipeline([], ["net"])} if by else None, apps={"ask": wanted}, objective=("min cost",),
        periods=periods, problem="fleet" if how else of,
    ).limited(counts={"fast": (0, 20), "slow": (0, 40)})  # fmt: skip


def test_the_plan_that_is_late_on_purpose_keeps_the_limit() -> None:
    banks = {"fast": Bank(1, {None: [FAST_MS]}), "slow": Bank(SLOW, {None: [SLOW_MS]})}
    routes = Way({"fast": 0.42, "slow": 0.58})
    late = play({"ask": App(RATE, LIMIT_MS, [routes])}, banks, queries=60_000, seed=3)["ask"].late
    assert late < 0.97 * (1.0 - PERCENTILE / 100.0)


@pytest.mark.quick_sample(2)
@pytest.mark.parametrize("problem", ["variants", "pipeline", "pipeline levels", "variants fleet", "pipeline fleet"])
def test_no_bound_is_above_it(problem: str) -> None:
    of, _, how = problem.partition(" ")
    stated = wish(of if how == "levels" else problem)
    answer = solve(stated, formulation="loki-budget" if how == "levels" else None)
    assert answer.cost is not None
    assert answer.cost > COST, "the case shows nothing"
    assert answer.claim is not None
    assert answer.bound is not None
    assert answer.claim.is_of_all
    assert 0.3 * COST < answer.bound <= COST
    assert verify(answer.plan, stated).is_ok
    if not how:
        assert set(verify(answer.plan, stated).bounds) == {"proved again"}
        assert not verify(bounded(answer.plan or {}, 0, answer.cost), stated).is_ok
