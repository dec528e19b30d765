"""Bounds where late queries are dropped: of those that may be late, nobody needs a machine.

Half of the queries may be late, so that about half of the machines keep the SLO. Simulation shows that they do, and no
bound may be above what they cost.
"""

from __future__ import annotations

from functools import cache

import pytest
from build import Files, app, files, machine, model, pipeline
from face import Answer, bounded, simulate, solve, thinned, verify

RATE, LIMITS = 300.0, {50: 25.0}


def dropping(problem: str, late: str, *, objective: tuple[str, ...] = (), rate: float | list[float] = RATE) -> Files:
    """One machine type that answers 100 queries/s (of each of two stages); with several rates a fleet, one an hour."""
    times, periods = {"m0": {1: 10.0}}, len(rate) if isinstance(rate, list) else None
    asked = "fleet" if periods else problem
    if problem == "pipeline":
        stages = pipeline([("a", "b", 1.0)], ["a", "b"])
        wanted = app("street", rate=rate, limits={50: 60.0}, late=late, by="pipeline")
        models = {name: model(times, quality=1.0) for name in ("a", "b")}
        made = files(
            machines={"m0": machine(1.0)}, models=models, pipelines={"street": stages}, apps={"ask": wanted},
            objective=objective, periods=periods, problem=asked,
        )  # fmt: skip
        return made.limited(counts={"m0": (0, 20)})
    wanted = app("net", rate=rate, limits=LIMITS, sizes={1: 1.0} if problem == "pool" else None, late=late)
    return files(
        machines={"m0": machine(1.0)}, models={"net": model(times)}, apps={"ask": wanted}, periods=periods,
        problem=asked,
    )  # fmt: skip


@cache
def planned(problem: str, late: str, objective: tuple[str, ...] = ()) -> tuple[Files, Answer]:
    wish = dropping(problem, late, objective=objective)
    return wish, solve(wish)


def fewest_that_keep(wish: Files, answer: Answer) -> int:
    """Machines that are left when one after the other goes, as long as simulation says that the SLO is kept."""
    plan, left = answer.plan or {}, answer.count()
    while left > 1:
        plan = thinned(plan, wish)
        played = simulate(plan, wish, seeds=2, duration_s=60.0)
        if not (played.is_ok and played.violation_rate["ask"].high < 0.5):
            break
        left -= 1
    return left


CASES = [
    ("variants", "drop", ()),
    ("variants", "reroute", ()),
    ("pipeline", "drop-per-task", ("min cost",)),
    ("pipeline", "reroute", ("min cost",)),
]


@pytest.mark.quick_sample(2)
@pytest.mark.parametrize(("problem", "late", "objective"), CASES)
def test_no_bound_is_above_a_plan_that_keeps_the_slo_by_dropping(
    problem: str, late: str, objective: tuple[str, ...]
) -> None:
    wish, answer = planned(problem, late, objective)
    cost = {one.objective: one for one in (answer.claim,) if one}.get("cost_per_hour")
    assert cost is not None
    assert cost.bound is not None
    fewest = fewest_that_keep(wish, answer)
    assert fewest < answer.count(), "the case shows nothing"
    assert 0.5 * fewest <= cost.bound <= fewest * wish.price("m0")
    assert set(verify(answer.plan, wish).bounds) == {"proved again"}


FLEETS = [("pool", "drop", ()), ("variants", "drop", ()), ("pipeline", "drop-per-task", ("min cost",))]


@pytest.mark.slow
@pytest.mark.parametrize(("problem", "late", "objective"), FLEETS)
def test_no_bound_of_a_fleet_is_above_machines_that_keep_the_slo_by_dropping(
    problem: str, late: str, objective: tuple[str, ...]
) -> None:
    """The same application at the same rate for two hours."""
    wish, answer = planned(problem, late, objective)
    fewest = fewest_that_keep(wish, answer)
    hours = dropping(problem, late, rate=[RATE, RATE])
    fleet = solve(hours)
    assert fleet.bound is not None
    assert fleet.claim is not None
    assert fleet.claim.is_of_all
    assert 0.5 * fewest <= fleet.bound <= fewest * wish.price("m0")
    assert verify(fleet.plan, hours).is_ok
    serving = solve(dropping(problem, "serve", rate=[RATE, RATE])).bound or 0.0
    assert "proved again" not in verify(bounded(fleet.plan or {}, 0, serving), hours).bounds


@pytest.mark.parametrize(("problem", "late", "objective"), CASES)
def test_a_bound_of_machines_that_answer_all_is_refused(problem: str, late: str, objective: tuple[str, ...]) -> None:
    wish, answer = planned(problem, late, objective)
    serving = solve(dropping(problem, "serve", objective=objective))
    assert answer.bound is not None
    assert serving.bound is not None
    assert answer.bound < serving.bound
    judged = verify(bounded(answer.plan or {}, 0, serving.bound), wish)
    assert not judged.is_ok
    assert "proved again" not in judged.bounds[:1]


def test_the_long_ones_of_variants_may_be_those_that_are_dropped() -> None:
    """Half of the queries take a ninth of the work, and the other half may be late."""
    wanted = app("net", rate=RATE, limits={50: 200.0}, sizes={1: 0.5, 8: 0.5}, late="drop")
    models = {"net": model({"m0": {1: 10.0, 8: 80.0}})}
    wish = files(machines={"m0": machine(1.0)}, models=models, apps={"ask": wanted}, problem="variants")
    answer, enough = solve(wish), 2
    assert answer.bound is not None
    assert 0.5 * RATE * 0.01 < answer.bound <= enough < answer.count()
    assert set(verify(answer.plan, wish).bounds) == {"proved again"}
