"""Bounds of pipelines: nothing cheaper keeps the SLO, with whatever room to wait, and however long its paths are."""

from __future__ import annotations

from itertools import pairwise

import pytest
from build import Files, app, files, machine, model, pipeline
from face import bounded, made_for, simulate, solve, thinned, verify


def row(*names: str, rate: float, percentile: int, limit: float, late: str, joins: bool) -> Files:
    """Stages of 10 ms a query, in a row or (the first and last of four) around two that are side by side."""
    edges = [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")] if joins else list(pairwise(names))
    shape = pipeline([(one, other, 1.0) for one, other in edges], names) | {"quality": {"rule": "additive"}}
    wanted = app("row", rate=rate, limits={percentile: limit}, late=late, by="pipeline")
    made = files(
        machines={"m0": machine(1.0)}, models={name: model({"m0": {1: 10.0}}, quality=1.0) for name in names},
        pipelines={"row": shape}, apps={"ask": wanted}, objective=("min cost",), problem="pipeline",
    )  # fmt: skip
    return made.limited(counts={"m0": (0, 20)})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("formulation", "wish"),
    [
        ("pipeline-milp", row(*"abcd", rate=291.0, percentile=50, limit=70.0, late="serve", joins=True)),
        ("pipeline-milp", row(*"abcd", rate=304.0, percentile=60, limit=120.0, late="drop", joins=True)),
        ("loki-budget", row("a", "b", rate=291.0, percentile=50, limit=60.0, late="serve", joins=False)),
        ("loki-budget", row("a", "b", rate=304.0, percentile=60, limit=90.0, late="drop", joins=False)),
    ],
    ids=["joins", "joins that drop", "levels", "levels that drop"],
)
def test_a_machine_less_of_each_stage_is_enough_for(formulation: str, wish: Files) -> None:
    """So no bound is above it: that of joining branches, and of latency levels, was of plans with their own room."""
    answer = solve(wish, formulation=formulation)
    fewer = answer.plan or {}
    steps = len(answer.machines)
    for _ in range(steps):
        fewer = thinned(fewer, wish)
    played = simulate(fewer, wish, seeds=6, duration_s=1500.0)
    assert played.is_ok
    assert played.violation_rate["ask"].high < wish.demand("ask").late
    assert answer.claim is not None
    assert answer.claim.is_of_all
    assert answer.bound is not None
    assert 0.5 * (answer.count() - steps) < answer.bound <= answer.count() - steps
    assert set(verify(answer.plan, wish).bounds) == {"proved again"}
    assert not verify(bounded(answer.plan or {}, 0, float(answer.count())), wish).is_ok


def stages(*names: str, times: dict[int, float], rate: float, percentile: int, limit: float, late: str) -> Files:
    """Stages in a row on one machine type, at the least cost."""
    edges = [(one, other, 1.0) for one, other in pairwise(names)]
    wanted = app("row", rate=rate, limits={percentile: limit}, late=late, by="pipeline")
    made = files(
        machines={"m0": machine(1.0)}, models={name: model({"m0": times}, quality=1.0) for name in names},
        pipelines={"row": pipeline(edges, names)}, apps={"ask": wanted}, objective=("min cost",), problem="pipeline",
    )  # fmt: skip
    return made.limited(counts={"m0": (0, 20)})


def test_a_plan_is_not_held_against_plans_with_its_own_room_alone() -> None:
    """A server less of either stage is enough, though the plan that was found has four of each."""
    wish = stages("a", "b", times={1: 10.0}, rate=291.0, percentile=50, limit=60.0, late="serve")
    answer = solve(wish)
    fewer = thinned(thinned(answer.plan or {}, wish), wish)
    assert simulate(fewer, wish, seeds=3, duration_s=200.0).is_ok
    assert answer.count() == 8, "the case shows nothing"
    assert answer.bound is not None
    assert 5.8 < answer.bound <= 6.0
    assert set(verify(answer.plan, wish).bounds) == {"proved again"}
    forged = verify(bounded(answer.plan or {}, 0, 8.0), wish)
    assert not forged.is_ok


def test_a_plan_is_not_held_against_paths_as_short_as_its_own() -> None:
    """Batches that nearly take the whole limit carry three times as much, and are in time often enough."""
    wish = stages("a", times={1: 10.0, 8: 28.0}, rate=380.0, percentile=80, limit=31.0, late="serve")
    answer = solve(wish)
    longer = solve(stages("a", times={1: 10.0, 8: 28.0}, rate=380.0, percentile=80, limit=60.0, late="serve"))
    played = simulate(made_for(longer.plan or {}, wish), wish, seeds=3, duration_s=200.0)
    assert played.violation_rate["ask"].high < 0.2
    assert longer.cost is not None
    assert answer.cost is not None
    assert longer.cost < answer.cost, "the case shows nothing"
    assert answer.bound is not None
    assert 0.5 * longer.cost < answer.bound <= longer.cost
    assert set(verify(answer.plan, wish).bounds) == {"proved again"}
