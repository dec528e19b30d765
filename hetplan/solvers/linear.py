"""Linear programs asked of HiGHS beside the engine at work: relaxations, and the rest around whole numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hetplan.planner.answer import Limits
from hetplan.planner.forms.milp import Milp, Vector
from hetplan.planner.forms.program import point_faults
from hetplan.solvers.highs_model import LARGEST, Found, HighsModel, Word

__all__ = ["around_integers", "linear"]


def linear(form: Milp, limits: Limits) -> Found:
    """A linear program with at least one row and one column, as far as HiGHS can settle it."""
    if np.abs(form.matrix.data).max(initial=0.0) > LARGEST:
        return Found(Word.NOTHING, detail=f"HiGHS takes no matrix entry beyond {LARGEST:g}")
    found = HighsModel(form).run(limits, None)
    if found.word is not Word.EITHER:
        return found
    # Without an objective nothing is unbounded: what remains is whether there is a point at all.
    any_point = HighsModel(replace(form, cost=np.zeros_like(form.cost))).run(limits, None)
    if any_point.word in (Word.INFEASIBLE, Word.EITHER):
        return replace(found, word=Word.INFEASIBLE, ray=any_point.ray)
    return replace(found, word=Word.UNBOUNDED if any_point.point is not None else Word.NOTHING, point=any_point.point)


def around_integers(form: Milp, point: Vector, limits: Limits) -> Vector | None:
    """The best point with the whole columns of this one (HiGHS solves the others), or None where there is none."""
    if form.whole.all():
        return None if point_faults(form, point)[0] else point
    fixed = replace(
        form,
        lower=np.where(form.whole, point, form.lower),
        upper=np.where(form.whole, point, form.upper),
        whole=np.zeros_like(form.whole),
    )
    again = linear(fixed, Limits(seconds=limits.seconds, threads=limits.threads, cancel=limits.cancel))
    if again.word is not Word.OPTIMAL or again.point is None:
        return None
    return np.where(form.whole, point, np.clip(again.point, form.lower, form.upper) + 0.0)
