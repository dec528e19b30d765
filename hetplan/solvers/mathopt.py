"""OR-tools' MathOpt: HiGHS, SCIP, GLOP and PDLP behind one interface.

`mathopt-scip` is the independent second opinion on mixed-integer programs (its own branch and bound, another code
base than HiGHS). `glop` and `mathopt-pdlp` take linear programs only and give duals: GLOP a vertex, PDLP (a
first-order method for very large programs) an approximate point whose duals are re-proved like any others.
`limits.work` counts what each counts: nodes, simplex iterations, first-order iterations.
"""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from hetplan.errors import SolverFailed
from hetplan.planner.answer import Limits, Stop
from hetplan.planner.forms.milp import Milp, Vector
from hetplan.solvers.milp_engine import DEFAULT_GAP, Found, MilpEngine, Word, feasible
from hetplan.solvers.running import in_background, unprinted

if TYPE_CHECKING:
    from hetplan.planner.contract import OnEvent

__all__ = ["Glop", "MathOptHighs", "MathOptPdlp", "MathOptScip"]

PDLP_ACCURACY = 1e-9
"""To what relative accuracy PDLP works where the limits name no gap: a thousandth of what a verdict allows a row."""


class _MathOpt(MilpEngine):
    package: ClassVar[str] = "ortools"
    module: ClassVar[str] = "ortools.math_opt"
    extra: ClassVar[str] = "ortools"
    engine: ClassVar[str]
    """The name in MathOpt's SolverType."""
    lp_only: ClassVar[bool] = False
    counts: ClassVar[str]
    """The field of SolveParameters that `limits.work` fills."""

    def _refuses(self, form: Milp) -> str:
        if self.lp_only and not form.pure_lp:
            return f"{self.name} answers linear programs only; this form has {int(form.whole.sum())} integer columns"
        return ""

    def _parameters(self, form: Milp, limits: Limits) -> dict[str, Any]:  # noqa: ARG002
        """What this engine is given beyond the limits that all of them know."""
        return {"threads": limits.threads, "random_seed": limits.seed % (2**31 - 1)}

    def _run(self, form: Milp, limits: Limits, *, start: Vector | None, on_event: OnEvent | None) -> Found:  # noqa: ARG002
        from ortools.math_opt.python import mathopt
        from ortools.util.python import solve_interrupter

        model = _model(form)
        variables = list(model.variables())
        settings = self._parameters(form, limits)
        if limits.seconds is not None:
            settings["time_limit"] = datetime.timedelta(seconds=limits.seconds)
        if limits.work is not None:
            settings["iteration_limit" if form.pure_lp else self.counts] = limits.work
        hints: list[Any] = []
        if start is not None and not form.pure_lp and feasible(form, start):
            # An infeasible hint is an error to some of them.
            hints.append(mathopt.SolutionHint(variable_values=dict(zip(variables, start.tolist(), strict=True))))
        interrupter = solve_interrupter.SolveInterrupter() if self.interruptible else None

        def solved() -> Any:
            with unprinted():
                return in_background(
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

        try:
            result = solved()
        except Exception:
            # HiGHS finds now and then that the point it took back through presolve lies outside its bounds.
            settings["presolve"] = mathopt.Emphasis.OFF
            try:
                result = solved()
            except Exception as error:
                raise SolverFailed(self.name, f"MathOpt did not solve: {error}") from error
        return _found(mathopt, form, result, variables, list(model.linear_constraints()))


class MathOptHighs(_MathOpt):
    """HiGHS as OR-tools ships it: another build than highspy's."""

    name: ClassVar[str] = "mathopt-highs"
    engine: ClassVar[str] = "HIGHS"
    counts: ClassVar[str] = "node_limit"
    interruptible: ClassVar[bool] = False

    def _parameters(self, form: Milp, limits: Limits) -> dict[str, Any]:
        from ortools.math_opt.solvers import highs_pb2

        # MathOpt's HiGHS knows the seed but rejects the general thread count.
        settings: dict[str, Any] = {"random_seed": limits.seed % (2**31 - 1)}
        if not form.pure_lp:
            settings["relative_gap_tolerance"] = DEFAULT_GAP if limits.gap is None else limits.gap
            settings["absolute_gap_tolerance"] = 0.0
        settings["highs"] = highs_pb2.HighsOptionsProto(
            int_options={"threads": limits.threads}, double_options={"small_matrix_value": 1e-12}
        )
        return settings


class MathOptScip(_MathOpt):
    """SCIP: its own branch and bound; no duals. OR-tools' way to interrupt it prints errors, so it is not used."""

    name: ClassVar[str] = "mathopt-scip"
    engine: ClassVar[str] = "GSCIP"
    counts: ClassVar[str] = "node_limit"
    interruptible: ClassVar[bool] = False

    def _parameters(self, form: Milp, limits: Limits) -> dict[str, Any]:
        gap = DEFAULT_GAP if limits.gap is None else limits.gap
        return super()._parameters(form, limits) | {"relative_gap_tolerance": gap, "absolute_gap_tolerance": 0.0}


class MathOptPdlp(_MathOpt):
    """PDLP: a first-order method for linear programs too large for a simplex method."""

    name: ClassVar[str] = "mathopt-pdlp"
    engine: ClassVar[str] = "PDLP"
    lp_only: ClassVar[bool] = True
    counts: ClassVar[str] = "iteration_limit"

    def _parameters(self, form: Milp, limits: Limits) -> dict[str, Any]:  # noqa: ARG002
        from ortools.pdlp import solvers_pb2

        accuracy = PDLP_ACCURACY if limits.gap is None else min(limits.gap, 1e-6)
        parameters = solvers_pb2.PrimalDualHybridGradientParams()
        criteria = parameters.termination_criteria.simple_optimality_criteria
        criteria.eps_optimal_absolute = criteria.eps_optimal_relative = accuracy
        # Without presolve it gives up on forms whose coefficients lie far apart, and says so on stdout.
        parameters.presolve_options.use_glop = True
        return {"threads": limits.threads, "pdlp": parameters}


class Glop(_MathOpt):
    """GLOP: Google's simplex method for linear programs."""

    name: ClassVar[str] = "glop"
    engine: ClassVar[str] = "GLOP"
    lp_only: ClassVar[bool] = True
    counts: ClassVar[str] = "iteration_limit"


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


def _found(mathopt: Any, form: Milp, result: Any, variables: list[Any], rows: list[Any]) -> Found:
    end, reasons, limits = result.termination, mathopt.TerminationReason, mathopt.Limit
    stats = result.solve_stats
    work = {
        "iterations": float(stats.simplex_iterations + stats.barrier_iterations + stats.first_order_iterations),
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
