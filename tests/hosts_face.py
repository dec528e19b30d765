"""The hosts' half of the face: what runs on machines, and what somebody sees who sends queries there.

Beside `tests/face.py` the only test file that names a flag, a setting of hosts, or a key of a reply over HTTP.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import signal
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from build import Files
from face import Json, Ran, command

__all__ = ["Counts", "Hosted", "Offered"]

_NOISE_MS = 100.0
"""What a busy machine adds between a router and the test that asks it."""


@dataclass(frozen=True)
class Offered:
    """What became of queries that came at a rate, whether others were answered or not."""

    seconds: float
    sent: int
    in_time: int
    late: int
    refused_ms: tuple[float, ...]
    """After how long queries were refused, each told when to come again."""
    other: tuple[str, ...]

    @property
    def goodput(self) -> float:
        """Queries in time per second."""
        return self.in_time / self.seconds


@dataclass(frozen=True)
class Counts:
    """What a router counts of an application: queries under way, refused, left by their clients; steps served."""

    under_way: int
    refused: int
    left: int
    steps: int


class Hosted:
    """A deployment on this machine whose models sleep as long as the profile says, taken down at the end.

    `service_ms` is how long they sleep instead, whatever the profile says.
    """

    def __init__(self, folder: Path, wish: Files, *, machines: int = 8, service_ms: float | None = None) -> None:
        self.folder, self._hosts, self.address = folder, folder / "site.toml", ("", 0)
        self.profile, self.slo = wish.write(folder)[:2]
        names = ", ".join(f'"{name}"' for name in wish.machine_types)
        slept = "" if service_ms is None else f"ms = {service_ms}\n"
        self._hosts.write_text(
            f'format = "hetplan/site/1.0"\nstate_dir = "state"\nfiles = ["profile.json", "slo.json"]\n'
            "[limits]\nstart_s = 120.0\ncall_s = 60.0\ndrain_s = 2.0\n"
            f'[router]\nport = 0\n[targets.here]\nkind = "local"\n[hosts.this]\ntarget = "here"\n'
            f'machines = [{names}]\ncount = {machines}\n[models."*"]\nkind = "sleep"\n{slept}'
        )

    def __enter__(self) -> Hosted:
        return self

    def __exit__(self, *_: object) -> None:
        command("down", "--site", self._hosts, "--yes")

    def apply(self, plan: Json) -> Ran:
        """Bring a plan about."""
        path = self.folder / "plan.json"
        path.write_text(json.dumps(plan))
        ran = command("apply", path, "--site", self._hosts, "--yes")
        found = re.search(r"http://([0-9.]+):([0-9]+)", ran.out)
        if found:
            self.address = (found[1], int(found[2]))
        return ran

    def processes(self, what: str) -> list[int]:
        """The ids of its "keeper", "router" (with one that waits to take its place) or "worker" processes."""
        from hetplan.executor.kept_process import marked

        word = {"keeper": "hetplan.executor.keeper"}.get(what, f"hetplan.executor.serving.{what}").encode()
        mine = marked((self.folder / "state" / "targets" / "here").resolve())
        return [one for one in mine if word in Path(f"/proc/{one}/cmdline").read_bytes().split(b"\0")]

    def query(self, app: str, *, size: int = 1, keeps: bool = True) -> bytes:
        """A query as bytes for a socket."""
        body = json.dumps({"at": {"batch": size}}).encode()
        end = "" if keeps else "connection: close\r\n"
        head = f"POST /v1/{app} HTTP/1.1\r\nhost: x\r\n{end}content-type: application/json\r\n"
        return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body

    def ask(self, app: str, *, size: int = 1) -> tuple[str, float, str | None]:
        """What becomes of one query, after how many ms, and which model answered it."""
        began = time.monotonic()
        with socket.create_connection(self.address, timeout=60.0) as one:
            one.sendall(self.query(app, size=size, keeps=False))
            head, _, body = b"".join(iter(lambda: one.recv(65536), b"")).partition(b"\r\n\r\n")
        said = json.loads(body) if body else {}
        path = said.get("path") or [{}]
        return said.get("outcome", head[9:12].decode()), 1e3 * (time.monotonic() - began), path[-1].get("variant")

    def burst(self, app: str, count: int) -> list[tuple[str, str, str]]:
        """Queries that come at once: of each its outcome, the group and the machine that answered it ("" if none)."""
        asking = [socket.create_connection(self.address, timeout=60.0) for _ in range(count)]
        for one in asking:
            one.sendall(self.query(app, keeps=False))
        found = []
        for one in asking:
            with one:
                head, _, body = b"".join(iter(lambda one=one: one.recv(65536), b"")).partition(b"\r\n\r\n")
            said = json.loads(body) if body else {}
            last = (said.get("path") or [{}])[-1]
            load, unit = last.get("load", ""), last.get("unit", "")
            found.append((said.get("outcome", head[9:12].decode()), load.partition(".")[0], unit))
        return found

    def machines(self) -> dict[str, bool]:
        """The machines that the router knows, and whether it sends queries there."""
        with urlopen("http://{}:{}/metrics".format(*self.address), timeout=60) as answer:
            return {name: one["ready"] for name, one in json.load(answer)["units"].items()}

    def kill(self, group: str) -> None:
        """End the processes of a group's machines, as a machine ends that fails."""
        for one in self.processes("worker"):
            words = Path(f"/proc/{one}/cmdline").read_bytes() + Path(f"/proc/{one}/environ").read_bytes()
            if f"{group}-".encode() in words:
                os.kill(one, signal.SIGKILL)

    def counts(self, app: str) -> Counts:
        """What became of an application's queries so far."""
        with urlopen("http://{}:{}/metrics".format(*self.address), timeout=60) as answer:
            said = json.load(answer)
        steps, one = sum(load["served"] for load in said["loads"].values()), said["apps"][app]
        return Counts(one["under_way"], one["shed"] + one["dropped"], one["left"], int(steps))

    def offer(self, app: str, *phases: tuple[float, float], within_ms: float, size: int = 1) -> list[Offered]:
        """Queries at random moments: of each phase its rate per second and its seconds. At most 5,000 in all."""
        assert sum(rate * seconds for rate, seconds in phases) <= 5_000
        return asyncio.run(self._offered(self.query(app, size=size), phases, within_ms))

    async def _offered(self, query: bytes, phases: Sequence[tuple[float, float]], within_ms: float) -> list[Offered]:
        rng, loop, idle, asked = random.Random(1), asyncio.get_running_loop(), list[Any](), list[Any]()
        found: list[list[tuple[str, float]]] = [[] for _ in phases]

        async def one(into: list[tuple[str, float]], due: float) -> None:
            try:
                reader, writer = idle.pop() if idle else await asyncio.open_connection(*self.address)
                writer.write(query)
                head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60.0)).lower()
                fields = dict(line.split(b": ", 1) for line in head.strip().split(b"\r\n")[1:])
                await reader.readexactly(int(fields.get(b"content-length", 0)))
                idle.append((reader, writer))
                refused = head[9:12] == b"503" and int(fields[b"retry-after"]) >= within_ms / 1e3
                what = "refused" if refused else head[9:12].decode()
            except (OSError, EOFError, TimeoutError, KeyError) as error:
                what = type(error).__name__
            into.append((what, 1e3 * (loop.time() - due)))

        due = loop.time()
        for into, (rate, seconds) in zip(found, phases, strict=True):
            end = due + seconds
            while due < end:
                await asyncio.sleep(max(due - loop.time(), 0.0))
                asked.append(asyncio.ensure_future(one(into, due)))
                due += rng.expovariate(rate)
        await asyncio.wait(asked)
        return [
            Offered(
                seconds, len(into), sum(what == "200" and ms <= within_ms + _NOISE_MS for what, ms in into),
                sum(what == "200" and ms > within_ms + _NOISE_MS for what, ms in into),
                tuple(ms for what, ms in into if what == "refused"),
                tuple(what for what, _ in into if what not in ("200", "refused")),
            )
            for into, (_, seconds) in zip(found, phases, strict=True)
        ]  # fmt: skip
