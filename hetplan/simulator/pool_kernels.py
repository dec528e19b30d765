"""Discrete-event loops of a pool in which an instance serves one query at a time; they compile.

Queries are numbered in order of arrival. At equal times completions come first, then all arrivals, then one dispatch.
Each loop fills `response_ms` and `served_by`, and stops as soon as more than `allowed` queries are late; it returns how
many were late, how many were served and when the last ended.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hetplan.compiled import kernel, part
from hetplan.dispatch.matching_kernels import IDLE, Costs, Scratch, Seen, pair_off
from hetplan.dispatch.rule_kernels import earliest_completion, first_free

__all__ = ["Play", "run_earliest", "run_matching", "run_queues"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class Play(NamedTuple):
    """The queries, the instances, what is late, and where the answers go."""

    arrival_ms: Floats
    rows: Integers
    """Row ``rows[i]`` of a table of times is that of query i: of its size, or with noise of itself."""
    actual_ms: Floats
    """What a query really takes on each type."""
    kind: Integers
    late_ms: float
    allowed: int
    response_ms: Floats
    served_by: Integers


@kernel
def run_queues(play: Play, group: Integers, bounds: Integers) -> tuple[int, int, float]:
    """First come, first served, in as many separate queues as `bounds` makes groups of instances.

    Query i joins the queue of group ``group[i]``, served by instances ``bounds[g] <= j < bounds[g + 1]`` in order of
    preference. Because starts within a queue never overtake, each query is settled when it arrives.
    """
    arrival_ms, rows, actual_ms, kind, late_ms, allowed, response_ms, served_by = play
    free_ms = np.zeros(kind.shape[0])
    late, end_ms = 0, 0.0
    for query in range(arrival_ms.shape[0]):
        queue = int(group[query])
        instance = first_free(free_ms, arrival_ms[query], bounds[queue], bounds[queue + 1])
        if instance < 0:
            response_ms[query] = np.inf
            served_by[query] = -1
        else:
            done_ms = max(arrival_ms[query], free_ms[instance]) + actual_ms[rows[query], kind[instance]]
            free_ms[instance] = done_ms
            end_ms = max(end_ms, done_ms)
            response_ms[query] = done_ms - arrival_ms[query]
            served_by[query] = kind[instance]
        if response_ms[query] > late_ms:
            late += 1
            if late > allowed:
                return late, query + 1, end_ms
    return late, arrival_ms.shape[0], end_ms


@kernel
def run_earliest(play: Play, predicted_ms: Floats, lead_ms: float, tail_ms: float) -> tuple[int, int, float]:
    """Each arriving query joins the queue of the instance expected to complete it first.

    `predicted_ms` is what the dispatch believes that a query takes on each type. It corrects its expectation of an
    instance whenever that completes a query, and never expects a query that is overdue to have ended before now.
    `lead_ms` passes before a query reaches its instance, `tail_ms` after.
    """
    arrival_ms, rows, actual_ms, kind, late_ms, allowed, response_ms, served_by = play
    count, queries = kind.shape[0], arrival_ms.shape[0]
    free_ms, expected_ms, head_ms = np.zeros(count), np.zeros(count), np.zeros(count)
    head, last = np.full(count, -1, np.int64), np.full(count, -1, np.int64)
    following, done_ms = np.full(queries, -1, np.int64), np.zeros(queries)
    late, end_ms = 0, 0.0
    for query in range(queries):
        now_ms = arrival_ms[query]
        reach_ms = now_ms + lead_ms
        for instance in range(count):
            running = head[instance]
            while running >= 0 and done_ms[running] + tail_ms <= now_ms:
                expected_ms[instance] += done_ms[running] - head_ms[instance]
                head[instance] = following[running]
                if following[running] >= 0:
                    start_ms = max(done_ms[running], arrival_ms[following[running]] + lead_ms)
                    head_ms[instance] = start_ms + predicted_ms[rows[following[running]], kind[instance]]
                running = head[instance]
            if running >= 0 and head_ms[instance] < now_ms:
                expected_ms[instance] += now_ms - head_ms[instance]
                head_ms[instance] = now_ms
        instance = earliest_completion(expected_ms, kind, predicted_ms[rows[query]], reach_ms)
        expects_ms = max(expected_ms[instance], reach_ms) + predicted_ms[rows[query], kind[instance]]
        finish_ms = max(free_ms[instance], reach_ms) + actual_ms[rows[query], kind[instance]]
        if head[instance] < 0:
            head[instance] = query
            head_ms[instance] = expects_ms
        else:
            following[last[instance]] = query
        last[instance] = query
        expected_ms[instance], free_ms[instance], done_ms[query] = expects_ms, finish_ms, finish_ms
        end_ms = max(end_ms, finish_ms)
        response_ms[query] = finish_ms + tail_ms - now_ms
        served_by[query] = kind[instance]
        if response_ms[query] > late_ms:
            late += 1
            if late > allowed:
                return late, query + 1, end_ms
    return late, queries, end_ms


@part
def free_instances(now_ms: float, ends_ms: Floats, expected_ms: Floats) -> tuple[int, float]:
    """Set free the instances that end by now; how many those are, and when the next one ends."""
    freed, next_ms = 0, np.inf
    for instance in range(ends_ms.shape[0]):
        if ends_ms[instance] <= now_ms:
            ends_ms[instance], expected_ms[instance] = np.inf, IDLE
            freed += 1
        next_ms = ends_ms[instance] if ends_ms[instance] < next_ms else next_ms
    return freed, next_ms


@kernel
def run_matching(
    play: Play, predicted_ms: Floats, first: Integers, costs: Costs, room: Scratch
) -> tuple[int, int, float]:
    """Waiting queries are matched with instances at every event; those matched with an idle instance start.

    The oldest waiting queries are in `window`, twice as many as instances; those behind them came later and in
    order, so that two counters (`behind`, `arrived`) hold them. Queries before `overdue` have missed their target if
    they are not answered yet; those that still wait are `doomed` and count as late when a run is stopped.
    """
    arrival_ms, rows, actual_ms, kind, late_ms, allowed, response_ms, served_by = play
    count, queries = kind.shape[0], arrival_ms.shape[0]
    ends_ms, expected_ms = np.full(count, np.inf), np.full(count, IDLE)
    window, mates = np.zeros(2 * count, np.int64), np.zeros(2 * count, np.int64)
    waiting, behind, arrived, idle, done = 0, 0, 0, count, 0
    late, overdue, doomed, end_ms, next_ms = 0, 0, 0, 0.0, np.inf
    while arrived < queries or next_ms < np.inf:
        now_ms = float(min(next_ms, arrival_ms[arrived] if arrived < queries else np.inf))
        if next_ms <= now_ms:
            freed, next_ms = free_instances(now_ms, ends_ms, expected_ms)
            idle += freed
        while arrived < queries and arrival_ms[arrived] <= now_ms:
            arrived += 1
        while waiting < 2 * count and behind < arrived:
            window[waiting] = behind
            waiting += 1
            behind += 1
        while overdue < arrived and now_ms - arrival_ms[overdue] > late_ms:
            if served_by[overdue] < 0:
                doomed += 1
            overdue += 1
        if late + doomed > allowed:
            return late + doomed, done, end_ms
        if idle == 0 or waiting == 0:
            continue
        seen = Seen(now_ms, window, waiting, arrival_ms, rows, predicted_ms, first, kind, expected_ms)
        pair_off(seen, costs, mates, room)
        stay = 0
        for k in range(waiting):
            query, instance = window[k], mates[k]
            if instance < 0 or expected_ms[instance] != IDLE:
                window[stay] = query
                stay += 1
                continue
            ends_ms[instance] = now_ms + actual_ms[rows[query], kind[instance]]
            expected_ms[instance] = now_ms + predicted_ms[rows[query], kind[instance]]
            next_ms, end_ms = float(min(next_ms, ends_ms[instance])), float(max(end_ms, ends_ms[instance]))
            idle -= 1
            done += 1
            response_ms[query] = ends_ms[instance] - arrival_ms[query]
            served_by[query] = kind[instance]
            if query < overdue:
                doomed -= 1
            if response_ms[query] > late_ms:
                late += 1
        waiting = stay
    return late, done, end_ms
