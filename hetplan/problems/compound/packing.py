"""The second stage: one way for every query, within what there is.

All queries with their ways are one `Packing`: a group per query, an option per way, limits in total as resources, and
machines of shared tiers that hold items. Either most weight is served, or all are, with the least of one figure (cost,
quality that is missed, latency) under limits on others; then the same queries are served at least cost. With a budget
and whole machines at a price, one such program is solved for each number of machines that the budget pays for.

Where not all can be served, the same program says what is missing: with slack in its totals, with as many machines as
wanted, or without the budget.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from hetplan.errors import NoSolver
from hetplan.planner.answer import Answer, Status
from hetplan.planner.contract import Ask
from hetplan.planner.draft import Infeasibility, Repair
from hetplan.planner.forms.black_box import Figure
from hetplan.planner.forms.milp import Builder
from hetplan.planner.forms.packing import Choice, Items, Packing, sums_of
from hetplan.planner.tolerances import FEASIBILITY
from hetplan.problems.compound.pipeline_query import CompoundProblem
from hetplan.problems.compound.request import BUDGET, Query, Tier, Way
from hetplan.profiles.fields import NANO

__all__ = ["PackedQueries", "figures", "mean_weights", "pack", "packing"]

GAP = 2e-3
"""The default gap of a packing."""
SAME = 1e-9
"""By how much a figure may be worse when the cost follows it."""
MOST_NUMBERS = 300
"""For so many numbers of whole machines a packing is solved."""
MOST_WHOLE = 5000
"""Of more options the least excess over totals is that of the linear relaxation."""
NO_CAPS: Mapping[Figure, float] = {}


@dataclass(frozen=True)
class PackedQueries:
    """All queries packed: the forms asked, the choice, and the answers that back value and cost."""

    queries: tuple[Query, ...]
    form: Packing
    choice: Choice
    answer: Answer[Choice]
    figure: Figure
    tiers: tuple[Tier, ...]
    """Those that queries share, in the order of the form."""
    cost: tuple[Packing, Answer[Choice]] | None = None

    @property
    def served_queries(self) -> list[tuple[Query, Way, int]]:
        """The queries that are served, with their ways and these ways' numbers in the form."""
        return [
            (query, query.ways[option - int(self.form.first[i])], option)
            for i, (query, option) in enumerate(zip(self.queries, self.choice.option.tolist(), strict=True))
            if option >= 0
        ]

    @property
    def chosen(self) -> dict[str, Way]:
        """The way of each application that is served."""
        return {query.app_id: way for query, way, _ in self.served_queries}

    @property
    def opening(self) -> np.ndarray:
        """What a machine of each shared tier costs, where it is paid for whole."""
        return np.array([tier.whole_price for tier in self.tiers])

    def value(self, name: Figure) -> float:
        """What a figure comes to, over all that are served."""
        value = float(figures(self.queries, name)[self.choice.option[self.choice.option >= 0]].sum())
        if name == "cost" and self.form.items is not None:
            value += float(self.opening @ self.form.opened(self.choice))
        return value

    def machines_of(self, option: int) -> dict[str, tuple[int, ...]]:
        """Per tier the machines that hold a chosen way's items."""
        items = self.form.items
        if items is None or self.choice.machine is None:
            return {}
        where: dict[str, list[int]] = {}
        for item in range(int(items.first[option]), int(items.first[option + 1])):
            where.setdefault(self.tiers[int(items.tier[item])].name, []).append(int(self.choice.machine[item]))
        return {tier: tuple(machines) for tier, machines in where.items()}


def packing(
    queries: Sequence[Query],
    tiers: Sequence[Tier],
    totals: Mapping[str, float],
    *,
    sense: Literal["max", "min"],
    figure: Figure = "cost",
    caps: Mapping[Figure, float] = NO_CAPS,
) -> Packing:
    """The form: a group per application, an option per way, totals as resources, machines of shared tiers.

    Where all are served, `figure` is what is least of them, and `caps` are what other figures may come to (the mean
    of quality and of latency, by weight).
    """
    ways = [way for query in queries for way in query.ways]
    counts = np.array([len(query.ways) for query in queries], dtype=np.int64)
    first = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    worth = np.array([way.weight for way in ways]) if sense == "max" else figures(queries, figure)
    limits = {**totals, **{f"mean_{name}": cap for name, cap in caps.items()}}
    demand = np.array(
        [[way.price if name == BUDGET else way.demand.get(name, 0.0) for name in totals] for way in ways]
    ).reshape(len(ways), len(totals))
    capped = [figures(queries, name)[:, None] for name in caps]
    demand = np.concatenate([demand, *capped], axis=1)
    shared = [tier for tier in tiers if not tier.own]
    return Packing(
        sense,
        first,
        worth.astype(float),
        demand.astype(float),
        np.array(list(limits.values()), dtype=float),
        items=_items(ways, shared, paid=figure == "cost") if any(way.items for way in ways) else None,
        groups=tuple(query.app_id for query in queries),
        resources=tuple(limits),
        name="compound",
    )


