"""Fluid utilization, against what is counted way by way along random trees of stages, loads and outcomes."""

from __future__ import annotations

import pytest
from cases.cascades import RATE_QPS, cascade, random_tree
from cases.documents import read

from hetplan.serving.utilization import fluid_utilization


def test_a_cascade_worked_out_by_hand() -> None:
    """Of 100 queries/s: 2 ms each at a; 30% go on, three quarters of them to b (20 ms), the rest to c (40 ms)."""
    found = fluid_utilization(*read(cascade()), {"shop": 100.0})
    assert found == pytest.approx({"a": 0.2, "b": 0.45, "c": 0.3})


@pytest.mark.parametrize("seed", range(100))
def test_random_trees_come_to_what_is_counted_way_by_way(seed: int) -> None:
    case, figures = random_tree(seed)
    plan, inputs = read(case)
    servers = {load.id: one.count * load.instances for one in plan.workers for load in one.loads}
    found = fluid_utilization(plan, inputs, {"x": RATE_QPS})
    for name, table in case["profile"]["tables"].items():
        load = name.removeprefix("t-")
        busy = RATE_QPS * figures["jobs"][load] * table["mean"] / 1000.0
        assert found[load] == pytest.approx(busy / servers[load]), load


def test_nothing_is_said_where_the_rate_is_not_known() -> None:
    assert fluid_utilization(*read(cascade()), {}) == {}
