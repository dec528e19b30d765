"""Rows of a profile that no plan has a reason to choose: another is as good, as fast and as cheap everywhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hetplan.profiles.profile import Metric, Profile, Run, Variant

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["dominated_rows"]


@dataclass(frozen=True)
class _Row:
    """A run, and what it is compared by: smaller is better in every entry of `burden`."""

    variant: str
    number: int
    hardware: str
    burden: NDArray[np.float64]


def dominated_rows(profile: Profile) -> Iterator[tuple[str, str, str]]:
    """A finding (code, place, text) per dominated row.

    Compared are the runs of one task whose tables have one grid: by quality, every measured time, what they need, and
    the cheapest price of the hardware. A machine may still be needed once the stock of the better one is used up, so
    this is advice.
    """
    import numpy as np

    groups: dict[object, list[_Row]] = {}
    for name, variant in profile.variants.items():
        for number, run in enumerate(variant.runs):
            burden = _burden(profile, variant, run)
            if burden is not None:
                table = profile.tables[run.latency or ""]
                # Without a quality a variant is only compared with itself on other hardware.
                kind = variant.task if variant.quality is not None else name
                key = (kind, tuple(table.axes.items()), tuple(sorted(run.at.items())), tuple(sorted(run.needs)))
                groups.setdefault(key, []).append(_Row(name, number, run.hardware, burden))
    for rows in groups.values():
        if len(rows) < 2:
            continue
        burdens = np.stack([row.burden for row in rows])
        front = np.empty_like(burdens)
        members: list[int] = []
        # In lexicographic order whatever dominates a row stands before it: one pass against a growing front does.
        for place in np.lexsort(burdens.T[::-1]).tolist():
            no_worse = (front[: len(members)] <= burdens[place]).all(axis=1)
            better = [at for at in np.flatnonzero(no_worse) if (front[at] < burdens[place]).any()]
            if better:
                winner, loser = rows[members[better[0]]], rows[place]
                text = f"{winner.variant} on {winner.hardware} is no worse in quality, time and price, better in one"
                yield ("W-dominated", f"variants.{loser.variant}.runs[{loser.number}]", text)
            else:
                front[len(members)] = burdens[place]
                members.append(place)


def _burden(profile: Profile, variant: Variant, run: Run) -> NDArray[np.float64] | None:
    """Price, loss of quality, needs and times, or None where it cannot be compared."""
    import numpy as np

    if run.latency is None:
        return None
    table = profile.tables[run.latency]
    statistic = next(kind for kind in table.statistics if kind != "std")
    cells = np.array(getattr(table, statistic), dtype=np.float64).reshape(-1)
    price = _price(profile, run)
    if price is None or np.isnan(cells).any():
        return None
    task = profile.tasks[variant.task]
    metric = profile.metrics[task.metric] if task.metric is not None else Metric()
    quality = variant.quality.value if variant.quality is not None else 0.0
    loss = -quality if metric.better == "higher" else quality
    needs = [run.needs[resource] for resource in sorted(run.needs)]
    return np.concatenate(([price, loss, *needs], cells))


def _price(profile: Profile, run: Run) -> float | None:
    if run.price_per_hour is not None:
        return float(run.price_per_hour)
    offers = profile.offers.values()
    prices = [offer.price_per_hour for offer in offers if offer.hardware == run.hardware and offer.per is None]
    return float(min(prices)) if prices else None
