"""A fleet that makes text, seen again: GPUs, chunks, the router's rule, what the rows carry, who promises times.

The rows are written here anew, from the profile and the SLO: for each type and piece of its law, what a request takes;
then a linear program says the most requests per second that the plan's machines can serve, whatever their schedule.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hetplan.planner.tolerances import FEASIBILITY, TEXT_HEADROOM, VALUE
from hetplan.profiles.engines import Engine
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.operating_points import limits_of
from hetplan.profiles.plan import Plan, SharesDispatch
from hetplan.profiles.plan_dispatch_rules import LeastWorkDispatch, RoundRobinDispatch, WeightedLeastDispatch
from hetplan.profiles.slo import App
from hetplan.profiles.workers import Load, Worker
from hetplan.verifier.application_checks import check_demand
from hetplan.verifier.plan_index import Facts, gather
from hetplan.verifier.report import Violation

__all__ = ["check"]

Size = tuple[int, int, int]


@dataclass(frozen=True)
class Seated:
    """A load of the plan with the engine that its run names."""

    worker: Worker
    load: Load
    engine: Engine
    name: str = ""
    """Of the engine."""
    times: float = 1.0
    """How much longer iterations are taken to be than the law says."""

    @property
    def at(self) -> str:
        """Where it is in the plan."""
        return f"workers.{self.worker.id}.loads.{self.load.id}"

    @property
    def chunk(self) -> int:
        """The most tokens of a batch."""
        return self.load.serve.most_tokens or self.engine.most_tokens

    @property
    def seqs(self) -> int:
        """The most sequences at once."""
        return self.load.serve.most_seqs or self.engine.most_seqs

    @property
    def capped(self) -> bool:
        """Whether its front sends it fewer requests at a time than it runs."""
        return self.load.serve.concurrency < self.seqs and self.engine.role != "decode"

    @property
    def rows(self) -> list[tuple[float, ...]]:
        """The convex pieces of an iteration, each (base, per token, KV token, sequence and pair)."""
        return [tuple(value * self.times for value in row) for row in self.engine.rows]

    def experts_ms(self, tokens: float) -> float:
        """What reading the experts of so many tokens takes."""
        most, rate = self.engine.experts
        return -self.times * most * math.expm1(-rate * tokens)

    @property
    def decode_ms(self) -> float:
        """The least that experts add for a token that is decoded.

        Batches are looked at as the planner does: by one to 256, then in classes a tenth longer, each at its best.
        """
        low, high, found = 1, 1, math.inf
        while True:
            found = min(found, self.experts_ms(low) / high)
            if high >= self.seqs:
                return found
            low = high + 1
            high = low if low <= 256 else min(int(high * 1.1), self.seqs)

    @property
    def prompt_ms(self) -> float:
        """The least that a token of a prompt adds beside the pieces, in as long chunks as there are."""
        alone = self.experts_ms(self.chunk) if self.engine.role == "prefill" else 0.0
        return (self.times * self.engine.chunk_ms + alone) / self.chunk

    def iteration_ms(self, tokens: float, reads: float = 0.0, steps: float = 0.0, pairs: float = 0.0) -> float:
        """How long an iteration takes."""
        longest = max(a + b * tokens + c * reads + d * steps + e * pairs for a, b, c, d, e in self.rows)
        chunk = self.times * self.engine.chunk_ms if tokens > steps else 0.0
        return longest + self.experts_ms(tokens) + chunk

    @property
    def cards(self) -> int:
        """The GPUs that it takes of a machine."""
        return self.load.instances * self.engine.tensor * self.engine.pipeline

    @property
    def instances(self) -> int:
        """How many run, on all machines of the group."""
        return self.worker.count * self.load.instances


def check(plan: Plan, inputs: Inputs) -> list[Violation]:
    """Everything that arithmetic can say of a fleet that makes text."""
    found: list[Violation] = []
    facts = gather(plan, inputs)
    every = list(_seats(facts, found))
    found += _cards(inputs, every)
    for name, app in inputs.slo.apps.items():
        seats = [seat for seat in every if seat.load.app == name]
        if not seats:
            found.append(Violation("llm-load", "workers", f"nothing serves {name}"))
        for seat in seats:
            found += _batches(seat)
            found += _quality(inputs, app, seat)
        found += _rule(plan, name, app, seats)
        found += [*_promises(plan, name, app), *check_demand(facts, name)]
        if seats and not found:
            found += _check_carried(plan, name, app, seats, robust=inputs.slo.robust.law)
        roles = {seat.engine.role for seat in seats}
        if "mixed" in roles or roles == {"prefill", "decode"}:
            found += _check_empty_fleet(name, app, seats)
        elif seats:
            text = f"machines that {' and '.join(sorted(roles))} alone serve no request"
            found.append(Violation("llm-load", "workers", text))
    return found


def _seats(facts: Facts, found: list[Violation]) -> Iterator[Seated]:
    inputs = facts.inputs
    for seat in facts.seats.values():
        if seat.load.app not in inputs.slo.apps:
            text = f"a load of no application, or of another than {', '.join(inputs.slo.apps)}"
            found.append(Violation("llm-load", seat.at, text))
        elif seat.run is None or seat.run.engine is None:
            found.append(Violation("llm-load", seat.at, "its run names no engine, so it makes no tokens"))
        else:
            yield Seated(seat.worker, seat.load, inputs.profile.engines[seat.run.engine], seat.run.engine)


def _cards(inputs: Inputs, seats: Sequence[Seated]) -> Iterator[Violation]:
    """A machine has the GPUs that all engines on it take: each has its own."""
    takes: dict[str, int] = {}
    for seat in seats:
        takes[seat.worker.id] = takes.get(seat.worker.id, 0) + seat.cards
    for worker in {seat.worker.id: seat.worker for seat in seats}.values():
        has = inputs.profile.hardware[worker.hardware].provides.get("gpu", 1.0)
        if takes[worker.id] > has * (1.0 + FEASIBILITY):
            text = f"{takes[worker.id]} GPUs are taken of a machine that has {has:g}"
            yield Violation("llm-gpus", f"workers.{worker.id}", text)


def _batches(seat: Seated) -> Iterator[Violation]:
    """Batches and sequences that the engine can run."""
    for what, mine, most in (
        ("most_tokens", seat.load.serve.most_tokens, seat.engine.most_tokens),
        ("most_seqs", seat.load.serve.most_seqs, seat.engine.most_seqs),
    ):
        if mine is None:
            yield Violation("llm-batch", f"{seat.at}.serve.{what}", "the plan does not say it")
        elif mine > most:
            yield Violation("llm-batch", f"{seat.at}.serve.{what}", f"{mine}, and the engine has {most} at most")
    serve = seat.load.serve
    at_once = 1 < serve.concurrency <= seat.seqs or serve.concurrency == seat.seqs
    if (serve.max_batch, at_once, serve.max_wait_ms) != (seat.seqs, True, 0.0):
        text = f"an engine runs its {seat.seqs} sequences at once or is sent fewer, and none waits for others"
        yield Violation("llm-batch", f"{seat.at}.serve", text)
    if seat.seqs > seat.chunk:
        text = f"{seat.seqs} sequences each take a token of batches of {seat.chunk}"
        yield Violation("llm-batch", f"{seat.at}.serve.most_seqs", text)


def _quality(inputs: Inputs, app: App, seat: Seated) -> Iterator[Violation]:
    if app.quality is None or app.quality.min is None:
        return
    known = inputs.profile.variants[seat.load.variant or ""].quality
    if known is None or known.value < app.quality.min:
        value = "unknown" if known is None else f"{known.value:g}"
        yield Violation("quality", seat.at, f"quality {value}, wanted is {app.quality.min:g}")


def _rule(plan: Plan, name: str, app: App, seats: Sequence[Seated]) -> Iterator[Violation]:
    rule, at = plan.dispatch.get(name), f"dispatch.{name}"
    if not isinstance(rule, LeastWorkDispatch | RoundRobinDispatch | SharesDispatch | WeightedLeastDispatch):
        said = rule.rule if rule is not None else "no rule"
        yield Violation("llm-rule", at, f"{said} sends no requests to machines that make text")
        return
    fluid = any(one.app == name and one.quantity == "fluid_rate_qps" for one in plan.promises)
    if (fluid or _is_unplayed(plan)) and not isinstance(rule, LeastWorkDispatch):
        yield Violation("llm-rule", at, f"{rule.rule} keeps unlike machines busy alike, which no fluid rate is of")
    ids = {seat.load.id for seat in seats}
    routes = plan.routing.get(name, ())
    total = math.fsum(share for route in routes for share in route.to.values())
    if len(routes) != 1 or set(routes[0].to) != ids or abs(total - 1.0) > FEASIBILITY:
        yield Violation(
            "llm-routing", f"routing.{name}", "one route to every load of the fleet, with shares that sum to 1"
        )
    for field in ("limit", "weight"):
        if stranger := sorted(getattr(rule, field, {}).keys() - ids):
            yield Violation("llm-rule", f"{at}.{field}", f"no load has the id {stranger[0]}")
    if not _is_of(rule, app.dispatch):
        yield Violation("llm-rule", at, f"{rule.rule}, and the load balancer that is there is {app.dispatch}")
    if app.late == "serve" and any(seat.capped for seat in seats):
        yield Violation("llm-rule", at, "late requests are served, and a replica that has its most refuses them")
    if isinstance(rule, LeastWorkDispatch):
        sizes, weights = sizes_of(app)
        mean = math.fsum(size[1] * weight for size, weight in zip(sizes, weights, strict=True)) / math.fsum(weights)
        if not math.isclose(rule.output_tokens, mean, rel_tol=1e-6):
            text = f"takes requests to make {rule.output_tokens:g} tokens; on the mean they make {mean:.6g}"
            yield Violation("llm-rule", f"{at}.output_tokens", text)
        limits = [one.max_ms for one in limits_of(app) if one.of == "ttft"]
        if limits and (rule.ttft_ms is None or not math.isclose(rule.ttft_ms, min(limits), rel_tol=1e-9)):
            yield Violation("llm-rule", f"{at}.ttft_ms", f"the limit is {min(limits):g} ms, the network taken off")


def _is_of(rule: Any, dispatch: str | None) -> bool:
    """Whether a rule is that of the load balancer that is there; hetplan's router keeps each of them."""
    if dispatch in ("fewest-requests", "shortest-queue"):
        return isinstance(rule, WeightedLeastDispatch) and len(set(rule.weight.values())) < 2
    if dispatch in ("random", "split-then-fewest"):
        inside = "shortest_queue" if dispatch == "split-then-fewest" else None
        return isinstance(rule, SharesDispatch) and rule.balancing == inside
    return dispatch is None or rule.rule == f"{dispatch}/1"


