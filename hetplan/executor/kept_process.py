"""One process that the keeper keeps running: started, watched, asked how it is, started again, ended with its group."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from hetplan.executor.shares import LocalMeans, enter_cgroup

__all__ = ["MARK", "KeptProcess", "StartFailed", "end_all", "marked"]

_PROBE_EVERY_S, _PROBE_LIMIT_S, _MOST_MISSED = 2.0, 2.0, 3
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.1, 5.0
_PACKAGES = Path(__file__).resolve().parents[2]


class StartFailed(Exception):
    """A process could not be brought up: which, and why."""

    def __init__(self, about: str, why: str) -> None:
        self.about, self.why = about, why
        super().__init__(f"{about}: {why}")


class KeptProcess:
    """A worker or a router. `config` is written to a file that the process reads; SIGHUP has it read it again."""

    def __init__(
        self, name: str, module: str, config: Mapping[str, Any], folder: Path, *,
        environment: Mapping[str, str] | None = None, quota: float | None = None, means: LocalMeans | None = None,
    ) -> None:  # fmt: skip
        self.name, self.module, self.config, self.folder = name, module, dict(config), folder
        self.status, self.why, self.port, self.restarts = "starting", "", 0, 0
        self._environment, self._quota, self._means = dict(environment or {}), quota, means
        self._limit_s = 0.0
        self._process: asyncio.subprocess.Process | None = None
        self._watcher: asyncio.Task[None] | None = None

    @property
    def is_router(self) -> bool:
        """Whether the port is one of the router's settings."""
        return "router" in self.config

    async def start(self, limit_s: float, *, other_ports: Sequence[int] = ()) -> None:
        """Bring it up; on a taken port of a range the next one is tried. `StartFailed` says why it could not be."""
        self._limit_s = limit_s
        for port in (None, *other_ports):
            if port is not None:
                self.config["port"] = port
            try:
                await self._spawn(limit_s)
            except StartFailed as error:
                if port == (other_ports[-1] if other_ports else None) or "in use" not in error.why:
                    raise
            else:
                break
        self._watcher = asyncio.get_running_loop().create_task(self._watch())

    async def change(self, config: Mapping[str, Any], limit_s: float) -> None:
        """Have it read a new configuration, and wait until it follows it."""
        before = self.config
        self.config = {**before, **config}
        try:
            self._write()
        except OSError:
            # Else it would follow what was refused once it is started again.
            self.config = before
            raise
        if self._process is None or self._process.returncode is not None:
            await self.until_ready(limit_s)
            return
        self._process.send_signal(signal.SIGHUP)
        wanted = config.get("revision", config.get("content"))
        until = asyncio.get_running_loop().time() + limit_s
        said: Mapping[str, Any] = {}
        while asyncio.get_running_loop().time() < until:
            with suppress(OSError, ValueError, TimeoutError):
                said = await self.ask("/healthz")
            if said.get("revision", said.get("content")) == wanted:
                return
            if said.get("refused"):
                raise StartFailed(self.name, str(said["refused"]))
            await asyncio.sleep(0.01)
        raise StartFailed(self.name, f"it did not take over its new configuration within {limit_s:g} s")

    async def until_ready(self, limit_s: float) -> None:
        """Wait until it answers."""
        until = asyncio.get_running_loop().time() + limit_s
        while self.status != "ready":
            if asyncio.get_running_loop().time() >= until:
                raise StartFailed(self.name, self.why or f"it was not ready within {limit_s:g} s")
            await asyncio.sleep(0.02)

    async def until_linked(self, revision: str, limit_s: float) -> None:
        """Wait until a router follows these routes and is linked to every unit of them."""
        until = asyncio.get_running_loop().time() + limit_s
        missing: list[str] = ["the router"]
        while asyncio.get_running_loop().time() < until:
            with suppress(OSError, ValueError, TimeoutError):
                said = await self.ask("/healthz")
                missing = [unit for unit, linked in said["units"].items() if not linked]
                if said["revision"] == revision and not missing:
                    return
            await asyncio.sleep(0.02)
        raise StartFailed(self.name, f"no link to {', '.join(missing[:5]) or 'its units'} within {limit_s:g} s")

    async def stop(self, drain_s: float) -> None:
        """Let it finish what it has, then end it and all that it started."""
        self.status = "stopping"
        # Python 3.11's `wait_for` loses a cancellation that comes just as its wait ends: some need a second one.
        while self._watcher is not None and not self._watcher.done():
            self._watcher.cancel()
            await asyncio.wait([self._watcher], timeout=0.1)
        process = self._process
        if process is None:
            return
        if process.returncode is None and drain_s > 0:
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
            with suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), drain_s)
        self._kill_group(process.pid)
        await process.wait()

    async def health(self, limit_s: float) -> Mapping[str, Any]:
        """How it says it is: ready or not, and its counters."""
        try:
            said = await asyncio.wait_for(_get(self._address, self.port, "/metrics"), limit_s)
            return {"ready": self.status == "ready", "why": self.why, **said}
        except (OSError, ValueError, TimeoutError) as error:
            return {"ready": False, "why": self.why or f"no answer: {error}", "loads": {}}

    async def ask(self, path: str) -> Any:
        """A GET over HTTP."""
        return await asyncio.wait_for(_get(self._address, self.port, path), _PROBE_LIMIT_S)

    @property
    def _address(self) -> str:
        bind = (self.config["router"] if self.is_router else self.config)["bind"]
        return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(str(bind), str(bind))

    def _write(self) -> Path:
        path = self.folder / f"{self.name}.json"
        temporary = path.with_suffix(".new")
        temporary.write_text(json.dumps(self.config))
        os.replace(temporary, path)
        return path

    async def _spawn(self, limit_s: float) -> None:
        config = self._write()
        reads, writes = os.pipe()
        with open(self.folder / f"{self.name}.log", "wb") as log:
            try:
                process = self._process = await asyncio.create_subprocess_exec(
                    sys.executable, "-m", self.module, str(config), "--report", str(writes), "--parent",
                    str(os.getpid()), pass_fds=[writes], stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log,
                    start_new_session=True,
                    env={**os.environ, **self._environment, MARK: str(self.folder), "PYTHONPATH": _python_path()},
                )  # fmt: skip
            except OSError:
                os.close(reads)
                raise
            finally:
                os.close(writes)
        if self._quota is not None and self._means is not None:
            enter_cgroup(self._means, self.name, self._quota, process.pid)
        said: Mapping[str, Any] = {}
        try:
            said = await asyncio.wait_for(_report(reads), limit_s)
        except TimeoutError:
            said = {"failed": f"it did not come up within {limit_s:g} s"}
        if "port" not in said:
            self._kill_group(process.pid)
            code = await process.wait()
            raise StartFailed(self.name, said.get("failed") or f"it ended with {code}{self._last_words()}")
        self.port = said["port"]
        # After a restart it comes back where its clients look for it.
        (self.config["router"] if self.is_router else self.config)["port"] = self.port
        self.status, self.why = "ready", ""

    async def _watch(self) -> None:
        """Start it again whenever it ends or no longer answers."""
        wait = _FIRST_WAIT_S
        while True:
            assert self._process is not None
            why = await self._until_gone(self._process)
            self._kill_group(self._process.pid)
            code = await self._process.wait()
            self.status, self.why = "failing", f"{why or f'it ended with {code}'}{self._last_words()}"
            while self.status == "failing":
                self.restarts += 1
                try:
                    await self._spawn(self._limit_s)
                    wait = _FIRST_WAIT_S
                except (StartFailed, OSError) as error:
                    self.status, self.why = "failing", str(error)
                    await asyncio.sleep(wait)
                    wait = min(2 * wait, _LONGEST_WAIT_S)

    async def _until_gone(self, process: asyncio.subprocess.Process) -> str:
        missed = 0
        while True:
            try:
                await asyncio.wait_for(process.wait(), _PROBE_EVERY_S)
            except TimeoutError:
                try:
                    await self.ask("/healthz")
                    missed = 0
                except (OSError, ValueError, TimeoutError):
                    missed += 1
                if missed >= _MOST_MISSED:
                    return f"it did not answer {missed} times"
            else:
                return ""

    def _last_words(self) -> str:
        words = ""
        with suppress(OSError):
            lines = (self.folder / f"{self.name}.log").read_text(errors="replace").strip().splitlines()
            words = f": {lines[-1][:300]}" if lines else ""
        return words

    @staticmethod
    def _kill_group(leader: int) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(leader, signal.SIGKILL)


