"""Do default plans keep their word, and what do they cost beside what a search by simulation finds?

usage: python benchmarks/kept.py [--questions pool,variants-wide] [--instances 200] [--seed 0] [--no-search]

Random instances of each question: one to twenty machines, deadlines of 1.2 to 5 service times, Poisson and bursty
arrivals. Each is solved with `sizing=fluid` and with the default. Both plans are simulated by seeds that the solve has
not seen; a plan is kept where no more of the queries of five runs are late than may be. A search by simulation then
looks for a cheaper plan near by (or, of policies, for a better one), and for any plan where there was none.

The `-wide` instances vary more: percentiles from 50 to 99.9, a second limit, service times that vary, little stock,
burstier and smoother arrivals; of policies other ways of balancing, and late queries that are dropped; of variants hops
of the network, and machines that are paid whole, of two offers, on which an instance takes a part. Of `-shared` ones
each application may run all variants, so that they share instances.

A question is added with a generator and a search in `QUESTIONS`.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

import hetplan as hp
from hetplan.profiles.plan import Plan
from hetplan.serving.demand import late_share, response_targets

__all__ = ["QUESTIONS", "Instance", "Judged", "Question", "is_kept", "judge"]

Json = dict[str, Any]
UNSEEN, SEEDS, QUERIES = 5_000_011, 20, 60_000
"""So many runs, as bursts differ much: of five of a plan with .94% late and 1% allowed two in five say more than 1%."""
BURSTY = ({"process": "gamma", "shape": 0.5}, {"process": "mmpp", "relative_rates": [0.6, 1.8], "stay_s": [2.0, 1.0]})


@dataclass(frozen=True)
class Instance:
    """Two files, and the options under which they are solved and searched."""

    name: str
    profile: Json
    slo: Json
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Question:
    """How instances are drawn; how plans near by are made of one (or, of None, from nothing); which figure counts."""

    make: Callable[[int], Instance]
    near: Callable[[Instance, Plan | None], Iterator[Plan]]
    figure: str
    noise: str = "table"

    def worth(self, plan: Plan) -> float:
        """What a plan costs; of what is better when higher, one over it."""
        found = next(one.value for one in plan.promises if one.quantity == self.figure and one.model != "stationary/1")
        return found if self.figure == "cost_per_hour" else 1.0 / max(found, 1e-12)


def is_kept(instance: Instance, plan: Plan, *, noise: str = "table", seed: int = UNSEEN) -> bool:
    """Whether runs on queries that nobody planned with have no more late than may be."""
    inputs = hp.load(hp.Profile.model_validate(instance.profile), instance.slo)
    rates = [_rate(plan, name, app) for name, app in inputs.slo.apps.items()]
    cycles = [sum(app.arrivals.stay_s or ()) for app in inputs.slo.apps.values()]
    length_s = min(max(QUERIES / min(rates), 40.0 * max(cycles)), 300_000 / sum(rates))
    report = hp.simulate(
        plan,
        hp.Profile.model_validate(instance.profile),
        instance.slo,
        seeds=SEEDS,
        seed=seed,
        duration_s=length_s,
        noise=noise,
    )
    for name, app in inputs.slo.apps.items():
        shown = report.apps[name]
        if shown.figures["violations"].value > late_share(app):
            return False
        limits = response_targets(app)
        if len(limits) > 1 and any(shown.percentiles_ms[one.percentile].value > one.max_ms for one in limits):
            return False
    return True


def _rate(plan: Plan, name: str, app: Any) -> float:
    if app.stated_qps is not None:
        return float(app.stated_qps)
    return next(one.value for one in plan.promises if one.app == name and one.quantity == "rate_qps")


@dataclass(frozen=True)
class Judged:
    """What came of one instance: of the planned plan, of the default, and of the search (ratio: default / found)."""

    instance: str
    planned_kept: bool | None
    code: int
    kept: bool | None
    found: bool
    ratio: float | None
    seconds: float


def judge(question: str, instance: Instance, *, search: bool = True, beside: bool = True) -> Judged:
    """Solve one instance and simulate, `beside` what is planned without queues, and search near by."""
    asked = QUESTIONS[question]
    planned = _solved(question, instance, sizing="fluid").plan if beside else None
    begun = time.process_time()
    outcome = _solved(question, instance)
    seconds = time.process_time() - begun
    plan = outcome.plan if outcome.exit_code == 0 else None
    best = None
    if search:
        for other in asked.near(instance, plan):
            better = best is None or asked.worth(other) < asked.worth(best)
            if better and is_kept(instance, other, noise=asked.noise):
                best = other
    ratio = None if plan is None or not search else 1.0
    if plan is not None and best is not None:
        ratio = max(1.0, asked.worth(plan) / asked.worth(best))
    return Judged(
        instance.name,
        (planned is not None and is_kept(instance, planned, noise=asked.noise)) if beside else None,
        outcome.exit_code,
        None if plan is None else is_kept(instance, plan, noise=asked.noise),
        best is not None,
        ratio,
        seconds,
    )


def _solved(question: str, instance: Instance, **options: Any) -> hp.Outcome:
    options = {**instance.options, **options}
    return hp.solve(
        hp.Profile.model_validate(instance.profile),
        instance.slo,
        options=options,
        formulation=question.partition("-")[0],
    )


def _demand(rng: random.Random, rate_qps: float) -> Json:
    process: Json = {"process": "poisson"} if rng.random() < 0.5 else dict(rng.choice(BURSTY))
    return {"rate_qps": round(rate_qps, 3), "arrivals": process}


# --- pools -----------------------------------------------------------------------------------------------------------


def pool(seed: int) -> Instance:
    """Two or three types of machines, three sizes of queries, a rate for one to twenty machines."""
    rng = random.Random(f"pool {seed}")
    names = ["big", "middle", "small"][: rng.randint(2, 3)]
    base = [rng.uniform(4, 20)]
    base += [base[0] * rng.uniform(1.3, 2.0), base[0] * rng.uniform(2.0, 4.0)]
    slower = {name: rng.uniform(1.5, 3.0) ** number for number, name in enumerate(names)}
    price = {name: 1.0 / slower[name] * rng.uniform(0.6, 1.0) for name in names}
    shares = [0.6, 0.3, 0.1]
    deadline = base[2] * (1.2 + 3.8 * rng.random() ** 2)
    rate = rng.uniform(0.5, 12) * 1000.0 / sum(s * b for s, b in zip(shares, base, strict=True))
    sizes = [8, 16, 32]
    return Instance(
        f"pool {seed}",
        {
            "format": "hetplan/profile/1.0",
            "hardware": {name: {"kind": "gpu"} for name in names},
            "offers": {n: {"hardware": n, "price_per_hour": f"{price[n]:.3f}"} for n in names},
            "tasks": {"t": {}},
            "variants": {"m": {"task": "t", "runs": [{"hardware": n, "latency": n} for n in names]}},
            "tables": {
                n: {"quantity": "latency_ms", "axes": {"batch": sizes}, "mean": [round(b * slower[n], 3) for b in base]}
                for n in names
            },
        },
        {
            "format": "hetplan/slo/1.0",
            "apps": {
                "a": {
                    "model": "m",
                    "latency": {"p99_ms": round(deadline, 2)},
                    **_demand(rng, rate),
                    "mix": {"axes": ["batch"], "bins": [[size] for size in sizes], "share": shares},
                }
            },
        },
    )


def pool_wide(seed: int) -> Instance:
    """The same, with more percentiles, two limits, service times that vary, little stock, and other arrivals."""
    made, rng = pool(seed), random.Random(f"pool wide {seed}")
    app, drawn = made.slo["apps"]["a"], _varied(made.profile, rng, stated="mean")
    (limit_ms,), percentile = app["latency"].values(), rng.choice([50, 90, 95, 99, 99.9])
    app["latency"] = {f"p{percentile}_ms": limit_ms}
    if percentile > 50 and rng.random() < 0.3:
        app["latency"]["p50_ms"] = round(limit_ms * rng.uniform(0.5, 1.0), 2)
        drawn += ", two limits"
    if rng.random() < 0.3:
        scarce = rng.choice(sorted(made.profile["hardware"]))
        made.slo["limits"] = {"instances": {scarce: [0, rng.randint(0, 3)]}}
        drawn += f", little {scarce}"
    app["arrivals"] = dict(rng.choice(ARRIVALS))
    return replace(made, name=f"{made.name} wide, p{percentile}, {drawn}")


ARRIVALS = (
    {"process": "poisson"}, {"process": "gamma", "shape": 0.3}, {"process": "gamma", "shape": 3.0},
    {"process": "mmpp", "relative_rates": [0.5, 2.0], "stay_s": [4.0, 2.0]},
)  # fmt: skip


def _varied(profile: Json, rng: random.Random, *, stated: str) -> str:
    """Service times as they are, with a standard deviation (beside a mean), or with percentiles; what was drawn."""
    kind = rng.choice(["as they are", "std", "percentiles", "percentiles"])
    factor = rng.uniform(1.05, 1.5)
    for table in profile["tables"].values():
        times = table[stated]
        if kind == "std" and stated == "mean":
            table["std"] = [round(one * rng.uniform(0.05, 0.3), 3) for one in times]
        elif kind == "percentiles":
            middle = times if stated == "mean" else [one / factor for one in times]
            table["mean"] = [round(one, 3) for one in middle]
            table["p50"] = [round(0.98 * one, 3) for one in middle]
            table["p95"] = [round(factor * one, 3) for one in middle]
            table["p99"] = [round(factor**2 * one, 3) for one in middle]
    return kind


def pools_near(instance: Instance, plan: Plan | None) -> Iterator[Plan]:
    """Other counts: from the plan's down, one machine fewer or exchanged; from nothing, what a larger derate rents."""
    seen: set[tuple[tuple[str, int], ...]] = set()
    ways = [plan] if plan is not None else []
    if plan is None:
        outcomes = (_solved("pool", instance, sizing="fluid", derate=derate) for derate in (0.6, 0.4, 0.2))
        ways = [outcome.plan for outcome in outcomes if outcome.plan is not None]
        yield from ways
    kinds = list(instance.profile["offers"])
    for start in ways:
        counts = dict.fromkeys(kinds, 0) | {w.offer or w.hardware: w.count for w in start.workers}
        for less in kinds:
            for more in [None, *kinds]:
                other = dict(counts)
                other[less] -= 1
                if more is not None:
                    other[more] += 1
                key = tuple(sorted(other.items()))
                if other[less] < 0 or more == less or key in seen or not any(other.values()):
                    continue
                seen.add(key)
                price = instance.profile["offers"]
                if sum(float(price[k]["price_per_hour"]) * (other[k] - counts[k]) for k in kinds) >= 0:
                    continue
                found = hp.solve(
                    hp.Profile.model_validate(instance.profile),
                    instance.slo,
                    options={"counts": {k: n for k, n in other.items() if n}, "sizing": "fluid", "derate": 1.0},
                    formulation="pool-lp",
                )
                if found.plan is not None and found.exit_code == 0:
                    yield found.plan


