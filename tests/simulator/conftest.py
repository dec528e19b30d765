"""Small systems that several tests simulate; and lets these tests import the shared cases (`tests/cases/`)."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Plan
from hetplan.profiles.profile import Profile
from hetplan.profiles.slo import Slo
from hetplan.serving.system import App, Group, Load, Noise, Route, Rule, Service, Stage, System, Way
from hetplan.simulator.simulation import RunResult, Simulation, Stream

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


class Queues:
    """One application, one stage, workers with one load: the queues of textbooks."""

    @staticmethod
    def load(mean_ms: Sequence[Sequence[float]] | float = 10.0, std_ms: float = 0.0, **more: Any) -> Load:
        mean = np.atleast_2d(np.asarray(mean_ms, dtype=float))
        std = np.full(mean.shape, std_ms) if std_ms else None
        return Load("serve", {"ask": Service(mean, std)}, **more)

    @classmethod
    def system(
        cls,
        workers: int = 1,
        *,
        rule: Rule = Rule.CENTRAL,
        load: Load | None = None,
        slo_ms: float = 100.0,
        app: dict[str, Any] | None = None,
        **route: Any,
    ) -> System:
        made = load or cls.load()
        kinds = next(iter(made.services.values())).mean_ms.shape[0]
        return System(
            apps=(App("ask", (Stage("only"),), slo_ms=slo_ms, kinds=kinds, **(app or {})),),
            groups=(Group("gpu", (made,), count=workers),),
            routes=(Route("ask", "only", (Way("gpu", "serve"),), rule=rule, **route),),
        )

    @staticmethod
    def poisson_ms(rate_per_ms: float, count: int, seed: int = 1) -> np.ndarray[Any, Any]:
        return np.cumsum(np.random.default_rng(seed).exponential(1.0 / rate_per_ms, count))

    @staticmethod
    def run(system: System, times_ms: Any, *, noise: Noise = Noise.MEAN, seed: int = 0, **more: Any) -> RunResult:
        stream = Stream(system.apps[0].id, np.asarray(times_ms, dtype=float), more.pop("kinds", None))
        return Simulation(system, [stream], noise=noise, seed=seed, **more).run()

    @staticmethod
    def response_ms(result: RunResult) -> np.ndarray[Any, Any]:
        return np.asarray(result.queries["finish"] - result.queries["arrival"])


@pytest.fixture
def queues() -> type[Queues]:
    return Queues


class Plans:
    """Plans by hand, with the profile and SLO that they are for."""

    @staticmethod
    def read(profile: dict[str, Any], slo: dict[str, Any], plan: dict[str, Any]) -> tuple[Plan, Inputs]:
        hashes = {"profile": "sha256:" + "1" * 64, "slo": "sha256:" + "2" * 64}
        head = {"question": "pool", "method": {"formulation": "by-hand"}, "inputs": hashes}
        inputs = Inputs(profile=Profile.model_validate(profile), slo=Slo.model_validate(slo), digests=hashes)
        return Plan.model_validate(head | plan), inputs

    @staticmethod
    def latency(mean: Any, **more: Any) -> dict[str, Any]:
        return {"quantity": "latency_ms", "axes": {"batch": list(range(1, len(mean) + 1))}, "mean": mean, **more}

    @classmethod
    def pool(
        cls,
        counts: tuple[int, int] = (1, 3),
        *,
        rate: Any = 30.0,
        max_ms: float = 100.0,
        promises: Sequence[dict[str, Any]] = (),
        dispatch: dict[str, Any] | None = None,
        app: dict[str, Any] | None = None,
        table: dict[str, Any] | None = None,
    ) -> tuple[Plan, Inputs]:
        """Small (10, 20 ms) and large (40, 200 ms) queries on a base and an auxiliary type."""
        profile = {
            "hardware": {"base": {"kind": "gpu", "startup_s": 3.0}, "aux": {"kind": "cpu"}},
            "offers": {
                "b": {"hardware": "base", "price_per_hour": "1"},
                "a": {"hardware": "aux", "price_per_hour": "0.25"},
            },
            "tasks": {"t": {}},
            "variants": {
                "m": {
                    "task": "t",
                    "runs": [{"hardware": "base", "latency": "on-b"}, {"hardware": "aux", "latency": "on-a"}],
                }
            },
            "tables": {"on-b": cls.latency([10, 40], **(table or {})), "on-a": cls.latency([20, 200])},
        }
        demand = {"rate_qps": rate, "mix": {"axes": ["batch"], "bins": [[1], [2]], "share": [0.75, 0.25]}}
        wish = {"latency": {"p99_ms": max_ms}, "model": "m"}
        slo = {"apps": {"rank": {**wish, **demand, **(app or {})}}}
        groups = [("w1", "base", "b"), ("w2", "aux", "a")]
        workers = [
            {
                "id": name,
                "hardware": hardware,
                "offer": offer,
                "count": count,
                "loads": [{"id": f"{name}.m", "app": "rank", "variant": "m"}],
            }
            for (name, hardware, offer), count in zip(groups, counts, strict=True)
            if count
        ]
        rule = dispatch or {"rule": "matching/1", "slo_ms": max_ms, "weight": {"base": 1.0, "aux": 0.2}}
        share = {f"{worker['id']}.m": 1.0 / len(workers) for worker in workers}
        return cls.read(
            profile,
            slo,
            {
                "workers": workers,
                "routing": {"rank": [{"to": share}]},
                "dispatch": {"rank": rule},
                "promises": list(promises),
            },
        )

    @classmethod
    def pipeline(cls, **plan: Any) -> tuple[Plan, Inputs]:
        """Detection, then two classifications per query on average (1.5 after d2), on two tiers."""
        profile = {
            "tiers": ["edge", "cloud"],
            "hardware": {"near": {"kind": "gpu", "tier": "edge"}, "far": {"kind": "gpu", "tier": "cloud"}},
            "links": [{"between": ["edge", "cloud"], "bandwidth_mbps": 80, "latency_ms": 4}],
            "tasks": {"detect": {}, "classify": {}},
            "variants": {
                name: {"task": task, "quality": {"value": worth}, "runs": [{"hardware": hardware, "latency": name}]}
                for name, task, worth, hardware in (
                    ("d1", "detect", 0.9, "near"),
                    ("d2", "detect", 0.7, "near"),
                    ("c1", "classify", 0.8, "far"),
                )
            },
            "tables": {"d1": cls.latency([8, 12]), "d2": cls.latency([4, 6]), "c1": cls.latency([5, 7, 9, 11])},
            "pipelines": {
                "p": {
                    "nodes": {"d": {"task": "detect"}, "c": {"task": "classify"}},
                    "edges": [{"from": "d", "to": "c", "fanout": {"d2": 1.5, "*": 2.0}, "bytes": 10000}],
                    "quality": {"rule": "product", "paths": {"d=d1/c=c1": 0.75}},
                }
            },
        }
        slo = {
            "apps": {
                "cars": {
                    "pipeline": "p",
                    "latency": {"p99_ms": 80},
                    "network_ms_per_hop": 1,
                    "rate_qps": 100,
                }
            }
        }

        def worker(number: int, hardware: str, node: str, variant: str, count: int, batch: int) -> dict[str, Any]:
            load = {
                "id": f"w{number}.a",
                "app": "cars",
                "node": node,
                "variant": variant,
                "serve": {"max_batch": batch},
            }
            return {"id": f"w{number}", "hardware": hardware, "count": count, "loads": [load]}

        return cls.read(
            profile,
            slo,
            {
                "question": "pipeline",
                "workers": [
                    worker(1, "near", "d", "d1", 1, 2),
                    worker(2, "near", "d", "d2", 1, 2),
                    worker(3, "far", "c", "c1", 2, 4),
                ],
                "routing": {
                    "cars": [{"node": "d", "to": {"w1.a": 0.5, "w2.a": 0.5}}, {"node": "c", "to": {"w3.a": 1.0}}]
                },
                **plan,
            },
        )


@pytest.fixture
def plans() -> type[Plans]:
    return Plans
