"""A plan's question asked again, where tables lack the statistic that is only the default."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

import hetplan as hp

Json = dict[str, Any]
PROFILE: Json = {
    "format": "hetplan/profile/1.0",
    "metrics": {"words": {"better": "higher", "range": [0, 1]}},
    "hardware": {"t4": {"kind": "gpu"}},
    "offers": {"t4": {"hardware": "t4", "price_per_hour": "0.5"}},
    "tasks": {"hear": {"metric": "words"}, "sum-up": {"metric": "words"}},
    "variants": {
        "hear-s": {"task": "hear", "quality": {"value": 0.8}, "runs": [{"hardware": "t4", "latency": "hear-s"}]},
        "hear-l": {"task": "hear", "quality": {"value": 0.95}, "runs": [{"hardware": "t4", "latency": "hear-l"}]},
        "short": {"task": "sum-up", "quality": {"value": 0.9}, "runs": [{"hardware": "t4", "latency": "short"}]},
    },
    "tables": {
        "hear-s": {"quantity": "latency_ms", "axes": {"batch": [1, 4, 8]}, "mean": [20, 50, 90]},
        "hear-l": {"quantity": "latency_ms", "axes": {"batch": [1, 4, 8]}, "mean": [40, 120, 220]},
        "short": {"quantity": "latency_ms", "axes": {"batch": [1, 4, 8]}, "mean": [15, 35, 60]},
    },
    "pipelines": {
        "voice": {
            "nodes": {"hear": {"task": "hear"}, "sum": {"task": "sum-up"}},
            "edges": [{"from": "hear", "to": "sum"}],
        }
    },
}
SLO: Json = {
    "format": "hetplan/slo/1.0",
    "objective": ["max quality", "min machines"],
    "limits": {"instances": {"t4": [0, 8]}},
    "apps": {
        "calls": {
            "pipeline": "voice",
            "latency": {"p99_ms": 600},
            "rate_qps": 120,
            "quality": {"min": 0.7},
        }
    },
}


@pytest.fixture
def files() -> tuple[Json, Json]:
    """Profile and SLO of a pipeline whose times are means: plans rest on p50 by default."""
    return deepcopy(PROFILE), deepcopy(SLO)


def test_a_plan_from_means_is_proved_and_explained(files: tuple[Json, Json]) -> None:
    plan = hp.solve(*files, options={"sizing": "fluid"}).require()
    assert plan.method.options["statistic"] == "auto"
    assert hp.solve(*files, options=dict(plan.method.options)).require() == plan
    report = hp.verify(plan, *files, prove=True)
    assert report.ok
    assert {str(claim.word) for claim in report.claims} == {"proved again"}
    found = hp.explain(plan, *files)
    assert found.value == pytest.approx(plan.claims[0].value)
    assert found.others[0].worse_by == pytest.approx(0.0, abs=0.2)
    assert all(one.fleet is not None for one in found.bounds)


def test_a_statistic_that_was_chosen_is_asked_for_again(files: tuple[Json, Json]) -> None:
    for table in files[0]["tables"].values():
        table["p95"] = [1.1 * time for time in table["mean"]]
    plan = hp.solve(*files, options={"sizing": "fluid", "statistic": "p95"}).require()
    assert plan.method.options["statistic"] == "p95"


@pytest.mark.slow
def test_along_a_rate_machines_go_where_the_second_wish_says_so(files: tuple[Json, Json]) -> None:
    found = hp.whatif(*files, vary="rate=60:150", confirm=False)
    counts = [sum(one.fleet.values()) for one in found.segments if one.fleet is not None]
    assert len({one.first for one in found.segments}) == 1
    assert counts[0] < counts[-1]
    assert counts == sorted(counts)
    files[1]["apps"]["calls"]["rate_qps"] = 60
    least = hp.solve(*files, options={"sizing": "formula"}).require()
    assert counts[0] <= least.claims[1].value
