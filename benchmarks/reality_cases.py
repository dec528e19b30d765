"""The plans and loads that `reality.py` compares with their simulation, and those by which it calibrates itself."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["CHAIN", "ONNX", "Case", "chain", "hops", "onnx", "pipelines", "policies", "pools"]


@dataclass(frozen=True)
class Case:
    """A plan to make, and the loads to send it."""

    models: str
    rule: str
    profile: dict[str, Any]
    slo: dict[str, Any]
    solve: Sequence[str]
    loads: Sequence[tuple[str, float, str]]
    kind: str = "sleep"
    dispatch: str = ""
    way: str = "workers"
    """Where queries wait: at the workers, in the router, or at the workers of a pipeline's steps (`hops`)."""
    hosts: str = "machines = 40"
    """What site.toml says of the machines."""
    other_cores: Sequence[int] = ()
    """Where router and sender run, if not everywhere."""
    hop_ms: float | None = None
    """What a query spends outside the router, where the profile says it."""
    load: Sequence[str] = ()
    """More words for `hetplan loadtest`."""

    @property
    def deadline_ms(self) -> float:
        """The application's deadline."""
        (app,) = self.slo["apps"].values()
        return float(app["latency"]["p99_ms"])


def table(batches: Sequence[int], mean: Sequence[float], *, spread: float = 0.08) -> dict[str, Any]:
    std = [spread * value for value in mean]
    factors = {"p50": 0.0, "p95": 1.7, "p99": 2.5}
    tails = {name: [value * (1 + factor * spread) for value in mean] for name, factor in factors.items()}
    return {
        "quantity": "latency_ms", "axes": {"batch": list(batches)}, "mean": list(mean), "std": std, **tails,
        "outside": "linear",
    }  # fmt: skip


def document(
    tables: dict[str, dict[str, dict[str, Any]]],
    *,
    quality: dict[str, float],
    task: dict[str, str],
    price: dict[str, str],
) -> dict[str, Any]:
    """A profile: tables by variant and hardware."""
    return {
        "format": "hetplan/profile/1.0",
        "metrics": {"right": {"kind": "bernoulli"}},
        "hardware": {name: {"kind": "cpu"} for name in price},
        "offers": {f"{name}": {"hardware": name, "price_per_hour": cost} for name, cost in price.items()},
        "tasks": {name: {"metric": "right"} for name in dict.fromkeys(task.values())},
        "variants": {
            variant: {
                "task": task[variant],
                "family": task[variant],
                "quality": {"value": quality[variant]},
                "runs": [{"hardware": name, "latency": f"{variant}-{name}"} for name in by],
            }
            for variant, by in tables.items()
        },
        "tables": {f"{variant}-{name}": one for variant, by in tables.items() for name, one in by.items()},
    }


def hops() -> Iterator[Case]:
    """One idle worker per step, whose service times never differ: what is measured beyond them is the way there."""
    still = table((1, 2), (5, 10), spread=0.0)
    loads = (("25 qps", 25.0, "deterministic"),)
    limits = {"cost_per_hour": "1", "instances": {"m": [1, 1]}}
    app: dict[str, Any] = {"latency": {"p99_ms": 100}}
    profile = document({"rank": {"m": still}}, quality={"rank": 0.8}, task={"rank": "rank"}, price={"m": "0.3"})
    mix = {"axes": ["batch"], "bins": [[1]], "share": [1.0]}
    app |= {"model": "rank", "rate_qps": "max", "mix": mix}
    slo = {"format": "hetplan/slo/1.0", "limits": limits, "apps": {"rank": app}}
    for way, dispatch in (("router", ""), ("workers", "shares")):
        yield Case("hop", way, profile, slo, ("--formulation", "pool"), loads, dispatch=dispatch, way=way)
    steps = ("find", "name")
    profile = document(
        {step: {"m": still} for step in steps},
        quality=dict.fromkeys(steps, 0.8), task={step: step for step in steps}, price={"m": "0.3"},
    )  # fmt: skip
    edges = [{"from": "find", "to": "name", "fanout": 1.0}]
    profile["pipelines"] = {"p": {"nodes": {step: {"task": step} for step in steps}, "edges": edges}}
    app = {"latency": app["latency"], "pipeline": "p", "rate_qps": 25.0}
    slo = {"format": "hetplan/slo/1.0", "limits": {"instances": {"m": [0, 2]}}, "apps": {"p": app}}
    yield Case("hop", "pipeline", profile, slo, (), loads, way="pipeline")


