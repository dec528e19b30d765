"""Correct plans in which it matters what runs on which machine, worked out by hand."""

from __future__ import annotations

from cases.documents import Json, documents, latency, load, promise, worker


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
            "limits": {"cost_per_hour": "6", "capacity": {"inf_cores": 2}, "changes": 2},
            "apps": {
                "faces": {
                    "family": "resnet50",
                    "latency": {"p99_ms": 50},
                    "quality": {"min": 0.74},
                    "rate_qps": 120,
                },
                "thumbs": {
                    "task": "classify",
                    "latency": {"p99_ms": 50},
                    "rate_qps": 60,
                },
            },
        },
        state={
            "format": "hetplan/state/1.0",
            "workers": [
                worker("old", "cpu", None, 1, load("old.a", "faces", "a")),
                worker("w1", "inf", None, 1, load("w1.b", None, "b", at={"batch": 8}, serve={"max_batch": 8})),
            ],
        },
        plan={
            "question": "variants",
            "method": {"formulation": "variants-milp"},
            "workers": [worker("w1", "inf", None, 2, load("w1.b", None, "b", at={"batch": 8}, serve={"max_batch": 8}))],
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
    """Named machines in two zones, two loads on one of them, two periods, a machine standing by.

    Service takes 10 ms; x is served at 100 queries/s by m1 and m2 together. y has
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
                "capacity": {"gpu_mem_gib": 40},
            },
            "horizon": {"periods": 2},
            "apps": {
                "x": {
                    "task": "t",
                    "latency": {"p99_ms": 20},
                    "network_ms_per_hop": 10,
                    "rate_qps": 90,
                },
                "y": {"model": "u", "rate_qps": 200},
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
                    load("w2.x", "x", "v", artifact="sha256:9f0c"),
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
                    load("n1.x", "x", "v", artifact="sha256:9f0c"),
                    load("n1.y", "y", "u"),
                    period="night",
                    queue="per-load",
                ),
                worker(
                    "n2",
                    "g",
                    "g-b",
                    1,
                    load("n2.x", "x", "v", artifact="sha256:9f0c"),
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
                promise("rate_qps", ">=", 100, "simulation/1", "y", interval=[100, 110], seeds=5),
                promise("service_ms", "<=", 26, "no-queueing", "y", extrapolated=True),
                promise("cost_per_hour", "<=", 2.25, "no-queueing"),
            ],
            "unserved": [{"app": "y", "rate_qps": 100, "why": "the GPU is full"}],
            "warnings": [{"code": "W-extrapolated", "at": "tables.t-wide", "text": "batch 8 beyond 4"}],
        },
    )
