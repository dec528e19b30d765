"""The `ssh` target: the far machine's agent does the work, this end holds one ssh connection to it.

Plain `ssh` with strict host keys and without a prompt; every wait is bounded. The remote command is a fixed one
(`PYTHON -m hetplan.executor.ssh.agent`), quoted word by word; what a plan says goes over the line as data. Model files
have a place here and a place there: units are sent as the far machine knows them.
"""

from __future__ import annotations

import json
import os
import queue
import shlex
import stat
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

from pydantic import Field

from hetplan.executor.ssh.wire import endpoints_from, healths_from, line_of, own_version, seen_from
from hetplan.executor.target import Setting, TargetFailed, UnitHealth
from hetplan.executor.units import Endpoint, LoadSpec, Seen, Unit
from hetplan.profiles.fields import Model, Positive
from hetplan.profiles.validate import validate

__all__ = ["FilePlaces", "LineLost", "SshLine", "SshSettings", "SshTarget", "control_folder"]

_GRACE_S = 5.0
"""How much longer than the far end's own limit its answer is waited for."""


class SshTarget:
    """One machine reached by ssh, where hetplan is installed."""

    kind: ClassVar[str] = "ssh"

    def __init__(self, setting: Setting) -> None:
        self.name = setting.name
        self.settings = validate(SshSettings, dict(setting.settings), file="hosts.toml")
        self._setting = setting
        here = str(setting.hosts.folder)
        self._places = FilePlaces(here, self.settings.files or here)
        self._line: SshLine | None = None

    def check(self, units: Sequence[Unit]) -> list[str]:
        """The far machine's own reasons."""
        said: list[str] = self._ask({"call": "check", **self._units(units)})
        return said

    def observe(self) -> tuple[Seen, ...]:
        """What runs on the far machine."""
        return tuple(self._places.seen(one) for one in seen_from(self._ask({"call": "observe"})))

    def settle(self, *, limit_s: float) -> None:
        """What is under way there ends first."""
        self._ask({"call": "settle", "limit_s": limit_s}, limit_s=limit_s)

    def start(self, units: Sequence[Unit], *, limit_s: float) -> dict[str, Endpoint]:
        """Start units there."""
        return endpoints_from(self._ask({"call": "start", **self._units(units), "limit_s": limit_s}, limit_s=limit_s))

    def load(self, units: Sequence[Unit], *, limit_s: float) -> dict[str, Endpoint]:
        """Change what units there hold."""
        return endpoints_from(self._ask({"call": "load", **self._units(units), "limit_s": limit_s}, limit_s=limit_s))

    def stop(self, names: Sequence[str], *, drain_s: float) -> None:
        """Stop units there."""
        # The keeper there first waits for a start that is under way for an apply which was killed.
        limit_s = drain_s + self._setting.hosts.limits.start_s
        self._ask({"call": "stop", "names": list(names), "drain_s": drain_s}, limit_s=limit_s)

    def health(self, names: Sequence[str]) -> dict[str, UnitHealth]:
        """How units there are."""
        return healths_from(self._ask({"call": "health", "names": list(names)}))

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
        self._hang_up(shared=True)

    def close(self) -> None:
        """Hang up; what runs there goes on."""
        self._hang_up(shared=True)

    def _ask(self, message: Mapping[str, Any], *, limit_s: float = 0.0) -> Any:
        limit_s += self._setting.hosts.limits.call_s + _GRACE_S
        try:
            reply = self._connected().call(message, limit_s=limit_s)
        except LineLost:
            self._hang_up(shared=True)
            try:
                reply = self._connected().call(message, limit_s=limit_s)
            except LineLost as lost:
                self._hang_up(shared=True)
                raise self._unreachable(message, lost) from None
        if "failed" in reply:
            raise TargetFailed(self.name, reply["failed"]["about"], reply["failed"]["why"])
        return reply["reply"]

    def _connected(self) -> SshLine:
        if self._line is None:
            hello = {"call": "hello", "hetplan": own_version(), **self._far_setting()}
            line = SshLine(self.settings, files=self._setting.hosts.folder, hello=hello)
            if "failed" in line.welcome:
                line.close(shared=False)
                raise TargetFailed(self.name, self.settings.address, line.welcome["failed"]["why"])
            self._line = line
        return self._line

    def _far_setting(self) -> dict[str, Any]:
        """What the far end is to know of hosts.toml: this machine's part of it, and no other target's."""
        hosts = self._setting.hosts
        whole = hosts.model_dump(mode="json", exclude={"folder", "profiles", "slo", "models", "state_dir"})
        return {
            "name": self.name,
            "deployment": hosts.name,
            "folder": self.settings.folder,
            "settings": self.settings.model_dump(include={"cgroup", "mps_pipe", "gpu_list"}, exclude_none=True),
            "hosts": {
                **whole,
                "security": {"token_file": self.settings.token_file, "open": hosts.security.open},
                "targets": {self.name: {"kind": "local", "settings": {}}},
                "router": {**whole["router"], "target": self.name},
                "hosts": {name: host for name, host in whole["hosts"].items() if host["target"] == self.name},
            },
        }

    def _unreachable(self, message: Mapping[str, Any], lost: LineLost) -> TargetFailed:
        where = f"{self.settings.address} port {self.settings.port}"
        about = ", ".join(unit["name"] for unit in message.get("units", ())) or ", ".join(message.get("names", ()))
        asked = f"{message['call']} {about}".strip()
        return TargetFailed(self.name, asked, f"{where} cannot be reached: {lost.why}")

    def _hang_up(self, *, shared: bool) -> None:
        if self._line is not None:
            self._line.close(shared=shared)
            self._line = None

    def _units(self, units: Sequence[Unit]) -> dict[str, Any]:
        return {"units": [self._places.sent(unit).as_dict() for unit in units]}


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
    identity_file: str | None = Field(default=None, description="relative to hosts.toml; by default ssh's own choice")
    known_hosts: str | None = Field(default=None, description="relative to hosts.toml; by default ssh's own file")
    python: str = Field(default="python3", description="the far machine's Python that has hetplan installed")
    folder: str = Field(default=".hetplan", description="where the far machine keeps its side, below its home")
    files: str | None = Field(
        default=None, pattern="^/", description="the folder there that holds what lies beside hosts.toml here"
    )
    cgroup: str | None = Field(default=None, pattern="^/", description="of the far machine, as for a local target")
    mps_pipe: str | None = Field(default=None, pattern="^/", description="of the far machine, as for a local target")
    gpu_list: str | None = Field(default=None, pattern="^/", description="of the far machine, as for a local target")
    token_file: str | None = Field(default=None, pattern="^/", description="of the far machine: the deployment's token")
    connect_s: Positive = Field(default=10.0, description="how long connecting may take")
    silent_s: Positive = Field(default=15.0, description="a connection that is dead for so long counts as lost")


