"""Machines of a fleet are named by application and offer, and no two alike."""

from __future__ import annotations

from typing import Any

import hetplan as hp


def test_no_two_applications_have_machines_of_one_name() -> None:
    """`a` on `b-c` beside `a-b` on `c`."""
    hardware = {"first": "b-c", "second": "c"}
    profile: dict[str, Any] = {
        "format": "hetplan/profile/1.0",
        "hardware": {name: {"kind": "machine"} for name in hardware},
        "offers": {offer: {"hardware": name, "price_per_hour": "1"} for name, offer in hardware.items()},
        "tasks": {"t": {}},
        "variants": {f"m-{name}": {"task": "t", "runs": [{"hardware": name, "latency": "t"}]} for name in hardware},
        "tables": {"t": {"quantity": "latency_ms", "axes": {"batch": [1]}, "mean": [20.0]}},
    }
    wanted = {
        "question": "pool", "latency": {"p95_ms": 100},
        "rate_qps": {"series": [60.0, 10.0]}, "mix": {"axes": ["batch"], "bins": [[1]], "share": [1]},
    }  # fmt: skip
    apps = {"a": "m-first", "a-b": "m-second"}
    slo = {
        "format": "hetplan/slo/1.0",
        "horizon": {"period_s": 3600, "periods": 2},
        "apps": {name: {**wanted, "model": variant} for name, variant in apps.items()},
    }
    outcome = hp.solve(profile, slo, options={"savings": False})
    plan = outcome.require()
    assert outcome.exit_code == 0
    for period in plan.periods:
        names = [worker.id for name in period.parts or () for worker in (plan.parts or {})[name].workers]
        assert len(names) == len({*names}) == 2
    before, after = ([(one.do, one.worker) for one in period.actions or ()] for period in plan.periods)
    assert {name for _, name in before} == {name for _, name in after}
    assert len({name for _, name in before}) == 2
    assert hp.verify(plan, profile, slo).ok
