"""What verification found."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Report", "Violation"]


@dataclass(frozen=True, order=True)
class Violation:
    """One thing in a plan that is not so: a stable code, where it is, and what is wrong in plain words."""

    code: str
    at: str
    text: str

    def __str__(self) -> str:
        return f"{self.at}: {self.text} [{self.code}]"


@dataclass(frozen=True)
class Report:
    """The verdict on a plan.

    `checked` names the checks that ran, in order; `skipped` names what could not be recomputed here ("app: why");
    `unchecked` says that no check of the question's own promise was at hand.

    >>> report = Report(violations=(Violation("stock", "offers.a", "3 machines of 2"),), checked=("stock",))
    >>> report.ok, str(report.violations[0])
    (False, 'offers.a: 3 machines of 2 [stock]')
    """

    violations: tuple[Violation, ...] = ()
    checked: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    unchecked: bool = False

    @property
    def ok(self) -> bool:
        """Nothing that was recomputed contradicts the plan."""
        return not self.violations
