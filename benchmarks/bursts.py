"""How near pools whose queries come in bursts are proved to be, with what bursts ask of all plans and without.

usage: python benchmarks/bursts.py [--questions pool,pool-wide] [--instances 8] [--seed 20000]

The pools of `benchmarks/kept.py` from a seed on, those of them with gamma arrivals of a shape below 1 and with states
(mmpp), until there are enough of each. Each is solved as it is by default. The first gap is to the least cost that the
rate alone asks for, the second to what the plan claims; both as |cost - bound| / bound, so that 50% is half as dear
again. Seconds are of the processor: of the solve, and of what bursts take of it (windows and program).
"""

from __future__ import annotations

import argparse
import statistics
import time
from itertools import count

import hetplan as hp
from benchmarks.kept import QUESTIONS, Instance
from hetplan.planner.answer import Limits
from hetplan.planner.ask import Asking
from hetplan.planner.terms import Tools
from hetplan.problems.pool.bursts import bursts_of
from hetplan.problems.pool.options import FluidOptions
from hetplan.problems.pool.program import fluid
from hetplan.problems.pool.question import PoolQuestion
from hetplan.problems.pool.size import tolerant
from hetplan.registry import Engines


def line(instance: Instance) -> tuple[str, float, float] | None:
    """A row of the table and its two gaps; None where there is no plan."""
    begun = time.process_time()
    plan = hp.solve(instance.profile, instance.slo, question="pool").plan
    seconds = time.process_time() - begun
    if plan is None:
        return None
    claim = next(one for one in plan.claims if one.about == "cost_per_hour")
    steady = next(one.bound for one in plan.solves if one.about == "least cost that any dispatcher needs")
    pool = PoolQuestion.from_inputs(
        hp.load_inputs(instance.profile, instance.slo), FluidOptions(), formulation="fluid-milp", tools=Tools()
    )
    begun = time.process_time()
    bursts = bursts_of(pool)
    Asking(Engines(), Limits())(fluid(tolerant(pool), pool.wish.rate_qps, bursts=bursts))
    spent = time.process_time() - begun
    assert claim.bound is not None
    assert steady is not None
    before, after = claim.value / steady - 1.0, claim.value / claim.bound - 1.0
    arrivals = pool.wish.app.stated.demand.arrivals
    process = f"gamma {arrivals.shape:g}" if arrivals.shape else f"states {arrivals.relative_rates}"
    factor = max((one.window.factor for one in bursts), default=1.0)
    return (
        (
            f"| {instance.name} | {process} | {factor:.2f} | {claim.value:.3f} | {steady:.3f} | {claim.bound:.3f} "
            f"| {before:.0%} | {after:.0%} | {seconds:.1f} | {spent:.2f} |"
        ),
        before,
        after,
    )


def main() -> None:
    """Print the table and the medians."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--questions", default="pool,pool-wide")
    parser.add_argument("--instances", type=int, default=8)
    parser.add_argument("--seed", type=int, default=20_000)
    given = parser.parse_args()
    print(
        "| pool | arrivals | factor | cost | bound of the rate | with bursts | gap before | gap | solve s | bursts s |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for name in given.questions.split(","):
        found = list[tuple[str, float, float]]()
        for seed in count(given.seed):
            instance = QUESTIONS[name].make(seed)
            (app,) = instance.slo["apps"].values()
            arrivals = app["demand"]["arrivals"]
            if arrivals["process"] == "mmpp" or arrivals.get("shape", 1.0) < 1.0:
                made = line(instance)
                found += [made] if made else []
                print(made[0] if made else f"| {instance.name} | no plan |", flush=True)
            if len(found) == given.instances:
                break
        before, after = (statistics.median(gaps) for gaps in ([one[1] for one in found], [one[2] for one in found]))
        print(f"\n{name}: median gap {before:.0%} before, {after:.0%} with bursts\n")


if __name__ == "__main__":
    main()
