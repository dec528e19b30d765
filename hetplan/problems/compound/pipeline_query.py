"""A query whose plans are searched for: what the files say of its pipeline, and what engines are asked about it.

A query runs a pipeline of operators. A plan of it gives every knob a level, every operator a tier, and a share of a GPU
there. Which tiers an operator fits on, what links between tiers take, which settings make an operator a call of an API,
and how many calls follow a call, are read here. Of all that `PipelineQuery.box` makes the form that is searched.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import pairwise, product
from typing import Any

import numpy as np

from hetplan.planner.forms.black_box import Aim, BlackBox, Measured, Operator, Past, Placed
from hetplan.planner.forms.calls import Call, Calls
from hetplan.planner.forms.fans import Fans
from hetplan.planner.forms.space import Space, is_ordered, settings_of
from hetplan.planner.request import Application, Request, read_request
from hetplan.problems.applicability import outcomes
from hetplan.problems.compound.options import FEWEST_SAMPLES, CompoundOptions
from hetplan.problems.compound.request import (
    BUDGET,
    PackingObjective,
    Query,
    Tier,
    read_objective,
    read_queries,
    read_tiers,
)
from hetplan.problems.compound.stations import QueuedBox
from hetplan.problems.faults import Faults
from hetplan.profiles.apis import Api
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.pipelines import Link, Pipeline
from hetplan.profiles.plan import Notice, Plan
from hetplan.profiles.sampled import features_of
from hetplan.serving.fanout import brought, most_calls
from hetplan.serving.operators import calls_made, growth_of

__all__ = ["CompoundProblem", "PipelineQuery", "read_pipeline_queries", "read_problem", "refuse_to_measure"]

MOST_PLANS = 500_000
"""So many plans are listed; of more, settings are drawn."""
MOST_PLACEMENTS = 20_000
MOST_OPERATORS = 12
MOST_SIZES = 8
"""Numbers of replicas of each candidate that packing may choose from."""
MOST_CALLS = 64
"""So many calls of an operator a query may make."""
MOST_CASES = 64
"""So many numbers of calls are told apart."""
HOUR_S = 3600.0

OFTEN = 10
"""By so much the chance of an error is cut where a latency is looked at again and again, until it is settled."""
STRATA = 8
"""Groups of alike samples made of a feature file: more would leave too few samples in each before a verdict."""
CHEAPEST = PackingObjective("max", True)


@dataclass(frozen=True)
class PipelineQuery:
    """A query whose plans are to be found; `box` makes its form around the evaluator.

    `wishes` are the shares of samples that have to be in time, each with its limit in seconds.
    """

    app: Application
    pipeline_id: str
    pipeline: Pipeline
    order: tuple[str, ...]
    tiers: tuple[Tier, ...]
    placed: Placed
    limit_s: float
    wishes: tuple[tuple[float, float], ...]
    target: float
    lower: bool
    bernoulli: bool
    span: tuple[float, float]
    strata: int
    features: str | None
    placements: np.ndarray = field(compare=False)
    aim: Aim = field(default_factory=Aim)
    free: bool = False
    """No accuracy is asked for: the target is the worst that there can be."""
    calls: Calls | None = None
    """Which settings make which operators calls of APIs (`apis`); these are the last of `tiers`."""
    apis: Mapping[str, Api] = field(default_factory=dict, compare=False)
    growth: tuple[tuple[float, ...], ...] = ()
    """Of each operator how many times as long as one query batches of 1, 2, ... take."""
    fans: Fans | None = None
    """How many calls of each operator a query makes, where not all are called once."""

    @property
    def app_id(self) -> str:
        """The id of the application."""
        return self.app.id

    @property
    def streams(self) -> int:
        """How many streams come at a time: each has every operator, with its share, for itself."""
        return self.app.streams or 1

    @property
    def rate_qps(self) -> float | None:
        """The rate at which queries come, where they are no streams: operators are stations with replicas then."""
        return self.app.rate_qps if self.app.streams is None else None

    @property
    def exits(self) -> bool:
        """Whether not every query runs all operators."""
        return self.pipeline.has_outcomes

    @property
    def levels(self) -> tuple[int, ...]:
        """How many levels each knob has."""
        return tuple(len(levels) for levels in self.pipeline.levels.values())

    @property
    def ordered(self) -> tuple[bool, ...]:
        """Which knobs have levels in an order: numbers, rising or falling."""
        names = () if self.pipeline.space is None else self.pipeline.space.unordered
        return tuple(name not in names and is_ordered(levels) for name, levels in self.pipeline.levels.items())

    def accuracy_in_service(self, form: BlackBox, found: Measured, accuracy: float) -> float:
        """The accuracy where calls fail: a query of which a call is never answered scores the worst there is."""
        row = Space(self.levels).row(found.configuration)
        lost = 0.0 if self.calls is None else self.calls.lost(row, form.made(found))
        return accuracy if lost == 0.0 else (1.0 - lost) * accuracy + lost * self.span[1 if self.lower else 0]

    @property
    def at_once(self) -> tuple[int, ...]:
        """How many calls of each operator a query makes at once, at most."""
        widths = [1.0] * len(self.order) if self.fans is None else self.fans.widths.tolist()
        return tuple(map(int, widths))

    @property
    def space(self) -> Space:
        """Which settings there are, by the places of levels."""
        return settings_of(self.pipeline.levels, self.pipeline.space)

    @property
    def is_wide(self) -> bool:
        """Whether settings are drawn, not listed: some are not allowed, or they are too many."""
        return not self.space.whole or self.space.product * len(self.placements) > MOST_PLANS

    @property
    def alike(self) -> tuple[tuple[int, ...], ...]:
        """Knobs of the same levels (names of models, say): what one does for one operator, it may for another."""
        same: dict[tuple[Any, ...], list[int]] = {}
        for n, (levels, ordered) in enumerate(zip(self.pipeline.levels.values(), self.ordered, strict=True)):
            if not ordered and len(levels) > 1:
                same.setdefault(tuple(map(str, levels)), []).append(n)
        return tuple(tuple(group) for group in same.values() if len(group) > 1)

    @property
    def reachable_placements(self) -> np.ndarray:
        """The placements on tiers that have machines, where there are any: those worth searching."""
        there = np.array([tier.own or tier.machines > 0 for tier in self.tiers])
        open_ = there[self.placements].all(axis=1)
        return self.placements[open_] if open_.any() else self.placements

    def knobs(self, configuration: int) -> dict[str, Any]:
        """The levels of a configuration, by their names."""
        at = Space(self.levels).row(int(configuration))
        return {knob: levels[k] for (knob, levels), k in zip(self.pipeline.levels.items(), at, strict=True)}

    def configuration(self, knobs: Mapping[str, Any]) -> int:
        """The number of a configuration; raises where a knob is missing, or has no such level."""
        return Space(self.levels).number([levels.index(knobs[knob]) for knob, levels in self.pipeline.levels.items()])

    def placement(self, tiers: Mapping[str, str], placements: np.ndarray) -> int:
        """The number of a placement among these, by the tier of each operator; raises where it is none of them."""
        names = [tier.name for tier in self.tiers]
        rows: list[list[int]] = placements.tolist()
        return rows.index([names.index(tiers[name]) for name in self.order])

    def operators(self) -> tuple[Operator, ...]:
        """The steps in an order in which everything comes after what it needs."""
        knobs, place = list(self.pipeline.levels), {name: n for n, name in enumerate(self.order)}
        return tuple(
            Operator(
                name=name,
                reads=tuple(knobs.index(knob) for knob in self.pipeline.nodes[name].reads),
                after=tuple(place[edge.from_] for edge in self.pipeline.edges if edge.to == name),
                by_share=self.pipeline.nodes[name].share_law == "flops",
                paid=self.pipeline.nodes[name].device == "gpu",
            )
            for name in self.order
        )

    def box(
        self, measure: Callable[[int], Measured], options: CompoundOptions, past: tuple[Past, ...] = ()
    ) -> BlackBox:
        """The form."""
        kind: Callable[..., BlackBox] = BlackBox
        if self.rate_qps is not None:
            kind = partial(
                QueuedBox, rate_qps=self.rate_qps, burst=1.0 / (self.app.arrivals.shape or 1.0),
                growth=self.growth, fluid=options.sizing == "fluid",
                unplayed=options.sizing == "formula", sizes=MOST_SIZES,
            )  # fmt: skip
        return kind(
            levels=self.levels, operators=self.operators(), placed=self.placed, target=self.target,
            limit_s=self.limit_s, wishes=self.wishes, confidence=options.confidence, measure=measure,
            placements=self.placements, most=options.max_measurements, gpu_s=options.measure_s,
            first_random=1 if options.search.startswith("struct") else 3,
            ordered=self.ordered, lower=self.lower, past=past, name=self.app_id, aim=self.aim,
            space=self.space if self.is_wide else None, alike=self.alike, calls=self.calls, exits=self.exits,
            fans=self.fans,
        )  # fmt: skip

    def setup(self, options: CompoundOptions) -> dict[str, Any]:
        """What the evaluator needs to know of the query."""
        above: dict[str, set[str]] = {}
        for name in self.order:
            before = [edge.from_ for edge in self.pipeline.edges if edge.to == name]
            above[name] = set(self.pipeline.nodes[name].reads).union(*(above[other] for other in before))
        judged, surer = "quality" in self.aim.of, 1.0 - (1.0 - options.confidence) / OFTEN
        n_min = (
            min(options.samples_of_quality, options.samples_max) if judged else options.samples_min or FEWEST_SAMPLES
        )
        rule = {
            "target": self.target, "kind": "fixed" if self.free else options.stop_rule, "n_min": n_min,
            "n_max": options.samples_of_quality if self.free else options.samples_max, "confidence": options.confidence,
            "bernoulli": self.bernoulli, "lower": self.lower,
            "span": self.span[1] - self.span[0], "undecided": options.undecided,
        }  # fmt: skip
        return {
            "app": self.app_id, "evaluator": self.pipeline.evaluator or "", "operators": self.order,
            "knobs_of": {name: tuple(sorted(knobs)) for name, knobs in above.items()},
            "shares": (1.0 / self.strata,) * self.strata, "rule": rule,
            "features": self.features, "strata": STRATA, "low": self.span[0], "high": self.span[1],
            "charged": tuple(name for name in self.order if self.pipeline.nodes[name].device == "gpu"),
            "retry": options.retry, "way": self.pipeline.way if self.exits else None,
            "settled": self.box(refuse_to_measure, options.model_copy(update={"confidence": surer})).settled,
        }  # fmt: skip

    def api_use(self, knobs: Mapping[str, Any], often: Mapping[str, float]) -> dict[str, float]:
        """What it takes of the limits of APIs: calls with those made again, tokens of those answered."""
        found: dict[str, float] = {}
        for name, call in calls_made(self.pipeline, knobs).items():
            rate, api = (self.app.rate_qps or 0.0) * often[name], self.apis[call.api]
            amounts = {"calls_per_s": rate * api.tried, "tokens_per_s": rate * (call.tokens.in_ + call.tokens.out)}
            for limit, amount in amounts.items():
                key = f"profile.apis.{call.api}.{limit}"
                if getattr(api, limit) is not None:
                    found[key] = found.get(key, 0.0) + amount
        return found

    def api_price(self, knobs: Mapping[str, Any], often: Mapping[str, float]) -> float:
        """What the calls of one query cost on average, all of them answered."""
        made = calls_made(self.pipeline, knobs).items()
        return math.fsum(often[name] * self.apis[call.api].price_of(call.tokens) for name, call in made)


def refuse_to_measure(configuration: int) -> Measured:
    """The evaluator that stands in where there is none: it refuses to measure."""
    return Measured(configuration, reason="nobody measures")


@dataclass(frozen=True)
class CompoundProblem:
    """What the files and options ask: the objective, tiers and totals, queries with plans, and those to be searched."""

    inputs: Inputs
    options: CompoundOptions
    wish: PackingObjective
    tiers: tuple[Tier, ...]
    totals: Mapping[str, float]
    queries: tuple[Query, ...]
    sought: tuple[PipelineQuery, ...]
    start: Plan | None = None
    notices: tuple[Notice, ...] = ()

    @cached_property
    def request(self) -> Request:
        """What the files ask for."""
        return read_request(self.inputs)


def read_problem(inputs: Inputs, options: CompoundOptions, start: Plan | None) -> CompoundProblem:
    """Read the files; raises `InputError` with every fault found."""
    faults, request = Faults.of(inputs), read_request(inputs)
    wish, tiers = read_objective(request, faults), read_tiers(inputs.profile, request, faults)
    queries, totals, notices = read_queries(request, tiers, faults)
    sought = read_pipeline_queries(inputs, request, tiers, faults, wish)
    totals |= _api_limits(inputs) if any(one.calls is not None for one in sought) else {}
    if math.isfinite(wish.budget):
        totals = {**totals, BUDGET: wish.budget}
    if len({one.lower for one in sought}) > 1 and "quality" in wish.of:
        why = "qualities of which some are better lower have no mean"
        faults.in_slo("$.objective", why, "Plan them in two files, or turn a metric round.")
    if sought and not Aim(wish.of).cheapest and options.search not in ("struct", "struct-ci", "random"):
        faults.in_slo("$.objective", f"search={options.search} looks for the least cost only", "Use search=struct-ci.")
    for one in sought:
        if one.fans is not None and one.rate_qps is not None and options.sizing == "formula":
            why = f"no formula for queues is trusted with the fanouts of {one.pipeline_id}"
            faults.in_options("sizing", why, "Use sizing=simulation: the plan is simulated.", value=options.sizing)
        if one.is_wide and not options.search.startswith("struct"):
            why = f"search={options.search} lists all settings; some are not allowed here, or they are too many"
            faults.in_profile(f"$.pipelines.{one.pipeline_id}", why, "Use search=struct-ci.")
    faults.settle()
    return CompoundProblem(inputs, options, wish, tiers, totals, queries, sought, start, notices)


def read_pipeline_queries(
    inputs: Inputs, request: Request, tiers: tuple[Tier, ...], faults: Faults, wish: PackingObjective = CHEAPEST
) -> tuple[PipelineQuery, ...]:
    """Every application that runs a pipeline of operators."""
    found = []
    for app in request.apps.values():
        if app.pipeline is None:
            continue
        before = len(faults.found)
        one = _read_pipeline_query(inputs, request, (app, app.pipeline, wish), tiers, faults)
        if one is not None and len(faults.found) == before:
            found.append(one)
    return tuple(found)


def _read_pipeline_query(
    inputs: Inputs,
    request: Request,
    asked: tuple[Application, str, PackingObjective],
    tiers: tuple[Tier, ...],
    faults: Faults,
) -> PipelineQuery | None:
    """The query of one application; None where a fault was found."""
    app, pipeline_id, wish = asked
    pipeline = inputs.profile.pipelines[pipeline_id]
    if not tiers:
        remedy = 'Give the profile "tiers", and each hardware its tier.'
        faults.in_profile("$.tiers", f"operators of {app.id} are placed on tiers", remedy)
    bare = [name for name in inputs.profile.tiers if name not in {tier.name for tier in tiers}]
    if tiers and bare:
        why = f"no machine type is of tier {bare[0]}, over which queries of {app.id} come"
        faults.in_profile(
            "$.tiers", why, "Give it a machine type (that may provide next to nothing), or leave the tier out."
        )
    _check_arrivals(app, pipeline, faults)
    for name in sorted({tier.name for tier in tiers} & request.capacity.keys()):
        if not any(name in one.demand for other in request.apps.values() for one in other.candidates):
            why = f"operators of {app.id} run on machines, of which limits.instances says how many there are"
            faults.in_slo(f"$.limits.capacity.{name}", why, "Limit its hardware there.")
    if any(node.device is None for node in pipeline.nodes.values()):
        faults.in_profile(f"$.pipelines.{pipeline_id}.nodes", "operators have a resource", 'Add "resource": "gpu".')
    faults.obstacles(outcomes(inputs.profile, pipeline_id, "compound plans"))
    _check_fanouts(pipeline_id, pipeline, faults)
    if len(pipeline.nodes) > MOST_OPERATORS:
        faults.in_profile(f"$.pipelines.{pipeline_id}.nodes", f"at most {MOST_OPERATORS} operators", "Join some.")
    _check_calls(inputs, app, pipeline_id, faults)
    metric = inputs.profile.metrics.get(pipeline.metric or "")
    lower, span = (False, (0.0, 1.0)) if metric is None else (metric.better == "lower", metric.range)
    wanted = _read_targets(app, wish, lower, span, faults)
    if faults.found or wanted is None:
        return None
    mine, apis = tiers, _api_places(pipeline)
    if app.device is not None and app.device.relative_time is not None:
        mine = (replace(tiers[0], relative_time=app.device.relative_time), *tiers[1:])
    if app.streams is None:
        # Nobody knows how many devices a rate comes from: what they are is where queries come from, and no more.
        mine = tuple(replace(tier, machines=0.0, room={}) if tier.own else tier for tier in mine)
    order = _order_operators(pipeline)
    placed = _read_places(inputs, app, mine, pipeline, faults)
    target, limit_s, free = wanted
    wishes = tuple((one.percentile / 100.0, one.max_ms / 1000.0) for one in app.targets)
    return None if placed is None else PipelineQuery(
        app, pipeline_id, pipeline, order, (*mine, *apis), _add_api_places(placed, mine, apis, inputs), limit_s,
        wishes or ((0.5, math.inf),), target, lower, metric is not None and metric.kind == "bernoulli", span,
        pipeline.strata if isinstance(pipeline.strata, int) else 1, features_of(inputs, pipeline.strata),
        _list_placements(pipeline, order, (mine, apis), (app.id, pipeline_id), faults), Aim(wish.of, wish.budget), free,
        _read_calls(inputs, app, pipeline, order, len(mine)),
        inputs.profile.apis, tuple(growth_of(inputs.profile, pipeline, name) for name in order),
        _read_fanouts(pipeline, order),
    )  # fmt: skip


def _check_arrivals(app: Application, pipeline: Pipeline, faults: Faults) -> None:
    """Queries come as streams, or at a rate."""
    at = f"$.apps.{app.id}"
    if app.streams is not None:
        if app.states_rate and not _api_places(pipeline):
            why = "each stream has every operator for itself, whatever the rate"
            faults.in_slo(f"{at}.rate_qps", why, "Leave out streams: operators are as many as the rate needs.")
        return
    if app.rate_qps is None:
        why = "a compound query comes as a stream, or at a rate that is a number"
        faults.in_slo(f"{at}.rate_qps", why, 'Write "streams": 1, or "rate_qps": 5.')
    if app.lifetime_s is not None:
        faults.in_slo(f"{at}.lifetime_s", "queries that come at a rate do not stay", "Leave it out, or write streams.")


def _read_targets(
    app: Application, wish: PackingObjective, lower: bool, span: tuple[float, float], faults: Faults
) -> tuple[float, float, bool] | None:
    """The accuracy and the latency in seconds that must be met; what is sought itself need not be asked for.

    Without an accuracy (the last is true) the target is the worst that there can be.
    """
    at, wanted = f"$.apps.{app.id}", app.ceiling if lower else app.floor
    free = wanted is None and "quality" in wish.of
    if app.strictest is None and not {"quality", "latency"} & set(wish.of):
        remedy = 'Write {"p50_ms": 500}.'
        faults.in_slo(f"{at}.latency", "a compound query has a latency target", remedy)
    if wanted is None and not free:
        word = "max" if lower else "min"
        faults.in_slo(f"{at}.quality", "a compound query has an accuracy target", f'Write {{"{word}": ...}}.')
        return None
    worst = span[1] if lower else span[0]
    return worst if wanted is None else wanted, app.limit_ms() / 1000.0, free


def _order_operators(pipeline: Pipeline) -> tuple[str, ...]:
    """The operators, each after all that lead to it."""
    order: list[str] = []
    while len(order) < len(pipeline.nodes):
        waiting = {edge.to for edge in pipeline.edges if edge.from_ not in order}
        order += [name for name in pipeline.nodes if name not in order and name not in waiting]
    return tuple(order)


def _read_places(
    inputs: Inputs, app: Application, tiers: tuple[Tier, ...], pipeline: Pipeline, faults: Faults
) -> Placed | None:
    """Links from tier to tier: a link of their own, else hop by hop; an application's own links win."""
    links: dict[frozenset[str], Link] = {frozenset(link.between): link for link in inputs.profile.links}
    own = app.device
    links |= {frozenset(link.between): link for link in (own.links if own is not None else ())}
    size = len(tiers)
    per_byte, crossing = np.zeros((size, size)), np.zeros((size, size))
    for a, b in product(range(size), repeat=2):
        if a >= b:
            continue
        direct = links.get(frozenset((tiers[a].name, tiers[b].name)))
        hops = [direct] if direct is not None else [
            links.get(frozenset((one.name, two.name))) for one, two in pairwise(tiers[a : b + 1])
        ]  # fmt: skip
        for (one, two), hop in zip(pairwise(tiers[a : b + 1]), hops, strict=direct is None):
            if hop is None:
                names = f"{one.name} and {two.name}"
                faults.in_profile(
                    "$.links", f"no link joins {names}, on {app.id}'s way", f"Add the link between {names}."
                )
        if any(hop is None for hop in hops):
            return None
        known = [hop for hop in hops if hop is not None]
        per_byte[a, b] = per_byte[b, a] = sum(8e-6 / hop.bandwidth_mbps for hop in known)
        crossing[a, b] = crossing[b, a] = sum(hop.latency_ms / 1000.0 for hop in known)
    return Placed(
        relative_time=np.array([tier.relative_time for tier in tiers]),
        price=np.array([tier.price for tier in tiers]),
        second_per_byte=per_byte,
        crossing_s=crossing,
        shares=tuple(pipeline.share_grid) or (1.0, 0.75, 0.5, 0.25, 0.125),
    )


