r"""Packing improved step by step: onto machines in order of prices, machines emptied, fewer machines, single moves.

*Onto machines*: for benefit in order of prices; for cost the cheapest options, then machines emptied.

*In fewer machines*: numbers of machines that cost less than a choice at hand, from the dearest down. What machines cost
comes in lumps, so that few sums lie between the bound and the cost at hand. Whether all groups fit into given machines
is tried greedily; for a group without a place one other is moved; groups that found none come first in the next round.

*By moves* (all groups at least cost within totals): what each group would take at the prices alone may be more than
there is. Repair changes one group's option at a time, each time the one that costs least per excess that it takes away.
Then single changes and pairs of them are made while they save anything and fit. A pair is looked for among the changes
that cost least at the prices: where prices are good, few others can be part of a better choice.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.answer import Limits
from hetplan.planner.forms.packing import Choice, Packing, sums_of
from hetplan.planner.tolerances import FEASIBILITY, SLIP
from hetplan.solvers.packing import Floor, best_prices, choose_by

__all__ = ["at_least_cost", "by_moves", "in_fewer_machines", "machine_orders"]


Vector = NDArray[np.float64]

NEAR = 1.1
"""Options within this factor of a group's cheapest price compete by what is left."""

MOST_ROUNDS = 20
MOST_MOVED = 600
"""A machine is not given back where its groups have more items than these, spread over many others."""


def machine_orders(form: Packing, prices: Vector) -> Iterator[Choice]:
    """Groups by benefit per price; of each, of options near its cheapest, the one that takes least of what is left."""
    finite = np.where(np.isfinite(form.limit) & (form.limit > 0), form.limit, np.inf)
    price = form.taken @ (prices + 1e-9 / finite)
    cheapest = np.full(form.first.size - 1, np.inf)
    np.minimum.at(cheapest, form.group[form.fits], price[form.fits])
    most = np.zeros(cheapest.size)
    np.maximum.at(most, form.group, form.worth)
    with np.errstate(divide="ignore", invalid="ignore"):
        merit = np.where(np.isfinite(cheapest), most / cheapest, -1.0)
    order = np.argsort(-merit, kind="stable")
    floor = Floor(form)
    for group in order[merit[order] > 0].tolist():
        options = form.options_of(group)
        options = options[form.fits[options] & (form.worth[options] > 0)]
        left = np.maximum(floor.room_left(), 1e-9)
        relative = (form.taken[options] / left).max(axis=1, initial=0.0)
        near = price[options] <= NEAR * cheapest[group]
        for option in options[np.lexsort((relative, ~near))].tolist():
            if floor.add(option):
                break
    yield floor.choice()


def at_least_cost(form: Packing, prices: Vector) -> Choice | None:
    """Every group its cheapest option by prices, largest first; then re-chosen to fill the machines that are in use."""
    best: Choice | None = None
    items = form.items
    assert items is not None
    fraction = form.worth + _as_shares(form)
    for score in (fraction, form.worth + form.taken @ prices):
        floor = _first_fit(form, score)
        if floor is None:
            continue
        _empty_machines(form, floor, score)
        choice = floor.choice()
        if best is None or form.value(choice) < form.value(best):
            best = choice
    return best


def _as_shares(form: Packing) -> Vector:
    """What the machines that options take would cost if shares of one could be had."""
    items = form.items
    assert items is not None
    room = np.where(np.isfinite(items.room) & (items.room > 0), items.room, np.inf)
    share = (items.size / room[items.tier]).max(axis=1, initial=0.0) * form.opening[items.tier]
    return np.asarray(np.bincount(items.option, weights=share, minlength=form.worth.size), dtype=np.float64)


def _first_fit(form: Packing, score: Vector) -> Floor | None:
    """Groups of the largest cheapest option first."""
    score = np.where(form.fits, score, np.inf)
    cheapest = np.full(form.first.size - 1, np.inf)
    np.minimum.at(cheapest, form.group, score)
    floor = Floor(form)
    for group in np.argsort(-cheapest, kind="stable").tolist():
        options = form.options_of(group)
        if not any(floor.add(int(o)) for o in options[np.argsort(score[options], kind="stable")] if form.fits[o]):
            return None
    return floor


