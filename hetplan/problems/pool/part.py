"""A pool as a part of a fleet: the rate of given machines is that of the exact fluid program."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.answer import Answer, Status
from hetplan.planner.contract import Tools
from hetplan.planner.fleet_part import AtCapacities, Cone
from hetplan.planner.forms.milp import Milp
from hetplan.problems.draft_simulation import Played
from hetplan.problems.pool.capacity import RatedPool, rate_by_answer
from hetplan.problems.pool.options import FluidOptions
from hetplan.problems.pool.program import Pool, fluid_program_at
from hetplan.problems.pool.question import PoolQuestion
from hetplan.problems.pool.sizing import is_playable, look_at_pool, usable_utilization
from hetplan.profiles.validate import validate

__all__ = ["cone", "is_open"]

Floats = NDArray[np.float64]
SEED = 0
"""A question that is asked by itself begins with the same."""
OPEN = (0.75, 1.6)
"""What a first look shows of what may be late, where more queries may still tell otherwise."""


def is_open(shown: Played) -> bool:
    """Whether more queries may still tell otherwise."""
    return OPEN[0] <= shown.worst <= OPEN[1]


def cone(part: Cone, at_capacities: AtCapacities, *, simulate: Callable[..., Any] | None = None) -> Cone:
    """The part, with its rate. With `simulate` its machines are looked at in simulation, too.

    Rates are found from where the last were. What queries have room to wait depends on the point, of several that are
    best: it is found anew, as a plan has it.
    """
    options = validate(FluidOptions, {**part.options, "sizing": "fluid"}, file="options")
    pool = PoolQuestion.from_inputs(part.any_number(), options, formulation="pool-milp", tools=Tools())
    part.run_on((kind.hardware, kind.needs, kind.per_machine) for kind in pool.types)
    none = np.zeros(len(pool.types))
    # Where nothing is left free, no dispatcher carries more: one may let as many be late as percentiles allow. A fleet
    # is also searched by it, so that dropped queries are answered there; one who drops them may do with less.
    loose = pool.relaxation if options.derate == 1.0 else pool

    def at(form: Milp, *, warm: bool) -> Callable[[Sequence[float]], tuple[float, Floats, Floats]]:
        (busy,) = (one for one in form.rows if one.name == "capacity")
        return at_capacities(form, busy, warm=warm)

    cold = at(fluid_program_at(pool, none), warm=False)
    first = [int(np.flatnonzero(pool.type_of == number)[0]) for number in range(len(pool.types))]

    def most_of(loose: Pool, *, warm: bool = True) -> Callable[[Sequence[float]], tuple[float, Floats]]:
        solved = at(fluid_program_at(loose, none), warm=warm)

        def most(machines: Sequence[float]) -> tuple[float, Floats]:
            value, _, prices = solved(machines)
            return value * options.derate, prices * options.derate

        return most

    def rated(machines: Sequence[float]) -> RatedPool:
        _, point, _ = cold(machines)
        counts = np.zeros(len(pool.offers), dtype=np.int64)
        counts[first] = np.array(machines, dtype=np.int64)
        return rate_by_answer(pool, counts, Answer(Status.OPTIMAL, engine="", point=point))

    def kept(machines: Sequence[float]) -> float:
        found = rated(machines)
        return found.lam * usable_utilization(pool, found)

    def late(machines: Sequence[int], rate: float) -> float:
        assert simulate is not None
        found = rated(machines)
        if found.lam < rate:
            return math.inf
        if not is_playable(pool, found):
            return 0.0
        playing = replace(pool, inputs=part.any_number(rate), tools=Tools(extra={"simulate_plan": simulate}))
        return look_at_pool(playing, found, rate, seed=SEED, goes_on=is_open).worst

    if loose.may_drop:
        part.dropping = Cone.of(part, most=most_of(loose), anew=most_of(loose, warm=False))
    loose = replace(loose, may_drop=False)
    part.most, part.anew, part.kept = most_of(loose), most_of(loose, warm=False), kept
    part.late = late if simulate is not None else None
    return part