def _list_placements(
    pipeline: Pipeline,
    order: tuple[str, ...],
    places: tuple[tuple[Tier, ...], tuple[Tier, ...]],
    names: tuple[str, str],
    faults: Faults,
) -> np.ndarray:
    """Every tier for every operator that one machine of it has room for, and the APIs that it may be a call of."""
    (app_id, pipeline_id), (tiers, apis) = names, places
    smallest = min(pipeline.share_grid, default=0.125)
    allowed = []
    for name in order:
        needs: Mapping[str, float] = pipeline.nodes[name].needs
        gpu = {"gpu": smallest} if pipeline.nodes[name].device == "gpu" else {}
        several = _is_called_several_times(pipeline, name)
        fits = [
            t
            for t, tier in enumerate(tiers)
            if tier.fits({**needs, **gpu}) and not (tier.own and (several or not tier.room))
        ]
        if not fits:
            why = f"operator {name} of {app_id} fits on no tier"
            remedy = "Lower what it needs, or add a larger machine."
            if several:
                why = f"{why}: several calls at once are not made on a query's own device"
                remedy = "Add a machine on another tier, or let the evaluator run them one after another, as rounds."
            faults.in_profile(f"$.pipelines.{pipeline_id}.nodes.{name}.needs", why, remedy)
            fits = [0]
        called = {call.api for call in pipeline.nodes[name].calls}
        allowed.append([*fits, *(len(tiers) + k for k, api in enumerate(apis) if api.name in called)])
    placements = math.prod(len(fits) for fits in allowed)
    if placements > MOST_PLACEMENTS:
        why = f"{app_id} may be placed in {placements} ways; {MOST_PLACEMENTS} are the most"
        faults.in_profile(f"$.pipelines.{pipeline_id}", why, "Join operators, or use fewer tiers.")
        return np.zeros((1, len(order)), dtype=np.int64)
    return np.array(list(product(*allowed)), dtype=np.int64).reshape(-1, len(order))


