"""Candidate configurations of a query from measured ones: placed, with shares or replicas, own or shared.

A configuration that complies is cut down to the least that keeps the latency limit: shares of GPUs where queries come
as streams, replicas where they come at a rate (`stations`). Of all that comes of it those ways are left that no other
beats in everything that a packing counts.

**Replicas that several operators share.** Operators share where they are of one `model`, on one tier, with the same
share of a GPU, the same levels of the knobs that they read, the same needs and the same outcomes. Their queries join
one queue, so a station's load and spreads are those of all who come. Every query has to keep its limit. Replicas are
sized as those of one query are. From the ways that were chosen apart, and from those that have most in common, each
query in turn tries its other ways. Nothing proves the least: it is compared with what the queries cost apart.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
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
from hetplan.planner.front import unbeaten
from hetplan.problems.compound.pipeline_query import PipelineQuery
from hetplan.problems.compound.request import Item, MeasuredPlan, Query, Tier, Way
from hetplan.problems.compound.stations import (
    SLIP,
    PlacedStations,
    QueuedBox,
    Size,
    Stations,
    Vector,
    cheapest_replicas,
    cheapest_sizes,
    undominated_sizes,
)

__all__ = ["Seat", "SharedReplicas", "candidates_of", "price_of_shares", "share_replicas"]

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
MOST_TURNS = 4
"""So often each query in turn tries its other ways."""
MOST_CHOICES = 400
"""So many choices of ways are sized at most."""

Seat = tuple[str, str]
"""An application and its operator."""
Key = tuple[object, ...]
"""What operators have in common that share replicas."""
SURE_BY = 2.576
"""Standard errors on both sides of a mean that hold it with a confidence of 99%."""


def candidates_of(form: BlackBox, sought: PipelineQuery, most: int) -> list[Way]:
    """The candidate configurations of a query that comply, none dominated, the cheapest first.

    Where more is sought than the least cost, those of every configuration, spread over what they come to.
    """
    trusted = _configurations_to_trust(form, sought)
    if isinstance(form, QueuedBox):
        by_latency = "latency" in form.aim.of
        return (_ways_at_rate_by_latency if by_latency else _ways_at_rate)(form, sought, trusted, most)
    if form.aim.cheapest:
        return _cheapest_ways(form, sought, trusted, most)
    ways: list[Way] = []
    for c, found in trusted.items():
        if "latency" in form.aim.of:
            ways += _ways_by_latency(form, sought, c)
        else:
            ways += _cheapest_ways(form, sought, {c: found}, WAYS_EACH)
    return _spread(_drop_dominated(ways, sought), form.aim.of, most)


def _ways_by_latency(form: BlackBox, sought: PipelineQuery, c: int) -> list[Way]:
    """Every placement of a configuration in time, with shares that are each faster than all that cost less."""
    rows = []
    for placement in np.flatnonzero(form.at_full(form.journal[c]) <= form.limit_s * (1 + 1e-12)):
        shares, dollars, latency = traded(form, form.journal[c], int(placement))
        rows += [(int(placement), row, float(d), float(s)) for row, d, s in zip(shares, dollars, latency, strict=True)]
    kept = {number for number, _ in unbeaten([(n, (row[2], row[3])) for n, row in enumerate(rows)])}
    # Of each placement its fastest as well: another one's tier may be full.
    last = {row[0]: number for number, row in enumerate(rows)}
    return [
        way
        for n in sorted(kept | set(last.values()))
        for way in _way_of_stream(form, sought, c, rows[n][0], rows[n][1], rows[n][2])
    ]


def _spread(ways: list[Way], of: Sequence[Figure], most: int) -> list[Way]:
    """At most so many of them: the best by each figure, the others from the whole range; cheapest first."""
    if len(ways) <= most:
        return ways
    ends = {
        min(range(len(ways)), key=lambda w: (ways[w].figure(name), price_of_shares(ways[w]))) for name in (*of, "cost")
    }
    order = sorted(range(len(ways)), key=lambda w: (ways[w].figure(of[0]), price_of_shares(ways[w])))
    evenly = [order[round(k * (len(order) - 1) / max(1, most - 1))] for k in range(most)]
    chosen = [*sorted(ends), *(w for w in evenly if w not in ends)][:most]
    return sorted((ways[w] for w in chosen), key=price_of_shares)


def _cheapest_ways(form: BlackBox, sought: PipelineQuery, trusted: Mapping[int, Measured], most: int) -> list[Way]:
    """Minimal shares of these configurations, the cheapest first."""
    least = {c: least_shares(form, found) for c, found in trusted.items()}
    # From the lowest bound of a price up: what costs more than as many as are wanted is not worked out.
    bounds = {c: (np.where(form.price > 0, least[c], 0.0) * form.price).sum(axis=1) + form.called(c) for c in trusted}
    places = sorted(
        (float(bounds[c][p]), c, int(p)) for c in trusted for p in np.flatnonzero(np.isfinite(least[c]).all(axis=1))
    )
    ways: list[Way] = []
    for begin in range(0, len(places), AT_ONCE):
        if len(ways) >= most and price_of_shares(ways[most - 1]) < places[begin][0]:
            break
        for _, c, placement in places[begin : begin + AT_ONCE]:
            shares, dollars = antichain(form, trusted[c], placement, least[c][placement])
            for row, price in zip(shares[:most], dollars[:most], strict=True):
                ways += _way_of_stream(form, sought, c, placement, row, float(price))
        ways = _drop_dominated(ways, sought)
    return ways[:most]


def _configurations_to_trust(form: BlackBox, sought: PipelineQuery) -> dict[int, Measured]:
    """Configurations that pass and have a placement in time; doubtful ones only where no other is.

    The cheapest of many that the sign of a doubtful mean let through is likely one of those let through wrongly: an
    undecided one has to lie on the right side by its standard error.
    """
    passing = {
        c: found
        for c, found in form.journal.items()
        if found.passes and float(form.at_full(found).min()) <= form.limit_s * (1 + 1e-12)
        if found.mean == (seen := sought.accuracy_in_service(form, found, found.mean))
        or form.orient(seen) >= form.orient(form.target)
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

    `price` is what shares come to (for one stream), `at` as in `MeasuredPlan`.
    """

    configuration: int
    placement: int
    share: Mapping[str, float]
    count: Mapping[str, int]
    price: float
    latency_s: float
    at: tuple[tuple[float, float, float | None], ...]
    batches: Mapping[str, int] = field(default_factory=dict)


