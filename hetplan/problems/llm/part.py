"""A fleet that makes text, as a part of a larger fleet: rows (1) to (6) say the rate of its machines."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.fleet_part import AtCapacities, Cone
from hetplan.planner.forms.milp import Builder
from hetplan.problems.llm.options import LlmOptions
from hetplan.problems.llm.program import Rows, program
from hetplan.problems.llm.request import read_text_request
from hetplan.profiles.validate import validate

__all__ = ["cone", "without_margins"]


def without_margins(part: Cone, at_capacities: AtCapacities) -> Cone:
    """The part by rows that any schedule keeps: laws as they are stated, iterations of any length, a few late ones.

    Nothing is late on its type if nothing is in time there on any: its question refuses that without `allow_late`.
    """
    firm = cone(part, at_capacities)
    bare = {**firm.options, "margins": "none"}
    given = validate(LlmOptions, {**bare, "sizing": "fluid"}, file="options")
    wish = read_text_request(firm.any_number(), given)
    some_late = given.allow_late or float(not program(wish, mean_tpot=False, allow_late=0.0).unserved())
    loose = cone(Cone.of(part, options={**bare, "allow_late": some_late}), at_capacities)
    loose.firm = firm
    return loose


def cone(part: Cone, at_capacities: AtCapacities) -> Cone:
    """The part, with its rate. Types of one hardware are taken together: the best of them counts."""
    options = validate(LlmOptions, {**part.options, "sizing": "fluid"}, file="options")
    wish = read_text_request(part.any_number(), options)
    what = program(wish, mean_tpot=options.is_firm, allow_late=options.allow_late, laws=wish.slower(1.5))
    rows = Rows.of(what, iterations=True)
    part.run_on((kind.hardware, kind.choice.takes, kind.instances) for kind in wish.kinds)
    of = [part.hardware.index(kind.hardware) for kind in wish.kinds]

    m, entries = Builder("max", name="the rate of machines"), rows.matrix.tocoo()
    n = m.columns("n", [kind.name for kind in wish.kinds], unit="machines")
    x = m.columns("x", str, size=entries.shape[1] - 1, unit="qps")
    served = np.append(x, m.columns("rate", ["all"], cost=1.0, unit="qps"))
    kept = m.rows("(1) to (6)", str, size=entries.shape[0], lower=0.0, upper=np.where(rows.equal, 0.0, np.inf))
    m.add(kept[:, None], n, rows.given)
    m.add(kept[entries.row], served[entries.col], entries.data)
    # Machines that have nothing to do need no iteration in time: of those that there are, n are used.
    m.add(m.rows("used", [kind.name for kind in wish.kinds], unit="machines"), n, 1.0)
    form, room = m.build(), 1.0 + options.headroom

    def most_of(*, warm: bool) -> Callable[[Sequence[float]], tuple[float, NDArray[np.float64]]]:
        at = at_capacities(form, form.rows[-1], warm=warm)

        def most(machines: Sequence[float]) -> tuple[float, NDArray[np.float64]]:
            value, _, prices = at([machines[place] for place in of])
            weights = np.zeros(len(part.hardware))
            np.maximum.at(weights, of, prices)
            return value / room, weights / room

        return most

    part.most, part.anew = most_of(warm=True), most_of(warm=False)
    return part
