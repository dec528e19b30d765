"""What the command line of router and worker says, and what they ask of the system.

That is an end with their parent, open files, short turns, a quiet collector.

On a machine whose cores are busy with models, a thread that wakes up waits for the running one's turn to end, some
3 ms each time. Linux (6.12 and newer) lets a thread ask for shorter turns: it gets no more time than before, but at
once. On two cores with a model each, 5% of the wake-ups were 3.0 ms late or more; with short turns 0.3.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import platform
import resource
import signal
import socket
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from struct import pack

from hetplan.executor.secrets import own_token

__all__ = [
    "Orders",
    "Receiver",
    "ask_for_files",
    "ask_for_short_turns",
    "orders",
    "spare_the_collector",
]

_CALLS = {"x86_64": 314, "aarch64": 274}
_TURN_NS = 100_000
_RESET_ON_FORK = 1


def ask_for_short_turns() -> bool:
    """Ask for this thread, not for those that it starts; whether the system took it (an old one to no effect)."""
    call = _CALLS.get(platform.machine()) if sys.platform == "linux" else None
    if call is None or os.sched_getscheduler(0) != os.SCHED_OTHER:
        return False
    # The structure sched_attr: its size, policy, flags, niceness, real-time priority, turn, deadline, period.
    wish = pack("IIQiIQQQ", 48, os.SCHED_OTHER, _RESET_ON_FORK, os.getpriority(os.PRIO_PROCESS, 0), 0, _TURN_NS, 0, 0)
    return bool(ctypes.CDLL(None).syscall(call, 0, wish, 0) == 0)


@dataclass(frozen=True)
class Orders:
    """CONFIG --report FD --parent PID [--listener FD] [--waits].

    The process reports to `report` where it listens, or why it cannot. With a parent other than 0 it ends with it. Its
    port may be a socket that it is handed. One that waits goes on when it reads a line, and ends where there is none.
    """

    config: Path
    report: int
    listener: socket.socket | None
    token: str | None


def orders(arguments: Sequence[str]) -> Orders:
    """Read the command line, and wait where it says so."""
    parser = ArgumentParser()
    parser.add_argument("config", type=Path)
    for name in ("--report", "--parent"):
        parser.add_argument(name, type=int, required=True)
    parser.add_argument("--listener", type=int)
    parser.add_argument("--waits", action="store_true")
    given = parser.parse_args(arguments)
    if given.parent:
        _end_with(given.parent)
    if given.waits and not sys.stdin.readline():
        os._exit(0)
    ask_for_files()
    give_memory_back()
    listener = socket.socket(fileno=given.listener) if given.listener else None
    return Orders(given.config, given.report, listener, own_token())


def ask_for_files() -> None:
    """As many open files as the system allows this process: each connection is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


_MOST_FILES = 65_536


def give_memory_back() -> None:
    """Have large pieces of memory go back to the system when they are freed, however many there were before."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, 256 * 1024)


_MMAP_THRESHOLD = -3


class Receiver(asyncio.BufferedProtocol):
    """A connection whose bytes are read into one piece of memory for all, and handed on as far as they came.

    asyncio's own way is a new piece of 256 KiB for each read. Given back at once (`give_memory_back`), each costs more
    than all the rest of a request.
    """

    def get_buffer(self, sizehint: int) -> bytearray:  # noqa: ARG002 (asyncio's name)
        """Where the next bytes go; they are taken out before anything else is read."""
        return _ROOM

    def buffer_updated(self, nbytes: int) -> None:
        """So many came."""
        self.data_received(_SEEN[:nbytes].tobytes())

    def data_received(self, data: bytes) -> None:
        """Take them."""
        raise NotImplementedError


_ROOM = bytearray(256 * 1024)
_SEEN = memoryview(_ROOM)


def _end_with(parent: int) -> None:
    """Be killed when the parent dies."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def spare_the_collector() -> None:
    """What was loaded by now stays: going through it again and again would hold up queries for some 10 ms each time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 50, 100)
