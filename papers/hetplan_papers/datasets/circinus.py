"""Circinus (2025): knobbed pipelines of operators over device, MEC and cloud; the paper's facts and a constants file.

`paper_app` poses an application as the paper lists it. `published` gives the facts of a profile and SLO back, such as
those that a synthetic query writes of itself (`circinus_generator`). What operators cost, and how good a configuration
is, comes from an evaluator.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from hetplan_papers.datasets.sources import DATA, Json, as_id, read

__all__ = ["APPS", "paper_app", "published"]

APPS = ("SR", "VT", "LVC", "DVC", "ACG")
MEGABIT = 1e6


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
        "accuracy_min": query["quality"]["min"],
        "latency_max_s": next(iter(query["latency"].values())) / 1000,
        "device": {
            "speed_factor": query["device"]["relative_time"],
            "bandwidth_bytes_per_s": tuple(link["bandwidth_mbps"] * MEGABIT / 8 for link in query["device"]["links"]),
        },
        "gpus": {tier_of[hardware]: most for hardware, (_, most) in slo["limits"]["instances"].items()},
    }
