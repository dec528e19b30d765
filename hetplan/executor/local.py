"""Target "local": workers and router as processes of this machine, kept by a keeper (`keeper.py`).

Settings: `mps_pipe`, the folder of CUDA MPS' daemon; `gpu_list`, a recorded list of this machine's GPUs instead of
nvidia-smi's.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

from hetplan.executor.keeper import socket_path
from hetplan.executor.kept_process import MARK, end_all, marked, notes, python_path
from hetplan.executor.secrets import environment_of, mark_of, token_of
from hetplan.executor.shares import LocalMeans, gpu_refusals, refusals
from hetplan.executor.target import Setting, TargetFailed
from hetplan.executor.units import Endpoint, Seen, Unit
from hetplan.profiles.fields import Model
from hetplan.profiles.validate import validate

__all__ = ["Local", "LocalSettings"]

_KEEPER_LIMIT_S = 60.0
_KEEPER_WORD = b"hetplan.executor.keeper"


_ANSWER_S = 5.0
"""A keeper does nothing that takes long before it answers: one that is silent for so long hangs."""
_UNKEPT = "no keeper watches it; the next apply starts one"


class _HungUp(TargetFailed):
    """The keeper ended the conversation."""


class LocalSettings(Model):
    """The settings of a local target."""

    mps_pipe: str = "/tmp/nvidia-mps"
    gpu_list: str | None = None


class Local:
    """Processes of this machine."""

    kind: ClassVar[str] = "local"

    def __init__(self, setting: Setting) -> None:
        self.name, self.site = setting.name, setting.site
        self.folder = setting.folder.resolve()
        settings = validate(LocalSettings, dict(setting.settings), file=f"site.toml, targets.{setting.name}.settings")
        self.means = LocalMeans(
            Path(settings.mps_pipe),
            self.site.path(settings.gpu_list) if settings.gpu_list else None,
        )  # fmt: skip
        self._connection: socket.socket | None = None
        self._hangs = False
        self._buffer = b""
        self._mark = ""

    def check(self, units: Sequence[Unit]) -> list[str]:
        """Shares that nothing enforces, missing files and commands, cores that are not there."""
        reasons: list[str] = []
        there = os.sched_getaffinity(0)
        for unit in units:
            host = self.site.hosts[unit.host]
            reasons += refusals(unit, host, self.means)
            missing = [str(core) for core in host.cores if core not in there]
            if missing:
                reasons.append(f"hosts.{unit.host}.cores: this machine has no core {', '.join(missing)}")
            for load in unit.loads:
                reasons += _missing(load.model)
        reasons += gpu_refusals(units, self.site.hosts, self.means)
        for name in dict.fromkeys(unit.host for unit in units):
            reasons += self._too_few(name, [unit for unit in units if unit.host == name])
        return list(dict.fromkeys(reasons))

    def observe(self) -> tuple[Seen, ...]:
        """Asks the keeper; where none answers, what the notes of its processes say of those that run."""
        said = self._ask_if_runs("observe", limit_s=self.site.limits.call_s)
        if said is None:
            return tuple(self._unkept())
        return tuple(
            Seen(
                name=one["name"], content=one["content"], status=one["status"], restarts=one["restarts"],
                why=one["why"], unit=(unit := Unit.from_dict(one["unit"])),
                endpoint=Endpoint(self._address(unit), one["port"]) if one["port"] else None,
            )
            for one in said["units"]
        )  # fmt: skip

    def _unkept(self) -> Iterator[Seen]:
        for note in notes(self.folder):
            content = note.config(self.folder).get("unit")
            if content is not None and note.runs:
                unit = Unit.from_dict(content)
                at = Endpoint(self._address(unit), note.port)
                yield Seen(unit.name, unit.content, "ready", at, unit, why=_UNKEPT)

    def settle(self, *, limit_s: float) -> None:
        """The keeper finishes what it was asked for last; one that is missing is started."""
        self._keep()
        self._ask_if_runs("settle", limit_s=limit_s)

    def start(self, units: Sequence[Unit], *, limit_s: float) -> dict[str, Endpoint]:
        """Side by side, each a process of its own."""
        return self._bring_about("start", units, limit_s)

    def load(self, units: Sequence[Unit], *, limit_s: float) -> dict[str, Endpoint]:
        """The processes read their new loads; a keeper that is missing is started first, as for a start."""
        return self._bring_about("load", units, limit_s)

    def _bring_about(self, do: str, units: Sequence[Unit], limit_s: float) -> dict[str, Endpoint]:
        self._ensure_keeper()
        asked = [{"unit": unit.as_dict(), "host": self._host(unit)} for unit in units]
        ports = self._ask(do, limit_s=limit_s, units=asked)
        return {unit.name: Endpoint(self._address(unit), ports[unit.name]) for unit in units}

    def stop(self, names: Sequence[str], *, drain_s: float) -> None:
        """Ends them, children included."""
        self._keep()
        # The keeper first waits for a start that is under way for an apply which was killed.
        self._ask_if_runs("stop", limit_s=self.site.limits.start_s, names=list(names), drain_s=drain_s)

    def route(self, routes: Mapping[str, Any] | None, *, limit_s: float) -> None:
        """Starts the router, or has it follow these routes."""
        if routes is None and not self._runs() and not notes(self.folder):
            return
        self._ensure_keeper()
        drain_s = self.site.limits.drain_s
        self._ask("route", limit_s=limit_s, routes=dict(routes) if routes is not None else None, drain_s=drain_s)

    def routed(self) -> Mapping[str, Any] | None:
        """What the router follows; `router.port` is the port that it really has."""
        said = self._ask_if_runs("observe", limit_s=self.site.limits.call_s)
        if said is None:
            return self._routed_unkept()
        if said["routes"] is None or said["router"] is None:
            return None
        return {**said["routes"], "router_port": said["router"]["port"], "router_status": said["router"]["status"]}

    def _routed_unkept(self) -> Mapping[str, Any] | None:
        for note in notes(self.folder):
            config = note.config(self.folder)
            if "router" in config and note.runs:
                return {**config, "router_port": note.port, "router_status": "ready"}
        return None

    def down(self, *, drain_s: float) -> None:
        """Ends everything, the keeper last; what is left of earlier ones too. One that hangs is not waited for."""
        if self._runs():
            with suppress(TargetFailed):
                self._ask("down", limit_s=self.site.limits.call_s, drain_s=drain_s)
            self.close()
            until = time.monotonic() + 2.0
            while self._connect() and time.monotonic() < until:
                self.close()
                time.sleep(0.02)
        self.close()
        end_all(self.folder)
        left = marked(self.folder)
        if left:
            raise TargetFailed(self.name, "down", f"processes {', '.join(map(str, left))} cannot be ended")
        if self.folder.is_dir():
            shutil.rmtree(self.folder, ignore_errors=True)

    def close(self) -> None:
        """Hangs up."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # The keeper

    def _runs(self) -> bool:
        """Whether a keeper runs and answers; one that hangs is not waited for twice."""
        return self._connection is not None or (not self._hangs and self._connect())

    def _connect(self) -> bool:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(_ANSWER_S)
        try:
            with socket_path(self.folder) as path:
                connection.connect(path)
            connection.sendall(b'{"do": "ping"}\n')
            said = connection.recv(1 << 10)
            if not said:
                raise ConnectionResetError("it ended")
            self._mark = json.loads(said)["result"]["token"]
        except OSError as error:
            self._hangs = isinstance(error, TimeoutError | BlockingIOError)
            connection.close()
            return False
        self._connection, self._buffer = connection, b""
        return True

    def _keep(self) -> None:
        """Where processes run that no keeper watches, start one."""
        if not self._runs() and notes(self.folder):
            self._ensure_keeper()

    def _ensure_keeper(self) -> None:
        if self._runs():
            if self._mark != mark_of(token_of(self.site)):
                why = "it was started with another token; hetplan down, then apply again"
                raise TargetFailed(self.name, "keeper", why)
            return
        if self._hangs:
            # Its processes go on; the next keeper finds them.
            end_all(self.folder, only=_KEEPER_WORD)
            self._hangs = False
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        keeper = self._new_keeper()
        until = time.monotonic() + _KEEPER_LIMIT_S
        while not self._connect():
            ended = keeper.poll()
            # Of two that start at once, the first ends the other; and the one before may be there until it has ended.
            if time.monotonic() > until or ended not in (None, 0, -signal.SIGKILL):
                raise TargetFailed(self.name, "keeper", f"it does not come up; see {self.folder / 'keeper.log'}")
            if ended is not None:
                keeper = self._new_keeper()
            time.sleep(0.02)

    def keep(self) -> None:
        """See to it that a keeper runs, and with it all that was applied and not taken down."""
        self._ensure_keeper()

    def keeper_command(self, *more: str) -> list[str]:
        """What starts the keeper of this target."""
        means = self.means
        settings = [str(means.mps_pipe), str(means.gpu_list or "")]
        return [sys.executable, "-m", "hetplan.executor.keeper", str(self.folder), *settings, *more]

    def _new_keeper(self) -> subprocess.Popen[bytes]:
        with open(self.folder / "keeper.log", "ab") as log:
            return subprocess.Popen(
                self.keeper_command(),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd="/",
                env={**os.environ, MARK: str(self.folder), "PYTHONPATH": python_path(), **environment_of(self.site)},
            )  # fmt: skip

    def _ask_if_runs(self, do: str, *, limit_s: float, **asked: Any) -> Any | None:
        """A question that may be put twice; None where no keeper runs.

        A killed keeper still takes connections until the system has closed its files: one that hangs up is asked for
        again, and is then either there or gone.
        """
        if not self._runs():
            return None
        try:
            return self._ask(do, limit_s=limit_s, **asked)
        except _HungUp:
            return self._ask(do, limit_s=limit_s, **asked) if self._runs() else None

    def _ask(self, do: str, *, limit_s: float, **asked: Any) -> Any:
        """One question to the keeper, which keeps to the limit itself; the wait here only guards against a hung one."""
        if not self._runs():
            raise TargetFailed(self.name, "keeper", "it does not run")
        assert self._connection is not None
        line = json.dumps({"do": do, "limit_s": limit_s, **asked}).encode() + b"\n"
        try:
            self._connection.settimeout(2.0 * limit_s + 2.0 * float(asked.get("drain_s", 0.0)) + 10.0)
            self._connection.sendall(line)
            said = json.loads(self._line())
        except (OSError, EOFError, ValueError) as error:
            self.close()
            failed = _HungUp if isinstance(error, ConnectionError | EOFError) else TargetFailed
            raise failed(self.name, "keeper", f"it does not answer: {error}") from None
        if "failed" in said:
            raise TargetFailed(self.name, said["about"], said["failed"])
        return said["result"]

    def _line(self) -> bytes:
        assert self._connection is not None
        while b"\n" not in self._buffer:
            data = self._connection.recv(1 << 20)
            if not data:
                raise EOFError("it ended")
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def _host(self, unit: Unit) -> dict[str, Any]:
        return self.site.hosts[unit.host].model_dump(mode="json")

    def _address(self, unit: Unit) -> str:
        host = self.site.hosts[unit.host]
        return host.address or {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host.bind, host.bind)

    def _too_few(self, name: str, units: Sequence[Unit]) -> list[str]:
        host = self.site.hosts[name]
        found = []
        if host.cores_per_worker and host.cores_per_worker * len(units) > len(host.cores):
            found.append(
                f"{len(units)} workers with {host.cores_per_worker} cores each need more than the {len(host.cores)} "
                f"of hosts.{name}.cores"
            )
        if host.ports is not None and len(units) > host.ports[1] - host.ports[0] + 1:
            found.append(f"{len(units)} workers need more ports than hosts.{name}.ports has")
        cores = sum(load.instances * (load.share_cpu_cores or 0.0) for unit in units for load in unit.loads)
        if host.enforcement != "none" and cores > host.capacity.get("cpu_cores", float("inf")):
            found.append(f"shares of {cores:g} cores are more than the {host.capacity['cpu_cores']:g} of hosts.{name}")
        return found


def _missing(model: Mapping[str, Any]) -> list[str]:
    if model.get("kind") == "onnx" and not Path(model["path"]).is_file():
        return [f"there is no model file {model['path']}"]
    if model.get("kind") in ("command", "http") and model["command"] and shutil.which(model["command"][0]) is None:
        return [f"there is no command {model['command'][0]}"]
    return []