def _way_of_stream(
    form: BlackBox, sought: PipelineQuery, c: int, placement: int, shares: np.ndarray, price: float
) -> list[Way]:
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
    at = []
    for part, _ in form.wishes:
        most_s, least_s = form.bound(each, part, rows.cases), form.bound(each, part, rows.cases, least=True)
        assert most_s is not None
        at.append((100.0 * part, float(most_s[0]), None if least_s is None else float(least_s[0])))
    latency_s = float(form.judged(each, rows.cases)[0])
    count = {name: sought.streams * at_once for name, at_once in zip(sought.order, sought.at_once, strict=True)}
    return _way_of_cut(form, sought, _Cut(c, placement, share, count, price, latency_s, tuple(at)))


def _way_of_cut(form: BlackBox, sought: PipelineQuery, cut: _Cut) -> list[Way]:
    """The way of a cut, with what it takes and costs; none where an operator fits on no machine of its tier."""
    found, placement = form.journal[cut.configuration], cut.placement
    tiers = [sought.tiers[t] for t in form.placements[placement]]
    items: list[Item] = []
    demand: Counter[str] = Counter()
    for name, tier in zip(sought.order, tiers, strict=True):
        size = _needs_of(sought, name, cut.share.get(name))
        # What an operator needs, it does not need where it is a call.
        demand.update({} if tier.name in sought.apis else {k: a * cut.count[name] for k, a in size.items()})
        items += [] if tier.own else _items(tier, name, size, cut.count[name])
    rooms = {tier.name: tier for tier in tiers}
    if not all(rooms[item.tier].fits(item.size) for item in items):
        return []
    knobs = sought.knobs(cut.configuration)
    often = dict(zip(sought.order, form.made(found).tolist(), strict=True))
    demand.update(sought.api_use(knobs, often))
    # Measurements of before say only the error of an accuracy.
    low, high = found.low, found.high
    if not math.isfinite(low):
        low, high = found.mean - SURE_BY * found.se, found.mean + SURE_BY * found.se
    made = MeasuredPlan(
        knobs=knobs, placement={n: t.name for n, t in zip(sought.order, tiers, strict=True)}, share=cut.share,
        latency_s=cut.latency_s, accuracy=sought.accuracy_in_service(form, found, found.mean), se=found.se,
        samples=found.samples, verdict=str(found.verdict), price=cut.price, streams=sought.streams,
        interval=(sought.accuracy_in_service(form, found, low), sought.accuracy_in_service(form, found, high)),
        top=sought.span[0 if sought.lower else 1],
        outcomes=_outcome_shares(sought, found), per_query=sought.api_price(knobs, often),
        at=cut.at, replicas={} if sought.rate_qps is None else cut.count, batches=cut.batches,
    )  # fmt: skip
    paid = _price_per_hour(sought, tiers, cut) + float(form.called(cut.configuration)[placement]) * sought.streams
    return [Way(demand, tuple(items), price=paid, weight=sought.app.weight(), found=made)]


