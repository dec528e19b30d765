"""What may help queries at a rate that no plan serves in time: fewer of them, or more time for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from hetplan.planner.draft import Infeasibility, Repair
from hetplan.problems.compound.found import found_ways
from hetplan.problems.repairs import change
from hetplan.problems.simulated import where_late

if TYPE_CHECKING:
    from hetplan.problems.compound.form import Sought
    from hetplan.problems.compound.stations import Rated

__all__ = ["fewer_served", "where_rate_binds"]

MANY = 100
"""Replicas of an operator: plans of many more take minutes to play, and each repair is tried."""
HALVES, NEARER = 40, 7
"""A rate is halved at most so often until it is carried, then so often the way back up."""
ABOUT = " or so"


def where_rate_binds(form: Rated, sought: Sought, *, turns: bool) -> tuple[Repair, ...]:
    """The highest rate that the formula carries; with more time for each where calls wait for their `turns`."""
    name = sought.app_id
    longer = where_late(sought.app, None) if turns else ()
    low, high = 0.0, form.rate_qps
    for _ in range(HALVES):
        middle = high / 2.0
        if _carries(form, sought, middle):
            low = middle
            break
        high = middle
    for _ in range(NEARER if low else 0):
        middle = (low + high) / 2.0
        low, high = (middle, high) if _carries(form, sought, middle) else (low, middle)
    return (*([_fewer(name, form.rate_qps, low)] if low else []), *longer)


def _carries(form: Rated, sought: Sought, rate_qps: float) -> bool:
    ways = found_ways(replace(form, rate_qps=rate_qps), sought, 1)
    return any(way.found is not None and max(way.found.replicas.values(), default=0) <= MANY for way in ways)


def fewer_served(missing: Infeasibility, sought: Sequence[Sought]) -> Infeasibility:
    """With fewer queries where machines or money do not suffice: the part of them that there is enough for.

    An application of which a lower rate is said already keeps that one.
    """
    parts = [
        1.0 - one.amount / one.to
        for one in missing.repairs
        if one.field.startswith(("slo.limits.", "profile.")) and one.amount and isinstance(one.to, float | int)
    ]
    said = {one.field for one in missing.repairs}
    fewer = [_fewer(one.app_id, one.rate_qps, min(parts) * one.rate_qps) for one in sought if parts and one.rate_qps]
    return replace(missing, repairs=(*missing.repairs, *(one for one in fewer if one.field not in said)))


def _fewer(name: str, stated: float, to: float) -> Repair:
    return change(f"slo.apps.{name}.rate_qps", stated, to, "qps", more=ABOUT)
