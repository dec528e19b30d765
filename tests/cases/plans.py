"""Correct plans worked out by hand, one per feature, with the inputs that they are plans for; and a way to spoil them.

No planner made them. Each comes as four documents, `profile`, `slo`, `state` (or None) and `plan`, as plain data.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

from hetplan.planner.plan import Plan
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.profile import Profile
from hetplan.profiles.slo import Slo
from hetplan.profiles.state import State

Json = dict[str, Any]
DROP = object()
"""Put in place of a value to remove its key or list entry."""


def latency(axes: Json, mean: Any, **more: Any) -> Json:
    return {"quantity": "latency_ms", "axes": axes, "mean": mean, **more}


def load(id: str, app: str | None, variant: str | None, **more: Any) -> Json:
    return {"id": id, "app": app, "variant": variant, **more}


def worker(id: str, hardware: str, offer: str | None, count: int, *loads: Json, **more: Any) -> Json:
    return {"id": id, "hardware": hardware, "offer": offer, "count": count, "loads": list(loads), **more}


def promise(quantity: str, relation: str, value: float, model: str, app: str | None = None, **more: Any) -> Json:
    return {"quantity": quantity, "relation": relation, "value": value, "model": model, "app": app, **more}


def documents(profile: Json, slo: Json, plan: Json, state: Json | None = None) -> Json:
    hashes = {"profile": "sha256:01", "slo": "sha256:02"} | ({"state": "sha256:03"} if state is not None else {})
    return {
        "digests": dict(hashes),
        "profile": {"format": "hetplan/profile/1.0", **profile},
        "slo": {"format": "hetplan/slo/1.0", **slo},
        "state": state,
        "plan": {"format": "hetplan/plan/1.0", "inputs": hashes, **plan},
    }


def pool() -> Json:
    """One base and one auxiliary instance, two batch sizes: 600/7 queries/s (Kairos specification, G1)."""
    fluid = 600 / 7
    return documents(
        profile={
            "hardware": {"base": {"kind": "gpu"}, "aux": {"kind": "cpu"}, "spare": {"kind": "cpu"}},
            "offers": {
                "base-od": {"hardware": "base", "price_per_hour": "1", "stock": 1},
                "aux-od": {"hardware": "aux", "price_per_hour": "0.5", "stock": 3},
                "aux-eu": {"hardware": "aux", "price_per_hour": "0.5", "currency": "EUR"},
            },
            "tasks": {"rank": {}},
            "variants": {
                "m": {
                    "task": "rank",
                    "runs": [
                        {"hardware": "base", "latency": "t-base"},
                        {"hardware": "aux", "latency": "t-aux"},
                        {"hardware": "spare", "latency": "t-aux"},
                    ],
                },
                "other": {"task": "rank", "runs": [{"hardware": "aux", "latency": "t-aux"}]},
            },
            "tables": {
                "t-base": latency({"batch": [10, 20]}, [10, 40], p99=[12, 44], std=[1, 2]),
                "t-aux": latency({"batch": [10, 20]}, [20, 200], p99=[25, 240]),
            },
        },
        slo={
            "limits": {"cost_per_hour": "1.5", "instances": {"base": [1, 1], "aux": [0, None]}},
            "apps": {
                "rank": {
                    "runs": {"variants": ["m"]},
                    "latency": [{"of": "response", "percentile": 99, "max_ms": 100}],
                    "demand": {
                        "rate_qps": "max",
                        "mix": {"axes": ["batch"], "bins": [[10], [20]], "share": [0.75, 0.25]},
                    },
                }
            },
        },
        plan={
            "question": "pool",
            "method": {"formulation": "fluid-milp", "options": {"derate": 0.8, "xi": 0.98, "latency_stat": "mean"}},
            "status": "optimal",
            "workers": [
                worker("w1", "base", "base-od", 1, load("w1.a", "rank", "m")),
                worker("w2", "aux", "aux-od", 1, load("w2.a", "rank", "m")),
            ],
            "routing": {
                "rank": [
                    {"when": {"batch": 10}, "to": {"w1.a": 2 / 9, "w2.a": 7 / 9}},
                    {"when": {"batch": 20}, "to": {"w1.a": 1.0}},
                ]
            },
            "dispatch": {
                "rank": {
                    "rule": "matching/1",
                    "slo_ms": 100,
                    "xi": 0.98,
                    "weight": {"base": 1.0, "aux": 0.2},
                    "predict": {"m@base": "t-base", "m@aux": "t-aux"},
                }
            },
            "tables": {
                "t-base": latency({"batch": [10, 20]}, [10, 40]),
                "t-aux": latency({"batch": [10, 20]}, [20, 200]),
            },
            "actions": [
                {"id": 1, "do": "start", "worker": "w1", "count": 1},
                {"id": 2, "do": "load", "load": "w1.a", "after": [1]},
                {"id": 3, "do": "start", "worker": "w2"},
                {"id": 4, "do": "load", "load": "w2.a", "after": [3]},
            ],
            "promises": [
                promise("rate_qps", ">=", 0.8 * fluid, "fluid", "rank"),
                promise("fluid_rate_qps", ">=", fluid, "fluid", "rank"),
                promise("cost_per_hour", "=", 1.5, "no-queueing"),
            ],
            "claims": [
                {
                    "about": "rate_qps",
                    "sense": "max",
                    "value": 0.8 * fluid,
                    "bound": 0.8 * fluid,
                    "gap": 0.0,
                    "scope": "problem",
                    "vouched": "claimed",
                    "solve": 1,
                },
                {
                    "about": "cost_per_hour",
                    "sense": "min",
                    "value": 1.5,
                    "bound": 1.2,
                    "gap": 0.2,
                    "scope": "problem",
                    "vouched": "certified",
                    "solve": 2,
                },
            ],
            "solves": [
                {"id": 1, "form": "milp", "solver": "highs", "status": "optimal", "vouched": "claimed"},
                {"id": 2, "form": "milp", "solver": "highs", "status": "optimal", "vouched": "certified"},
            ],
            "valid": {"rate_qps": {"rank": [0, 0.8 * fluid]}},
        },
    )


def chat() -> Json:
    """Rates measured over two axes, priced by the GiB, with a query class between the measured points.

    Of the three classes, rates are 8, 1 and (halfway on both axes) (8 + 2 + 4 + 1) / 4 = 3.75 queries/s; two machines
    carry 2 / (0.5 / 8 + 0.1 / 1 + 0.4 / 3.75) queries/s.
    """
    fluid = 2 / (0.5 / 8 + 0.1 + 0.4 / 3.75)
    return documents(
        profile={
            "hardware": {"g1": {"kind": "gpu", "provides": {"gpu_mem_gib": 16, "gpu": 1}}},
            "offers": {"g1-gib": {"hardware": "g1", "price_per_hour": "0.1", "per": "gpu_mem_gib", "stock": 4}},
            "tasks": {"chat": {}},
            "variants": {
                "llama": {
                    "task": "chat",
                    "family": "llama-3",
                    "runs": [{"hardware": "g1", "rate": "r", "needs": {"gpu_mem_gib": 15.5, "gpu": 1}}],
                }
            },
            "tables": {
                "r": {
                    "quantity": "requests_per_s",
                    "axes": {"input_tokens": [100, 300], "output_tokens": [50, 150]},
                    "mean": [[8, 2], [4, 1]],
                    "given": {"ttft_p99_ms": 500},
                }
            },
        },
        slo={
            "limits": {"cost_per_hour": "3.1"},
            "apps": {
                "chat": {
                    "runs": {"families": ["llama-3"]},
                    "latency": [
                        {"of": "ttft", "percentile": 99, "max_ms": 500},
                        {"of": "tpot", "percentile": 99, "max_ms": 50},
                    ],
                    "demand": {
                        "rate_qps": 7,
                        "mix": {
                            "axes": ["input_tokens", "output_tokens"],
                            "bins": [[100, 50], [300, 150], [200, 100]],
                            "share": [0.5, 0.1, 0.4],
                        },
                    },
                }
            },
        },
        plan={
            "question": "pool",
            "method": {"formulation": "fluid-milp", "options": {"derate": 1.0}},
            "workers": [worker("w1", "g1", "g1-gib", 2, load("w1.a", "chat", "llama"))],
            "routing": {
                "chat": [
                    {"when": {"input_tokens": 100, "output_tokens": 50}, "to": {"w1.a": 1.0}},
                    {"when": {"input_tokens": 300, "output_tokens": 150}, "to": {"w1.a": 1.0}},
                    {"when": {"input_tokens": 200, "output_tokens": 100}, "to": {"w1.a": 1.0}},
                ]
            },
            "dispatch": {"chat": {"rule": "shares/1"}},
            "promises": [
                promise("rate_qps", ">=", fluid, "fluid", "chat"),
                promise("fluid_rate_qps", ">=", fluid, "fluid", "chat"),
                promise("cost_per_hour", "<=", 3.1, "no-queueing"),
                promise("ttft_ms", "<=", 500, "measured", "chat", percentile=99, interval=[430, 490]),
            ],
            "claims": [{"about": "cost_per_hour", "sense": "min", "value": 3.1, "scope": "none", "vouched": "none"}],
        },
    )


def pipeline() -> Json:
    """A tree of three steps with two ends. Latency at p50, half of the target kept for queueing, 2 ms per hop.

    Work per root query: w1 .6 x 20/4, w2 .4 x 5, w3 .6 x 2 x 16/4, w4 .4 x 1 x 4, w5 .5 x 10 ms. w5 limits: .9 / .005 =
    180 queries/s. Paths: w1-w3 36 ms (2 x 36 + 4 = 76 of 100), w1-w5 30, w2-w4 9, w2-w5 15. Quality: up to c
    .6 x 1 + .4 x .75 (measured), up to e .6 x .7 + .4 x .8 x .7; their mean is .772.
    """
    batches = {"batch": [1, 4]}

    def variant(task: str, quality: float, table: str) -> Json:
        return {"task": task, "quality": {"value": quality}, "runs": [{"hardware": "g", "latency": table}]}

    return documents(
        profile={
            "hardware": {"g": {"kind": "gpu"}},
            "tasks": {"detect": {}, "classify": {}, "emotion": {}},
            "variants": {
                "v1": variant("detect", 1.0, "t-v1"),
                "v2": variant("detect", 0.8, "t-v2"),
                "c1": variant("classify", 1.0, "t-c1"),
                "c2": variant("classify", 0.9, "t-c2"),
                "e1": variant("emotion", 0.7, "t-e1"),
            },
            "tables": {
                "t-v1": latency(batches, [11, 22], p50=[10, 20]),
                "t-v2": latency(batches, [6, 9], p50=[5, 8]),
                "t-c1": latency(batches, [11, 18], p50=[10, 16]),
                "t-c2": latency(batches, [5, 9], p50=[4, 8]),
                "t-e1": latency(batches, [11, 12], p50=[10, 10]),
            },
            "pipelines": {
                "traffic": {
                    "nodes": {"d": {"task": "detect"}, "c": {"task": "classify"}, "e": {"task": "emotion"}},
                    "edges": [
                        {"from": "d", "to": "c", "fanout": {"v1": 2.0, "*": 1.0}},
                        {"from": "d", "to": "e", "fanout": 0.5},
                    ],
                    "quality": {"rule": "product", "paths": {"d=v2/c=c2": 0.75}},
                }
            },
        },
        slo={
            "apps": {
                "cars": {
                    "runs": {"pipeline": "traffic"},
                    "latency": [{"of": "response", "percentile": 99, "max_ms": 100}],
                    "quality": {"min": 0.77},
                    "network_ms_per_hop": 2,
                    "demand": {"rate_qps": 150},
                }
            }
        },
        plan={
            "question": "pipeline",
            "method": {"formulation": "config", "options": {"slo_divisor": 2, "quantile": "p50", "headroom": 0.1}},
            "workers": [
                worker("w1", "g", None, 1, load("w1.d", "cars", "v1", node="d", serve={"max_batch": 4})),
                worker("w2", "g", None, 1, load("w2.d", "cars", "v2", node="d")),
                worker("w3", "g", None, 1, load("w3.c", "cars", "c1", node="c", serve={"max_batch": 4})),
                worker("w4", "g", None, 1, load("w4.c", "cars", "c2", node="c")),
                worker("w5", "g", None, 1, load("w5.e", "cars", "e1", node="e")),
            ],
            "routing": {
                "cars": [
                    {"node": "d", "to": {"w1.d": 0.6, "w2.d": 0.4}},
                    {"node": "c", "prefix": ["w1.d"], "to": {"w3.c": 1.0}},
                    {"node": "c", "prefix": ["w2.d"], "to": {"w4.c": 1.0}},
                    {"node": "e", "to": {"w5.e": 1.0}},
                ]
            },
            "promises": [
                promise("rate_qps", ">=", 180.0, "fluid", "cars"),
                promise("response_ms", "<=", 40.0, "no-queueing", "cars"),
                promise("quality", ">=", 0.772, "no-queueing", "cars"),
                promise("servers", "=", 5, "no-queueing"),
            ],
            "claims": [
                {
                    "about": "quality",
                    "sense": "max",
                    "value": 0.772,
                    "bound": 0.78,
                    "gap": 0.008 / 0.78,
                    "scope": "restriction",
                    "vouched": "claimed",
                },
                {"about": "servers", "sense": "min", "value": 5, "scope": "none", "vouched": "none"},
            ],
        },
    )


def variants() -> Json:
    """A running state of two slow instances replaced by two fast ones that two applications share.

    An instance of b carries 100 queries/s as it saturates; 120 + 60 of 2 x 100. It costs 3 each by its own price.
    """
    return documents(
        profile={
            "metrics": {"top1": {"better": "higher"}},
            "hardware": {"cpu": {"kind": "cpu"}, "inf": {"kind": "inferentia"}},
            "tasks": {"classify": {"metric": "top1"}},
            "variants": {
                "a": {
                    "task": "classify",
                    "family": "resnet50",
                    "quality": {"value": 0.75},
                    "runs": [{"hardware": "cpu", "latency": "t-a", "at": {"batch": 1}, "saturation_qps": 5}],
                },
                "b": {
                    "task": "classify",
                    "family": "resnet50",
                    "quality": {"value": 0.74},
                    "runs": [
                        {
                            "hardware": "inf",
                            "latency": "t-b",
                            "at": {"batch": 8},
                            "saturation_qps": 100,
                            "price_per_hour": "3",
                            "needs": {"inf_cores": 1},
                        },
                        {
                            "hardware": "inf",
                            "latency": "t-b",
                            "at": {"batch": 4},
                            "saturation_qps": 60,
                            "price_per_hour": "2",
                            "needs": {"inf_cores": 0.5},
                        },
                    ],
                },
            },
            "tables": {
                "t-a": latency({"batch": [1]}, [150]),
                "t-b": latency({"batch": [4, 8]}, [12, 20]),
            },
        },
        slo={
            "limits": {"cost_per_hour": "6", "resources": {"inf_cores": 2}, "moves": 2},
            "apps": {
                "faces": {
                    "runs": {"families": ["resnet50"]},
                    "latency": [{"of": "response", "percentile": 99, "max_ms": 50}],
                    "quality": {"min": 0.74},
                    "demand": {"rate_qps": 120},
                },
                "thumbs": {
                    "runs": {"task": "classify"},
                    "latency": [{"of": "response", "percentile": 99, "max_ms": 50}],
                    "demand": {"rate_qps": 60},
                },
            },
        },
        state={
            "format": "hetplan/state/1.0",
            "workers": [
                worker("old", "cpu", None, 1, load("old.a", "faces", "a")),
                worker("w1", "inf", None, 1, load("w1.b", None, "b", serve={"max_batch": 8})),
            ],
        },
        plan={
            "question": "variants",
            "method": {"formulation": "milp"},
            "workers": [worker("w1", "inf", None, 2, load("w1.b", None, "b", serve={"max_batch": 8}))],
            "routing": {"faces": [{"to": {"w1.b": 1.0}}], "thumbs": [{"to": {"w1.b": 1.0}}]},
            "actions": [
                {"id": 1, "do": "start", "worker": "w1", "count": 1},
                {"id": 2, "do": "replicate", "load": "w1.b", "after": [1]},
                {"id": 3, "do": "unload", "load": "old.a", "after": [2]},
                {"id": 4, "do": "stop", "worker": "old", "after": [3]},
            ],
            "promises": [
                promise("rate_qps", ">=", 120, "fluid", "faces"),
                promise("rate_qps", ">=", 60, "fluid", "thumbs"),
                promise("cost_per_hour", "=", 6, "no-queueing"),
            ],
            "claims": [{"about": "cost_per_hour", "sense": "min", "value": 6, "scope": "none", "vouched": "none"}],
        },
    )


def hosts() -> Json:
    """Named machines in two zones, two loads on one of them, two periods, a machine standing by, one loss survived.

    Service takes 10 ms; x is served at 100 queries/s by m1 and m2 together, and by either when the other is lost. y has
    half a GPU of m1, where the operator's step takes nothing else. In the second period a wider table is read beyond
    its end: 10 + (10 - 8) x 2 = ... (see `t-wide`).
    """
    machine = {"kind": "gpu", "provides": {"gpu": 1, "gpu_mem_gib": 16, "cpu_cores": 4}}
    return documents(
        profile={
            "hardware": {"g": machine},
            "offers": {
                "g-a": {"hardware": "g", "price_per_hour": "1.25", "stock": 2, "zone": "a"},
                "g-b": {"hardware": "g", "price_per_hour": "1.00", "stock": 2, "zone": "b"},
            },
            "hosts": {"m1": {"offer": "g-a"}, "m2": {"offer": "g-b"}},
            "tasks": {"t": {}, "u": {}},
            "variants": {
                "v": {
                    "task": "t",
                    "knobs": {"resolution": 640, "mode": "fast"},
                    "artifact": {"kind": "onnx", "sha256": "9f0c"},
                    "runs": [{"hardware": "g", "latency": "t-v", "needs": {"gpu_mem_gib": 6, "gpu": 0.5}}],
                },
                "u": {"task": "u", "runs": [{"hardware": "g", "latency": "t-wide", "needs": {"gpu_mem_gib": 4}}]},
            },
            "tables": {
                "t-v": latency({"batch": [1, 8], "resolution": [320, 640]}, [[5, 10], [None, 60]]),
                "t-wide": latency({"batch": [1, 2, 4]}, [10, 14, 18], outside="linear"),
            },
        },
        slo={
            "limits": {
                "cost_per_hour": "2.25",
                "instances": {"g": [1, 3]},
                "only_listed": True,
                "survive": {"hosts": 1, "zones": 1},
                "resources": {"gpu_mem_gib": 40},
            },
            "horizon": {"periods": 2},
            "apps": {
                "x": {
                    "runs": {"task": "t"},
                    "latency": [{"of": "response", "percentile": 99, "max_ms": 20}],
                    "network_ms_per_hop": 10,
                    "demand": {"rate_qps": 90},
                },
                "y": {"runs": {"variants": ["u"]}, "demand": {"rate_qps": 200}},
            },
        },
        plan={
            "question": "deployment",
            "method": {"formulation": "by-hand"},
            "periods": [{"id": "day", "start_s": 0, "end_s": 3600}, {"id": "night", "start_s": 3600}],
            "workers": [
                worker(
                    "w1",
                    "g",
                    "g-a",
                    1,
                    load("w1.x", "x", "v", artifact="sha256:9f0c", share={"gpu": 0.5}),
                    load("w1.y", "y", "u", instances=2, share={"gpu": 0.25, "cpu_cores": 2}, serve={"max_batch": 8}),
                    host="m1",
                    period="day",
                    queue="per-load",
                ),
                worker(
                    "w2",
                    "g",
                    "g-b",
                    1,
                    load("w2.x", "x", "v"),
                    load("w2.y", "y", "u", instances=2, serve={"max_batch": 8}),
                    host="m2",
                    period="day",
                    queue="per-load",
                ),
                worker(
                    "n1",
                    "g",
                    "g-a",
                    1,
                    load("n1.x", "x", "v"),
                    load("n1.y", "y", "u"),
                    period="night",
                    queue="per-load",
                ),
                worker(
                    "n2",
                    "g",
                    "g-b",
                    1,
                    load("n2.x", "x", "v"),
                    load("n2.y", "y", "u"),
                    period="night",
                    queue="per-load",
                ),
            ],
            "routing": {
                "x": [{"to": {"w1.x": 0.5, "w2.x": 0.5, "n1.x": 0.5, "n2.x": 0.5}}],
                "y": [{"to": {"w1.y": 0.5, "w2.y": 0.5, "n1.y": 0.5, "n2.y": 0.5}}],
            },
            "promises": [
                promise("rate_qps", ">=", 90, "fluid", "x"),
                promise("rate_qps", ">=", 100, "simulation/1", "y", interval=[100, 110]),
                promise("service_ms", "<=", 26, "no-queueing", "y", extrapolated=True),
                promise("cost_per_hour", "<=", 2.25, "no-queueing"),
            ],
            "unserved": [{"app": "y", "rate_qps": 100, "why": "the GPU is full"}],
            "warnings": [{"code": "W-extrapolated", "at": "tables.t-wide", "text": "batch 8 beyond 4"}],
        },
    )


def chain() -> Json:
    """Three steps in a row, where the way on depends on the first step: slow with fast, fast with slow (H is 40 ms).

    Loki specification, "Depth 3": paths a1-b-c2 and a2-b-c1, 35 ms each.
    """

    def variant(task: str, quality: float, ms: float) -> Json:
        return {"task": task, "quality": {"value": quality}, "runs": [{"hardware": "g", "latency": f"t-{ms}"}]}

    return documents(
        profile={
            "hardware": {"g": {"kind": "gpu"}},
            "tasks": {"a": {}, "b": {}, "c": {}},
            "variants": {
                "a1": variant("a", 1.0, 20),
                "a2": variant("a", 0.5, 10),
                "b1": variant("b", 1.0, 5),
                "c1": variant("c", 1.0, 20),
                "c2": variant("c", 0.5, 10),
            },
            "tables": {f"t-{ms}": latency({"batch": [1]}, [ms]) for ms in (5, 10, 20)},
            "pipelines": {
                "p": {
                    "nodes": {"a": {"task": "a"}, "b": {"task": "b"}, "c": {"task": "c"}},
                    "edges": [{"from": "a", "to": "b"}, {"from": "b", "to": "c"}],
                }
            },
        },
        slo={
            "apps": {
                "x": {
                    "runs": {"pipeline": "p"},
                    "latency": [{"of": "response", "percentile": 99, "max_ms": 40}],
                    "demand": {"rate_qps": 100},
                }
            }
        },
        plan={
            "question": "pipeline",
            "method": {"formulation": "config"},
            "workers": [
                worker("w1", "g", None, 1, load("w1.a", "x", "a1", node="a")),
                worker("w2", "g", None, 1, load("w2.a", "x", "a2", node="a")),
                worker("w3", "g", None, 1, load("w3.b", "x", "b1", node="b")),
                worker("w4", "g", None, 1, load("w4.c", "x", "c1", node="c")),
                worker("w5", "g", None, 1, load("w5.c", "x", "c2", node="c")),
            ],
            "routing": {
                "x": [
                    {"node": "a", "to": {"w1.a": 0.5, "w2.a": 0.5}},
                    {"node": "b", "to": {"w3.b": 1.0}},
                    {"node": "c", "prefix": ["w1.a", "w3.b"], "to": {"w5.c": 1.0}},
                    {"node": "c", "prefix": ["w2.a", "w3.b"], "to": {"w4.c": 1.0}},
                ]
            },
            "promises": [
                promise("rate_qps", ">=", 100, "fluid", "x"),
                promise("response_ms", "<=", 35, "no-queueing", "x"),
                promise("quality", "=", 0.5, "no-queueing", "x"),
            ],
        },
    )


def streams() -> Json:
    """Operators of a camera's pipeline placed on shares of machines: nothing to follow, but resources and money count.

    Beside it a plan to be packed, which asks for nothing here.
    """
    return documents(
        profile={
            "hardware": {
                "edge": {"kind": "gpu", "provides": {"cpu_cores": 8, "gpu": 1}},
                "cloud": {"kind": "gpu", "provides": {"gpu": 1, "gpu_mem_gib": 16}},
            },
            "offers": {"gpu-h": {"hardware": "cloud", "price_per_hour": "3.67", "per": "gpu"}},
            "tasks": {"detect": {}},
            "variants": {"yolo": {"task": "detect", "runs": [{"hardware": "cloud", "latency": "t"}]}},
            "tables": {"t": latency({"batch": [1]}, [10])},
            "pipelines": {
                "track": {
                    "nodes": {
                        "s": {"device": "cpu", "reads": ["frame"], "needs": {"cpu_cores": 3}},
                        "d": {"device": "gpu", "reads": ["frame"], "needs": {"gpu_mem_gib": 10}},
                    },
                    "edges": [{"from": "s", "to": "d"}],
                    "knobs": {"frame": [416, 640]},
                    "evaluator": "e",
                }
            },
        },
        slo={
            "limits": {"cost_per_hour": "0.9175"},
            "apps": {
                "cam": {"runs": {"pipeline": "track"}, "demand": {"streams": 1}},
                "packed": {"candidates": [{"demand": {"cloud": 0.5}}]},
            },
        },
        plan={
            "question": "compound",
            "method": {"formulation": "by-hand"},
            "workers": [
                worker("w2", "cloud", "gpu-h", 1, load("w2.d", "cam", None, node="d", share={"gpu": 0.25})),
            ],
            "promises": [promise("cost_per_hour", "=", 0.9175, "no-queueing")],
        },
    )


CASES: Mapping[str, Callable[[], Json]] = {
    "pool": pool,
    "chat": chat,
    "pipeline": pipeline,
    "variants": variants,
    "hosts": hosts,
    "chain": chain,
    "streams": streams,
}


def spoil(case: Json, edits: Mapping[str, Any]) -> Json:
    """A copy with values replaced: ``{"plan/workers/0/count": 2}``. A function gets the old value; DROP removes it."""
    spoilt = copy.deepcopy(case)
    for path, new in edits.items():
        *way, last = [int(step) if step.lstrip("-").isdigit() else step for step in path.split("/")]
        place: Any = spoilt
        for step in way:
            place = place[step]
        if new is DROP:
            del place[last]
        else:
            if isinstance(place, list) and last == len(place):
                place.append(None)
            place[last] = new(place[last]) if callable(new) else new
    return spoilt


def read(case: Json) -> tuple[Plan, Inputs]:
    """The documents as the verifier takes them."""
    state = State.model_validate(case["state"]) if case["state"] is not None else None
    inputs = Inputs(
        Profile.model_validate(case["profile"]),
        Slo.model_validate(case["slo"]),
        state,
        digests=case["digests"],
        trace_digests=case.get("traces", {}),
    )
    return Plan.model_validate(case["plan"]), inputs
