"""What each purchase option saves: the cheapest fleet found with it, and with all options before it.

Each is a plan of the files as they are, with fewer ways to buy. It begins with the room that the plan turned out to
need, is played on its machines as the plan is, and gets more room until it is kept. Then it is written as a plan and
given to the verifier; whoever asked has it beside the plan, to look at and to verify. What is asked of the same
machines again is known from the plan and from the ways before it. Of many applications and periods that takes as long
as the plan: those are played only where that is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from hetplan.errors import Interrupted
from hetplan.planner.contract import Ask, Tools
from hetplan.planner.draft import Infeasibility
from hetplan.planner.fleet_part import Part
from hetplan.planner.make_plan import assemble_plan
from hetplan.planner.status import PlanStatus
from hetplan.problems.fleet.after_failure import with_slow_pipelines, with_standby_loads
from hetplan.problems.fleet.candidate_columns import CandidateColumns, left_of
from hetplan.problems.fleet.draft import draft_fleet
from hetplan.problems.fleet.formulations import Found, is_small, planner_of
from hetplan.problems.fleet.request import FleetRequest
from hetplan.problems.fleet.search import Fleet, is_over
from hetplan.problems.fleet.sizing import Answers, with_room
from hetplan.profiles.plan import Plan
from hetplan.profiles.plan_parts import Lever
from hetplan.profiles.plan_sections import Method

__all__ = ["savings_of"]

ROUNDS = 8
"""Of prices: fewer than for the plan."""
Planned = tuple[Found, Mapping[str, Part]]
Way = tuple[Lever, Plan | None]
"""What a way to buy costs, and its plan."""


@dataclass(frozen=True)
class SavingsPlanner:
    """Who plans the other ways of a wish: its parts, asked as for the plan, and what they said already."""

    wish: FleetRequest
    parts: Mapping[str, Part]
    ask: Ask
    tools: Tools
    answers: Answers

    def cheapest_fleet(self, wish: FleetRequest) -> Planned | None:
        """The cheapest fleet found for a request that meets the SLO with queueing; None where none is found."""
        is_played = is_small(wish) or wish.options.savings == "played"
        plan = planner_of(self.parts, self.ask)
        made = with_room(wish, plan, lambda: not is_played or is_over(self.ask), answers=self.answers, nearer=False)
        return None if isinstance(made, Infeasibility) else made

    def priced_saving(self, name: str, about: str, made: Planned | None) -> Way:
        """A purchase option with its fleet's cost, whether its SLO is met and `verify` passes; and the plan."""
        if made is None:
            return Lever(name=name, about=about), None
        parts = made[1]
        found = self._in_every_period(with_slow_pipelines(with_standby_loads(made[0], parts), parts), parts)
        draft = draft_fleet(found, (), parts)
        inputs, how = found.wish.inputs, ("fleet", Method(formulation="fleet"))
        plan = assemble_plan(draft, inputs, how, PlanStatus.HEURISTIC, (), (), ())
        report = self.tools.extra["verified"](plan, inputs, proofs=False)
        is_right = not report.violations
        lever = Lever(
            name=name, about=about, cost_per_hour=found.cost_per_hour, verified=is_right, kept=_is_kept(found)
        )
        return lever, plan

    def _in_every_period(self, found: Found, parts: Mapping[str, Part]) -> Found:
        """Machines for the peak as a fleet of all periods: who runs on them, after a failure too, always does."""
        flat = found.wish
        if not flat.flat:
            return found
        after = dict(found.after)
        for app in flat.apps:
            for situation in flat.situations[1:]:
                left = left_of(flat, parts[app.name], found.fleet.choices[app.name, 0].machines, situation)
                wanted = flat.settled_at(app, 0) * situation.keep
                plan = parts[app.name].settle(left, wanted).part if left else None
                after |= {(app.name, 0, situation.name): plan} if plan is not None else {}
        every = range(self.wish.periods)
        fleet = Fleet(
            found.fleet.committed,
            {(name, p): choice for (name, _), choice in found.fleet.choices.items() for p in every},
            found.fleet.rented * len(every),
        )
        return replace(
            found,
            wish=replace(flat, flat=False, apps=self.wish.apps),
            fleet=fleet,
            parts={(name, p): part for (name, _), part in found.parts.items() for p in every},
            after={(name, p, situation): plan for (name, _, situation), plan in after.items() for p in every},
        )


