"""Pipelines by hand: fan-out, joins, transfers, qualities, and what happens to requests that are late."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hetplan.errors import InputError
from hetplan.serving.system import (
    App,
    Backup,
    Combine,
    Edge,
    Group,
    Late,
    Link,
    Load,
    Route,
    Rule,
    Service,
    Stage,
    System,
    Way,
    link_table,
)
from hetplan.simulator.simulation import Simulation, Stream


def load(name: str, mean_ms: float, *, batches: int = 1, **more: Any) -> Load:
    return Load(name, {"ask": Service(np.full((1, batches), mean_ms))}, stages=(name[0],), **more)


def pipeline(
    stages: tuple[Stage, ...],
    loads: dict[str, Load],
    *,
    count: int = 1,
    routes: Any = None,
    tiers: dict[str, str] | None = None,
    links: tuple[Link, ...] = (),
    **app: Any,
) -> System:
    """One group per load, each stage routed to the loads that begin with its letter."""
    groups = tuple(
        Group(f"g-{name}", (item,), count=count, tier=(tiers or {}).get(name, "")) for name, item in loads.items()
    )
    made = routes or tuple(
        Route("ask", stage.id, tuple(Way(f"g-{name}", name) for name in loads if name[0] == stage.id))
        for stage in stages
    )
    order = tuple(dict.fromkeys((tiers or {}).values()))
    return System((App("ask", stages, **({"slo_ms": 100.0} | app)),), groups, made, tiers=order, links=links)


def finish(system: System, times: list[float]) -> list[float]:
    return list(Simulation(system, [Stream("ask", np.array(times))]).run().queries["finish"])


def test_a_query_ends_with_its_slowest_branch() -> None:
    stages = (Stage("a", (Edge("b"), Edge("c"))), Stage("b"), Stage("c"))
    system = pipeline(stages, {"a": load("a", 5.0), "b": load("b", 7.0), "c": load("c", 11.0)})
    assert finish(system, [0.0, 100.0]) == [16.0, 116.0]


def test_several_jobs_of_one_query_queue_behind_each_other() -> None:
    stages = (Stage("a", (Edge("b", 3.0),)), Stage("b"))
    assert finish(pipeline(stages, {"a": load("a", 5.0), "b": load("b", 7.0)}), [0.0]) == [26.0]
    assert finish(pipeline(stages, {"a": load("a", 5.0), "b": load("b", 7.0, batches=3)}), [0.0]) == [12.0]


def test_the_mean_of_a_fan_out_is_kept() -> None:
    stages = (Stage("a", (Edge("b", 1.0),)), Stage("b"))
    system = pipeline(stages, {"a": load("a", 0.1, fanout={"b": 2.3}), "b": load("b", 0.1)})
    result = Simulation(system, [Stream("ask", np.arange(20_000.0))]).run()
    assert result.served["g-b"] / 20_000 == pytest.approx(2.3, abs=0.02)


def test_a_join_waits_for_all_that_leads_to_it() -> None:
    """a -> b, c -> d: d starts once both are there, and runs once."""
    stages = (Stage("a", (Edge("b"), Edge("c"))), Stage("b", (Edge("d"),)), Stage("c", (Edge("d"),)), Stage("d"))
    loads = {"a": load("a", 5.0), "b": load("b", 7.0), "c": load("c", 11.0), "d": load("d", 2.0)}
    run = Simulation(pipeline(stages, loads), [Stream("ask", np.array([0.0, 100.0]))]).run()
    assert list(run.queries["finish"]) == [18.0, 118.0]
    assert run.served["g-d"] == 2


def test_a_join_after_fan_out_runs_once_per_bundle() -> None:
    """Three jobs on either branch: three at the join. Then the qualities of the stages multiply."""
    stages = (
        Stage("a", (Edge("b", 3.0), Edge("c", 3.0))),
        Stage("b", (Edge("d"),)),
        Stage("c", (Edge("d"),)),
        Stage("d"),
    )
    loads = {name: load(name, 1.0, quality=worth) for name, worth in zip("abcd", (1.0, 0.9, 0.8, 0.5), strict=True)}
    run = Simulation(pipeline(stages, loads), [Stream("ask", np.array([0.0]))]).run()
    assert run.served["g-d"] == 3
    assert run.queries["quality"][0] == pytest.approx(0.9 * 0.8 * 0.5)


def test_two_first_stages_both_start() -> None:
    stages = (Stage("a"), Stage("b"))
    assert finish(pipeline(stages, {"a": load("a", 5.0), "b": load("b", 7.0)}), [0.0]) == [7.0]


def test_quality_is_the_mean_over_sinks_of_the_paths_product() -> None:
    stages = (Stage("a", (Edge("b", 2.0), Edge("c"))), Stage("b"), Stage("c"))
    loads = {"a": load("a", 1.0, quality=0.9), "b": load("b", 1.0, quality=0.8), "c": load("c", 1.0, quality=0.6)}
    run = Simulation(pipeline(stages, loads), [Stream("ask", np.array([0.0]))]).run()
    assert run.queries["quality"][0] == pytest.approx((0.9 * 0.8 + 0.9 * 0.6) / 2)
    added = Simulation(pipeline(stages, loads, combine=Combine.ADDITIVE), [Stream("ask", np.array([0.0]))]).run()
    assert added.queries["quality"][0] == pytest.approx((0.9 + 0.8 + 0.9 + 0.6) / 2)


def test_paths_are_kept_apart_where_routes_say_so() -> None:
    """After a1 always b2, after a2 always b1: 10 + 30 and 20 + 10 ms, never 20 + 30."""
    stages = (Stage("a", (Edge("b"),)), Stage("b"))
    loads = {"a1": load("a1", 10.0), "a2": load("a2", 20.0), "b1": load("b1", 10.0), "b2": load("b2", 30.0)}
    routes = (
        Route(
            "ask", "a", (Way("g-a1", "a1", 0.5, then={"b": "after a1"}), Way("g-a2", "a2", 0.5, then={"b": "other"}))
        ),
        Route("ask", "b", (Way("g-b2", "b2", quality=0.7),), name="after a1"),
        Route("ask", "b", (Way("g-b1", "b1", quality=0.6),), name="other"),
    )
    run = Simulation(pipeline(stages, loads, routes=routes), [Stream("ask", 100.0 * np.arange(200))]).run()
    took = np.round(run.queries["finish"] - run.queries["arrival"], 9)
    assert set(took) == {40.0, 30.0}
    assert set(run.queries["quality"][took == 40.0]) == {0.7}
    assert 60 < (took == 40.0).sum() < 140


def test_transfer_takes_latency_and_bandwidth_of_every_hop() -> None:
    """1 MB over 50 Mbps takes 160 ms and 5 ms latency; on to the cloud 20 ms and 10 ms more."""
    stages = (Stage("a", (Edge("b", bytes=1e6),)), Stage("b"))
    links = (Link(("device", "edge"), 50.0, 5.0), Link(("edge", "cloud"), 400.0, 10.0))
    loads = {"a": load("a", 4.0), "b": load("b", 6.0)}
    near = pipeline(stages, loads, tiers={"a": "device", "b": "edge", "x": "cloud"}, links=links, tier="device")
    far = pipeline(stages, loads, tiers={"a": "device", "x": "edge", "b": "cloud"}, links=links, tier="device")
    assert finish(near, [0.0]) == [pytest.approx(4.0 + 165.0 + 6.0)]
    assert finish(far, [0.0]) == [pytest.approx(4.0 + 165.0 + 30.0 + 6.0)]
    at_home = pipeline(
        stages,
        loads,
        tiers={"a": "edge", "b": "edge", "x": "device", "y": "cloud"},
        links=links,
        tier="device",
        bytes_in=5e5,
    )
    assert finish(at_home, [0.0]) == [pytest.approx(85.0 + 4.0 + 6.0)]


def test_a_link_of_an_application_replaces_the_common_one() -> None:
    both = (Link(("device", "edge"), 50.0, 5.0), Link(("device", "edge"), 25.0, 8.0))
    assert link_table(("device", "edge"), both)[0, 1].tolist() == [8.0, 0.008 / 25.0]
    with pytest.raises(InputError, match="no link joins"):
        link_table(("device", "edge", "cloud"), both)


def test_a_cycle_of_stages_is_refused() -> None:
    stages = (Stage("s", (Edge("a"),)), Stage("a", (Edge("b"),)), Stage("b", (Edge("a"),)))
    loads = {"s": load("s", 1.0), "a": load("a", 1.0), "b": load("b", 1.0)}
    with pytest.raises(InputError, match="cycle"):
        finish(pipeline(stages, loads), [0.0])


# Late requests. Stage a takes 10 ms, stage b 20 ms, one server each; four queries at once.

CHAIN = (Stage("a", (Edge("b"),), budget_ms=25.0), Stage("b", budget_ms=45.0))
FOUR = [0.0, 0.0, 0.0, 0.0]


def fates(late: Late, *, slo_ms: float = 60.0) -> tuple[list[int], list[float]]:
    """Without drops b ends at 30, 50, 70, 90."""
    system = pipeline(CHAIN, {"a": load("a", 10.0), "b": load("b", 20.0)}, late=late, slo_ms=slo_ms)
    queries = Simulation(system, [Stream("ask", np.array(FOUR))]).run().queries
    return list(queries["status"]), list(queries["finish"])


def test_serving_late_ones() -> None:
    assert fates(Late.SERVE) == ([1, 1, 1, 1], [30.0, 50.0, 70.0, 90.0])


def test_dropping_at_the_last_task() -> None:
    """At 50 the third would end at 70 > 60: dropped there and then, and so is the fourth."""
    assert fates(Late.DROP_LAST_TASK) == ([1, 1, 2, 2], [30.0, 50.0, 50.0, 50.0])


def test_dropping_at_any_task() -> None:
    """With a limit of 35 the last query is given up before stage a already (30 + 10 > 35)."""
    assert fates(Late.DROP, slo_ms=35.0) == ([1, 2, 2, 2], [30.0, 30.0, 30.0, 30.0])


def test_dropping_by_the_budget_of_each_task() -> None:
    """Stage a may take 25: the third (30) and fourth are dropped at a, when the server looks at them at 20."""
    assert fates(Late.DROP_PER_TASK) == ([1, 1, 2, 2], [30.0, 50.0, 20.0, 20.0])


def test_rerouting_late_ones_to_spare_capacity() -> None:
    """Done with a at 30 and 40, the third and fourth are 5 and 15 late. The spare b takes 12 <= 20 - 5, not <= 20 - 15:
    the third goes there, the fourth is dropped when a would begin with it, at 30: nobody could make up for it."""
    loads = {"a": load("a", 10.0), "b1": load("b1", 20.0), "b2": load("b2", 12.0)}
    backup = (Backup("g-b2", "b2", exec_ms=12.0, left_qps=1.0),)
    routes = (
        Route("ask", "a", (Way("g-a", "a"),)),
        Route("ask", "b", (Way("g-b1", "b1"),), backups=backup),
    )
    system = pipeline(CHAIN, loads, routes=routes, late=Late.REROUTE, slo_ms=60.0)
    run = Simulation(system, [Stream("ask", np.array(FOUR))]).run()
    assert list(run.queries["status"]) == [1, 1, 1, 2]
    assert list(run.queries["finish"]) == [30.0, 50.0, 42.0, 30.0]
    assert run.served["g-b2"] == 1


def test_a_late_one_keeps_to_its_way_where_that_is_faster_than_the_budget_was_made_for() -> None:
    """The budget of b is made for its longest, b1 of 20 ms. Routed to b2 of 12 ms, the third is behind by 5 and goes on
    to it without any backup; the fourth, behind by 15, cannot be helped."""
    loads = {"a": load("a", 10.0), "b1": load("b1", 20.0), "b2": load("b2", 12.0)}
    routes = (
        Route("ask", "a", (Way("g-a", "a"),)),
        Route("ask", "b", (Way("g-b2", "b2", share=1.0), Way("g-b1", "b1", share=0.0))),
    )
    system = pipeline(CHAIN, loads, routes=routes, late=Late.REROUTE, slo_ms=70.0)
    run = Simulation(system, [Stream("ask", np.array(FOUR))]).run()
    assert list(run.queries["status"]) == [1, 1, 1, 2]
    assert list(run.queries["finish"]) == [22.0, 34.0, 46.0, 30.0]


def test_rerouting_drops_at_the_last_task_who_cannot_end_in_time() -> None:
    """No one is late at a, but b is the bottleneck: at 50 the third would end at 70 > 60."""
    stages = (Stage("a", (Edge("b"),), budget_ms=50.0), Stage("b", budget_ms=15.0))
    system = pipeline(stages, {"a": load("a", 10.0), "b": load("b", 20.0)}, late=Late.REROUTE, slo_ms=60.0)
    queries = Simulation(system, [Stream("ask", np.array(FOUR))]).run().queries
    assert list(queries["status"]) == [1, 1, 2, 2]
    assert list(queries["finish"]) == [30.0, 50.0, 50.0, 50.0]


def test_spare_capacity_comes_back_every_second() -> None:
    """One query per second is left over: of two late ones within a second only the first is rerouted."""
    loads = {"a": load("a", 30.0), "b1": load("b1", 20.0), "b2": load("b2", 5.0)}
    backup = (Backup("g-b2", "b2", exec_ms=5.0, left_qps=1.0),)
    routes = (Route("ask", "a", (Way("g-a", "a"),)), Route("ask", "b", (Way("g-b1", "b1"),), backups=backup))
    system = pipeline(CHAIN, loads, routes=routes, late=Late.REROUTE, slo_ms=500.0)
    run = Simulation(system, [Stream("ask", np.array([0.0, 100.0, 1100.0, 1200.0, 2100.0]))]).run()
    assert list(run.queries["status"]) == [1, 2, 1, 2, 1]


def test_the_best_of_equal_backups_is_drawn_and_quality_decides_first() -> None:
    loads = {
        "a": load("a", 30.0),
        "b1": load("b1", 50.0),
        "b2": load("b2", 5.0, quality=0.5),
        "b3": load("b3", 5.0, quality=0.8),
        "b4": load("b4", 5.0, quality=0.8),
    }
    backups = tuple(Backup(f"g-{name}", name, exec_ms=5.0, left_qps=1e9) for name in ("b2", "b3", "b4"))
    routes = (Route("ask", "a", (Way("g-a", "a"),)), Route("ask", "b", (Way("g-b1", "b1"),), backups=backups))
    system = pipeline(CHAIN, loads, routes=routes, late=Late.REROUTE, slo_ms=500.0)
    run = Simulation(system, [Stream("ask", 100.0 * np.arange(400))]).run()
    assert run.served["g-b2"] == 0
    assert run.served["g-b3"] + run.served["g-b4"] == 400
    assert 150 < run.served["g-b3"] < 250


def test_what_giving_up_and_rerouting_save() -> None:
    """Stage a is the bottleneck and b has room: giving up at a spares those behind, rerouting makes up lost time at b,
    and giving up at the last task saves nobody."""
    times = np.cumsum(np.random.default_rng(0).exponential(11.5, 20_000))
    loads = {"a": load("a", 10.0), "b1": load("b1", 20.0), "b2": load("b2", 8.0)}
    backup = (Backup("g-b2", "b2", exec_ms=8.0, left_qps=60.0),)
    routes = (Route("ask", "a", (Way("g-a", "a"),)), Route("ask", "b", (Way("g-b1", "b1"),), backups=backup))
    late = {}
    for rule in (Late.SERVE, Late.DROP_LAST_TASK, Late.DROP_PER_TASK, Late.REROUTE):
        system = pipeline(CHAIN, loads, routes=routes, late=rule, slo_ms=45.0)
        groups = tuple(Group(g.id, g.loads, count=1 if g.id == "g-a" else 8) for g in system.groups)
        system = System(system.apps, groups, system.routes)
        queries = Simulation(system, [Stream("ask", times)]).run().queries
        late[rule] = float(np.mean((queries["status"] != 1) | (queries["finish"] > queries["deadline"] + 1e-6)))
    assert late[Late.SERVE] == pytest.approx(late[Late.DROP_LAST_TASK], abs=1e-3)
    assert late[Late.DROP_PER_TASK] < 0.6 * late[Late.SERVE]
    assert late[Late.REROUTE] < 0.9 * late[Late.DROP_PER_TASK]


def test_the_mean_quality_is_the_mean_over_sinks_however_rarely_one_is_reached() -> None:
    """Every query has b (0.8), three in ten also c (0.4): (0.9 x 0.8 + 0.9 x 0.4) / 2 on average, as plans count it."""
    stages = (Stage("a", (Edge("b", 1.6), Edge("c", 0.3))), Stage("b"), Stage("c"))
    loads = {"a": load("a", 1.0, quality=0.9), "b": load("b", 1.0, quality=0.8), "c": load("c", 1.0, quality=0.4)}
    run = Simulation(pipeline(stages, loads), [Stream("ask", 5.0 * np.arange(20_000))]).run()
    assert run.queries["quality"].mean() == pytest.approx(0.9 * (0.8 + 0.4) / 2, abs=0.01)


@pytest.mark.parametrize(("workers", "late"), [(1, Late.SERVE), (3, Late.SERVE), (3, Late.DROP)])
def test_loads_whose_batches_are_joined_serve_as_one_load_does(queues: Any, workers: int, late: Late) -> None:
    """Half of the queries wait in a line of their own and take longer: query by query as in one line for both."""
    load = queues.load([[10.0, 12.0, 14.0, 16.0], [20.0, 24.0, 28.0, 32.0]])
    one = queues.system(workers, rule=Rule.SHORTEST, load=load, slo_ms=60.0, app={"late": late})
    lines = tuple(replace(load, id=f"line-{kind}") for kind in (0, 1))
    ways = [Route("ask", "only", (Way("gpu", f"line-{k}"),), rule=Rule.SHORTEST, kinds=(k,)) for k in (0, 1)]
    two = replace(one, groups=(replace(one.groups[0], loads=lines, joined=True),), routes=tuple(ways))
    apart = replace(two, groups=(replace(two.groups[0], joined=False),))
    times = queues.poisson_ms(workers * 4 / 30.0, 6000)
    kinds = np.random.default_rng(2).integers(0, 2, 6000).astype(np.int32)
    found, same, alone = (queues.run(system, times, kinds=kinds) for system in (one, two, apart))
    if workers == 1:
        assert found.queries["finish"].tolist() == same.queries["finish"].tolist()
    # Of several workers that are alike, each line begins with another.
    batch = [run.served["gpu"] / run.batches["gpu"] for run in (found, same, alone)]
    assert batch[1] == pytest.approx(batch[0], rel=0.02)
    assert same.served["gpu"] == pytest.approx(found.served["gpu"], rel=0.02)
    assert batch[2] < 0.9 * batch[1]
