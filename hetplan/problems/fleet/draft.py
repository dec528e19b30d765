"""A fleet as a plan with periods: parts, commitments, what changes between periods, promises, the bill.

The bill says what it costs per hour, day and month, per application and offer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from hetplan.planner.draft import Draft, Reported, Scope
from hetplan.planner.fleet_part import Part
from hetplan.problems.fleet.after_failure import SOON_S, max_reload_s
from hetplan.problems.fleet.bounds import PRICES, ROWS, apps_that_drop, sized_by_formula
from hetplan.problems.fleet.candidate_columns import left_of
from hetplan.problems.fleet.formulations import Bound, Found
from hetplan.problems.fleet.request import FleetRequest, Situation, owners
from hetplan.problems.fleet.search import starts_of
from hetplan.problems.fleet.sharing import used_in
from hetplan.profiles.fields import HOURS_A_MONTH, money_text
from hetplan.profiles.plan import Action, Notice, Period, Promise, Valid
from hetplan.profiles.plan_file import PERIODS
from hetplan.profiles.plan_parts import SHARED, SHARED_TOO, Bill, BillLine, Commitment, Lever
from hetplan.profiles.plan_parts import Part as PlanPart
from hetplan.profiles.plan_periods import machines_with_users

__all__ = ["bill_of", "draft_fleet"]

FULL = "of plans in which a single machine that is lost counts as full of each of them"
"""What a bound is of, where machines are shared and single ones may be lost."""


class _Parts:
    """Parts by their ids, each kept once."""

    def __init__(self, room_seen: frozenset[str]) -> None:
        self.room_seen = room_seen
        self.kept: dict[str, PlanPart] = {}
        self.ids: dict[str, str] = {}
        self.numbers: dict[str, int] = {}
        self.texts: dict[int, tuple[PlanPart, PlanPart, str]] = {}
        """Each part that was seen, as it is kept, and its text; the part is held, so that no other has its number."""
        self.narrowed: dict[tuple[int, tuple[float, ...]], tuple[PlanPart, PlanPart]] = {}
        """Parts by up to which rates they hold, beside those that they come of."""

    def within(self, part: PlanPart, most: Mapping[str, float]) -> PlanPart:
        """The part, which holds up to these rates and no further."""
        valid: dict[str, tuple[float, float | None]] = {}
        for app, (low, high) in part.valid.rate_qps.items():
            less = most[app] if high is None else min(high, most[app])
            valid[app] = (low, less if less < math.inf else None)
        key = id(part), tuple(most[app] for app in valid)
        if key not in self.narrowed:
            narrow = part if valid == part.valid.rate_qps else part.model_copy(update={"valid": Valid(rate_qps=valid)})
            self.narrowed[key] = part, narrow
        return self.narrowed[key][1]

    def id_of(self, app: str, part: PlanPart) -> str:
        """The id of a part, a new one where it was not seen before."""
        if id(part) not in self.texts:
            shown = self._as_seen(part)
            self.texts[id(part)] = part, shown, shown.model_dump_json()
        _, shown, text = self.texts[id(part)]
        if text not in self.ids:
            stem = app[:52]
            self.numbers[stem] = self.numbers.get(stem, 0) + 1
            name = f"{stem}-{self.numbers[stem]}"
            self.ids[text], self.kept[name] = name, shown
        return self.ids[text]

    def _as_seen(self, part: PlanPart) -> PlanPart:
        """A pool that is planned by rates says that no query was thought to wait; the fleet may have looked at that."""
        if part.question != "pool" or not part.rate_qps.keys() <= self.room_seen:
            return part
        return part.model_copy(update={"warnings": tuple(one for one in part.warnings if one.code != "W-queueing")})


def draft_fleet(found: Found, levers: tuple[Lever, ...], parts: Mapping[str, Part]) -> Draft:
    """The plan (a draft) of a fleet that was found, with its savings and the parts of its applications."""
    wish, kept = found.wish, _Parts(found.room_seen)
    periods, promises = [], list[Promise]()
    running = [_running(found, p) for p in range(wish.periods)]
    for p in range(wish.periods):
        names, failures = [], dict[str, tuple[str, ...]]()
        after = {situation.name: tuple(_after(found, parts, p, situation)) for situation in wish.situations[1:]}
        most = _most(wish, p, after)
        for app in wish.apps:
            part = found.parts.get((app.name, p))
            if part is not None and app.name == next(iter(part.rate_qps)):  # one that is shared comes once
                names.append(kept.id_of(_whose(part), kept.within(part, most)))
            promises += _promises(found, app.name, p, after)
        for name, left in after.items():
            failures[name] = tuple(kept.id_of(_whose(one), one) for one in left)
        follows = wish.periods > 1 and (p > 0 or wish.again > 0)
        actions = tuple(_actions(wish, running[p - 1], running[p])) if follows else ()
        length = wish.hours * 3600.0
        periods.append(
            Period(
                id=f"p{p}",
                start_s=p * length,
                end_s=(p + 1) * length,
                parts=tuple(names),
                actions=actions or None,
                failures=failures or None,
            )
        )
    mean = found.cost_per_hour
    promises.append(Promise(quantity="cost_per_hour", relation="=", value=mean, model="no-queueing"))
    bound = min(found.shown.value / (wish.hours * wish.periods), mean)
    note = _about_the_bound(found)
    commitments = tuple(
        Commitment.model_validate(
            {"offer": offer.name, "count": count, "term_s": offer.ahead.term_s,
             "upfront": money_text(offer.ahead.upfront), "price_per_hour": money_text(offer.ahead.nanos)}
        )
        for offer, count in zip(wish.offers, found.fleet.committed, strict=True)
        if count and offer.ahead is not None
    )  # fmt: skip
    sections: dict[str, Any] = {
        "periods": tuple(periods),
        "parts": kept.kept,
        "commitments": commitments,
        "bill": bill_of(found, levers),
    }
    return Draft(
        workers=(),
        actions=tuple(_first_actions(found)) if wish.stated else (),
        promises=tuple(promises),
        reported=_reported(found, mean, bound, note),
        requires=(PERIODS, *sorted({rule.rule for part in kept.kept.values() for rule in part.dispatch.values()})),
        valid=Valid(rate_qps={app.name: (0.0, max(app.rates)) for app in wish.apps}),
        target_missed=found.missed,
        repairs=found.repairs,
        warnings=(*_warnings(wish, kept.kept), *found.notices, *_loading(wish, periods, kept.kept)),
        sections=sections,
        extensions=_carried(found.shown),
    )


def _carried(shown: Bound) -> dict[str, Any]:
    """What a plan carries by which its bound is shown again."""
    if shown.answer is not None:
        return {ROWS: {name: [[float(n) for n in one] for one in rows] for name, rows in shown.rows.items()}}
    return {PRICES: list(shown.prices)} if shown.prices else {}


def _about_the_bound(found: Found) -> str:
    of = found.bounded or found.wish
    own = of.slices
    whole = f"whole machines, shared by {', '.join(own)} alone" if own else "whole machines, none of them shared"
    note = (
        f"bound of the program of all periods: {whole}, which stay with their application after a failure"
        if found.shown.answer is not None
        else f"bound of {found.shown.rounds} rounds of prices, without the costs of starting: {whole}, which stay with "
        "their application after a failure"
    )
    note = f"{note}; {FULL}" if _counts_full(of) else note
    sharers = ", ".join(found.may_share)
    return f"{note}; {sharers} may share machines, and count as free in it" if sharers else note


def _counts_full(wish: FleetRequest) -> bool:
    """Whether plans are bounded that lose more with a single machine than others might."""
    return bool(wish.slices) and any(one.hardware in wish.places for one in wish.situations)


def _reported(found: Found, mean: float, bound: float, note: str) -> tuple[Reported, ...]:
    """What the plan claims: the least cost; where something else was wished, that, and the least cost at it."""
    scope: Scope = "problem"
    if (by_formula := sized_by_formula(found.wish)) and not found.formula:
        scope, note = "relaxation", f"{note}; it leaves out waiting of {', '.join(by_formula)}"
    if drop := apps_that_drop(found.wish):
        scope, note = "relaxation", f"{note}; it counts only the queries of {', '.join(drop)} that must be in time"
    if found.wish.leaves_room:
        names = sorted({name for name, _ in found.wish.room})
        most = {one: max(more for (name, _), more in found.wish.room.items() if name == one) for one in names}
        roomy = [f"up to {more:.3g} times the rate of {name}" for name, more in most.items()]
        looked = sorted({name for name, _ in found.wish.given_room})
        roomy += [f"the machines with which {name} keeps its limits" for name in looked]
        scope, note = (
            "relaxation",
            f"{note}; it leaves out waiting: the plan is for {', '.join(roomy)}, because queues need that",
        )
    if found.formula:
        note = f"{note}; of fleets that leave {', '.join(found.formula)} the headroom of a queueing formula"
    if policies := [app.name for app in found.wish.apps if app.question == "policy"]:
        note = (
            f"{note}; of fleets in which each machine type of {', '.join(policies)} takes its share by capacity and "
            "keeps the limits by itself, by policies on the grid of slacks that was asked for"
        )
    narrow = bool(found.formula or policies) or _counts_full(found.bounded or found.wish)
    scope = "restriction" if narrow else scope
    cost = Reported("cost_per_hour", "min", scope, value=mean, bound=bound, vouched="claimed", note=note)
    if found.shown.answer is not None and not narrow:
        per_hour = 1.0 / (found.wish.hours * found.wish.periods)
        cost = replace(cost, answer=found.shown.answer, scale=per_hour, bound=None, vouched=None)
    if found.goal is None:
        return (cost,)
    goal = replace(found.goal, scope="restriction") if found.formula or policies else found.goal
    return (goal, replace(cost, scope="restriction", note="of the machines for that goal alone"))


def _running(found: Found, p: int) -> dict[str, tuple[str, int]]:
    """Workers of a period: their offer and how many."""
    workers = [worker for (_, period), part in found.parts.items() if period == p for worker in part.workers]
    return {worker.id: (worker.offer or worker.hardware, worker.count) for worker in workers}


def _actions(
    wish: FleetRequest, before: Mapping[str, tuple[str, int]], after: Mapping[str, tuple[str, int]]
) -> Iterator[Action]:
    """What starts ahead of a period, and then what stops when it begins."""
    profile, started = wish.inputs.profile, list[int]()
    number = 0
    for name, (offer, count) in sorted(after.items()):
        more = count - before.get(name, (offer, 0))[1]
        if more > 0:
            number += 1
            started.append(number)
            ahead = profile.hardware[profile.offers[offer].hardware].startup_s
            yield Action(id=number, do="start", worker=name, count=more, ahead_s=ahead)
    for name, (offer, count) in sorted(before.items()):
        fewer = count - after.get(name, (offer, 0))[1]
        if fewer > 0:
            number += 1
            yield Action(id=number, do="stop", worker=name, count=fewer, after=tuple(started))


def _first_actions(found: Found) -> Iterator[Action]:
    """From what runs to the first period: machines that the same applications have of an offer already go on."""
    wish, started, number = found.wish, list[int](), 0
    left = dict(wish.running)
    first = [(app.name, found.parts.get((app.name, 0))) for app in wish.apps]
    parts = [part for name, part in first if part is not None and name == next(iter(part.rate_qps))]
    for worker, users in machines_with_users(parts):
        key = (users, worker.offer or "")
        kept = min(left.get(key, 0), worker.count)
        left[key] = left.get(key, 0) - kept
        if worker.count > kept:
            number += 1
            started.append(number)
            yield Action(id=number, do="start", worker=worker.id, count=worker.count - kept)
    for worker, key in owners(wish.request):
        fewer = min(left.get(key, 0), worker.count + worker.standby)
        left[key] = left.get(key, 0) - fewer
        if fewer:
            number += 1
            yield Action(id=number, do="stop", worker=worker.id, count=fewer, after=tuple(started))


def _promises(found: Found, app: str, p: int, after: Mapping[str, Sequence[PlanPart]]) -> Iterator[Promise]:
    part = found.parts.get((app, p))
    rate = next(one for one in found.wish.apps if one.name == app).rates[p]
    for number, situation in enumerate(found.wish.situations):
        running = part if number == 0 else next((one for one in after[situation.name] if app in one.rate_qps), None)
        said = {promise.quantity: promise.model for promise in running.promises} if running is not None else {}
        model = said.get("rate_qps") or said.get("fluid_rate_qps") or "no-queueing"
        yield Promise(app=app, period=f"p{p}", situation=situation.name if number else None, quantity="rate_qps",
                      relation=">=", value=rate * situation.keep, model=model)  # fmt: skip
    for one in part.promises if part is not None else ():
        if one.app == app and one.percentile is not None:
            yield one.model_copy(update={"period": f"p{p}"})


def _most(wish: FleetRequest, p: int, after: Mapping[str, Sequence[PlanPart]]) -> dict[str, float]:
    """Up to which rate of each application what is left after every failure carries the share that is kept."""
    most = dict.fromkeys((app.name for app in wish.apps), math.inf)
    for situation in wish.situations[1:]:
        spans = {name: span for one in after[situation.name] for name, span in one.valid.rate_qps.items()}
        for app in wish.apps if situation.keep > 0 else ():
            high = spans.get(app.name, (0.0, 0.0))[1]
            rate = math.inf if high is None else high / situation.keep
            rate = app.rates[p] if math.isclose(rate, app.rates[p], rel_tol=1e-9) else rate
            most[app.name] = min(most[app.name], rate)
    return most


def _after(found: Found, parts: Mapping[str, Part], p: int, situation: Situation) -> Iterator[PlanPart]:
    """The parts that run after a failure: each application on what is left of its machines, at the rate kept."""
    wish, together = found.wish, found.together.get(p, ())
    for one in together:
        if (part := one.after.get(situation.name)) is not None:
            yield part
    for app in wish.apps:
        if any(app.name in one.part.rate_qps for one in together):
            continue
        choice = found.fleet.choices[app.name, p]
        offers = left_of(wish, parts[app.name], choice.machines, situation)
        if not offers:
            continue
        after = found.after.get((app.name, p, situation.name))
        after = after or parts[app.name].settle(offers, wish.settled_at(app, p) * situation.keep).part
        if after is not None:
            yield after


def _loading(wish: FleetRequest, periods: Sequence[Period], parts: Mapping[str, PlanPart]) -> Iterator[Notice]:
    """A warning for each application of which machines load long after a failure, as they held something else."""
    late = dict[str, list[float]]()
    for period in periods:
        before = {_whose(parts[name]): parts[name] for name in period.parts or ()}
        for name in (name for names in (period.failures or {}).values() for name in names):
            now = before.get(_whose(parts[name]))
            if now is not None and now.question in ("pipeline", "variants"):
                late.setdefault(_whose(now), []).append(max_reload_s(wish.request, now, parts[name]))
    for name, seconds in late.items():
        slow = [one for one in seconds if one > SOON_S]
        if slow:
            text = (
                f"{name} loads models for up to {max(slow):g} s after {len(slow)} of {len(seconds)} failures, and "
                "serves less than survive asks until then: add headroom (option headroom), or load faster"
            )
            yield Notice(code="W-loading", at="promises", text=text)


def _whose(part: PlanPart) -> str:
    """The applications of a part, as its name says them."""
    return "-".join(part.rate_qps)


def _warnings(wish: FleetRequest, parts: Mapping[str, PlanPart]) -> Iterator[Notice]:
    """What parts warn of, each code and place once for an application."""
    yield from _taken_back(wish, parts)
    seen: set[tuple[str, ...]] = set()
    for part in parts.values():
        for notice in part.warnings:
            key = (notice.code, notice.at, *sorted(part.rate_qps))
            if notice.code != "W-interruptions" and key not in seen:
                seen.add(key)
                yield _of_fleet(notice, part)


def _taken_back(wish: FleetRequest, parts: Mapping[str, PlanPart]) -> Iterator[Notice]:
    """Machines that may be taken back, where nothing is kept for that."""
    if wish.request.survive.spot == "none":
        text = "its spot machines may be interrupted, and no machine is spare: see limits.survive.spot"
        notices = (notice for part in parts.values() for notice in part.warnings)
        for at in dict.fromkeys(notice.at for notice in notices if notice.code == "W-interruptions"):
            yield Notice(code="W-interruptions", at=at, text=text)


def _of_fleet(notice: Notice, part: PlanPart) -> Notice:
    """A part's warning in the words of a fleet."""
    if (notice.code, part.question) != ("W-queueing", "llm"):
        return notice
    name = _whose(part)
    text = f"{name} is sized without simulation, so no percentile is promised: run hetplan simulate"
    return notice.model_copy(update={"text": text})


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
                    cost = own * (offer.reserved_price or 0.0) + by_hour * offer.price + part
                    yield BillLine(period=f"p{p}", offer=offer.name, app=app, committed=own, rented=by_hour,
                                   cost_per_hour=cost, starts_per_hour=part)  # fmt: skip
            idle, spare = max(ahead - total, 0), max(rented - max(total - ahead, 0), 0)
            left = starting if total <= ahead else 0.0
            if idle or spare or left:
                cost = idle * (offer.reserved_price or 0.0) + spare * offer.price + left
                yield BillLine(period=f"p{p}", offer=offer.name, committed=float(idle), rented=float(spare),
                               cost_per_hour=cost, starts_per_hour=left)  # fmt: skip


def bill_of(found: Found, levers: tuple[Lever, ...]) -> Bill:
    """The bill of a fleet: a line for each offer, and the savings."""
    wish, hours = found.wish, found.wish.hours * found.wish.periods
    mean = found.cost_per_hour
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
