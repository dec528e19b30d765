"""state.json: what runs now, and what was observed of it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from hetplan.profiles.fields import Count, Fraction, Key, Model, Named, NonNegative, wrong
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
    observed: Named[Observed] = Field(default_factory=dict)
    extensions: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _different_ids(self) -> State:
        seen: set[str] = set()
        for number, worker in enumerate(self.workers):
            at: tuple[str | int, ...] = ("workers", number)
            for name, where in [(worker.id, at), *((load.id, (*at, "loads")) for load in worker.loads)]:
                if name in seen:
                    raise wrong(f"a second worker or load with the id {name!r}", "Rename one of them.", at=where)
                seen.add(name)
        return self
