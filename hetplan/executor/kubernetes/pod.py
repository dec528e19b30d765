"""What runs in pods: `python -m hetplan.executor.kubernetes.pod worker|router --config FILE --port PORT`.

A worker serves the unit that the mounted file names. For the router all units of a group come under one name, that of
their headless Service. The cluster's DNS says which pods are behind it; each unit is given one of them and keeps it for
as long as it lives, so that dispatch sees single workers. Pods beyond the plan's (of an autoscaler, or in mid-roll)
serve beside them. The router reads its mounted file again as it changes, and follows the new routes.

A pod that is to end is not ready any more at once, and serves on for a while: queries that come meanwhile are answered.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import tempfile
from argparse import ArgumentParser
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any

from hetplan.executor.kubernetes.groups import LEAVING
from hetplan.executor.secrets import own_token
from hetplan.executor.serving.http_server import Exchange
from hetplan.executor.serving.router import Router
from hetplan.executor.serving.worker import Worker
from hetplan.executor.units import Unit
from hetplan.profiles.canonical import digest

__all__ = ["PodAddresses", "Serve", "look_up", "router_in_pod", "serve_in_pod", "worker_in_pod"]

Serve = Callable[[int], Coroutine[Any, Any, None]]
"""Serves until it is to stop; writes to the open file that it is given where it listens, or why it cannot."""


def serve_in_pod(arguments: list[str], made: Callable[[Path, int, Path], Serve]) -> None:
    """Run `made(--config, --port, a folder to write to)`; `SystemExit` says why it could not start."""
    parser = ArgumentParser()
    parser.add_argument("--config", type=Path, required=True, help="the mounted file that says what to serve")
    parser.add_argument("--port", type=int, required=True)
    given = parser.parse_args(arguments)
    # A container that is started again in its pod does not leave.
    Path(LEAVING).unlink(missing_ok=True)
    reading, writing = os.pipe()
    with tempfile.TemporaryDirectory(prefix="hetplan-") as folder:
        asyncio.run(made(given.config, given.port, Path(folder))(writing))
    # A failed start may leave the writing end open, a good one has closed it; by now all has been said.
    os.set_blocking(reading, False)
    said = json.loads(os.read(reading, 65536) or b"{}")
    if "failed" in said:
        raise SystemExit(said["failed"])


def _leaves(exchange: Exchange) -> bool:
    """Whether this pod ends, and was asked whether it is ready: the answer is given."""
    if exchange.path != "/healthz" or not Path(LEAVING).exists():
        return False
    exchange.answer(503, b'{"ready": false, "why": "this pod ends"}')
    return True


class _PodWorker(Worker):
    def look(self, exchange: Exchange) -> None:
        """Answer how it is and what it counts."""
        if not _leaves(exchange):
            super().look(exchange)


def worker_in_pod(mounted: Path, port: int, folder: Path) -> Serve:
    """A worker that holds the unit."""
    unit = Unit.from_dict(json.loads(mounted.read_text())["unit"])
    config = {"content": unit.content, "bind": "0.0.0.0", "port": port, "cores": [], "unit": unit.as_dict()}
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    return _PodWorker(path, own_token()).run


LOOK_S = 1.0
LINK_LIMIT_S = 5.0
FIND_S = 15.0


def look_up(name: str) -> list[str] | None:
    """The addresses behind a name, [] where it is known to have none, None where that is not known."""
    try:
        return sorted({str(found[4][0]) for found in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)})
    except socket.gaierror as error:
        return [] if error.errno in (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)) else None


class PodAddresses:
    """Which pod each unit has.

    >>> pods = {"w1": ["10.0.0.7", "10.0.0.8"]}
    >>> addresses = PodAddresses(pods.get)
    >>> units = [{"name": f"w1-{i}", "address": "w1"} for i in range(3)]
    >>> [unit["address"] for unit in addresses.resolved(units)]
    ['10.0.0.7', '10.0.0.8']
    >>> pods["w1"] = ["10.0.0.5", "10.0.0.8"]
    >>> [(unit["name"], unit["address"]) for unit in addresses.resolved(units)]
    [('w1-0', '10.0.0.5'), ('w1-1', '10.0.0.8')]
    >>> pods["w1"] = [f"10.0.0.{n}" for n in (4, 5, 7, 8)]
    >>> [(unit["name"], unit["address"]) for unit in addresses.resolved(units)][2:]
    [('w1-2', '10.0.0.4'), ('w1-0+10.0.0.7', '10.0.0.7')]
    """

    def __init__(self, find: Callable[[str], list[str] | None] = look_up) -> None:
        self._find = find
        self._of: dict[str, str] = {}
        self._beyond: dict[str, list[str]] = {}

    def resolved(self, units: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """The units that have a pod, each with its address; where a name cannot be looked up, what was known holds."""
        listed = list(units)
        for name in dict.fromkeys(unit["address"] for unit in listed):
            pods = self._find(name)
            if pods is not None:
                self._give_out(name, pods, [unit["name"] for unit in listed if unit["address"] == name])
        found = [{**unit, "address": self._of[unit["name"]]} for unit in listed if unit["name"] in self._of]
        first = {unit["address"]: unit for unit in reversed(listed) if not unit.get("standby")}
        return found + [
            {**first[name], "name": f"{first[name]['name']}+{pod}", "address": pod}
            for name, pods in self._beyond.items() if name in first
            for pod in pods
        ]  # fmt: skip

    def _give_out(self, name: str, pods: list[str], units: list[str]) -> None:
        kept = {unit: self._of[unit] for unit in units if self._of.get(unit) in pods}
        for unit in units:
            self._of.pop(unit, None)
        free = iter(pod for pod in pods if pod not in kept.values())
        for unit in units:
            pod = kept.get(unit) or next(free, None)
            if pod is not None:
                self._of[unit] = pod
        self._beyond[name] = list(free)


class _PodRouter(Router):
    """A router that follows the routes of its mounted file, as it changes, and the pods behind its units."""

    def __init__(self, path: Path, mounted: Path, port: int) -> None:
        super().__init__(path, own_token())
        self._mounted, self._port, self._addresses = mounted, port, PodAddresses()
        self._wanted = self._read()

    async def serve(self, report: int) -> None:
        """Find the pods, then serve, and go on looking for them and for other routes."""
        until = monotonic() + FIND_S
        while (found := self._table(self._wanted)) and monotonic() < until and not _all_served(self._wanted, found):
            await asyncio.sleep(LOOK_S / 4)
        self.routes_path.write_text(json.dumps(found))
        looking = asyncio.create_task(self._look())
        await self.run(report)
        looking.cancel()

    def look(self, exchange: Exchange) -> None:
        """Answer how it is and what it counts."""
        if not _leaves(exchange):
            super().look(exchange)

    def _read(self) -> Mapping[str, Any]:
        routes: Mapping[str, Any] = json.loads(self._mounted.read_text())["routes"]
        return routes

    def _table(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        """The routes over the pods that there are now."""
        settings = {**wanted["router"], "bind": "0.0.0.0", "port": self._port}
        table = {**wanted, "router": settings, "units": self._addresses.resolved(wanted["units"])}
        table["follows"] = wanted.get("revision")
        return {**table, "revision": digest({name: value for name, value in table.items() if name != "revision"})}

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            with suppress(OSError, ValueError, KeyError):
                wanted = self._read()
                found = await asyncio.to_thread(self._table, wanted)
                if wanted != self._wanted:
                    # Names of new pods may be known later than their pods are ready: until then the old routes hold.
                    links = [self._link(unit) for unit in found["units"]]
                    await self._until_linked(links, LINK_LIMIT_S)
                    up = [unit for unit, link in zip(found["units"], links, strict=True) if link.ready]
                    if _all_served(wanted, {**found, "units": up}):
                        self._wanted = wanted
                    else:
                        found = await asyncio.to_thread(self._table, self._wanted)
                if self.routes and found["revision"] != self.routes["revision"]:
                    self.follow(found)


def _all_served(wanted: Mapping[str, Any], found: Mapping[str, Any]) -> bool:
    """Whether every load of the routes has a pod."""
    asked, up = (
        {load["id"] for unit in table["units"] if not unit.get("standby") for load in unit["loads"]}
        for table in (wanted, found)
    )
    return asked == up


def router_in_pod(mounted: Path, port: int, folder: Path) -> Serve:
    """A router that follows the mounted routes, on this port instead of theirs."""
    return _PodRouter(folder / "routes.json", mounted, port).serve


if __name__ == "__main__":
    serve_in_pod(sys.argv[2:], {"worker": worker_in_pod, "router": router_in_pod}[sys.argv[1]])