# --- variants --------------------------------------------------------------------------------------------------------


def variants(seed: int) -> Instance:
    """One to three applications, each with two or three variants of its own, on machines paid by the instance.

    Of every other seed the tables have several batches, and the plan chooses among them.
    """
    rng = random.Random(f"variants {seed}")
    profile: Json = {
        "format": "hetplan/profile/1.0", "hardware": {"cpu": {"kind": "cpu"}, "gpu": {"kind": "gpu"}},
        "tasks": {"t": {}}, "variants": {}, "tables": {},
    }  # fmt: skip
    apps: Json = {}
    for number in range(rng.randint(1, 3)):
        fastest, most = 1e9, 0.0
        for k in range(rng.randint(2, 3)):
            name, batch = f"f{number}-v{k}", rng.choice([1, 1, 2, 4, 8])
            ms = rng.uniform(5, 40) * (1 + 0.5 * (batch - 1) * rng.uniform(0.4, 1.0))
            qps = 1000.0 * batch / ms
            fastest, most = min(fastest, ms), max(most, qps)
            profile["tables"][name] = {"quantity": "latency_ms", "axes": {"batch": [batch]}, "mean": [round(ms, 3)]}
            run = {"hardware": rng.choice(["cpu", "gpu"]), "latency": name, "at": {"batch": batch},
                   "saturation_qps": round(qps, 3), "price_per_hour": f"{qps * rng.uniform(0.6, 1.4) / 100:.3f}",
                   "needs": {}}  # fmt: skip
            if seed % 2:
                sizes, alone = [1, 4, 8, 16][: rng.randint(2, 4)], rng.uniform(0.3, 0.9)
                means = [ms / batch * (alone + (1.0 - alone) * size) for size in sizes]
                profile["tables"][name] |= {"axes": {"batch": sizes}, "mean": [round(one, 3) for one in means]}
                fastest, most = min(fastest, means[0]), max(most, 1000.0 * sizes[-1] / means[-1])
                price = f"{sizes[-1] / means[-1] * rng.uniform(6.0, 14.0):.3f}"
                run = {"hardware": run["hardware"], "latency": name, "price_per_hour": price, "needs": {}}
            profile["variants"][name] = {"task": "t", "family": f"f{number}", "runs": [run]}
        apps[f"a{number}"] = {
            "family": f"f{number}",
            "latency": {f"p{rng.choice([95, 99]):g}_ms": round(fastest * (1.2 + 3.8 * rng.random() ** 2), 2)},
            **_demand(rng, most * rng.uniform(0.3, 7.0)),
        }
    return Instance(f"variants {seed}", profile, {"format": "hetplan/slo/1.0", "change": {"slack": 1.0}, "apps": apps})


