"""The router's links to workers, and the lanes behind them: one lane per load of a worker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from time import monotonic
from typing import Any

from hetplan.executor.serving.frames import (
    DONE,
    PING_FRAME,
    PROTOCOL,
    Answered,
    FrameReader,
    FrameWriter,
    ask_frame,
    batch_frame,
    cancel_frame,
    read_done,
)
from hetplan.executor.serving.law import OffTable, ServiceLaw
from hetplan.executor.serving.process import Receiver
from hetplan.executor.serving.query_tree import Task

__all__ = ["Lane", "Link"]

_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.02, 1.0
_MOST_GREETING = 16 * 1024
_GREETING = f"GET /link HTTP/1.1\r\nhost: worker\r\nupgrade: {PROTOCOL}\r\nconnection: upgrade\r\n"


class Lane:
    """A load of one worker, as the router sees it."""

    __slots__ = (
        "app", "backlog_s", "bound", "due_s", "expected", "free_s", "hardware", "id", "judged", "line", "link",
        "max_batch", "name", "node", "outcomes", "over_s", "owed_s", "quality", "retry", "servers", "standby", "unit",
        "variant", "worker",
    )  # fmt: skip

    def __init__(self, link: Link, unit: Mapping[str, Any], load: Mapping[str, Any]) -> None:
        self.link = link
        self.unit, self.worker, self.hardware = unit["name"], unit["worker"], unit["hardware"]
        self.standby = unit["standby"]
        self.bound = 0
        self.due_s = self.free_s = self.owed_s = self.over_s = self.backlog_s = 0.0
        # The loads of a worker wait in one line where they share its queue.
        self.line: Lane | Link = self if unit.get("queue") == "per-load" and not unit.get("policies") else link
        self.update(load)

    def update(self, load: Mapping[str, Any]) -> None:
        """Take over what may change while it runs."""
        self.name, self.id = load["id"], load["id"].encode()
        self.app, self.node, self.variant = load["app"], load["node"], load["variant"]
        self.servers, self.max_batch = load["servers"], load["max_batch"]
        self.outcomes: tuple[str, ...] = tuple(load.get("outcomes", ()))
        self.retry: bool = load.get("retry", True)
        # A step that nobody judged does not change what the others come to, as in the simulator.
        self.judged = load["quality"] is not None
        self.quality: float = load["quality"] if self.judged else 1.0
        self.expected = _law(load["expected"])

    @property
    def open(self) -> bool:
        """Whether queries may be sent to it."""
        return self.link.ready and not self.standby

    @property
    def idle(self) -> bool:
        """Whether it has a server free (as far as the router's own queries go)."""
        return self.bound < self.servers and self.link.ready and not self.standby

    def mean_s(self, at: Mapping[str, float], size: int) -> float:
        """How long a batch should take by the profile; 0 where nobody knows."""
        if self.expected is None:
            return 0.0
        try:
            return self.expected.mean_ms(at, size) / 1000.0
        except OffTable:
            return 0.0

    def median_s(self, at: Mapping[str, float], size: int) -> float:
        """How long half of such batches should take by the profile; 0 where nobody knows."""
        if self.expected is None:
            return 0.0
        try:
            return self.expected.median_ms(at, size) / 1000.0
        except OffTable:
            return 0.0

    def took(self, at: Mapping[str, float], size: int, took_s: float, *, most_s: float) -> None:
        """Learn by how much batches take longer than planned: what 19 of 20 keep, moved a little by each."""
        planned_s = self.median_s(at, size)
        step_s = 0.1 * (planned_s + self.over_s) + 1e-4
        self.over_s += 0.95 * step_s if took_s > planned_s + self.over_s else -0.05 * step_s
        self.over_s = min(max(self.over_s, 0.0), most_s)


def _law(data: Mapping[str, Any] | None) -> ServiceLaw | None:
    try:
        return ServiceLaw(data) if data is not None else None
    except OffTable:
        return None


class Link(Receiver):
    """A connection to one worker, opened again whenever it breaks.

    In a cluster a worker takes no link that is meant for another group, whose pod had its address before.

    `on_done` gets every answer, `on_ready` an open link, `on_lost` the queries that a broken one left
    without an answer.
    """

    def __init__(
        self, name: str, address: str, port: int, *, on_done: Callable[[Link, Answered], None],
        on_ready: Callable[[Link], None], on_lost: Callable[[Link, list[tuple[int, Task]]], None],
        token: str | None = None, group: str = "",
    ) -> None:  # fmt: skip
        self.name, self.address, self.port = name, address, port
        self.ready = False
        self.closing = False
        self.pending: dict[int, Task] = {}
        self.backlog_s = 0.0
        self.streams = 0  # requests whose answers come piece by piece, over connections of their own
        self._who = f"authorization: Bearer {token}\r\n" if token else ""
        self._whom = f"hetplan-group: {group}\r\n" if group else ""
        self._on_done, self._on_ready, self._on_lost = on_done, on_ready, on_lost
        self._loop = asyncio.get_running_loop()
        self._transport: Any = None
        self._asked_s = 0.0
        self._frames = FrameWriter(self._loop)
        self._greeted = bytearray()
        self._wait_s = 0.0
        self._reader: FrameReader
        self._task = self._loop.create_task(self._connect())

    def ask(self, number: int, task: Task, lane: Lane, times: tuple[float, float, float, float]) -> None:
        """Send one query to a queue of the worker; `times` are waited, slack, give-up (ms) and rate (qps)."""
        self.pending[number] = task
        self._write(ask_frame(number, lane.id, task.body, *times))

    def batch(self, lane: Lane, tasks: list[tuple[int, Task]]) -> None:
        """Have the worker serve these together, at once."""
        now = monotonic()
        self.pending.update(tasks)
        self._write(
            batch_frame(
                lane.id,
                [
                    (number, 1e3 * (now - task.entered_s), 1e3 * (task.query.deadline_s - now), task.body)
                    for number, task in tasks
                ],
            )
        )

    def cancel_left(self) -> None:
        """Tell the worker which of its queries nobody waits for any more."""
        for number, task in self.pending.items():
            if task.query.open <= 0 and not task.cancelled:
                task.cancelled = True
                self._write(cancel_frame(number))

    def silent_s(self, now: float) -> float:
        """For how long the worker has said nothing though it has queries and was asked whether it is there."""
        if not self.ready or not (self.pending or self.streams):
            self._asked_s = 0.0
        elif self._asked_s == 0.0:
            self._asked_s = now
            self._write(PING_FRAME)
        return now - self._asked_s if self._asked_s else 0.0

    def cut(self) -> None:
        """Give the worker up: what it has is handed back, and it is linked again once it answers."""
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """Close once nothing is under way on it any more."""
        self.closing = True
        if not self.pending:
            self._task.cancel()
            if self._transport is not None:
                self._transport.close()

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for frames."""
        self._transport = transport
        self._greeted = bytearray()
        self._reader = FrameReader(self._take)
        self._transport.write(f"{_GREETING}{self._who}{self._whom}\r\n".encode())

    def data_received(self, data: bytes) -> None:
        """The worker's consent first, then frames."""
        self._asked_s = 0.0
        if self.ready:
            self._reader.feed(data)
            return
        self._greeted += data
        head, end, rest = bytes(self._greeted).partition(b"\r\n\r\n")
        if not end and len(self._greeted) <= _MOST_GREETING:
            return
        if not end or b" 101 " not in head.split(b"\r\n")[0] + b" ":
            self._transport.close()
            return
        self.ready, self._wait_s = True, 0.0
        self._on_ready(self)
        if rest:
            self._reader.feed(rest)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 (asyncio's name)
        """Hand back what was under way and try again."""
        self.ready, self._transport, self._asked_s = False, None, 0.0
        self._frames = FrameWriter(self._loop)
        lost, self.pending = list(self.pending.items()), {}
        if not self.closing:
            self._task = self._loop.create_task(self._connect())
        self._on_lost(self, lost)

    async def _connect(self) -> None:
        """Ever more seldom where nobody listens, or whoever does takes no link."""
        while not self.closing:
            await asyncio.sleep(self._wait_s)
            self._wait_s = min(max(2.0 * self._wait_s, _FIRST_WAIT_S), _LONGEST_WAIT_S)
            with suppress(OSError, UnicodeError):
                await self._loop.create_connection(lambda: self, self.address, self.port)
                return

    def _take(self, kind: int, content: bytes) -> None:
        if kind == DONE:
            self._on_done(self, read_done(content))
            if self.closing and not self.pending:
                self.close()

    def _write(self, frame: bytes) -> None:
        self._frames.write(self._transport, frame)
