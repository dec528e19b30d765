"""Any engine that Pyomo reaches: what a site has licensed or installed beside hetplan's own.

`pyomo` uses HiGHS through Pyomo (`appsi_highs`); `pyomo:<engine>` any other by Pyomo's name for it
(`pyomo:gurobi`, `pyomo:cplex`, `pyomo:cbc`). Pyomo redirects the process's output while an engine works, so only one
of these solves runs at a time, and none can be interrupted: `limits.cancel` is looked at before and after.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hetplan.errors import SolverFailed
from hetplan.planner.answer import Limits, Stop
from hetplan.planner.forms.milp import Milp, Vector
from hetplan.planner.safe_bound import dual_bound
from hetplan.solvers.highs import Highs
from hetplan.solvers.milp_engine import DEFAULT_GAP, Found, MilpEngine, Word

if TYPE_CHECKING:
    from hetplan.planner.contract import OnEvent

__all__ = ["Pyomo", "pyomo_model", "pyomo_with"]


class _Names(NamedTuple):
    """How an engine calls what `Limits` says ("" where it has no such option)."""

    seconds: str
    gap: str
    threads: str
    seed: str
    nodes: str


NAMES = {
    "highs": _Names("time_limit", "mip_rel_gap", "threads", "random_seed", "mip_max_nodes"),
    "gurobi": _Names("TimeLimit", "MIPGap", "Threads", "Seed", "NodeLimit"),
    "cplex": _Names("timelimit", "mip_tolerances_mipgap", "threads", "randomseed", "mip_limits_nodes"),
    "xpress": _Names("maxtime", "miprelstop", "threads", "randomseed", "maxnode"),
    "cbc": _Names("seconds", "ratioGap", "threads", "randomCbcSeed", "maxNodes"),
    "scip": _Names("limits/time", "limits/gap", "", "randomization/randomseedshift", "limits/nodes"),
    "glpk": _Names("tmlim", "mipgap", "", "", ""),
}
"""Options by engine; the prefix and suffix of Pyomo's interfaces (`appsi_`, `_direct`, `_persistent`) are dropped."""

_ONE_AT_A_TIME = threading.Lock()


class Pyomo(MilpEngine):
    """HiGHS through Pyomo, and the ancestor of every other engine reached that way."""

    name: ClassVar[str] = "pyomo"
    package: ClassVar[str] = "pyomo"
    module: ClassVar[str] = "pyomo"
    extra: ClassVar[str] = "pyomo"
    interruptible: ClassVar[bool] = False
    engine: ClassVar[str] = "appsi_highs"
    """Pyomo's name of the engine."""

    def _refuses(self, form: Milp) -> str:
        if self.engine == Pyomo.engine:
            # Pyomo takes long to import; whether highspy is there and fit can be known without it.
            return Highs().refuses(form)
        if _solver(self.engine) is None:
            return f"Pyomo does not find {self.engine} on this machine"
        return ""

    def _run(self, form: Milp, limits: Limits, *, start: Vector | None, on_event: OnEvent | None) -> Found:  # noqa: ARG002
        from pyomo.environ import TerminationCondition as Ended

        # Pyomo hands over only columns that occur somewhere; the others may lie anywhere within their bounds.
        anywhere = np.clip(0.0, form.lower, form.upper)
        if not _handed_over(form).any():
            return Found(Word.OPTIMAL, point=anywhere, bound=form.offset, row_duals=np.zeros(form.row_lower.size))
        with _ONE_AT_A_TIME:
            solver = _solver(self.engine)
            if self.engine == Pyomo.engine:
                _forget_threads()
            for option, value in self._options(limits).items():
                solver.options[option] = value
            model = pyomo_model(form, start)
            result = self._solve(solver, model)
            if result.solver.termination_condition == Ended.error and self.engine == Pyomo.engine:
                # HiGHS finds now and then that the point it took back through presolve lies outside its bounds.
                solver.options["presolve"] = "off"
                result = self._solve(solver, model)
            ended = result.solver.termination_condition
            words = {
                Ended.optimal: Word.OPTIMAL,
                Ended.globallyOptimal: Word.OPTIMAL,
                Ended.infeasible: Word.INFEASIBLE,
                Ended.unbounded: Word.UNBOUNDED,
                Ended.infeasibleOrUnbounded: Word.EITHER,
            }
            word = words.get(ended, Word.FEASIBLE)
            if word in (Word.INFEASIBLE, Word.UNBOUNDED, Word.EITHER):
                return Found(word)
            point, duals = _values(form, model, result, anywhere)
        stop = {Ended.maxTimeLimit: Stop.TIME, Ended.userInterrupt: Stop.CANCELLED}.get(ended, Stop.WORK)
        if word is Word.OPTIMAL:
            stop = Stop.FINISHED
        if point is None or (word is Word.FEASIBLE and form.pure_lp):
            # A linear program's last iterate need not be feasible.
            return Found(Word.NOTHING, stop, detail=f"{self.engine} ended with {ended}")
        return Found(word, stop, point=point, bound=self._bound(form, result), row_duals=duals, detail=f"{ended}")

    def _options(self, limits: Limits) -> dict[str, object]:
        names = NAMES.get(self.engine.removeprefix("appsi_").removesuffix("_direct").removesuffix("_persistent"))
        wanted: dict[str, object] = {"seconds": limits.seconds, "nodes": limits.work}
        if names is None:
            if given := " and ".join(limit for limit, value in wanted.items() if value is not None):
                raise SolverFailed(self.name, f"hetplan does not know how to give {self.engine} its limit of {given}")
            return {}
        wanted |= {"gap": DEFAULT_GAP if limits.gap is None else limits.gap}
        wanted |= {"threads": limits.threads, "seed": limits.seed}
        option_of = {limit: option for limit, option in names._asdict().items() if option}
        return {option: wanted[limit] for limit, option in option_of.items() if wanted[limit] is not None}

    def _solve(self, solver: Any, model: Any) -> Any:
        try:
            return solver.solve(model, load_solutions=False)
        except Exception as error:
            # Some interfaces fail when asked for the duals of a program that turns out to have none.
            if not hasattr(model, "dual"):
                raise SolverFailed(self.name, str(error)) from error
            model.del_component("dual")
            return self._solve(solver, model)

    def _bound(self, form: Milp, result: Any) -> float | None:
        bound = result.problem.lower_bound if form.sense == "min" else result.problem.upper_bound
        try:
            return float(bound)
        except (TypeError, ValueError):
            return None


