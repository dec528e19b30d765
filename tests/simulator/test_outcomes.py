"""Outcomes drawn job by job: what the simulator counts is what the verifier computes, within the luck of the draw."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests")]

from cases.cascades import RATE_QPS, cascade, random_tree
from cases.documents import read, spoil

from hetplan.errors import InputError
from hetplan.serving.system import App, Edge, Group, Late, Load, Route, Service, Stage, System, Way
from hetplan.simulator.simulate import simulate
from hetplan.verifier.check import follow
from hetplan.verifier.plan_index import gather

EVEN = {"arrivals": "deterministic", "noise": "mean", "threads": 1}


def test_queries_that_are_sure_leave_early() -> None:
    """One query in 5 s has all workers to itself: 2 ms for 7 of 10, 22 ms and 42 ms for the others."""
    case = spoil(cascade(), {"slo/apps/shop/rate_qps": 0.2})
    plan, inputs = read(case)
    app = simulate(plan, inputs, duration_s=40_000.0, seeds=1, seed=3, **EVEN).apps["shop"]
    assert app.queries_per_seed == 7000
    assert app.percentiles_ms[50].value == pytest.approx(2.0)
    assert app.percentiles_ms[99].value == pytest.approx(42.0)
    assert app.figures["mean_ms"].value == pytest.approx(2.0 + 0.3 * (0.75 * 20.0 + 0.25 * 40.0), abs=0.6)
    assert app.figures["served_accuracy"].value == pytest.approx(0.92375, abs=0.003)


@pytest.mark.parametrize("seed", range(24))
def test_shares_and_quality_are_the_verifiers(seed: int) -> None:
    """Within 5 standard errors: of the busy time of each load over the seeds, and of the mean quality."""
    case, figures = random_tree(seed)
    plan, inputs = read(case)
    flow = follow(gather(plan, inputs), "x", "t0")
    duration_s, seeds = 60.0, 4
    report = simulate(plan, inputs, duration_s=duration_s, seeds=seeds, seed=seed, **EVEN)
    queries = RATE_QPS * duration_s * seeds
    quality = report.apps["x"].figures["served_accuracy"].value
    assert quality == pytest.approx(figures["quality"], abs=5.0 / math.sqrt(queries))
    for held in plan.workers:
        load = held.loads[0].id
        jobs = figures["jobs"].get(load, 0.0)
        busy = report.groups[held.id].utilisation.value * held.count / RATE_QPS
        each_s = case["profile"]["tables"][f"t-{load}"]["mean"] / 1000.0
        slip = 5.0 * math.sqrt(4.0 * max(jobs, 1.0 / queries) / queries) + 0.002 * jobs
        assert busy / each_s == pytest.approx(jobs, abs=slip)
        assert flow.work[load] / each_s == pytest.approx(jobs, abs=1e-9)


def test_the_same_seed_draws_the_same_outcomes_whatever_the_workers() -> None:
    """Twice the workers of a step answer the same queries the same way: quality is the same to the last digit."""
    quality = []
    for count in (1, 2):
        plan, inputs = read(spoil(cascade(), {"plan/workers/0/count": count}))
        report = simulate(plan, inputs, duration_s=30.0, seeds=2, **EVEN)
        quality.append(report.apps["shop"].figures["served_accuracy"].value)
    assert quality[0] == pytest.approx(quality[1], abs=1e-4)


def test_routes_after_an_outcome_are_taken_by_its_queries_only() -> None:
    """Both outcomes go on: the sure ones (.7) to b, the others to c, whose routes name no outcome."""
    case = spoil(
        cascade(),
        {
            "profile/pipelines/cascade/edges/0": {"from": "small", "to": "large"},
            "profile/pipelines/cascade/quality": {"rule": "product"},
            "plan/routing/shop/1": {"node": "large", "to": {"c": 1.0}},
            "plan/routing/shop/2": {"node": "large", "after": {"small": "sure"}, "to": {"b": 1.0}},
            "slo/apps/shop/rate_qps": 20.0,
        },
    )
    plan, inputs = read(case)
    groups = simulate(plan, inputs, duration_s=400.0, seeds=2, **EVEN).groups
    assert groups["w-b"].utilisation.value == pytest.approx(20.0 * 0.7 * 0.02, rel=0.04)
    assert groups["w-c"].utilisation.value == pytest.approx(20.0 * 0.3 * 0.04, rel=0.06)


def test_no_route_for_an_outcome_is_an_error() -> None:
    plan, inputs = read(spoil(cascade(), {"plan/routing/shop/1/after": {"small": "sure"}}))
    with pytest.raises(InputError, match="no entry routes these queries at large"):
        simulate(plan, inputs, duration_s=1.0, seeds=1, **EVEN)


def by_hand(late: Late, **shares: float) -> System:
    """The cascade of two stages in the simulator's own words."""
    serve = {"ask": Service(np.array([[1.0]]))}
    stages = (Stage("a", (Edge("b", on="no"),), outcomes=("yes", "no")), Stage("b"))
    return System(
        apps=(App("ask", stages, slo_ms=100.0, late=late),),
        groups=(
            Group("g-a", (Load("a", serve, stages=("a",), outcomes=shares),)),
            Group("g-b", (Load("b", serve, stages=("b",)),)),
        ),
        routes=(Route("ask", "a", (Way("g-a", "a"),)), Route("ask", "b", (Way("g-b", "b"),))),
    )


@pytest.mark.parametrize(
    ("system", "words"),
    [
        (by_hand(Late.SERVE, yes=1.0), "no share of this outcome of a"),
        (by_hand(Late.REROUTE, yes=0.5, no=0.5), "nothing is rerouted where steps have outcomes"),
    ],
)
def test_what_cannot_be_played_is_refused(system: System, words: str) -> None:
    from hetplan.simulator.simulation import Simulation

    with pytest.raises(InputError, match=words):
        Simulation(system, {"ask": [1.0]})
