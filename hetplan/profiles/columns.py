"""What was measured at each of some points, by statistics: their names, in one order, and columns of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from hetplan.profiles.fields import Amount, Fraction, Grid, Id, Key, Model, Real

__all__ = ["RATES", "STATISTICS", "TIMES", "Columns", "Measured", "Statistic"]

Statistic = Literal["mean", "std", "p50", "p90", "p95", "p99", "max"]
STATISTICS: tuple[Statistic, ...] = ("mean", "std", "p50", "p90", "p95", "p99", "max")
TIMES: Mapping[str, str] = {one: f"{one}_ms" for one in STATISTICS}
"""What the statistics of a time are called in files."""
RATES: Mapping[str, str] = {"mean": "mean_qps"}


class Measured(Model):
    """What is said of a measured quantity, wherever it stands."""

    axes: dict[Key, tuple[Real, ...]] = Field(default_factory=dict)
    mean: Grid = None
    std: Grid = None
    p50: Grid = None
    p90: Grid = None
    p95: Grid = None
    p99: Grid = None
    max: Grid = None
    samples: Grid = Field(default=None, description="how many measurements per cell, or one number for all")
    outside: Literal["refuse", "clamp", "linear"] = "refuse"
    given: dict[Key, Amount] = Field(default_factory=dict, description="under which conditions it was measured")
    interval: Fraction | None = Field(default=None, description="confidence of the error bars, where there are any")
    source: Id | None = None


class Columns(Measured):
    """A quantity of a run over its points."""

    batch: tuple[Real, ...] | None = Field(default=None, description="the points, where batch is the only axis")
