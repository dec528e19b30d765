"""Plans applications that share machines: in slices, each the part of a machine that one instance takes.

A machine of a hardware h has P_h places, where instances fit exactly if they take no more (`slots_per_server`); k_ah of
application a take all of them. An instance waits for none of its neighbours: it has its own part of the machine, as it
has beside others of its own application; an engine that makes text has its own cards. So these applications are
searched for in slices, of which a machine is k_ah:

    R_o + N_op >= sum over applications x_aop / k_ah + what others take        x_aop whole: slices

Pools, text, variants and pipelines share a hardware where places say what fits of all of them; else those of some of
these questions do. Of variants and pipelines alone, of one question, more is looked at (below): they are planned as
one. What slices of a pipeline or of variants hold is said by the plan of each application on machines that are slices.

Then slices are put on machines (`on_servers`), alike where that can be; free places get one more instance each. A part
of a plan is of one question: a machine of several is a worker of the same name in a part of each, with the loads of its
own applications. Routes go to where a load's slices are, each by its share. Queries of variants and pipelines take
turns on alike machines alone, so what simulation showed of their slices is looked at again on unlike ones.

An application keeps its slices after a failure; of variants and pipelines none is planned in slices where machines may
fail. A single machine that is lost counts as full of each application's: k_ah.

**Beyond slices** applications of one question share machines too: looked for after each application has its own.
A machine of the question `variants`, or `pipeline`, holds what fits by all that its loads need, of several applications
too. So those applications of one question are asked as one, period by period, for a plan on all their machines, then on
one fewer, and one fewer again, the dearest first, as long as their question carries all rates on them, and after each
failure what is kept. What is rented, and what is paid for ahead, follows. A machine goes over to other loads after a
failure only where they are loaded soon.

Nothing is shared beside limits on moves, and least counts or shares of machines, which fewer machines may break. The
bound of a fleet without sharing says nothing of one that shares: in it those applications count as free, whether
machines could be shared at last or not. So do all that might share a machine with another application, of another
question too, and are not planned so: because their instances take unlike parts of it, or machines may fail.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import combinations, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetplan.errors import SolverFailed
from hetplan.planner.contract import Ask, Tools
from hetplan.planner.draft import Infeasibility
from hetplan.planner.fleet_part import COSTS, Part, Table, short_name
from hetplan.planner.machine_limits import keeps, machine_limits
from hetplan.planner.request import read_request
from hetplan.problems.draft_simulation import Played
from hetplan.problems.fleet.after_failure import SOON_S, fill_idle_machines, max_reload_s
from hetplan.problems.fleet.candidate_columns import left_of
from hetplan.problems.fleet.formulations import (
    BESIDE,
    Found,
    Together,
    is_small,
    needs_on,
    part_of,
    planner_of,
    search_fleet,
)
from hetplan.problems.fleet.request import Application, FleetRequest, Situation
from hetplan.problems.fleet.search import Fleet, cost_of, is_over
from hetplan.problems.fleet.sizing import with_room
from hetplan.problems.fleet.zones import Counts, to_whole
from hetplan.problems.slot_packing import fit_together, pack_servers, slots_per_server
from hetplan.profiles.fields import NANO
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Notice
from hetplan.profiles.plan_dispatch_rules import LeastWorkDispatch, MostAccurateFirstDispatch, PathSharesDispatch
from hetplan.profiles.plan_parts import Part as PlanPart
from hetplan.profiles.plan_periods import machines_with_users
from hetplan.profiles.plan_sections import Dispatch, Method, Promise, Route, Valid
from hetplan.profiles.workers import Load, Worker
from hetplan.serving.runs import machine_price

__all__ = [
    "ALONE",
    "Play",
    "bounding_less",
    "cheapest_sharing",
    "in_slices",
    "is_unseen",
    "on_machines",
    "used_in",
    "who_may_share",
    "with_fewer_slices",
    "with_sharing",
]

Answered = tuple[Found, Mapping[str, Part]]
Offered = Mapping[str, Mapping[str, int]]
"""Slices by offer and application."""
Held = Mapping[str, Sequence[tuple[Mapping[str, int], int]]]
"""By offer, what machines hold of each application, and how many do; an application is alone on whole ones."""
ALONE = ("pool", "llm")
"""Questions whose applications share machines in slices and in no other way."""
SHARING = (*ALONE, *BESIDE)
"""Questions whose instances have each its own part of a machine, where all of an application take the same of it."""
NAME = 24
"""What a machine holds names it in up to so many letters."""
SIMULATED = "simulation"
"""Begins the name of the model by which simulation promises something."""
UNSEEN = " shares machines, and no simulation shows that it is in time on them: run hetplan simulate"
"""What is said of an application whose queries take turns on unlike machines: it was not played there, or was late."""
Play = Callable[[PlanPart], Played]
"""Plays a part."""


@dataclass(frozen=True)
class _Seat:
    """What a machine holds of a load of an application's own plan, in which each machine is a slice."""

    app: str
    worker: Worker
    load: Load
    many: int
    takes_turns: bool

    @property
    def of(self) -> int:
        """How many slices hold that load."""
        return self.worker.count


