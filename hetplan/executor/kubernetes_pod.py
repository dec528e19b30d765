"""What the programs in pods share: their arguments, and a failed start told in the pod's log."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from argparse import ArgumentParser
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

__all__ = ["Serve", "serve_in_pod"]

Serve = Callable[[int], Coroutine[Any, Any, None]]
"""Serves until told to stop; writes to the open file that it is given where it listens, or why it cannot."""


def serve_in_pod(arguments: list[str], made: Callable[[Any, int, Path], Serve]) -> None:
    """Run `made(content of --config, --port, a folder to write to)`; `SystemExit` says why it could not start."""
    parser = ArgumentParser()
    parser.add_argument("--config", type=Path, required=True, help="the mounted file that says what to serve")
    parser.add_argument("--port", type=int, required=True)
    given = parser.parse_args(arguments)
    reading, writing = os.pipe()
    with tempfile.TemporaryDirectory(prefix="hetplan-") as folder:
        asyncio.run(made(json.loads(given.config.read_text()), given.port, Path(folder))(writing))
    # A failed start may leave the writing end open, a good one has closed it; by now all has been said.
    os.set_blocking(reading, False)
    told = json.loads(os.read(reading, 65536) or b"{}")
    if "failed" in told:
        raise SystemExit(told["failed"])
