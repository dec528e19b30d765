"""How fast the simulator is, with simpy on the same work in the same run; and how it grows with workers and queries.

    python benchmarks/simulator.py [--json] [--queries N]

CPU time, median of five. An event is an arrival or the end of a batch, counted alike for both. simpy plays the same
arrivals and service times, one process per query, as its manual does; the mean responses of both are compared.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Generator
from typing import Any

import numpy as np
import simpy

from hetplan.compiled import is_compiled, kernel
from hetplan.dispatch.matching import Matching
from hetplan.serving.system import (
    App,
    Edge,
    Group,
    Inner,
    Load,
    Noise,
    Pull,
    Route,
    Rule,
    Service,
    Stage,
    System,
    Way,
)
from hetplan.simulator.draw_kernels import SERVICE, draw_exponential
from hetplan.simulator.simulation import Simulation, Stream

SERVICE_MS, LOAD = 10.0, 0.8
REPEATS = 5
draw = kernel(draw_exponential)
Row = dict[str, Any]


def cpu_s(work: Callable[[], Any], repeats: int = REPEATS) -> tuple[float, Any]:
    """Median CPU seconds, and what the work returned."""
    spent, last = [], None
    for _ in range(repeats):
        start = time.process_time()
        last = work()
        spent.append(time.process_time() - start)
    return statistics.median(spent), last


def poisson_ms(workers: int, queries: int) -> np.ndarray[Any, Any]:
    return np.cumsum(np.random.default_rng(1).exponential(SERVICE_MS / (LOAD * workers), queries))


def queue(workers: int, rule: Rule, **route: Any) -> System:
    load = Load("serve", {"ask": Service(np.array([[SERVICE_MS]]))})
    return System(
        (App("ask", (Stage("only"),), slo_ms=100.0),),
        (Group("gpu", (load,), count=workers),),
        (Route("ask", "only", (Way("gpu", "serve", **route),), rule=rule),),
    )


def tree(workers: int) -> System:
    """A detector, 1.5 classifications per query in batches of up to eight, and a third stage."""
    batches = Service((4.0 + 2.0 * np.arange(1, 9))[None, :])
    loads = {
        "a": Load("a", {"ask": Service(np.array([[SERVICE_MS]]))}, stages=("a",)),
        "b": Load("b", {"ask": batches}, stages=("b",)),
        "c": Load("c", {"ask": batches}, stages=("c",)),
    }
    stages = (Stage("a", (Edge("b", 1.5),)), Stage("b", (Edge("c"),)), Stage("c"))
    return System(
        (App("ask", stages, slo_ms=100.0, hop_ms=1.0),),
        tuple(
            Group(name, (load,), count=workers if name == "a" else max(1, workers // 2)) for name, load in loads.items()
        ),
        tuple(Route("ask", name, (Way(name, name, inner=Inner.ROUND_ROBIN),)) for name in loads),
    )


def matching_pool(instances: int) -> tuple[System, float]:
    """Small and large queries (10/40 ms, or 20/200 ms) on a quarter base and three quarters auxiliary instances."""
    base, aux = max(1, instances // 4), instances - max(1, instances // 4)
    rule = Matching(slo_ms=100.0, weight=(1.0, 0.2))
    late = rule.late_cost()
    groups = tuple(
        Group(name, (Load("m", {"ask": Service(np.array([[small], [large]]))}),), count=count)
        for name, small, large, count in (("base", 10.0, 40.0, base), ("aux", 20.0, 200.0, aux))
    )
    ways = (Way("base", "m", weight=1.0, late_cost=late[0]), Way("aux", "m", weight=0.2, late_cost=late[1]))
    route = Route("ask", "only", ways, Rule.CENTRAL, Pull.MATCHING, limit_ms=rule.limit_ms, merge=rule.merges)
    # With small queries kept from the base where they can be: 0.25 x 40 ms on the base, 0.75 x 20 ms on the others.
    rate_per_ms = 0.8 * min(base / (0.25 * 40.0), aux / (0.75 * 20.0))
    return System((App("ask", (Stage("only"),), slo_ms=100.0, kinds=2),), groups, (route,)), rate_per_ms


def run(system: System, times: Any, *, noise: Noise = Noise.EXPONENTIAL, kinds: Any = None) -> tuple[int, float]:
    result = Simulation(system, [Stream("ask", times, kinds)], noise=noise).run()
    return result.events, float(np.nanmean(result.queries["finish"] - result.queries["arrival"]))


def simpy_queue(workers: int, times: Any) -> float:
    """The same queue in simpy, with the engine's own service times; the mean response."""
    env = simpy.Environment()
    servers = simpy.Resource(env, capacity=workers)
    took = [SERVICE_MS * draw(0, query, 0, SERVICE) for query in range(len(times))]
    total = [0.0]

    def ask(query: int) -> Generator[Any, Any, None]:
        came = env.now
        with servers.request() as turn:
            yield turn
            yield env.timeout(took[query])
        total[0] += env.now - came

    def arrive() -> Generator[Any, Any, None]:
        for query, when in enumerate(times):
            yield env.timeout(when - env.now)
            env.process(ask(query))

    env.process(arrive())
    env.run()
    return total[0] / len(times)


