"""One truth of routes: simulator and router send the same query the same way, and the verifier counts the same work.

Random trees with outcomes, fan-outs by variant, classes of queries, and routes that ask for the path, the class and
the outcomes of steps before. Each is walked twice: in the system that is played, and by the router's own steps and
choosers. On every path the same shares go to the same loads, and the same steps follow, with as many queries.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping
from itertools import accumulate
from types import SimpleNamespace
from typing import Any

import pytest
from cases.cascades import random_tree
from cases.documents import Json, read

from hetplan.executor.background import Background
from hetplan.executor.serving.choosers import ShareChooser
from hetplan.executor.serving.query_tree import QueryState, Steps, Task
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Plan
from hetplan.serving.demand import points_of
from hetplan.serving.planned_system import planned_systems
from hetplan.serving.system import Edge, Route, System
from hetplan.verifier.check import follow
from hetplan.verifier.plan_index import gather

TREES = 250
DRAWS = [(2 * k + 1) / 34 for k in range(17)]
SIZES = (1 / 3, 8.0)
Walked = dict[tuple[Any, ...], Any]


def tree_of(seed: int) -> Json:
    """A random tree with two classes of queries, fan-outs by variant, and routes of many kinds."""
    luck, (case, _) = random.Random(seed), random_tree(seed)
    pipeline = case["profile"]["pipelines"]["tree"]
    app, routes = case["slo"]["apps"]["x"], case["plan"]["routing"]["x"]
    app["mix"] = {"axes": ["size"], "bins": [[size] for size in SIZES], "share": [0.25, 0.75]}
    app["latency"] = {"p99_ms": luck.choice((50, 90))}
    case["plan"]["dispatch"]["x"]["late"] = luck.choice(("serve", "drop"))
    app["dispatch"] = luck.choice((None, "round-robin", "shortest-queue"))
    loads: dict[str, list[str]] = defaultdict(list)
    for worker in case["plan"]["workers"]:
        for load in worker["loads"]:
            loads[load["node"]].append(load["id"])
    parent = {edge["to"]: edge["from"] for edge in pipeline["edges"]}
    for edge in pipeline["edges"]:
        if luck.random() < 0.5:
            edge["fanout"] = {luck.choice(loads[edge["from"]]): 0.5, **luck.choice(({"*": 3.0}, {}))}
    seen = {str(_place(route)) for route in routes}
    for _ in range(luck.randint(0, 12)):
        node = luck.choice(list(loads))
        before = _before(node, parent)
        route: Json = {"node": node, "to": _shares(luck, loads[node])}
        if before and luck.random() < 0.7:
            some = before[: luck.randint(1, len(before))]
            route["prefix"] = [luck.choice(loads[step]) for step in reversed(some)]
        asked = [step for step in before if "outcomes" in pipeline["nodes"][step] and luck.random() < 0.5]
        if asked:
            route["after"] = {step: luck.choice(list(pipeline["nodes"][step]["outcomes"]["share"])) for step in asked}
        if luck.random() < 0.5:
            # A plan carries 12 digits of a size.
            route["when"] = {"size": float(f"{luck.choice(SIZES):.12g}")}
        if str(_place(route)) not in seen:
            seen.add(str(_place(route)))
            routes.insert(luck.randint(0, len(routes)), route)
    return case


def _before(node: str, parent: Mapping[str, str]) -> list[str]:
    """The steps that lead to one, the nearest first."""
    return [parent[node], *_before(parent[node], parent)] if node in parent else []


def _shares(luck: random.Random, loads: list[str]) -> dict[str, float]:
    parts = [luck.randint(1, 9) for _ in loads]
    return {load: part / sum(parts) for load, part in zip(loads, parts, strict=True)}


def _place(route: Json) -> tuple[Any, ...]:
    after = sorted(route.get("after", {}).items())
    return route["node"], route.get("prefix", []), after, route.get("when", {})


# Walked twice


def by_simulator(system: System) -> tuple[Walked, dict[str, float]]:
    """Which loads get which of the draws on every path, what follows, and the work of each load per query."""
    (app,) = system.apps
    stages = {stage.id: stage for stage in app.stages}
    held = {load.id: load for group in system.groups for load in group.loads}
    found: Walked = {"late": app.late.name, "deadline": app.slo_ms, "combine": app.combine.name}
    work: dict[str, float] = defaultdict(float)

    def route_of(stage: str, name: str, kind: int) -> Route:
        (route,) = (
            one
            for one in system.routes
            if (one.stage, one.name) == (stage, name) and (one.kinds is None or kind in one.kinds)
        )
        return route

    def walk(node: str, name: str, kind: int, path: tuple[str, ...], said: tuple[Any, ...], jobs: float) -> None:
        route, stage = route_of(node, name, kind), stages[node]
        upto = list(accumulate(way.share for way in route.ways))
        found["to", kind, path, said, node] = [
            next(way.load for way, top in zip(route.ways, upto, strict=True) if draw < top) for draw in DRAWS
        ]
        for way in route.ways:
            load = held[way.load]
            work[load.id] += jobs * way.share * float(load.services["x"].mean_ms[kind, 0]) / 1000.0
            for outcome in stage.outcomes or ("",):
                after = (*said, (node, outcome)) if outcome else said
                edges = stage.followed(outcome)
                sent = {edge.to: load.fanout[edge.to] for edge in edges}
                found["then", kind, (*path, load.id), after] = sent
                for edge in edges:
                    share = way.share * (load.outcomes[outcome] if outcome else 1.0) * sent[edge.to]
                    to = way.after(outcome).then.get(edge.to, "")
                    walk(edge.to, to, kind, (*path, load.id), after, jobs * share)

    for kind, share in enumerate((0.25, 0.75)):
        walk(app.entry, "", kind, (), (), share)
    return found, work


class _Drawn(random.Random):
    """Luck that is said beforehand."""

    value = 0.0

    def random(self) -> float:
        return self.value


def by_router(plan: Plan, inputs: Inputs) -> Walked:
    """The same from the table that the router is given, by its own steps and choosers."""
    text = Background(inputs.profile, inputs.slo).app(plan, "x")
    steps, luck = Steps(text["nodes"]), _Drawn()
    loads = {load.id: load for worker in plan.workers for load in worker.loads}
    lanes = {
        node: [SimpleNamespace(name=one.id, open=True) for one in loads.values() if one.node == node]
        for node in steps.nodes
    }
    choosers = {
        node: ShareChooser(plan.routing["x"], node, lanes[node], luck)  # type: ignore[arg-type]
        for node in steps.nodes
    }
    found: Walked = {
        "late": text["late"].upper(), "deadline": text["slo_ms"], "combine": text["combine"].upper(),
    }  # fmt: skip

    def walk(node: str, query: QueryState, kind: int, path: tuple[str, ...], said: tuple[Any, ...]) -> None:
        task, chosen = Task(query, node, b"", path, outcomes=said), []
        for luck.value in DRAWS:
            chosen.append(choosers[node].group(task))
        found["to", kind, path, said, node] = chosen
        for load in lanes[node]:
            for outcome in steps.nodes[node].worth or ("",):
                after = (*said, (node, outcome)) if outcome else said
                edges = steps.nodes[node].stage.followed(outcome)
                found["then", kind, (*path, load.name), after] = {
                    edge.to: edge.sent_by(loads[load.name].variant) for edge in edges
                }
                for edge in edges:
                    walk(edge.to, query, kind, (*path, load.name), after)

    for kind, at in enumerate(points_of(inputs.slo.apps["x"].mix)):
        (entry,) = steps.entries
        walk(entry, QueryState(None, None, at, tuple(at.items()), 0.0), kind, (), ())
    return found


def differences(seed: int) -> list[str]:
    """What is said differently of a tree; "unrouted" where a path has no route, which all must refuse."""
    plan, inputs = read(tree_of(seed))
    (period,) = planned_systems(plan, inputs)
    played, work = by_simulator(period.system)
    routed = by_router(plan, inputs)
    flow = follow(gather(plan, inputs), "x", plan.periods[0].id)
    counted = {load: busy for load, busy in flow.work.items() if busy}
    found = [f"tree {seed}: {key}: {played.get(key)} is played, {routed.get(key)} routed" for key in played | routed
             if played.get(key) != routed.get(key)]  # fmt: skip
    if counted != pytest.approx({load: busy for load, busy in work.items() if busy}):
        found.append(f"tree {seed}: work {dict(work)} is played, {counted} verified")
    return found


@pytest.mark.slow
def test_simulator_router_and_verifier_send_queries_the_same_way() -> None:
    found = [text for seed in range(TREES) for text in differences(seed)]
    assert not found, "\n".join(found[:20])


FAULTS: dict[str, tuple[str, Any]] = {
    "simulator: the first route listed": (
        "hetplan.serving.routes.best_route",
        lambda routes, path, outcomes, at: next((route for route in routes if route.node), None),
    ),
    "router: the class first": (
        "hetplan.executor.serving.choosers.best_route",
        lambda routes, *, path=(), outcomes=None, at=None: routes[0],
    ),
    "router: any variant sends on one query": (
        "hetplan.executor.serving.query_tree._edge",
        lambda said: Edge(said["to"], by_variant={"*": 1.0}, on=next(iter(said.get("on", ())), None)),
    ),
    "router: late queries are served": ("hetplan.executor.background.late_of", lambda dispatch, wanted: "serve"),
    "verifier: no classes": (
        "hetplan.verifier.walk._Walk.route",
        lambda self, queries, node: next(known for at, known in self.routes.items() if at[:2] == ((), node))[0],
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_planted_in_a_reader_is_seen(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*FAULTS[fault])
    assert any(differences(seed) for seed in range(40))
