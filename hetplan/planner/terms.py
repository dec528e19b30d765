"""What problems, engines and `api.solve` hand one another: events, options, obstacles, tools.

To write a problem or an engine, look in `contract.py`: it has them beside the protocols.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from hetplan.planner.old_names import OLD_OPTIONS, OLD_SIZINGS
from hetplan.profiles.fields import wrong

if TYPE_CHECKING:
    from hetplan.profiles.columns import Statistic

__all__ = [
    "Event",
    "Formulation",
    "Obstacle",
    "OnEvent",
    "Options",
    "Simulated",
    "Sizing",
    "TableOptions",
    "Tools",
    "with_logging",
]

Sizing = Literal["fluid", "formula", "simulation"]
"""Option `sizing` of every question: how waiting is taken into account."""


@dataclass(frozen=True)
class Event:
    """Something worth showing while work goes on; `value` and `bound` are in the form's own terms."""

    what: str
    detail: str = ""
    value: float | None = None
    bound: float | None = None
    done: float | None = None
    seconds: float = 0.0
    best: float | None = None
    """The objective of the best plan so far, where there is one."""


OnEvent = Callable[[Event], None]


def with_logging(on_event: OnEvent | None) -> OnEvent | None:
    """The same, and beside each event a record of the logger ``hetplan`` (INFO), where anybody listens to it."""
    logger = logging.getLogger("hetplan")
    if not logger.isEnabledFor(logging.INFO):
        return on_event

    def both(event: Event) -> None:
        logger.info("%s: %s", event.what, event.detail, extra={"event": event})
        if on_event is not None:
            on_event(event)

    return both


class Options(BaseModel):
    """The ancestor of a question's typed options; every field has a default and a description."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)

    @model_validator(mode="before")
    @classmethod
    def _no_old_names(cls, given: Any) -> Any:
        """Refuse an old option with what is written now, where this question has that."""
        said = given if isinstance(given, dict) else {}
        for name in said:
            remedy = OLD_OPTIONS.get(name, "")
            new = re.match(r"Write (\w+)[.:]", remedy)
            if remedy and name not in cls.model_fields and (new is None or new[1] in cls.model_fields):
                raise wrong("no option any more", remedy, at=(name,))
        old = said.get("sizing") if "sizing" in cls.model_fields else None
        if isinstance(old, str) and old in OLD_SIZINGS:
            raise wrong("no way to size any more", f"Write {OLD_SIZINGS[old]}.", at=("sizing",))
        return given


class TableOptions(Options):
    """Options of a question that reads latency tables."""

    usual: ClassVar[Literal["mean", "p50", "p95"]] = "mean"
    """What `auto` stands for."""

    statistic: Literal["auto", "mean", "p50", "p90", "p95", "p99", "max"] = Field(
        default="auto",
        description="statistic of the latency tables that plans use; auto: the mean, of pipelines p50, of policies p95",
    )

    @property
    def judged_by(self) -> Statistic:
        """The statistic that is meant."""
        return self.usual if self.statistic == "auto" else self.statistic


@dataclass(frozen=True)
class Formulation:
    """A named way to solve a problem; another package brings one by an entry point ``PROBLEM/NAME``.

    `decide(problem, ask)` gets the problem as it was read and returns what the problem's own ways return. A problem
    decides by itself where it is None. `like` is the paper's name in `method.like`. One that is `partial` is asked also
    where hetplan sees at once that no plan serves all demand. `narrow` gives of a problem the part that it looks at.
    """

    options: type[Options]
    decide: Callable[[Any, Any], Any] | None = None
    like: str | None = None
    partial: bool = False
    narrow: Callable[[Any], Any] | None = None


@dataclass(frozen=True)
class Obstacle:
    """One thing in the files that keeps them from asking a question: a field that is missing or in the way.

    `essential`: what makes the question the one it is; without it the files ask another one. `ambiguous`: the
    files may as well ask another question, so this one is answered only where it is named.
    """

    why: str
    path: str = "$.apps"
    remedy: str = "Change the file, or name a problem with --formulation."
    essential: bool = False
    ambiguous: bool = False
    file: Literal["slo", "profile", "state"] = "slo"


@dataclass(frozen=True)
class Tools:
    """What `api.solve` hands to a problem that may not import it: callables, all optional.

    `simulate(draft_plan, inputs, **how)` and `evaluate(point)` simulate and measure; `extra`: for one question alone.
    `jobs` points are measured at once.
    `repairs`: also those that take simulations. `trial`: is there a plan, or, where it `explains`, what is missing?
    `known`: what one question of a row of like ones leaves to the next. `formulation`: how another package decides.
    """

    simulate: Callable[..., Any] | None = None
    evaluate: Callable[..., Any] | None = None
    jobs: int = 1
    extra: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    repairs: bool = True
    trial: bool = False
    explains: bool = True
    known: dict[str, Any] = field(default_factory=dict)
    formulation: Formulation | None = None

    @property
    def says_what_helps(self) -> bool:
        """Whether it is looked for what would help where there is no plan; in trials too, as two changes may do."""
        return self.repairs or (self.trial and self.explains)


@dataclass
class Simulated:
    """How much the simulations of an answer took: the same on every machine, as seconds are not."""

    events: int = 0

    def counted(self, tools: Tools) -> Tools:
        """Tools whose simulations are counted."""
        simulate = tools.simulate
        if simulate is None:
            return tools

        def play(*args: Any, **named: Any) -> Any:
            report = simulate(*args, **named)
            self.events += getattr(report, "events", 0)
            return report

        return replace(tools, simulate=play)
