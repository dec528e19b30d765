"""Reads the files of pipelines: the servers that may be used, and one tree of tasks per application.

A server that several steps may share is cut into *places*, all alike: as many as it holds instances of the smallest
run. An instance takes a place, or several. So whatever is planned for servers is planned for places; what is on one
server is settled at the end (`draft`). Where places do not say what fits, or servers are not shared, it is one place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import ClassVar, Literal, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from hetplan.dispatch.monitors import forecast
from hetplan.errors import InputError
from hetplan.planner.choices import Choice
from hetplan.planner.contract import Sizing, TableOptions
from hetplan.planner.request import PLENTY, Application, Request, read_request
from hetplan.problems import infer_problem
from hetplan.problems.faults import Faults, refuse_not_provided, refused_fields
from hetplan.problems.metrics import higher_is_better
from hetplan.problems.pipeline.tree import Task, Tree
from hetplan.problems.slot_packing import fit_together, slots_per_server
from hetplan.profiles.fields import NANO
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.pipelines import Pipeline
from hetplan.profiles.plan import Notice
from hetplan.profiles.workers import Worker
from hetplan.serving.law import OffTable
from hetplan.serving.price import Price

__all__ = [
    "REFUSED",
    "BudgetOptions",
    "ConfigOptions",
    "Fleet",
    "PaperOptions",
    "PipelineOptions",
    "PipelineRequest",
    "RerouteOptions",
    "count_placed",
    "order_of",
    "read_fleet",
    "read_pipelines",
]

REFUSED = {
    **refused_fields(
        "limits.capacity", "limits.survive.machines", "limits.survive.zones", "change.load_weight_per_s",
        "horizon.period_s", "horizon.periods", "apps.*.latency.ttft_p*_ms",
        "apps.*.latency.tpot_p*_ms", "apps.*.attainment", "apps.*.lifetime_s",
        "apps.*.deadline_s", "apps.*.device", "apps.*.candidates", "apps.*.rate_qps.series", "apps.*.streams",
    ),
    "change.slack": ("headroom of a pipeline is an option", "Set option headroom instead."),
    "change.slack_qps": ("headroom of a pipeline is an option", "Set option headroom instead."),
    "apps.*.quality.max": ("a ceiling on accuracy", "State a floor (min), or leave it out."),
    "apps.*.dispatch": ("routes of pipelines say where queries go", "Leave it out."),
    "apps.*.mix": ("queries of a pipeline are alike", "Make each class an app."),
}  # fmt: skip
"""Fields of the SLO that this question does not keep: why, and what to write instead."""

_Row = tuple[int, int, int, Choice, float, float, int, int]
"""A configuration: variant, hardware, batch, its run, milliseconds, fee, instances, places."""

MOST_TOLD = 8

Goal = Literal["quality", "fairest", "servers", "cost", "changes", "rate", "room"]
TERMS: tuple[Goal, ...] = ("quality", "servers", "cost", "changes")
"""What a plan of pipelines can strive for."""


@dataclass(frozen=True)
class PipelineRequest:
    """The files as the question understands them; `goals` in order of importance, `joins` where a DAG is planned."""

    trees: tuple[Tree, ...]
    fleet: Fleet
    goals: tuple[Goal, ...]
    joins: Mapping[str, tuple[tuple[int, int], ...]]
    """Per application whose pipeline joins branches, all its edges (its tree holds one parent per task)."""
    notices: tuple[Notice, ...]


def read_pipelines(inputs: Inputs, options: PipelineOptions) -> PipelineRequest:
    """Read the files; raises `InputError` with every fault found."""
    faults, notices = Faults.of(inputs), list[Notice]()
    faults.obstacles(infer_problem.pipeline(inputs))
    faults.refuse(REFUSED)
    request = read_request(inputs)
    _judged(request, faults)
    fleet = read_fleet(request, faults, shared=_may_share(request, options))
    rates = {name: _rate(app, faults) for name, app in request.apps.items()}
    weights = _weights(request, rates, faults)
    trees, joins = [], {}
    for name, app in request.apps.items():
        reader = _Reader(fleet.request, app, options, fleet, faults, notices)
        tree = reader.tree(rates[name], weights[name])
        trees.append(tree)
        if (edges := reader.joined()) is not None:
            joins[name] = edges
    faults.settle()
    return PipelineRequest(tuple(trees), fleet, _goals(fleet, faults), joins, tuple(notices))


def _may_share(request: Request, options: PipelineOptions) -> bool:
    """Whether steps may share servers.

    Not where branches meet again, nor where each offer gets its part of a step, nor where moves count: what a server
    holds changes with any of its steps.
    """
    edges = [[edge.to for edge in one.edges] for one in filter(None, map(request.pipeline, request.apps))]
    joined = any(len(set(to)) < len(to) for to in edges)
    moves = request.changes is not None or "changes" in request.goals
    return options.share_machines and options.offers == "in-turn" and not joined and not moves


def _goals(fleet: Fleet, faults: Faults) -> tuple[Goal, ...]:
    """The terms of the objective; by default the best quality, then the least cost (servers without prices)."""
    least: Goal = "cost" if fleet.priced else "servers"
    stated = tuple("servers" if term == "machines" else term for term in fleet.request.goals)
    for number, term in enumerate(stated):
        if term not in TERMS:
            faults.in_slo(
                f"$.objective[{number}]",
                "pipelines are planned for quality, machines, cost and changes",
                'Write ["max quality", "min machines"], or leave it out.',
                value=term,
            )
        if term == "cost" and not fleet.priced:
            faults.in_slo(
                f"$.objective[{number}]",
                "not all machine types have a price",
                "Add price_per_hour, or write min machines.",
                value=term,
            )
    faults.settle()
    return ("quality", least) if stated in ((), ("quality",)) else cast(tuple[Goal, ...], stated)


def _judged(request: Request, faults: Faults) -> None:
    """Every application says how long a response may take; accuracies multiply, so more of them is better."""
    for name, app in request.apps.items():
        if app.strictest is None:
            at = f"$.apps.{name}.latency"
            faults.in_slo(at, "no limit on the response time", 'Write {"p99_ms": 250}.')
    higher_is_better(request, faults)


def _rate(app: Application, faults: Faults) -> float:
    if app.history is not None:
        return forecast(app.history, HISTORY_COM)
    if app.rate_qps is not None:
        return app.rate_qps
    given = "a range" if app.range_qps is not None else "max" if app.wants_max_rate else None
    remedy = 'Write a number, or {"history": [560, 620]}.'
    faults.in_slo(f"$.apps.{app.id}.rate_qps", "pipelines are planned for a rate", remedy, value=given)
    return 0.0


def _weights(request: Request, rates: Mapping[str, float], faults: Faults) -> dict[str, float]:
    """Weights that sum to 1: as stated, else the share of the demand."""
    total = sum(rates.values())
    share = {name: rate / total if total > 0 else 1.0 / len(rates) for name, rate in rates.items()}
    raw = {name: app.weight(share[name]) for name, app in request.apps.items()}
    if sum(raw.values()) <= 0:
        first = next(iter(raw))
        faults.in_slo(f"$.apps.{first}.weight", "all weights are 0", "Give one of the applications a weight.", value=0)
        return share
    return {name: weight / sum(raw.values()) for name, weight in raw.items()}


def order_of(pipeline: Pipeline) -> list[str]:
    """The steps, each after those that lead to it, otherwise as in the file."""
    before = {node: {edge.from_ for edge in pipeline.edges if edge.to == node} for node in pipeline.nodes}
    order: list[str] = []
    while len(order) < len(before):
        order += [node for node in before if node not in order and before[node] <= set(order)]
    return order


@dataclass
class _Reader:
    """Reads one application's pipeline."""

    request: Request
    app: Application
    options: PipelineOptions
    fleet: Fleet
    faults: Faults
    notices: list[Notice]

    @property
    def pipeline_id(self) -> str:
        assert self.app.pipeline is not None
        return self.app.pipeline

    @property
    def pipeline(self) -> Pipeline:
        return self.request.profile.pipelines[self.pipeline_id]

    def joined(self) -> tuple[tuple[int, int], ...] | None:
        """All edges, where some step has several before it."""
        place = {node: t for t, node in enumerate(order_of(self.pipeline))}
        ends = [edge.to for edge in self.pipeline.edges]
        if len(ends) == len(set(ends)):
            return None
        return tuple((place[edge.from_], place[edge.to]) for edge in self.pipeline.edges)

    def tree(self, rate: float, weight: float) -> Tree:
        """The pipeline as a tree (of a DAG: with the first parent of each step)."""
        order = order_of(self.pipeline)
        place = {node: t for t, node in enumerate(order)}
        parent = {place[edge.to]: place[edge.from_] for edge in reversed(self.pipeline.edges)}
        tasks = tuple(self._task(node, place, parent.get(t, -1)) for t, node in enumerate(order))
        quality = self.pipeline.quality
        tree = Tree(
            self.app.id,
            tasks,
            {},
            rate,
            weight,
            self.app.floor,
            quality.rule,
            quality.weights,
            quality.paths,
            self.options.spare,
        )
        self._check_paths(tree)
        hops = {sink: len(tree.path(sink)) for sink in tree.sinks}
        limit_ms = {count: self._limit_ms(count) for count in sorted(set(hops.values()))}
        return replace(tree, limit_ms={sink: limit_ms[count] for sink, count in hops.items()})

    def _limit_ms(self, hops: int) -> float:
        """H: what the execution times of a path may sum to."""
        left = self.app.limit_ms(hops)
        if left <= 0 and self.app.strictest is not None:
            slo = self.app.strictest.max_ms
            self.faults.in_slo(
                f"$.apps.{self.app.id}.network_ms_per_hop",
                f"the network alone takes {slo - left:g} ms of the limit of {slo:g} ms",
                f"Raise latency.{self.app.strictest.key} above it.",
                value=self.app.hop_ms,
            )
        return left / self.options.slo_divisor

    def _task(self, node: str, place: Mapping[str, int], parent: int) -> Task:
        wanted = self.pipeline.nodes[node].task
        usable: list[str] = []
        rows: list[_Row] = []
        for name in self.request.steps(self.app.id).get(node, ()):
            found = list(self._configurations(name, len(usable)))
            if found:
                usable.append(name)
                rows += found
        if not usable:
            self.faults.in_profile(
                f"$.pipelines.{self.pipeline_id}.nodes.{node}",
                f"no variant of task {wanted} has a measured latency on hardware that may be used "
                f"({', '.join(self.fleet.hardware) or 'none'})",
                "Measure one, or allow its hardware in limits.instances.",
            )
        columns = list(zip(*rows, strict=True)) if rows else [()] * 8
        ms, batch = np.array(columns[4], dtype=float), np.array(columns[2], dtype=np.int64)
        instances = np.array(columns[6], dtype=np.int64)
        choices = {choice: number for number, choice in enumerate(dict.fromkeys(columns[3]))}
        return Task(
            id=node,
            parent=parent,
            variants=tuple(usable),
            quality=np.array([self._quality(name, node) for name in usable], dtype=float),
            factor=self._factors(node, usable, place),
            variant=np.array(columns[0], dtype=np.int64),
            hardware=np.array(columns[1], dtype=np.int64),
            batch=batch,
            choices=tuple(choices),
            run=np.array([choices[choice] for choice in columns[3]], dtype=np.int64),
            ms=ms,
            k=instances,
            qps=(1.0 - self.options.headroom) * 1000.0 * instances * batch / ms,
            fee=np.array(columns[5], dtype=float),
            places=np.array(columns[7], dtype=np.int64),
        )

    def _configurations(self, name: str, number: int) -> Iterator[_Row]:
        """Every way to run a variant."""
        on = [one for one in self.request.choices(variants=[name]) if one.hardware in self.fleet.hardware]
        timed = [one for one in on if one.is_timed]
        if not timed:
            why = "its runs state rates, not latencies" if on else "it has no run on hardware that may be used"
            self.notices.append(Notice(code="W-no-latency", at=f"variants.{name}", text=f"left out: {why}"))
        for one in timed:
            for resource, room in list(one.lacking.items())[:1]:
                why = f"it needs {one.needs[resource]:g} {resource}, one {one.hardware} provides {room:g}"
                self.notices.append(Notice(code="W-too-large", at=f"variants.{name}", text=f"left out: {why}"))
            if one.lacking:
                continue
            place = self.fleet.hardware.index(one.hardware)
            fee = self.fleet.fee_of(one).nanos / NANO
            counted = self.fleet.instances_of(one), self.fleet.places_of(one)
            for batch, ms in self._times(one):
                yield number, place, batch, one, ms, fee, *counted

    def _times(self, choice: Choice) -> Iterator[tuple[int, float]]:
        """Milliseconds per batch, at every batch size that was measured."""
        missing = [axis for axis in choice.table.axes if axis != "batch" and axis not in choice.settings]
        if missing:
            self.faults.in_profile(
                f"$.tables.{choice.table_id}.axes",
                f"the table has the axis {missing[0]}, and the files do not say where on it {choice.variant} runs",
                "Add it to the run's \"at\" or the variant's knobs.",
                value=missing[0],
            )
            return
        try:
            statistic, unlike = choice.statistic(self.options)
        except InputError as error:
            self.faults.also(error)
            return
        self.notices += [notice for notice in unlike if notice not in self.notices]
        for size in choice.measured_batches:
            try:
                ms = choice.law.ms({}, int(size), statistic)
            except OffTable:
                continue  # a cell that was never measured is a batch size that is not used
            yield (int(size) if "batch" in choice.table.axes else 1), ms

    def _quality(self, name: str, node: str) -> float:
        value = self.request.known.quality(name)
        if value is None:
            if self.pipeline.quality.rule == "table":
                return 1.0
            self.faults.in_profile(
                f"$.variants.{name}.quality", f"stage {node} needs to know how good it is", 'Write "quality": 0.9.'
            )
            return 1.0
        if not 0.0 <= value <= 1.0:
            percent = f" Is this percent? Write {value / 100:g}." if 1.0 < value <= 100.0 else ""
            self.faults.in_profile(
                f"$.variants.{name}.quality.value",
                "accuracies of pipelines are between 0 and 1",
                f"Write a fraction.{percent}",
                value=value,
            )
        return value

    def _factors(self, node: str, usable: list[str], place: Mapping[str, int]) -> dict[int, np.ndarray]:
        found = {}
        for number, edge in enumerate(self.pipeline.edges):
            if edge.from_ != node:
                continue
            fanout = edge.fanout
            if isinstance(fanout, dict):
                unknown = sorted(set(fanout) - {"*"} - self.request.known.variants)
                if unknown:
                    self.faults.in_profile(
                        f"$.pipelines.{self.pipeline_id}.edges[{number}].fanout",
                        "there is no such variant",
                        f"Variants of {node} are {', '.join(usable)}.",
                        value=", ".join(unknown),
                    )
                values = [fanout.get(name, fanout.get("*", 1.0)) for name in usable]
            else:
                values = [fanout] * len(usable)
            found[place[edge.to]] = np.array(values, dtype=float)
        return found

    def _check_paths(self, tree: Tree) -> None:
        """Measured paths name steps and variants that exist, and are complete where nothing else says."""
        quality, at = self.pipeline.quality, f"$.pipelines.{self.pipeline_id}.quality.paths"
        wanted = (
            {
                "/".join(steps)
                for sink in tree.sinks
                for steps in product(
                    *([f"{tree.tasks[t].id}={k}" for k in tree.tasks[t].variants] for t in tree.path(sink))
                )
            }
            if quality.rule == "table" or quality.paths
            else set()
        )
        missing = sorted(wanted - quality.paths.keys()) if quality.rule == "table" else []
        if missing:
            more = f" and {len(missing) - MOST_TOLD} more" if len(missing) > MOST_TOLD else ""
            listed = ", ".join(missing[:MOST_TOLD]) + more
            self.faults.in_profile(
                at, f"not all paths are measured: {listed}", 'Measure them, or set "rule": "product".'
            )
        known = self.request.known.variants
        for key, value in quality.paths.items():
            steps = [step.partition("=") for step in key.split("/")]
            strange = [name for node, _, name in steps if node not in self.pipeline.nodes or name not in known]
            if strange:
                self.faults.in_profile(
                    at, f"path {key} names an unknown variant or stage", "Mend or drop it.", value=strange[0]
                )
            if not 0.0 <= value <= 1.0:
                self.faults.in_profile(
                    f"{at}.{key}", "accuracies are between 0 and 1", "Write a fraction; percent / 100.", value=value
                )


