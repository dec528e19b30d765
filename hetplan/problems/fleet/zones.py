"""Uses that zones with equal offers are interchangeable, to find one application's cheapest machines faster.

**A program** ten times as quick as that of all offers, with the letters of the lists below::

    min  sum_zh cheap_h v_zh + sum_h (firm_h - cheap_h) D_h      v, D whole;  V_h = sum_z v_zh
    w V         >= max(rate, keep rate Z / (Z - 1))               nothing failed; what follows from the last rows
    w D         >= keep rate                                      all spot gone
    w (V - v_z) >= keep rate                                      zone z lost, every z
    V_h - D_h   <= spot machines there are,  D_h <= V_h           the rest is spot
    w_1 v_z     >= w_1 v_z+1                                      zones may change places: the fullest is the first

Where more room is needed, so many machines are worth one (`FleetRequest.rooms`), and w is so much less.

**Lists**, where no program is asked. Where zones sell the same at the same prices, and at most one of them or all spot
machines are lost, only these count:

=======  ====================  =======================================================================================
letter   in the code           meaning
=======  ====================  =======================================================================================
V_h      `Listed.totals`       machines of a hardware in all zones; v_zh those in zone z
D_h      `Listed.firm`         those of them that are not spot
w_kh     `rows`                rows of the part: machines m carry a rate where sum_h w_kh m_h >= rate, for every k
Z        `Listed.zones`        how many zones there are
=======  ====================  =======================================================================================

::

    min  sum_h cheap_h V_h + (firm_h - cheap_h) D_h        D <= V, cheap_h: the lower price of spot and of firm machines
    w V          >= rate                                    nothing failed
    w D          >= keep rate                               all spot gone
    w (V - v_z)  >= keep rate                               zone z lost, every z;  so  w V >= keep rate Z / (Z - 1)

All V in a box that keep the first row and what follows from the last, and the least D, are listed once for a rate. At
prices, pairs are looked at from the cheapest on. The first whose V can be shared out over zones is the cheapest of all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import permutations
from math import comb, prod

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.fleet_part import Cone
from hetplan.planner.forms.milp import Builder, Milp
from hetplan.planner.request import Offer
from hetplan.problems.fleet.request import FleetRequest

__all__ = [
    "Box",
    "Counts",
    "Floats",
    "ListedMachines",
    "Lists",
    "Places",
    "ZoneProgram",
    "mosts",
    "to_whole",
    "zone_classes",
    "zone_orders",
    "zone_program",
]

Index = NDArray[np.int64]
MOST_ZONES = 4
"""Of more zones that are alike, only turns are tried, not every order."""
MOST_ORDERS = 192
"""Groups of zones change places together until there are so many orders; further groups stay as they are. Each order
is a copy of every choice of machines; one region's 4 alike zones beside three pairs (24 x 2 x 2 x 2) fit."""


def to_whole(counts: Sequence[float] | Floats) -> Counts:
    """Counts of machines that are whole but for rounding."""
    return tuple(int(n) for n in np.rint(counts))


def _zones(wish: FleetRequest) -> list[list[Index]]:
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


def zone_orders(wish: FleetRequest) -> list[Index]:
    """Orders of the offers by which machines may change zones, and everything that is asked stays true."""
    orders = [np.arange(len(wish.offers), dtype=np.int64)]
    for group in _zones(wish):
        count = len(group)
        turns = [tuple((first + step) % count for step in range(count)) for first in range(count)]
        ways = list(permutations(range(count))) if count <= MOST_ZONES else turns
        if len(orders) * len(ways) > MOST_ORDERS:
            continue
        found = []
        for order in orders:
            for to in ways:
                changed = order.copy()
                for zone, other in zip(group, to, strict=True):
                    changed[zone] = order[group[other]]
                found.append(changed)
        orders = found
    return orders


def zone_classes(wish: FleetRequest) -> Index:
    """For each offer the number of its class: offers that differ by a zone alone, among zones that are alike."""
    classes, number = np.zeros(len(wish.offers), dtype=np.int64), 0
    for group in _zones(wish):
        for place in range(len(group[0])):
            for zone in group:
                classes[zone[place]] = number
            number += 1
    return classes


