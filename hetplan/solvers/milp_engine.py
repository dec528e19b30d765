"""What every engine for the Milp form shares: the conversation around the one call that differs.

An engine writes `_run`: hand the form to its package and say what came back as a `Found`. Around it `MilpEngine`
refuses what the engine cannot take, answers forms that need no engine and keeps one deadline over a family. It settles
"infeasible or unbounded", finds the ray that proves it and puts integers on integers. It never returns less than the
start it was given. So each engine's own file holds only what is peculiar to that engine.
"""

from __future__ import annotations

import functools
import importlib.util
import time
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from hetplan.errors import NoSolver
from hetplan.planner.answer import Answer, Limits, Status, Stop, left_of, relative_gap
from hetplan.planner.forms.milp import Milp, Vector
from hetplan.planner.tolerances import OPTIMAL_GAP
from hetplan.solvers.bound_search import prove_bound
from hetplan.solvers.highs_model import DEFAULT_GAP, Found, Word
from hetplan.solvers.milp_points import better, feasible, needs_no_engine, on_integers, seated, within_whole_bounds

if TYPE_CHECKING:
    from hetplan.planner.contract import OnEvent
    from hetplan.planner.forms.form import Form

__all__ = ["DEFAULT_GAP", "Found", "MilpEngine", "Word", "stopped"]


LARGEST_PROVED = 20_000
"""Rows and columns together beyond which no tree is tried: one linear program takes longer than all of it may."""


class MilpEngine:
    """The ancestor of the engines that answer Milp forms; see the module."""

    name: ClassVar[str]
    form: ClassVar[str] = "milp"
    package: ClassVar[str]
    """The distribution whose version counts."""
    module: ClassVar[str]
    """What must be importable for the engine to run."""
    extra: ClassVar[str] = ""
    """The extra of hetplan that installs it ("" when it always is)."""
    interruptible: ClassVar[bool] = True
    """Whether `limits.cancel` stops a solve under way (otherwise it is looked at before and after)."""
    deterministic: ClassVar[bool] = True
    """Whether the same form, limits and versions give the same answer."""
    heuristic: ClassVar[bool] = False
    """Whether it only finds points: never a bound, never a proof."""
    instead: ClassVar[str] = ""
    """The engine that answers, where this one is named, the forms that it refuses."""
    by_name_only: ClassVar[bool] = False
    """Whether the engine runs only where it is named."""
    gives_rays: ClassVar[bool] = False
    """Whether the engine proves linear programs infeasible and unbounded itself."""

    def version(self) -> str:
        """The installed version of the engine's package ("" where it is not installed)."""
        return _installed(self.package, self.module)

    def refuses(self, form: Form[Vector]) -> str:
        """Why this engine cannot take the form ("" when it can)."""
        if not isinstance(form, Milp):
            return f"{self.name} answers Milp forms, not {form.kind}"
        if not self.version():
            wanted = f"hetplan[{self.extra}]" if self.extra else self.package
            return f"{self.package} is not installed; run: pip install '{wanted}'"
        return not_a_number(form) or self._refuses(form)

    def _refuses(self, form: Milp) -> str:  # noqa: ARG002
        """What this engine cannot take beyond that."""
        return ""

    def _run(self, form: Milp, limits: Limits, *, start: Vector | None, on_event: OnEvent | None) -> Found:
        """Hand the form to the engine, within the limits."""
        raise NotImplementedError

    def solve(
        self, form: Milp, limits: Limits, *, start: Vector | None = None, on_event: OnEvent | None = None
    ) -> Answer[Vector]:
        """Answer the form within the limits; `start` is a point to begin from, feasible or not."""
        if reason := self.refuses(form):
            raise NoSolver(form.kind, {self.name: reason})
        started = time.monotonic()
        ready = needs_no_engine(form) or stopped(limits)
        start = seated(form, start)
        if ready is None:
            found = self._run(within_whole_bounds(form), limits, start=start, on_event=on_event)
            ready = self.settled(form, found, left_of(limits, started), start=start)
        return self.signed(ready if start is None else better(form, ready, start), limits)

    def prove(self, form: Milp, answer: Answer[Vector], limits: Limits) -> Answer[Vector]:
        """The answer to a whole-number program with a tree by which anybody can check how good it is.

        It is asked for where a single answer may become a claim, not for every member of a family. A better point that
        is met on the way is taken.
        """
        if form.pure_lp or answer.value is None or answer.stop in (Stop.TIME, Stop.CANCELLED):
            return answer
        if sum(form.matrix.shape) > LARGEST_PROVED or not _installed("highspy", "highspy"):
            return answer
        found = prove_bound(form, answer.value, limits)
        proved = replace(answer, proof={**answer.proof, "tree": found.tree})
        if found.by_clock:
            proved = replace(proved, deterministic=False)
        return proved if found.better is None else _bettered(form, proved, found.better, limits)

    def solve_all(
        self, forms: Iterable[Milp], limits: Limits, *, on_event: OnEvent | None = None
    ) -> list[Answer[Vector]]:
        """Answer a family one by one. `limits.seconds` is for all of it, `limits.work` for each."""
        started = time.monotonic()
        return [self.solve(form, left_of(limits, started), on_event=on_event) for form in forms]

    def settled(self, form: Milp, found: Found, limits: Limits, *, start: Vector | None = None) -> Answer[Vector]:
        """The answer that `found` amounts to, once it is unambiguous and proved as far as it goes."""
        if found.word in (Word.EITHER, Word.INFEASIBLE, Word.UNBOUNDED):
            from hetplan.solvers.milp_proofs import without_best

            def run(other: Milp) -> Found:
                return self._run(other, limits, start=None, on_event=None)

            return without_best(form, found, limits, run=run, start=start, own_rays=self.gives_rays and form.pure_lp)
        if found.word is Word.NOTHING or found.point is None:
            return found.answered(Status.NO_ANSWER, bound=found.finite_bound)
        point = on_integers(form, found.point, limits)
        status = Status.OPTIMAL if found.word is Word.OPTIMAL else Status.FEASIBLE
        value, bound = form.value(point), found.finite_bound
        within_gap = status is Status.OPTIMAL and bound is not None and relative_gap(value, bound) > OPTIMAL_GAP
        return replace(
            found.answered(status, point=point, bound=bound),
            stop=Stop.GAP if within_gap and not form.pure_lp else found.stop,
            value=value,
            row_duals=found.row_duals if form.pure_lp else None,
        )

    def signed(self, answer: Answer[Vector], limits: Limits) -> Answer[Vector]:
        """The answer with the engine's name, and whether asking again would give the same."""
        by_clock = answer.stop is Stop.CANCELLED or (answer.stop is Stop.TIME and limits.seconds is not None)
        return replace(
            answer, engine=f"{self.name} {self.version()}", deterministic=self.deterministic and not by_clock
        )