Placed = tuple[str | None, str | None, str | None, str]
"""(application, step, variant, hardware)."""

Apart = Literal["", "whole", "unlike"]


@dataclass(frozen=True)
class Fleet:
    """What may be rented, in how many places a server of each type is cut, and what runs now.

    Servers whose runs are paid (`paid_by_run`: own prices, or slices) cost nothing themselves; the runs have fees.
    """

    request: Request
    places: tuple[int, ...]
    """How many there are on one server of each hardware; one where steps do not share it."""
    paid_by_run: frozenset[str]
    priced: bool
    running: Counter[Placed]

    @cached_property
    def hardware(self) -> tuple[str, ...]:
        """The types g, by name."""
        return tuple(kind.id for kind in self.request.machines)

    @cached_property
    def least(self) -> NDArray[np.float64]:
        """How many servers of each type must run."""
        return np.array([float(kind.least) for kind in self.request.machines])

    @cached_property
    def most(self) -> NDArray[np.float64]:
        """S_g: how many places of each type there may be; infinity where nothing limits them."""
        there = [kind.available if kind.available < PLENTY else np.inf for kind in self.request.machines]
        return np.array([n * places for n, places in zip(there, self.places, strict=True)], dtype=float)

    @property
    def is_shared(self) -> bool:
        """Whether steps may share some server."""
        return any(n > 1 for n in self.places)

    @cached_property
    def apart(self) -> Apart:
        """Whether steps that would fit on one server get servers of their own, so that other plans are not looked at.

        `whole` where places would say what fits: parts of servers bound those other plans, too. `unlike` where not even
        these do.
        """
        found: Apart = ""
        for name, places in zip(self.hardware, self.places, strict=True):
            if places == 1 and _fit_together(self.request, name):
                alike = _places_on(self.request, name) > 1 and found != "unlike"
                found = "whole" if alike else "unlike"
        return found

    def fee_of(self, choice: Choice) -> Price:
        """What one server with this run costs beside the price of the server."""
        if choice.hardware not in self.paid_by_run:
            return Price(0)
        return choice.price(self.request.of(choice.hardware).offers[0].id)

    def instances_of(self, choice: Choice) -> int:
        """How many instances of a run are counted as one: all on a server; one where it is shared or sold by slices."""
        alone = self._places_on(choice) == 1 and self.fee_of(choice).share is None
        return choice.per_machine if alone else 1

    def places_of(self, choice: Choice) -> int:
        """How many places these take."""
        places = self._places_on(choice)
        return places // choice.per_machine if places > 1 else 1

    def _places_on(self, choice: Choice) -> int:
        return self.places[self.hardware.index(choice.hardware)]


