"""Answers without a best point, with proofs that an engine did not give itself; and forms without rows or columns.

It does not matter who found a proof, since it is checked: so the rays of engines that have none come from HiGHS.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from hetplan.planner.answer import Answer, Limits, Status
from hetplan.planner.certify_rays import proves_infeasible
from hetplan.planner.forms.program import point_faults
from hetplan.solvers.highs_model import Found, Word
from hetplan.solvers.linear import linear

if TYPE_CHECKING:
    from hetplan.planner.forms.milp import Milp, Vector

__all__ = ["no_columns", "no_rows", "without_best"]


def without_best(
    form: Milp,
    found: Found,
    limits: Limits,
    *,
    run: Callable[[Milp], Found],
    start: Vector | None,
    own_rays: bool,
) -> Answer[Vector]:
    """The answer where an engine found no best point: there is none at all, or none is best, or it is not known which.

    `run` is the engine. With `own_rays` it proves linear programs itself: a proof that it has not is not looked for.
    """
    if found.word is Word.EITHER:
        found = _either(form, found, run)
    if found.word is Word.NOTHING:
        return found.answered(Status.NO_ANSWER, bound=found.finite_bound)
    ray = found.ray
    if found.word is Word.INFEASIBLE:
        if ray is None and not own_rays:
            ray = _proof_of_infeasible(form, limits)
        return found.answered(
            Status.INFEASIBLE, ray=ray, point=start if start is not None and not point_faults(form, start)[0] else None
        )
    if ray is None and not own_rays:
        ray = _proof_of_unbounded(form, limits)
    point = found.point if found.point is not None else _any_point(form, run).point
    return found.answered(Status.UNBOUNDED, ray=ray, point=point)


def _either(form: Milp, found: Found, run: Callable[[Milp], Found]) -> Found:
    # Without an objective nothing is unbounded: what remains is the question whether there is a point at all,
    # and "either" is then a no.
    any_point = _any_point(form, run)
    if any_point.word in (Word.INFEASIBLE, Word.EITHER):
        return replace(found, word=Word.INFEASIBLE, ray=any_point.ray)
    if any_point.point is not None:
        return replace(found, word=Word.UNBOUNDED, point=any_point.point, ray=None)
    return replace(found, word=Word.NOTHING, stop=any_point.stop, detail="infeasible or unbounded, and not known which")


def _any_point(form: Milp, run: Callable[[Milp], Found]) -> Found:
    return run(replace(form, cost=np.zeros_like(form.cost)))


def _proof_of_infeasible(form: Milp, limits: Limits) -> Vector | None:
    """A multiplier per row that shows it, from the continuous relaxation (None where that is feasible)."""
    found = _relaxation(form, limits)
    if found.word is Word.INFEASIBLE and found.ray is not None and proves_infeasible(form, found.ray):
        return found.ray
    return None


def _proof_of_unbounded(form: Milp, limits: Limits) -> Vector | None:
    """A direction along which the objective improves for ever; with rational data integers do not stop it."""
    found = _relaxation(form, limits)
    return found.ray if found.word is Word.UNBOUNDED else None


def _relaxation(form: Milp, limits: Limits) -> Found:
    return linear(replace(form, whole=np.zeros_like(form.whole)), replace(limits, work=None, gap=None))


def no_columns(form: Milp) -> Answer[Vector]:
    """The answer of a form without columns whose rows all hold."""
    value = float(form.offset)
    return Answer(Status.OPTIMAL, point=np.zeros(0), value=value, bound=value, row_duals=np.zeros(form.row_lower.size))


def no_rows(form: Milp, lower: Vector, upper: Vector) -> Answer[Vector]:
    """The answer of a form without rows: each column by itself, between its bounds."""
    slope = form.cost if form.sense == "min" else -form.cost
    nearest_zero = np.clip(0.0, lower, upper)
    best = np.where(slope > 0, lower, np.where(slope < 0, upper, nearest_zero))
    free = np.isinf(best)
    if free.any():
        ray = np.where(free, -np.sign(slope), 0.0)
        return Answer(Status.UNBOUNDED, point=nearest_zero, ray=ray)
    value = form.value(best)
    duals = np.zeros(0) if form.pure_lp else None
    return Answer(Status.OPTIMAL, point=best, value=value, bound=value, row_duals=duals)
