"""A fleet that makes text as a part: the rate of given machines is that of rows (1) to (6), with their headroom."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
    limits = files.slo.limits.model_copy(update={"only_listed": False})
    inputs = type(files)(**{**vars(files), "slo": files.slo.model_copy(update={"limits": limits})})
    wish = read_wish(inputs, options)
    slower = [kind.law.slower(1.5 * kind.engine.fitted.error * options.law_error) for kind in wish.kinds]
    rows = Rows.of(program(wish, mean_tpot=True, sacrifice=options.sacrifice, laws=slower), iterations=True)
    part.hardware = tuple(dict.fromkeys(kind.hardware for kind in wish.kinds))
    of = [part.hardware.index(kind.hardware) for kind in wish.kinds]

    def most(machines: Sequence[float]) -> tuple[float, NDArray[np.float64]]:
        found = rows.carried(np.array([machines[place] for place in of]))
        weights = np.zeros(len(part.hardware))
        np.maximum.at(weights, of, found.prices)
        return found.rate_qps / (1.0 + options.rate_headroom), weights / (1.0 + options.rate_headroom)

    part.most = most
    return part
