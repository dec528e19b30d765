"""The options of LLM serving."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from hetplan.planner.contract import Options, Sizing
from hetplan.planner.tolerances import TEXT_HEADROOM

__all__ = ["LlmOptions"]


class LlmOptions(Options):
    """Options of LLM serving."""

    sizing: Sizing = Field(
        default="simulation",
        description="how waiting is taken into account; fluid: by `margins`; formula: by a formula for bursts; "
        "simulation: the cheapest machines that meet the SLO when every token is simulated",
    )
    margins: Literal["all", "laws", "none"] = Field(
        default="all",
        description="what is kept free with sizing fluid; laws: laws are slower by their stated error, and the mean "
        "time per token meets its limit on every machine type; all: also a fifth of the rate",
    )
    allow_late: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="share of requests that may be routed to types that answer them late, as far as percentiles allow",
    )
    queries: int = Field(default=4000, ge=200, le=1_000_000, description="requests in each simulation")
    max_simulations: int = Field(default=4000, ge=1, description="most simulations of the search")

    @property
    def headroom(self) -> float:
        """Capacity above the stated rate, as a share of it, where nothing is simulated."""
        return TEXT_HEADROOM if self.margins == "all" else 0.0

    @property
    def is_firm(self) -> bool:
        """Whether laws are slower by their error, and mean iterations within the limit per token."""
        return self.margins != "none"
