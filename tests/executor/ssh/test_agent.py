"""The two ends of the line without a line: what is asked, answered, refused."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hetplan import __version__
from hetplan.executor.ssh.agent import serve
from hetplan.executor.ssh.wire import answer, endpoints_from, healths_from, line_of, seen_from
from hetplan.executor.target import Setting, TargetFailed, UnitHealth
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

    def health(self, names: Sequence[str]) -> dict[str, UnitHealth]:
        return {name: UnitHealth(True, loads={"w1.a": {"served": 3}}) for name in names}

    def route(self, routes: Mapping[str, Any] | None, *, limit_s: float) -> None:
        self.routes = routes

    def routed(self) -> Mapping[str, Any] | None:
        return self.routes

    def down(self, *, drain_s: float) -> None:
        raise RuntimeError("a bug")

    def close(self) -> None:
        self.closed = True


def ask(target: Memory, call: str, **rest: Any) -> Any:
    """A call and its reply, both as they go over the line."""
    message = json.loads(line_of({"call": call, **rest}))
    return json.loads(line_of(answer(target, message)))


def test_every_call_reaches_the_target_and_its_answer_comes_back() -> None:
    target, units = Memory(), [UNIT.as_dict()]
    assert ask(target, "check", units=units) == {"reply": []}
    started = endpoints_from(ask(target, "start", units=units, limit_s=7)["reply"])
    assert started == {UNIT.name: Endpoint("far", 9)}
    assert target.units == {UNIT.name: UNIT}
    assert seen_from(ask(target, "observe")["reply"]) == target.observe()
    assert healths_from(ask(target, "health", names=["x"])["reply"]) == target.health(["x"])
    ask(target, "stop", names=["x"], drain_s=2)
    assert target.asked == [("start", 7), ("stop", ["x"], 2)]
    ask(target, "route", routes={"apps": {}}, limit_s=3)
    assert ask(target, "routed")["reply"] == {"apps": {}}


def test_failures_come_back_with_their_reason() -> None:
    target = Memory()
    failed = ask(target, "load", units=[UNIT.as_dict()], limit_s=1)
    assert failed == {"failed": {"about": UNIT.name, "why": "the model file is damaged"}}
    assert ask(target, "down", drain_s=1) == {"failed": {"about": "down", "why": "RuntimeError: a bug"}}
    assert "no such call" in ask(target, "reboot")["failed"]["why"]
    assert ask(target, "start", units=[{"name": "x"}], limit_s=1)["failed"]["about"] == "start"


def talk(tmp_path: Path, *messages: dict[str, Any], made: list[Memory] | None = None) -> list[Any]:
    def make(setting: Setting) -> Memory:
        target = Memory(setting)
        if made is not None:
            made.append(target)
        return target

    replies = io.BytesIO()
    serve(io.BytesIO(b"".join(line_of(message) for message in messages)), replies, make)
    return [json.loads(line) for line in replies.getvalue().splitlines()]


def hello(tmp_path: Path, **changed: Any) -> dict[str, Any]:
    hosts = {
        "name": "prod",
        "targets": {"far": {"kind": "local"}},
        "hosts": {"box": {"target": "far", "hardware": "t4", "machines": 1}},
    }
    said = {"call": "hello", "hetplan": __version__, "name": "far", "deployment": "prod", "folder": str(tmp_path / "f")}
    return {**said, "settings": {}, "hosts": hosts, **changed}


def test_the_agent_answers_line_by_line_and_lets_go_at_the_end(tmp_path: Path) -> None:
    made: list[Memory] = []
    replies = talk(tmp_path, hello(tmp_path), {"call": "routed"}, made=made)
    assert replies[0]["reply"]["hetplan"] == __version__
    assert replies[1] == {"reply": None}
    assert made[0].closed
    assert made[0].setting is not None
    assert made[0].setting.folder == tmp_path / "f" / "prod" / "far"
    assert list(made[0].setting.hosts.hosts) == ["box"]


def test_another_version_and_a_missing_hello_are_refused(tmp_path: Path) -> None:
    assert "install the same version" in talk(tmp_path, hello(tmp_path, hetplan="0.0.1"))[0]["failed"]["why"]
    assert "first line" in talk(tmp_path, {"call": "observe"})[0]["failed"]["why"]


def test_bad_hosts_are_reported_not_raised(tmp_path: Path) -> None:
    said = talk(tmp_path, hello(tmp_path, hosts={"targets": {}}), {"call": "observe"})
    assert "InputError" in said[0]["failed"]["why"]
    assert "failed" in said[1]
