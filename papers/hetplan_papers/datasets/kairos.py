"""Kairos (HPDC 2023): one recommendation model on a rented pool of four instance types.

`inputs` gives profile and SLO, `published` the numbers back out of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from hetplan_papers.datasets.sources import DATA, Json, read

__all__ = ["MODELS", "inputs", "one_model", "published"]

MODELS = ("ncf", "rm2", "wnd", "mtwnd", "dien")
STATISTICS = {"mean_ms": "mean", "std_ms": "std", "p50_ms": "p50", "p99_ms": "p99", "max_ms": "max"}
COUNTS = "n_samples"


def one_model(
    model: str,
    latency: Mapping[str, Json],
    *,
    types: Sequence[str],
    prices: Mapping[str, float],
    mix: Json,
    qos_ms: float,
    budget: str | None,
    target_qps: float | None,
    most: Mapping[str, int] | None,
    cite: str,
) -> tuple[Json, Json]:
    """Profile and SLO of one model on these instance types; `mix` has `batch` and `pmf`."""
    profile: Json = {
        "format": "hetplan/profile/1.0",
        "sources": {"published": {"kind": "published", "cite": cite}},
        "hardware": {name: {"kind": "gpu" if name[0] in "gp" else "cpu"} for name in types},
        "offers": {
            f"{name}": {"hardware": name, "price_per_hour": str(prices[name]), "currency": "USD"} for name in types
        },
        "tasks": {"recommend": {}},
        "variants": {
            model: {"task": "recommend", "runs": [{"hardware": name, "latency": f"{model}-{name}"} for name in types]}
        },
        "tables": {
            f"{model}-{name}": {
                "quantity": "latency_ms",
                "axes": {"batch": latency[name]["batch"]},
                **{ours: latency[name][theirs] for theirs, ours in STATISTICS.items()},
                "samples": latency[name][COUNTS],
                "source": "published",
            }
            for name in types
        },
    }
    limits: Json = {"currency": "USD"}
    if budget is not None:
        limits["cost_per_hour"] = budget
    if most is not None:
        limits["instances"] = {name: [0, count] for name, count in most.items()}
    app: Json = {
        "model": model,
        "latency": {"p99_ms": qos_ms},
        "rate_qps": "max" if target_qps is None else target_qps,
        "mix": {"axes": ["batch"], "bins": [[size] for size in mix["batch"]], "share": mix["pmf"]},
    }
    objective = ["max rate"] if target_qps is None else ["min cost"]
    return profile, {"format": "hetplan/slo/1.0", "objective": objective, "limits": limits, "apps": {"rank": app}}


def inputs(
    model: str,
    *,
    budget: str | None = "2.5",
    target_qps: float | None = None,
    qos_ms: float | None = None,
    most: Mapping[str, int] | None = None,
    data: Path = DATA,
) -> tuple[Json, Json]:
    """One of the five models: the most rate for a budget, or (`target_qps`) the least cost for a rate.

    The published allocator's own profile of the model (`kairos_allocator_profile.json`) goes along under `extensions`.
    """
    instance = read("kairos/kairos_instance.json", data)
    profile, slo = one_model(
        model,
        read("kairos/kairos_latency.json", data)[model],
        types=instance["types"],
        prices=instance["prices"],
        mix=read("kairos/batch_size_pmf.json", data)["kairos"],
        qos_ms=instance["qos_ms_p99"][model] if qos_ms is None else qos_ms,
        budget=budget if target_qps is None else None,
        target_qps=target_qps,
        most=most,
        cite="Kairos, HPDC 2023, published code and data",
    )
    allocator = read("kairos/kairos_allocator_profile.json", data)[model]
    profile["extensions"] = {"kairos": {"base_type": instance["base_type"], "allocator_profile": allocator}}
    return profile, slo


def published(profile: Json, slo: Json) -> Json:
    """What the questions use, in the published files' own shape: latency, prices, mix, target, budget, rate, limits."""
    ((model, variant),) = profile["variants"].items()
    (app,) = slo["apps"].values()
    latency = {}
    for run in variant["runs"]:
        table = profile["tables"][run["latency"]]
        latency[run["hardware"]] = {
            "batch": table["axes"]["batch"],
            **{theirs: table[ours] for theirs, ours in STATISTICS.items()},
            COUNTS: table["samples"],
        }
    mix, rate = app["mix"], app["rate_qps"]
    budget = slo["limits"].get("cost_per_hour")
    return {
        "model": model,
        "latency": latency,
        "prices": {offer["hardware"]: float(offer["price_per_hour"]) for offer in profile["offers"].values()},
        "mix": {"batch": [int(size) for (size,) in mix["bins"]], "pmf": mix["share"]},
        "qos_ms": app["latency"]["p99_ms"],
        "budget": None if budget is None else float(budget),
        "target_qps": None if rate == "max" else rate,
        "max_num": {name: most for name, (_, most) in slo["limits"].get("instances", {}).items()},
        **profile.get("extensions", {}).get("kairos", {}),
    }
