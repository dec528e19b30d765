"""What policies are compared with: one model per load (Jellyfish+, ModelSwitching), the best that fits, one for all.

Jellyfish+ and ModelSwitching keep one queue for all workers, which take eagerly up to a cap (the batch of most
throughput within half the SLO); greedy and single serve each worker's own queue. The discipline is in the plan's
dispatch, since comparing across it compares two things. Loaded only when a formulation here is named.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import numpy as np

from hetplan.errors import InputError
from hetplan.planner.draft import Draft, Reported
from hetplan.planner.forms.queue_process import Late, QueuePolicy, QueueProcess
from hetplan.problems.policy.bench import Bench
from hetplan.problems.policy.draft import draft
from hetplan.problems.policy.form import Asked, Group, Solved
from hetplan.problems.policy.options import SingleOptions
from hetplan.problems.policy.wish import capacity_qps

__all__ = ["by_rule", "jellyfish", "modelswitching", "on_shared_queue"]

_STEP_QPS = 100.0
"""ModelSwitching profiles loads in steps of this."""


def _constant(form: QueueProcess, model: int, cap: int) -> QueuePolicy:
    """This model on all that wait, up to a cap."""
    batch = np.minimum(np.arange(1, form.queue + 1), cap)[:, None] * np.ones((1, form.slacks), dtype=np.int64)
    return QueuePolicy(np.full_like(batch, model), batch)


def on_shared_queue(bench: Bench, group: Group, load_qps: float, model: int, cap: int) -> Solved:
    """One model for all workers, which take eagerly from one queue, so many at most."""
    form = group.form(load_qps, bench.options, batching="max")
    solved = Solved(group, load_qps, form, _constant(form, model, cap), None, None)
    if not bench.can_simulate:
        return solved
    how = {**group.traffic(load_qps), "balancing": "shared_fifo"}
    return replace(solved, simulated=bench.run(form, solved.policy, **how))


def _cap(group: Group, model: int, limit_s: float) -> int:
    """The batch of the most throughput among those that take no longer than this; 1 where none does."""
    latency = group.models.latency_s[model, :-1]
    rates = np.where(latency <= limit_s, np.arange(1, latency.size + 1) / latency, 0.0)
    return int(rates.argmax()) + 1 if rates.max() > 0 else 1


def jellyfish(bench: Bench, group: Group, load_qps: float) -> Solved:
    """Jellyfish+: the most accurate model that takes half the SLO at most and carries the load so; else the fastest."""
    half = 0.5 * group.wish.slo_s
    enough = [
        m
        for m in range(group.models.accuracy.size)
        if group.models.latency_s[m, 0] <= half and group.workers * capacity_qps(group.models, m, half) > load_qps
    ]
    model = max(enough, key=lambda m: float(group.models.accuracy[m])) if enough else 0
    return on_shared_queue(bench, group, load_qps, model, _cap(group, model, half))


def modelswitching(bench: Bench, group: Group, load_qps: float) -> Solved:
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
        tried = on_shared_queue(bench, replace(group, wish=replace(group.wish, times_s=None)), profiled, model, cap)
        if tried.simulated.response_s.get(99.0, np.inf) <= group.wish.slo_s:
            return on_shared_queue(bench, group, load_qps, model, cap)
    return on_shared_queue(bench, group, load_qps, 0, _cap(group, 0, 0.5 * group.wish.slo_s))


def _greedy(bench: Bench, group: Group, load_qps: float) -> Solved:
    """The most accurate model that fits the slack with all that wait; else the fastest, late."""
    form = group.form(load_qps, bench.options, batching="max")
    actions = form.actions
    merit = np.where(actions.in_time, form.accuracy[actions.model], -1.0)
    best = np.maximum.reduceat(merit, actions.first[:-1])
    places = np.flatnonzero(merit == np.repeat(best, np.diff(actions.first)))
    policy = form.policy(places[np.searchsorted(places, actions.first[:-1])])
    return bench.simulated(bench.valued(group, load_qps, form, policy))


def _single(bench: Bench, group: Group, load_qps: float) -> Solved:
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
        tried.append(bench.simulated(bench.valued(alone, load_qps, form, _constant(form, 0, form.queue))))
    return max(tried, key=lambda solved: solved.goodput)


RULES = {"jellyfish": jellyfish, "modelswitching": modelswitching, "greedy": _greedy, "single": _single}


def by_rule(asked: Asked, bench: Bench, groups: Sequence[Group]) -> Draft:
    """The plan of a rule of others, at the given loads."""
    rule = RULES[asked.formulation]
    solved = [[rule(bench, group, load) for load in group.loads_qps] for group in groups]
    shared = asked.formulation in ("jellyfish", "modelswitching")
    reported = []
    for one in (one for policies in solved for one in policies):
        known = one.measures is not None or one.simulated is not None
        value = one.goodput if known else float(one.group.models.accuracy[int(one.policy.model[0, 0])])
        about = "goodput" if known else "quality"
        of = f"{about}[{one.group.id}@{one.load_qps:g}qps]"
        reported.append(Reported(about=of, sense="max", scope="none", value=value))
    return draft(asked, solved, reported=reported, discipline="shared_fifo" if shared else "own")
