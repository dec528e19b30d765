"""A fake `kubectl` beside the tests, and a target that uses it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cases.real_cluster import Server

from hetplan.executor.hosts_file import read_hosts
from hetplan.executor.kubernetes.target import Kubernetes
from hetplan.executor.target import Setting

HERE = Path(__file__).resolve().parent


@dataclass
class Cluster:
    """The fake's folder."""

    folder: Path

    @property
    def program(self) -> str:
        return str(self.folder / "kubectl")

    @property
    def calls(self) -> list[dict[str, Any]]:
        file = self.folder / "calls"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    @property
    def verbs(self) -> list[str]:
        return [call["words"][0] for call in self.calls]

    @property
    def objects(self) -> dict[str, Any]:
        return json.loads((self.folder / "objects.json").read_text())

    def kinds(self) -> list[str]:
        return sorted(name.split("/")[0] for name in self.objects)

    def play(self, **what: Any) -> None:
        (self.folder / "play.json").write_text(json.dumps(what))

    def forget_calls(self) -> None:
        (self.folder / "calls").unlink(missing_ok=True)


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    made = Cluster(tmp_path / "cluster")
    made.folder.mkdir()
    script = (HERE / "fake_kubectl.py").read_text()
    program = Path(made.program)
    program.write_text(f"#!{sys.executable} -SE\n{script}")
    program.chmod(0o755)
    return made


@pytest.fixture
def target(cluster: Cluster) -> Callable[..., Kubernetes]:
    """A target with settings and hosts of the test's choice."""

    def make(
        *, hosts: dict[str, Any] | None = None, limits: dict[str, Any] | None = None, **settings: Any
    ) -> Kubernetes:
        machines: dict[str, Any] = {"target": "cluster", "hardware": ["t4", "cpu4"], "machines": 100}
        known = {name: {"gpu": 0, "node_selector": {"machine": name}} for name in machines["hardware"]}
        settings = {"kubectl": cluster.program, "image": "registry.example/hetplan:1", "hardware": known, **settings}
        content = {
            "name": "prod",
            "limits": {"call_s": 60.0, "start_s": 60.0, "drain_s": 1.0, **(limits or {})},
            "targets": {"cluster": {"kind": "kubernetes", "settings": settings}},
            "hosts": {"pool": {**machines, **(hosts or {})}},
        }
        return Kubernetes(Setting("cluster", read_hosts(content), cluster.folder, settings))

    return make


@pytest.fixture
def server() -> Iterator[Server]:
    """A namespace of a real API server."""
    made = Server()
    yield made
    made.ended.set()
    made.playing.join()
    made.ask("delete", "namespace", made.namespace, "--wait=false")
