"""Nobody is told that no plan exists where one does: the plan that was made without a limit is within the limit."""

from __future__ import annotations

import pytest
from build import Files, app, files, machine, model
from face import solve, verify


def wish(rate: float) -> Files:
    """One application on machines whose slowest percent of answers takes twice the mean."""
    net = model({"m": {"batch": [1], "mean": [20.0], "p99": [40.0]}})
    return files(machines={"m": machine(1.0)}, models={"net": net}, apps={"x": app("net", rate=rate, limits={99: 100})})


@pytest.mark.slow
@pytest.mark.parametrize("rate", [200.0, 90.0])
@pytest.mark.parametrize("problem", ["variants", "fleet"])
def test_a_limit_that_the_free_plan_keeps_leaves_a_plan(problem: str, rate: float) -> None:
    free = solve(wish(rate), problem=problem)
    assert free.is_plan
    for tight in (wish(rate).stocked({"m": free.count()}), wish(rate).limited(cost=free.cost)):
        found = solve(tight, problem=problem)
        assert found.is_plan, (found.conflict, found.repairs)
        assert found.cost <= free.cost
        assert verify(found.plan, tight).is_ok
        assert found.bound <= found.cost
