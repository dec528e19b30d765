"""Sizes a fleet with queueing: each part is checked on exactly its machines, after each failure too.

Of pools their formula for queues is asked (sizing `formula`). What a formula leaves is no proof: with `simulation`
pools are played too, in each period where they have least room by it, and variants, pipelines and text after each
failure. Who is short gets more room, and the fleet is planned again. Of text, which may be kept by one machine of one
hardware and by no number of another, it is looked how many of each hardware are enough. Where there are no machines
for more, or it has taken long enough, the wish is not kept, or a warning names who is short.

**Pools that are played.** Of machines and rates it is looked whether too many are late, by few queries first. Where a
pool has least room by its formula, in each period, its machines are looked at in simulation. Machines that have as many
of each hardware as others that kept a rate, or more, keep it too; those that have no more than others that were short
are short. A look ends with the first queries where these are clear. Once no look says that a pool is short, the
question itself plays its plan with seeds and queries that chose nothing (`is_confirmed`): on the machines of each
period, but for those that have no fewer than others on which a rate as high was confirmed. So all that is called kept
was confirmed, or has more machines for no higher a rate.

**What was seen to be enough** is what a part's own question finds, beside what a fleet has (`Seen`). Rows of text with
margins, whole machines that are worth less, and the formulas of pools, variants and pipelines leave out machines on
which they keep their limits all the same. Their own questions find them, by the sizing search. Where those cost less,
the fleet is searched again: who was asked may have what was seen to be enough, and nothing else."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from hetplan.errors import Interrupted
from hetplan.planner.draft import Infeasibility, Repair
from hetplan.planner.fleet_part import Cone, Part, Settled, Table
from hetplan.problems.draft_simulation import repairs_if_late
from hetplan.problems.fleet.after_failure import is_slow, plan_in_place_failover
from hetplan.problems.fleet.candidate_columns import left_of, surviving
from hetplan.problems.fleet.formulations import (
    AUTO,
    MORE,
    SAYS_SIZE,
    SIZED,
    Bound,
    Found,
    excluding_factor,
    has_formula,
    is_small,
    with_parts_replanned,
)
from hetplan.problems.fleet.request import HUGE, PLAYED, Application, FleetRequest, Situation
from hetplan.problems.fleet.search import cost_of
from hetplan.problems.fleet.zones import Counts
from hetplan.problems.repairs import change
from hetplan.profiles.plan import Notice

__all__ = [
    "Answers",
    "KnownFeasible",
    "helpful_hardware",
    "is_confirmed",
    "known_feasible",
    "looks_within_slo",
    "of_pool",
    "tightest",
    "with_own_machines",
    "with_room",
]

Answer = tuple[Found, Mapping[str, Part]] | Infeasibility
Answers = dict[tuple[str, str], dict[tuple[float, tuple[tuple[str, int], ...]], Settled]]
"""What was said of the machines of each application, asked in one way: of the same machines it is asked once."""
FORMULA, CAREFUL = "formula", "careful"
"""Ways to ask: pools by their formula where they were not played, and as `_careful` asks."""
MORE_STOCK = 2.0
"""Times a stock that is used up: the first guess at what helps who is short."""
HALVED = 3
"""So often the last step of room is halved for the application of which the most is wanted."""
STEP = 1.1
"""An application that is short of room is planned for so much more."""
PATIENT = 10
"""After so many rounds in turn room grows by 2% at least, then by twice as much each time, up to `STEP`: of pools that
cost nearly the same each may carry a hair more than the one before."""
MOST_ALONE, FEW_ALONE, WIDER = 5, 8, 1.3
"""Machines of one hardware are tried up to so many times what the program asks for, or so many, in such steps."""
ROUNDS, ROUNDS_OF_SEVERAL = 16, 20
"""So often at most, of few applications and periods (by then four times a rate) and of many: a search takes seconds."""


def with_room(
    wish: FleetRequest,
    answered: Callable[[FleetRequest, Found | None], Answer],
    over: Callable[[], bool],
    *,
    answers: Answers | None = None,
    nearer: bool = True,
) -> Answer:
    """A fleet in which every part has room to wait, as far as there is such a fleet, and the parts as they settle then.

    `answered` is handed the wish, and the fleet before it, if any. Once the time is `over` nothing is played.
    `answers`: what is known already. `nearer`: whether to look for cheaper ones too, once one has room.
    """
    first = best = answered(wish, None)
    answers = {} if answers is None else answers
    refused: Infeasibility | None = None
    rounds, margins = ROUNDS if is_small(wish) else ROUNDS_OF_SEVERAL, True
    for turn in range(rounds if wish.options.sizing in SIZED else 0):
        if isinstance(best, Infeasibility) or over():
            break
        short = list(_short(*best, answers))
        if not short:
            break
        wish = _roomier(best[0], short if margins else _without_margins(best[0], short), turn)
        try:
            more = answered(wish, best[0])
            if isinstance(more, Infeasibility) and wish.firm > best[0].wish.firm:
                margins, wish = False, _roomier(best[0], _without_margins(best[0], short))
                more = answered(wish, best[0])
        except Interrupted:
            break
        if isinstance(more, Infeasibility):
            refused = more
            break
        best = more
    for again in (True, False):
        if not isinstance(best, Infeasibility):
            by = _settling(best[0].wish, best[1], answers) if not over() else best[1]
            found = with_parts_replanned(best[0], by)
            if found is not None:
                best = found, best[1]
                break
            best = (
                answered(wish, None)
                if again
                else Infeasibility(why=("machines do not settle into plans",), proved=False)
            )
    if isinstance(best, Infeasibility) or isinstance(first, Infeasibility):
        return best
    hurried = over()
    if not hurried and best[0].wish.most:
        best = _with_less_room(*best, answers, answered) if nearer else best
    elif not hurried:
        best = _beside_own(*best, answers, answered, nearer=nearer)
    found = _unplayed(*best, answers) if hurried else _with_warnings(*best, answers, refused)
    if found.wish.leaves_room:
        # What holds without room to wait bounds every fleet; what was found with room bounds only those with as much.
        goal = found.goal
        if goal is not None and first[0].goal is not None:
            goal = replace(
                goal, bound=first[0].goal.bound, scope="relaxation", note=f"{goal.note}; it leaves out waiting"
            )
        found = replace(found, shown=first[0].shown, goal=goal)
    return (found, best[1]) if hurried else _as_played(found, best[1], answers)


def _with_less_room(
    found: Found, parts: Mapping[str, Part], answers: Answers, answered: Callable[[FleetRequest, Found | None], Answer]
) -> tuple[Found, Mapping[str, Part]]:
    """The same, or one with more of the rate of which the most is wanted: the last step of its room, halved."""
    best, key = (found, parts), (found.wish.most or "", None)
    enough = found.wish.room.get(key, 1.0)
    little = enough / STEP
    for _ in range(HALVED if enough > 1.0 and not any(_short(*best, answers)) else 0):
        middle = 0.5 * (little + enough)
        with suppress(Interrupted):
            other = answered(replace(found.wish, room={**found.wish.room, key: middle}), found)
            if isinstance(other, Infeasibility) or any(_short(*other, answers)):
                little = middle
            else:
                best, enough = other, middle
    return best


def _beside_own(
    found: Found,
    parts: Mapping[str, Part],
    answers: Answers,
    answered: Callable[[FleetRequest, Found | None], Answer],
    *,
    nearer: bool,
) -> tuple[Found, Mapping[str, Part]]:
    """The same, or a fleet with machines that the questions of its parts find: where somebody is late, or for less."""
    wish = found.wish
    given_room = {name for name, _ in wish.given_room}  # text without any has the machines that cost least
    careful = _who_may_find(wish, parts, answers)
    asked = {name: part for name, part in careful.items() if not _is_text(part) or name in given_room}
    late = {(one.careful.app, one.rate) for one in _short(found, parts, answers)} if asked else set()
    if not (late or nearer):
        return found, parts
    known = known_feasible(wish, most_expensive(found, asked, late), asked)
    rooms = {key: own for key, own in wish.rooms.items() if key not in known}
    pairs = [(app, p) for app in wish.apps for p in range(wish.periods)]
    played = {(app.name, app.rates[p]) for app, p in pairs if (app.name, wish.settled_at(app, p)) in known}
    room = {key: more for key, more in wish.room.items() if key not in played}  # what was seen is enough as it is
    other = answered(replace(wish, room=room, rooms=rooms, seen=known), found) if known else None
    if other is None or isinstance(other, Infeasibility) or any(_short(*other, answers)):
        return found, parts
    is_cheaper = cost_of(wish, other[0].fleet) < cost_of(wish, found.fleet)
    return other if late or is_cheaper else (found, parts)


def with_own_machines(
    said: Infeasibility,
    wish: FleetRequest,
    parts: Mapping[str, Part],
    answered: Callable[[FleetRequest, Found | None], Answer],
    answers: Answers,
) -> Answer:
    """A fleet with the machines that the questions of its parts find in stock; where there is none, what was said.

    Formulas are careful: on fewer machines queries may be in time all the same. So what formulas call infeasible is
    asked of those who play what they plan. The fleet has no bound: machines that nobody was asked about may be enough.
    """
    asked = {n: part for n, part in _who_may_find(wish, parts, answers).items() if not _is_text(part)}
    known = known_feasible(wish, rates_of(wish, asked), asked)
    best = answered(replace(wish, seen=known), None) if known else said
    if isinstance(best, Infeasibility):
        return said
    found, own = best
    if (
        any(_short(found, own, answers))
        or (settled := with_parts_replanned(found, _settling(wish, own, answers))) is None
    ):
        return said
    return _as_played(replace(_with_warnings(settled, own, answers, None), shown=Bound()), own, answers)


def _who_may_find(wish: FleetRequest, parts: Mapping[str, Part], answers: Answers) -> dict[str, Cone | Table]:
    """Of a small fleet at least cost, those whose own sizing search finds machines, and who is asked for them."""
    may = wish.goal == "cost" and wish.options.sizing == "simulation" and is_small(wish)
    mine = [app for app in wish.apps if may and app.question in MOST_ASKED and app.name not in wish.slices]
    careful = {app.name: _careful(wish, app, parts[app.name], answers) for app in mine if app.name in parts}
    return {name: part for name, part in careful.items() if part is not None}


def _is_text(part: Part) -> bool:
    """Whether rows say what machines carry of text: how many of each hardware are enough for it is found by playing."""
    return isinstance(part, Cone) and part.question == "llm"


def _as_played(found: Found, parts: Mapping[str, Part], answers: Answers) -> tuple[Found, Mapping[str, Part]]:
    """The fleet with the plans that were played in place of those of the formulas.

    A pool was not played where it has no fewer machines than another that was: here it is, in each period, so that what
    it promises rests on its own machines. After failures such pools stay with the plans of their formula.
    """
    own, settling = dict(found.parts), _settling(found.wish, parts, answers)
    for name, p in own:
        app = _app(found, name)
        part = _any_batch(found.wish, app, settling[name])
        careful = _careful(found.wish, app, parts[name], answers) if app.question == "pool" else None
        if careful is not None and found.wish.options.sizing == "simulation":
            part = replace(careful, otherwise=settling[name])
        if part is not parts[name]:
            offers = left_of(found.wish, part, found.fleet.choices[name, p].machines, found.wish.situations[0])
            own[name, p] = part.settle(offers, found.wish.settled_at(_app(found, name), p)).part or own[name, p]
    return replace(found, parts=own), settling


def _settling(wish: FleetRequest, parts: Mapping[str, Part], answers: Answers) -> dict[str, Part]:
    """Who settles the parts of a fleet that was played: plans that were played come first, then those of formulas."""
    settling = dict(parts)
    for app in wish.apps:
        name = app.name
        one = _careful(wish, app, parts[name], answers)
        if one is not None and one.question == "pool":
            known = answers.setdefault((name, FORMULA), {})
            known |= {key: plan for key, plan in one.settled.items() if plan.part is not None}
            one = replace(one, options={**one.options, "sizing": FORMULA}, settled=known)
        if one is not None and one.question in PLAYED and wish.options.sizing == "simulation":
            settling[name] = replace(one, otherwise=parts[name])
    return settling


def _any_batch(wish: FleetRequest, app: Application, part: Part) -> Part:
    """A policy's part whose tables may take any number at once; after a failure those of whole batches do."""
    if app.question != "policy" or not isinstance(part, Table) or "batching" in wish.options.parts.get(app.name, {}):
        return part
    options = {name: value for name, value in part.options.items() if name != "batching"}
    return replace(part, options=options, settled={}, otherwise=part)


