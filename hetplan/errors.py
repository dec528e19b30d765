"""Every exception hetplan raises on purpose.

::

    HetplanError
    ├── InputError          what the user wrote: all faults of all files at once          exit 2
    ├── Infeasible          no plan meets all requirements: the conflict, and repairs     exit 3
    ├── Interrupted         a limit or the caller ended the work before there was a plan  exit 5 or 130
    ├── SolverError         no solver takes a program, or one broke or lied               exit 2 or 1
    ├── PlanRejected        a plan failed its own verification: the findings              exit 6
    └── HostsError          machines that run a plan could not be reached or changed      exit 7

`solve` raises none of them where files have no plan: its `Outcome` says why, and `Outcome.require()` raises.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = [
    "Fault",
    "HetplanError",
    "HostsError",
    "Infeasible",
    "InputError",
    "Interrupted",
    "NoSolver",
    "PlanRejected",
    "SolverError",
    "SolverFailed",
]


@dataclass(frozen=True)
class Fault:
    """One thing wrong with an input, said so that its author can mend it.

    `file` is the name the user gave, `path` the JSON path (``$.tables.yn-g4dn.mean[2]``), `value` what was found there
    (already shortened), `why` what was expected, `remedy` what to write instead.
    """

    file: str
    path: str
    value: str
    why: str
    remedy: str

    def __str__(self) -> str:
        at = ": ".join(part for part in (self.file, self.path) if part)
        found = f" (found {self.value})" if self.value else ""
        end = "" if self.why.endswith("?") else "."
        return f"{at}{found}: {self.why}{end} {self.remedy}".strip().removeprefix(": ")


class HetplanError(Exception):
    """The root of the tree: ``except hetplan.HetplanError`` catches all that hetplan raises on purpose."""

    exit_code = 1

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled and copied as it is: exceptions call their class with the message, which these classes do not take.

        >>> import pickle
        >>> pickle.loads(pickle.dumps(NoSolver("milp", {"highs": "not installed"}))).reasons
        {'highs': 'not installed'}
        """
        return type(self).__new__, (type(self), *self.args), self.__dict__


class InputError(HetplanError):
    """Bad input. Carries every fault that could be found in one pass, not only the first."""

    exit_code = 2

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults: tuple[Fault, ...] = tuple(faults)
        super().__init__("\n".join(str(fault) for fault in self.faults))

    @classmethod
    def one(cls, *, file: str = "", path: str = "", value: object = "", why: str, remedy: str = "") -> InputError:
        """An error of a single fault."""
        return cls([Fault(file=file, path=path, value=str(value), why=why, remedy=remedy)])


class SolverError(HetplanError):
    """A program has no answer: no solver takes it, or one broke or lied."""


class NoSolver(SolverError):
    """No solver accepts the program; `reasons` maps each solver to why it refused."""

    exit_code = 2

    def __init__(self, form: str, reasons: dict[str, str]) -> None:
        self.form, self.reasons = form, reasons
        listed = "; ".join(f"{engine}: {reason}" for engine, reason in reasons.items()) or "none is registered"
        super().__init__(f"no solver for a {form} form ({listed}). `hetplan doctor` shows what is installed.")


class SolverFailed(SolverError):
    """A solver crashed, or gave an answer that its own program refutes."""

    def __init__(self, engine: str, detail: str) -> None:
        self.engine, self.detail = engine, detail
        super().__init__(f"{engine}: {detail}")


class PlanRejected(HetplanError):
    """A plan states what does not follow from its files; `findings` are the sentences of the verifier."""

    exit_code = 6

    def __init__(self, findings: Sequence[str]) -> None:
        self.findings = tuple(findings)
        super().__init__("; ".join(self.findings))


class Infeasible(HetplanError):
    """No plan meets all requirements: `conflict` are sentences, `repairs` are changes with which there is a plan."""

    exit_code = 3

    def __init__(self, conflict: Sequence[str], repairs: Sequence[Any] = ()) -> None:
        self.conflict, self.repairs = tuple(conflict), tuple(repairs)
        super().__init__("; ".join([*self.conflict, *(repair.text for repair in self.repairs)]))


class Interrupted(HetplanError):
    """The work ended before there was a result: the caller stopped it (exit 130), or a limit did (exit 5)."""

    exit_code = 130

    def __init__(self, reason: str, *, exit_code: int = 130) -> None:
        self.reason, self.exit_code = reason, exit_code
        super().__init__(reason)


class HostsError(HetplanError):
    """The machines that run a plan could not be reached, or not be brought to what the plan says."""

    exit_code = 7
