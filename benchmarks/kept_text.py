"""Do default fleets that make text keep their word, and what do they cost beside what a judge's own search finds?

    python benchmarks/kept_text.py [--instances 20] [--seed 0] [--no-search]

Random instances: one to three types of GPU with laws and prices of their own, prompts and answers of four to eight
lengths, limits of TTFT and TPOT, rates for one to some ten machines. Every other one has bursts, a share of good
requests in place of percentiles, or a limit of the whole answer. Each default plan is played by `hetplan simulate` on
seeds that it has not seen. Where arrivals are steady and the limits are two percentiles, a simulation written apart
(`token_judge.py`) judges it too, and looks for a cheaper fleet among all mixes of up to eight machines of each type.
"""

from __future__ import annotations

import argparse
import itertools
import random
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import llm
from token_judge import Card, Court, Setting

import hetplan as hp
from hetplan.planner.promise_figures import Verdict

__all__ = ["Case", "Judged", "case", "judged"]

UNSEEN, SEEDS = 7_000_003, 5
MOST = 8
"""Machines of each type in the judge's search."""
FIELDS = ("base_ms", "token_ms", "kv_token_ms", "sequence_ms", "pair_ms")


@dataclass(frozen=True)
class Case:
    """Two files, the same as the judge has them, and whether the judge can say anything of them."""

    name: str
    profile: dict[str, Any]
    slo: dict[str, Any]
    cards: tuple[Card, ...]
    judge: Court | None


@dataclass(frozen=True)
class Judged:
    """What came of one case: kept on fresh seeds, kept by the judge, dearer than the cheapest found by so much."""

    name: str
    code: int
    cost: float
    fleet: str
    kept: bool | None
    by_judge: bool | None
    found: float | None
    seconds: float
    worst: str = ""

    @property
    def ratio(self) -> float | None:
        """Its cost beside the cheapest that was found; none where it is the cheapest itself."""
        return None if self.found is None or self.code else self.cost / min(self.cost, self.found)


def case(seed: int) -> Case:
    """An instance of its own for each seed."""
    rng = random.Random(f"text {seed}")
    names = rng.sample(sorted(llm.GPUS), rng.randint(1, 3))
    profile, cards = llm.profile(names), []
    for name in names:
        peak, bandwidth, memory, price = llm.GPUS[name]
        scale = rng.uniform(0.6, 1.2)
        made = llm.engine(scale * peak, rng.uniform(0.7, 1.1) * bandwidth, memory)
        profile["engines"][name] = made
        dollars = round(float(price) * rng.uniform(0.6, 1.3), 3)
        profile["offers"][f"{name}"]["price_per_hour"] = f"{dollars:g}"
        pieces = tuple(tuple(piece.get(field, 0.0) for field in FIELDS) for piece in made["pieces"])
        cards.append(Card(name, dollars, pieces, made["kv_tokens"]))  # type: ignore[arg-type]
    sizes = list(itertools.product((64, 150, 400, 800, 1500, 2500, 4000), (2, 20, 60, 150, 300, 500)))
    bins = [list(size) for size in rng.sample(sizes, rng.randint(4, 8))]
    weights = [rng.randint(1, 10) for _ in bins]
    ttft, tpot, rate = rng.choice((150, 300, 600, 1500)), rng.choice((25, 40, 60, 100)), rng.choice((2, 5, 10, 20, 40))
    app: dict[str, Any] = {
        "model": "llama-8b",
        "latency": {"ttft_p95_ms": ttft, "tpot_p95_ms": tpot},
        "rate_qps": rate,
        "mix": {"axes": ["input_tokens", "output_tokens"], "bins": bins,
                "share": [weight / sum(weights) for weight in weights]},
    }  # fmt: skip
    kind = rng.choice(("steady", "steady", "bursts", "goodput", "whole"))
    if kind == "bursts":
        app["arrivals"] = {"process": "gamma", "shape": 0.4}
    elif kind == "goodput":
        app["attainment"] = 0.95
    elif kind == "whole":
        app["latency"] = {"p90_ms": float(ttft + 400 * tpot)}
    lengths = [size for size, weight in zip(bins, weights, strict=True) for _ in range(weight)]
    court = Court(cards, lengths, rate, float(ttft), float(tpot)) if kind == "steady" else None
    slo = {"format": "hetplan/slo/1.0", "apps": {"chat": app}}
    return Case(f"{seed} {kind} {rate}/s ttft {ttft} tpot {tpot}", profile, slo, tuple(cards), court)


