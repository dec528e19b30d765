"""Many runs side by side: seeds (or configurations) over threads, with progress and cancel.

Compiled code holds no interpreter lock, so threads use the cores. A run is a function of its own seed alone: how many
threads there are changes no result.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TypeVar

from hetplan.compiled import is_ready
from hetplan.errors import Cancelled
from hetplan.planner.contract import Event
from hetplan.simulator.engine_kernels import act

__all__ = ["run_all", "seed_of"]

COMPILING = "compiling the simulator, which is kept for later: usually 10 s on one core"

R = TypeVar("R")
_LOOK_S = 0.1


def seed_of(seed: int, number: int) -> int:
    """The seed of the number-th run.

    >>> seed_of(0, 0), seed_of(0, 1), seed_of(1, 0)
    (0, 1, 1000003)
    """
    return seed * 1_000_003 + number


def run_all(
    jobs: Sequence[Callable[[threading.Event, Callable[[float], None]], R]],
    *,
    threads: int = 2,
    on_event: Callable[[Event], None] | None = None,
    cancel: threading.Event | None = None,
    what: str = "simulate",
) -> list[R]:
    """Run every job, which gets an event that says stop and a function to tell its share done; results in order.

    >>> run_all([lambda stop, told: 1, lambda stop, told: 2])
    [1, 2]
    """
    if on_event is not None and not is_ready(act):
        on_event(Event("compile", COMPILING))
    stop = threading.Event()
    done = [0.0] * len(jobs)
    started = time.monotonic()

    def share_of(number: int) -> Callable[[float], None]:
        def told(share: float) -> None:
            done[number] = share

        return told

    if len(jobs) == 1 and cancel is None and on_event is None:
        return [jobs[0](stop, share_of(0))]
    with ThreadPoolExecutor(max_workers=max(1, min(threads, len(jobs)))) as pool:
        futures: list[Future[R]] = [pool.submit(job, stop, share_of(number)) for number, job in enumerate(jobs)]
        open_ = set(futures)
        while open_:
            finished, open_ = wait(open_, timeout=_LOOK_S, return_when=FIRST_COMPLETED)
            if (cancel is not None and cancel.is_set()) or any(future.exception() for future in finished):
                stop.set()
                for future in open_:
                    future.cancel()
                break
            for number, future in enumerate(futures):
                done[number] = 1.0 if future.done() else done[number]
            if on_event is not None:
                share = sum(done) / len(done)
                count = sum(future.done() for future in futures)
                on_event(Event(what, f"{count} of {len(futures)} runs", done=share, seconds=time.monotonic() - started))
    if cancel is not None and cancel.is_set():
        raise Cancelled("the simulation was cancelled")
    return [future.result() for future in futures]