def _promises(plan: Plan, name: str, app: App) -> Iterator[Violation]:
    """Times and goodput are promised by simulation alone; a fleet that is sized by it promises every one."""
    mine = [one for one in plan.promises if one.app == name]
    for number, one in enumerate(plan.promises):
        timed = one.quantity in ("ttft_ms", "tpot_ms", "response_ms", "goodput", "service_ms")
        if one.app == name and timed and not one.model.startswith("simulation/"):
            text = f"{one.quantity} by the model {one.model}: only a simulation shows it"
            yield Violation("llm-promise", f"promises[{number}]", text)
    if _is_unplayed(plan):
        return  # no time is promised
    shown = {(one.quantity, one.percentile): one for one in mine}
    for target in app.targets:
        promise = shown.get((f"{target.of}_ms", target.percentile))
        same = promise is not None and math.isclose(promise.value, target.max_ms, rel_tol=1e-9)
        if promise is None or not same or (promise.seeds or 0) < 2:
            text = f"no simulation with several seeds shows {target.of} p{target.percentile:g} <= {target.max_ms:g} ms"
            yield Violation("llm-promise", f"promises.{name}", text)
    if app.attainment is not None:
        promise = shown.get(("goodput", None))
        if promise is None or promise.value < app.attainment or promise.relation != ">=":
            yield Violation("llm-promise", f"promises.{name}", f"no simulation shows a goodput of {app.attainment:g}")


