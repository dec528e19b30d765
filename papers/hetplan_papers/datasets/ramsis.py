"""RAMSIS (EuroSys 2024): one task, many models per worker; image and text models timed on a 4-vCPU machine.

`repaired=True` takes the tables of the golden cases (p95, batches 1 to 33, in microseconds there), else the published
measurements, with the batch sizes that were timed. Accuracies are percent in the measurements, fractions here.
"""

from __future__ import annotations

from pathlib import Path

from hetplan_papers.datasets.sources import DATA, Json, as_id, read

__all__ = ["WORKER", "inputs", "published", "trace"]

WORKER = "cloud-4vcpu"
STATISTICS = ("mean", "std", "p50", "p95", "p99")


def _repaired(task: str, data: Path) -> dict[str, Json]:
    import numpy as np

    with np.load(data / "ramsis" / f"{task}_artifact_inputs.npz", allow_pickle=False) as held:
        return {
            str(name): {
                "quality": float(quality),
                "table": {"axes": {"batch": list(range(1, len(row) + 1))}, "p95": [float(us) / 1000 for us in row]},
            }
            for name, quality, row in zip(held["models"], held["acc"], held["lat_us"], strict=True)
        }


def _measured(task: str, data: Path) -> dict[str, Json]:
    return {
        name: {
            "quality": model["accuracy"] / 100,
            "table": {
                "axes": {"batch": model["batch"]},
                **{statistic: model[statistic] for statistic in STATISTICS},
                "samples": model["n"],
            },
        }
        for name, model in read(f"ramsis/{task}_profiles.json", data)["models"].items()
    }


def inputs(
    task: str,
    slo_ms: float,
    workers: int,
    load: float | tuple[float, float],
    *,
    repaired: bool = True,
    percentile: float = 99.0,
    arrivals: Json | None = None,
    dispatch: str = "round-robin",
    data: Path = DATA,
) -> tuple[Json, Json]:
    """The task's models on so many workers at a load, or for every load of a range."""
    profile: Json = {
        "format": "hetplan/profile/1.0",
        "sources": {"published": {"kind": "published", "cite": "RAMSIS, EuroSys 2024, published profiles"}},
        "metrics": {"accuracy": {"better": "higher", "range": [0, 1], "kind": "bernoulli"}},
        "hardware": {WORKER: {"kind": "cpu", "provides": {"cpu_cores": 4}}},
        "tasks": {task: {"metric": "accuracy"}},
        "variants": {},
        "tables": {},
    }
    for name, model in (_repaired if repaired else _measured)(task, data).items():
        variant = as_id(name)
        profile["variants"][variant] = {
            "task": task,
            "quality": {"value": model["quality"], "source": "published"},
            "runs": [{"hardware": WORKER, "latency": f"{variant}-{WORKER}"}],
        }
        profile["tables"][f"{variant}-{WORKER}"] = {"quantity": "latency_ms", "source": "published", **model["table"]}
    app: Json = {
        "task": task,
        "latency": {f"p{percentile:g}_ms": slo_ms},
        "dispatch": dispatch,
        "late": "serve",
        "rate_qps": {"low": load[0], "high": load[1]} if isinstance(load, tuple) else load,
        "arrivals": arrivals or {"process": "poisson"},
    }
    slo: Json = {
        "format": "hetplan/slo/1.0",
        "objective": ["max quality"],
        "limits": {"instances": {WORKER: [workers, workers]}, "only_listed": True},
        "apps": {"queries": app},
    }
    return profile, slo


def trace(slo: Json, *, data: Path = DATA) -> Json:
    """The SLO with the published Twitter trace as its demand: a rate per period of ten seconds."""
    held = read("ramsis/twitter_trace.json", data)
    app = slo["apps"]["queries"]
    arrivals = app.get("arrivals", {"process": "poisson"})
    return {
        **slo,
        "horizon": {"period_s": float(held["interval_s"]), "periods": len(held["qps"])},
        "apps": {"queries": {**app, "rate_qps": {"series": held["qps"]}, "arrivals": arrivals}},
    }


def published(profile: Json, slo: Json) -> Json:
    """What the question uses: latencies (us, per statistic and batch), accuracies, target, workers, load, trace."""
    models = {}
    for name, variant in profile["variants"].items():
        table = profile["tables"][variant["runs"][0]["latency"]]
        models[name] = {
            "accuracy": variant["quality"]["value"],
            "batch": table["axes"]["batch"],
            "n": table.get("samples"),
            "lat_us": {
                statistic: [1000 * ms for ms in table[statistic]] for statistic in STATISTICS if statistic in table
            },
        }
    app = slo["apps"]["queries"]
    rate = app["rate_qps"]
    series = rate.get("series") if isinstance(rate, dict) else None
    return {
        "models": models,
        "slo_ms": app["latency"]["p99_ms"],
        "workers": slo["limits"]["instances"][WORKER][0],
        "load": None if series else rate,
        "trace_qps": series,
        "interval_s": slo.get("horizon", {}).get("period_s"),
    }