def _of_steps(request: Request, hardware: str) -> list[Choice]:
    """The runs on a hardware that are timed, of every step that is asked for."""
    steps = [names for app in request.apps for names in request.steps(app).values()]
    found = (one for names in steps for one in request.choices(variants=names, hardware=hardware))
    return [one for one in found if one.is_timed]


def _places_on(request: Request, hardware: str) -> int:
    """How many places there are on a server that steps share (`slots_per_server`).

    One where it is sold by the slice, or a run of its own price is on it.
    """
    runs = _of_steps(request, hardware)
    if request.is_sold_in_parts(hardware) or any(one.own_price is not None for one in runs):
        return 1
    provides = request.profile.hardware[hardware].provides
    return slots_per_server(provides, [one.needs for one in runs], [one.per_machine for one in runs])


def _fit_together(request: Request, hardware: str) -> bool:
    """Whether instances of two steps, or of two runs of one, fit on one server and are not paid by themselves."""
    provides, runs = request.profile.hardware[hardware].provides, _of_steps(request, hardware)
    return not request.is_sold_in_parts(hardware) and fit_together(provides, [r.needs for r in runs if r.fits_twice])


def read_fleet(request: Request, faults: Faults, *, shared: bool = False) -> Fleet:
    """The servers of the files; hardware that no variant runs on is left out. `shared`: steps may share a server."""
    profile, runs = request.profile, request.choices()
    run_on, sold = {one.hardware for one in runs}, {offer.hardware for offer in profile.offers.values()}
    refuse_not_provided(request, faults)
    unpriced = {name: 0 for name in profile.hardware if name not in sold}
    paid_by_run = frozenset(one.hardware for one in runs if one.is_paid)
    wanted = (name for name in profile.hardware if name in run_on)
    request = request.renting(profile, wanted, own_price=unpriced, paid_by_run=paid_by_run)
    names = [kind.id for kind in request.machines]
    for name in names:
        _check_offers(request, name, faults)
    fleet = Fleet(
        request=request,
        places=tuple(_places_on(request, name) if shared else 1 for name in names),
        paid_by_run=paid_by_run,
        priced=bool(names) and all(name in sold for name in names),
        running=count_placed(request.running),
    )
    if not np.isfinite(fleet.most).all() and request.budget is None:
        free = [name for name, limit in zip(names, fleet.most, strict=True) if not np.isfinite(limit)]
        faults.in_slo(
            "$.limits.instances",
            f"nothing limits how many servers of {', '.join(free)} there may be",
            f'Write {{"{free[0]}": [0, 20]}}, give its machine type a stock, or limit cost_per_hour.',
        )
    elif names and not fleet.most.sum() >= 1:
        faults.in_slo("$.limits.instances", "there is not one server", 'Write for instance {"gpu": [0, 20]}.')
    return fleet


