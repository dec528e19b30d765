"""What it costs in time to cross from one tier to another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hetplan.errors import InputError
from hetplan.simulator.system import Link

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["link_table"]


def link_table(tiers: Sequence[str], links: Sequence[Link]) -> NDArray[np.float64]:
    """For each pair of tiers (milliseconds, milliseconds per byte), along the path of fewest links.

    A link given later replaces an earlier one between the same tiers.

    >>> edge, cloud = Link(("device", "edge"), 50.0, 5.0), Link(("edge", "cloud"), 400.0, 10.0)
    >>> link_table(("device", "edge", "cloud"), (edge, cloud))[0, 2].round(6).tolist()
    [15.0, 0.00018]
    """
    import numpy as np

    place = {tier: number for number, tier in enumerate(tiers)}
    hops = np.full((len(tiers), len(tiers)), np.inf)
    costs = np.zeros((len(tiers), len(tiers), 2))
    np.fill_diagonal(hops, 0.0)
    for link in links:
        if not all(end in place for end in link.between):
            continue
        first, second = place[link.between[0]], place[link.between[1]]
        hops[first, second] = hops[second, first] = 1.0
        costs[first, second] = costs[second, first] = (link.latency_ms, 0.008 / link.bandwidth_mbps)
    for middle in range(len(tiers)):
        for start in range(len(tiers)):
            for end in range(len(tiers)):
                if hops[start, middle] + hops[middle, end] < hops[start, end]:
                    hops[start, end] = hops[start, middle] + hops[middle, end]
                    costs[start, end] = costs[start, middle] + costs[middle, end]
    if np.isinf(hops).any():
        apart = [f"{tiers[i]} and {tiers[j]}" for i, j in zip(*np.nonzero(np.isinf(hops)), strict=True) if i < j]
        raise InputError.one(path="links", why=f"no link joins {', '.join(apart)}", remedy="Give each tier a link.")
    return costs
