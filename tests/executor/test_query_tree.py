"""Queries through trees and graphs of steps, with real processes: what follows, what joins, what quality comes out."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cases.deployments import Client, make_plan

from hetplan.executor.deployment import Deployment
from hetplan.executor.serving.query_tree import QueryState, Steps, fan_out, joined_jobs
from hetplan.profiles.plan import Route
from hetplan.profiles.workers import Load, Worker


def steps(**edges: list[str]) -> Steps:
    return Steps({name: {"edges": [{"to": to, "fanout": {"*": 1.0}} for to in below]} for name, below in edges.items()})


def test_entries_sinks_and_joins_are_reported_by_the_edges() -> None:
    diamond = steps(a=["b", "c"], b=["d"], c=["d"], d=[])
    assert (diamond.entries, diamond.sinks, diamond.joins) == (("a",), 1, True)
    assert diamond.nodes["d"].ancestors == {"a", "b", "c"}
    assert steps(a=[]).single


def test_fan_out_keeps_its_mean() -> None:
    draw = random.Random(1)
    drawn = [fan_out(1.8, draw) for _ in range(5000)]
    assert set(drawn) == {1, 2}
    assert sum(drawn) / 5000 == pytest.approx(1.8, abs=0.03)


def test_a_join_begins_when_all_that_leads_to_it_is_done() -> None:
    diamond = steps(a=["b", "c"], b=["d"], c=["d"], d=[])
    query = QueryState(None, None, {}, (), 0.0, meetings={})
    query.meeting("c")[0] = 1.0
    query.meeting("d")[3] = 2.0
    assert joined_jobs(query, diamond) == []
    query.meeting("c")[0] = 0.0
    query.meeting("d")[3] = 5.0
    assert joined_jobs(query, diamond) == [("d", 3)]
    assert joined_jobs(query, diamond) == []


PROFILE: dict[str, Any] = {
    "format": "hetplan/profile/1.0",
    "metrics": {"q": {}},
    "hardware": {"cpu": {"kind": "cpu"}},
    "tasks": {"t": {"metric": "q"}},
    "variants": {
        name: {"task": "t", "quality": {"value": value}, "runs": [{"hardware": "cpu", "latency": "one"}]}
        for name, value in {"va": 0.9, "vb": 0.8, "vc": 0.5, "vd": 1.0}.items()
    }
    | {name: {"task": "t", "runs": [{"hardware": "cpu", "latency": "one"}]} for name in ("vx", "vy")},
    "tables": {"one": {"quantity": "latency_ms", "axes": {"batch": [1, 8]}, "mean": [1.0, 2.0], "outside": "clamp"}},
    "pipelines": {
        "tree": {
            "nodes": {name: {"task": "t"} for name in "abc"},
            "edges": [{"from": "a", "to": "b", "fanout": 2.0}, {"from": "a", "to": "c", "fanout": 1.0}],
        },
        "diamond": {
            "nodes": {name: {"task": "t"} for name in "abcd"},
            "edges": [{"from": x, "to": y} for x, y in ("ab", "ac", "bd", "cd")],
        },
        "unjudged": {"nodes": {name: {"task": "t"} for name in "xy"}, "edges": [{"from": "x", "to": "y"}]},
        "half": {"nodes": {name: {"task": "t"} for name in "xb"}, "edges": [{"from": "x", "to": "b"}]},
    },
}


def served(deploy: Callable[..., Deployment], folder: Path, pipeline: str, nodes: str) -> dict[str, Any]:
    profile, slo = folder / "profile.json", folder / "slo.json"
    profile.write_text(json.dumps(PROFILE))
    wish = {
        "pipeline": pipeline,
        "latency": {"p99_ms": 5000},
        "rate_qps": 1,
    }
    slo.write_text(json.dumps({"format": "hetplan/slo/1.0", "apps": {"app": wish}}))
    deployment = deploy(files=[str(profile), str(slo)], models={"*": {"kind": "sleep"}})
    workers = [
        Worker(id=f"w{n}", hardware="cpu", loads=(Load(id=f"w{n}.a", app="app", node=n, variant=f"v{n}"),))
        for n in nodes
    ]
    routes = [Route(node=n, to={f"w{n}.a": 1.0}) for n in nodes]
    plan = make_plan(*workers, routing={"app": routes}, dispatch={"app": {"rule": "path-shares/1", "late": "serve"}})
    status, said = Client(deployment.apply(plan).endpoint).post()
    assert status == 200
    assert isinstance(said, dict)
    return said


@pytest.mark.slow
def test_a_tree_fans_out_and_its_quality_is_the_mean_over_its_ends(
    deploy: Callable[..., Deployment], tmp_path: Path
) -> None:
    said = served(deploy, tmp_path, "tree", "abc")
    assert sorted(hop["node"] for hop in said["path"]) == ["a", "b", "b", "c"]
    assert said["quality"] == pytest.approx((0.9 * 0.8 + 0.9 * 0.5) / 2)
    first = said["path"][0]
    assert min(first["router_ms"], first["queue_ms"]) >= 0.0
    assert first["router_ms"] + first["queue_ms"] + first["service_ms"] <= said["ms"]


@pytest.mark.slow
def test_a_diamond_joins_once(deploy: Callable[..., Deployment], tmp_path: Path) -> None:
    said = served(deploy, tmp_path, "diamond", "abcd")
    assert [hop["node"] for hop in said["path"]].count("d") == 1
    assert said["path"][-1]["node"] == "d"
    assert said["quality"] == pytest.approx(0.9 * 0.8 * 0.5)


@pytest.mark.slow
def test_what_nobody_judged_has_no_quality(deploy: Callable[..., Deployment], tmp_path: Path) -> None:
    assert served(deploy, tmp_path, "unjudged", "xy")["quality"] is None


@pytest.mark.slow
def test_a_step_that_nobody_judged_leaves_the_quality_of_the_others(
    deploy: Callable[..., Deployment], tmp_path: Path
) -> None:
    assert served(deploy, tmp_path, "half", "xb")["quality"] == pytest.approx(0.8)
