"""Do default plans of compound queries at a rate keep their word, and what do they cost beside plans near by?

    python benchmarks/kept_compound.py [--cases 20] [--first 1] [--no-search] [--each]

Random cases, all with `rate_qps`: one or two applications of two to four operators (a line, branches that meet, or an
answer that goes on to a larger model now and then), on one or two tiers of priced machines. Some operators serve
batches, some share a model, some are calls of an API that fails now and then. Percentiles are p50 to p99, arrivals
Poisson, smoother or in bursts, and there is a least accuracy. What every setting takes was measured (600 samples).

Each case is solved by default. The plan is verified, and played by five seeds that the solve has not seen. Then plans
near by are played by the same seeds: what the formula alone gives for other limits and rates, and the plan with one
replica less. The cheapest that is kept says what there was to be had, and whether a refusal was right.
"""

from __future__ import annotations

import argparse
import copy
import random
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any

import hetplan as hp
from hetplan.profiles.plan import Plan
from hetplan.serving.demand import late_share

__all__ = ["Case", "Judged", "case", "is_kept", "judged"]

Json = dict[str, Any]
UNSEEN, SEEDS, QUERIES = 7_000_003, 5, 40_000
SAMPLES = 600
ARRIVALS: tuple[Json, ...] = (
    {"process": "poisson"}, {"process": "poisson"}, {"process": "gamma", "shape": 0.5},
    {"process": "gamma", "shape": 2.0}, {"process": "mmpp", "relative_rates": [0.6, 1.8], "stay_s": [2.0, 1.0]},
)  # fmt: skip
TIMES = (1.0, 1.15, 1.3, 1.5, 1.8, 2.2, 0.85, 0.7, 0.5)
"""Near by are the formula's plans for limits so many times as long."""
RATES = (1.0, 1.1, 1.25, 1.5)
"""And for so many times the rate."""


@dataclass(frozen=True)
class Case:
    """Profile, SLO and measurements; what was drawn, in words."""

    profile: Json
    slo: Json
    measured: Json
    drawn: str

    @property
    def files(self) -> tuple[hp.Profile, Json]:
        """The two files of a solve."""
        return hp.Profile.model_validate(self.profile), self.slo


def case(seed: int) -> Case:
    """A random case; the same seed gives the same."""
    rng = random.Random(f"compound {seed}")
    tiers = ["near", "far"][: rng.randint(1, 2)]
    profile: Json = {
        "format": "hetplan/profile/1.0", "reference": "near-gpu", "tiers": tiers,
        "metrics": {"right": {"range": [0, 1], "kind": "bernoulli"}},
        "hardware": {}, "offers": {}, "links": [], "tables": {}, "pipelines": {},
    }  # fmt: skip
    for number, tier in enumerate(tiers):
        kind = {"kind": "gpu", "tier": tier, "relative_time": 1.0 if number == 0 else round(rng.uniform(0.3, 0.8), 2)}
        profile["hardware"][f"{tier}-gpu"] = {**kind, "provides": {"gpu": 1}}
        price = f"{rng.uniform(0.5, 2.0) * (1 + number):.2f}"
        per = {"per": "gpu"} if rng.random() < 0.6 else {}
        profile["offers"][f"{tier}-offer"] = {"hardware": f"{tier}-gpu", "price_per_hour": price, **per}
    if len(tiers) > 1:
        profile["links"] = [{"between": tiers, "bandwidth_mbps": 1000, "latency_ms": round(rng.uniform(1, 8), 1)}]
    shape = rng.choice(["line", "line", "branches", "exit"])
    called = rng.random() < 0.3
    if called:
        profile["apis"] = {"acme": {
            "tier": tiers[0], "price_per_call": f"{rng.uniform(1e-5, 2e-4):.6f}",
            "failures": 0.02, "retries": 2, "retry_ms": 50,
        }}  # fmt: skip
    nodes, edges = _shape(rng, shape)
    drawn = [shape, *(["an API"] if called else [])]
    several = rng.random() < 0.4
    for name in nodes:
        node = nodes[name]
        if "outcomes" in node:
            continue
        if rng.random() < 0.4:
            whole = rng.uniform(0.3, 0.8)
            means = [10 * (1 - whole + whole * n) for n in (1, 2, 4, 8)]
            profile["tables"][f"grown-{name}"] = {
                "quantity": "latency_ms", "axes": {"batch": [1, 2, 4, 8]}, "mean": [round(one, 2) for one in means],
            }  # fmt: skip
            node["batches"] = f"grown-{name}"
            drawn.append(f"batches at {name}")
        if several and rng.random() < 0.6:
            node["model"] = f"m-{name}"
    last = list(nodes)[-1]
    if called:
        nodes[last]["calls"] = [{"api": "acme", "where": {"model": ["m2"]}, "tokens": {"in": 500, "out": 50}}]
    profile["pipelines"]["ask"] = {
        "nodes": nodes, "edges": edges, "knobs": {"size": [1, 2], "model": ["m1", "m2"]}, "metric": "right",
        "share_grid": [1, 0.5, 0.25], "strata": 1, "evaluator": "made-up",
    }  # fmt: skip
    work = {name: rng.uniform(0.008, 0.05) for name in nodes}
    loose = {name: rng.choice((0.0, 0.3, 0.7)) for name in nodes}
    apps, entries = {}, {}
    for number in range(rng.randint(1, 2) + several):
        name = f"app{number}"
        entries[name] = _entries(rng, profile["pipelines"]["ask"], work, loose)
        percentile = rng.choice([50, 90, 95, 99])
        unloaded = sum(work.values())
        apps[name] = {
            "pipeline": "ask",
            "latency": {f"p{percentile:g}_ms": round(1000 * unloaded * rng.uniform(1.5, 6.0), 1)},
            "quality": {"min": rng.choice([0.6, 0.75])},
            "rate_qps": round(rng.uniform(2, 80), 2),
            "arrivals": dict(rng.choice(ARRIVALS)),
        }
        drawn.append(f"p{percentile}")
    slo = {"format": "hetplan/slo/1.0", "objective": ["min cost"], "apps": apps}
    if several:
        drawn.append("shared models")
    return Case(profile, slo, {"format": "hetplan/measured/1.0", "apps": entries}, ", ".join(drawn))


