"""The sections of a plan, from a packing: one chosen plan per query, machines with their operators, promises."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from hetplan.planner.draft import Draft, Reported, Scope
from hetplan.planner.transition import Names, transition
from hetplan.problems.compound.candidates import Seat
from hetplan.problems.compound.options import CompoundOptions
from hetplan.problems.compound.packing import PackedQueries
from hetplan.problems.compound.pipeline_query import CompoundProblem
from hetplan.problems.compound.request import MeasuredPlan, Query, Way
from hetplan.profiles.fields import NANO
from hetplan.profiles.plan import Notice, Promise, Route, Unserved
from hetplan.profiles.plan_dispatch_rules import ChosenPlanDispatch
from hetplan.profiles.plan_file import SHARED
from hetplan.profiles.workers import Load, Serve, Share, Worker
from hetplan.serving.loads import worker_price

__all__ = ["MEAN_LATENCY", "alternatives_of", "cost_of", "draft_plan", "mean_latency_ms", "why_unserved"]

Owner = Mapping[Seat, Seat]
"""Of operators that share replicas whose these are."""
On = Mapping[str, tuple[int, ...]]
"""Of each tier the machines that items are on, in their order."""
MOST_SHOWN = 10
"""Candidates that fit nowhere, of which each is named."""
MEAN_LATENCY = "mean_latency_ms"
"""What claims call the mean latency by weight."""
HOUR_S = 3600.0


def draft_plan(
    asked: CompoundProblem, packed: PackedQueries, notices: Sequence[Notice], owner: Owner | None = None
) -> Draft:
    """The plan of a packing; `owner` says of operators that share replicas whose these are."""
    owner, served, queries = owner or {}, packed.served_queries, packed.queries
    on = _number_from_zero({query.app_id: packed.machines_of(option) for query, _, option in served})
    chosen = {query.app_id: _dispatch_of(query, way, on[query.app_id]) for query, way, _ in served}
    workers = _workers_of(asked, [(query, way, chosen[query.app_id]) for query, way, _ in served])
    request, names = asked.request, Names(asked.request.running)
    if request.has_state:
        # Machines that run already as they are wanted keep their names, so that nothing is done to them.
        workers = list(map(names.with_ids, workers))
    left = [query for query in queries if query.app_id not in chosen]
    is_searched = any(way.found is not None for query in queries for way in query.ways)
    return Draft(
        workers=tuple(workers),
        requires=(SHARED,) if any(seat != there for seat, there in owner.items()) else (),
        routing=_routes_of(asked, workers, owner),
        dispatch=chosen,
        actions=transition(request.running, workers, offers=asked.inputs.profile.offers, limits=request.instances),
        promises=_promises_of(asked, served, workers),
        reported=_reported_values(asked, packed, served, is_searched),
        unserved=tuple(
            Unserved(app=query.app_id, rate_qps=query.app.rate_qps or 0.0, why=why_unserved(packed, query))
            for query in left
        ),
        warnings=(*notices, *_undecided_accuracies(served), *_what_is_left_out(packed, left)),
        alternatives=alternatives_of(queries),
        searched=is_searched,
    )


def _number_from_zero(on: Mapping[str, On]) -> dict[str, On]:
    """The machines of each tier numbered from 0: a packing may leave numbers out."""
    used: dict[str, set[int]] = defaultdict(set)
    for machines in on.values():
        for tier, numbers in machines.items():
            used[tier].update(numbers)
    place = {tier: {number: n for n, number in enumerate(sorted(numbers))} for tier, numbers in used.items()}
    return {
        app: {tier: tuple(place[tier][number] for number in numbers) for tier, numbers in machines.items()}
        for app, machines in on.items()
    }


def _dispatch_of(query: Query, way: Way, machines: On) -> ChosenPlanDispatch:
    """A query's way as it is dispatched by, its items on these machines of each tier.

    A machine is named once for each operator on it: as often as there are streams, or replicas, in an item.
    """
    if way.found is None:
        candidate = query.ways.index(way)
        stated = dict(query.app.candidates[candidate].demand)
        return ChosenPlanDispatch(
            late=query.app.late, candidate=candidate, label=way.label, demand=stated, machines=dict(machines)
        )
    found = way.found
    streams: dict[str, list[int]] = defaultdict(list)
    for item in way.items:
        streams[item.tier].append(item.streams)
    return ChosenPlanDispatch(
        late=query.app.late,
        machines={
            tier: tuple(number for number, times in zip(numbers, streams[tier], strict=True) for _ in range(times))
            for tier, numbers in machines.items()
        },
        knobs=dict(found.knobs),
        placement=dict(found.placement),
        share=dict(found.share),
    )


def _workers_of(asked: CompoundProblem, served: Sequence[tuple[Query, Way, ChosenPlanDispatch]]) -> list[Worker]:
    """A worker per machine in use, with the operators on it; an own device is one as well."""
    on: dict[tuple[str, str], list[Load]] = defaultdict(list)
    number = 0
    for query, way, chosen in served:
        if way.found is None:
            continue
        place = {tier: iter(machines) for tier, machines in chosen.machines.items()}
        for node, tier in way.found.placement.items():
            if tier in asked.inputs.profile.apis:
                continue
            share = way.found.share.get(node)
            own = next(tier_ for tier_ in asked.tiers if tier_.name == tier).own
            pipeline = asked.inputs.profile.pipelines.get(query.app.pipeline or "")
            reads = pipeline.nodes[node].reads if pipeline is not None else ()
            knobs = {knob: way.found.knobs[knob] for knob in reads}
            streams_at: Counter[str] = Counter({query.app_id: 1} if own else {})
            for item in way.items if not own else ():
                for _ in range(item.streams if item.node == node else 0):
                    streams_at[f"{next(place[tier]):06d}"] += 1
            for machine, instances in sorted(streams_at.items()):
                number += 1
                on[tier, machine].append(
                    Load(
                        id=f"l{number}",
                        app=query.app_id,
                        node=node,
                        knobs=knobs,
                        share=None if share is None else Share(gpu=share, enforce="mps"),
                        instances=instances,
                        serve=Serve(max_batch=way.found.batches.get(node, 1)),
                        outcomes=dict(way.found.outcomes[node]) if node in way.found.outcomes else None,
                    )
                )
    workers = []
    streams = {query.app_id: way.found.streams for query, way, _ in served if way.found is not None}
    tiers = {tier.name: tier for tier in asked.tiers}
    for number, ((tier, _), loads) in enumerate(sorted(on.items()), start=1):
        here = tiers[tier]
        workers.append(
            Worker(
                id=f"w{number}", hardware=here.hardware, offer=here.offer,
                queue="per-load", loads=tuple(loads), count=streams[str(loads[0].app)] if here.own else 1,
            )
        )  # fmt: skip
    return workers


def _routes_of(asked: CompoundProblem, workers: Sequence[Worker], owner: Owner) -> dict[str, tuple[Route, ...]]:
    """All queries of an operator to its one load; where its streams are on several machines, as many to each.

    What shares the replicas of another operator goes where that one's queries go. What follows an outcome only is
    routed for that outcome. Operators come in the order of their pipeline.
    """
    place = {(one.app_id, name): (o, name) for one in asked.sought for o, name in enumerate(one.order)}
    after = {
        one.app_id: {edge.to: {edge.from_: edge.on} for edge in one.pipeline.edges if edge.on is not None}
        for one in asked.sought
    }
    loads: dict[str, dict[str, dict[str, int]]] = defaultdict(lambda: defaultdict(dict))
    for worker in workers:
        for load in worker.loads:
            loads[str(load.app)][str(load.node)][load.id] = load.instances * worker.count
    for (app, node), (other, named) in owner.items():
        loads[app][node] = loads[other][named]
    return {
        app: tuple(
            Route(
                node=node,
                after=after.get(app, {}).get(node),
                to={load: count / sum(to.values()) for load, count in to.items()},
            )
            for node, to in sorted(nodes.items(), key=lambda at: place.get((app, at[0]), (len(place), at[0])))
        )
        for app, nodes in sorted(loads.items())
    }


def _undecided_accuracies(served: Sequence[tuple[Query, Way, int]]) -> Iterator[Notice]:
    """Plans that were chosen though it is not known whether they are as good as is wished."""
    for query, way, _ in served:
        wanted, found = query.app.floor, way.found
        if found is not None and found.verdict == "undecided" and wanted is not None:
            low, high = found.interval
            text = f"after {found.samples} samples its accuracy is {low:.4g} to {high:.4g}, which does not"
            at = f"apps.{query.app_id}.quality"
            yield Notice(code="W-undecided", at=at, text=f"{text} decide the limit {wanted:g}")


def _promises_of(
    asked: CompoundProblem, served: Sequence[tuple[Query, Way, int]], workers: Sequence[Worker]
) -> tuple[Promise, ...]:
    say = partial(Promise, relation="=", model="no-queueing")
    goodput = float(sum(way.weight for _, way, _ in served))
    promises = [say(quantity="goodput", value=goodput), say(quantity="served", value=float(len(served)))]
    calls = {query.app_id: way.found.per_query for query, way, _ in served if way.found is not None}
    if workers or any(calls.values()):
        rates = {query.app_id: query.app.rate_qps or 0.0 for query, _, _ in served}
        nanos = sum(worker.count * (worker_price(asked.inputs, worker) or 0) for worker in workers)
        value = nanos / NANO + HOUR_S * sum(rates[name] * each for name, each in calls.items())
        promises.append(say(quantity="cost_per_hour", value=value))
        if any(calls.values()) and (queries := HOUR_S * sum(rates.values())):
            promises.append(say(quantity="cost_per_query", value=value / queries))
    stated = [_stated_price(query, way) for query, way, _ in served]
    if any(stated):
        promises.append(say(quantity="candidates_per_hour", value=float(sum(stated))))
    for query, way, _ in served:
        if way.found is not None:
            promises += _promises_of_measured(query.app_id, way.found, asked.options)
            if value := way.found.per_query:
                promises.append(say(app=query.app_id, quantity="calls_per_query", value=value))
    return tuple(promises)


def _stated_price(query: Query, way: Way) -> float:
    """What a candidate itself says that it costs."""
    if way.found is not None:
        return 0.0
    return (query.app.candidates[query.ways.index(way)].price_per_hour or 0) / NANO


def _promises_of_measured(app: str, found: MeasuredPlan, options: CompoundOptions) -> list[Promise]:
    by_formula = bool(found.replicas) and options.sizing != "fluid"
    samples, model = f"{found.samples} samples", "stationary/1" if by_formula else "measured"
    times = [
        Promise(
            app=app, quantity="response_ms", percentile=percentile, value=1000.0 * most, model=model, basis=samples,
            interval=None if least is None else (1000.0 * least, 1000.0 * most),
        )
        for percentile, most, least in found.at
    ]  # fmt: skip
    quality = Promise(
        app=app, quantity="quality", relation="=", value=found.accuracy, interval=found.interval, model="measured",
        basis=f"{samples}, verdict {found.verdict}",
    )  # fmt: skip
    return [*times, quality]


def cost_of(made: Draft) -> float:
    """What a plan promises to cost per hour."""
    return next((one.value for one in made.promises if one.quantity == "cost_per_hour"), 0.0)


def _reported_values(
    asked: CompoundProblem, packed: PackedQueries, served: Sequence[tuple[Query, Way, int]], found_by_search: bool
) -> tuple[Reported, ...]:
    scope: Scope = "restriction" if found_by_search else "problem"
    note = "the bound is over the plans that were measured" if found_by_search else None
    reported = []
    if packed.form.sense == "max":
        goodput = float(sum(way.weight for _, way, _ in served))
        reported.append(Reported("goodput", "max", scope, packed.answer, value=goodput, note=note))
    if packed.figure != "cost":
        queued = packed.figure == "latency" and any(one.rate_qps for one in asked.sought)
        # With whole machines at a price the form is one of several, each for other numbers of them.
        narrow: Scope = "restriction" if (packed.opening > 0).any() else scope
        about, by = MEAN_LATENCY if packed.figure == "latency" else "quality_short", ", by a formula for queues"
        reported.append(Reported(about, "min", narrow, packed.answer, note=f"{note}{by}" if queued else note))
    form, answer = packed.cost or (packed.form, packed.answer)
    if form.sense == "min" and packed.figure != "cost" and packed.cost is None:
        return tuple(reported)
    if form.sense == "min":
        # What is packed may cost its machines beside what candidates say of themselves.
        paid = form.items is not None and bool(form.items.price.any())
        stated = not paid and all(w.found is None and w.price == _stated_price(query, w) for query, w, _ in served)
        about = "candidates_per_hour" if stated else "packed_per_hour"
        reported.append(Reported(about, "min", scope if packed.cost is None else "restriction", answer, note=note))
    return tuple(reported)


def mean_latency_ms(asked: CompoundProblem, promises: Sequence[Promise]) -> float:
    """The mean latency by weight of those that are promised one: of percentiles, the nearest to its limit counts."""
    apps = asked.request.apps
    worst: dict[str, float] = {}
    for one in promises:
        if one.app is not None and one.quantity == "response_ms":
            limits = {target.percentile: target.max_ms for target in apps[one.app].targets}
            least = min(limits.values(), default=1.0)
            scaled = one.value * least / limits.get(one.percentile or 0.0, least)
            worst[one.app] = max(worst.get(one.app, 0.0), scaled)
    weights = {name: apps[name].weight() for name in worst}
    total = sum(weights.values())
    return sum((weights[name] / total if total > 0 else 1.0 / len(worst)) * each for name, each in worst.items())


def why_unserved(packed: PackedQueries, query: Query) -> str:
    """Why a query got none of its plans."""
    if not query.ways:
        return query.why_none or "it has no plan"
    options = packed.form.options_of([one.app_id for one in packed.queries].index(query.app_id))
    if not packed.form.fits[options].any():
        return "none of its plans fits, even alone"
    if not (packed.form.worth[options] > 0).any():
        return "it is worth nothing"
    return "others bring more for what there is"


def _what_is_left_out(packed: PackedQueries, left: Sequence[Query]) -> list[Notice]:
    """Stated candidates that fit nowhere, even alone; and how many applications are not served."""
    lost = [
        f"apps.{query.app_id}.candidates[{j}]"
        for i, query in enumerate(packed.queries)
        for j, way in enumerate(query.ways)
        if way.found is None and not packed.form.fits[int(packed.form.first[i]) + j]
    ]
    notices = [Notice(code="W-dropped", at=at, text="it fits nowhere, even alone") for at in lost[:MOST_SHOWN]]
    if len(lost) > MOST_SHOWN:
        more = f"{len(lost) - MOST_SHOWN} more candidates fit nowhere"
        notices.append(Notice(code="W-dropped", at="apps", text=more))
    if left:
        text = f"applications that are not served: {len(left)}"
        notices.append(Notice(code="W-unserved", at="unserved", text=text))
    return notices


def alternatives_of(queries: Sequence[Query]) -> tuple[dict[str, Any], ...]:
    """All plans found of each query: what another packing may choose from without measuring again."""
    return tuple(
        {
            "app": query.app_id,
            "knobs": dict(way.found.knobs),
            "placement": dict(way.found.placement),
            "share": dict(way.found.share),
            "response_ms": 1000.0 * way.found.latency_s,
            "quality": way.found.accuracy,
            "samples": way.found.samples,
            "verdict": way.found.verdict,
            "price_per_hour": way.found.price * way.found.streams,
            **({"replicas": dict(way.found.replicas)} if way.found.replicas else {}),
        }
        for query in queries
        for way in query.ways
        if way.found is not None
    )
