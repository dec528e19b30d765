"""What may be set about a fleet that makes text."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from hetplan.planner.contract import Options, Size
from hetplan.profiles.fields import wrong

__all__ = ["LlmOptions"]


class LlmOptions(Options):
    """How a fleet is sized."""

    size: Size = Field(
        default="auto",
        description="planned: by the program with `rate_headroom`; estimated: by the program with room for what may "
        "come at once, by a formula, and nothing simulated; simulated, auto: the cheapest fleet that is in time in "
        "simulation, token by token",
    )
    rule: Literal["least-work/1", "round-robin/1"] = Field(
        default="least-work/1", description="how requests reach instances"
    )
    rate_headroom: float = Field(default=0.2, ge=0, le=10, description="more rate than stated, for size planned")
    law_error: bool = Field(
        default=True, description="whether fleets are sized under laws that are slower by their stated error"
    )
    mean_tpot: bool = Field(
        default=True, description="keep the mean time per token within its limit on each type, for size planned"
    )
    sacrifice: bool = Field(
        default=False, description="plan classes onto types that cannot serve them in time, as far as percentiles allow"
    )
    requests: int = Field(default=4000, ge=200, le=1_000_000, description="requests of each simulation")
    simulations: int = Field(default=4000, ge=1, description="the most simulations of the search")
    largest: int | None = Field(
        default=None, ge=1, description="the most machines of one type; left out: as many as the rate may take"
    )

    @model_validator(mode="before")
    @classmethod
    def _turns_by_simulation(cls, given: Any) -> Any:
        """The program's rate is one of the least work; what turns carry on unlike machines is known by simulation."""
        others = isinstance(given, dict) and given.get("rule", "least-work/1") != "least-work/1"
        if others and given.get("size", "auto") not in ("auto", "simulated"):
            why = "the program says what least work carries; what turns do is simulated"
            raise wrong(why, 'Set it to "simulated", or leave it out.', at=("size",))
        return given
