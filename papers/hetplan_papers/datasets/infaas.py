"""INFaaS (ATC 2021): choosing variants of a model for a load; the paper's tables as profile, SLO and state.

Money is per second there, per hour here. `one_wish` is the shape that the seeded generator (`infaas_generator`) shares.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path

from hetplan_papers.datasets.sources import DATA, Json, as_id, read

__all__ = ["architectures", "published", "snapshot", "table2", "workers"]

SECONDS = 3600
HARDWARE = {"4 CPUs": "cpu", "1 Inferentia core": "inferentia", "1 V100 GPU": "gpu"}
KINDS = {"m5.2xlarge": "cpu", "p3.2xlarge": "gpu", "inf1.2xlarge": "inferentia"}
METRICS = {
    "top1_percent_ImageNet": ("top1", {"better": "higher", "range": [0, 1], "kind": "bernoulli"}, 0.01),
    "BLEU_WMT16_EN_DE": ("bleu", {"better": "higher", "range": [0, 100], "unit": "BLEU"}, 1.0),
}


def per_hour(cost_per_s: float) -> str:
    """Money per second as money per hour, exactly."""
    return str(Decimal(repr(cost_per_s)) * SECONDS)


def snapshot(
    variants: Mapping[str, Json],
    apps: Mapping[str, Json],
    *,
    hardware: Mapping[str, Json],
    running: Mapping[str, int],
    limits: Json | None = None,
    change: Json | None = None,
    offers: Json | None = None,
    hosts: Json | None = None,
) -> tuple[Json, Json, Json]:
    """Profile, SLO and state. A variant: task, family, quality (or None), hardware, latency_ms, saturation_qps,
    cost_per_s, load_s, batch, needs. What runs is a group per variant, on machines that nothing is said of."""
    profile: Json = {
        "format": "hetplan/profile/1.0",
        "hardware": dict(hardware),
        "offers": offers or {},
        "hosts": hosts or {},
        "tasks": {task: {} for task in sorted({variant["task"] for variant in variants.values()})},
        "variants": {},
        "tables": {},
    }
    for name, variant in variants.items():
        profile["tables"][f"t-{name}"] = {
            "quantity": "latency_ms",
            "axes": {"batch": [variant["batch"]]},
            "mean": [variant["latency_ms"]],
        }
        run = {
            "hardware": variant["hardware"],
            "latency": f"t-{name}",
            "at": {"batch": variant["batch"]},
            "load_s": variant["load_s"],
            "saturation_qps": variant["saturation_qps"],
            "price_per_hour": per_hour(variant["cost_per_s"]),
            "needs": variant["needs"],
        }
        profile["variants"][name] = {"task": variant["task"], "family": variant["family"], "runs": [run]}
        if variant.get("quality") is not None:
            profile["variants"][name]["quality"] = {"value": variant["quality"]}
    slo: Json = {
        "format": "hetplan/slo/1.0",
        "objective": ["min cost"],
        "limits": limits or {},
        "change": change or {},
        "apps": dict(apps),
    }
    groups = [
        {
            "id": f"r-{name}",
            "hardware": variants[name]["hardware"],
            "count": count,
            "loads": [{"id": f"r-{name}.a", "variant": name, "serve": {"max_batch": variants[name]["batch"]}}],
        }
        for name, count in running.items()
        if count > 0
    ]
    return profile, slo, {"format": "hetplan/state/1.0", "workers": groups}


def app(load_qps: float, slo_ms: float, families: Sequence[str], *, least_quality: float | None = None) -> Json:
    """One application: so many queries per second, each within the time, by variants of these architectures."""
    wish: Json = {
        "family": list(families),
        "latency": {"p99_ms": slo_ms},
        "rate_qps": load_qps,
    }
    return wish if least_quality is None else {**wish, "quality": {"min": least_quality}}


def table2(
    qps: float | Mapping[str, float],
    slo_ms: float,
    *,
    slack: float = 1.05,
    slack_qps: float | None = None,
    weight_per_s: float = 0.0,
    load_s: Sequence[float] = (0.0, 0.0, 0.0),
    running: Mapping[str, int] | None = None,
    needs: Mapping[str, Mapping[str, float]] | None = None,
    resources: Mapping[str, float] | None = None,
    data: Path = DATA,
) -> tuple[Json, Json, Json]:
    """The three variants of ResNet50 of Table 2 (a, b, c); `qps` may name several applications."""
    rows = read("infaas/infaas.json", data)["table2_resnet50"]
    variants = {
        as_id(row["variant"]): {
            "task": "classification",
            "family": "resnet50",
            "hardware": HARDWARE[row["hardware"]],
            "latency_ms": row["latency_ms"],
            "saturation_qps": row["saturation_qps"],
            "cost_per_s": row["cost_per_s"],
            "load_s": seconds,
            "batch": 1,
            "needs": dict((needs or {}).get(as_id(row["variant"]), {})),
        }
        for row, seconds in zip(rows, load_s, strict=True)
    }
    loads = dict(qps) if isinstance(qps, Mapping) else {"images": qps}
    return snapshot(
        variants,
        {name: app(load, slo_ms, ["resnet50"]) for name, load in loads.items()},
        hardware={name: {"kind": name} for name in HARDWARE.values()},
        running=running or {},
        limits={"capacity": dict(resources)} if resources is not None else {},
        change={"slack": slack, "load_weight_per_s": weight_per_s}
        | ({} if slack_qps is None else {"slack_qps": slack_qps}),
    )


def architectures(*, data: Path = DATA) -> Json:
    """Table 8 as a profile: one variant per architecture with its quality, never timed; percent become fractions."""
    profile: Json = {"format": "hetplan/profile/1.0", "metrics": {}, "tasks": {}, "variants": {}}
    for row in read("infaas/infaas.json", data)["table8_architectures"]:
        name, metric, unit = METRICS[row["metric"]]
        profile["metrics"][name] = metric
        profile["tasks"][row["task"]] = {"metric": name}
        profile["variants"][as_id(row["name"])] = {
            "task": row["task"],
            "family": as_id(row["family"]),
            "quality": {"value": row["accuracy"] * unit},
        }
    return profile


def workers(*, data: Path = DATA) -> Json:
    """The paper's worker types as hardware."""
    facts = read("infaas/infaas.json", data)
    startup = facts["parameters"]["vm_startup_s"][1]
    hardware: Json = {}
    for name, worker in facts["worker_types"].items():
        provides = {
            ours: float(worker[theirs])
            for theirs, ours in {
                "cpu_cores": "cpu_cores",
                "cpu_mem_gib": "cpu_mem_gib",
                "gpus": "gpu_share",
                "gpu_mem_gib": "gpu_mem_gib",
                "inf_cores": "inf_cores",
            }.items()
            if theirs in worker
        }
        hardware[name] = {"kind": KINDS[name], "startup_s": startup, "provides": provides}
    return {"format": "hetplan/profile/1.0", "hardware": hardware}