def savings_of(best: Planned, plan: Found, by: SavingsPlanner) -> tuple[tuple[Lever, ...], Mapping[str, Plan]]:
    """What each purchase option saves (the last is the plan itself), and the plan of each; empty if interrupted.

    `best` is the plan before applications share machines whole.
    """
    try:
        ways = _each(best, plan, by)
    except Interrupted:
        return (), {}
    return tuple(_with_savings([lever for lever, _ in ways])), {one.name: made for one, made in ways if made}


def _each(best: Planned, plan: Found, by: SavingsPlanner) -> list[Way]:
    """The cheapest fleet of each way, one after the other."""
    found, levers = best[0], list[Way]()
    for name, about, less in _ways(found, by):
        levers.append(_no_dearer(by.priced_saving(name, about, by.cheapest_fleet(less)), levers))
    sold = found.wish.commits and any(offer.reserved_price is not None for offer in found.wish.offers)
    last = "commitments" if sold else "spot" if any(offer.spot for offer in found.wish.offers) else ""
    if plan.together:  # what it is worth to share machines is the last lever
        apart = by.cheapest_fleet(_apart(found.wish)) if found.wish.places else best
        levers.append(
            _no_dearer(by.priced_saving(last or "apart", "no machine is shared by applications", apart), levers)
        )
        last = "shared"
    kept, name = _is_kept(plan), last or "this plan"
    levers.append(
        (Lever(name=name, about="this plan", cost_per_hour=plan.cost_per_hour, verified=True, kept=kept), None)
    )
    return levers


def _ways(found: Found, by: SavingsPlanner) -> Iterator[tuple[str, str, FleetRequest]]:
    """The ways before the plan: each may do what those before it may."""
    whole = _apart(found.wish)
    wish = replace(whole, most_rounds=ROUNDS)
    peak = tuple(replace(app, rates=(max(app.rates),)) for app in wish.apps)
    flat = replace(wish, apps=peak, flat=True, spot=False, commits=False)
    one = replace(flat, only=_one_type(flat, by))
    yield "one type", "each application on its one cheapest hardware, sized for its peak, all the time", one
    yield "best mix", "the best mix of hardware, sized for the peak, all the time", flat
    yield "by the hour", "as many machines as each period needs", replace(wish, spot=False, commits=False)
    if any(offer.spot for offer in wish.offers) and any(offer.reserved_price is not None for offer in wish.offers):
        yield "spot", "spot machines too", replace(wish, commits=False)


def _apart(wish: FleetRequest) -> FleetRequest:
    """The same, in which nobody shares machines in slices."""
    return replace(wish, places={}, slices={})


def _one_type(wish: FleetRequest, by: SavingsPlanner) -> dict[str, str]:
    """The hardware on which each application alone costs least."""
    found: dict[str, str] = {}
    for app in wish.apps:
        best = np.inf
        for hardware in by.parts[app.name].hardware:
            alone = replace(wish, only={app.name: hardware})
            prices = np.array([1e4 if offer.spot else offer.price for offer in wish.offers])
            ((cost, choice),) = CandidateColumns(alone, by.parts).price(by.ask, [(app, wish.rate(app, 0), prices)])
            if choice is not None and cost < best:
                best, found[app.name] = cost, hardware
    return found


def _is_kept(found: Found) -> bool | None:
    """Whether all are in time; None where nobody was played, or time ended before all were."""
    is_unplayed = found.wish.options.sizing != "simulation" or any(one.code == "W-queueing" for one in found.notices)
    return False if found.missed else None if is_unplayed else True


def _no_dearer(way: Way, before: list[Way]) -> Way:
    """The same, or the plan before it where that is kept for less: whoever may buy in more ways has that one too."""
    lever = way[0]
    last, plan = next((one for one in reversed(before) if one[0].verified and one[0].kept is not False), (None, None))
    if last is None or last.cost_per_hour is None:
        return way
    cost = lever.cost_per_hour
    is_worse = cost is None or not lever.verified or lever.kept is False or cost > last.cost_per_hour
    return (last.model_copy(update={"name": lever.name, "about": lever.about}), plan) if is_worse else way


def _with_savings(levers: list[Lever]) -> Iterator[Lever]:
    """The same with what each saves."""
    before: float | None = None
    for lever in levers:
        cost = lever.cost_per_hour
        saves = None if cost is None or before is None else before - cost
        yield lever.model_copy(update={"saves_per_hour": saves})
        before = cost if cost is not None else before
