"""Base instances alone, as the paper's baseline has it (`homogeneous`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from hetplan.planner.contract import Ask
from hetplan.planner.draft import Infeasible, Reported
from hetplan.problems.pool.letters import Pool, Type
from hetplan.problems.pool.listed import cheapest_enough, listed
from hetplan.problems.pool.rated import Chosen, Rated, rate_at
from hetplan.profiles.fields import NANO

__all__ = ["homogeneous", "no_base", "word"]


def homogeneous(pool: Pool, ask: Ask) -> Chosen | Infeasible:
    """Base instances alone, as many as the budget buys or the rate needs; reported also scaled to the whole budget."""
    only = replace(pool, types=_base_only(pool))
    found = listed(only, ask, with_base=True)
    if isinstance(found, Infeasible) or not len(found):
        return no_base(pool)
    if pool.fluid_target is None:
        rated = rate_at(pool, ask, pool.columns_of(found.row(len(found) - 1)))
    else:
        enough = cheapest_enough(pool, ask, found, np.arange(len(found)))
        if isinstance(enough, Infeasible):
            return enough
        rated = enough
    cost = pool.cost(rated.counts)
    more: tuple[Mapping[str, Any], ...] = ()
    if pool.wish.budget is not None and cost:
        scaled = rated.lam * pool.wish.budget / cost
        more = ({"what": "the same pool scaled to the whole budget", "fluid_rate_qps": scaled},)
    return Chosen(rated, (word(pool, rated),), alternatives=more)


def _base_only(pool: Pool) -> tuple[Type, ...]:
    """The types with every other limited to its least."""
    return tuple(kind if t == pool.base else replace(kind, most=kind.least) for t, kind in enumerate(pool.types))


def word(pool: Pool, rated: Rated) -> Reported:
    """A heuristic's word: a value without a bound."""
    if pool.fluid_target is not None:
        return Reported("cost_per_hour", "min", "none", value=pool.cost(rated.counts) / NANO)
    return Reported("rate_qps", "max", "none", value=pool.options.derate * rated.lam)


def no_base(pool: Pool) -> Infeasible:
    """Why formulations that need a base instance have none."""
    base = pool.types[pool.base].hardware
    why = f"this formulation builds on instances of the base type {base}, and too few are within the budget and limits"
    remedy = "use formulation fluid-milp, which needs no base type"
    return Infeasible(why=(why, remedy), proved=False)