def _needs_of(sought: PipelineQuery, name: str, share: float | None) -> dict[str, float]:
    """What an operator takes of a machine, with its share of a GPU if it has one."""
    size = {kind: float(amount) for kind, amount in sought.pipeline.nodes[name].needs.items()}
    return size if share is None else {**size, "gpu": max(size.get("gpu", 0.0), share)}


def _ways_at_rate(form: QueuedBox, sought: PipelineQuery, trusted: Mapping[int, Measured], most: int) -> list[Way]:
    """The cheapest sizes that carry the rate, of all configurations, or of each where more is sought than the cost."""
    each = [list(trusted.values())] if form.aim.cheapest else [[found] for found in trusted.values()]
    ways: list[Way] = []
    several = min(most, form.sizes) if form.aim.cheapest else WAYS_EACH
    fits = partial(_has_machines_for, form, sought)
    without = _placements_without_scarce(form, sought)
    for founds in each:
        found = _cheapest_sizes(form, founds, several, fits=fits) or _cheapest_sizes(form, founds, several)
        # What leaves alone what there is little of is wanted where others need it.
        spares = min(SPARE, form.sizes - 1)
        spare = [_cheapest_sizes(form, founds, spares, only=only, fits=fits) for only in without] if spares else []
        own = [way for one in found for way in _way_of_size(form, sought, one)]
        fewer = _sizes_on_fewer_machines(form, sought, founds, own)
        for one in dict.fromkeys((*found, *(one for these in spare for one in these), *fewer)):
            ways += _way_of_size(form, sought, one)
    ways = _drop_dominated(ways, sought)
    return ways[:most] if form.aim.cheapest else _spread(ways, form.aim.of, most)


def _sizes_on_fewer_machines(
    form: QueuedBox, sought: PipelineQuery, founds: Sequence[Measured], ways: Sequence[Way]
) -> list[Size]:
    """Where machines are paid whole, the cheapest sizes on ever fewer of them.

    What costs least by its shares may pack badly, and what is dearer by its shares pack on a machine less.
    """
    sized: list[Size] = []
    for tier in filter(_is_paid_whole, sought.tiers):
        most = max((_machines_of_way(tier, way) for way in ways), default=0)
        for fewer in range(most - 1, max(most - 1 - FEWER, 0), -1):
            tiers = tuple(replace(one, machines=float(fewer)) if one is tier else one for one in sought.tiers)
            on_these = _cheapest_sizes(
                form, founds, EACH, fits=partial(_has_machines_for, form, replace(sought, tiers=tiers))
            )
            if not on_these:
                break
            sized += on_these
    return sized


def _machines_of_way(tier: Tier, way: Way) -> int:
    """How many machines of a tier a way takes alone."""
    return _count_machines(tier, [item.size for item in way.items if item.tier == tier.name])


