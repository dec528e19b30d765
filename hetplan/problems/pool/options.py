"""What may be set about a pool: by default, and by the formulations that are asked by name."""

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
    "what the promised rate rests on; planned: the fluid rate, derated; estimated: the same by a queueing formula in "
    "place of `derate`; auto: what a few counted queries show to be kept, confirmed by fresh seeds; simulated: the "
    "highest rate that long simulations carry"
)


class PoolOptions(Options):
    """What every formulation of the pool understands."""

    derate: float = Field(
        default=0.8, gt=0, le=1, description="planned rate / fluid rate: room for queueing, which a fluid rate has not"
    )
    latency_stat: LatencyStat = Field(
        default="mean", description="which statistic of the latency tables is compared with the latency target"
    )
    violation_tolerance: float = Field(
        default=0.0, ge=0, lt=0.5, description="share of queries that may be sent where they are late (eps)"
    )
    xi: float = Field(default=0.98, gt=0, le=1, description="share of the latency target that dispatch may use")
    penalty: Literal["paper", "absolute", "lexicographic"] = Field(
        default="paper", description="what a late pair costs in the matching"
    )

    dispatch: Literal["matching", "threshold", "earliest"] = Field(
        default="matching",
        description="the rule that sends queries to instances: matched in time (Kairos), split at a size that "
        "simulation finds (DeepRecSys), or queued where they are done first (Clockwork); the last two are sized by "
        "simulation",
    )

    size: Size = Field(default="auto", description=SIZE)
    seeds: int = Field(default=5, ge=1, le=100, description="simulations of each pool, with different seeds")
    noise: Literal["mean", "lognormal"] = Field(
        default="mean", description="service times simulated: their means, or lognormal of the tables' std and max"
    )

    @model_validator(mode="before")
    @classmethod
    def _rate_by_simulation(cls, given: Any) -> Any:
        """The derate is that of matching; what another rule carries is known by simulation alone."""
        if isinstance(given, dict) and given.get("dispatch", "matching") != "matching":
            if given.get("size", "simulated") not in ("simulated", "auto"):
                why = "a fluid rate, derated, is what matching carries; what another rule does is simulated"
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
        default=60, ge=1, description="most pools simulated to size one for a rate (sizes auto and simulated)"
    )


class FluidAtOptions(PoolOptions):
    """`fluid-lp`: the fluid program at counts that are given."""

    counts: dict[Id, int] | None = Field(
        default=None,
        description="instances per offer or hardware; without it limits.instances must fix all hardware (least = most)",
    )


class Eq15Options(PoolOptions):
    """`eq15`: the paper's estimate over all configurations with a base instance."""

    size: Size = Field(default="planned", description=SIZE)
    select: Literal["argmax", "similarity"] = Field(
        default="argmax", description="the best ranked, or the paper's choice of the most typical of the best ten"
    )


class SearchOptions(PoolOptions):
    """`kairos-plus`: pools are tried out one by one, in simulation or by what is handed in."""

    size: Size = Field(default="planned", description=SIZE)
    evaluator: Literal["simulate", "evaluate"] = Field(
        default="simulate", description="what values a pool: the simulator, or a measurement handed in through the API"
    )
    bound: Literal["lp", "eq15"] = Field(
        default="lp", description="what pools are pruned by: the fluid rate with the target's own tolerance, or Eq. 15"
    )
    prune: bool = Field(default=True, description="leave out pools whose bound is no better than the best value found")
    prune_sub: bool = Field(
        default=False,
        description="leave out pools contained in one that was tried (wrong for noisy types); implies prune",
    )
    evaluations: int | None = Field(default=None, ge=1, description="most pools tried; none: until nothing is left")