Floats = NDArray[np.float64]
Counts = tuple[int, ...]
"""Whole machines, of each hardware or offer."""


@dataclass(frozen=True)
class Places:
    """Where the offers of a part are: by hardware and zone, those that are not spot and those that are (-1: none)."""

    firm: NDArray[np.int64]
    spot: NDArray[np.int64]
    zone_lost: float
    """The share of the rate that is kept when a zone is lost."""
    spot_gone: float

    @classmethod
    def of(cls, wish: FleetRequest, hardware: Sequence[str]) -> Places | None:
        """None where zones are not alike, something else may fail, or nothing is sold."""
        mine = [n for n, offer in enumerate(wish.offers) if offer.machine in hardware]
        if not mine:
            return None
        zones = list(dict.fromkeys(wish.offers[n].zone for n in mine))
        found = {spot: np.full((len(hardware), len(zones)), -1, dtype=np.int64) for spot in (False, True)}
        for n in mine:
            offer = wish.offers[n]
            place = hardware.index(offer.machine), zones.index(offer.zone)
            if found[offer.spot][place] >= 0:
                return None
            found[offer.spot][place] = n
        classes = np.append(zone_classes(wish), -1)  # the last is that of no offer
        if any((classes[kind] != classes[kind][:, :1]).any() for kind in found.values()):
            return None
        keep = {"zone": 0.0, "spot": 0.0}
        lost = {frozenset(wish.offers[n].name for n in mine if wish.offers[n].zone == zone): "zone" for zone in zones}
        lost[frozenset(wish.offers[n].name for n in mine if wish.offers[n].spot)] = "spot"
        for situation in wish.situations[1:]:
            gone = frozenset(wish.offers[n].name for n in mine) & situation.gone
            if situation.hardware is not None or (gone and gone not in lost):
                return None
            if gone:
                keep[lost[gone]] = situation.keep
        if len(zones) < 2 and keep["zone"]:
            return None
        return cls(found[False], found[True], keep["zone"], keep["spot"])

    @property
    def zones(self) -> int:
        """How many there are."""
        return int(self.firm.shape[1])

    def of_kinds(self, values: Floats | Sequence[int], missing: float) -> tuple[Floats, Floats]:
        """Values of offers, by hardware and zone: of those that are not spot, and of spot."""
        every = np.append(np.array(values, dtype=float), missing)
        return every[self.firm], every[self.spot]

    def machines_by_zone(self, shared: Floats, firm: Floats, stock: Sequence[int], *, evenly: bool) -> Counts | None:
        """Whole machines per offer from counts over equal zones; None where stock is too low."""
        in_firm, in_spot = self.of_kinds(stock, 0.0)
        kept = np.maximum(shared - in_spot, 0.0)
        most = np.minimum(shared, in_firm)
        if (kept > most).any() or (kept.sum(axis=1) > firm).any() or (most.sum(axis=1) < firm).any():
            return None
        for place, wanted in enumerate(firm):
            while kept[place].sum() < wanted:
                left = most[place] - kept[place]
                kept[place, np.argmax(left if evenly else left > 0)] += 1.0
        found = np.zeros(len(stock) + 1, dtype=np.int64)
        found[self.firm] += kept.astype(np.int64)
        found[self.spot] += (shared - kept).astype(np.int64)
        return tuple(int(n) for n in found[:-1])


@dataclass(frozen=True)
class ZoneProgram:
    """The program, and how its answer becomes machines per offer."""

    form: Milp
    places: Places
    dear: NDArray[np.bool_]
    """Of which hardware spot machines are the cheaper ones."""
    stock: Sequence[int]

    def machines(self, point: Floats) -> Counts | None:
        """Machines per offer; None: stock is in the way of spot machines in a zone."""
        shape = (self.places.zones + 1, len(self.dear))
        counts = np.rint(point[: shape[0] * shape[1]]).reshape(shape)
        shared = counts[:-1].T
        return self.places.machines_by_zone(
            shared, np.where(self.dear, counts[-1], shared.sum(axis=1)), self.stock, evenly=True
        )


