"""Solves compound queries in two stages: search candidates for each, then choose one each; a plan or a front.

**A plan.** What the first stage found is packed (`packing`). Where operators of one model may share replicas, that is
packed as well, and the cheaper is taken. Where queries come at a rate, the plan is simulated and sized until they are
in time (`sizing`).

**A front.** Several figures are wished for at once: plans of which none is beaten in all of them. Of one application
every way that no other beats is a point, if it fits on the machines that there are. Of several together, points are
found by limits: the first figure at its best while the others are at most so much, from their best to what they come to
where only the first counts. Each point is sized as any other plan is. What it then costs and promises are its figures,
and points that another one beats are left out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np

from hetplan.planner.contract import Ask, Tools
from hetplan.planner.draft import Draft, Infeasibility
from hetplan.planner.forms.black_box import Aim, Figure
from hetplan.planner.front import FrontOf, unbeaten
from hetplan.problems.compound.candidates import share_replicas
from hetplan.problems.compound.packing import PackedQueries, mean_weights, pack
from hetplan.problems.compound.pipeline_query import CompoundProblem
from hetplan.problems.compound.plan import alternatives_of, cost_of, draft_plan, mean_latency_ms, why_unserved
from hetplan.problems.compound.request import Query
from hetplan.problems.compound.search import Stage, keep_setting, repair_of_rate, search_all
from hetplan.problems.compound.sizing import size_plan
from hetplan.profiles.plan import Notice

__all__ = ["plan_queries"]

Points = list[tuple[tuple[float, ...], PackedQueries]]
"""Packings with their figures."""
CHOSEN_FROM = "the bound is over the plans from which this point of the front was chosen"
SHOWN: Mapping[Figure, str] = {"quality": "quality", "cost": "cost_per_hour", "latency": "latency_ms"}


def plan_queries(asked: CompoundProblem, ask: Ask, tools: Tools) -> Draft | Infeasibility:
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
        made = _front_of_plans(asked, (ask, tools), stages, queries, notices)
    else:
        made = size_plan(asked, ask, tools, stages, partial(_plan_of, asked, ask, notices))
    return _with_lower_rates(made, asked) if isinstance(made, Infeasibility) else made


def _with_lower_rates(missing: Infeasibility, asked: CompoundProblem) -> Infeasibility:
    """With fewer queries where machines or money do not suffice: the part of them that there is enough for.

    An application of which a lower rate is said already keeps that one.
    """
    parts = [
        1.0 - one.amount / one.to
        for one in missing.repairs
        if one.field.startswith(("slo.limits.", "profile.")) and one.amount and isinstance(one.to, float | int)
    ]
    said = {one.field for one in missing.repairs}
    rates = {one.app_id: one.rate_qps for one in asked.sought if parts and one.rate_qps}
    fewer = [repair_of_rate(name, rate, min(parts) * rate) for name, rate in rates.items()]
    return replace(missing, repairs=(*missing.repairs, *(one for one in fewer if one.field not in said)))


def _plan_of(
    asked: CompoundProblem, ask: Ask, notices: Sequence[Notice], stages: Sequence[Stage]
) -> Draft | Infeasibility:
    """The plan of these stages, with replicas shared where that costs less."""
    queries = (*asked.queries, *(stage.query for stage in stages))
    packed = pack(asked, ask, queries)
    apart = packed if isinstance(packed, Infeasibility) else draft_plan(asked, packed, notices)
    shared = _plan_with_shared_replicas(asked, ask, stages, queries, packed, notices)
    if shared is None or isinstance(apart, Infeasibility):
        return shared or apart

    def price_and_replicas(made: Draft) -> tuple[float, int]:
        replicas = sum(load.instances * worker.count for worker in made.workers for load in worker.loads)
        return round(cost_of(made), 9), replicas

    return min(apart, shared, key=price_and_replicas)


def _plan_with_shared_replicas(
    asked: CompoundProblem,
    ask: Ask,
    stages: Sequence[Stage],
    queries: Sequence[Query],
    apart: PackedQueries | Infeasibility,
    notices: Sequence[Notice],
) -> Draft | None:
    """The plan in which operators of one model share its replicas; None where none do, or there is no such plan."""
    if "latency" in asked.wish.of:
        return None  # what is shared is sized to be just in time
    if not any(node.model is not None for one in asked.sought for node in one.pipeline.nodes.values()):
        return None
    if isinstance(apart, Infeasibility) and not all(query.ways for query in queries):
        return None
    chosen = {one.app_id: one.ways[0] for one in queries} if isinstance(apart, Infeasibility) else apart.chosen
    forms = [(sought, stage.form) for sought, stage in zip(asked.sought, stages, strict=True)]
    shared = share_replicas(forms, queries, chosen, cheapest=asked.wish.of == ("cost",))
    if shared is None:
        return None
    packed = pack(asked, ask, shared.queries)
    if isinstance(packed, Infeasibility) or len(packed.served_queries) < len(chosen):
        return None
    if isinstance(apart, PackedQueries):
        why = [why_unserved(apart, query) for query in queries]
        named = tuple(replace(q, why_none=text) for q, text in zip(shared.queries, why, strict=True))
        packed = replace(packed, queries=named)
    made = draft_plan(asked, packed, notices, shared.owner)
    return replace(made, alternatives=alternatives_of(queries))


def _front_of_plans(
    asked: CompoundProblem,
    how: tuple[Ask, Tools],
    stages: Sequence[Stage],
    queries: Sequence[Query],
    notices: Sequence[Notice],
) -> Draft | Infeasibility:
    """The draft of the first point, with the front that it is of."""
    is_one = len(queries) == 1 and bool(queries[0].ways)
    found = _points_of_one(asked, how[0], queries[0]) if is_one else _points_of_several(asked, how[0], queries)
    if isinstance(found, Infeasibility):
        return found
    rows = unbeaten([(k, point) for k, (point, _) in enumerate(found)])
    if len(rows) > (most := asked.options.front_points):
        # Both ends are among them.
        rows = [rows[k] for k in dict.fromkeys(round(n * (len(rows) - 1) / (most - 1)) for n in range(most))]
    made: list[tuple[tuple[float, ...], dict[str, float], Draft]] = []
    missed: Draft | Infeasibility | None = None
    queued = any(one.rate_qps for one in asked.sought)
    for k, values in rows:
        packed = found[k][1]
        point = _plan_of_point(asked, how, stages, notices, packed)
        if isinstance(point, Infeasibility) or point.target_missed:
            missed = point
            continue
        now = _promised_figures(asked, point, values) if queued else values
        shown = {SHOWN[name]: value for name, value in zip(asked.wish.of, now, strict=True)}
        if "quality" in shown:  # the mean itself, not what it misses
            measured = [way.found for _, way, _ in packed.served_queries]
            weights = mean_weights(packed.queries)
            shown["quality"] = math.fsum(
                w * m.accuracy for w, m in zip(weights, measured, strict=True) if m is not None
            )
        reported = tuple(replace(one, note=CHOSEN_FROM) for one in point.reported)
        made.append((now, shown, replace(point, reported=reported)))
    if not made:
        return missed or Infeasibility(why=("no point was found",), proved=False)
    points = tuple(made[n][1:] for n, _ in unbeaten([(n, values) for n, (values, _, _) in enumerate(made)]))
    whole = bool(stages) and all(stage.whole for stage in stages)
    known = [stage.chance for stage in stages]
    chance = None if whole or None in known else float(np.prod([one for one in known if one is not None]))
    return replace(points[0][1], front=FrontOf[Draft](asked.wish.of, points, whole, chance, queued))


def _plan_of_point(
    asked: CompoundProblem,
    how: tuple[Ask, Tools],
    stages: Sequence[Stage],
    notices: Sequence[Notice],
    packed: PackedQueries,
) -> Draft | Infeasibility:
    """A point of a front as it is handed out: where queries come at a rate, sized like any other plan.

    What it takes to be in time is sized by the least cost of its own settings, as fast as the point was to be.
    """
    made, chosen, (ask, tools) = draft_plan(asked, packed, notices), packed.chosen, how
    if not any(one.rate_qps and one.app_id in chosen for one in asked.sought):
        return made
    timed, aim = "latency" in asked.wish.of, Aim(("cost",), asked.wish.budget)
    sought = tuple(replace(one, aim=aim) for one in asked.sought)
    cheapest = replace(asked, wish=replace(asked.wish, of=("cost",)), sought=sought)
    own = [
        keep_setting(cheapest, one, replace(stage, form=replace(stage.form, aim=aim)), chosen[one.app_id], timed=timed)
        for one, stage in zip(sought, stages, strict=True)
        if stage.form is not None
    ]
    again = partial(_plan_of, cheapest, ask, notices)
    return size_plan(cheapest, ask, tools, own, again, made if timed else None)


def _promised_figures(asked: CompoundProblem, point: Draft, values: tuple[float, ...]) -> tuple[float, ...]:
    """The figures of a point, by what its plan promises of cost and latency."""
    known: Mapping[Figure, float] = {"cost": cost_of(point), "latency": mean_latency_ms(asked, point.promises)}
    return tuple(known.get(name, value) for name, value in zip(asked.wish.of, values, strict=True))


def _points_of_one(asked: CompoundProblem, ask: Ask, query: Query) -> Points | Infeasibility:
    """Every way that no other beats, by itself."""
    rows = [(w, tuple(way.figure(name) for name in asked.wish.of)) for w, way in enumerate(query.ways)]
    if not any(tier.whole_price > 0 and not tier.own for tier in asked.tiers):
        rows = unbeaten(rows)
    packed = [pack(asked, ask, (replace(query, ways=(query.ways[w],)),)) for w, _ in rows]
    found = [(_figures_of(asked, one), one) for one in packed if isinstance(one, PackedQueries)]
    why = [one for one in packed if isinstance(one, Infeasibility)]
    return found or (why[-1] if why else Infeasibility(why=("no way fits",), proved=False))


def _points_of_several(asked: CompoundProblem, ask: Ask, queries: Sequence[Query]) -> Points | Infeasibility:
    """The first figure at its best under limits on the others, from end to end of these."""
    of, others = asked.wish.of, asked.wish.of[1:]
    best = pack(asked, ask, queries)
    if isinstance(best, Infeasibility):
        return best
    found: Points = [(_figures_of(asked, best), best)]
    ends: list[tuple[float, float]] = []
    for name in others:
        low = pack(asked, ask, queries, of=(name, *(other for other in of if other != name)))
        if isinstance(low, Infeasibility):
            return low
        found.append((_figures_of(asked, low), low))
        ends.append((found[-1][0][of.index(name)], found[0][0][of.index(name)]))
    steps = max(2, round(asked.options.front_points ** (1.0 / len(others))))
    for limits in product(*(np.linspace(low, high, steps + 1)[1:-1].tolist() for low, high in ends)):
        packed = pack(asked, ask, queries, caps=dict(zip(others, limits, strict=True)))
        if isinstance(packed, PackedQueries):
            found.append((_figures_of(asked, packed), packed))
    return found


def _figures_of(asked: CompoundProblem, packed: PackedQueries) -> tuple[float, ...]:
    return tuple(packed.value(name) for name in asked.wish.of)
