"""OR-tools' MathOpt: SCIP and GLOP behind one interface, each a second opinion from another code base than HiGHS.

`mathopt-scip` answers mixed-integer programs by a branch and bound of its own. `glop` takes linear programs only: a
simplex method, whose duals are re-proved like any others. `limits.work` counts nodes, and iterations of a linear
program. OR-tools ships HiGHS, too; asking that would be asking the default engine again.
"""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from hetplan.errors import SolverFailed
from hetplan.planner.answer import Limits, Stop
from hetplan.planner.forms.milp import Milp, Vector
from hetplan.solvers.engine import in_background
from hetplan.solvers.milp_engine import DEFAULT_GAP, Found, MilpEngine, Word, feasible

if TYPE_CHECKING:
    from hetplan.planner.contract import OnEvent

__all__ = ["Glop", "MathOptScip"]


class _MathOpt(MilpEngine):
    package: ClassVar[str] = "ortools"
    module: ClassVar[str] = "ortools.math_opt"
    extra: ClassVar[str] = "ortools"
    engine: ClassVar[str]
    """The name in MathOpt's SolverType."""

    def _parameters(self, limits: Limits) -> dict[str, Any]:
        """What this engine is given beyond the limits that all of them know."""
        return {"threads": limits.threads, "random_seed": limits.seed % (2**31 - 1)}

    def _run(self, form: Milp, limits: Limits, *, start: Vector | None, on_event: OnEvent | None) -> Found:  # noqa: ARG002
        from ortools.math_opt.python import mathopt
        from ortools.util.python import solve_interrupter

        model = _model(form)
        variables = list(model.variables())
        settings = self._parameters(limits)
        if limits.seconds is not None:
            settings["time_limit"] = datetime.timedelta(seconds=limits.seconds)
        if limits.work is not None:
            settings["iteration_limit" if form.pure_lp else "node_limit"] = limits.work
        hints: list[Any] = []
        if start is not None and not form.pure_lp and feasible(form, start):
            # An infeasible hint is an error to SCIP.
            hints.append(mathopt.SolutionHint(variable_values=dict(zip(variables, start.tolist(), strict=True))))
        interrupter = solve_interrupter.SolveInterrupter() if self.interruptible else None

        try:
            result = in_background(
                lambda: mathopt.solve(
                    model,
                    mathopt.SolverType[self.engine],
                    params=mathopt.SolveParameters(**settings),
                    model_params=mathopt.ModelSolveParameters(solution_hints=hints),
                    interrupter=interrupter,
                ),
                stop=None if interrupter is None else interrupter.interrupt,
                cancel=limits.cancel,
            )
        except Exception as error:
            raise SolverFailed(self.name, f"MathOpt did not solve: {error}") from error
        return _read_found(mathopt, form, result, variables, list(model.linear_constraints()))


class MathOptScip(_MathOpt):
    """SCIP: its own branch and bound; no duals. OR-tools' way to interrupt it prints errors, so it is not used."""

    name: ClassVar[str] = "mathopt-scip"
    engine: ClassVar[str] = "GSCIP"
    interruptible: ClassVar[bool] = False

    def _parameters(self, limits: Limits) -> dict[str, Any]:
        gap = DEFAULT_GAP if limits.gap is None else limits.gap
        return super()._parameters(limits) | {"relative_gap_tolerance": gap, "absolute_gap_tolerance": 0.0}


class Glop(_MathOpt):
    """GLOP: Google's simplex method for linear programs."""

    name: ClassVar[str] = "glop"
    engine: ClassVar[str] = "GLOP"

    def _refuses(self, form: Milp) -> str:
        whole = int(form.whole.sum())
        return f"{self.name} answers linear programs only; this form has {whole} integer columns" if whole else ""


def _model(form: Milp) -> Any:
    from ortools.math_opt import model_pb2
    from ortools.math_opt.python import mathopt

    model = model_pb2.ModelProto()
    n_rows, n_columns = form.matrix.shape
    model.variables.ids.extend(range(n_columns))
    model.variables.lower_bounds.extend(form.lower)
    model.variables.upper_bounds.extend(form.upper)
    model.variables.integers.extend(form.whole.tolist())
    priced = np.flatnonzero(form.cost)
    model.objective.maximize = form.sense == "max"
    model.objective.offset = form.offset
    model.objective.linear_coefficients.ids.extend(priced.tolist())
    model.objective.linear_coefficients.values.extend(form.cost[priced])
    model.linear_constraints.ids.extend(range(n_rows))
    model.linear_constraints.lower_bounds.extend(form.row_lower)
    model.linear_constraints.upper_bounds.extend(form.row_upper)
    entries = form.matrix.tocsr().tocoo()
    order = np.lexsort((entries.col, entries.row))
    model.linear_constraint_matrix.row_ids.extend(entries.row[order].tolist())
    model.linear_constraint_matrix.column_ids.extend(entries.col[order].tolist())
    model.linear_constraint_matrix.coefficients.extend(entries.data[order])
    return mathopt.Model.from_model_proto(model)


def _read_found(mathopt: Any, form: Milp, result: Any, variables: list[Any], rows: list[Any]) -> Found:
    end, reasons, limits = result.termination, mathopt.TerminationReason, mathopt.Limit
    stats = result.solve_stats
    work = {
        "iterations": float(stats.simplex_iterations),
        "nodes": float(stats.node_count),
    }
    detail = str(end.detail)
    if end.reason is reasons.INFEASIBLE:
        return Found(Word.INFEASIBLE, ray=_values(result.ray_dual_values, rows, result.has_dual_ray()), work=work)
    if end.reason is reasons.UNBOUNDED:
        return Found(Word.UNBOUNDED, work=work)
    if end.reason is reasons.INFEASIBLE_OR_UNBOUNDED:
        return Found(Word.EITHER, work=work)
    point = _values(result.variable_values, variables, result.has_primal_feasible_solution())
    bound = float(end.objective_bounds.dual_bound)
    if end.reason is reasons.OPTIMAL:
        duals = _values(result.dual_values, rows, form.pure_lp and result.has_dual_feasible_solution())
        return Found(Word.OPTIMAL, point=point, bound=bound, row_duals=duals, work=work)
    stop = {limits.TIME: Stop.TIME, limits.INTERRUPTED: Stop.CANCELLED}.get(end.limit, Stop.WORK)
    if end.reason not in (reasons.FEASIBLE, reasons.NO_SOLUTION_FOUND):
        stop = Stop.FINISHED
    word = Word.NOTHING if point is None else Word.FEASIBLE
    # The bound of a linear program that did not finish is an iterate's, which nothing makes dual feasible.
    return Found(word, stop, point=point, bound=None if form.pure_lp else bound, work=work, detail=detail)


def _values(get: Any, keys: list[Any], there_are: bool) -> Vector | None:
    return np.array(get(keys), dtype=float) if there_are else None