def in_slices(
    wish: FleetRequest, parts: Mapping[str, Part], tools: Tools, questions: Sequence[str] | None = None
) -> tuple[FleetRequest, Mapping[str, Part]]:
    """The wish with the applications of these questions (None: of all) that may share machines counted in slices.

    It is as it was where none may.
    """
    questions = SHARING if questions is None else questions
    if not wish.options.share_machines or wish.goal != "cost" or wish.request.changes is not None:
        return wish, parts
    own = {one: _sharers(wish, parts, one) for one in questions}
    all_of_them = [part for group in own.values() for part in group]
    groups = [[part for one in some for part in own[one]] for some in _some_of(questions)][::-1]
    places, slices = dict[str, int](), {app.name: dict[str, int]() for app in wish.apps}
    for hardware in dict.fromkeys(name for part in all_of_them for name in part.alone):
        # Where parts say exactly what fits, nothing has room beside what fills a machine by itself.
        ways = [[part for part in group if part.alone.get(hardware, 1) > 1] for group in groups]
        ways = [way for way in ways if {part.question for part in way} not in ({one} for one in BESIDE)]
        most, on = max(
            ((_places(wish, way, hardware), way) for way in ways),
            key=lambda one: (one[0] > 1, len(one[1])),
            default=(1, []),
        )
        if most > 1:
            places[hardware] = most
            for part in on:
                slices[part.app][hardware] = part.alone[hardware]
    if not places:
        return wish, parts
    sliced = replace(wish, places=places, slices={name: counts for name, counts in slices.items() if counts})
    of = {part.app: part for part in all_of_them}
    return sliced, {**parts, **{name: _sliced(sliced, of[name], tools) for name in sliced.slices}}


def with_fewer_slices(
    asked: FleetRequest, wish: FleetRequest, parts: Mapping[str, Part], tools: Tools
) -> Iterator[tuple[FleetRequest, Mapping[str, Part]]]:
    """Wishes in which fewer share than was asked: applications of one question share otherwise then; and nobody."""
    if _might_share_otherwise(asked):
        fewer, own = in_slices(wish, parts, tools, ALONE)
        if fewer is not wish:
            yield fewer, own
    yield wish, parts


def _might_share_otherwise(wish: FleetRequest) -> bool:
    """Whether applications in slices might share machines by the plan of their question, which knows no slices."""
    questions = [app.question for app in wish.apps if app.name in wish.slices]
    return any(questions.count(one) > 1 for one in BESIDE)


def on_machines(found: Found, parts: Mapping[str, Part], play: Play | None = None) -> Found:
    """The fleet with the slices of each period on machines, free places filled.

    `play`: who looks at what was seen of slices of which each has its turn, where they are on unlike machines.
    """
    together = {p: shared for p in range(found.wish.periods) if (shared := _together(found, parts, p))}
    if play is not None:
        known = dict[str, PlanPart]()

        def played(one: PlanPart, p: int) -> PlanPart:
            key = one.model_dump_json()
            if key not in known:
                known[key] = _as_played(one, {name: found.parts[name, p] for name in one.rate_qps}, play)
            return known[key]

        together = {p: tuple(replace(one, part=played(one.part, p)) for one in some) for p, some in together.items()}
    own = {(name, p): one.part for p, some in together.items() for one in some for name in one.part.rate_qps}
    return replace(found, parts={**found.parts, **own}, together=together)


def is_unseen(found: Found) -> bool:
    """Whether of some who share machines simulation shows nothing there that keeps what is wanted."""
    shared = (one.part for some in found.together.values() for one in some)
    return any(said.text.endswith(UNSEEN) for part in shared for said in part.warnings)


