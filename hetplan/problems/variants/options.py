"""The options of variant autoscaling, one class per formulation."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from hetplan.planner.contract import Sizing, TableOptions

__all__ = ["PaperOptions", "VariantsOptions"]


class VariantsOptions(TableOptions):
    """Options of all formulations of variants."""

    is_as_printed: ClassVar[bool] = False
    """Whether, as in the paper, running replicas serve though they violate the SLO, and loading has its own weight."""

    sharing: Literal["shared", "dedicated", "pooled"] = Field(
        default="shared",
        description="whether applications share replicas; pooled: one demand row for a single application (paper)",
    )
    level: Literal["auto", "aggregate", "typed", "machine"] = Field(
        default="auto", description="detail of machines in the program: totals, totals per type, single machines"
    )
    share_machines: bool = Field(default=True, description="whether replicas share a machine if they fit on it")
    sizing: Sizing = Field(
        default="simulation",
        description="how waiting is taken into account; fluid: not at all, replicas run up to saturation; "
        "formula: a queueing formula; simulation: the formula, confirmed or corrected by simulation",
    )
    max_simulations: int = Field(default=15, ge=1, le=50, description="most plans simulated (sizing simulation)")


class PaperOptions(VariantsOptions):
    """`infaas`: Section 4.2.1 as printed."""

    is_as_printed: ClassVar[bool] = True
    sharing: Literal["shared", "dedicated", "pooled"] = Field(
        default="dedicated", description="own replicas for each application, or pooled"
    )
    level: Literal["auto", "aggregate", "typed", "machine"] = Field(default="aggregate", description="totals")
    share_machines: bool = Field(default=False, description="as printed: machines are not counted")
    sizing: Sizing = Field(default="fluid", description="as printed: up to saturation, without queueing")