def _api_places(pipeline: Pipeline) -> tuple[Tier, ...]:
    """The APIs that a pipeline calls, as places beside the tiers: nobody's machines are used there."""
    names = dict.fromkeys(call.api for node in pipeline.nodes.values() for call in node.calls)
    return tuple(
        Tier(name=name, hardware="", relative_time=1.0, machines=math.inf, room={}, own=True) for name in names
    )


def _check_calls(inputs: Inputs, app: Application, pipeline_id: str, faults: Faults) -> None:
    """Whether what is called can be paid for, and reached."""
    profile, pipeline = inputs.profile, inputs.profile.pipelines[pipeline_id]
    apis = [tier.name for tier in _api_places(pipeline)]
    if not apis:
        return
    if app.rate_qps is None:
        why = f"{app.id} calls {apis[0]}, and an hour of calls costs what so many queries cost"
        faults.in_slo(f"$.apps.{app.id}.rate_qps", why, "Write how many queries per second come in all.")
    if not profile.offers:
        why = "calls are paid for in money, and machines without a price count 1 each"
        faults.in_profile("$.offers", why, "Add price_per_hour to the machine types.")
    for name in apis:
        odd = [o for o, offer in profile.offers.items() if offer.currency != profile.apis[name].currency]
        if odd:
            why = f"offer {odd[0]} is in {profile.offers[odd[0]].currency}"
            at = f"$.apis.{name}.currency"
            faults.in_profile(at, why, "Use one currency.", value=profile.apis[name].currency)
    for name, node in pipeline.nodes.items():
        for number, call in enumerate(node.calls):
            for knob in call.where:
                if knob not in node.reads:
                    at = f"$.pipelines.{pipeline_id}.nodes.{name}.calls[{number}].where.{knob}"
                    faults.in_profile(at, f"{name} does not read {knob}", f'Add it to "reads" of {name}.')


