"""The pipelines of Loki's specification that fit on a page: chains, two GPU types, two ends, two at once."""

from __future__ import annotations

from collections.abc import Mapping

from hetplan_papers.datasets.loki import app, cluster, wish
from hetplan_papers.datasets.sources import Json

__all__ = ["depth_3", "tiny", "two_gpus", "two_pipelines", "two_sinks"]


def _variant(task: str, quality: float, ms: Mapping[str, float]) -> Json:
    """A variant of batch 1 that takes `ms` on each hardware."""
    return {"task": task, "quality": {"value": quality}, "ms": dict(ms)}


def _profile(variants: Mapping[str, Json], pipelines: Json, hardware: tuple[str, ...] = ("g",)) -> Json:
    profile: Json = {"variants": {}, "tables": {}}
    for name, variant in variants.items():
        ms = variant["ms"]
        profile["variants"][name] = {
            "task": variant["task"],
            "quality": variant["quality"],
            "runs": [{"hardware": gpu, "latency": f"{name}-{gpu}"} for gpu in ms],
        }
        for gpu, latency in ms.items():
            table = {"quantity": "latency_ms", "axes": {"batch": [1]}, "mean": [latency], "p50": [latency]}
            profile["tables"][f"{name}-{gpu}"] = table
    whole = cluster([profile], pipelines, hardware)
    del whole["sources"]
    return whole


def _tree(*steps: str, edges: tuple[tuple[str, str, Mapping[str, float] | float], ...] = ()) -> Json:
    return {
        "nodes": {step: {"task": step} for step in steps},
        "edges": [
            {"from": parent, "to": child, "fanout": fanout if isinstance(fanout, float) else dict(fanout)}
            for parent, child, fanout in edges
        ],
    }


def tiny(slo_s: float, demand: float, *, servers: int = 5) -> tuple[Json, Json]:
    """A: a1 (1, 50 ms, 2 queries on), a2 (.8, 25 ms, 1); B: b1 (1, 50 ms), b2 (.9, 20 ms)."""
    variants = {
        "a1": _variant("a", 1.0, {"g": 50}),
        "a2": _variant("a", 0.8, {"g": 25}),
        "b1": _variant("b", 1.0, {"g": 50}),
        "b2": _variant("b", 0.9, {"g": 20}),
    }
    profile = _profile(variants, {"p": _tree("a", "b", edges=(("a", "b", {"a1": 2.0, "a2": 1.0}),))})
    return profile, wish({"x": app("p", demand, 1000 * slo_s)}, servers={"g": servers})


def two_gpus(demand: float) -> tuple[Json, Json]:
    """One task on two servers g and one h: v1 (1): 50 ms on g, 20 on h; v2 (.8): 20 and 10."""
    variants = {"v1": _variant("a", 1.0, {"g": 50, "h": 20}), "v2": _variant("a", 0.8, {"g": 20, "h": 10})}
    profile = _profile(variants, {"p": _tree("a")}, ("g", "h"))
    return profile, wish({"x": app("p", demand, 200)}, servers={"g": 2, "h": 1})


def two_sinks(demand: float) -> tuple[Json, Json]:
    """A: a (1, 25 ms), then B: b1 (1, 100 ms), b2 (.5, 25 ms) and C: c1 (1, 50 ms); four servers, 300 ms."""
    variants = {
        "a1": _variant("a", 1.0, {"g": 25}),
        "b1": _variant("b", 1.0, {"g": 100}),
        "b2": _variant("b", 0.5, {"g": 25}),
        "c1": _variant("c", 1.0, {"g": 50}),
    }
    profile = _profile(variants, {"p": _tree("a", "b", "c", edges=(("a", "b", 1.0), ("a", "c", 1.0)))})
    return profile, wish({"x": app("p", demand, 300)}, servers={"g": 4})


def two_pipelines(servers: int, *, equal: bool = False) -> tuple[Json, Json]:
    """p1 (1, 20/s), p2 (.7, 50/s) for 40/s; q1 (1, 30/s), q2 (.9, 60/s) for 60/s; weighted by demand or alike."""
    variants = {
        "p1": _variant("p", 1.0, {"g": 50}),
        "p2": _variant("p", 0.7, {"g": 20}),
        "q1": _variant("q", 1.0, {"g": 1000 / 30}),
        "q2": _variant("q", 0.9, {"g": 1000 / 60}),
    }
    profile = _profile(variants, {"p": _tree("p"), "q": _tree("q")})
    weight = {"weight": 0.5} if equal else {}
    apps = {"x": app("p", 40, 1000, **weight), "y": app("q", 60, 1000, **weight)}
    return profile, wish(apps, servers={"g": servers})


def depth_3(demand: float) -> tuple[Json, Json]:
    """a1 (1, 20 ms), a2 (.5, 10) -> b (1, 5) -> c1 (1, 20), c2 (.5, 10); five servers, 200 ms."""
    variants = {
        "a1": _variant("a", 1.0, {"g": 20}),
        "a2": _variant("a", 0.5, {"g": 10}),
        "b1": _variant("b", 1.0, {"g": 5}),
        "c1": _variant("c", 1.0, {"g": 20}),
        "c2": _variant("c", 0.5, {"g": 10}),
    }
    profile = _profile(variants, {"p": _tree("a", "b", "c", edges=(("a", "b", 1.0), ("b", "c", 1.0)))})
    return profile, wish({"x": app("p", demand, 200)}, servers={"g": 5})