def figures(queries: Sequence[Query], name: Figure) -> np.ndarray:
    """A figure of every way, so that those chosen add up to the whole: a sum for cost, else a mean by weight."""
    parts = mean_weights(queries) if name != "cost" else [1.0] * len(queries)
    of = [part * way.figure(name) for part, query in zip(parts, queries, strict=True) for way in query.ways]
    return np.array(of, dtype=float)


def mean_weights(queries: Sequence[Query]) -> list[float]:
    """What each query counts for in a mean."""
    weights = [query.app.weight() for query in queries]
    total = sum(weights)
    return [weight / total if total > 0 else 1.0 / len(weights) for weight in weights]


def _items(ways: Sequence[Way], tiers: Sequence[Tier], *, paid: bool) -> Items:
    place = {tier.name: t for t, tier in enumerate(tiers)}
    kinds = tuple(dict.fromkeys(kind for way in ways for item in way.items for kind in item.size))
    kept = [[item for item in way.items if item.tier in place] for way in ways]
    flat = [item for items in kept for item in items]
    at = np.array([place[item.tier] for item in flat], dtype=np.int64)
    size = np.array([[item.size.get(kind, 0.0) for kind in kinds] for item in flat]).reshape(len(flat), len(kinds))
    room = np.array([[tier.room.get(kind, 0.0) for kind in kinds] for tier in tiers]).reshape(len(tiers), len(kinds))
    elsewhere = np.array([[kind in tier.elsewhere for kind in kinds] for tier in tiers]).reshape(room.shape)
    return Items(
        first=np.concatenate([[0], np.cumsum([len(items) for items in kept])]).astype(np.int64),
        tier=at,
        size=np.where(elsewhere[at], 0.0, size),
        machines=np.array([tier.machines for tier in tiers], dtype=float),
        room=room,
        price=np.array([tier.whole_price if paid else 0.0 for tier in tiers]),
    )


def pack(
    asked: CompoundProblem,
    ask: Ask,
    queries: Sequence[Query],
    caps: Mapping[Figure, float] = NO_CAPS,
    of: tuple[Figure, ...] = (),
) -> PackedQueries | Infeasibility:
    """One way per query, by the objective (or `of`); `caps` limits other figures than the first that is sought."""
    wish = replace(asked.wish, of=of or asked.wish.of, budget=min(asked.wish.budget, caps.get("cost", math.inf)))
    totals = {**asked.totals, BUDGET: wish.budget} if "cost" in caps else asked.totals
    asked, caps = replace(asked, wish=wish, totals=totals), {k: v for k, v in caps.items() if k != "cost"}
    tiers = _machines_within_budget(asked, queries)
    if isinstance(tiers, Infeasibility):
        return tiers
    tried: list[PackedQueries | Infeasibility] = []
    for these, rest in tiers:
        within = {**totals, BUDGET: rest} if BUDGET in totals else totals
        tried.append(_pack_on(replace(asked, tiers=these, totals=within), ask, queries, caps))
    made = [one for one in tried if isinstance(one, PackedQueries)]
    if not made and BUDGET in totals and (missing := _missing_budget(asked, ask, queries)) is not None:
        return replace(missing, proved=not asked.sought)
    if not made:
        return next(one for one in tried if isinstance(one, Infeasibility))
    best = max if made[0].form.sense == "max" else min
    return best(made, key=lambda one: one.form.value(one.choice))