def _is_paid_whole(tier: Tier) -> bool:
    """Whether its machines are paid whole, however much of them is used."""
    return not tier.own and tier.whole_price > 0


def _cheapest_sizes(form: QueuedBox, founds: Sequence[Measured], most: int, **how: Any) -> list[Size]:
    """The cheapest sizes; where nothing is played, such as are in time with more queries worked out, too."""
    if not form.unplayed:
        return cheapest_sizes(form, founds, most, **how)
    again: list[Size] = []
    for part in TIGHTER:
        made = cheapest_sizes(replace(form, slack=part * form.slack), founds, most, **how)
        again = _work_out_finely(form, {one.configuration: one for one in founds}, made) or again
        if not made or again[0].judged_s <= form.limit_s * (1 + SLIP):
            break
    return again


def _ways_at_rate_by_latency(
    form: QueuedBox, sought: PipelineQuery, trusted: Mapping[int, Measured], most: int
) -> list[Way]:
    """Sizes that carry the rate, each faster than all that cost less; where quality is sought, than all as good."""
    fits = partial(_has_machines_for, form, sought)
    together = [list(trusted.values())]
    if "quality" in form.aim.of:
        best = sorted(
            trusted.values(), key=lambda found: -form.orient(sought.accuracy_in_service(form, found, found.mean))
        )
        together = [
            list(same)
            for _, same in groupby(best, key=lambda found: sought.accuracy_in_service(form, found, found.mean))
        ]
    made: list[Size] = []
    for only in (None, *_placements_without_scarce(form, sought)):
        known: list[tuple[float, float]] = []
        for founds in together:
            here = undominated_sizes(form, founds, fits=fits, only=only, known=known)
            known += [(one.cost, one.judged_s) for one in here]
            made += here
    # What no budget pays for says how much is missing; what there are no machines for, how many are.
    made = (
        made
        or cheapest_sizes(form, list(trusted.values()), SIZES, fits=fits)
        or cheapest_sizes(form, list(trusted.values()), SIZES)
    )
    ways = [
        way for one in _work_out_finely(form, trusted, dict.fromkeys(made)) for way in _way_of_size(form, sought, one)
    ]
    return _spread(_drop_dominated(ways, sought), form.aim.of, most)


def _work_out_finely(form: QueuedBox, trusted: Mapping[int, Measured], made: Collection[Size]) -> list[Size]:
    """The same sizes with more queries worked out: the best of many by a few is likely one by which those few are off.

    Those that are late then are left out, if others are not.
    """
    asked = sorted({one.configuration for one in made})
    fine = {c: Stations(replace(form, fine=True), trusted[c]) for c in asked}
    again = [
        PlacedStations(fine[one.configuration], one.placement, np.array(one.shares)).size(np.array(one.replicas, float))
        for one in made
    ]
    in_time = [one for one in again if one.judged_s <= form.limit_s * (1 + SLIP)]
    return in_time or again


def _placements_without_scarce(form: QueuedBox, sought: PipelineQuery) -> list[set[int]]:
    """Placements that leave alone a tier of which there are only so many machines: each of these, then all of them."""
    scarce = np.array([not tier.own and math.isfinite(tier.machines) for tier in sought.tiers])
    without = [set(np.flatnonzero(~(form.placements == t).any(axis=1)).tolist()) for t in np.flatnonzero(scarce)]
    return without + ([set(np.flatnonzero(~scarce[form.placements].any(axis=1)).tolist())] if scarce.any() else [])


def _way_of_size(form: QueuedBox, sought: PipelineQuery, one: Size) -> list[Way]:
    """The way of a size, if each of its operators fits on a machine."""
    tiers = [sought.tiers[t] for t in form.placements[one.placement]]
    shared = [sought.pipeline.nodes[name].device == "gpu" and t.name not in sought.apis
              for name, t in zip(sought.order, tiers, strict=True)]  # fmt: skip
    share = {n: r for n, r, there in zip(sought.order, one.shares, shared, strict=True) if there}
    count = dict(zip(sought.order, one.replicas, strict=True))
    many = {name: size for name, size in zip(sought.order, one.batches, strict=True) if size > 1}
    at = tuple((100.0 * part, most_s, None) for (part, _), most_s in zip(form.wishes, one.response_s, strict=True))
    cut = _Cut(one.configuration, one.placement, share, count, one.cost, one.judged_s, at, many)
    return _way_of_cut(form, sought, cut)


