"""Service times in simulation are as the table states them: where nothing waits, response times are the table's own."""

from __future__ import annotations

import math
import random

import pytest
from build import app, files, machine, model
from face import Simulated, simulate, solve

QUERIES, SEEDS = 8_000, 3
NORMAL = {"p50": 0.0, "p90": 1.2815515655446004, "p95": 1.6448536269514722, "p99": 2.3263478740408408}
PERCENT = {"p50": 50.0, "p90": 90.0, "p95": 95.0, "p99": 99.0}
BATCHES = (1, 4, 16)


def alone(table: dict[str, list[float]], batch: int, rate: float) -> Simulated:
    """Queries of a size, so far apart that each finds a free machine."""
    wish = files(
        machines={"gpu": machine(1.0, stock=3)},
        models={"net": model({"gpu": table})},
        apps={"web": app("net", rate=rate, limits=dict.fromkeys(PERCENT.values(), 60_000.0), sizes={batch: 1.0})},
        problem="pool",
    ).limited(counts={"gpu": (3, 3)})
    answer = solve(wish, "fluid")
    assert answer.plan is not None, answer
    return simulate(answer.plan, wish, seeds=SEEDS, duration_s=QUERIES / rate)


def random_table(draw: random.Random, stated: tuple[str, ...]) -> dict[str, list[float]]:
    """Percentiles that spread more or less, the mean and the deviation of a distribution that has them."""
    table: dict[str, list[float]] = {"batch": list(BATCHES), **{name: [] for name in stated}}
    median = draw.uniform(3.0, 30.0)
    for batch in BATCHES:
        body, tail = draw.uniform(0.02, 0.6), draw.uniform(0.02, 0.9)
        grows = median * batch ** draw.uniform(0.3, 0.8)

        def at(z: float, body: float = body, tail: float = tail, grows: float = grows) -> float:
            return grows * math.exp(body * z + tail * max(0.0, z - 1.0) ** 2 / 2.0)

        steps = [(n + 0.5) / 100.0 for n in range(-500, 500)]
        weighed = [(at(z), math.exp(-z * z / 2.0)) for z in steps]
        weight = sum(w for _, w in weighed)
        mean = sum(value * w for value, w in weighed) / weight
        std = math.sqrt(sum((value - mean) ** 2 * w for value, w in weighed) / weight)
        for name in stated:
            table[name].append({"mean": mean, "std": std}.get(name) or at(NORMAL[name]))
    return table


def read(table: dict[str, list[float]], name: str, batch: int) -> float:
    """The table's figure at a batch, straight between those that it has."""
    for n in range(len(BATCHES) - 1):
        low, high = BATCHES[n], BATCHES[n + 1]
        if low <= batch <= high:
            part = (batch - low) / (high - low)
            return (1.0 - part) * table[name][n] + part * table[name][n + 1]
    raise AssertionError(batch)


@pytest.mark.parametrize(
    "stated",
    [
        ("mean", "p99"),
        ("mean", "std", "p95"),
        ("mean", "p50", "p95", "p99"),
        ("mean", "std", "p50", "p90", "p95", "p99"),
        ("p50", "p99"),
    ],
    ids="-".join,
)
@pytest.mark.parametrize("cases", [range(1), pytest.param(range(1, 9), marks=pytest.mark.slow)], ids=["one", "more"])
def test_simulated_percentiles_and_mean_are_the_stated_ones(stated: tuple[str, ...], cases: range) -> None:
    for case in cases:
        draw = random.Random(f"{stated} {case}")
        table, batch = random_table(draw, stated), draw.choice((1, 2, 4, 9, 16))
        shown = alone(table, batch, rate=0.05)
        for name in stated:
            if name in PERCENT:
                found = shown.percentiles["web"][PERCENT[name]].value
                # So far apart, in the normal number, are the values between which a sample's percentile lies.
                within = 5.0 * math.sqrt(0.01 * PERCENT[name] * (1.0 - 0.01 * PERCENT[name]) / (QUERIES * SEEDS))
                within *= math.sqrt(2.0 * math.pi) * math.exp(NORMAL[name] ** 2 / 2.0)
                assert math.log(found / read(table, name, batch)) == pytest.approx(0.0, abs=0.01 + 2.0 * within), (
                    case, name, found, read(table, name, batch),
                )  # fmt: skip
        if "mean" in stated:
            assert shown.figures["web"]["mean_ms"].value == pytest.approx(read(table, "mean", batch), rel=0.04)


def test_a_table_of_means_alone_is_played_as_it_was() -> None:
    shown = alone({"batch": [1, 4], "mean": [7.0, 19.0]}, 4, rate=0.05)
    assert {round(one.value, 6) for one in shown.percentiles["web"].values()} == {19.0}


@pytest.mark.parametrize("scale", [0.1, 25.0])
def test_times_in_another_unit_are_those_times(scale: float) -> None:
    """The same table in other milliseconds: every percentile by the factor, to the digits that are reported."""
    table = random_table(random.Random(5), ("mean", "std", "p50", "p99"))
    scaled = {name: column if name == "batch" else [scale * one for one in column] for name, column in table.items()}
    one, other = alone(table, 4, rate=0.01), alone(scaled, 4, rate=0.01 / scale)
    for percentile, found in one.percentiles["web"].items():
        assert other.percentiles["web"][percentile].value == pytest.approx(scale * found.value, rel=0.01)