def against_simpy(queries: int) -> list[Row]:
    rows = []
    for workers in (1, 16, 100):
        times = poisson_ms(workers, queries)
        ours, (events, mean) = cpu_s(lambda w=workers, t=times: run(queue(w, Rule.CENTRAL), t))
        theirs, mean_there = cpu_s(lambda w=workers, t=times: simpy_queue(w, t), repeats=3)
        rows.append(
            {
                "case": f"one queue, {workers} workers",
                "queries": queries,
                "ours_s": ours,
                "simpy_s": theirs,
                "events_per_s": events / ours,
                "simpy_events_per_s": events / theirs,
                "ratio": theirs / ours,
                "same_mean": bool(abs(mean - mean_there) < 1e-6 * mean),
            }
        )
    return rows


def growth(queries: int) -> list[Row]:
    rows = []
    cases: list[tuple[str, Callable[[int], System]]] = [
        ("one queue", lambda workers: queue(workers, Rule.CENTRAL)),
        ("random shares", lambda workers: queue(workers, Rule.SHARES, inner=Inner.RANDOM)),
        ("shortest queue", lambda workers: queue(workers, Rule.SHORTEST)),
        ("tree of three stages", tree),
    ]
    for name, make in cases:
        for workers in (1, 10, 100, 1000):
            times = poisson_ms(workers, queries)
            spent, (events, _) = cpu_s(lambda make=make, w=workers, t=times: run(make(w), t), repeats=3)
            rows.append({"case": name, "workers": workers, "queries": queries, "cpu_s": spent,
                         "events_per_s": events / spent, "queries_per_s": queries / spent})  # fmt: skip
    for instances in (4, 16, 64):
        system, rate = matching_pool(instances)
        count = min(queries, 100_000)
        rng = np.random.default_rng(2)
        times = np.cumsum(rng.exponential(1.0 / rate, count))
        kinds = (rng.random(count) < 0.25).astype(np.int32)
        spent, (events, _) = cpu_s(lambda s=system, t=times, k=kinds: run(s, t, noise=Noise.MEAN, kinds=k), repeats=3)
        rows.append({"case": "matching", "workers": instances, "queries": count, "cpu_s": spent,
                     "events_per_s": events / spent, "queries_per_s": count / spent})  # fmt: skip
    for more in (queries // 10, queries, 4 * queries):
        times = poisson_ms(16, more)
        spent, (events, _) = cpu_s(lambda t=times: run(queue(16, Rule.CENTRAL), t), repeats=3)
        rows.append({"case": "one queue, 16 workers", "workers": 16, "queries": more, "cpu_s": spent,
                     "events_per_s": events / spent, "queries_per_s": more / spent})  # fmt: skip
    return rows


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--json", action="store_true", help="one JSON object instead of tables")
    arguments.add_argument("--queries", type=int, default=200_000)
    given = arguments.parse_args()
    start = time.process_time()
    run(queue(2, Rule.CENTRAL), poisson_ms(2, 100))
    run(tree(2), poisson_ms(2, 100))
    first_s = time.process_time() - start
    report = {"compiled": is_compiled(), "first_call_s": first_s, "simpy": against_simpy(min(given.queries, 100_000)),
              "growth": growth(given.queries)}  # fmt: skip
    if given.json:
        print(json.dumps(report))
        return 0
    print(f"first call (compiled code loaded, or made where there is none): {first_s:.2f} s CPU\n")
    print(
        f"{'against simpy':<26}{'queries':>9}{'ours s':>9}{'simpy s':>9}{'ours ev/s':>12}{'simpy ev/s':>12}{'ratio':>8}"
    )
    for row in report["simpy"]:
        print(f"{row['case']:<26}{row['queries']:>9}{row['ours_s']:>9.3f}{row['simpy_s']:>9.3f}"
              f"{row['events_per_s']:>12,.0f}{row['simpy_events_per_s']:>12,.0f}{row['ratio']:>8.0f}"
              f"{'' if row['same_mean'] else '  MEANS DIFFER'}")  # fmt: skip
    print(f"\n{'growth':<26}{'workers':>9}{'queries':>9}{'CPU s':>9}{'events/s':>12}{'queries/s':>12}")
    for row in report["growth"]:
        print(f"{row['case']:<26}{row['workers']:>9}{row['queries']:>9}{row['cpu_s']:>9.3f}"
              f"{row['events_per_s']:>12,.0f}{row['queries_per_s']:>12,.0f}")  # fmt: skip
    return 0 if all(row["same_mean"] for row in report["simpy"]) else 1


if __name__ == "__main__":
    sys.exit(main())
