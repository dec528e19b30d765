"""The rows of partial actions, compiled: one binomial tail per (action, bucket edge), and recursions over the phase.

With v the share of the wait that has passed at an edge, P(Binomial(k + 1, v) >= h) = P(Binomial(k, v) >= h) +
v P(Binomial(k, v) = h - 1): one tail for the smallest phase gives all phases. The edges of an action go side by side
through every sum, which is what makes the loops fast.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hetplan.compiled import part, summing_kernel
from hetplan.planner.forms.queue_process_arrivals import join_tables, phase_weights

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    from hetplan.planner.forms.queue_process_model import QueueModel

__all__ = ["compiled_rows"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Places = NDArray[np.int32]

_BLOCK = 1 << 25
"""Entries of one block of rows: 400 MB of address space."""
_NOTHING = 1e-15
"""Mass that is left with its neighbour; rows still sum to 1."""
_LOG_NOTHING = -48.0
"""Log of the probability P(Binomial = h - 1) beyond which an edge has all or nothing below it."""
_UNLIKELY = 1e-22
"""Phases that are less likely do not count."""


class Process(NamedTuple):
    """What all partial actions with so many waiting have in common."""

    waiting: int
    queue: int
    stages: int
    grid: Floats
    weights: Floats
    log_factorial: Floats
    log_left: Floats
    tables: Floats


class Chosen(NamedTuple):
    """Partial actions, and where the numbers of each begin in `Process.tables`."""

    slack: Integers
    taken: Integers
    service: Integers
    latency: Floats
    first: Integers
    low: Integers
    width: Integers


class Edges(NamedTuple):
    """The edges of an action's buckets: v / (1 - v), P(Binomial = h - 1), and room for terms and tails."""

    grid: Floats
    log_factorial: Floats
    odds: Floats
    before: Floats
    term: Floats
    tail: Floats


def compiled_rows(form: QueueModel, action: Integers) -> csr_array:
    """A sparse row over the states per partial action."""
    from scipy.sparse import csr_array
    from scipy.special import gammaln

    actions = form.actions
    tables, *joins = _joins(form, action)
    log_factorial = gammaln(np.arange(form.queue * form.stages + 1) + 1.0)
    services, service_of = np.unique(form.latency_s, return_inverse=True)
    # A service of no time is last: that of a dropped head.
    left_s = form.slo_s - form.grid_s[None, :] - np.append(services, 0.0)[:, None]
    log_left, service_of = np.log(np.maximum(left_s, 1e-300)), service_of.reshape(form.latency_s.shape)
    waiting, slacks = actions.waiting[action], actions.slack[action]
    alone = action[waiting == 1]
    most = form.slacks * int(joins[-1].max()) + 1
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
        service = np.where(batch > 0, service_of[model, batch - 1], services.size)
        latency = np.append(services, 0.0)[service]
        process = Process(n, form.queue, form.stages, form.grid_s, weights, log_factorial, log_left, tables)
        parts: Any = (slacks[waiting == n], np.maximum(batch, 1), service, latency, *(x[code] for x in joins))
        done = 0
        while done < here.size:
            columns, data = rows.room()
            counts, used = _compute_rows(process, Chosen(*(part[done:] for part in parts)), most, columns, data)
            rows.took(counts, used)
            done += counts.size
    begins, columns, data = rows.all()
    # Beginnings as wide as the columns: else scipy copies these to the wider kind.
    begins = begins.astype(np.int32 if begins[-1] < 1 << 31 else np.int64)
    return csr_array((data, columns, begins), shape=(action.size, form.states))


