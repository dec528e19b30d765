"""What a fleet costs: per hour, day and month, per application and offer; and what each way to buy saves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from hetplan.planner.contract import Ask
from hetplan.planner.part import Part
from hetplan.problems.fleet.together import used_in
from hetplan.problems.fleet.ways import Found, searched
from hetplan.problems.fleet.whole import cost_of, starts_of
from hetplan.problems.fleet.wish import MONTH_HOURS, Wish
from hetplan.profiles.plan_parts import SHARED, SHARED_TOO, Bill, BillLine, Lever
from hetplan.profiles.plan_periods import machines_with_users

__all__ = ["billed", "levers_of", "of_sharing"]

LEVER_ROUNDS = 8
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
    repeats = wish.inputs.slo.horizon.repeats
    return Bill(
        currency=wish.inputs.slo.limits.currency,
        hours=hours,
        repeats=repeats,
        cost_per_hour=mean,
        cost_per_day=24.0 * mean,
        cost_per_month=MONTH_HOURS * mean,
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


def levers_of(found: Found, parts: Mapping[str, Part], ask: Ask) -> tuple[Lever, ...]:
    """The cheapest fleet of each way to buy, one after the other; the last is the plan itself."""
    whole = replace(found.wish, places={}, slices={})
    wish = replace(whole, options=whole.options.model_copy(update={"rounds": LEVER_ROUNDS}))
    peak = tuple(replace(app, rates=(max(app.rates),)) for app in wish.apps)
    flat = replace(wish, apps=peak, flat=True, spot=False, commits=False)
    one = replace(flat, only=_one_type(flat, parts, ask))
    tried = [
        ("one type", "each application on its one cheapest hardware, sized for its peak, all the time", one),
        ("best mix", "the best mix of hardware, sized for the peak, all the time", flat),
        ("by the hour", "as many machines as each period needs", replace(wish, spot=False, commits=False)),
    ]
    sold = {"spot": any(o.spot for o in wish.offers), "ahead": any(o.committed is not None for o in wish.offers)}
    if sold["spot"] and sold["ahead"]:
        tried.append(("spot", "spot machines too", replace(wish, commits=False)))
    levers, before = [], None
    for name, about, less in tried:
        other = searched(less, parts, ask, reckoned=False)
        cost = None
        if isinstance(other, Found):
            cost = cost_of(less, other.fleet) / (less.hours * less.periods)
        levers.append(_lever(name, about, cost, before))
        before = cost if cost is not None else before
    mean: float | None = cost_of(wish, found.fleet) / (wish.hours * wish.periods)
    if found.wish.places:  # what it is worth to share machines is the last lever
        apart = searched(whole, parts, ask, reckoned=False)
        mean = cost_of(wish, apart.fleet) / (wish.hours * wish.periods) if isinstance(apart, Found) else None
    last = "commitments" if sold["ahead"] else "spot" if sold["spot"] else "this plan"
    levers.append(_lever(last, "this plan", mean, before))
    return tuple(levers)


def of_sharing(levers: tuple[Lever, ...], found: Found) -> tuple[Lever, ...]:
    """The same, where applications share machines: the last of them is before that, and then comes this plan."""
    if not levers or not found.together:
        return levers
    cost = cost_of(found.wish, found.fleet) / (found.wish.hours * found.wish.periods)
    name = "apart" if levers[-1].name == "this plan" else levers[-1].name
    before = levers[-1].model_copy(update={"name": name, "about": "no machine is shared by applications"})
    return (*levers[:-1], before, _lever("shared", "this plan", cost, before.cost_per_hour))


def _lever(name: str, about: str, cost: float | None, before: float | None) -> Lever:
    saves = None if cost is None or before is None else before - cost
    return Lever(name=name, about=about, cost_per_hour=cost, saves_per_hour=saves, verified=cost is not None)


def _one_type(wish: Wish, parts: Mapping[str, Part], ask: Ask) -> dict[str, str]:
    """The hardware on which each application alone costs least."""
    from hetplan.problems.fleet.menus import Menus

    found: dict[str, str] = {}
    for app in wish.apps:
        best = np.inf
        for hardware in parts[app.name].hardware:
            alone = replace(wish, only={app.name: hardware})
            prices = np.array([1e4 if offer.spot else offer.price for offer in wish.offers])
            ((cost, choice),) = Menus(alone, parts).price(ask, [(app, wish.rate(app, 0), prices)])
            if choice is not None and cost < best:
                best, found[app.name] = cost, hardware
    return found
