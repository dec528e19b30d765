"""How `compound` is answered: plans are searched for, then one is chosen per query, then the same at least cost."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from hetplan.errors import NoSolver
from hetplan.planner.answer import Answer, Status
from hetplan.planner.contract import Ask, Tools
from hetplan.planner.draft import Draft, Infeasibility
from hetplan.planner.forms.black_box import Aim, Figure
from hetplan.planner.forms.packing import Choice, Packing, sums_of
from hetplan.problems.compound.draft import alternatives_of, draft, why_left
from hetplan.problems.compound.form import NO_CAPS, Asked, Packed, figures, packing
from hetplan.problems.compound.front import front_of
from hetplan.problems.compound.helps import fewer_served
from hetplan.problems.compound.rated import kept
from hetplan.problems.compound.search import Stage, narrowed, search_all
from hetplan.problems.compound.shared import joined
from hetplan.problems.compound.why import over_budget, short
from hetplan.problems.compound.wish import BUDGET, Query, Tier, Way
from hetplan.profiles.plan import Notice

__all__ = ["decided"]

GAP = 2e-3
"""The default gap of a packing."""
SAME = 1e-9
"""By how much a figure may be worse when the cost follows it."""


def decided(asked: Asked, ask: Ask, tools: Tools) -> Draft | Infeasibility:
    """Search where plans are not stated, then pack."""
    stages = search_all(asked, ask, tools)
    queries = (*asked.queries, *(stage.query for stage in stages))
    notices = (*asked.notices, *(notice for stage in stages for notice in stage.notices))
    broken = [stage.broken for stage in stages if stage.broken is not None]
    cancelled = ask.limits.cancel is not None and ask.limits.cancel.is_set()
    found = any(query.ways for query in queries)
    if broken and not cancelled and (asked.wish.sense == "min" or not found):
        raise broken[0]
    if stages and not found:
        why = tuple(f"{query.app_id}: {query.why_none}" for query in queries)
        repairs = tuple(repair for query in queries for repair in query.repairs)
        return Infeasibility(why=why, repairs=repairs, proved=False, warnings=notices)
    if len(asked.wish.of) > 1:
        point = partial(_point, asked, (ask, tools), stages, notices)
        made = front_of(asked, stages, queries, notices, partial(_pack, asked, ask), point)
    else:
        made = kept(asked, ask, tools, stages, partial(_planned, asked, ask, notices))
    return fewer_served(made, asked.sought) if isinstance(made, Infeasibility) else made


def _planned(asked: Asked, ask: Ask, notices: Sequence[Notice], stages: Sequence[Stage]) -> Draft | Infeasibility:
    """The plan of these stages, with replicas shared where that costs less."""
    queries = (*asked.queries, *(stage.query for stage in stages))
    found = _pack(asked, ask, queries)
    apart = found if isinstance(found, Infeasibility) else draft(asked, queries, found, notices)
    return _cheaper_of(apart, _together(asked, ask, stages, (queries, found), notices))


def _point(
    asked: Asked,
    how: tuple[Ask, Tools],
    stages: Sequence[Stage],
    notices: Sequence[Notice],
    made: Draft,
    picked: Mapping[str, Way],
) -> Draft | Infeasibility:
    """A point of a front as it is handed out: where queries come at a rate, played like any other plan.

    What it takes to be in time is sized by the least cost of its own settings, as fast as the point was to be.
    """
    ask, tools = how
    if not any(one.rate_qps and one.app_id in picked for one in asked.sought):
        return made
    timed, aim = "latency" in asked.wish.of, Aim(("cost",), asked.wish.budget)
    sought = tuple(replace(one, aim=aim) for one in asked.sought)
    cheapest = replace(asked, wish=replace(asked.wish, of=("cost",)), sought=sought)
    own = [
        narrowed(cheapest, one, replace(stage, form=replace(stage.form, aim=aim)), picked[one.app_id], timed=timed)
        for one, stage in zip(sought, stages, strict=True)
        if stage.form is not None
    ]
    again = partial(_planned, cheapest, ask, notices)
    return kept(cheapest, ask, tools, own, again, made if timed else None)


def _together(
    asked: Asked,
    ask: Ask,
    stages: Sequence[Stage],
    known: tuple[Sequence[Query], Packed | Infeasibility],
    notices: Sequence[Notice],
) -> Draft | None:
    """The plan in which operators of one model share its replicas; None where none do, or there is no such plan."""
    queries, found = known
    if "latency" in asked.wish.of:
        return None  # what is shared is sized to be just in time
    if not any(node.model is not None for one in asked.sought for node in one.pipeline.nodes.values()):
        return None
    if isinstance(found, Infeasibility):
        if not all(query.ways for query in queries):
            return None
        chosen = {query.app_id: query.ways[0] for query in queries}
    else:
        options = enumerate(found.choice.option.tolist())
        chosen = {queries[i].app_id: queries[i].ways[k - int(found.form.first[i])] for i, k in options if k >= 0}
    callers = list(zip(asked.sought, stages, strict=True))
    shared = joined(callers, queries, chosen, cheapest=asked.wish.of == ("cost",))
    if shared is None:
        return None
    packed = _pack(asked, ask, shared.queries)
    if isinstance(packed, Infeasibility) or int((packed.choice.option >= 0).sum()) < len(chosen):
        return None
    left = [] if isinstance(found, Infeasibility) else [why_left(found, queries, query) for query in queries]
    named = [replace(q, why_none=why) for q, why in zip(shared.queries, left, strict=True)] if left else shared.queries
    made = draft(asked, named, packed, notices, shared.owner)
    return replace(made, alternatives=alternatives_of(queries))


def _cheaper_of(apart: Draft | Infeasibility, together: Draft | None) -> Draft | Infeasibility:
    if together is None or isinstance(apart, Infeasibility):
        return together or apart
    return together if _price_and_count(together) < _price_and_count(apart) else apart


def _price_and_count(made: Draft) -> tuple[float, int]:
    cost = next((one.value for one in made.promises if one.quantity == "cost_per_hour"), 0.0)
    return round(cost, 9), sum(load.instances * worker.count for worker in made.workers for load in worker.loads)


def _pack(
    asked: Asked,
    ask: Ask,
    queries: Sequence[Query],
    caps: Mapping[Figure, float] = NO_CAPS,
    of: tuple[Figure, ...] = (),
) -> Packed | Infeasibility:
    """One way per query, by the objective (or `of`); `caps` limits other figures than the first that is sought."""
    asked = replace(asked, wish=replace(asked.wish, of=of or asked.wish.of))
    if "cost" in caps:
        budget = min(asked.wish.budget, caps["cost"])
        wish, totals = replace(asked.wish, budget=budget), {**asked.totals, BUDGET: budget}
        asked, caps = replace(asked, wish=wish, totals=totals), {k: v for k, v in caps.items() if k != "cost"}
    tiers = _within_budget(asked, queries)
    if isinstance(tiers, Infeasibility):
        return tiers
    tried = [_packed(replace(asked, tiers=these), ask, queries, caps, rest) for these, rest in tiers]
    made = [one for one in tried if isinstance(one, Packed)]
    if not made and BUDGET in asked.totals and (missing := over_budget(asked, ask, queries)) is not None:
        return replace(missing, proved=not asked.sought)
    if not made:
        return next(one for one in tried if isinstance(one, Infeasibility))
    best = max if made[0].form.sense == "max" else min
    return best(made, key=lambda one: one.form.value(one.choice))


MOST_NUMBERS = 300


def _within_budget(asked: Asked, queries: Sequence[Query]) -> Infeasibility | list[tuple[tuple[Tier, ...], float]]:
    """The tiers, and what is left of the budget for shares; with whole machines at a price, per numbers of them.

    Of numbers that the budget pays for only the largest count where nothing else costs anything.
    """
    budget = asked.wish.budget
    paid = [t for t in asked.tiers if not t.own and t.per != "gpu" and t.machine_price > 0]
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
        of = {tier.name: float(n) for tier, n in zip(paid, numbers, strict=True)}
        tiers = tuple(replace(t, machines=of[t.name]) if t.name in of else t for t in asked.tiers)
        found.append((tiers, budget - cost))
    return found


def _packed(
    asked: Asked, ask: Ask, queries: Sequence[Query], caps: Mapping[Figure, float], budget: float
) -> Packed | Infeasibility:
    """One way per query on these tiers, within what is left of the budget."""
    wish, figure = asked.wish, asked.wish.of[0]
    totals = {**asked.totals, BUDGET: budget} if BUDGET in asked.totals else asked.totals
    asked = replace(asked, totals=totals)
    form = packing(queries, asked.tiers, totals, sense=wish.sense, figure=figure, caps=caps)
    best = {"cost": "at least cost", "quality": "at best quality", "latency": "at least latency"}[figure]
    about = "most weight served" if form.sense == "max" else f"all served {best}"
    packer = asked.options.packer if figure == "cost" or asked.options.packer.startswith("exact") else "dual"
    answer = ask(form, gap=GAP, about=about, solver=packer)
    if form.sense == "min" and answer.point is None and answer.status is not Status.INFEASIBLE:
        answer = _exactly(ask, form, answer)
    if answer.status is Status.INFEASIBLE or (form.sense == "min" and answer.point is None):
        found = short(asked, ask, form, queries, proved=answer.status is Status.INFEASIBLE)
        # Of queries that were searched only the plans that were measured are known: others may fit.
        return replace(found, proved=found.proved and not asked.sought)
    if answer.point is None:
        return Infeasibility(why=(f"no packing was found: {answer.stop}",), proved=False)
    opening = np.array([0.0 if t.per == "gpu" else t.machine_price for t in asked.tiers if not t.own])
    packed = Packed(form, answer.point, answer, figure=figure, opening=opening)
    priced = any(way.price > 0 for query in queries for way in query.ways) or (
        form.items is not None and bool(form.items.price.any())
    )
    if wish.then_cheapest and priced and (answer.point.option >= 0).any():
        return _then_cheapest(asked, ask, queries, packed)
    return packed


def _exactly(ask: Ask, form: Packing, answer: Answer[Choice]) -> Answer[Choice]:
    """Where a heuristic found no way to serve all, the whole program says whether there is one."""
    try:
        return ask(form, gap=GAP, about="whether all can be served", solver="exact")
    except NoSolver:
        return answer


def _then_cheapest(asked: Asked, ask: Ask, queries: Sequence[Query], packed: Packed) -> Packed:
    """The same queries served by ways of the same weight, at least cost."""
    served = [i for i, option in enumerate(packed.choice.option) if option >= 0]
    kept: list[list[int]] = []
    for i in served:
        weight = queries[i].ways[int(packed.choice.option[i] - packed.form.first[i])].weight
        kept.append([j for j, way in enumerate(queries[i].ways) if way.weight >= weight])
    fewer = [
        replace(queries[i], ways=tuple(queries[i].ways[j] for j in ways)) for i, ways in zip(served, kept, strict=True)
    ]
    caps: dict[Figure, float] = {}
    if packed.figure != "cost":
        reached = float(figures(queries, packed.figure)[packed.choice.option[packed.choice.option >= 0]].sum())
        caps = {packed.figure: reached + SAME * max(1.0, abs(reached))}
    form = packing(fewer, asked.tiers, asked.totals, sense="min", caps=caps)
    cheaper = asked.options.packer if asked.options.packer in ("dual", "exact", "exact-cp-sat") else "dual"
    begin = _within(packed, form, served, kept)
    answer = ask(form, start=begin, gap=GAP, about="the same queries at least cost", solver=cheaper)
    if answer.point is None:
        return packed
    option = np.full(packed.choice.option.size, -1, dtype=np.int64)
    machine = None if packed.choice.machine is None else np.full(packed.choice.machine.size, -1, dtype=np.int64)
    for k, i in enumerate(served):
        small = int(answer.point.option[k])
        option[i] = packed.form.first[i] + kept[k][small - int(form.first[k])]
        if machine is not None and form.items is not None and packed.form.items is not None:
            assert answer.point.machine is not None
            begin_at, from_at = packed.form.items.first[option[i]], form.items.first[small]
            count = int(form.items.first[small + 1] - from_at)
            machine[begin_at : begin_at + count] = answer.point.machine[from_at : from_at + count]
    return Packed(packed.form, Choice(option, machine), packed.answer, (form, answer), packed.figure, packed.opening)


def _within(packed: Packed, form: Packing, served: list[int], kept: list[list[int]]) -> Choice:
    """A choice of all queries, as one of those served alone."""
    option = np.full(len(served), -1, dtype=np.int64)
    machine = None if form.items is None else np.full(form.items.tier.size, -1, dtype=np.int64)
    for k, i in enumerate(served):
        chosen = int(packed.choice.option[i])
        option[k] = form.first[k] + kept[k].index(chosen - int(packed.form.first[i]))
        if machine is not None and form.items is not None and packed.form.items is not None:
            assert packed.choice.machine is not None
            begin, end = packed.form.items.first[chosen], packed.form.items.first[chosen + 1]
            at = int(form.items.first[option[k]])
            machine[at : at + end - begin] = packed.choice.machine[begin:end]
    return Choice(option, machine)
