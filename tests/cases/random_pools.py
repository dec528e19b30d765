"""Pools drawn at random: types that trade speed for price, classes of many sizes, a budget or a rate."""

from __future__ import annotations

from typing import Any

import numpy as np
from cases.pool import files

Json = dict[str, Any]


def random_pool(seed: int, *, types: int, classes: int, machines: float, rate: bool = False) -> tuple[Json, Json]:
    """A profile and an SLO; the budget pays for about so many machines, or the rate keeps about so many busy.

    The first type is in time for every class, the others for those that are small enough.
    """
    rng = np.random.default_rng(seed)
    sizes = np.unique(rng.integers(1, 1000, 4 * classes))[:classes]
    share = rng.dirichlet(np.full(sizes.size, 0.7)) + 1e-4
    speed = np.concatenate([[1.0], rng.uniform(0.08, 1.2, types - 1)])
    latency = {}
    for t in range(types):
        base, slope = rng.uniform(1.0, 8.0), rng.uniform(0.02, 0.06) / speed[t]
        latency[f"h{t}"] = [round(float(base + slope * size * rng.uniform(0.95, 1.05)), 4) for size in sizes]
    qos = max(latency["h0"]) * rng.uniform(1.05, 1.6)
    prices = {f"h{t}": str(round(float(speed[t] ** 0.8 * rng.uniform(0.6, 1.3) + 0.05), 4)) for t in range(types)}
    instances = {"h1": [0, int(max(2, machines // 3))]} if types > 2 and seed % 3 == 0 else None
    wish: Json = {"budget": str(round(machines * float(np.mean([float(p) for p in prices.values()])), 2))}
    if rate:
        shares = share / share.sum()
        wish = {"rate_qps": round(float(machines * 800.0 / (shares @ np.array(latency["h0"]))), 3)}
    return files(
        latency,
        [float(one) for one in share / share.sum()],
        prices=prices,
        qos_ms=round(float(qos), 3),
        bins=[int(size) for size in sizes],
        instances=instances,
        **wish,
    )
