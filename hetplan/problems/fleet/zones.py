r"""The cheapest machines of one application where zones are alike: a program ten times as quick as that of all offers.

Where zones sell the same at the same prices, and at most one of them or all spot machines are lost, only these count:

=======  ====================  =======================================================================================
letter   in the code           meaning
=======  ====================  =======================================================================================
v_zh     `v`                   machines of a hardware in zone z; V_h those in all zones, of which there are Z
D_h      `firms`               those of them that are not spot
w_kh     `rows`                rows of the part: machines m carry a rate where sum_h w_kh m_h >= rate, for every k
=======  ====================  =======================================================================================

::

    min  sum_zh cheap_h v_zh + sum_h (firm_h - cheap_h) D_h      v, D whole;  cheap_h: the lower price of the two kinds
    w V         >= max(rate, keep rate Z / (Z - 1))               nothing failed; what follows from the last rows
    w D         >= keep rate                                      all spot gone
    w (V - v_z) >= keep rate                                      zone z lost, every z
    V_h - D_h   <= spot machines there are,  D_h <= V_h           the rest is spot
    w_1 v_z     >= w_1 v_z+1                                      zones may change places: the fullest is the first

Where more room is needed, so many machines are worth one (`Wish.rooms`), and w is so much less.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.forms.milp import Builder, Milp
from hetplan.problems.fleet.alike import zone_classes
from hetplan.problems.fleet.wish import Wish

__all__ = ["Counts", "Floats", "Places", "Zoned", "zoned"]

Floats = NDArray[np.float64]
Counts = tuple[int, ...]


@dataclass(frozen=True)
class Places:
    """Where the offers of a part are: by hardware and zone, those that are not spot and those that are (-1: none)."""

    firm: NDArray[np.int64]
    spot: NDArray[np.int64]
    zone_lost: float
    """The share of the rate that is kept when a zone is lost."""
    spot_gone: float

    @classmethod
    def of(cls, wish: Wish, hardware: Sequence[str]) -> Places | None:
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

    def placed(self, shared: Floats, firm: Floats, stock: Sequence[int], *, evenly: bool) -> Counts | None:
        """Machines per offer, of those not spot as many as asked for, by zone evenly or not; None: stock is too low."""
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
class Zoned:
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
        return self.places.placed(shared, np.where(self.dear, counts[-1], shared.sum(axis=1)), self.stock, evenly=True)


def zoned(places: Places, rows: Floats, rate: float, prices: Floats, stock: Sequence[int]) -> Zoned | None:
    """The program of a part with these rows; None where prices are not alike in all zones."""
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
    return Zoned(m.build(), places, np.asarray(firm > spot), stock)