def cheapest_sharing(
    best: Answered, wish: FleetRequest, parts: Mapping[str, Part], ask: Ask, shared: Callable[[Answered], Found]
) -> Answered:
    """The fleet, or a cheaper one in which fewer applications share machines, or none do.

    Whole machines are found in steps, and text that is played is given the room that it is found to need on those that
    were tried. So it is looked at where the bound does not show that it costs more, once they are `shared` in other
    ways than slices. The bound stays one of fleets that share: they might cost less than the one that was found.
    """
    otherwise = _might_share_otherwise(best[0].bounded or best[0].wish)

    def costs(one: Answered) -> float:
        return cost_of(one[0].wish, (shared(one) if otherwise else one[0]).fleet)

    cost = costs(best)
    first = search_fleet(wish, parts, ask, settle=is_small(wish))
    if isinstance(first, Infeasibility) or (bounding_less(first, parts) if otherwise else first).shown.value >= cost:
        return best

    def plan(other: FleetRequest, last: Found | None) -> Answered | Infeasibility:
        return (first, parts) if other is wish and last is None else planner_of(parts, ask)(other, last)

    apart = with_room(wish, plan, lambda: is_over(ask))
    if isinstance(apart, Infeasibility) or costs(apart) >= cost:
        return best
    found, own = apart
    least = min(best[0], found, key=lambda one: one.shown.value)
    return replace(found, bounded=best[0].bounded or best[0].wish, shown=least.shown), own


def _some_of(questions: Iterable[str]) -> list[tuple[str, ...]]:
    """All choices of these, those of fewest first."""
    listed = tuple(dict.fromkeys(questions))
    return [some for count in range(len(listed) + 1) for some in combinations(listed, count)]


def _sharers(wish: FleetRequest, parts: Mapping[str, Part], question: str) -> list[Part]:
    """The applications of a question that are asked in one way, the most there are of these.

    What of variants and pipelines goes on after a failure is not known by the slice: they share nothing then.
    """
    if question in BESIDE and len(wish.situations) > 1:
        return []
    own = [parts.get(app.name) for app in wish.apps if app.question == question]
    may = [part for part in own if part is not None and part.alone]
    asked = [repr(sorted(wish.options.parts.get(part.app, {}).items())) for part in may]
    most = max(sorted({*asked}), key=asked.count, default="")
    return [part for part, one in zip(may, asked, strict=True) if one == most]


def _places(wish: FleetRequest, own: Sequence[Part], hardware: str) -> int:
    """The places on a machine, where two of these applications or more could be on it."""
    if len(own) < 2:
        return 1
    provides = wish.inputs.profile.hardware[hardware].provides
    return slots_per_server(provides, [part.needs[hardware] for part in own], [part.alone[hardware] for part in own])


def _sliced(wish: FleetRequest, part: Part, tools: Tools) -> Part:
    """The same application, its machines slices that hold one instance each."""
    app = next(app for app in wish.apps if app.name == part.app)
    inputs = _of_slices(wish.inputs, wish.slices[part.app], part.needs)
    if isinstance(part, Table):
        return part.without_answers(inputs=inputs, each=wish.slices[part.app])
    return part_of(replace(wish, inputs=inputs), app, tools)


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
    rates = {app.name: wish.settled_at(app, p) for app in wish.apps if app.name in wish.slices and app.rates[p] > 0}
    if not rates:
        return ()
    taken = {name: dict(zip(wish.place, found.fleet.choices[name, p].machines, strict=True)) for name in rates}
    machines = {
        offer: _machines(wish, offer, {name: own[offer] for name, own in taken.items()}) for offer in wish.place
    }
    filled = {offer: _filled(wish, offer, taken, count) for offer, count in machines.items()}
    bare = {offer: Counter({name: own[offer] for name, own in taken.items() if own[offer]}) for offer in wish.place}
    mine = {name: parts[name] for name in rates}
    for asked, slices in _tries(mine, filled, bare):  # slices carry the rates, as was seen to
        before = [found.parts[name, p] for name in rates if asked[name] is parts[name]]
        if (after := _after(wish, asked, rates, slices, machines, before)) is not None:
            now = after.pop(wish.situations[0].name)
            left = {one: {name: some[one] for name, some in after.items() if one in some} for one in now}
            return tuple(Together(part, left[kind]) for kind, part in now.items())
    raise SolverFailed("", f"applications that share machines do not settle in p{p}")


