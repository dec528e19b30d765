r"""The cheapest machines of one application, found in lists where zones are alike: no program is asked.

Where zones sell the same at the same prices, and at most one of them or all spot machines are lost, only these count:

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
from math import comb, prod

import numpy as np

from hetplan.planner.bridge import Cone
from hetplan.problems.fleet.wish import Wish
from hetplan.problems.fleet.zoned import Zoned, zoned
from hetplan.problems.fleet.zones import Counts, Floats, Places

Rooms = tuple[tuple[str, float], ...]

__all__ = ["Box", "Listed", "Lists", "mosts"]

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
class Listed:
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
            ways = [self.places.placed(shared, firms, stock, evenly=evenly) for evenly in (True, False)]
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

    wish: Wish
    part: Cone
    hardware: Sequence[str]
    known: dict[tuple[float, Rooms], tuple[int, Listed | None]] = field(default_factory=dict)
    box: Box | None = None

    def __post_init__(self) -> None:
        """Where its offers are."""
        self.places = Places.of(self.wish, self.hardware)
        self.mine = [self.part.hardware.index(one) for one in self.hardware]

    def at(self, rate: float) -> Listed | None:
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

    def program(self, rate: float, prices: Floats, stock: Sequence[int]) -> Zoned | None:
        """The program to ask where a list is too long; None where zones are not alike."""
        if self.places is None:
            return None
        rooms = self.wish.rooms.get((self.part.app, rate), {})
        part = self.wish.planned_by(self.part, rate)
        if not isinstance(part, Cone):
            return None
        rows = part.weights()[:, self.mine] / np.array([rooms.get(one, 1.0) for one in self.hardware])
        return zoned(self.places, rows, rate, prices, stock)

    def _made(self, rate: float) -> Listed | None:
        if self.places is None or self.wish.planned_by(self.part, rate) is not self.part:
            return None
        rows, rooms = self.part.weights()[:, self.mine], dict(self._rooms(rate))
        if rooms:
            rows = rows / np.array([rooms.get(one, 1.0) for one in self.hardware])
            most = np.maximum(*mosts(self.places, rows, rate))
            is_long = prod(int(n) + 1 for n in most) > LONGEST
            return None if is_long else Listed(self.places, Box(rows, most), rate)
        most = np.maximum(*mosts(self.places, rows, rate))
        old = self.box
        if old is None or len(old.rows) < len(rows) or (old.most < most).any():
            most = most if old is None else np.maximum(most, old.most)
            if prod(int(n) + 1 for n in most) > LONGEST:
                return None
            self.box = Box(rows, most)
        assert self.box is not None
        return Listed(self.places, self.box, rate)
