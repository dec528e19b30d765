"""All count vectors of tiny wishes, each played by the plain simulator: what is the cheapest that keeps the SLO?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

from build import Files
from truth.cases import times_ms
from truth.plain_simulator import App, Bank, Way, play

LOOK, QUERIES = 1_500, 24_000
"""Queries of a first look, which drops what is late five times as often as allowed, and of the judgement."""


def vectors(prices: Mapping[str, float], below: float, most: int) -> Iterator[tuple[float, dict[str, int]]]:
    """Counts of at most so many machines that cost less than a sum, the cheapest first."""
    found = []
    for counts in product(*(range(most + 1) for _ in prices)):
        cost = sum(n * price for n, price in zip(counts, prices.values(), strict=True))
        if 0 < sum(counts) <= most and cost < below - 1e-9:
            found.append((cost, {name: n for name, n in zip(prices, counts, strict=True) if n}))
    yield from sorted(found, key=lambda one: one[0])


def late_share(app: App, banks: Mapping[str, Bank], allowed: float, seed: int) -> float:
    """How many of an application's queries are late; a rough figure where it is far above what is allowed."""
    late = play({"it": app}, banks, queries=LOOK, seed=seed)["it"].late
    return late if late > 5.0 * allowed else play({"it": app}, banks, queries=QUERIES, seed=seed + 1)["it"].late


def models_and_batches(wish: Files, of: str, on: str) -> list[tuple[str, int]]:
    """The models that may serve an application or a stage, each with every batch that was measured."""
    return [(model, most) for model in wish.models(of) for most in wish.times_ms(model, on)]


def ways_to_serve(wish: Files, name: str, counts: Mapping[str, int]) -> Iterator[tuple[App, dict[str, Bank]]]:
    """Natural ways to serve an application on so many machines of each type."""
    demand = wish.demand(name)
    if None not in demand.mix:  # sized queries, one at a time: matching and earliest
        model = wish.models(name)[0]
        ms = {on: {size: times_ms(wish, model, on, size, 1) for size in demand.mix} for on in wish.machine_types}
        largest = max(demand.mix)
        base = next(iter(on for on in ms if all(ms[on][size][0] <= demand.limit_ms for size in ms[on])), None)
        if any(min(ms[on][size][0] for on in counts) > demand.limit_ms for size in demand.mix):
            return
        weights = {on: 1.0 if base is None else ms[base][largest][0] / ms[on][largest][0] for on in ms}
        banks = {on: Bank(n, ms[on], weight=weights[on]) for on, n in counts.items()}
        work = sum(share * min(ms[on][size][0] for on in counts) for size, share in demand.mix.items())
        if demand.rate * work / 1e3 >= sum(counts.values()):
            return
        for rule in ("matching", "earliest"):
            way = [Way(dict.fromkeys(counts, 1.0))]
            yield App(demand.rate, demand.limit_ms, way, demand.mix, rule=rule, xi=0.98, shape=demand.shape), banks
        return
    choices: list[list[tuple[str, Any]]] = []
    for on, n in counts.items():
        options = []
        for model, most in models_and_batches(wish, name, on):
            times = times_ms(wish, model, on, None, most)
            if times[-1] <= demand.limit_ms:
                options.append((on, Bank(n, {None: times}, most)))
        choices.append(options)
    for chosen in product(*choices):
        banks = dict(chosen)
        rates = {on: 1e3 * bank.servers * bank.most / bank.ms[None][-1] for on, bank in chosen}
        if sum(rates.values()) <= demand.rate:
            continue
        yield App(demand.rate, demand.limit_ms, [Way(rates)], shape=demand.shape), banks


def cheaper_and_good(
    wish: Files, below: float, *, most: int, margin: float = 0.6, seed: int = 11
) -> list[tuple[float, dict[str, int], float]]:
    """Count vectors that cost less and use at most `margin` of what may be late: cost, counts, late share."""
    (name,) = wish.apps
    allowed = wish.demand(name).late
    for cost, counts in vectors({on: wish.price(on) for on in wish.machine_types}, below, most):
        for app, banks in ways_to_serve(wish, name, counts):
            late = late_share(app, banks, allowed, seed)
            if late <= margin * allowed:
                return [(cost, counts, late)]
    return []


def better_and_good(wish: Files, above: float, machines: int, *, margin: float = 0.6) -> tuple[float, Any] | None:
    """Two stages on so many machines of one type, one model and batch each: what is of a higher quality and good."""
    (name,), (on,) = wish.apps, wish.machine_types
    demand = wish.demand(name)
    (first, second), limit = demand.stages, demand.limit_ms - 2.0 * demand.network_ms
    rates = (demand.rate, demand.rate * wish.fanout(first)[second])
    options = [models_and_batches(wish, stage, on) for stage in demand.stages]
    ways = [Way({stage: 1.0}, step=stage) for stage in demand.stages]
    app = App(demand.rate, limit, ways, first=first, then=demand.then, within="turns")
    for choice in product(*options):
        quality = math.prod(wish.quality(model) for model, _ in choice)
        times = [times_ms(wish, model, on, None, most) for model, most in choice]
        if quality <= above + 1e-9 or times[0][0] + times[1][0] > limit:
            continue
        for count in range(1, machines):
            counts = (count, machines - count)
            if any(n * 1e3 * len(ms) / ms[-1] <= rate for n, ms, rate in zip(counts, times, rates, strict=True)):
                continue
            banks = {
                stage: Bank(n, {None: ms}, len(ms), fanout=wish.fanout(stage))
                for stage, n, ms in zip(demand.stages, counts, times, strict=True)
            }
            late = late_share(app, banks, demand.late, 11)
            if late <= margin * demand.late:
                return quality, (choice, counts, late)
    return None
