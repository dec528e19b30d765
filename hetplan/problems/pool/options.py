"""The options of the pool's formulations."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from hetplan.planner.terms import Options, Size
from hetplan.profiles.fields import Id, wrong

__all__ = [
    "SIZE",
    "Eq15Options",
    "FluidAtOptions",
    "FluidOptions",
    "LatencyStat",
    "PoolOptions",
    "SearchOptions",
]

LatencyStat = Literal["mean", "p50", "p90", "p95", "p99", "max"]
SIZE = (
    "how queueing is taken into account; planned: the fluid rate times `derate`; estimated: a queueing formula in "
    "place of `derate`; auto: short simulations, confirmed with fresh seeds; simulated: the highest rate that long "
    "simulations sustain"
)


class PoolOptions(Options):
    """Options of all formulations of the pool."""

    derate: float = Field(
        default=0.8, gt=0, le=1, description="promised rate / fluid rate; the rest is headroom for queueing"
    )
    latency_stat: LatencyStat = Field(
        default="mean", description="statistic of the latency tables that is compared with the latency limit"
    )
    violation_tolerance: float = Field(
        default=0.0,
        ge=0,
        lt=0.5,
        description="share of queries that may be routed to replicas that answer them late (eps)",
    )
    xi: float = Field(default=0.98, gt=0, le=1, description="share of the latency limit that the dispatch rule may use")
    penalty: Literal["paper", "absolute", "lexicographic"] = Field(
        default="paper",
        description="cost of a late pair in the matching: as in the paper, a fixed time, or above all pairs in time",
    )

    dispatch: Literal["matching", "threshold", "earliest"] = Field(
        default="matching",
        description="dispatch rule; matching: queries and replicas are matched by latency (Kairos); threshold: split "
        "at a query size that simulation finds (DeepRecSys); earliest: the replica that finishes first (Clockwork); "
        "the last two are sized by simulation",
    )

    size: Size = Field(default="auto", description=SIZE)
    seeds: int = Field(default=5, ge=1, le=100, description="simulations of each pool, each with its own seed")
    noise: Literal["mean", "lognormal"] = Field(
        default="mean", description="service times in simulation: the mean, or lognormal with the tables' std and max"
    )

    @model_validator(mode="before")
    @classmethod
    def _rate_by_simulation(cls, given: Any) -> Any:
        """The derate is that of matching; what another rule carries is known by simulation alone."""
        if isinstance(given, dict) and given.get("dispatch", "matching") != "matching":
            if given.get("size", "simulated") not in ("simulated", "auto"):
                why = "the derated fluid rate holds for matching only; every other rule is sized by simulation"
                raise wrong(why, 'Set it to "simulated", or leave it out.', at=("size",))
            return {**given, "size": "simulated"}
        return given

    @model_validator(mode="before")
    @classmethod
    def _eps(cls, given: Any) -> Any:
        if isinstance(given, dict) and "eps" in given and "violation_tolerance" not in given:
            return {("violation_tolerance" if name == "eps" else name): value for name, value in given.items()}
        return given


class FluidOptions(PoolOptions):
    """`fluid-milp`: the exact fluid program over whole counts."""

    evaluations: int = Field(
        default=60, ge=1, description="most pools simulated to find the cheapest for a rate (sizes auto and simulated)"
    )


class FluidAtOptions(PoolOptions):
    """`fluid-lp`: the fluid program at given counts."""

    counts: dict[Id, int] | None = Field(
        default=None,
        description="replicas per offer or machine type; left out: limits.instances must fix the count of every type",
    )


class Eq15Options(PoolOptions):
    """`eq15`: the paper's estimate over all configurations with a base instance."""

    size: Size = Field(default="planned", description=SIZE)
    select: Literal["argmax", "similarity"] = Field(
        default="argmax", description="argmax: the best estimate; similarity: the most typical of the best ten (paper)"
    )


class SearchOptions(PoolOptions):
    """`kairos-plus`: pools are evaluated one by one, by the simulator or by a given function."""

    size: Size = Field(default="planned", description=SIZE)
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
    evaluations: int | None = Field(
        default=None, ge=1, description="most pools evaluated; left out: all that are not pruned"
    )
