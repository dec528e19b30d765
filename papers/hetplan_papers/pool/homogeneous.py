"""Base instances alone: Kairos' baseline `homogeneous`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from hetplan.extend import (
    Ask,
    Chosen,
    Infeasibility,
    Pool,
    Request,
    cheapest_enough,
    list_affordable,
    missing_base,
    rate_at,
    unbounded_claim,
)

__all__ = ["rent_base_only"]


def rent_base_only(pool: Pool, ask: Ask) -> Chosen | Infeasibility:
    """Base instances alone, as many as the budget buys or the rate needs; reported also scaled to the whole budget."""
    only = replace(pool, request=_base_only(pool))
    found = list_affordable(only, ask, with_base=True)
    if isinstance(found, Infeasibility) or not len(found):
        return missing_base(pool)
    if pool.fluid_target is None:
        rated = rate_at(pool, ask, pool.by_offer(found.row(len(found) - 1)))
    else:
        enough = cheapest_enough(pool, ask, found, np.arange(len(found)))
        if isinstance(enough, Infeasibility):
            return enough
        rated = enough
    cost = pool.cost(rated.counts)
    more: tuple[Mapping[str, Any], ...] = ()
    if pool.request.budget is not None and cost:
        scaled = rated.lam * pool.request.budget / cost
        more = ({"what": "the same pool scaled to the whole budget", "fluid_rate_qps": scaled},)
    return Chosen(rated, (unbounded_claim(pool, rated),), alternatives=more)


def _base_only(pool: Pool) -> Request:
    """The request with every other type limited to its least."""
    machines = enumerate(pool.request.machines)
    kinds = tuple(kind if t == pool.base else replace(kind, most=kind.least) for t, kind in machines)
    return replace(pool.request, machines=kinds)