def _machines_within_budget(
    asked: CompoundProblem, queries: Sequence[Query]
) -> Infeasibility | list[tuple[tuple[Tier, ...], float]]:
    """The tiers, and what is left of the budget for shares; with whole machines at a price, per numbers of them.

    Of numbers that the budget pays for only the largest count where nothing else costs anything.
    """
    budget = asked.wish.budget
    paid = [t for t in asked.tiers if not t.own and t.whole_price > 0]
    if math.isinf(budget) or not paid or not any(way.items for query in queries for way in query.ways):
        return [(asked.tiers, budget)]
    prices = np.array([tier.machine_price for tier in paid])
    most = np.array([tier.machines for tier in paid])
    counts = {numbers: cost for cost, numbers in sums_of(prices, most, budget)}
    if not any(way.price > 0 for query in queries for way in query.ways):
        more = np.eye(len(paid), dtype=int)
        counts = {n: cost for n, cost in counts.items() if not any(tuple(np.add(n, one)) in counts for one in more)}
    if not 0 < len(counts) <= MOST_NUMBERS:
        why = f"the budget pays for {len(counts) or 'too many'} numbers of whole machines; {MOST_NUMBERS} are tried"
        return Infeasibility(why=(why, "limit them by limits.instances, or pay by the share"), proved=False)
    found = []
    for numbers, cost in counts.items():
        machines = {tier.name: float(n) for tier, n in zip(paid, numbers, strict=True)}
        tiers = tuple(replace(t, machines=machines.get(t.name, t.machines)) for t in asked.tiers)
        found.append((tiers, budget - cost))
    return found


def _pack_on(
    asked: CompoundProblem, ask: Ask, queries: Sequence[Query], caps: Mapping[Figure, float]
) -> PackedQueries | Infeasibility:
    """One way per query on these tiers, within these totals."""
    wish, figure, options = asked.wish, asked.wish.of[0], asked.options
    form = packing(queries, asked.tiers, asked.totals, sense=wish.sense, figure=figure, caps=caps)
    best = {"cost": "at least cost", "quality": "at best quality", "latency": "at least latency"}[figure]
    about = "most weight served" if form.sense == "max" else f"all served {best}"
    packer = options.packing if figure == "cost" or options.packing.startswith("exact") else "dual"
    answer = ask(form, gap=GAP, about=about, solver=packer)
    if form.sense == "min" and answer.point is None and answer.status is not Status.INFEASIBLE:
        # A heuristic found no way to serve all: the whole program says whether there is one.
        with suppress(NoSolver):
            answer = ask(form, gap=GAP, about="whether all can be served", solver="exact")
    if answer.status is Status.INFEASIBLE or (form.sense == "min" and answer.point is None):
        found = _missing(asked, ask, form, queries, proved=answer.status is Status.INFEASIBLE)
        # Of queries that were searched only the plans that were measured are known: others may fit.
        return replace(found, proved=found.proved and not asked.sought)
    if answer.point is None:
        return Infeasibility(why=(f"no packing was found: {answer.stop}",), proved=False)
    shared = tuple(tier for tier in asked.tiers if not tier.own)
    packed = PackedQueries(tuple(queries), form, answer.point, answer, figure, shared)
    has_price = any(way.price > 0 for query in queries for way in query.ways) or (
        form.items is not None and bool(form.items.price.any())
    )
    if wish.then_cheapest and has_price and (answer.point.option >= 0).any():
        return _at_least_cost(asked, ask, packed)
    return packed


def _at_least_cost(asked: CompoundProblem, ask: Ask, packed: PackedQueries) -> PackedQueries:
    """The same queries served by ways of the same weight, at least cost."""
    fewer, numbers = [], list[int]()
    for query, chosen, option in packed.served_queries:
        ways = [j for j, way in enumerate(query.ways) if way.weight >= chosen.weight]
        fewer.append(replace(query, ways=tuple(query.ways[j] for j in ways)))
        first = packed.form.first[packed.form.group[option]]
        numbers += [int(first) + j for j in ways]
    caps: dict[Figure, float] = {}
    if packed.figure != "cost":
        reached = float(figures(packed.queries, packed.figure)[packed.choice.option[packed.choice.option >= 0]].sum())
        caps = {packed.figure: reached + SAME * max(1.0, abs(reached))}
    form = packing(fewer, asked.tiers, asked.totals, sense="min", caps=caps)
    # `numbers` are those of the remaining options in the form of all.
    begin = _translate(packed.choice, packed.form, form, {there: here for here, there in enumerate(numbers)})
    cheaper = asked.options.packing if asked.options.packing in ("dual", "exact", "exact-cp-sat") else "dual"
    answer = ask(form, start=begin, gap=GAP, about="the same queries at least cost", solver=cheaper)
    if answer.point is None:
        return packed
    choice = _translate(answer.point, form, packed.form, dict(enumerate(numbers)))
    return replace(packed, choice=choice, cost=(form, answer))


