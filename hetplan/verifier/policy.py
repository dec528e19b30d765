"""The promise of a policy plan, recomputed: what one must write into a plan so that it passes here.

What a plan of question ``policy`` holds, and what is checked of it
-------------------------------------------------------------------
``workers``
    A group per hardware and application: ``queue`` shared, a load per model, each with ``app`` and ``variant``.
``dispatch[app]``
    ``queue-slack/1`` with ``late`` and ``balancing`` as the SLO has them (``shared_fifo`` only for the baselines that
    keep one queue for all).
``policies[app]``
    Tables by worker group and load. ``slo_ms`` is the response target less the network; the top rates of the groups sum
    to the application's load; ``models`` stand fastest first and are loaded by the group. A choice either meets the
    slack of its column, or is the fastest model on all that wait (late: serve), or drops the head where no batch of any
    model fits (late: drop). ``expected`` and ``gain`` are recomputed by `policy_chain`, from latencies that
    `policy_latency` reads from the profile and an arrival process that is read from the SLO.
``promises``
    ``goodput``, ``quality``, ``violations``, ``utilisation`` of model ``stationary/1``: the expectations at the highest
    load, over the groups by their load.

Not recomputed: simulated figures, policies for fitted shortest-queue rates, and arrivals of more than 2000 stages.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.plan import Plan
from hetplan.planner.plan_policy import PolicyTable, QueueSlackDispatch
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.slo import App
from hetplan.profiles.workers import Worker
from hetplan.verifier.policy_chain import Chain, enclosed
from hetplan.verifier.policy_latency import batch_latencies_ms
from hetplan.verifier.report import Violation

__all__ = ["check"]

Floats = NDArray[np.float64]

_SAME = 1e-6
_ON_GRID = 1e-9
_MOST_STAGES = 2000
_EVEN_ENOUGH = 200
"""Arrivals more regular than so many stages may be planned as so many."""
_ONE_QUEUE = ("jellyfish", "modelswitching")


def check(plan: Plan, inputs: Inputs) -> list[Violation]:
    """What a policy plan promises beyond the generic check; to be called on a plan whose references are sound."""
    found: list[Violation] = []
    for app_id, app in inputs.slo.apps.items():
        tables = [_typed(table) for table in plan.policies.get(app_id, ())]
        if not tables:
            found.append(Violation("policy-missing", f"policies.{app_id}", f"{app_id} has no policy"))
            continue
        found += _dispatch(plan, app_id, app)
        found += _loads(plan, app_id, app, inputs, tables)
        expected: list[tuple[float, dict[str, float]]] = []
        for number, table in enumerate(tables):
            at = f"policies.{app_id}[{number}]"
            found += _table(plan, inputs, app, table, at)
            top = table.rate_qps == max(other.rate_qps for other in tables if other.workers == table.workers)
            figures = _figures(plan, inputs, app_id, app, table) if not found else None
            if figures is not None:
                found += _expected(plan, table, figures, at)
                expected += [(table.rate_qps, figures)] if top else []
        found += _promised(plan, app_id, expected)
        found += _targets(app_id, app, tables)
    return found


def _typed(table: Any) -> PolicyTable:
    return table if isinstance(table, PolicyTable) else PolicyTable.model_validate(table)


def _dispatch(plan: Plan, app_id: str, app: App) -> Iterator[Violation]:
    rule: Any = plan.dispatch.get(app_id)
    at = f"dispatch.{app_id}"
    if not isinstance(rule, QueueSlackDispatch):
        yield Violation("dispatch", at, "a policy is looked up by queue-slack/1")
        return
    if rule.late != app.late:
        yield Violation("dispatch", at, f"late queries: {rule.late}, the SLO says {app.late}")
    one_queue = plan.method.formulation in _ONE_QUEUE
    wanted = "shared_fifo" if one_queue else app.balancing or "round_robin"
    if rule.balancing != wanted:
        yield Violation("dispatch", at, f"balancing {rule.balancing}, not {wanted}")


def _slo_ms(app: App) -> float:
    return min(target.max_ms for target in app.latency if target.of == "response") - app.network_ms_per_hop


def _loads(plan: Plan, app_id: str, app: App, inputs: Inputs, tables: Sequence[PolicyTable]) -> Iterator[Violation]:
    """Tables cover the load that is asked for."""
    at = f"policies.{app_id}"
    tops: dict[str, float] = {}
    for table in tables:
        tops[table.workers] = max(tops.get(table.workers, 0.0), table.rate_qps)
    wanted = _highest_load(app, inputs, app_id)
    if wanted is not None and abs(sum(tops.values()) - wanted) > _SAME * wanted:
        yield Violation("policy-load", at, f"tables for {sum(tops.values()):.6g} qps in all, wanted are {wanted:.6g}")
    if len({(table.workers, table.rate_qps) for table in tables}) < len(tables):
        yield Violation("policy-load", at, "two tables of one group for one load")
    valid = plan.valid.rate_qps.get(app_id)
    if valid is not None and wanted is not None and (valid[1] is None or valid[1] > wanted * (1 + _SAME)):
        yield Violation("valid", f"valid.rate_qps.{app_id}", f"holds up to {valid[1]}, tables reach {wanted:.6g}")


def _highest_load(app: App, inputs: Inputs, app_id: str) -> float | None:
    rate = app.demand.rate_qps
    if isinstance(rate, int | float):
        return float(rate)
    if rate is not None and not isinstance(rate, str):
        return rate.high
    times = inputs.traces.get(app_id)
    return None if times is None else (len(times) - 1) / (float(times[-1]) - float(times[0]))


def _table(plan: Plan, inputs: Inputs, app: App, table: PolicyTable, at: str) -> Iterator[Violation]:
    """Who runs it, and whether every choice is one that may be made."""
    worker = next((worker for worker in plan.workers if worker.id == table.workers), None)
    if worker is None:
        yield Violation("unknown-reference", at, f"there is no worker group {table.workers}")
        return
    missing = set(table.models) - {load.variant for load in worker.loads}
    if missing:
        yield Violation("policy-models", at, f"{table.workers} does not load {', '.join(sorted(missing))}")
        return
    if not math.isclose(table.slo_ms, _slo_ms(app), rel_tol=_ON_GRID):
        yield Violation("policy-slo", at, f"made for {table.slo_ms:g} ms, the target leaves {_slo_ms(app):g}")
    if table.slack_ms[0] != 0 or not math.isclose(table.slack_ms[-1], table.slo_ms, rel_tol=_ON_GRID):
        yield Violation("policy-grid", at, "slacks run from 0 to the SLO")
        return
    latency = _latency_s(plan, inputs, worker, table)
    if latency is None:
        yield Violation("policy-table", at, "the profile does not give the latencies of every batch")
        return
    if latency[:, 0].argmin() != 0 or table.otherwise.model != table.models[0]:
        yield Violation(
            "policy-models", at, "the first model, which serves what the table does not reach, is not the fastest"
        )
    if plan.method.formulation not in _ONE_QUEUE:
        yield from _choices(app, table, latency, at)


def _latency_s(plan: Plan, inputs: Inputs, worker: Worker, table: PolicyTable) -> Floats | None:
    options = plan.method.options
    rows = []
    for name in table.models:
        run = next((run for run in inputs.profile.variants[name].runs if run.hardware == worker.hardware), None)
        measured = inputs.profile.tables.get(run.latency or "") if run is not None else None
        if run is None or measured is None:
            return None
        row = batch_latencies_ms(
            measured,
            run,
            statistic=str(options.get("percentile", "p95")),
            queue_max=table.queue_max,
            monotone=str(options.get("monotone", "safe")),
        )
        if not row:
            return None
        rows.append(row)
    return np.array(rows) / 1000.0


def _choices(app: App, table: PolicyTable, latency_s: Floats, at: str) -> Iterator[Violation]:
    model, batch = np.array(table.model_rows()), np.array(table.batch_rows())
    grid = np.array(table.slack_ms) / 1000.0
    near = grid + _ON_GRID * grid[-1]
    waiting = np.arange(1, table.queue_max + 1)[:, None]
    in_time = (batch > 0) & (latency_s[model, np.maximum(batch, 1) - 1] <= near)
    whole = batch == waiting
    fits = latency_s[:, 0].min() <= grid - _ON_GRID * grid[-1]  # no batch takes less than one query
    if app.late == "drop":
        lawful = in_time | ((batch == 0) & ~fits)
    else:
        lawful = in_time | (whole & (model == 0))
    if table.batching == "max":
        fits_whole = (latency_s[:, :-1].min(axis=0))[:, None] <= grid - _ON_GRID * grid[-1]
        lawful &= whole | ((app.late == "drop") & ~fits_whole)
    if not lawful.all():
        n, j = (int(x) for x in np.argwhere(~lawful)[0])
        what = f"{table.models[int(model[n, j])]} on {int(batch[n, j])} of {n + 1} at slack {table.slack_ms[j]:g} ms"
        yield Violation("policy-choice", at, f"{what} is no choice there")


def _figures(plan: Plan, inputs: Inputs, app_id: str, app: App, table: PolicyTable) -> dict[str, float] | None:
    """What the table gives in the long run; None where this is not recomputed."""
    worker = next(worker for worker in plan.workers if worker.id == table.workers)
    latency = _latency_s(plan, inputs, worker, table)
    if latency is None or plan.method.formulation in _ONE_QUEUE:
        return None
    arrivals = _arrivals(plan, inputs, app_id, app, table, worker, latency)
    if arrivals is None:
        return None
    stages, rate_of = arrivals
    model, batch = np.array(table.model_rows()), np.array(table.batch_rows())
    over_batch = table.queue_max + 1 if table.otherwise.batch == "max" else table.otherwise.batch
    idle = plan.method.options.get("empty_state") == "paper"
    grid = np.array(table.slack_ms) / 1000.0
    chain = Chain(latency, grid, stages, rate_of, model, batch, over_batch, idle)
    accuracy = np.array([_accuracy(inputs, name) for name in table.models])
    in_time = (batch > 0) & (latency[model, np.maximum(batch, 1) - 1] <= grid + _ON_GRID * grid[-1])
    busy = np.where(batch > 0, latency[model, np.maximum(batch, 1) - 1], 0.0)
    ones = np.ones_like(busy)
    earned = np.stack(
        [
            np.maximum(batch, 1),
            in_time * batch,
            in_time * batch * accuracy[model],
            ones,
            in_time * ones,
            in_time * accuracy[model],
            0 * ones,
            busy,
        ],
        axis=-1,
    )
    lost = float(table.queue_max + 1)
    over = np.array([lost, 0, 0, 1, 0, 0, 1, latency[0, over_batch - 1]])
    low, high = enclosed(chain, earned, over, np.zeros(8))
    queries, good, accurate, decisions, timely, exact, beyond, busy_s = (float(x) for x in 0.5 * (low + high))
    return {
        "accuracy_by_query": accurate / good if good > 0 else 0.0,
        "accuracy_by_decision": exact / timely if timely > 0 else 0.0,
        "violation_by_query": 1.0 - good / queries,
        "violation_by_decision": 1.0 - timely / decisions,
        "goodput": accurate / queries,
        "over_probability": beyond / decisions,
        "utilisation": min(busy_s / queries * float(rate_of[1]) / stages, 1.0),
        "per_decision": exact / (1.0 if idle else decisions),
    }


def _accuracy(inputs: Inputs, variant: str) -> float:
    quality = inputs.profile.variants[variant].quality
    return quality.value if quality is not None else 0.0


def _arrivals(
    plan: Plan, inputs: Inputs, app_id: str, app: App, table: PolicyTable, worker: Worker, latency_s: Floats
) -> tuple[int, Floats] | None:
    """Stages, and their rate during a service that began with n waiting."""
    sizes = table.queue_max + 2
    if app.balancing == "shortest_queue":
        if plan.method.options.get("rates") == "fitted":
            return None
        return 1, _shortest(inputs, table, worker.count, latency_s, sizes)
    shape = app.demand.arrivals.shape or 1.0 if app.demand.arrivals.process == "gamma" else 1.0
    times = inputs.traces.get(app_id)
    if times is not None:
        shape = _regularity(np.asarray(times, dtype=float), table.slo_ms / 1000.0)
    own = worker.count * shape
    stages = min(max(1, round(own)), max(worker.count, _EVEN_ENOUGH))
    per_load = shape if abs(own - stages) < 1e-9 else stages / worker.count
    return None if stages > _MOST_STAGES else (stages, np.full(sizes, per_load * table.rate_qps))


def _regularity(times_s: Floats, window_s: float) -> float:
    """Mean over variance of the counts in windows as long as the SLO."""
    windows = int((times_s[-1] - times_s[0]) / window_s)
    if windows < 10:
        return 1.0
    edges = times_s[0] + window_s * np.arange(windows + 1)
    counts = np.diff(np.searchsorted(times_s, edges))
    spread = float(counts.var() / counts.mean())
    return 1.0 / spread if spread > 0 else 1.0


def _shortest(inputs: Inputs, table: PolicyTable, workers: int, latency_s: Floats, sizes: int) -> Floats:
    own = table.rate_qps / workers
    batches = np.arange(1, sizes - 1)
    rates = np.where(latency_s[:, :-1] <= table.slo_ms / 1000.0, batches / latency_s[:, :-1], 0.0).max(axis=1)
    accuracy = np.array([_accuracy(inputs, name) for name in table.models])
    enough = workers * rates > table.rate_qps
    best = int(np.where(enough, accuracy, -1.0).argmax()) if enough.any() else 0
    mu = float(rates[best]) or 1.0 / float(latency_s[0, 0])
    crowded = max((table.rate_qps / (workers * mu)) ** workers * mu, 1e-9 * own)
    return np.where(np.arange(sizes) >= 3, crowded, own)


def _expected(plan: Plan, table: PolicyTable, figures: dict[str, float], at: str) -> Iterator[Violation]:
    if table.expected is None:
        yield Violation("policy-expected", at, "no expectation is stated")
        return
    stated = table.expected.model_dump()
    told = figures if figures["violation_by_query"] < 1.0 - _SAME else _without_accuracy(figures)
    for name, value in told.items():
        if name in stated and abs(stated[name] - value) > _SAME:
            yield Violation("policy-expected", at, f"{name} {stated[name]:.9g}, recomputed it is {value:.9g}")
    options = plan.method.options
    plain = options.get("reward", "accuracy") == "accuracy" and options.get("sweeps") is None
    gain = figures["goodput"] if table.objective == "per_query" else figures["per_decision"]
    if plain and table.gain is not None and abs(table.gain - gain) > _SAME:
        yield Violation("policy-gain", at, f"gain {table.gain:.9g}, recomputed it is {gain:.9g}")


def _without_accuracy(figures: dict[str, float]) -> dict[str, float]:
    """Where next to nothing is in time, how accurate that is means nothing."""
    return {name: value for name, value in figures.items() if not name.startswith("accuracy")}


def _promised(plan: Plan, app_id: str, tops: Sequence[tuple[float, dict[str, float]]]) -> Iterator[Violation]:
    if not tops:
        return
    total = sum(rate for rate, _ in tops)
    mean = {
        name: sum(rate * figures[name] for rate, figures in tops) / total
        for name in ("goodput", "violation_by_query", "utilisation")
    }
    timely = 1.0 - mean["violation_by_query"]
    own = {
        "goodput": mean["goodput"],
        "violations": mean["violation_by_query"],
        "utilisation": mean["utilisation"],
    }
    if timely > _SAME:
        own["quality"] = mean["goodput"] / timely
    for number, promise in enumerate(plan.promises):
        if promise.app == app_id and promise.model.startswith("stationary") and promise.quantity in own:
            value = own[promise.quantity]
            if abs(promise.value - value) > _SAME or promise.relation != "=":
                text = f"{promise.quantity} {promise.relation} {promise.value:.9g}, recomputed it is {value:.9g}"
                yield Violation("promise", f"promises[{number}]", text)


def _targets(app_id: str, app: App, tables: Sequence[PolicyTable]) -> Iterator[Violation]:
    """Stated targets hold by what the plan says of its tables: simulated where it was, else expected."""
    for number, table in enumerate(tables):
        at = f"policies.{app_id}[{number}]"
        expected = table.expected
        late = [table.simulated["violation"]] if table.simulated and "violation" in table.simulated else []
        exact = [table.simulated["accuracy"]] if table.simulated and "accuracy" in table.simulated else []
        late = late or ([expected.violation_by_query] if expected is not None else [])
        exact = exact or ([expected.accuracy_by_query] if expected is not None else [])
        if app.violations is not None and (not late or late[0] > app.violations.max + _SAME):
            yield Violation("policy-target", at, f"violations {late[:1]}, allowed are {app.violations.max:g}")
        if (
            app.quality is not None
            and app.quality.min is not None
            and (not exact or exact[0] < app.quality.min - _SAME)
        ):
            yield Violation("policy-target", at, f"accuracy {exact[:1]}, wanted is {app.quality.min:g}")
