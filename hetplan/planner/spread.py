"""Many small pieces of work: one after another, over processes of this machine, or over a Ray cluster.

Each piece is a function of data that all share and of a task, both of which travel; what comes back is plain data. The
results are in the order of the tasks, wherever and whenever they were made, so the same work gives the same bytes. With
a journal, what was done is on disk at once, and the same command after a kill does the rest.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from hetplan.errors import HetplanError, InputError, Interrupted
from hetplan.planner.contract import Event, OnEvent
from hetplan.profiles.canonical import digest
from hetplan.profiles.line_journal import LineJournal

if TYPE_CHECKING:
    from concurrent.futures import Future

__all__ = ["FORMAT", "RayCluster", "Spread", "Task", "doubled", "left_in_words"]

FORMAT = "hetplan/study/1.0"
ANSWERS_WITHIN_S = 5.0
"""A cluster whose head does not answer for this long is away; Ray itself would wait for minutes."""
HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""How a client of gRPC begins, whose servers answer with a frame of settings (kind 4)."""

Work = Callable[..., dict[str, Any]]
Task = dict[str, Any]

_shared: Any = None
"""What all tasks of a worker process share; set once, when the process starts."""


@dataclass
class Spread:
    """Where work is done, and what is kept of it.

    >>> with Spread() as spread:
    ...     spread.all(doubled, 2, [{"of": 1}, {"of": 5}])
    [{'twice': 2}, {'twice': 10}]
    """

    jobs: int = 1
    on: str | None = None
    """`ray` or `ray:ADDRESS`: a cluster of the user's; None: this machine."""
    journal: str | os.PathLike[str] | None = None
    of: str = ""
    """The digest of what is studied: a journal of something else is refused."""
    on_event: OnEvent | None = None
    cancel: threading.Event | None = None
    seconds: float | None = None
    """After this long `some` begins nothing more; None: no limit."""
    _kept: dict[str, dict[str, Any]] = field(default_factory=dict, init=False)
    _journal: LineJournal | None = field(default=None, init=False)
    _crew: Any = field(default=None, init=False)
    _began: float = field(default=0.0, init=False)
    _spent: float = field(default=0.0, init=False)
    _done: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        if self.jobs < 1:
            raise InputError.one(file="--jobs", value=self.jobs, why="at least one process", remedy="Write --jobs 2.")
        if self.on is not None:
            RayCluster.check(self.on)

    def __enter__(self) -> Spread:
        self._began = time.monotonic()
        if self.journal is not None:
            self._journal = LineJournal(
                self.journal, what="journal of a study", format=FORMAT, of=self.of or None, other="another study",
                sync_s=1.0, alone=True,
            )  # fmt: skip
            self._kept = {line["task"]: line["found"] for line in self._journal.lines if "task" in line}
        return self

    def __exit__(self, *_: object) -> None:
        if self._crew is not None:
            self._crew.close()
            self._crew = None
        if self._journal is not None:
            self._journal.close()

    def all(self, work: Work, shared: Any, tasks: Sequence[Task], *, about: str = "points") -> list[dict[str, Any]]:
        """The result of every task, in their order; what the journal has is not done again."""
        keys = self._do(work, shared, tasks, about, None)
        return [self._kept[key] for key in keys]

    def some(
        self, work: Work, shared: Any, tasks: Sequence[Task], *, about: str = "points"
    ) -> list[dict[str, Any] | None]:
        """`all` for as long as `seconds` allows; None for a task that was not done by then.

        >>> with Spread(seconds=0) as spread:
        ...     spread.some(doubled, 2, [{"of": 1}])
        [None]
        """
        until = None if self.seconds is None else self._began + self.seconds
        return [self._kept.get(key) for key in self._do(work, shared, tasks, about, until)]

    def _do(self, work: Work, shared: Any, tasks: Sequence[Task], about: str, until: float | None) -> list[str]:
        keys = [digest({"work": work.__name__, "task": task}) for task in tasks]
        missing = {key: task for key, task in zip(keys, tasks, strict=True) if key not in self._kept}
        began = time.monotonic()
        for number, (key, found) in enumerate(self._each(work, shared, missing, until), start=1):
            self._kept[key] = found
            if self._journal is not None:
                self._journal.append({"task": key, "found": found})
            self._done += 1
            self._say(number, len(missing), time.monotonic() - began, about, until)
        return keys

    def _each(
        self, work: Work, shared: Any, tasks: dict[str, Task], until: float | None
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        if not tasks or _late(until):
            return
        if self.on is None and self.jobs == 1:
            for key, task in tasks.items():
                self._check()
                if _late(until):
                    return
                yield key, work(shared, task, self.cancel)
            return
        if self._crew is None:
            self._crew = _Ray(self.on, shared) if self.on is not None else _Processes(self.jobs, shared)
        for key, found in self._crew.each(work, tasks):
            yield key, found
            self._check()
            if _late(until):
                return

    def _check(self) -> None:
        if self.cancel is not None and self.cancel.is_set():
            kept = " What was found is in the journal; the same command goes on." if self.journal is not None else ""
            raise Interrupted(f"stopped.{kept}")

    def _say(self, done: int, of: int, seconds: float, about: str, until: float | None) -> None:
        if self.on_event is not None:
            left = (of - done) * seconds / done
            if until is not None:
                left = min(left, max(0.0, until - time.monotonic()))
            detail = f"{done} of {of} {about}" + (f", about {left_in_words(left)} left" if done < of else "")
            self.on_event(Event("study", detail, done=done / of, seconds=time.monotonic() - self._began))


def _late(until: float | None) -> bool:
    return until is not None and time.monotonic() >= until


def left_in_words(seconds: float) -> str:
    """A rough time.

    >>> left_in_words(0.2), left_in_words(42.4), left_in_words(600), left_in_words(9000)
    ('1 s', '42 s', '10 min', '2.5 h')
    """
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


class _Processes:
    """Processes of this machine, started afresh: a copy of this one would copy its threads and locks."""

    def __init__(self, jobs: int, shared: Any) -> None:
        from concurrent.futures import ProcessPoolExecutor
        from multiprocessing import get_context

        self._pool = ProcessPoolExecutor(jobs, get_context("spawn"), initializer=_begin, initargs=(shared,))

    def each(self, work: Work, tasks: dict[str, Task]) -> Iterator[tuple[str, dict[str, Any]]]:
        from concurrent.futures import as_completed
        from concurrent.futures.process import BrokenProcessPool

        waiting: dict[Future[dict[str, Any]], str] = {
            self._pool.submit(_one, work, task): key for key, task in tasks.items()
        }
        try:
            for future in as_completed(waiting):
                yield waiting[future], future.result()
        except BrokenProcessPool:
            raise _worker_lost("a process that worked") from None
        finally:
            for future in waiting:
                future.cancel()

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)