class _Rows:
    """Rows one after another in blocks of memory, which cost nothing until they are written to.

    Most processes fit one block, which is then used as it is: at hundreds of megabytes a copy is dear.
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
        # Cut to what was written, in place: scipy copies arrays that are small parts of others.
        self._columns.resize(self._used, refcheck=False)
        self._data.resize(self._used, refcheck=False)
        last = (self._columns, self._data)
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


def _code(form: QueueModel, rate: Integers, model: Integers, batch: Integers) -> Integers:
    """One number per (rate, model, batch)."""
    return np.asarray((rate * form.models + model) * (form.queue + 1) + batch)


def _joins(form: QueueModel, action: Integers) -> tuple[Floats, Integers, Integers, Integers]:
    """P(a | r) of every service in use, one after another, and where each begins."""
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


@part
def _edges_between(
    edges: Edges, start: float, waited: float, log_left: Floats, k_least: int, k_most: int, h: int
) -> tuple[int, int]:
    """The edges between which the new head comes, whatever the phase; P(Binomial(k, v) = h - 1) and v / (1 - v) there.

    `start` is the slack' of a new head that came with the old one; k = `k_least`. `log_left` is that of 1 - v, times
    the wait.
    """
    grid, log_factorial, odds, before = edges.grid, edges.log_factorial, edges.odds, edges.before
    last = grid.size - 1
    if waited <= 0.0:
        bottom = 0
        while bottom + 1 < last and grid[bottom + 1] <= start:
            bottom += 1
        return bottom, bottom + 1
    log_waited = math.log(waited)
    ways = log_factorial[k_least] - log_factorial[h - 1] - log_factorial[k_least - h + 1]
    ways_most = log_factorial[k_most] - log_factorial[h - 1] - log_factorial[k_most - h + 1]
    middle = start + waited * h / (0.5 * (k_least + k_most) + 1.0)
    top = 1
    while top < last and grid[top] <= middle:
        top += 1
    bottom = top - 1
    while top < last and grid[top] - start < waited:
        passed = grid[top] - start
        log_v, log_rest = math.log(passed) - log_waited, log_left[top] - log_waited
        log_before = ways + (h - 1) * log_v + (k_least - h + 1) * log_rest
        if log_before < _LOG_NOTHING and passed * k_least > waited * h:
            break
        before[top], odds[top] = math.exp(log_before), passed / (waited - passed)
        top += 1
    while bottom > 0 and grid[bottom] > start:
        passed = grid[bottom] - start
        log_v, log_rest = math.log(passed) - log_waited, log_left[bottom] - log_waited
        log_most = ways_most + (h - 1) * log_v + (k_most - h + 1) * log_rest
        if log_most < _LOG_NOTHING and passed * k_most < waited * (h - 1):
            break
        log_before = ways + (h - 1) * log_v + (k_least - h + 1) * log_rest
        before[bottom], odds[bottom] = math.exp(log_before), passed / (waited - passed)
        bottom -= 1
    return bottom, top


@part
def _binomial_tails(edges: Edges, bottom: int, top: int, k: int, h: int) -> None:
    """tail[e] = P(Binomial(k, v) >= h) between two edges, from P(Binomial(k, v) = h - 1): all edges term by term.

    Summed from the end on which there is less; the edge in the middle is the last to settle.
    """
    odds, before, term, tail = edges.odds, edges.before, edges.term, edges.tail
    split = bottom + 1
    while split < top and odds[split] * (k - h) < h:
        split += 1
    for e in range(bottom + 1, split):
        term[e] = before[e] * (k - h + 1) / h * odds[e]
        tail[e] = term[e]
    i = h
    while split > bottom + 1 and i < k and term[split - 1] > 1e-18 * tail[split - 1]:
        ratio = (k - i) / (i + 1.0)
        for e in range(bottom + 1, split):
            term[e] *= ratio * odds[e]
            tail[e] += term[e]
        i += 1
    for e in range(split, top):
        term[e], tail[e] = before[e], before[e]
        odds[e] = 1.0 / odds[e]
    i = h - 1
    while split < top and i > 0 and term[split] > 1e-18 * tail[split]:
        ratio = i / (k - i + 1.0)
        for e in range(split, top):
            term[e] *= ratio * odds[e]
            tail[e] += term[e]
        i -= 1
    for e in range(split, top):
        tail[e] = 1.0 - tail[e]
        odds[e] = 1.0 / odds[e]


@part
def _mix_phases(
    edges: Edges, between: tuple[int, int], k: int, h: int, weights: Floats, table: Floats, below: Floats
) -> None:
    """below[a, e] = sum over phases r of w(r) P(slack' below edge e | k + r) P(a | r); the last column: below infinity.

    `weights` and `table` begin with the first phase that counts.
    """
    bottom, top = between
    odds, before, tail = edges.odds, edges.before, edges.tail
    width, last = below.shape[0], below.shape[1] - 1
    for a in range(width):
        below[a, last] = 0.0
        for e in range(bottom, top):
            below[a, e] = 0.0
    for e in range(bottom + 1, top):
        odds[e] = odds[e] / (1.0 + odds[e])
    for r in range(weights.size):
        for a in range(width):
            share = weights[r] * table[r * width + a]
            below[a, last] += share
            if share > 1e-24:
                for e in range(bottom + 1, top):
                    below[a, e] += share * tail[e]
        ratio = (k + r + 1.0) / (k + r + 2.0 - h)
        for e in range(bottom + 1, top):
            tail[e] += odds[e] * before[e]
            before[e] *= ratio * (1.0 - odds[e])
    for a in range(width):
        below[a, top] = below[a, last]


@part
def _write_row(below: Floats, between: tuple[int, int], left: int, queue: int, columns: Places, data: Floats) -> int:
    """The states that the masses between edges belong to, `left` and more waiting; returns how many it wrote."""
    bottom, top = between
    slacks, used, lost = below.shape[1] - 1, 0, 0.0
    for a in range(below.shape[0]):
        number = left + a
        if number > queue:
            lost += below[a, slacks]
            continue
        begun, settled, everything = used, 0.0, below[a, top]
        for e in range(bottom, top):
            reached = min(below[a, e + 1], everything)
            if reached - settled > _NOTHING:
                columns[used], data[used] = (number - 1) * slacks + e, reached - settled
                settled = reached
                used += 1
        if used > begun:
            data[used - 1] += everything - settled
    if lost > 0.0:
        columns[used], data[used] = queue * slacks, lost
        used += 1
    return used


@summing_kernel
def _compute_rows(process: Process, chosen: Chosen, most: int, columns: Places, data: Floats) -> tuple[Integers, int]:
    """Rows of the partial actions with n > 1 waiting, while there is room for another; entries per row, and in all."""
    grid, stages = process.grid, process.stages
    slacks, k_least = grid.size, (process.waiting - 1) * stages
    counts = np.zeros(chosen.slack.size, dtype=np.int64)
    below = np.zeros((chosen.width.max(), slacks + 1))
    odds, before, term, tail = np.zeros(slacks), np.zeros(slacks), np.zeros(slacks), np.zeros(slacks)
    edges, used = Edges(grid, process.log_factorial, odds, before, term, tail), 0
    for i in range(counts.size):
        if used + most > columns.size:
            return counts[:i], used
        h, width, phases = chosen.taken[i] * stages, chosen.width[i], process.weights[chosen.slack[i]]
        low = 0
        while phases[low] < _UNLIKELY:
            low += 1
        waited = grid[slacks - 1] - grid[chosen.slack[i]]
        start, first = grid[chosen.slack[i]] - chosen.latency[i], k_least + low
        log_left = process.log_left[chosen.service[i]]
        between = _edges_between(edges, start, waited, log_left, first, k_least + stages - 1, h)
        _binomial_tails(edges, between[0], between[1], first, h)
        table = process.tables[chosen.first[i] + low * width : chosen.first[i] + stages * width]
        _mix_phases(edges, between, first, h, phases[low:], table, below[:width])
        left = process.waiting - chosen.taken[i] + chosen.low[i]
        counts[i] = _write_row(below[:width], between, left, process.queue, columns[used:], data[used:])
        used += counts[i]
    return counts, used