def published(profile: Json, slo: Json, state: Json) -> Json:
    """What the question uses, in the paper's units: per variant T, Q, C, Tl, R, N; loads, targets, slack, lambda."""
    running = {load["variant"]: group["count"] for group in state["workers"] for load in group["loads"]}
    variants = {}
    for name, variant in profile["variants"].items():
        (run,) = variant["runs"]
        table = profile["tables"][run["latency"]]
        variants[name] = {
            "family": variant["family"],
            "hardware": run["hardware"],
            "batch": table["axes"]["batch"][0],
            "latency_ms": table["mean"][0],
            "saturation_qps": run["saturation_qps"],
            "cost_per_s": float(Decimal(run["price_per_hour"]) / SECONDS),
            "load_s": run["load_s"],
            "needs": run["needs"],
            "quality": variant.get("quality", {}).get("value"),
            "running": running.get(name, 0),
        }
    apps = {
        name: {
            "load_qps": one["rate_qps"],
            "slo_ms": one["latency"]["p99_ms"],
            "families": one["family"],
            "least_quality": one.get("quality", {}).get("min"),
        }
        for name, one in slo["apps"].items()
    }
    return {
        "variants": variants,
        "apps": apps,
        "slack": slo["change"]["slack"],
        "lambda": slo["change"]["load_weight_per_s"],
        "resources": slo["limits"].get("capacity"),
    }
