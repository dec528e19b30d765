"""The options of variant autoscaling, one class per formulation."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from hetplan.planner.contract import Sizing, TableOptions

__all__ = ["PaperOptions", "VariantsOptions"]

Machines = Literal["shared", "whole"]


class VariantsOptions(TableOptions):
    """Options of all formulations of variants."""

    sharing: Literal["shared", "dedicated", "pooled"] = Field(
        default="shared",
        description="whether applications share replicas; pooled: one demand row for a single application (paper)",
    )
    violators: Literal["ignore", "count"] = Field(
        default="ignore",
        description="running replicas that violate the latency or quality SLO: unloaded, or (paper) counted as serving",
    )
    slack_mode: Literal["factor", "additive"] | None = Field(
        default=None, description="needed rate: slack x demand, or demand + slack_qps; left out: as the SLO states it"
    )
    level: Literal["auto", "aggregate", "typed", "machine"] = Field(
        default="auto", description="detail of machines in the program: totals, totals per type, single machines"
    )
    machines: Machines = Field(
        default="shared",
        description="shared: replicas that fit together share a machine; whole: each replica has its own",
    )
    sizing: Sizing = Field(
        default="simulation",
        description="how waiting is taken into account; fluid: not at all, replicas run up to saturation; "
        "formula: a queueing formula; simulation: the formula, confirmed or corrected by simulation",
    )
    loading: Literal["auto", "amortised", "weighted"] = Field(
        default="auto",
        description="cost of loading a model: spread over the SLO's horizon, or (paper) times load_weight_per_s; auto "
        "is weighted if the SLO states that weight",
    )
    max_simulations: int = Field(default=15, ge=1, le=50, description="most plans simulated (sizing simulation)")


class PaperOptions(VariantsOptions):
    """`infaas`: Section 4.2.1 as printed."""

    sharing: Literal["shared", "dedicated", "pooled"] = Field(
        default="dedicated", description="own replicas for each application, or pooled"
    )
    violators: Literal["ignore", "count"] = Field(default="count", description="as printed: running replicas count")
    level: Literal["auto", "aggregate", "typed", "machine"] = Field(default="aggregate", description="totals")
    machines: Machines = Field(default="whole", description="as printed: machines are not counted")
    loading: Literal["auto", "amortised", "weighted"] = Field(
        default="weighted", description="as printed: times lambda"
    )
    sizing: Sizing = Field(default="fluid", description="as printed: up to saturation, without queueing")