def _add_api_places(placed: Placed, tiers: tuple[Tier, ...], apis: tuple[Tier, ...], inputs: Inputs) -> Placed:
    """Where operators may run, APIs among it: an API is at its tier, and takes what was measured."""
    if not apis:
        return placed
    names = [tier.name for tier in tiers]
    at = np.array([*range(len(tiers)), *(names.index(inputs.profile.apis[api.name].tier) for api in apis)])
    return replace(
        placed,
        relative_time=np.concatenate([placed.relative_time, np.ones(len(apis))]),
        price=np.concatenate([placed.price, np.zeros(len(apis))]),
        second_per_byte=placed.second_per_byte[np.ix_(at, at)],
        crossing_s=placed.crossing_s[np.ix_(at, at)],
    )


def _read_calls(
    inputs: Inputs, app: Application, pipeline: Pipeline, order: tuple[str, ...], first: int
) -> Calls | None:
    """The calls as the search knows them; APIs are the places from `first` on. Costs are those of one stream."""
    places = [tier.name for tier in _api_places(pipeline)]
    knobs = list(pipeline.levels)
    queries = HOUR_S * (app.rate_qps or 0.0) / (app.streams or 1)
    made = []
    for number, name in enumerate(order):
        for call in pipeline.nodes[name].calls:
            api = inputs.profile.apis[call.api]
            where = tuple(
                (knobs.index(knob), frozenset(k for k, level in enumerate(pipeline.levels[knob]) if level in levels))
                for knob, levels in call.where.items()
            )
            made.append(
                Call(
                    number, first + places.index(call.api), where, per_hour=queries * api.price_of(call.tokens),
                    failures=api.failures, retries=api.retries, retry_s=api.retry_ms / 1000.0,
                    gap_s=0.0 if app.streams else api.gap_s(call.tokens),
                )
            )  # fmt: skip
    return Calls(tuple(made), first) if made else None


