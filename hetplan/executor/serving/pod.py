"""What runs in a pod: `python -m hetplan.executor.serving.pod worker|router CONFIG`, with a mounted file of `render`.

The router's table names the workers of a group by one name, that of the group's headless Service. The cluster's DNS
says which pods are behind it; each worker of the table is given one of them and keeps it for as long as it lives, so
that dispatch sees single workers. Pods beyond the plan's (in mid-roll) serve beside them.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import sys
import tempfile
from argparse import ArgumentParser
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from time import monotonic
from typing import Any, TypeVar

from hetplan.executor.secrets import own_token
from hetplan.executor.serving.http_server import Exchange
from hetplan.executor.serving.process import ask_for_files, give_memory_back
from hetplan.executor.serving.router import Router
from hetplan.executor.serving.worker import Worker
from hetplan.precise_loop import new_event_loop
from hetplan.profiles.canonical import digest

__all__ = ["PodAddresses", "PodRouter", "PodWorker", "look_up", "main"]

LOOK_S = 1.0
FIRST_S = 120.0
"""How long a new router waits for a worker of each load before it takes queries for those that have one."""
log = logging.getLogger(__name__)


def look_up(name: str) -> list[str] | None:
    """The addresses behind a name, [] where it is known to have none, None where that is not known."""
    try:
        return sorted({str(found[4][0]) for found in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)})
    except (OSError, UnicodeError) as error:
        code = error.errno if isinstance(error, socket.gaierror) else None
        if code in (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)):
            return []
        log.warning("%s cannot be looked up: %s", name, error)
        return None


def lives(exchange: Exchange) -> bool:
    """Answer `/livez`: who answers lives, ready or not."""
    if exchange.path != "/livez":
        return False
    exchange.answer(200, b"{}")
    return True


class PodAddresses:
    """Which pod each worker of a table is.

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
        found = [
            {**unit, "group": unit["address"], "address": self._of[unit["name"]]}
            for unit in listed
            if unit["name"] in self._of
        ]
        first = {unit["address"]: unit for unit in reversed(listed) if not unit.get("standby")}
        return found + [
            {**first[name], "name": f"{first[name]['name']}+{pod}", "group": name, "address": pod}
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


V = TypeVar("V")


class _Alike(dict[str, V]):
    """Values that are all alike: where a name is not there, any of them will do."""

    def __missing__(self, name: str) -> V:
        return next(iter(self.values()))

    def get(self, name: str, default: Any = None) -> Any:  # noqa: ARG002 (there always is one)
        """As by brackets."""
        return self[name]


class PodWorker(Worker):
    """A worker whose loads are one model, as a group's are, or models that take turns.

    In mid-roll a router's table may be older or newer than what the pod was made for, and name its one load otherwise:
    it is served all the same. A router that takes it for a pod of another group is not: that one had its address
    before.
    """

    def handle(self, exchange: Exchange) -> None:
        """Answer one HTTP request."""
        mine = self.config.get("group", "")
        if exchange.path == "/link" and exchange.headers.get("hetplan-group", mine) != mine:
            exchange.answer(409, json.dumps({"why": f"this is a pod of {mine}"}).encode())
            return
        super().handle(exchange)

    def look(self, exchange: Exchange) -> None:
        """Answer how it is and what it counts, and `/livez` in any case."""
        if not lives(exchange):
            super().look(exchange)

    def _arrange(self, unit: Mapping[str, Any]) -> None:
        super()._arrange(unit)
        if unit["queue"] == "shared":
            return
        self.lanes, self.loads = _Alike(self.lanes), _Alike(self.loads)


class PodRouter(Router):
    """A router that follows the pods behind the names of its table."""

    def __init__(self, mounted: Path, written: Path, token: str | None = None) -> None:
        super().__init__(written, token)
        self._wanted: Mapping[str, Any] = json.loads(mounted.read_text())
        self._addresses = PodAddresses()
        self._began = False

    @property
    def ready(self) -> bool:
        """Once a worker of each load is linked; then it stays so, as it alone answers for those that are left."""
        if not self._began:
            linked = {lane.name for lane in self.lanes.values() if lane.open}
            late = monotonic() - self.since_s > FIRST_S
            self._began = linked >= _loads(self._wanted) or (late and bool(linked))
        return self._began and super().ready

    def look(self, exchange: Exchange) -> None:
        """Answer how it is and what it counts, and `/livez` in any case."""
        if not lives(exchange):
            super().look(exchange)

    async def run(self, report: int, listener: socket.socket | None = None) -> None:
        """Serve, and go on looking for pods."""
        self.routes_path.write_text(json.dumps(await asyncio.to_thread(self._table)))
        looking = asyncio.create_task(self._look())
        try:
            await super().run(report, listener)
        finally:
            looking.cancel()

    def _table(self) -> dict[str, Any]:
        """The routes over the pods that there are now."""
        table = {**self._wanted, "units": self._addresses.resolved(self._wanted["units"])}
        return {**table, "revision": digest({name: value for name, value in table.items() if name != "revision"})}

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                found = await asyncio.to_thread(self._table)
                if self.routes and found["revision"] != self.routes["revision"]:
                    self.follow(found)
            except Exception as error:  # whatever it was, the next look may be well
                self._report(error, "the pods were not looked up")


def _loads(table: Mapping[str, Any]) -> set[str]:
    """The loads that queries of a table can go to."""
    return {load["id"] for unit in table["units"] if not unit["standby"] for load in unit["loads"]}


def main(arguments: list[str]) -> None:
    """The process; `SystemExit` says why it could not start."""
    parser = ArgumentParser()
    parser.add_argument("part", choices=("worker", "router"))
    parser.add_argument("config", type=Path, help="the mounted file")
    given = parser.parse_args(arguments)
    ask_for_files()
    give_memory_back()
    reading, writing = os.pipe()
    with tempfile.TemporaryDirectory(prefix="hetplan-") as folder:
        token = own_token()
        if given.part == "worker":
            with asyncio.Runner(loop_factory=new_event_loop) as runner:
                runner.run(PodWorker(given.config, token).run(writing))
        else:
            asyncio.run(PodRouter(given.config, Path(folder) / "routes.json", token).run(writing))
    # A failed start may leave the writing end open, a good one has closed it; by now all has been said.
    os.set_blocking(reading, False)
    said = json.loads(os.read(reading, 65_536) or b"{}")
    if "failed" in said:
        raise SystemExit(said["failed"])


if __name__ == "__main__":
    main(sys.argv[1:])
