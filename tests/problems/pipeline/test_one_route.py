"""Where all ways to a step share alike there is one route: its servers take turns for all who come."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from typing import Any

import pytest

import hetplan as hp
from hetplan.profiles.plan import Plan, Route

sys.path.insert(0, str(Path(hp.__file__).parents[1] / "benchmarks"))
import kept_pipelines

SEEDS = [298, 263, 271, 10]


def planned(seed: int) -> tuple[Any, Plan]:
    files = kept_pipelines.fair(seed)
    return files, hp.solve(*files, options={"sizing": "fluid"}).require()


def with_routes(plan: Plan, routes: tuple[Route, ...]) -> Plan:
    return plan.model_copy(update={"routing": {"x": routes}, "digest": None, "summary": None})


def by_path(plan: Plan, files: Any) -> tuple[Route, ...]:
    """The same shares, each way to a step by itself."""
    above = {edge["to"]: edge["from"] for edge in files[0]["pipelines"]["p"]["edges"]}
    loads = {
        node: [load.id for worker in plan.workers for load in worker.loads if load.node == node]
        for node in files[0]["pipelines"]["p"]["nodes"]
    }
    found = []
    for route in plan.routing["x"]:
        steps, at = list[str](), route.node
        while at in above:
            at = above[at]
            steps.insert(0, at)
        prefixes = [route.prefix] if route.prefix or not steps else itertools.product(*(loads[one] for one in steps))
        found += [route.model_copy(update={"prefix": tuple(prefix)}) for prefix in prefixes]
    return tuple(found)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("seed", SEEDS)
def test_one_route_loses_no_more_than_one_for_each_way(seed: int) -> None:
    files, plan = planned(seed)
    apart = by_path(plan, files)
    assert len(apart) > len(plan.routing["x"])
    one, each = (kept_pipelines.lost_by(each, files, seeds=2) for each in (plan, with_routes(plan, apart)))
    assert one <= each * 1.02 + 1e-4


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_route_without_a_path_beside_others_is_refused(seed: int) -> None:
    """Alone it is for all; beside one with a path nobody knows whose it is."""
    files, plan = planned(seed)
    assert hp.verify(plan, *files).ok
    apart = list(by_path(plan, files))
    assert hp.verify(with_routes(plan, tuple(apart)), *files).ok
    first = next(n for n, route in enumerate(apart) if [one.node for one in apart].count(route.node) > 1)
    apart[first] = apart[first].model_copy(update={"prefix": ()})
    codes = [one.code for one in hp.verify(with_routes(plan, tuple(apart)), *files).violations]
    assert "route-path" in codes
