"""Loki (HPDC 2024) and Proteus (ASPLOS 2024): pipelines of detectors, classifiers and captioners on a bounded cluster.

`traffic_chain`, `traffic_tree`, `social` and `both` pose the published pipelines, `proteus` holds models on three kinds
of hardware; `published` gives the numbers back. Accuracies are percent there, fractions here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from hetplan_papers.datasets.sources import DATA, Json, as_id, read

__all__ = [
    "POWERS",
    "app",
    "both",
    "cluster",
    "proteus",
    "published",
    "social",
    "traffic_chain",
    "traffic_tree",
    "twitter",
    "variants",
    "wish",
]

POWERS = (1, 2, 4, 8, 16, 32, 64)
"""The batch sizes of the golden cases."""

DETECTORS = ("yolov5n", "yolov5m", "yolov5l", "yolov5x")
GPU = "gtx-1080ti"
STATISTICS = {"mean_ms": "mean", "p50_ms": "p50", "p90_ms": "p90", "p95_ms": "p95"}
NODES = {"detect": "object_detection", "car": "car_classification", "face": "facial_recognition"}


def variants(
    task: str,
    names: Iterable[str] | None = None,
    *,
    batches: Sequence[int] | None = POWERS,
    corrected: bool = False,
    data: Path = DATA,
) -> Json:
    """The variants and tables of one published task; `corrected` undoes the swapped accuracies of yolov5s and yolov5m.

    A variant that was never timed (efficientnet-b7) has no run. `batches=None` keeps every size that was measured.
    """
    measured = read("loki/profiles_simulator.json", data)["tasks"][task]
    swapped = {"yolov5s": "yolov5m", "yolov5m": "yolov5s"} if corrected else {}
    profile: Json = {"variants": {}, "tables": {}}
    for name in measured if names is None else names:
        variant, timed = as_id(name), measured[name]["latency"]
        sizes = [size for size in sorted(map(int, timed)) if batches is None or size in batches]
        quality = measured[swapped.get(name, name)]["accuracy_pct"] / 100.0
        runs = [{"hardware": GPU, "latency": f"{variant}-{GPU}"}] if sizes else []
        profile["variants"][variant] = {
            "task": as_id(task),
            "family": _family(name),
            "quality": {"value": quality, "source": "published"},
            "runs": runs,
        }
        if sizes:
            profile["tables"][f"{variant}-{GPU}"] = {
                "quantity": "latency_ms",
                "axes": {"batch": sizes},
                **{ours: [timed[str(size)][theirs] for size in sizes] for theirs, ours in STATISTICS.items()},
                "source": "published",
            }
    return profile


def _family(name: str) -> str:
    for family in ("yolov5", "efficientnet", "clip", "gendernet"):
        if as_id(name).startswith(family):
            return family
    return as_id(name)


def cluster(profiles: Sequence[Json], pipelines: Json, hardware: Iterable[str] = (GPU,)) -> Json:
    """One profile of several tasks' variants and the pipelines over them."""
    whole: Json = {
        "format": "hetplan/profile/1.0",
        "sources": {"published": {"kind": "published", "cite": "Loki, HPDC 2024, published code and data"}},
        "metrics": {"relative": {"better": "higher", "range": [0, 1], "unit": "share of the family's best"}},
        "hardware": {name: {"kind": "gpu"} for name in hardware},
        "variants": {},
        "tables": {},
        "pipelines": pipelines,
    }
    for profile in profiles:
        whole["variants"] |= profile["variants"]
        whole["tables"] |= profile["tables"]
    tasks = sorted({variant["task"] for variant in whole["variants"].values()})
    whole["tasks"] = {task: {"metric": "relative"} for task in tasks}
    return whole


def wish(apps: Mapping[str, Json], *, servers: Mapping[str, int], objective: Sequence[Json] | None = None) -> Json:
    """The most quality on so many servers, then the fewest servers."""
    return {
        "format": "hetplan/slo/1.0",
        "objective": list(objective or ("max quality", "min machines")),
        "limits": {"instances": {name: [0, count] for name, count in servers.items()}, "only_listed": True},
        "apps": dict(apps),
    }


def app(pipeline: str, demand: float | Sequence[float], slo_ms: float, **more: object) -> Json:
    """One pipeline's wish: a rate, or the history that it is forecast from."""
    return {
        "pipeline": pipeline,
        "latency": {"p99_ms": slo_ms},
        "late": "reroute",
        "rate_qps": demand if isinstance(demand, int | float) else {"history": list(demand)},
        **more,
    }


def _traffic(ends: Sequence[str], names: Iterable[str], data: Path) -> Json:
    branching = read("loki/branching.json", data)
    return {
        "nodes": {node: {"task": NODES[node]} for node in ("detect", *ends)},
        "edges": [
            {"from": "detect", "to": end, "fanout": {name: branching[f"ilp_hardcoded_{end}"][name] for name in names}}
            for end in ends
        ],
    }


def traffic_chain(
    demand: float | Sequence[float],
    *,
    servers: int = 20,
    slo_ms: float = 250.0,
    detectors: Sequence[str] = DETECTORS,
    measured_quality: bool = False,
    batches: Sequence[int] | None = POWERS,
    corrected: bool = False,
    data: Path = DATA,
) -> tuple[Json, Json]:
    """Detect vehicles, classify cars. `measured_quality` takes the 28 measured path accuracies in place of products."""
    pipeline = _traffic(("car",), detectors, data)
    if measured_quality:
        paths = read("loki/path_accuracy.json", data)["paths"]
        pipeline["quality"] = {
            "rule": "table",
            "paths": {f"detect={path['detector']}/car={path['classifier']}": path["e2e_acc"] for path in paths},
        }
    how: Json = {"batches": batches, "corrected": corrected, "data": data}
    profiles = [variants("object_detection", detectors, **how), variants("car_classification", **how)]
    profile = cluster(profiles, {"traffic": pipeline})
    return profile, wish({"cars": app("traffic", demand, slo_ms)}, servers={GPU: servers})


