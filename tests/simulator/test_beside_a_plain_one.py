"""Plans of pipelines in a second simulator, which reads plan, profile and wish by itself: as many queries are late.

It shares no code with hetplan: heaps and lists over the documents, with the random numbers of the standard library.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import hetplan as hp
from benchmarks.kept_pipelines import pipeline

Json = dict[str, Any]
Path = tuple[str, ...]
Job = tuple[int, Path]
"""Which query, and the loads that it went through."""


@dataclass
class Group:
    """Alike machines of one load; each has a queue, and they take turns."""

    node: str
    variant: str
    most: int
    table: Json
    queues: list[list[Job]]
    busy: list[bool] = field(default_factory=list)
    turn: int = 0

    def mean_ms(self, size: int) -> float:
        return float(np.interp(size, self.table["axes"]["batch"], self.table["mean"]))

    def drawn_ms(self, size: int, chance: random.Random) -> float:
        mean = self.mean_ms(size)
        spread = math.log(1.0 + (np.interp(size, self.table["axes"]["batch"], self.table["std"]) / mean) ** 2)
        return chance.lognormvariate(math.log(mean) - spread / 2.0, math.sqrt(spread))


def late_share(plan: Json, profile: Json, slo: Json, queries: int, chance: random.Random) -> float:
    """The share of Poisson queries that are late or dropped."""
    app = slo["apps"]["x"]
    steps, limit, drops = profile["pipelines"]["p"], app["latency"]["p99_ms"], app["late"] == "drop-last-task"
    after = {node: [edge for edge in steps["edges"] if edge["from"] == node] for node in steps["nodes"]}
    (first,) = steps["nodes"].keys() - {edge["to"] for edge in steps["edges"]}
    groups = {}
    for worker in plan["workers"]:
        (load,) = worker["loads"]
        runs = profile["variants"][load["variant"]]["runs"]
        (table,) = [profile["tables"][run["latency"]] for run in runs if run["hardware"] == worker["hardware"]]
        count, most = worker["count"], load["serve"]["max_batch"]
        queues: list[list[Job]] = [[] for _ in range(count)]
        groups[load["id"]] = Group(load["node"], load["variant"], most, table, queues, [False] * count)
    events: list[tuple[float, int, Any]] = []
    order = itertools.count()

    def come(at: float, query: int, node: str, path: Path) -> None:
        """A job comes to a group of its step, by the shares of the route of its path."""
        asked = [route for route in plan["routing"]["x"] if route["node"] == node]
        found = [route for route in asked if tuple(route["prefix"]) == path]
        found += [route for route in asked if path and tuple(route["prefix"]) == path[-1:]]
        found += [route for route in asked if not route["prefix"]]
        loads, shares = zip(*found[0]["to"].items(), strict=True)
        (name,) = chance.choices(loads, shares)
        group = groups[name]
        machine, group.turn = group.turn, (group.turn + 1) % len(group.queues)
        group.queues[machine].append((query, path))
        serve(at, name, machine)

    def serve(at: float, name: str, machine: int) -> None:
        """A free machine takes what waits, up to a full batch; a rule may drop what cannot end in time."""
        group = groups[name]
        queue = group.queues[machine]
        while queue and not group.busy[machine]:
            batch: list[Job] = []
            while queue and len(batch) < group.most:
                query, path = queue.pop(0)
                if drops and not after[group.node] and at + group.mean_ms(len(batch) + 1) > begun[query] + limit:
                    late.add(query)
                else:
                    batch.append((query, path))
            if batch:
                group.busy[machine] = True
                done = at + group.drawn_ms(len(batch), chance)
                heapq.heappush(events, (done, next(order), (name, machine, batch)))

    begun = np.cumsum([chance.expovariate(app["rate_qps"] / 1000.0) for _ in range(queries)]).tolist()
    late = set[int]()
    for query, at in enumerate(begun):
        heapq.heappush(events, (at, next(order), query))
    while events:
        at, _, what = heapq.heappop(events)
        if isinstance(what, int):
            come(at, what, first, ())
            continue
        name, machine, batch = what
        group = groups[name]
        group.busy[machine] = False
        for query, path in batch:
            if at > begun[query] + limit:
                late.add(query)
            for edge in after[group.node]:
                mean = edge["fanout"][group.variant]
                for _ in range(int(mean) + (chance.random() < mean % 1.0)):
                    come(at, query, edge["to"], (*path, name))
        serve(at, name, machine)
    return len(late) / queries


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (5, 6, 9, 14))])
def test_as_many_queries_are_late(seed: int) -> None:
    profile, slo = pipeline(seed)
    app = slo["apps"]["x"]
    app["late"] = "serve" if app["late"] == "reroute" else app["late"]
    app["arrivals"] = {"process": "poisson"}
    plan = hp.solve(profile, slo, options={"sizing": "fluid"}).require()
    queries = 20_000
    seconds = queries / app["rate_qps"]
    report: Any = hp.simulate(plan, profile, slo, seeds=3, duration_s=seconds)
    ours = report.apps["x"].figures["violations"].value
    document = plan.model_dump(mode="json", by_alias=True)
    plain = np.mean([late_share(document, profile, slo, queries, random.Random(run)) for run in range(3)])
    assert plain > 0.002, "a case that shows something"
    assert ours == pytest.approx(plain, rel=0.2, abs=0.001)