def _unplayed(found: Found, parts: Mapping[str, Part], answers: Answers) -> Found:
    """The fleet, with a warning for every application that was to be asked whether it has room."""
    late = _looked_at(found, parts, answers)
    text = "the time limit ended before it was simulated: run hetplan simulate"
    notices = (Notice(code="W-queueing", at=f"apps.{name}", text=f"{name}: {text}") for name in late)
    return replace(found, notices=(*found.notices, *notices))


def _looked_at(found: Found, parts: Mapping[str, Part], answers: Answers) -> list[str]:
    """The applications that are asked whether they have room."""
    return [app.name for app in found.wish.apps if _careful(found.wish, app, parts[app.name], answers) is not None]


def _with_warnings(found: Found, parts: Mapping[str, Part], answers: Answers, refused: Infeasibility | None) -> Found:
    """The fleet, with a warning for every application that is short of room: if it was played, the wish is not kept.

    What keeps it from more room, if anything does, is `refused`.
    """
    periods: dict[str, list[int]] = {}
    for late in _short(found, parts, answers):
        periods.setdefault(late.careful.app, []).append(late.p)
    several = found.wish.periods > 1
    notices = []
    for name, those in periods.items():
        when = f" in {len(those)} of {found.wish.periods} periods (p{min(those)} is the first)" if several else ""
        text = f"{name} has fewer machines{when} than its queues need, so queries may be late: run hetplan simulate"
        notices.append(Notice(code="W-queueing", at=f"apps.{name}", text=text))
    looked = frozenset(_looked_at(found, parts, answers))
    found = replace(found, notices=(*found.notices, *notices), room_seen=looked)
    if not notices or found.wish.options.sizing != "simulation":
        return found
    why = f"not met: {'; '.join(one.text for one in notices)}"
    if refused is None:
        apps = found.wish.request.apps
        longer = (one for name in list(periods)[:2] for one in repairs_if_late(apps[name], None))
        repairs = (*_more_stock(found, periods), *longer)
        return replace(found, missed=why, repairs=repairs)
    return replace(found, missed=f"{why}; with more machines: {'; '.join(refused.why)}", repairs=refused.repairs)


