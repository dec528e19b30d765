"""Why no fleet exists: from the request to the period, application, limit and scenario, and what would help."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.answer import Answer
from hetplan.planner.contract import Ask
from hetplan.planner.draft import Edit, Infeasibility, Repair
from hetplan.planner.elastic import explain, knobs
from hetplan.planner.fleet_part import Cone, Part
from hetplan.planner.forms.milp import Milp
from hetplan.planner.machine_limits import Floor, MachineLimit, floors_of, machine_limits
from hetplan.planner.request import PLENTY
from hetplan.problems.fleet.candidate_columns import CandidateColumns, Choice
from hetplan.problems.fleet.program import planned
from hetplan.problems.fleet.request import Application, FleetRequest, situations_of
from hetplan.problems.fleet.rounding import whole_up
from hetplan.problems.fleet.search import Search
from hetplan.profiles.slo import Survive

__all__ = ["conflicting_limits", "explain_infeasible", "with_reason_of_problem"]

Floats = NDArray[np.float64]
MANY = 10**6
"""More machines of a hardware than anybody asks for."""
ROOMS = (1.01, 1.03, 1.1, 1.2, 1.5)
"""So many times a rate machines are wanted for that no plan was found on: the first for which there are none."""
FEW_APPS = 3
"""Of more applications it is not said how much less of each would do."""


def conflicting_limits(search: Search, form: Milp) -> Infeasibility:
    """A smallest set of limits on machines that no machines meet, whatever they serve; and what would repair it."""
    kept = list(search.limits)
    for limit in search.limits:
        rest = [one for one in kept if one is not limit]
        if search.contradictions(rest) is not None:
            kept = rest
    floors = [floor for limit in kept for floor in floors_of(limit)]
    repairs = [*explain(form, search.ask).repairs]

    def can(limits: Sequence[MachineLimit]) -> bool:
        return search.contradictions(limits) is None

    repairs += [one for floor in floors if (one := _loosened(search, floor, can)) is not None]
    stated = [f"{floor.field} ({floor.stated:g})" for floor in floors]
    stated += [limit.elastic.field.format(label=limit.label) for limit in kept if limit.elastic is not None]
    *others, last = dict.fromkeys(stated)
    together = f"{', '.join(others)} and {last} cannot hold together" if others else f"{last} cannot be met"
    return Infeasibility(why=("the limits on machines contradict one another", together), repairs=tuple(repairs))


def _loosened(search: Search, floor: Floor, can: Callable[[Sequence[MachineLimit]], bool]) -> Repair | None:
    """The least change of a floor, or of a share, with which there are machines; None where none does."""
    step, end = (1.0, 0.0) if floor.whole else (1e-3, 0.0 if floor.verb == "lower" else 1.0)

    def does(steps: int) -> bool:
        to = floor.stated + steps * step * (1 if end > floor.stated else -1)
        others = [one for one in search.limits if one is not floor.limit]
        return can([*others, floor.at(to)])

    few, enough = 0, round(abs(end - floor.stated) / step)
    if not enough or not does(enough):
        return None
    while enough - few > 1:
        middle = (few + enough) // 2
        few, enough = (few, middle) if does(middle) else (middle, enough)
    to = round(floor.stated + enough * step * (1 if end > floor.stated else -1), 3)
    to, unit = (int(to), "machines") if floor.whole else (to, "")
    text = f"{floor.verb} {floor.field} from {floor.stated:g} to {to:g}{' machines' if floor.whole else ''}"
    return Repair(floor.field, floor.verb, abs(to - floor.stated), to, unit, text)


def explain_infeasible(search: Search, refused: Mapping[tuple[str, int], str] | None = None) -> Infeasibility:
    """The first cause of infeasibility: an application alone, then a period with all of them, then all together.

    `refused`: who found no plan on machines that its program called enough, and why.
    """
    wish = search.wish
    if not wish.explains:
        return Infeasibility(why=("no machines were found for all of it",), proved=False)
    for app, p in search.impossible:
        return _alone(search, app, p)
    busiest = sorted(range(wish.periods), key=lambda p: -sum(app.rates[p] for app in wish.apps))
    for p in busiest:
        found = _period(search, p)
        if found is not None:
            return found
    if refused:
        return _unsettled(search, refused)
    moves, ahead = wish.request.changes, np.isfinite(wish.committed).any() and wish.commits
    joining = [f"slo.limits.changes ({moves})"] if moves is not None else []
    joining += ["machines that are paid for in all of them"] if ahead else []
    if wish.periods > 1 and joining:
        said = " or ".join(joining)
        why = f"each period alone has a plan, but none was found for all together: {said} may be in the way"
    else:
        what = "all applications together" if wish.periods == 1 else "all periods"
        why = f"no machines were found for {what}, and the engine did not prove that there are none"
    return Infeasibility(why=(why,), proved=False)


def _unsettled(search: Search, refused: Mapping[tuple[str, int], str]) -> Infeasibility:
    """Machines that a program calls enough, on which an application has no plan: what would give it more of them."""
    (name, p), said = next(iter(refused.items()))
    app = next(one for one in search.wish.apps if one.name == name)
    why = f"p{p}: on the most machines that there are for {name} it has no plan: {said}"
    for more in ROOMS:
        ((_, choice),) = search.menus.price(search.ask, [(app, search.wish.rate(app, p) * more, search.wish.prices)])
        if choice is None:
            repairs = tuple(_repairs(search, app, p, more))
            return Infeasibility(why=(why, *_stocks(search.wish, search, app)), repairs=repairs, proved=False)
    return Infeasibility(why=(why,), proved=False)


def _alone(search: Search, app: Application, p: int) -> Infeasibility:
    """An application that no machines on offer carry: without a failure, or in which one."""
    wish, rate = search.wish, search.wish.rate(app, p)
    for number, situation in enumerate(wish.situations):
        shown = wish.situations[0], situation
        less = replace(wish, situations=shown if number else shown[:1])
        ((bound, choice),) = CandidateColumns(less, search.menus.parts).price(search.ask, [(app, rate, wish.prices)])
        if choice is None:
            when = "" if not number else f" when {situation.name}"
            kept = f"{situation.keep:g} of {rate:g}" if situation.keep != 1 else f"{rate:g}"
            proved, them = bool(np.isinf(bound)), f"{kept} qps of {app.name}{when}"
            why = f"p{p}: no machines on offer carry {them}" if proved else f"p{p}: no machines were found for {them}"
            repairs = tuple(_repairs(search, app, p))
            return Infeasibility(why=(why, *_stocks(wish, search, app)), repairs=repairs, proved=proved)
    why = f"p{p}: {app.name} survives each failure alone, but not all of them"
    return Infeasibility(why=(why,), repairs=tuple(_repairs(search, app, p)))


def with_reason_of_problem(said: Infeasibility, wish: FleetRequest, parts: Mapping[str, Part]) -> Infeasibility:
    """The reason, with what an application's own problem says where no number of machines serves it."""
    for part in parts.values():
        if (
            said.repairs
            or not isinstance(part, Cone)
            or not part.hardware
            or part.max_rate([1] * len(part.hardware)) > 0
        ):
            continue
        rate = max(app.rates[p] for app in wish.apps if app.name == part.app for p in range(wish.periods))
        options = {**wish.options.parts.get(part.app, {}), "sizing": wish.options.sizing}
        files = part.files(rate, dict.fromkeys(part.hardware, (0, MANY)), None)
        own = part.solve(files, question=part.question, options=options, try_repairs=True)
        if own.plan is None and own.why:
            return replace(said, why=(*said.why, *own.why), repairs=own.repairs)
    return said


