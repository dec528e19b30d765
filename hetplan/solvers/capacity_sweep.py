"""Solves a linear program for many right-hand sides in turn: one HiGHS model, some row limits change."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from hetplan.planner.forms.milp import Block, Milp, Vector
from hetplan.solvers.highs_model import HighsModel

__all__ = ["at_capacities"]


def at_capacities(form: Milp, rows: Block, *, warm: bool) -> Callable[[Sequence[float]], tuple[float, Vector, Vector]]:
    """What the form is worth where `rows` have given upper ends: its value, a point, and the prices of these rows.

    If `warm`, it looks on from the capacities before. Else each is found anew: of several points that are best, the
    one that does not depend on what was asked before.

    >>> from hetplan.planner.forms.milp import Builder
    >>> m = Builder("max")
    >>> rate = m.columns("rate", ["a", "b"], cost=[3.0, 1.0])
    >>> m.add(m.rows("room", ["all"]), rate, [1.0, 1.0])
    >>> form = m.build()
    >>> at = at_capacities(form, form.rows[0], warm=True)
    >>> at([2.0])
    (6.0, array([2., 0.]), array([3.]))
    >>> at([5.0])[0]
    15.0
    """
    model = HighsModel(form)
    highs, changed = model.highs, np.arange(rows.start, rows.stop, dtype=np.int32)
    lower = form.row_lower[rows.start : rows.stop]
    for option, value in (("threads", 1), ("presolve", "off" if warm else "choose")):
        highs.setOptionValue(option, value)

    def solved(capacities: Sequence[float]) -> tuple[float, Vector, Vector]:
        if not warm:
            highs.clearSolver()
        highs.changeRowsBounds(changed.size, changed, lower, np.asarray(capacities, dtype=float))
        highs.run()
        found = highs.getSolution()
        point, prices = np.array(found.col_value), np.array(found.row_dual)
        return form.value(point), point, prices[rows.start : rows.stop]

    return solved
