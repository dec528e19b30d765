"""How busy an instance is met, and how long one waits there: batches, where one takes the longer the fuller it is.

An instance serves a batch of up to b queries in s(m), where m are in it, whenever it is free and someone waits. Queries
come as a Poisson stream. With n waiting when a batch ends, min(n, b) are taken (one who comes to an idle instance is
alone), so n - b are left behind, and as many more come as in s. Who comes in a part of a batch waits for its rest, and
for all full batches that are ahead.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["LARGEST", "busy_and_waits"]

LARGEST = 64
"""Up to such a batch smaller ones are looked at; larger ones count as full."""
_PHASES = 6
"""Parts of a batch in which one may come."""


@lru_cache(maxsize=256)
def busy_and_waits(times: tuple[float, ...], use: float) -> tuple[float, Floats]:
    """How often an instance is met busy, and then the waits, who is before one in the batch, and how likely (rows)."""
    each, largest = np.array(times), len(times)
    come = use * largest / times[-1]
    waiting = _law_of_times(each, come)
    cells: list[Floats] = []
    for n, chance in enumerate(waiting):
        lasts, left_behind = times[min(max(n, 1), largest) - 1], max(n - largest, 0)
        if chance * lasts < 1e-10:
            continue
        for phase in (np.arange(_PHASES) + 0.5) / _PHASES:
            more = np.arange(int(come * lasts * phase + 9.0 * math.sqrt(come * lasts * phase) + 10.0))
            before = left_behind + more
            until = lasts * (1.0 - phase) + (before // largest) * times[-1]
            mass = chance * lasts * _poisson_at(come * lasts * phase, more)
            cells.append(np.stack([until, before % largest, mass]).astype(np.float64))
    found = np.concatenate(cells, axis=1)
    likely = float(found[2].sum())
    found[2] /= likely
    return likely / _PHASES / (likely / _PHASES + float(waiting[0]) / come), found


def _law_of_times(times: Floats, come: float) -> Floats:
    """How many wait when a batch ends, where its time depends on how many were in it."""
    largest, load = times.size, come * float(times[-1])
    size = int(3 * largest + 40 + 12 * math.sqrt(load) + largest / (largest - load))
    counts = np.arange(size)
    step = np.zeros((size, size))
    for n in range(size):
        behind = max(n - largest, 0)
        step[n, behind:] = _poisson_at(come * float(times[min(max(n, 1), largest) - 1]), counts[: size - behind])
    step[:, -1] += 1.0 - step.sum(axis=1)
    # As many go over from the first n states to the others as come back, so the shares of all states follow by
    # taking the states away one by one from the last.
    rest = step.copy()
    for n in range(size - 1, 0, -1):
        leaves = rest[n, :n].sum()
        rest[:n, n] /= leaves
        rest[:n, :n] += np.outer(rest[:n, n], rest[n, :n])
    law = np.zeros(size)
    law[0] = 1.0
    for n in range(1, size):
        law[n] = law[:n] @ rest[:n, n]
    return np.asarray(law / law.sum())


def _poisson_at(mean: float, counts: NDArray[np.int64]) -> Floats:
    from scipy.special import gammaln

    return np.asarray(np.exp(counts * math.log(mean) - mean - gammaln(counts + 1.0)))