def _stocks(wish: FleetRequest, search: Search, app: Application) -> Iterator[str]:
    hardware = search.menus.parts[app.name].hardware
    sold = [offer for offer in wish.offers if offer.machine in hardware]
    if not sold:
        yield f"no offer sells {', '.join(hardware) or 'hardware that it runs on'}"
    elif limited := [f"{o.name} has {o.stock}" for o in sold if o.stock < PLENTY]:
        yield f"in stock: {', '.join(limited)}"


def _repairs(search: Search, app: Application, p: int, more: float = 1.0) -> Iterator[Repair]:
    """Each by itself: more of one offer, or less that is kept or asked for; the smallest that would do.

    `more`: machines are wanted for so many times the rate.
    """
    wish, rate = search.wish, search.wish.rate(app, p) * more

    def choice_of(tried: FleetRequest, wanted: float, cost: Floats) -> Choice | None:
        ((_, choice),) = CandidateColumns(tried, search.menus.parts).price(search.ask, [(app, wanted, cost)])
        return choice

    for place, offer in enumerate(wish.offers):
        if offer.stock < PLENTY:
            rest = wish.offers[:place], wish.offers[place + 1 :]
            plenty = replace(wish, offers=(*rest[0], replace(offer, stock=PLENTY), *rest[1]))
            cost = np.full(len(wish.offers), 1e-6)
            cost[place] = 1.0
            if (choice := choice_of(plenty, rate, cost)) is not None:
                field, to = f"profile.offers.{offer.name}.stock", float(whole_up(choice.array)[place])
                yield Repair(field, "raise", to - offer.stock, to, "machines", f"raise {field} to {to:g}")
    yield from _fewer_lost(wish, lambda tried: choice_of(tried, rate, wish.prices) is not None)
    part = _most(lambda part: choice_of(wish, rate * part, wish.prices) is not None)
    if part > 0:
        yield _asked_less(wish, app, p, app.rates[p] * part)


def _asked_less(wish: FleetRequest, app: Application, p: int, to: float) -> Repair:
    """A lower rate of an application in a period."""
    stated = wish.request.apps[app.name].series is not None
    where: tuple[str | int, ...] = ("series", p) if stated else ()
    edits = (Edit("slo", ("apps", app.name, "rate_qps", *where), to),)
    field = f"slo.apps.{app.name}.rate_qps" + (f".series[{p}]" if stated else "")
    return Repair(field, "lower", app.rates[p] - to, to, "qps", f"lower {field} to {to:.6g}", edits)


