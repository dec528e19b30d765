"""The real `kubectl` against a small API server of the test's own: what is asked of it, it does."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hetplan.executor.hosts_file import read_hosts
from hetplan.executor.kubernetes.target import Kubernetes
from hetplan.executor.target import Setting, TargetFailed
from hetplan.executor.units import LoadSpec, Unit, named

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")


@pytest.fixture
def server() -> Iterator[Any]:
    spec = importlib.util.spec_from_file_location("small_api_server", Path(__file__).with_name("small_api_server.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    made = module.SmallApiServer()
    yield made
    made.close()


@pytest.fixture
def target(server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kubernetes:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "kubeconfig").write_text(server.kubeconfig())
    settings = {"kubeconfig": "kubeconfig", "context": "small", "image": "registry.example/hetplan:1", "away_s": 0.6}
    settings["hardware"] = {"t4": {"gpu": 0}}
    hosts = read_hosts(
        {
            "name": "prod",
            "limits": {"call_s": 60.0, "start_s": 60.0, "drain_s": 2.0},
            "targets": {"cluster": {"kind": "kubernetes", "settings": settings}},
            "hosts": {"pool": {"target": "cluster", "hardware": "t4", "machines": 9}},
        }
    ).model_copy(update={"folder": tmp_path})
    return Kubernetes(Setting("cluster", hosts, tmp_path, settings))


def units(count: int, **load: Any) -> list[Unit]:
    unit = Unit("", "w1", 0, "t4", "cluster", "pool", loads=(LoadSpec("w1.a", variant="m", **load),))
    return [named(replace(unit, index=index)) for index in range(count)]


def kinds(server: Any) -> list[str]:
    return sorted(resource for resource, _ in server.objects)


@pytest.mark.slow
def test_units_are_started_seen_changed_and_stopped(target: Kubernetes, server: Any) -> None:
    three = units(3)
    assert target.check(three) == []
    assert server.objects == {}
    target.start(three, limit_s=60)
    assert kinds(server) == ["configmaps", "deployments", "poddisruptionbudgets", "services"]
    assert [(one.unit, one.status) for one in target.observe()] == [(unit, "ready") for unit in three]
    assert [one.loads for one in target.health([three[0].name]).values()] == [{"w1.a": {"arrived": 7}}]
    changed = units(3, max_batch=8)
    assert "maxbatch" in target.diff(changed).replace("_", "").lower()
    target.load(changed, limit_s=60)
    assert [one.unit for one in target.observe()] == changed
    assert kinds(server) == ["configmaps", "deployments", "poddisruptionbudgets", "services"]
    target.stop([changed[2].name], drain_s=2)
    assert len(target.observe()) == 2
    target.stop([unit.name for unit in changed], drain_s=2)
    assert server.objects == {}


@pytest.mark.slow
def test_routes_are_rolled_out_and_everything_goes_down(target: Kubernetes, server: Any) -> None:
    target.start(units(1), limit_s=60)
    target.route({"revision": "1"}, limit_s=60)
    assert (target.routed() or {})["revision"] == "1"
    target.down(drain_s=2)
    assert server.objects == {}


@pytest.mark.slow
def test_a_server_that_is_gone_is_reported(target: Kubernetes, server: Any) -> None:
    server.close()
    with pytest.raises(TargetFailed, match=r"did not answer for 0\.6 s.*refused") as failed:
        target.observe()
    assert str(failed.value).count("refused") == 1, "kubectl says it for each kind"