def zone_program(places: Places, rows: Floats, rate: float, prices: Floats, stock: Sequence[int]) -> ZoneProgram | None:
    """The program of a part with these rows over equal zones; None where prices differ between zones."""
    at_firm, at_spot = places.of_kinds(prices, np.inf)
    if any((kind != kind[:, :1]).any() for kind in (at_firm, at_spot)):
        return None
    firm, spot, zones = at_firm[:, 0], at_spot[:, 0], range(places.zones)
    in_firm, in_spot = places.of_kinds(stock, 0.0)
    cheap, sold = np.minimum(firm, spot), np.isfinite(firm)
    cheap = np.where(np.isfinite(cheap), cheap, 0.0)
    kinds, names = [str(h) for h in range(len(firm))], [str(k) for k in range(len(rows))]
    lost = rate * places.zone_lost

    m = Builder("min", name="machines in zones that are alike")
    v = [m.columns(f"in {z}", kinds, cost=cheap, upper=(in_firm + in_spot)[:, z], whole=True) for z in zones]
    more = np.where(sold, firm - cheap, 0.0)
    firms = m.columns("firm", kinds, cost=more, upper=np.where(sold, in_firm.sum(axis=1), 0.0), whole=True)

    enough = m.rows("all", names, lower=max(rate, lost * places.zones / max(places.zones - 1, 1)))
    without_spot = m.rows("no spot", names, lower=rate * places.spot_gone)
    m.add(without_spot[:, None], firms, rows)
    within, beyond = m.rows("firm", kinds, lower=0.0), m.rows("spot", kinds, upper=in_spot.sum(axis=1))
    m.add(within, firms, -1.0)
    m.add(beyond, firms, -1.0)
    for mine in v:
        m.add(enough[:, None], mine, rows)
        m.add(within, mine, 1.0)
        m.add(beyond, mine, 1.0)
    for z in zones if lost > 0 else ():
        left = m.rows(f"without {z}", names, lower=lost)
        for other in (o for o in zones if o != z):
            m.add(left[:, None], v[other], rows)
    order = m.rows("fuller", [str(z) for z in zones[1:]], lower=0.0)
    for row, fuller, emptier in zip(order, v, v[1:], strict=False):
        m.add(row, fuller, rows[0])
        m.add(row, emptier, -rows[0])
    return ZoneProgram(m.build(), places, np.asarray(firm > spot), stock)


Rooms = tuple[tuple[str, float], ...]


LONGEST = 200_000
"""Longer lists are not made: a program is asked."""
MOST_KEPT = 32
"""Lists of so many rates are kept of an application; those of others are made anew."""
SPLITS = 3000
"""So many ways to share machines out over zones are tried; beyond, a program is asked."""
SAME = 1e-9
NEAR, OTHERS = 1.01, 3
"""Beside the cheapest machines some are found that cost hardly more: whole fleets fit together by them."""


@dataclass
class Box:
    """All counts of machines up to some, and what they carry by the rows: lists of all rates are made of them."""

    rows: Floats
    most: Floats
    counts: Floats = field(init=False)
    carried: Floats = field(init=False)

    def __post_init__(self) -> None:
        """The counts."""
        self.counts = np.indices([int(n) + 1 for n in self.most]).reshape(len(self.most), -1).T.astype(float)
        self.carried = _carried(self.rows, self.counts)

    def of(self, most: Floats, rate: float) -> Floats:
        """Those up to so many that carry a rate."""
        enough = self.counts[self.carried >= rate * (1.0 - SAME)]
        return np.asarray(enough[(enough <= most).all(axis=1)], dtype=float)


def _carried(rows: Floats, machines: Floats) -> Floats:
    """The most that machines carry, by the rows."""
    return np.asarray((machines @ rows.T).min(axis=1, initial=np.inf), dtype=float)


