"""The real `kubectl` against a small API server of the test's own: what is asked of it, it does."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cases.in_a_cluster import rendered

from hetplan.executor.apply.platform import Platform
from hetplan.executor.site import read_site
from hetplan.executor.target import TargetFailed

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
NAME = "rank-net-cpu"


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
def platform(server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Platform:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "kubeconfig").write_text(server.kubeconfig())
    said = {"kubeconfig": "kubeconfig", "context": "small", "away_s": 0.6, "call_s": 60.0}
    return Platform(read_site({"name": "prod", "cluster": said}).lying_in(tmp_path))


def kinds(server: Any) -> list[str]:
    return sorted(resource for resource, _ in server.objects)


@pytest.mark.slow
def test_a_plan_comes_up_is_seen_changed_and_goes(platform: Platform, server: Any) -> None:
    one = rendered(rank=3)
    assert platform.changes(one).made
    assert server.objects == {}
    platform.apply(one)
    assert kinds(server) == ["configmaps", "deployments", "poddisruptionbudgets", "services"]
    assert [(group.name, group.ready) for group in platform.groups()] == [(NAME, 3)]
    assert platform.apply(one) == (), "the second apply changes nothing"
    other = rendered("registry.example/net:2", rank=3, ask=1)
    found = platform.changes(other)
    assert ("Deployment", NAME) in found.changed
    assert ("Deployment", "ask-net-cpu") in found.made
    assert "registry.example/net:2" in found.text
    platform.apply(other)
    platform.apply(rendered(ask=1))
    assert [group.name for group in platform.groups()] == ["ask-net-cpu"]
    platform.down()
    assert server.objects == {}


@pytest.mark.slow
def test_a_server_that_is_gone_is_reported(platform: Platform, server: Any) -> None:
    server.close()
    for look in (platform.groups, lambda: platform.changes(rendered(rank=1))):
        with pytest.raises(TargetFailed, match=r"did not answer for 0\.6 s.*refused") as failed:
            look()
        assert str(failed.value).count("refused") == 1, "kubectl says it for each kind"
