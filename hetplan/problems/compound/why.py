"""Why all queries cannot be served, and what is missing: totals to raise, machines to add, plans that fit nowhere."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hetplan.planner.contract import Ask
from hetplan.planner.draft import Infeasibility, Repair
from hetplan.planner.forms.milp import Builder
from hetplan.planner.forms.packing import Packing
from hetplan.planner.tolerances import FEASIBILITY
from hetplan.problems.compound.form import Asked, packing
from hetplan.problems.compound.wish import BUDGET, Query
from hetplan.profiles.fields import NANO

__all__ = ["over_budget", "short"]

GAP = 2e-3
MOST_WHOLE = 5000


def short(wanted: Asked, ask: Ask, form: Packing, queries: Sequence[Query], *, proved: bool) -> Infeasibility:
    """Queries without any way that fits alone; else the totals, or the machines, that serving all would take."""
    stuck = [i for i in range(len(queries)) if not form.fits[form.first[i] : form.first[i + 1]].any()]
    if stuck:
        why = tuple(_alone(wanted, form, queries, i) for i in stuck)
        wider = tuple(repair for i in stuck for repair in queries[i].repairs)
        # Machines that are too small stay so; there may be more of them, and totals can be raised.
        if form.items is None:
            more = _totals(ask, replace(form, items=None), every=True, proved=True)
        else:
            more = _machines(wanted, ask, form, queries, proved=True)
        return Infeasibility(why=why, repairs=wider + more.repairs, proved=True)
    if form.items is not None:
        return _machines(wanted, ask, form, queries, proved=proved)
    return _totals(ask, form, proved=proved)


def over_budget(wanted: Asked, ask: Ask, queries: Sequence[Query]) -> Infeasibility | None:
    """The least that serving all costs, where that is more than the budget; None where it is something else."""
    totals = {name: most for name, most in wanted.totals.items() if name != BUDGET}
    form = packing(queries, wanted.tiers, totals, sense="min")
    answer = ask(form, gap=GAP, about="the least budget that serves all", solver="dual")
    if answer.point is None:
        return None
    least, budget = form.value(answer.point), wanted.wish.budget
    if least <= budget * (1 + FEASIBILITY):
        return None
    field, to = "slo.limits.cost_per_hour", math.ceil(least * NANO) / NANO
    text = f"raise {field} by {to - budget:.6g} to {to:.6g}"
    repair = Repair(field=field, verb="raise", amount=to - budget, to=to, unit="per hour", text=text)
    why = f"all of them cost {to:.6g} an hour or more, the limit is {budget:.6g}"
    return Infeasibility(why=(why,), repairs=(repair,))


def _alone(wanted: Asked, form: Packing, queries: Sequence[Query], i: int) -> str:
    query = queries[i]
    if not query.ways:
        return f"{query.app_id} has no plan: {query.why_none or 'none was given'}"
    least = form.taken[form.first[i] : form.first[i + 1]].min(axis=0)
    over = np.flatnonzero(least > form.limit)
    kinds = 0 if form.items is None else form.items.room.shape[1]
    names = [*form.resources, *(f"tier {tier.name}" for tier in wanted.tiers if not tier.own for _ in range(kinds))]
    of = list(dict.fromkeys(names[r] for r in over.tolist())) or ["any one machine"]
    return f"{query.app_id}: none of its {len(query.ways)} plans fits, even alone: too little of {' and '.join(of)}"


def _totals(ask: Ask, form: Packing, *, proved: bool, every: bool = False) -> Infeasibility:
    """The least excess over the totals, each relative to its size; of many options its linear relaxation.

    `every` counts options in that do not fit alone.
    """
    finite = np.flatnonzero(np.isfinite(form.capacity))
    keep = np.arange(form.fits.size) if every else np.flatnonzero(form.fits)
    m = Builder("min", name="excess")
    x = m.columns("option", (), size=keep.size, upper=1.0, whole=keep.size <= MOST_WHOLE)
    scale = np.where(form.capacity[finite] > 0, form.capacity[finite], 1.0)
    over = m.columns("excess", (), size=finite.size, cost=1.0 / scale)
    one = m.rows("one", (), size=form.first.size - 1, lower=1.0, upper=1.0)
    m.add(one[form.group[keep]], x, 1.0)
    room = m.rows("room", (), size=finite.size, upper=form.capacity[finite])
    for row, r in zip(room, finite, strict=True):
        m.add(row, x, form.demand[keep, r])
    m.add(room, over, -1.0)
    answer = ask(m.build(), about="least excess over the totals")
    why = "all queries together take more than there is"
    if answer.point is None:
        return Infeasibility(why=(why,), proved=proved)
    excess = np.asarray(answer.point)[over]
    repairs = []
    for place, amount in zip(map(int, finite), map(float, excess), strict=True):
        if amount > FEASIBILITY * max(1.0, float(form.capacity[place])):
            to = float(form.capacity[place]) + amount
            name = form.resources[place]
            field = name if name.startswith("profile.") else f"slo.limits.capacity.{name}"
            text = f"raise {field} by {amount:.6g} to {to:.6g}"
            repairs.append(
                Repair(field=field, verb="raise", amount=amount, to=to, unit=form.resources[place], text=text)
            )
    named = ", ".join(repair.unit for repair in repairs)
    return Infeasibility(why=(f"{why} of {named}" if named else why,), repairs=tuple(repairs), proved=proved)


def _machines(wanted: Asked, ask: Ask, asked: Packing, queries: Sequence[Query], *, proved: bool) -> Infeasibility:
    """With as many machines as wanted, each at price 1: the tiers that then have more than there are.

    Where even these do not help, it is the totals.
    """
    lavish = [
        replace(tier, machines=np.inf, price_nanos=0 if np.isinf(tier.machines) else NANO, per=None)
        for tier in wanted.tiers
    ]
    unpriced = [replace(q, ways=tuple(replace(way, price=0.0) for way in q.ways)) for q in queries]
    form = packing(unpriced, lavish, wanted.totals, sense="min")
    answer = ask(form, gap=GAP, about="machines that would serve all", solver="dual")
    if answer.point is None or form.items is None:
        return _totals(ask, replace(asked, items=None), proved=proved)
    used = form.opened(answer.point)
    shared = [tier for tier in wanted.tiers if not tier.own]
    repairs, why = [], []
    for tier, machines in zip(shared, used, strict=True):
        count = int(machines)
        if count > tier.machines:
            missing = int(count - tier.machines)
            field = f"slo.limits.instances.{tier.hardware}"
            why.append(f"tier {tier.name} has {tier.machines:g} machines; {missing} more are missing to serve all")
            text = f"raise {field} by {missing} to {count}"
            repairs.append(Repair(field=field, verb="raise", amount=missing, to=count, unit="machines", text=text))
    return Infeasibility(
        why=tuple(why) or ("no packing of all queries was found",), repairs=tuple(repairs), proved=proved
    )
