"""Pools that hetplan chooses, through its front door, and what a search of its tried on the way."""

from __future__ import annotations

from functools import cache
from typing import Any, cast

import numpy as np

import hetplan
from hetplan import Plan, load
from hetplan.extend import (
    Catalog,
    Limits,
    Pool,
    Tools,
    best_rated,
    choose,
    configurations,
    eq15_numbers,
    estimate_rates,
    most_similar,
    plan_for,
    pose,
    solver,
)
from hetplan_papers.datasets.sources import handed_on, planned, read
from hetplan_papers.reproduce.pool.rates import Trail
from hetplan_papers.reproduce.pool.services import BUDGET, Counts, Service

__all__ = [
    "affordable",
    "code_ranking",
    "fluid_rate",
    "kairos_pick",
    "our_ranking",
    "searched",
    "spelled",
    "walked",
    "written",
]


@cache
def kairos_pick(service: Service, budget: str = BUDGET) -> tuple[Counts, float]:
    """What Kairos rents without trying anything: Eq. 15 and the similarity rule; and the estimate of it."""
    profile, slo = service.inputs(budget)
    plan = hetplan.solve(planned(profile), slo, formulation="kairos", options={"select": "similarity"}).require()
    return counts_of(plan, service), float(plan.alternatives[0]["eq15_qps"])


@cache
def fluid_rate(service: Service, budget: str = BUDGET) -> tuple[Counts, float]:
    """hetplan's own default: the exact fluid program over whole counts; and the fluid rate of what it rents."""
    plan = hetplan.solve(*handed_on(service.inputs(budget)), formulation="pool-milp").require()
    (rate,) = (promise.value for promise in plan.promises if promise.quantity == "fluid_rate_qps")
    return counts_of(plan, service), float(rate)


def searched(trail: Trail, formulation: str, *, seed: int = 0, **options: Any) -> Trail:
    """Let hetplan search, trying pools with the trail's simulator until nothing is left that could be better."""
    plan_for(
        hetplan.load(*handed_on(trail.service.inputs())),
        options={"seeds": 1, **options},
        tools=Tools(simulate=trail),
        formulation=formulation,
        limits=Limits(seed=seed),
    ).require()
    return trail


def walked(trail: Trail, engine: str, pools: list[Counts], *, seed: int) -> Trail:
    """The same engine as the paper gives it to its rivals: what contains no more is left out, no bound is known."""
    form = Catalog(
        np.array(pools, dtype=np.int64),
        lambda i: trail.note(pools[i]).median,
        cost=np.array([trail.service.cost(counts) for counts in pools]),
        monotone=True,
    )
    solver(engine).solve(form, Limits(seed=seed))
    return trail


def counts_of(plan: Plan, service: Service) -> Counts:
    """Instances per type of a plan."""
    held = dict.fromkeys(service.types, 0)
    for worker in plan.workers:
        held[worker.hardware] += worker.count
    return tuple(held.values())


def affordable(service: Service) -> list[Counts]:
    """All 331 pools with a base instance for 2.5 USD/h."""
    return [written(name) for name in read(f"kairos/exhaustive_{service.model}.json", service.data)]


def code_ranking(service: Service) -> tuple[list[Counts], Counts]:
    """The published allocator's own order of the pools, and what its similarity rule takes."""
    bounds = read("kairos/kairos_code_upperbounds_budget2.5.json", service.data)[service.model]
    order = sorted(bounds, key=lambda name: (-bounds[name][1], bounds[name][0]))
    ranked = [written(name) for name in order]
    return ranked, ranked[most_similar(np.array(ranked[:10]), 0)]


def written(name: str) -> Counts:
    """A pool of the data's spelling.

    >>> written("1, 0, 13, 0")
    (1, 0, 13, 0)
    """
    return tuple(int(count) for count in name.split(","))


def spelled(counts: Counts) -> str:
    """A pool as the data spell it.

    >>> spelled((1, 0, 13, 0))
    '1,0,13,0'
    """
    return ",".join(map(str, counts))


@cache
def our_ranking(service: Service) -> list[tuple[Counts, float]]:
    """All pools by Eq. 15 on the exact mix, best first, with the estimate: ties to the cheaper, then in order."""
    inputs = load(*handed_on(service.inputs()))
    pool = cast("Pool", pose(inputs, choose(inputs, formulation="kairos")))
    found = configurations(pool, pool.request.budget or 0, with_base=True)
    rates = estimate_rates(eq15_numbers(pool), found.counts)
    return [(tuple(found.row(int(at)).tolist()), float(rates[at])) for at in best_rated(rates, found.cost, len(found))]
