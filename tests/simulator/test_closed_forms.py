"""Queues whose answer is known: simulated means lie within four standard errors of the formula."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from hetplan.profiles.slo import Arrivals
from hetplan.serving.system import App, Edge, Group, Load, Noise, Route, Rule, Service, Stage, System, Way
from hetplan.simulator.demand import arrival_times, seeded
from hetplan.simulator.simulation import Simulation, Stream

QUERIES = 200_000
SERVICE_MS = 10.0


def erlang_b(servers: int, offered: float) -> float:
    blocked = 1.0
    for n in range(1, servers + 1):
        blocked = offered * blocked / (n + offered * blocked)
    return blocked


def erlang_c(servers: int, offered: float) -> float:
    blocked = erlang_b(servers, offered)
    return servers * blocked / (servers - offered * (1.0 - blocked))


def assert_mean(values: np.ndarray[Any, Any], expected: float, *, batches: int = 50) -> None:
    """Batch means see the correlation between neighbouring queries, which a plain standard error would miss."""
    kept = values[len(values) // 20 :]
    means = np.array([part.mean() for part in np.array_split(kept, batches)])
    error = means.std(ddof=1) / math.sqrt(batches)
    assert abs(means.mean() - expected) < 4.0 * error + 1e-9, (means.mean(), expected, error)
    assert error < 0.05 * expected, "too noisy to say anything"


@pytest.mark.parametrize("load", [0.3, 0.7, 0.85])
def test_one_exponential_server(queues: Any, load: float) -> None:
    times = queues.poisson_ms(load / SERVICE_MS, QUERIES)
    result = queues.run(queues.system(1), times, noise=Noise.EXPONENTIAL)
    assert_mean(queues.response_ms(result), SERVICE_MS / (1.0 - load))


def test_response_of_one_exponential_server_is_exponential(queues: Any) -> None:
    times = queues.poisson_ms(0.6 / SERVICE_MS, QUERIES)
    response = queues.response_ms(queues.run(queues.system(1), times, noise=Noise.EXPONENTIAL))
    mean = SERVICE_MS / 0.4
    for percentile in (50, 90, 99):
        assert np.percentile(response, percentile) == pytest.approx(-mean * math.log(1 - percentile / 100), rel=0.04)


@pytest.mark.parametrize(("servers", "load"), [(2, 0.8), (5, 0.9), (30, 0.9)])
@pytest.mark.parametrize("shape", ["workers", "concurrency"])
def test_several_exponential_servers(queues: Any, servers: int, load: float, shape: str) -> None:
    offered = servers * load
    times = queues.poisson_ms(offered / SERVICE_MS, QUERIES)
    system = queues.system(servers)
    if shape == "concurrency":
        system = System(
            system.apps,
            (Group("gpu", system.groups[0].loads, servers=servers),),
            (Route("ask", "only", (Way("gpu", "serve"),)),),
        )
    result = queues.run(system, times, noise=Noise.EXPONENTIAL)
    wait = erlang_c(servers, offered) * SERVICE_MS / (servers - offered)
    assert_mean(queues.response_ms(result), SERVICE_MS + wait)


@pytest.mark.parametrize("load", [0.5, 0.8])
def test_one_deterministic_server(queues: Any, load: float) -> None:
    result = queues.run(queues.system(1), queues.poisson_ms(load / SERVICE_MS, QUERIES))
    assert_mean(queues.response_ms(result), SERVICE_MS + load * SERVICE_MS / (2.0 * (1.0 - load)))


@pytest.mark.parametrize("variation", [0.5, 1.2])
def test_one_general_server_obeys_pollaczek_khinchine(queues: Any, variation: float) -> None:
    load = 0.6
    system = queues.system(1, load=queues.load(SERVICE_MS, variation * SERVICE_MS))
    result = queues.run(system, queues.poisson_ms(load / SERVICE_MS, 2 * QUERIES), noise=Noise.LOGNORMAL)
    wait = load * SERVICE_MS * (1.0 + variation**2) / (2.0 * (1.0 - load))
    assert_mean(queues.response_ms(result), SERVICE_MS + wait)


def test_two_classes_obey_pollaczek_khinchine(queues: Any) -> None:
    rng = np.random.default_rng(3)
    kinds = (rng.random(QUERIES) < 0.25).astype(np.int32)
    means = np.array([4.0, 30.0])
    mean, square = means @ [0.75, 0.25], means**2 @ [0.75, 0.25]
    rate = 0.7 / mean
    system = queues.system(1, load=queues.load([[4.0], [30.0]]))
    result = queues.run(system, queues.poisson_ms(rate, QUERIES), kinds=kinds)
    assert_mean(queues.response_ms(result), mean + rate * square / (2.0 * (1.0 - 0.7)))


@pytest.mark.parametrize(("servers", "offered"), [(1, 0.8), (5, 4.0), (20, 22.0)])
def test_queries_lost_where_none_may_wait(queues: Any, servers: int, offered: float) -> None:
    """Erlang's loss formula; the law of the service time does not matter to it."""
    for noise in (Noise.MEAN, Noise.EXPONENTIAL):
        base = queues.system(1, load=queues.load(room=servers))
        group = Group("gpu", base.groups[0].loads, servers=servers)
        system = System(base.apps, (group,), (Route("ask", "only", (Way("gpu", "serve"),)),))
        result = queues.run(system, queues.poisson_ms(offered / SERVICE_MS, QUERIES), noise=noise)
        assert_mean((result.queries["status"] == 3).astype(float), erlang_b(servers, offered))


