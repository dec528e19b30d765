"""state.json: what runs now, and what was observed of it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from hetplan.profiles.fields import Count, Fraction, Id, Key, Model, NonNegative
from hetplan.profiles.workers import Worker

__all__ = ["Observed", "State"]


class Observed(Model):
    """What was seen of one load."""

    status: Literal["inactive", "loading", "active", "overloaded", "interfered", "draining", "failed"] = "active"
    rate_qps: NonNegative | None = None
    utilisation: Fraction | None = None
    latency_ms: NonNegative | None = None
    counters: dict[Key, Count] = Field(default_factory=dict)


class State(Model):
    """Workers in the plan's own shape, and observations by load id (or host id, for utilisation of machines)."""

    format: str = "hetplan/state/1.0"
    requires: tuple[str, ...] = ()
    workers: tuple[Worker, ...] = ()
    observed: dict[Id, Observed] = Field(default_factory=dict)
    extensions: dict[str, Any] = Field(default_factory=dict)