def _tries(parts: Mapping[str, Part], filled: Offered, bare: Offered) -> Iterator[tuple[Mapping[str, Part], Offered]]:
    """Ways to settle: first as was seen to, then by formulas alone, as one plan of a question is made in one way."""
    for questions in _some_of(part.question for part in parts.values()):
        asked = {
            name: (getattr(part, "otherwise", None) or part) if part.question in questions else part
            for name, part in parts.items()
        }
        yield from ((asked, slices) for slices in (filled, bare))


def _after(
    wish: FleetRequest, parts: Mapping[str, Part], rates: Mapping[str, float], slices: Offered,
    machines: Mapping[str, int], before: Sequence[PlanPart],
) -> dict[str, dict[str, PlanPart]] | None:  # fmt: skip
    """What runs on these slices at first, and after each failure: a part of each kind (`_kind`).

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
        if len(settled) < len(plans) or any(how.setdefault(_kind(one), one.method) != one.method for one in made):
            return None
        if settled:
            found[one.name] = _joined(wish, settled, left)
    return found


def _kind(plan: PlanPart) -> str:
    """What plans that are one part have in common: their question; of variants and pipelines how they were made too."""
    return plan.question if plan.question not in BESIDE else f"{plan.question} {plan.method!r}"


def _held(wish: FleetRequest, slices: Offered, machines: Mapping[str, int]) -> Held:
    """Slices on machines."""
    found = dict[str, list[tuple[Mapping[str, int], int]]]()
    for offer, taken in slices.items():
        hardware = wish.offers[wish.place[offer]].machine
        whole = [({name: 1}, count) for name, count in taken.items() if hardware not in wish.slices[name]]
        counts = {name: count for name, count in taken.items() if hardware in wish.slices[name]}
        each = {name: _size(wish, offer, name)[0] for name in counts}
        least = machines[offer] - sum(count for _, count in whole)
        found[offer] = [*whole, *pack_servers(counts, wish.places.get(hardware, 1), least=least, each=each)]
    return found


def _left(wish: FleetRequest, held: Held, situation: Situation) -> Held:
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
            gone = min(lost[whose], count) if wish.offers[wish.place[offer]].machine == situation.hardware else 0
            lost[whose] -= gone
            left += [(holds, count - gone)] if count > gone else []
        found[offer] = left[::-1]
    return found


def _size(wish: FleetRequest, offer: str, name: str) -> tuple[int, int]:
    """The places that an application's slice takes on a machine of an offer, and how many there are."""
    hardware = wish.offers[wish.place[offer]].machine
    places = wish.places.get(hardware, 1)
    return places // wish.slices[name].get(hardware, 1), places


