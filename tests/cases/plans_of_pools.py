"""Correct plans of question pool, worked out by hand."""

from __future__ import annotations

from cases.documents import Json, documents, latency, load, promise, worker


def pool() -> Json:
    """One base and one auxiliary instance, two batch sizes: 600/7 queries/s (Kairos specification, G1)."""
    fluid = 600 / 7
    return documents(
        profile={
            "hardware": {"base": {"kind": "gpu"}, "aux": {"kind": "cpu"}, "spare": {"kind": "cpu"}},
            "offers": {
                "base": {"hardware": "base", "price_per_hour": "1", "stock": 1},
                "aux": {"hardware": "aux", "price_per_hour": "0.5", "stock": 3},
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
                    "model": "m",
                    "latency": {"p99_ms": 100},
                    "rate_qps": "max",
                    "mix": {"axes": ["batch"], "bins": [[10], [20]], "share": [0.75, 0.25]},
                }
            },
        },
        plan={
            "question": "pool",
            "method": {"formulation": "pool-milp", "options": {"derate": 0.8, "xi": 0.98, "statistic": "mean"}},
            "status": "optimal",
            "workers": [
                worker("w1", "base", "base", 1, load("w1.a", "rank", "m")),
                worker("w2", "aux", "aux", 1, load("w2.a", "rank", "m")),
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
                {
                    "id": 1,
                    "form": "milp",
                    "solver": "highs",
                    "size": {"whole": 2},
                    "status": "optimal",
                    "value": fluid,
                    "bound": fluid,
                    "vouched": "claimed",
                },
                {
                    "id": 2,
                    "form": "milp",
                    "solver": "highs",
                    "size": {"whole": 2},
                    "status": "feasible",
                    "value": 1.5,
                    "bound": 1.2,
                    "vouched": "certified",
                    "certified_bound": 1.2,
                },
                {
                    "id": 3,
                    "form": "milp",
                    "solver": "highs",
                    "about": "rate of the chosen pool",
                    "size": {"whole": 0},
                    "status": "optimal",
                    "value": fluid,
                    "bound": fluid,
                    "vouched": "certified",
                    "certified_bound": fluid,
                },
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
            "limits": {"cost_per_hour": "3.2"},
            "apps": {
                "chat": {
                    "family": "llama-3",
                    "latency": {"ttft_p99_ms": 500, "tpot_p99_ms": 50},
                    "rate_qps": 7,
                    "mix": {
                        "axes": ["input_tokens", "output_tokens"],
                        "bins": [[100, 50], [300, 150], [200, 100]],
                        "share": [0.5, 0.1, 0.4],
                    },
                }
            },
        },
        plan={
            "question": "pool",
            "method": {"formulation": "pool-milp", "options": {"derate": 1.0}},
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
                promise("cost_per_hour", "<=", 3.2, "no-queueing"),
                promise("ttft_ms", "<=", 500, "simulation/1", "chat", percentile=99, interval=[430, 490], seeds=3),
            ],
            "claims": [{"about": "cost_per_hour", "sense": "min", "value": 3.2, "scope": "none", "vouched": "none"}],
        },
    )
