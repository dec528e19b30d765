"""What a policy gives in the long run: accuracy, lateness, utilisation, quantiles, from its stationary distribution.

All of it is a property of the model of the queue, in which slack is rounded down and a batch whose oldest query is late
counts as late altogether. In every case measured so far simulation was better than the goodput and the violation rate
here; that is experience, not a bound, and the accuracy of the queries in time is not even that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from hetplan.planner.forms.queue_process import QueuePolicy, QueueProcess

__all__ = ["Measures", "measure"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Measures:
    """Averages over queries (weighted by batch) and over decisions; accuracies are of what is in time."""

    accuracy_by_query: float
    accuracy_by_decision: float
    violation_by_query: float
    violation_by_decision: float
    goodput: float
    over_probability: float
    utilisation: float
    accuracy_p1: float
    accuracy_p50: float
    queue_p50: float
    queue_p99: float
    by_queue: tuple[float, ...]
    """Share of decisions that find 1..N waiting, and more."""
    model_share: tuple[float, ...]
    """Share of the queries in time that each model answers."""


def measure(form: QueueProcess, policy: QueuePolicy, mass: Floats) -> Measures:
    """Read the averages off a stationary distribution over the form's states."""
    chosen = form.chosen(policy)
    actions = form.actions
    p, over = mass[: form.over], float(mass[form.over])
    taken, served = actions.taken[chosen].astype(float), actions.batch[chosen].astype(float)
    in_time = actions.in_time[chosen]
    accuracy = form.accuracy[actions.model[chosen]]
    late_over = float(form.queue + 1)
    queries = float(p @ taken) + over * late_over
    decisions = float(p.sum()) + over
    good, good_decisions = float(p @ (served * in_time)), float(p @ in_time)
    good_accuracy = float(p @ (served * in_time * accuracy))
    model_queries = np.zeros(form.models)
    np.add.at(model_queries, actions.model[chosen], p * served * in_time)
    by_queue = np.append(p.reshape(form.queue, form.slacks).sum(axis=1), over) / decisions
    return Measures(
        accuracy_by_query=_share(good_accuracy, good),
        accuracy_by_decision=_share(float(p @ (in_time * accuracy)), good_decisions),
        violation_by_query=_share(float(p @ (taken - served * in_time)) + over * late_over, queries),
        violation_by_decision=_share(float(p @ ~in_time) + over, decisions),
        goodput=_share(good_accuracy, queries),
        over_probability=_share(over, decisions),
        utilisation=_utilisation(form, p, over, chosen, queries),
        accuracy_p1=_quantile(form.accuracy, model_queries, 0.01),
        accuracy_p50=_quantile(form.accuracy, model_queries, 0.5),
        queue_p50=float(np.searchsorted(np.cumsum(by_queue), 0.5) + 1),
        queue_p99=float(np.searchsorted(np.cumsum(by_queue), 0.99) + 1),
        by_queue=tuple(float(x) for x in by_queue),
        model_share=tuple(_share(float(x), good) for x in model_queries),
    )


def _utilisation(form: QueueProcess, p: Floats, over: float, chosen: NDArray[np.int64], queries: float) -> float:
    """Busy time per query times queries per second; queries come at their rate whatever is decided."""
    actions = form.actions
    batch = actions.batch[chosen]
    busy_s = np.where(batch > 0, form.latency_s[actions.model[chosen], np.maximum(batch, 1) - 1], 0.0)
    per_decision_s = float(p @ busy_s) + over * float(form.latency_s[0, form.over_batch - 1])
    return min(per_decision_s / queries * form.own_rate, 1.0) if queries > 0 else 0.0


def _quantile(values: Floats, weights: Floats, level: float) -> float:
    """The least value that at least this share of the weight does not exceed."""
    if weights.sum() <= 0:
        return 0.0
    order = np.argsort(values)
    reached = np.cumsum(weights[order]) / weights.sum()
    return float(values[order][min(int(np.searchsorted(reached, level)), values.size - 1)])


def _share(part: float, whole: float) -> float:
    return min(max(part / whole, 0.0), 1.0) if whole > 0 else 0.0