def _more_stock(found: Found, short: Mapping[str, Sequence[int]]) -> Iterator[Repair]:
    """More of the offers that those who are short have all of."""
    wish = found.wish
    for number, offer in enumerate(wish.offers):
        taken = (found.fleet.choices[name, p].machines[number] for name, periods in short.items() for p in periods)
        if max(taken, default=0) >= offer.stock > 0:
            at, more = f"profile.offers.{offer.name}.stock", math.ceil(MORE_STOCK * offer.stock)
            yield change(at, offer.stock, more, "machines", more=" or so")


@dataclass(frozen=True)
class _Late:
    """A part that is short of room on the machines that it has: in which period, at which rate, after what failure."""

    careful: Cone | Table
    p: int
    rate: float
    situation: Situation
    was_played: bool = False
    """Whether it has room by its formula, and not in simulation."""

    @property
    def required_rate(self) -> float:
        """The rate that the part must serve after the failure."""
        return self.rate * self.situation.keep

    @property
    def pool(self) -> Cone:
        """Who says so, where it is a pool that was played."""
        assert isinstance(self.careful, Cone)
        return self.careful

    def machines_left(self, found: Found) -> Counts:
        """The machines of each type that the part has after the failure."""
        machines = found.fleet.choices[self.careful.app, self.p].machines
        return surviving(found.wish, self.careful, machines, self.situation)

    def offers(self, found: Found) -> dict[str, int]:
        """The same, of each offer."""
        machines = found.fleet.choices[self.careful.app, self.p].machines
        return left_of(found.wish, self.careful, machines, self.situation)


