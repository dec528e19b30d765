"""The ssh target against a real `sshd`: workers outlive connections, hosts are named that cannot be reached."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hetplan.errors import InputError
from hetplan.executor.kept_process import end_all, marked
from hetplan.executor.site import read_site
from hetplan.executor.ssh.target import FilePlaces, SshTarget, control_folder
from hetplan.executor.target import Setting, TargetFailed
from hetplan.executor.units import LoadSpec, Seen, Unit, named
from hetplan.testing.target_checks import check_target

SLEEP = {"kind": "sleep", "law": {"ms": 4.0}, "statistic": "mean", "times": 1.0, "seed": 0}


def setting(tmp_path: Path, **settings: Any) -> Setting:
    hosts = read_site(
        {
            "name": "prod",
            "limits": {"call_s": 60.0, "start_s": 120.0, "drain_s": 1.0},
            "targets": {"here": {"kind": "local"}, "far": {"kind": "ssh", "settings": settings}},
            "hosts": {"box": {"target": "far", "machines": "t4", "count": 4}},
        }
    )
    return Setting("far", hosts.lying_in(tmp_path), tmp_path / "near", settings)


@pytest.fixture
def make(tmp_path: Path, sshd: Any) -> Iterator[Callable[..., SshTarget]]:
    made: list[SshTarget] = []

    def target(**changed: Any) -> SshTarget:
        made.append(SshTarget(setting(tmp_path, **{**sshd.settings, **changed})))
        return made[-1]

    yield target
    for one in made:
        one.close()
    end_all(far(sshd))


def far(sshd: Any) -> Path:
    folder: Path = sshd.folder
    return folder / "far" / "prod" / "far"


def units(count: int) -> list[Unit]:
    loads = (LoadSpec("w1.a", app="rank", model=SLEEP),)
    return [named(Unit("", "w1", index, "t4", "far", "box", loads=loads)) for index in range(count)]


def onnx(path: Path) -> LoadSpec:
    return LoadSpec("w1.a", model={"kind": "onnx", "path": str(path)})


def names(listed: list[Unit]) -> list[str]:
    return [unit.name for unit in listed]


@pytest.mark.slow
def test_it_does_what_targets_do(make: Callable[..., SshTarget]) -> None:
    model = {"kind": "command", "command": ["false"], "timeout_s": 1.0, "environment": {}}
    broken = named(Unit("", "bad", 0, "t4", "far", "box", loads=(LoadSpec("bad.a", model=model),)))
    check_target(make(), units(2), broken=broken)


def test_sockets_lie_where_their_names_are_short_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = tmp_path / ("x" * 40)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    for folder in ("/no/such/folder", str(long)):
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        assert control_folder() == Path(f"/tmp/hetplan-ssh-{os.getuid()}")
    short = Path(tempfile.mkdtemp(dir="/tmp"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short))
    found = control_folder()
    assert found.parent == short
    found.rmdir()
    short.rmdir()


def test_it_checks_its_settings(tmp_path: Path) -> None:
    for wrong in ({"address": "-oProxyCommand=x"}, {"address": "m1; id"}, {"address": "m1", "user": "-x"}, {}):
        with pytest.raises(InputError):
            SshTarget(setting(tmp_path, **wrong))


def test_workers_run_there_outlive_the_connection_and_are_gone_after_down(
    make: Callable[..., SshTarget], sshd: Any
) -> None:
    target, asked = make(), units(2)
    assert target.check(asked) == []
    endpoints = target.start(asked, limit_s=120)
    pids = marked(far(sshd))
    assert len(pids) == 3, "two workers and their keeper"
    sshd.cut()
    assert marked(far(sshd)) == pids
    assert {one.name: one.endpoint for one in target.observe()} == endpoints, "the line is made anew by itself"
    target.close()
    again = make()
    assert [one.unit for one in again.observe()] == asked
    assert all(one.status == "ready" for one in again.observe())
    again.stop(names(asked)[1:], drain_s=1)
    assert [one.name for one in again.observe()] == names(asked)[:1]
    again.down(drain_s=1)
    assert marked(far(sshd)) == []
    again.close()
    # ssh has asked its shared connection to end, and does not wait until it has.
    until = time.monotonic() + 60
    while (left := list(control_folder().glob(f"{os.getpid()}-*"))) and time.monotonic() < until:
        time.sleep(0.02)
    assert left == []


def test_model_files_are_looked_for_where_they_lie_there(
    make: Callable[..., SshTarget], sshd: Any, tmp_path: Path
) -> None:
    unit = named(Unit("", "w1", 0, "t4", "far", "box", loads=(onnx(tmp_path / "models" / "m.onnx"),)))
    assert make().check([unit]) == [f"there is no model file {tmp_path}/models/m.onnx"]
    there = sshd.folder / "there"
    assert make(files=str(there)).check([unit]) == [f"there is no model file {there}/models/m.onnx"]


def test_what_is_seen_there_is_what_was_wanted_here(tmp_path: Path) -> None:
    places = FilePlaces(str(tmp_path), "/srv/shop")
    unit = named(Unit("", "w1", 0, "t4", "far", "box", loads=(onnx(tmp_path / "m.onnx"), onnx(Path("/opt/m.onnx")))))
    said = places.sent(unit)
    assert [load.model["path"] for load in said.loads] == ["/srv/shop/m.onnx", "/opt/m.onnx"]
    seen = places.seen(Seen(unit.name, said.content, "ready", unit=said))
    assert (seen.unit, seen.content) == (unit, unit.content)
    assert places.seen(Seen("x", "sha256:00", "ready")).content == "sha256:00"


def test_a_host_that_is_gone_is_named_and_found_again(make: Callable[..., SshTarget], sshd: Any) -> None:
    target, asked = make(), units(2)
    target.start(asked[:1], limit_s=120)
    sshd.stop()
    with pytest.raises(TargetFailed) as failed:
        target.start(asked, limit_s=120)
    text = str(failed.value)
    assert "target far" in text
    assert asked[1].name in text
    assert f"127.0.0.1 port {sshd.port} cannot be reached" in text
    assert "refused" in text
    assert len(marked(far(sshd))) == 2, "what ran goes on running"
    sshd.start()
    target.start(asked, limit_s=120)
    assert [one.name for one in target.observe()] == names(asked)
    target.down(drain_s=1)


def test_an_unknown_host_key_is_refused(make: Callable[..., SshTarget], sshd: Any) -> None:
    (sshd.folder / "nobody").write_text("")
    with pytest.raises(TargetFailed, match=r"cannot be reached: .*[Hh]ost key"):
        make(known_hosts=str(sshd.folder / "nobody")).observe()
    assert (sshd.folder / "nobody").read_text() == ""


def test_a_machine_without_hetplan_or_ssh_is_reported(make: Callable[..., SshTarget]) -> None:
    with pytest.raises(TargetFailed, match="no-such-python"):
        make(python="/no-such-python").observe()
    with pytest.raises(TargetFailed, match="/no/such/ssh cannot be run"):
        make(ssh="/no/such/ssh").observe()


def test_words_of_the_settings_reach_no_shell(make: Callable[..., SshTarget], sshd: Any) -> None:
    with pytest.raises(TargetFailed):
        make(python=f"python3; touch {sshd.folder}/broken #").observe()
    assert not (sshd.folder / "broken").exists()
