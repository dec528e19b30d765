"""What must hold in every run: nothing appears or vanishes, Little's law, work done equals work brought."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hetplan.serving.system import App, Edge, Group, Late, Load, Noise, Route, Rule, Service, Stage, System, Way
from hetplan.simulator.simulation import RunResult, Simulation, Stream

SERVED, DROPPED, LOST = 1, 2, 3


@st.composite
def systems(draw: st.DrawFn) -> System:
    """One or two stages, one or two groups each, every rule, batches, deadlines, drops, transfers, limited room."""
    kinds = draw(st.integers(1, 2))
    two = draw(st.booleans())
    fan = draw(st.sampled_from([0.0, 0.6, 1.0, 1.7]))
    stages = (Stage("a", (Edge("b", fan),), budget_ms=60.0), Stage("b", budget_ms=60.0)) if two else (Stage("a"),)
    groups, routes = [], []
    for stage in stages:
        ways = []
        rule = draw(st.sampled_from(list(Rule)))
        for number in range(draw(st.integers(1, 2))):
            most = draw(st.integers(1, 3))
            mean = np.cumsum(np.full((kinds, most), draw(st.floats(3.0, 15.0))), axis=1) * 0.7
            load = Load(
                "x",
                {"ask": Service(mean * np.arange(1, kinds + 1)[:, None])},
                stages=(stage.id,),
                max_wait_ms=draw(st.sampled_from([0.0, 5.0])) if rule is not Rule.CENTRAL else 0.0,
                room=draw(st.sampled_from([None, 4])) if rule is not Rule.CENTRAL else None,
                quality=0.9,
            )
            groups.append(Group(f"{stage.id}{number}", (load,), count=draw(st.integers(1, 3))))
            ways.append(Way(f"{stage.id}{number}", "x", share=draw(st.floats(0.1, 1.0))))
        routes.append(Route("ask", stage.id, tuple(ways), rule=rule))
    late = draw(st.sampled_from([Late.SERVE, Late.DROP, Late.DROP_LAST_TASK, Late.DROP_PER_TASK]))
    hop = draw(st.sampled_from([0.0, 2.0]))
    app = App("ask", stages, slo_ms=draw(st.floats(20.0, 120.0)), kinds=kinds, late=late, hop_ms=hop)
    return System((app,), tuple(groups), tuple(routes))


def run(system: System, seed: int, *, count: int = 400, gap_ms: float = 6.0) -> RunResult:
    rng = np.random.default_rng(seed)
    kinds = rng.integers(0, system.apps[0].kinds, count).astype(np.int32)
    times = np.cumsum(rng.exponential(gap_ms, count))
    return Simulation(system, [Stream("ask", times, kinds)], seed=seed, noise=Noise.EXPONENTIAL, buckets=50).run()


@settings(max_examples=60, deadline=None)
@given(systems(), st.integers(0, 1000))
def test_nothing_appears_or_vanishes(system: System, seed: int) -> None:
    simulation = Simulation(system, [_stream(system, seed)], seed=seed, noise=Noise.EXPONENTIAL)
    result = simulation.run()
    status = result.queries["status"]
    assert (status > 0).all(), "a query neither ended nor was given up"
    assert (status == SERVED).sum() + (status == DROPPED).sum() + (status == LOST).sum() == len(status)
    assert (result.queries["finish"] >= result.queries["arrival"]).all()
    assert (result.queries["open"] == 0).all()
    world = simulation.world
    assert world.clock[0]["in_system"] == 0
    assert world.clock[0]["free_jobs"] == len(world.jobs), "a job was lost sight of"
    assert world.clock[0]["heap"] == 0
    assert (world.parts["station"]["busy"] == 0).all()
    assert (world.parts["worker"]["busy"] == 0).all()
    assert (world.parts["lane"]["length"] == 0).all()
    assert (world.parts["lane"]["bound"][: simulation._builder.size["lane"]] == 0).all()


def _stream(system: System, seed: int) -> Stream:
    rng = np.random.default_rng(seed)
    kinds = rng.integers(0, system.apps[0].kinds, 400).astype(np.int32)
    return Stream("ask", np.cumsum(rng.exponential(6.0, 400)), kinds)


@settings(max_examples=30, deadline=None)
@given(systems(), st.integers(0, 1000))
def test_courses_over_time_integrate_to_what_happened(system: System, seed: int) -> None:
    """The busy course sums to the time that servers were busy, up to the horizon, and waiting to the jobs' waits."""
    simulation = Simulation(system, [_stream(system, seed)], seed=seed, noise=Noise.EXPONENTIAL, horizon_ms=1e5)
    result = simulation.run()
    width = result.horizon_ms / result.busy.shape[1]
    stations = simulation.world.parts["station"][: simulation._builder.size["station"]]
    np.testing.assert_allclose(result.busy.sum() * width, stations["busy_ms"].sum(), rtol=1e-9, atol=1e-6)
    assert (result.busy >= -1e-9).all()
    assert (result.waiting >= -1e-9).all()
    assert (result.busy <= result.open_servers + 1e-9).all()


