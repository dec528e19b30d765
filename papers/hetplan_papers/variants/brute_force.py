"""Every choice of counts, one by one: `brute-force`, what exact programs are compared with."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
from numpy.typing import NDArray

from hetplan import InputError
from hetplan.extend import Ask, Draft, Infeasibility, Snapshot, capacity_rooms, plan_instances

__all__ = ["try_all_counts"]

Integers = NDArray[np.int64]

MOST_TRIED = 200_000
"""Choices; a second or two."""


def try_all_counts(v: Snapshot, ask: Ask) -> Draft | Infeasibility:
    """Every choice of counts, one by one: the oracle of the tests."""
    most = v.most.astype(int) if len(v.items) else np.zeros(0, dtype=int)
    tries = math.prod(int(n) + 1 for n in most)
    if tries > MOST_TRIED or any(len(item.serves) > 1 for item in v.items):
        raise InputError.one(
            path="formulation", value="brute-force", why=f"{tries:,} choices, or instances that are shared",
            remedy="Use columns or milp; this is for the smallest of snapshots.",
        )  # fmt: skip
    bounds = capacity_rooms(v)
    gain = np.zeros((len(v.asked), len(v.items)))
    for i, item in enumerate(v.items):
        gain[item.serves[0].app, i] = item.serves[0].qps
    best: tuple[float, Integers] | None = None
    for counts in itertools.product(*(range(int(n) + 1) for n in most)):
        x = np.array(counts, dtype=np.int64)
        if (gain @ x < v.need * (1 - 1e-9)).any() or any(room.use @ x > room.size * (1 + 1e-9) for room in bounds):
            continue
        cost = _cost(v, x)
        if best is None or cost < best[0] - 1e-12:
            best = (cost, x)
    if best is None:
        return Infeasibility(why=("no choice of counts serves all loads within the capacities",))
    return plan_instances(v, ask, best[1])


def _cost(v: Snapshot, x: Integers) -> float:
    """Gross cost: every instance pays for itself, and idle machines that must be there."""
    used = Counter({t: int(x[list(items)].sum()) for t, items in {**v.own, **v.whole}.items()})
    return float(v.C @ x) + v.loading_cost(x) + v.idle_nanos(used) * 1e-9
