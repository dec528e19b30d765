"""Run an engine that does not listen to Python while it works, and still hear a cancel and a Ctrl-C."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

__all__ = ["in_background"]

T = TypeVar("T")
HEED_SECONDS = 0.05
"""How often the waiting thread looks up: short against a person's patience, long against the cost of looking."""


def in_background(work: Callable[[], T], *, stop: Callable[[], None] | None, cancel: threading.Event | None) -> T:
    """The result of `work`, run in a thread of its own; `stop` is called when the caller cancels or presses Ctrl-C.

    `stop` is called again until `work` returns (an engine may not have been up yet), which should be soon: an
    interrupted engine still hands back what it has. An engine without `stop` is waited for when the caller cancels;
    only Ctrl-C leaves it behind, since the process is about to end.
    """
    results: list[T] = []
    raised: list[BaseException] = []
    done = threading.Event()

    def go() -> None:
        try:
            results.append(work())
        except BaseException as error:
            raised.append(error)
        finally:
            done.set()

    worker = threading.Thread(target=go, daemon=True, name="hetplan-engine")
    worker.start()
    try:
        while not done.wait(HEED_SECONDS):
            if stop is not None and cancel is not None and cancel.is_set():
                stop()
    except BaseException:
        if stop is not None:
            stop()
            worker.join()
        raise
    worker.join()
    if raised:
        raise raised[0]
    return results[0]
