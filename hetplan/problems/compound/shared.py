"""Replicas of one model that several operators call, of one query or of many: how many there are for all together.

Operators share where they are of one `model`, on one tier, with the same share of a GPU, the same levels of the knobs
that they read, the same needs and the same outcomes. Their queries join one line, so a station's load and spreads are
those of all who come (`stations`). Every query has to keep its limit. From the fewest replicas that are not overrun,
the station that helps most for its price gets one more, until all are in time; then what is not needed is taken back.
From the ways that were chosen apart, and from those that have most in common, each query in turn tries its other ways.
Nothing proves the least: it is compared with what the queries cost apart, and the cheaper is taken.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from numpy.typing import NDArray

from hetplan.problems.compound.form import Sought
from hetplan.problems.compound.found import shared_way
from hetplan.problems.compound.search import Stage
from hetplan.problems.compound.stations import FREE, MOST_REPLICAS, MOST_TRIED, SLIP, Flows, Rated, Stations
from hetplan.problems.compound.wish import Found, Query, Way

__all__ = ["Joined", "Seat", "joined"]

MOST_STEPS = 2000
MOST_TURNS = 4
MOST_SEEN = 400
"""So many choices of ways are sized at most."""

Vector = NDArray[np.float64]
Seat = tuple[str, str]
"""An application and its operator."""
Key = tuple[object, ...]


@dataclass(frozen=True)
class Joined:
    """Queries whose operators share: each has one way, and `owner` says whose replicas an operator goes to."""

    queries: tuple[Query, ...]
    owner: Mapping[Seat, Seat]


@dataclass(frozen=True)
class _Caller:
    """A query with one of its ways: its stations, by operator, and what a replica of each costs."""

    sought: Sought
    form: Rated
    found: Found
    stations: Stations
    placement: int
    slow: Vector
    own: NDArray[np.bool_]
    price: Vector
    keys: tuple[Key, ...]

    @classmethod
    def of(cls, sought: Sought, form: Rated, found: Found) -> _Caller:
        """The form's numbers of a way that was found."""
        measured = form.journal[sought.configuration(dict(found.knobs))]
        names = [tier.name for tier in sought.tiers]
        at = np.array([names.index(found.placement[name]) for name in sought.order])
        placement = int(np.flatnonzero((form.placements == at).all(axis=1))[0])
        shares = np.array([found.share.get(name, 1.0) for name in sought.order])
        stations = Stations(form, measured)
        own = stations.own(placement)
        price = np.maximum(form.price[placement] * shares, FREE)
        keys = tuple(_key(sought, found, name) for name in sought.order)
        return cls(sought, form, found, stations, placement, stations.slow(placement, shares), own, price, keys)

    def worst(self, beside: Flows, replicas: Vector) -> float:
        """The worst percentile over its limit, where others use its stations as well."""
        self.stations.beside = beside
        return float(self.stations.worst(self.placement, self.slow, replicas[None, :])[0]) / self.stations.limit


def _key(sought: Sought, found: Found, name: str) -> Key:
    """What operators have in common that share replicas; one without a model shares with nobody."""
    node = sought.pipeline.nodes[name]
    if node.model is None:
        return sought.app_id, name
    knobs = tuple(sorted((knob, repr(found.knobs[knob])) for knob in node.reads))
    needs = tuple(sorted(node.needs.items()))
    form = node.device, node.share_law, needs, node.batches, None if node.outcomes is None else node.outcomes.names
    return node.model, found.placement[name], found.share.get(name), knobs, found.batches.get(name), form


