"""Work that a server does for others: so many at once, so many waiting, each so long, and to be stopped at any time.

>>> workshop = Workshop(Allowance(at_once=1))
>>> workshop.begin("solve", lambda task: 6 * 7).result()
42
>>> workshop.close()
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Allowance", "Busy", "Task", "Workshop"]


@dataclass(frozen=True)
class Allowance:
    """What requests may take."""

    at_once: int = 2
    waiting: int = 16
    seconds: float = 60.0
    bytes: int = 8_000_000
    points: int = 25
    """Points of a curve."""


class Busy(Exception):
    """So many requests wait already that another one is sent away."""


@dataclass
class Task:
    """One piece of work; `cancel` asks it to stop, `doing` is what it says it is at."""

    id: str = ""
    kind: str = ""
    doing: str = ""
    cancel: threading.Event = field(default_factory=threading.Event)
    begun: float | None = None
    future: Future[Any] = field(default_factory=Future)

    def result(self) -> Any:
        """What came of it; waits."""
        return self.future.result()

    def stop(self) -> None:
        """Ask the work to stop; what waits does not begin."""
        self.cancel.set()
        self.future.cancel()

    @property
    def overdue_s(self) -> float:
        """Seconds since it began; 0 while it waits."""
        return 0.0 if self.begun is None else time.monotonic() - self.begun


class Workshop:
    """Threads that do the work of requests, and counts of what they did."""

    def __init__(self, allowance: Allowance | None = None) -> None:
        self.allowance = allowance or Allowance()
        self._pool = ThreadPoolExecutor(self.allowance.at_once, thread_name_prefix="hetplan-work")
        self._lock = threading.Lock()
        self._tasks: dict[str, Task] = {}
        self._number = itertools.count(1)
        self.answers: Counter[tuple[str, int]] = Counter()
        self.seconds: Counter[str] = Counter()

    def begin(self, kind: str, work: Callable[[Task], Any], *, name: str = "") -> Task:
        """Begin, or queue; `Busy` where the queue is full, ValueError where the name is in use."""
        with self._lock:
            if len(self._tasks) >= self.allowance.at_once + self.allowance.waiting:
                raise Busy
            task = Task(name or f"w{next(self._number)}", kind)
            if task.id in self._tasks:
                raise ValueError(f"work with the id {task.id} is under way")
            self._tasks[task.id] = task

        def run() -> Any:
            task.begun = time.monotonic()
            try:
                return work(task)
            finally:
                self._forget(task)

        task.future = self._pool.submit(run)
        task.future.add_done_callback(lambda _: self._forget(task))
        return task

    def _forget(self, task: Task) -> None:
        with self._lock:
            self._tasks.pop(task.id, None)

    def find(self, name: str) -> Task | None:
        """The work of this name, as long as it is under way."""
        with self._lock:
            return self._tasks.get(name)

    def count(self, path: str, code: int, seconds: float) -> None:
        """Remember an answer."""
        with self._lock:
            self.answers[path, code] += 1
            self.seconds[path] += seconds  # type: ignore[assignment]

    @property
    def under_way(self) -> tuple[int, int]:
        """How many are at work, and how many wait."""
        with self._lock:
            begun = sum(task.begun is not None for task in self._tasks.values())
            return begun, len(self._tasks) - begun

    def metrics(self) -> str:
        """The counts in Prometheus' text format."""
        working, waiting = self.under_way
        with self._lock:
            answers, seconds = sorted(self.answers.items()), sorted(self.seconds.items())
        lines = ["# TYPE hetplan_requests_total counter"]
        lines += [f'hetplan_requests_total{{path="{path}",code="{code}"}} {n}' for (path, code), n in answers]
        lines.append("# TYPE hetplan_request_seconds_total counter")
        lines += [f'hetplan_request_seconds_total{{path="{path}"}} {total:.6f}' for path, total in seconds]
        for name, count in (("working", working), ("waiting", waiting)):
            lines += [f"# TYPE hetplan_{name} gauge", f"hetplan_{name} {count}"]
        return "\n".join(lines) + "\n"

    def close(self) -> None:
        """Ask all work to stop, and take no more."""
        with self._lock:
            tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel.set()
        self._pool.shutdown(wait=False, cancel_futures=True)
