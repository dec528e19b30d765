"""Random files of every question that ask for too much: too fast, too cheap, too many, too good, or all at once."""

from __future__ import annotations

import random
from typing import Any

from cases import pipelines, policy, pool, random_variants

Json = dict[str, Any]

__all__ = ["QUESTIONS", "asked"]

QUESTIONS = ("pool", "pipeline", "variants", "policy", "compound")


def asked(question: str, seed: int) -> tuple[Json, Json, Json | None, Json]:
    """Profile, SLO, state and options."""
    made: tuple[Json, Json, Json | None, Json] = {
        "pool": _pool, "pipeline": _pipeline, "variants": _variants, "policy": _policy, "compound": _compound,
    }[question](random.Random(f"{question}{seed}"), seed)  # fmt: skip
    return made


def _pool(chance: random.Random, seed: int) -> tuple[Json, Json, None, Json]:
    names = ["a", "b", "c"][: chance.randint(1, 3)]
    bins = chance.randint(1, 4)
    latency = {
        name: sorted(round(chance.uniform(5, 200) * (k + 1) / bins, 2) for k in range(bins)) for name in names
    }  # fmt: skip
    share = [1.0 / bins] * bins
    instances = {name: [0, chance.choice([0, 1, 2, 5, None])] for name in names if chance.random() < 0.6}
    if chance.random() < 0.3:
        instances[names[0]] = [2, None]
    stock = {name: chance.choice([0, 1, 3]) for name in names if chance.random() < 0.3}
    rate = chance.choice([None, 20.0, 150.0, 900.0])
    profile, slo = pool.files(
        latency, share, prices={name: round(chance.uniform(0.1, 2), 3) for name in names},
        qos_ms=round(chance.uniform(20, 150), 1), budget=chance.choice([0.05, 0.5, 2, 5]) if rate is None else None,
        rate_qps=rate, instances=instances, stock=stock,
    )  # fmt: skip
    return profile, slo, None, {}


def _pipeline(chance: random.Random, seed: int) -> tuple[Json, Json, None, Json]:
    profile, slo = pipelines.random_pipeline(seed, gpus=chance.randint(1, 2), tasks=3)
    app = slo["apps"]["x"]
    if chance.random() < 0.5:
        app["latency"]["p99_ms"] = round(chance.uniform(5, 80), 1)
    if chance.random() < 0.5:
        app["rate_qps"] *= 10
    if chance.random() < 0.4:
        app["quality"] = {"min": round(chance.uniform(0.3, 0.99), 3)}
    if chance.random() < 0.4:
        profile["offers"] = {name: {"hardware": name, "price_per_hour": "1.3"} for name in profile["hardware"]}
        slo["limits"]["cost_per_hour"] = str(chance.choice([0.5, 2, 5, 8]))
    return profile, slo, None, {"sizing": "fluid"}


def _variants(chance: random.Random, seed: int) -> tuple[Json, Json, Json, Json]:
    profile, slo, state = random_variants.random_snapshot(seed)
    for app in slo["apps"].values():
        rate = app.get("rate_qps")
        if isinstance(rate, int | float) and chance.random() < 0.5:
            app["rate_qps"] = rate * chance.choice([3, 10])
        if chance.random() < 0.2 and app.get("latency"):
            app["latency"]["p99_ms"] = round(chance.uniform(1, 30), 1)
    return profile, slo, state, {"sizing": "fluid"}


def _policy(chance: random.Random, seed: int) -> tuple[Json, Json, None, Json]:
    profile, slo = policy.files(
        slo_ms=chance.choice([4.0, 30.0, 60.0]), rate_qps=chance.choice([50.0, 150.0, 400.0]),
        workers=(1, chance.choice([1, 2])), quality={"min": chance.choice([0.6, 0.7, 0.9])},
    )  # fmt: skip
    slo["objective"] = []
    return profile, slo, None, {}


def _compound(chance: random.Random, seed: int) -> tuple[Json, Json, None, Json]:
    kinds = ["x", "y"]
    apps = {
        f"q{n}": {
            "streams": 1,
            "candidates": [
                {"demand": {kind: round(chance.uniform(0, 1), 3) for kind in kinds},
                 "price_per_hour": str(round(chance.uniform(0, 2), 2))}
                for _ in range(chance.randint(1, 3))
            ],
        }
        for n in range(chance.randint(1, 6))
    }  # fmt: skip
    limits = {"capacity": {kind: round(chance.uniform(0.1, 1.5), 2) for kind in kinds}}
    slo = {"format": "hetplan/slo/1.0", "objective": ["min cost"], "limits": limits, "apps": apps}
    return {"format": "hetplan/profile/1.0"}, slo, None, {}