def _fewer_lost(wish: FleetRequest, can: Callable[[FleetRequest], bool]) -> Iterator[Repair]:
    """Fewer machines or zones that may fail at once, or less that is kept then; the least change that would do."""
    survive = wish.request.survive
    for name, stated in (("machines", survive.machines), ("zones", survive.zones)):
        few, many = -1, stated
        while stated and many - few > 1:
            middle = (few + many) // 2
            less = situations_of(survive.model_copy(update={name: middle}), wish.offers)
            few, many = (middle, many) if can(replace(wish, situations=tuple(less))) else (few, middle)
        if stated and few >= 0:
            field, what = f"slo.limits.survive.{name}", name
            text, edits = f"lower {field} from {stated} to {few}", _edits_to(survive, name, few)
            yield Repair(field, "lower", stated - few, few, what if len(edits) == 1 else "", text, edits)
    part = _most(lambda part: can(_keeping(wish, part))) if any(wish.situations[1:]) else 0.0
    if part > 0:
        kept, field = survive.serve * part, "slo.limits.survive.serve"
        yield Repair(field, "lower", survive.serve - kept, kept, "", f"lower {field} to {kept:.4g}")


def _edits_to(survive: Survive, name: str, few: int) -> tuple[Edit, ...]:
    """The change, and where nothing may fail then, that all is kept."""
    at = ("limits", "survive")
    less = survive.model_copy(update={name: few})
    is_sure = not less.machines and not less.zones and less.spot == "none" and less.serve != 1
    return (Edit("slo", (*at, name), few), *([Edit("slo", (*at, "serve"), 1.0)] if is_sure else []))


def _keeping(wish: FleetRequest, part: float) -> FleetRequest:
    first, *rest = wish.situations
    return replace(wish, situations=(first, *(replace(one, keep=one.keep * part) for one in rest)))


def _most(can: Callable[[float], bool]) -> float:
    """The largest share up to 1 that can be, to a thousandth; 0 where none can."""
    low, high = 0, 1000
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if can(middle / 1000) else (low, middle)
    return low / 1000


def _period(search: Search, p: int) -> Infeasibility | None:
    """One period with all its applications: None where it has a fleet."""
    wish = search.wish
    once = planned(search, [p], stocked=False, gap=0.01)
    if not once.impossible:
        return None
    quick = replace(search, ask=cast(Ask, Unproved(search.ask)))
    found = explain(once.form, quick.ask)
    load = ", ".join(f"{app.name} {wish.rate(app, p):g} qps" for app in wish.apps)
    when = ", ".join(situation.name for situation in wish.situations)
    first = f"p{p} ({load}) has no plan in these situations: {when}"
    why = found.why if found.repairs or not knobs(once.form) else ()
    repairs = (*found.repairs, *_of_period(quick, p))
    named = tuple(f"{one.field} is in the way" for one in repairs) if not why else ()
    return replace(found, why=(first, *(why or named or found.why)), repairs=repairs)


def _of_period(search: Search, p: int) -> Iterator[Repair]:
    """What no slack of the program of a period says: floors and shares, and less that may fail or is asked for."""
    wish = search.wish

    def can(tried: FleetRequest, limits: Sequence[MachineLimit] | None = None) -> bool:
        limits = tuple(machine_limits(tried.request, tried.offers, commits=True)) if limits is None else limits
        other = Search(tried, search.ask, CandidateColumns(tried, search.menus.parts), limits=limits)
        return planned(other, [p], gap=0.01).fleet is not None

    for limit in search.limits:
        for floor in floors_of(limit):
            if (one := _loosened(search, floor, lambda limits: can(wish, limits))) is not None:
                yield one
    if len(wish.situations) > 1 and can(replace(wish, situations=wish.situations[:1])):
        yield from _fewer_lost(wish, can)
    for app in wish.apps if len(wish.apps) <= FEW_APPS else ():

        def at(part: float, app: Application = app) -> FleetRequest:
            less = replace(app, rates=tuple(rate * part for rate in app.rates))
            return replace(wish, apps=tuple(less if one is app else one for one in wish.apps))

        part = _most(lambda part: can(at(part)))
        if part > 0:
            yield _asked_less(wish, app, p, app.rates[p] * part)


@dataclass
class Unproved:
    """Asks without proofs of what is best: for changes that are tried anyway."""

    ask: Ask

    @property
    def remaining(self) -> float:
        """Seconds left."""
        return self.ask.remaining

    def __call__(self, form: Milp, *, gap: float | None = None, about: str = "", **_: Any) -> Answer[Floats]:
        """The answer to a form."""
        return self.ask.all([form], gap=gap, about=about)[0]

    def __getattr__(self, name: str) -> Any:
        """All else as it is asked of."""
        return getattr(self.ask, name)
