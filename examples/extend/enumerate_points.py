"""A solver: it tries every whole point, so it is for programs that are small enough to count through.

`MilpEngine` refuses what no solver can take, keeps the time of a row of programs, rounds whole columns and settles
"infeasible or unbounded". What is left is `_run`. A solver may be wrong: hetplan checks every answer.
"""

from __future__ import annotations

import itertools
import math
import time
from typing import ClassVar

import numpy as np

from hetplan.extend import Limits, Milp, MilpEngine, SolverResult, SolverStatus, Stop

__all__ = ["EnumeratePoints"]

MAX_POINTS = 100_000
"""A second or two."""
SLIP = 1e-9
"""By this much a row may be off: sums are rounded."""


class EnumeratePoints(MilpEngine):
    """Tries every whole point."""

    name: ClassVar[str] = "enumerate"
    package: ClassVar[str] = "numpy"
    """Whose version is reported; where it is missing, hetplan says what to install."""
    module: ClassVar[str] = "numpy"

    def _refuses(self, form: Milp) -> str:
        if not form.whole.all():
            return "it tries whole points only; this program has continuous columns"
        if not (np.isfinite(form.lower).all() and np.isfinite(form.upper).all()):
            return "it needs bounds on every column"
        points = math.prod(int(n) for n in form.upper - form.lower + 1)
        return "" if points <= MAX_POINTS else f"there are more than {MAX_POINTS} points"

    def _run(
        self, form: Milp, limits: Limits, *, start: np.ndarray | None = None, on_event: object = None
    ) -> SolverResult:
        del start, on_event  # points are tried in one order, and soon
        began, is_better = time.monotonic(), np.less if form.sense == "min" else np.greater
        best: np.ndarray | None = None
        for number, point in enumerate(itertools.product(*map(whole_numbers, form.lower, form.upper))):
            is_late = limits.seconds is not None and time.monotonic() - began > limits.seconds
            if is_late or (limits.work is not None and number >= limits.work):
                word = SolverStatus.NOTHING if best is None else SolverStatus.FEASIBLE
                return SolverResult(word, Stop.TIME if is_late else Stop.WORK, best)
            x = np.array(point, dtype=float)
            row = form.matrix @ x
            holds = (row >= form.row_lower - SLIP).all() and (row <= form.row_upper + SLIP).all()
            if holds and (best is None or is_better(form.value(x), form.value(best))):
                best = x
        if best is None:
            return SolverResult(SolverStatus.INFEASIBLE)
        # It says only what it knows: all points were tried, so none is better.
        return SolverResult(SolverStatus.OPTIMAL, point=best, bound=form.value(best))


def whole_numbers(lower: float, upper: float) -> range:
    """The whole numbers between two bounds."""
    return range(math.ceil(lower), math.floor(upper) + 1)