class _Together:
    """Queries on their stations, some of them shared: replicas by station, and whether all are in time."""

    def __init__(self, callers: Sequence[_Caller]) -> None:
        self.callers = callers
        seats = [(c, o) for c, one in enumerate(callers) for o in np.flatnonzero(one.own).tolist()]
        self.keys = list(dict.fromkeys(callers[c].keys[o] for c, o in seats))
        place = {key: s for s, key in enumerate(self.keys)}
        self.station = [np.array([place.get(key, 0) for key in one.keys]) for one in callers]
        self.members = Counter(callers[c].keys[o] for c, o in seats)
        self.price, room = np.zeros(len(self.keys)), np.full(len(self.keys), np.inf)
        flows = np.zeros((4, len(self.keys)))
        own = [np.where(one.own, one.stations.flows(one.slow), 0.0) for one in callers]
        for c, o in seats:
            s = self.station[c][o]
            self.price[s] = callers[c].price[o]
            flows[:, s] += own[c][:, o]
            room[s] = min(room[s], callers[c].stations.room[o])
        self.beside = [flows[:, at] - mine for at, mine in zip(self.station, own, strict=True)]
        self.fewest = np.floor(flows[1] / room + 1e-9) + 1.0
        self.seen: dict[bytes, float] = {}

    def late(self, counts: Vector) -> float:
        """By how much the queries exceed their limits, together; 0 where all are in time."""
        key = counts.tobytes()
        if key not in self.seen:
            worst = [
                one.worst(beside, np.where(one.own, counts[at], 1.0))
                for one, beside, at in zip(self.callers, self.beside, self.station, strict=True)
            ]
            self.seen[key] = sum(max(0.0, each - 1.0 - SLIP) for each in worst)
        return self.seen[key]

    def sized(self) -> Vector | None:
        """The replicas of every station: from the fewest up by what helps most for its price, then back."""
        at = self.fewest.copy()
        if at.max(initial=0.0) > MOST_REPLICAS:
            return None
        for _ in range(MOST_STEPS):
            now = self.late(at)
            if now == 0.0:
                break
            step = np.maximum(1.0, np.floor(0.03 * at))
            tried = at + np.diag(step)
            help_ = np.array([now - self.late(row) for row in tried]) / (self.price * step)
            if help_.max(initial=0.0) > 0.0:
                at = tried[int(help_.argmax())]
            elif self.late(at + step) < now:
                at = at + step
            else:
                return None
        return self._least(at) if self.late(at) == 0.0 else None

    def _least(self, at: Vector) -> Vector:
        """Without replicas that are not needed; of few numbers that cost less, the cheapest in time."""
        for s in np.argsort(-self.price, kind="stable").tolist():
            less = at.copy()
            less[s] -= 1.0
            while at[s] > self.fewest[s] and self.late(less) == 0.0:
                at, less = less, less - np.eye(at.size)[s]
        room = float(self.price @ (at - self.fewest))
        spans = [int(room / price + 1e-9) + 1 if price > FREE else 1 for price in self.price]
        if math.prod(spans) > MOST_TRIED:
            return at
        more = np.array(list(product(*map(range, spans))), dtype=float)
        cost = more @ self.price
        free = np.where(self.price > FREE, self.fewest, at)
        for row in np.argsort(cost, kind="stable"):
            if cost[row] >= float(self.price @ (at - free)) - 1e-9:
                break
            if self.late(free + more[row]) == 0.0:
                return np.asarray(free + more[row])
        return at

    def cost(self, counts: Vector) -> float:
        """What they cost, calls of APIs included."""
        calls = sum(float(one.form.called(_number(one))[one.placement]) for one in self.callers)
        return calls + float(self.price @ counts)


Sized = tuple[float, _Together, Vector]
Tried = Callable[[Sequence[Found]], Sized | None]


def _number(one: _Caller) -> int:
    return one.sought.configuration(dict(one.found.knobs))


