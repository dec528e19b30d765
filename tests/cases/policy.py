"""Queue processes whose answers are known by hand, random ones, and a short way to write policy questions as files."""

from __future__ import annotations

from typing import Any

import numpy as np

from hetplan.planner.answer import Answer, Limits
from hetplan.planner.forms.queue_process import Batching, PerWhat, QueuePolicy, QueueProcess
from hetplan.solvers.queue_structured import QueueStructured

Json = dict[str, Any]


def solve(form: QueueProcess, **limits: Any) -> Answer[QueuePolicy]:
    """The default engine's answer."""
    return QueueStructured().solve(form, Limits(**limits))


def g1(accuracy_b: float = 0.9, **how: Any) -> QueueProcess:
    """By hand: one worker, a queue of one, slacks 0, 1, 2 of an SLO of 2, load ln 2; models A and B."""
    return QueueProcess(
        latency_s=np.array([[1.0, 2.0], [2.0, 3.0]]),
        accuracy=np.array([0.5, accuracy_b]),
        grid_s=np.array([0.0, 1.0, 2.0]),
        stages=1,
        stage_rates=np.array([np.log(2.0)]),
        **how,
    )


def plays(form: QueueProcess, models: list[int]) -> QueuePolicy:
    """The policy of G1 that runs these models at slacks 0, 1, 2."""
    return QueuePolicy(np.array([models]), np.ones((1, 3), dtype=np.int64))


def rows(form: QueueProcess, policy: QueuePolicy) -> np.ndarray:
    """The whole transition matrix under a policy, from the form's transpose."""
    chosen = form.chosen(policy)
    return np.stack([form.operator.push(unit, chosen) for unit in np.eye(form.states)])


def g2() -> QueueProcess:
    """Two stages, a queue of two, slacks by halves of an SLO of 2, load 2, one model of 1.6 s."""
    return QueueProcess(
        latency_s=np.full((1, 3), 1.6),
        accuracy=np.array([0.5]),
        grid_s=np.array([0.0, 0.5, 1.0, 1.5, 2.0]),
        stages=2,
        stage_rates=np.array([2.0]),
    )


def g3() -> QueueProcess:
    """One stage on the same grid and load; a single query takes half a second: b = 1 of 2 may be taken at slack 1."""
    return QueueProcess(
        latency_s=np.array([[0.5, 1.6, 1.6]]),
        accuracy=np.array([0.5]),
        grid_s=np.array([0.0, 0.5, 1.0, 1.5, 2.0]),
        stages=1,
        stage_rates=np.array([2.0]),
        batching=Batching.VARIABLE,
    )


def random_process(
    seed: int, *, queue: int = 4, slacks: int = 7, stages: int = 3, models: int = 3, **how: Any
) -> QueueProcess:
    """A small process of random latencies, accuracies, slacks and load."""
    rng = np.random.default_rng(seed)
    single = np.sort(rng.uniform(0.1, 0.5, models))
    latency = single[:, None] * (1 + rng.uniform(0.3, 0.8) * np.arange(queue + 1))[None, :]
    inner = np.sort(rng.uniform(0.02, 0.98, slacks - 2))
    rates = rng.uniform(1.0, 3.0, how.pop("rates", 1)) * stages
    return QueueProcess(
        latency_s=latency,
        accuracy=np.sort(rng.uniform(0.3, 0.95, models)),
        grid_s=np.concatenate([[0.0], inner, [1.0]]),
        stages=stages,
        stage_rates=rates,
        name=f"random {seed}",
        **how,
    )


def per_decision(form: QueueProcess) -> bool:
    """Whether the form is judged by decisions."""
    return form.objective is PerWhat.PER_DECISION


def files(
    *,
    slo_ms: float = 100.0,
    rate_qps: Any = 100.0,
    workers: tuple[int, int | None] = (4, 4),
    models: dict[str, tuple[float, float, float]] | None = None,
    batches: tuple[int, ...] = (1, 2, 4, 8),
    percentile: float = 99.0,
    hardware: str = "cpu",
    **app: Any,
) -> tuple[Json, Json]:
    """A profile and an SLO: models as name -> (accuracy, ms for any batch, ms per query)."""
    chosen = models or {"fast": (0.6, 4.0, 2.0), "middle": (0.75, 8.0, 5.0), "slow": (0.85, 15.0, 12.0)}
    profile: Json = {
        "format": "hetplan/profile/1.0",
        "hardware": {hardware: {"kind": "cpu"}},
        "tasks": {"see": {}},
        "variants": {
            name: {
                "task": "see",
                "quality": {"value": quality},
                "runs": [{"hardware": hardware, "latency": f"t-{name}"}],
            }
            for name, (quality, _, _) in chosen.items()
        },
        "tables": {
            f"t-{name}": {
                "quantity": "latency_ms",
                "axes": {"batch": list(batches)},
                "p95": [base + step * b for b in batches],
            }
            for name, (_, base, step) in chosen.items()
        },
    }
    slo: Json = {
        "format": "hetplan/slo/1.0",
        "objective": ["max goodput"],
        "limits": {"instances": {hardware: list(workers)}},
        "apps": {
            "a": {
                "task": "see",
                "latency": {f"p{percentile:g}_ms": slo_ms},
                "dispatch": "round-robin",
                "rate_qps": rate_qps,
                **app,
            }
        },
    }
    return profile, slo