def test_two_exponential_servers_in_a_row(queues: Any) -> None:
    """Burke: the output of an exponential queue is Poisson, so the second behaves as if it were alone."""
    stages = (Stage("a", (Edge("b"),)), Stage("b"))
    first, second = (Load(name, {"ask": Service(np.array([[mean]]))}) for name, mean in (("a", 10.0), ("b", 6.0)))
    system = System(
        apps=(App("ask", stages, slo_ms=100.0),),
        groups=(Group("ga", (first,)), Group("gb", (second,))),
        routes=(Route("ask", "a", (Way("ga", "a"),)), Route("ask", "b", (Way("gb", "b"),))),
    )
    result = queues.run(system, queues.poisson_ms(0.07, QUERIES), noise=Noise.EXPONENTIAL)
    assert_mean(queues.response_ms(result), 1 / (1 / 10 - 0.07) + 1 / (1 / 6 - 0.07))


def test_random_split_gives_independent_queues(queues: Any) -> None:
    from hetplan.serving.system import Inner

    base = queues.system(4)
    ways = (Way("gpu", "serve", inner=Inner.RANDOM),)
    system = System(base.apps, base.groups, (Route("ask", "only", ways),))
    result = queues.run(system, queues.poisson_ms(4 * 0.7 / SERVICE_MS, QUERIES), noise=Noise.EXPONENTIAL)
    assert_mean(queues.response_ms(result), SERVICE_MS / 0.3)


def test_turns_make_gaps_erlang(queues: Any) -> None:
    """Round robin over two workers: each sees gaps of two exponential stages, Erlang-2/M/1: mean s / (1 - x) with x
    the root of x = ((2 r / (2 r + (1 - x))) ** 2), r the load."""
    load, root = 0.8, 0.5
    for _ in range(500):
        root = (2 * load / (2 * load + 1 - root)) ** 2
    system = queues.system(2, rule=Rule.ROUND_ROBIN)
    result = queues.run(system, queues.poisson_ms(2 * load / SERVICE_MS, QUERIES), noise=Noise.EXPONENTIAL)
    assert_mean(queues.response_ms(result), SERVICE_MS / (1 - root))


def test_batches_of_two_on_a_work_conserving_server(queues: Any) -> None:
    """Exponential batches of one or two, begun as soon as the server is free: the chain of (waiting, in service) solved
    as a linear system, the response by Little's law."""
    rate, mean = 0.12, 10.0
    mu = 1.0 / mean
    size = 400
    flow = np.zeros((2 * size, 2 * size))
    for waiting in range(size):
        for serving in (1, 2):
            state = 2 * waiting + serving - 1
            if waiting + 1 < size:
                flow[state, 2 * (waiting + 1) + serving - 1] += rate
            if waiting == 0:
                continue
            taken = min(2, waiting)
            flow[state, 2 * (waiting - taken) + taken - 1] += mu
    idle = np.zeros((2 * size + 1, 2 * size + 1))
    idle[1:, 1:] = flow
    idle[0, 1] = rate
    idle[1, 0] = idle[2, 0] = mu
    np.fill_diagonal(idle, 0.0)
    balance = (idle - np.diag(idle.sum(axis=1))).T
    balance[-1] = 1.0
    share = np.linalg.solve(balance, np.r_[np.zeros(2 * size), 1.0])
    inside = np.r_[0.0, [waiting + serving for waiting in range(size) for serving in (1, 2)]]
    expected = float(share @ inside) / rate
    system = queues.system(1, load=queues.load([[mean, mean]]))
    result = queues.run(system, queues.poisson_ms(rate, QUERIES), noise=Noise.EXPONENTIAL)
    assert_mean(queues.response_ms(result), expected)


def test_full_batches_without_patience_limit(queues: Any) -> None:
    """A batch of three waits until it is full: with ample servers the mean wait is one mean gap."""
    load = queues.load([[5.0, 5.0, 5.0]], max_wait_ms=1e9)
    base = queues.system(1, load=load)
    system = System(base.apps, (Group("gpu", (load,), servers=50),), (Route("ask", "only", (Way("gpu", "serve"),)),))
    result = queues.run(system, queues.poisson_ms(0.1, 3 * (QUERIES // 3)))
    assert_mean(queues.response_ms(result), 5.0 + 10.0)


def test_closed_loop_of_clients_is_a_machine_repair_model() -> None:
    """Five clients that think nothing in front of two exponential servers: both are always busy."""
    load = Load("serve", {"ask": Service(np.array([[10.0]]))})
    system = System(
        apps=(App("ask", (Stage("only"),), slo_ms=100.0, clients=5),),
        groups=(Group("gpu", (load,), count=2),),
        routes=(Route("ask", "only", (Way("gpu", "serve"),), rule=Rule.CENTRAL),),
    )
    result = Simulation(system, [Stream("ask", np.zeros(50_000))], noise=Noise.EXPONENTIAL).run()
    assert_mean(result.queries["finish"] - result.queries["arrival"], 5 * 10.0 / 2)


def test_smoother_and_burstier_arrivals_order_as_theory_says(queues: Any) -> None:
    """Kingman: the wait grows with the squared variation of the gaps (1 / shape)."""
    waits = []
    for shape in (4.0, 1.0, 0.4):
        gamma = Arrivals(process="gamma", shape=shape)
        times = arrival_times(gamma, rate_qps=80.0, duration_s=2000.0, random=seeded(5)) * 1000.0
        result = queues.run(queues.system(1), times, noise=Noise.EXPONENTIAL)
        waits.append(queues.response_ms(result).mean() - SERVICE_MS)
        bound = (1 / shape + 1.0) / 2.0 * 0.8 / 0.2 * SERVICE_MS
        assert waits[-1] == pytest.approx(bound, rel=0.2)
    assert waits == sorted(waits)
