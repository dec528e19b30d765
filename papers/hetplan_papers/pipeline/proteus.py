r"""A baseline in the manner of Proteus (ASPLOS 2024): every step is planned on its own, blind to the pipeline.

Each variant runs on each hardware with the largest batch that takes less than SLO / 2, at floor(q) queries/s. One
program gives the servers to the steps::

    max sum_t D_t sum_k A_k s_tk / sum_t D_t,   sum_k s_tk = 1,   D_t s_tk <= sum_g floor(q_kg) x_kg,   sum x <= S_g

D_t of a later step is what the chosen variants before it send on: it starts at the factor of the most accurate
variants and is taken anew from each answer. Paths may well take longer than the pipeline's limit allows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import numpy as np
from numpy.typing import NDArray

from hetplan.extend import (
    Ask,
    Builder,
    Infeasibility,
    Milp,
    PipelineGoals,
    PipelineLevel,
    Pipelines,
    PipelineTree,
    Reported,
    SolvedPipelines,
    add_groups,
    add_servers,
    prefixes,
)
from hetplan_papers.pipeline.options import ProteusOptions

__all__ = ["own_batches", "plan_each_step", "with_own_batches"]

Places = NDArray[np.int64]
Vector = NDArray[np.float64]

SETTLED = 1e-6
SHARES = list[list[Vector]]


def with_own_batches(problem: Pipelines) -> Pipelines:
    """The question with one batch size per variant and hardware."""
    options = cast(ProteusOptions, problem.options)
    divided = options.slo_divisor / options.step_divisor
    trees = (own_batches(tree, divided * max(tree.limit_ms.values())) for tree in problem.considered)
    return replace(problem, of=tuple(trees))


def own_batches(tree: PipelineTree, limit_ms: float) -> PipelineTree:
    """Per variant and hardware the largest batch that takes less than the limit, at whole queries per second."""
    masks = []
    for task in tree.tasks:
        keep = np.zeros(task.size, dtype=bool)
        best: dict[tuple[int, int], int] = {}
        for place in np.argsort(task.batch, kind="stable"):
            if task.ms[place] < limit_ms and np.floor(task.qps[place]) >= 1:
                best[int(task.variant[place]), int(task.hardware[place])] = int(place)
        keep[list(best.values())] = True
        masks.append(keep)
    return tree.keeping(masks)


def plan_each_step(problem: Pipelines, ask: Ask) -> SolvedPipelines | Infeasibility:
    """Iterate until the steps' traffic has settled."""
    trees = problem.served
    if any(not task.size for tree in trees for task in tree.tasks):
        return Infeasibility(why=("latency: some step has no variant that takes less than its share of the limit",))
    demands = [_demands(tree, [np.eye(len(task.variants))[int(np.argmax(task.quality))] for task in tree.tasks])
               for tree in trees]  # fmt: skip
    options = cast(ProteusOptions, problem.options)
    seen: list[float] = []
    for _ in range(options.iterations):
        form, places = _form(problem, trees, demands)
        answer = ask(form, gap=1e-6, about="every step on its own")
        if answer.point is None:
            return Infeasibility(why=("capacity: the servers do not carry what the steps expect",), proved=False)
        shares = [[answer.point[columns] for columns in own] for own, _ in places]
        counts = [np.round(answer.point[x]).astype(np.int64) for _, x in places]
        following = [_demands(tree, _dense(tree, own)) for tree, own in zip(trees, shares, strict=True)]
        moved = max(float(np.abs(a - b).max() / max(b.max(), 1.0)) for a, b in zip(following, demands, strict=True))
        if moved <= SETTLED:
            return _solved(trees, shares, counts, Reported("quality_per_step", "max", "model", answer))
        demands = following
        seen.append(float(following[0].max()))
    last = " and ".join(f"{rate:.0f}" for rate in sorted(set(np.round(seen[-2:]))))
    return Infeasibility(
        why=(
            f"the steps' traffic does not settle in {options.iterations} rounds: the largest goes between {last} qps",
        ),
        proved=False,
    )


