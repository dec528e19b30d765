"""A pool as a part of a fleet: the rate of given machines is that of the exact fluid program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.answer import Answer, Status
from hetplan.planner.contract import Tools
from hetplan.planner.forms.milp import Milp
from hetplan.problems.parts import Asked, Cone
from hetplan.problems.pool.form import fluid_at
from hetplan.problems.pool.kept import kept_use
from hetplan.problems.pool.options import FluidOptions
from hetplan.problems.pool.question import PoolQuestion
from hetplan.problems.pool.rated import rated_by

__all__ = ["cone"]

Floats = NDArray[np.float64]


def cone(asked: type[Cone], **what: Any) -> Asked:
    """The part; `what` is as `Cone` has it."""
    part = asked(**what)
    options = FluidOptions.model_validate({**part.options, "size": "planned"})
    files = part.files(1.0, {}, None)
    limits = files.slo.limits.model_copy(update={"only_listed": False})
    inputs = type(files)(**{**vars(files), "slo": files.slo.model_copy(update={"limits": limits})})
    pool = PoolQuestion.from_inputs(inputs, options, formulation="fluid-milp", tools=Tools())
    part.hardware = tuple(kind.hardware for kind in pool.types)
    form = fluid_at(pool, np.zeros(len(pool.types)))
    (busy,) = [block for block in form.rows if block.name == "capacity"]
    warm, cold = _engine(form, busy.start, busy.stop, warm=True), _engine(form, busy.start, busy.stop, warm=False)
    first = [int(np.flatnonzero(pool.of == number)[0]) for number in range(len(pool.types))]

    def most(machines: Sequence[float]) -> tuple[float, Floats]:
        value, _, prices = warm(machines)
        return value * options.derate, prices * options.derate

    def kept(machines: Sequence[float]) -> float:
        _, point, _ = cold(machines)
        counts = np.zeros(len(pool.columns), dtype=np.int64)
        counts[first] = np.array(machines, dtype=np.int64)
        rated = rated_by(pool, counts, Answer(Status.OPTIMAL, engine="", point=point))
        return rated.lam * kept_use(pool, rated)

    part.most, part.kept = most, kept
    return part


def _engine(
    form: Milp, start: int, stop: int, *, warm: bool
) -> Callable[[Sequence[float]], tuple[float, Floats, Floats]]:
    """The program at any machines, in one engine: the most rate, a point, and what a machine more is worth.

    If `warm`, it looks on from the machines before; else it finds the point that a plan has, of several that are best.
    """
    import highspy

    engine: Any = highspy.Highs()
    for option, value in (("output_flag", False), ("threads", 1), ("presolve", "off" if warm else "choose")):
        engine.setOptionValue(option, value)
    rows, columns, held = len(form.row_lower), len(form.cost), form.matrix.tocsc()
    engine.passModel(
        columns, rows, held.nnz, int(highspy.MatrixFormat.kColwise), int(highspy.ObjSense.kMaximize), 0.0,
        form.cost, form.lower, form.upper, form.row_lower, form.row_upper,
        held.indptr.astype(np.int32), held.indices.astype(np.int32), held.data, np.zeros(columns, dtype=np.int32),
    )  # fmt: skip
    changed, none = np.arange(start, stop, dtype=np.int32), np.full(stop - start, -np.inf)

    def solved(machines: Sequence[float]) -> tuple[float, Floats, Floats]:
        if not warm:
            engine.clearSolver()
        engine.changeRowsBounds(changed.size, changed, none, np.array(machines, dtype=float))
        engine.run()
        found = engine.getSolution()
        point, duals = np.array(found.col_value), np.array(found.row_dual)
        return float(form.cost @ point), point, duals[start:stop]

    return solved
