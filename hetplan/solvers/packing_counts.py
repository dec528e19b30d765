"""Fewer machines at least cost: numbers of machines that cost less than a choice at hand, from the dearest down.

What machines cost comes in lumps, so that few sums lie between the bound and the cost at hand. Whether all groups fit
into given machines is tried greedily; for a group without a place one other is moved; groups that found none come first
in the next round.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.answer import Limits
from hetplan.planner.forms.packing import Choice, Packing, sums_of
from hetplan.solvers.packing_floor import Floor
from hetplan.solvers.packing_prices import best_prices

__all__ = ["in_fewer_machines"]

Vector = NDArray[np.float64]

MOST_PLACED = 12_000
"""Groups put somewhere in all: about a second of work."""
ROUNDS = 10
SLIP = 1e-9


def in_fewer_machines(form: Packing, known: Choice | None, bound: float) -> Choice | None:
    """A choice that costs less than the one at hand, or None where none was found within the work."""
    items = form.items
    groups = form.first.size - 1
    if items is None or not groups or not form.opening.any() or (np.diff(form.first) == 0).any():
        return None
    cheapest = float(np.minimum.reduceat(np.where(form.fits, form.worth, np.inf), form.first[:-1]).sum())
    most = math.inf if known is None else form.value(known)
    if not math.isfinite(cheapest) or not math.isfinite(most):
        return None
    tries = _Tries(MOST_PLACED)
    best: Choice | None = None
    for count in _counts(form, bound - cheapest, most - cheapest):
        if float(form.opening @ np.where(form.opening > 0, count, 0.0)) + cheapest >= most * (1 - SLIP):
            continue
        small = replace(form, items=replace(items, machines=count))
        # One benefit each: where prices bound what these machines serve below all, they are too few.
        served = replace(small, sense="max", worth=np.ones_like(form.worth))
        prices = best_prices(served, Limits())
        if served.bound(prices) < groups - SLIP * groups:
            continue
        found = _fitted(small, form.taken @ prices, tries)
        if found is not None and form.value(found) < most * (1 - SLIP):
            best, most = found, form.value(found)
        if tries.over:
            break
    return best


@dataclass
class _Tries:
    """How many groups may still be put somewhere."""

    left: int

    @property
    def over(self) -> bool:
        return self.left <= 0


def _counts(form: Packing, least: float, most: float) -> Iterator[Vector]:
    """Numbers of machines whose cost lies between the two, the dearest first; free tiers whole."""
    assert form.items is not None
    paid = np.flatnonzero(form.opening > 0)
    found = [
        (cost, counts)
        for cost, counts in sums_of(form.opening[paid], form.items.machines[paid], most)
        if least - SLIP * max(1.0, abs(least)) <= cost < most * (1 - SLIP)
    ]
    for _, counts in sorted(found, reverse=True):
        machines = form.items.machines.copy()
        machines[paid] = counts
        yield machines


def _fitted(form: Packing, paid: Vector, tries: _Tries) -> Choice | None:
    """All groups in these machines, if some round finds a way; the one with the largest item first."""
    order = np.argsort(-_largest(form, paid), kind="stable").tolist()
    for turn in range(ROUNDS):
        floor, failed = Floor(form), []
        for group in order:
            if not _placed(form, floor, group, paid, by_price=turn % 2 == 0, tries=tries):
                failed.append(group)
        stuck = next((group for group in failed if not _made_room(form, floor, group, paid, tries)), None)
        if stuck is None:
            return floor.choice()
        if tries.over:
            return None
        late = set(failed)
        order = failed + [group for group in order if group not in late]
    return None


def _largest(form: Packing, paid: Vector) -> Vector:
    """The largest item of each group's cheapest option."""
    assert form.items is not None
    room = np.where(np.isfinite(form.items.room) & (form.items.room > 0), form.items.room, np.inf)
    share = (form.items.size / room[form.items.tier]).max(axis=1, initial=0.0)
    of_option = np.zeros(form.worth.size)
    np.maximum.at(of_option, form.items.option, share)
    order = np.lexsort((np.where(form.fits, paid, np.inf), form.group))
    first = order[np.unique(form.group[order], return_index=True)[1]]
    largest = np.zeros(form.first.size - 1)
    largest[form.group[first]] = of_option[first]
    return largest


def _placed(form: Packing, floor: Floor, group: int, paid: Vector, *, by_price: bool, tries: _Tries) -> bool:
    """By price, or by the smallest part of what is left: the first option for which there is room."""
    tries.left -= 1
    options = form.options_of(group)
    options = options[form.fits[options]]
    part = (form.taken[options] / np.maximum(floor.room_left(), SLIP)).max(axis=1, initial=0.0)
    order = np.lexsort((part, paid[options]) if by_price else (paid[options], part))
    return any(floor.add(option) for option in options[order].tolist())


def _made_room(form: Packing, floor: Floor, group: int, paid: Vector, tries: _Tries) -> bool:
    """One other group goes elsewhere, so that both have a place."""
    for other in np.flatnonzero(floor.option >= 0).tolist():
        if tries.over:
            return False
        before = floor.state()
        floor.remove(other)
        if all(_placed(form, floor, one, paid, by_price=False, tries=tries) for one in (group, other)):
            return True
        floor.restore(before)
    return False
