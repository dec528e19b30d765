"""What may be set about model-selection policies: one class of options per formulation."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field, field_validator, model_validator
from pydantic.config import JsonDict

from hetplan.planner.contract import Options, Size
from hetplan.profiles.fields import Id

__all__ = ["MOST_WORKERS", "FewestOptions", "PaperOptions", "PolicyOptions"]

Percentile = Literal["mean", "p50", "p90", "p95", "p99", "max"]
_GRID = re.compile(r"(fld|union)(?:[{:](\d{1,6})\}?)?|md")

_GRID_ALONE: JsonDict = {"pattern": f"^({_GRID.pattern})$"}
_FINEST_GRID = 10_000

MOST_WORKERS = 10_000
"""More workers are not planned: a search for the fewest ends here."""

SIZE = (
    "what tables are chosen by, workers being given; planned, estimated: the model of the queue alone; simulated: the "
    "better of the kinds of batches under the stated arrivals; auto: the best over a family of arrivals and service "
    "noise, such that the latency percentile is kept, confirmed by fresh seeds"
)


class PolicyOptions(Options):
    """`per-query` and what every formulation understands."""

    rough: ClassVar[Mapping[str, object]] = {
        "grid": "fld{20}", "batching": "max", "accuracy_step": 1.0, "min_gap": 1.0, "simulate": False,
    }  # fmt: skip
    """What plans a hundred times faster and less well, while a person moves a limit."""

    objective: Literal["per_query", "per_decision"] = Field(
        default="per_query", description="accuracy per query that comes (goodput), or per decision as in the paper"
    )
    grid: str = Field(
        default="union{100}",
        json_schema_extra=_GRID_ALONE,
        description="slacks to distinguish: fld{D} (D equal steps), md (all latencies up to the SLO), union{D} (both)",
    )
    batching: Literal["max", "variable", "auto"] = Field(
        default="auto", description="batches of all that wait, of any number, or whichever simulates better"
    )
    queue_max: int = Field(default=32, ge=1, le=4096, description="N: the longest queue that is distinguished")
    overflow: Literal["serve_all", "truncate"] = Field(
        default="serve_all",
        description="more than N waiting: serve N + 1 late, or keep N and lose the rest (the paper)",
    )
    empty_state: Literal["skip", "paper"] = Field(
        default="skip", description="whether idling counts as a decision, as in the paper's text"
    )
    reward: Literal["accuracy", "b_over_n"] = Field(
        default="accuracy", description="per_decision only: what a batch of b out of n earns (b_over_n: published code)"
    )
    percentile: Percentile = Field(default="p95", description="which statistic of the latency tables is planned with")
    monotone: Literal["safe", "optimistic", "error"] = Field(
        default="safe",
        description="latencies that fall with the batch: raise the later, lower the earlier (published), or refuse",
    )
    rates: Literal["formula", "fitted"] = Field(
        default="formula", description="shortest_queue: arrival rates by queue length from the paper, or simulated"
    )
    clamp: bool = Field(
        default=False, description="plan arrivals that are burstier than Poisson at each worker as Poisson"
    )
    split: Literal["proportional", "dp"] = Field(
        default="proportional", description="load among unlike workers: by capacity, or by dynamic programming"
    )
    workers: dict[Id, int] | None = Field(
        default=None, description="workers per application where several share one hardware; otherwise the best split"
    )
    accuracy_step: float = Field(
        default=0.01, gt=0, le=1, description="range of loads: adjacent policies differ by at most this accuracy"
    )
    min_gap: float = Field(
        default=0.01, gt=0, le=1, description="range of loads: closest policies, as a share of the range"
    )
    sweeps: int | None = Field(
        default=None,
        ge=1,
        le=100_000,
        description="so many undiscounted sweeps from 0 (published: 100) in place of the optimum",
    )
    size: Size = Field(default="auto", description=SIZE)
    simulate: bool = Field(default=True, description="simulate what was planned where a simulator is at hand")
    queries: int = Field(default=300_000, ge=10_000, description="queries simulated per policy and seed")
    seeds: int = Field(default=3, ge=1, le=100, description="simulations of each policy, with different seeds")

    @field_validator("grid")
    @classmethod
    def _known_grid(cls, value: str) -> str:
        match = _GRID.fullmatch(value)
        if match is None or (match.group(2) is not None and not 1 <= int(match.group(2)) <= _FINEST_GRID):
            raise ValueError(f'a grid is "fld{{100}}", "md" or "union{{100}}", of 1 to {_FINEST_GRID} steps')
        return value

    @model_validator(mode="after")
    def _fitting(self) -> PolicyOptions:
        if self.sweeps is not None and self.objective == "per_query":
            raise ValueError(
                "sweeps reproduces the published iteration, which is per decision: set objective=per_decision"
            )
        if self.reward == "b_over_n" and self.objective == "per_query":
            raise ValueError("reward=b_over_n belongs to objective=per_decision")
        return self

    def grid_kind(self) -> tuple[str, int]:
        """The kind of grid and its number of equal steps."""
        match = _GRID.fullmatch(self.grid)
        assert match is not None
        return match.group(1) or "md", int(match.group(2) or 100)


class PaperOptions(PolicyOptions):
    """`paper`: RAMSIS as published, per decision on a grid of equal steps, whole batches, running minimum."""

    objective: Literal["per_query", "per_decision"] = "per_decision"
    grid: str = Field(default="fld{100}", json_schema_extra=_GRID_ALONE)
    batching: Literal["max", "variable", "auto"] = "max"
    monotone: Literal["safe", "optimistic", "error"] = "optimistic"
    size: Size = Field(default="simulated", description=SIZE)


class FewestOptions(PolicyOptions):
    """`fewest-workers`: the least number of workers whose policy keeps accuracy and violations."""

    most_workers: int = Field(
        default=MOST_WORKERS,
        ge=1,
        le=MOST_WORKERS,
        description="where limits.instances gives no most: stop searching here",
    )
