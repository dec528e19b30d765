"""Bounds of pools whose queries come in bursts: nothing below them keeps the SLO, whoever dispatches.

What is cheaper is played by a dispatcher of the tests that no product has: it sees the sizes of all that waits, drops
what it cannot answer in time, and serves the shortest first, so that the long ones are late. By a bound that takes
queries as if all were of mean size it would have to fail; it need not.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import pytest
from build import Files, app, files, machine, model
from face import Answer, bounded, solve, verify
from truth.brute_force import vectors
from truth.plain_simulator import lognormal

QUERIES = 30_000
STATES = ((0.5, 2.0), (4.0, 2.0)), ((0.6, 1.8), (2.0, 1.0))


def bursty_pool(seed: int, spread: float = 0.0) -> Files:
    """Two machine types, two sizes, a rate for a handful of machines; of odd seeds gaps are uneven, else states.

    Service times have a deviation of `spread` times their mean.
    """
    rng = random.Random(f"bursty pool {seed}")
    first, each = rng.uniform(4, 10), rng.uniform(1.0, 2.5)
    runs = {
        name: {size: round(slower * (first + each * (size - 1)), 2) for size in (1, 8)}
        for name, slower in (("m0", 1.0), ("m1", rng.uniform(1.4, 2.2)))
    }
    machines = {"m0": machine(1.0), "m1": machine(round(rng.uniform(0.35, 0.6), 3))}
    limit = round(max(runs["m0"].values()) * rng.uniform(1.5, 4.0), 1)
    arrivals = {"process": "gamma", "shape": 0.2}
    if seed % 2 == 0:
        rates, stays = STATES[seed // 2 % 2]
        arrivals = {"process": "mmpp", "relative_rates": list(rates), "stay_s": list(stays)}
    mean = 0.8 * runs["m0"][1] + 0.2 * runs["m0"][8]
    wanted = app(
        "net", rate=round(1e3 / mean * rng.uniform(1.0, 2.2), 1), limits={(95, 99)[seed // 2 % 2]: limit},
        sizes={1: 0.8, 8: 0.2}, arrivals=arrivals,
    )  # fmt: skip
    tables: dict[str, Mapping[Any, Any]] = dict(runs)
    for on, times in runs.items() if spread else ():
        means = list(times.values())
        tables[on] = {"batch": list(times), "mean": means, "std": [round(spread * one, 3) for one in means]}
    return files(machines=machines, models={"net": model(tables)}, apps={"ask": wanted}, problem="pool")


def pool_of_long_ones(late: str) -> Files:
    """A few long queries are more than half of the work, and a tenth of all may be late: all of the long ones."""
    arrivals = {"process": "mmpp", "relative_rates": [0.5, 2.0], "stay_s": [4.0, 2.0]}
    wanted = app("net", rate=560.0, limits={90: 150.0}, sizes={1: 0.92, 8: 0.08}, arrivals=arrivals, late=late)
    models = {"net": model({"m0": {1: 4.0, 8: 80.0}})}
    return files(machines={"m0": machine(1.0)}, models=models, apps={"ask": wanted}, problem="pool")


@cache
def planned(seed: int | None) -> tuple[Files, Answer]:
    wish = pool_of_long_ones("drop") if seed is None else bursty_pool(seed)
    return wish, solve(wish)


def arrivals_ms(wish: Files, seed: int) -> list[float]:
    """When queries come, drawn by the tests' own hand."""
    rng, said = np.random.default_rng(seed), wish.slo["apps"]["ask"]
    rate, process = said["rate_qps"] / 1e3, said["arrivals"]
    if process["process"] == "gamma":
        return list(np.cumsum(rng.gamma(process["shape"], 1.0 / (process["shape"] * rate), QUERIES)))
    times, now, state = list[float](), 0.0, 0
    while len(times) < QUERIES:
        lasts = rng.exponential(1e3 * process["stay_s"][state])
        count = rng.poisson(rate * process["relative_rates"][state] * lasts)
        times += (now + np.sort(rng.random(count)) * lasts).tolist()
        now, state = now + lasts, (state + 1) % 2
    return times[:QUERIES]


