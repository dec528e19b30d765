"""Correct plans of pipelines, worked out by hand."""

from __future__ import annotations

from cases.documents import Json, documents, latency, load, promise, worker


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
                    "pipeline": "traffic",
                    "latency": {"p99_ms": 100},
                    "quality": {"min": 0.77},
                    "network_ms_per_hop": 2,
                    "rate_qps": 150,
                }
            }
        },
        plan={
            "question": "pipeline",
            "method": {
                "formulation": "pipeline-milp",
                "options": {"slo_divisor": 2, "statistic": "p50", "headroom": 0.1},
            },
            "status": "feasible",
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
                    "pipeline": "p",
                    "latency": {"p99_ms": 40},
                    "rate_qps": 100,
                }
            }
        },
        plan={
            "question": "pipeline",
            "method": {"formulation": "pipeline-milp", "options": {"statistic": "mean"}},
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
                "cam": {"pipeline": "track", "streams": 1},
                "packed": {"candidates": [{"demand": {"cloud": 0.5}}]},
            },
        },
        plan={
            "question": "compound",
            "method": {"formulation": "by-hand", "options": {"statistic": "mean"}},
            "workers": [
                worker("w2", "cloud", "gpu-h", 1, load("w2.d", "cam", None, node="d", share={"gpu": 0.25})),
            ],
            "promises": [promise("cost_per_hour", "=", 0.9175, "no-queueing")],
        },
    )
