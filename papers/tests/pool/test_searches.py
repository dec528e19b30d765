"""Searches of pools: engines pass the kit of their form, and formulations find the best pool within its bound."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from cases.pool import Json, g1, g3

import hetplan
from hetplan.extend import Catalog, CatalogEngine, Limits, Tools, plan_for
from hetplan.testing import check_solver
from hetplan_papers.pool.matern import matern_posterior
from hetplan_papers.pool.searches import Annealing, GaussianProcess, Genetic, RandomOrder

ENGINES = (RandomOrder(), Genetic(), Annealing(), GaussianProcess())
SEARCHES = ["exhaustive", "random", "genetic", "annealing", "bayesian"]


@dataclass
class Rates:
    per_seed: tuple[float, ...]


@dataclass
class Simulator:
    """Says that every pool carries a share of its bound, less for small pools, and counts how often it was asked."""

    share: float = 0.85
    tried: list[tuple[int, ...]] = field(default_factory=list)

    def __call__(self, latency_ms: Any, counts: Any, pmf: Any, qos_ms: float, **more: Any) -> Rates:
        self.tried.append(tuple(counts))
        rate = more["lp_qps"] * self.share * (1 - 0.3 / sum(counts))
        return Rates(tuple(rate * (1 + 0.01 * (seed % 3 - 1)) for seed in more["seeds"]))


def solve(case: tuple[Json, Json], formulation: str, tools: Tools | None = None, **options: Any) -> Any:
    return plan_for(hetplan.load(*case), formulation=formulation, options=options, tools=tools)


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)
def test_an_engine_passes_the_conformance_kit(engine: CatalogEngine) -> None:
    check_solver(engine)


@pytest.mark.parametrize("formulation", SEARCHES)
@pytest.mark.parametrize("bound", ["lp", "eq15"])
def test_a_search_finds_the_best_pool(formulation: str, bound: str) -> None:
    case, how = g3(budget=3, instances={"base": [1, None]}), {"bound": bound, "seeds": 3}
    # The simulator takes its share of what it is given as the bound: with Eq. 15 all are tried.
    how["prune"] = bound == "lp"
    best = solve(case, "kairos-plus", Tools(simulate=Simulator()), **how).require().promises[0]
    outcome = solve(case, formulation, Tools(simulate=Simulator()), **how)
    assert (outcome.exit_code, outcome.violations) == (0, ())
    assert outcome.require().promises[0].value == pytest.approx(best.value, rel=1e-9)
    bounded = outcome.claims[0].bound is not None
    assert bounded == (bound == "lp")


def test_every_pool_is_tried_unless_some_are_pruned() -> None:
    tries = {}
    for name in ("kairos-plus", "exhaustive"):
        simulator = Simulator()
        solve(g3(budget=3), name, Tools(simulate=simulator), seeds=1)
        tries[name] = len(simulator.tried)
    assert tries["kairos-plus"] * 3 < tries["exhaustive"]


def test_a_number_of_tries_is_kept() -> None:
    simulator = Simulator()
    outcome = solve(g3(budget=4), "random", Tools(simulate=simulator), prune=False, max_simulations=7)
    assert len(set(simulator.tried)) == 7
    assert outcome.claims[0].note.startswith("7 of ")


def test_searches_are_for_budgets() -> None:
    with pytest.raises(hetplan.InputError, match="within a budget"):
        solve(g1(rate_qps=30), "bayesian")


@pytest.mark.slow
@pytest.mark.parametrize("formulation", ["exhaustive", "random", "bayesian"])
def test_a_search_by_the_real_simulator_verifies(formulation: str) -> None:
    outcome = solve(g1(budget=2), formulation, seeds=2, max_simulations=6)
    assert (outcome.exit_code, outcome.violations) == (0, ())
    assert outcome.require().promises[0].model == "simulation/1"


def hill(size: int) -> tuple[Catalog, list[float]]:
    place = np.array([[x, y] for x in range(size) for y in range(size)])
    worth = [100.0 - (x - 5) ** 2 - 2.0 * (y - 2) ** 2 for x, y in place]
    return Catalog(place, worth.__getitem__), worth


def test_learning_needs_fewer_tries_than_chance() -> None:
    form, worth = hill(12)
    bare = replace(form, prune=False, journal={})
    answer = GaussianProcess().solve(bare, Limits(seed=1, work=25))
    assert answer.value == max(worth)
    assert answer.work["evaluations_to_best"] < 25


def test_the_process_goes_through_what_is_known() -> None:
    points = np.linspace(0, 1, 6)[:, None]
    values = np.sin(4 * points[:, 0])
    mean, spread = matern_posterior(points, values, points)
    assert mean.tolist() == pytest.approx(values.tolist(), abs=1e-3)
    assert spread.max() < 0.05
    far = matern_posterior(points, values, np.array([[0.5], [5.0]]))
    assert far[1][1] > far[1][0]
