"""What the table of a policy gives in the long run, recomputed from the profile, the wish and the arrivals."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Plan
from hetplan.profiles.plan_policy import PolicyTable
from hetplan.profiles.profile import Run
from hetplan.profiles.slo import App
from hetplan.profiles.tables import Table
from hetplan.profiles.workers import Worker
from hetplan.verifier.plan_index import judged_statistic, run_of, says_another_statistic
from hetplan.verifier.policy_chain import Chain, NewHeads, enclosed
from hetplan.verifier.service import nearest_statistic, table_along_batches

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Bools = NDArray[np.bool_]
    Floats = NDArray[np.float64]
    Integers = NDArray[np.int64]


__all__ = [
    "ON_GRID",
    "OWN_QUEUES",
    "QUANTILES",
    "Choices",
    "accuracy_of",
    "arrivals_of",
    "batch_latencies_ms",
    "figures_of",
    "has_one_queue",
    "latencies_s",
    "row_of",
]


# Latencies for every batch
#
# Batches 1..N: measured, else on the least-squares line of what was measured (never below half of the least measured);
# then made to grow with the batch, upwards ("safe") or downwards ("optimistic"). Batch N + 1: on the line of 1..N,
# never below N.


def batch_latencies_ms(table: Table, run: Run, *, statistic: str, queue_max: int, monotone: str) -> list[float]:
    """Milliseconds for batches of 1..N + 1; empty where the table does not say."""
    grid: Any = getattr(table, statistic, None)
    for axis, points in table.axes.items():
        if axis != "batch" and run.at.get(axis) not in points:
            return []
    measured = _cells(grid, list(table.axes), table, run.at)
    if not measured or (len(measured) < 2 and queue_max > 1):
        return []
    known = {size: value for size, value in measured.items() if size <= queue_max}
    values = [known.get(size, 0.0) for size in range(1, queue_max + 1)]
    if len(known) < queue_max:
        slope, level = _line(list(measured.items()))
        floor = 0.5 * min(measured.values())
        values = [known.get(size, max(slope * size + level, floor)) for size in range(1, queue_max + 1)]
    if monotone == "safe":
        for i in range(1, queue_max):
            values[i] = max(values[i], values[i - 1])
    else:
        for i in range(queue_max - 2, -1, -1):
            values[i] = min(values[i], values[i + 1])
    if queue_max == 1:
        return [*values, max(values[0], measured[2]) if 2 in measured else 2 * values[0]]
    slope, level = _line([(i + 1, value) for i, value in enumerate(values)])
    return [*values, max(values[-1], slope * (queue_max + 1) + level)]


def _cells(grid: Any, axes: list[str], table: Table, at: Mapping[str, float]) -> dict[int, float]:
    if not axes:
        return {1: float(grid)} if grid is not None else {}
    if grid is None:
        return {}
    if axes[0] != "batch":
        return _cells(grid[table.axes[axes[0]].index(at[axes[0]])], axes[1:], table, at)
    found: dict[int, float] = {}
    for size, row in zip(table.axes["batch"], grid, strict=True):
        inner = _cells(row, axes[1:], table, at) if axes[1:] else ({1: float(row)} if row is not None else {})
        if inner:
            found[int(size)] = next(iter(inner.values()))
    return found


def _line(points: list[tuple[int, float]]) -> tuple[float, float]:
    """Slope and level of the least-squares line."""
    count = len(points)
    middle_x, middle_y = sum(x for x, _ in points) / count, sum(y for _, y in points) / count
    spread = sum((x - middle_x) ** 2 for x, _ in points)
    slope = sum((x - middle_x) * (y - middle_y) for x, y in points) / spread if spread else 0.0
    return slope, middle_y - slope * middle_x


# Figures


ON_GRID = 1e-9
"""Times nearer than this part of the SLO are one: files round them."""
OWN_QUEUES = ("policy-mdp", "ramsis")
"""Formulations whose tables are of a worker's own queue; a rule of another package may keep one queue for all."""
QUANTILES = {"accuracy_p1": 0.01, "accuracy_p50": 0.5, "queue_p50": 0.5, "queue_p99": 0.99}
"""What of an expectation is no average: the least value that such a share does not exceed."""
_MOST_STAGES = 2000
"""Arrivals of more stages are not recomputed: the arrays grow with them."""
_EVEN_ENOUGH = 200
"""Arrivals more regular than so many stages may be planned as so many."""
_BESIDE = 1e-6
"""Values of an expectation that are so close are one."""


