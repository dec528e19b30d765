"""How fast the pool's dispatch and its simulation are.

    python benchmarks/dispatch.py [--data DIR] [--json] [--quick]

Rates are queries simulated per second at 90% of the rate that the rule allows, simpy beside them on the same queries,
and the cost of one matching by size beside scipy on the same costs. Times are processor times, the median of five.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from hetplan.compiled import is_compiled
from hetplan.dispatch.matching import Matching, weights
from hetplan.dispatch.queue_rules import Threshold
from hetplan.dispatch.snapshot import Snapshot
from hetplan.simulator.pool import Conditions, Draws, Pool, Queries, default_rule, replay
from hetplan.simulator.pool_allowable import allowable_rate

DATA = Path(os.environ.get("HETPLAN_DATA", Path(__file__).resolve().parents[1] / ".." / "shared" / "data"))
POOLS = ((4, 0, 0, 0), (1, 0, 13, 0), (2, 0, 27, 0), (3, 0, 56, 0), (6, 0, 113, 0))
RULES = ("kairos", "drs", "clkwrk", "fcfs")


def cpu_s(work: Callable[[], Any], repeats: int = 5) -> float:
    """Processor time of one call, the median of some."""
    work()
    taken = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        taken.append(time.process_time() - start)
    return max(statistics.median(taken), 1e-9)


def service(folder: Path) -> tuple[list[list[float]], list[float], list[float], float]:
    """Latencies by type and bin, sizes, pmf and target of the published service rm2, else made-up ones."""
    if (folder / "kairos_latency.json").exists():
        instance = json.loads((folder / "kairos_instance.json").read_text())
        latency = json.loads((folder / "kairos_latency.json").read_text())["rm2"]
        pmf = json.loads((folder / "batch_size_pmf.json").read_text())["kairos"]
        return [latency[name]["mean_ms"] for name in instance["types"]], pmf["batch"], pmf["pmf"], 350.0
    sizes = np.arange(10.0, 1001.0, 10.0)
    pmf = np.exp(-(((np.log(sizes) - 5.3) / 0.6) ** 2) / 2) / sizes
    rows = [8 + 0.19 * sizes, 12 + 0.5 * sizes, 10 + 1.15 * sizes, 12 + 1.6 * sizes]
    return [row.tolist() for row in rows], sizes.tolist(), (pmf / pmf.sum()).tolist(), 350.0


def rules(pool: Pool, pmf: list[float], quick: bool) -> Iterator[dict[str, Any]]:
    """Queries per second of each rule at 90% of its allowable rate, and what finding that rate took."""
    least = 5_000 if quick else 20_000
    allowable_rate(pool, pmf=pmf, seeds=(0,), least_queries=200)
    for name in RULES:
        start = time.process_time()
        found = allowable_rate(pool, pmf=pmf, rule=name, least_queries=least)
        search_s = time.process_time() - start
        rule = Threshold(found.threshold) if found.threshold is not None else default_rule(name, pool)
        count = 50_000 if quick else 500_000
        queries = Draws(pmf, seed=9).queries(pool, rate_qps=0.9 * found.median, count=count)
        yield {
            "rule": name,
            "allowable_qps": found.median,
            "search_s": search_s,
            "evaluations": found.evaluations,
            "queries_per_s": count / cpu_s(lambda rule=rule, queries=queries: replay(pool, queries, rule)),
        }


def with_simpy(pool: Pool, queries: Queries) -> list[float]:
    """First come, first served in simpy, each query a process."""
    import simpy

    environment, response = simpy.Environment(), [0.0] * queries.bins.size
    idle = simpy.PriorityStore(environment)
    for place, kind in enumerate(np.repeat(np.arange(len(pool.counts)), pool.counts).tolist()):
        idle.put(simpy.PriorityItem(place, kind))
    service_ms, bins, arrivals = pool.latency_ms.tolist(), queries.bins.tolist(), queries.arrival_ms.tolist()

    def query(number: int) -> Iterator[Any]:
        instance = yield idle.get()
        yield environment.timeout(service_ms[instance.item][bins[number]])
        response[number] = environment.now - arrivals[number]
        idle.put(instance)

    def source() -> Iterator[Any]:
        for number, arrival in enumerate(arrivals):
            yield environment.timeout(arrival - environment.now)
            environment.process(query(number))

    environment.process(source())
    environment.run()
    return response


def beside_simpy(pool: Pool, pmf: list[float], quick: bool) -> dict[str, Any]:
    """The same first-come-first-served run, ours and simpy's; their answers must agree."""
    queries = Draws(pmf, seed=1).queries(pool, rate_qps=60.0, count=2_000 if quick else 20_000)
    same = np.allclose(replay(pool, queries, "fcfs").response_ms, with_simpy(pool, queries), rtol=1e-9)
    theirs = queries.bins.size / cpu_s(lambda: with_simpy(pool, queries), 3)
    long = Draws(pmf, seed=1).queries(pool, rate_qps=60.0, count=20_000 if quick else 1_000_000)
    ours = long.bins.size / cpu_s(lambda: replay(pool, long, "fcfs"))
    return {
        "answers_agree": bool(same),
        "ours_queries_per_s": ours,
        "simpy_queries_per_s": theirs,
        "ratio": ours / theirs,
    }


