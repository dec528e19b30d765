"""The options of the pool's formulations."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from hetplan.planner.terms import Sizing, TableOptions

__all__ = [
    "SIZE",
    "Eq15Options",
    "FluidOptions",
    "PoolOptions",
    "SearchOptions",
]

SIZE = (
    "how waiting is taken into account; fluid: the fluid rate times `derate`; formula: a queueing formula in place of "
    "`derate`; simulation: short simulations, confirmed with fresh seeds"
)


class PoolOptions(TableOptions):
    """Options of all formulations of the pool."""

    derate: float = Field(
        default=0.8, gt=0, le=1, description="promised rate / fluid rate; the rest is headroom for queueing"
    )
    allow_late: float = Field(
        default=0.0,
        ge=0,
        lt=0.5,
        description="share of queries that may be routed to replicas that answer them late (eps)",
    )
    xi: float = Field(default=0.98, gt=0, le=1, description="share of the latency limit that the dispatch rule may use")
    matching_cost: Literal["paper", "absolute", "lexicographic"] = Field(
        default="paper",
        description="cost of a late pair in the matching: as in the paper, a fixed time, or above all pairs in time",
    )
    sizing: Sizing = Field(default="simulation", description=SIZE)
    seeds: int = Field(default=5, ge=1, le=100, description="simulations of each pool, each with its own seed")
    service_times: Literal["mean", "lognormal"] = Field(
        default="mean", description="service times in simulation: the mean, or lognormal with the tables' std and max"
    )


class FluidOptions(PoolOptions):
    """`pool-milp`: the exact fluid program over whole counts."""

    max_simulations: int = Field(
        default=60, ge=1, description="most pools simulated to find the cheapest for a rate (sizing simulation)"
    )


class Eq15Options(PoolOptions):
    """`kairos`: the paper's estimate over all configurations with a base instance."""

    sizing: Sizing = Field(default="fluid", description=SIZE)
    select: Literal["argmax", "similarity"] = Field(
        default="argmax", description="argmax: the best estimate; similarity: the most typical of the best ten (paper)"
    )


class SearchOptions(PoolOptions):
    """`kairos-plus`: pools are evaluated one by one, by the simulator or by a given function."""

    sizing: Sizing = Field(default="fluid", description=SIZE)
    evaluator: Literal["simulate", "evaluate"] = Field(
        default="simulate", description="how pools are evaluated: by the simulator, or by `evaluate` of the Python API"
    )
    bound: Literal["lp", "eq15"] = Field(
        default="lp", description="bound used for pruning: the fluid rate at the SLO's own violation rate, or Eq. 15"
    )
    prune: Literal["subsets"] | bool = Field(
        default=True,
        description="skip pools whose bound is no better than the incumbent; subsets: also those contained in an "
        "evaluated one (wrong for noisy types)",
    )
    max_simulations: int | None = Field(
        default=None, ge=1, description="most pools evaluated; left out: all that are not pruned"
    )