def count_placed(workers: Iterable[Worker]) -> Counter[Placed]:
    """How many servers run what where; what is more in a later plan is a move."""
    found = Counter[Placed]()
    for worker in workers:
        for load in worker.loads:
            found[load.app, load.node, load.variant, worker.hardware] += load.instances * worker.count
    return found


def _check_offers(request: Request, name: str, faults: Faults) -> None:
    offers = sum(offer.hardware == name for offer in request.profile.offers.values())
    if request.budget is not None and not offers:
        faults.in_profile("$.offers", f"{name} has no price, yet the cost is limited", "Add its price_per_hour.")
    if offers > 1 and (request.is_paid_by_run(name) or request.is_sold_in_parts(name)):
        faults.in_profile(
            "$.offers",
            f"{name} has several offers, and prices per run or per resource besides",
            "Keep one offer for it, or plain prices per server.",
        )


HISTORY_COM = 1.6
"""Centre of mass of the moving average that forecasts `rate_qps.history`, in intervals; Loki's."""

SIZE = (
    "how waiting is taken into account; fluid: by `headroom`, as in the paper; formula: by a larger headroom that is "
    "usually enough; simulation: by the least headroom that meets the SLO in simulations, confirmed with fresh seeds"
)

MACHINES = "whether replicas of different stages share a server if they fit on it"


