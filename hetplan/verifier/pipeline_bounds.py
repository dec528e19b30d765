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

with S_g servers of hardware g, budget B, and Q the quality that the plan promises. A path is looked at step by step,
with what reaches it per query at the entrance; at a fork each branch takes its own best. Any prices that are not below
0 will do, so none has to be believed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hetplan.profiles.fields import NANO
from hetplan.profiles.pipelines import Pipeline
from hetplan.profiles.plan import Claim, Solve
from hetplan.profiles.profile import Run
from hetplan.profiles.workers import Load, Serve, Share, Worker
from hetplan.verifier.demand import classes_of, response_targets
from hetplan.verifier.facts import Facts, Seat, slo_divisor
from hetplan.verifier.flow import why_not_followed
from hetplan.verifier.money import machine_nanos
from hetplan.verifier.resources import instances_on
from hetplan.verifier.rows import NoProof, NotRebuilt
from hetplan.verifier.service import service_of

__all__ = ["proved"]

_KEPT = 1e-7
"""By how much the quality that is kept while servers are counted may be missed."""
_ON_LIMIT_MS = 1e-9
_SAFE = 1e-12
"""By how much sums are moved outward, relative to all their terms: more than their rounding."""
MOST_STEPS = 200_000
"""Steps of paths that are looked at; beyond, solving anew is the shorter way."""


@dataclass(frozen=True)
class _Way:
    """A configuration of a step: ms of a batch, seconds of a server and cost at the prices per query, quality.

    `own` is what a server is worth besides the price of its hardware.
    """

    variant: str
    hardware: str
    batch: int
    ms: float
    seconds: float
    own: float
    cost: float
    quality: float


def proved(facts: Facts, claim: Claim, solve: Solve) -> float:
    """The bound that the prices of a claim's solve show; NoProof says why there is none."""
    prices = _prices(solve)
    stated = _Priced(facts, claim, prices)
    bounds = [stated.bound(), _Priced(facts, claim, stated.raised()).bound()]
    return min(bounds) if claim.sense == "max" else max(bounds)


class _Priced:
    def __init__(self, facts: Facts, claim: Claim, prices: Mapping[str, float]) -> None:
        self.facts, self.claim, self.prices = facts, claim, prices
        if len(facts.inputs.slo.apps) != 1 or claim.about not in ("quality", "servers", "cost_per_hour"):
            raise NotRebuilt("several pipelines, or another goal, are not written down anew")
        ((self.app, self.wish),) = facts.inputs.slo.apps.items()
        reason = why_not_followed(facts, self.app)
        name = self.wish.runs.pipeline if self.wish.runs is not None else None
        if reason or name is None:
            raise NotRebuilt(reason or "it runs no pipeline")
        self.pipeline: Pipeline = facts.inputs.profile.pipelines[name]
        if self.pipeline.quality.rule == "table" or any(n.outcomes for n in self.pipeline.nodes.values()):
            raise NotRebuilt("qualities by table, and steps with outcomes, are not written down anew")
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
                load = f"load {node}[{node}/{way.variant}@{way.hardware} x{way.batch}]"
                row = f"servers {way.hardware}[all]"
                more = abs(self.prices.get(load, 0.0)) / way.seconds - way.own
                found[row] = max(abs(found.get(row, 0.0)), more)
        return found

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
            paid += price * most if price > 0.0 else 0.0
        budget = self.facts.inputs.slo.limits.cost_per_hour
        if self.b > 0.0 and budget is None:
            raise NoProof("it prices a budget that there is not")
        paid += self.b * (budget or 0) / NANO
        slip = _SAFE * (paid + abs(best) + self.size + self.mu)
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
        return abs(self.prices.get(f"servers {hardware}[all]", 0.0))

    def _most(self, hardware: str) -> float:
        """How many servers of a hardware there can be."""
        offers = [one for one in self.facts.inputs.profile.offers.values() if one.hardware == hardware]
        stated = self.facts.inputs.slo.limits.instances.get(hardware, (0, None))[1]
        stock = sum(math.inf if one.stock is None else one.stock for one in offers) if offers else math.inf
        return min(math.inf if stated is None else float(stated), stock)

    def _own(self, worker: Worker, seat: Seat) -> float:
        """What a server is worth beside the price of its hardware: what is counted of it, and the money it takes."""
        price = machine_nanos(self.facts, worker, [seat])
        offers = [one for one in self.facts.inputs.profile.offers.values() if one.hardware == worker.hardware]
        counted = self.b > 0.0 or self.claim.about == "cost_per_hour"
        if counted and (price is None or len(offers) > 1):
            raise NotRebuilt("hardware of several prices is not written down anew")
        cost = float(price) / NANO if price is not None else 0.0
        own = {"quality": 0.0, "servers": 1.0, "cost_per_hour": cost}[self.claim.about]
        return own + self.b * cost

    def _ways(self, node: str) -> Iterator[_Way]:
        """Every configuration of a step, at every batch size that was measured."""
        profile = self.facts.inputs.profile
        task = self.pipeline.nodes[node].task
        offers = {one.hardware: name for name, one in reversed(profile.offers.items())}
        for name, variant in profile.variants.items():
            if variant.task != task:
                continue
            for run in variant.runs:
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
                    own, seconds = self._own(worker, seat), service.seconds[0] / self._on_one(run, load)
                    cost = (own + self._price(run.hardware)) * seconds
                    ms, quality = service.latency_ms[0], variant.quality.value
                    yield _Way(name, run.hardware, int(size), ms, seconds, own, cost, quality)

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
            self.size = max(self.size, abs(worth))
            if not edges:
                worth += self.mu / len(self.sinks) * self._at_end((*path, f"{node}={way.variant}"), own)
            for edge in edges:
                fanout = edge.fanout
                if isinstance(fanout, dict):
                    fanout = fanout.get(way.variant, fanout.get("*", 1.0))
                after = (*path, f"{node}={way.variant}")
                worth += self._best(edge.to, after, ms + way.ms, gain * float(fanout), own)
            best = max(best, worth)
        return best

    def _with(self, node: str, before: float, own: float) -> float:
        if self.pipeline.quality.rule == "additive":
            return float(before + self.pipeline.quality.weights.get(node, 1.0) * own)
        return before * own

    def _at_end(self, path: tuple[str, ...], own: float) -> float:
        return float(self.pipeline.quality.paths.get("/".join(path), own))


def _prices(solve: Solve) -> dict[str, float]:
    """Multipliers by the names of rows; a plan may hold anything."""
    proof = solve.proof or {}
    if solve.form != "milp":
        raise NotRebuilt(f"proofs of a form {solve.form} are not carried by plans")
    if "row_duals" not in proof and proof:
        raise NotRebuilt("trees of whole servers are not put to the proof here")
    try:
        prices = {str(name): float(price) for name, price in proof["row_duals"].items()}
    except (KeyError, TypeError, ValueError, AttributeError):
        raise NoProof("it carries no multipliers that can be read") from None
    if not all(map(math.isfinite, prices.values())):
        raise NoProof("its multipliers are no numbers")
    return prices