def _machines(wish: FleetRequest, offer: str, slices: Mapping[str, int]) -> int:
    """As few machines as have places for these slices."""
    taken = [(count * size, places) for name, count in slices.items() for size, places in [_size(wish, offer, name)]]
    return -(-sum(count for count, _ in taken) // taken[0][1])


def _filled(wish: FleetRequest, offer: str, taken: Mapping[str, Mapping[str, int]], machines: int) -> Counter[str]:
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


def _joined(wish: FleetRequest, own: Mapping[str, PlanPart], held: Held) -> dict[str, PlanPart]:
    """A part of each kind of all these applications, their slices on machines."""
    workers, to = list[Worker](), dict[str, list[tuple[str, float]]]()
    apps, turns = {app.name for app in wish.apps}, {name for name, plan in own.items() if plan.question in BESIDE}
    others = {short_name(f"{app.name}-{offer}") for app in wish.apps for offer in wish.place}
    for offer, kinds in held.items():
        hardware, names = wish.offers[wish.place[offer]].machine, {name for holds, _ in kinds for name in holds}
        mine = {name: [one for one in plan.workers if one.offer == offer] for name, plan in own.items()}
        alone = {name: mine[name] for name in own if name in names and hardware in wish.slices[name]}
        workers += (one for name in own if name in names - alone.keys() for one in mine[name])
        shared = [one for one in kinds if one[0].keys() <= alone.keys()]
        for seats, count in _seated(shared, alone, turns):
            workers.append(_machine(offer, seats, count, apps, others | {one.id for one in workers}))
            for load, seat in zip(workers[-1].loads, _one_by_one(seats), strict=True):
                to.setdefault(seat.load.id, []).append((load.id, seat.many * count / seat.of))
    each = {kind: {n: plan for n, plan in own.items() if _kind(plan) == kind} for kind in map(_kind, own.values())}
    return {kind: _part(wish, plans, workers, to) for kind, plans in each.items()}


def _seated(
    kinds: Sequence[tuple[Mapping[str, int], int]], alone: Mapping[str, Sequence[Worker]], turns: Set[str]
) -> list[tuple[tuple[_Seat, ...], int]]:
    """What these machines hold of the loads of each application's own plan, one slice of it after the other."""
    left = {name: [one for one in workers for _ in range(one.count)] for name, workers in alone.items()}
    found, counts = dict[object, tuple[_Seat, ...]](), Counter[object]()
    for holds, count in kinds:
        for _ in range(count):
            seats = dict[str, _Seat]()
            for name, many in holds.items():
                mine, left[name] = left[name][:many], left[name][many:]
                for worker in mine:
                    for load in worker.loads:
                        before = seats.get(load.id, _Seat(name, worker, load, 0, takes_turns=name in turns))
                        seats[load.id] = replace(before, many=before.many + 1)
            key = tuple((name, seat.many) for name, seat in seats.items())
            found[key] = tuple(seats.values())
            counts[key] += 1
    return [(seats, counts[key]) for key, seats in found.items() if seats]


def _part(
    wish: FleetRequest,
    own: Mapping[str, PlanPart],
    workers: Sequence[Worker],
    to: Mapping[str, Sequence[tuple[str, float]]],
) -> PlanPart:
    """The part of these applications, which are of one question: their loads on these machines.

    It costs what all machines cost on which they are, whoever else is on them.
    """
    mine = [held for worker in workers if (held := _holding(worker, own)) is not None]
    total, said = _cost(wish, mine), {one.quantity for plan in own.values() for one in plan.promises}
    cost = (Promise(quantity=one, relation="=", value=total, model="no-queueing") for one in COSTS if one in said)
    kept = [one for plan in own.values() for one in plan.promises if one.app is not None]
    torn = {name for name, plan in own.items() if plan.question in BESIDE and _is_torn(plan, to)}
    unseen = [one for one in kept if one.app in torn and one.model.startswith(SIMULATED)]
    warnings = [one for plan in own.values() for one in plan.warnings]
    warnings += [
        Notice(code="W-queueing", at=f"apps.{app}", text=f"{app}{UNSEEN}")
        for app in dict.fromkeys(one.app for one in unseen)
    ]
    routing = {name: tuple(way for one in plan.routing[name] for way in _routes(one, to)) for name, plan in own.items()}
    sections: dict[str, Any] = {
        "rate_qps": {name: rate for plan in own.values() for name, rate in plan.rate_qps.items()},
        "valid": Valid(rate_qps={name: span for plan in own.values() for name, span in plan.valid.rate_qps.items()}),
        "workers": tuple(mine),
        "routing": routing,
        "dispatch": {name: _rule(rule, to) for plan in own.values() for name, rule in plan.dispatch.items()},
        "tables": {name: table for plan in own.values() for name, table in plan.tables.items()},
        "promises": (*(one for one in kept if one not in unseen), *cost),
        "warnings": tuple(dict.fromkeys(warnings)),
    }
    return next(iter(own.values())).model_copy(update=sections)


def _is_torn(plan: PlanPart, to: Mapping[str, Sequence[tuple[str, float]]]) -> bool:
    """Whether slices that queries take in turn are on unlike machines, which get their shares of them at random."""
    return any(len(to.get(load.id, ())) > 1 for worker in plan.workers for load in worker.loads)


def _as_played(part: PlanPart, own: Mapping[str, PlanPart], play: Play) -> PlanPart:
    """The same with what simulation shows of those of whom nothing was seen on these machines.

    It promises what the plan of each alone did, as far as that is seen here too.
    """
    unseen = {one.at.removeprefix("apps."): one for one in part.warnings if one.text.endswith(UNSEEN)}
    if not unseen:
        return part
    found = play(part)
    doubtful = {*found.late, *found.unsure, *found.unjudged}
    seen = {(one.app, one.quantity, one.percentile): one for one in found.promises if one.app not in doubtful}
    again = [
        before.model_copy(update={name: getattr(one, name) for name in ("interval", "seeds", "confidence")})
        for app in unseen
        for before in own[app].promises
        if before.model.startswith(SIMULATED) and (one := seen.get((app, before.quantity, before.percentile)))
    ]
    kept = {app for app in unseen if app not in {one.app for one in again}}
    warnings = tuple(one for one in part.warnings if one not in unseen.values() or one in [unseen[app] for app in kept])
    return part.model_copy(update={"promises": (*part.promises, *again), "warnings": warnings})


def _holding(worker: Worker, own: Mapping[str, PlanPart]) -> Worker | None:
    """A machine with the loads of these applications; None where it has none."""
    loads = tuple(load for load in worker.loads if load.app in own)
    if not loads or len(loads) == len(worker.loads):
        return worker if loads else None
    alone = next(one for one in own[loads[0].app or ""].workers if one.offer == worker.offer)
    return worker.model_copy(update={"loads": loads, "queue": "per-load" if len(loads) > 1 else alone.queue})


def _machine(offer: str, seats: Sequence[_Seat], count: int, apps: Set[str], taken: Set[str]) -> Worker:
    """So many machines of an offer that hold so many instances of each application, and are named by that.

    Digits stand for what is held where that is long, or might be the name of others.
    """
    holds = Counter[str]()
    for seat in seats:
        holds[seat.app] += seat.many
    stem = "-".join(f"{app}{'x' * app[-1].isdigit()}{many}" for app, many in holds.items())
    name, said = f"{stem}-{offer}", repr((sorted(holds.items()), offer))
    unclear = any(app[-1].isdigit() and f"{app}x" in apps for app in holds)
    if len(stem) > NAME or unclear or name != short_name(name) or name in taken:
        name = short_name(f"{sha256(said.encode()).hexdigest()[:8]}-{offer}")
    if name in taken:  # as many of each, of other steps or models
        said = repr((sorted((seat.load.id, seat.many) for seat in seats), offer))
        name = short_name(f"{sha256(said.encode()).hexdigest()[:8]}-{offer}")
    each = enumerate(_one_by_one(seats), start=1)
    loads = tuple(
        one.load.model_copy(update={"id": f"{name}.{place}", "instances": one.load.instances * one.many})
        for place, one in each
    )
    first = seats[0].worker
    queue = "per-load" if len(loads) > 1 else first.queue
    return first.model_copy(update={"id": name, "count": count, "queue": queue, "loads": loads})


def _one_by_one(seats: Sequence[_Seat]) -> Iterator[_Seat]:
    """The loads of a machine: instances of a step, or a variant, are one load, and take turns; others are one each."""
    for seat in seats:
        if seat.takes_turns:
            yield seat
        else:
            yield from [replace(seat, many=1)] * seat.many


def _routes(route: Route, to: Mapping[str, Sequence[tuple[str, float]]]) -> Iterator[Route]:
    """The same shares to the loads on machines, on whichever of them a query was before."""
    shares = {one: share * part for load, share in route.to.items() for one, part in to.get(load, [(load, 1.0)])}
    for path in product(*([one for one, _ in to.get(load, [(load, 1.0)])] for load in route.prefix)):
        yield route.model_copy(update={"prefix": path, "to": shares})


def _rule(rule: Dispatch, to: Mapping[str, Sequence[tuple[str, float]]]) -> Dispatch:
    """The same rule, with the limits of loads as those of the loads on machines, and what they have left over."""
    if isinstance(rule, PathSharesDispatch | MostAccurateFirstDispatch):
        backup = (
            entry.model_copy(update={"to": one, "left_qps": entry.left_qps * part})
            for entry in rule.backup
            for one, part in to.get(entry.to, [(entry.to, 1.0)])
        )
        return rule.model_copy(update={"backup": tuple(backup)})
    if not isinstance(rule, LeastWorkDispatch):
        return rule
    limit = {one: most for load, most in rule.limit.items() for one, _ in to.get(load, [(load, 1.0)])}
    return rule.model_copy(update={"limit": limit})


def _cost(wish: FleetRequest, workers: Sequence[Worker]) -> float:
    profile = wish.inputs.profile
    prices = (machine_price(profile.offers[one.offer or ""], profile.hardware[one.hardware]) for one in workers)
    return sum(price * one.count for price, one in zip(prices, workers, strict=True)) / NANO


Integers = NDArray[np.int64]
JOINED = 40
"""Names of all applications are joined up to so many letters, to name the machines that they share."""


def with_sharing(found: Found, parts: Mapping[str, Part]) -> Found:
    """The fleet with fewer machines, where applications can share them and that costs less; else as it is."""
    wish, apps = found.wish, _of_one_question(found.wish)
    if len(apps) < 2:
        return found
    known: dict[object, Together | None] = {}
    together: dict[int, Together] = {}
    for p in range(wish.periods):
        rates = {app.name: wish.rate(app, p) for app in apps if (app.name, p) in found.parts}
        taken = [found.fleet.choices[name, p].machines for name in rates]
        machines = tuple(sum(counts) for counts in zip(*taken, strict=True))
        key = (machines, found.fleet.rented[p], *rates.items())
        if key not in known:
            beside = np.array(found.fleet.committed) + np.array(found.fleet.rented[p]) - np.array(machines)
            known[key] = _fewer(wish, _as_one(parts, rates), machines, beside) if len(rates) > 1 else None
        if (one := known[key]) is not None:
            together[p] = one
    fleet = _bought(wish, replace(found, together=_and_more(found, together)))
    if cost_of(wish, fleet) > cost_of(wish, found.fleet) - 1e-9:
        return found
    own = {(name, p): one.part for p, one in together.items() for name in one.part.rate_qps}
    return replace(found, fleet=fleet, parts={**found.parts, **own}, together=_and_more(found, together))


def bounding_less(found: Found, parts: Mapping[str, Part]) -> Found:
    """The same with a bound of all fleets: who may share, or does, beyond the slices that were bounded, is free."""
    own = {app.name for app in who_may_share(found.bounded or found.wish, parts)}
    for one in (one for some in found.together.values() for one in some):
        own |= {name for name in one.part.rate_qps if len(one.part.rate_qps) > 1 and name not in found.wish.slices}
    free = tuple(app.name for app in found.wish.apps if app.name in own)
    return replace(found, shown=found.shown.without(free), may_share=free)


def used_in(found: Found, p: int) -> dict[str, list[float]]:
    """Machines of each offer that each application uses in a period; of a machine that is shared, equal parts."""
    wish = found.wish
    used = {app.name: [float(n) for n in found.fleet.choices[app.name, p].machines] for app in wish.apps}
    shared = [one.part for one in found.together.get(p, ())]
    used |= {name: [0.0] * len(wish.offers) for part in shared for name in part.rate_qps}
    for worker, whose in machines_with_users(shared):
        for name in whose:
            used[name][wish.place[worker.offer or ""]] += worker.count / len(whose)
    return used


def _and_more(found: Found, more: Mapping[int, Together]) -> dict[int, tuple[Together, ...]]:
    """What is shared already, and more of it in these periods."""
    own = {p: (one,) for p, one in more.items()}
    return {p: (*found.together.get(p, ()), *own.get(p, ())) for p in sorted({*found.together, *own})}


def who_may_share(wish: FleetRequest, parts: Mapping[str, Part]) -> list[Application]:
    """The applications that a bound in which nobody shares, but in slices, counts as free."""
    apps = _of_one_question(wish)
    found = {app.name for app in apps if _may_fit(wish, apps, parts)}
    if wish.options.share_machines and wish.goal == "cost":
        for one, other in combinations(wish.apps, 2):
            if _may_meet(wish, one, other, parts):
                found |= {one.name, other.name}
    return [app for app in wish.apps if app.name in found]


def _may_meet(wish: FleetRequest, one: Application, other: Application, parts: Mapping[str, Part]) -> bool:
    """Whether two instances may be on one machine by what they say of it, and slices do not plan that."""
    for hardware in parts[one.name].hardware:
        in_slices = all(hardware in wish.slices.get(app.name, {}) for app in (one, other))
        if in_slices or hardware not in parts[other.name].hardware:
            continue
        provides = wish.inputs.profile.hardware[hardware].provides
        pairs = product(needs_on(wish, one, hardware), needs_on(wish, other, hardware))
        if any(fit_together(provides, pair) for pair in pairs):
            return True
    return False


def _of_one_question(wish: FleetRequest) -> list[Application]:
    """The applications that may share: of one of the questions that can, asked in the same way, and not in slices.

    Where both questions could, those of the first do.
    """
    asked = wish.request
    least = any(low for low, _ in asked.instances.values())
    least |= any(one.min or one.of_all for one in asked.shares.values())
    if not wish.options.share_machines or wish.goal != "cost" or asked.changes is not None or least:
        return []
    for question in BESIDE:
        own = [app for app in wish.apps if app.question == question and app.name not in wish.slices]
        options = [wish.options.parts.get(app.name, {}) for app in own]
        if len(own) > 1 and all(one == options[0] for one in options):
            return own
    return []


def _may_fit(wish: FleetRequest, apps: Sequence[Application], parts: Mapping[str, Part]) -> bool:
    """Whether two instances may be on one machine, or one after another, as far as a look at their needs tells."""
    hardware = {name for app in apps for name in parts[app.name].hardware}
    runs = (one for name in hardware for one in wish.request.choices(hardware=name) if one.needs)
    halves = (all(2.0 * need <= r.machine.provides.get(name, 0.0) for name, need in r.needs.items()) for r in runs)
    return len(wish.situations) > 1 or any(halves)


def _as_one(parts: Mapping[str, Part], rates: Mapping[str, float]) -> Table:
    """These applications as one, at their rates."""
    first, name = parts[next(iter(rates))], "-".join(rates)
    return Table(
        app=name if len(name) <= JOINED and name not in parts else "shared-by-several",
        question=first.question,
        hardware=tuple(dict.fromkeys(hardware for app in rates for hardware in parts[app].hardware)),
        inputs=first.inputs,
        options=first.options,
        solve=first.solve,
        members=rates,
    )


def _fewer(wish: FleetRequest, part: Table, machines: Counts, beside: Integers) -> Together | None:
    """Fewer machines that carry all of them, as far as one after the other can be taken away; None: all are needed.

    `beside` are the machines that others use.
    """
    order = sorted(range(len(machines)), key=lambda n: (-wish.prices[n], n))
    best: Together | None = None
    for place in order:
        while machines[place]:
            less = tuple(count - (n == place) for n, count in enumerate(machines))
            tried = ((one, _settled(wish, part, one)) for one in (less, *_spread(wish, less, beside)))
            found = next(((one, plans) for one, plans in tried if plans is not None), None)
            if found is None:
                break
            machines, plans = found
            best = Together(plans[0], plans[1])
    return best


def _spread(wish: FleetRequest, machines: Counts, beside: Integers) -> Iterator[Counts]:
    """The same with a machine in another zone, at the same price: so that no failure takes as many at once."""
    if not any(one.gone for one in wish.situations):
        return
    limits = list(machine_limits(wish.request, wish.offers, commits=True))
    for one, other in product(range(len(machines)), repeat=2):
        alike = wish.offers[one].machine == wish.offers[other].machine and wish.prices[one] == wish.prices[other]
        if machines[one] > machines[other] + 1 and alike and wish.offers[one].zone != wish.offers[other].zone:
            moved = tuple(count - (n == one) + (n == other) for n, count in enumerate(machines))
            if keeps(limits, np.asarray(beside + np.array(moved), dtype=float)):
                yield moved


def _settled(wish: FleetRequest, part: Table, machines: Counts) -> tuple[PlanPart, dict[str, PlanPart]] | None:
    """What runs on these machines, and after each failure; None where some rate is not carried."""
    plans = dict[str, PlanPart]()
    for situation in wish.situations:
        if situation.keep <= 0:
            continue
        offers = left_of(wish, part, machines, situation)
        plan = part.settle(offers, situation.keep).part if offers else None
        if plan is None:
            return None
        plans[situation.name] = plan
    before = fill_idle_machines(plans.pop(wish.situations[0].name), list(plans.values()))
    request = read_request(part.inputs)
    late = any(max_reload_s(request, before, after) > SOON_S for after in plans.values())
    return None if late else (before, plans)


def _bought(wish: FleetRequest, found: Found) -> Fleet:
    """The machines that are used then, bought in the cheapest of the ways that keep all limits.

    As many ahead as before; fewer; or as many as is cheapest, of offers to which machines were moved, too.
    """
    used = [np.rint(np.sum(list(used_in(found, p).values()), axis=0)) for p in range(wish.periods)]
    before = np.array(found.fleet.committed, dtype=float)
    ways = [before]
    if wish.request.budget is None:

        def cost(place: int, ahead: int) -> float:
            each = float(wish.committed[place]) * ahead if ahead else 0.0
            rented = sum(max(float(one[place]) - ahead, 0.0) for one in used)
            return each * wish.periods + rented * float(wish.prices[place])

        for most in (before, np.maximum(before, np.max(used, axis=0))):
            cheapest = [min(range(int(n) + 1), key=lambda ahead, at=at: cost(at, ahead)) for at, n in enumerate(most)]  # type: ignore[misc]
            ways.append(np.array(cheapest, dtype=float))
    limits = list(machine_limits(wish.request, wish.offers, commits=True))
    fleets = [
        Fleet(to_whole(ahead), found.fleet.choices, tuple(to_whole(np.maximum(one - ahead, 0.0)) for one in used))
        for ahead in ways
        if all(keeps(limits, np.maximum(one, ahead), ahead) for one in used)
    ]
    return min(fleets, key=lambda fleet: cost_of(wish, fleet), default=found.fleet)