def late_share_of_the_shortest_first(wish: Files, counts: Mapping[str, int], seed: int, spread: float = 0.0) -> float:
    """The late share of a dispatcher that answers the shortest that it can still answer in time, and drops the rest.

    It goes by mean times, and finds out how long each takes when that is answered.
    """
    rng, demand = random.Random(seed), wish.demand("ask")
    sizes, shares = sorted(demand.mix), [demand.mix[size] for size in sorted(demand.mix)]
    ms = {on: wish.times_ms("net", on) for on in counts}
    free = [(ms[on][1], number, on) for on in counts for number in range(counts[on])]
    heapq.heapify(free)  # the fastest first
    waiting = {size: deque[float]() for size in sizes}
    events = [(at, 1, rng.choices(sizes, shares)[0], "") for at in arrivals_ms(wish, seed)]
    heapq.heapify(events)
    in_time = 0
    while events:
        now, comes, what, on = heapq.heappop(events)
        if comes:
            waiting[what].append(now)
        else:
            heapq.heappush(free, (ms[on][1], what, on))
        unfit = list[tuple[float, int, str]]()
        while free:
            speed, number, on = heapq.heappop(free)
            for size in sizes:
                queue = waiting[size]
                while queue and now + min(times[size] for times in ms.values()) > queue[0] + demand.limit_ms:
                    queue.popleft()
                if queue and now + ms[on][size] <= queue[0] + demand.limit_ms:
                    takes = lognormal(spread)(rng, ms[on][size]) if spread else ms[on][size]
                    in_time += now + takes <= queue.popleft() + demand.limit_ms
                    heapq.heappush(events, (now + takes, 0, number, on))
                    break
            else:
                unfit.append((speed, number, on))
        for one in unfit:
            heapq.heappush(free, one)
    return 1.0 - in_time / QUERIES


CASES = [pytest.param(seed, marks=[pytest.mark.slow] if seed > 0 else []) for seed in range(8)]


@pytest.mark.parametrize("seed", CASES)
def test_a_bound_sees_bursts_and_is_proved_again(seed: int) -> None:
    wish, answer = planned(seed)
    assert answer.claim is not None
    assert answer.claim.is_certified
    assert answer.bound is not None
    without_bursts = solve(wish, "formula").bound
    assert without_bursts is not None
    assert without_bursts * (1.1 if seed % 2 == 0 else 1.0) <= answer.bound <= (answer.cost or 0.0)
    assert set(verify(answer.plan, wish).bounds) == {"proved again"}


@pytest.mark.parametrize("seed", [*CASES, pytest.param(None, id="drops", marks=pytest.mark.slow)])
def test_nothing_cheaper_than_the_bound_keeps_the_slo(seed: int | None) -> None:
    wish, answer = planned(seed)
    assert answer.bound is not None
    prices, allowed = {on: wish.price(on) for on in wish.machine_types}, wish.demand("ask").late
    cheaper = list(vectors(prices, answer.bound * (1.0 - 1e-6), most=12))
    assert cheaper
    for _, counts in cheaper[-5:]:
        assert late_share_of_the_shortest_first(wish, counts, seed=5) > allowed
    assert set(verify(answer.plan or {}, wish).bounds) == {"proved again"}


@pytest.mark.slow
def test_a_bound_does_not_take_queries_as_if_all_were_of_mean_size() -> None:
    """In bursts the long ones may be late: machines for the mean of the work are enough, as they are without bursts."""
    wish = pool_of_long_ones("serve")
    demand, ms = wish.demand("ask"), wish.times_ms("net", "m0")
    work = demand.rate * sum(share * ms[size] for size, share in demand.mix.items()) / 1e3
    enough = {"m0": int(work) + 1}
    assert late_share_of_the_shortest_first(wish, enough, seed=5) < 0.5 * demand.late
    bound = solve(wish).bound
    assert bound is not None
    assert work < bound <= enough["m0"] * wish.price("m0")


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, pytest.param(4, marks=pytest.mark.slow)])
def test_a_bound_of_service_times_that_vary_holds_before_times_that_vary(seed: int) -> None:
    """Short ones are more often in time: machines have answered more of those in time than their mean says."""
    wish = bursty_pool(seed, spread=0.5)
    answer, constant = solve(wish), planned(seed)[1]
    assert answer.bound is not None
    assert constant.bound is not None
    assert (solve(wish, "formula").bound or 0.0) < answer.bound <= constant.bound
    prices, allowed = {on: wish.price(on) for on in wish.machine_types}, wish.demand("ask").late
    for _, counts in list(vectors(prices, answer.bound * (1.0 - 1e-6), most=12))[-5:]:
        assert late_share_of_the_shortest_first(wish, counts, seed=5, spread=0.5) > allowed


