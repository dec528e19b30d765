"""A fake `kubectl` beside the tests, and what a plan becomes in its cluster."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cases.real_cluster import Server

from hetplan.executor.apply.platform import Platform
from hetplan.executor.site import read_site

HERE = Path(__file__).resolve().parent


@dataclass
class FakeCluster:
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
    def changes(self) -> list[str]:
        """The calls that changed something of the deployment, and the waits between them."""
        said = []
        for call in self.calls:
            verb, words = call["words"][0], call["words"]
            if verb == "apply" and "--dry-run=server" not in words:
                said.append("record" if len(call["given"]["items"]) == 1 else "apply")
            elif verb in ("rollout", "delete") and not words[1].startswith("--raw"):
                said.append(verb)
        return list(dict.fromkeys(said))

    @property
    def objects(self) -> dict[str, Any]:
        file = self.folder / "objects.json"
        return json.loads(file.read_text()) if file.exists() else {}

    @property
    def deployments(self) -> dict[str, int]:
        """How many replicas each has."""
        made = [one for one in self.objects.values() if one["kind"] == "Deployment"]
        return {one["metadata"]["name"]: one["spec"]["replicas"] for one in made}

    def kinds(self) -> list[str]:
        return sorted(name.split("/")[0] for name in self.objects)

    def play(self, **what: Any) -> None:
        (self.folder / "play.json").write_text(json.dumps(what))

    def put(self, *made: dict[str, Any]) -> None:
        added = {f"{one['kind']}/{one['metadata']['name']}": one for one in made}
        (self.folder / "objects.json").write_text(json.dumps({**self.objects, **added}))

    def edit(self, kind: str, change: Callable[[dict[str, Any]], None]) -> None:
        objects = self.objects
        for one in objects.values():
            if one["kind"] == kind:
                change(one)
        (self.folder / "objects.json").write_text(json.dumps(objects))

    def forget_calls(self) -> None:
        (self.folder / "calls").unlink(missing_ok=True)


@pytest.fixture
def cluster(tmp_path: Path) -> FakeCluster:
    made = FakeCluster(tmp_path / "cluster")
    made.folder.mkdir()
    script = (HERE / "fake_kubectl.py").read_text()
    program = Path(made.program)
    program.write_text(f"#!{sys.executable} -SE\n{script}")
    program.chmod(0o755)
    return made


@pytest.fixture
def platform(cluster: FakeCluster, tmp_path: Path) -> Callable[..., Platform]:
    """A deployment in the fake cluster, of a state folder and settings of the test's choice."""

    def make(folder: str = "mine", *, take_over: bool = False, **settings: Any) -> Platform:
        said = {"kubectl": cluster.program, "call_s": 60.0, "start_s": 60.0, **settings}
        site = read_site({"name": "prod", "state_dir": str(tmp_path / folder), "cluster": said})
        return Platform(site, take_over=take_over)

    return make


@pytest.fixture
def server() -> Iterator[Server]:
    """A namespace of a real API server."""
    made = Server()
    yield made
    made.ended.set()
    made.playing.join()
    made.ask("delete", "namespace", made.namespace, "--wait=false")
