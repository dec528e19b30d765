"""The options of the pool's formulations."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from hetplan.planner.terms import Sizing, TableOptions
from hetplan.profiles.fields import Id, wrong

__all__ = [
    "SIZE",
    "Eq15Options",
    "FluidAtOptions",
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

    dispatch: Literal["matching", "threshold", "earliest"] = Field(
        default="matching",
        description="dispatch rule; matching: queries and replicas are matched by latency (Kairos); threshold: split "
        "at a query size that simulation finds (DeepRecSys); earliest: the replica that finishes first (Clockwork); "
        "the last two are sized by simulation",
    )

    sizing: Sizing = Field(default="simulation", description=SIZE)
    seeds: int = Field(default=5, ge=1, le=100, description="simulations of each pool, each with its own seed")
    service_times: Literal["mean", "lognormal"] = Field(
        default="mean", description="service times in simulation: the mean, or lognormal with the tables' std and max"
    )

    @model_validator(mode="before")
    @classmethod
    def _rate_by_simulation(cls, given: Any) -> Any:
        """The derate is that of matching; what another rule carries is known by simulation alone."""
        if isinstance(given, dict) and given.get("dispatch", "matching") != "matching":
            if given.get("sizing", "simulation") != "simulation":
                why = "the derated fluid rate holds for matching only; every other rule is sized by simulation"
                raise wrong(why, 'Set it to "simulation", or leave it out.', at=("sizing",))
            return {**given, "sizing": "simulation"}
        return given

    @property
    def by_allowable_rate(self) -> bool:
        """Whether a pool is rated by the highest rate that long simulations sustain: of rules without a formula."""
        return self.dispatch != "matching"


class FluidOptions(PoolOptions):
    """`pool-milp`: the exact fluid program over whole counts."""

    max_simulations: int = Field(
        default=60, ge=1, description="most pools simulated to find the cheapest for a rate (sizing simulation)"
    )


class FluidAtOptions(PoolOptions):
    """`pool-lp`: the fluid program at given counts."""

    counts: dict[Id, int] | None = Field(
        default=None,
        description="replicas per offer or machine type; left out: limits.instances must fix the count of every type",
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
    prune: bool = Field(default=True, description="skip pools whose bound is no better than the incumbent")
    prune_sub: bool = Field(
        default=False,
        description="also skip pools contained in an evaluated one (wrong for noisy types); implies prune",
    )
    max_simulations: int | None = Field(
        default=None, ge=1, description="most pools evaluated; left out: all that are not pruned"
    )
