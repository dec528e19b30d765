r"""The cheapest machines of one application where zones are alike: a program ten times as quick as that of all offers.

With the letters of `listed.py`::

    min  sum_zh cheap_h v_zh + sum_h (firm_h - cheap_h) D_h      v, D whole;  V_h = sum_z v_zh
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
from hetplan.problems.fleet.zones import Counts, Floats, Places

__all__ = ["Zoned", "zoned"]


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