def _has_machines_for(form: QueuedBox, sought: PipelineQuery, placement: int, shares: Vector, replicas: Vector) -> bool:
    """Whether there are machines enough for it alone, the largest operators put on machines first."""
    where = form.placements[placement]
    for t in dict.fromkeys(where.tolist()):
        tier = sought.tiers[t]
        if tier.own or not math.isfinite(tier.machines):
            continue
        parts: list[tuple[dict[str, float], int]] = []
        for o in np.flatnonzero(where == t):
            name = sought.order[o]
            share = float(shares[o]) if sought.pipeline.nodes[name].device == "gpu" else None
            size = {k: a for k, a in _needs_of(sought, name, share).items() if k not in tier.elsewhere}
            parts.append((size, int(replicas[o])))
        kinds = {kind for size, _ in parts for kind in size}
        whole = {kind: sum(size.get(kind, 0.0) * count for size, count in parts) for kind in kinds}
        if any(amount > tier.machines * tier.room.get(kind, 0.0) * (1 + 1e-9) for kind, amount in whole.items()):
            return False
        if _count_machines(tier, [size for size, count in parts for _ in range(count)]) > tier.machines:
            return False
    return True


def _count_machines(tier: Tier, parts: Sequence[Mapping[str, float]]) -> int:
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


def _outcome_shares(sought: PipelineQuery, found: Measured) -> dict[str, dict[str, float]]:
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


def _price_per_hour(sought: PipelineQuery, tiers: Sequence[Tier], cut: _Cut) -> float:
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


def _drop_dominated(ways: Sequence[Way], sought: PipelineQuery) -> list[Way]:
    """Without those that take nowhere less than another, on no fewer machines, and cost no less; cheapest first."""
    if not ways:
        return []
    names = [tier.name for tier in sought.tiers if not tier.own]
    kinds = sorted({kind for way in ways for item in way.items for kind in item.size})
    extra: list[Figure] = [name for name in sought.aim.of if name != "cost"]
    limits = sorted({key for way in ways for key in way.demand if key.startswith("profile.apis.")})
    first = 1 + len(names) * len(kinds)
    whole = list(filter(_is_paid_whole, sought.tiers))
    machines = np.array([[_machines_of_way(tier, way) for tier in whole] for way in ways]).reshape(
        len(ways), len(whole)
    )
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
    return sorted((ways[w] for w in kept), key=price_of_shares)


def price_of_shares(way: Way) -> float:
    """The price of its shares of machines, however those are paid for."""
    return way.price if way.found is None else way.found.price


@dataclass(frozen=True)
class SharedReplicas:
    """Queries whose operators share: each has one way, and `owner` says whose replicas an operator goes to."""

    queries: tuple[Query, ...]
    owner: Mapping[Seat, Seat]


@dataclass(frozen=True)
class _Caller:
    """A query with one of its ways: its stations, and what operators have to have in common with each to share it."""

    sought: PipelineQuery
    form: QueuedBox
    found: MeasuredPlan
    placed: PlacedStations
    keys: tuple[Key, ...]

    @classmethod
    def of(cls, sought: PipelineQuery, form: QueuedBox, found: MeasuredPlan) -> _Caller:
        """The form's numbers of a way that was found."""
        measured = form.journal[sought.configuration(dict(found.knobs))]
        placement = sought.placement(found.placement, form.placements)
        shares = np.array([found.share.get(name, 1.0) for name in sought.order])
        placed = PlacedStations(Stations(form, measured), placement, shares)
        return cls(sought, form, found, placed, tuple(_key_of(sought, found, name) for name in sought.order))


