"""OR-tools' CP-SAT, for pure integer programs, and on a grid for mixed ones.

CP-SAT knows whole numbers only. Handed continuous columns through a bridge that truncates, it has been seen to return
wrong "OPTIMAL" answers; so `cp-sat` takes only forms that can be written exactly in whole numbers: every coefficient,
scaled, is within a few last digits of a whole number, and no row leaves 64 bits. Where it is named and that fails,
`cp-sat-scaled` searches the program on a grid of whole numbers instead. No word of it is taken for that: the whole
columns of the best point are kept, the others solved again on the true data, `certify` judges the point, and a tree of
linear programs proves how good it is.

The search is CP-SAT's interleaved one, which depends on the seed but not on the threads. `limits.work` counts its
deterministic seconds (about one of a slow core's).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from hetplan.errors import SolverFailed
from hetplan.planner.answer import Limits, Stop
from hetplan.planner.contract import Event
from hetplan.planner.forms.milp import Milp, Vector
from hetplan.solvers.engine import in_background
from hetplan.solvers.highs import Highs
from hetplan.solvers.integer_programs import IntegerProgram, NotWhole, integer_grid, integer_program
from hetplan.solvers.linear import around_integers
from hetplan.solvers.milp_engine import Found, MilpEngine, Word

if TYPE_CHECKING:
    from hetplan.planner.contract import OnEvent

__all__ = ["CpSat", "CpSatScaled", "Searched", "search"]


GRID_WORK = 3
"""Deterministic seconds that a search on a grid may take where no limit is set."""


class CpSat(MilpEngine):
    """CP-SAT on forms that are whole in every column and every coefficient."""

    name: ClassVar[str] = "cp-sat"
    package: ClassVar[str] = "ortools"
    module: ClassVar[str] = "ortools.sat"
    extra: ClassVar[str] = "ortools"
    instead: ClassVar[str] = "cp-sat-scaled"

    def _refuses(self, form: Milp) -> str:
        try:
            integer_program(form)
        except NotWhole as reason:
            other = "" if form.whole.all() else "; cp-sat-scaled searches such a program on a grid"
            return f"CP-SAT takes whole numbers only: {reason}{other}"
        return ""

    def _run(self, form: Milp, limits: Limits, *, start: Vector | None, on_event: OnEvent | None) -> Found:
        program = integer_program(form)
        if program.contradicts_itself:
            return Found(Word.INFEASIBLE, detail="a row leaves no whole number")
        searched = search(program, limits, start=start, on_event=on_event)
        return Found(
            searched.word,
            searched.stop,
            point=None if searched.point is None else searched.point.astype(float),
            bound=searched.bound,
            work=searched.work,
        )


class CpSatScaled(MilpEngine):
    """CP-SAT on a grid, for mixed-integer programs: only by name, never chosen by itself.

    The integers of the grid's best point are kept, the continuous columns are solved again on the true data (by
    HiGHS), and the objective is recomputed: what comes back is feasible for the form itself, or nothing. The search's
    bound bounds the grid only, so none is claimed; what a plan says of its bound is what a tree proves
    (`MilpEngine.prove`). A linear program, which has nothing to branch on, goes to HiGHS whole.
    """

    name: ClassVar[str] = "cp-sat-scaled"
    package: ClassVar[str] = "ortools"
    module: ClassVar[str] = "ortools.sat"
    extra: ClassVar[str] = "ortools"
    heuristic: ClassVar[bool] = True
    by_name_only: ClassVar[bool] = True

    def _refuses(self, form: Milp) -> str:
        if form.pure_lp:
            return ""
        try:
            integer_grid(form)
        except NotWhole as reason:
            return f"no grid for CP-SAT: {reason}"
        return ""

    def _run(self, form: Milp, limits: Limits, *, start: Vector | None, on_event: OnEvent | None) -> Found:
        if form.pure_lp:
            return Highs()._run(form, limits, start=start, on_event=on_event)
        grid = integer_grid(form)
        hint = None if start is None else (start - grid.lower) / grid.step
        # A grid of fine steps is never searched to its end: the work ends it, counted, so that the same point is found.
        counted = limits if limits.work is not None else replace(limits, work=GRID_WORK)
        searched = search(grid.program, counted, start=hint, on_event=on_event)
        if searched.point is None:
            return Found(Word.NOTHING, searched.stop, work=searched.work, detail="no point of the grid keeps all rows")
        on_grid = grid.lower + grid.step * searched.point
        point = around_integers(form, np.round(on_grid), limits)
        if point is None:
            detail = "the grid's integers leave no continuous point"
            return Found(Word.NOTHING, searched.stop, work=searched.work, detail=detail)
        return Found(Word.FEASIBLE, searched.stop, point=point, work=searched.work, detail="searched on a grid")


@dataclass(frozen=True)
class Searched:
    """What a search came to; values and bounds are the form's."""

    word: Word
    stop: Stop
    point: Vector | None
    bound: float | None
    work: dict[str, float]


