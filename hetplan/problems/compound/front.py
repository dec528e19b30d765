"""Several wishes at once: plans of which none is beaten in everything that is wanted.

Of one application every way that no other beats is a point, if it fits on the machines that there are. Of several
together, points are found by limits: the first figure at its best while the others are at most so much, from their best
to what they come to where only the first counts. Points that another one beats are left out.

Where queries come at a rate, each point is played until it is in time, as any other plan is. What it then costs and
promises are its figures, and points that another one beats by these are left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product

import numpy as np

from hetplan.planner.draft import Draft, Infeasibility
from hetplan.planner.forms.black_box import Figure
from hetplan.planner.front import FrontOf, unbeaten
from hetplan.problems.compound.draft import draft, mean_latency_ms
from hetplan.problems.compound.form import Asked, Packed, figures, parts_of
from hetplan.problems.compound.search import Stage
from hetplan.problems.compound.wish import Query, Way
from hetplan.profiles.plan import Notice

__all__ = ["front_of"]

Settle = Callable[[Draft, Mapping[str, Way]], Draft | Infeasibility]
"""Makes a point of what was packed a plan that may be handed out."""
Pack = Callable[..., Packed | Infeasibility]
Points = list[tuple[tuple[float, ...], Packed, Sequence[Query]]]

CHOSEN_FROM = "the bound is over the plans from which this point of the front was chosen"
SHOWN: Mapping[Figure, str] = {"quality": "quality", "cost": "cost_per_hour", "latency": "latency_ms"}


def front_of(
    asked: Asked,
    stages: Sequence[Stage],
    queries: Sequence[Query],
    notices: Sequence[Notice],
    pack: Pack,
    settle: Settle,
) -> Draft | Infeasibility:
    """The draft of the first point, with the front that it is of."""
    one = len(queries) == 1 and bool(queries[0].ways)
    found = _of_one(asked, queries[0], pack) if one else _of_several(asked, queries, pack)
    if isinstance(found, Infeasibility):
        return found
    rows = unbeaten([(k, point) for k, (point, _, _) in enumerate(found)])
    made: list[tuple[tuple[float, ...], dict[str, float], Draft]] = []
    missed: Draft | Infeasibility | None = None
    queued = any(one.rate_qps for one in asked.sought)
    for k, values in _thinned(rows, asked.options.points):
        _, packed, own = found[k]
        point = settle(draft(asked, own, packed, notices), _picked(packed, own))
        if isinstance(point, Infeasibility) or point.target_missed:
            missed = point
            continue
        now = _as_planned(asked, point, values) if queued else values
        of = zip(asked.wish.of, now, strict=True)
        shown = {SHOWN[name]: _shown(name, value, packed, own) for name, value in of}
        reported = tuple(replace(one, note=CHOSEN_FROM) for one in point.reported)
        made.append((now, shown, replace(point, reported=reported)))
    if not made:
        return missed or Infeasibility(why=("no point was found",), proved=False)
    kept = unbeaten([(n, values) for n, (values, _, _) in enumerate(made)])
    points = tuple((made[n][1], made[n][2]) for n, _ in kept)
    whole = bool(stages) and all(stage.whole for stage in stages)
    known = [stage.chance for stage in stages]
    chance = None if whole or None in known else float(np.prod([one for one in known if one is not None]))
    return replace(points[0][1], front=FrontOf[Draft](asked.wish.of, points, whole, chance, queued))


def _picked(packed: Packed, queries: Sequence[Query]) -> dict[str, Way]:
    """The way of each application."""
    options = enumerate(packed.choice.option.tolist())
    return {queries[i].app_id: queries[i].ways[k - int(packed.form.first[i])] for i, k in options if k >= 0}


def _as_planned(asked: Asked, point: Draft, values: tuple[float, ...]) -> tuple[float, ...]:
    """The figures of a point, by what its plan promises of cost and latency."""
    cost = next((one.value for one in point.promises if one.quantity == "cost_per_hour"), 0.0)
    known: Mapping[Figure, float] = {"cost": cost, "latency": mean_latency_ms(asked, point.promises)}
    return tuple(known.get(name, value) for name, value in zip(asked.wish.of, values, strict=True))


def _of_one(asked: Asked, query: Query, pack: Pack) -> Points | Infeasibility:
    """Every way that no other beats, by itself."""
    rows = [(w, tuple(way.figure(name) for name in asked.wish.of)) for w, way in enumerate(query.ways)]
    if not any(tier.machine_price > 0 and tier.per != "gpu" and not tier.own for tier in asked.tiers):
        rows = unbeaten(rows)
    found: Points = []
    why = None
    for w, _ in rows:
        own = (replace(query, ways=(query.ways[w],)),)
        packed = pack(own)
        if isinstance(packed, Infeasibility):
            why = packed
        else:
            found.append((_of_choice(packed, own, asked.wish.of), packed, own))
    return found or why or Infeasibility(why=("no way fits",), proved=False)


def _of_several(asked: Asked, queries: Sequence[Query], pack: Pack) -> Points | Infeasibility:
    """The first figure at its best under limits on the others, from end to end of these."""
    of, others = asked.wish.of, asked.wish.of[1:]
    best = pack(queries)
    if isinstance(best, Infeasibility):
        return best
    found: Points = [(_of_choice(best, queries, of), best, queries)]
    ends: list[tuple[float, float]] = []
    for name in others:
        low = pack(queries, of=(name, *(other for other in of if other != name)))
        if isinstance(low, Infeasibility):
            return low
        values = _of_choice(low, queries, of)
        found.append((values, low, queries))
        ends.append((values[of.index(name)], found[0][0][of.index(name)]))
    steps = max(2, round(asked.options.points ** (1.0 / len(others))))
    for limits in product(*(np.linspace(low, high, steps + 1)[1:-1].tolist() for low, high in ends)):
        caps: Mapping[Figure, float] = dict(zip(others, limits, strict=True))
        packed = pack(queries, caps=caps)
        if isinstance(packed, Packed):
            found.append((_of_choice(packed, queries, of), packed, queries))
    return found


def _of_choice(packed: Packed, queries: Sequence[Query], of: Sequence[Figure]) -> tuple[float, ...]:
    chosen = packed.choice.option[packed.choice.option >= 0]
    values = []
    for name in of:
        values.append(float(figures(queries, name)[chosen].sum()))
        if name == "cost" and packed.form.items is not None:
            values[-1] += float(packed.opening @ packed.form.opened(packed.choice))
    return tuple(values)


def _thinned(rows: list[tuple[int, tuple[float, ...]]], most: int) -> list[tuple[int, tuple[float, ...]]]:
    """At most so many points, both ends among them, in order of the first figure."""
    if len(rows) <= most:
        return rows
    return [rows[k] for k in dict.fromkeys(round(n * (len(rows) - 1) / (most - 1)) for n in range(most))]


def _shown(name: Figure, value: float, packed: Packed, queries: Sequence[Query]) -> float:
    """A figure as people read it: of quality the mean itself."""
    if name != "quality":
        return value
    ways = [way for query in queries for way in query.ways]
    chosen = [ways[option].found for option in packed.choice.option.tolist() if option >= 0]
    return math.fsum(p * one.accuracy for p, one in zip(parts_of(queries), chosen, strict=True) if one is not None)
