"""How fast the pool's parts are: each beside its reference in the same run, so that the ratio says it, not the machine.

    python benchmarks/pool.py [--json] [--model rm2]

Without the published data (`../shared/data`, or HETPLAN_DATA) a made-up service of the same shape is used, and Kairos+
on the five published ones is left out. CPU time, median of five; of searches by simulation, of three.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import hetplan
from hetplan import registry
from hetplan.planner.answer import Limits
from hetplan.planner.contract import Tools
from hetplan.planner.forms.form import certify
from hetplan.planner.solver_calls import Asking
from hetplan.problems.pool.kairos import (
    Configurations,
    Eq15,
    best_rated,
    configurations,
    eq15_numbers,
    estimate_rates,
    most_similar,
)
from hetplan.problems.pool.program import fluid_program, fluid_program_at, fluid_programs_at
from hetplan.problems.pool.question import PoolQuestion
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.profile import Profile
from hetplan.profiles.slo import Slo

DATA = Path(os.environ.get("HETPLAN_DATA", Path(__file__).resolve().parents[1] / ".." / "shared" / "data")) / "kairos"
PRICES = {"g4dn.xlarge": "0.526", "c5n.2xlarge": "0.432", "r5n.large": "0.149", "t3.xlarge": "0.1664"}


@dataclass(frozen=True)
class Row:
    """One figure: what, how long, and how many times faster than what it is set beside."""

    what: str
    ms: float
    beside: str = ""
    ratio: float | None = None


def cpu_ms(work: Callable[[], Any], repeat: int = 5) -> float:
    """CPU time of one call, the median of several."""
    spent = []
    for _ in range(repeat):
        began = time.process_time()
        work()
        spent.append(1000 * (time.process_time() - began))
    return statistics.median(spent)


def service(model: str) -> tuple[list[int], list[float], dict[str, list[float]], float]:
    """Sizes, shares, latency per type and target of a published service, or of a made-up one."""
    if not (DATA / "kairos_latency.json").exists():
        sizes = list(range(10, 1001, 10))
        share = [1.0 / len(sizes)] * len(sizes)
        slopes = {"g4dn.xlarge": 0.25, "c5n.2xlarge": 0.39, "r5n.large": 0.42, "t3.xlarge": 0.95}
        return sizes, share, {name: [3 + slope * size for size in sizes] for name, slope in slopes.items()}, 350.0
    latency = json.loads((DATA / "kairos_latency.json").read_text())[model]
    pmf = json.loads((DATA / "batch_size_pmf.json").read_text())["kairos"]["pmf"]
    instance = json.loads((DATA / "kairos_instance.json").read_text())
    means = {name: latency[name]["mean_ms"] for name in PRICES}
    return latency["g4dn.xlarge"]["batch"], pmf, means, instance["qos_ms_p99"][model]


def pose(model: str, budget: str) -> PoolQuestion:
    """The problem at a budget."""
    sizes, share, latency, qos_ms = service(model)
    profile = {
        "hardware": {name: {"kind": "machine"} for name in latency},
        "offers": {f"{name}": {"hardware": name, "price_per_hour": PRICES[name]} for name in latency},
        "tasks": {"rank": {}},
        "variants": {"m": {"task": "rank", "runs": [{"hardware": name, "latency": name} for name in latency]}},
        "tables": {
            name: {"quantity": "latency_ms", "axes": {"batch": sizes}, "mean": mean} for name, mean in latency.items()
        },
    }
    mix = {"axes": ["batch"], "bins": [[size] for size in sizes], "share": share}
    app = {
        "model": "m",
        "latency": {"p99_ms": qos_ms},
        "rate_qps": "max",
        "mix": mix,
    }
    inputs = Inputs(
        Profile.model_validate(profile),
        Slo.model_validate({"limits": {"cost_per_hour": budget}, "apps": {"app": app}}),
        digests={"profile": "p", "slo": "s"},
    )
    return PoolQuestion.from_inputs(
        inputs, PoolQuestion.formulations["pool-milp"](), formulation="pool-milp", tools=Tools()
    )


def ranked(pool: PoolQuestion) -> int:
    """List, estimate, rank, choose: what the published code does, for all configurations at once."""
    found = configurations(pool, pool.request.budget or 0, with_base=True)
    best = best_rated(estimate_rates(eq15_numbers(pool), found.counts), found.cost, 10)
    return int(best[most_similar(found.rows(best), pool.base)])


def estimate_rate(numbers: Eq15, counts: Sequence[int]) -> float:
    """(15) of one configuration, step by step as the paper writes it: what the arrays are tested against."""
    u = counts[numbers.base]
    present = [i for i in numbers.auxiliary if counts[i] > 0 and numbers.level[i] >= 0]
    if not present:
        return u * numbers.Qb
    k = max(numbers.level[i] for i in present)
    f, Qs = float(numbers.f[k]), float(numbers.Qs[k])
    A = sum(counts[i] * float(numbers.Qa[i][k]) for i in numbers.auxiliary)
    if f >= 1.0:
        return u * numbers.Qb + A
    if u == 0:
        return 0.0
    C = A * (1.0 - f) / f
    if u * Qs <= C:
        return u * Qs / (1.0 - f)
    return A / f + (1.0 - C / (u * Qs)) * u * numbers.Qb


def ranked_one_by_one(pool: PoolQuestion, found: Configurations) -> int:
    """The same, one configuration at a time in plain Python."""
    numbers = eq15_numbers(pool)
    prices = pool.c.tolist()
    rows = found.rows(np.arange(len(found))).tolist()
    order = sorted(
        range(len(rows)),
        key=lambda i: (-estimate_rate(numbers, rows[i]), sum(c * n for c, n in zip(prices, rows[i], strict=True)), i),
    )
    return order[most_similar(np.array([rows[i] for i in order[:10]]), pool.base)]


def ranking(model: str) -> list[Row]:
    """Ranking of 331 to 1.2 million configurations."""
    rows = []
    for budget in ("2.5", "5", "10", "20"):
        pool = pose(model, budget)
        found = configurations(pool, pool.request.budget or 0, with_base=True)
        fast = cpu_ms(lambda pool=pool: ranked(pool))
        ratio, beside = None, ""
        if len(found) < 10**5:
            slow = cpu_ms(lambda pool=pool, found=found: ranked_one_by_one(pool, found), repeat=3)
            ratio, beside = slow / fast, "one by one in Python (listing not counted)"
        rows.append(Row(f"rank {len(found):,} configurations", fast, beside, ratio))
    return rows


def programs(model: str) -> list[Row]:
    """The fluid program at 331 given counts: warm, one by one, with another engine; and what certifying adds."""
    pool = pose(model, "2.5")
    found = configurations(pool, pool.request.budget or 0, with_base=True)
    forms = fluid_programs_at(pool, found.rows(np.arange(len(found))))
    highs = next(engine for engine in registry.solvers("milp") if engine.name == "highs")
    glop = next(engine for engine in registry.solvers("milp") if engine.name == "glop")
    warm = cpu_ms(lambda: highs.solve_all(forms, Limits()))
    cold = cpu_ms(lambda: [highs.solve(form, Limits()) for form in forms], repeat=3)
    other = cpu_ms(lambda: [glop.solve(form, Limits()) for form in forms], repeat=1)
    answers = highs.solve_all(forms, Limits())
    proved = cpu_ms(lambda: [certify(form, answer) for form, answer in zip(forms, answers, strict=True)], repeat=3)
    return [
        Row(f"{len(forms)} fluid programs, one warm model", warm, "each from cold", cold / warm),
        Row(f"{len(forms)} fluid programs, each from cold", cold, "glop, each from cold", other / cold),
        Row(f"certify {len(forms)} fluid programs", proved, "solving them warm", warm / proved),
    ]


def whole(model: str) -> list[Row]:
    """Reading, building, solving and deciding the whole-number program."""
    highs = next(engine for engine in registry.solvers("milp") if engine.name == "highs")
    rows = []
    for budget in ("2.5", "10", "40"):
        pool = pose(model, budget)
        form = fluid_program(pool, None)
        solve = cpu_ms(lambda form=form: highs.solve(form, Limits(gap=1e-4)))
        rows.append(Row(f"pool-milp, budget {budget}: build", cpu_ms(lambda pool=pool: fluid_program(pool, None))))
        decide = cpu_ms(lambda pool=pool: pool.decide(Asking(registry.solvers("milp"), Limits())))
        rows.append(Row(f"pool-milp, budget {budget}: solve", solve))
        rows.append(
            Row(f"pool-milp, budget {budget}: whole conversation, certified", decide, "solving alone", solve / decide)
        )
    pool = pose(model, "2.5")
    rows.append(Row("read the files into letters", cpu_ms(lambda: pose(model, "2.5"))))
    rows.append(
        Row("build one program at given counts", cpu_ms(lambda: fluid_program_at(pool, np.array([1, 0, 13, 0]))))
    )
    return rows


def searches() -> list[Row]:
    """Kairos+ on the published services, five seeds to a pool, from the files to the plan."""
    if not (DATA / "kairos_latency.json").exists():
        return []
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "papers"))
    from hetplan_papers.datasets import kairos

    rows = []
    for model in kairos.MODELS:
        for bound in ("lp", "eq15"):
            profile, slo = kairos.inputs(model, data=DATA.parent)
            files, options = (Profile.model_validate(profile), slo), {"bound": bound}
            plan = hetplan.solve(*files, formulation="kairos-plus", options=options).require()
            spent = cpu_ms(
                lambda files=files, options=options: hetplan.solve(*files, formulation="kairos-plus", options=options),
                repeat=3,
            )
            tried = next(claim.note for claim in plan.claims if claim.about == "rate_qps").split(",")[0]
            rows.append(Row(f"Kairos+, {model}, bound {bound}: {tried}", spent))
    return rows


def main(argv: list[str]) -> int:
    """Print the table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--model", default="rm2", choices=["ncf", "rm2", "wnd", "mtwnd", "dien"])
    chosen = parser.parse_args(argv)
    ranked(pose(chosen.model, "2.5"))
    rows = [*ranking(chosen.model), *programs(chosen.model), *whole(chosen.model), *searches()]
    if chosen.json:
        print(json.dumps([asdict(row) for row in rows], indent=1))
        return 0
    for row in rows:
        ratio = f"{row.ratio:8.1f}x {row.beside}" if row.ratio is not None else ""
        print(f"{row.what:58s} {row.ms:10.2f} ms {ratio}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
