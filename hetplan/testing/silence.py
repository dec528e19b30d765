"""What a piece of code writes to standard output and error, be it Python or C++ underneath."""

from __future__ import annotations

import ctypes
import io
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout

__all__ = ["overheard"]


@contextmanager
def overheard() -> Iterator[list[str]]:
    """Collect what is written meanwhile; the list holds it once the block has ended.

    It redirects Python's streams and the descriptors of the whole process, which is for tests only.
    """
    heard: list[str] = []
    said = io.StringIO()
    _flush()
    kept = [(descriptor, os.dup(descriptor)) for descriptor in (1, 2)]
    with tempfile.TemporaryFile() as sink:
        try:
            for descriptor, _ in kept:
                os.dup2(sink.fileno(), descriptor)
            with redirect_stdout(said), redirect_stderr(said):
                yield heard
        finally:
            _flush()
            for descriptor, copy in kept:
                os.dup2(copy, descriptor)
                os.close(copy)
            sink.seek(0)
            heard.append(said.getvalue() + sink.read().decode(errors="replace"))


def _flush() -> None:
    """Write out what C and C++ still hold in their buffers."""
    ctypes.CDLL(None).fflush(None)
