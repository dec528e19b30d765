"""What runs in pods: `python -m hetplan.executor.kubernetes.pod worker|router --config FILE --port PORT`.

A worker serves the unit that the mounted file names. For the router all units of a group come under one name, that of
their headless Service. The cluster's DNS says which pods are behind it; each unit is given one of them and keeps it for
as long as it lives, so that dispatch sees single workers.
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
from pathlib import Path
from typing import Any

from hetplan.executor.serving.router import Router
from hetplan.executor.serving.worker import Worker
from hetplan.executor.units import Unit
from hetplan.profiles.canonical import digest

__all__ = ["PodAddresses", "Serve", "look_up", "router_in_pod", "serve_in_pod", "worker_in_pod"]

Serve = Callable[[int], Coroutine[Any, Any, None]]
"""Serves until it is to stop; writes to the open file that it is given where it listens, or why it cannot."""


def serve_in_pod(arguments: list[str], made: Callable[[Any, int, Path], Serve]) -> None:
    """Run `made(content of --config, --port, a folder to write to)`; `SystemExit` says why it could not start."""
    parser = ArgumentParser()
    parser.add_argument("--config", type=Path, required=True, help="the mounted file that says what to serve")
    parser.add_argument("--port", type=int, required=True)
    given = parser.parse_args(arguments)
    reading, writing = os.pipe()
    with tempfile.TemporaryDirectory(prefix="hetplan-") as folder:
        asyncio.run(made(json.loads(given.config.read_text()), given.port, Path(folder))(writing))
    # A failed start may leave the writing end open, a good one has closed it; by now all has been said.
    os.set_blocking(reading, False)
    said = json.loads(os.read(reading, 65536) or b"{}")
    if "failed" in said:
        raise SystemExit(said["failed"])


def worker_in_pod(content: Mapping[str, Any], port: int, folder: Path) -> Serve:
    """A worker that holds the unit."""
    unit = Unit.from_dict(content["unit"])
    config = {"content": unit.content, "bind": "0.0.0.0", "port": port, "cores": [], "unit": unit.as_dict()}
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    return Worker(path).run


LOOK_S = 1.0


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
    """

    def __init__(self, find: Callable[[str], list[str] | None] = look_up) -> None:
        self._find = find
        self._of: dict[str, str] = {}

    def resolved(self, units: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """The units that have a pod, each with its address; where a name cannot be looked up, what was known holds."""
        listed = list(units)
        for name in dict.fromkeys(unit["address"] for unit in listed):
            pods = self._find(name)
            if pods is not None:
                self._give_out(pods, [unit["name"] for unit in listed if unit["address"] == name])
        return [{**unit, "address": self._of[unit["name"]]} for unit in listed if unit["name"] in self._of]

    def _give_out(self, pods: list[str], units: list[str]) -> None:
        kept = {unit: self._of[unit] for unit in units if self._of.get(unit) in pods}
        for unit in units:
            self._of.pop(unit, None)
        free = iter(pod for pod in pods if pod not in kept.values())
        for unit in units:
            pod = kept.get(unit) or next(free, None)
            if pod is not None:
                self._of[unit] = pod


class _PodRouter(Router):
    """A router that follows the pods behind its units."""

    def __init__(self, path: Path, routes: Mapping[str, Any]) -> None:
        super().__init__(path)
        self._wanted, self._addresses = routes, PodAddresses()

    async def serve(self, report: int) -> None:
        """Find the pods, then serve, and go on looking for them."""
        self.routes_path.write_text(json.dumps(self._now()))
        looking = asyncio.create_task(self._look())
        await self.run(report)
        looking.cancel()

    def _now(self) -> dict[str, Any]:
        table = {**self._wanted, "units": self._addresses.resolved(self._wanted["units"])}
        return {**table, "revision": digest({name: value for name, value in table.items() if name != "revision"})}

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            found = await asyncio.to_thread(self._now)
            if self.routes and found["revision"] != self.routes["revision"]:
                self.follow(found)


def router_in_pod(content: Mapping[str, Any], port: int, folder: Path) -> Serve:
    """A router that follows the routes, on this port instead of theirs."""
    routes = content["routes"]
    settings = {**routes["router"], "bind": "0.0.0.0", "port": port}
    return _PodRouter(folder / "routes.json", {**routes, "router": settings}).serve


if __name__ == "__main__":
    serve_in_pod(sys.argv[2:], {"worker": worker_in_pod, "router": router_in_pod}[sys.argv[1]])