def _translate(choice: Choice, source: Packing, to: Packing, number: Mapping[int, int]) -> Choice:
    """A choice of one form as one of another, where its options have other numbers."""
    option = np.full(to.first.size - 1, -1, dtype=np.int64)
    machine = None if to.items is None else np.full(to.items.tier.size, -1, dtype=np.int64)
    for here in choice.option[choice.option >= 0].tolist():
        there = number[here]
        option[to.group[there]] = there
        if machine is not None and to.items is not None and source.items is not None and choice.machine is not None:
            items, begin = slice(*source.items.first[here : here + 2]), to.items.first[there]
            machine[begin : begin + items.stop - items.start] = choice.machine[items]
    return Choice(option, machine)


def _missing(
    asked: CompoundProblem, ask: Ask, form: Packing, queries: Sequence[Query], *, proved: bool
) -> Infeasibility:
    """Queries without any way that fits alone; else the totals, or the machines, that serving all would take."""
    stuck = [i for i in range(len(queries)) if not form.fits[form.first[i] : form.first[i + 1]].any()]
    if stuck:
        why = tuple(_why_no_fit(asked, form, queries, i) for i in stuck)
        wider = tuple(repair for i in stuck for repair in queries[i].repairs)
        # Machines that are too small stay so; there may be more of them, and totals can be raised.
        more = (
            _missing_totals(ask, form, every=True, proved=True)
            if form.items is None
            else _missing_machines(asked, ask, form, queries, proved=True)
        )
        return Infeasibility(why=why, repairs=wider + more.repairs, proved=True)
    if form.items is not None:
        return _missing_machines(asked, ask, form, queries, proved=proved)
    return _missing_totals(ask, form, proved=proved)


def _missing_budget(asked: CompoundProblem, ask: Ask, queries: Sequence[Query]) -> Infeasibility | None:
    """The least that serving all costs, where that is more than the budget; None where it is something else."""
    totals = {name: most for name, most in asked.totals.items() if name != BUDGET}
    form = packing(queries, asked.tiers, totals, sense="min")
    answer = ask(form, gap=GAP, about="the least budget that serves all", solver="dual")
    if answer.point is None:
        return None
    least, budget = form.value(answer.point), asked.wish.budget
    if least <= budget * (1 + FEASIBILITY):
        return None
    field, to = "slo.limits.cost_per_hour", math.ceil(least * NANO) / NANO
    text = f"raise {field} by {to - budget:.6g} to {to:.6g}"
    repair = Repair(field=field, verb="raise", amount=to - budget, to=to, unit="per hour", text=text)
    why = f"all of them cost {to:.6g} an hour or more, the limit is {budget:.6g}"
    return Infeasibility(why=(why,), repairs=(repair,))


def _why_no_fit(asked: CompoundProblem, form: Packing, queries: Sequence[Query], i: int) -> str:
    query = queries[i]
    if not query.ways:
        return f"{query.app_id} has no plan: {query.why_none or 'none was given'}"
    least = form.taken[form.first[i] : form.first[i + 1]].min(axis=0)
    over = np.flatnonzero(least > form.limit)
    kinds = 0 if form.items is None else form.items.room.shape[1]
    names = [*form.resources, *(f"tier {tier.name}" for tier in asked.tiers if not tier.own for _ in range(kinds))]
    of = list(dict.fromkeys(names[r] for r in over.tolist())) or ["any one machine"]
    return f"{query.app_id}: none of its {len(query.ways)} plans fits, even alone: too little of {' and '.join(of)}"


def _missing_totals(ask: Ask, form: Packing, *, proved: bool, every: bool = False) -> Infeasibility:
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
            repairs.append(Repair(field=field, verb="raise", amount=amount, to=to, unit=name, text=text))
    named = ", ".join(repair.unit for repair in repairs)
    return Infeasibility(why=(f"{why} of {named}" if named else why,), repairs=tuple(repairs), proved=proved)


def _missing_machines(
    asked: CompoundProblem, ask: Ask, packed: Packing, queries: Sequence[Query], *, proved: bool
) -> Infeasibility:
    """With as many machines as wanted, each at price 1: the tiers that then have more than there are.

    Where even these do not help, it is the totals.
    """
    lavish = [
        replace(tier, machines=np.inf, price_nanos=0 if np.isinf(tier.machines) else NANO, per=None)
        for tier in asked.tiers
    ]
    unpriced = [replace(q, ways=tuple(replace(way, price=0.0) for way in q.ways)) for q in queries]
    form = packing(unpriced, lavish, asked.totals, sense="min")
    answer = ask(form, gap=GAP, about="machines that would serve all", solver="dual")
    if answer.point is None or form.items is None:
        return _missing_totals(ask, replace(packed, items=None), proved=proved)
    used = form.opened(answer.point)
    shared = [tier for tier in asked.tiers if not tier.own]
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