def pools() -> Iterator[Case]:
    """Queries of three sizes over fast and slow machines, under every central and decentral rule."""
    sizes = (1, 4, 8)
    profile = document(
        {"rank": {"big": table(sizes, (14, 20, 30)), "little": table(sizes, (24, 52, 90))}},
        quality={"rank": 0.8}, task={"rank": "rank"}, price={"big": "0.5", "little": "0.2"},
    )  # fmt: skip
    mix = {"axes": ["batch"], "bins": [[1], [4], [8]], "share": [0.6, 0.3, 0.1]}
    app: dict[str, Any] = {"model": "rank", "rate_qps": "max", "mix": mix}
    limits = {"cost_per_hour": "3", "instances": {"big": [4, 4], "little": [5, 5]}}
    loads = (("150 qps", 150.0, "poisson"), ("230 qps", 230.0, "poisson"), ("180 qps, gamma 0.5", 180.0, "gamma:0.5"))
    for rule in ("matching", "threshold", "earliest", "fcfs", "shares"):
        stated = {"dispatch": rule} if rule in ("threshold", "earliest") else {}
        way = "workers" if rule in ("earliest", "shares") else "router"
        latency = {"p99_ms": 100 if rule in ("threshold", "earliest") else 150}
        slo = {"format": "hetplan/slo/1.0", "limits": limits, "apps": {"rank": {**app, **stated, "latency": latency}}}
        other = rule if rule in ("fcfs", "shares") else ""
        yield Case("pool", rule, profile, slo, ("--formulation", "pool"), loads, dispatch=other, way=way)


def pipelines() -> Iterator[Case]:
    """Two steps with a fan-out, queries served late or given up."""
    sizes = (1, 2, 4, 8)
    profile = document(
        {
            "find-s": {"m": table(sizes, (9, 13, 21, 37))},
            "find-l": {"m": table(sizes, (22, 34, 58, 106))},
            "name-s": {"m": table(sizes, (7, 10, 16, 28))},
            "name-l": {"m": table(sizes, (18, 28, 48, 88))},
        },
        quality={"find-s": 0.7, "find-l": 0.85, "name-s": 0.75, "name-l": 0.9},
        task={"find-s": "find", "find-l": "find", "name-s": "name", "name-l": "name"},
        price={"m": "0.3"},
    )
    edges = [{"from": "find", "to": "name", "fanout": 1.5}]
    nodes = {"find": {"task": "find"}, "name": {"task": "name"}}
    profile["pipelines"] = {"p": {"nodes": nodes, "edges": edges}}
    for late in ("serve", "drop"):
        app = {
            "pipeline": "p",
            "latency": {"p99_ms": 200},
            "late": late,
            "rate_qps": 220.0,
        }
        limits = {"instances": {"m": [0, 14]}}
        slo = {"format": "hetplan/slo/1.0", "limits": limits, "apps": {"p": app}}
        loads = (
            ("120 qps", 120.0, "poisson"),
            ("180 qps", 180.0, "poisson"),
            ("150 qps, gamma 0.5", 150.0, "gamma:0.5"),
        )
        yield Case("pipeline", f"path-shares, late: {late}", profile, slo, (), loads, way="pipeline")


