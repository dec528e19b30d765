"""What may be set about a pool by the formulations that are asked by name: one class of options for each."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from hetplan.planner.terms import Size
from hetplan.problems.pool.options import SIZE, PoolOptions
from hetplan.profiles.fields import Id

__all__ = [
    "EnumerateOptions",
    "Eq15Options",
    "ExhaustiveOptions",
    "FluidAtOptions",
    "HomogeneousOptions",
    "RerankOptions",
    "SearchOptions",
]


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


class RerankOptions(PoolOptions):
    """`eq15-rerank`: the best by the estimate, ranked again by the exact fluid rate."""

    size: Size = Field(default="planned", description=SIZE)
    keep: int = Field(default=200, ge=1, le=10_000, description="how many of the best by the estimate are looked at")


class EnumerateOptions(PoolOptions):
    """`enumerate-lp`: the exact fluid rate of every configuration, up to 100 000 of them."""

    size: Size = Field(default="planned", description=SIZE)


class HomogeneousOptions(PoolOptions):
    """`homogeneous`: base instances alone."""

    size: Size = Field(default="planned", description=SIZE)


class SearchOptions(PoolOptions):
    """Searches: pools are tried out one by one, in simulation or by what is handed in."""

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


class ExhaustiveOptions(SearchOptions):
    """`exhaustive`: every pool is tried, whatever its bound, unless `prune` says otherwise."""

    prune: bool = Field(default=False, description="leave out pools whose bound is no better than the best value found")