def _empty_machines(form: Packing, floor: Floor, score: Vector) -> None:
    """While some machine's groups find room on others in use, with whichever option, it is given back."""
    at_hand = form.value(floor.choice())
    for _ in range(MOST_ROUNDS):
        improved = False
        for tier, machine in _by_load(form, floor):
            groups = np.unique(form.group[_items_on(form, floor, tier, machine)])
            if not groups.size or _items_of(form, floor, groups) > MOST_MOVED:
                continue
            saved = floor.state()
            moved = _move_groups(form, floor, groups, score)
            if moved and (value := form.value(floor.choice())) < at_hand - 1e-12:
                at_hand, improved = value, True
            else:
                floor.restore(saved)
        if not improved:
            return


def _items_of(form: Packing, floor: Floor, groups: NDArray[np.int64]) -> int:
    """How many items these groups have placed, on whichever machines."""
    assert form.items is not None
    options = floor.option[groups]
    return int((form.items.first[options + 1] - form.items.first[options]).sum())


def _items_on(form: Packing, floor: Floor, tier: int, machine: int) -> NDArray[np.int64]:
    assert form.items is not None
    here = (form.items.tier == tier) & (floor.machine == machine)
    return np.asarray(form.items.option[here])


def _by_load(form: Packing, floor: Floor) -> list[tuple[int, int]]:
    """Machines in use, the dearest per load first."""
    found = []
    for tier, free in enumerate(floor.free):
        for machine in range(len(free)):
            taken = form.items.room[tier] - free[machine] if form.items is not None else free[machine]
            load = float(taken.max(initial=0.0))
            if load > 1e-9:
                found.append((load / max(float(form.opening[tier]), 1e-12), tier, machine))
    return [(tier, machine) for _, tier, machine in sorted(found)]


def _move_groups(form: Packing, floor: Floor, groups: NDArray[np.int64], score: Vector) -> bool:
    """Take these groups off and put them where no machine has to be opened (what they left counts as closed)."""
    for group in groups.tolist():
        floor.remove(group)
    closed = [
        (free >= form.items.room[tier] - 1e-9).all(axis=1)  # type: ignore[union-attr]
        for tier, free in enumerate(floor.free)
    ]
    held = [free.copy() for free in floor.free]
    for free, shut in zip(floor.free, closed, strict=True):
        free[shut] = -1.0
    done = True
    for group in groups.tolist():
        options = form.options_of(group)
        order = options[np.argsort(score[options], kind="stable")]
        if not any(floor.add(int(o), opens=False) for o in order if form.fits[o]):
            done = False
            break
    for free, shut, old in zip(floor.free, closed, held, strict=True):
        free[shut] = old[shut]
    return done


MOST_PLACED = 12_000
"""Groups put somewhere in all: about a second of work."""
ROUNDS = 10
"""Tries to get all groups into given machines: after each, those that found no place come first."""


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
        found = _fit_all(small, form.taken @ prices, tries)
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


def _fit_all(form: Packing, paid: Vector, tries: _Tries) -> Choice | None:
    """All groups in these machines, if some round finds a way; the one with the largest item first."""
    order = np.argsort(-_largest(form, paid), kind="stable").tolist()
    for turn in range(ROUNDS):
        floor, failed = Floor(form), []
        for group in order:
            if not _place_group(form, floor, group, paid, by_price=turn % 2 == 0, tries=tries):
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


def _place_group(form: Packing, floor: Floor, group: int, paid: Vector, *, by_price: bool, tries: _Tries) -> bool:
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
        if all(_place_group(form, floor, one, paid, by_price=False, tries=tries) for one in (group, other)):
            return True
        floor.restore(before)
    return False


Integers = NDArray[np.int64]

MANY = 1_500
FACTORS = (1.0, 0.5, 0.7, 1.4, 2.0, 4.0)
MOST_REPAIRS = 5_000
MOST_MOVES = 2_000
"""Changes of single groups, at most: to make a choice fit, and to save something."""
PAIRED = 300
"""Changes that are tried in pairs."""
MOST_PAIRS = 60
LEAST_GAIN = 1e-12