def _shape(rng: random.Random, shape: str) -> tuple[Json, list[Json]]:
    """Operators and edges: a line of two to four, two branches that meet, or an answer that may go on."""
    if shape == "exit":
        small = {"device": "gpu", "reads": ["size"], "outcomes": {"measured": ["sure", "unsure"]}}
        large = {"device": "gpu", "reads": ["model"]}
        return {"small": small, "large": large}, [{"from": "small", "to": "large", "on": "unsure"}]
    names = ["read", "find", "rank", "write"]
    names = names if shape == "branches" else names[: rng.randint(2, 4)]
    nodes: Json = {name: {"device": "gpu", "reads": []} for name in names}
    nodes[names[0]]["reads"] = ["size"]
    nodes[names[-1]]["reads"] = ["model"]
    pairs = list(pairwise(names))
    if shape == "branches":
        pairs = [("read", "find"), ("read", "rank"), ("find", "write"), ("rank", "write")]
    return nodes, [{"from": one, "to": other} for one, other in pairs]


def _entries(rng: random.Random, pipeline: Json, work: dict[str, float], loose: dict[str, float]) -> list[Json]:
    """What every setting took, sample by sample: larger sizes and the second model take longer and are more right."""
    made = []
    order, ends = list(pipeline["nodes"]), "outcomes" in next(iter(pipeline["nodes"].values()))
    unsure = [rng.random() < 0.35 for _ in range(SAMPLES)]
    for size, model in product(*pipeline["knobs"].values()):
        seconds: dict[str, list[float | None]] = {}
        for name in order:
            reads = pipeline["nodes"][name]["reads"]
            times = work[name] * (1 + 0.5 * ("size" in reads) * (size - 1)) * (2.0 if reads == ["model"] else 1.0)
            times *= 0.6 if reads == ["model"] and model == "m1" else 1.0
            s = loose[name]
            drawn = [times * rng.lognormvariate(-s * s / 2, s) for _ in range(SAMPLES)]
            skipped = ends and name != order[0]
            seconds[name] = [t if u or not skipped else None for t, u in zip(drawn, unsure, strict=True)]
        mean = 0.62 + 0.08 * (size - 1) + 0.15 * (model == "m2")
        ran = {name: [t for t in each if t is not None] for name, each in seconds.items()}
        made.append({
            "knobs": {"size": size, "model": model}, "verdict": "pass", "passes": True, "samples": SAMPLES,
            "mean": mean, "se": 0.01, "input_bytes": 2e4, "bytes": dict.fromkeys(order, 1e4),
            "seconds": {name: sum(each) / SAMPLES for name, each in ran.items()},
            "runs": {"seconds": seconds, "bytes": {name: [1e4] * SAMPLES for name in order},
                     "input_bytes": [2e4] * SAMPLES},
        })  # fmt: skip
    return made


def is_kept(one: Case, plan: Plan, seed: int = UNSEEN) -> bool:
    """Whether of five runs together no more of any application's queries are late than may be."""
    inputs = hp.load(*one.files, one.measured)
    slowest = min(app["rate_qps"] for app in one.slo["apps"].values())
    report = hp.simulate(plan, *one.files, one.measured, seeds=SEEDS, seed=seed, duration_s=QUERIES / slowest)
    return all(
        report.apps[name].figures["violations"].value <= late_share(app) + 1e-12
        for name, app in inputs.slo.apps.items()
    )


@dataclass(frozen=True)
class Judged:
    """What came of a case; `ratio` is the cost over that of the cheapest plan near by that is kept."""

    case: int
    drawn: str
    code: int
    kept: bool | None
    verified: bool | None
    formula_kept: bool | None
    ratio: float | None
    near: float | None
    cost: float | None
    seconds: float


