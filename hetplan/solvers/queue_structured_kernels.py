"""Compiled sweeps of a queue process: one backward pass shared by all actions, and its transpose.

The mathematics stands at `planner/forms/queue_process_operator.py`; the numbers are those of `Tables`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.forms.queue_process_compiled import compiled
from hetplan.solvers.queue_structured_tables import Tables

__all__ = ["follow", "improve", "push"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def _dot_product(left: Floats, right: Floats) -> float:
    """Sum of products; `right` is at least as long as `left`."""
    total = 0.0
    for i in range(left.size):
        total += left[i] * right[i]
    return total


def _sparse_product(data: Floats, place: NDArray[np.int32], values: Floats) -> float:
    total = 0.0
    for i in range(data.size):
        total += data[i] * values[place[i]]
    return total


_dot = compiled(_dot_product)
_gather = compiled(_sparse_product)


def _cross(
    counts: Floats,
    low: int,
    land_first: Integers,
    land_low: Integers,
    land: Floats,
    land_over: Floats,
    line: Floats,
    by_queue: Floats,
    over: float,
    out: Floats,
) -> None:
    """out[x] = the worth of the rest of a service at the beginning of a stretch; `out` may be the head of `line`."""
    for x in range(land_over.size):
        numbers = land[land_first[x] : land_first[x + 1]]
        settled = land_over[x] * over + _dot(numbers, by_queue[land_low[x] :])
        # Beyond K stand zeros: counts that bring somebody are in `settled`.
        out[x] = settled + _dot(counts, line[x + low :])


_worth = compiled(_cross)


def _backward(tables: Tables, values: Floats, wanted: NDArray[np.bool_]) -> Floats:
    """U_tau(x) of every wanted service: a row each."""
    queue, slacks, stages = tables.queue, tables.slacks, tables.stages
    buckets = tables.rates * (slacks - 1)
    future = np.zeros((wanted.size, stages))
    by_queue = np.zeros(queue + 1)
    line = np.zeros(2 * stages)
    over = values[queue * slacks]
    wait, wait_first, wait_low = tables.wait, tables.wait_first, tables.wait_low
    land, land_first, land_low, land_over = tables.land, tables.land_first, tables.land_low, tables.land_over
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
                rows = slice(stretch * stages, (stretch + 1) * stages)
                _worth(
                    wait[wait_first[stretch] : wait_first[stretch + 1]],
                    wait_low[stretch],
                    land_first[stretch * stages :],
                    land_low[rows],
                    land,
                    land_over[rows],
                    line,
                    by_queue,
                    over,
                    out,
                )
    return future


_futures = compiled(_backward)


def _close(tables: Tables, values: Floats, future: Floats, over: float, idle: float, result: Floats) -> None:
    """The states that leave no choice."""
    place = tables.queue * tables.slacks
    phases = tables.phase[tables.phase_first[place] : tables.phase_first[place + 1]]
    result[place] = over + _dot(phases, future[future.shape[0] - 1, tables.phase_low[place] :])
    if tables.idle_state >= 0:
        result[tables.idle_state] = idle + values[tables.slacks - 1]


_finish = compiled(_close)


def _improve(
    tables: Tables, reward: Floats, over: float, idle: float, values: Floats, result: Floats, chosen: Integers
) -> tuple[float, float]:
    """result = the best of all actions, chosen = the first that attains it; least and largest change of a value."""
    future = _futures(tables, values, np.ones(tables.service_order.size, dtype=np.bool_))
    for state in range(tables.queue * tables.slacks):
        phases = tables.phase[tables.phase_first[state] : tables.phase_first[state + 1]]
        low = tables.phase_low[state]
        best, which = -np.inf, -1
        for action in range(tables.action_first[state], tables.action_first[state + 1]):
            service, worth = tables.action_service[action], reward[action]
            if service >= 0:
                worth += _dot(phases, future[service, low:])
            else:
                begin, end = tables.partial_first[-1 - service], tables.partial_first[-service]
                worth += _gather(tables.partial[begin:end], tables.partial_state[begin:end], values)
            if which < 0 or worth > best:
                best, which = worth, action
        result[state], chosen[state] = best, which
    _finish(tables, values, future, over, idle, result)
    return _change(values, result)


def _follow(
    tables: Tables, reward: Floats, over: float, idle: float, values: Floats, result: Floats, chosen: Integers
) -> tuple[float, float]:
    """result = the worth of the chosen actions; least and largest change of a value."""
    wanted = np.zeros(tables.service_order.size, dtype=np.bool_)
    wanted[tables.service_order.size - 1] = True
    for state in range(tables.queue * tables.slacks):
        if tables.action_service[chosen[state]] >= 0:
            wanted[tables.action_service[chosen[state]]] = True
    future = _futures(tables, values, wanted)
    for state in range(tables.queue * tables.slacks):
        action = chosen[state]
        service = tables.action_service[action]
        if service >= 0:
            phases = tables.phase[tables.phase_first[state] : tables.phase_first[state + 1]]
            result[state] = reward[action] + _dot(phases, future[service, tables.phase_low[state] :])
        else:
            begin, end = tables.partial_first[-1 - service], tables.partial_first[-service]
            after = _gather(tables.partial[begin:end], tables.partial_state[begin:end], values)
            result[state] = reward[action] + after
    _finish(tables, values, future, over, idle, result)
    return _change(values, result)


def _changes(values: Floats, result: Floats) -> tuple[float, float]:
    least, most = result[0] - values[0], result[0] - values[0]
    for i in range(1, values.size):
        change = result[i] - values[i]
        least, most = min(least, change), max(most, change)
    return least, most


_change = compiled(_changes)
improve = compiled(_improve)
follow = compiled(_follow)


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


_spread = compiled(_load_services)


def _cross_back(
    counts: Floats,
    low: int,
    land_first: Integers,
    land_low: Integers,
    land: Floats,
    land_over: Floats,
    mass: Floats,
    line: Floats,
    landed: Floats,
) -> None:
    """The transpose of `_cross`: adds to `line` where nobody came, to `landed` where somebody did."""
    stages = land_over.size
    for x in range(stages):
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


_settle = compiled(_cross_back)


def _push(tables: Tables, mass: Floats, chosen: Integers, result: Floats) -> float:
    """result = where the mass is one decision later under a policy; returns the total change."""
    queue, slacks, stages = tables.queue, tables.slacks, tables.stages
    buckets = tables.rates * (slacks - 1)
    load = np.zeros((tables.service_order.size, stages))
    result[:] = 0.0
    _spread(tables, mass, chosen, load, result)
    line, ahead, landed = np.zeros(stages), np.zeros(stages), np.zeros(queue + 2)
    wait, wait_first, wait_low = tables.wait, tables.wait_first, tables.wait_low
    land, land_first, land_low, land_over = tables.land, tables.land_first, tables.land_low, tables.land_over
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
                rows = slice(stretch * stages, (stretch + 1) * stages)
                _settle(
                    wait[wait_first[stretch] : wait_first[stretch + 1]],
                    wait_low[stretch],
                    land_first[stretch * stages :],
                    land_low[rows],
                    land,
                    land_over[rows],
                    source,
                    ahead,
                    landed,
                )
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


push = compiled(_push)