def search(
    program: IntegerProgram, limits: Limits, *, start: Vector | None = None, on_event: OnEvent | None = None
) -> Searched:
    """Let CP-SAT search the program."""
    from ortools.sat.python import cp_model

    model = _model(cp_model, program, start)
    solver = cp_model.CpSolver()
    _limit(solver.parameters, limits)
    listener = _listener(cp_model, program, on_event) if on_event is not None else None
    status = in_background(lambda: solver.solve(model, listener), stop=solver.stop_search, cancel=limits.cancel)
    if listener is not None and listener.raised is not None:
        raise listener.raised
    work = {"conflicts": float(solver.num_conflicts), "branches": float(solver.num_branches)}
    if status == cp_model.INFEASIBLE:
        return Searched(Word.INFEASIBLE, Stop.FINISHED, None, None, work)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE, cp_model.UNKNOWN):
        raise SolverFailed("cp-sat", f"the model was rejected: {model.validate()}")
    point, bound = None, None
    if status != cp_model.UNKNOWN:
        point = np.array(solver.response_proto.solution, dtype=float)
    if status != cp_model.UNKNOWN or program.cost.any():
        bound = program.value(float(solver.best_objective_bound)) if program.cost.any() else program.value(0.0)
    if status == cp_model.OPTIMAL:
        return Searched(Word.OPTIMAL, Stop.FINISHED, point, bound, work)
    word = Word.NOTHING if point is None else Word.FEASIBLE
    return Searched(word, _why_it_stopped(solver, limits), point, bound, work)


def _why_it_stopped(solver: Any, limits: Limits) -> Stop:
    """Why a search ended that settled nothing: CP-SAT does not say, and gives up on time a little early."""
    if limits.cancel is not None and limits.cancel.is_set():
        return Stop.CANCELLED
    if limits.work is not None and float(solver.response_proto.deterministic_time) >= 0.98 * limits.work:
        return Stop.WORK
    return Stop.TIME if limits.seconds is not None else Stop.FINISHED


def _model(cp_model: Any, program: IntegerProgram, start: Vector | None) -> Any:
    model = cp_model.CpModel()
    columns = [
        model.new_int_var(lower, upper, "")
        for lower, upper in zip(program.lower.tolist(), program.upper.tolist(), strict=True)
    ]
    weighted_sum = cp_model.LinearExpr.weighted_sum
    indptr, indices = program.rows.indptr.tolist(), program.rows.indices.tolist()
    entries = program.rows.data.astype(np.int64).tolist()
    bounds = zip(program.row_lower.tolist(), program.row_upper.tolist(), strict=True)
    for i, (lower, upper) in enumerate(bounds):
        row = slice(indptr[i], indptr[i + 1])
        if row.start == row.stop:
            if not lower <= 0 <= upper:
                model.add_bool_or([])
            continue
        model.add_linear_constraint(weighted_sum([columns[j] for j in indices[row]], entries[row]), lower, upper)
    if program.cost.any():
        priced = np.flatnonzero(program.cost).tolist()
        model.minimize(weighted_sum([columns[j] for j in priced], program.cost[priced].tolist()))
    if start is not None:
        for column, value in zip(columns, np.clip(np.round(start), program.lower, program.upper).tolist(), strict=True):
            model.add_hint(column, int(value))
    return model


def _limit(parameters: Any, limits: Limits) -> None:
    parameters.interleave_search = True
    parameters.num_workers = limits.threads
    parameters.random_seed = limits.seed % (2**31 - 1)
    parameters.catch_sigint_signal = False
    if limits.seconds is not None:
        parameters.max_time_in_seconds = limits.seconds
    if limits.work is not None:
        parameters.max_deterministic_time = float(limits.work)
    if limits.gap is not None:
        parameters.relative_gap_limit = limits.gap


def _listener(cp_model: Any, program: IntegerProgram, on_event: OnEvent) -> Any:
    class Listener(cp_model.CpSolverSolutionCallback):  # type: ignore[misc]
        raised: BaseException | None = None

        def on_solution_callback(self) -> None:
            try:
                value, bound = program.value(self.objective_value), program.value(self.best_objective_bound)
                on_event(Event("incumbent", value=value, bound=bound, seconds=float(self.wall_time)))
            except BaseException as error:  # raised again once CP-SAT has returned
                self.raised = error
                self.stop_search()

    return Listener()
