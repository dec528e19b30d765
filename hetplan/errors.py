"""Every exception hetplan raises on purpose.

::

    HetplanError
    ├── InputError          what the user wrote: all problems of all files at once        exit 2
    ├── NoSolver            no engine at hand takes this form; says why each refused      exit 2
    ├── SolverFailed        an engine broke or lied                                       exit 1
    ├── PlanRejected        a plan failed its own verification                            exit 6
    ├── NoPlan              `Outcome.require()` on an outcome without a plan              exit 3 or 5
    └── Cancelled           the caller asked the work to stop                             exit 130

Infeasible is not an error: it is an `Answer`, and an `Outcome` that explains itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Cancelled", "Fault", "HetplanError", "InputError", "NoPlan", "NoSolver", "PlanRejected", "SolverFailed"]


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


class NoSolver(HetplanError):
    """No engine accepts the form; `reasons` maps each engine to why it refused."""

    exit_code = 2

    def __init__(self, form: str, reasons: dict[str, str]) -> None:
        self.form, self.reasons = form, reasons
        listed = "; ".join(f"{engine}: {reason}" for engine, reason in reasons.items()) or "none is registered"
        super().__init__(f"no solver for a {form} form ({listed}). `hetplan doctor` shows what is installed.")


class SolverFailed(HetplanError):
    """An engine crashed, or gave an answer that its own form refutes."""

    def __init__(self, engine: str, detail: str) -> None:
        self.engine, self.detail = engine, detail
        super().__init__(f"{engine}: {detail}")


class PlanRejected(HetplanError):
    """A plan broke its own promises when it was recomputed from the inputs."""

    exit_code = 6

    def __init__(self, violations: Sequence[str]) -> None:
        self.violations = tuple(violations)
        super().__init__("; ".join(self.violations))


class NoPlan(HetplanError):
    """There is no plan to return; `exit_code` is 3 when none can exist, 5 when a limit ended the search."""

    def __init__(self, why: str, *, exit_code: int = 3) -> None:
        self.exit_code = exit_code
        super().__init__(why)


class Cancelled(HetplanError):
    """The caller's `cancel` was set while work was under way."""

    exit_code = 130
