"""Applications on machines that they share: planned in slices, each the part of a machine that one instance takes.

A machine of a hardware h has P_h places, where instances fit exactly if they take no more (`places_for`); k_ah of
application a take all of them. An instance waits for none of its neighbours: it has its own part of the machine, as it
has beside others of its own application; an engine that makes text has its own cards. So these applications are
searched for in slices, of which a machine is k_ah:

    R_o + N_op >= sum over applications x_aop / k_ah + what others take        x_aop whole: slices

Pools and text share a hardware where places say what fits of all of them; else those of one of the two questions do.
Then slices are put on machines (`on_servers`), alike where that can be; free places get one more instance each. A part
of a plan is of one question: a machine of both is a worker of the same name in a part of each, with the loads of its
own applications. An application keeps its slices after a failure. A single machine that is lost counts as full of each
application's: k_ah.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from hashlib import sha256
from typing import Any

from hetplan.errors import SolverFailed
from hetplan.planner.contract import Ask, Tools
from hetplan.planner.draft import Infeasible
from hetplan.planner.part import Part
from hetplan.problems.fleet.room import with_room
from hetplan.problems.fleet.search import is_over
from hetplan.problems.fleet.ways import Found, Together, is_small, part_of, roomier, searched
from hetplan.problems.fleet.whole import cost_of
from hetplan.problems.fleet.wish import Situation, Wish
from hetplan.problems.parts import Cone, short_name
from hetplan.problems.places import on_servers, places_for
from hetplan.profiles.fields import NANO
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan_dispatch_further import LeastWorkDispatch
from hetplan.profiles.plan_parts import Part as PlanPart
from hetplan.profiles.plan_sections import Dispatch, Method, Promise, Route, Valid
from hetplan.profiles.workers import Worker
from hetplan.serving.runs import machine_price

__all__ = ["in_slices", "on_machines", "or_apart"]

Answered = tuple[Found, Mapping[str, Part]]
Offered = Mapping[str, Mapping[str, int]]
"""Slices by offer and application."""
Held = Mapping[str, Sequence[tuple[Mapping[str, int], int]]]
"""By offer, what machines hold of each application, and how many do; an application is alone on whole ones."""
SHARING = ("pool", "llm")
"""Questions whose instances depend on no neighbour."""
NAME = 24
"""What a machine holds names it in up to so many letters."""


def in_slices(wish: Wish, parts: Mapping[str, Part], tools: Tools) -> tuple[Wish, Mapping[str, Part]]:
    """The wish with the applications that may share machines counted in slices; as it is where none may."""
    if not wish.options.share or wish.goal != "cost" or wish.inputs.slo.limits.moves is not None:
        return wish, parts
    own = [_sharers(wish, parts, question) for question in SHARING]
    all_of_them = [part for group in own for part in group]
    groups = [all_of_them, *own]
    places, slices = dict[str, int](), {app.name: dict[str, int]() for app in wish.apps}
    for hardware in dict.fromkeys(name for part in all_of_them for name in part.alone):
        ways = [[part for part in group if hardware in part.alone] for group in groups]
        most, on = max(((_places(wish, way, hardware), way) for way in ways), key=lambda one: (one[0] > 1, len(one[1])))
        if most > 1:
            places[hardware] = most
            for part in on:
                slices[part.app][hardware] = part.alone[hardware]
    if not places:
        return wish, parts
    sliced = replace(wish, places=places, slices={name: counts for name, counts in slices.items() if counts})
    cones = {part.app: part for part in all_of_them}
    return sliced, {**parts, **{name: _sliced(sliced, cones[name], tools) for name in sliced.slices}}


def on_machines(found: Found, parts: Mapping[str, Part]) -> Found:
    """The fleet with the slices of each period on machines, free places filled."""
    together = {p: shared for p in range(found.wish.periods) if (shared := _together(found, parts, p))}
    own = {(name, p): one.part for p, some in together.items() for one in some for name in one.part.rate_qps}
    return replace(found, parts={**found.parts, **own}, together=together)


def or_apart(best: Answered, wish: Wish, parts: Mapping[str, Part], ask: Ask) -> Answered:
    """The same, or the fleet in which nobody shares, where that costs less.

    Whole machines are found in steps, and text that is played is given the room that it is found to need on those that
    were tried. So it is looked at where the bound does not show that it costs more. The bound stays one of fleets that
    share: they might cost less than the one that was found.
    """
    cost = cost_of(best[0].wish, best[0].fleet)
    first = searched(wish, parts, ask, settle=is_small(wish))
    if isinstance(first, Infeasible) or first.bound >= cost:
        return best

    def answer(other: Wish, last: Found | None) -> Answered | Infeasible:
        more = roomier(last, other, ask) if last is not None else None
        known = more or (first if other is wish else None)
        found = known or searched(other, parts, ask, settle=is_small(other))
        return found if isinstance(found, Infeasible) else (found, parts)

    apart = with_room(wish, answer, lambda: is_over(ask))
    if isinstance(apart, Infeasible) or cost_of(apart[0].wish, apart[0].fleet) >= cost:
        return best
    found, own = apart
    return replace(found, bound=min(found.bound, best[0].bound), bounded=best[0].wish), own


def _sharers(wish: Wish, parts: Mapping[str, Part], question: str) -> list[Cone]:
    """The applications of a question that are asked in one way, the most there are of these."""
    own = {app.name: parts.get(app.name) for app in wish.apps if app.question == question}
    cones = [part for part in own.values() if isinstance(part, Cone)]
    asked = [repr(sorted(wish.options.parts.get(part.app, {}).items())) for part in cones]
    most = max(sorted({*asked}), key=asked.count, default="")
    return [part for part, one in zip(cones, asked, strict=True) if one == most]


def _places(wish: Wish, own: Sequence[Cone], hardware: str) -> int:
    """The places on a machine, where two of these applications or more could be on it."""
    if len(own) < 2:
        return 1
    provides = wish.inputs.profile.hardware[hardware].provides
    return places_for(provides, [part.needs[hardware] for part in own], [part.alone[hardware] for part in own])


def _sliced(wish: Wish, part: Cone, tools: Tools) -> Part:
    """The same application, its machines slices that hold one instance each."""
    app = next(app for app in wish.apps if app.name == part.app)
    return part_of(replace(wish, inputs=_of_slices(wish.inputs, wish.slices[part.app], part.needs)), app, tools)


def _of_slices(inputs: Inputs, shared: Iterable[str], needs: Mapping[str, Mapping[str, float]]) -> Inputs:
    """The files of one application, in which a machine that is shared is no more than one of its instances takes."""
    hardware = dict(inputs.profile.hardware)
    for name in shared:
        provides = {one: needs[name].get(one) or amount for one, amount in hardware[name].provides.items()}
        hardware[name] = hardware[name].model_copy(update={"provides": provides})
    return replace(inputs, profile=inputs.profile.model_copy(update={"hardware": hardware}))


# --- slices on machines -----------------------------------------------------------------------------------------------


def _together(found: Found, parts: Mapping[str, Part], p: int) -> tuple[Together, ...]:
    """What applications that share run in a period, on which machines, and after each failure: of each question."""
    wish = found.wish
    rates = {app.name: wish.rate(app, p) for app in wish.apps if app.name in wish.slices and app.rates[p] > 0}
    if not rates:
        return ()
    taken = {name: dict(zip(wish.place, found.fleet.choices[name, p].machines, strict=True)) for name in rates}
    machines = {
        offer: _machines(wish, offer, {name: own[offer] for name, own in taken.items()}) for offer in wish.place
    }
    filled = {offer: _filled(wish, offer, taken, count) for offer, count in machines.items()}
    bare = {offer: Counter({name: own[offer] for name, own in taken.items() if own[offer]}) for offer in wish.place}
    for asked, slices in _tries(parts, filled, bare):  # slices carry the rates, as was seen to
        before = [found.parts[name, p] for name in rates if asked[name] is parts[name]]
        if (after := _after(wish, asked, rates, slices, machines, before)) is not None:
            now = after.pop(wish.situations[0].name)
            left = {one: {name: some[one] for name, some in after.items() if one in some} for one in now}
            return tuple(Together(part, left[question]) for question, part in now.items())
    raise SolverFailed("", f"applications that share machines do not settle in p{p}")


def _tries(parts: Mapping[str, Part], filled: Offered, bare: Offered) -> Iterator[tuple[Mapping[str, Part], Offered]]:
    """Ways to settle: first as was seen to, then by formulas alone, as one plan of a question is made in one way."""
    for questions in ((), *((one,) for one in SHARING), SHARING):
        asked = {
            name: (getattr(part, "otherwise", None) or part) if part.question in questions else part
            for name, part in parts.items()
        }
        yield from ((asked, slices) for slices in (filled, bare))


def _after(
    wish: Wish, parts: Mapping[str, Part], rates: Mapping[str, float], slices: Offered, machines: Mapping[str, int],
    before: Sequence[PlanPart],
) -> dict[str, dict[str, PlanPart]] | None:  # fmt: skip
    """What runs on these slices at first, and after each failure: a part of each question.

    None where some of it does not settle, or one is made in another way than the others of its question, or at first
    than `before`.
    """
    found, held = dict[str, dict[str, PlanPart]](), _held(wish, slices, machines)
    for one in (one for one in wish.situations if one.keep > 0):
        left = _left(wish, held, one)
        asked = {name: mine for name in rates if (mine := _of(left, name))}
        plans = {name: parts[name].settle(mine, rates[name] * one.keep).part for name, mine in asked.items()}
        settled = {name: plan for name, plan in plans.items() if plan is not None}
        how = dict[str, Method]()
        made = [*settled.values(), *([] if found else before)]
        if len(settled) < len(plans) or any(how.setdefault(one.question, one.method) != one.method for one in made):
            return None
        if settled:
            found[one.name] = _joined(wish, settled, left)
    return found


def _held(wish: Wish, slices: Offered, machines: Mapping[str, int]) -> Held:
    """Slices on machines."""
    found = dict[str, list[tuple[Mapping[str, int], int]]]()
    for offer, taken in slices.items():
        hardware = wish.offers[wish.place[offer]].hardware
        whole = [({name: 1}, count) for name, count in taken.items() if hardware not in wish.slices[name]]
        counts = {name: count for name, count in taken.items() if hardware in wish.slices[name]}
        each = {name: _size(wish, offer, name)[0] for name in counts}
        least = machines[offer] - sum(count for _, count in whole)
        found[offer] = [*whole, *on_servers(counts, wish.places.get(hardware, 1), least=least, each=each)]
    return found


def _left(wish: Wish, held: Held, situation: Situation) -> Held:
    """What is left of machines after a failure; of single ones the last are lost, of the first offers.

    So many are lost of those of each question; of both together, where a machine is of both.
    """
    question = {app.name: app.question for app in wish.apps}
    each = [{question[name] for name in holds} for kinds in held.values() for holds, _ in kinds]
    mixed = any(len(questions) > 1 for questions in each)
    found = dict[str, list[tuple[Mapping[str, int], int]]]()
    lost = dict.fromkeys(("", *question.values()), situation.count)
    for offer, kinds in held.items():
        left = list[tuple[Mapping[str, int], int]]()
        for holds, count in reversed(kinds if offer not in situation.gone else ()):
            whose = "" if mixed else question[next(iter(holds))]
            gone = min(lost[whose], count) if wish.offers[wish.place[offer]].hardware == situation.hardware else 0
            lost[whose] -= gone
            left += [(holds, count - gone)] if count > gone else []
        found[offer] = left[::-1]
    return found


def _size(wish: Wish, offer: str, name: str) -> tuple[int, int]:
    """The places that an application's slice takes on a machine of an offer, and how many there are."""
    hardware = wish.offers[wish.place[offer]].hardware
    places = wish.places.get(hardware, 1)
    return places // wish.slices[name].get(hardware, 1), places


