"""Engines that lie: each lie is one that an engine could tell, wrapped around a true answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from hetplan.planner.answer import Answer, Limits, Status
from hetplan.planner.forms.milp import Milp, Vector

if TYPE_CHECKING:
    from hetplan.planner.contract import OnEvent, Solver
    from hetplan.planner.forms.form import Form

__all__ = ["LIES", "Lying"]


class Lying:
    """A solver of Milp forms that answers with a lie.

    `how` is one of `LIES`. The name is the true engine's, since a liar does not say so. An answer that leaves
    nothing to lie about (no duals to forge, no integer to break) is handed on as it is.
    """

    form: ClassVar[str] = "milp"

    def __init__(self, solver: Solver, how: str) -> None:
        if how not in LIES:
            raise ValueError(f"no such lie: {how}; choose one of {', '.join(LIES)}")
        self.solver, self.how = solver, how
        self.name = solver.name

    def version(self) -> str:
        """The true engine's."""
        return self.solver.version()

    def refuses(self, form: Form[Vector]) -> str:
        """The true engine's."""
        return self.solver.refuses(form)

    def solve(
        self, form: Milp, limits: Limits, *, start: Vector | None = None, on_event: OnEvent | None = None
    ) -> Answer[Vector]:
        """The true answer, turned into a lie."""
        return LIES[self.how](self.solver, form, self.solver.solve(form, limits, start=start, on_event=on_event))

    def solve_all(
        self, forms: Iterable[Milp], limits: Limits, *, on_event: OnEvent | None = None
    ) -> list[Answer[Vector]]:
        """A lie for each."""
        return [self.solve(form, limits, on_event=on_event) for form in forms]


def _infeasible_point(_: Solver, form: Milp, answer: Answer[Vector]) -> Answer[Vector]:
    """A point just outside the form, with the value that it truly has."""
    if answer.point is None or not answer.point.size:
        return answer
    point = answer.point.copy()
    bounded = np.isfinite(form.lower) | np.isfinite(form.upper)
    if bounded.any():
        j = int(bounded.argmax())
        edge = form.upper[j] if np.isfinite(form.upper[j]) else form.lower[j]
        step = 1.0 + 0.01 * abs(edge)
        point[j] = edge + step if np.isfinite(form.upper[j]) else edge - step
    else:
        point = _over_a_row(form, point)
    return replace(answer, point=point, value=form.value(point), bound=None)


def _over_a_row(form: Milp, point: Vector) -> Vector:
    rows = form.matrix.tocsr()
    for i in np.flatnonzero(np.isfinite(form.row_upper) | np.isfinite(form.row_lower)).tolist():
        here = slice(rows.indptr[i], rows.indptr[i + 1])
        if here.start == here.stop:
            continue
        j, a = int(rows.indices[here][0]), float(rows.data[here][0])
        up = bool(np.isfinite(form.row_upper[i]))
        edge = form.row_upper[i] if up else form.row_lower[i]
        wanted = edge + (1.0 if up else -1.0) * (1.0 + 0.01 * abs(edge))
        moved = point.copy()
        moved[j] += (wanted - float((form.matrix @ point)[i])) / a
        return moved
    return point


def _fractional_point(_: Solver, form: Milp, answer: Answer[Vector]) -> Answer[Vector]:
    """A whole column a quarter off."""
    if answer.point is None or form.pure_lp:
        return answer
    point = answer.point.copy()
    j = int(form.whole.argmax())
    point[j] += 0.25 if point[j] + 0.25 <= form.upper[j] else -0.25
    return replace(answer, point=point, value=form.value(point), bound=None)


def _wrong_value(_: Solver, form: Milp, answer: Answer[Vector]) -> Answer[Vector]:
    """A value, and a bound with it, a little better than the truth."""
    if answer.value is None:
        return answer
    better = -1.0 if form.sense == "min" else 1.0
    value = answer.value + better * (1e-3 + 1e-3 * abs(answer.value))
    return replace(answer, value=value, bound=value)


def _false_infeasible(_: Solver, form: Milp, answer: Answer[Vector]) -> Answer[Vector]:  # noqa: ARG001
    """Infeasible, without a word why."""
    return Answer(Status.INFEASIBLE, engine=answer.engine)


def _forged_ray(_: Solver, form: Milp, answer: Answer[Vector]) -> Answer[Vector]:
    """Infeasible, with a ray that proves nothing."""
    return Answer(Status.INFEASIBLE, ray=np.ones(form.row_lower.size), engine=answer.engine)


def _false_bound(_: Solver, form: Milp, answer: Answer[Vector]) -> Answer[Vector]:
    """A bound that the answer's own point refutes."""
    if answer.value is None:
        return answer
    worse = 1.0 if form.sense == "min" else -1.0
    return replace(answer, bound=answer.value + worse * (1.0 + 0.01 * abs(answer.value)))


def _false_optimal(solver: Solver, form: Milp, answer: Answer[Vector]) -> Answer[Vector]:
    """A worse feasible point called optimal, its value called the bound; the duals are the true ones."""
    if answer.status is not Status.OPTIMAL or answer.value is None:
        return answer
    worst = solver.solve(replace(form, cost=-form.cost, offset=0.0), Limits())
    point = worst.point
    if point is None:
        return answer
    value = form.value(point)
    return replace(answer, point=point, value=value, bound=value)


LIES: dict[str, Callable[[Solver, Milp, Answer[Vector]], Answer[Vector]]] = {
    "infeasible-point": _infeasible_point,
    "fractional-point": _fractional_point,
    "wrong-value": _wrong_value,
    "false-infeasible": _false_infeasible,
    "forged-ray": _forged_ray,
    "false-bound": _false_bound,
    "false-optimal": _false_optimal,
}
"""Every lie by its name.

The first three, "false-bound" and "forged-ray" are found out by `certify` (the last proves nothing, so it stays a mere
claim). "false-infeasible" is a claim that only solving a loosened form refutes. "false-optimal" is found out where true
duals come with it (the certified bound is then better than the value), and else remains a claim.
"""
