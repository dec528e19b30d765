"""One process that the keeper keeps running: started, watched, asked how it is, started again, ended with its group.

A process outlives its keeper. What the next keeper needs to go on with it is in a note beside its configuration: which
process it is, where it listens, how it was started.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["MARK", "Adopted", "KeptProcess", "Note", "StartFailed", "end_all", "marked", "notes", "python_path"]

_LOOK_EVERY_S, _PROBE_EVERY_S, _PROBE_LIMIT_S, _MOST_MISSED = 0.5, 2.0, 2.0, 3
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.1, 5.0
_BLOCK = 4096
_MOST_LOG_BYTES = 32 * 1024 * 1024
_PACKAGES = Path(__file__).resolve().parents[2]


class StartFailed(Exception):
    """A process could not be brought up: which, and why."""

    def __init__(self, about: str, why: str) -> None:
        self.about, self.why = about, why
        super().__init__(f"{about}: {why}")


@dataclass(frozen=True)
class Note:
    """What is on disk of a process: enough for another keeper to go on with it. `more` is the keeper's own."""

    name: str
    module: str
    pid: int
    began: int
    port: int
    probe: int
    limit_s: float
    environment: Mapping[str, str]
    more: Mapping[str, Any]

    @property
    def runs(self) -> bool:
        """Whether that very process is there, and no other that got its number."""
        return _began(self.pid) == self.began

    def config(self, folder: Path) -> dict[str, Any]:
        """What the process was last ordered to do."""
        content: dict[str, Any] = json.loads((folder / f"{self.name}.json").read_text())
        return content


def notes(folder: Path) -> list[Note]:
    """The notes of a folder whose configuration can be read too."""
    found = []
    for path in sorted(folder.glob("*.kept")):
        with suppress(OSError, ValueError, TypeError):
            note = Note(**json.loads(path.read_text()))
            note.config(folder)
            found.append(note)
    return found


def _is_ready(process: asyncio.subprocess.Process) -> bool:
    return process.returncode is None and not _is_stopped(process.pid)


