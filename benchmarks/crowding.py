"""How much longer a model takes while the other cores run it too: what they share (caches, memory, and on many virtual
machines the core itself) is in no profile that was measured alone."""

from __future__ import annotations

import multiprocessing
import time
from multiprocessing.synchronize import Barrier
from pathlib import Path
from statistics import median

__all__ = ["crowding"]

_SECONDS = 3.0


def crowding(model: Path, *, copies: int = 2) -> float:
    """The median time of an inference with so many copies at work at once, over that of one alone."""
    return max(_median_ms(model, copies)) / min(_median_ms(model, 1))


def _median_ms(model: Path, copies: int) -> list[float]:
    context = multiprocessing.get_context("spawn")
    together = context.Barrier(copies)
    with context.Pool(copies, initializer=_meet, initargs=(together,)) as pool:
        return pool.map(_timed, [model] * copies, chunksize=1)


_together: Barrier


def _meet(together: Barrier) -> None:
    global _together
    _together = together


def _timed(model: Path) -> float:
    import numpy as np
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    (given,) = session.get_inputs()
    feed = {given.name: np.zeros([size if isinstance(size, int) else 1 for size in given.shape], np.float32)}
    session.run(None, feed)
    _together.wait()
    took, until = [], time.monotonic() + _SECONDS
    while time.monotonic() < until:
        began = time.perf_counter()
        session.run(None, feed)
        took.append(1e3 * (time.perf_counter() - began))
    return median(took)