@dataclass
class ListedMachines:
    """All machines that keep a rate, as far as rows say, and the least that are not spot."""

    places: Places
    box: Box
    rate: float
    totals: Floats = field(init=False)
    firm: Floats = field(init=False)
    shared: dict[Counts, Floats | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """The two lists."""
        zones, lost, kept = self.places.zones, self.rate * self.places.zone_lost, self.rate * self.places.spot_gone
        every, gone = mosts(self.places, self.rows, self.rate)
        self.totals = self.box.of(every, max(self.rate, lost * zones / max(zones - 1, 1)))
        firm = self.box.of(gone, kept)
        fewer = [(firm[:, h] > 0) & (_carried(self.rows, firm - step) >= kept * (1.0 - SAME))
                 for h, step in enumerate(np.eye(len(gone)))]  # fmt: skip
        self.firm = firm[~np.any(fewer, axis=0)]

    @property
    def rows(self) -> Floats:
        """Rows of the part."""
        return self.box.rows

    def cheapest(self, prices: Floats, stock: Sequence[int]) -> tuple[float, list[Counts]] | None:
        """The least cost and machines per offer that have it, and some that cost hardly more; None: ask a program.

        Where there are no machines the cost is infinite.
        """
        at_firm, at_spot = self.places.of_kinds(prices, np.inf)
        if any((kind != kind[:, :1]).any() for kind in (at_firm, at_spot)):
            return None
        firm, cheap = at_firm[:, 0], np.minimum(at_firm[:, 0], at_spot[:, 0])
        more = self.firm @ np.where(np.isfinite(firm), firm - cheap, 0.0)
        order = np.argsort(more, kind="stable")
        try:
            found = self._first(self.totals @ cheap, self.firm[order], more[order])
        except _TooMany:
            return None
        placed = list[Counts]()
        for _, shared, kept in found[:OTHERS]:
            firms = np.where(firm <= at_spot[:, 0], shared.sum(axis=1), kept)
            ways = [self.places.machines_by_zone(shared, firms, stock, evenly=evenly) for evenly in (True, False)]
            if ways[0] is None and not placed:
                return None
            placed += [way for way in ways if way is not None and way not in placed]
        return (found[0][0], placed) if found else (np.inf, [])

    def _first(self, pay: Floats, firms: Floats, more: Floats) -> list[tuple[float, Floats, Floats]]:
        """Costs, V by zone, and D, the cheapest first, where V and D cost so much; D are in the order of it."""
        found, best = list[tuple[float, Floats, Floats]](), np.inf
        for looked, at in enumerate(np.argsort(pay, kind="stable") if len(firms) else ()):
            if pay[at] + more[0] >= best * NEAR:
                break
            if looked >= SPLITS:
                raise _TooMany
            machines = self.totals[at]
            within = np.flatnonzero((firms <= machines).all(axis=1))
            if len(within) and pay[at] + more[within[0]] < best * NEAR:
                shared = self._shared(machines)
                if shared is not None:
                    found.append((float(pay[at] + more[within[0]]), shared, firms[within[0]]))
                    best = min(best, found[-1][0])
        return sorted(found, key=lambda one: one[0])

    def _shared(self, machines: Floats) -> Floats | None:
        """These machines by zone, so that the loss of any leaves enough; None: no way does."""
        key = tuple(int(n) for n in machines)
        if key not in self.shared:
            room = self.rows @ machines - self.rate * self.places.zone_lost * (1.0 - SAME)
            order = [int(h) for h in np.argsort(-self.rows.max(axis=0), kind="stable")]
            self.shared[key] = self._spread(order, key, room, np.zeros((self.places.zones, len(room))), [SPLITS])
        return self.shared[key]

    def _spread(
        self, order: Sequence[int], machines: Counts, room: Floats, used: Floats, left: list[int]
    ) -> Floats | None:
        """The hardware of this order by zone, the evenest ways first, where zones hold so much already."""
        if not order:
            return np.zeros((len(machines), self.places.zones))
        hardware = order[0]
        for counts in _evenest(machines[hardware], self.places.zones):
            left[0] -= 1
            if left[0] < 0:
                raise _TooMany
            holding = used + np.outer(counts, self.rows[:, hardware])
            if (holding <= room + SAME).all():
                found = self._spread(order[1:], machines, room, holding, left)
                if found is not None:
                    found[hardware] = counts
                    return found
        return None


class _TooMany(Exception):
    """There are too many ways to share machines out."""


@cache
def _evenest(count: int, zones: int) -> Sequence[Counts]:
    """All ways to share so many out over zones, the evenest first."""
    if comb(count + zones - 1, zones - 1) > SPLITS:
        raise _TooMany
    return sorted(_ways(count, zones), key=lambda one: (max(one) - min(one), one))


def _ways(count: int, zones: int) -> Iterator[Counts]:
    if zones == 1:
        yield (count,)
        return
    for first in range(count + 1):
        for rest in _ways(count - first, zones - 1):
            yield (first, *rest)


def mosts(places: Places, rows: Floats, rate: float) -> tuple[Floats, Floats]:
    """Of each hardware as many machines as no row asks more of, in all; and of those that are not spot."""
    over = np.where(rows > 0, rows, np.inf)

    def needed(wanted: float) -> Floats:
        return np.asarray(np.ceil((wanted / over).max(axis=0, initial=0.0) - SAME), dtype=float)

    every, left = needed(rate), needed(rate * places.zone_lost)
    if places.zones > 1:
        every = np.maximum(every, left + np.ceil(left / (places.zones - 1)))
    return every, np.where(places.firm[:, 0] >= 0, needed(rate * places.spot_gone), 0.0)


@dataclass
class Lists:
    """The lists of one application, by rate; None: there are none, as zones are not alike, or they are too long."""

    wish: FleetRequest
    part: Cone
    hardware: Sequence[str]
    known: dict[tuple[float, Rooms], tuple[int, ListedMachines | None]] = field(default_factory=dict)
    box: Box | None = None

    def __post_init__(self) -> None:
        """Where its offers are."""
        self.places = Places.of(self.wish, self.hardware)
        self.mine = [self.part.hardware.index(one) for one in self.hardware]

    def at(self, rate: float) -> ListedMachines | None:
        """The lists for a rate, by the rows known of the part."""
        count, key = len(self.part.weights()), (rate, self._rooms(rate))
        if key not in self.known or self.known[key][0] < count:
            self.known.pop(key, None)
            self.known[key] = count, self._made(rate)
            if len(self.known) > MOST_KEPT:
                del self.known[next(iter(self.known))]
        return self.known[key][1]

    def _rooms(self, rate: float) -> Rooms:
        """How many machines are worth one of the program."""
        return tuple(sorted(self.wish.rooms.get((self.part.app, rate), {}).items()))

    def program(self, rate: float, prices: Floats, stock: Sequence[int]) -> ZoneProgram | None:
        """The program to ask where a list is too long; None where zones are not alike."""
        if self.places is None:
            return None
        rooms = self.wish.rooms.get((self.part.app, rate), {})
        part = self.wish.planned_by(self.part, rate)
        if not isinstance(part, Cone):
            return None
        rows = part.weights()[:, self.mine] / np.array([rooms.get(one, 1.0) for one in self.hardware])
        return zone_program(self.places, rows, rate, prices, stock)

    def _made(self, rate: float) -> ListedMachines | None:
        if self.places is None or self.wish.planned_by(self.part, rate) is not self.part:
            return None
        rows, rooms = self.part.weights()[:, self.mine], dict(self._rooms(rate))
        if rooms:
            rows = rows / np.array([rooms.get(one, 1.0) for one in self.hardware])
            most = np.maximum(*mosts(self.places, rows, rate))
            is_long = prod(int(n) + 1 for n in most) > LONGEST
            return None if is_long else ListedMachines(self.places, Box(rows, most), rate)
        most = np.maximum(*mosts(self.places, rows, rate))
        old = self.box
        if old is None or len(old.rows) < len(rows) or (old.most < most).any():
            most = most if old is None else np.maximum(most, old.most)
            if prod(int(n) + 1 for n in most) > LONGEST:
                return None
            self.box = Box(rows, most)
        assert self.box is not None
        return ListedMachines(self.places, self.box, rate)