def traffic_tree(
    demand: float | Sequence[float],
    *,
    servers: int = 20,
    slo_ms: float = 250.0,
    detectors: Sequence[str] = DETECTORS,
    batches: Sequence[int] | None = POWERS,
    data: Path = DATA,
) -> tuple[Json, Json]:
    """Detect, then classify cars and recognise faces: two ends, whose qualities count alike."""
    how: Json = {"batches": batches, "data": data}
    profiles = [
        variants("object_detection", detectors, **how),
        variants("car_classification", **how),
        variants("facial_recognition", **how),
    ]
    profile = cluster(profiles, {"traffic": _traffic(("car", "face"), detectors, data)})
    return profile, wish({"cars": app("traffic", demand, slo_ms)}, servers={GPU: servers})


SOCIAL: Json = {"nodes": {"detect": {"task": "object_detection"}, "caption": {"task": "image_captioning"}}}
"""Two tasks beside one another: the published virtual source is no step, it serves nothing."""


def social(
    demand: float | Sequence[float],
    *,
    servers: int = 20,
    slo_ms: float = 250.0,
    batches: Sequence[int] | None = POWERS,
    data: Path = DATA,
) -> tuple[Json, Json]:
    """Detect objects and caption the image, side by side."""
    how: Json = {"batches": batches, "data": data}
    profiles = [variants("object_detection", **how), variants("image_captioning", **how)]
    profile = cluster(profiles, {"social": SOCIAL})
    return profile, wish({"posts": app("social", demand, slo_ms)}, servers={GPU: servers})


def both(
    traffic_qps: float, social_qps: float, *, servers: int = 20, slo_ms: float = 250.0, data: Path = DATA
) -> tuple[Json, Json]:
    """The traffic tree with all five detectors and the social pipeline on one cluster, weighted by demand."""
    detectors = tuple(read("loki/branching.json", data)["ilp_hardcoded_car"])
    tree, tree_wish = traffic_tree(traffic_qps, detectors=detectors, slo_ms=slo_ms, data=data)
    posts, posts_wish = social(social_qps, slo_ms=slo_ms, data=data)
    profile = cluster([tree, posts], tree["pipelines"] | posts["pipelines"])
    return profile, wish(tree_wish["apps"] | posts_wish["apps"], servers={GPU: servers})


PROTEUS = {"avg_latency(ms)": "mean", "50th_pct": "p50", "90th_pct": "p90"}


def proteus(*, data: Path = DATA) -> Json:
    """Proteus' 46 models on a CPU and two generations of GPU: one task each, relative accuracies."""
    models = read("loki/profiles_proteus_3accel.json", data)["models"]
    kinds = ("cpu", "gpu_pascal", "gpu_ampere")
    profile: Json = {"variants": {}, "tables": {}}
    for name, model in models.items():
        variant = as_id(name)
        timed = {kind: cells for kind, cells in model["latency"].items() if cells}
        profile["variants"][variant] = {
            "task": variant,
            "quality": {"value": float(model["norm_accuracy"]) / 100.0, "source": "published"},
            "runs": [{"hardware": kind, "latency": f"{variant}-{kind}"} for kind in timed],
        }
        for kind, cells in timed.items():
            sizes = sorted(map(int, cells))
            profile["tables"][f"{variant}-{kind}"] = {
                "quantity": "latency_ms",
                "axes": {"batch": sizes},
                **{
                    # Most GPU rows have no 90th percentile.
                    ours: [float(cells[str(size)][theirs]) if cells[str(size)][theirs] else None for size in sizes]
                    for theirs, ours in PROTEUS.items()
                },
                "source": "published",
            }
    return cluster([profile], {}, kinds)


def twitter(trace: str, family: str, *, data: Path = DATA) -> Json:
    """The demand of one model family in a published trace: a rate per period of one second."""
    counts = read("loki/traces_twitter_proteus.json", data)["traces"][trace]["families"][family]["per_second"]
    return {"series": [float(count) for count in counts]}


def published(profile: Json, slo: Json) -> Json:
    """What the questions use, in the published shape: milliseconds per batch, percent, child queries per parent."""
    tasks: Json = {}
    for name, variant in profile["variants"].items():
        latency: Json = {}
        for run in variant["runs"]:
            table = profile["tables"][run["latency"]]
            for place, size in enumerate(table["axes"]["batch"]):
                cell = {theirs: table[ours][place] for theirs, ours in STATISTICS.items() if ours in table}
                latency.setdefault(run["hardware"], {})[str(size)] = cell
        tasks.setdefault(variant["task"], {})[name] = {
            "accuracy_pct": variant["quality"]["value"] * 100.0,
            "latency": latency,
        }
    factors = {
        f"{name}/{edge['from']}/{edge['to']}": edge.get("fanout", 1.0)
        for name, pipeline in profile["pipelines"].items()
        for edge in pipeline.get("edges", [])
    }
    paths = {name: pipeline.get("quality", {}).get("paths", {}) for name, pipeline in profile["pipelines"].items()}
    apps = {
        name: {"pipeline": one["pipeline"], "slo_ms": one["latency"]["p99_ms"], "rate_qps": one["rate_qps"]}
        for name, one in slo["apps"].items()
    }
    servers = {name: most for name, (_, most) in slo["limits"]["instances"].items()}
    return {"tasks": tasks, "factors": factors, "path_accuracy": paths, "apps": apps, "servers": servers}
