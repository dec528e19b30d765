"""What may be set about the rules that policies are compared with."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from hetplan.extend import PolicyOptions, Sizing

__all__ = ["RuleOptions", "SingleOptions"]


class RuleOptions(PolicyOptions):
    """`jellyfish`, `modelswitching`, `greedy-policy`: one model per load, or the best that fits now."""

    over_arrivals: ClassVar[bool] = False
    batching: Literal["max", "variable", "auto"] = "max"
    sizing: Sizing = Field(default="simulation", description="whether what a rule does is simulated; fluid: it is not")


class SingleOptions(RuleOptions):
    """`single`: one model, whatever comes."""

    model: str | None = Field(default=None, description="which; by default the one of most goodput")