def variants_shared(seed: int) -> Instance:
    """The same, and each application may run all variants."""
    made = variants(seed)
    families = sorted({variant["family"] for variant in made.profile["variants"].values()})
    for app in made.slo["apps"].values():
        app["family"] = families
    return replace(made, name=f"{made.name} shared")


def variants_wide(seed: int) -> Instance:
    """The same, with more percentiles, second limits, times that vary, the network's hop, and cards that are shared.

    Of every other seed machines are paid whole, and hold so many instances as their parts have room for.
    """
    made, rng = variants(seed), random.Random(f"variants wide {seed}")
    drawn = _varied(made.profile, rng, stated="mean")
    for app in made.slo["apps"].values():
        (limit_ms,), percentile = app["latency"].values(), rng.choice([50, 90, 95, 99, 99.9])
        app["latency"] = {f"p{percentile}_ms": limit_ms}
        if percentile > 50 and rng.random() < 0.3:
            app["latency"]["p50_ms"] = round(limit_ms * rng.uniform(0.6, 1.0), 2)
            drawn += ", two limits"
        if rng.random() < 0.3:
            app["network_ms_per_hop"] = hop = round(rng.uniform(0.5, 20.0), 2)
            app["latency"] = {key: round(ms + hop, 2) for key, ms in app["latency"].items()}
            drawn += ", a hop"
        app["arrivals"] = dict(rng.choice(ARRIVALS))
        drawn += f", p{percentile}"
    if rng.random() < 0.5:
        _paid_whole(made.profile, rng)
        drawn += ", whole machines"
    return replace(made, name=f"{made.name} wide, {drawn}")


