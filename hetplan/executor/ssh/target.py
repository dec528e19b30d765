"""The `ssh` target: each call is one `ssh` command, and the far machine's local target does it.

Plain `ssh` with strict host keys and without a prompt; calls share a connection, and every wait is bounded. The remote
command is a fixed one (`PYTHON -m hetplan.executor.ssh.far`), quoted word by word; what a plan says goes in as data.
Model files have a place here and a place there: units are sent as the far machine knows them.
"""

from __future__ import annotations

import json
import os
import shlex
import stat
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

from pydantic import Field

from hetplan.executor.ssh.far import own_version
from hetplan.executor.target import Setting, TargetFailed
from hetplan.executor.units import Endpoint, LoadSpec, Seen, Unit
from hetplan.profiles.fields import Model, Positive
from hetplan.profiles.validate import validate

__all__ = ["FilePlaces", "SshSettings", "SshTarget", "control_folder"]

_GRACE_S = 5.0
"""How much longer than the far end's own limit its answer is waited for."""


class SshTarget:
    """One machine reached by ssh, where hetplan is installed."""

    kind: ClassVar[str] = "ssh"

    def __init__(self, setting: Setting) -> None:
        self.name = setting.name
        self.settings = validate(SshSettings, dict(setting.settings), file="site.toml")
        self._setting = setting
        here = str(setting.site.folder)
        self._places = FilePlaces(here, self.settings.files or here)

    def check(self, units: Sequence[Unit]) -> list[str]:
        """The far machine's own reasons."""
        said: list[str] = self._ask({"call": "check", **self._units(units)})
        return said

    def observe(self) -> tuple[Seen, ...]:
        """What runs on the far machine."""
        return tuple(self._places.seen(_seen(one)) for one in self._ask({"call": "observe"}))

    def settle(self, *, limit_s: float) -> None:
        """What is under way there ends first."""
        self._ask({"call": "settle", "limit_s": limit_s}, limit_s=limit_s)

    def start(self, units: Sequence[Unit], *, limit_s: float) -> dict[str, Endpoint]:
        """Start units there."""
        return self._bring_about("start", units, limit_s)

    def load(self, units: Sequence[Unit], *, limit_s: float) -> dict[str, Endpoint]:
        """Change what units there hold."""
        return self._bring_about("load", units, limit_s)

    def _bring_about(self, call: str, units: Sequence[Unit], limit_s: float) -> dict[str, Endpoint]:
        asked = {"call": call, **self._units(units), "limit_s": limit_s}
        return {name: Endpoint(**endpoint) for name, endpoint in self._ask(asked, limit_s=limit_s).items()}

    def stop(self, names: Sequence[str], *, drain_s: float) -> None:
        """Stop units there."""
        # The keeper there first waits for a start that is under way for an apply which was killed.
        limit_s = drain_s + self._setting.site.limits.start_s
        self._ask({"call": "stop", "names": list(names), "drain_s": drain_s}, limit_s=limit_s)

    def route(self, routes: Mapping[str, Any] | None, *, limit_s: float) -> None:
        """Have the router there follow these routes."""
        self._ask({"call": "route", "routes": routes, "limit_s": limit_s}, limit_s=limit_s)

    def routed(self) -> Mapping[str, Any] | None:
        """What the router there follows."""
        followed: Mapping[str, Any] | None = self._ask({"call": "routed"})
        return followed

    def down(self, *, drain_s: float) -> None:
        """Stop everything there and end the shared connection."""
        self._ask({"call": "down", "drain_s": drain_s}, limit_s=drain_s)
        self.close()

    def close(self) -> None:
        """Hang up; what runs there goes on."""
        with suppress(OSError, subprocess.TimeoutExpired, _Lost):
            command = [*self._command(), "-O", "exit", "--", self._destination]
            subprocess.run(command, capture_output=True, timeout=10.0, check=False)

    def _ask(self, message: Mapping[str, Any], *, limit_s: float = 0.0) -> Any:
        limit_s += self._setting.site.limits.call_s + self.settings.connect_s + _GRACE_S
        try:
            try:
                reply = self._called(message, limit_s)
            except _Broke:
                self.close()  # the shared connection is of before; every call may be made twice
                reply = self._called(message, limit_s)
        except _Lost as lost:
            self.close()
            raise self._unreachable(message, lost) from None
        if "failed" in reply:
            raise TargetFailed(self.name, reply["failed"]["about"], reply["failed"]["why"])
        return reply["reply"]

    def _called(self, message: Mapping[str, Any], limit_s: float) -> Any:
        """One ssh command with a call, and what it answers."""
        asked = json.dumps({"hetplan": own_version(), **self._far_setting(), **message}, allow_nan=False)
        far = shlex.join((self.settings.python, "-m", "hetplan.executor.ssh.far"))
        try:
            # Ctrl-C is for the command that this is part of.
            ran = subprocess.run(
                [*self._command(), "--", self._destination, far], input=asked.encode(), capture_output=True,
                timeout=limit_s, check=False, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise _Lost(f"{self.settings.ssh} cannot be run: {error.strerror}") from None
        except subprocess.TimeoutExpired:
            raise _Lost(f"no answer to {message['call']} within {limit_s:g} s") from None
        said = " ".join(ran.stderr.decode(errors="replace").split()[-80:])
        if ran.returncode == _OF_SSH:
            raise _Broke(said or "the connection broke")
        try:
            return json.loads(ran.stdout)
        except ValueError:
            why = f"the far end did not answer in JSON: {ran.stdout[:80]!r}"
            raise _Lost(said if ran.returncode else why) from None

    @property
    def _destination(self) -> str:
        return f"{self.settings.user}@{self.settings.address}" if self.settings.user else self.settings.address

    def _command(self) -> list[str]:
        return [self.settings.ssh, *_options(self.settings, self._setting.site.folder)]

    def _far_setting(self) -> dict[str, Any]:
        """What the far end is to know of site.toml: this machine's part of it, and no other target's."""
        site = self._setting.site
        whole = site.model_dump(
            mode="json", exclude_defaults=True, include={"format", "name", "limits", "router", "security", "hosts"}
        )
        return {
            "name": self.name,
            "deployment": site.name,
            "folder": self.settings.folder,
            "settings": self.settings.model_dump(include={"mps_pipe", "gpu_list"}, exclude_none=True),
            "site": {
                **whole,
                "security": {"token_file": self.settings.token_file, "open": site.security.open},
                "targets": {self.name: {"kind": "local", "settings": {}}},
                "router": {**whole.get("router", {}), "target": self.name},
                "hosts": {name: host for name, host in whole["hosts"].items() if host["target"] == self.name},
            },
        }

    def _unreachable(self, message: Mapping[str, Any], lost: _Lost) -> TargetFailed:
        where = f"{self.settings.address} port {self.settings.port}"
        about = ", ".join(unit["name"] for unit in message.get("units", ())) or ", ".join(message.get("names", ()))
        asked = f"{message['call']} {about}".strip()
        return TargetFailed(self.name, asked, f"{where} cannot be reached: {lost.why}")

    def _units(self, units: Sequence[Unit]) -> dict[str, Any]:
        return {"units": [self._places.sent(unit).as_dict() for unit in units]}


def _seen(one: Mapping[str, Any]) -> Seen:
    endpoint = Endpoint(**one["endpoint"]) if one["endpoint"] is not None else None
    unit = Unit.from_dict(one["unit"]) if one["unit"] is not None else None
    return Seen(**{**one, "endpoint": endpoint, "unit": unit})


@dataclass(frozen=True)
class FilePlaces:
    """What lies below `here` on this machine lies below `there` on the far one; other paths are the same on both.

    >>> load = LoadSpec("w1.a", model={"kind": "onnx", "path": "/opt/shop/models/m.onnx"})
    >>> places = FilePlaces("/opt/shop", "/srv/shop")
    >>> unit = places.sent(Unit("w1-0-4df5b1", "w1", 0, "t4", "far", "box", loads=(load,)))
    >>> unit.loads[0].model["path"]
    '/srv/shop/models/m.onnx'
    >>> places.known(unit).loads == (load,)
    True
    """

    here: str
    there: str

    def sent(self, unit: Unit) -> Unit:
        """The unit with its files where they lie there."""
        return _moved(unit, self.here, self.there)

    def known(self, unit: Unit) -> Unit:
        """The unit with its files where they lie here."""
        return _moved(unit, self.there, self.here)

    def seen(self, seen: Seen) -> Seen:
        """What the far machine saw, its content as ours is counted."""
        if seen.unit is None:
            return seen
        unit = self.known(seen.unit)
        return replace(seen, unit=unit, content=unit.content if seen.content == seen.unit.content else seen.content)


def _moved(unit: Unit, origin: str, goal: str) -> Unit:
    return replace(unit, loads=tuple(replace(load, model=_model(load, origin, goal)) for load in unit.loads))


def _model(load: LoadSpec, origin: str, goal: str) -> Mapping[str, Any]:
    path = PurePosixPath(str(load.model.get("path", "")))
    if "path" not in load.model or not path.is_relative_to(origin):
        return load.model
    return {**load.model, "path": str(goal / path.relative_to(origin))}


class SshSettings(Model):
    """`[targets.NAME.settings]` of an ssh target: one machine, and how to reach it."""

    address: str = Field(min_length=1, pattern=r"^[A-Za-z0-9]([A-Za-z0-9._:%-]*[A-Za-z0-9])?$")
    user: str | None = Field(default=None, pattern=r"^[A-Za-z_][A-Za-z0-9._-]*$")
    port: int = Field(default=22, ge=1, le=65535)
    ssh: str = Field(default="ssh", description="the ssh program")
    identity_file: str | None = Field(default=None, description="relative to site.toml; by default ssh's own choice")
    known_hosts: str | None = Field(default=None, description="relative to site.toml; by default ssh's own file")
    python: str = Field(default="python3", description="the far machine's Python that has hetplan installed")
    folder: str = Field(default=".hetplan", description="where the far machine keeps its side, below its home")
    files: str | None = Field(
        default=None, pattern="^/", description="the folder there that holds what lies beside site.toml here"
    )
    mps_pipe: str | None = Field(default=None, pattern="^/", description="of the far machine, as for a local target")
    gpu_list: str | None = Field(default=None, pattern="^/", description="of the far machine, as for a local target")
    token_file: str | None = Field(default=None, pattern="^/", description="of the far machine: the deployment's token")
    connect_s: Positive = Field(default=10.0, description="how long connecting may take")
    silent_s: Positive = Field(default=15.0, description="a connection that is dead for so long counts as lost")


_LONGEST = 37
"""Bytes of a folder for sockets: `/PID-%C` and what ssh appends while it makes one take 66 of the system's 103."""


_OF_SSH = 255
"""With which ssh ends where the failure is its own."""


class _Lost(Exception):
    """A call has no answer: `why` is what ssh, or the far end, said."""

    def __init__(self, why: str) -> None:
        self.why = why
        super().__init__(why)


class _Broke(_Lost):
    """The connection could not be made, or broke."""


def control_folder() -> Path:
    """A folder of this user's alone for the sockets of shared connections; short, as sockets need it.

    >>> oct(control_folder().stat().st_mode & 0o777)
    '0o700'
    """
    places = [Path(place) for place in (os.environ.get("XDG_RUNTIME_DIR"), tempfile.gettempdir()) if place]
    folders = [place / f"hetplan-ssh-{os.getuid()}" for place in (*places, Path("/tmp")) if os.access(place, os.W_OK)]
    folder = next((one for one in folders if len(os.fsencode(one)) <= _LONGEST), folders[-1])
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise _Lost(f"{folder} is not a folder of yours alone; remove it")
    return folder


def _options(settings: SshSettings, files: Path) -> list[str]:
    """Options for `ssh`: no prompt, no unknown key, no forwarding, a shared connection, an end to silence."""
    third = max(1, round(settings.silent_s / 3))
    given = {
        "BatchMode": "yes",
        "ConnectTimeout": f"{max(1, round(settings.connect_s))}",
        "ControlMaster": "auto",
        "ControlPath": f"{control_folder()}/{os.getpid()}-%C",
        "ControlPersist": "60",
        "ForwardAgent": "no",
        "ForwardX11": "no",
        "LogLevel": "ERROR",
        "ServerAliveCountMax": "3",
        "ServerAliveInterval": f"{third}",
        "StrictHostKeyChecking": "yes",
    }
    if settings.known_hosts is not None:
        given["UserKnownHostsFile"] = f'"{_file(files, settings.known_hosts)}"'
        given["GlobalKnownHostsFile"] = "/dev/null"
    if settings.identity_file is not None:
        given["IdentitiesOnly"] = "yes"
    options = [word for name, value in given.items() for word in ("-o", f"{name}={value}")]
    if settings.identity_file is not None:
        options += ["-i", str(_file(files, settings.identity_file))]
    return ["-T", "-p", str(settings.port), *options]


def _file(files: Path, written: str) -> Path:
    return (files / Path(written).expanduser()).resolve()