def bursty_variants(seed: int) -> Files:
    """One model that takes batches, on two machine types that are paid by the instance."""
    rng = random.Random(f"bursty variants {seed}")
    first, each = rng.uniform(4, 8), rng.uniform(0.2, 0.5)
    runs = {
        name: {size: round(slower * first * (1 + each * (size - 1)), 2) for size in (1, 2, 4)}
        for name, slower in (("m0", 1.0), ("m1", rng.uniform(1.4, 2.0)))
    }
    machines = {"m0": machine(1.0), "m1": machine(round(rng.uniform(0.4, 0.6), 3))}
    arrivals = {"process": "mmpp", "relative_rates": [0.5, 2.0], "stay_s": [4.0, 2.0]}
    limit, rate = round(runs["m0"][4] * rng.uniform(1.5, 3.0), 1), round(4e3 / runs["m0"][4] * rng.uniform(0.8, 1.6), 1)
    wanted = app("net", rate=rate, limits={99: limit}, arrivals=arrivals)
    return files(machines=machines, models={"net": model(runs)}, apps={"ask": wanted}, problem="variants")


def late_share_of_the_fullest_batches(wish: Files, counts: Mapping[str, int], seed: int) -> float:
    """The late share of one queue before all machines: the largest batch of the oldest that is still in time."""
    limit = wish.demand("ask").limit_ms
    ms = {on: wish.times_ms("net", on) for on in counts}
    ms = {on: {n: next(ms[on][size] for size in sorted(ms[on]) if size >= n) for n in (1, 2, 3, 4)} for on in counts}
    free = [(ms[on][1], number, on) for on in counts for number in range(counts[on])]
    heapq.heapify(free)
    events: list[tuple[float, int, int, str]] = [(at, 1, 0, "") for at in arrivals_ms(wish, seed)]
    heapq.heapify(events)
    queue, in_time = deque[float](), 0
    while events:
        now, comes, number, on = heapq.heappop(events)
        if comes:
            queue.append(now)
        else:
            heapq.heappush(free, (ms[on][1], number, on))
        while free and queue:
            _, number, on = free[0]
            size = next((n for n in (4, 3, 2, 1) if n <= len(queue) and now + ms[on][n] <= queue[0] + limit), 0)
            if not size:
                if now + min(times[1] for times in ms.values()) <= queue[0] + limit:
                    break
                queue.popleft()
                continue
            heapq.heappop(free)
            in_time += size
            for _ in range(size):
                queue.popleft()
            heapq.heappush(events, (now + ms[on][size], 0, number, on))
    return 1.0 - in_time / QUERIES


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, *[pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 5)]])
def test_nothing_cheaper_than_the_bound_of_variants_keeps_the_slo(seed: int) -> None:
    wish = bursty_variants(seed)
    answer = solve(wish)
    assert answer.bound is not None
    assert answer.claim is not None
    assert answer.claim.is_of_all
    assert set(verify(answer.plan, wish).bounds) == {"proved again"}
    demand, prices = wish.demand("ask"), {on: wish.price(on) for on in wish.machine_types}
    rates = {on: max(1e3 * n / ms for n, ms in wish.times_ms("net", on).items()) for on in prices}
    enough = (
        cost
        for cost, counts in vectors(prices, 1e9, most=8)
        if sum(rates[on] * n for on, n in counts.items()) >= demand.rate
    )
    steady = next(enough)
    assert answer.bound > 1.1 * steady, "no more than the rate asks for"
    cheaper = list(vectors(prices, answer.bound * (1.0 - 1e-6), most=12))
    assert cheaper
    for _, counts in cheaper[-5:]:
        assert late_share_of_the_fullest_batches(wish, counts, seed=5) > demand.late
    forged = verify(bounded(answer.plan or {}, 0, 1.001 * answer.bound), wish)
    assert not forged.is_ok


def test_a_forged_higher_bound_is_refused() -> None:
    wish, answer = planned(0)
    assert answer.bound is not None
    for more in (1.001, (answer.cost or 0.0) / answer.bound):
        judged = verify(bounded(answer.plan or {}, 0, more * answer.bound), wish)
        assert not judged.is_ok
        assert "proved again" not in judged.bounds[:1]
