"""How many random pools are certified, how near, and how long the proof takes beside the solve.

    python benchmarks/certified_share.py [--pools 60] [--seed 0] [--all]
    python benchmarks/certified_share.py --questions all [--seconds 20] [--seed 0]

Pools of 4 to 10 types and 8 to 50 classes, with budgets of 10 to 1,000 machines. Each is solved as it is by default,
and once more without the tree that proves its bound; CPU time both times, in this process. A pool is certified where
its first claim is, within a gap of 1e-4 (`--gap`); in time, where proving took no more than three times the solve, or
0.2 s. Each certified plan is verified, and its bound must be proved again there.

With `--questions`, random plans of each question (by formulations, engines and sizes in turn) instead, so many CPU
seconds long each: how many of their bounds are certified, how many `verify` proves again, and what both took.
Every plan is honest: one that verify refuses is a fault, and the exit code says so.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from cases import texts
from cases.pipelines import random_pipeline
from cases.random_pools import random_pool
from cases.random_variants import random_shared, random_snapshot

import hetplan as hp
from benchmarks import fleet, kept
from hetplan.api.solve import plan_for
from hetplan.planner.bound_verdicts import Word
from hetplan.profiles.plan_file import plan_dict
from hetplan.profiles.read_plan import read_plan
from hetplan.solvers.milp_engine import MilpEngine

TIMES, SECONDS = 3.0, 0.2
"""The proof may take so many times the solve, or so long."""


@dataclass(frozen=True)
class Measured:
    """One pool: its size, whether its bound is certified, the gap, CPU seconds, whether verify proved it again."""

    words: str
    certified: bool
    gap: float
    solve_s: float
    proof_s: float
    again: bool

    @property
    def in_time(self) -> bool:
        """Whether the proof took no longer than it may."""
        return self.proof_s <= max(TIMES * self.solve_s, SECONDS)


def cpu_s(work: Any) -> tuple[float, Any]:
    """CPU seconds of a call, and what it returned."""
    began = time.process_time()
    found = work()
    return time.process_time() - began, found


def as_it_is(_: Any, __: Any, answer: Any, ___: Any) -> Any:
    """In place of the proof: the answer without any."""
    return answer


def measured(seed: int, gap: float) -> Measured:
    """One random pool."""
    rng = np.random.default_rng(seed)
    types, classes = int(rng.integers(4, 11)), int(rng.integers(8, 51))
    machines = float(np.round(10.0 ** rng.uniform(1.0, 3.0)))
    profile, slo = random_pool(seed, types=types, classes=classes, machines=machines, rate=bool(seed % 2))
    known = hp.Profile.model_validate(profile)
    proving, outcome = cpu_s(lambda: hp.solve(known, slo))
    prove = MilpEngine.prove
    MilpEngine.prove = as_it_is  # type: ignore[method-assign,assignment]
    try:
        plain, _ = cpu_s(lambda: hp.solve(known, slo))
    finally:
        MilpEngine.prove = prove  # type: ignore[method-assign]
    claim = outcome.require().claims[0]
    again = hp.verify(outcome.require(), known, slo).claims[0].word is Word.PROVED
    own = 1.0 if claim.gap is None else claim.gap
    words = f"seed {seed}: {types} types, {classes} classes, {machines:g} machines, {'rate' if seed % 2 else 'budget'}"
    return Measured(words, claim.vouched == "certified" and own <= gap, own, plain, max(0.0, proving - plain), again)


Files = tuple[dict[str, Any], ...]


@dataclass(frozen=True)
class Drawn:
    """Random files of a question, and the ways in which they are solved in turn."""

    files: Callable[[int], Files]
    hows: Sequence[Mapping[str, Any]]


def some_pool(seed: int) -> Files:
    """A small or middling pool, for a rate or a budget."""
    chance = random.Random(seed)
    size = {"types": chance.choice([2, 3, 5]), "classes": chance.choice([3, 8, 15])}
    return random_pool(seed, **size, machines=chance.choice([3, 10, 40]), rate=chance.random() < 0.4)


def some_text(seed: int) -> Files:
    """One model on two types, with rates, limits and percentiles of all sizes."""
    chance = random.Random(seed)
    rate, ttft_ms = chance.choice([1, 5, 20, 80, 300]), chance.choice([150, 400, 1500])
    slo = texts.slo(rate, ttft_ms=ttft_ms, tpot_ms=chance.choice([20, 50, 120]))
    chat = slo["apps"]["chat"]
    ends = {of: chance.choice([50, 90, 95, 99]) for of in ("ttft", "tpot")}
    chat["latency"] = {f"{of}_p{ends[of]}_ms": ms for of, ms in zip(ends, chat["latency"].values(), strict=True)}
    return texts.profile(), slo


def some_fleet(seed: int) -> Files:
    """Up to three applications, types, zones and hours."""
    chance = random.Random(seed)
    return fleet.files(
        *(chance.choice([1, 2, 3]) for _ in range(2)), chance.choice([2, 3]), chance.choice([1, 2]), seed
    )


def of_instance(make: Callable[[int], kept.Instance]) -> Callable[[int], Files]:
    """The files of an instance of `kept.py`."""
    return lambda seed: ((one := make(seed)).profile, one.slo)


PLANNED, ESTIMATED = {"options": {"sizing": "fluid"}}, {"options": {"sizing": "formula"}}
ENGINES = [{**PLANNED, "solver": name} for name in ("mathopt-scip", "cp-sat")]
SIZED = {
    "pool": {"max_simulations": 8, "seeds": 2},
    "variants": {"max_simulations": 4},
    "pipeline": {"max_simulations": 3},
}
QUESTIONS = {
    "pool": Drawn(some_pool, [PLANNED, ESTIMATED, *ENGINES, {"options": SIZED["pool"]}]),
    "pipeline": Drawn(
        lambda seed: random_pipeline(seed, gpus=1 + seed % 4, tasks=2 + seed % 3),
        [PLANNED, ESTIMATED, *ENGINES, {**PLANNED, "formulation": "loki"}, {**PLANNED, "formulation": "loki-budget"},
         {"options": {"sizing": "fluid", "routing": "node"}}, {"options": SIZED["pipeline"]}],
    ),
    "variants": Drawn(of_instance(kept.variants), [PLANNED, ESTIMATED, {"options": SIZED["variants"]}]),
    "variants, shared machines": Drawn(
        random_shared, [PLANNED, ESTIMATED, {**PLANNED, "formulation": "variants-milp"}]
    ),
    "variants, with a state": Drawn(
        random_snapshot,
        [{"formulation": name, "options": {"sizing": "fluid", "level": level, "sharing": sharing}}
         for name in ("variants-columns", "variants-milp") for level in ("auto", "aggregate", "typed", "machine")
         for sharing in ("shared", "dedicated")],
    ),
    "policy": Drawn(of_instance(kept.policy), [{"options": {"sizing": "fluid"}}]),
    "llm": Drawn(some_text, [PLANNED, {**PLANNED, "solver": "mathopt-scip"}]),
    "fleet": Drawn(some_fleet, [{"options": {"savings": False, "sizing": sizing}} for sizing in ("fluid", "formula")]),
}  # fmt: skip


@dataclass
class Share:
    """What became of the bounds of a question's plans, and CPU seconds."""

    plans: int = 0
    bounds: int = 0
    certified: int = 0
    again: int = 0
    solve_s: float = 0.0
    verify_s: float = 0.0
    refused: list[str] = field(default_factory=list)