def judged(number: int, *, search: bool = True) -> Judged:
    """Solve, verify, play and compare one case."""
    one = case(number)
    began = time.process_time()
    outcome = hp.solve(*one.files, one.measured)
    seconds = time.process_time() - began
    plan = outcome.plan if outcome.exit_code == 0 else None
    estimated = hp.solve(*one.files, one.measured, options={"sizing": "formula"}).plan
    best = None
    for other in _near(one, plan) if search else ():
        if (best is None or _cost(other) < best) and is_kept(one, other):
            best = _cost(other)
    cost = None if plan is None else _cost(plan)
    ratio = None if cost is None or best is None else max(1.0, cost / best)
    return Judged(
        number, one.drawn, outcome.exit_code,
        None if plan is None else is_kept(one, plan),
        None if plan is None else hp.verify(plan, *one.files, one.measured).ok,
        None if estimated is None else is_kept(one, estimated),
        ratio, best, cost, round(seconds, 1),
    )  # fmt: skip


def _near(one: Case, plan: Plan | None) -> Iterator[Plan]:
    """Plans of the formula for other limits and rates; then the plan without one replica, and what is left of that."""
    made = []
    for longer, more in [*((t, 1.0) for t in TIMES), *((1.0, r) for r in RATES[1:])]:
        slo = copy.deepcopy(one.slo)
        for app in slo["apps"].values():
            app["latency"]["p99_ms"] *= longer
            app["rate_qps"] *= more
        found = hp.solve(hp.Profile.model_validate(one.profile), slo, one.measured, options={"sizing": "formula"})
        if found.plan is not None and found.exit_code == 0:
            made.append(found.plan)
    yield from sorted(made, key=_cost)
    if plan is not None:
        yield from _with_one_less(one, plan)


def _with_one_less(one: Case, plan: Plan) -> Iterator[Plan]:
    """The plan with a machine less of alike ones, or a replica less where machines are paid by the share."""
    for w, worker in enumerate(plan.workers):
        offer = one.profile["offers"][worker.offer]
        price, by_share = float(offer["price_per_hour"]), offer.get("per") == "gpu"
        parts = [load.share.gpu if load.share is not None and load.share.gpu else 1.0 for load in worker.loads]
        less = []
        if worker.count > 1:
            used = sum(load.instances * part for load, part in zip(worker.loads, parts, strict=True))
            less.append((worker.model_copy(update={"count": worker.count - 1}), price * (used if by_share else 1.0)))
        for k, load in enumerate(worker.loads if by_share and worker.count == 1 else ()):
            if load.instances > 1:
                fewer = load.model_copy(update={"instances": load.instances - 1})
                loads = (*worker.loads[:k], fewer, *worker.loads[k + 1 :])
                less.append((worker.model_copy(update={"loads": loads}), price * parts[k]))
        for other, saved in less:
            said = tuple(
                p.model_copy(update={"value": p.value - saved}) if p.quantity == "cost_per_hour" else p
                for p in plan.promises
            )
            workers = (*plan.workers[:w], other, *plan.workers[w + 1 :])
            yield plan.model_copy(update={"workers": workers, "promises": said})


def _cost(plan: Plan) -> float:
    return float(next(one.value for one in plan.promises if one.quantity == "cost_per_hour"))


def report(found: list[Judged]) -> str:
    """How often plans are kept, what they cost beside the cheapest found, and what was refused wrongly."""
    plans = [one for one in found if one.kept is not None]
    ratios = [one.ratio for one in plans if one.ratio is not None]
    broken = [one.case for one in plans if not one.kept]
    missed = [one.case for one in found if one.kept is None and one.near is not None]
    formula = [one for one in found if one.formula_kept is not None]
    said = [
        f"{len(found)} cases: {len(plans)} plans, {len(plans) - len(broken)} kept, "
        f"{sum(bool(one.verified) for one in plans)} verified",
        f"by the formula alone {len(formula)} plans, {sum(bool(one.formula_kept) for one in formula)} kept",
        f"refused though a plan near by is kept: {missed or 'none'}",
        f"CPU s per solve: median {statistics.median(one.seconds for one in found)}, "
        f"worst {max(one.seconds for one in found)}",
    ]
    if ratios:
        said.insert(2, f"cost / cheapest kept near by: median {statistics.median(ratios):.3f}, worst {max(ratios):.3f}")
    return "\n".join(said + ([f"broken: {broken}"] if broken else []))


def main() -> None:
    """Judge so many cases, and print what came of them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", type=int, default=20)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--no-search", action="store_true", help="no plans near by")
    parser.add_argument("--each", action="store_true", help="a line per case")
    given = parser.parse_args()
    found = []
    for number in range(given.first, given.first + given.cases):
        found.append(judged(number, search=not given.no_search))
        if given.each:
            print(found[-1], flush=True)
    print(report(found))


if __name__ == "__main__":
    main()
