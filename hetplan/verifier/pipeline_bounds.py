r"""The bound of a pipeline with servers in parts, from prices of servers and every path that is in time.

What a plan carries, and what it proves
---------------------------------------
Of the multipliers of the claim's solve only those of ``servers <hardware>[all]`` (s_g), ``budget[all]`` (b) and, for
the least of servers, ``quality so far[all]`` (mu) are read. A server of hardware g is worth w_g: s_g + b c_g where the
most quality is sought, 1 + s_g for the least of servers, (1 + b) c_g + s_g for the least cost. A configuration y that
carries q_y queries per second (all instances on a server together) then costs w_g / q_y per query, and however the
queries go, over paths in time::

    quality           <=  sum_g s_g S_g + b B  +  the best path, each worth its quality less what it costs
    servers, or cost  >=  mu Q - sum_g s_g S_g - b B  -  the best path, each worth mu times its quality less its cost

with S_g servers of hardware g, budget B, and Q the quality that the plan promises. Where L_g servers must run at least,
a server may be worth less for it: s_g below 0, and L_g in the place of S_g. A path is looked at step by step,
with what reaches it per query at the entrance; at a fork each branch takes its own best. Any prices will do
at which no server is worth less than nothing, so none has to be believed.

Whole servers
-------------
A bound that only whole servers show is searched for (`_Whole`), where there are few paths. Columns: ``x``, servers of a
configuration, whole; ``z``, which batch size a variant has on a hardware (unless several may be); ``f``, the share of
queries that came by the configurations of a path so far. Rows: every query takes some path in time; a configuration
carries what reaches it; servers and money are limited; and for the least of servers or cost the promised quality.
Where steps may share a server, x counts instances, each of so many places of it, and ``n`` servers, whole: what has
places on so many servers fits on them (`places_on`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from hetplan.profiles.fields import NANO
from hetplan.profiles.pipelines import Edge, Pipeline
from hetplan.profiles.plan import Claim, Solve
from hetplan.profiles.profile import Run
from hetplan.profiles.workers import Load, Serve, Share, Worker
from hetplan.verifier.demand import classes_of, response_targets
from hetplan.verifier.facts import Facts, Seat, slo_divisor
from hetplan.verifier.flow import why_not_followed
from hetplan.verifier.pipeline import places_on
from hetplan.verifier.resources import instances_on, machine_nanos
from hetplan.verifier.rows import NoProof, NotRebuilt, Rows
from hetplan.verifier.service import service_of

__all__ = ["proved"]

_KEPT = 1e-7
"""By how much the quality that is kept while servers are counted may be missed."""
_ON_LIMIT_MS = 1e-9
_SAFE = 1e-12
"""By how much sums are moved outward, relative to all their terms: more than their rounding."""
MOST_STEPS = 200_000
"""Steps of paths that are looked at; beyond, solving anew is the shorter way."""
MOST_PATHS, MOST_WORK = 600, 300_000
"""Of whole servers so many paths, and boxes times paths, are looked at."""


@dataclass(frozen=True)
class _Way:
    """A configuration of a step: ms of a batch, seconds of a server and cost at the prices per query, quality.

    `own` is what a server is worth besides the price of its hardware, and `money` what it costs, where that is known.
    """

    variant: str
    hardware: str
    batch: int
    ms: float
    seconds: float
    own: float
    cost: float
    quality: float
    money: float
    run: int
    """Which of the variant's runs it is."""
    part: float
    """What one is of a server: all of it, where steps do not share it."""

    @property
    def name(self) -> str:
        """What it is called, beside its step."""
        return f"{self.variant}@{self.hardware} x{self.batch} run {self.run}"


def proved(facts: Facts, claim: Claim, solve: Solve) -> float:
    """The bound that the prices of a claim's solve show; NoProof says why there is none."""
    try:
        prices = _prices(solve)
    except NotRebuilt as reason:
        return _Whole(facts, claim).searched(reason)
    # A server is scarce, whichever sign the program's own sense gives that; only `with_least` says less.
    prices = {name: abs(one) if name.startswith("servers ") else one for name, one in prices.items()}
    stated = _Priced(facts, claim, prices)
    bounds = [stated.bound(), _Priced(facts, claim, stated.raised()).bound()]
    if any(stated.least(hardware) for hardware in stated.hardware):
        bounds.append(_Priced(facts, claim, stated.with_least()).bound())
    return min(bounds) if claim.sense == "max" else max(bounds)


