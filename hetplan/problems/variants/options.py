"""What may be set about variant autoscaling: one class of options per formulation."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from hetplan.planner.contract import Options, Size

__all__ = ["PaperOptions", "VariantsOptions"]

Machines = Literal["shared", "whole"]
LatencyStat = Literal["mean", "p50", "p90", "p95", "p99", "max"]


class VariantsOptions(Options):
    """What every formulation of variants understands."""

    sharing: Literal["shared", "dedicated", "pooled"] = Field(
        default="shared",
        description="whether applications share instances, have their own, or are one (the paper's literal row)",
    )
    violators: Literal["ignore", "count"] = Field(
        default="ignore",
        description="running instances that break the SLO or the floor: unloaded, or (the paper) counted as serving",
    )
    slack_mode: Literal["factor", "additive"] | None = Field(
        default=None, description="need = slack x load, or load + slack_qps; by default whichever the SLO states"
    )
    level: Literal["auto", "aggregate", "typed", "machine"] = Field(
        default="auto", description="how closely machines are looked at: totals, totals per type, each machine"
    )
    machines: Machines = Field(
        default="shared",
        description="whether instances share a machine that is paid whole, by what they need of it, or have one each",
    )
    latency_stat: LatencyStat = Field(
        default="mean", description="which statistic of the latency tables is compared with the latency target"
    )
    size: Size = Field(
        default="auto",
        description="how busy instances may be; planned: up to saturation; estimated: as far as a queueing formula has "
        "their queries in time; simulated: as far as simulation has; auto: by the formula, confirmed or corrected by "
        "simulation",
    )
    loading: Literal["auto", "amortised", "weighted"] = Field(
        default="auto",
        description="what loading counts for: spread over the SLO's horizon, or (the paper) by load_weight_per_s; "
        "auto is weighted where the SLO states that weight",
    )
    evaluations: int = Field(default=15, ge=1, le=50, description="most plans simulated (size simulated or auto)")


class PaperOptions(VariantsOptions):
    """`infaas-paper`: Section 4.2.1 as printed."""

    sharing: Literal["shared", "dedicated", "pooled"] = Field(
        default="dedicated", description="own instances for each application, or one row for all of a single one"
    )
    violators: Literal["ignore", "count"] = Field(default="count", description="as printed: what runs counts")
    level: Literal["auto", "aggregate", "typed", "machine"] = Field(default="aggregate", description="totals")
    machines: Machines = Field(default="whole", description="as printed: no machine is counted")
    loading: Literal["auto", "amortised", "weighted"] = Field(default="weighted", description="as printed: by lambda")
    size: Size = Field(default="planned", description="as printed: up to saturation, whatever waits")
