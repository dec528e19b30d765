"""What may be set about a fleet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field

from hetplan.planner.contract import Options, Size
from hetplan.profiles.fields import Id, Key

__all__ = ["FleetOptions"]


class FleetOptions(Options):
    """How a fleet is planned."""

    rough: ClassVar[Mapping[str, object]] = {"levers": False}
    """What plans faster, while a person moves a limit."""

    size: Size = Field(
        default="auto",
        description="planned: parts by the programs of their questions; estimated: variants, pipelines and pools leave "
        "room to wait, by formulas; auto: so too, and these and text are played on their machines; simulated: each "
        "question sizes itself, whatever it is asked",
    )
    headroom: float = Field(default=0.0, ge=0, le=10, description="more rate than stated, for every application")
    parts: dict[Id, dict[Key, Any]] = Field(
        default_factory=dict, description="options of the question of an application, by application"
    )
    gap: float = Field(default=0.003, ge=0, le=1, description="how near to the bound whole machines are looked for")
    rounds: int = Field(default=30, ge=1, le=1000, description="rounds of prices")
    programs: int = Field(
        default=500, ge=1, description="programs of one application in one period, after which prices are as they are"
    )
    share: bool = Field(
        default=True,
        description="whether pools, text, variants or pipelines may share machines where loads fit",
    )
    levers: Literal["played"] | bool = Field(
        default=True,
        description="whether the bill says what each way to buy saves; each way is played with played, and else up to "
        "72 applications times periods",
    )
    recipes: int = Field(default=400, ge=1, description="the most plans of one part at one rate that a table looks at")