class PipelineOptions(TableOptions):
    """Options of all formulations of pipelines."""

    usual: ClassVar[Literal["mean", "p50", "p95"]] = "p50"

    slo_divisor: float = Field(
        default=2.0,
        ge=1,
        description="latency limit / largest execution time; the rest of the limit is left for waiting",
    )
    headroom: float = Field(default=0.0, ge=0, lt=1, description="share of every replica's capacity that is kept free")
    spare: float = Field(
        default=0.0,
        ge=0,
        le=100,
        description="replicas that every group in use keeps free; fractions are allowed",
    )
    sizing: Sizing = Field(default="simulation", description=SIZE)
    max_simulations: int = Field(default=20, ge=1, le=50, description="most plans simulated (sizing simulation)")
    routing: Literal["path-shares", "node", "most-accurate-first"] = Field(
        default="path-shares",
        description="path-shares: shares depend on the path so far; node: on the stage alone, if that keeps the plan; "
        "most-accurate-first: the paper's Algorithm 1; if a plan does not allow it, path-shares",
    )
    offers: Literal["in-turn", "evenly"] = Field(
        default="in-turn",
        description="machines of several offers of a type; in-turn: each stage takes the cheapest first; evenly: in "
        "proportion to stock, so that every stage has some in each zone",
    )
    share_machines: bool = Field(default=False, description=MACHINES)


