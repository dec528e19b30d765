"""Ctrl-C: the first asks the work to stop and hand over what it has, the second leaves at once.

The work runs beside the main thread, because an engine inside a long C++ call would keep Python's signal handler
from running at all.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import TypeVar

__all__ = ["GRACE_SECONDS", "interruptible", "leave"]

T = TypeVar("T")

GRACE_SECONDS = 10.0
"""How long an engine may take to heed the first Ctrl-C; long enough to finish a node, short enough to wait for."""

_abandoned: list[threading.Thread] = []


def interruptible(work: Callable[[threading.Event], T], *, say: Callable[[str], None]) -> T:
    """The result of `work(cancel)`; `cancel` is set by the first Ctrl-C, KeyboardInterrupt raised by the second."""
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
        _wait(done, cancel, at_once, say)
    finally:
        signal.signal(signal.SIGINT, before)
    if not done.is_set():
        _abandoned.append(worker)
        raise KeyboardInterrupt
    if errors:
        raise errors[0]
    return results[0]


def _wait(done: threading.Event, cancel: threading.Event, at_once: threading.Event, say: Callable[[str], None]) -> None:
    while not done.wait(0.05):
        if cancel.is_set():
            say("stopping; Ctrl-C again leaves at once")
            break
    waited = 0.0
    while not done.wait(0.05) and not at_once.is_set() and waited < GRACE_SECONDS:
        waited += 0.05


def leave(code: object) -> None:
    """End the process; an engine still at work in its thread is not waited for."""
    if _abandoned and any(worker.is_alive() for worker in _abandoned):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 1)
    sys.exit(code if isinstance(code, int) or code is None else 1)
