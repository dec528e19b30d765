"""The two protocols that people implement to grow hetplan: `Problem` and `Solver`; and the `Ask` that joins them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, TypeVar, runtime_checkable

from pydantic import BaseModel, ConfigDict

from hetplan.planner.answer import Answer, Limits
from hetplan.planner.forms.form import Form

if TYPE_CHECKING:
    from hetplan.planner.draft import Draft, Infeasible
    from hetplan.profiles.inputs import Inputs
    from hetplan.profiles.plan import Plan

__all__ = ["Ask", "Engines", "Event", "Obstacle", "Options", "Problem", "Size", "Solver", "Tools", "logged"]

X = TypeVar("X")

Size = Literal["planned", "estimated", "simulated", "auto"]
"""Option `size` of every question."""


@dataclass(frozen=True)
class Event:
    """Something worth showing while work goes on; `value` and `bound` are in the form's own terms."""

    what: str
    detail: str = ""
    value: float | None = None
    bound: float | None = None
    done: float | None = None
    seconds: float = 0.0


OnEvent = Callable[[Event], None]


def logged(on_event: OnEvent | None) -> OnEvent | None:
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


@dataclass(frozen=True)
class Obstacle:
    """One thing in the files that keeps them from asking a question: a field that is missing or in the way.

    `essential`: what makes the question the one it is; without it the files ask another one. `ambiguous`: the
    files may as well ask another question, so this one is answered only where it is named.
    """

    why: str
    path: str = "$.apps"
    remedy: str = "Change the file, or name a question with --question."
    essential: bool = False
    ambiguous: bool = False
    file: Literal["slo", "profile", "state"] = "slo"


@dataclass(frozen=True)
class Tools:
    """What the front door hands to a problem that may not import it: callables, all optional.

    `simulate(draft_plan, inputs, **how)` and `evaluate(point)` are a simulation and a measurement; `extra` for
    what a question alone needs, by name: its simulator, a place to keep what is done.
    """

    simulate: Callable[..., Any] | None = None
    evaluate: Callable[..., Any] | None = None
    extra: Mapping[str, Callable[..., Any]] = field(default_factory=dict)


class Ask(Protocol):
    """Hands forms to solvers, certifies and records what comes back, and keeps one deadline for all of it."""

    limits: Limits

    @property
    def remaining(self) -> float:
        """Seconds left (infinite without a limit)."""
        ...

    def __call__(
        self,
        form: Form[X],
        *,
        start: X | None = None,
        gap: float | None = None,
        about: str = "",
        solver: str | None = None,
    ) -> Answer[X]:
        """One question. `gap` is the formulation's default, which an explicit limit overrides."""
        ...

    def all(
        self, forms: Iterable[Form[X]], *, gap: float | None = None, about: str = "", solver: str | None = None
    ) -> list[Answer[X]]:
        """Many questions of one family, to one warm engine where it can; recorded as one group."""
        ...

    def note(self, event: Event) -> None:
        """Report progress."""
        ...


@runtime_checkable
class Solver(Protocol):
    """One engine for one kind of form. Stateless and silent; heavy imports happen inside `solve`."""

    name: ClassVar[str]
    form: ClassVar[str]

    def version(self) -> str:
        """The engine's version, or "" where it is not installed."""
        ...

    def refuses(self, form: Form[Any]) -> str:
        """Why this engine cannot take the form ("" when it can): not installed, not its kind, too large."""
        ...

    def solve(
        self, form: Any, limits: Limits, *, start: Any | None = None, on_event: OnEvent | None = None
    ) -> Answer[Any]:
        """Answer the form within the limits."""
        ...

    def solve_all(self, forms: Iterable[Any], limits: Limits, *, on_event: OnEvent | None = None) -> list[Answer[Any]]:
        """Answer a family; an engine without a warm model solves them one by one."""
        ...


class Engines(Protocol):
    """The engines at hand, each made when it is asked for."""

    def of(self, form: str) -> Iterator[Solver]:
        """Those of one kind of form, in order of preference; one is loaded when its turn comes."""
        ...

    def named(self, name: str, form: str) -> Solver | None:
        """The engine of this name, where it answers this kind of form."""
        ...


class Problem(Protocol):
    """One planning question, in the letters of its paper."""

    question: ClassVar[str]
    aliases: ClassVar[Sequence[str]]
    formulations: ClassVar[Mapping[str, type[Options]]]
    """Name -> its options; the first is the default."""
    like: ClassVar[Mapping[str, str]]
    """Formulation -> the paper's name that is written in `method.like`."""

    @classmethod
    def fits(cls, inputs: Inputs) -> str | Sequence[Obstacle]:
        """What keeps the files from asking this question: obstacles, or one sentence; nothing when they may ask it."""
        ...

    @classmethod
    def from_inputs(
        cls, inputs: Inputs, options: Options, *, formulation: str, tools: Tools, start: Plan | None = None
    ) -> Problem:
        """The problem that these files and options pose; raises InputError with every fault found."""
        ...

    def decide(self, ask: Ask) -> Draft | Infeasible:
        """The conversation: one form or several, and what their answers mean."""
        ...