def test_littles_law(queues: Any) -> None:
    """Mean number inside = rate x mean response, exactly, when everything falls inside the horizon."""
    times = queues.poisson_ms(0.075, 20_000)
    result = queues.run(queues.system(1), times, noise=Noise.EXPONENTIAL, horizon_ms=float(times[-1]) + 5000.0)
    inside = (result.waiting + result.busy + result.central.sum(axis=0)).mean() * result.horizon_ms
    assert abs(inside - queues.response_ms(result).sum()) < 1e-6 * inside


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 4), st.integers(0, 100))
def test_splitting_a_group_changes_nothing(workers: int, seed: int) -> None:
    """Two groups of alike workers in one central queue are one group."""
    load = Load("x", {"ask": Service(np.array([[10.0, 14.0]]))})
    app = App("ask", (Stage("a"),), slo_ms=50.0)
    times = np.cumsum(np.random.default_rng(seed).exponential(10.0 / (workers + 1), 500))

    def finish(groups: tuple[Group, ...]) -> Any:
        ways = tuple(Way(group.id, "x") for group in groups)
        system = System((app,), groups, (Route("ask", "a", ways, rule=Rule.CENTRAL),))
        return Simulation(system, [Stream("ask", times)], seed=seed, noise=Noise.EXPONENTIAL).run().queries["finish"]

    one = finish((Group("g", (load,), count=workers + 1),))
    two = finish((Group("g", (load,), count=workers), Group("h", (load,))))
    np.testing.assert_array_equal(one, two)


@settings(max_examples=20, deadline=None)
@given(st.permutations(range(3)), st.integers(0, 100))
def test_names_and_order_of_groups_do_not_matter(order: list[int], seed: int) -> None:
    """Draws belong to queries, so listing the groups otherwise leaves every response as it was."""
    groups = [Group(f"g{n}", (Load("x", {"ask": Service(np.array([[8.0 + 4 * n]]))}),), count=n + 1) for n in range(3)]
    app = App("ask", (Stage("a"),), slo_ms=50.0)
    route = Route("ask", "a", tuple(Way(f"g{n}", "x") for n in range(3)), rule=Rule.CENTRAL)
    times = np.cumsum(np.random.default_rng(seed).exponential(3.0, 500))

    def finish(listed: tuple[Group, ...]) -> Any:
        system = System((app,), listed, (route,))
        return Simulation(system, [Stream("ask", times)], seed=seed, noise=Noise.EXPONENTIAL).run().queries["finish"]

    np.testing.assert_array_equal(finish(tuple(groups)), finish(tuple(groups[n] for n in order)))


def test_scaling_time_scales_every_response(queues: Any) -> None:
    times = queues.poisson_ms(0.15, 2000)
    one = queues.response_ms(queues.run(queues.system(2, load=queues.load(10.0)), times, noise=Noise.EXPONENTIAL))
    four = queues.response_ms(queues.run(queues.system(2, load=queues.load(40.0)), 4 * times, noise=Noise.EXPONENTIAL))
    np.testing.assert_array_equal(4 * one, four)