async def _report(file: int) -> Mapping[str, Any]:
    """The first line that the process writes to its pipe; {} where it ends without one."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(file, "rb"))
    try:
        line = await reader.readline()
    finally:
        transport.close()
    said: Mapping[str, Any] = json.loads(line) if line else {}
    return said


async def _get(address: str, port: int, path: str) -> Any:
    reader, writer = await asyncio.open_connection(address, port)
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n".encode())
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    finally:
        writer.close()
    if not head.startswith(b"HTTP/1.1 "):
        raise ValueError("it does not speak HTTP")
    return json.loads(body)


def _python_path() -> str:
    return os.pathsep.join([str(_PACKAGES), *filter(None, [os.environ.get("PYTHONPATH")])])


MARK = "HETPLAN_DEPLOYMENT"
"""The variable whose value is the folder of the target that a process belongs to."""


def marked(folder: Path) -> list[int]:
    """The ids of all processes of this folder's deployment but the own one. Empty where the system has no /proc."""
    if sys.platform != "linux":
        return []
    wanted = f"{MARK}={folder}".encode()
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            try:
                environment = Path("/proc", entry, "environ").read_bytes()
                state = Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if wanted in environment.split(b"\0") and state != "Z":
                found.append(int(entry))
    return sorted(found)


def end_all(folder: Path, *, limit_s: float = 20.0) -> list[int]:
    """Kill every process of the deployment that is left, looking until none is; the ids of those that were."""
    ended: list[int] = []
    until = time.monotonic() + limit_s
    while (left := marked(folder)) and time.monotonic() < until:
        for process in left:
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                continue
            ended.append(process)
        time.sleep(0.02)
    return sorted(set(ended))
