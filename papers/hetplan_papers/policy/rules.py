"""What RAMSIS is compared with: one model per load (Jellyfish+, ModelSwitching), the best that fits, one for all.

Jellyfish+ and ModelSwitching keep one queue for all workers, which take eagerly up to a cap (the batch of most
throughput within half the SLO); greedy and single serve each worker's own queue. The discipline is in the plan's
dispatch, since comparing across it compares two things.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import cast

import numpy as np

from hetplan import InputError
from hetplan.extend import Group, Late, PolicySearch, QueuePolicy, QueueProcess, SolvedPolicy, capacity_qps
from hetplan_papers.policy.options import SingleOptions

__all__ = ["one_model", "serve_greedily", "serve_on_one_queue", "switch_by_percentile", "switch_by_throughput"]

_STEP_QPS = 100.0
"""ModelSwitching profiles loads in steps of this."""


def _constant(form: QueueProcess, model: int, cap: int) -> QueuePolicy:
    """This model on all that wait, up to a cap."""
    batch = np.minimum(np.arange(1, form.queue + 1), cap)[:, None] * np.ones((1, form.slacks), dtype=np.int64)
    return QueuePolicy(np.full_like(batch, model), batch)


def serve_on_one_queue(bench: PolicySearch, group: Group, load_qps: float, model: int, cap: int) -> SolvedPolicy:
    """One model for all workers, which take eagerly from one queue, so many at most."""
    form = group.form(load_qps, bench.options, batching="max")
    solved = SolvedPolicy(group, load_qps, form, _constant(form, model, cap), None, None)
    if not bench.can_simulate:
        return solved
    how = {**group.traffic(load_qps), "balancing": "shared_fifo"}
    return replace(solved, simulated=bench.run(form, solved.policy, **how))


def _cap(group: Group, model: int, limit_s: float) -> int:
    """The batch of the most throughput among those that take no longer than this; 1 where none does."""
    latency = group.models.latency_s[model, :-1]
    rates = np.where(latency <= limit_s, np.arange(1, latency.size + 1) / latency, 0.0)
    return int(rates.argmax()) + 1 if rates.max() > 0 else 1


def switch_by_throughput(bench: PolicySearch, group: Group, load_qps: float) -> SolvedPolicy:
    """Jellyfish+: the most accurate model that takes half the SLO at most and carries the load so; else the fastest."""
    half = 0.5 * group.wish.slo_s
    enough = [
        m
        for m in range(group.models.accuracy.size)
        if group.models.latency_s[m, 0] <= half and group.workers * capacity_qps(group.models, m, half) > load_qps
    ]
    model = max(enough, key=lambda m: float(group.models.accuracy[m])) if enough else 0
    return serve_on_one_queue(bench, group, load_qps, model, _cap(group, model, half))


def switch_by_percentile(bench: PolicySearch, group: Group, load_qps: float) -> SolvedPolicy:
    """ModelSwitching: the most accurate model whose simulated 99th percentile meets the SLO; else the fastest."""
    if not bench.can_simulate:
        raise InputError.one(
            file="options",
            path="formulation",
            value="modelswitching",
            why="it chooses by simulated response times",
            remedy="Hand in a simulator (tools), and leave simulate on.",
        )
    profiled = math.ceil(load_qps / _STEP_QPS - 1e-9) * _STEP_QPS
    order = np.argsort(-group.models.accuracy, kind="stable")
    for model in (int(m) for m in order):
        cap = _cap(group, model, 0.5 * group.wish.slo_s)
        tried = serve_on_one_queue(bench, replace(group, wish=replace(group.wish, times_s=None)), profiled, model, cap)
        if tried.simulated.response_s.get(99.0, np.inf) <= group.wish.slo_s:
            return serve_on_one_queue(bench, group, load_qps, model, cap)
    return serve_on_one_queue(bench, group, load_qps, 0, _cap(group, 0, 0.5 * group.wish.slo_s))


def serve_greedily(bench: PolicySearch, group: Group, load_qps: float) -> SolvedPolicy:
    """The most accurate model that fits the slack with all that wait; else the fastest, late."""
    form = group.form(load_qps, bench.options, batching="max")
    actions = form.actions
    merit = np.where(actions.in_time, form.accuracy[actions.model], -1.0)
    best = np.maximum.reduceat(merit, actions.first[:-1])
    places = np.flatnonzero(merit == np.repeat(best, np.diff(actions.first)))
    policy = form.policy(places[np.searchsorted(places, actions.first[:-1])])
    return bench.simulate(bench.evaluate(group, load_qps, form, policy))


def one_model(bench: PolicySearch, group: Group, load_qps: float) -> SolvedPolicy:
    """One model on all that wait: the one named, or that of most goodput."""
    wanted = cast(SingleOptions, bench.options).model
    if wanted is not None and wanted not in group.models.names:
        raise InputError.one(
            file="options",
            path="model",
            value=wanted,
            why="is none of the models that may run",
            remedy=f"Name one of {', '.join(group.models.names)}.",
        )
    candidates = [group.models.names.index(wanted)] if wanted is not None else range(len(group.models.names))
    tried = []
    for model in candidates:
        alone = replace(group, models=group.models.only([model]))
        form = replace(alone.form(load_qps, bench.options, batching="max"), late=Late.SERVE)
        tried.append(bench.simulate(bench.evaluate(alone, load_qps, form, _constant(form, 0, form.queue))))
    return max(tried, key=lambda solved: solved.goodput)