class _Priced:
    def __init__(self, facts: Facts, claim: Claim, prices: Mapping[str, float]) -> None:
        self.facts, self.claim, self.prices = facts, claim, prices
        if len(facts.inputs.slo.apps) != 1 or claim.about not in ("quality", "servers", "cost_per_hour"):
            raise NotRebuilt("the check rebuilds only programs of one pipeline, for quality, servers or cost")
        ((self.app, self.wish),) = facts.inputs.slo.apps.items()
        reason = why_not_followed(facts, self.app)
        name = self.wish.runs.pipeline if self.wish.runs is not None else None
        if reason or name is None:
            raise NotRebuilt(reason or "it runs no pipeline")
        self.pipeline: Pipeline = facts.inputs.profile.pipelines[name]
        if self.pipeline.quality.rule == "table" or any(n.outcomes for n in self.pipeline.nodes.values()):
            raise NotRebuilt("the check rebuilds no program with qualities by table or steps with outcomes")
        if any(entry.rate_qps > 0.0 for entry in facts.plan.unserved):
            raise NotRebuilt("some queries stay unserved")
        self.rate = facts.promised_rate(self.app) or 0.0
        self.limit_ms = (
            min((limit for limit, _ in response_targets(self.wish)), default=math.inf) - self.wish.network_ms_once
        )
        self.sinks = [n for n in self.pipeline.nodes if not any(edge.from_ == n for edge in self.pipeline.edges)]
        self.seeks = claim.about == "quality"
        self.mu = 1.0 if self.seeks else max(self.prices.get("quality so far[all]", 0.0), 0.0)
        self.b = abs(self.prices.get("budget[all]", 0.0))
        self.places = {hardware: places_on(facts, hardware) for hardware in self.hardware}
        self.ways = {node: list(self._ways(node)) for node in self.pipeline.nodes}
        self.looked = 0
        self.size = 0.0

    def raised(self) -> dict[str, float]:
        """The prices with each hardware's as high as that of any of its loads: an end of a count may hold a part of it.

        A load is ``load <step>[<step>/<variant>@<hardware> x<batch>]``.
        """
        found = dict(self.prices)
        for node, ways in self.ways.items():
            for way in ways:
                if math.isinf(self._most(way.hardware)):
                    continue  # of which there is no end, no part is scarce
                load = f"load {node}[{node}/{way.variant}@{way.hardware} x{way.batch}]"
                row = f"servers {way.hardware}[all]"
                more = abs(self.prices.get(load, 0.0)) / way.seconds - way.own
                found[row] = max(found.get(row, 0.0), more)
        return found

    def with_least(self) -> dict[str, float]:
        """The prices, below 0 for hardware of which some must run, as far as its servers stay worth something."""
        found = dict(self.prices)
        for hardware in filter(self.least, self.hardware):
            worth = [way.own for ways in self.ways.values() for way in ways if way.hardware == hardware]
            row = f"servers {hardware}[all]"
            found[row] = -min(found.get(row, 0.0), *worth) if worth else 0.0
        return found

    def least(self, hardware: str) -> int:
        """How many servers of a hardware must run."""
        return self.facts.inputs.slo.limits.instances.get(hardware, (0, None))[0]

    def bound(self) -> float:
        """What the prices show."""
        reached = {edge.to for edge in self.pipeline.edges}
        best = math.fsum(
            self._best(node, (), 0.0, 1.0, self._start) for node in self.pipeline.nodes if node not in reached
        )
        paid = 0.0
        for hardware in self.hardware:
            price, most = self._price(hardware), self._most(hardware)
            if price > 0.0 and math.isinf(most):
                raise NoProof(f"it prices {hardware}, of which there is no end")
            paid += price * most if price > 0.0 else price * self.least(hardware)
        budget = self.facts.inputs.slo.limits.cost_per_hour
        if self.b > 0.0 and budget is None:
            raise NoProof("it prices a budget that there is not")
        paid += self.b * (budget or 0) / NANO
        slip = _SAFE * (paid + abs(best) + self.size)
        if self.seeks:
            return paid + best + slip
        quality = [one.value for one in self.facts.plan.promises if one.quantity == "quality" and one.app == self.app]
        if not quality:
            raise NoProof("no quality is promised that would have to be kept")
        return self.mu * (quality[0] - _KEPT) - paid - best - slip

    @property
    def hardware(self) -> list[str]:
        """Hardware that may be used."""
        limits = self.facts.inputs.slo.limits
        return [one for one in self.facts.inputs.profile.hardware if not limits.only_listed or one in limits.instances]

    @property
    def _start(self) -> float:
        return 0.0 if self.pipeline.quality.rule == "additive" else 1.0

    def _price(self, hardware: str) -> float:
        return self.prices.get(f"servers {hardware}[all]", 0.0)

    def _most(self, hardware: str) -> float:
        """How many servers of a hardware there can be."""
        offers = [one for one in self.facts.inputs.profile.offers.values() if one.hardware == hardware]
        stated = self.facts.inputs.slo.limits.instances.get(hardware, (0, None))[1]
        stock = sum(math.inf if one.stock is None else one.stock for one in offers) if offers else math.inf
        return min(math.inf if stated is None else float(stated), stock)

    def _own(self, worker: Worker, seat: Seat) -> tuple[float, float]:
        """What a server is worth beside the price of its hardware: what is counted of it and its money; that money."""
        price = machine_nanos(self.facts, worker, [seat])
        offers = [one for one in self.facts.inputs.profile.offers.values() if one.hardware == worker.hardware]
        counted = self.b > 0.0 or self.claim.about == "cost_per_hour"
        if counted and (price is None or len(offers) > 1):
            raise NotRebuilt("the check rebuilds no program with several prices of one hardware")
        cost = float(price) / NANO if price is not None else 0.0
        own = {"quality": 0.0, "servers": 1.0, "cost_per_hour": cost}[self.claim.about]
        return own + self.b * cost, math.nan if price is None or len(offers) > 1 else cost

    def _ways(self, node: str) -> Iterator[_Way]:
        """Every configuration of a step, at every batch size that was measured."""
        profile = self.facts.inputs.profile
        task = self.pipeline.nodes[node].task
        offers = {one.hardware: name for name, one in reversed(profile.offers.items())}
        for name, variant in profile.variants.items():
            if variant.task != task:
                continue
            for number, run in enumerate(variant.runs):
                if run.latency is None or run.hardware not in self.hardware:
                    continue
                sizes = (run.at["batch"],) if "batch" in run.at else profile.tables[run.latency].axes.get("batch", (1,))
                for size in sizes:
                    load = Load(id="any", app=self.app, node=node, variant=name, serve=Serve(max_batch=int(size)),
                                share=self._slice(run, offers.get(run.hardware)))  # fmt: skip
                    worker = Worker(id="any", hardware=run.hardware, offer=offers.get(run.hardware), loads=(load,))
                    seat = Seat(worker, load, run)
                    service = service_of(self.facts, seat, classes_of(self.wish))
                    if math.isnan(service.seconds[0]) or variant.quality is None:
                        continue
                    own, money = self._own(worker, seat)
                    on_one = self._on_one(run, load)
                    seconds, part = service.seconds[0] / on_one, 1.0 / on_one if self.places[run.hardware] > 1 else 1.0
                    cost = (own + self._price(run.hardware)) * seconds
                    ms, quality = service.latency_ms[0], variant.quality.value
                    yield _Way(name, run.hardware, int(size), ms, seconds, own, cost, quality, money, number, part)

    def _slice(self, run: Run, offer: str | None) -> Share | None:
        """What is paid for of a machine that is sold by the slice: what the run needs of it."""
        per = self.facts.inputs.profile.offers[offer].per if offer is not None else None
        if per == "gpu" and per in run.needs:
            return Share(gpu=run.needs[per])
        return Share(cpu_cores=run.needs[per]) if per == "cpu_cores" and per in run.needs else None

    def _on_one(self, run: Run, load: Load) -> int:
        """Instances on a machine; one where it is paid by the slice that its run needs."""
        return 1 if load.share is not None else instances_on(self.facts, run)

    def _best(self, node: str, path: tuple[str, ...], ms: float, gain: float, quality: float) -> float:
        """The most that a query can be worth from a step on, when so much was spent before; -inf where all is late."""
        best = -math.inf
        edges = [edge for edge in self.pipeline.edges if edge.from_ == node]
        hops = len(path) + 1
        room = (self.limit_ms - hops * self.wish.network_ms_per_hop) / slo_divisor(self.facts.plan) + _ON_LIMIT_MS
        for way in self.ways[node]:
            self.looked += 1
            if self.looked > MOST_STEPS:
                raise NotRebuilt("there are too many paths to look at")
            if ms + way.ms > room:
                continue
            own = self._with(node, quality, way.quality)
            worth = -self.rate * gain * way.cost
            gained = 0.0 if edges else self.mu / len(self.sinks) * self._at_end((*path, f"{node}={way.variant}"), own)
            self.size = max(self.size, abs(worth), abs(gained))
            worth += gained
            for edge in edges:
                after = (*path, f"{node}={way.variant}")
                worth += self._best(edge.to, after, ms + way.ms, gain * _fanout(edge, way), own)
            best = max(best, worth)
        return best

    def _with(self, node: str, before: float, own: float) -> float:
        if self.pipeline.quality.rule == "additive":
            return float(before + self.pipeline.quality.weights.get(node, 1.0) * own)
        return before * own

    def _at_end(self, path: tuple[str, ...], own: float) -> float:
        return float(self.pipeline.quality.paths.get("/".join(path), own))


