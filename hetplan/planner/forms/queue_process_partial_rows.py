"""The rows of partial actions, compiled: one binomial tail per (action, bucket edge), and recursions over the phase.

With v the share of the wait that has passed at an edge, P(Binomial(k + 1, v) >= h) = P(Binomial(k, v) >= h) +
v P(Binomial(k, v) = h - 1): one tail for the smallest phase gives all phases.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.forms.queue_process_arrivals import phase_weights
from hetplan.planner.forms.queue_process_compiled import compiled

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    from hetplan.planner.forms.queue_process import QueueProcess

__all__ = ["compiled_rows"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_NOTHING = 1e-16
"""Mass beyond an edge that is left with its neighbour; rows still sum to 1."""


def compiled_rows(form: QueueProcess, action: Integers) -> csr_array:
    """A sparse row over the states per partial action."""
    from scipy.sparse import csr_array

    actions = form.actions
    tables, first_of, low_of, width_of = _joins(form, action)
    parts: list[tuple[Integers, Integers, Floats]] = []
    for n in range(1, form.queue + 1):
        here = action[actions.waiting[action] == n]
        if here.size == 0:
            continue
        rate = float(form.stage_rates[form.rates_by_queue[n]])
        weights = phase_weights(waiting=n, stages=form.stages, means=rate * (form.slo_s - form.grid_s))
        code = _code(form, n, actions.model[here], actions.batch[here])
        latency = np.where(actions.batch[here] > 0, form.latency_s[actions.model[here], actions.batch[here] - 1], 0.0)
        parts.append(
            _rows_of_queue(
                n, form.queue, form.stages, form.grid_s, weights, actions.slack[here], actions.taken[here], latency,
                tables, first_of[code], low_of[code], width_of[code], form.after_idling,
            )
        )  # fmt: skip
    counts, columns, data = (np.concatenate([part[k] for part in parts]) for k in range(3))
    first = np.concatenate([[0], np.cumsum(counts)])
    return csr_array((data, columns.astype(np.int32), first.astype(np.int32)), shape=(action.size, form.states))


def _code(form: QueueProcess, waiting: int, model: Integers, batch: Integers) -> Integers:
    rate = int(form.rates_by_queue[waiting])
    return np.asarray((rate * form.models + model) * (form.queue + 1) + batch)


def _joins(form: QueueProcess, action: Integers) -> tuple[Floats, Integers, Integers, Integers]:
    """P(a | r) of every service in use, one after another, and where each begins."""
    from hetplan.planner.forms.queue_process_partial import join_tables

    actions = form.actions
    rates = form.rates_by_queue[actions.waiting[action]]
    code = (rates * form.models + actions.model[action]) * (form.queue + 1) + actions.batch[action]
    used, sample = np.unique(code, return_index=True)
    chosen = action[sample]
    tables = join_tables(form, actions.model[chosen], actions.batch[chosen], actions.waiting[chosen])
    size = form.stage_rates.size * form.models * (form.queue + 1)
    first, low, width = (np.zeros(size, dtype=np.int64) for _ in range(3))
    first[used] = np.concatenate([[0], np.cumsum([table.probability.size for table in tables])])[:-1]
    low[used] = [table.low for table in tables]
    width[used] = [table.probability.shape[1] for table in tables]
    return np.concatenate([table.probability.ravel() for table in tables]), first, low, width


def _binomial_tail(k: int, h: int, v: float) -> tuple[float, float]:
    """P(Binomial(k, v) >= h) and P(Binomial(k, v) = h - 1), for 1 <= h <= k and 0 < v < 1."""
    odds = v / (1.0 - v)
    log_before = math.lgamma(k + 1.0) - math.lgamma(h) - math.lgamma(k - h + 2.0)
    before = math.exp(log_before + (h - 1) * math.log(v) + (k - h + 1) * math.log1p(-v))
    if h > k * v:
        term = before * (k - h + 1) / h * odds
        total, i = term, h
        while term > 1e-18 * total and i < k:
            term *= (k - i) / (i + 1.0) * odds
            total += term
            i += 1
        return total, before
    term = before
    total, i = term, h - 1
    while term > 1e-18 * total and i > 0:
        term *= i / (k - i + 1.0) / odds
        total += term
        i -= 1
    return 1.0 - total, before


_tail = compiled(_binomial_tail)


def _edge_masses(
    v: float, k_least: int, h: int, r_low: int, weights: Floats, table: Floats, width: int, ratio: Floats, out: Floats
) -> None:
    """out[a] = sum over r of w(r) P(t <= v A | k_least + r) P(a | r)."""
    out[:width] = 0.0
    if v <= 0.0:
        return
    stages = weights.size
    tail, exact = 1.0, 0.0
    if v < 1.0:
        tail, exact = _tail(k_least + r_low, h, v)
    for r in range(r_low, stages):
        share = weights[r] * tail
        if share > 0.0:
            for a in range(width):
                out[a] += share * table[r * width + a]
        if v < 1.0:
            tail += v * exact
            exact *= ratio[r] * (1.0 - v)


_masses = compiled(_edge_masses)


def _compute_rows(
    n: int,
    queue: int,
    stages: int,
    grid: Floats,
    weights: Floats,
    slack: Integers,
    taken: Integers,
    latency: Floats,
    tables: Floats,
    first_of: Integers,
    low_of: Integers,
    width_of: Integers,
    after_idling: int,
) -> tuple[Integers, Integers, Floats]:
    """Rows of the partial actions with n waiting: entries per row, their columns, their probabilities."""
    slacks = grid.size
    slo = grid[slacks - 1]
    counts = np.zeros(slack.size, dtype=np.int64)
    room = max(1024, 64 * slack.size)
    columns, data = np.empty(room, dtype=np.int64), np.empty(room)
    used = 0
    widest = 1
    for i in range(slack.size):
        widest = max(widest, width_of[i])
    edges = np.zeros((slacks + 1, widest))
    ratio = np.zeros(stages)
    for i in range(slack.size):
        if n == 1:
            need = 1
        else:
            need = (slacks + 1) * widest + 1
        if used + need > columns.size:
            bigger_columns, bigger = np.empty(2 * columns.size + need, dtype=np.int64), np.empty(2 * columns.size + need)
            bigger_columns[:used], bigger[:used] = columns[:used], data[:used]
            columns, data = bigger_columns, bigger
        if n == 1:
            columns[used], data[used] = after_idling, 1.0
            counts[i] = 1
            used += 1
            continue
        j, b, tau = slack[i], taken[i], latency[i]
        h, k_least, waited = b * stages, (n - 1) * stages, slo - grid[j]
        width, low = width_of[i], low_of[i]
        table = tables[first_of[i] : first_of[i] + stages * width]
        w = weights[j]
        r_low = 0
        while w[r_low] < 1e-22:
            r_low += 1
        for r in range(stages):
            ratio[r] = (k_least + r + 1.0) / (k_least + r + 2.0 - h)
        # The bucket below edge e is e - 1; edge 0 lies below everything and edge G - 1 above it.
        middle = grid[j] - tau + waited * h / (k_least + 0.5 * stages + 1.0)
        top = 1
        while top < slacks - 1 and grid[top] <= middle:
            top += 1
        bottom = top - 1
        _masses(1.0, k_least, h, r_low, w, table, width, ratio, edges[slacks])
        while top < slacks - 1:
            v = (grid[top] - grid[j] + tau) / waited if waited > 0.0 else (1.0 if grid[top] - grid[j] + tau > 0 else 0.0)
            _masses(v, k_least, h, r_low, w, table, width, ratio, edges[top])
            above = 0.0
            for a in range(width):
                above += edges[slacks, a] - edges[top, a]
            if above <= _NOTHING:
                break
            top += 1
        while bottom > 0:
            v = (grid[bottom] - grid[j] + tau) / waited if waited > 0.0 else (1.0 if grid[bottom] - grid[j] + tau > 0 else 0.0)
            _masses(v, k_least, h, r_low, w, table, width, ratio, edges[bottom])
            below = 0.0
            for a in range(width):
                below += edges[bottom, a]
            if below <= _NOTHING:
                break
            bottom -= 1
        edges[bottom, :width] = 0.0
        edges[top, :width] = edges[slacks, :width]
        begin = used
        lost = 0.0
        for a in range(width):
            number = n - b + low + a
            if number > queue:
                lost += edges[slacks, a]
                continue
            for e in range(bottom, top):
                mass = edges[e + 1, a] - edges[e, a]
                if mass > 1e-18:
                    columns[used], data[used] = (number - 1) * slacks + e, mass
                    used += 1
        if lost > 0.0:
            columns[used], data[used] = queue * slacks, lost
            used += 1
        counts[i] = used - begin
    return counts, columns[:used].copy(), data[:used].copy()


_rows_of_queue = compiled(_compute_rows)
