"""Policies in fleets: machines of several zones, so that what remains after a failure keeps the wish."""

from __future__ import annotations

from typing import Any

import pytest

import hetplan as hp
from hetplan.simulator.day import HowPlayed, play_day

ZONES = ("east", "west")


def files() -> tuple[dict[str, Any], dict[str, Any]]:
    """Two models on one hardware, in two zones of which one may be lost; two periods."""
    sizes = [1, 2, 4, 8]
    tables = {
        name: {"quantity": "latency_ms", "axes": {"batch": sizes}, "p95": [ms * (0.5 + 0.5 * b) for b in sizes]}
        for name, ms in (("quick", 9.0), ("good", 15.0))
    }
    profile: dict[str, Any] = {
        "format": "hetplan/profile/1.0", "hardware": {"gpu": {"kind": "gpu", "startup_s": 60}},
        "zones": {zone: {} for zone in ZONES}, "tasks": {"see": {}}, "tables": tables,
        "offers": {zone: {"hardware": "gpu", "zone": zone, "price_per_hour": "1.0"} for zone in ZONES},
        "variants": {
            name: {"task": "see", "quality": {"value": value}, "runs": [{"hardware": "gpu", "latency": name}]}
            for name, value in (("quick", 0.6), ("good", 0.75))
        },
    }  # fmt: skip
    app = {
        "question": "policy", "task": "see", "latency": {"p99_ms": 70.0},
        "quality": {"min": 0.62}, "dispatch": "round-robin", "rate_qps": {"series": [240.0, 120.0]},
    }  # fmt: skip
    limits = {"survive": {"zones": 1, "serve": 1.0}}
    horizon = {"period_s": 3600, "periods": 2}
    return profile, {"format": "hetplan/slo/1.0", "limits": limits, "horizon": horizon, "apps": {"a": app}}


@pytest.mark.slow
def test_a_policy_in_two_zones_keeps_its_wish_when_one_is_lost() -> None:
    profile, slo = files()
    outcome = hp.solve(profile, slo, options={"savings": False})
    assert outcome.plan is not None
    assert outcome.exit_code == 0, (outcome.why, outcome.violations)
    parts = outcome.plan.parts or {}
    assert {worker.offer for part in parts.values() for worker in part.workers} == {f"gpu-{zone}" for zone in ZONES}
    report = play_day(outcome.plan, hp.load(profile, slo), HowPlayed(seeds=2, seed=9_000_011, queries=3e5))
    assert not report.broken
    assert hp.verify(outcome.plan, profile, slo).ok