_LONGEST = 37
"""Bytes of a folder for sockets: `/PID-%C` and what ssh appends while it makes one take 66 of the system's 103."""


class LineLost(Exception):
    """The connection could not be made, or broke: `why` is what ssh said."""

    def __init__(self, why: str) -> None:
        self.why = why
        super().__init__(why)


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
        raise LineLost(f"{folder} is not a folder of yours alone; remove it")
    return folder


class SshLine:
    """A connection with the agent at its far end; made at once, or `LineLost` raised."""

    def __init__(self, settings: SshSettings, *, files: Path, hello: Mapping[str, Any]) -> None:
        self._settings = settings
        self._options = _options(settings, files)
        self._replies: queue.Queue[bytes | None] = queue.Queue()
        self._said: list[bytes] = []
        try:
            self._process = subprocess.Popen(
                [*self._command(), shlex.join((settings.python, "-m", "hetplan.executor.ssh.agent"))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C is for the command, which closes the line itself
            )
        except OSError as error:
            raise LineLost(f"{settings.ssh} cannot be run: {error.strerror}") from None
        self._readers = [threading.Thread(target=read, daemon=True) for read in (self._read_replies, self._read_errors)]
        for reader in self._readers:
            reader.start()
        try:
            self.welcome: Mapping[str, Any] = self.call(hello, limit_s=settings.connect_s + 20.0)
        except BaseException:
            self.close(shared=False)
            raise

    def call(self, message: Mapping[str, Any], *, limit_s: float) -> Any:
        """Send one call and wait for its reply; `{"failed": ...}` is handed back as it is, under that key."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line_of(message))
            self._process.stdin.flush()
        except (OSError, ValueError):
            raise LineLost(self._why()) from None
        try:
            line = self._replies.get(timeout=limit_s)
        except queue.Empty:
            self.close(shared=False)
            raise LineLost(f"no answer to {message['call']} within {limit_s:g} s") from None
        if line is None:
            raise LineLost(self._why())
        try:
            reply = json.loads(line)
        except ValueError:
            raise LineLost(f"the far end did not answer in JSON: {line[:80]!r}") from None
        return reply

    def close(self, *, shared: bool) -> None:
        """Hang up; with `shared`, the connection that later calls would have shared is ended too."""
        process = self._process
        with suppress(OSError):
            if process.stdin is not None:
                process.stdin.close()
        try:
            process.wait(timeout=2.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for reader in self._readers:
            reader.join(timeout=2.0)
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
        if shared:
            end_shared([self._settings.ssh, *self._options], address=_destination(self._settings))

    def _command(self) -> list[str]:
        return [self._settings.ssh, *self._options, "--", _destination(self._settings)]

    def _read_replies(self) -> None:
        assert self._process.stdout is not None
        with suppress(ValueError):  # closed meanwhile
            for line in self._process.stdout:
                self._replies.put(line)
        self._replies.put(None)

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        with suppress(ValueError):
            for line in self._process.stderr:
                self._said = [*self._said[-4:], line]

    def _why(self) -> str:
        self._readers[1].join(timeout=1.0)
        said = b" ".join(line.strip() for line in self._said).decode(errors="replace")
        return said or "the connection broke"


def end_shared(command: list[str], *, address: str) -> None:
    """End the shared connection, if there is one."""
    with suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run([*command, "-O", "exit", "--", address], capture_output=True, timeout=10.0, check=False)


def _destination(settings: SshSettings) -> str:
    return f"{settings.user}@{settings.address}" if settings.user else settings.address


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
