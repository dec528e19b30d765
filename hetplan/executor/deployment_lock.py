"""One command at a time changes a deployment: a lock that the system itself lets go of when its holder dies."""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from hetplan.executor.failures import ApplyFailed, DeploymentLocked

__all__ = ["DeploymentLock"]


class DeploymentLock:
    """Held within a `with` block; refuses at once, or after `wait_s`, naming who holds it."""

    def __init__(self, path: Path, *, holder: str, wait_s: float = 0.0) -> None:
        self._path, self._holder, self._wait_s = path, holder, wait_s
        self._file = -1

    def __enter__(self) -> DeploymentLock:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ApplyFailed(f"{self._path} cannot be made: {error.strerror}") from None
        until = time.monotonic() + self._wait_s
        while True:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= until:
                    told = os.pread(self._file, 500, 0).decode(errors="replace").strip()
                    os.close(self._file)
                    raise DeploymentLocked(told or "unknown") from None
                time.sleep(0.05)
        os.ftruncate(self._file, 0)
        # On a full disk the lock holds without the name of its holder: `down` has to go on there.
        with suppress(OSError):
            os.pwrite(self._file, f"{self._holder}, process {os.getpid()}\n".encode(), 0)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._file)