def _short(found: Found, parts: Mapping[str, Part], answers: Answers) -> Iterator[_Late]:
    """Parts that are short of room on the machines that they have, after a failure too."""
    wish, pools = found.wish, list[_Late]()
    for app in wish.apps:
        careful = _careful(wish, app, parts[app.name], answers)
        for p in sorted(range(wish.periods), key=lambda p: -app.rates[p]):
            rate = app.rates[p] * (1.0 + wish.options.headroom)
            if careful is None or rate <= 0 or not any(found.fleet.choices[app.name, p].machines):
                continue
            for situation in wish.situations:
                offers = left_of(wish, careful, found.fleet.choices[app.name, p].machines, situation)
                late = _Late(careful, p, rate, situation)
                if offers and not (_has_room(wish, careful, offers, late.required_rate) and _goes_on(found, late)):
                    yield late
                    break
            else:
                if wish.options.sizing == "simulation" and isinstance(careful, Cone) and careful.kept is not None:
                    tight = tightest(wish, careful, found.fleet.choices[app.name, p].machines)
                    pools += [_Late(careful, p, rate, tight, was_played=True)] if tight is not None else []
    looked = [one for one in pools if not looks_within_slo(one.pool, one.machines_left(found), one.required_rate)]
    yield from looked
    for one in pools if not looked else ():
        if not is_confirmed(one.pool, one.machines_left(found), one.offers(found), one.required_rate):
            yield one


