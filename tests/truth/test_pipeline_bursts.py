"""Bounds of pipelines whose queries come in bursts: nothing below them keeps the SLO, whoever dispatches.

What is cheaper is played by a dispatcher of the tests that no product has: at each stage it takes the batch that
answers most in its time, of the oldest that can still be in time, leaves time for the stage that follows, and drops the
rest.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise, product

import numpy as np
import pytest
from build import Files, app, files, machine, model, pipeline
from face import Answer, bounded, solve, verify

QUERIES = 8_000
STATES = ((0.5, 2.0), (4.0, 2.0)), ((0.6, 1.8), (2.0, 1.0)), ((0.25, 2.5), (6.0, 3.0))
Times = Mapping[str, Mapping[int, float]]
"""Milliseconds of batches, by machine type."""
Servers = Mapping[tuple[str, str], int]
"""How many of each machine type there are for each stage."""


def bursty(
    stages: Mapping[str, Times], *, rate: float, late: float, limit: float, fanout: float = 1.0, seed: int = 0,
    prices: Mapping[str, float], drops: str | None = None, shape: float | None = None, lasting: float = 0.1,
) -> Files:  # fmt: skip
    """Stages in a row at the least cost; states last some tenths of a second, or gaps are uneven."""
    rates, stays = STATES[seed % 3]
    arrivals = {"process": "mmpp", "relative_rates": list(rates), "stay_s": [lasting * one for one in stays]}
    if shape is not None:
        arrivals = {"process": "gamma", "shape": shape}
    wanted = app(
        "row", rate=rate, limits={100.0 * (1.0 - late): limit}, by="pipeline", arrivals=arrivals, late=drops
    )  # fmt: skip
    made = files(
        machines={name: machine(price) for name, price in prices.items()},
        models={name: model(times, quality=1.0) for name, times in stages.items()},
        pipelines={"row": pipeline([(one, other, fanout) for one, other in pairwise(stages)], list(stages))},
        apps={"ask": wanted}, objective=("min cost",), problem="pipeline",
    )  # fmt: skip
    return made.limited(counts=dict.fromkeys(prices, (0, 60)))


def drawn(seed: int) -> tuple[Files, dict[str, dict[str, dict[int, float]]], float]:
    """A wish of two stages on two machine types; its times, and its fan-out."""
    rng, stages = random.Random(f"bursty pipeline {seed}"), {}
    for stage in "ab":
        first, slower, each = rng.uniform(4, 12), rng.uniform(1.4, 2.2), rng.uniform(0.25, 0.7)
        stages[stage] = {
            on: {size: round(times * first * (1 + each * (size - 1)), 2) for size in (1, 4)}
            for on, times in (("m0", 1.0), ("m1", slower))
        }
    limit = round((stages["a"]["m1"][4] + stages["b"]["m1"][4]) * rng.uniform(1.1, 2.5), 1)
    fanout, late = rng.choice((1.0, 1.0, 2.0, 1.5, 0.6)), rng.choice((0.05, 0.01))
    rate = round(4e3 / stages["a"]["m0"][4] * rng.uniform(0.8, 2.0) / max(fanout, 1.0), 1)
    prices = {"m0": 1.0, "m1": round(rng.uniform(0.35, 0.65), 3)}
    drops = rng.choice((None, "serve", "drop-per-task"))
    wish = bursty(stages, rate=rate, late=late, limit=limit, fanout=fanout, seed=seed, prices=prices, drops=drops)
    return wish, stages, fanout


@cache
def planned(seed: int) -> Answer:
    return solve(drawn(seed)[0])


def arrivals_ms(wish: Files, rng: np.random.Generator) -> list[float]:
    """When queries come, drawn by the tests' own hand."""
    said = wish.slo["apps"]["ask"]
    times, now, state = list[float](), 0.0, 0
    while len(times) < QUERIES:
        lasts = rng.exponential(1e3 * said["arrivals"]["stay_s"][state])
        count = rng.poisson(said["rate_qps"] / 1e3 * said["arrivals"]["relative_rates"][state] * lasts)
        times += (now + np.sort(rng.random(count)) * lasts).tolist()
        now, state = now + lasts, (state + 1) % 2
    return times[:QUERIES]


