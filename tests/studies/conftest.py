"""Two kinds of machines for one model: small enough to try every fleet."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

PROFILE: dict[str, Any] = {
    "format": "hetplan/profile/1.0",
    "hardware": {"small": {"kind": "gpu"}, "big": {"kind": "gpu"}, "slow": {"kind": "cpu"}},
    "offers": {
        "small": {"hardware": "small", "price_per_hour": "1", "stock": 9},
        "big": {"hardware": "big", "price_per_hour": "2.5", "interruptions_per_hour": 0.1},
        "slow": {"hardware": "slow", "price_per_hour": "0.9"},
    },
    "tasks": {"rank": {}},
    "variants": {
        "m": {"task": "rank", "runs": [{"hardware": name, "latency": name} for name in ("small", "big", "slow")]}
    },
    "tables": {
        "small": {"quantity": "latency_ms", "axes": {"batch": [1, 8]}, "mean": [10, 40]},
        "big": {"quantity": "latency_ms", "axes": {"batch": [1, 8]}, "mean": [4, 14]},
        "slow": {"quantity": "latency_ms", "axes": {"batch": [1, 8]}, "mean": [20, 45]},
    },
}
SLO: dict[str, Any] = {
    "format": "hetplan/slo/1.0",
    "objective": ["min cost"],
    "apps": {
        "web": {
            "model": "m",
            "latency": {"p99_ms": 50},
            "rate_qps": 300,
            "mix": {"axes": ["batch"], "bins": [[1], [8]], "share": [0.5, 0.5]},
        }
    },
}


@pytest.fixture
def small() -> tuple[dict[str, Any], dict[str, Any]]:
    """Profile and SLO, to be changed at will."""
    return deepcopy(PROFILE), deepcopy(SLO)