def joined(
    callers: Sequence[tuple[Sought, Stage]], queries: Sequence[Query], chosen: Mapping[str, Way], *, cheapest: bool
) -> Joined | None:
    """The chosen ways with their replicas shared; None where no two operators share, or there is no way in time.

    `cheapest`: a query may take another of its ways; else only one of the same knobs.
    """
    mine = [(sought, stage.form) for sought, stage in callers if sought.app_id in chosen and sought.rate_qps]
    rated = [(sought, form) for sought, form in mine if isinstance(form, Rated)]
    ways = {query.app_id: query.ways for query in queries}
    picked: list[Found] = [found for sought, _ in rated if (found := chosen[sought.app_id].found) is not None]
    models = Counter(node.model for sought, _ in rated for node in sought.pipeline.nodes.values())
    if len(picked) < len(rated) or not any(count > 1 for model, count in models.items() if model is not None):
        return None
    made = {(i, id(found)): _Caller.of(*one, found) for i, (one, found) in enumerate(zip(rated, picked, strict=True))}

    seen: dict[tuple[int, ...], Sized | None] = {}

    def tried(founds: Sequence[Found]) -> Sized | None:
        key = tuple(map(id, founds))
        if key not in seen and len(seen) < MOST_SEEN:
            for i, found in enumerate(founds):
                if (i, id(found)) not in made:
                    made[i, id(found)] = _Caller.of(*rated[i], found)
            together = _Together([made[i, id(found)] for i, found in enumerate(founds)])
            counts = together.sized()
            seen[key] = None if counts is None else (together.cost(counts), together, counts)
        return seen.get(key)

    choices = [
        [way.found for way in ways[sought.app_id] if way.found and (cheapest or way.found.knobs == one.knobs)]
        for (sought, _), one in zip(rated, picked, strict=True)
    ]
    best: Sized | None = None
    for begin in [picked, *_alike([sought for sought, _ in rated], choices)]:
        best = _improved(begin, choices, tried, best)
    if best is None or not any(count > 1 for count in best[1].members.values()):
        return None
    return _ways_of(best[1], best[2], queries, chosen)


def _alike(seeks: Sequence[Sought], choices: Sequence[Sequence[Found]]) -> list[list[Found]]:
    """For every way of a query the ways of the others that share most with it: where to begin from."""
    keys = [
        [{_key(sought, found, name) for name in sought.order} for found in founds]
        for sought, founds in zip(seeks, choices, strict=True)
    ]
    paired = list(zip(choices, keys, strict=True))
    return [[_most_like(founds, of, one) for founds, of in paired] for mine in keys for one in mine]


def _most_like(founds: Sequence[Found], keys: Sequence[set[Key]], one: set[Key]) -> Found:
    return founds[max(range(len(founds)), key=lambda k: (len(keys[k] & one), -k))]


def _improved(
    begin: Sequence[Found], choices: Sequence[Sequence[Found]], tried: Tried, best: Sized | None
) -> Sized | None:
    """The best known, or what comes of these ways where each query in turn takes the one that costs least."""
    picked, here = list(begin), tried(begin)
    for _ in range(MOST_TURNS):
        before = here
        for i, founds in enumerate(choices):
            for found in founds:
                other = None if found is picked[i] else tried([*picked[:i], found, *picked[i + 1 :]])
                if other is not None and (here is None or other[0] < here[0] - 1e-9):
                    here, picked = other, [*picked[:i], found, *picked[i + 1 :]]
        if here is before:
            break
    return here if best is None or (here is not None and here[0] < best[0] - 1e-9) else best


def _ways_of(together: _Together, counts: Vector, queries: Sequence[Query], chosen: Mapping[str, Way]) -> Joined:
    """One way per query: the first operator of a station has its replicas, the others go there."""
    first: dict[Key, Seat] = {}
    owner: dict[Seat, Seat] = {}
    ways: dict[str, Way] = dict(chosen)
    for one, beside, at in zip(together.callers, together.beside, together.station, strict=True):
        app, count = one.sought.app_id, {}
        replicas = np.where(one.own, counts[at], 1.0)
        for o, name in enumerate(one.sought.order):
            if not one.own[o]:
                count[name] = 0
                continue
            there = first.setdefault(one.keys[o], (app, name))
            count[name] = int(replicas[o]) if there == (app, name) else 0
            if together.members[one.keys[o]] > 1:
                owner[app, name] = there
        one.stations.beside = beside
        response_s = one.stations.responses(one.placement, one.slow, replicas[None, :])[:, 0]
        ways[app] = shared_way(one.form, one.sought, one.found, one.placement, (count, tuple(response_s.tolist())))
    named = [replace(query, ways=(ways[query.app_id],) if query.app_id in ways else ()) for query in queries]
    return Joined(tuple(named), owner)
