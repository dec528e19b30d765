"""Fleets that are found at once, for a program that no engine had the time to solve.

The first point of an engine that was stopped may rent a hundred times what is needed. The relaxation rounded up, and
enough machines of one type alone, take a few linear programs; the cheapest that the program allows is taken.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.contract import Ask
from hetplan.planner.forms.milp import Milp
from hetplan.problems.llm.form import Program, Rows
from hetplan.problems.llm.wish import Wish

__all__ = ["cheapest_at_once", "is_empty"]

Point = NDArray[np.float64]
SLIP = 1e-6
"""Machines by which the relaxation is off: what engines take for whole."""


def is_empty(wish: Wish, point: Point | None) -> bool:
    """Whether a point rents no machine: so few requests are less than what engines tell from none."""
    return point is not None and not np.rint(point[: len(wish.kinds)]).any()


def cheapest_at_once(what: Program, form: Milp, point: Point | None, ask: Ask) -> Point | None:
    """The cheapest of a point of the program, if there is one, and the fleets that are found at once."""
    best = None if is_empty(what.wish, point) else point
    for counts in _fleets(what, form, ask):
        lower, upper = form.lower.copy(), form.upper.copy()
        lower[: counts.size] = upper[: counts.size] = counts
        found = ask(replace(form, lower=lower, upper=upper), gap=1e-6, about="cost of given machines").point
        if found is not None and (best is None or form.value(found) < form.value(best)):
            best = found
    return best


def _fleets(what: Program, form: Milp, ask: Ask) -> Iterator[Point]:
    """Machines of each type: the relaxation rounded up, then each type alone that carries the rate."""
    kinds = len(what.wish.kinds)
    relaxed = ask(replace(form, whole=np.zeros_like(form.whole)), gap=1e-6, about="relaxation with headroom").point
    if relaxed is not None and (counts := np.ceil(relaxed[:kinds] - SLIP)).any():
        yield counts
    rows = Rows.of(what, iterations=True)
    for one in np.eye(kinds):
        carried = rows.carried(one).rate_qps
        if carried > 0.0:
            counts = one * math.ceil(what.wish.rate_qps / carried * (1.0 - 1e-9))
            if counts.max() <= what.wish.largest:
                yield counts
