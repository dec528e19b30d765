"""What verification found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hetplan.planner.status import UNDECIDED

if TYPE_CHECKING:
    from hetplan.planner.bound_verdicts import BoundVerdict
    from hetplan.verifier.promise_verdicts import Tried

__all__ = ["Report", "Violation", "unknown_reference"]


@dataclass(frozen=True, order=True)
class Violation:
    """One thing in a plan that is not so: a stable code, where it is, and what is wrong in plain words."""

    code: str
    at: str
    text: str

    def __str__(self) -> str:
        return f"{self.at}: {self.text} [{self.code}]"


def unknown_reference(at: str, kind: str, name: object) -> Violation:
    """A name of something that is not there."""
    return Violation("unknown-reference", at, f"there is no {kind} {name}")


@dataclass(frozen=True)
class Report:
    """The verdict on a plan.

    `checked` names the checks that ran, in order; `skipped` names what could not be recomputed here ("app: why");
    `unchecked` says that no check of the question's own promise was at hand; `claims` says of each claim whether its
    bound was proved again by the planner's program, and nobody should call another one certified; `undecided` names
    limits on times that no measurement decides ("app: limit"); `simulated` says of each promise that rests on
    simulation what fresh runs show; `unproved` says that its bound is not proved.

    >>> report = Report(violations=(Violation("stock", "offers.a", "3 machines of 2"),), checked=("stock",))
    >>> report.ok, str(report.violations[0])
    (False, 'offers.a: 3 machines of 2 [stock]')
    """

    violations: tuple[Violation, ...] = ()
    checked: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    unchecked: bool = False
    claims: tuple[BoundVerdict, ...] = ()
    undecided: tuple[str, ...] = ()
    simulated: tuple[Tried, ...] = ()
    unproved: bool = False

    @property
    def reason(self) -> str:
        """The verdict in words; "verified" alone where all that the plan says was looked at and nothing is open."""
        if self.violations:
            return f"{len(self.violations)} violation{'' if len(self.violations) == 1 else 's'}"
        if self.unchecked:
            return "no check is known for this plan's question: only the parts that all plans share were checked"
        if refuted := sum(one.refuted for one in self.claims):
            return f"{refuted} of the plan's bounds cannot be so"
        if self.simulated:
            from hetplan.verifier.promise_verdicts import verdict_text

            said = verdict_text(self.simulated)
            if said != "verified":
                return said
        return UNDECIDED if self.undecided else "verified, but for its bound" if self.unproved else "verified"

    @property
    def ok(self) -> bool:
        """Nothing that was recomputed contradicts the plan."""
        return not self.violations and not any(one.refuted for one in self.claims)

    def _repr_html_(self) -> str:
        """The verdict as a notebook shows it."""
        from hetplan.drawing.report import verdict_fragment

        faults = [(one.code, one.at, one.text) for one in self.violations]
        claims = [(one.about, str(one.word), one.text) for one in self.claims]
        tried = [(one.about, str(one.word), one.text) for one in self.simulated]
        return verdict_fragment(self.reason, faults, claims, tried, (self.checked, self.skipped))