def _paid_whole(profile: Json, rng: random.Random) -> None:
    """Machines with two offers each, on which an instance takes a part."""
    for name in profile["hardware"]:
        profile["hardware"][name] |= {"provides": {"part": 1}, "startup_s": 30}
    shares, hourly = {}, {name: [0.0] for name in profile["hardware"]}
    for name, variant in profile["variants"].items():
        run = variant["runs"][0]
        shares[name] = rng.choice([0.125, 0.25, 0.5, 1.0])
        hourly[run["hardware"]].append(float(run.pop("price_per_hour")) / shares[name])
        run["needs"] = {"part": shares[name]}
    whole = {name: max(statistics.median(prices), 0.01) for name, prices in hourly.items()}
    profile["offers"] = {
        f"{name}{suffix}": {"hardware": name, "price_per_hour": f"{factor * whole[name]:.3f}"}
        for name in whole for suffix, factor in (("", 1.0), ("-dear", 1.2))
    }  # fmt: skip


def variants_near(instance: Instance, plan: Plan | None) -> Iterator[Plan]:
    """What is left of the plan without one or two of its instances; then the fluid plans of other loads.

    Those are of one application's load at a time: each rents a little more or less for it.
    """
    if plan is not None:
        fewer = list(_without_one(instance, plan))
        yield from fewer
        for one in fewer:
            yield from _without_one(instance, one)
    scale = dict.fromkeys(instance.slo["apps"], 1.0)

    def made() -> Plan | None:
        slo = deepcopy(instance.slo)
        for name, factor in scale.items():
            slo["apps"][name]["rate_qps"] *= factor
        outcome = hp.solve(
            hp.Profile.model_validate(instance.profile), slo, options={"sizing": "fluid"}, formulation="variants"
        )
        return outcome.plan

    for factor in (1.0, 1.15, 1.3, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0):
        scale = dict.fromkeys(scale, factor)
        whole = made()
        if whole is not None:
            yield whole
        for name in scale if len(scale) > 1 else ():
            scale = {**dict.fromkeys(scale, factor), name: max(1.0, 0.8 * factor)}
            less = made()
            if less is not None:
                yield less


