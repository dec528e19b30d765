"""What building, solving, certifying and verifying a pool's fluid program take, by its size.

    python benchmarks/verify_speed.py

A pool of t types and c classes of queries has c x t columns of flow. Its plan is the one that solving gives, so that
verifying is set beside the solving that it checks. The last rows verify only: plans made by hand in which every class
is split over every type, the most that a plan of that size can hold. CPU time of one thread, median of five.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import hetplan as hp
from hetplan import registry
from hetplan.planner.answer import Limits
from hetplan.planner.contract import Tools
from hetplan.planner.forms.form import certify
from hetplan.problems.pool.program import fluid_program
from hetplan.problems.pool.question import PoolQuestion
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.load import load_inputs
from hetplan.profiles.plan import Plan
from hetplan.verifier.check import verify_plan
from hetplan.verifier.pool import check

TIMES = 5
BUDGET = "10"


def documents(side: int, types: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Profile and SLO of side x side classes: the dearer a type, the faster, the more so for long queries."""
    sizes = list(range(1, side + 1))
    names = [f"h{t}" for t in range(types)]
    bins = [[i, j] for i in sizes for j in sizes]

    def mean_ms(t: int) -> list[list[float]]:
        return [[1.0 + i / side + j / side * (1 + 1 / (1 + t)) for j in range(side)] for i in range(side)]

    profile = {
        "format": "hetplan/profile/1.0",
        "hardware": {name: {"kind": "gpu"} for name in names},
        "offers": {f"{name}": {"hardware": name, "price_per_hour": f"{1 + 0.1 * t}"} for t, name in enumerate(names)},
        "tasks": {"rank": {}},
        "variants": {"m": {"task": "rank", "runs": [{"hardware": name, "latency": f"t-{name}"} for name in names]}},
        "tables": {
            f"t-{name}": {
                "quantity": "latency_ms",
                "axes": {"input_tokens": sizes, "output_tokens": sizes},
                "mean": mean_ms(t),
            }
            for t, name in enumerate(names)
        },
    }
    mix = {"axes": ["input_tokens", "output_tokens"], "bins": bins, "share": [1 / len(bins)] * len(bins)}
    app = {
        "model": "m",
        "latency": {"p99_ms": 100},
        "rate_qps": "max",
        "mix": mix,
    }
    return profile, {"format": "hetplan/slo/1.0", "limits": {"cost_per_hour": BUDGET}, "apps": {"rank": app}}


def split(profile: dict[str, Any], slo: dict[str, Any]) -> tuple[Plan, Inputs]:
    """A correct plan with a machine of every type, each of which serves so much of every class that all are full."""
    names, mix = list(profile["hardware"]), slo["apps"]["rank"]["mix"]
    slo = {**slo, "limits": {}}
    slowness = [sum(map(sum, profile["tables"][f"t-{name}"]["mean"])) / len(mix["bins"]) / 1000 for name in names]
    rate = sum(1 / seconds for seconds in slowness)
    share = {f"w{t}.a": 1 / seconds / rate for t, seconds in enumerate(slowness)}
    cost = sum(float(offer["price_per_hour"]) for offer in profile["offers"].values())
    promises = [
        {"app": "rank", "quantity": quantity, "relation": ">=", "value": rate, "model": "fluid"}
        for quantity in ("rate_qps", "fluid_rate_qps")
    ]
    promises.append({"quantity": "cost_per_hour", "relation": "=", "value": round(cost, 9), "model": "no-queueing"})
    inputs = load_inputs(hp.Profile.model_validate(profile), slo)
    plan = {
        "requires": ["earliest/1"],
        "question": "pool",
        "status": "heuristic",
        "method": {"formulation": "by-hand", "options": {"derate": 1.0}},
        "inputs": dict(inputs.digests),
        "workers": [
            {
                "id": f"w{t}",
                "hardware": name,
                "offer": f"{name}",
                "loads": [{"id": f"w{t}.a", "app": "rank", "variant": "m", "at": {}}],
            }
            for t, name in enumerate(names)
        ],
        "actions": [
            action
            for t in range(len(names))
            for action in (
                {"id": 2 * t + 1, "do": "start", "worker": f"w{t}", "count": 1},
                {"id": 2 * t + 2, "do": "load", "load": f"w{t}.a", "after": [2 * t + 1]},
            )
        ],
        "valid": {"rate_qps": {"rank": [0.0, rate]}},
        "routing": {"rank": [{"when": {"input_tokens": i, "output_tokens": j}, "to": share} for i, j in mix["bins"]]},
        "dispatch": {
            "rank": {"rule": "earliest/1", "slo_ms": 100, "predict": {f"m@{name}": f"t-{name}" for name in names}}
        },
        "tables": profile["tables"],
        "promises": promises,
    }
    return Plan.model_validate(plan), inputs


def cpu_s(work: Callable[[], Any]) -> float:
    """CPU time of one call, the median of several."""
    taken = []
    for _ in range(TIMES):
        began = time.process_time()
        work()
        taken.append(time.process_time() - began)
    return median(taken)


def verified(plan: Plan, inputs: Inputs) -> float:
    report = verify_plan(plan, inputs, check)
    assert report.ok, report.violations[:3]
    return cpu_s(lambda: verify_plan(plan, inputs, check))


def main() -> None:
    highs = next(engine for engine in registry.solvers("milp") if engine.name == "highs")
    print("columns   build_s  solve_s  certify_s  verify_s  solve / verify")
    for side, types in ((10, 4), (32, 4), (32, 10)):
        profile, slo = documents(side, types)
        files = hp.Profile.model_validate(profile), slo
        inputs = load_inputs(*files)
        pool = PoolQuestion.from_inputs(
            inputs, PoolQuestion.formulations["pool-milp"](), formulation="pool-milp", tools=Tools()
        )
        form = fluid_program(pool, None)
        answer = highs.solve(form, Limits(gap=1e-4))
        build = cpu_s(lambda pool=pool: fluid_program(pool, None))
        solve = cpu_s(lambda form=form: highs.solve(form, Limits(gap=1e-4)))
        proof = cpu_s(lambda form=form, answer=answer: certify(form, answer))
        verify = verified(hp.solve(*files).require(), inputs)
        columns = side * side * types
        print(f"{columns:7} {build:9.4f} {solve:8.3f} {proof:10.4f} {verify:9.4f} {solve / verify:10.1f}", flush=True)
    for side, types in ((100, 10), (100, 20)):
        print(f"{side * side * types:7} {'':29} {verified(*split(*documents(side, types))):9.4f}", flush=True)


if __name__ == "__main__":
    main()