@functools.lru_cache(maxsize=64)
def _installed(package: str, module: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package) if importlib.util.find_spec(module) else ""
    except (PackageNotFoundError, ModuleNotFoundError):
        return ""


def stopped(limits: Limits) -> Answer[Vector] | None:
    """The answer of an engine that may not even begin, or None when it may."""
    if limits.cancel is not None and limits.cancel.is_set():
        return Answer(Status.NO_ANSWER, Stop.CANCELLED)
    if limits.seconds is not None and limits.seconds <= 0.0:
        return Answer(Status.NO_ANSWER, Stop.TIME)
    return None


def _bettered(form: Milp, answer: Answer[Vector], better: Vector, limits: Limits) -> Answer[Vector]:
    """The answer with a better point, where it is one; a bound that the point refutes goes."""
    point = on_integers(form, better, limits)
    if not feasible(form, point):
        return answer
    value, sign = form.value(point), 1.0 if form.sense == "min" else -1.0
    if answer.value is not None and sign * value >= sign * answer.value:
        return answer
    refuted = answer.bound is not None and sign * (answer.bound - value) > 0
    return replace(answer, point=point, value=value, bound=None if refuted else answer.bound)


def not_a_number(form: Milp) -> str:
    """Where the form's data are not numbers ("" when they all are): no engine says so, some loop for ever."""
    finite = {"cost": form.cost, "matrix": form.matrix.data}
    wide = {"lower": form.lower, "upper": form.upper, "row_lower": form.row_lower, "row_upper": form.row_upper}
    for name, values in finite.items():
        if not np.isfinite(values).all():
            return f"the form's {name} has an entry that is not finite"
    for name, values in wide.items():
        if np.isnan(values).any():
            return f"the form's {name} has an entry that is not a number"
    return ""