def policies() -> Iterator[Case]:
    """Which of three models, and how many queries at once, by queue length and slack."""
    sizes = tuple(range(1, 9))
    speeds = {"s": 4.0, "m": 10.0, "l": 24.0}
    profile = document(
        {name: {"m": table(sizes, [speed * (0.4 + 0.6 * size) for size in sizes])} for name, speed in speeds.items()},
        quality={"s": 0.65, "m": 0.78, "l": 0.88}, task=dict.fromkeys(speeds, "see"), price={"m": "0.3"},
    )  # fmt: skip
    for balancer in ("round-robin", "shortest-queue"):
        app = {
            "task": "see",
            "latency": {"p99_ms": 110},
            "dispatch": balancer,
            "rate_qps": 250.0,
        }
        limits = {"instances": {"m": [6, 6]}}
        slo = {"format": "hetplan/slo/1.0", "limits": limits, "objective": ["max goodput"], "apps": {"see": app}}
        loads = (
            ("150 qps", 150.0, "poisson"),
            ("250 qps", 250.0, "poisson"),
            ("200 qps, gamma 0.5", 200.0, "gamma:0.5"),
        )
        yield Case("policy", f"queue-slack, {balancer}", profile, slo, ("--set", "batching=max"), loads)


SHARES = (0.15, 0.3, 0.45)
"""How much of its time a worker with a real model serves."""
ONNX = ("medium", "large")
"""The models of the end-to-end example that are served for real."""


def onnx(profile: dict[str, Any], *, shared: bool = False) -> Iterator[Case]:
    """Real models, measured just before: one on a core of its own, or two that share both cores with all else."""
    cores = sorted(os.sched_getaffinity(0))
    workers = 2 if shared else 1
    hosts = f"count = {workers}" if shared else f"count = {workers}\ncores = [{cores[-1]}]\ncores_per_worker = 1"
    others = cores if shared else cores[:-1] or cores
    for name in ONNX:
        mean_ms = profile["tables"][f"{name}-cpu-1"]["mean"][0]
        app = {
            "model": name,
            "latency": {"p99_ms": float(f"{4 * mean_ms:.3g}")},
            "rate_qps": "max",
            "mix": {"axes": ["batch"], "bins": [[1]], "share": [1.0]},
        }
        limits = {"cost_per_hour": "1", "instances": {"cpu-1": [workers, workers]}}
        slo = {"format": "hetplan/slo/1.0", "limits": limits, "apps": {"see": app}}
        words = "{:.0%} of two cores" if shared else "{:.0%} of its core"
        loads = tuple((words.format(share), share * workers * 1000.0 / mean_ms, "poisson") for share in SHARES)
        models = "onnx-shared" if shared else "onnx"
        yield Case(
            models, f"fcfs, {name}", profile, slo, ("--formulation", "pool"), loads, kind="onnx", dispatch="fcfs",
            way="router", hosts=hosts, other_cores=others,
        )  # fmt: skip


CHAIN = ("small", "medium", "large")
"""The models that go the documented way, from `hetplan profile` to `hetplan loadtest`."""


def chain(profiled: Callable[[str, float], dict[str, Any]]) -> Iterator[Case]:
    """Real models as the pages say: measured through a router, planned, applied, and sent labelled inputs.

    `profiled` measures a model that is busy for this share of its time, as it will be.
    """
    core = max(os.sched_getaffinity(0))
    for name, share in ((name, share) for name in CHAIN for share in SHARES):
        profile = profiled(name, share)
        mean_ms = profile["tables"][f"{name}-cpu-1"]["mean"][0]
        (cell,) = profile["extensions"][f"measured.{name}"]["cpu-1"]["cells"]
        app = {
            "model": name,
            "latency": {"p99_ms": float(f"{4 * mean_ms:.3g}")},
            "rate_qps": "max",
            "mix": {"axes": ["batch"], "bins": [[1]], "share": [1.0]},
        }
        limits = {"cost_per_hour": "1", "instances": {"cpu-1": [1, 1]}}
        slo = {"format": "hetplan/slo/1.0", "limits": limits, "apps": {"see": app}}
        yield Case(
            "chain", f"matching, {name}", profile, slo, ("--formulation", "pool"),
            ((f"{share:.0%} of its core", share * 1000.0 / mean_ms, "poisson"),), kind="onnx", way="router",
            hosts=f"count = 1\ncores = [{core}]\ncores_per_worker = 1", hop_ms=cell["beside_ms"],
            load=("--labelled", "labelled.npz"),
        )  # fmt: skip
