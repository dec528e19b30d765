"""Against a live API server, where there is one: HETPLAN_TEST_KUBECONFIG names its kubeconfig.

HETPLAN_TEST_NAMESPACE is where (else `default`). The server looks at every manifest without changing anything; with
HETPLAN_TEST_IMAGE, an image that has this hetplan, workers are started, seen, and taken down as well.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from hetplan.executor.hosts_file import read_hosts
from hetplan.executor.kubernetes.target import Kubernetes
from hetplan.executor.target import Setting
from hetplan.executor.units import LoadSpec, Unit, named

KUBECONFIG, IMAGE = os.environ.get("HETPLAN_TEST_KUBECONFIG"), os.environ.get("HETPLAN_TEST_IMAGE")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not KUBECONFIG, reason="set HETPLAN_TEST_KUBECONFIG to try a live API server"),
]


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Kubernetes]:
    settings = {
        "kubeconfig": str(KUBECONFIG),
        "namespace": os.environ.get("HETPLAN_TEST_NAMESPACE", "default"),
        "image": IMAGE or "registry.example/hetplan:1",
        "hardware": {"any": {"gpu": 0}},
    }
    hosts = read_hosts(
        {
            "name": "hetplan-test",
            "limits": {"start_s": 120.0, "drain_s": 5.0, "call_s": 20.0},
            "targets": {"cluster": {"kind": "kubernetes", "settings": settings}},
            "hosts": {"pool": {"target": "cluster", "hardware": "any", "machines": 4}},
        }
    )
    made = Kubernetes(Setting("cluster", hosts, tmp_path, settings))
    yield made
    made.down(drain_s=30)


def units(count: int) -> list[Unit]:
    model = {"kind": "sleep", "law": {"ms": 5.0}, "statistic": "mean", "times": 1.0, "seed": 0}
    unit = Unit("", "w1", 0, "any", "cluster", "pool", loads=(LoadSpec("w1.a", app="rank", model=model),))
    return [named(replace(unit, index=index)) for index in range(count)]


def test_the_server_takes_the_manifests(target: Kubernetes) -> None:
    assert target.check(units(2)) == []
    assert "Deployment" in target.diff(units(2))
    assert target.observe() == ()


@pytest.mark.skipif(not IMAGE, reason="set HETPLAN_TEST_IMAGE to an image that has this hetplan")
def test_workers_come_are_changed_and_go(target: Kubernetes) -> None:
    two = units(2)
    target.start(two, limit_s=120)
    assert [one.status for one in target.observe()] == ["ready", "ready"]
    assert all(one.ready for one in target.health([unit.name for unit in two]).values())
    changed = [replace(unit, loads=(replace(unit.loads[0], max_batch=2),)) for unit in two]
    target.load(changed, limit_s=120)
    assert [one.content for one in target.observe()] == [unit.content for unit in changed]
    target.stop([two[1].name], drain_s=30)
    assert [one.name for one in target.observe()] == [two[0].name]
    target.down(drain_s=30)
    assert target.observe() == ()
