"""What surrounds long work: Ctrl-C, a progress line, and silence from engines that write from C++.

The first Ctrl-C asks the work to stop and hand over what it has, the second leaves at once. The work runs beside the
main thread, because an engine inside a long C++ call would keep Python's signal handler from running at all.

File descriptors belong to the process, so only the command line may keep engines off standard output that way; the
library silences them through their own options.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, TypeVar

from hetplan.cli.output import Output

if TYPE_CHECKING:
    from hetplan.planner.contract import Event

__all__ = ["GRACE_SECONDS", "interruptible", "leave", "progress", "quiet_engines"]

T = TypeVar("T")

GRACE_SECONDS = 30.0
"""How long work may take to heed the first Ctrl-C: long enough to make a plan of a large fleet of what is known."""

_abandoned: list[threading.Thread] = []


def interruptible(work: Callable[[threading.Event], T], *, say: Callable[[str], None], hurry: bool = False) -> T:
    """The result of `work(cancel)`: first Ctrl-C sets `cancel`, the second leaves; `hurry`: nothing to hand over."""
    if threading.current_thread() is not threading.main_thread():
        return work(threading.Event())
    cancel, done, at_once = threading.Event(), threading.Event(), threading.Event()
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work(cancel))
        except BaseException as error:
            errors.append(error)
        finally:
            done.set()

    def on_signal(_signal: int, _frame: object) -> None:
        (at_once if cancel.is_set() else cancel).set()

    worker = threading.Thread(target=run, name="hetplan-work", daemon=True)
    before = signal.signal(signal.SIGINT, on_signal)
    try:
        worker.start()
        _wait((done, cancel, at_once), say, 3.0 if hurry else GRACE_SECONDS)
    finally:
        signal.signal(signal.SIGINT, before)
    if not done.is_set():
        _abandoned.append(worker)
        raise KeyboardInterrupt
    if errors:
        raise errors[0]
    return results[0]


def _wait(flags: tuple[threading.Event, ...], say: Callable[[str], None], grace_s: float) -> None:
    done, cancel, at_once = flags
    while not done.wait(0.05):
        if cancel.is_set():
            say("stopping; Ctrl-C again leaves at once")
            break
    waited = 0.0
    while not done.wait(0.05) and not at_once.is_set() and waited < grace_s:
        waited += 0.05


def leave(code: object) -> None:
    """End the process; an engine still at work in its thread is not waited for."""
    if _abandoned and any(worker.is_alive() for worker in _abandoned):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 1)
    sys.exit(code if isinstance(code, int) or code is None else 1)


@contextmanager
def progress(out: Output) -> Iterator[Callable[[Event], None]]:
    """A callable that shows events for as long as the block runs; in a pipe a line now and then."""
    if out.as_json:
        yield lambda event: out.send({"event": dict(vars(event))})
    elif sys.stderr.isatty():
        from hetplan.cli.progress import on_terminal

        with on_terminal() as show:
            yield show
    else:
        from hetplan.cli.progress import in_a_pipe

        with in_a_pipe(out.note) as show:
            yield lambda event: out.note(event.detail) if event.what == "compile" else show(event)


@contextmanager
def quiet_engines(out: Output) -> Iterator[None]:
    """Send what is written to file descriptor 1 inside the block to nowhere (with HETPLAN_DEBUG=1: to stderr).

    `out` keeps its own way to standard output, so that events still stream.
    """
    sys.stdout.flush()
    try:
        kept = os.dup(1)
    except OSError:
        # No standard output at all (a daemon, a closed descriptor): nothing to protect.
        yield
        return
    out.machine = os.fdopen(os.dup(kept), "w", encoding="utf-8") if _is_descriptor_one(sys.stdout) else None
    debugging = os.environ.get("HETPLAN_DEBUG", "") not in {"", "0"}
    other = os.dup(2) if debugging else os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(other, 1)
        yield
    finally:
        _flush_c()
        os.dup2(kept, 1)
        os.close(kept)
        os.close(other)
        if out.machine is not None:
            out.machine.close()
            out.machine = None


def _is_descriptor_one(stream: IO[str]) -> bool:
    try:
        return stream.fileno() == 1
    except (OSError, ValueError):
        return False


def _flush_c() -> None:
    """C's stdio keeps what a pipe has not taken yet; flushed late, it would land in the restored standard output."""
    import ctypes

    ctypes.CDLL(None).fflush(None)
