"""Keeps engines that write to standard output from C++ out of what hetplan writes there.

File descriptors belong to the process, so only the command line may do this; the library silences engines through
their own options.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from hetplan.cli.output import Output

__all__ = ["quiet_engines"]


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