def _is_unplayed(plan: Plan) -> bool:
    """Whether a fleet is as large as a program says, and was not simulated."""
    return plan.method.options.get("sizing") in ("fluid", "formula")


def sizes_of(app: App) -> tuple[list[Size], list[float]]:
    """Every length of request, and how often it comes: what was observed, else one per bin."""
    mix = app.mix
    assert mix is not None  # else the files do not ask the question
    rows = mix.observed if mix.observed is not None else mix.bins
    weights = [1.0] * len(rows) if mix.observed is not None else list(mix.share or ())
    names = {axis: place for place, axis in enumerate(mix.axes)}
    sizes = []
    for row in rows:
        i, o = round(row[names["input_tokens"]]), round(row[names["output_tokens"]])
        cached = round(row[names["cached_tokens"]]) if "cached_tokens" in names else 0
        sizes.append((i, o, min(cached, i - 1)))
    kept = [place for place, weight in enumerate(weights) if weight > 0]
    return [sizes[place] for place in kept], [weights[place] for place in kept]


def _takes(seat: Seated, size: Size) -> tuple[float, float, float, float, float]:
    """What a request takes: tokens, KV tokens read, decoding steps, pairs of prefill, room held over iterations."""
    i, o, cached = size
    prefills, decodes = seat.engine.role != "decode", seat.engine.role != "prefill"
    steps = (o - 1) if decodes else 0
    new = (i - cached) if prefills else 0
    reads = steps * (i + o / 2.0)
    pairs = (i * i - cached * cached) / 2.0 if prefills else 0.0
    rounds = -(-(i - cached) // seat.chunk) if prefills else 0
    held = float((i + o) * (rounds + steps)) if seat.engine.reserves else i * rounds + reads
    return new + steps, reads, steps, pairs, held


def row_loads(seat: Seated, sizes: Sequence[Size], weights: Sequence[float]) -> list[float]:
    """The mean of what requests take of each row of a type: each piece, room, batch, sequences."""
    total = math.fsum(weights)
    rows, decode_ms, prompt_ms = seat.rows, seat.decode_ms, seat.prompt_ms
    loads = [0.0] * (len(rows) + 3)
    for size, weight in zip(sizes, weights, strict=True):
        tokens, reads, steps, pairs, held = _takes(seat, size)
        for number, (_, token, kv_token, sequence, pair) in enumerate(rows):
            ms = token * tokens + kv_token * reads + sequence * steps + pair * pairs
            ms += decode_ms * steps + prompt_ms * (tokens - steps)
            loads[number] += ms * weight / total / 1000.0
        for place, amount in enumerate((held, tokens, steps), start=len(rows)):
            loads[place] += amount * weight / total
    return loads


def has_room(seat: Seated, size: Size) -> bool:
    """Whether a request fits into context and KV."""
    return size[0] + size[1] <= min(seat.engine.context_tokens or seat.engine.kv_tokens, seat.engine.kv_tokens)


def _check_carried(plan: Plan, name: str, app: App, seats: Sequence[Seated], *, robust: bool) -> Iterator[Violation]:
    """The plan's machines can serve the promised rate by the rows: with its headroom, if nothing was simulated."""
    rates = {one.quantity: one.value for one in plan.promises if one.app == name}
    rate, fluid, options = rates.get("rate_qps", 0.0), rates.get("fluid_rate_qps", 0.0), plan.method.options
    if options.get("sizing") == "fluid":
        wanted = rate * (1.0 + (TEXT_HEADROOM if options.get("margins") == "all" else 0.0))
        if abs(fluid - wanted) > VALUE * wanted:
            text = f"a fluid rate of {fluid:.6g} requests/s; the rate with its headroom is {wanted:.6g}"
            yield Violation("headroom", f"promises.{name}", text)
    elif _is_unplayed(plan) and fluid < rate * (1.0 - VALUE):
        text = f"a fluid rate of {fluid:.6g} requests/s is promised, and {rate:.6g} with room to wait"
        yield Violation("headroom", f"promises.{name}", text)
    # A fluid rate is promised of laws that are slower than they were fitted.
    slower = robust and options.get("margins") != "none"
    laws = ((0.0, rate), (1.5 if slower else 0.0, fluid))
    for errors, promised in laws:
        most = _most(app, [replace(seat, times=1.0 + errors * seat.engine.error) for seat in seats])
        if most < promised * (1.0 - 1e-6):
            text = f"at most {most:.6g} requests/s fit into the rows of these machines, {promised:.6g} are promised"
            yield Violation("capacity", f"workers of {name}", text)
            return


def _most(app: App, seats: Sequence[Seated]) -> float:
    import numpy as np
    from scipy.optimize import linprog

    groups = _groups(app, seats)
    total = math.fsum(math.fsum(weights) for _, weights in groups)
    # Columns: x of each load and class, iterations of each load, the rate.
    pairs = [(s, g) for s, seat in enumerate(seats) for g, (sizes, _) in enumerate(groups) if has_room(seat, sizes[0])]
    width = len(pairs) + len(seats) + 1
    rows, room, equal = list[Any](), list[float](), list[Any]()
    for s, seat in enumerate(seats):
        mine = [column for column, (owner, _) in enumerate(pairs) if owner == s]
        loads = {column: row_loads(seat, *groups[pairs[column][1]]) for column in mine}
        gives = [-row[0] / 1000.0 for row in seat.rows]
        gives += [float(seat.engine.kv_tokens), float(seat.chunk), float(seat.seqs)]
        for number, given in enumerate(gives):
            row = np.zeros(width)
            for column in mine:
                row[column] = loads[column][number]
            row[len(pairs) + s] = -given
            rows.append(row)
            room.append(float(seat.instances) if number < len(seat.rows) else 0.0)
    for g, (_, weights) in enumerate(groups):
        for roles in (("mixed", "prefill"), ("mixed", "decode")):
            row = np.zeros(width)
            for column, (s, group) in enumerate(pairs):
                row[column] = 1.0 if group == g and seats[s].engine.role in roles else 0.0
            row[-1] = -math.fsum(weights) / total
            equal.append(row)
    cost = np.zeros(width)
    cost[-1] = -1.0
    answer = linprog(cost, np.array(rows), room, np.array(equal), np.zeros(len(equal)), method="highs")
    return -float(answer.fun or 0.0) if answer.x is not None else 0.0


def _groups(app: App, seats: Sequence[Seated]) -> list[tuple[list[Size], list[float]]]:
    """Requests by which loads have room for them, and by about how long they are."""
    found: dict[Any, tuple[list[Size], list[float]]] = {}
    for size, weight in zip(*sizes_of(app), strict=True):
        key = (tuple(has_room(seat, size) for seat in seats), size[0].bit_length(), size[1].bit_length())
        sizes, weights = found.setdefault(key, ([], []))
        sizes.append(size)
        weights.append(weight)
    return list(found.values())


def _check_empty_fleet(name: str, app: App, seats: Sequence[Seated]) -> Iterator[Violation]:
    """No more requests than a percentile leaves are late even on the fastest machine of the plan, empty."""
    sizes, weights = sizes_of(app)
    total = math.fsum(weights)
    first = [min(prefill_ms(seat, size) for seat in seats if seat.engine.role != "decode") for size in sizes]
    decoding = [seat for seat in seats if seat.engine.role != "prefill"]
    step = min(seat.iteration_ms(1.0, 1.0, 1.0) for seat in decoding)
    for target, limit in zip(app.targets, limits_of(app), strict=True):
        late = 0.0
        for size, ms, weight in zip(sizes, first, weights, strict=True):
            alone = {"ttft": ms, "tpot": step if size[1] > 1 else 0.0, "response": ms + step * (size[1] - 1)}[target.of]
            late += weight if alone > limit.max_ms * (1.0 + 1e-9) else 0.0
        if late / total > 1.0 - target.percentile / 100.0 + FEASIBILITY:
            text = f"{late / total:.4g} of the requests miss {target.max_ms:g} ms of {target.of} even alone"
            yield Violation("latency", f"apps.{name}.latency.{limit.key}", text)


def prefill_ms(seat: Seated, size: Size) -> float:
    """The time to the first token on an empty machine; infinite where the request does not fit."""
    if not has_room(seat, size):
        return math.inf
    total, at = seat.engine.request_ms, size[2]
    while at < size[0]:
        stop = min(size[0], at + seat.chunk)
        pairs = (stop * stop - at * at) / 2.0
        total += seat.iteration_ms(float(stop - at), pairs=pairs)
        at = stop
    return total