def _goes_on(found: Found, late: _Late) -> bool:
    """Whether nothing has to be loaded for long after a failure; asked once for all failures of a period."""
    wish, part = found.wish, late.careful
    if late.situation is not wish.situations[-1] or len(wish.situations) == 1 or not is_slow(part):
        return True
    return plan_in_place_failover(wish, part, found.fleet.choices[part.app, late.p].machines, late.rate) is not None


def _has_room(wish: FleetRequest, careful: Cone | Table, offers: Mapping[str, int], wanted: float) -> bool:
    """Whether there is room on what is left; of a pool its formula says it, where it was not seen to be enough."""
    if not isinstance(careful, Cone) or careful.kept is None:
        return careful.settle(offers, wanted).part is not None
    machines = dict.fromkeys(careful.hardware, 0)
    for name, count in offers.items():
        machines[wish.offers[wish.place[name]].machine] += count
    left = tuple(machines.values())
    return careful.confirmed.is_feasible(left, wanted) is True or careful.has_room(left, wanted)


def _without_margins(found: Found, short: Sequence[_Late]) -> list[_Late]:
    """The same, of which none gets the margins of its program that has not got them."""

    def bare(late: _Late) -> _Late:
        cone = late.careful
        if not isinstance(cone, Cone) or (cone.app, late.rate) in found.wish.firm:
            return late
        return replace(late, careful=replace(cone, firm=None))

    return [bare(late) for late in short]


def _roomier(found: Found, short: Sequence[_Late], turn: int = 0) -> FleetRequest:
    """The wish with more room for those that are short of it: of text first the margins of its program."""
    least = min(1.0 + 0.02 * 2.0 ** (turn - PATIENT), STEP) if turn >= PATIENT else MORE
    wish, room, rooms = found.wish, dict(found.wish.room), dict(found.wish.rooms)
    firm = set(wish.firm)
    helps = dict[str, set[str]]()  # asked of each pool where it is short at its highest rate
    for late in short:
        name = late.careful.app
        cone = late.careful if isinstance(late.careful, Cone) and name != wish.most else None
        if cone is not None and cone.firm is not None and (name, late.rate) not in firm:
            firm.add((name, late.rate))
        elif cone is not None and _is_text(cone):
            rooms[name, late.rate] = _rooms(found, _as_planned(wish, cone, late.rate), late)
        elif cone is not None and late.was_played:
            planned, left = wish.rate(_app(found, name), late.p), late.machines_left(found)
            if name not in helps:
                helps[name] = helpful_hardware(cone, left, late.required_rate)
            rooms[name, planned] = of_pool(wish, cone, left, planned * late.situation.keep, planned, helps[name])
        else:
            key, machines = _key(name, late.p, found), found.fleet.choices[name, late.p].machines
            more = STEP * wish.room.get(key, 1.0)
            if cone is not None and cone.kept is not None:
                more = excluding_factor(wish, cone, machines, late.rate)
            room[key] = max(more, least * wish.room.get(key, 1.0))
    return replace(wish, room=room, rooms=rooms, firm=frozenset(firm))