def late_share(wish: Files, stages: Mapping[str, Times], fanout: float, servers: Servers, spare: float) -> float:
    """The late share of the dispatcher above; `spare` says how much time it leaves for the last stage."""
    rng, limit = np.random.default_rng(5), wish.demand("ask").limit_ms
    due = [at + limit for at in arrivals_ms(wish, rng)]
    left = (int(fanout) + (rng.random(QUERIES) < fanout % 1.0)).tolist()  # jobs of the last stage that each still has
    fastest = {stage: min(times[1] for times in on.values()) for stage, on in stages.items()}
    after = {"a": min(stages["b"][on][4] for (stage, on), n in servers.items() if stage == "b" and n), "b": 0.0}
    free = {stage: [(stages[stage][on][1], on) for (of, on), n in servers.items() if of == stage for _ in range(n)]
            for stage in stages}  # fmt: skip
    queues: dict[str, list[int]] = {"a": [], "b": []}
    events: list[tuple[float, int, str, str, list[int]]]
    events = [(at - limit, query, "", "", [query]) for query, at in enumerate(due)]
    heapq.heapify(events)
    in_time, number = 0, QUERIES

    def begin(stage: str, now: float) -> None:
        nonlocal number
        rest = {query: fastest["b"] if stage == "a" and left[query] else 0.0 for query in queues[stage]}
        queue = [one for one in queues[stage] if now + fastest[stage] + rest[one] <= due[one]]
        for speed, on in sorted(free[stage]):
            best: tuple[float, float, list[int]] = (0.0, 0.0, [])
            for size in (4, 3, 2, 1):
                takes = speed + (stages[stage][on][4] - speed) * (size - 1) / 3.0
                for kept in (spare * after[stage], 0.0):
                    fit = [one for one in queue if now + takes + max(kept, rest[one]) * (rest[one] > 0) <= due[one]]
                    if len(fit) >= size and size / takes > best[0]:
                        best = size / takes, takes, fit[:size]
            if best[2]:
                free[stage].remove((speed, on))
                for one in best[2]:
                    queue.remove(one)
                number += 1
                heapq.heappush(events, (now + best[1], number, stage, on, best[2]))
        queues[stage] = queue

    while events:
        now, _, stage, on, batch = heapq.heappop(events)
        if not stage:
            queues["a"] += batch
            begin("a", now)
            continue
        free[stage].append((stages[stage][on][1], on))
        for query in batch:
            left[query] -= stage == "b"
            in_time += left[query] == 0 and now <= due[query]
            queues["b"] += [query] * left[query] if stage == "a" else []
        begin(stage, now)
        begin("b", now)
    return 1.0 - in_time / QUERIES


def below(wish: Files, stages: Mapping[str, Times], fanout: float, bound: float) -> Iterator[Servers]:
    """Servers that cost less than a bound, those first by which the stage that carries least carries most."""
    prices, found = {on: wish.price(on) for on in wish.machine_types}, []
    for counts in product(range(int(bound / min(prices.values())) + 1), repeat=4):
        servers = dict(zip(product("ab", prices), counts, strict=True))
        if 0.7 * bound <= sum(prices[on] * n for (_, on), n in servers.items()) < bound * (1.0 - 1e-6):
            a, b = (sum(n * 4e3 / stages[of][on][4] for (of, on), n in servers.items() if of == one) for one in "ab")
            found.append((min(a, b / fanout), counts, servers))
    return (servers for _, _, servers in sorted(found, key=lambda one: one[:2], reverse=True))


CASES = [pytest.param(seed, marks=[pytest.mark.slow] if seed > 0 else []) for seed in range(8)]


