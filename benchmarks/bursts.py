"""How near default plans are proved to be where queries come in bursts: beside what was proved without bursts.

usage: python benchmarks/bursts.py [--questions pool,pool-wide,variants,variants-wide,pipeline] [--instances 8]
       [--seed 20000]

Instances of `benchmarks/kept.py` from a seed on, those with an application of gamma arrivals of a shape below 1 or of
arrivals with states (mmpp), until there are enough of each question. Each is solved as it is by default, and once more
with bursts left out of the bound: the plan must be the same. A gap is cost / bound - 1, so that 100% is twice as dear.
Seconds are of the processor, what bursts take is the difference of the two. Pipelines are those of
`benchmarks/kept_pipelines.py` (`fair`) at the least cost of their servers: of the most accurate plan, as by default.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import dataclass
from itertools import count
from unittest import mock

import hetplan as hp
from benchmarks.kept import QUESTIONS, Instance
from benchmarks.kept_pipelines import fair
from hetplan.profiles.plan import Claim, Plan

WITHOUT = {
    "pool": ("hetplan.problems.pool.sizing.bursts_of", lambda _: ()),
    "variants": ("hetplan.problems.variants.sizing.ask_for_bursts", lambda v: v),
    "pipeline": ("hetplan.problems.pipeline.bounds.bursts_of", lambda *_: []),
}
"""What knows of bursts, and what takes its place."""
PRICES = {"g": "1", "h": "1.6"}
"""Of the servers of pipelines, of which the second is 1.9 times as fast."""


@dataclass(frozen=True)
class Gaps:
    """A plan's cost, its bound without bursts and with them, and the seconds of both solves."""

    cost: float
    before: float
    after: float
    seconds: tuple[float, float]

    @property
    def both(self) -> tuple[float, float]:
        """The gap before, and with bursts."""
        return self.cost / self.before - 1.0, self.cost / self.after - 1.0


def measured(question: str, instance: Instance) -> Gaps | None:
    """The gaps of an instance; None where there is no plan."""
    with mock.patch(*WITHOUT[question]):
        steady, before_s = _solved(question, instance)
    plan, after_s = _solved(question, instance)
    if plan is None or steady is None:
        return None
    assert plan.workers == steady.workers, f"{instance.name}: bursts changed the plan"
    before, after = _cost(steady), _cost(plan)
    assert before.bound is not None
    assert after.bound is not None
    return Gaps(after.value, before.bound, after.bound, (before_s, after_s))


def _solved(question: str, instance: Instance) -> tuple[Plan | None, float]:
    begun = time.process_time()
    outcome = hp.solve(
        hp.Profile.model_validate(instance.profile), instance.slo, options=dict(instance.options), formulation=question
    )
    return (outcome.plan if outcome.exit_code == 0 else None), time.process_time() - begun


def _cost(plan: Plan) -> Claim:
    return next(one for one in plan.claims if one.about == "cost_per_hour")


def pipeline(seed: int) -> Instance:
    """A random tree of steps on servers that have prices."""
    profile, slo = fair(seed)
    profile["offers"] = {name: {"hardware": name, "price_per_hour": PRICES[name]} for name in profile["hardware"]}
    return Instance(f"pipeline {seed}", profile, slo)


def _arrivals(instance: Instance) -> list[str]:
    """The arrivals of applications, those in bursts only."""
    found = []
    for app in instance.slo["apps"].values():
        said = app.get("arrivals", {})
        if said.get("process") == "mmpp":
            found.append("states " + " / ".join(f"{rate:g}" for rate in said["relative_rates"]))
        elif said.get("shape", 1.0) < 1.0:
            found.append(f"gamma {said['shape']:g}")
    return found


def main() -> None:
    """Print the table and the medians."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--questions", default="pool,pool-wide,variants,variants-wide,pipeline")
    parser.add_argument("--instances", type=int, default=8)
    parser.add_argument("--seed", type=int, default=20_000)
    given = parser.parse_args()
    print("| instance | in bursts | cost | bound before | bound | gap before | gap | solve, s | before, s |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name in given.questions.split(","):
        found, none = list[Gaps](), 0
        for seed in count(given.seed):
            instance = pipeline(seed) if name == "pipeline" else QUESTIONS[name].make(seed)
            if not (arrivals := _arrivals(instance)):
                continue
            one = measured(name.partition("-")[0], instance)
            none += one is None
            if one is not None:
                found.append(one)
                gaps, seconds = (f"{gap:.0%}" for gap in one.both), (f"{each:.1f}" for each in reversed(one.seconds))
                bounds = f"{one.cost:.3f} | {one.before:.3f} | {one.after:.3f}"
                line = (name.partition("-")[0], str(seed), *(["wide"] if "wide" in name else []))
                print(
                    f"| {' '.join(line)} | {', '.join(arrivals)} | {bounds} | {' | '.join((*gaps, *seconds))} |",
                    flush=True,
                )
            if len(found) == given.instances:
                break
        before, after = (statistics.median(gaps) for gaps in zip(*(one.both for one in found), strict=True))
        print(f"\n{name}: median gap {before:.0%} before, {after:.0%} with bursts; without a plan: {none}\n")


if __name__ == "__main__":
    main()
