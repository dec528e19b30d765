"""The keeper of a machine: `python -m hetplan.executor.keeper FOLDER`, the parent of its workers and router.

It starts, watches and ends processes, and starts again those that die or no longer answer. It takes orders as
lines of JSON over a Unix socket in its folder, one answer per line. Its processes go on without it: the next keeper of
the folder finds their notes, watches those that run and starts again those that have ended. SIGTERM ends everything for
good; SIGINT ends the processes and leaves their notes, so that the next keeper starts them again.
"""

from __future__ import annotations

import asyncio
import ctypes
import fcntl
import json
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from hetplan.executor.gpus import Device, Want, assign, visible, want_of
from hetplan.executor.kept_process import KeptProcess, Note, StartFailed, end_all, notes
from hetplan.executor.secrets import mark_of, token_in_environment
from hetplan.executor.serving.http_server import BACKLOG
from hetplan.executor.shares import LocalMeans, held
from hetplan.executor.site import Host
from hetplan.executor.units import Unit

__all__ = ["SOCKET", "Keeper", "Slot", "Slots", "main", "socket_path"]

SOCKET = "keeper.sock"
_DRAIN_S = 1.0
_MOST_LINE = 64 * 1024 * 1024


@dataclass(frozen=True)
class Slot:
    """What one unit has to itself. Port 0 is any free one; `other_ports` are to be tried where `port` is taken."""

    port: int = 0
    other_ports: Sequence[int] = ()
    cores: tuple[int, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    gpus: tuple[Want, Sequence[Device]] | None = None


@dataclass
class Slots:
    """What is taken.

    >>> slots = Slots()
    >>> host = Host(target="here", machines="cpu", count=2, cores=(4, 5), cores_per_worker=1, ports=(9000, 9001))
    >>> slots.take("a", host, cores=1).cores, slots.take("b", host, cores=1).cores
    ((4,), (5,))
    >>> slots.give_back("a")
    >>> slots.take("c", host, cores=1).port
    9000
    """

    taken: dict[str, tuple[Slot, Host]] = field(default_factory=dict)

    def take(
        self, name: str, host: Host, *, cores: int, gpus: tuple[Want, Sequence[Device]] | None = None,
        limited: bool = False,
    ) -> Slot:  # fmt: skip
        """A slot for this unit with these GPUs; `StartFailed` where the host has none left."""
        used_cores = {core for slot, _ in self.taken.values() for core in slot.cores}
        free = [core for core in host.cores if core not in used_cores]
        if cores > len(free):
            raise StartFailed(name, f"it needs {cores} cores of its own; {len(free)} of {len(host.cores)} are free")
        own = tuple(free[:cores]) if cores else host.cores
        port, others = self._ports(name, host)
        environment = visible(*gpus, limited=limited) if gpus is not None else _no_gpu(host)
        slot = Slot(port, others, own if cores else tuple(host.cores), environment, gpus)
        # Cores that all workers share are nobody's own.
        kept = slot if cores else replace(slot, cores=())
        self.taken[name] = (kept, host)
        return slot

    @property
    def gpus(self) -> list[tuple[Want, Sequence[Device]]]:
        """Who has which GPUs, whichever host it is on."""
        return [slot.gpus for slot, _ in self.taken.values() if slot.gpus is not None]

    def give_back(self, name: str) -> None:
        """The unit is gone."""
        self.taken.pop(name, None)

    def _ports(self, name: str, host: Host) -> tuple[int, Sequence[int]]:
        if host.ports is None:
            return 0, ()
        used = {slot.port for slot, _ in self.taken.values()}
        free = [port for port in range(host.ports[0], host.ports[1] + 1) if port not in used]
        if not free:
            raise StartFailed(name, f"all ports {host.ports[0]} to {host.ports[1]} are used by other units")
        return free[0], free[1:]


def _no_gpu(host: Host) -> dict[str, str]:
    """A unit without a GPU beside others with one must not find theirs."""
    return {"CUDA_VISIBLE_DEVICES": ""} if host.devices else {}


class Keeper:
    """Units and the router of one folder."""

    def __init__(self, folder: Path, means: LocalMeans) -> None:
        self.folder, self.means = folder, means
        self.slots = Slots()
        self.kept: dict[str, KeptProcess] = {}
        self.units: dict[str, Unit] = {}
        self.router: KeptProcess | None = None
        self.routes: Mapping[str, Any] | None = None
        self.ended = asyncio.Event()
        self._remembered = False
        self._mark = mark_of(token_in_environment())
        self._acting = asyncio.Lock()

    async def run(self) -> None:
        """Listen until it is to end."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self.ended.set)
        loop.add_signal_handler(signal.SIGINT, self._end_remembering)
        self.adopt()
        with socket_path(self.folder) as path:
            with suppress(FileNotFoundError):
                os.unlink(path)
            server = await asyncio.start_unix_server(self._serve, path, limit=_MOST_LINE)
        await self.ended.wait()
        server.close()
        await self._down({"drain_s": _DRAIN_S})
        (self.folder / SOCKET).unlink(missing_ok=True)

    def _end_remembering(self) -> None:
        self._remembered = True
        self.ended.set()

    def adopt(self) -> None:
        """Go on with what an earlier keeper left; processes of the folder that no note names are ended."""
        for note in notes(self.folder):
            kept = KeptProcess.adopted(note, self.folder)
            if kept.is_router:
                self.router, kept.spares = kept, True
                kept.listener = _taken_over(note)
                asked = {**kept.config["router"], "port": note.more["port"]}
                self.routes = {**kept.config, "router": asked}
            else:
                unit, host = Unit.from_dict(kept.config["unit"]), Host.model_validate(note.more["host"])
                self.kept[unit.name], self.units[unit.name] = kept, unit
                self.slots.taken[unit.name] = (_slot_of(note, kept), host)
        everyone = [*self.kept.values(), *([self.router] if self.router is not None else [])]
        end_all(self.folder, but=[kept.pid for kept in everyone if kept.pid is not None])

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                said = await self._answer(line)
                writer.write(json.dumps(said).encode() + b"\n")
                await writer.drain()
        except (ConnectionError, ValueError):
            pass
        finally:
            writer.close()

    async def _answer(self, line: bytes) -> Mapping[str, Any]:
        try:
            asked = json.loads(line)
            do = {
                "observe": self._observe, "start": self._start, "load": self._load, "stop": self._stop,
                "settle": self._settle,
                "route": self._route, "down": self._down_and_end, "ping": self._ping,
            }[asked["do"]]  # fmt: skip
            if asked["do"] in ("observe", "down", "ping"):
                return {"result": await do(asked)}
            # What an apply asked for goes on when that apply is killed; the next one waits until it is done. `down`
            # does not: it ends whatever is under way.
            async with self._acting:
                return {"result": await do(asked)}
        except StartFailed as error:
            return {"failed": error.why, "about": error.about}
        except (KeyError, ValueError, OSError) as error:
            return {"failed": f"{type(error).__name__}: {error}", "about": ""}

    # What it can do

    async def _ping(self, _asked: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"pid": os.getpid(), "token": self._mark}

    async def _settle(self, _asked: Mapping[str, Any]) -> None:
        """Nothing to do: its turn comes when all that was asked for before is done."""

    async def _observe(self, _asked: Mapping[str, Any]) -> Mapping[str, Any]:
        seen = [
            {
                "name": name, "content": unit.content, "status": self.kept[name].status, "port": self.kept[name].port,
                "restarts": self.kept[name].restarts, "why": self.kept[name].why, "unit": unit.as_dict(),
            }
            for name, unit in self.units.items()
        ]  # fmt: skip
        return {
            "units": seen,
            "routes": self.routes if self.router is not None else None,
            "router": self._router_seen(),
        }

    def _router_seen(self) -> Mapping[str, Any] | None:
        if self.router is None:
            return None
        return {"status": self.router.status, "port": self.router.port, "why": self.router.why}

    async def _start(self, asked: Mapping[str, Any]) -> Mapping[str, int]:
        wanted = [(Unit.from_dict(one["unit"]), Host.model_validate(one["host"])) for one in asked["units"]]
        missing = [(unit, host) for unit, host in wanted if unit.name not in self.units]
        given = await self._gpus(missing)
        outcomes = await asyncio.gather(
            *(self._start_one(unit, host, asked["limit_s"], given.get(unit.name)) for unit, host in missing),
            return_exceptions=True,
        )
        failed = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        if failed:
            raise failed[0]
        # One that ended with the keeper before is here again as it was then, not as it is wanted now.
        stale = [unit for unit, _ in wanted if self.units[unit.name].content != unit.content]
        await self._load({"units": [{"unit": unit.as_dict()} for unit in stale], "limit_s": asked["limit_s"]})
        await asyncio.gather(*(self.kept[unit.name].until_ready(asked["limit_s"]) for unit, _ in wanted))
        return {unit.name: self.kept[unit.name].port for unit, _ in wanted}

    async def _gpus(self, units: Sequence[tuple[Unit, Host]]) -> dict[str, tuple[Want, tuple[Device, ...]]]:
        """The GPUs of units that are to start; they are looked up anew, as slices of MIG come and go."""
        if not any(want_of(unit, host) for unit, host in units):
            return {}
        listed = await asyncio.to_thread(lambda: replace(self.means).gpus)
        given, refused = assign(units, listed, self.slots.gpus)
        if refused:
            raise StartFailed(refused[0].split(" ")[0], f"no room on the GPUs: {'; '.join(refused[:3])}")
        return given

    async def _start_one(
        self, unit: Unit, host: Host, limit_s: float, gpus: tuple[Want, Sequence[Device]] | None
    ) -> None:
        share = held(unit, host, self.means)
        limited = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE" in share.environment
        slot = self.slots.take(unit.name, host, cores=share.cores, gpus=gpus, limited=limited)
        config = {
            "unit": unit.as_dict(), "content": unit.content, "bind": host.bind, "port": slot.port, "cores": slot.cores
        }  # fmt: skip
        environment = {**host.env, **share.environment, **slot.environment}
        kept = KeptProcess(
            unit.name, "hetplan.executor.serving.worker", config, self.folder, environment=environment,
            more={"host": host.model_dump(mode="json"), **_gpus_noted(slot)},
        )  # fmt: skip
        self.kept[unit.name], self.units[unit.name] = kept, unit
        try:
            await kept.start(limit_s, other_ports=slot.other_ports)
        except BaseException:
            await self._forget(unit.name, drain_s=0.0)
            raise

    async def _load(self, asked: Mapping[str, Any]) -> Mapping[str, int]:
        for one in asked["units"]:
            unit = Unit.from_dict(one["unit"])
            kept = self.kept.get(unit.name)
            if kept is None:
                raise StartFailed(unit.name, "it does not run")
            await kept.change({"unit": unit.as_dict(), "content": unit.content}, asked["limit_s"])
            self.units[unit.name] = unit
        return {one["unit"]["name"]: self.kept[one["unit"]["name"]].port for one in asked["units"]}

    async def _stop(self, asked: Mapping[str, Any]) -> None:
        names = [name for name in asked["names"] if name in self.kept]
        await asyncio.gather(*(self._forget(name, drain_s=asked["drain_s"]) for name in names))

    async def _forget(self, name: str, *, drain_s: float) -> None:
        await self.kept[name].stop(drain_s, remembered=self._remembered)
        self.kept.pop(name, None)
        self.units.pop(name, None)
        self.slots.give_back(name)

    async def _route(self, asked: Mapping[str, Any]) -> Mapping[str, Any] | None:
        routes = asked["routes"]
        if routes is None:
            await self._end_router(asked["drain_s"])
            self.routes = None
            return None
        # The process notes the port that it really got in its own copy.
        config = {**routes, "router": dict(routes["router"])}
        if self.router is not None and self.routes is not None and self.routes["router"] != routes["router"]:
            await self._end_router(asked["drain_s"])
        if self.router is None:
            await self._start_router(config, asked["limit_s"])
        elif self.routes is None or self.routes["revision"] != routes["revision"]:
            config["router"]["port"] = self.router.port
            await self.router.change(config, asked["limit_s"])
        self.routes = routes
        assert self.router is not None
        await self.router.until_linked(routes["revision"], asked["limit_s"])
        return self._router_seen()

    async def _start_router(self, config: Mapping[str, Any], limit_s: float) -> None:
        """A router, and a second one that waits to take its place on the same socket."""
        settings = config["router"]
        router = KeptProcess(
            "router", "hetplan.executor.serving.router", config, self.folder, more={"port": settings["port"]}
        )
        try:
            router.listener = _listening(settings["bind"], settings["port"])
            router.more["listener"] = router.listener.fileno()
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or error
            why = f"{settings['bind']} port {settings['port']}: {reason}"
            raise StartFailed("router", why) from None
        self.router = router
        router.spares = True
        try:
            await router.start(limit_s)
        except BaseException:
            await self._end_router(0.0)
            raise

    async def _end_router(self, drain_s: float) -> None:
        if self.router is None:
            return
        # First no new connection may come in: one that waits at the socket would wait in vain.
        if self.router.listener is not None:
            self.router.listener.close()
        await self.router.stop(drain_s, remembered=self._remembered)
        self.router = None

    async def _down_and_end(self, asked: Mapping[str, Any]) -> None:
        await self._down(asked)
        self.ended.set()

    async def _down(self, asked: Mapping[str, Any]) -> None:
        """The router first, so that nothing is sent to workers that go."""
        await self._end_router(asked["drain_s"])
        await self._stop({"names": list(self.kept), "drain_s": asked["drain_s"]})


def _listening(bind: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in bind else socket.AF_INET
    return socket.create_server((bind, port), family=family, backlog=BACKLOG)


_GET_FILE = 438
"""The number of the system call `pidfd_getfd`."""


def _taken_over(note: Note) -> socket.socket | None:
    """The socket on which a running router listens, as a file of this process; None where the system does not allow it.

    Without it everything works, but clients are refused between a router's death and the start of the next one.
    """
    file = note.more.get("listener")
    if not note.runs or file is None:
        return None
    with suppress(OSError):
        process = os.pidfd_open(note.pid)
        taken = ctypes.CDLL(None, use_errno=True).syscall(_GET_FILE, process, file, 0)
        os.close(process)
        if taken >= 0:
            os.set_inheritable(taken, False)
            return socket.socket(fileno=taken)
    return None


def _gpus_noted(slot: Slot) -> dict[str, Any]:
    if slot.gpus is None:
        return {}
    want, devices = slot.gpus
    return {"want": asdict(want), "devices": [asdict(device) for device in devices]}


def _slot_of(note: Note, kept: KeptProcess) -> Slot:
    """What a noted unit has to itself."""
    host, gpus = Host.model_validate(note.more["host"]), None
    if "want" in note.more:
        devices = [Device(**{**one, "names": tuple(one["names"])}) for one in note.more["devices"]]
        gpus = (Want(**note.more["want"]), devices)
    cores = tuple(kept.config["cores"])
    # Cores that all workers share are nobody's own.
    return Slot(kept.port, (), () if cores == host.cores and not host.cores_per_worker else cores, {}, gpus)


class socket_path:
    """A path to the folder's socket that is short enough for the system, whatever the folder's own length."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._file = folder, -1

    def __enter__(self) -> str:
        path = str(self._folder / SOCKET)
        if len(path.encode()) < 100:
            return path
        self._file = os.open(self._folder, os.O_PATH | os.O_DIRECTORY)
        return f"/proc/self/fd/{self._file}/{SOCKET}"

    def __exit__(self, *_: object) -> None:
        if self._file >= 0:
            os.close(self._file)


def main(arguments: list[str]) -> None:
    """The process: FOLDER MPS_PIPE GPU_LIST [wait]; it may wait until no other keeper of the folder runs."""
    folder = Path(arguments[0])
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    means = LocalMeans(Path(arguments[1]), Path(arguments[2]) if arguments[2] else None)
    lock = os.open(folder / "keeper.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | (0 if arguments[3:] == ["wait"] else fcntl.LOCK_NB))
    except BlockingIOError:
        return
    asyncio.run(Keeper(folder, means).run())


if __name__ == "__main__":
    main(sys.argv[1:])
