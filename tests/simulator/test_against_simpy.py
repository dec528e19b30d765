"""The same arrivals and service times in simpy: every query ends at the same moment."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np
import pytest

from hetplan.serving.system import App, Edge, Group, Inner, Load, Noise, Route, Rule, Service, Stage, System, Way
from hetplan.simulator.draw_kernels import FANOUT, SERVICE, draw_exponential, draw_uniform
from hetplan.simulator.simulation import Simulation, Stream

simpy = pytest.importorskip("simpy")
SEED = 7


def poisson(count: int, gap_ms: float, seed: int = 2) -> np.ndarray[Any, Any]:
    return np.cumsum(np.random.default_rng(seed).exponential(gap_ms, count))


def service_ms(mean: float, query: int, serial: int = 0) -> float:
    """The draw that the engine takes for the serial-th job of a query."""
    with np.errstate(over="ignore"):
        return mean * draw_exponential(SEED, query, serial, SERVICE)


def test_one_queue_before_several_servers(queues: Any) -> None:
    times = poisson(2000, 3.0)
    ends = np.zeros(len(times))
    env = simpy.Environment()
    servers = simpy.Resource(env, capacity=4)

    def ask(query: int) -> Generator[Any, Any, None]:
        yield env.timeout(times[query] - env.now)
        with servers.request() as turn:
            yield turn
            yield env.timeout(service_ms(10.0, query))
        ends[query] = env.now

    for query in range(len(times)):
        env.process(ask(query))
    env.run()
    result = queues.run(queues.system(4), times, noise=Noise.EXPONENTIAL, seed=SEED)
    np.testing.assert_allclose(result.queries["finish"], ends, rtol=0, atol=1e-7)


def test_batches_that_wait_for_more(queues: Any) -> None:
    """Up to four at once, the oldest waiting at most 8 ms; a batch of k takes 5 + 2k ms."""
    times, most, patience = poisson(3000, 4.0), 4, 8.0
    ends = np.zeros(len(times))
    env = simpy.Environment()
    waiting: list[int] = []
    news = [env.event()]

    def arrive() -> Generator[Any, Any, None]:
        for query, when in enumerate(times):
            yield env.timeout(when - env.now)
            waiting.append(query)
            news[0].succeed()
            news[0] = env.event()

    def serve() -> Generator[Any, Any, None]:
        while True:
            while len(waiting) < most and not (waiting and env.now >= times[waiting[0]] + patience - 1e-12):
                late = [env.timeout(max(0.0, times[waiting[0]] + patience - env.now))] if waiting else []
                yield simpy.AnyOf(env, [news[0], *late])
            taken = waiting[:most]
            del waiting[:most]
            yield env.timeout(5.0 + 2.0 * len(taken))
            ends[taken] = env.now

    env.process(arrive())
    env.process(serve())
    env.run(until=float(times[-1]) + 1000.0)
    load = queues.load([[7.0, 9.0, 11.0, 13.0]], max_wait_ms=patience)
    result = queues.run(queues.system(1, load=load, rule=Rule.SHARES), times)
    np.testing.assert_allclose(result.queries["finish"], ends, rtol=0, atol=1e-6)


def test_a_tree_of_stages_with_fan_out_and_transfer(queues: Any) -> None:
    """A query becomes one or two jobs (1.4 on average) of a second stage, each behind its own server, 3 ms away."""
    times, hop, mean_fan = poisson(1500, 12.0), 3.0, 1.4
    env = simpy.Environment()
    first = simpy.Resource(env, capacity=1)
    second = [simpy.Resource(env, capacity=1) for _ in range(3)]
    ends, turn = np.zeros(len(times)), [0]

    def job(query: int, serial: int, server: Any) -> Generator[Any, Any, None]:
        yield env.timeout(hop)
        with server.request() as place:
            yield place
            yield env.timeout(service_ms(9.0, query, serial))

    def ask(query: int) -> Generator[Any, Any, None]:
        yield env.timeout(times[query] + hop - env.now)
        with first.request() as place:
            yield place
            yield env.timeout(service_ms(6.0, query, 0))
        with np.errstate(over="ignore"):
            more = draw_uniform(SEED, query, 0, FANOUT + 16) < mean_fan - 1.0
        children = []
        for serial in range(1, 3 if more else 2):
            children.append(env.process(job(query, serial, second[turn[0] % 3])))
            turn[0] += 1
        yield simpy.AllOf(env, children)
        ends[query] = env.now

    for query in range(len(times)):
        env.process(ask(query))
    env.run()
    loads = {
        name: Load(name, {"ask": Service(np.array([[mean]]))}, stages=(name,))
        for name, mean in (("a", 6.0), ("b", 9.0))
    }
    system = System(
        apps=(App("ask", (Stage("a", (Edge("b", mean_fan),)), Stage("b")), slo_ms=100.0, hop_ms=hop),),
        groups=(Group("ga", (loads["a"],)), Group("gb", (loads["b"],), count=3)),
        routes=(
            Route("ask", "a", (Way("ga", "a"),)),
            Route("ask", "b", (Way("gb", "b", inner=Inner.ROUND_ROBIN),)),
        ),
    )
    result = Simulation(system, [Stream("ask", times)], noise=Noise.EXPONENTIAL, seed=SEED).run()
    np.testing.assert_allclose(result.queries["finish"], ends, rtol=0, atol=1e-7)


def test_shortest_queue_among_unlike_workers(queues: Any) -> None:
    """Two fast workers and a slow one; ties go on in turn from the one after the last start of a search."""
    times = poisson(2500, 4.0)
    means = [8.0, 8.0, 20.0]
    env = simpy.Environment()
    servers = [simpy.Resource(env, capacity=1) for _ in means]
    inside, ends, start = [0] * 3, np.zeros(len(times)), [0]

    def ask(query: int) -> Generator[Any, Any, None]:
        yield env.timeout(times[query] - env.now)
        order = [(start[0] + step) % 3 for step in range(3)]
        start[0] = (start[0] + 1) % 3
        place = min(order, key=lambda number: inside[number])
        inside[place] += 1
        with servers[place].request() as turn:
            yield turn
            yield env.timeout(service_ms(means[place], query))
        inside[place] -= 1
        ends[query] = env.now

    for query in range(len(times)):
        env.process(ask(query))
    env.run()
    fast, slow = queues.load(8.0), queues.load(20.0)
    base = queues.system(1)
    system = System(
        base.apps,
        (Group("fast", (fast,), count=2), Group("slow", (slow,))),
        (Route("ask", "only", (Way("fast", "serve"), Way("slow", "serve")), rule=Rule.SHORTEST),),
    )
    result = queues.run(system, times, noise=Noise.EXPONENTIAL, seed=SEED)
    np.testing.assert_allclose(result.queries["finish"], ends, rtol=0, atol=1e-7)


def test_a_worker_that_breaks_and_comes_back(queues: Any) -> None:
    """At 400 ms the only worker breaks; what it served starts again with all else at 900 ms."""
    times = poisson(60, 20.0)
    env = simpy.Environment()
    ends = np.zeros(len(times))
    server = simpy.PreemptiveResource(env, capacity=1)

    def ask(query: int) -> Generator[Any, Any, None]:
        yield env.timeout(times[query] - env.now)
        while True:
            with server.request(priority=query + 1) as turn:
                yield turn
                try:
                    yield env.timeout(15.0)
                except simpy.Interrupt:
                    continue
                break
        ends[query] = env.now

    def breaks() -> Generator[Any, Any, None]:
        yield env.timeout(400.0)
        with server.request(priority=0) as turn:
            yield turn
            yield env.timeout(500.0)

    for query in range(len(times)):
        env.process(ask(query))
    env.process(breaks())
    env.run()
    run = Simulation(queues.system(1, load=queues.load(15.0), rule=Rule.SHARES), [Stream("ask", times)])
    run.at(400.0, lambda: run.fail("gpu", 0))
    run.at(900.0, lambda: run.recover("gpu", 0))
    finish = run.run().queries["finish"]
    # The interrupted query goes behind those that waited: only the order among them differs from simpy's priorities.
    np.testing.assert_allclose(np.sort(finish), np.sort(ends), rtol=0, atol=1e-7)
