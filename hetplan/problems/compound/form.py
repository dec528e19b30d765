"""What is asked of engines: the black box that is searched for plans of a query, and the packing of all queries."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import pairwise, product
from typing import Any, Literal

import numpy as np

from hetplan.planner.answer import Answer
from hetplan.planner.forms.black_box import Aim, BlackBox, Figure, Measured, Operator, Past, Placed
from hetplan.planner.forms.calls import Calls
from hetplan.planner.forms.fans import Fans
from hetplan.planner.forms.packing import Choice, Items, Packing
from hetplan.planner.forms.space import Space, is_ordered, settings_of
from hetplan.planner.request import Application, Request, read_request
from hetplan.problems.compound.calls import api_limits, api_places, calls_of, check_calls, with_apis
from hetplan.problems.compound.fanned import check_fans, fans_of, may_be_several
from hetplan.problems.compound.options import CompoundOptions
from hetplan.problems.compound.stations import Rated
from hetplan.problems.compound.traded import Traded
from hetplan.problems.compound.wish import BUDGET, Query, Tier, Way, Wish, read_queries, read_tiers, read_wish
from hetplan.problems.faults import Faults
from hetplan.problems.fitting import outcomes
from hetplan.profiles.apis import Api
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.pipelines import Link, Pipeline
from hetplan.profiles.plan import Notice, Plan
from hetplan.profiles.sampled import features_of
from hetplan.serving.operators import growth_of

__all__ = [
    "Asked",
    "Packed",
    "Sought",
    "figures",
    "machines_of",
    "nobody",
    "packing",
    "parts_of",
    "read_asked",
    "read_sought",
]

MOST_PLANS = 500_000
MOST_PLACEMENTS = 20_000
MOST_OPERATORS = 12
OFTEN = 10
"""By so much the chance of an error is cut where a latency is looked at again and again, until it is settled."""
STRATA = 8
"""Groups of alike samples made of a feature file: more would leave too few samples in each before a verdict."""
CHEAPEST = Wish("max", True)
NO_CAPS: Mapping[Figure, float] = {}


@dataclass(frozen=True)
class Sought:
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

    def lowered(self, found: Measured, accuracy: float) -> float:
        """An accuracy as it is in service: a query of which a call is never answered scores the worst there is."""
        row = Space(self.levels).row(found.configuration)
        lost = 0.0 if self.calls is None else self.calls.lost(row, self.made(found))
        return accuracy if lost == 0.0 else (1.0 - lost) * accuracy + lost * self.span[1 if self.lower else 0]

    @property
    def at_once(self) -> tuple[int, ...]:
        """How many calls of each operator a query makes at once, at most."""
        widths = [1.0] * len(self.order) if self.fans is None else self.fans.widths.tolist()
        return tuple(map(int, widths))

    def made(self, found: Measured) -> np.ndarray:
        """How often each operator is called by a query."""
        return found.made if self.fans is None else found.made * self.fans.visits

    @property
    def space(self) -> Space:
        """Which settings there are, by the places of levels."""
        return settings_of(self.pipeline.levels, self.pipeline.space)

    @property
    def wide(self) -> bool:
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
    def reachable(self) -> np.ndarray:
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
            arrivals = self.app.arrivals
            kind = partial(
                Traded if "latency" in self.aim.of else Rated,
                rate_qps=self.rate_qps,
                burst=1.0 / (arrivals.shape or 1.0),
                growth=self.growth,
                fluid=options.size in ("planned", "simulated"),
                unplayed=options.size == "estimated",
                sizes=options.sizes,
            )
        return kind(
            levels=self.levels,
            operators=self.operators(),
            placed=self.placed,
            target=self.target,
            limit_s=self.limit_s,
            wishes=self.wishes,
            confidence=options.confidence,
            measure=measure,
            placements=self.placements,
            most=options.steps,
            gpu_s=options.gpu_s,
            first_random=1 if options.search.startswith("struct") else 3,
            parallel=options.parallel,
            ordered=self.ordered,
            lower=self.lower,
            past=past,
            name=self.app_id,
            aim=self.aim,
            space=self.space if self.wide else None,
            alike=self.alike,
            calls=self.calls,
            exits=self.exits,
            fans=self.fans,
        )

    def setup(self, options: CompoundOptions) -> dict[str, Any]:
        """What the evaluator needs to know of the query."""
        above: dict[str, set[str]] = {}
        for name in self.order:
            before = [edge.from_ for edge in self.pipeline.edges if edge.to == name]
            above[name] = set(self.pipeline.nodes[name].reads).union(*(above[other] for other in before))
        judged, surer = "quality" in self.aim.of, 1.0 - (1.0 - options.confidence) / OFTEN
        n_min = max(options.n_min, min(options.samples, options.n_max)) if judged else options.n_min
        rule = {
            "target": self.target, "kind": "fixed" if self.free else options.stop_rule, "n_min": n_min,
            "n_max": options.samples if self.free else options.n_max, "confidence": options.confidence,
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
            "settled": self.box(nobody, options.model_copy(update={"confidence": surer})).settled,
        }  # fmt: skip


def nobody(configuration: int) -> Measured:
    """The evaluator that stands in where there is none: it refuses to measure."""
    return Measured(configuration, reason="nobody measures")


@dataclass(frozen=True)
class Asked:
    """What the files and options ask: the objective, tiers and totals, queries with plans, and those to be searched."""

    inputs: Inputs
    options: CompoundOptions
    wish: Wish
    tiers: tuple[Tier, ...]
    totals: Mapping[str, float]
    queries: tuple[Query, ...]
    sought: tuple[Sought, ...]
    start: Plan | None = None
    notices: tuple[Notice, ...] = ()

    @cached_property
    def request(self) -> Request:
        """What the files ask for."""
        return read_request(self.inputs)


def read_asked(inputs: Inputs, options: CompoundOptions, start: Plan | None) -> Asked:
    """Read the files; raises `InputError` with every fault found."""
    faults, request = Faults.of(inputs), read_request(inputs)
    wish, tiers = read_wish(request, faults), read_tiers(inputs.profile, request, faults)
    queries, totals, notices = read_queries(request, tiers, options, faults)
    sought = read_sought(inputs, request, tiers, faults, wish)
    totals |= api_limits(inputs) if any(one.calls is not None for one in sought) else {}
    if math.isfinite(wish.budget):
        totals = {**totals, BUDGET: wish.budget}
    if len({one.lower for one in sought}) > 1 and "quality" in wish.of:
        why = "qualities of which some are better lower have no mean"
        faults.in_slo("$.objective", why, "Plan them in two files, or turn a metric round.")
    if sought and not Aim(wish.of).cheapest and options.search not in ("struct", "struct-ci", "random"):
        faults.in_slo("$.objective", f"search={options.search} looks for the least cost only", "Use search=struct-ci.")
    for one in sought:
        if one.fans is not None and one.rate_qps is not None and options.size == "estimated":
            why = f"no formula for queues is trusted with the fanouts of {one.pipeline_id}"
            faults.in_options("size", why, "Use size=auto: the plan is played.", value=options.size)
        if one.wide and not options.search.startswith("struct"):
            why = f"search={options.search} lists all settings; some are not allowed here, or they are too many"
            faults.in_profile(f"$.pipelines.{one.pipeline_id}", why, "Use search=struct-ci.")
    faults.settle()
    return Asked(inputs, options, wish, tiers, totals, queries, sought, start, notices)


def read_sought(
    inputs: Inputs, request: Request, tiers: tuple[Tier, ...], faults: Faults, wish: Wish = CHEAPEST
) -> tuple[Sought, ...]:
    """Every application that runs a pipeline of operators."""
    found = []
    for app in request.apps.values():
        if app.pipeline is None:
            continue
        before = len(faults.found)
        one = _sought(inputs, request, (app, app.pipeline, wish), tiers, faults)
        if one is not None and len(faults.found) == before:
            found.append(one)
    return tuple(found)


def _sought(
    inputs: Inputs, request: Request, asked: tuple[Application, str, Wish], tiers: tuple[Tier, ...], faults: Faults
) -> Sought | None:
    app, pipeline_id, wish = asked
    pipeline = inputs.profile.pipelines[pipeline_id]
    if not tiers:
        remedy = 'Give the profile "tiers", and each hardware its tier.'
        faults.in_profile("$.tiers", f"operators of {app.id} are placed on tiers", remedy)
    bare = [name for name in inputs.profile.tiers if name not in {tier.name for tier in tiers}]
    if tiers and bare:
        why = f"no hardware is of tier {bare[0]}, over which queries of {app.id} come"
        faults.in_profile("$.tiers", why, "Give it hardware (that may provide next to nothing), or leave the tier out.")
    _comes(app, pipeline, faults)
    for name in sorted({tier.name for tier in tiers} & request.capacity.keys()):
        if not any(name in one.demand for other in request.apps.values() for one in other.candidates):
            why = f"operators of {app.id} run on machines, of which limits.instances says how many there are"
            faults.in_slo(f"$.limits.capacity.{name}", why, "Limit its hardware there.")
    if any(node.device is None for node in pipeline.nodes.values()):
        faults.in_profile(f"$.pipelines.{pipeline_id}.nodes", "operators have a device", 'Add "device": "gpu".')
    faults.obstacles(outcomes(inputs.profile, pipeline_id, "compound plans"))
    check_fans(pipeline_id, pipeline, faults)
    if len(pipeline.nodes) > MOST_OPERATORS:
        faults.in_profile(f"$.pipelines.{pipeline_id}.nodes", f"at most {MOST_OPERATORS} operators", "Join some.")
    check_calls(inputs, app, pipeline_id, faults)
    wanted = _targets(inputs, app, pipeline, wish, faults)
    if faults.found or wanted is None:
        return None
    mine, apis = _own_device(app, tiers), api_places(pipeline)
    if app.streams is None:
        # Nobody knows how many devices a rate comes from: what they are is where queries come from, and no more.
        mine = tuple(replace(tier, machines=0.0, room={}) if tier.own else tier for tier in mine)
    order = _order(pipeline)
    placed = _placed(inputs, app, mine, pipeline, faults)
    metric = inputs.profile.metrics.get(pipeline.metric or "")
    target, limit_s, free = wanted
    wishes = tuple((one.percentile / 100.0, one.max_ms / 1000.0) for one in app.targets)
    return None if placed is None else Sought(
        app, pipeline_id, pipeline, order, (*mine, *apis), with_apis(placed, mine, apis, inputs), limit_s,
        wishes or ((0.5, math.inf),), target,
        metric is not None and metric.better == "lower", metric is not None and metric.kind == "bernoulli",
        metric.range if metric is not None else (0.0, 1.0),
        pipeline.strata if isinstance(pipeline.strata, int) else 1, features_of(inputs, pipeline.strata),
        _placements(pipeline, order, (mine, apis), (app.id, pipeline_id), faults), Aim(wish.of, wish.budget), free,
        calls_of(inputs, app, pipeline, order, len(mine)),
        inputs.profile.apis, tuple(growth_of(inputs.profile, pipeline, name) for name in order),
        fans_of(pipeline, order),
    )  # fmt: skip


def _comes(app: Application, pipeline: Pipeline, faults: Faults) -> None:
    """Queries come as streams, or at a rate."""
    at = f"$.apps.{app.id}"
    if app.streams is not None:
        if app.states_rate and not api_places(pipeline):
            why = "each stream has every operator for itself, whatever the rate"
            faults.in_slo(f"{at}.rate_qps", why, "Leave out streams: operators are as many as the rate needs.")
        return
    if app.rate_qps is None:
        why = "a compound query comes as a stream, or at a rate that is a number"
        faults.in_slo(f"{at}.rate_qps", why, 'Write "streams": 1, or "rate_qps": 5.')
    if app.lifetime_s is not None:
        faults.in_slo(f"{at}.lifetime_s", "queries that come at a rate do not stay", "Leave it out, or write streams.")


def _targets(
    inputs: Inputs, app: Application, pipeline: Pipeline, wish: Wish, faults: Faults
) -> tuple[float, float, bool] | None:
    """The accuracy and the latency in seconds that must be met; what is sought itself need not be asked for.

    Without an accuracy (the last is true) the target is the worst that there can be.
    """
    metric = inputs.profile.metrics.get(pipeline.metric or "")
    lower = metric is not None and metric.better == "lower"
    span = metric.range if metric is not None else (0.0, 1.0)
    at, wanted = f"$.apps.{app.id}", app.ceiling if lower else app.floor
    free = wanted is None and "quality" in wish.of
    if app.strictest is None and not {"quality", "latency"} & set(wish.of):
        remedy = 'Write {"percentile": 50, "max_ms": 500}.'
        faults.in_slo(f"{at}.latency", "a compound query has a latency target", remedy)
    if wanted is None and not free:
        word = "max" if lower else "min"
        faults.in_slo(f"{at}.quality", "a compound query has an accuracy target", f'Write {{"{word}": ...}}.')
    if wanted is None and not free:
        return None
    worst = span[1] if lower else span[0]
    return worst if wanted is None else wanted, app.limit_ms() / 1000.0, free


def _own_device(app: Application, tiers: tuple[Tier, ...]) -> tuple[Tier, ...]:
    """The tiers with this application's own device."""
    device = app.device
    if device is None or device.relative_time is None:
        return tiers
    return (replace(tiers[0], relative_time=device.relative_time), *tiers[1:])


