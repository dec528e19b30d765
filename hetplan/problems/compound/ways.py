"""How `compound` is answered: plans are searched for, then one is chosen per query, then the same at least cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hetplan.errors import NoSolver
from hetplan.planner.answer import Answer, Status
from hetplan.planner.contract import Ask, Tools
from hetplan.planner.draft import Draft, Infeasible
from hetplan.planner.forms.packing import Choice, Packing
from hetplan.problems.compound.draft import draft
from hetplan.problems.compound.form import Asked, Packed, packing
from hetplan.problems.compound.search import search_all
from hetplan.problems.compound.why import short
from hetplan.problems.compound.wish import Query

__all__ = ["decided"]

GAP = 2e-3
"""The default gap of a packing."""


def decided(asked: Asked, ask: Ask, tools: Tools) -> Draft | Infeasible:
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
        return Infeasible(why=why, proved=False, warnings=notices)
    packed = _pack(asked, ask, queries)
    return packed if isinstance(packed, Infeasible) else draft(asked, queries, packed, notices)


def _pack(asked: Asked, ask: Ask, queries: Sequence[Query]) -> Packed | Infeasible:
    """One way per query, by the objective."""
    wish = asked.wish
    form = packing(queries, asked.tiers, asked.totals, sense=wish.sense, aging=asked.options.aging)
    about = "most weight served" if form.sense == "max" else "all served at least cost"
    answer = ask(form, gap=GAP, about=about, solver=asked.options.packer)
    if form.sense == "min" and answer.point is None and answer.status is not Status.INFEASIBLE:
        answer = _exactly(ask, form, answer)
    if answer.status is Status.INFEASIBLE or (form.sense == "min" and answer.point is None):
        found = short(asked, ask, form, queries, proved=answer.status is Status.INFEASIBLE)
        # Of queries that were searched only the plans that were measured are known: others may fit.
        return replace(found, proved=found.proved and not asked.sought)
    if answer.point is None:
        return Infeasible(why=(f"no packing was found: {answer.stop}",), proved=False)
    packed = Packed(form, answer.point, answer)
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
    form = packing(fewer, asked.tiers, asked.totals, sense="min")
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
    return Packed(packed.form, Choice(option, machine), packed.answer, (form, answer))


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