def _is_stopped(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "Tt"
    return False


def _began(pid: int) -> int | None:
    """When a process began, in ticks since the system did; None where it has ended or cannot be seen."""
    try:
        state, *rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if state in "ZX" else int(rest[18])


class Adopted:
    """A process that another keeper started: it can be waited for and be sent signals as one of our own."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._loop = asyncio.get_running_loop()
        self._file = os.pidfd_open(pid)
        self._gone: asyncio.Future[int] = self._loop.create_future()
        self._loop.add_reader(self._file, self._end)

    def _end(self) -> None:
        self._loop.remove_reader(self._file)
        os.close(self._file)
        self._file, self.returncode = -1, 0
        self._gone.set_result(0)

    async def wait(self) -> int:
        """Until it has ended. With which code only its parent may know; 0 is said instead."""
        return await asyncio.shield(self._gone)

    def send_signal(self, number: int) -> None:
        """Send it a signal."""
        if self._file >= 0:
            signal.pidfd_send_signal(self._file, number)


class KeptProcess:
    """A worker or a router. `config` is written to a file that the process reads; SIGHUP has it read it again.

    `listener` is a socket that the process is to listen on instead of one of its own: the keeper holds it, so that
    clients wait and are not refused while a process is started again. `more` is noted for the next keeper.
    """

    def __init__(
        self, name: str, module: str, config: Mapping[str, Any], folder: Path, *,
        environment: Mapping[str, str] | None = None,
        more: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        self.name, self.module, self.config, self.folder = name, module, dict(config), folder
        self.status, self.why, self.port, self.probe, self.restarts = "starting", "", 0, 0, 0
        self.listener: socket.socket | None = None
        self.spares = False
        self.more = dict(more or {})
        self._environment = dict(environment or {})
        self._limit_s, self._noted = 0.0, True
        self._process: asyncio.subprocess.Process | Adopted | None = None
        self._spare: tuple[asyncio.subprocess.Process, int] | None = None
        self._watcher: asyncio.Task[None] | None = None

    @classmethod
    def adopted(cls, note: Note, folder: Path) -> KeptProcess:
        """The process of a note, watched from now on; one that has ended is started again."""
        kept = cls(
            note.name, note.module, note.config(folder), folder, environment=note.environment,
            more=note.more,
        )  # fmt: skip
        kept.port, kept.probe, kept._limit_s = note.port, note.probe, note.limit_s
        kept.status, kept.why = "failing", "it ended while no keeper was there"
        with suppress(OSError):
            if note.runs:
                kept._process, kept.status, kept.why = Adopted(note.pid), "ready", ""
        kept._watcher = asyncio.get_running_loop().create_task(kept._watch())
        return kept

    @property
    def pid(self) -> int | None:
        """The process that runs now."""
        return self._process.pid if self._process is not None and self._process.returncode is None else None

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
        """Have it read a new configuration, and wait until it follows it; what it does not follow is taken back."""
        before = self.config
        try:
            await self._follow(config, limit_s)
        except StartFailed:
            await self._follow(before, limit_s)
            raise

    async def _follow(self, config: Mapping[str, Any], limit_s: float) -> None:
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

    async def stop(self, drain_s: float, *, remembered: bool = False) -> None:
        """Let it finish what it has, then end it and all that it started; with `remembered` its note stays."""
        self.status = "stopping"
        # Python 3.11's `wait_for` loses a cancellation that comes just as its wait ends: some need a second one.
        while self._watcher is not None and not self._watcher.done():
            self._watcher.cancel()
            await asyncio.wait([self._watcher], timeout=0.1)
        await self._end_spare()
        if not remembered:
            self._note_path.unlink(missing_ok=True)
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

    async def ask(self, path: str) -> Any:
        """A GET over HTTP, at the listener that is for the keeper alone."""
        return await asyncio.wait_for(_get("127.0.0.1", self.probe, path), _PROBE_LIMIT_S)

    @property
    def _note_path(self) -> Path:
        return self.folder / f"{self.name}.kept"

    def _write(self) -> Path:
        """The configuration as a file; one that says the same stays as it is, so that a full disk stops no restart."""
        path = self.folder / f"{self.name}.json"
        text = json.dumps(self.config)
        with suppress(OSError):
            if path.read_text() == text:
                return path
        _replace(path, text)
        return path

    def _take_note(self) -> None:
        """For the next keeper. A full disk has room for it too: the note that is there is written over."""
        assert self._process is not None
        pid = self._process.pid
        note = Note(
            self.name, self.module, pid, _began(pid) or 0, self.port, self.probe, self._limit_s, self._environment,
            self.more,
        )  # fmt: skip
        content = json.dumps(vars(note)).encode()
        content = content.ljust(-len(content) // _BLOCK * -_BLOCK)
        self._noted = False
        try:
            _replace(self._note_path, content.decode())
            self._write()
            self._noted = True
        except OSError:
            with suppress(OSError), open(self._note_path, "r+b") as file:
                if len(content) <= os.fstat(file.fileno()).st_size:
                    file.write(content.ljust(os.fstat(file.fileno()).st_size))

    async def _execute(self, config: Path, *, waits: bool) -> tuple[asyncio.subprocess.Process, int]:
        """A process, and where it reports to; one that waits goes on when it reads a line."""
        reads, writes = os.pipe()
        words = [str(config), "--report", str(writes), "--parent", "0"]
        passed = [writes]
        if self.listener is not None:
            words += ["--listener", str(self.listener.fileno())]
            passed.append(self.listener.fileno())
        try:
            if not waits:
                self._put_log_aside()
            with open(self._log_path, "ab") as log:
                process = await asyncio.create_subprocess_exec(
                    sys.executable, "-m", self.module, *words, *(["--waits"] if waits else []), pass_fds=passed,
                    stdin=asyncio.subprocess.PIPE if waits else asyncio.subprocess.DEVNULL, stdout=log, stderr=log,
                    start_new_session=True,
                    env={**os.environ, **self._environment, MARK: str(self.folder), "PYTHONPATH": python_path()},
                )  # fmt: skip
        except OSError:
            os.close(reads)
            raise
        finally:
            os.close(writes)
        return process, reads

    async def _next(self, config: Path) -> tuple[asyncio.subprocess.Process, int]:
        """The spare process, which is to go on now; a new one where there is none."""
        spare, self._spare = self._spare, None
        if spare is None:
            return await self._execute(config, waits=False)
        process, reads = spare
        if _is_ready(process) and process.stdin is not None:
            process.stdin.write(b"go\n")
            return spare
        self._kill_group(process.pid)
        os.close(reads)
        return await self._execute(config, waits=False)

    async def _keep_spare(self) -> None:
        """Have one that can take over; one that has died or was stopped cannot."""
        if not self.spares:
            return
        if self._spare is not None and not _is_ready(self._spare[0]):
            await self._end_spare()
        if self._spare is None:
            with suppress(OSError):
                self._spare = await self._execute(self.folder / f"{self.name}.json", waits=True)

    async def _end_spare(self) -> None:
        spare, self._spare = self._spare, None
        if spare is not None:
            self._kill_group(spare[0].pid)
            await spare[0].wait()
            os.close(spare[1])

    async def _spawn(self, limit_s: float) -> None:
        process, reads = await self._next(self._write())
        self._process = process
        said: Mapping[str, Any] = {}
        try:
            said = await asyncio.wait_for(_report(reads), limit_s)
        except TimeoutError:
            said = {"failed": f"it did not come up within {limit_s:g} s"}
        if "port" not in said:
            self._kill_group(process.pid)
            code = await process.wait()
            raise StartFailed(self.name, said.get("failed") or f"it ended with {code}{self._last_words()}")
        self.port, self.probe = said["port"], said["probe"]
        # After a restart it comes back where its clients look for it.
        (self.config["router"] if self.is_router else self.config)["port"] = self.port
        self.status, self.why = "ready", ""
        self._take_note()

    async def _watch(self) -> None:
        """Start it again whenever it ends or no longer answers."""
        wait = _FIRST_WAIT_S
        await self._keep_spare()
        while True:
            if self._process is not None:
                why = await self._until_gone(self._process)
                self._kill_group(self._process.pid)
                code = await self._process.wait()
                self.status, self.why = "failing", f"{why or f'it ended with {code}'}{self._last_words()}"
            while self.status == "failing":
                self.restarts += 1
                try:
                    await self._spawn(self._limit_s)
                    await self._keep_spare()
                    wait = _FIRST_WAIT_S
                except (StartFailed, OSError) as error:
                    self.status, self.why = "failing", str(error)
                    await asyncio.sleep(wait)
                    wait = min(2 * wait, _LONGEST_WAIT_S)

    async def _until_gone(self, process: asyncio.subprocess.Process | Adopted) -> str:
        missed = stopped = 0
        asked_s = time.monotonic()
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), min(_LOOK_EVERY_S, _PROBE_EVERY_S))
                return ""
            await self._keep_spare()
            self._bound_log()
            if not self._noted:
                self._take_note()
            # One that was stopped will not answer, however long it is asked. A debugger stops one for a moment.
            stopped = stopped + 1 if _is_stopped(process.pid) else 0
            if stopped == _MOST_MISSED:
                return "it was stopped"
            if stopped or time.monotonic() < asked_s + _PROBE_EVERY_S:
                continue
            asked_s = time.monotonic()
            try:
                await self.ask("/healthz")
                missed = 0
            except (OSError, ValueError, TimeoutError):
                missed += 1
            if missed >= _MOST_MISSED:
                return f"it did not answer {missed} times"

    @property
    def _log_path(self) -> Path:
        return self.folder / f"{self.name}.log"

    def _put_log_aside(self) -> None:
        """The log of the process before is kept beside the new one's."""
        with suppress(OSError):
            if self._log_path.stat().st_size:
                os.replace(self._log_path, self._log_path.with_suffix(".log.1"))

    def _bound_log(self) -> None:
        """Begin the log anew where it has grown too long: a model that prints without end must not fill the disk."""
        with suppress(OSError):
            if self._log_path.stat().st_size > _MOST_LOG_BYTES:
                with suppress(OSError):
                    shutil.copyfile(self._log_path, self._log_path.with_suffix(".log.1"))
                os.truncate(self._log_path, 0)

    def _last_words(self) -> str:
        words = ""
        with suppress(OSError), open(self._log_path, "rb") as log:
            log.seek(max(os.fstat(log.fileno()).st_size - _BLOCK, 0))
            lines = log.read().decode(errors="replace").strip().splitlines()
            words = f": {lines[-1][:300]}" if lines else ""
        return words

    @staticmethod
    def _kill_group(leader: int) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(leader, signal.SIGKILL)


def _replace(path: Path, text: str) -> None:
    temporary = path.with_name(f"{path.name}.new")
    temporary.write_text(text)
    os.replace(temporary, path)


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


def python_path() -> str:
    """Where a process that is started finds this very package."""
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


def end_all(folder: Path, *, limit_s: float = 20.0, but: Collection[int] = (), only: bytes = b"") -> list[int]:
    """Kill every process of the deployment that is left, looking until none is; the ids of those that were.

    `but` are processes that stay, with all that they started; `only` is a word of the command of those that go.
    """
    ended: list[int] = []
    until = time.monotonic() + limit_s
    while (
        left := [one for one in marked(folder) if not _belongs(one, but) and _has_word(one, only)]
    ) and time.monotonic() < until:
        for process in left:
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                continue
            ended.append(process)
        time.sleep(0.02)
    return sorted(set(ended))


def _has_word(process: int, word: bytes) -> bool:
    with suppress(OSError):
        return not word or word in Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
    return False


def _belongs(process: int, to: Collection[int]) -> bool:
    """Whether a process is one of these, is of the session of one, or was started by one."""
    while process > 1 and to:
        try:
            parent, _, session = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1:4]
        except OSError:
            return False
        if process in to or int(session) in to:
            return True
        process = int(parent)
    return False