def _as_planned(wish: FleetRequest, careful: Cone, rate: float) -> Cone:
    """The same, that says what machines carry by the rows by which they are planned."""
    by = wish.planned_by(careful, rate)
    if by is careful or not isinstance(by, Cone):
        return careful
    return replace(careful, most=by.most, anew=by.anew, known=by.known, cuts=by.cuts)


def _rooms(found: Found, careful: Cone, late: _Late) -> dict[str, float]:
    """How many machines of each hardware are worth one of the program, by which those that are short are too few.

    Of each hardware it is looked how many alone are enough. Where that does not say that those together are too few,
    those are worth less that are not enough alone, else all.
    """
    machines = found.fleet.choices[careful.app, late.p].machines
    left = dict(zip(careful.hardware, surviving(found.wish, careful, machines, late.situation), strict=True))
    alone = {h: _alone(found.wish, careful, h, late.required_rate) for h, count in left.items() if count}
    vague = [hardware for hardware, (_, is_enough) in alone.items() if not is_enough]
    rooms = {h: room if is_enough or len(alone) == 1 else 1.0 for h, (room, is_enough) in alone.items()}
    rooms |= found.wish.rooms.get((careful.app, late.rate), {})

    def carried(there: Mapping[str, int]) -> float:
        return careful.max_rate([there.get(h, 0) / rooms.get(h, 1.0) for h in careful.hardware])

    if carried({h: n for h, n in left.items() if h not in vague}) >= late.required_rate:
        vague = []  # however little those are worth, the others would do
    while (most := carried(left)) >= late.required_rate:
        more = STEP if vague else max(STEP, MORE * most / late.required_rate)
        rooms |= {hardware: more * rooms[hardware] for hardware in vague or alone}
    return rooms


def _alone(wish: FleetRequest, careful: Cone, hardware: str, wanted: float) -> tuple[float, bool]:
    """How many machines of a hardware are worth one of the program, so that too few are short; if any are enough."""
    offer = wish.offers[int(wish.on(hardware)[0])].name
    one = careful.max_rate([float(hardware == other) for other in careful.hardware])
    if one <= 0:
        return 1.0, False
    few = math.ceil(wanted / one) - 1
    enough, most = few + 1, max(MOST_ALONE * (few + 1), FEW_ALONE)
    while careful.settle({offer: enough}, wanted).part is None:
        few = enough
        if few >= most:
            return MORE * few * one / wanted, False
        enough = min(most, max(few + 1, int(few * WIDER)))
    while enough - few > 1:
        middle = (few + enough) // 2
        kept = careful.settle({offer: middle}, wanted).part is not None
        few, enough = (few, middle) if kept else (middle, enough)
    return max(1.0, MORE * few * one / wanted), True


def _careful(wish: FleetRequest, app: Application, part: Part, answers: Answers) -> Cone | Table | None:
    """Who says whether there is room: of a pool its formula, of others a simulation; None: nobody."""
    own, before = wish.options.parts.get(app.name, {}), answers.setdefault((app.name, CAREFUL), {})
    if own.keys() & SAYS_SIZE or wish.options.sizing not in SIZED:
        return None
    if app.question in PLAYED and isinstance(part, Cone | Table) and wish.options.sizing == "simulation":
        by = part.firm if isinstance(part, Cone) and part.firm is not None else part
        options = {name: one for name, one in by.options.items() if name not in AUTO[app.question]}
        if by is not part:  # on some machines more requests are late even alone than on others
            options["allow_late"] = part.options["allow_late"]
        return replace(part, options={**options, **own, "sizing": "simulation"}, settled=before)
    if isinstance(part, Cone) and has_formula(wish, part):
        return replace(part, options={**part.options, "sizing": "formula"}, settled=before, known={}, cuts={})
    return None


def _app(found: Found, name: str) -> Application:
    return next(app for app in found.wish.apps if app.name == name)


