"""`simulate` before queues whose answer is known: built wishes, planned as the files say, against formulas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from build import Files, app, files, machine, model
from face import Estimate, Simulated, simulate, solve
from truth import closed_forms as known
from truth.cases import late_shares

SLOW = pytest.mark.slow


def queue(
    times: Mapping[int, float], rate: float, *, servers: int = 1, limit: float = 1e5, central: bool = False
) -> Files:
    """One model on so many machines of one type: before a queue of their own each, or (a pool) before a common one."""
    wanted = app("net", rate=rate, limits={99: limit}, sizes={1: 1.0} if central else None)
    problem = "pool" if central else "variants"
    wish = files(
        machines={"m": machine(1.0)}, models={"net": model({"m": times})}, apps={"ask": wanted}, problem=problem
    )
    return wish.limited(counts={"m": (servers, servers)})


def simulated(wish: Files, **more: Any) -> Simulated:
    """The plan of a wish, as many machines as it says."""
    options = {"derate": 1.0} if wish.problem == "pool" else {}
    answer = solve(wish, "fluid", options=options)
    assert answer.is_plan, answer.conflict
    return simulate(answer.plan, wish, seeds=8, duration_s=400, **more)


def assert_near(shown: Estimate, expected: float) -> None:
    """Within twice a 95% interval of eight runs and half a percent: their first queries find empty queues."""
    half = (shown.high - shown.low) / 2.0
    assert abs(shown.value - expected) < 2.0 * half + 0.005 * expected, (shown, expected)
    assert half < 0.15 * expected, "too noisy to say anything"


@pytest.mark.parametrize("central", [False, True])
@pytest.mark.parametrize("load", [0.3, 0.7])
@pytest.mark.parametrize("noise", ["table", "exponential"])
def test_one_server(noise: str, load: float, central: bool) -> None:
    """M/D/1 and M/M/1: the mean, the share of late queries, and percentiles."""
    limit = 1e5 if central else 30.0  # a pool serves late queries last
    shown = simulated(queue({1: 10.0}, 100.0 * load, limit=limit, central=central), noise=noise)
    mean = known.mean_mg1(load / 10.0, 10.0, 100.0) if noise == "table" else 10.0 / (1.0 - load)
    assert_near(shown.figures["ask"]["mean_ms"], mean)
    if noise == "exponential":
        at_99 = shown.percentiles["ask"][99.0]
        assert known.late_mmc(1, load / 10.0, 10.0, at_99.high * 1.05) < 0.01
        assert known.late_mmc(1, load / 10.0, 10.0, at_99.low * 0.95) > 0.01
    if not central:
        late = (
            known.late_md1(load / 10.0, 10.0, limit)
            if noise == "table"
            else known.late_mmc(1, load / 10.0, 10.0, limit)
        )
        assert_near(shown.violation_rate["ask"], late)


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("servers", [2, 5])
@pytest.mark.parametrize("load", [0.6, 0.8])
def test_several_servers_before_one_queue(servers: int, load: float) -> None:
    """M/M/c: a pool whose queries are all in time serves them as they come."""
    rate = load * servers / 10.0
    shown = simulated(queue({1: 10.0}, 1e3 * rate, servers=servers, central=True), noise="exponential")
    wait = known.erlang_c(servers, 10.0 * rate) * 10.0 / (servers - 10.0 * rate)
    assert_near(shown.figures["ask"]["mean_ms"], 10.0 + wait)
    at_90 = shown.percentiles["ask"][90.0]
    assert (
        known.late_mmc(servers, rate, 10.0, at_90.high * 1.05)
        < 0.1
        < known.late_mmc(servers, rate, 10.0, at_90.low * 0.95)
    )


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("rate", [0.12, pytest.param(0.05, marks=SLOW), pytest.param(0.2, marks=SLOW)])
@pytest.mark.parametrize("times", [{1: 10.0, 2: 12.0, 3: 15.0, 4: 17.0}, {1: 9.0, 4: 15.0}, {1: 4.0, 8: 32.0}])
def test_batches_of_one_server(times: Mapping[int, float], rate: float) -> None:
    """A server that takes what waits: between the sizes of a table times are on a line."""
    largest = max(times)
    line = [
        times[1] + (times[largest] - times[1]) * (n - 1) / (largest - 1) if n not in times else times[n]
        for n in range(1, largest + 1)
    ]
    wish = queue(times, 1e3 * rate)
    answer = solve(wish, "fluid")
    most = {one.max_batch for group in answer.machines for one in group.replicas}
    shown = simulate(answer.plan, wish, seeds=8, duration_s=300)
    assert_near(shown.figures["ask"]["mean_ms"], known.mean_batches(rate, line[: max(most)]))


@pytest.mark.parametrize("ratio", [0.4, 1.0])
def test_times_that_vary(ratio: float) -> None:
    """M/G/1: the spread that a table states makes queries wait."""
    wish = files(
        machines={"m": machine(1.0)},
        models={"net": model({"m": {"batch": [1], "mean": [10.0], "std": [10.0 * ratio]}})},
        apps={"ask": app("net", rate=60.0, limits={99: 1e5})},
        problem="variants",
    ).limited(counts={"m": (1, 1)})
    assert_near(simulated(wish).figures["ask"]["mean_ms"], known.mean_mg1(0.06, 10.0, 100.0 * (1.0 + ratio**2)))


@pytest.mark.parametrize("servers", [2, 4])
def test_shortest_queues_as_the_plain_simulator_plays_them(servers: int) -> None:
    """No formula is known for servers with a queue each, of which the shortest is taken."""
    wish = queue({1: 10.0, 4: 18.0}, servers * 75.0, servers=servers, limit=22.0)
    answer = solve(wish, "fluid")
    shown = simulate(answer.plan, wish, seeds=8, duration_s=100).violation_rate["ask"]
    plain = late_shares(answer, wish, queries=100_000)["ask"]
    assert shown.low * 0.8 < plain < shown.high * 1.25


@pytest.mark.parametrize(("may", "cost"), [(0.0, 22.0), (0.125, 22.0), (0.25, 16.0)])
def test_as_many_are_late_on_purpose_as_may_be(may: float, cost: float) -> None:
    """400 queries/s, half of them large: 40 ms on a slow machine, where they are late, 10 on a fast one.

    The small ones, 10 ms each, keep two slow machines busy ($1 each). If none may be late two fast ones ($10 each)
    serve the large. If a quarter of all queries may be, four more slow ones serve half of the large, and one fast
    machine the rest. With an eighth the rest is still more than one fast machine carries.
    """
    net = model({"slow": {1: 10, 8: 40}, "fast": {1: 10, 8: 10}})
    wish = files(
        machines={"slow": machine(1.0), "fast": machine(10.0)},
        models={"net": net},
        apps={"x": app("net", rate=400.0, limits={75: 30}, sizes={1: 0.5, 8: 0.5})},
        problem="pool",
    )
    assert solve(wish, "fluid", options={"derate": 1.0, "allow_late": may}).cost == pytest.approx(cost)


@pytest.mark.parametrize("types", [3, 18])
def test_somebody_serves_a_class_that_hardly_ever_comes(types: int) -> None:
    """One query in ten million is large, and only the dear machine type serves it: one of it is rented all the same."""
    times: dict[str, dict[float, float]] = {f"m{number}": {1: 10.0 + number} for number in range(types - 1)}
    tables = {**{name: {**ms, 8: 500.0} for name, ms in times.items()}, "dear": {1: 10.0, 8: 20.0}}
    wish = files(
        machines={**{name: machine(1.0) for name in times}, "dear": machine(9.0)},
        models={"net": model(tables)},
        apps={"x": app("net", rate=90.0, limits={100: 100}, sizes={1: 1.0 - 1e-7, 8: 1e-7})},
        problem="pool",
    )
    found = solve(wish, "fluid", options={"derate": 1.0})
    assert (found.cost, found.count("dear")) == (pytest.approx(9.0), 1)