@dataclass(frozen=True)
class Choices:
    """What a table does [n - 1, j]: which model on how many, how long that takes, and whether it is in time."""

    grid_s: Floats
    model: Integers
    batch: Integers
    busy_s: Floats
    in_time: Bools

    @classmethod
    def of(cls, table: PolicyTable, latency_s: Floats) -> Choices:
        """Read a table."""
        grid = np.array(table.slack_ms) / 1000.0
        model, batch = np.array(table.model_rows()), np.array(table.batch_rows())
        busy = np.where(batch > 0, latency_s[model, batch - 1], 0.0)
        return cls(grid, model, batch, busy, (batch > 0) & (busy <= grid + ON_GRID * grid[-1]))


def has_one_queue(plan: Plan, app_id: str) -> bool:
    """Whether all workers of an application take from one queue, as its dispatch says and its formulation may."""
    one_queue = getattr(plan.dispatch.get(app_id), "balancing", None) == "shared_fifo"
    return one_queue and plan.method.formulation not in OWN_QUEUES


def latencies_s(plan: Plan, inputs: Inputs, worker: Worker, table: PolicyTable) -> Floats | None:
    """Seconds for batches of 1..N + 1 [model, batch - 1]; None where the profile does not say."""
    rows = []
    for name in table.models:
        load = next((load for load in worker.loads if load.variant == name), None)
        run = run_of(inputs.profile, worker, load) if load is not None else None
        row = row_of(plan, inputs, name, run, table.queue_max) if run is not None else []
        if not row:
            return None
        rows.append(row)
    return np.array(rows) / 1000.0


def row_of(plan: Plan, inputs: Inputs, variant: str, run: Run, queue_max: int) -> list[float]:
    """Milliseconds of a run for batches of 1..N + 1; empty where the profile does not say."""
    if run.latency is None:
        return []
    options, measured = plan.method.options, table_along_batches(inputs.profile, variant, run)
    wanted = judged_statistic(plan)
    return batch_latencies_ms(
        measured,
        run,
        statistic=nearest_statistic(measured, wanted) if says_another_statistic(plan) else wanted,
        queue_max=queue_max,
        monotone=str(options.get("monotone", "safe")),
    )


def figures_of(plan: Plan, inputs: Inputs, app_id: str, table: PolicyTable, heads: NewHeads) -> dict[str, float] | None:
    """What the table gives in the long run; None where this is not recomputed. `heads` is for all tables of a plan.

    Of each of `QUANTILES` that the table states: the shares below it (``name<``) and up to it (``name<=``).
    """
    worker, app = next(worker for worker in plan.workers if worker.id == table.workers), inputs.slo.apps[app_id]
    latency = latencies_s(plan, inputs, worker, table)
    if latency is None or has_one_queue(plan, app_id):
        return None
    arrivals = arrivals_of(plan, inputs, app_id, app, table, latency)
    if arrivals is None:
        return None
    stages, rate_of = arrivals
    over_batch = table.queue_max + 1 if table.otherwise.batch == "max" else table.otherwise.batch
    idle = plan.method.options.get("empty_state") == "paper"
    made = Choices.of(table, latency)
    chain = Chain(latency, made.grid_s, stages, rate_of, made.model, made.batch, over_batch, idle)
    accuracy = np.array([accuracy_of(inputs, name) for name in table.models])
    earned = _rewards(table, made, accuracy[made.model], float(latency[0, over_batch - 1]))
    columns, over = (np.stack([column[k] for column in earned.values()], axis=-1) for k in range(2))
    low, high = enclosed(chain, columns, over, np.zeros(over.size), heads)
    mean = dict(zip(earned, (0.5 * (low + high)).tolist(), strict=True))
    timely, good, queries, decisions = (mean[name] for name in ("timely", "good", "queries", "decisions"))
    shares = {
        name: _share(mean[name], good if name.startswith("accuracy") else decisions) for name in mean if "<" in name
    }
    return {
        "accuracy_by_query": _share(mean["accurate"], good),
        "accuracy_by_decision": _share(mean["exact"], timely),
        "violation_by_query": 1.0 - good / queries,
        "violation_by_decision": 1.0 - timely / decisions,
        "goodput": mean["accurate"] / queries,
        "over_probability": mean["beyond"] / decisions,
        "utilisation": min(mean["busy_s"] / queries * float(rate_of[1]) / stages, 1.0),
        "per_decision": mean["exact"] if idle else mean["exact"] / decisions,
        **shares,
    }


def _share(part: float, whole: float) -> float:
    """What part of what is in time; of nothing there is none."""
    return part / whole if whole else math.nan