def by_moves(form: Packing, prices: Vector, known: Choice | None = None) -> Choice | None:
    """A choice of all groups within what there is, the best of several begins; None where no repair came to an end.

    Small forms are begun from prices that are lower and higher as well, and from a choice at hand.
    """
    if form.sense != "min" or form.items is not None:
        return None
    small = form.worth.size <= MANY
    begins = [choose_by(form, form.worth + form.taken @ (factor * prices)) for factor in (FACTORS if small else (1.0,))]
    begins += [known.option.copy()] if small and known is not None else []
    best: Choice | None = None
    for begin in begins:
        state = _State(form, prices, begin)
        if (begin >= 0).all() and state.repair():
            state.improve()
            found = Choice(state.chosen)
            best = found if best is None or form.value(found) < form.value(best) else best
    return best


class _State:
    """One option per group, and what all of them take of the resources that have an end."""

    def __init__(self, form: Packing, prices: Vector, chosen: Integers) -> None:
        self.form = form
        finite = np.isfinite(form.capacity)
        limit = form.capacity[finite]
        self.room = limit + FEASIBILITY / 2 * np.maximum(1.0, np.abs(limit))
        self.scale = np.where(limit > 0, limit, 1.0)
        self.taken = form.demand[:, finite]
        self.paid = form.worth + form.taken @ prices
        self.chosen = chosen
        self.load = self.taken[self.chosen[self.chosen >= 0]].sum(axis=0)

    def change(self, option: int) -> None:
        """Give an option's group this option."""
        group = int(self.form.group[option])
        self.load = self.load + self.taken[option] - self.taken[self.chosen[group]]
        self.chosen[group] = option

    def _changes(self) -> tuple[Vector, Vector, NDArray[np.bool_]]:
        """Of every option: what taking it would add to the load and to the cost, and whether it may be taken."""
        now = self.chosen[self.form.group]
        allowed = self.form.fits & (np.arange(now.size) != now)
        return self.taken - self.taken[now], self.form.worth - self.form.worth[now], allowed

    def repair(self) -> bool:
        """Until nothing is exceeded; False where no change of one group, nor of two, takes any excess away."""
        for _ in range(MOST_REPAIRS):
            excess = self._excess(self.load)
            if excess <= 0:
                return True
            more, cost, allowed = self._changes()
            gain = np.where(allowed, excess - self._excess(self.load + more), 0.0)
            useful = np.flatnonzero(gain > LEAST_GAIN)
            if not useful.size:
                return False
            rate = np.maximum(cost[useful], LEAST_GAIN) / np.minimum(gain[useful], excess)
            self.change(int(useful[np.lexsort((-gain[useful], rate))[0]]))
        return False

    def _excess(self, load: Vector) -> Vector:
        over: Vector = np.maximum(load - self.room, 0.0) / self.scale
        return np.asarray(over.sum(axis=-1))

    def improve(self) -> None:
        """Single changes while one saves, then pairs, then again."""
        for _ in range(MOST_PAIRS):
            for _ in range(MOST_MOVES):
                more, cost, allowed = self._changes()
                cost = np.where(allowed & (self.load + more <= self.room).all(axis=1), cost, 0.0)
                best = int(np.argmin(cost)) if cost.size else 0
                if not cost.size or cost[best] >= -self._least:
                    break
                self.change(best)
            if not self._change_two():
                return

    @property
    def _least(self) -> float:
        """A saving below this is rounding."""
        return 1e-9 * max(1.0, float(np.abs(self.form.worth[self.chosen]).sum()))

    def _change_two(self) -> bool:
        """The pair of changes that saves most, if one does."""
        more, cost, allowed = self._changes()
        near = self.paid - self.paid[self.chosen[self.form.group]]
        order = np.argsort(np.where(allowed, near, np.inf), kind="stable")[:PAIRED]
        order = order[allowed[order]]
        both = cost[order][:, None] + cost[order][None, :]
        both[self.form.group[order][:, None] == self.form.group[order][None, :]] = 0.0
        for resource, room in enumerate(self.room):
            load = self.load[resource] + more[order, resource][:, None] + more[order, resource][None, :]
            both[load > room] = 0.0
        if not both.size or both.min() >= -self._least:
            return False
        one, other = np.unravel_index(int(np.argmin(both)), both.shape)
        self.change(int(order[one]))
        self.change(int(order[other]))
        return True
