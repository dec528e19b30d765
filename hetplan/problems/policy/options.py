"""The options of model-selection policies, one class per formulation."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field, field_validator, model_validator
from pydantic.config import JsonDict

from hetplan.planner.contract import Sizing, TableOptions

__all__ = ["MOST_WORKERS", "PaperOptions", "PolicyOptions"]

_GRID = re.compile(r"(fld|union)(?:[{:](\d{1,6})\}?)?|md")

_GRID_ALONE: JsonDict = {"pattern": f"^({_GRID.pattern})$"}
_FINEST_GRID = 10_000

MOST_WORKERS = 10_000
"""More workers are not planned: a search for the fewest ends here."""

SIZE = (
    "how waiting is taken into account; fluid, formula: by the policy's queueing model; simulation: tables meet the "
    "latency percentile under several arrival processes and service times, confirmed with fresh seeds"
)


class PolicyOptions(TableOptions):
    """Options of `policy-mdp`, and of all formulations."""

    rough: ClassVar[Mapping[str, object]] = {
        "grid": "fld{20}", "batching": "max", "accuracy_step": 1.0, "sizing": "fluid",
    }  # fmt: skip
    """What plans a hundred times faster and less well, while a person moves a limit."""
    usual: ClassVar[Literal["mean", "p50", "p95"]] = "p95"
    monotone: ClassVar[Literal["safe", "optimistic"]] = "safe"
    """Of latency that falls with the batch size the later is raised, or (published code) the earlier lowered."""
    over_arrivals: ClassVar[bool] = True
    """Whether simulation chooses tables over several arrival processes, or only values those of the formulation."""

    objective: Literal["per_query", "per_decision"] = Field(
        default="per_query", description="accuracy per arriving query (goodput), or per decision (paper)"
    )
    grid: str = Field(
        default="union{100}",
        json_schema_extra=_GRID_ALONE,
        description="grid of slacks: fld{D} (D equal steps), md (all latencies up to the SLO), union{D} (both)",
    )
    batching: Literal["max", "variable", "auto"] = Field(
        default="auto", description="batches of the whole queue, of any size, or (auto) whichever simulates better"
    )
    queue_max: int = Field(default=32, ge=1, le=4096, description="N: the longest queue that a policy tells apart")
    overflow: Literal["serve_all", "truncate"] = Field(
        default="serve_all",
        description="if more than N queries wait: serve N + 1 of them late, or drop all beyond N (paper)",
    )
    empty_state: Literal["skip", "paper"] = Field(
        default="skip", description="paper: an idle worker counts as a decision, as in the paper's text"
    )
    reward: Literal["accuracy", "b_over_n"] = Field(
        default="accuracy",
        description="per_decision only: reward of a batch of b out of n queries (b_over_n: published code)",
    )
    rates: Literal["formula", "fitted"] = Field(
        default="formula",
        description="shortest_queue: arrival rate by queue length, by the paper's formula or fitted to simulation",
    )
    split: Literal["proportional", "dp"] = Field(
        default="proportional",
        description="how demand is split over unlike workers: by capacity, or by dynamic programming",
    )
    accuracy_step: float = Field(
        default=0.01,
        gt=0,
        le=1,
        description="policies for a range of rates: adjacent ones differ by at most this accuracy",
    )
    sweeps: int | None = Field(
        default=None,
        ge=1,
        le=100_000,
        description="number of undiscounted sweeps from 0 (published: 100); left out: the optimum",
    )
    sizing: Sizing = Field(default="simulation", description=SIZE)
    queries: int = Field(default=300_000, ge=10_000, description="simulated queries per policy and seed")
    seeds: int = Field(default=3, ge=1, le=100, description="simulations of each policy, each with its own seed")

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

    @property
    def is_robust(self) -> bool:
        """Whether tables are chosen over several arrival processes and service times."""
        return self.over_arrivals and self.sizing == "simulation"

    def grid_kind(self) -> tuple[str, int]:
        """The kind of grid and its number of equal steps."""
        match = _GRID.fullmatch(self.grid)
        assert match is not None
        return match.group(1) or "md", int(match.group(2) or 100)


class PaperOptions(PolicyOptions):
    """`paper`: RAMSIS as published: per decision, a grid of equal steps, batches of the whole queue."""

    monotone: ClassVar[Literal["safe", "optimistic"]] = "optimistic"
    over_arrivals: ClassVar[bool] = False
    objective: Literal["per_query", "per_decision"] = "per_decision"
    grid: str = Field(default="fld{100}", json_schema_extra=_GRID_ALONE)
    batching: Literal["max", "variable", "auto"] = "max"
    sizing: Sizing = Field(default="simulation", description=SIZE)
