"""Machines that applications of one question share beyond slices: looked for after each application has its machines.

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

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, product

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.bridge import Part, Table
from hetplan.planner.machine_limits import keeps, machine_limits
from hetplan.planner.request import read_request
from hetplan.problems.fleet.ahead import SOON_S, filled, loaded_anew_s
from hetplan.problems.fleet.menus import left_of
from hetplan.problems.fleet.search import Fleet
from hetplan.problems.fleet.ways import BESIDE, Found, Together, needs_on
from hetplan.problems.fleet.whole import cost_of
from hetplan.problems.fleet.wish import Application, Wish
from hetplan.problems.fleet.zones import Counts
from hetplan.problems.places import fit_together
from hetplan.profiles.plan_parts import Part as PlanPart
from hetplan.profiles.plan_periods import machines_with_users

__all__ = ["bounding_less", "used_in", "who_may_share", "with_sharing"]

Integers = NDArray[np.int64]
NAME = 40
"""Names of all applications are joined up to so many letters, to name the machines that they share."""


def with_sharing(found: Found, parts: Mapping[str, Part]) -> Found:
    """The fleet with fewer machines, where applications can share them and that costs less; else as it is."""
    wish, apps = found.wish, _sharers(found.wish)
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
            known[key] = _fewer(wish, _joined(parts, rates), machines, beside) if len(rates) > 1 else None
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


def who_may_share(wish: Wish, parts: Mapping[str, Part]) -> list[Application]:
    """The applications that a bound in which nobody shares, but in slices, counts as free."""
    apps = _sharers(wish)
    found = {app.name for app in apps if _may_fit(wish, apps, parts)}
    if wish.options.share_machines and wish.goal == "cost":
        for one, other in combinations(wish.apps, 2):
            if _may_meet(wish, one, other, parts):
                found |= {one.name, other.name}
    return [app for app in wish.apps if app.name in found]


def _may_meet(wish: Wish, one: Application, other: Application, parts: Mapping[str, Part]) -> bool:
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


def _sharers(wish: Wish) -> list[Application]:
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


def _may_fit(wish: Wish, apps: Sequence[Application], parts: Mapping[str, Part]) -> bool:
    """Whether two instances may be on one machine, or one after another, as far as a look at their needs tells."""
    hardware = {name for app in apps for name in parts[app.name].hardware}
    runs = (one for name in hardware for one in wish.request.choices(hardware=name) if one.needs)
    halves = (all(2.0 * need <= r.machine.provides.get(name, 0.0) for name, need in r.needs.items()) for r in runs)
    return len(wish.situations) > 1 or any(halves)


def _joined(parts: Mapping[str, Part], rates: Mapping[str, float]) -> Table:
    """These applications as one, at their rates."""
    first, name = parts[next(iter(rates))], "-".join(rates)
    return Table(
        app=name if len(name) <= NAME and name not in parts else "shared-by-several",
        question=first.question,
        hardware=tuple(dict.fromkeys(hardware for app in rates for hardware in parts[app].hardware)),
        inputs=first.inputs,
        options=first.options,
        solve=first.solve,
        members=rates,
    )


def _fewer(wish: Wish, part: Table, machines: Counts, beside: Integers) -> Together | None:
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


def _spread(wish: Wish, machines: Counts, beside: Integers) -> Iterator[Counts]:
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


def _settled(wish: Wish, part: Table, machines: Counts) -> tuple[PlanPart, dict[str, PlanPart]] | None:
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
    before = filled(plans.pop(wish.situations[0].name), list(plans.values()))
    request = read_request(part.inputs)
    late = any(loaded_anew_s(request, before, after) > SOON_S for after in plans.values())
    return None if late else (before, plans)


def _bought(wish: Wish, found: Found) -> Fleet:
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
        Fleet(_whole(ahead), found.fleet.choices, tuple(_whole(np.maximum(one - ahead, 0.0)) for one in used))
        for ahead in ways
        if all(keeps(limits, np.maximum(one, ahead), ahead) for one in used)
    ]
    return min(fleets, key=lambda fleet: cost_of(wish, fleet), default=found.fleet)


def _whole(counts: Sequence[float] | np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> tuple[int, ...]:
    return tuple(int(n) for n in counts)