def snapshot(pool: Pool, pmf: list[float], waiting: int, idle: int, seed: int) -> Snapshot:
    """Queries that wait at a pool of which `idle` instances are free."""
    rng = np.random.default_rng(seed)
    kind = np.repeat(np.arange(len(pool.counts)), pool.counts)
    busy = rng.uniform(1, 0.7 * pool.qos_ms, kind.size)
    busy[rng.choice(kind.size, idle, replace=False)] = 0.0
    return Snapshot.of(
        waited_ms=np.sort(rng.uniform(0, 0.8 * pool.qos_ms, waiting))[::-1],
        service_ms=pool.latency_ms[:, rng.choice(len(pmf), p=np.asarray(pmf) / sum(pmf), size=waiting)].T,
        kind=kind,
        busy_ms=busy,
    )


def matchings(latency: list[list[float]], pmf: list[float], qos_ms: float, quick: bool) -> Iterator[dict[str, Any]]:
    """Microseconds per matching by size, alike instances merged or not, and scipy on the same costs."""
    from scipy.optimize import linear_sum_assignment

    sizes = [((1, 0, 13, 0), 28, 1), ((1, 0, 13, 0), 5, 3), ((6, 0, 110, 0), 232, 1), ((6, 0, 110, 0), 20, 40)]
    for counts, waiting, idle in sizes:
        pool = Pool.of(latency, counts, qos_ms)
        moments = [snapshot(pool, pmf, waiting, idle, seed) for seed in range(3 if quick else 20)]
        row: dict[str, Any] = {"instances": sum(counts), "waiting": waiting, "idle": idle}
        for merge in (True, False):
            rule = Matching(slo_ms=qos_ms, weight=weights(pool.latency_ms), merge=merge)
            calls = [prepared(rule, moment) for moment in moments]
            each = cpu_s(lambda calls=calls: [call() for call in calls]) / len(calls)
            row["merged_us" if merge else "unmerged_us"] = 1e6 * each
        deciding = cpu_s(lambda rule=rule, moments=moments: [rule.decide(m) for m in moments])
        row["decision_us"] = 1e6 * deciding / len(moments)
        costs = [rule.cost(moment) for moment in moments]
        row["scipy_us"] = 1e6 * cpu_s(lambda costs=costs: [linear_sum_assignment(cost) for cost in costs]) / len(costs)
        yield row


def prepared(rule: Matching, moment: Snapshot) -> Callable[[], None]:
    """A call that matches one moment without the conversions around it."""
    from hetplan.dispatch.matching_kernels import IDLE, Seen, match, scratch

    kind, count = moment.kind, moment.waited_ms.size
    first = np.searchsorted(kind, np.arange(moment.service_ms.shape[1] + 1)).astype(np.int64)
    order, mates = np.arange(count, dtype=np.int64), np.full(count, -1, dtype=np.int64)
    costs = (np.asarray(rule.weight), rule.late_cost(), rule.limit_ms, rule.merges)
    service, ends = np.ascontiguousarray(moment.service_ms), np.where(moment.idle, IDLE, moment.busy_ms)
    seen = Seen(0.0, order, count, -moment.waited_ms, order, service, first, kind, ends)
    room = scratch(kind.size, count)
    return lambda: match(seen, costs, mates, room)


def growth(latency: list[list[float]], pmf: list[float], qos_ms: float, quick: bool) -> Iterator[dict[str, Any]]:
    """Queries per second by pool size and by number of queries, at 90% of the allowable rate."""
    for counts in POOLS[: 3 if quick else None]:
        pool = Pool.of(latency, counts, qos_ms)
        conditions = Conditions()
        top = allowable_rate(pool, pmf=pmf, seeds=(0,), least_queries=5_000 if quick else 20_000, conditions=conditions)
        for rule in ("kairos", "clkwrk", "fcfs"):
            for count in (10_000, 100_000) if quick else (10_000, 100_000, 1_000_000):
                if rule == "kairos" and count * sum(counts) > 20_000_000:
                    continue
                queries = Draws(pmf, seed=2).queries(pool, rate_qps=0.9 * top.median, count=count)
                taken = cpu_s(lambda pool=pool, queries=queries, rule=rule: replay(pool, queries, rule), 3)
                yield {"instances": sum(counts), "rule": rule, "queries": count, "queries_per_s": count / taken}


def table(title: str, rows: list[dict[str, Any]]) -> None:
    print(f"\n{title}")
    names = list(rows[0])
    cells = [names] + [
        [
            f"{v:,.3g}" if isinstance(v, float) and v < 100 else f"{v:,.0f}" if isinstance(v, float) else str(v)
            for v in row.values()
        ]
        for row in rows
    ]
    wide = [max(len(line[column]) for line in cells) for column in range(len(names))]
    for line in cells:
        print("  ".join(cell.rjust(width) for cell, width in zip(line, wide, strict=True)))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    latency, sizes, pmf, qos_ms = service(given.data / "kairos")
    pool = Pool.of(latency, (1, 0, 13, 0), qos_ms, sizes=sizes)
    report: dict[str, Any] = {
        "compiled": is_compiled(),
        "rules": list(rules(pool, pmf, given.quick)),
        "beside_simpy": beside_simpy(pool, pmf, given.quick),
        "matchings": list(matchings(latency, pmf, qos_ms, given.quick)),
        "growth": list(growth(latency, pmf, qos_ms, given.quick)),
    }
    if given.json:
        print(json.dumps(report, indent=1))
    else:
        table("Rules on 14 instances at 90% of their allowable rate (three seeds to find it)", report["rules"])
        table("First come, first served, beside simpy", [report["beside_simpy"]])
        table("One matching, microseconds", report["matchings"])
        table("Growth", report["growth"])
    return 0 if report["beside_simpy"]["answers_agree"] else 1


if __name__ == "__main__":
    sys.exit(main())
