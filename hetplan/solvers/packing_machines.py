"""Packing onto machines: for benefit in order of prices; for cost the cheapest options, then machines emptied."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.forms.packing import Choice, Packing
from hetplan.solvers.packing_floor import Floor

__all__ = ["at_least_cost", "machine_orders"]

Vector = NDArray[np.float64]

NEAR = 1.1
"""Options within this factor of a group's cheapest price compete by what is left."""

MOST_ROUNDS = 20


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
    for _ in range(MOST_ROUNDS):
        improved = False
        for tier, machine in _by_load(form, floor):
            before = form.value(floor.choice())
            saved = floor.state()
            groups = np.unique(form.group[_items_on(form, floor, tier, machine)])
            if groups.size and _moved(form, floor, groups, score) and form.value(floor.choice()) < before - 1e-12:
                improved = True
            else:
                floor.restore(saved)
        if not improved:
            return


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


def _moved(form: Packing, floor: Floor, groups: NDArray[np.int64], score: Vector) -> bool:
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
