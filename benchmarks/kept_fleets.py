"""Do default fleets keep their word in every hour and after every failure?

    python benchmarks/kept_fleets.py [--instances 20] [--seed 0] [--load-s 40] [--text]

Random fleets: one to three applications (pools of ranked lists, classifiers of one or several variants, two-step
pipelines), two or three zones, on demand and spot, three periods; a zone, or all spot, may be lost with all or most of
the queries kept. With `--text`: one application that makes text, as `kept_text.py` draws them, in two zones. Each
default plan is played, every period and every failure, on seeds that it has not seen.
"""

from __future__ import annotations

import argparse
import random
import time
from typing import Any

import kept_text

import hetplan as hp
from hetplan.simulator.day import HowPlayed, play_day

__all__ = ["files", "judged", "text_files"]

UNSEEN = 9_000_011
SIZES = (8, 32, 128)
BATCHES = (1, 4, 8)


def files(seed: int, load_s: float = 0.0) -> tuple[dict[str, Any], dict[str, Any]]:
    """Profile and SLO of a fleet, for each seed one of its own; each variant is loaded in so many seconds."""
    rng = random.Random(f"fleet {seed}")
    zones = [f"z{n}" for n in range(rng.randint(2, 3))]
    types = {name: rng.uniform(0.2, 1.2) for name in ("big", "small")[: rng.randint(1, 2)]}
    profile: dict[str, Any] = {
        "format": "hetplan/profile/1.0",
        "metrics": {"top1": {"better": "higher", "range": [0, 1], "kind": "bernoulli"}},
        "hardware": {name: {"kind": "gpu", "startup_s": 60} for name in types},
        "zones": {zone: {} for zone in zones}, "offers": {}, "tasks": {}, "variants": {}, "tables": {}, "pipelines": {},
    }  # fmt: skip
    for name, price in types.items():
        for zone in zones:
            sold = {"hardware": name, "zone": zone}
            profile["offers"][f"{name}-{zone}"] = {**sold, "price_per_hour": f"{price:.3f}"}
            spot = {"price_per_hour": f"{0.4 * price:.3f}", "interruptions_per_hour": 0.05}
            profile["offers"][f"{name}-{zone}-spot"] = {**sold, **spot}
    apps = {}
    for number in range(rng.randint(1, 3)):
        kind = rng.choice(("pool", "variants", "variants", "pipeline"))
        apps[f"app{number}"] = _app(rng, kind, f"app{number}", profile, list(types))
    for run in (run for variant in profile["variants"].values() for run in variant["runs"] if load_s):
        run["load_s"] = load_s
    survive = rng.choice(({"zones": 1}, {"zones": 1, "spot": "all"}, {"spot": "all"}))
    slo = {
        "format": "hetplan/slo/1.0",
        "limits": {"survive": {**survive, "serve": rng.choice((0.8, 1.0))}},
        "horizon": {"period_s": 3600, "periods": 3},
        "apps": apps,
    }
    return profile, slo


