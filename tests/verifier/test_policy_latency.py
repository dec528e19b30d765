"""Latencies for every batch, worked out by hand."""

from typing import Any

import pytest

from hetplan.profiles.profile import Run
from hetplan.profiles.tables import Table
from hetplan.verifier.policy_figures import batch_latencies_ms
from hetplan.verifier.service import nearest_statistic


def batches(measured: dict[int, float | None], queue_max: int, monotone: str = "safe") -> list[float]:
    table = Table(quantity="latency_ms", axes={"batch": tuple(measured)}, p95=tuple(measured.values()))
    return batch_latencies_ms(table, RUN, statistic="p95", queue_max=queue_max, monotone=monotone)


RUN = Run(hardware="g", latency="t")
BENT = {1: 10.0, 2: 14.0, 4: 18.0}


@pytest.mark.parametrize(
    ("measured", "queue_max", "monotone", "expected"),
    [
        # All measured: one more on their line, 2 and level 8.
        ({1: 10, 2: 12, 3: 14}, 3, "safe", [10, 12, 14, 16]),
        # What was measured beyond the queue is not used, but for a queue of one.
        ({1: 10, 2: 14, 3: 99}, 2, "safe", [10, 14, 18]),
        ({1: 10, 2: 14, 3: 99}, 1, "safe", [10, 14]),
        ({1: 10, 2: 7}, 1, "safe", [10, 10]),
        ({1: 10}, 1, "safe", [10, 20]),
        ({1: 10, 4: 99}, 1, "safe", [10, 20]),
        # Batch 3 on the line of what was measured, of slope 18/7; 5 on the line of all four, also of 18/7.
        (BENT, 4, "safe", [10, 14, 110 / 7, 18, 146 / 7]),
        # A falling line, -8 and level 18, reaches 2 at 2 and no less than half of that at 3.
        ({1: 10, 2: 2}, 3, "safe", [10, 10, 10, 10]),
        ({1: 10, 2: 2}, 3, "optimistic", [1, 1, 1, 1]),
        # Made to grow, upwards or downwards.
        ({1: 10, 2: 8, 3: 12}, 3, "safe", [10, 10, 12, 38 / 3]),
        ({1: 10, 2: 8, 3: 12}, 3, "optimistic", [8, 8, 12, 40 / 3]),
        ({1: 10, 2: 9, 3: 12, 4: 11, 5: 14}, 5, "safe", [10, 10, 12, 12, 14, 14.6]),
        ({1: 10, 2: 9, 3: 12, 4: 11, 5: 14}, 5, "optimistic", [9, 9, 11, 11, 14, 14.4]),
        # One more never takes less than N, where the line would.
        ({1: 1, 2: 1, 3: 1, 4: 1, 5: 1, 6: 101}, 6, "safe", [1, 1, 1, 1, 1, 101, 101]),
        # A first batch that was not measured lies on the line; a cell without a number is none.
        ({2: 14, 4: 18}, 4, "safe", [12, 14, 16, 18, 20]),
        ({1: 10, 2: None, 3: 14}, 3, "safe", [10, 12, 14, 16]),
        ({1: 10, 2: None}, 2, "safe", []),
        ({1: None, 2: None}, 2, "safe", []),
        ({4: 18}, 1, "safe", [18, 36]),
    ],
)
def test_measured_batches_and_the_line_between(
    measured: dict[int, float | None], queue_max: int, monotone: str, expected: list[float]
) -> None:
    assert batches(measured, queue_max, monotone) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("axis", "grid", "at", "expected"),
    [
        # The axis before the batch, and after it.
        ("area", ((5, 6), (10, 14)), {"area": 640}, [10, 14, 18]),
        ("area", ((5, 6), (10, 14)), {"area": 320}, [5, 6, 7]),
        ("side", ((5, 10), (6, 14)), {"side": 640}, [10, 14, 18]),
        ("side", ((5, 10), (6, 14)), {"side": 320}, [5, 6, 7]),
        ("area", ((5, 6), (10, 14)), {"area": 500}, []),
        ("area", ((5, 6), (10, 14)), {}, []),
        ("side", ((5, 10), (6, 14)), {"side": 500}, []),
        ("side", ((5, None), (6, 14)), {"side": 640}, []),
        ("side", ((5, None), (6, 14)), {"side": 320}, [5, 6, 7]),
    ],
)
def test_at_the_setting_of_the_run(axis: str, grid: Any, at: dict[str, float], expected: list[float]) -> None:
    axes = dict(sorted({"batch": (1, 2), axis: (320, 640)}.items()))
    table = Table(quantity="latency_ms", axes=axes, mean=grid)
    run = Run(hardware="g", latency="t", at=at)
    found = batch_latencies_ms(table, run, statistic="mean", queue_max=2, monotone="safe")
    assert found == pytest.approx(expected)


def test_a_table_without_batches() -> None:
    alone = Table(quantity="latency_ms", mean=7)
    assert batch_latencies_ms(alone, RUN, statistic="mean", queue_max=1, monotone="safe") == [7, 14]
    assert batch_latencies_ms(alone, RUN, statistic="mean", queue_max=2, monotone="safe") == []
    # What was not measured is answered by what was, where the plan warns of it: the caller takes the nearest one then.
    assert batch_latencies_ms(alone, RUN, statistic="p99", queue_max=1, monotone="safe") == []
    assert batch_latencies_ms(alone, RUN, statistic=nearest_statistic(alone, "p99"), queue_max=1, monotone="safe") == [
        7,
        14,
    ]
    assert batch_latencies_ms(alone, RUN, statistic="no such", queue_max=1, monotone="safe") == []
    two = Table(quantity="latency_ms", axes={"batch": (1, 2)}, mean=(1, 2))
    assert batch_latencies_ms(two, RUN, statistic="p99", queue_max=1, monotone="safe") == []
    assert batch_latencies_ms(two, RUN, statistic=nearest_statistic(two, "p99"), queue_max=1, monotone="safe") == [1, 2]