class _ChoosingOptions(PipelineOptions):
    """Options of the formulations that choose servers."""

    models: Literal["all", "top"] = Field(
        default="all", description="models that may run: all, or only the most accurate of each stage"
    )
    fairness: Literal["weighted", "maxmin"] = Field(
        default="weighted",
        description="several pipelines: maximise the weighted sum of accuracies, or the lowest one first",
    )


class ConfigOptions(_ChoosingOptions):
    """`pipeline-milp`: shares of prefixes of configurations; exact, for any quality of paths."""

    share_machines: bool = Field(default=True, description=MACHINES)


class PaperOptions(_ChoosingOptions):
    """`loki`: Loki's own program, linearised: shares of paths of variants, one latency per variant."""

    step1: Literal["best-accuracy", "top-variants"] = Field(
        default="best-accuracy",
        description="servers are minimised while the best accuracy in time is feasible, or (paper) while the most "
        "accurate variants are",
    )
    budget_factor: float | None = Field(
        default=None,
        ge=1,
        description="time budget of a stage / its longest execution time; left out: 1.5 slo_divisor (paper: 1)",
    )


class BudgetOptions(_ChoosingOptions):
    """`loki-budget`: one latency level per stage; for any router, and for large clusters."""

    share_machines: bool = Field(default=True, description=MACHINES)


class RerouteOptions(PipelineOptions):
    """`pipeline-routes`: the servers of a previous plan, with new routing for the demand."""

    sizing: Sizing = Field(default="fluid", description=SIZE)
