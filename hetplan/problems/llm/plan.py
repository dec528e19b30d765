"""A fleet as a plan: loads with their chunks, the rule of the router, promises, and how near to the bound it is."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from hetplan.planner.answer import Answer
from hetplan.planner.draft import Draft, Reported
from hetplan.planner.transition import Names, transition
from hetplan.problems.llm.judge import Shown
from hetplan.problems.llm.program import Capacity, Rows, program
from hetplan.problems.llm.request import Kind, TextRequest
from hetplan.problems.llm.sizing import SearchRecord, SizedFleet
from hetplan.profiles.engines import IterationLaw
from hetplan.profiles.fields import NANO
from hetplan.profiles.plan import Action, Notice, Promise, Route, Valid
from hetplan.profiles.plan_dispatch_rules import LeastWorkDispatch, RoundRobinDispatch, WeightedLeastDispatch
from hetplan.profiles.plan_sections import Dispatch, SharesDispatch
from hetplan.profiles.workers import Serve, Worker
from hetplan.serving.tokens import TokenLaw

__all__ = ["draft_plan"]

Bound = Answer[np.ndarray]

ROWS = {
    "busy": "time:",
    "room": "room for KV",
    "batch": "tokens of a batch",
    "sequences": "sequences at once",
    "link": "link",
}
"""What rows of the program are called, as far as machines can be full by them."""


def draft_plan(
    wish: TextRequest,
    found: SizedFleet,
    bounds: Mapping[str, Bound],
    *,
    tried: SearchRecord | None = None,
    room: float = 0.0,
) -> Draft:
    """The plan; `bounds` are the answers of the program without row (5), and with it.

    `room` is what a fleet that was not played is asked for beside the rate.
    """
    workers, told = _workers(wish, found), found.steering.weights or (1.0,) * len(wish.kinds)
    per_kind = list(found.shares)
    if not per_kind or wish.rule in ("shares/1", "split-then-fewest/1"):
        per_kind = [n * kind.instances * one for n, kind, one in zip(found.counts, wish.kinds, told, strict=True)]
    cost = found.cost_nanos / NANO
    to = _routing(wish, found, workers, per_kind)
    request, actions = wish.request, tuple[Action, ...]()
    if request.has_state:  # the way from what runs
        offers, limits = wish.inputs.profile.offers, request.instances
        actions = transition(request.running, workers, offers=offers, limits=limits)
    return Draft(
        workers=workers,
        routing={wish.app.id: (Route(to=to),)},
        dispatch={wish.app.id: _rule(wish, found, workers)},
        actions=actions,
        promises=(
            Promise(app=wish.app.id, quantity="rate_qps", relation=">=", value=wish.rate_qps, model="fluid"),
            *(
                _promises_of_simulation(wish, found.shown)
                if found.shown is not None
                else [_promise_of_program(wish, room)]
            ),
            Promise(quantity="cost_per_hour", relation="=", value=cost, model="no-queueing"),
        ),
        reported=(
            Reported("cost_per_hour", "min", "relaxation", bounds["any schedule"], value=cost, note=_note(tried)),
        ),
        warnings=(*_warnings(wish, found), *(() if found.shown is not None else (_warn_of_queues(wish, room),))),
        valid=Valid(rate_qps={wish.app.id: (0.0, wish.rate_qps)}),
        searched=False,
        extensions={"llm": _explanation(wish, found, bounds, tried)},
    )


def _rule(wish: TextRequest, found: SizedFleet, workers: Sequence[Worker]) -> Dispatch:
    """What the load balancer is told."""
    loads = [(worker.loads[0].id, _place_of(wish, worker)) for worker in workers]
    weights, late = found.steering.weights, wish.app.late
    if wish.rule == "round-robin/1":
        return RoundRobinDispatch(late=late)
    if wish.rule == "weighted-least/1":
        told = {load: weights[place] for load, place in loads} if weights else {}
        return WeightedLeastDispatch(late=late, weight=told)
    if wish.rule != "least-work/1":
        return SharesDispatch(late=late, balancing="shortest_queue" if wish.rule == "split-then-fewest/1" else None)
    ttft_ms = wish.limit_ms("ttft")
    return LeastWorkDispatch(
        late=late,
        ttft_ms=ttft_ms if math.isfinite(ttft_ms) else None,
        limit={load: found.steering.limit for load, _ in loads},
        output_tokens=wish.demand.output_tokens,
    )


def _place_of(wish: TextRequest, worker: Worker) -> int:
    """Of which type a worker is."""
    load = worker.loads[0]
    mine = (worker.hardware, load.variant, load.at)
    return next(n for n, kind in enumerate(wish.kinds) if (kind.hardware, kind.variant, kind.choice.at) == mine)


def _workers(wish: TextRequest, found: SizedFleet) -> tuple[Worker, ...]:
    """The machines under each offer; what runs already as it is wanted keeps its names: nothing is done to it."""
    workers, used = list[Worker](), dict[str, int]()
    caps = found.steering.caps or (None,) * len(wish.kinds)
    for kind, count, law, cap in zip(wish.kinds, found.counts, found.laws, caps, strict=True):
        supply, before = wish.supply(kind), used.get(kind.hardware, 0)
        used[kind.hardware] = before + count
        if not count:
            continue
        # Types of one hardware buy from the same offers, cheapest first, one after the other.
        taken = {offer.id: n for offer, n in supply.cheapest_offers(before)}
        for offer, machines in supply.cheapest_offers(before + count):
            number = machines - taken.get(offer.id, 0)
            if number:
                workers.append(_worker(wish, kind, offer.id, number, law, cap or law.most_seqs, len(workers)))
    names = Names(wish.request.running)
    return tuple(names.with_ids(worker) if wish.request.running else worker for worker in workers)


def _worker(
    wish: TextRequest, kind: Kind, offer: str | None, count: int, law: TokenLaw, at_once: int, number: int
) -> Worker:
    tokens, seqs = law.most_tokens, law.most_seqs
    serve = Serve(max_batch=seqs, concurrency=min(at_once, seqs), most_tokens=tokens, most_seqs=seqs)
    name = f"{kind.variant}-{offer or kind.hardware}"[:55]
    load = kind.choice.load(id=f"{name}-{number}", app=wish.app.id, instances=kind.instances, serve=serve)
    return Worker(
        id=f"w-{name}-{number}", hardware=kind.hardware, offer=offer, count=count, queue="per-load", loads=(load,)
    )


def _routing(
    wish: TextRequest, found: SizedFleet, workers: Sequence[Worker], per_kind: Sequence[float]
) -> dict[str, float]:
    """What part of the requests each load gets: by type as it was seen, within one by its instances."""
    total, to = sum(per_kind), dict[str, float]()
    for kind, count, share in zip(wish.kinds, found.counts, per_kind, strict=True):
        for worker in workers:
            load = worker.loads[0]
            if worker.hardware == kind.hardware and (load.variant, load.at) == (kind.variant, kind.choice.at):
                to[load.id] = share / total * worker.count / count
    slip = 1.0 - math.fsum(to.values())
    largest = max(to, key=lambda load: to[load])
    to[largest] = min(1.0, to[largest] + slip)
    return to


def _promises_of_simulation(wish: TextRequest, shown: Shown) -> Iterator[Promise]:
    """The promises that simulation backs; what the network takes is added again."""
    backing: dict[str, Any] = {"app": wish.app.id, "model": "simulation/1", "basis": _basis(wish)}
    backing |= {"seeds": shown.seeds, "confidence": shown.confidence}
    for limit, _, low, high in shown.percentiles:
        stated, of, at = wish.app.latency[limit.key], f"{limit.of}_ms", limit.percentile
        interval = (low + stated - limit.max_ms, high + stated - limit.max_ms)
        yield Promise(quantity=of, percentile=at, relation="<=", value=stated, interval=interval, **backing)
    if wish.goodput is not None:
        _, low, high = shown.goodput
        ends = (low, min(high, 1.0))
        yield Promise(quantity="goodput", relation=">=", value=wish.goodput, interval=ends, **backing)


def _promise_of_program(wish: TextRequest, room: float) -> Promise:
    """What machines carry where nothing waits, which is more than the rate that they are for."""
    basis = f"headroom {room:.6g}" + (", laws slower by 1.5 times their error" if wish.law_error else "")
    rate = wish.rate_qps * (1.0 + room)
    return Promise(app=wish.app.id, quantity="fluid_rate_qps", relation=">=", value=rate, model="fluid", basis=basis)


def _basis(wish: TextRequest) -> str:
    slower = max((kind.engine.error for kind in wish.kinds), default=0.0) if wish.law_error else 0.0
    return "token by token, laws as stated" + (f" and slower by their error, {slower:.3g} at most" if slower else "")


def _warn_of_queues(wish: TextRequest, room: float) -> Notice:
    way = f"with headroom {room:.6g}"
    if wish.options.sizing == "formula":
        way = f"with headroom {room:.6g}, by a formula for bursts,"
    text = (
        f"sized by the program {way} and not by simulation, so no percentile is promised: run hetplan simulate, or "
        "set sizing to simulation"
    )
    return Notice(code="W-queueing", at="promises", text=text)


def _warnings(wish: TextRequest, found: SizedFleet) -> Iterator[Notice]:
    """Laws used beyond what they were fitted to, and those whose overlap nobody measured."""
    for kind, count, law in zip(wish.kinds, found.counts, found.laws, strict=True):
        if not count:
            continue
        at = f"engines.{kind.choice.run.engine}"
        if kind.engine.law is not None:
            yield Notice(code="W-law", at=at, text=_basis_of_law(wish, kind, kind.engine.law))
        elif kind.engine.overlap == "assumed":
            text = f"{kind.name}: iterations with prefill and decode together were not measured; their time is assumed"
            yield Notice(code="W-overlap", at=at, text=text)
        fitted, used = kind.engine.reach, []
        for name, most, reached in (
            ("tokens", fitted.tokens, law.most_tokens),
            ("sequences", fitted.sequences, law.most_seqs),
            ("kv_tokens", fitted.kv_tokens, law.kv_tokens),
        ):
            if most is not None and reached > most:
                used.append(f"{name} up to {reached} (fitted to {most})")
        if used:
            text = f"{kind.name}: its law is used beyond what it was fitted to: {', '.join(used)}"
            yield Notice(code="W-extrapolated", at=at, text=text)


def _basis_of_law(wish: TextRequest, kind: Kind, law: IterationLaw) -> str:
    """What a law rests on, and whether the fleet has room for its error."""
    basis = f"{law.basis or 'unknown'}" + (f", {law.source}" if law.source else "")
    text = f"{kind.name}: the basis of its law is {basis}"
    if kind.engine.kv_error is not None:
        unsure = f'+-{kind.engine.kv_error:.0%}, by model and card: read the engine\'s "GPU KV cache size"'
        text = f"{text}; KV cache of {kind.engine.kv_tokens:,} tokens {unsure}"
    if not law.error_mean:
        return f"{text}; its error is not stated, so the plan has no headroom for it"
    sized = "planned with a law slower by that" if wish.law_error else "not planned for, as robust.law states"
    return f"{text}; mean error {law.error_mean:.3g}: {sized}"


def _note(tried: SearchRecord | None) -> str:
    if tried is None:
        return "bound of rows (1) to (4) and (6), which hold for every schedule with these laws that serves all"
    rest = "" if tried.complete else "; not every cheaper fleet was checked"
    if tried.parts > 1:
        rest = f", for one of {tried.parts} parts alike{rest}"
    return (
        f"bound of rows (1) to (4) and (6), which hold for every schedule that serves all; of {tried.listed} fleets "
        f"between it and this price {tried.excluded} are excluded by the rows, {tried.simulated} were simulated{rest}"
    )


def _explanation(
    wish: TextRequest, found: SizedFleet, bounds: Mapping[str, Bound], tried: SearchRecord | None
) -> dict[str, Any]:
    """For the reader: the bounds, which rows of each type bind, and what a machine of each other type is worth."""
    what = program(wish, mean_tpot=False, allow_late=1.0, laws=wish.laws)
    carried = Rows.of(what).capacity_of(found.counts)
    said: dict[str, Any] = {
        "bounds_per_hour": {
            name: round(answer.bound, 6) for name, answer in bounds.items() if answer.bound is not None
        },
        "rows_carry_qps": round(carried.rate_qps, 6),
        "bind": _full_rows(wish, found, carried),
        "worth_per_hour": _worth_per_hour(wish, found, carried),
    }
    if tried is not None:
        said["search"] = {
            "fleets": tried.listed, "excluded": tried.excluded, "simulated": tried.simulated,
            "not_confirmed": tried.unconfirmed, "complete": tried.complete, "parts": tried.parts,
        }  # fmt: skip
    return said


def _worth_per_hour(wish: TextRequest, found: SizedFleet, carried: Capacity) -> dict[str, float]:
    """What one machine of each type carries, in money: the price below which rows (1) to (6) would rather have it."""
    prices = carried.prices
    own = [(number, prices[number]) for number, count in enumerate(found.counts) if count and prices[number] > 1e-12]
    if not own or carried.rate_qps <= 0:
        return {}
    dearest = min(wish.supply(wish.kinds[n]).cost(1) / NANO / price for n, price in own)
    return {
        kind.name: round(float(dearest * price), 4)
        for kind, price, count in zip(wish.kinds, prices, found.counts, strict=True)
        if not count
    }


def _full_rows(wish: TextRequest, found: SizedFleet, carried: Capacity) -> dict[str, list[str]]:
    """Of each type that was taken: which of its rows are full when the fleet carries the most that rows allow."""
    bind: dict[str, list[str]] = {}
    for kind, count in zip(wish.kinds, found.counts, strict=True):
        for block, label in carried.full:
            if count and label.partition(" piece ")[0] == kind.name and block in ROWS:
                bind.setdefault(kind.name, []).append(ROWS[block] + label.removeprefix(kind.name))
    return bind
