"""A pool as a part of a fleet: the rate of given machines is that of the exact fluid program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.contract import Tools
from hetplan.problems.parts import Asked, Cone
from hetplan.problems.pool.form import fluid_at
from hetplan.problems.pool.options import FluidOptions
from hetplan.problems.pool.question import PoolQuestion

__all__ = ["cone"]


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
    equal = form.row_lower == form.row_upper
    over, matrix = ~equal, form.matrix.tocsr()
    derate = options.derate

    def most(machines: Sequence[float]) -> tuple[float, NDArray[np.float64]]:
        from scipy.optimize import linprog

        upper = form.row_upper.copy()
        upper[busy.start : busy.stop] = machines
        answer: Any = linprog(
            -form.cost, A_ub=matrix[over], b_ub=upper[over], A_eq=matrix[equal], b_eq=form.row_upper[equal],
            method="highs",
        )  # fmt: skip
        prices = np.zeros(len(upper))
        prices[over] = -answer.ineqlin.marginals
        return -float(answer.fun) * derate, prices[busy.start : busy.stop] * derate

    part.most = most
    return part
