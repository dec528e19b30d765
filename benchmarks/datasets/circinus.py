"""Circinus (2025): knobbed pipelines of operators over device, MEC and cloud; the paper's facts and a constants file.

`app` poses one query of an application: its operators, knobs, tiers and links, with the targets that a synthetic query
(`hetplan.measure.evaluator_synthetic`) got. What operators cost, and how good a configuration is, comes from an
evaluator.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from benchmarks.datasets.sources import DATA, Json, as_id, read

__all__ = ["APPS", "app", "paper_app", "published"]

APPS = ("SR", "VT", "LVC", "DVC", "ACG")
HARDWARE = {"device": "edge-device", "mec": "v100", "cloud": "a100"}
SPEED = {"device": 4.5, "mec": 2.2, "cloud": 1.0}
MEGABIT = 1e6


def _infrastructure(data: Path) -> Json:
    facts = read("circinus/circinus.json", data)["synthetic"]
    tiers = facts["tiers"]
    prices = dict(zip(tiers, facts["price_usd_per_gpu_h"], strict=True))
    return {
        "format": "hetplan/profile/1.0",
        "sources": {"published": {"kind": "published", "cite": "Circinus, 2025, Appendix A; list prices of GPUs"}},
        "reference": HARDWARE["cloud"],
        "tiers": tiers,
        "hardware": {
            HARDWARE[tier]: {"kind": "gpu", "tier": tier, "relative_time": SPEED[tier], "provides": {"gpu": 1}}
            for tier in tiers
        },
        "offers": {
            f"{HARDWARE[tier]}-gpu": {"hardware": HARDWARE[tier], "price_per_hour": str(price), "per": "gpu"}
            for tier, price in prices.items()
        },
        "links": [
            {
                "between": list(ends),
                "bandwidth_mbps": facts["bandwidth_bytes_per_s"]["_".join(ends)] * 8 / MEGABIT,
                "latency_ms": facts["latency_s"]["_".join(ends)] * 1000,
            }
            for ends in (("device", "mec"), ("mec", "cloud"))
        ],
    }


def _pipeline(name: str, facts: Json) -> Json:
    """Operators in a chain, each reading some knobs."""
    chosen = facts["apps"][name]
    knobs = [as_id(knob["name"]) for knob in chosen["knobs"]]
    operators = [as_id(op["name"]) for op in chosen["ops"]]
    return {
        "nodes": {
            operator: {"device": "gpu", "reads": [knobs[k] for k in op["compute_knobs"]], "share_law": "flops"}
            for operator, op in zip(operators, chosen["ops"], strict=True)
        },
        "edges": [{"from": one, "to": two} for one, two in pairwise(operators)],
        # Levels are told apart by place: two levels of one knob may cost the same.
        "knobs": {knob: list(range(len(held["levels"]))) for knob, held in zip(knobs, chosen["knobs"], strict=True)},
        "metric": "score",
        "share_grid": facts["resource_grid"],
        "evaluator": f"circinus-{name.lower()}",
        "strata": facts["strata"],
    }


def app(
    name: str,
    *,
    quality_min: float,
    latency_max_ms: float,
    relative_time: float | None = None,
    device_mec_mbps: float | None = None,
    mec_cloud_mbps: float | None = None,
    gpus: dict[str, int] | None = None,
    deadline_s: float | None = None,
    data: Path = DATA,
) -> tuple[Json, Json]:
    """One query of an application of the generator: operators in a chain from the device, knobs by their levels.

    The three figures of the device and the links are this query's own, where they differ from the profile's.
    """
    facts = read("circinus/circinus.json", data)["synthetic"]
    chosen = facts["apps"][name]
    profile = _infrastructure(data)
    score = {
        "better": "higher",
        "range": [0, 1] if chosen["metric"] == "bernoulli" else [-1, 2],
        "kind": chosen["metric"],
    }
    profile["metrics"] = {"score": score}
    profile["pipelines"] = {name.lower(): _pipeline(name, facts)}
    profile["extensions"] = {
        "circinus": {"app": name, **{key: chosen[key] for key in ("ops", "knobs", "sample_sd")}},
    }
    links = [
        {"between": list(ends), "bandwidth_mbps": mbps, "latency_ms": facts["latency_s"]["_".join(ends)] * 1000}
        for ends, mbps in ((("device", "mec"), device_mec_mbps), (("mec", "cloud"), mec_cloud_mbps))
        if mbps is not None
    ]
    query: Json = {
        "runs": {"pipeline": name.lower()},
        "latency": [{"of": "response", "percentile": 50, "max_ms": latency_max_ms}],
        "quality": {"min": quality_min},
        "demand": {"streams": 1},
    }
    if relative_time is not None or links:
        query["device"] = {"relative_time": relative_time, "links": links}
    if deadline_s is not None:
        query["deadline_s"] = deadline_s
    slo: Json = {
        "format": "hetplan/slo/1.0",
        "objective": [{"max": "goodput"}, {"min": "cost"}],
        "limits": {"instances": {HARDWARE[tier]: [0, count] for tier, count in (gpus or {}).items()}},
        "apps": {"query": query},
    }
    return profile, slo


def paper_app(name: str, *, data: Path = DATA) -> Json:
    """An application as the paper's Appendix A lists it: its stages in a chain, its knobs with the listed settings."""
    facts = read("circinus/circinus.json", data)["paper"]["apps"][name]
    stages = [as_id(stage) for stage in facts["stages"]]
    return {
        "format": "hetplan/profile/1.0",
        "pipelines": {
            name.lower(): {
                "nodes": {stage: {"device": "gpu"} for stage in stages},
                "edges": [{"from": one, "to": two} for one, two in pairwise(stages)],
                "knobs": facts["knobs"] or {},
            }
        },
        "extensions": {"circinus": {"fixed_samples": facts["fixed_samples"], "table1_space": facts["table1_space"]}},
    }


def published(profile: Json, slo: Json) -> Json:
    """What the questions use, in the data file's units: bytes per second, seconds, dollars per GPU-hour."""
    tier_of = {name: held["tier"] for name, held in profile["hardware"].items()}
    ((name, pipeline),) = profile["pipelines"].items()
    (query,) = slo["apps"].values()
    constants = profile["extensions"]["circinus"]
    return {
        "app": name.upper(),
        "tiers": profile["tiers"],
        "price_usd_per_gpu_h": {
            tier_of[one["hardware"]]: float(one["price_per_hour"]) for one in profile["offers"].values()
        },
        "speed_factor": {tier_of[hardware]: held["relative_time"] for hardware, held in profile["hardware"].items()},
        "bandwidth_bytes_per_s": {
            "_".join(link["between"]): link["bandwidth_mbps"] * MEGABIT / 8 for link in profile["links"]
        },
        "latency_s": {"_".join(link["between"]): link["latency_ms"] / 1000 for link in profile["links"]},
        "resource_grid": pipeline["share_grid"],
        "strata": pipeline["strata"],
        "metric": profile["metrics"]["score"]["kind"],
        "levels": {knob: len(levels) for knob, levels in pipeline["knobs"].items()},
        "reads": {op: node["reads"] for op, node in pipeline["nodes"].items()},
        "ops": constants["ops"],
        "knobs": constants["knobs"],
        "accuracy_min": query["quality"]["min"],
        "latency_max_s": query["latency"][0]["max_ms"] / 1000,
        "device": query.get("device"),
        "gpus": {tier_of[hardware]: most for hardware, (_, most) in slo["limits"]["instances"].items()},
    }
