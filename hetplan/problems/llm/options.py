"""The options of LLM serving."""

from __future__ import annotations

from pydantic import Field

from hetplan.planner.contract import Options, Sizing

__all__ = ["LlmOptions"]


class LlmOptions(Options):
    """Options of LLM serving."""

    sizing: Sizing = Field(
        default="simulation",
        description="how waiting is taken into account; fluid: by `rate_headroom`; formula: by a formula for bursts; "
        "simulation: the cheapest machines that meet the SLO when every token is simulated",
    )
    rate_headroom: float = Field(default=0.2, ge=0, le=10, description="headroom above the stated rate (sizing fluid)")
    law_error: bool = Field(default=True, description="plan with laws that are slower by their stated error")
    mean_tpot: bool = Field(
        default=True, description="the mean time per token meets its limit on every machine type (sizing fluid)"
    )
    allow_late: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="share of requests that may be routed to types that answer them late, as far as percentiles allow",
    )
    queries: int = Field(default=4000, ge=200, le=1_000_000, description="requests in each simulation")
    max_simulations: int = Field(default=4000, ge=1, description="most simulations of the search")