def _dense(tree: PipelineTree, own: Sequence[Vector]) -> list[Vector]:
    """Shares per variant of the task, from shares per variant in use."""
    dense = []
    for task, share in zip(tree.tasks, own, strict=True):
        full = np.zeros(len(task.variants))
        full[np.unique(task.variant)] = share
        dense.append(full)
    return dense


def _demands(tree: PipelineTree, shares: Sequence[Vector]) -> Vector:
    """Queries per second that reach each step under these shares."""
    rate = np.full(len(tree.tasks), tree.demand)
    for t, task in enumerate(tree.tasks):
        if task.parent >= 0:
            rate[t] = rate[task.parent] * float(tree.tasks[task.parent].factor[t] @ shares[task.parent])
    return rate


def _form(
    problem: Pipelines, trees: Sequence[PipelineTree], demands: Sequence[Vector]
) -> tuple[Milp, list[tuple[list[Places], Places]]]:
    """The program, and per tree the columns of shares and of servers."""
    fleet = problem.wish.fleet
    m = Builder("max", name="proteus")
    asked = PipelineGoals("quality")
    uppers = [
        [
            np.minimum(fleet.most[task.hardware], np.ceil(rate / np.floor(task.qps) + tree.spare / task.k))
            for task, rate in zip(tree.tasks, own, strict=True)
        ]
        for tree, own in zip(trees, demands, strict=True)
    ]
    servers = add_servers(m, trees, uppers, fleet, asked)
    total = sum(float(own.sum()) for own in demands)
    places, loads = [], []
    for tree, own, x in zip(trees, demands, servers.x, strict=True):
        columns, rows, start = [], [], 0
        for task, rate in zip(tree.tasks, own, strict=True):
            used = np.unique(task.variant)
            s = m.columns(f"s {task.id}", str, size=used.size)
            m.add(m.rows(f"all {task.id}", ["all"], lower=1.0, upper=1.0), s, 1.0)
            load = m.rows(f"load {task.id}", str, size=used.size, upper=0.0)
            m.add(load, s, float(rate))
            rows.append(load[np.searchsorted(used, task.variant)])
            m.add(rows[-1], x[start : start + task.size], -np.floor(task.qps))
            m.pay(s, rate / total * task.quality[used])
            columns.append(s)
            start += task.size
        places.append((columns, x))
        loads.append(np.concatenate(rows))
    add_groups(m, trees, uppers, servers, fleet, asked, loads)
    return m.build(), places


def _solved(trees: Sequence[PipelineTree], shares: SHARES, counts: list[Places], claim: Reported) -> SolvedPipelines:
    """Shares that forget the path, laid over all paths; inside a variant in proportion to capacity."""
    forest: list[tuple[PipelineTree, list[PipelineLevel]]] = []
    kept: list[Places] = []
    flows: SHARES = []
    for tree, own, n in zip(trees, shares, counts, strict=True):
        masks, start = [], 0
        for task in tree.tasks:
            masks.append(n[start : start + task.size] > 0)
            start += task.size
        small = replace(tree.keeping(masks), limit_ms=dict.fromkeys(tree.sinks, np.inf))
        levels = prefixes(small)
        kept.append(n[n > 0])
        per_config = _per_config(small, _dense(tree, own), kept[-1])
        spread: list[Vector] = []
        for t, level in enumerate(levels):
            above = spread[tree.tasks[t].parent][level.parent] if tree.tasks[t].parent >= 0 else 1.0
            spread.append(above * per_config[t][level.config])
        forest.append((small, levels))
        flows.append(spread)
    found = SolvedPipelines(forest, kept, flows, mode="every step on its own", reported=())
    note = "what the steps' choices come to together"
    return replace(found, reported=(Reported("quality", "max", "none", value=found.quality, note=note), claim))


def _per_config(tree: PipelineTree, dense: Sequence[Vector], counts: Places) -> list[Vector]:
    found, start = [], 0
    for task, share in zip(tree.tasks, dense, strict=True):
        capacity = task.qps * np.maximum(counts[start : start + task.size] - tree.spare / task.k, 0.0)
        start += task.size
        whole = np.bincount(task.variant, weights=capacity, minlength=len(task.variants))
        part = share[task.variant] * capacity / np.where(whole > 0, whole, 1.0)[task.variant]
        found.append(part / part.sum())
    return found
