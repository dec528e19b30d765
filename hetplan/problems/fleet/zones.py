"""Where the offers of a part are, where zones are alike: all that lists and programs of totals have to know of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hetplan.problems.fleet.alike import zone_classes
from hetplan.problems.fleet.wish import Wish

__all__ = ["Counts", "Floats", "Places"]

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
