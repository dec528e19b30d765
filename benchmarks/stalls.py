"""How long this machine stood still: a thread per core that sleeps a little, again and again, and sees by how much it
overslept.

What it sees is time in which a core ran something else: another process, or, on a virtual machine, another guest.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass, field
from types import TracebackType

from hetplan.executor.serving.process import ask_for_short_turns

__all__ = ["StallWatch"]

_SLEEP_S = 0.002
_LONG_MS = 5.0


@dataclass
class StallWatch:
    """Watches between `start` and `stop`; as a context it is stopped at the end in any case."""

    longest_ms: float = 0.0
    """The longest that any core kept a sleeper from waking."""
    still: float = 0.0
    """The share of the time that a core stood still, counted from 5 ms on; of the cores the one that did so most."""
    stolen: float = 0.0
    """The share of the cores' time that the machine's own host took away, as the kernel counts it."""
    _threads: list[threading.Thread] = field(default_factory=list)
    _stalls_ms: list[list[float]] = field(default_factory=list)
    _stopped: threading.Event = field(default_factory=threading.Event)
    _began: tuple[float, float] = (0.0, 0.0)

    def __enter__(self) -> StallWatch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Watch from now on."""
        self._began = (time.monotonic(), _stolen_s())
        for core in sorted(os.sched_getaffinity(0)):
            stalls: list[float] = []
            self._stalls_ms.append(stalls)
            thread = threading.Thread(target=self._watch, args=(core, stalls), daemon=True)
            thread.start()
            self._threads.append(thread)

    def stop(self) -> None:
        """Watch no longer."""
        if not self._threads or self._stopped.is_set():
            return
        self._stopped.set()
        for thread in self._threads:
            thread.join()
        took = time.monotonic() - self._began[0]
        self.stolen = (_stolen_s() - self._began[1]) / (took * len(self._threads))
        self.longest_ms = max((max(stalls, default=0.0) for stalls in self._stalls_ms), default=0.0)
        self.still = max(sum(ms for ms in stalls if ms >= _LONG_MS) for stalls in self._stalls_ms) / (1e3 * took)

    def _watch(self, core: int, stalls: list[float]) -> None:
        os.sched_setaffinity(threading.get_native_id(), {core})
        # So that it does not wait for another's turn to end, which is no standstill.
        ask_for_short_turns()
        while not self._stopped.is_set():
            before = time.monotonic()
            time.sleep(_SLEEP_S)
            stalls.append(1e3 * (time.monotonic() - before - _SLEEP_S))


def _stolen_s() -> float:
    """Core seconds taken by the machine's own host, all cores together."""
    with open("/proc/stat", encoding="ascii") as file:
        return int(file.readline().split()[8]) / os.sysconf("SC_CLK_TCK")
