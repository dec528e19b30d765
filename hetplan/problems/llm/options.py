"""The options of LLM serving."""

from __future__ import annotations

from pydantic import Field

from hetplan.planner.contract import Options, Size

__all__ = ["LlmOptions"]


class LlmOptions(Options):
    """Options of LLM serving."""

    size: Size = Field(
        default="auto",
        description="how queueing is taken into account; planned: by `rate_headroom`; estimated: by a formula for "
        "bursts, without simulation; simulated, auto: the cheapest machines that meet the SLO when every token is "
        "simulated",
    )
    rate_headroom: float = Field(default=0.2, ge=0, le=10, description="headroom above the stated rate (size planned)")
    law_error: bool = Field(default=True, description="plan with laws that are slower by their stated error")
    mean_tpot: bool = Field(
        default=True, description="the mean time per token meets its limit on every machine type (size planned)"
    )
    sacrifice: bool = Field(
        default=False, description="route classes also to types that answer them late, as far as percentiles allow"
    )
    requests: int = Field(default=4000, ge=200, le=1_000_000, description="requests in each simulation")
    simulations: int = Field(default=4000, ge=1, description="most simulations of the search")
    largest: int | None = Field(
        default=None, ge=1, description="most machines of one type; left out: several times what the rate keeps busy"
    )
