"""The ways of a query that a search found: measured configurations, placed, with shares or replicas."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np

from hetplan.planner.forms.black_box import (
    BlackBox,
    Figure,
    Measured,
    Verdict,
    antichain,
    least_shares,
    priced,
    traded,
)
from hetplan.planner.forms.calls import Cases
from hetplan.planner.front import unbeaten
from hetplan.problems.compound.calls import per_query, taken
from hetplan.problems.compound.form import Sought
from hetplan.problems.compound.stations import SLIP, Rated, Sized, Stations, Vector, sizes
from hetplan.problems.compound.traded import Point, traded_sizes
from hetplan.problems.compound.wish import Found, Item, Tier, Way

__all__ = ["by_share", "found_ways", "interval_of", "shared_way"]

MOST_ITEMS = 48
"""Into so many parts the streams of an operator are put on machines one by one; of more, several together."""
SIZES = 8
"""So many ways that nothing pays for, or has machines for, say what is missing."""
SPARE = 2
"""So many ways that leave alone a tier of which there are only so many machines."""
FEWER, EACH = 2, 1
"""Where machines are paid whole, sizes on so many fewer are looked for, and so many for each number of machines."""
WAYS_EACH = 4
"""Ways of one configuration, where others may be sought for another figure."""
TIGHTER = (1.0, 0.97, 0.93, 0.87, 0.8)
"""Parts of a limit by which sizes are found that keep it when more queries are worked out."""
AT_ONCE = 256
"""Placements worked out before it is looked whether more are wanted."""


def found_ways(form: BlackBox, sought: Sought, most: int) -> list[Way]:
    """The ways of all measured configurations that comply, none dominated, the cheapest first.

    Where more is sought than the least cost, those of every configuration, spread over what they come to.
    """
    trusted = _trusted(form, sought)
    if isinstance(form, Rated):
        traded = "latency" in form.aim.of
        return (_traded_ways if traded else _rated_ways)(form, sought, trusted, most)
    if form.aim.cheapest:
        return _cheapest_ways(form, sought, trusted, most)
    ways: list[Way] = []
    for c, found in trusted.items():
        if "latency" in form.aim.of:
            ways += _faster_ways(form, sought, c)
        else:
            ways += _cheapest_ways(form, sought, {c: found}, WAYS_EACH)
    return _spread(_undominated(ways, sought), form.aim.of, most)


def _faster_ways(form: BlackBox, sought: Sought, c: int) -> list[Way]:
    """Every placement of a configuration in time, with shares that are each faster than all that cost less."""
    rooms = {tier.name: tier for tier in sought.tiers}
    rows = []
    for placement in np.flatnonzero(form.at_full(form.journal[c]) <= form.limit_s * (1 + 1e-12)):
        shares, dollars, latency = traded(form, form.journal[c], int(placement))
        rows += [(int(placement), row, float(d), float(s)) for row, d, s in zip(shares, dollars, latency, strict=True)]
    kept = {number for number, _ in unbeaten([(n, (row[2], row[3])) for n, row in enumerate(rows)])}
    # Of each placement its fastest as well: another one's tier may be full.
    last = {row[0]: number for number, row in enumerate(rows)}
    ways = [_way(form, sought, c, rows[n][0], rows[n][1], rows[n][2]) for n in sorted(kept | set(last.values()))]
    return [way for way in ways if all(rooms[item.tier].fits(item.size) for item in way.items)]


def _spread(ways: list[Way], of: Sequence[Figure], most: int) -> list[Way]:
    """At most so many of them: the best by each figure, the others from the whole range; cheapest first."""
    if len(ways) <= most:
        return ways
    ends = {min(range(len(ways)), key=lambda w: (ways[w].figure(name), by_share(ways[w]))) for name in (*of, "cost")}
    order = sorted(range(len(ways)), key=lambda w: (ways[w].figure(of[0]), by_share(ways[w])))
    evenly = [order[round(k * (len(order) - 1) / max(1, most - 1))] for k in range(most)]
    chosen = [*sorted(ends), *(w for w in evenly if w not in ends)][:most]
    return sorted((ways[w] for w in chosen), key=by_share)


def _cheapest_ways(form: BlackBox, sought: Sought, trusted: Mapping[int, Measured], most: int) -> list[Way]:
    """Minimal shares of these configurations, the cheapest first."""
    least = {c: least_shares(form, found) for c, found in trusted.items()}
    # From the lowest bound of a price up: what costs more than as many as are wanted is not worked out.
    bounds = {c: (np.where(form.price > 0, least[c], 0.0) * form.price).sum(axis=1) + form.called(c) for c in trusted}
    places = sorted(
        (float(bounds[c][p]), c, int(p)) for c in trusted for p in np.flatnonzero(np.isfinite(least[c]).all(axis=1))
    )
    rooms = {tier.name: tier for tier in sought.tiers}
    ways: list[Way] = []
    for begin in range(0, len(places), AT_ONCE):
        if len(ways) >= most and by_share(ways[most - 1]) < places[begin][0]:
            break
        for _, c, placement in places[begin : begin + AT_ONCE]:
            shares, dollars = antichain(form, trusted[c], placement, least[c][placement])
            for row, price in zip(shares[:most], dollars[:most], strict=True):
                way = _way(form, sought, c, placement, row, float(price))
                ways += [way] if all(rooms[item.tier].fits(item.size) for item in way.items) else []
        ways = _undominated(ways, sought)
    return ways[:most]


def _trusted(form: BlackBox, sought: Sought) -> dict[int, Measured]:
    """Configurations that pass and have a placement in time; doubtful ones only where no other is.

    The cheapest of many that the sign of a doubtful mean let through is likely one of those let through wrongly: an
    undecided one has to lie on the right side by its standard error.
    """
    passing = {
        c: found
        for c, found in form.journal.items()
        if found.passes and float(form.at_full(found).min()) <= form.limit_s * (1 + 1e-12)
        if found.mean == (seen := sought.lowered(found, found.mean)) or form.orient(seen) >= form.orient(form.target)
    }
    sure = {
        c: found
        for c, found in passing.items()
        if found.verdict is Verdict.PASS or abs(found.mean - form.target) >= found.se
    }
    return sure or passing


@dataclass(frozen=True)
class _Cut:
    """A measured configuration at a placement, with shares and as many of each operator; what comes of it.

    `price` is what shares come to (for one stream), `at` as in `Found`.
    """

    configuration: int
    placement: int
    share: Mapping[str, float]
    count: Mapping[str, int]
    price: float
    latency_s: float
    at: tuple[tuple[float, float, float | None], ...]
    batches: Mapping[str, int] = field(default_factory=dict)


def _way(form: BlackBox, sought: Sought, c: int, placement: int, shares: np.ndarray, price: float) -> Way:
    """The way of a stream: every operator once, or for each of its calls, with its share."""
    tiers = [sought.tiers[t] for t in form.placements[placement]]
    share_of = {sought.order[o]: float(r) for o, r in zip(priced(form, placement), shares, strict=True)}
    share, slow = {}, np.ones(len(sought.order))
    for o, (name, tier) in enumerate(zip(sought.order, tiers, strict=True)):
        if sought.pipeline.nodes[name].device == "gpu" and not tier.own:
            share[name] = share_of.get(name, 1.0)
            slow[o] = 1.0 / share[name] if form.operators[o].by_share else 1.0
    rows, where = form.rows(form.journal[c]), form.placements[placement : placement + 1]
    compute = (rows.seconds * form.placed.relative_time[where[0]] * slow)[:, None, :]
    each = form.finish(compute, rows.bytes_out, rows.bytes_in, where)
    at = tuple((100.0 * part, *_ends(form, each, part, rows.cases)) for part, _ in form.wishes)
    latency_s = float(form.judged(each, rows.cases)[0])
    count = {name: sought.streams * at_once for name, at_once in zip(sought.order, sought.at_once, strict=True)}
    return _made(form, sought, _Cut(c, placement, share, count, price, latency_s, at))


def _made(form: BlackBox, sought: Sought, cut: _Cut) -> Way:
    """The way of a cut: what it takes of totals and machines, and what it costs."""
    found, placement = form.journal[cut.configuration], cut.placement
    tiers = [sought.tiers[t] for t in form.placements[placement]]
    items: list[Item] = []
    demand: Counter[str] = Counter()
    for name, tier in zip(sought.order, tiers, strict=True):
        size = {kind: float(amount) for kind, amount in sought.pipeline.nodes[name].needs.items()}
        if name in cut.share:
            size["gpu"] = max(size.get("gpu", 0.0), cut.share[name])
        # What an operator needs, it does not need where it is a call.
        demand.update({} if tier.name in sought.apis else {k: a * cut.count[name] for k, a in size.items()})
        items += [] if tier.own else _items(tier, name, size, cut.count[name])
    knobs = sought.knobs(cut.configuration)
    often = dict(zip(sought.order, sought.made(found).tolist(), strict=True))
    demand.update(taken(sought.apis, sought.app, sought.pipeline, knobs, often))
    ends = interval_of(found)
    made = Found(
        knobs=knobs, placement={n: t.name for n, t in zip(sought.order, tiers, strict=True)}, share=cut.share,
        latency_s=cut.latency_s, accuracy=sought.lowered(found, found.mean), se=found.se,
        samples=found.samples, verdict=str(found.verdict), price=cut.price, streams=sought.streams,
        interval=(sought.lowered(found, ends[0]), sought.lowered(found, ends[1])),
        top=sought.span[0 if sought.lower else 1],
        outcomes=_outcomes(sought, found), per_query=per_query(sought.apis, sought.pipeline, knobs, often),
        at=cut.at, replicas={} if sought.rate_qps is None else cut.count, batches=cut.batches,
    )  # fmt: skip
    paid = _paid(sought, tiers, cut) + float(form.called(cut.configuration)[placement]) * sought.streams
    return Way(demand, tuple(items), price=paid, weight=sought.app.weight(), found=made)


def _rated_ways(form: Rated, sought: Sought, trusted: Mapping[int, Measured], most: int) -> list[Way]:
    """The cheapest sizes that carry the rate, of all configurations, or of each where more is sought than the cost."""
    each = [list(trusted.values())] if form.aim.cheapest else [[found] for found in trusted.values()]
    ways: list[Way] = []
    several = min(most, form.sizes) if form.aim.cheapest else WAYS_EACH
    fits = partial(_fits, form, sought)
    without = _without_scarce(form, sought)
    for founds in each:
        found = _cheapest(form, founds, several, fits=fits) or _cheapest(form, founds, several)
        # What leaves alone what there is little of is wanted where others need it.
        spares = min(SPARE, form.sizes - 1)
        spare = [_cheapest(form, founds, spares, only=only, fits=fits) for only in without] if spares else []
        own = [way for one in found for way in _sized_way(form, sought, one)]
        fewer = _on_fewer_machines(form, sought, founds, own)
        for one in dict.fromkeys((*found, *(one for these in spare for one in these), *fewer)):
            ways += _sized_way(form, sought, one)
    ways = _undominated(ways, sought)
    return ways[:most] if form.aim.cheapest else _spread(ways, form.aim.of, most)


def _on_fewer_machines(form: Rated, sought: Sought, founds: Sequence[Measured], ways: Sequence[Way]) -> list[Sized]:
    """Where machines are paid whole, the cheapest sizes on ever fewer of them.

    What costs least by its shares may pack badly, and what is dearer by its shares pack on a machine less.
    """
    sized: list[Sized] = []
    for tier in filter(_is_whole, sought.tiers):
        most = max((_machines_used(tier, way) for way in ways), default=0)
        for fewer in range(most - 1, max(most - 1 - FEWER, 0), -1):
            tiers = tuple(replace(one, machines=float(fewer)) if one is tier else one for one in sought.tiers)
            on_these = _cheapest(form, founds, EACH, fits=partial(_fits, form, replace(sought, tiers=tiers)))
            if not on_these:
                break
            sized += on_these
    return sized


def _machines_used(tier: Tier, way: Way) -> int:
    """How many machines of a tier a way takes alone."""
    return _machines_for(tier, [item.size for item in way.items if item.tier == tier.name])


def _is_whole(tier: Tier) -> bool:
    """Whether its machines are paid whole, however much of them is used."""
    return not tier.own and tier.per != "gpu" and tier.machine_price > 0


def _cheapest(form: Rated, founds: Sequence[Measured], most: int, **how: Any) -> list[Sized]:
    """The cheapest sizes; where nothing is played, such as are in time with more queries worked out, too."""
    if not form.unplayed:
        return sizes(form, founds, most, **how)
    again: list[Sized] = []
    for part in TIGHTER:
        made = sizes(replace(form, slack=part * form.slack), founds, most, **how)
        again = _finely(form, {one.configuration: one for one in founds}, made) or again
        if not made or again[0].judged_s <= form.limit_s * (1 + SLIP):
            break
    return again


def _traded_ways(form: Rated, sought: Sought, trusted: Mapping[int, Measured], most: int) -> list[Way]:
    """Sizes that carry the rate, each faster than all that cost less; where quality is sought, than all as good."""
    fits = partial(_fits, form, sought)
    together = [list(trusted.values())]
    if "quality" in form.aim.of:
        best = sorted(trusted.values(), key=lambda found: -form.orient(sought.lowered(found, found.mean)))
        together = [list(same) for _, same in groupby(best, key=lambda found: sought.lowered(found, found.mean))]
    made: list[Sized] = []
    for only in (None, *_without_scarce(form, sought)):
        known: list[Point] = []
        for founds in together:
            here = traded_sizes(form, founds, fits=fits, only=only, known=known)
            known += [(one.cost, one.judged_s) for one in here]
            made += here
    # What no budget pays for says how much is missing; what there are no machines for, how many are.
    made = made or sizes(form, list(trusted.values()), SIZES, fits=fits) or sizes(form, list(trusted.values()), SIZES)
    ways = [way for one in _finely(form, trusted, dict.fromkeys(made)) for way in _sized_way(form, sought, one)]
    return _spread(_undominated(ways, sought), form.aim.of, most)


def _finely(form: Rated, trusted: Mapping[int, Measured], made: Collection[Sized]) -> list[Sized]:
    """The same sizes with more queries worked out: the best of many by a few is likely one by which those few are off.

    Those that are late then are left out, if others are not.
    """
    asked = sorted({one.configuration for one in made})
    fine = {c: Stations(replace(form, fine=True), trusted[c]) for c in asked}
    again = [
        fine[one.configuration].of(one.placement, np.array(one.shares), np.array(one.replicas, dtype=float))
        for one in made
    ]
    in_time = [one for one in again if one.judged_s <= form.limit_s * (1 + SLIP)]
    return in_time or again


def _without_scarce(form: Rated, sought: Sought) -> list[set[int]]:
    """Placements that leave alone a tier of which there are only so many machines: each of these, then all of them."""
    scarce = np.array([not tier.own and math.isfinite(tier.machines) for tier in sought.tiers])
    without = [set(np.flatnonzero(~(form.placements == t).any(axis=1)).tolist()) for t in np.flatnonzero(scarce)]
    return without + ([set(np.flatnonzero(~scarce[form.placements].any(axis=1)).tolist())] if scarce.any() else [])


def _sized_way(form: Rated, sought: Sought, one: Sized) -> list[Way]:
    """The way of a size, if each of its operators fits on a machine."""
    rooms = {tier.name: tier for tier in sought.tiers}
    tiers = [sought.tiers[t] for t in form.placements[one.placement]]
    shared = [sought.pipeline.nodes[name].device == "gpu" and t.name not in sought.apis
              for name, t in zip(sought.order, tiers, strict=True)]  # fmt: skip
    share = {n: r for n, r, there in zip(sought.order, one.shares, shared, strict=True) if there}
    count = dict(zip(sought.order, one.replicas, strict=True))
    many = {name: size for name, size in zip(sought.order, one.batches, strict=True) if size > 1}
    cut = _Cut(one.configuration, one.placement, share, count, one.cost, *_times(form, one.response_s), many)
    way = _made(form, sought, cut)
    return [way] if all(rooms[item.tier].fits(item.size) for item in way.items) else []


def _fits(form: Rated, sought: Sought, placement: int, shares: Vector, replicas: Vector) -> bool:
    """Whether there are machines enough for it alone, the largest operators put on machines first."""
    where = form.placements[placement]
    for t in dict.fromkeys(where.tolist()):
        tier = sought.tiers[t]
        if tier.own or not math.isfinite(tier.machines):
            continue
        parts: list[tuple[dict[str, float], int]] = []
        for o in np.flatnonzero(where == t):
            node = sought.pipeline.nodes[sought.order[o]]
            size = {k: float(a) for k, a in node.needs.items() if k not in tier.elsewhere}
            if node.device == "gpu":
                size["gpu"] = max(size.get("gpu", 0.0), shares[o])
            parts.append((size, int(replicas[o])))
        kinds = {kind for size, _ in parts for kind in size}
        whole = {kind: sum(size.get(kind, 0.0) * count for size, count in parts) for kind in kinds}
        if any(amount > tier.machines * tier.room.get(kind, 0.0) * (1 + 1e-9) for kind, amount in whole.items()):
            return False
        if not _packs(tier, [size for size, count in parts for _ in range(count)]):
            return False
    return True


def _packs(tier: Tier, parts: Sequence[Mapping[str, float]]) -> bool:
    return _machines_for(tier, parts) <= tier.machines


def _machines_for(tier: Tier, parts: Sequence[Mapping[str, float]]) -> int:
    """How many machines these parts take, each put where it fits, the largest first; one too many where it is full."""
    machines: list[dict[str, float]] = []
    for part in sorted(parts, key=tier.part_of, reverse=True):
        room = (m for m in machines if tier.fits({k: m[k] + a - 1e-9 for k, a in part.items()}))
        if (into := next(room, None)) is None:
            machines.append(into := defaultdict(float))
        for kind, amount in part.items():
            into[kind] += amount
        if len(machines) > tier.machines:
            break
    return len(machines)


def _times(form: Rated, response_s: Sequence[float]) -> tuple[float, tuple[tuple[float, float, float | None], ...]]:
    """What is compared with the strictest limit, and per wish what its percentile is at most."""
    at = tuple((100.0 * part, most_s, None) for (part, _), most_s in zip(form.wishes, response_s, strict=True))
    scaled = [s * form.limit_s / limit if math.isfinite(limit) else s
              for s, (_, limit) in zip(response_s, form.wishes, strict=True)]  # fmt: skip
    return max(scaled), at


def shared_way(
    form: Rated, sought: Sought, found: Found, placement: int, sized: tuple[Mapping[str, int], Sequence[float]]
) -> Way:
    """The way of a plan that was found, with other numbers of replicas: none where those of others are used."""
    count, response_s = sized
    c = sought.configuration(dict(found.knobs))
    shares = np.array([found.share.get(name, 1.0) for name in sought.order])
    many = np.array([count[name] for name in sought.order])
    price = float(form.called(c)[placement]) + float(form.price[placement] @ (shares * many))
    return _made(form, sought, _Cut(c, placement, found.share, count, price, *_times(form, response_s), found.batches))


def _outcomes(sought: Sought, found: Measured) -> dict[str, dict[str, float]]:
    """Of each operator with outcomes, how often its answers came to each."""
    if not sought.exits or found.runs is None:
        return {}
    rows, counts = np.unique(~np.isnan(found.runs.seconds), axis=0, return_counts=True)
    seen: dict[str, Counter[str]] = {}
    for row, count in zip(rows, counts.tolist(), strict=True):
        way = sought.pipeline.way([name for name, there in zip(sought.order, row, strict=True) if there]) or {}
        for name, outcome in way.items():
            seen.setdefault(name, Counter())[outcome] += count
    made: dict[str, dict[str, float]] = {}
    for name, node in sought.pipeline.nodes.items():
        if node.outcomes is not None and name in seen:
            made[name] = {one: seen[name][one] / seen[name].total() for one in node.outcomes.names}
    return made


def _items(tier: Tier, name: str, size: Mapping[str, float], streams: int) -> list[Item]:
    """An operator's streams in bundles, each on one machine: single streams, of very many as few as fit together."""
    bundle = -(-streams // MOST_ITEMS)
    fits = [int(tier.room.get(k, 0.0) / a + 1e-9) for k, a in size.items() if a > 0 and k not in tier.elsewhere]
    bundle = max(1, min([bundle, *fits]))
    counts = [bundle] * (streams // bundle) + ([streams % bundle] if streams % bundle else [])
    return [Item(tier.name, name, {kind: n * amount for kind, amount in size.items()}, n) for n in counts]


def interval_of(found: Measured) -> tuple[float, float]:
    """Where the accuracy is; measurements of before say only its error."""
    if math.isfinite(found.low):
        return found.low, found.high
    return found.mean - 2.576 * found.se, found.mean + 2.576 * found.se


def _ends(form: BlackBox, each: np.ndarray, share: float, cases: Cases | None) -> tuple[float, float | None]:
    """What a percentile is at most, and at least."""
    most, least = form.bound(each, share, cases), form.bound(each, share, cases, least=True)
    assert most is not None
    return float(most[0]), None if least is None else float(least[0])


def _paid(sought: Sought, tiers: Sequence[Tier], cut: _Cut) -> float:
    """What is paid for a plan itself: its shares where shares are paid for, and the application's own device in use."""
    shares = sum(
        tier.price * cut.share.get(name, 0.0) * cut.count[name]
        for name, tier in zip(sought.order, tiers, strict=True)
        if not tier.own and tier.per == "gpu"
    )
    own = sum(
        tier.machine_price
        for tier in {here.name: here for name, here in zip(sought.order, tiers, strict=True)
                     if here.own and (here.per != "gpu" or sought.pipeline.nodes[name].device == "gpu")}.values()
    )  # fmt: skip
    return shares + own * sought.streams


def _undominated(ways: Sequence[Way], sought: Sought) -> list[Way]:
    """Without those that take nowhere less than another, on no fewer machines, and cost no less; cheapest first."""
    if not ways:
        return []
    names = [tier.name for tier in sought.tiers if not tier.own]
    kinds = sorted({kind for way in ways for item in way.items for kind in item.size})
    extra: list[Figure] = [name for name in sought.aim.of if name != "cost"]
    limits = sorted({key for way in ways for key in way.demand if key.startswith("profile.apis.")})
    first = 1 + len(names) * len(kinds)
    whole = list(filter(_is_whole, sought.tiers))
    machines = np.array([[_machines_used(tier, way) for tier in whole] for way in ways]).reshape(len(ways), len(whole))
    rows = np.zeros((len(ways), first + len(limits) + len(extra)))
    for w, way in enumerate(ways):
        rows[w, first : first + len(limits)] = [way.demand.get(key, 0.0) for key in limits]
        rows[w, 0] = way.price
        rows[w, rows.shape[1] - len(extra) :] = [way.figure(name) for name in extra]
        for item in way.items:
            for kind, amount in item.size.items():
                rows[w, 1 + names.index(item.tier) * len(kinds) + kinds.index(kind)] += amount
    latency = np.array([way.found.latency_s if way.found else 0.0 for way in ways])
    order = np.lexsort((latency, rows.sum(axis=1), rows[:, 0]))
    kept: list[int] = []
    for w in order:
        fewer = (rows[kept] <= rows[w] + 1e-12).all(axis=1) & (machines[kept] <= machines[w]).all(axis=1)
        if not fewer.any():
            kept.append(int(w))
    return sorted((ways[w] for w in kept), key=by_share)


def by_share(way: Way) -> float:
    """The price of its shares of machines, however those are paid for."""
    return way.price if way.found is None else way.found.price
