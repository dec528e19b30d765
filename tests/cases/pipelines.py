"""Pipelines for tests: known answers of small ones, and random trees from a seed."""

import random
from types import SimpleNamespace

from cases.simulated import app_saying, report_of

import hetplan as hp
from hetplan.api.solve import plan_for
from hetplan.profiles.load import load_inputs


def fluid(*files, options=None, **how):
    """Solved with the sizes of the papers: servers filled to the brim, whose figures are known."""
    return hp.solve(*files, options={"sizing": "fluid", **(options or {})}, **how)


def fluid_without_repairs(*files, formulation):
    """The same, where nobody asks what would make a plan possible."""
    return plan_for(load_inputs(*files), formulation=formulation, options={"sizing": "fluid"}, try_repairs=False)


def simulator_saying(share_of, waiting_at=""):
    """A simulator in which each application loses `share_of(plan)`, and queries wait at one step."""

    def simulate(plan, inputs, *, seeds, seed, duration_s):
        app = app_saying(share_of(plan), seeds)
        waiting = {worker.id: float(worker.loads[0].node == waiting_at) for worker in plan.workers}
        groups = {name: SimpleNamespace(waiting=SimpleNamespace(value=many)) for name, many in waiting.items()}
        return report_of(dict.fromkeys(plan.routing, app), groups, seeds=seeds, duration_s=duration_s)

    return simulate


HAND = [
    # (pipeline, arguments, accuracy or None where infeasible, servers or None where not stated)
    *[
        ("tiny", (slo, demand), *answer)
        for slo, row in {
            0.20: [(1, 3), (1, 5), (0.964516, 5), (0.9, 5), (0.84, 5), (0.765, 5), (0.72, 5), (None, None)],
            0.19: [(0.9, 2), (0.9, 4), (0.9, 4), (0.9, 5), (0.84, 5), (0.765, 5), (0.72, 5), (None, None)],
            0.13: [(0.72, 2), (0.72, 2), (0.72, 2), (0.72, 3), (0.72, 4), (0.72, 4), (0.72, 5), (None, None)],
        }.items()
        for demand, answer in zip((20, 30, 31, 50, 60, 80, 100, 101), row, strict=True)
    ],
    ("two_gpus", (50,), 1, 1),
    ("two_gpus", (51,), 1, 2),
    ("two_gpus", (90,), 1, 3),
    ("two_gpus", (91,), 0.953846, None),
    ("two_gpus", (150,), 0.866667, None),
    ("two_gpus", (151,), 0.826490, None),
    ("two_gpus", (200,), 0.8, None),
    ("two_gpus", (201,), None, None),
    ("two_sinks", (20,), 1, 4),
    ("two_sinks", (21,), 0.75, None),
    ("two_sinks", (30,), 0.75, None),
    ("two_sinks", (40,), 0.75, None),
    ("two_sinks", (41,), None, None),
    ("two_pipelines", (1,), None, None),
    ("two_pipelines", (2,), 0.82, None),
    ("two_pipelines", (3,), 0.94, None),
    ("two_pipelines", (4,), 1, None),
    ("depth_3", (100,), 1, None),
    ("depth_3", (110,), 0.590909, None),
    ("depth_3", (150,), 0.5, None),
]


def random_pipeline(seed: int, *, gpus: int = 1, tasks: int = 4) -> tuple[dict, dict]:
    """A random tree of tasks with a demand that its servers may or may not carry."""
    chance = random.Random(seed)
    hardware = ["g", "h"][:gpus]
    count = chance.randint(1, tasks)
    nodes = [f"t{t}" for t in range(count)]
    parent = [None, *[chance.randrange(t) for t in range(1, count)]]
    variants: dict = {}
    tables: dict = {}
    for node in nodes:
        for k in range(chance.randint(1, 3)):
            name = f"{node}-{k}"
            runs = []
            for gpu in hardware:
                base = chance.uniform(5, 40)
                sizes = [1, 2, 4][: chance.randint(1, 3)]
                tables[f"{name}-{gpu}"] = {
                    "quantity": "latency_ms",
                    "axes": {"batch": sizes},
                    "p50": [base * (1 + chance.uniform(0.2, 0.9) * (size - 1)) for size in sizes],
                }
                runs.append({"hardware": gpu, "latency": f"{name}-{gpu}"})
            quality = {"value": round(chance.uniform(0.5, 1), 3)}
            variants[name] = {"task": node, "quality": quality, "runs": runs}
    edges = [
        {
            "from": nodes[above],
            "to": nodes[t],
            "fanout": {
                name: round(chance.uniform(0.5, 2.5), 2) for name in variants if name.startswith(nodes[above] + "-")
            },
        }
        for t, above in enumerate(parent)
        if above is not None
    ]
    profile = {
        "format": "hetplan/profile/1.0",
        "hardware": {gpu: {"kind": "gpu"} for gpu in hardware},
        "tasks": {node: {} for node in nodes},
        "variants": variants,
        "tables": tables,
        "pipelines": {"p": {"nodes": {node: {"task": node} for node in nodes}, "edges": edges}},
    }
    app = {
        "pipeline": "p",
        "latency": {"p99_ms": round(chance.uniform(120, 400), 1)},
        "network_ms_per_hop": chance.choice([0, 0, 1.5]),
        "rate_qps": round(chance.uniform(5, 150), 1),
    }
    slo = {
        "format": "hetplan/slo/1.0",
        "limits": {"instances": {gpu: [0, chance.randint(2, 8)] for gpu in hardware}},
        "apps": {"x": app},
    }
    return profile, slo


def diamond(demand: float, slo_ms: float, servers: int = 8) -> tuple[dict, dict]:
    """a, then b and c side by side, then d, which waits for both; accuracy is the mean of the four."""
    variants, tables = {}, {}
    for task in "abcd":
        for name, quality, ms in (("good", 1.0, 20), ("fast", 0.5, 10)):
            runs = [{"hardware": "g", "latency": f"{task}-{name}"}]
            variants[f"{task}-{name}"] = {"task": task, "quality": {"value": quality}, "runs": runs}
            tables[f"{task}-{name}"] = {"quantity": "latency_ms", "axes": {"batch": [1]}, "p50": [ms]}
    profile = {
        "format": "hetplan/profile/1.0",
        "hardware": {"g": {"kind": "gpu"}},
        "tasks": {task: {} for task in "abcd"},
        "variants": variants,
        "tables": tables,
        "pipelines": {
            "p": {
                "nodes": {task: {"task": task} for task in "abcd"},
                "quality": {"rule": "additive", "weights": dict.fromkeys("abcd", 0.25)},
                "edges": [{"from": a, "to": b} for a, b in ("ab", "ac", "bd", "cd")],
            }
        },
    }
    app = {
        "pipeline": "p",
        "latency": {"p99_ms": slo_ms},
        "rate_qps": demand,
    }
    return profile, {"format": "hetplan/slo/1.0", "limits": {"instances": {"g": [0, servers]}}, "apps": {"x": app}}