def _key(name: str, p: int, found: Found) -> tuple[str, float | None]:
    """What room is kept by: the rate; for the application of which the most is wanted, any rate."""
    return name, None if name == found.wish.most else _app(found, name).rates[p]


SURE = 0.7
"""Of what may be late: what a look shows no more of is confirmed nearly always."""
FEW_MORE = 1.03
"""So much more: a formula is near, and a few machines are the next that there are."""


def tightest(wish: FleetRequest, pool: Cone, machines: Sequence[int]) -> Situation | None:
    """Where a pool has least room by its formula, of the situations in which it has to keep something."""
    least = dict[Situation, float]()
    for one in (one for one in wish.situations if one.keep > 0):
        left = surviving(wish, pool, machines, one)
        if any(left):
            least[one] = pool.room_of(left) / one.keep
    return min(least, key=lambda one: least[one], default=None)


def looks_within_slo(pool: Cone, left: tuple[int, ...], rate: float) -> bool:
    """Whether a short simulation, or what is known of other machines, shows no more late queries than may be."""
    known = pool.looks.is_feasible(left, rate)
    if known is None:
        known = pool.late is None or pool.late(left, rate) < 1.0
        pool.looks.add(left, rate, is_kept=known)
    return known


def is_confirmed(pool: Cone, left: tuple[int, ...], offers: Mapping[str, int], rate: float) -> bool:
    """Whether a full simulation confirms the rate on these machines, or did so on no more of them."""
    known = pool.confirmed.is_feasible(left, rate)
    if known is None:
        known = pool.settle(offers, rate).part is not None
        pool.confirmed.add(left, rate, is_kept=known)
        if not known:
            pool.looks.add_infeasible(left, rate)
    return known


def helpful_hardware(pool: Cone, left: tuple[int, ...], rate: float) -> set[str]:
    """The machine types of which one more is enough for a pool; surely so, where a short simulation was refuted."""
    found, is_refuted = set[str](), pool.confirmed.is_feasible(left, rate) is False
    for hardware in pool.hardware if len(pool.hardware) > 1 else ():
        more = tuple(n + (hardware == other) for other, n in zip(pool.hardware, left, strict=True))
        if pool.late is not None and is_refuted:
            helps = pool.late(more, rate) <= SURE
        else:
            helps = looks_within_slo(pool, more, rate)
        if helps:
            found.add(hardware)
    return found


def of_pool(
    wish: FleetRequest, pool: Cone, left: tuple[int, ...], most: float, planned: float, helps: Set[str]
) -> Mapping[str, float]:
    """How many machines of each hardware are worth one, of a pool of which these are too few for `most`.

    Those are worth less of which one more does not help, where one more of another does; else all.
    """
    rooms = dict.fromkeys(pool.hardware, 1.0) | dict(wish.rooms.get((pool.app, planned), {}))
    less = [hardware for hardware in pool.hardware if hardware not in helps]
    if (
        not helps
        or pool.max_rate([n if h not in less else 0 for h, n in zip(pool.hardware, left, strict=True)]) >= most
    ):
        less = list(rooms)
    while pool.max_rate([n / rooms[h] for h, n in zip(pool.hardware, left, strict=True)]) >= most:
        rooms |= {hardware: FEW_MORE * rooms[hardware] for hardware in less}
    return rooms


MOST_ASKED: Mapping[str, int] = {"pool": 6, "llm": 6, "variants": 6, "pipeline": 2}
"""So often each question is asked for machines that are kept, where its rows or formula may find dearer ones: for the
rates that cost most. A pipeline's takes longest."""
CHEAPER = 1e-3
"""By so much it has to cost less."""

Machines = tuple[int, ...]
"""So many of each hardware, or of each offer."""


@dataclass
class KnownFeasible(Table):
    """Machines that are enough, by rate: those of `least`, and more of them."""

    def minimal(self, rate: float) -> list[tuple[int, ...]]:
        """What is known."""
        return self.least.get(rate, [])

    def carries(self, machines: Sequence[float], rate: float) -> bool:
        """Whether something that is known is among them."""
        return rate <= 0 or any(
            all(a <= b for a, b in zip(one, machines, strict=True)) for one in self.least.get(rate, ())
        )


