"""How long verifying a pool's plan takes, by the number of classes of queries and of instance types.

    python benchmarks/verify_speed.py

Every class is split over every type, so that a plan of c classes and t types has c x t shares (columns of the program).
"""

from __future__ import annotations

import time
from statistics import median

from hetplan.planner.plan import Plan
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.profile import Profile
from hetplan.profiles.slo import Slo
from hetplan.verifier.check import verify_plan
from hetplan.verifier.pool import check

TIMES = 5


def made(side: int, types: int) -> tuple[Plan, Inputs]:
    """A correct plan for side x side classes and so many types, all alike."""
    sizes = list(range(1, side + 1))
    table = {
        "quantity": "latency_ms",
        "axes": {"input_tokens": sizes, "output_tokens": sizes},
        "mean": [[1.0 + i / side + j / side for j in range(side)] for i in range(side)],
    }
    names = [f"h{t}" for t in range(types)]
    bins = [[i, j] for i in sizes for j in sizes]
    profile = {
        "hardware": {name: {"kind": "gpu"} for name in names},
        "offers": {f"{name}-od": {"hardware": name, "price_per_hour": "1"} for name in names},
        "tasks": {"rank": {}},
        "variants": {"m": {"task": "rank", "runs": [{"hardware": name, "latency": f"t-{name}"} for name in names]}},
        "tables": {f"t-{name}": table for name in names},
    }
    app = {
        "runs": {"variants": ["m"]},
        "latency": [{"of": "response", "percentile": 99, "max_ms": 100}],
        "demand": {
            "rate_qps": "max",
            "mix": {"axes": ["input_tokens", "output_tokens"], "bins": bins, "share": [1 / len(bins)] * len(bins)},
        },
    }
    mean_ms = sum(sum(row) for row in table["mean"]) / len(bins)
    rate = types * 1000 / mean_ms
    share = {f"w{t}.a": 1 / types for t in range(types)}
    plan = {
        "question": "pool",
        "method": {"formulation": "by-hand", "options": {"derate": 1.0}},
        "inputs": {"profile": "sha256:01", "slo": "sha256:02"},
        "workers": [
            {
                "id": f"w{t}",
                "hardware": name,
                "offer": f"{name}-od",
                "loads": [{"id": f"w{t}.a", "app": "rank", "variant": "m"}],
            }
            for t, name in enumerate(names)
        ],
        "routing": {
            "rank": [{"when": {"input_tokens": i, "output_tokens": j}, "to": share} for i, j in bins],
        },
        "dispatch": {"rank": {"rule": "shares/1"}},
        "promises": [
            {"app": "rank", "quantity": quantity, "relation": ">=", "value": rate, "model": "fluid"}
            for quantity in ("rate_qps", "fluid_rate_qps")
        ],
    }
    digests = {"profile": "sha256:01", "slo": "sha256:02"}
    inputs = Inputs(Profile.model_validate(profile), Slo.model_validate({"apps": {"rank": app}}), digests=digests)
    return Plan.model_validate(plan), inputs


def main() -> None:
    print("classes  types  columns  verify_s")
    for side, types in ((10, 4), (32, 10), (100, 10), (100, 20)):
        plan, inputs = made(side, types)
        taken = []
        for _ in range(TIMES):
            start = time.perf_counter()
            report = verify_plan(plan, inputs, check)
            taken.append(time.perf_counter() - start)
            assert report.ok, report.violations[:3]
        print(f"{side * side:7} {types:6} {side * side * types:8} {median(taken):9.4f}")


if __name__ == "__main__":
    main()
