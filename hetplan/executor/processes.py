"""Processes of a deployment, found by the mark that all of them carry in their environment, children included."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

__all__ = ["MARK", "end_all", "marked"]

MARK = "HETPLAN_DEPLOYMENT"
"""The variable whose value is the folder of the target that a process belongs to."""


def marked(folder: Path) -> list[int]:
    """The ids of all processes of this folder's deployment but the own one. Empty where the system has no /proc."""
    if sys.platform != "linux":
        return []
    wanted = f"{MARK}={folder}".encode()
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            try:
                environment = Path("/proc", entry, "environ").read_bytes()
                state = Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if wanted in environment.split(b"\0") and state != "Z":
                found.append(int(entry))
    return sorted(found)


def end_all(folder: Path, *, limit_s: float = 20.0) -> list[int]:
    """Kill every process of the deployment that is left, looking until none is; the ids of those that were."""
    ended: list[int] = []
    until = time.monotonic() + limit_s
    while (left := marked(folder)) and time.monotonic() < until:
        for process in left:
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                continue
            ended.append(process)
        time.sleep(0.02)
    return sorted(set(ended))