def pyomo_with(engine: str) -> Pyomo:
    """The bridge to one of Pyomo's engines, by Pyomo's name for it.

    >>> pyomo_with("gurobi").name
    'pyomo:gurobi'
    """
    kind: type[Pyomo] = type(f"Pyomo_{engine}", (Pyomo,), {"name": f"pyomo:{engine}", "engine": engine})
    return kind()


def _solver(engine: str) -> Any:
    from pyomo.environ import SolverFactory

    try:
        solver = SolverFactory(engine)
        return solver if solver.available(exception_flag=False) else None
    except Exception:  # an interface that cannot even be made is one that is not there
        return None


def _forget_threads() -> None:
    """Let HiGHS take another thread count than the one it first had here; Pyomo reads its refusal as no answer."""
    import highspy

    highspy.Highs.resetGlobalScheduler(True)


def pyomo_model(form: Milp, start: Vector | None = None) -> Any:
    """The program as a model of Pyomo; `start` is where its variables begin."""
    import pyomo.environ as pyomo
    from pyomo.core.expr.numeric_expr import LinearExpression

    model = pyomo.ConcreteModel()
    whole, lower, upper = form.whole.tolist(), _finite(form.lower), _finite(form.upper)
    model.x = pyomo.Var(
        range(form.cost.size),
        bounds=lambda _, j: (lower[j], upper[j]),
        domain=lambda _, j: pyomo.Integers if whole[j] else pyomo.Reals,
    )
    columns: list[Any] = [model.x[j] for j in range(form.cost.size)]
    if start is not None:
        for column, value in zip(columns, start.tolist(), strict=True):
            column.set_value(value, skip_validation=True)
    priced = np.flatnonzero(form.cost).tolist()
    model.objective = pyomo.Objective(
        expr=LinearExpression(
            constant=form.offset,
            linear_coefs=form.cost[priced].tolist(),
            linear_vars=[columns[j] for j in priced],
        ),
        sense=pyomo.minimize if form.sense == "min" else pyomo.maximize,
    )
    rows = form.matrix.tocsr()
    row_lower, row_upper = _finite(form.row_lower), _finite(form.row_upper)

    def row(_: Any, i: int) -> Any:
        here = slice(rows.indptr[i], rows.indptr[i + 1])
        if (row_lower[i] is None and row_upper[i] is None) or here.start == here.stop:
            return pyomo.Constraint.Skip
        terms = LinearExpression(
            constant=0.0,
            linear_coefs=rows.data[here].tolist(),
            linear_vars=[columns[j] for j in rows.indices[here].tolist()],
        )
        return (row_lower[i], terms, row_upper[i])

    model.rows = pyomo.Constraint(range(rows.shape[0]), rule=row)
    if form.pure_lp:
        model.dual = pyomo.Suffix(direction=pyomo.Suffix.IMPORT)
    return model


def _handed_over(form: Milp) -> NDArray[np.bool_]:
    """Which columns have a cost or are in a row that binds anything."""
    binding = np.isfinite(form.row_lower) | np.isfinite(form.row_upper)
    entries = form.matrix.tocsr()[binding].tocsc()
    return np.asarray((form.cost != 0) | (np.diff(entries.indptr) > 0), dtype=bool)


def _values(form: Milp, model: Any, result: Any, anywhere: Vector) -> tuple[Vector | None, Vector | None]:
    if not len(result.solution):
        return None, None
    model.solutions.load_from(result)
    values = [column.value for column in model.x.values()]
    point = np.array([np.nan if value is None else value for value in values], dtype=float)
    point = np.where(_handed_over(form), point, anywhere)
    if np.isnan(point).any():
        return None, None
    if not hasattr(model, "dual"):
        return point, None
    duals = np.zeros(form.row_lower.size)
    for i, row in model.rows.items():
        duals[i] = model.dual.get(row, 0.0) or 0.0
    # Interfaces differ in the sign they give a dual; the right one is the one that proves more.
    flip = 1.0 if form.sense == "min" else -1.0
    return point, max((duals, -duals), key=lambda y: flip * dual_bound(form, y))


def _finite(bounds: Vector) -> list[float | None]:
    return [bound if np.isfinite(bound) else None for bound in bounds.tolist()]
