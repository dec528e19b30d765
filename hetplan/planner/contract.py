"""The two protocols that people implement to grow hetplan: `Problem` and `Solver`; and the `Ask` that joins them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar, runtime_checkable

from hetplan.planner.answer import Answer, Limits
from hetplan.planner.forms.form import Form
from hetplan.planner.terms import (
    Event,
    Formulation,
    Obstacle,
    OnEvent,
    Options,
    Sizing,
    TableOptions,
    Tools,
)

if TYPE_CHECKING:
    from hetplan.planner.draft import Draft, Infeasibility
    from hetplan.profiles.inputs import Inputs
    from hetplan.profiles.plan import Plan

__all__ = [
    "Ask",
    "Engines",
    "Event",
    "Formulation",
    "Obstacle",
    "OnEvent",
    "Options",
    "Problem",
    "Sizing",
    "Solver",
    "TableOptions",
    "Tools",
]

X = TypeVar("X")


class Ask(Protocol):
    """Hands forms to solvers, certifies and records what comes back, and keeps one deadline for all of it."""

    limits: Limits

    @property
    def remaining(self) -> float:
        """Seconds left: infinite without a limit, 0 once cancelled."""
        ...

    def is_over(self, reserved: float = 0.0) -> bool:
        """Whether a plan is to be made of what is known: cancelled, or no more than this part of the time is left."""
        ...

    def fork(self) -> Ask:
        """A conversation with the same limits that records apart, for a plan that may be thrown away; see `adopt`."""
        ...

    def adopt(self, other: Any) -> None:
        """Record what was asked `beside`."""
        ...

    def keep(
        self,
        make: Callable[[], Draft | Infeasibility],
        *,
        simulated: bool = False,
        rank: Sequence[Any] = (),
        value: float | None = None,
    ) -> None:
        """Make this the plan that is handed out if a limit or a cancel ends the work before `decide` does.

        One that simulation confirmed gives way only to another such one, and any plan only to one of no lower `rank`:
        what was seen of its response times first, then its objective, larger is better. `value` is that objective as
        people read it. What ends the work raises `Interrupted`.
        """
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

    def without_proofs(self) -> Ask:
        """The same without proofs of optimality, for answers on which no claim rests."""
        ...

    def without_infeasibility_checks(self, *, gap: float | None = None) -> Ask:
        """The same, which takes a solver's "infeasible" unproved and accepts this gap; no claim may rest on it."""
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

    def by_name(self, name: str, form: str) -> Solver | None:
        """The engine of this name, where it answers this kind of form."""
        ...


class Problem(Protocol):
    """One planning question, in the letters of its paper.

    One whose bounds are to be proved again from a plan has ``bounding(claim, plan)`` too: the programs that bound a
    claim of such a plan (`planner.certify.Bounding`), the loosest first; none where its formulation makes no such
    claim; None where nobody here can say. One with ``takes_formulations = True`` decides by `Tools.formulation` where
    another package brings one.
    """

    question: ClassVar[str]
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

    def decide(self, ask: Ask) -> Draft | Infeasibility:
        """The conversation: one form or several, and what their answers mean."""
        ...
