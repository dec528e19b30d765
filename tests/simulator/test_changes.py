"""What changes while a run goes on: workers come, go and break; plans replace plans; offline work fills the gaps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hetplan.serving.system import (
    App,
    Group,
    Inner,
    Late,
    Load,
    Noise,
    PolicyTable,
    Pull,
    Route,
    Rule,
    Service,
    Stage,
    System,
    Way,
)
from hetplan.simulator.simulation import Simulation, Stream


def test_a_new_worker_serves_when_it_has_loaded(queues: Any) -> None:
    """Three queries at 0 before one worker of 10 ms; a second, asked for at 1, is ready at 6."""
    run = Simulation(queues.system(1), [Stream("ask", np.zeros(3))], horizon_ms=100.0)
    run.at(1.0, lambda: run.scale("gpu", 2, ready_ms=5.0))
    result = run.run()
    assert sorted(result.queries["finish"]) == [10.0, 16.0, 20.0]
    assert result.paid_ms["gpu"] == pytest.approx(100.0 + 99.0)


@pytest.mark.parametrize("rule", list(Rule))
def test_what_waited_at_a_worker_that_goes_is_sent_elsewhere(queues: Any, rule: Rule) -> None:
    """Two workers, six queries at 0; at 5 the second goes after its current one: 10, 10, then the first alone."""
    run = Simulation(queues.system(2, rule=rule), [Stream("ask", np.zeros(6))])
    run.at(5.0, lambda: run.scale("gpu", 1))
    result = run.run()
    assert sorted(result.queries["finish"]) == [10.0, 10.0, 20.0, 30.0, 40.0, 50.0]
    assert run.workers("gpu") == 1


@pytest.mark.parametrize("rule", list(Rule))
def test_queries_wait_while_nothing_runs(queues: Any, rule: Rule) -> None:
    run = Simulation(queues.system(1, rule=rule), [Stream("ask", np.array([0.0, 20.0, 40.0]))])
    run.at(15.0, lambda: run.scale("gpu", 0))
    run.at(70.0, lambda: run.scale("gpu", 1))
    assert list(run.run().queries["finish"]) == [10.0, 80.0, 90.0]


@pytest.mark.parametrize("rule", [Rule.CENTRAL, Rule.SHARES, Rule.SHORTEST, Rule.EARLIEST])
def test_queries_go_on_waiting_through_changes_that_help_nobody(queues: Any, rule: Rule) -> None:
    """Jobs that no change finds a place for stay in line, in their order."""
    system = queues.system(1, rule=rule)
    run = Simulation(system, [Stream("ask", np.array([1.0, 2.0, 3.0]))])
    run.scale("gpu", 0)
    run.at(5.0, lambda: run.change(system, overlap=False))
    run.at(6.0, lambda: run.scale("gpu", 0))
    run.at(7.0, lambda: run.change(replace(system, groups=(replace(system.groups[0], count=0),)), overlap=False))
    run.at(20.0, lambda: run.scale("gpu", 1, ready_ms=0.0))
    # The first is in service when the worker goes at 6; it is done at 15, the others once there is a worker again.
    assert run.run().queries["finish"].tolist() == [15.0, 30.0, 40.0]


@pytest.mark.parametrize("inner", [Inner.ROUND_ROBIN, Inner.SHORTEST])
def test_a_group_that_has_grown_is_one_group(queues: Any, inner: Inner) -> None:
    """Five workers of 10 ms, a query every 2 ms: none ever waits, though they came one, one and three at a time."""
    system = queues.system(1, rule=Rule.SHARES)
    routes = tuple(
        replace(route, ways=tuple(replace(way, inner=inner) for way in route.ways)) for route in system.routes
    )
    run = Simulation(replace(system, routes=routes), [Stream("ask", 100.0 + 2.0 * np.arange(500))])
    for at, count in ((1.0, 2), (2.0, 5)):
        run.at(at, lambda count=count: run.scale("gpu", count, ready_ms=0.0))  # type: ignore[misc]
    queries = run.run().queries
    assert np.ptp(queries["finish"] - queries["arrival"]) < 1e-6


def test_of_a_worker_that_is_back_the_queue_that_it_had_is_not_expected_any_more(queues: Any) -> None:
    """100 queries at 0 for two workers of 10 ms; the first breaks for 1 ms, so all are at the second: until 1,000.

    Sixty more at 3 are all served by the first, which is idle: until 603.
    """
    system = queues.system(2, rule=Rule.EARLIEST)
    run = Simulation(system, [Stream("ask", np.concatenate([np.zeros(100), np.full(60, 3.0)]))])
    run.at(1.0, lambda: run.fail("gpu", 0))
    run.at(2.0, lambda: run.recover("gpu", 0))
    finish = run.run().queries["finish"]
    assert finish[:100].max() == 1000.0
    assert finish[100:].max() == 603.0


def test_queries_that_nothing_ever_serves_stay_unfinished(queues: Any) -> None:
    run = Simulation(queues.system(1), [Stream("ask", np.array([0.0, 20.0]))])
    run.at(15.0, lambda: run.scale("gpu", 0))
    queries = run.run().queries
    assert list(queries["status"]) == [1, 0]
    assert np.isnan(queries["finish"][1])


@pytest.mark.parametrize("rule", list(Rule))
def test_a_broken_workers_batch_starts_over_or_is_lost(queues: Any, rule: Rule) -> None:
    def fates(retry: bool) -> Any:
        run = Simulation(queues.system(1, rule=rule), [Stream("ask", np.array([0.0, 2.0]))])
        run.at(4.0, lambda: run.fail("gpu", 0, retry=retry))
        run.at(50.0, lambda: run.recover("gpu", 0))
        return run.run().queries

    assert sorted(fates(True)["finish"]) == [60.0, 70.0]
    assert list(fates(False)["status"]) == [3, 1]
    assert list(fates(False)["finish"]) == [4.0, 60.0]


def test_the_others_take_over_from_a_broken_worker(queues: Any) -> None:
    times = queues.poisson_ms(0.1, 5000)
    run = Simulation(queues.system(2, rule=Rule.ROUND_ROBIN), [Stream("ask", times)])
    run.at(1000.0, lambda: run.fail("gpu", 1))
    result = run.run()
    assert (result.queries["status"] == 1).all()
    assert result.served["gpu"] == 5000


@pytest.mark.parametrize("pull", list(Pull))
def test_the_other_parts_of_a_divided_pool_take_over_while_one_is_shut(queues: Any, pull: Pull) -> None:
    """Two workers, a part of its own each: queries come in turn, but for those that find a part shut."""
    system = queues.system(2, pull=pull, parts=2, limit_ms=1000.0)
    times = np.array([0.0, 0.0, 1.0, 1.0, 2.0, 2.0, 100.0, 100.0, 100.0])
    assert queues.run(system, times).queries["finish"].tolist() == [10.0, 10.0, 20.0, 20.0, 30.0, 30.0, 110, 110, 120]

    def shut(first: Any, again: Any) -> list[float]:
        run = Simulation(system, [Stream("ask", times)])
        run.at(5.0, lambda: first(run))
        run.at(90.0, lambda: again(run))
        return sorted(run.run().queries["finish"].tolist())

    # The second's query under way starts over with the first, where also the two go that waited for the second.
    broken = shut(lambda run: run.fail("gpu", 1), lambda run: run.recover("gpu", 1))
    assert broken == [10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 110.0, 110.0, 120.0]
    gone = shut(lambda run: run.scale("gpu", 1), lambda run: run.scale("gpu", 2, ready_ms=0.0))
    assert gone == [10.0, 10.0, 20.0, 30.0, 40.0, 50.0, 110.0, 110.0, 120.0]

    def both(what: str) -> Any:
        return lambda run: [getattr(run, what)("gpu", number) for number in (0, 1)]

    # What is on its way to a part that is shut when it comes goes to the other.
    far = replace(system, apps=(replace(system.apps[0], hop_ms=2.0),))
    run = Simulation(far, [Stream("ask", np.array([0.0, 0.0]))])
    run.at(1.0, lambda: run.fail("gpu", 1))
    assert run.run().queries["finish"].tolist() == [12.0, 22.0]

    # With both shut all wait; the first that is back gets what waited for either.
    assert shut(both("fail"), lambda run: run.recover("gpu", 1))[:6] == [100.0, 110.0, 120.0, 130.0, 140.0, 150.0]


def test_a_divided_pool_that_grows_deals_its_workers_out_anew(queues: Any) -> None:
    run = Simulation(queues.system(2, parts=2), [Stream("ask", np.array([0.0] * 4 + [20.0] * 5))])
    run.at(15.0, lambda: run.scale("gpu", 5, ready_ms=0.0))
    # Of five workers the first part has three: of the last five queries its three start at once, and two elsewhere.
    assert run.run().queries["finish"].tolist() == [10.0, 10.0, 20.0, 20.0, *[30.0] * 5]


def changed(queues: Any, **how: Any) -> Simulation:
    """From one worker of 10 ms to one of 4 ms that takes 30 ms to be ready, asked for at 100; a query every 10 ms."""
    fast = Load("serve", {"ask": Service(np.array([[4.0]]))})
    before = queues.system(1, rule=Rule.SHARES)
    after = System(
        before.apps, (Group("new", (fast,), ready_ms=30.0),), (Route("ask", "only", (Way("new", "serve"),)),)
    )
    run = Simulation(before, [Stream("ask", 10.0 * np.arange(20))])
    run.at(101.0, lambda: run.change(after, **how))
    return run


def test_going_over_to_another_plan_with_overlap(queues: Any) -> None:
    """The old worker serves until the new one is ready at 131."""
    took = np.diff(queues.response_ms(changed(queues).run()))
    response = queues.response_ms(changed(queues).run())
    assert list(response[:13]) == [10.0] * 13
    assert list(response[14:]) == [4.0] * 6
    assert took.size == 19


def test_going_over_to_another_plan_in_place(queues: Any) -> None:
    """The old worker stops at 101 after its current query; those of 110, 120 and 130 wait for 131."""
    run = changed(queues, overlap=False)
    finish = run.run().queries["finish"]
    assert list(finish[9:15]) == [100.0, 110.0, 135.0, 139.0, 143.0, 147.0]
    assert run.workers("gpu") == 0


def test_groups_that_stay_are_not_touched_by_a_change(queues: Any) -> None:
    before = queues.system(2, rule=Rule.SHARES)
    run = Simulation(before, [Stream("ask", queues.poisson_ms(0.15, 1000))], noise=Noise.EXPONENTIAL)
    plain = Simulation(before, [Stream("ask", queues.poisson_ms(0.15, 1000))], noise=Noise.EXPONENTIAL).run()
    run.at(500.0, lambda: run.change(before))
    np.testing.assert_allclose(
        np.sort(queues.response_ms(run.run())).mean(), np.sort(queues.response_ms(plain)).mean(), rtol=0.05
    )
    assert run.workers("gpu") == 2


def test_a_group_grows_beyond_what_it_ever_had(queues: Any) -> None:
    """1 -> 3 -> 1 -> 5 workers under a load that needs four."""
    times = queues.poisson_ms(0.35, 8000)
    for rule in Rule:
        run = Simulation(queues.system(1, rule=rule), [Stream("ask", times)], noise=Noise.EXPONENTIAL)
        for when, count in ((100.0, 3), (1000.0, 1), (2000.0, 5)):
            run.at(when, lambda run=run, count=count: run.scale("gpu", count))
        result = run.run()
        assert (result.queries["status"] == 1).all()
        late = result.queries["arrival"] > 15_000
        assert queues.response_ms(result)[late].mean() < 60.0


def test_a_group_of_the_same_name_with_other_loads_replaces_the_old_one(queues: Any) -> None:
    """From 10 to 4 ms under one name: what runs is finished, what waits goes over, both are paid for."""
    before = queues.system(1, rule=Rule.SHARES)
    after = System(before.apps, (Group("gpu", (queues.load(4.0),)),), before.routes)
    run = Simulation(before, [Stream("ask", np.zeros(4))], horizon_ms=100.0)
    run.at(5.0, lambda: run.change(after))
    result = run.run()
    assert sorted(result.queries["finish"]) == [9.0, 10.0, 13.0, 17.0]
    assert sum(result.paid_ms.values()) == pytest.approx(100.0)
    assert len(result.groups) == 2


def test_shares_follow_the_open_workers_when_a_group_was_made_in_parts(queues: Any) -> None:
    """One worker, then three more, then one less: at random, each of the open ones gets an equal part."""
    base = queues.system(1)
    system = System(base.apps, base.groups, (Route("ask", "only", (Way("gpu", "serve", inner=Inner.RANDOM),)),))
    run = Simulation(system, [Stream("ask", 20.0 * np.arange(6000))])
    run.at(1.0, lambda: run.scale("gpu", 4))
    served = []
    for when in (40_001.0, 80_001.0, 119_000.0):
        run.at(when, lambda: served.append(run.world.parts["station"]["served"][:4].copy()))
    run.at(40_001.0, lambda: run.scale("gpu", 3))
    run.run()
    np.testing.assert_allclose(served[0], 500, atol=80)
    np.testing.assert_allclose(served[1] - served[0], [667, 667, 667, 0], atol=90)


def test_a_worker_sent_away_before_it_was_ready_starts_loading_anew(queues: Any) -> None:
    """Asked for at 0 (30 ms), sent away at 5, asked for again at 20: ready at 50, not at 30."""
    run = Simulation(queues.system(1), [Stream("ask", np.array([0.0] * 9))], horizon_ms=200.0)
    for when, count in ((0.0, 2), (5.0, 1), (20.0, 2)):
        run.at(when, lambda count=count: run.scale("gpu", count, ready_ms=30.0))
    finish = sorted(run.run().queries["finish"])
    assert finish == [10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 60.0, 70.0, 70.0]


def test_a_central_queue_finds_the_first_worker_again_when_it_is_back(queues: Any) -> None:
    run = Simulation(queues.system(2), [Stream("ask", 6.0 * np.arange(50))])
    run.at(50.0, lambda: run.fail("gpu", 0))
    run.at(100.0, lambda: run.recover("gpu", 0))
    assert queues.response_ms(run.run())[-10:].max() <= 10.0 + 1e-9


def test_a_look_counts_what_happened_since_the_last_one(queues: Any) -> None:
    seen, came = [], []
    run = Simulation(queues.system(2, rule=Rule.ROUND_ROBIN), [Stream("ask", 5.0 * np.arange(200))])
    for when in (100.0, 300.0):
        run.at(when, lambda: seen.append(run.glance(["gpu"])))
        run.at(when, lambda: came.append(run.arrived()["ask"]))
    run.run()
    assert came == [20, 40]
    assert seen[1].use == pytest.approx(1.0, abs=0.03)
    assert (seen[0].wanted, seen[0].ready) == (2, 2)


def test_offline_work_runs_only_beside_an_idle_enough_worker() -> None:
    """Online work comes first; offline jobs start only when none waits and the worker was idle enough of late."""
    services = {"on": Service(np.array([[10.0]]))}, {"off": Service(np.array([[4.0]]))}
    loads = (Load("x", services[0]), Load("y", services[1], offline=True))
    apps = (App("on", (Stage("s"),), slo_ms=50.0), App("off", (Stage("s"),), slo_ms=1e9))
    system = System(
        apps,
        (Group("g", loads, offline_below=0.4),),
        (Route("on", "s", (Way("g", "x"),)), Route("off", "s", (Way("g", "y"),))),
    )
    streams = [Stream("on", np.array([0.0, 0.0, 40.0])), Stream("off", np.array([0.0, 1.0]))]
    run = Simulation(system, streams)
    queries = run.run().queries
    off = queries[queries["app"] == 1]
    assert sorted(off["finish"]) == [24.0, 28.0]


def test_offline_work_waits_until_the_worker_has_been_idle_long_enough() -> None:
    """Two seconds of full online use, then nothing: 1 - exp(-2) of use falls to 0.4 after ln(0.8647 / 0.4) seconds."""
    loads = (
        Load("x", {"on": Service(np.array([[10.0]]))}),
        Load("y", {"off": Service(np.array([[4.0]]))}, offline=True),
    )
    apps = (App("on", (Stage("s"),), slo_ms=50.0), App("off", (Stage("s"),), slo_ms=1e9))
    system = System(
        apps,
        (Group("g", loads, offline_below=0.4),),
        (Route("on", "s", (Way("g", "x"),)), Route("off", "s", (Way("g", "y"),))),
    )
    run = Simulation(system, [Stream("on", 10.0 * np.arange(200)), Stream("off", np.array([5.0, 1995.0]))])
    queries = run.run().queries
    off = queries[queries["app"] == 1]["finish"]
    starts = 2000.0 + 1000.0 * np.log((1.0 - np.exp(-2.0)) / 0.4)
    assert list(off) == pytest.approx([starts + 4.0, starts + 8.0], abs=0.01)


def test_a_policy_table_chooses_load_and_batch() -> None:
    """Load 0 (accurate, 30 ms) while slack is at least 50; load 1 (10 ms) below; beyond two waiting, all by load 1."""
    loads = tuple(
        Load(name, {"ask": Service(np.full((1, 4), mean))}, quality=worth)
        for name, mean, worth in (("big", 30.0, 0.9), ("small", 10.0, 0.6))
    )
    table = PolicyTable(
        slack_ms=np.array([0.0, 50.0]),
        choice=np.array([[1, 0], [1, 0]], np.int32),
        batch=np.array([[1, 1], [2, 1]], np.int32),
        otherwise=1,
    )
    system = System(
        (App("ask", (Stage("s"),), slo_ms=60.0),),
        (Group("g", loads, policies=(table,)),),
        (Route("ask", "s", (Way("g", "big"),), rule=Rule.ROUND_ROBIN),),
    )
    queries = Simulation(system, [Stream("ask", np.array([0.0, 1.0, 2.0, 3.0, 200.0, 201.0]))]).run().queries
    # 0: slack 60 -> big until 30. Three wait -> small on all until 40. 200: big until 230; then slack 31 -> small.
    assert list(queries["finish"]) == [30.0, 40.0, 40.0, 40.0, 230.0, 240.0]
    assert list(queries["quality"]) == [0.9, 0.6, 0.6, 0.6, 0.9, 0.6]


def test_a_batch_of_none_gives_up_the_oldest() -> None:
    load = Load("only", {"ask": Service(np.full((1, 4), 10.0))})
    sizes = np.stack([np.zeros(5), np.minimum(np.arange(1, 6), 4)], axis=1).astype(np.int32)
    table = PolicyTable(np.array([0.0, 10.0]), np.zeros((5, 2), np.int32), sizes)
    system = System(
        (App("ask", (Stage("s"),), slo_ms=25.0),),
        (Group("g", (load,), policies=(table,)),),
        (Route("ask", "s", (Way("g", "only"),), rule=Rule.ROUND_ROBIN),),
    )
    run = Simulation(system, [Stream("ask", np.array([0.0, 1.0, 1.0, 1.0, 1.0]))])
    run.at(2.0, lambda: run.fail("g", 0))
    run.at(20.0, lambda: run.recover("g", 0))
    assert list(run.run().queries["status"]) == [2, 2, 2, 2, 2]


def test_switching_between_policy_tables() -> None:
    loads = tuple(Load(name, {"ask": Service(np.array([[mean]]))}) for name, mean in (("big", 30.0), ("small", 10.0)))
    tables = tuple(
        PolicyTable(np.array([0.0]), np.full((4, 1), pick, np.int32), np.ones((4, 1), np.int32)) for pick in (0, 1)
    )
    system = System(
        (App("ask", (Stage("s"),), slo_ms=60.0),),
        (Group("g", loads, count=2, policies=tables),),
        (Route("ask", "s", (Way("g", "big"),), rule=Rule.ROUND_ROBIN),),
    )
    run = Simulation(system, [Stream("ask", 50.0 * np.arange(4))])
    run.at(90.0, lambda: run.use_policy("g", 1))
    queries = run.run().queries
    assert list(queries["finish"] - queries["arrival"]) == [30.0, 30.0, 10.0, 10.0]


def test_neighbours_slow_each_other_down() -> None:
    """Two loads of one worker, each with its own queue: alone 10 ms, beside another busy one 1.5 times that."""
    loads = tuple(Load(name, {name: Service(np.array([[10.0]]))}, slowdown=(1.0, 1.5)) for name in ("x", "y"))
    apps = tuple(App(name, (Stage("s"),), slo_ms=60.0) for name in ("x", "y"))
    routes = tuple(Route(name, "s", (Way("g", name),)) for name in ("x", "y"))
    system = System(apps, (Group("g", loads, shared=False),), routes)
    run = Simulation(system, [Stream("x", np.array([0.0])), Stream("y", np.array([5.0]))])
    assert sorted(run.run().queries["finish"]) == [10.0, 20.0]


def test_a_shared_queue_serves_the_oldest_whatever_its_load() -> None:
    """One server for two loads: x, y, x, y in order of arrival, alike ones in one batch."""
    loads = tuple(Load(name, {name: Service(np.array([[10.0, 12.0]]))}) for name in ("x", "y"))
    apps = tuple(App(name, (Stage("s"),), slo_ms=60.0) for name in ("x", "y"))
    routes = tuple(Route(name, "s", (Way("g", name),)) for name in ("x", "y"))
    system = System(apps, (Group("g", loads),), routes)
    streams = [Stream("x", np.array([0.0, 2.0, 4.0])), Stream("y", np.array([1.0, 3.0]))]
    queries = Simulation(system, streams).run().queries
    # x until 10; the oldest is y of 1: both y until 22; then both x until 34.
    assert list(queries["finish"]) == [10.0, 22.0, 34.0, 22.0, 34.0]


def test_a_worker_that_stands_by_takes_over_at_once_and_is_paid_for_all_along() -> None:
    load = Load("x", {"ask": Service(np.array([[10.0]]))})
    app = App("ask", (Stage("s"),), slo_ms=50.0)
    system = System((app,), (Group("g", (load,), standby=1, ready_ms=500.0),), (Route("ask", "s", (Way("g", "x"),)),))
    run = Simulation(system, [Stream("ask", 20.0 * np.arange(50))], horizon_ms=1000.0)
    run.at(405.0, lambda: run.fail("g", 0))
    result = run.run()
    # The query of 400 starts over at 405.
    assert sorted(set(np.round(result.queries["finish"] - result.queries["arrival"], 6))) == [10.0, 15.0]
    assert result.paid_ms["g"] == pytest.approx(2000.0)


@pytest.mark.parametrize("pull", list(Pull))
def test_hopeless_queries_are_given_up_in_a_central_queue(pull: Pull) -> None:
    """One worker of 10 ms, limit 25, four at once: the second ends at 20, the third and fourth could not before 30."""
    load = Load("x", {"ask": Service(np.array([[10.0]]))})
    app = App("ask", (Stage("s"),), slo_ms=25.0, late=Late.DROP)
    route = Route("ask", "s", (Way("g", "x", late_cost=250.0),), rule=Rule.CENTRAL, pull=pull, limit_ms=25.0)
    queries = Simulation(System((app,), (Group("g", (load,)),), (route,)), [Stream("ask", np.zeros(4))]).run().queries
    assert sorted(queries["status"]) == [1, 1, 2, 2]
    assert sorted(queries["finish"]) == [10.0, 20.0, 20.0, 20.0]