def judged(one: Case, *, search: bool = True) -> Judged:
    """Solve a case with the default and judge the plan."""
    began = time.process_time()
    outcome = hp.solve(hp.Profile.model_validate(one.profile), {**one.slo, "robust": {"law": False}})
    seconds = time.process_time() - began
    plan = outcome.plan if outcome.exit_code == 0 else None
    found = _cheapest(one, llm.cost(outcome) if plan is not None else None) if search else None
    if plan is None:
        return Judged(one.name, outcome.exit_code, float("nan"), "-", None, None, found, seconds)
    report = hp.simulate(plan, hp.Profile.model_validate(one.profile), one.slo, seeds=SEEDS, seed=UNSEEN)
    by_judge = one.judge.verdict(_setting(one, plan)).kept if one.judge is not None else None
    worst = "; ".join(str(line) for line in report.lines if line.verdict is Verdict.BROKEN)
    return Judged(
        one.name, 0, llm.cost(outcome), llm.fleet(outcome), report.ok, by_judge, found,
        seconds, worst,
    )  # fmt: skip


def _setting(one: Case, plan: Any) -> Setting:
    """How a plan runs its machines, as the judge has it."""
    names = [card.name for card in one.cards]
    counts, chunks, theta = [0] * len(names), [2048] * len(names), 1.0
    for worker in plan.workers:
        t, load = names.index(worker.hardware), worker.loads[0]
        counts[t], chunks[t] = counts[t] + worker.count, load.serve.most_tokens
        theta = plan.dispatch["chat"].limit.get(load.id, 1.0)
    return Setting(tuple(counts), tuple(chunks), theta)


def _cheapest(one: Case, cost: float | None) -> float | None:
    """What the judge's cheapest fleet costs, of those below a cost."""
    if one.judge is None:
        return None
    mixes = [n for n in itertools.product(range(MOST + 1), repeat=len(one.cards)) if any(n)
             and (cost is None or one.judge.cost(n) < cost * (1 - 1e-9))]  # fmt: skip
    if cost is not None:
        mixes = [n for n in mixes if one.judge.cost(n) > 0.7 * cost]
    found = one.judge.cheapest(mixes)
    return found[0] if found is not None else None


def report(found: list[Judged]) -> Iterator[str]:
    """What came of all of them."""
    plans = [one for one in found if one.kept is not None]
    ratios = [one.ratio or 1.0 for one in plans if one.by_judge is not None]
    missed = [one.name for one in found if one.code and one.found is not None]
    yield (
        f"{len(found)} instances, {len(plans)} plans, {sum(bool(one.kept) for one in plans)} kept on fresh seeds; "
        f"judged apart {len(ratios)}, {sum(bool(one.by_judge) for one in plans)} kept; "
        f"cost / cheapest found: median {statistics.median(ratios or [1.0]):.3f}, worst {max(ratios or [1.0]):.3f}; "
        f"none found where the judge finds one: {len(missed)}; CPU s per solve: median "
        f"{statistics.median(one.seconds for one in found):.1f}, worst {max(one.seconds for one in found):.1f}"
    )


def main() -> None:
    """Judge so many instances, a line for each, and print what came of them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--instances", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-search", action="store_true")
    given = parser.parse_args()
    found = []
    for seed in range(given.seed, given.seed + given.instances):
        found.append(judged(case(seed), search=not given.no_search))
        print(found[-1], flush=True)
    for line in report(found):
        print(line)


if __name__ == "__main__":
    main()