def known_feasible(
    wish: FleetRequest, asked: Iterable[tuple[Application, float, Machines | None]], parts: Mapping[str, Cone | Table]
) -> dict[tuple[str, float], KnownFeasible]:
    """By application and rate, machines known to be enough: those it has, and those that `parts` find in stock.

    Only who has cheaper ones is named; of whom nothing is known to be in time, who finds some for every failure.
    """
    known, left = dict[tuple[str, float], KnownFeasible](), dict(MOST_ASKED)
    for app, rate, machines in asked:
        part, least = parts[app.name], dict[float, list[Machines]]()
        for one in (one for one in wish.situations if one.keep > 0):
            has = [surviving(wish, part, machines, one)] if machines is not None else []
            least.setdefault(rate * one.keep, []).extend(has)
        is_cheaper, left[app.question] = False, left[app.question] - len(least)
        for wanted in least if left[app.question] >= 0 else ():
            own = _fewest(wish, part, wanted)
            if own is not None:
                dearer = (_price(wish, part, has) for has in least[wanted])
                is_cheaper |= _price(wish, part, own) < (1.0 - CHEAPER) * min(dearer, default=inf)
                least |= {other: [*those, own] for other, those in least.items() if other <= wanted}
        if is_cheaper and all(least.values()):
            known[app.name, rate] = _of(part, least)
    return known


def rates_of(wish: FleetRequest, parts: Mapping[str, Cone | Table]) -> Iterator[tuple[Application, float, None]]:
    """Each application and rate, of which nothing is known."""
    for app in (app for app in wish.apps if app.name in parts):
        for rate in dict.fromkeys(wish.settled_at(app, p) for p in range(wish.periods) if app.rates[p] > 0):
            yield app, rate, None


def _of(part: Cone | Table, least: dict[float, list[Machines]]) -> KnownFeasible:
    return KnownFeasible(
        part.app,
        part.question,
        part.hardware,
        part.inputs,
        part.options,
        part.solve,
        part.settled,
        otherwise=part.otherwise,
        least=least,
    )


def most_expensive(
    found: Found, parts: Mapping[str, Cone | Table], late: Set[tuple[str, float]]
) -> list[tuple[Application, float, Machines | None]]:
    """Applications and rates with their machines (None where late), the highest cost over the horizon first.

    Of text only what has room.
    """
    wish, cost = found.wish, dict[tuple[str, float], float]()
    has = dict[tuple[str, float], tuple[Application, Machines]]()
    for app in (app for app in wish.apps if app.name in parts):
        for p in range(wish.periods):
            key, is_text = (app.name, wish.settled_at(app, p)), _is_text(parts[app.name])
            if (app.name, wish.rate(app, p)) in wish.given_room or (not is_text and app.rates[p] > 0):
                machines = found.fleet.choices[app.name, p].machines
                cost[key] = cost.get(key, 0.0) + float(np.array(machines) @ wish.prices)
                has.setdefault(key, (app, machines))
    return [
        (has[key][0], key[1], None if key in late else has[key][1]) for key in sorted(cost, key=lambda key: -cost[key])
    ]


def _fewest(wish: FleetRequest, part: Cone | Table, rate: float) -> Machines | None:
    """The machines that its own question takes for a rate."""
    stock = {one.name: min(one.stock, HUGE) for one in wish.offers if one.machine in part.hardware}
    plan = part.fewest(stock, rate)
    if plan is None:
        return None
    counts = Counter[str]()
    for worker in plan.workers:
        counts[worker.hardware] += worker.count
    machines = tuple(counts[hardware] for hardware in part.hardware)
    if isinstance(part, Cone):
        part.looks.add(machines, rate, is_kept=True)
        part.confirmed.add(machines, rate, is_kept=True)
    return machines


def _price(wish: FleetRequest, part: Cone | Table, machines: Machines) -> float:
    """What they cost per hour where each is cheapest."""
    return sum(
        count * min(float(wish.prices[n]) for n in wish.on(hardware))
        for hardware, count in zip(part.hardware, machines, strict=True)
    )
