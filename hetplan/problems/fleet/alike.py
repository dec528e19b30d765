"""What is alike in a fleet: zones that sell the same, and periods that ask for nearly the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.request import Offer
from hetplan.problems.fleet.wish import Wish

__all__ = ["grouped", "groups_of", "zone_classes", "zone_orders"]

Index = NDArray[np.int64]
MOST_ZONES = 4
"""Of more zones that are alike, only turns are tried, not every order."""


def _zones(wish: Wish) -> list[list[Index]]:
    """Zones in groups that sell the same under the same quota; of each zone its offers, in one order for all."""
    named = set(wish.request.shares)

    def sold(place: int) -> tuple[object, ...]:
        o: Offer = wish.offers[place]
        ahead = (-1, 0, 0.0) if o.ahead is None else (o.ahead.nanos, o.ahead.upfront, o.ahead.term_s)
        return (o.machine, o.spot, o.nanos, o.stock, ahead, o.start_hours)

    groups: dict[object, list[Index]] = {}
    for zone in dict.fromkeys(offer.zone for offer in wish.offers):
        places = [n for n, offer in enumerate(wish.offers) if offer.zone == zone]
        places.sort(key=sold)
        quota = tuple(sorted(wish.request.quotas.get(zone or "", {}).items()))
        apart = zone if zone is None or any(wish.offers[n].name in named for n in places) else ""
        key = (apart, quota, tuple(sold(n) for n in places))
        groups.setdefault(key, []).append(np.array(places, dtype=np.int64))
    return list(groups.values())


def zone_orders(wish: Wish) -> list[Index]:
    """Orders of the offers by which machines may change zones, and everything that is asked stays true."""
    orders = [np.arange(len(wish.offers), dtype=np.int64)]
    for group in _zones(wish):
        count = len(group)
        turns = [tuple((first + step) % count for step in range(count)) for first in range(count)]
        found = []
        for order in orders:
            for to in permutations(range(count)) if count <= MOST_ZONES else turns:
                changed = order.copy()
                for zone, other in zip(group, to, strict=True):
                    changed[zone] = order[group[other]]
                found.append(changed)
        orders = found
    return orders


def zone_classes(wish: Wish) -> Index:
    """For each offer the number of its class: offers that differ by a zone alone, among zones that are alike."""
    classes, number = np.zeros(len(wish.offers), dtype=np.int64), 0
    for group in _zones(wish):
        for place in range(len(group[0])):
            for zone in group:
                classes[zone[place]] = number
            number += 1
    return classes


def groups_of(wish: Wish, most: int) -> list[list[int]]:
    """Periods in at most so many groups of nearly the same rates; those of exactly the same are always together.

    In the order of the first period of each.
    """
    rates = np.array([[app.rates[p] for app in wish.apps] for p in range(wish.periods)])
    scaled = rates / np.maximum(rates.max(axis=0), 1e-12)
    centres = [int(np.argmax(scaled.sum(axis=1)))]
    away = np.abs(scaled - scaled[centres[0]]).max(axis=1)
    while len(centres) < most and away.max() > 0:
        centres.append(int(np.argmax(away)))
        away = np.minimum(away, np.abs(scaled - scaled[centres[-1]]).max(axis=1))
    nearest = [int(np.argmin([np.abs(one - scaled[centre]).max() for centre in centres])) for one in scaled]
    groups = [[p for p, centre in enumerate(nearest) if centre == number] for number in range(len(centres))]
    return sorted(groups)


def grouped(wish: Wish, groups: Sequence[Sequence[int]]) -> Wish:
    """A wish whose periods are these groups, each at the highest rates in it, for as long as all of them."""
    apps = tuple(replace(app, rates=tuple(max(app.rates[p] for p in group) for group in groups)) for app in wish.apps)
    return replace(wish, apps=apps, spans=tuple(sum(wish.length(p) for p in group) for group in groups))