def _worker_lost(who: str) -> HetplanError:
    return HetplanError(f"{who} ended before its work did (out of memory, or killed); what was found before is kept")


def _begin(shared: Any) -> None:
    global _shared
    _shared = shared
    # Ctrl-C reaches the whole group: only the process that hands out work answers it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _one(work: Work, task: Task) -> dict[str, Any]:
    return work(_shared, task, None)


class RayCluster:
    """A Ray cluster: the user's own, where an address is named or `RAY_ADDRESS` says it, else one on this machine."""

    def __init__(self, on: str) -> None:
        self.on = on
        RayCluster.check(on)
        try:
            self.ray: Any = import_module("ray")
        except ImportError as error:
            raise InputError.one(
                file="--on", value=on, why=f"Ray cannot be used here: {error}",
                remedy="pip install ray, or use --jobs for processes of this machine.",
            ) from None  # fmt: skip
        self._begun = not self.ray.is_initialized()
        if self._begun:
            address = on.partition(":")[2] or None
            try:
                self.ray.init(address=address, log_to_driver=False, logging_level="ERROR", include_dashboard=False)
            except (ConnectionError, OSError, ValueError) as error:
                raise InputError.one(
                    file="--on", value=on, why=f"no Ray cluster answers there: {error}",
                    remedy="Start one (ray start --head), or leave --on out.",
                ) from None  # fmt: skip

    @staticmethod
    def check(on: str) -> None:
        """Raises `InputError` where this names no cluster, or where what answers does not speak gRPC as Ray does."""
        ray, _, named = on.partition(":")
        if ray != "ray":
            raise InputError.one(file="--on", value=on, why="ray or ray:ADDRESS", remedy="Leave it out, or --jobs.")
        address = named or os.environ.get("RAY_ADDRESS", "")
        said = on if named or not address else f"{on}, RAY_ADDRESS={address}"
        remedy = "Name a cluster's HOST:PORT, start one (ray start --head --port=6379), or leave --on out."
        try:
            parts = urlsplit(f"//{address.rpartition('//')[2]}")
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise InputError.one(file="--on", value=said, why=f"{error}", remedy=remedy) from None
        if host is None or port is None:  # "auto" and the like: Ray looks for a cluster itself
            return
        try:
            with socket.create_connection((host, port), ANSWERS_WITHIN_S) as head:
                if os.environ.get("RAY_USE_TLS") == "1":
                    return
                head.sendall(HELLO)
                if head.recv(4)[3:] != HELLO[-6:-5]:
                    raise OSError("what answers is no Ray")
        except OSError as error:
            why = f"no Ray cluster answers at {address}: {error.strerror or error}"
            raise InputError.one(file="--on", value=said, why=why, remedy=remedy) from None

    def close(self) -> None:
        """Leave the cluster."""
        if self._begun:
            self.ray.shutdown()


class _Ray:
    """Tasks on a cluster."""

    def __init__(self, on: str, shared: Any) -> None:
        self._cluster = RayCluster(on)
        self._ray = self._cluster.ray
        self._shared = self._ray.put(shared)
        self._run = self._ray.remote(_on_ray)

    def each(self, work: Work, tasks: dict[str, Task]) -> Iterator[tuple[str, dict[str, Any]]]:
        waiting = {self._run.remote(work, self._shared, task): key for key, task in tasks.items()}
        try:
            while waiting:
                done, _ = self._ray.wait(list(waiting), num_returns=1)
                for one in done:
                    yield waiting.pop(one), self._ray.get(one)
        except self._ray.exceptions.WorkerCrashedError:
            raise _worker_lost("a worker of the cluster") from None
        except self._ray.exceptions.RaySystemError as error:
            why = str(error).strip().splitlines()[-1]
            raise HetplanError(f"the cluster cannot do this work ({why}): what it needs has to be there too") from None
        finally:
            for one in waiting:
                self._ray.cancel(one)

    def close(self) -> None:
        self._cluster.close()


def _on_ray(work: Work, shared: Any, task: Task) -> dict[str, Any]:
    return work(shared, task, None)


def doubled(shared: int, task: Task, _cancel: threading.Event | None = None) -> dict[str, Any]:
    """A piece of work to try a spread with."""
    return {"twice": shared * task["of"]}
