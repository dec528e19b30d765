"""A fleet that makes text, as a part of a larger fleet: rows (1) to (6) say the rate of its machines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, hstack, identity, vstack

from hetplan.problems.llm.form import Rows, program
from hetplan.problems.llm.options import LlmOptions
from hetplan.problems.llm.wish import read_wish
from hetplan.problems.parts import Asked, Cone

__all__ = ["cone"]


def cone(asked: type[Cone], **what: Any) -> Asked:
    """The part; `what` is as `Cone` has it. Types of one hardware are taken together: the best of them counts."""
    part = asked(**what)
    options = LlmOptions.model_validate({**part.options, "size": "planned"})
    files = part.files(1.0, {}, None)
    limits = files.slo.limits.model_copy(update={"only_listed": False, "instances": {}})
    inputs = type(files)(**{**vars(files), "slo": files.slo.model_copy(update={"limits": limits})})
    wish = read_wish(inputs, options)
    slower = [kind.law.slower(1.5 * kind.engine.fitted.error * options.law_error) for kind in wish.kinds]
    rows = Rows.of(program(wish, mean_tpot=True, sacrifice=options.sacrifice, laws=slower), iterations=True)
    part.hardware = tuple(dict.fromkeys(kind.hardware for kind in wish.kinds))
    of = [part.hardware.index(kind.hardware) for kind in wish.kinds]

    over, kinds, room = ~rows.equal, len(of), 1.0 + options.rate_headroom
    # Machines that have nothing to do need no iteration in time: n of the machines m are used, n <= m.
    used = [-rows.matrix[over], -csr_array(rows.given[over])]
    had = [csr_array((kinds, rows.matrix.shape[1])), identity(kinds)]
    left = vstack([hstack(used), hstack(had)]).tocsr()
    equal: Any = hstack([rows.matrix[rows.equal], csr_array((int(rows.equal.sum()), kinds))])
    cost = np.zeros(left.shape[1])
    cost[rows.matrix.shape[1] - 1] = -1.0

    def most(machines: Sequence[float]) -> tuple[float, NDArray[np.float64]]:
        from scipy.optimize import linprog

        counts = np.array([machines[place] for place in of])
        upper = np.concatenate([np.zeros(int(over.sum())), counts])
        answer: Any = linprog(cost, A_ub=left, b_ub=upper, A_eq=equal, b_eq=np.zeros(equal.shape[0]), method="highs")
        weights = np.zeros(len(part.hardware))
        np.maximum.at(weights, of, -answer.ineqlin.marginals[-kinds:])
        return -float(answer.fun) / room, weights / room

    part.most = most
    return part
