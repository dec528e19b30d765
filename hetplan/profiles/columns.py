"""What was measured at each of some points, in columns, as a file has it where it is no service time."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from hetplan.profiles.fields import Amount, Fraction, Grid, Id, Key, Model, Real

__all__ = ["Columns"]


class Columns(Model):
    """A quantity of a run over its points."""

    axes: dict[Key, tuple[Real, ...]] | None = None
    batch: tuple[Real, ...] | None = None
    mean: Grid = None
    std: Grid = None
    p50: Grid = None
    p90: Grid = None
    p95: Grid = None
    p99: Grid = None
    max: Grid = None
    samples: Grid = None
    outside: Literal["refuse", "clamp", "linear"] = "refuse"
    given: dict[Key, Amount] = Field(default_factory=dict)
    interval: Fraction | None = None
    source: Id | None = None
