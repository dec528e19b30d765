"""A whole deployment over two machines, one of them reached by ssh: applied, cut off in the middle, finished."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hetplan.executor.deployment import Deployment, Progress
from hetplan.executor.kept_process import end_all, marked
from hetplan.executor.local import Local
from hetplan.executor.site import read_site
from hetplan.executor.ssh.target import SshTarget
from hetplan.executor.target import ApplyFailed
from hetplan.profiles.plan import InputHashes, Method, Plan, Route
from hetplan.profiles.plan_file import with_digest
from hetplan.profiles.plan_sections import SharesDispatch
from hetplan.profiles.workers import Load, Worker

KINDS: dict[str, Any] = {"local": Local, "ssh": SshTarget}


def plan(near: int, far: int) -> Plan:
    """So many workers on this machine and so many on the other, all serving one application."""
    groups = [("w1", "cpu", near), ("w2", "gpu", far)]
    workers = tuple(
        Worker(id=name, hardware=hardware, count=count, loads=(Load(id=f"{name}.a", app="rank", variant="m"),))
        for name, hardware, count in groups
        if count
    )
    shares = {f"{worker.id}.a": worker.count / (near + far) for worker in workers}
    return with_digest(
        Plan(
            question="pool",
            requires=("shares/1",),
            method=Method(formulation="by hand"),
            inputs=InputHashes(profile="sha256:01", slo="sha256:02"),
            workers=workers,
            routing={"rank": (Route(to=shares),)},
            dispatch={"rank": SharesDispatch(rule="shares/1")},
        )
    )


@pytest.fixture
def deployment(tmp_path: Path, sshd: Any) -> Iterator[Deployment]:
    hosts = read_site(
        {
            "name": "two",
            "state_dir": str(tmp_path / "state"),
            "limits": {"call_s": 60.0, "start_s": 120.0, "drain_s": 1.0},
            "router": {"target": "here", "port": 0},
            "targets": {"here": {"kind": "local"}, "far": {"kind": "ssh", "settings": sshd.settings}},
            "hosts": {
                "near-box": {"target": "here", "machines": "cpu", "count": 4},
                "far-box": {"target": "far", "machines": "gpu", "count": 4},
            },
            "models": {"*": {"kind": "sleep", "ms": 2.0}},
        }
    )
    made = Deployment(hosts, targets=KINDS.__getitem__)
    yield made
    made.close()
    for folder in (made.folder / "targets" / "here", Path(sshd.settings["folder"]) / "two" / "far"):
        end_all(folder)


def served(deployment: Deployment, queries: int) -> set[str]:
    """The workers that served so many queries, all of which must have been served."""
    found = set()
    for _ in range(queries):
        with urllib.request.urlopen(f"{deployment.endpoint()}/v1/rank", data=b"{}", timeout=60) as answer:
            said = json.loads(answer.read())
        assert said["outcome"] == "served"
        found.add(said["path"][0]["unit"].split("-")[0])
    return found


def test_a_host_that_vanishes_during_an_apply_is_named_and_the_next_apply_finishes(
    deployment: Deployment, sshd: Any
) -> None:
    deployment.apply(plan(1, 1))
    assert served(deployment, 10) == {"w1", "w2"}
    heard: list[Progress] = []

    def cut_at_the_first_step(progress: Progress) -> None:
        heard.append(progress)
        if progress.kind == "step" and progress.number == 1:
            sshd.stop()

    with pytest.raises(ApplyFailed) as failed:
        deployment.apply(plan(2, 2), on_event=cut_at_the_first_step)
    assert "target far" in str(failed.value)
    assert f"127.0.0.1 port {sshd.port} cannot be reached" in str(failed.value)
    assert [progress.kind for progress in heard][:2] == ["step", "failed"]
    assert served(deployment, 10) == {"w1", "w2"}, "queries go on through what runs, on the lost machine too"
    sshd.start()
    assert deployment.unfinished() is not None
    deployment.apply(plan(2, 2))
    assert not deployment.difference(plan(2, 2))
    assert deployment.unfinished() is None
    deployment.down()
    assert marked(deployment.folder / "targets" / "here") == []
    assert marked(Path(sshd.settings["folder"]) / "two" / "far") == []
