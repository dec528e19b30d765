"""The ray target on a real local cluster whose nodes play different hardware; opt-in, for it takes a minute and ray."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hetplan.executor.deployment import Deployment
from hetplan.executor.hosts_file import read_hosts
from hetplan.executor.local import Local
from hetplan.executor.ray import Ray
from hetplan.executor.target import Setting, TargetFailed
from hetplan.executor.units import LoadSpec, Unit, named
from hetplan.profiles.plan import InputHashes, Method, Plan, Route
from hetplan.profiles.plan_file import with_digest
from hetplan.profiles.plan_sections import SharesDispatch
from hetplan.profiles.workers import Load, Worker

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed"),
    pytest.mark.skipif(not os.environ.get("HETPLAN_TEST_RAY"), reason="set HETPLAN_TEST_RAY=1 to start a Ray cluster"),
]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def dashboard() -> Iterator[str]:
    from ray.cluster_utils import Cluster

    port = free_port()
    head = {"num_cpus": 2, "include_dashboard": True, "dashboard_port": port, "dashboard_host": "127.0.0.1"}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    cluster.add_node(num_cpus=2, resources={"t4": 2})
    cluster.add_node(num_cpus=2, resources={"cpu4": 1})
    cluster.wait_for_nodes()
    yield f"http://127.0.0.1:{port}"
    cluster.shutdown()


@pytest.fixture
def target(dashboard: str, tmp_path: Path) -> Iterator[Ray]:
    settings = {"dashboard": dashboard, "hardware": {"cpu4": {"num_cpus": 2}}}
    hosts = read_hosts(
        {
            "name": "trial",
            "router": {"target": "here"},
            "limits": {"start_s": 30, "drain_s": 5, "call_s": 20},
            "targets": {"here": {"kind": "local"}, "cluster": {"kind": "ray", "settings": settings}},
            "hosts": {"pool": {"target": "cluster", "hardware": ["t4", "cpu4"], "machines": 9}},
        }
    )
    made = Ray(Setting("cluster", hosts, tmp_path, settings))
    yield made
    made.down(drain_s=10)


def units(count: int, worker: str, hardware: str, ms: float = 3.0) -> list[Unit]:
    law = {"kind": "sleep", "law": {"ms": ms}, "statistic": "mean", "times": 1.0, "seed": 0}
    loads = (LoadSpec(f"{worker}.a", app="rank", variant="m", model=law),)
    return [named(Unit("", worker, index, hardware, "cluster", "pool", loads=loads)) for index in range(count)]


def served_ms(endpoint: Any, load: str) -> float:
    url = f"http://{endpoint.address}:{endpoint.port}/v1/{load}"
    with urllib.request.urlopen(urllib.request.Request(url, data=b"{}", method="POST"), timeout=10) as answer:
        return float(json.loads(answer.read())["service_ms"])


def wait_for(done: Callable[[], bool], limit_s: float) -> bool:
    until = time.monotonic() + limit_s
    while not done() and time.monotonic() < until:
        time.sleep(0.5)
    return done()


def test_workers_run_where_their_hardware_is_and_answer(target: Ray) -> None:
    asked = units(2, "w1", "t4") + units(1, "w2", "cpu4")
    endpoints = target.start(asked, limit_s=90)
    assert len(set(endpoints.values())) == 3
    for unit in asked:
        assert served_ms(endpoints[unit.name], unit.loads[0].id) > 2.5
    seen = {one.name: one for one in target.observe()}
    assert {name: one.unit for name, one in seen.items()} == {unit.name: unit for unit in asked}
    assert all(one.status == "ready" and one.endpoint == endpoints[name] for name, one in seen.items())
    health = target.health([unit.name for unit in asked])
    assert all(one.ready and one.loads[f"{name[:2]}.a"]["served"] == 1 for name, one in health.items())


def test_loads_change_in_place_and_just_the_one_goes_that_is_to_go(target: Ray) -> None:
    before = target.start(units(2, "w1", "t4"), limit_s=90)
    changed = units(2, "w1", "t4", ms=40.0)
    after = target.load(changed, limit_s=60)
    assert after == before
    assert all(served_ms(at, "w1.a") > 35 for at in after.values())
    target.stop([changed[0].name], drain_s=10)
    assert {one.name: one.endpoint for one in target.observe()} == {changed[1].name: before[changed[1].name]}


def test_replicas_without_a_node_are_named_and_taken_back(target: Ray) -> None:
    kept = units(1, "w1", "t4")
    target.start(kept, limit_s=90)
    with pytest.raises(TargetFailed, match=r"no node yet for \S+, \S+") as failed:
        target.start(units(4, "w1", "t4"), limit_s=30)
    assert "hetplan-trial-w1" in failed.value.about
    assert wait_for(lambda: [one.name for one in target.observe()] == [kept[0].name], 90)
    with pytest.raises(TargetFailed, match="no node yet"):
        target.start([replace(units(1, "w3", "t4")[0], hardware="h100")], limit_s=20)


def test_a_worker_that_dies_comes_again(target: Ray) -> None:
    asked = units(1, "w1", "t4")
    endpoint = target.start(asked, limit_s=90)[asked[0].name]
    with urllib.request.urlopen(f"http://{endpoint.address}:{endpoint.port}/healthz", timeout=5) as answer:
        os.kill(json.loads(answer.read())["pid"], 9)

    def back() -> bool:
        health = target.health([asked[0].name])
        seen = target.observe()
        return bool(seen) and seen[0].endpoint not in (None, endpoint) and health[asked[0].name].ready

    assert wait_for(back, 60)


def test_a_whole_deployment_with_its_router_beside_the_cluster(dashboard: str, tmp_path: Path) -> None:
    load = Load(id="w1.a", app="rank", variant="m")
    plan = with_digest(
        Plan(
            question="pool",
            method=Method(formulation="by hand"),
            inputs=InputHashes(profile="sha256:01", slo="sha256:02"),
            workers=(Worker(id="w1", hardware="t4", count=2, loads=(load,)),),
            routing={"rank": (Route(to={"w1.a": 1.0}),)},
            dispatch={"rank": SharesDispatch(rule="shares/1")},
        )
    )
    hosts = read_hosts(
        {
            "name": "whole",
            "state_dir": str(tmp_path),
            "router": {"target": "here", "port": free_port()},
            "limits": {"start_s": 90, "drain_s": 5, "call_s": 20},
            "targets": {
                "here": {"kind": "local"},
                "cluster": {"kind": "ray", "settings": {"dashboard": dashboard}},
            },
            "hosts": {"pool": {"target": "cluster", "hardware": "t4", "machines": 2}},
            "models": [{"kind": "sleep", "ms": 3.0}],
        }
    )
    kinds: dict[str, Any] = {"local": Local, "ray": Ray}
    with Deployment(hosts, targets=kinds.__getitem__) as deployment:
        try:
            deployment.apply(plan)
            units = set()
            for _ in range(10):
                url = f"{deployment.endpoint()}/v1/rank"
                with urllib.request.urlopen(url, data=b"{}", timeout=10) as answer:
                    said = json.loads(answer.read())
                assert said["outcome"] == "served"
                units.add(said["path"][0]["unit"])
            assert len(units) == 2
            assert not deployment.difference(plan)
        finally:
            deployment.down()
        assert deployment.observe() == ()