def _api_limits(inputs: Inputs) -> dict[str, float]:
    """What APIs take at most, by the name of the field."""
    found = {}
    for name, api in inputs.profile.apis.items():
        for limit in ("calls_per_s", "tokens_per_s"):
            if (most := getattr(api, limit)) is not None:
                found[f"profile.apis.{name}.{limit}"] = float(most)
    return found


def _check_fanouts(pipeline_id: str, pipeline: Pipeline, faults: Faults) -> None:
    """Whether what follows calls that go side by side is known, and not too much."""
    at = f"$.pipelines.{pipeline_id}"
    before = len(faults.found)
    for number, edge in enumerate(pipeline.edges):
        here = f"{at}.edges[{number}].fanout"
        if not isinstance(edge.fanout, float | int):
            why = "an operator has no variants by which it could differ"
            faults.in_profile(here, why, "Write one number.", value=dict(edge.fanout))
        elif edge.fanout == 0.0:
            why = f"no query would come to {edge.to}"
            faults.in_profile(here, why, "Leave the edge out, and what follows it.", value=0)
    if len(faults.found) > before or all(edge.fanout == 1.0 for edge in pipeline.edges):
        return
    _check_steps_called_several_times(at, pipeline, faults)
    order = list(most_calls(pipeline))
    fans = _read_fanouts(pipeline, order)
    if fans is None or len(faults.found) > before:
        return
    for name, most in zip(order, fans.widths.tolist(), strict=True):
        if most > MOST_CALLS:
            why = f"a query would make up to {most:.6g} calls of {name}, {MOST_CALLS} are the most"
            faults.in_profile(f"{at}.edges", why, "Lower the fanouts that lead there.")
            return
    cases = len(fans.counts(range(len(order))))
    if cases > MOST_CASES:
        why = f"queries differ in {cases} ways by how many calls they make, {MOST_CASES} are the most"
        faults.in_profile(f"{at}.edges", why, "Write whole numbers for fanouts that follow others.")


