"""What may be set about compound queries: how plans are packed, and how they are searched for and measured."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from hetplan.planner.contract import Options, Size
from hetplan.profiles.fields import Id

__all__ = ["CompoundOptions", "PaperOptions"]

Packing = Annotated[
    Literal["dual", "dual-core", "greedy", "fcfs", "exact", "exact-cp-sat"],
    Field(description="how plans are chosen for all queries together"),
]
Norm = Annotated[
    Literal["best", "sum", "norm", "max", "l2"],
    Field(description="greedy: how demands on several tiers count together; best tries all"),
]
SEARCH = (
    "how plans of one query are searched for: struct-ci, struct, cmbo, cmbo-ci, random, or another package's engine "
    "for black boxes"
)
Search = Annotated[Id, Field(description=SEARCH)]
StopRule = Annotated[
    Literal["betting", "t", "fixed"],
    Field(description="when accuracy is known: betting holds however often one looks, t (the paper's) does not"),
]


class CompoundOptions(Options):
    """Both stages: search and measuring per query, then packing of all."""

    packing: Packing = "dual"
    norm: Norm = "best"
    exhausted: Literal["skip", "stop"] = Field(
        default="skip", description="greedy: pass over what does not fit, or end there"
    )
    level: Literal["auto", "totals", "machines"] = Field(
        default="auto",
        description="candidates' demands on tiers: on one machine each (where the tier has hardware), or of its total",
    )
    search: Search = "struct-ci"
    steps: int = Field(default=60, ge=1, description="the most plans measured per query")
    deadline_s: float | None = Field(default=None, gt=0, description="seconds of measuring per query")
    gpu_s: float | None = Field(default=None, gt=0, description="seconds of the reference GPU per query")
    stop_rule: StopRule = "betting"
    confidence: float = Field(default=0.99, gt=0.5, lt=1, description="of verdicts on accuracy and latency")
    n_min: int = Field(default=50, ge=2, description="samples before a verdict")
    n_max: int = Field(default=1000, ge=2, description="samples after which a verdict stays undecided")
    samples: int = Field(
        default=200, ge=2, description="samples of a configuration at least, where the most quality is sought"
    )
    points: int = Field(default=20, ge=2, description="the most points of a front")
    early: bool = Field(
        default=True, description="stop sampling what is late everywhere, or no cheaper than what complies already"
    )
    undecided: Literal["sign", "reject"] = Field(
        default="sign", description="at n_max: the sign of mean - target decides, or the plan is rejected"
    )
    confirm: bool = Field(
        default=False, description="measure the cheapest plan on by bets, to four times n_max, before it is offered"
    )
    retry: bool = Field(default=False, description="measure again what an earlier run of the journal set aside")
    parallel: int = Field(default=1, ge=1, le=64, description="measurements at once")
    drift: float = Field(
        default=0.0,
        ge=0,
        description="by how much accuracies may have moved since they were measured, where they are given",
    )
    size: Size = Field(
        default="auto",
        description="of queries at a rate; planned: replicas for the load alone, as if nothing waited; estimated: by a "
        "formula for queues, and nothing played; auto: by the formula, confirmed or corrected by simulation; "
        "simulated: from the planned ones up, by simulation alone",
    )
    evaluations: int = Field(
        default=15, ge=1, le=50, description="most plays of plans with a rate (sizes auto and simulated)"
    )
    sizes: int = Field(
        default=8, ge=1, description="of queries at a rate: the cheapest sizes of each that packing may choose from"
    )
    alternatives: int = Field(default=20, ge=1, description="the most plans per query handed to the packing")

    @property
    def packer(self) -> str:
        """The engine that packs."""
        if self.packing != "greedy":
            return self.packing
        if self.exhausted == "stop":
            return "greedy-stop"
        return "greedy" if self.norm == "best" else f"greedy-{self.norm}"


class PaperOptions(CompoundOptions):
    """The paper's defaults: CMBO, its t-test, the greedy rule."""

    packing: Packing = "greedy"
    norm: Norm = "sum"
    search: Search = "cmbo"
    stop_rule: StopRule = "t"
