"""A first feasible fleet, quickly: each application's machines for its highest rate, in all periods.

Each application is asked by its own question, sized by formula (by rates alone, where the fleet is): for the cheapest
machines at its highest rate, and for more of them wherever a failure leaves too few. That takes about ten plans of one
application each, whatever the number of periods. Applications are asked one after another, each of what the others
leave of the stock. What is cheaper if it is paid for ahead is, as all machines run all the time; where that breaks a
limit all are rented by the hour, and where that does, too, there is no fleet so soon. It says nothing of how good it
is: it is there until the search has a better one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.contract import Ask, Event, Tools
from hetplan.planner.draft import Draft, without_bound
from hetplan.planner.fleet_part import Table
from hetplan.problems.fleet.candidate_columns import Choice, left_of
from hetplan.problems.fleet.draft import draft_fleet
from hetplan.problems.fleet.formulations import Found, table_of
from hetplan.problems.fleet.request import Application, FleetRequest
from hetplan.problems.fleet.rounding import keeps_limits
from hetplan.problems.fleet.search import Fleet, Search, cost_per_hour
from hetplan.profiles.plan_parts import Part as PlanPart

__all__ = ["keep_first"]

MOST_TRIES = 3
"""So often machines are added where those of an application do not carry it after a failure."""

Settled = dict[str, PlanPart]
"""What an application runs, by situation; nothing where nothing is left."""


def keep_first(wish: FleetRequest, tools: Tools, ask: Ask) -> None:
    """Keep such a fleet, where there is one."""
    if wish.options.sizing != "fluid":
        wish = replace(wish, options=wish.options.model_copy(update={"sizing": "formula"}))
    parts = {app.name: table_of(wish, app, tools) for app in wish.apps}
    left = Counter(dict(zip(wish.place, wish.stock.tolist(), strict=True)))
    machines, settled = dict[str, Counter[str]](), dict[str, Settled]()
    for app in wish.apps:
        ask.note(Event("fleet", detail=f"a first plan of {app.name}"))
        found = _enough(wish, app, parts[app.name], left)
        if found is None:
            return
        machines[app.name], settled[app.name] = found
        left.subtract(machines[app.name])
    search = Search.of(wish, parts, ask)
    for ahead in (wish.commits & (wish.committed < wish.prices), np.zeros(len(wish.offers), dtype=bool)):
        fleet = _fleet(wish, machines, ahead)
        if keeps_limits(search, fleet.committed, fleet.rented[:1]):
            made = partial(_as_draft, wish, fleet, settled, parts)
            ask.keep(made, rank=(0,), value=cost_per_hour(wish, fleet))
            return


def _enough(
    wish: FleetRequest, app: Application, part: Table, left: Counter[str]
) -> tuple[Counter[str], Settled] | None:
    """Machines of each offer on which the application is served whatever fails, and what it runs on them."""
    rate, had = max(app.rates) * (1.0 + wish.options.headroom), Counter[str]()
    if not rate:
        return had, {}
    lasting = Counter({offer.name: left[offer.name] for offer in wish.offers if not offer.spot})
    for situation in wish.situations:
        for tries in range(MOST_TRIES):
            remaining = left_of(wish, part, tuple(had[offer.name] for offer in wish.offers), situation)
            if not situation.keep or (remaining and part.settle(remaining, rate * situation.keep).part is not None):
                break
            there = Counter({name: n for name, n in lasting.items() if name not in situation.gone and n > 0})
            more = _fewest(part, there, rate * situation.keep)
            if more is None:
                return None
            lost = situation.count * (1 + tries) if situation.hardware is not None else tries
            had |= Counter({name: count + lost for name, count in more.items()})
    every = tuple(had[offer.name] for offer in wish.offers)
    found = {one.name: left_of(wish, part, every, one) for one in wish.situations}
    keep = {one.name: one.keep for one in wish.situations}
    settled = {name: part.settle(there, rate * keep[name]).part for name, there in found.items() if there}
    if any(one is None for one in settled.values()) or any(had[name] > lasting[name] for name in had):
        return None
    return had, {name: one for name, one in settled.items() if one is not None}


def _fewest(part: Table, offers: Mapping[str, int], rate: float) -> Counter[str] | None:
    """The cheapest machines of these offers by the question of the application."""
    plan = part.fewest(offers, rate) if offers else None
    if plan is None:
        return None
    found = Counter[str]()
    for worker in plan.workers:
        found[worker.offer or ""] += worker.count + worker.standby
    return found


def _fleet(wish: FleetRequest, machines: Mapping[str, Counter[str]], ahead: NDArray[np.bool_]) -> Fleet:
    """The same machines in every period: those of some offers paid for ahead, the others rented by the hour."""
    names = [offer.name for offer in wish.offers]
    counts = {app: tuple(had[name] for name in names) for app, had in machines.items()}
    choices = {(app, p): Choice(own) for app, own in counts.items() for p in range(wish.periods)}
    total = np.sum([*counts.values()], axis=0)
    committed, rented = (tuple(int(n) for n in np.where(those, total, 0)) for those in (ahead, ~ahead))
    return Fleet(committed, choices, (rented,) * wish.periods)


def _as_draft(wish: FleetRequest, fleet: Fleet, settled: Mapping[str, Settled], parts: Mapping[str, Table]) -> Draft:
    first = wish.situations[0].name
    periods = range(wish.periods)
    own = {(app, p): one[first] for app, one in settled.items() for p in periods if first in one}
    after = {(app, p, name): part for app, one in settled.items() for name, part in one.items() for p in periods}
    return without_bound(draft_fleet(Found(wish, fleet, own, after=after), (), parts))
