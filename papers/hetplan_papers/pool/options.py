"""What may be set about the formulations of pools: one class of options for each."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from hetplan.extend import PoolOptions, SearchOptions, Sizing

__all__ = ["EnumerateOptions", "ExhaustiveOptions", "HomogeneousOptions", "RerankOptions", "SearchOptions"]

FLUID = "what the promised rate rests on; as in the papers the fluid rate, derated"


class RerankOptions(PoolOptions):
    """`eq15-rerank`: the best by the estimate, ranked again by the exact fluid rate."""

    sizing: Sizing = Field(default="fluid", description=FLUID)
    keep: int = Field(default=200, ge=1, le=10_000, description="how many of the best by the estimate are ranked again")


class EnumerateOptions(PoolOptions):
    """`enumerate-lp`: the exact fluid rate of every configuration, up to 100 000 of them."""

    sizing: Sizing = Field(default="fluid", description=FLUID)


class HomogeneousOptions(PoolOptions):
    """`homogeneous`: base instances alone."""

    sizing: Sizing = Field(default="fluid", description=FLUID)


class ExhaustiveOptions(SearchOptions):
    """`exhaustive`: every pool is tried, whatever its bound, unless `prune` says otherwise."""

    prune: Literal["subsets"] | bool = Field(
        default=False, description="skip pools whose bound is no better than the incumbent"
    )
