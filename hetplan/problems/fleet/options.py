"""The options of a fleet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field

from hetplan.planner.contract import Options, Size
from hetplan.profiles.fields import Id, Key

__all__ = ["FleetOptions"]


class FleetOptions(Options):
    """Options of a fleet: several applications, periods or offers."""

    rough: ClassVar[Mapping[str, object]] = {"levers": False}
    """What plans faster, while a person moves a limit."""

    size: Size = Field(
        default="auto",
        description="how queueing is taken into account; planned: by the programs of the applications' problems; "
        "estimated: by queueing formulas; auto: the same, then pools, variants, pipelines and LLMs are simulated; "
        "simulated: by the simulations of each problem",
    )
    headroom: float = Field(
        default=0.0, ge=0, le=10, description="headroom above the stated rate, for every application"
    )
    parts: dict[Id, dict[Key, Any]] = Field(
        default_factory=dict, description="options of the problem of each application, by application"
    )
    gap: float = Field(default=0.003, ge=0, le=1, description="gap at which the search for whole machines ends")
    rounds: int = Field(default=30, ge=1, le=1000, description="most rounds of column generation")
    programs: int = Field(
        default=500, ge=1, description="most programs of one application and period; column generation ends after them"
    )
    share: bool = Field(
        default=True,
        description="whether applications may share a machine if their replicas fit on it",
    )
    levers: Literal["played"] | bool = Field(
        default=True,
        description="compute what each purchase option saves; played: simulate each, which true does only up to 72 "
        "applications times periods",
    )
    recipes: int = Field(default=400, ge=1, description="most plans of one application at one rate that are compared")