def _key_of(sought: PipelineQuery, found: MeasuredPlan, name: str) -> Key:
    """What operators have in common that share replicas; one without a model shares with nobody."""
    node = sought.pipeline.nodes[name]
    if node.model is None:
        return sought.app_id, name
    knobs = tuple(sorted((knob, repr(found.knobs[knob])) for knob in node.reads))
    needs = tuple(sorted(node.needs.items()))
    form = node.device, node.share_law, needs, node.batches, None if node.outcomes is None else node.outcomes.names
    return node.model, found.placement[name], found.share.get(name), knobs, found.batches.get(name), form


class _SharedStations:
    """Queries on their stations, some of them shared: replicas by station, and whether all are in time."""

    def __init__(self, callers: Sequence[_Caller]) -> None:
        self.callers = callers
        seats = [(c, o) for c, one in enumerate(callers) for o in np.flatnonzero(one.placed.is_station).tolist()]
        self.keys = list(dict.fromkeys(callers[c].keys[o] for c, o in seats))
        place = {key: s for s, key in enumerate(self.keys)}
        self.station = [np.array([place.get(key, 0) for key in one.keys]) for one in callers]
        self.members = Counter(callers[c].keys[o] for c, o in seats)
        self.price, room = np.zeros(len(self.keys)), np.full(len(self.keys), np.inf)
        flows = np.zeros((4, len(self.keys)))
        own = [np.where(one.placed.is_station, one.placed.flows, 0.0) for one in callers]
        for c, o in seats:
            s, placed = self.station[c][o], callers[c].placed
            self.price[s] = placed.costs[o]
            flows[:, s] += own[c][:, o]
            room[s] = min(room[s], placed.stations.work_per_replica[o])
        self.placed = [
            replace(one.placed, others=flows[:, at] - mine)
            for one, at, mine in zip(callers, self.station, own, strict=True)
        ]
        self.fewest = np.floor(flows[1] / room + 1e-9) + 1.0
        self.seen: dict[bytes, float] = {}

    def of_each(self, counts: Vector) -> list[Vector]:
        """The replicas of each query's operators, by those of all stations."""
        return [np.where(one.is_station, counts[at], 1.0) for one, at in zip(self.placed, self.station, strict=True)]

    def excess(self, counts: Vector) -> float:
        """By how much the queries exceed their limits, together; 0 where all are in time."""
        key = counts.tobytes()
        if key not in self.seen:
            worst = [
                float(one.judged_s(replicas[None, :])[0]) / one.stations.limit
                for one, replicas in zip(self.placed, self.of_each(counts), strict=True)
            ]
            self.seen[key] = sum(max(0.0, each - 1.0 - SLIP) for each in worst)
        return self.seen[key]

    def replicas(self) -> Vector | None:
        """The cheapest replicas of every station at which all are in time, if any are found."""

        def judge(rows: Vector) -> Vector:
            return np.array([self.excess(row) for row in rows])

        most = np.full(self.fewest.size, np.inf)
        return cheapest_replicas(self.fewest, most, self.price, judge, 0.0, at_once=1)

    def cost(self, counts: Vector) -> float:
        """What they cost, calls of APIs included."""
        calls = sum(float(one.cost(np.zeros(one.is_station.size))) for one in self.placed)
        return calls + float(self.price @ counts)


_Choice = tuple[float, _SharedStations, Vector]
_SizeWays = Callable[[Sequence[MeasuredPlan]], _Choice | None]