def _machines(wish: Wish, offer: str, slices: Mapping[str, int]) -> int:
    """As few machines as have places for these slices."""
    taken = [(count * size, places) for name, count in slices.items() for size, places in [_size(wish, offer, name)]]
    return -(-sum(count for count, _ in taken) // taken[0][1])


def _filled(wish: Wish, offer: str, taken: Mapping[str, Mapping[str, int]], machines: int) -> Counter[str]:
    """Slices of each application: free places get one more instance each; machines are alike where that can be."""
    own = Counter({name: counts[offer] for name, counts in taken.items() if counts[offer]})
    sizes = {name: _size(wish, offer, name) for name in own}
    free = machines * max((places for _, places in sizes.values()), default=0)
    free -= sum(count * sizes[name][0] for name, count in own.items())
    for name in sorted(own, key=lambda name: -own[name] % machines * sizes[name][0]):
        more = -own[name] % machines
        if more * sizes[name][0] <= free:
            own[name] += more
            free -= more * sizes[name][0]
    while fitting := [name for name in own if sizes[name][0] <= free]:
        least = min(fitting, key=lambda name: (own[name], name))
        own[least] += 1
        free -= sizes[least][0]
    return own


def _of(held: Held, name: str) -> dict[str, int]:
    """The slices of an application."""
    found = {offer: sum(holds.get(name, 0) * count for holds, count in kinds) for offer, kinds in held.items()}
    return {offer: count for offer, count in found.items() if count}


def _joined(wish: Wish, own: Mapping[str, PlanPart], held: Held) -> dict[str, PlanPart]:
    """A part of each question of all these applications, their slices on machines."""
    workers, to = list[Worker](), dict[str, list[tuple[str, float]]]()
    taken = {name: _of(held, name) for name in own}
    apps = {app.name for app in wish.apps}
    others = {short_name(f"{app.name}-{offer}") for app in wish.apps for offer in wish.place}
    for offer, kinds in held.items():
        hardware, names = wish.offers[wish.place[offer]].hardware, {name for holds, _ in kinds for name in holds}
        mine = {name: [one for one in plan.workers if one.offer == offer] for name, plan in own.items()}
        alone = {name: mine[name][0] for name in own if name in names and hardware in wish.slices[name]}
        workers += (one for name in own if name in names - alone.keys() for one in mine[name])
        for holds, count in kinds:
            if not holds.keys() <= alone.keys():
                continue
            workers.append(_machine(offer, holds, count, alone, apps, others | {one.id for one in workers}))
            seats = iter(workers[-1].loads)
            for name, many in holds.items():
                before = to.setdefault(alone[name].loads[0].id, [])
                before += [(next(seats).id, count / taken[name][offer]) for _ in range(many)]
    questions = dict.fromkeys(plan.question for plan in own.values())
    each = {one: {name: plan for name, plan in own.items() if plan.question == one} for one in questions}
    return {question: _part(wish, plans, workers, to) for question, plans in each.items()}


def _part(
    wish: Wish, own: Mapping[str, PlanPart], workers: Sequence[Worker], to: Mapping[str, Sequence[tuple[str, float]]]
) -> PlanPart:
    """The part of these applications, which are of one question: their loads on these machines.

    It costs what all machines cost on which they are, whoever else is on them.
    """
    mine = [held for worker in workers if (held := _holding(worker, own)) is not None]
    cost = Promise(quantity="cost_per_hour", relation="=", value=_cost(wish, mine), model="no-queueing")
    kept = tuple(one for plan in own.values() for one in plan.promises if one.app is not None)
    routing = {name: tuple(_route(one, to) for one in plan.routing[name]) for name, plan in own.items()}
    sections: dict[str, Any] = {
        "rate_qps": {name: rate for plan in own.values() for name, rate in plan.rate_qps.items()},
        "valid": Valid(rate_qps={name: span for plan in own.values() for name, span in plan.valid.rate_qps.items()}),
        "workers": tuple(mine),
        "routing": routing,
        "dispatch": {name: _rule(rule, to) for plan in own.values() for name, rule in plan.dispatch.items()},
        "tables": {name: table for plan in own.values() for name, table in plan.tables.items()},
        "promises": (*kept, cost),
        "warnings": tuple(dict.fromkeys(one for plan in own.values() for one in plan.warnings)),
    }
    return next(iter(own.values())).model_copy(update=sections)


def _holding(worker: Worker, own: Mapping[str, PlanPart]) -> Worker | None:
    """A machine with the loads of these applications; None where it has none."""
    loads = tuple(load for load in worker.loads if load.app in own)
    if not loads or len(loads) == len(worker.loads):
        return worker if loads else None
    alone = next(one for one in own[loads[0].app or ""].workers if one.offer == worker.offer)
    return worker.model_copy(update={"loads": loads, "queue": "per-load" if len(loads) > 1 else alone.queue})


def _machine(
    offer: str, holds: Mapping[str, int], count: int, alone: Mapping[str, Worker], apps: Set[str], taken: Set[str]
) -> Worker:
    """So many machines of an offer that hold so many instances of each application, and are named by that.

    Digits stand for what is held where that is long, or might be the name of others.
    """
    stem = "-".join(f"{app}{'x' * app[-1].isdigit()}{many}" for app, many in holds.items())
    name, said = f"{stem}-{offer}", repr((sorted(holds.items()), offer))
    unclear = any(app[-1].isdigit() and f"{app}x" in apps for app in holds)
    if len(stem) > NAME or unclear or name != short_name(name) or name in taken:
        name = short_name(f"{sha256(said.encode()).hexdigest()[:8]}-{offer}")
    seats = (load for app, many in holds.items() for load in alone[app].loads * many)
    loads = tuple(load.model_copy(update={"id": f"{name}.{place}"}) for place, load in enumerate(seats, start=1))
    first = alone[next(iter(holds))]
    queue = "per-load" if len(loads) > 1 else first.queue
    return first.model_copy(update={"id": name, "count": count, "queue": queue, "loads": loads})


def _route(route: Route, to: Mapping[str, Sequence[tuple[str, float]]]) -> Route:
    """The same shares to the loads on machines."""
    shares = {one: share * part for load, share in route.to.items() for one, part in to.get(load, [(load, 1.0)])}
    return route.model_copy(update={"to": shares})


def _rule(rule: Dispatch, to: Mapping[str, Sequence[tuple[str, float]]]) -> Dispatch:
    """The same rule, with the limits of loads as those of the loads on machines."""
    if not isinstance(rule, LeastWorkDispatch):
        return rule
    limit = {one: most for load, most in rule.limit.items() for one, _ in to.get(load, [(load, 1.0)])}
    return rule.model_copy(update={"limit": limit})


def _cost(wish: Wish, workers: Sequence[Worker]) -> float:
    profile = wish.inputs.profile
    prices = (machine_price(profile.offers[one.offer or ""], profile.hardware[one.hardware]) for one in workers)
    return sum(price * one.count for price, one in zip(prices, workers, strict=True)) / NANO