@pytest.mark.slow
@pytest.mark.parametrize("seed", CASES)
def test_nothing_cheaper_than_the_bound_keeps_the_slo(seed: int) -> None:
    (wish, stages, fanout), answer = drawn(seed), planned(seed)
    assert answer.claim is not None
    assert answer.claim.is_of_all
    assert answer.bound is not None
    assert answer.bound <= (answer.cost or 0.0)
    cheaper = [servers for servers, _ in zip(below(wish, stages, fanout, answer.bound), range(2), strict=False)]
    assert cheaper
    for servers in cheaper:
        for spare in (0.6, 1.3):
            assert late_share(wish, stages, fanout, servers, spare) > wish.demand("ask").late
    assert set(verify(answer.plan, wish).bounds) == {"proved again"}


@pytest.mark.slow
def test_a_bound_sees_bursts_and_a_higher_one_is_refused() -> None:
    wish, answer = drawn(0)[0], planned(0)
    steady = solve(drawn(0)[0].steady()).bound
    assert answer.bound is not None
    assert steady is not None
    assert answer.bound > 1.1 * steady
    for more in (1.001, (answer.cost or 0.0) / answer.bound):
        judged = verify(bounded(answer.plan or {}, 0, more * answer.bound), wish)
        assert not judged.is_ok
        assert "proved again" not in judged.bounds


ONE = {"prices": {"m0": 1.0}, "late": 0.01, "limit": 90.0}


@pytest.mark.slow
@pytest.mark.parametrize("shape", [None, pytest.param(0.1, marks=pytest.mark.slow)])
def test_stages_in_a_row_are_bounded_as_one_that_takes_as_long(shape: float | None) -> None:
    """A job of the second stage for each query, or two that take half as long."""
    rate = 400.0
    whole = solve(bursty({"a": {"m0": {1: 20.0}}}, rate=rate, shape=shape, **ONE)).bound
    one = solve(bursty({"a": {"m0": {1: 12.0}}, "b": {"m0": {1: 8.0}}}, rate=rate, shape=shape, **ONE)).bound
    two = solve(
        bursty({"a": {"m0": {1: 12.0}}, "b": {"m0": {1: 4.0}}}, rate=rate, fanout=2.0, shape=shape, **ONE)
    ).bound
    assert whole is not None
    assert whole > 1.05 * rate * 0.02, "the case shows nothing"
    assert (one, two) == (pytest.approx(whole, rel=1e-6), pytest.approx(whole, rel=1e-6))


@pytest.mark.slow
def test_a_pipeline_of_one_stage_is_bounded_as_a_pool() -> None:
    """A pool counts whole machines, a bound of pipelines parts."""
    wish = bursty({"a": {"m0": {1: 20.0}}}, rate=400.0, **ONE)
    wanted = app("a", rate=400.0, limits={99.0: 90.0}, sizes={1: 1.0}, arrivals=wish.slo["apps"]["ask"]["arrivals"])
    pool = solve(
        files(
            machines={"m0": machine(1.0)}, models={"a": model({"m0": {1: 20.0}})}, apps={"ask": wanted}, problem="pool"
        )
    )
    bound = solve(wish).bound
    assert bound is not None
    assert pool.bound is not None
    assert pool.bound - 1.0 < bound <= pool.bound + 1e-6


@pytest.mark.slow
def test_those_that_send_on_most_may_be_the_late_ones() -> None:
    """Three queries of ten send one on to the dear stage, and four may be late: these three, and one in seven others.

    So what keeps the first stage's SLO for the seven is enough.
    """
    stages, more = (
        {"a": {"m0": {1: 2.0}}, "b": {"m0": {1: 8.0}}},
        {"limit": 14.0, "prices": {"m0": 1.0}, "seed": 2, "lasting": 1.0},
    )
    answer = solve(bursty(stages, rate=2000.0, fanout=0.3, late=0.4, drops="drop-per-task", **more))
    steady = solve(bursty(stages, rate=2000.0, fanout=0.3, late=0.4, drops="drop-per-task", **more).steady())
    seven = solve(bursty({"a": stages["a"]}, rate=1400.0, late=0.14, drops="drop-per-task", **more))
    assert answer.bound is not None
    assert seven.cost is not None
    assert answer.bound <= seven.cost
    assert answer.bound > 1.05 * (steady.bound or 0.0), "the case shows nothing"