def share_replicas(
    forms: Sequence[tuple[PipelineQuery, BlackBox | None]],
    queries: Sequence[Query],
    chosen: Mapping[str, Way],
    *,
    cheapest: bool,
) -> SharedReplicas | None:
    """The chosen ways with their replicas shared; None where no two operators share, or there is no way in time.

    `cheapest`: a query may take another of its ways; else only one of the same knobs.
    """
    mine = [(sought, form) for sought, form in forms if sought.app_id in chosen and sought.rate_qps]
    rated = [(sought, form) for sought, form in mine if isinstance(form, QueuedBox)]
    ways = {query.app_id: query.ways for query in queries}
    picked: list[MeasuredPlan] = [found for sought, _ in rated if (found := chosen[sought.app_id].found) is not None]
    models = Counter(node.model for sought, _ in rated for node in sought.pipeline.nodes.values())
    if len(picked) < len(rated) or not any(count > 1 for model, count in models.items() if model is not None):
        return None
    made: dict[tuple[int, int], _Caller] = {}
    seen: dict[tuple[int, ...], _Choice | None] = {}

    def size(founds: Sequence[MeasuredPlan]) -> _Choice | None:
        key = tuple(map(id, founds))
        if key not in seen and len(seen) < MOST_CHOICES:
            for i, found in enumerate(founds):
                if (i, id(found)) not in made:
                    made[i, id(found)] = _Caller.of(*rated[i], found)
            together = _SharedStations([made[i, id(found)] for i, found in enumerate(founds)])
            counts = together.replicas()
            seen[key] = None if counts is None else (together.cost(counts), together, counts)
        return seen.get(key)

    choices = [
        [way.found for way in ways[sought.app_id] if way.found and (cheapest or way.found.knobs == one.knobs)]
        for (sought, _), one in zip(rated, picked, strict=True)
    ]
    best: _Choice | None = None
    for begin in [picked, *_ways_most_alike([sought for sought, _ in rated], choices)]:
        best = _improve(begin, choices, size, best)
    if best is None or not any(count > 1 for count in best[1].members.values()):
        return None
    return _one_way_each(best[1], best[2], queries, chosen)


def _ways_most_alike(
    seeks: Sequence[PipelineQuery], choices: Sequence[Sequence[MeasuredPlan]]
) -> list[list[MeasuredPlan]]:
    """For every way of a query the ways of the others that share most with it: where to begin from."""
    keys = [
        [{_key_of(sought, found, name) for name in sought.order} for found in founds]
        for sought, founds in zip(seeks, choices, strict=True)
    ]
    paired = list(zip(choices, keys, strict=True))

    def most_like(one: set[Key], founds: Sequence[MeasuredPlan], of: Sequence[set[Key]]) -> MeasuredPlan:
        return founds[max(range(len(founds)), key=lambda k: (len(of[k] & one), -k))]

    return [[most_like(one, *other) for other in paired] for mine in keys for one in mine]


def _improve(
    begin: Sequence[MeasuredPlan], choices: Sequence[Sequence[MeasuredPlan]], size: _SizeWays, best: _Choice | None
) -> _Choice | None:
    """The best known, or what comes of these ways where each query in turn takes the one that costs least."""
    picked, here = list(begin), size(begin)
    for _ in range(MOST_TURNS):
        before = here
        for i, founds in enumerate(choices):
            for found in founds:
                other = None if found is picked[i] else size([*picked[:i], found, *picked[i + 1 :]])
                if other is not None and (here is None or other[0] < here[0] - 1e-9):
                    here, picked = other, [*picked[:i], found, *picked[i + 1 :]]
        if here is before:
            break
    return here if best is None or (here is not None and here[0] < best[0] - 1e-9) else best


def _one_way_each(
    together: _SharedStations, counts: Vector, queries: Sequence[Query], chosen: Mapping[str, Way]
) -> SharedReplicas:
    """One way per query: the first operator of a station has its replicas, the others go there."""
    first: dict[Key, Seat] = {}
    owner: dict[Seat, Seat] = {}
    ways: dict[str, Way] = dict(chosen)
    for one, placed, replicas in zip(together.callers, together.placed, together.of_each(counts), strict=True):
        app, mine = one.sought.app_id, np.zeros(replicas.size, dtype=int)
        for o in np.flatnonzero(placed.is_station).tolist():
            seat = app, one.sought.order[o]
            there = first.setdefault(one.keys[o], seat)
            mine[o] = replicas[o] if there == seat else 0
            if together.members[one.keys[o]] > 1:
                owner[seat] = there
        size = replace(placed.size(replicas), replicas=tuple(mine.tolist()), cost=float(placed.cost(mine)))
        (ways[app],) = _way_of_size(one.form, one.sought, size)
    named = [replace(query, ways=(ways[query.app_id],) if query.app_id in ways else ()) for query in queries]
    return SharedReplicas(tuple(named), owner)