def _fanout(edge: Edge, way: _Way) -> float:
    """How many queries go on for each that a configuration answers."""
    given = edge.fanout
    return float(given.get(way.variant, given.get("*", 1.0)) if isinstance(given, dict) else given)


class _Whole(_Priced):
    """The program of whole servers and all paths, bounded by splitting."""

    def __init__(self, facts: Facts, claim: Claim) -> None:
        super().__init__(facts, claim, {})
        self.program = Rows("max" if self.seeks else "min")
        self.carried: dict[tuple[str, _Way], dict[str, float]] = {}
        self.qualities: dict[str, float] = {}
        self.budget = facts.inputs.slo.limits.cost_per_hour
        self.ways = {node: list(_not_beaten(ways)) for node, ways in self.ways.items()}

    def searched(self, reason: NoProof) -> float:
        """The bound of the claim, where splitting shows it; else NotRebuilt, for that reason."""
        assert self.claim.bound is not None
        reached = {edge.to for edge in self.pipeline.edges}
        for node in self.pipeline.nodes:
            if node not in reached:
                first = self._paths(node, "", (), 0.0, 1.0, self._start)
                self.program.row(f"all {node}", dict.fromkeys(first, 1.0), low=1.0, high=1.0)
        self._servers()
        if not self.seeks:
            quality = [
                one.value for one in self.facts.plan.promises if (one.quantity, one.app) == ("quality", self.app)
            ]
            if not quality:
                raise NoProof("no quality is promised that would have to be kept")
            self.program.row("quality", self.qualities, low=quality[0] - _KEPT)
        found = self.program.searched(self.claim.bound, most=max(MOST_WORK // (self.looked + 1), 2))
        short = found - self.claim.bound if self.seeks else self.claim.bound - found
        if short > _KEPT * max(abs(self.claim.bound), _KEPT):
            raise NotRebuilt(f"{reason}, and a search here shows {found:.9g}")
        return found

    def _paths(
        self, node: str, before: str, path: tuple[str, ...], ms: float, gain: float, quality: float
    ) -> list[str]:
        """Columns of the shares of queries that take each configuration of a step next, and of all that comes after."""
        edges, found = [edge for edge in self.pipeline.edges if edge.from_ == node], list[str]()
        room = (self.limit_ms - (len(path) + 1) * self.wish.network_ms_per_hop) / slo_divisor(self.facts.plan)
        for way in self.ways[node]:
            if ms + way.ms > room + _ON_LIMIT_MS:
                continue
            self.looked += 1
            if self.looked > MOST_PATHS:
                raise NotRebuilt("there are too many paths to look at")
            name, own, after = (
                f"{before}/{node} {way.name}",
                self._with(node, quality, way.quality),
                (*path, f"{node}={way.variant}"),
            )
            value = 0.0 if edges else self._at_end(after, own) / len(self.sinks)
            self.program.column(f"f{name}", cost=value if self.seeks else 0.0, low=0.0, high=1.0)
            self.qualities[f"f{name}"] = value
            self.carried.setdefault((node, way), {})[f"f{name}"] = self.rate * gain * way.seconds
            found.append(f"f{name}")
            for edge in edges:
                on = self._paths(edge.to, name, after, ms + way.ms, gain * _fanout(edge, way), own)
                self.program.row(
                    f"on{name} to {edge.to}", {**dict.fromkeys(on, 1.0), f"f{name}": -1.0}, low=0.0, high=0.0
                )
        return found

    def _servers(self) -> None:
        """Whole servers: what they carry, how many there are of each hardware, what they cost, one batch size each."""
        of_hardware: dict[str, dict[str, _Way]] = {}
        batches: dict[tuple[str, str, str], dict[str, float]] = {}
        paid: dict[str, float] = {}
        for (node, way), shares in self.carried.items():
            x, z = f"x {node} {way.name}", f"z {node} {way.name}"
            # No more are of use than carry everything that may come.
            part = way.part
            most = float(min(math.ceil(sum(shares.values()) / part + 1e-9), self._most(way.hardware) / part))
            alone = self.places[way.hardware] == 1
            own = way.own if alone and not self.seeks else 0.0
            self.program.column(x, cost=own, low=0.0, high=most, whole=True)
            self.program.column(z, low=0.0, high=1.0, whole=True)
            self.program.row(f"load {node} {way.name}", {**shares, x: -part}, high=0.0)
            self.program.row(f"in use {node} {way.name}", {x: 1.0, z: -most}, high=0.0)
            of_hardware.setdefault(way.hardware, {})[x] = way
            batches.setdefault((node, way.variant, way.hardware), {})[z] = 1.0
            paid[x] = way.money if alone else 0.0
        for hardware, ways in of_hardware.items():
            if self.places[hardware] > 1:
                paid[f"n {hardware}"] = self._shared(hardware, ways)
            elif math.isfinite(self._most(hardware)):
                self.program.row(f"servers {hardware}", dict.fromkeys(ways, 1.0), high=self._most(hardware))
        if self.budget is not None and not any(map(math.isnan, paid.values())):
            self.program.row("budget", paid, high=self.budget / NANO)
        for (node, variant, hardware), used in batches.items():
            if len(used) > 1 and not self.facts.plan.method.options.get("multibatch", False):
                self.program.row(f"one batch {node} {variant}@{hardware}", used, high=1.0)

    def _shared(self, hardware: str, ways: Mapping[str, _Way]) -> float:
        """Servers that steps share, as a column: all that is on them has a place; and what one of them costs."""
        places, way, n = self.places[hardware], next(iter(ways.values())), f"n {hardware}"
        taken = {x: float(round(places * one.part)) for x, one in ways.items()}
        of_use = math.ceil(sum(self.program.high_of(x) * one for x, one in taken.items()) / places)
        most = min(float(of_use), self._most(hardware))
        self.program.column(n, cost=0.0 if self.seeks else way.own, low=0.0, high=most, whole=True)
        self.program.row(f"held {hardware}", {**taken, n: -float(places)}, high=0.0)
        return way.money


def _not_beaten(ways: Sequence[_Way]) -> Iterator[_Way]:
    """Without the batch sizes of a variant on a hardware (and as large a part of it) that another is no slower than,
    and carries no less."""
    for number, way in enumerate(ways):
        others = (other for place, other in enumerate(ways) if place != number and _alike(way, other))
        if not any(
            (one.ms, one.seconds) != (way.ms, way.seconds) and one.ms <= way.ms and one.seconds <= way.seconds
            for one in others
        ):
            yield way


def _alike(one: _Way, other: _Way) -> bool:
    return (one.variant, one.hardware, one.own, one.part) == (other.variant, other.hardware, other.own, other.part)


def _prices(solve: Solve) -> dict[str, float]:
    """Multipliers by the names of rows; a plan may hold anything."""
    proof = solve.proof or {}
    if solve.form != "milp":
        raise NotRebuilt(f"proofs of a form {solve.form} are not carried by plans")
    if "row_duals" not in proof and proof:
        raise NotRebuilt("the check proves no trees of whole servers")
    try:
        prices = {str(name): float(price) for name, price in proof["row_duals"].items()}
    except (KeyError, TypeError, ValueError, AttributeError):
        raise NoProof("it carries no multipliers that can be read") from None
    if not all(map(math.isfinite, prices.values())):
        raise NoProof("its multipliers are no numbers")
    return prices
