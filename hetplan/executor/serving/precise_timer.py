"""Timers that fire within some 0.1 ms, where asyncio's own are rounded up to whole milliseconds.

One timerfd per event loop, armed for the earliest deadline. Where the system has none, asyncio's timers serve.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import sys
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from time import monotonic
from typing import Any

__all__ = ["PreciseTimer"]

_MONOTONIC, _ABSOLUTE = 1, 1


class _Spec(ctypes.Structure):
    _fields_ = (
        ("every_s", ctypes.c_long),
        ("every_ns", ctypes.c_long),
        ("at_s", ctypes.c_long),
        ("at_ns", ctypes.c_long),
    )


class PreciseTimer:
    """Calls back at moments of `time.monotonic`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._due: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._number = count()
        self._spec = _Spec()
        self._file = -1
        if sys.platform == "linux":
            self._system = ctypes.CDLL(None, use_errno=True)
            self._file = self._system.timerfd_create(_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self._file >= 0:
            loop.add_reader(self._file, self._fire)

    def call_at(self, when_s: float, callback: Callable[..., None], *arguments: Any) -> None:
        """Call back at this moment, or as soon as possible where it has passed."""
        if self._file < 0:
            self._loop.call_at(when_s, callback, *arguments)
            return
        entry = (when_s, next(self._number), callback, arguments)
        heappush(self._due, entry)
        if self._due[0] is entry:
            self._arm(when_s)

    def close(self) -> None:
        """Fire no more."""
        if self._file >= 0:
            self._loop.remove_reader(self._file)
            os.close(self._file)
            self._file = -1

    def _arm(self, when_s: float) -> None:
        # A moment of 0 would disarm the timer.
        nanos = max(int(when_s * 1e9), 1)
        self._spec.at_s, self._spec.at_ns = divmod(nanos, 1_000_000_000)
        self._system.timerfd_settime(self._file, _ABSOLUTE, ctypes.byref(self._spec), None)

    def _fire(self) -> None:
        try:
            os.read(self._file, 8)
        except BlockingIOError:
            return
        while self._due and self._due[0][0] <= monotonic():
            _, _, callback, arguments = heappop(self._due)
            callback(*arguments)
        if self._due:
            self._arm(self._due[0][0])
