"""Compiled sweeps of a queue process: one backward pass shared by all actions, and its transpose.

The mathematics is at `planner/forms/queue_process_operator.py`; the numbers are those of `Tables`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hetplan.compiled import part, summing_kernel

__all__ = ["Tables", "follow", "improve", "land_rows", "mix_rows", "push"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class Tables(NamedTuple):
    """All that a sweep reads. A "row" is (low, first): entries low, low + 1, ... stand at first[i] .. first[i + 1]."""

    queue: int
    slacks: int
    stages: int
    rates: int
    after_idling: int
    """The state that an empty queue leads to."""
    idle_state: int
    """The state "empty" where idling is a decision, else -1."""
    wait_low: Integers
    wait_first: Integers
    wait: Floats
    """P(k stages in the stretch), k < K: stretch i (G - 1) + j is bucket j under rate i; services follow."""
    land_low: Integers
    land_first: Integers
    land: Floats
    """P(somebody came in the stretch, n' wait at the end of the service | x): row (stretch) K + x."""
    land_over: Floats
    service_order: Integers
    service_start: Integers
    """Services that begin in bucket j under rate i: service_order[service_start[i (G - 1) + j] : ...]."""
    phase_low: Integers
    phase_first: Integers
    phase: Floats
    """w(r | n, j): row (n - 1) G + j; the last row is that of "over"."""
    action_first: Integers
    action_service: Integers
    """The service of a full action; for a partial one, -1 - its row of `partial`."""
    partial_first: Integers
    partial_state: NDArray[np.int32]
    partial: Floats


@part
def _dot_product(left: Floats, right: Floats) -> float:
    """Sum of products; `right` is at least as long as `left`."""
    total = 0.0
    for i in range(left.size):
        total += left[i] * right[i]
    return total


@part
def _sparse_product(data: Floats, place: NDArray[np.int32], values: Floats) -> float:
    total = 0.0
    for i in range(data.size):
        total += data[i] * values[place[i]]
    return total


@part
def _cross(tables: Tables, stretch: int, line: Floats, by_queue: Floats, over: float, out: Floats) -> None:
    """out[x] = the worth of the rest of a service at the beginning of a stretch; `out` may be the head of `line`."""
    counts, low = tables.wait[tables.wait_first[stretch] : tables.wait_first[stretch + 1]], tables.wait_low[stretch]
    rows = slice(stretch * tables.stages, (stretch + 1) * tables.stages)
    land, land_low, land_over = tables.land, tables.land_low[rows], tables.land_over[rows]
    land_first = tables.land_first[stretch * tables.stages :]
    for x in range(land_over.size):
        numbers = land[land_first[x] : land_first[x + 1]]
        settled = land_over[x] * over + _dot_product(numbers, by_queue[land_low[x] :])
        # Beyond K stand zeros: counts that bring somebody are in `settled`.
        out[x] = settled + _dot_product(counts, line[x + low :])


@part
def _backward(
    tables: Tables, values: Floats, wanted: NDArray[np.bool_], future: Floats, line: Floats, by_queue: Floats
) -> None:
    """U_tau(x) of every wanted service, a row of `future` each; `line` and `by_queue` are room to work in."""
    queue, slacks, stages = tables.queue, tables.slacks, tables.stages
    buckets = tables.rates * (slacks - 1)
    over = values[queue * slacks]
    for rate in range(tables.rates):
        line[:stages] = values[tables.after_idling]
        for j in range(slacks - 2, -1, -1):
            bucket = rate * (slacks - 1) + j
            for n in range(1, queue + 1):
                by_queue[n] = values[(n - 1) * slacks + j]
            begin, end = tables.service_start[bucket], tables.service_start[bucket + 1]
            for k in range(begin, end + 1):
                stretch, out = bucket, line
                if k < end:
                    service = tables.service_order[k]
                    if not wanted[service]:
                        continue
                    stretch, out = buckets + service, future[service]
                _cross(tables, stretch, line, by_queue, over, out)


@part
def _close(tables: Tables, values: Floats, future: Floats, over: float, idle: float, result: Floats) -> None:
    """The states that leave no choice."""
    place = tables.queue * tables.slacks
    phases = tables.phase[tables.phase_first[place] : tables.phase_first[place + 1]]
    result[place] = over + _dot_product(phases, future[future.shape[0] - 1, tables.phase_low[place] :])
    if tables.idle_state >= 0:
        result[tables.idle_state] = idle + values[tables.slacks - 1]


@summing_kernel
def improve(
    tables: Tables, reward: Floats, over: float, idle: float, values: Floats, result: Floats, chosen: Integers
) -> tuple[float, float]:
    """result = the best of all actions, chosen = the first that attains it; least and largest change of a value."""
    wanted = np.ones(tables.service_order.size, dtype=np.bool_)
    future = np.zeros((wanted.size, tables.stages))
    _backward(tables, values, wanted, future, np.zeros(2 * tables.stages), np.zeros(tables.queue + 1))
    for state in range(tables.queue * tables.slacks):
        phases = tables.phase[tables.phase_first[state] : tables.phase_first[state + 1]]
        low = tables.phase_low[state]
        best, which = -np.inf, -1
        for action in range(tables.action_first[state], tables.action_first[state + 1]):
            service, worth = tables.action_service[action], reward[action]
            if service >= 0:
                worth += _dot_product(phases, future[service, low:])
            else:
                begin, end = tables.partial_first[-1 - service], tables.partial_first[-service]
                worth += _sparse_product(tables.partial[begin:end], tables.partial_state[begin:end], values)
            if which < 0 or worth > best:
                best, which = worth, action
        result[state], chosen[state] = best, which
    _close(tables, values, future, over, idle, result)
    return _changes(values, result)


@summing_kernel
def follow(
    tables: Tables, reward: Floats, over: float, idle: float, values: Floats, result: Floats, chosen: Integers
) -> tuple[float, float]:
    """result = the worth of the chosen actions; least and largest change of a value."""
    wanted = np.zeros(tables.service_order.size, dtype=np.bool_)
    wanted[tables.service_order.size - 1] = True
    for state in range(tables.queue * tables.slacks):
        if tables.action_service[chosen[state]] >= 0:
            wanted[tables.action_service[chosen[state]]] = True
    future = np.zeros((wanted.size, tables.stages))
    _backward(tables, values, wanted, future, np.zeros(2 * tables.stages), np.zeros(tables.queue + 1))
    for state in range(tables.queue * tables.slacks):
        action = chosen[state]
        service = tables.action_service[action]
        if service >= 0:
            phases = tables.phase[tables.phase_first[state] : tables.phase_first[state + 1]]
            result[state] = reward[action] + _dot_product(phases, future[service, tables.phase_low[state] :])
        else:
            begin, end = tables.partial_first[-1 - service], tables.partial_first[-service]
            after = _sparse_product(tables.partial[begin:end], tables.partial_state[begin:end], values)
            result[state] = reward[action] + after
    _close(tables, values, future, over, idle, result)
    return _changes(values, result)


@part
def _changes(values: Floats, result: Floats) -> tuple[float, float]:
    least, most = result[0] - values[0], result[0] - values[0]
    for i in range(1, values.size):
        change = result[i] - values[i]
        least, most = min(least, change), max(most, change)
    return least, most


@part
def _load_services(tables: Tables, mass: Floats, chosen: Integers, load: Floats, result: Floats) -> None:
    """Spreads every state's mass over the phases of the service that it starts; partial actions go straight on."""
    place = tables.queue * tables.slacks
    for state in range(place + 1):
        here = mass[state]
        if here == 0.0:
            continue
        service = tables.action_service[chosen[state]] if state < place else tables.service_order.size - 1
        if service >= 0:
            first, low = tables.phase_first[state], tables.phase_low[state]
            for i in range(tables.phase_first[state + 1] - first):
                load[service, low + i] += here * tables.phase[first + i]
        else:
            for i in range(tables.partial_first[-1 - service], tables.partial_first[-service]):
                result[tables.partial_state[i]] += here * tables.partial[i]


@part
def _cross_back(tables: Tables, stretch: int, mass: Floats, line: Floats, landed: Floats) -> None:
    """The transpose of `_cross`: adds to `line` where nobody came, to `landed` where somebody did."""
    counts, low = tables.wait[tables.wait_first[stretch] : tables.wait_first[stretch + 1]], tables.wait_low[stretch]
    rows = slice(stretch * tables.stages, (stretch + 1) * tables.stages)
    land, land_low, land_over = tables.land, tables.land_low[rows], tables.land_over[rows]
    land_first = tables.land_first[stretch * tables.stages :]
    for x in range(land_over.size):
        here = mass[x]
        if here != 0.0:
            numbers = land[land_first[x] : land_first[x + 1]]
            seats = landed[land_low[x] :]
            for i in range(numbers.size):
                seats[i] += here * numbers[i]
            landed[landed.size - 1] += here * land_over[x]
            ahead = line[x + low :]
            for i in range(min(counts.size, ahead.size)):
                ahead[i] += here * counts[i]


@summing_kernel
def push(tables: Tables, mass: Floats, chosen: Integers, result: Floats) -> float:
    """result = where the mass is one decision later under a policy; returns the total change."""
    queue, slacks, stages = tables.queue, tables.slacks, tables.stages
    buckets = tables.rates * (slacks - 1)
    load = np.zeros((tables.service_order.size, stages))
    result[:] = 0.0
    _load_services(tables, mass, chosen, load, result)
    line, ahead, landed = np.zeros(stages), np.zeros(stages), np.zeros(queue + 2)
    for rate in range(tables.rates):
        line[:] = 0.0
        for j in range(slacks - 1):
            bucket = rate * (slacks - 1) + j
            ahead[:] = 0.0
            landed[:] = 0.0
            begin, end = tables.service_start[bucket], tables.service_start[bucket + 1]
            for k in range(begin, end + 1):
                stretch, source = bucket, line
                if k < end:
                    service = tables.service_order[k]
                    stretch, source = buckets + service, load[service]
                _cross_back(tables, stretch, source, ahead, landed)
            line[:] = ahead
            for n in range(1, queue + 1):
                result[(n - 1) * slacks + j] += landed[n]
            result[queue * slacks] += landed[queue + 1]
        result[tables.after_idling] += line.sum()
    if tables.idle_state >= 0:
        result[slacks - 1] += mass[tables.idle_state]
    change = 0.0
    for i in range(result.size):
        change += abs(result[i] - mass[i])
    return change


@summing_kernel
def land_rows(
    count_low: int, probability: Floats, stages: int, settled: int, table: Floats, first: Integers, last: Integers
) -> None:
    """Row i: the distribution of floor((settled + i + arrivals) / K). Probabilities are summed from the nearer end."""
    size, queue = probability.size, table.shape[1] - 2
    upto, beyond = np.zeros(size + 1), np.zeros(size + 1)
    for i in range(size):
        upto[i + 1] = upto[i] + probability[i]
    for i in range(size - 1, -1, -1):
        beyond[i] = beyond[i + 1] + probability[i]
    for row in range(table.shape[0]):
        least = settled + row + count_low
        table[row, queue + 1] = beyond[min(max((queue + 1) * stages - least, 0), size)]
        first[row] = min(max(1, least // stages), queue + 1)
        last[row] = queue if table[row, queue + 1] > 0.0 else first[row]
        for number in range(first[row], queue + 1):
            left = min(max(number * stages - least, 0), size)
            right = min(max((number + 1) * stages - least, 0), size)
            if left == size:
                break
            last[row] = number
            if upto[left] < 0.5:
                table[row, number] = upto[right] - upto[left]
            else:
                table[row, number] = beyond[left] - beyond[right]


@summing_kernel
def mix_rows(
    count_low: int, probability: Floats, stages: int, table: Floats, first: Integers, last: Integers, rows: Floats
) -> None:
    """Row x: the mixture of the table's rows over counts k with x + k >= K."""
    over = rows.shape[1] - 1
    for x in range(stages):
        for k in range(max(count_low, stages - x), count_low + probability.size):
            share = probability[k - count_low]
            if share > 1e-26:
                place = x + k - stages
                settled = table[place]
                rows[x, over] += share * settled[over]
                for number in range(first[place], last[place] + 1):
                    rows[x, number] += share * settled[number]