def _without_one(instance: Instance, plan: Plan) -> Iterator[Plan]:
    """The plan without one instance of a group; without the group where that was its only one, if others serve too."""
    cost = next(one for one in plan.promises if one.quantity == "cost_per_hour")
    for worker in plan.workers:
        if not worker.loads:
            continue
        names = {load.id for load in worker.loads}
        routing = plan.routing
        if worker.count > 1:
            left = worker.model_copy(update={"count": worker.count - 1})
            workers = tuple(left if one.id == worker.id else one for one in plan.workers)
        else:
            workers = tuple(one for one in plan.workers if one.id != worker.id)
            others = [[(to, share) for to, share in route.to.items() if to not in names]
                      for routes in plan.routing.values() for route in routes]  # fmt: skip
            if not all(sum(share for _, share in to) > 0 for to in others):
                continue
            spread = iter({name: share / sum(part for _, part in to) for name, share in to} for to in others)
            routing = {app: tuple(route.model_copy(update={"to": next(spread)}) for route in routes)
                       for app, routes in plan.routing.items()}  # fmt: skip
        runs = [instance.profile["variants"][load.variant]["runs"][0] for load in worker.loads]
        if all("price_per_hour" in run for run in runs):
            saved = sum(n.instances * float(run["price_per_hour"]) for n, run in zip(worker.loads, runs, strict=True))
        else:
            saved = float(instance.profile["offers"][worker.offer]["price_per_hour"])
        cheaper = cost.model_copy(update={"value": cost.value - saved})
        promises = tuple(cheaper if one is cost else one for one in plan.promises)
        yield plan.model_copy(update={"workers": workers, "routing": routing, "promises": promises, "actions": ()})


# --- policies --------------------------------------------------------------------------------------------------------


def policy(seed: int) -> Instance:
    """Two to four models, one to twenty workers, a load that some of the models carry."""
    rng = random.Random(f"policy {seed}")
    workers = rng.choice([1, 2, 3, 5, 8, 12, 20])
    models, fastest = {}, rng.uniform(5, 20)
    for number in range(rng.randint(2, 4)):
        one = fastest * 1.7**number * rng.uniform(0.9, 1.1)
        step = rng.uniform(0.3, 0.8) * one
        table = [round(one + step * (b - 1), 3) for b in (1, 2, 4, 8)]
        models[f"m{number}"] = (round(0.5 + 0.12 * number + rng.uniform(0, 0.03), 4), table)
    deadline = models["m0"][1][0] * (1.2 + 3.8 * rng.random() ** 2)
    shape = rng.choice([1.0, 1.0, 0.5]) if workers >= 2 else 1.0
    bursts = rng.random() < 0.3
    rate = workers * 1000.0 / models["m0"][1][0] * rng.uniform(0.2, 0.75)
    arrivals: Json = {"process": "poisson"} if shape == 1.0 else {"process": "gamma", "shape": shape}
    arrivals = dict(BURSTY[1]) if bursts else arrivals
    return Instance(
        f"policy {seed}",
        {
            "format": "hetplan/profile/1.0", "hardware": {"w": {"kind": "cpu"}}, "tasks": {"t": {}},
            "variants": {
                name: {"task": "t", "quality": {"value": accuracy}, "runs": [{"hardware": "w", "latency": name}]}
                for name, (accuracy, _) in models.items()
            },
            "tables": {
                name: {"quantity": "latency_ms", "axes": {"batch": [1, 2, 4, 8]}, "p95": table}
                for name, (_, table) in models.items()
            },
        },
        {
            "format": "hetplan/slo/1.0", "objective": ["max goodput"],
            "limits": {"instances": {"w": [workers] * 2}},
            "apps": {
                "a": {
                    "task": "t", "latency": {"p99_ms": round(deadline, 2)},
                    "dispatch": "round-robin", "late": "serve",
                    "rate_qps": round(rate, 3), "arrivals": arrivals,
                }
            },
        },
        {"queue_max": 12, "grid": "union{50}", "queries": 100_000},
    )  # fmt: skip


