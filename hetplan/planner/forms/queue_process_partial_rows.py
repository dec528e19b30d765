"""The rows of partial actions, compiled: one binomial tail per (action, bucket edge), and recursions over the phase.

With v the share of the wait that has passed at an edge, P(Binomial(k + 1, v) >= h) = P(Binomial(k, v) >= h) +
v P(Binomial(k, v) = h - 1): one tail for the smallest phase gives all phases.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

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
Places = NDArray[np.int32]

_BLOCK = 1 << 25
"""Entries of one block of rows: 400 MB of address space."""
_NOTHING = 1e-16
"""Mass beyond an edge that is left with its neighbour; rows still sum to 1."""


def compiled_rows(form: QueueProcess, action: Integers) -> csr_array:
    """A sparse row over the states per partial action."""
    from scipy.sparse import csr_array

    actions = form.actions
    tables, first_of, low_of, width_of = _joins(form, action)
    waiting, slacks = actions.waiting[action], actions.slack[action]
    alone = action[waiting == 1]
    most = form.slacks * int(width_of.max()) + 1
    rows = _Rows(most, action.size * most)
    # A dropped head leaves an empty queue.
    rows.append(np.ones(alone.size, np.int64), np.full(alone.size, form.after_idling), np.ones(alone.size))
    for n in range(2, form.queue + 1):
        here = action[waiting == n]
        if here.size == 0:
            continue
        rate = float(form.stage_rates[form.rates_by_queue[n]])
        weights = phase_weights(waiting=n, stages=form.stages, means=rate * (form.slo_s - form.grid_s))
        model, batch = actions.model[here], actions.batch[here]
        code = _code(form, form.rates_by_queue[n], model, batch)
        latency = np.where(batch > 0, form.latency_s[model, batch - 1], 0.0)
        process = (n, form.queue, form.stages, form.grid_s, weights)
        slack, taken = slacks[waiting == n], actions.taken[here]
        first, low, width = first_of[code], low_of[code], width_of[code]
        done = 0
        while done < here.size:
            columns, data = rows.room()
            left = (part[done:] for part in (slack, taken, latency, first, low, width))
            given: Any = (*process, tables, *left, most, columns, data)
            counts, used = _rows_of_queue(*given)
            rows.took(counts, used)
            done += counts.size
    begins, columns, data = rows.all()
    # Beginnings as wide as the columns: else scipy copies these to the wider kind.
    begins = begins.astype(np.int32 if begins[-1] < 1 << 31 else np.int64)
    return csr_array((data, columns, begins), shape=(action.size, form.states))


class _Rows:
    """Rows one after another in blocks of memory, which cost nothing until they are written to.

    Most processes fit one block, which is then used as it stands: at hundreds of megabytes a copy is dear.
    """

    def __init__(self, most: int, entries: int) -> None:
        self._most, self._size = most, max(most, min(entries, _BLOCK))
        self._counts: list[Integers] = []
        self._full: list[tuple[Places, Floats]] = []
        self._columns, self._data = np.empty(self._size, dtype=np.int32), np.empty(self._size)
        self._used = 0

    def room(self) -> tuple[Places, Floats]:
        """Where the next row goes, of `most` entries at most."""
        if self._used + self._most > self._size:
            self._full.append((self._columns[: self._used], self._data[: self._used]))
            self._columns, self._data = np.empty(self._size, dtype=np.int32), np.empty(self._size)
            self._used = 0
        return self._columns[self._used :], self._data[self._used :]

    def took(self, counts: Integers, used: int) -> None:
        """Entries of each row that was written there, and their sum."""
        self._counts.append(counts)
        self._used += used

    def append(self, counts: Integers, columns: Integers, data: Floats) -> None:
        """Rows made elsewhere, which fit one block."""
        places, shares = self.room()
        places[: data.size], shares[: data.size] = columns, data
        self.took(counts, data.size)

    def all(self) -> tuple[Integers, Places, Floats]:
        """Where each row begins, its columns, its probabilities."""
        first = np.concatenate([[0], np.cumsum(np.concatenate(self._counts))]).astype(np.int64)
        last = (self._columns[: self._used], self._data[: self._used])
        if not self._full:
            return first, *last
        blocks = [*self._full, last]
        self._full = []
        columns, data = np.empty(int(first[-1]), dtype=np.int32), np.empty(int(first[-1]))
        begin = 0
        for i in range(len(blocks)):
            places, shares = blocks[i]
            end = begin + places.size
            columns[begin:end], data[begin:end] = places, shares
            begin, blocks[i] = end, (places[:0].copy(), shares[:0].copy())
        return first, columns, data


def _code(form: QueueProcess, rate: Integers, model: Integers, batch: Integers) -> Integers:
    """One number per (rate, model, batch)."""
    return np.asarray((rate * form.models + model) * (form.queue + 1) + batch)


def _joins(form: QueueProcess, action: Integers) -> tuple[Floats, Integers, Integers, Integers]:
    """P(a | r) of every service in use, one after another, and where each begins."""
    from hetplan.planner.forms.queue_process_partial import join_tables

    actions = form.actions
    rates = form.rates_by_queue[actions.waiting[action]]
    code = _code(form, rates, actions.model[action], actions.batch[action])
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


def _share_passed(edge: float, waited: float) -> float:
    """Which share of a wait has passed at an edge; all or nothing of a wait of no time."""
    if waited > 0.0:
        return edge / waited
    return 1.0 if edge > 0.0 else 0.0


_passed = compiled(_share_passed)


def _spread_over_edges(
    grid: Floats,
    start: float,
    waited: float,
    k_least: int,
    h: int,
    weights: Floats,
    table: Floats,
    width: int,
    ratio: Floats,
    edges: Floats,
) -> tuple[int, int]:
    """edges[e, a] = P(slack' below grid[e], a join); between the edges returned lies all there is.

    `start` is the slack' of a new head that came with the old one. Row G holds what lies below infinity.
    """
    slacks, stages = grid.size, weights.size
    r_low = 0
    while weights[r_low] < 1e-22:
        r_low += 1
    middle = start + waited * h / (k_least + 0.5 * stages + 1.0)
    top = 1
    while top < slacks - 1 and grid[top] <= middle:
        top += 1
    bottom = top - 1
    _masses(1.0, k_least, h, r_low, weights, table, width, ratio, edges[slacks])
    while top < slacks - 1:
        _masses(_passed(grid[top] - start, waited), k_least, h, r_low, weights, table, width, ratio, edges[top])
        if (edges[slacks, :width] - edges[top, :width]).sum() <= _NOTHING:
            break
        top += 1
    while bottom > 0:
        _masses(_passed(grid[bottom] - start, waited), k_least, h, r_low, weights, table, width, ratio, edges[bottom])
        if edges[bottom, :width].sum() <= _NOTHING:
            break
        bottom -= 1
    edges[bottom, :width] = 0.0
    edges[top, :width] = edges[slacks, :width]
    return bottom, top


_spread = compiled(_spread_over_edges)


def _write_row(
    edges: Floats,
    bottom: int,
    top: int,
    left: int,
    queue: int,
    slacks: int,
    width: int,
    columns: Places,
    data: Floats,
) -> int:
    """The states that the masses between edges belong to, `left` and more waiting; returns how many it wrote."""
    used, lost = 0, 0.0
    for a in range(width):
        number = left + a
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
    return used


_write = compiled(_write_row)


def _compute_rows(
    n: int,
    queue: int,
    stages: int,
    grid: Floats,
    weights: Floats,
    tables: Floats,
    slack: Integers,
    taken: Integers,
    latency: Floats,
    first_of: Integers,
    low_of: Integers,
    width_of: Integers,
    most: int,
    columns: Places,
    data: Floats,
) -> tuple[Integers, int]:
    """Rows of the partial actions with n > 1 waiting, while there is room for another; entries per row, and in all."""
    slacks = grid.size
    counts = np.zeros(slack.size, dtype=np.int64)
    edges, ratio = np.zeros((slacks + 1, width_of.max())), np.zeros(stages)
    used = 0
    for i in range(slack.size):
        if used + most > columns.size:
            return counts[:i], used
        h, k_least, width = taken[i] * stages, (n - 1) * stages, width_of[i]
        for r in range(stages):
            ratio[r] = (k_least + r + 1.0) / (k_least + r + 2.0 - h)
        table = tables[first_of[i] : first_of[i] + stages * width]
        start, waited = grid[slack[i]] - latency[i], grid[slacks - 1] - grid[slack[i]]
        bottom, top = _spread(grid, start, waited, k_least, h, weights[slack[i]], table, width, ratio, edges)
        left = n - taken[i] + low_of[i]
        counts[i] = _write(edges, bottom, top, left, queue, slacks, width, columns[used:], data[used:])
        used += counts[i]
    return counts, used


_rows_of_queue = compiled(_compute_rows)
