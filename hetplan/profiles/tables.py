"""Measured tables over named axes: reading between the points, and saying what lies outside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from hetplan.profiles.fields import Fraction, Grid, Id, Key, Model, NonNegative, Real

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Quantity", "Readings", "Statistic", "Table"]

Quantity = Literal["latency_ms", "requests_per_s", "ttft_ms", "tpot_ms", "bytes_out", "slowdown"]
Statistic = Literal["mean", "std", "p50", "p90", "p95", "p99", "max"]


@dataclass(frozen=True)
class Readings:
    """Values read from a table, and which of them were computed outside its grid."""

    values: NDArray[np.float64]
    extrapolated: NDArray[np.bool_]
    source: str | None


class Table(Model):
    """One quantity over a grid of named axes; one nested level of numbers per axis, in the order of `axes`."""

    quantity: Quantity
    axes: dict[Key, tuple[Real, ...]] = Field(default_factory=dict)
    mean: Grid = None
    std: Grid = None
    p50: Grid = None
    p90: Grid = None
    p95: Grid = None
    p99: Grid = None
    max: Grid = None
    samples: Grid = None
    source: Id | None = None
    outside: Literal["refuse", "clamp", "linear"] = "refuse"
    given: dict[Key, NonNegative] = Field(default_factory=dict, description="under which conditions it was measured")
    interval: Fraction | None = Field(default=None, description="confidence of the error bars, where there are any")

    def read(self, points: Sequence[Mapping[str, float]], statistic: Statistic = "mean") -> Readings:
        """The table's value at each point (a point names every axis).

        Multilinear between grid points; outside the grid as `outside` says, and marked. A point outside a table that
        refuses, or on a cell that was never measured, raises `InputError`.
        """
        raise NotImplementedError