def policy_wide(seed: int) -> Instance:
    """The same, with more percentiles and other ways of balancing; late queries may be dropped."""
    made, rng = policy(seed), random.Random(f"policy wide {seed}")
    app, drawn = made.slo["apps"]["a"], _varied(made.profile, rng, stated="p95")
    (limit_ms,), percentile = app["latency"].values(), rng.choice([50, 90, 95, 99, 99.9])
    app["latency"] = {f"p{percentile}_ms": round(limit_ms * rng.uniform(1.0, 2.0), 2)}
    app["late"], app["dispatch"] = rng.choice(["serve", "drop"]), rng.choice(BALANCING)
    if app["dispatch"] is None:
        app.pop("dispatch")
    app["rate_qps"] = round(app["rate_qps"] * rng.uniform(0.5, 1.0), 3)
    drawn = f"{drawn}, {app['late']}, {app.get('dispatch', 'any load balancer')}"
    return replace(made, name=f"{made.name} wide, p{percentile}, {drawn}")


BALANCING = ("round-robin", "shortest-queue", "random", None)


def policies_near(instance: Instance, plan: Plan | None) -> Iterator[Plan]:
    """Tables of either kind of batches, for the load and for more."""
    del plan
    for batching in ("max", "variable"):
        outcome = _solved("policy", instance, sizing="simulation", batching=batching)
        if outcome.plan is not None and outcome.exit_code == 0:
            yield outcome.plan


QUESTIONS = {
    "pool": Question(pool, pools_near, "cost_per_hour"),
    "variants": Question(variants, variants_near, "cost_per_hour"),
    "policy": Question(policy, policies_near, "goodput", noise="p95"),
    "pool-wide": Question(pool_wide, pools_near, "cost_per_hour"),
    "variants-wide": Question(variants_wide, variants_near, "cost_per_hour"),
    "variants-shared": Question(variants_shared, variants_near, "cost_per_hour"),
    "policy-wide": Question(policy_wide, policies_near, "goodput", noise="p95"),
}
"""Question -> how its instances are drawn and searched."""


def main() -> None:
    """Judge so many instances of each question, and print what came of them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--questions", default=",".join(QUESTIONS))
    parser.add_argument("--instances", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-search", action="store_true")
    parser.add_argument("--each", action="store_true", help="a line per instance")
    given = parser.parse_args()
    for name in given.questions.split(","):
        found = []
        for seed in range(given.seed, given.seed + given.instances):
            found.append(judge(name, QUESTIONS[name].make(seed), search=not given.no_search))
            if given.each:
                print(found[-1], flush=True)
        print(report(name, found))


def report(name: str, found: list[Judged]) -> str:
    """One line per question."""
    plans = [one for one in found if one.kept is not None]
    ratios = [one.ratio for one in plans if one.ratio is not None]
    missed = [one.instance for one in found if one.kept is None and one.found]
    broken = [one.instance for one in plans if not one.kept]
    cost = f"cost / cheapest found: median {statistics.median(ratios):.3f}, worst {max(ratios):.3f}; " if ratios else ""
    return (
        f"{name}: {len(found)} instances, {sum(not one.planned_kept for one in found)} break their wish as planned; "
        f"default: {len(plans)} plans, {sum(bool(one.kept) for one in plans)} kept; {cost}"
        f"none found where the search finds one: {len(missed)}; "
        f"CPU s per solve: median {statistics.median(one.seconds for one in found):.2f}, "
        f"worst {max(one.seconds for one in found):.2f}"
        + (f"; broken: {', '.join(broken)}" if broken else "") + (f"; missed: {', '.join(missed)}" if missed else "")
    )  # fmt: skip


if __name__ == "__main__":
    main()
