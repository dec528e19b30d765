"""SciPy's `milp` and `linprog`: a second build of HiGHS, at hand wherever scipy is; cold starts only.

Linear programs go to `linprog`, which gives duals; mixed-integer ones to `milp`. SciPy takes neither a start nor a
seed nor a thread count, and cannot be interrupted: `limits.cancel` is looked at before and after. `limits.work` counts
nodes, and iterations of a linear program.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from hetplan.planner.answer import Limits, Stop
from hetplan.planner.forms.milp import Milp, Vector
from hetplan.solvers.milp_engine import DEFAULT_GAP, Found, MilpEngine, Word
from hetplan.solvers.running import in_background, unprinted

if TYPE_CHECKING:
    from hetplan.planner.contract import OnEvent

__all__ = ["Scipy"]

OPTIMAL, LIMIT, INFEASIBLE, UNBOUNDED = 0, 1, 2, 3
"""SciPy's status codes; the last holds "infeasible or unbounded" among what else there is."""


class Scipy(MilpEngine):
    """The engine that needs nothing beyond scipy."""

    name: ClassVar[str] = "scipy"
    package: ClassVar[str] = "scipy"
    module: ClassVar[str] = "scipy"
    interruptible: ClassVar[bool] = False

    def _run(self, form: Milp, limits: Limits, *, start: Vector | None, on_event: OnEvent | None) -> Found:  # noqa: ARG002
        started = time.monotonic()
        options: dict[str, Any] = {"disp": False}
        if limits.seconds is not None:
            options["time_limit"] = limits.seconds
        answer = _linear if form.pure_lp else _whole
        with unprinted():
            found = in_background(lambda: answer(form, limits, options), stop=None, cancel=limits.cancel)
        if found.stop is Stop.WORK and limits.seconds is not None and time.monotonic() - started >= limits.seconds:
            return Found(found.word, Stop.TIME, found.point, found.bound, work=found.work, detail=found.detail)
        return found


def _whole(form: Milp, limits: Limits, options: dict[str, Any]) -> Found:
    from scipy.optimize import Bounds, LinearConstraint, milp

    options["mip_rel_gap"] = DEFAULT_GAP if limits.gap is None else limits.gap
    if limits.work is not None:
        options["node_limit"] = limits.work
    flip = 1.0 if form.sense == "min" else -1.0

    # HiGHS finds now and then that the point it took back through presolve lies outside its bounds. This build then
    # ends with an error.
    options["presolve"] = False
    result = _call(
        milp,
        flip * form.cost,
        integrality=form.whole.astype(int),
        bounds=Bounds(form.lower, form.upper),
        constraints=LinearConstraint(form.matrix, form.row_lower, form.row_upper),
        options=options,
    )
    bound = None if result.mip_dual_bound is None else flip * float(result.mip_dual_bound) + form.offset
    return _found(result, work={"nodes": float(result.mip_node_count or 0)}, bound=bound)


def _linear(form: Milp, limits: Limits, options: dict[str, Any]) -> Found:
    from scipy.optimize import linprog
    from scipy.sparse import vstack

    if limits.work is not None:
        options["maxiter"] = limits.work
    flip = 1.0 if form.sense == "min" else -1.0
    matrix = form.matrix.tocsr()
    equal = np.flatnonzero(form.row_lower == form.row_upper)
    above = np.flatnonzero(np.isfinite(form.row_upper) & (form.row_lower != form.row_upper))
    below = np.flatnonzero(np.isfinite(form.row_lower) & (form.row_lower != form.row_upper))
    result = _call(
        linprog,
        flip * form.cost,
        A_ub=vstack([matrix[above], -matrix[below]]) if above.size + below.size else None,
        b_ub=np.concatenate([form.row_upper[above], -form.row_lower[below]]) if above.size + below.size else None,
        A_eq=matrix[equal] if equal.size else None,
        b_eq=form.row_upper[equal] if equal.size else None,
        bounds=np.column_stack([form.lower, form.upper]),
        method="highs",
        options=options,
    )
    found = _found(result, work={"iterations": float(result.nit or 0)})
    if found.word is not Word.OPTIMAL or found.point is None:
        return found
    duals = np.zeros(form.row_lower.size)
    if equal.size:
        duals[equal] = flip * result.eqlin.marginals
    if above.size + below.size:
        prices = flip * np.asarray(result.ineqlin.marginals)
        duals[above] += prices[: above.size]
        duals[below] -= prices[above.size :]
    return Found(Word.OPTIMAL, point=found.point, bound=form.value(found.point), row_duals=duals, work=found.work)


def _call(function: Any, *arguments: Any, **named: Any) -> Any:
    """Call into scipy, whose stubs know neither sparse matrices here nor options made up as they are needed."""
    return function(*arguments, **named)


def _found(result: Any, *, work: dict[str, float], bound: float | None = None) -> Found:
    point = None if result.x is None else np.asarray(result.x, dtype=float)
    if result.status == OPTIMAL:
        return Found(Word.OPTIMAL, point=point, bound=bound, work=work)
    if result.status == LIMIT:
        # A linear program's last iterate need not be feasible; a mixed-integer program's incumbent is.
        usable = point is not None and bound is not None
        word = Word.FEASIBLE if usable else Word.NOTHING
        return Found(word, Stop.WORK, point if usable else None, bound, work=work, detail=result.message)
    if result.status in (INFEASIBLE, UNBOUNDED):
        return Found(Word.INFEASIBLE if result.status == INFEASIBLE else Word.UNBOUNDED, work=work)
    if "nbounded or infeasible" in result.message:
        return Found(Word.EITHER, work=work)
    # SciPy does not tell a node limit from a failure: an incumbent with a bound is still worth having.
    if point is not None and bound is not None:
        return Found(Word.FEASIBLE, Stop.WORK, point, bound, work=work, detail=result.message)
    return Found(Word.NOTHING, Stop.WORK, work=work, detail=result.message)
