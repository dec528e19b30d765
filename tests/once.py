"""What is made once per test run, by whichever process needs it first, and read by the others."""

from __future__ import annotations

import fcntl
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

__all__ = ["FOLDER", "once"]

T = TypeVar("T")

FOLDER = "HETPLAN_TEST_RUN"
"""The variable with the folder of a run; without it each process makes its own."""


def once(name: str, make: Callable[[], T]) -> T:
    """What `make` returns, under a name that says all that it depends on."""
    folder = os.environ.get(FOLDER)
    if folder is None:
        return make()
    path = Path(folder) / name
    with open(f"{path}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the others wait: to make it beside the first would take as long
        if not path.exists():
            made = make()
            part = path.with_suffix(".part")
            part.write_bytes(pickle.dumps(made))
            part.rename(path)
        found: T = pickle.loads(path.read_bytes())
    return found
