"""The far end without ssh: what is asked, answered, refused."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hetplan import __version__
from hetplan.executor.ssh.far import answer
from hetplan.executor.target import Setting, TargetFailed
from hetplan.executor.units import Endpoint, LoadSpec, Seen, Unit, named

UNIT = named(Unit("", "w1", 0, "t4", "far", "box", loads=(LoadSpec("w1.a", variant="m", knobs={"size": 640}),)))


class Memory:
    """A target that runs nothing and remembers what it was asked for."""

    kind = "memory"

    def __init__(self, setting: Setting | None = None) -> None:
        self.setting = setting
        self.name = setting.name if setting is not None else "far"
        self.asked: list[Any] = []
        self.units: dict[str, Unit] = {}
        self.routes: Mapping[str, Any] | None = None
        self.closed = False

    def check(self, units: Sequence[Unit]) -> list[str]:
        return [f"no room for {unit.name}" for unit in units if unit.hardware == "h100"]

    def observe(self) -> tuple[Seen, ...]:
        return tuple(Seen(u.name, u.content, "ready", Endpoint("far", 9), u) for u in self.units.values())

    def start(self, units: Sequence[Unit], *, limit_s: float) -> dict[str, Endpoint]:
        self.asked.append(("start", limit_s))
        self.units |= {unit.name: unit for unit in units}
        return {unit.name: Endpoint("far", 9) for unit in units}

    def load(self, units: Sequence[Unit], *, limit_s: float) -> dict[str, Endpoint]:
        raise TargetFailed(self.name, units[0].name, "the model file is damaged")

    def stop(self, names: Sequence[str], *, drain_s: float) -> None:
        self.asked.append(("stop", list(names), drain_s))

    def route(self, routes: Mapping[str, Any] | None, *, limit_s: float) -> None:
        self.routes = routes

    def routed(self) -> Mapping[str, Any] | None:
        return self.routes

    def down(self, *, drain_s: float) -> None:
        raise RuntimeError("a bug")

    def close(self) -> None:
        self.closed = True


def ask(folder: Path, target: Memory, call: str, **said: Any) -> Any:
    """A call and its reply, both as ssh carries them."""

    def make(setting: Setting) -> Memory:
        target.setting = setting
        return target

    hosts = {
        "name": "prod",
        "targets": {"far": {"kind": "local"}},
        "hosts": {"box": {"target": "far", "machines": "t4", "count": 1}},
    }
    setting = {"hetplan": __version__, "name": "far", "deployment": "prod", "folder": str(folder / "f"), "settings": {}}
    message = {**setting, "site": hosts, "call": call, **said}
    return json.loads(json.dumps(answer(json.loads(json.dumps(message)), make)))


def test_every_call_reaches_the_target_and_its_answer_comes_back(tmp_path: Path) -> None:
    target, units = Memory(), [UNIT.as_dict()]
    assert ask(tmp_path, target, "check", units=units) == {"reply": []}
    started = ask(tmp_path, target, "start", units=units, limit_s=7)["reply"]
    assert started == {UNIT.name: {"address": "far", "port": 9}}
    assert target.units == {UNIT.name: UNIT}
    (seen,) = ask(tmp_path, target, "observe")["reply"]
    assert (Unit.from_dict(seen["unit"]), seen["status"], seen["endpoint"]["port"]) == (UNIT, "ready", 9)
    ask(tmp_path, target, "stop", names=["x"], drain_s=2)
    assert target.asked == [("start", 7), ("stop", ["x"], 2)]
    ask(tmp_path, target, "route", routes={"apps": {}}, limit_s=3)
    assert ask(tmp_path, target, "routed")["reply"] == {"apps": {}}
    assert target.closed
    assert target.setting is not None
    assert target.setting.folder == tmp_path / "f" / "prod" / "far"
    assert list(target.setting.site.hosts) == ["box"]


def test_failures_come_back_with_their_reason(tmp_path: Path) -> None:
    target = Memory()
    failed = ask(tmp_path, target, "load", units=[UNIT.as_dict()], limit_s=1)
    assert failed == {"failed": {"about": UNIT.name, "why": "the model file is damaged"}}
    assert ask(tmp_path, target, "down", drain_s=1) == {"failed": {"about": "down", "why": "RuntimeError: a bug"}}
    assert "no such call" in ask(tmp_path, target, "reboot")["failed"]["why"]
    assert ask(tmp_path, target, "start", units=[{"name": "x"}], limit_s=1)["failed"]["about"] == "start"


def test_another_version_and_bad_hosts_are_refused(tmp_path: Path) -> None:
    target = Memory()
    assert "install the same version" in ask(tmp_path, target, "observe", hetplan="0.0.1")["failed"]["why"]
    assert "InputError" in ask(tmp_path, target, "observe", site={"targets": 3})["failed"]["why"]
    assert target.setting is None