def shared(drawn: Drawn, seconds: float, seed: int, most: int = 10**9) -> Share:
    """Plans from a seed on, until so much time or so many of them are spent."""
    found = Share()
    while found.solve_s + found.verify_s < seconds and most > 0:
        how, (profile, slo, *state) = drawn.hows[seed % len(drawn.hows)], drawn.files(seed)
        took, outcome = cpu_s(lambda: plan_for(hp.load(hp.Profile.model_validate(profile), slo, *state), **how))  # noqa: B023
        found.solve_s, seed, most = found.solve_s + took, seed + 1, most - 1
        if outcome.plan is None:
            continue
        plan = read_plan(plan_dict(outcome.plan))
        took, report = cpu_s(lambda: hp.verify(plan, hp.Profile.model_validate(profile), slo, *state))  # noqa: B023
        bounded = [claim for claim in plan.claims if claim.bound is not None]
        found.plans, found.verify_s, found.bounds = found.plans + 1, found.verify_s + took, found.bounds + len(bounded)
        found.certified += sum(claim.vouched == "certified" for claim in bounded)
        found.again += sum(one.word is Word.PROVED for one in report.claims)
        found.refused += [f"seed {seed - 1}, {how}: {one}" for one in (*report.violations, *outcome.violations)]
    return found


def by_question(wanted: str, seconds: float, seed: int) -> int:
    """The table of all questions."""
    print(
        "| question | plans | bounds | certified | proved again | solve s | verify s |\n|---|--:|--:|--:|--:|--:|--:|"
    )
    wrong = 0
    for name, drawn in QUESTIONS.items():
        if wanted != "all" and not name.startswith(wanted):
            continue
        shared(drawn, seconds, 10**6, most=len(drawn.hows))  # what is loaded and compiled first is no part of it
        one = shared(drawn, seconds, seed)
        counts = f"{one.plans:,} | {one.bounds:,} | {one.certified:,} | {one.again:,}"
        print(f"| {name} | {counts} | {one.solve_s:.1f} | {one.verify_s:.1f} |", flush=True)
        wrong += len(one.refused)
        for line in one.refused:
            print(f"refused: {line}", flush=True)
    return 1 if wrong else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pools", type=int, default=60, help="how many pools")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--gap", type=float, default=1e-4, help="how near a bound must be")
    parser.add_argument("--all", action="store_true", help="a line per pool")
    parser.add_argument("--questions", help="random plans of a question, or of `all`, instead")
    parser.add_argument("--seconds", type=float, default=20.0, help="with --questions: CPU seconds of each")
    asked = parser.parse_args()
    if asked.questions:
        return by_question(asked.questions, asked.seconds, asked.seed)
    measured(10**6, asked.gap)  # what is loaded at the first solve is no part of it
    found = []
    for seed in range(asked.seed, asked.seed + asked.pools):
        found.append(one := measured(seed, asked.gap))
        if asked.all or not (one.certified and one.in_time and one.again):
            state = "certified" if one.certified else f"not certified (gap {one.gap:.2g})"
            print(
                f"{one.words}: {state}, proof {one.proof_s:.3f} s beside {one.solve_s:.3f} s, "
                f"verify {'proved it again' if one.again else 'did not prove it again'}",
                flush=True,
            )
    good = [one for one in found if one.certified and one.in_time]
    proofs = sorted(one.proof_s for one in found)
    print(f"certified to {asked.gap:g}: {sum(one.certified for one in found)} of {len(found)}")
    print(f"certified in time: {len(good)} of {len(found)} ({len(good) / len(found):.1%})")
    print(f"proved again by verify: {sum(one.again for one in found)} of {len(found)}")
    print(f"proof, CPU: median {proofs[len(proofs) // 2]:.3f} s, worst {proofs[-1]:.3f} s")
    return 0 if len(good) >= 0.95 * len(found) else 1


if __name__ == "__main__":
    raise SystemExit(main())