def text_files(seed: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Profile and SLO of a fleet that makes text, for each seed one of its own."""
    rng = random.Random(f"textfleet {seed}")
    drawn = kept_text.case(seed)
    app, zones, offers = drawn.slo["apps"]["chat"], ("z0", "z1"), dict[str, Any]()
    peak = app["rate_qps"]
    app["rate_qps"] = {"series": [round(peak * share, 2) for share in rng.sample((0.3, 0.6, 1.0), 3)]}
    for name, offer in drawn.profile["offers"].items():
        spot = f"{0.4 * float(offer['price_per_hour']):.3f}"
        for zone in zones:
            offers[f"{name}-{zone}"] = {**offer, "zone": zone}
            offers[f"{name}-{zone}-spot"] = {
                **offer, "zone": zone, "price_per_hour": spot, "interruptions_per_hour": 0.05
            }  # fmt: skip
    hardware = {name: {**one, "startup_s": 60} for name, one in drawn.profile["hardware"].items()}
    more = {"format": "hetplan/profile/1.0", "zones": {zone: {} for zone in zones}}
    survive = rng.choice(({"zones": 1}, {"zones": 1, "spot": "all"}, {"spot": "all"}))
    slo = {
        "format": "hetplan/slo/1.0",
        "limits": {"survive": {**survive, "serve": rng.choice((0.8, 1.0))}},
        "horizon": {"period_s": 3600, "periods": 3},
        "apps": {"chat": {**app, "question": "llm"}},
    }
    return {**drawn.profile, **more, "offers": offers, "hardware": hardware}, slo


def _app(rng: random.Random, kind: str, name: str, profile: dict[str, Any], types: list[str]) -> dict[str, Any]:
    """An application of a question; its tables go into the profile."""
    fastest = rng.uniform(5, 25)
    slower = {one: 1.0 if number == 0 else rng.uniform(1.3, 3.0) for number, one in enumerate(types)}
    peak = rng.uniform(1, 8) * 1000.0 / fastest
    series = [round(peak * share, 1) for share in rng.sample((0.3, 0.6, 1.0), 3)]
    limit = round(fastest * rng.uniform(2.0, 8.0), 1)
    wish: dict[str, Any] = {
        "question": kind, "latency": {"p99_ms": limit}, "rate_qps": {"series": series},
    }  # fmt: skip

    def variant(task: str, model: str, ms: float, axis: str, sizes: tuple[int, ...], **more: Any) -> None:
        grown = [ms * (0.6 + 0.4 * size / sizes[0]) for size in sizes] if axis == "batch" else [ms]
        for one in types:
            means = [round(slower[one] * value, 3) for value in grown]
            profile["tables"][f"{model}-{one}"] = {"quantity": "latency_ms", "axes": {axis: list(sizes)}, "mean": means}
        runs = [{"hardware": one, "latency": f"{model}-{one}"} for one in types]
        profile["variants"][model] = {"task": task, "runs": runs, **more}

    def task(of: str) -> str:
        profile["tasks"][of] = {"metric": "top1"}
        return of

    if kind == "pool":
        variant(task(f"{name}-rank"), f"{name}-net", fastest * 0.4, "batch", SIZES)
        weights = [rng.uniform(0.2, 1.0) for _ in SIZES]
        wish["mix"] = {
            "axes": ["batch"], "bins": [[size] for size in SIZES], "share": [w / sum(weights) for w in weights],
        }  # fmt: skip
        wish["latency"]["p99_ms"] = round(limit * 3.0 * max(slower.values()), 1)
        wish["rate_qps"] = {"series": [round(rate * 0.3, 1) for rate in series]}
        wish["model"] = f"{name}-net"
    elif kind == "variants":
        several = rng.randint(1, 2)
        for n in range(several):
            quality = {"quality": {"value": round(0.7 + 0.1 * n, 2)}}
            variant(task(f"{name}-see"), f"{name}-net{n}", fastest * 1.6**n, "batch", BATCHES, **quality)
        wish["models"] = [f"{name}-net{n}" for n in range(several)]
        wish["latency"]["p99_ms"] = round(fastest * 1.6 * rng.uniform(1.3, 6.0), 1)
    else:
        for step in ("find", "name"):
            for n in range(2):
                quality = {"quality": {"value": round(0.75 + 0.15 * n, 2)}}
                variant(
                    task(f"{name}-{step}"), f"{name}-{step}{n}", fastest * 0.5 * 1.7**n, "batch", BATCHES, **quality
                )
        profile["pipelines"][name] = {
            "nodes": {step: {"task": f"{name}-{step}"} for step in ("find", "name")},
            "edges": [{"from": "find", "to": "name", "fanout": 1.5}],
        }
        wish["pipeline"] = name
        wish["quality"] = {"min": 0.6}
    return wish


def judged(seed: int, load_s: float = 0.0, *, text: bool = False) -> dict[str, Any]:
    """Plan a fleet with the defaults, and play it on fresh seeds."""
    profile, slo = text_files(seed) if text else files(seed, load_s)
    began = time.process_time()
    known = hp.Profile.model_validate(profile)
    outcome = hp.solve(known, slo, options={"savings": False})
    said: dict[str, Any] = {
        "seed": seed, "questions": [app["question"] for app in slo["apps"].values()],
        "survive": slo["limits"]["survive"], "status": outcome.status,
        "cpu_s": round(time.process_time() - began, 1),
    }  # fmt: skip
    if outcome.plan is None or outcome.exit_code != 0:
        return said | {"code": outcome.exit_code, "why": outcome.reason}
    report = play_day(outcome.plan, hp.load(known, slo), HowPlayed(seeds=3, seed=UNSEEN, queries=4e5))
    verified = hp.verify(outcome.plan, known, slo)
    cost = outcome.plan.claims[0].value
    return said | {"cost": round(cost or 0.0, 3), "verified": verified.ok, "broken": report.broken}


def main() -> None:
    """A line for each fleet, and how many kept their word."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--instances", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--load-s", type=float, default=0.0, help="seconds that a variant takes to load")
    parser.add_argument("--text", action="store_true", help="fleets that make text")
    given = parser.parse_args()
    found = []
    for seed in range(given.seed, given.seed + given.instances):
        found.append(judged(seed, given.load_s, text=given.text))
        print(found[-1], flush=True)
    plans = [one for one in found if "broken" in one]
    kept, verified = sum(not one["broken"] for one in plans), sum(one["verified"] for one in plans)
    print(f"{len(found)} fleets, {len(plans)} plans, {kept} kept in every hour and failure, {verified} verified")


if __name__ == "__main__":
    main()