def _check_steps_called_several_times(at: str, pipeline: Pipeline, faults: Faults) -> None:
    """What steps may not be that are called several times, or not always."""
    odd = {edge.to for edge in pipeline.edges if edge.fanout != 1.0}
    while more := {edge.to for edge in pipeline.edges if edge.from_ in odd} - odd:
        odd |= more
    for name, node in pipeline.nodes.items():
        if name in odd and sum(edge.to == name for edge in pipeline.edges) > 1:
            why = f"branches meet at {name}, and a query may come there with another number of calls on each"
            faults.in_profile(f"{at}.nodes.{name}", why, "Write the step once after each branch, or fanouts after it.")
        if not _is_called_several_times(pipeline, name):
            continue
        if node.outcomes is not None:
            why = f"a query makes several calls of {name}, and it was measured what one answer comes to"
            faults.in_profile(f"{at}.nodes.{name}.outcomes", why, "Decide before the calls go side by side.")
        if node.batches is not None:
            why = f"several calls of {name} come at once, and lines of batches are sized for queries that come singly"
            faults.in_profile(f"{at}.nodes.{name}.batches", why, "Leave it out: replicas serve them side by side.")


def _is_called_several_times(pipeline: Pipeline, name: str) -> bool:
    """Whether a query may make several calls of an operator at once."""
    return most_calls(pipeline).get(name, 1) > 1


def _read_fanouts(pipeline: Pipeline, order: Sequence[str]) -> Fans | None:
    """How calls follow calls, by operator; None where each is called once."""
    if all(edge.fanout == 1.0 for edge in pipeline.edges):
        return None
    of = [brought(pipeline)[name] for name in order]
    return Fans(tuple(-1 if one is None else order.index(one) for one, _ in of), tuple(each for _, each in of))
