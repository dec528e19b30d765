"""The options of a fleet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field

from hetplan.planner.contract import Options, Sizing
from hetplan.profiles.fields import Id, Key

__all__ = ["FleetOptions"]


class FleetOptions(Options):
    """Options of a fleet: several applications, periods or offers."""

    rough: ClassVar[Mapping[str, object]] = {"savings": False}
    """What plans faster, while a person moves a limit."""

    sizing: Sizing = Field(
        default="simulation",
        description="how waiting is taken into account; fluid: by the programs of the applications' problems; "
        "formula: by queueing formulas; simulation: the same, then pools, variants, pipelines and LLMs are simulated",
    )
    headroom: float = Field(
        default=0.0, ge=0, le=10, description="headroom above the stated rate, for every application"
    )
    parts: dict[Id, dict[Key, Any]] = Field(
        default_factory=dict, description="options of the problem of each application, by application"
    )
    gap: float = Field(default=0.003, ge=0, le=1, description="gap at which the search for whole machines ends")
    share_machines: bool = Field(
        default=True,
        description="whether applications may share a machine if their replicas fit on it",
    )
    savings: Literal["played"] | bool = Field(
        default=True,
        description="compute what each purchase option saves; played: simulate each, which true does only up to 72 "
        "applications times periods",
    )
