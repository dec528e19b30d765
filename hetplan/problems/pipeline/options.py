"""What may be set about a pipeline: one class of options per formulation."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from hetplan.planner.contract import Options, Size

__all__ = [
    "BudgetOptions",
    "ConfigOptions",
    "PaperOptions",
    "PipelineOptions",
    "Quantile",
    "RerouteOptions",
]

SIZE = (
    "planned: servers filled up to `headroom`, as in the paper; estimated: with a headroom that is usually enough, and "
    "nothing simulated; auto: the least headroom with which a few counted queries show that the wish is kept, and "
    "fresh seeds confirm it; simulated: the same by long simulations, from `headroom` up"
)
MACHINES = "whether different steps may share a server where their resources fit together"
Quantile = Literal["mean", "p50", "p90", "p95", "p99", "max"]


class PipelineOptions(Options):
    """What every formulation of the pipeline understands."""

    quantile: Quantile = Field(default="p50", description="the statistic of the latency tables that plans rest on")
    slo_divisor: float = Field(
        default=2.0, ge=1, description="latency target / time that execution may take: room for queueing"
    )
    headroom: float = Field(
        default=0.0, ge=0, lt=1, description="share of every server's capacity that is kept free for bursts"
    )
    spare: float = Field(
        default=0.0,
        ge=0,
        le=100,
        description="servers that every group in use keeps free, in parts of one: room to wait",
    )
    size: Size = Field(default="auto", description=SIZE)
    evaluations: int = Field(default=20, ge=1, le=50, description="most plans simulated (sizes auto and simulated)")
    routing: Literal["path-shares", "node", "most-accurate-first"] = Field(
        default="path-shares",
        description="shares per path so far; per step (only where a check shows that it keeps the plan); or the "
        "paper's Algorithm 1, with what it loses reported",
    )
    budget_factor: float | None = Field(
        default=None,
        ge=1,
        description="time budget of a step / its longest execution; default: 1.5 slo_divisor (paper: 1)",
    )
    offers: Literal["in-turn", "evenly"] = Field(
        default="in-turn",
        description="of several offers of a hardware, each step's servers are of the cheapest first, or of all in "
        "proportion to their stock: a lost zone then takes some of every step",
    )
    machines: Literal["shared", "whole"] = Field(default="whole", description=MACHINES)
    ewma_com: float = Field(
        default=1.6, gt=0, description="centre of mass of the moving average that forecasts from rate_qps.history"
    )


class _Chosen(PipelineOptions):
    """What formulations that choose freely understand."""

    multibatch: bool = Field(
        default=False, description="servers of one variant on one hardware may run with different batch sizes"
    )
    step1: Literal["best-accuracy", "top-variants"] = Field(
        default="best-accuracy",
        description="when servers are minimised: while the best accuracy in time can be kept, or the paper's rule, "
        "while the most accurate variants can be",
    )
    variants: Literal["all", "top"] = Field(
        default="all", description="which variants may run: all, or only the most accurate of each step"
    )
    fairness: Literal["weighted", "maxmin"] = Field(
        default="weighted", description="of several pipelines: the weighted sum of accuracies, or first the least"
    )


class ConfigOptions(_Chosen):
    """`config`: shares of prefixes of configurations; exact, for any quality of paths."""

    among: Literal["all", "used"] = Field(
        default="all",
        description="whole servers are looked for among all configurations, or (sooner) among those that are worth "
        "most where servers may be in parts; the gap to the best accuracy with servers in parts is said",
    )
    machines: Literal["shared", "whole"] = Field(default="shared", description=MACHINES)
    prefixes: int = Field(
        default=20_000, ge=1, description="with more prefixes of configurations than this, latency levels are used"
    )
    integers: int = Field(default=1_500, ge=1, description="with more whole numbers than this, latency levels are used")
    levels: int = Field(default=8, ge=2, le=64, description="latency levels per step, where they are used")
    passes: int = Field(
        default=2, ge=1, le=10, description="solves over latency levels, each finer around the last one's choice"
    )


class PaperOptions(_Chosen):
    """`paper`: shares of paths of variants, one latency per variant, indicators; Loki's own program, linear."""


class BudgetOptions(_Chosen):
    """`budget`: one latency level per step; safe under any router, and the form for large clusters."""

    machines: Literal["shared", "whole"] = Field(default="shared", description=MACHINES)

    levels: int = Field(default=8, ge=2, le=64, description="latency levels per step")
    passes: int = Field(
        default=1, ge=1, le=10, description="solves over latency levels, each finer around the last one's choice"
    )


class RerouteOptions(PipelineOptions):
    """`reroute`: the servers of a previous plan as they are, routing made anew for the demand."""

    size: Size = Field(default="planned", description=SIZE)