def _rewards(
    table: PolicyTable, made: Choices, accuracy: Floats, over_s: float
) -> dict[str, tuple[Floats, float | Floats]]:
    """What decisions earn [n - 1, j], and what one earns that finds more than N waiting, of which all are late."""
    ones, lost = np.ones_like(made.busy_s), float(table.queue_max + 1)
    timely: Floats = made.in_time.astype(float)
    good: Floats = timely * made.batch
    earned: dict[str, tuple[Floats, float | Floats]] = {
        "queries": (np.maximum(made.batch, ones), lost),
        "good": (good, 0.0),
        "accurate": (good * accuracy, 0.0),
        "decisions": (ones, 1.0),
        "timely": (timely, 0.0),
        "exact": (timely * accuracy, 0.0),
        "beyond": (np.zeros_like(ones), 1.0),
        "busy_s": (made.busy_s, over_s),
    }
    waiting = np.cumsum(ones, axis=0)
    for name in QUANTILES if table.expected is not None else ():
        value = getattr(table.expected, name)
        for sign, most in (("<", value - _BESIDE), ("<=", value + _BESIDE)):
            if name.startswith("accuracy"):
                earned[name + sign] = (good * (accuracy <= most), 0.0)
            else:
                earned[name + sign] = ((waiting <= most).astype(float), float(lost <= most))
    return earned


def accuracy_of(inputs: Inputs, variant: str) -> float:
    """The accuracy of a model; 0 where none was measured."""
    quality = inputs.profile.variants[variant].quality
    return quality.value if quality is not None else 0.0


def arrivals_of(
    plan: Plan, inputs: Inputs, app_id: str, app: App, table: PolicyTable, latency_s: Floats
) -> tuple[int, Floats] | None:
    """Stages, and their rate during a service that began with n waiting; None where they are not recomputed."""
    sizes, (workers, rate_qps) = table.queue_max + 2, in_turn(plan, app_id, table)
    balancing = getattr(plan.dispatch.get(app_id), "balancing", None) or app.balancing
    if balancing == "random":
        return 1, np.full(sizes, rate_qps / workers)
    if balancing == "shortest_queue":
        if plan.method.options.get("rates") == "fitted":
            return None
        return 1, _shortest(inputs, table, workers, rate_qps, latency_s)
    shape = (app.arrivals.shape if app.arrivals.process == "gamma" else None) or 1.0
    times = inputs.traces.get(app_id)
    if times is not None:
        shape = _regularity(np.asarray(times, dtype=float), table.slo_ms / 1000.0)
    stages = min(max(1, round(workers * shape)), max(workers, _EVEN_ENOUGH))
    return None if stages > _MOST_STAGES else (stages, np.full(sizes, stages / workers * rate_qps))


def in_turn(plan: Plan, app_id: str, table: PolicyTable) -> tuple[int, float]:
    """How many workers queries reach in turn, those of the table among them, and at which rate.

    All that serve the application, whatever they come of, unless the plan states what goes to each group.
    """
    counts = {worker.id: worker.count for worker in plan.workers if any(load.app == app_id for load in worker.loads)}
    own = counts.get(table.workers, 1)
    total = own if plan.routing.get(app_id) else max(sum(counts.values()), own)
    return total, table.rate_qps * (total / own)


def _regularity(times_s: Floats, window_s: float) -> float:
    """Mean over variance of the counts in windows as long as the SLO."""
    windows = int((times_s[-1] - times_s[0]) / window_s)
    if windows < 10:
        return 1.0
    edges = times_s[0] + window_s * np.arange(windows + 1)
    counts = np.diff(np.searchsorted(times_s, edges))
    spread = float(counts.var() / counts.mean())
    return 1.0 / spread if spread > 0 else 1.0


def _shortest(inputs: Inputs, table: PolicyTable, workers: int, rate_qps: float, latency_s: Floats) -> Floats:
    own, sizes = rate_qps / workers, table.queue_max + 2
    batches = np.arange(1, sizes - 1)
    limit_s = table.slo_ms / 1000.0 * (1.0 + ON_GRID)
    rates = np.where(latency_s[:, :-1] <= limit_s, batches / latency_s[:, :-1], 0.0).max(axis=1)
    accuracy = np.array([accuracy_of(inputs, name) for name in table.models])
    enough = workers * rates > rate_qps
    best = int(np.where(enough, accuracy, -1.0).argmax()) if enough.any() else 0
    mu = float(rates[best]) or 1.0 / float(latency_s[0, 0])
    crowded = max((rate_qps / (workers * mu)) ** workers * mu, 1e-9 * own)
    return np.where(np.arange(sizes) >= 3, crowded, own)