def _order(pipeline: Pipeline) -> tuple[str, ...]:
    order: list[str] = []
    while len(order) < len(pipeline.nodes):
        waiting = {edge.to for edge in pipeline.edges if edge.from_ not in order}
        order += [name for name in pipeline.nodes if name not in order and name not in waiting]
    return tuple(order)


def _placed(
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


def _placements(
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
        several = may_be_several(pipeline, name)
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
    demand = np.array([[_taken(way, name) for name in totals] for way in ways]).reshape(len(ways), len(totals))
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


def _taken(way: Way, name: str) -> float:
    return way.price if name == BUDGET else way.demand.get(name, 0.0)


def figures(queries: Sequence[Query], name: Figure) -> np.ndarray:
    """A figure of every way, so that those chosen add up to the whole: a sum for cost, else a mean by weight."""
    parts = parts_of(queries) if name != "cost" else [1.0] * len(queries)
    of = [part * way.figure(name) for part, query in zip(parts, queries, strict=True) for way in query.ways]
    return np.array(of, dtype=float)


def parts_of(queries: Sequence[Query]) -> list[float]:
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
        price=np.array([0.0 if tier.per == "gpu" or not paid else tier.machine_price for tier in tiers]),
    )


def machines_of(form: Packing, option: int, choice: Choice, tiers: Sequence[Tier]) -> dict[str, tuple[int, ...]]:
    """Per tier the machines that hold a chosen option's items."""
    if form.items is None or choice.machine is None:
        return {}
    shared = [tier for tier in tiers if not tier.own]
    where: dict[str, list[int]] = {}
    for item in range(int(form.items.first[option]), int(form.items.first[option + 1])):
        where.setdefault(shared[int(form.items.tier[item])].name, []).append(int(choice.machine[item]))
    return {tier: tuple(machines) for tier, machines in where.items()}


@dataclass(frozen=True)
class Packed:
    """All queries packed: the forms asked, the choice, and the answers that back value and cost."""

    form: Packing
    choice: Choice
    answer: Answer[Choice]
    cost: tuple[Packing, Answer[Choice]] | None = None
    figure: Figure = "cost"
    opening: np.ndarray = field(default_factory=lambda: np.zeros(0))
    """What a machine of each shared tier costs, where it is paid for whole."""
