"""What a fleet costs: per hour, day and month, per application and offer."""

from __future__ import annotations

from collections.abc import Iterator

from hetplan.problems.fleet.together import used_in
from hetplan.problems.fleet.ways import Found
from hetplan.problems.fleet.whole import cost_of, starts_of
from hetplan.profiles.fields import HOURS_A_MONTH
from hetplan.profiles.plan_parts import SHARED, SHARED_TOO, Bill, BillLine, Lever
from hetplan.profiles.plan_periods import machines_with_users

__all__ = ["billed"]

DIGITS = 6
"""Parts of machines are added up to so many digits, so that whole machines stay whole."""


def _lines(found: Found) -> Iterator[BillLine]:
    wish, fleet = found.wish, found.fleet
    starts = starts_of(wish, fleet)
    for p in range(wish.periods):
        taken = used_in(found, p)
        for place, offer in enumerate(wish.offers):
            used = {name: counts[place] for name, counts in taken.items()}
            total, ahead = round(sum(used.values()), DIGITS), fleet.committed[place]
            rented = fleet.rented[p][place]
            starting = float(starts[p][place]) * offer.price / wish.hours
            for app, count in used.items():
                if count:
                    own = min(ahead, total) * count / total
                    by_hour = (total - min(ahead, total)) * count / total
                    part = starting * (by_hour / (total - ahead)) if total > ahead else 0.0
                    cost = own * (offer.committed or 0.0) + by_hour * offer.price + part
                    yield BillLine(period=f"p{p}", offer=offer.name, app=app, committed=own, rented=by_hour,
                                   cost_per_hour=cost, starts_per_hour=part)  # fmt: skip
            idle, spare = max(ahead - total, 0), max(rented - max(total - ahead, 0), 0)
            left = starting if total <= ahead else 0.0
            if idle or spare or left:
                cost = idle * (offer.committed or 0.0) + spare * offer.price + left
                yield BillLine(period=f"p{p}", offer=offer.name, committed=float(idle), rented=float(spare),
                               cost_per_hour=cost, starts_per_hour=left)  # fmt: skip


def billed(found: Found, levers: tuple[Lever, ...]) -> Bill:
    """The bill of a fleet."""
    wish, fleet = found.wish, found.fleet
    hours = wish.hours * wish.periods
    mean = cost_of(wish, fleet) / hours
    lines = tuple(_lines(found))
    weight = 1.0 / wish.periods
    apps = {app.name: sum(line.cost_per_hour for line in lines if line.app == app.name) * weight for app in wish.apps}
    offers = {
        offer.name: sum(line.cost_per_hour for line in lines if line.offer == offer.name) * weight
        for offer in wish.offers
    }
    repeats = wish.request.horizon.repeats
    return Bill(
        currency=wish.request.currency,
        hours=hours,
        repeats=repeats,
        cost_per_hour=mean,
        cost_per_day=24.0 * mean,
        cost_per_month=HOURS_A_MONTH * mean,
        total=mean * hours * repeats,
        apps=apps,
        offers={name: cost for name, cost in offers.items() if cost},
        idle_per_hour=sum(line.cost_per_hour for line in lines if line.app is None) * weight,
        starts_per_hour=sum(line.starts_per_hour for line in lines) * weight,
        lines=lines,
        levers=levers,
        shared=SHARED_TOO if _is_shared(found) else SHARED,
    )


def _is_shared(found: Found) -> bool:
    """Whether several applications have a part together, or machines."""
    several = any(len(part.rate_qps) > 1 for part in found.parts.values())
    each = ([one.part for one in together] for together in found.together.values())
    return several or any(len(whose) > 1 for parts in each for _, whose in machines_with_users(parts))
