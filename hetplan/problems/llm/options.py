"""The options of LLM serving."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from hetplan.planner.contract import Options, Sizing
from hetplan.profiles.fields import wrong

__all__ = ["LlmOptions"]


class LlmOptions(Options):
    """Options of LLM serving."""

    sizing: Sizing = Field(
        default="simulation",
        description="how waiting is taken into account; fluid: by `rate_headroom`; formula: by a formula for bursts; "
        "simulation: the cheapest machines that meet the SLO when every token is simulated",
    )
    rule: Literal["least-work/1", "round-robin/1"] = Field(
        default="least-work/1", description="dispatch rule: the replica with the least work, or each in turn"
    )
    rate_headroom: float = Field(default=0.2, ge=0, le=10, description="headroom above the stated rate (sizing fluid)")
    law_error: bool = Field(default=True, description="plan with laws that are slower by their stated error")
    mean_tpot: bool = Field(
        default=True, description="the mean time per token meets its limit on every machine type (sizing fluid)"
    )
    sacrifice: bool = Field(
        default=False, description="route classes also to types that answer them late, as far as percentiles allow"
    )
    requests: int = Field(default=4000, ge=200, le=1_000_000, description="requests in each simulation")
    max_simulations: int = Field(default=4000, ge=1, description="most simulations of the search")

    @model_validator(mode="before")
    @classmethod
    def _turns_by_simulation(cls, given: Any) -> Any:
        """The program's rate is one of the least work; what turns carry on unlike machines is known by simulation."""
        others = isinstance(given, dict) and given.get("rule", "least-work/1") != "least-work/1"
        if others and given.get("sizing", "simulation") != "simulation":
            why = "the program sizes the least-work rule only; every other rule is sized by simulation"
            raise wrong(why, 'Set it to "simulation", or leave it out.', at=("sizing",))
        return given
