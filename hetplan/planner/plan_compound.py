"""The dispatch section of a compound plan: which of its plans an application got, and where its operators run."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from hetplan.profiles.fields import Count, Fraction, Id, Key, Model, NonNegative

__all__ = ["ChosenPlanDispatch"]


class ChosenPlanDispatch(Model):
    """An application runs by one fixed plan: a stated candidate, or knobs with a placement and a share per operator.

    `candidate` counts the application's candidates from 0; `machines` gives, per tier, the GPU of each item of the plan
    in their order. `placement` maps operators to tiers; an operator without a share has its device to itself.
    """

    rule: Literal["chosen-plan/1"] = "chosen-plan/1"
    late: str = "serve"
    candidate: Count | None = None
    label: str | None = None
    demand: dict[Key, NonNegative] = Field(default_factory=dict)
    machines: dict[Key, tuple[Count, ...]] = Field(default_factory=dict)
    knobs: dict[Key, Any] = Field(default_factory=dict)
    placement: dict[Id, Id] = Field(default_factory=dict)
    share: dict[Id, Fraction] = Field(default_factory=dict)
