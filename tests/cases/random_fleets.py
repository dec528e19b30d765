"""Small random fleets: a model on two to four kinds of machine, for the least cost or the most of a budget."""

from __future__ import annotations

import random
from typing import Any

__all__ = ["random_fleet"]


def random_fleet(seed: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Profile and SLO."""
    rng = random.Random(seed)
    kinds = rng.sample("abcd", rng.choice([2, 3, 3, 4]))
    offers = {kind: {"hardware": kind, "price_per_hour": f"{rng.uniform(0.2, 4):.3f}"} for kind in kinds}
    for offer in offers.values():
        offer |= {"stock": rng.randint(1, 6)} if rng.random() < 0.3 else {}
    tables: dict[str, Any] = {}
    for kind in kinds:
        least, each = rng.uniform(2, 25), rng.uniform(0.5, 8)
        times = [least + each * batch for batch in (1, 4, 16)]
        tables[kind] = {"quantity": "latency_ms", "axes": {"batch": [1, 4, 16]}, "mean": times}
    profile = {
        "format": "hetplan/profile/1.0",
        "hardware": {kind: {"kind": "gpu"} for kind in kinds},
        "offers": offers,
        "tasks": {"t": {}},
        "variants": {"v": {"task": "t", "runs": [{"hardware": kind, "latency": kind} for kind in kinds]}},
        "tables": tables,
    }
    app: dict[str, Any] = {
        "model": "v",
        "latency": {"p99_ms": round(rng.uniform(60, 200), 1)},
    }
    slo: dict[str, Any] = {"format": "hetplan/slo/1.0", "apps": {"app": app}}
    if rng.random() < 0.4:
        slo |= {"objective": ["max rate"], "limits": {"cost_per_hour": f"{rng.uniform(3, 12):.2f}"}}
        mix = {"axes": ["batch"], "bins": [[1], [4], [16]], "share": [0.5, 0.3, 0.2]}
        app |= {"rate_qps": "max", "mix": mix}
    else:
        slo["objective"] = ["min cost"]
        app["rate_qps"] = round(rng.uniform(50, 1500), 1)
    return profile, slo
