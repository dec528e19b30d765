"""Compiled queues that serve by a model-selection policy, or by one model at a time.

Times are in seconds. A query is late when it ends more than a nanosecond after its deadline. `tally` collects, over the
queries after the warm-up: queries, late, dropped, accuracy of those in time, decisions, busy time, decisions that found
more waiting than the table tells apart.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hetplan.compiled import kernel, part
from hetplan.dispatch.rule_kernels import LEEWAY_S, slack_index

__all__ = [
    "ACCURACY",
    "BUSY",
    "DECISIONS",
    "DROPPED",
    "LATE",
    "OVER",
    "QUERIES",
    "run_shared",
    "run_shortest",
    "run_worker",
]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Timing = tuple[Floats, Floats, Floats, Floats, float]
"""Seconds per (model, batch), their spread, draws of noise, accuracies, and the target in seconds."""
Tables = tuple[Floats, Integers, Integers, int]
"""The grid of slacks, model and batch by (table, queue, slack), and the largest batch."""
Clock = tuple[Integers, float, float]
"""Which table is in force at ``which[t / tick_s]``, the tick, and when the warm-up ends."""
Counts = tuple[Floats, Floats, Floats]
"""The tally, queries served per model, and response times."""

QUERIES, LATE, DROPPED, ACCURACY, DECISIONS, BUSY, OVER = 0, 1, 2, 3, 4, 5, 6
_ON_TIME_S = 1e-9


class Batch(NamedTuple):
    """Queries that end together: the first of them, how many, by which model, and when."""

    first: int
    size: int
    model: int
    end_s: float


@part
def choose(
    waiting: int, slack_s: float, which: int, grid_s: Floats, model: Integers, batch: Integers, most: int
) -> tuple[int, int]:
    """Model and batch by table `which`; the fastest model on at most `most` where the table does not reach."""
    if waiting > model.shape[1]:
        return 0, min(waiting, most)
    place = slack_index(slack_s + LEEWAY_S, grid_s)
    return int(model[which, waiting - 1, place]), int(batch[which, waiting - 1, place])


@part
def service_s(latency_s: Floats, spread: Floats, draws: Floats, m: int, b: int, place: int) -> float:
    """The table's latency, or a lognormal draw with the table's mean and this spread of its logarithm."""
    if draws.size == 0:
        return float(latency_s[m, b - 1])
    sigma = spread[m, b - 1]
    return float(latency_s[m, b - 1] * np.exp(sigma * draws[place % draws.size] - 0.5 * sigma * sigma))


@part
def settle(arrivals: Floats, batch: Batch, timing: Timing, clock: Clock, counts: Counts, serial: int) -> int:
    """Counts a batch that ends now; returns how many responses were written down."""
    accuracy, slo_s = timing[3], timing[4]
    tally, _, response_s = counts
    for i in range(batch.first, batch.first + batch.size):
        if arrivals[i] < clock[2]:
            continue
        tally[QUERIES] += 1.0
        if batch.end_s - arrivals[i] > slo_s + _ON_TIME_S:
            tally[LATE] += 1.0
        else:
            tally[ACCURACY] += accuracy[batch.model]
        if serial < response_s.size:
            response_s[serial] = batch.end_s - arrivals[i]
            serial += 1
    return serial


@kernel
def run_worker(arrivals: Floats, timing: Timing, tables: Tables, clock: Clock, counts: Counts, serial: int) -> int:
    """One worker with its own queue; `serial` responses are written down already."""
    latency_s, spread, draws, _, slo_s = timing
    grid_s, model, batch, most = tables
    which, tick_s, warm_s = clock
    tally, served, _ = counts
    head, upto, free_s, decision = 0, 0, 0.0, 0
    total = arrivals.size
    while head < total:
        now_s = max(free_s, arrivals[head])
        while upto < total and arrivals[upto] <= now_s:
            upto += 1
        table = which[min(int(now_s / tick_s), which.size - 1)]
        m, b = choose(upto - head, arrivals[head] + slo_s - now_s, table, grid_s, model, batch, most)
        counted = arrivals[head] >= warm_s
        if counted:
            tally[DECISIONS] += 1.0
            if upto - head > model.shape[1]:
                tally[OVER] += 1.0
        if b == 0:
            if counted:
                tally[QUERIES] += 1.0
                tally[DROPPED] += 1.0
            head += 1
            free_s = now_s
            continue
        took_s = service_s(latency_s, spread, draws, m, b, decision)
        decision += 1
        free_s = now_s + took_s
        if counted:
            tally[BUSY] += took_s
            served[m] += b
        serial = settle(arrivals, Batch(head, b, m, free_s), timing, clock, counts, serial)
        head += b
    return serial


@kernel
def unrolled(queues: Floats, first: Integers, length: Integers) -> Floats:
    """The ring queues in rows twice as long, each beginning at its row's start."""
    bigger = np.zeros((queues.shape[0], 2 * queues.shape[1]))
    for w in range(queues.shape[0]):
        for q in range(length[w]):
            bigger[w, q] = queues[w, (first[w] + q) % queues.shape[1]]
        first[w] = 0
    return bigger


@part
def note_decision(tally: Floats, over: bool, dropped: bool, took_s: float) -> None:
    """Count a decision whose oldest query came after the warm-up."""
    tally[DECISIONS] += 1.0
    tally[OVER] += 1.0 if over else 0.0
    tally[BUSY] += took_s
    if dropped:
        tally[QUERIES] += 1.0
        tally[DROPPED] += 1.0


@kernel
def run_shortest(
    arrivals: Floats,
    workers: int,
    timing: Timing,
    tables: Tables,
    clock: Clock,
    counts: Counts,
    watched: tuple[Floats, Floats],
) -> int:
    """Workers with a queue each; a query joins the one with fewest, those in service too (of equals the next in turn).

    `watched` are two rows by queue length n: arrivals during services that began with n waiting, and their time.
    """
    latency_s, spread, draws, _, slo_s = timing
    grid_s, model, batch, most = tables
    which, tick_s, warm_s = clock
    tally, served, _ = counts
    came, stayed_s = watched
    queues = np.zeros((workers, 4 * model.shape[1] + 64))
    length, first = np.zeros(workers, dtype=np.int64), np.zeros(workers, dtype=np.int64)
    free_s, began, in_service = np.zeros(workers), np.zeros(workers, dtype=np.int64), np.zeros(workers, dtype=np.int64)
    line = np.zeros(queues.shape[1])
    serial, decision, turn = 0, 0, 0
    for i in range(arrivals.size + 1):
        now_s = arrivals[i] if i < arrivals.size else np.inf
        best, fewest = -1, np.iinfo(np.int64).max
        for k in range(workers):
            w = (turn + k) % workers
            while length[w] > 0 and free_s[w] <= now_s:
                oldest_s = queues[w, first[w]]
                start_s = max(free_s[w], oldest_s)
                if start_s > now_s:
                    break
                table = which[min(int(start_s / tick_s), which.size - 1)]
                m, b = choose(length[w], oldest_s + slo_s - start_s, table, grid_s, model, batch, most)
                taken, took_s = max(b, 1), 0.0
                for q in range(taken):
                    line[q] = queues[w, (first[w] + q) % queues.shape[1]]
                if b > 0:
                    took_s, decision = service_s(latency_s, spread, draws, m, b, decision), decision + 1
                    began[w] = min(length[w], came.size - 1)
                    stayed_s[began[w]] += took_s
                free_s[w], in_service[w] = start_s + took_s, b
                if oldest_s >= warm_s:
                    note_decision(tally, length[w] > model.shape[1], b == 0, took_s)
                    served[m] += b
                if b > 0:
                    serial = settle(line, Batch(0, b, m, free_s[w]), timing, clock, counts, serial)
                first[w] = (first[w] + taken) % queues.shape[1]
                length[w] -= taken
            there = length[w] + (in_service[w] if free_s[w] > now_s else 0)
            if there < fewest:
                best, fewest = w, there
        if i == arrivals.size:
            break
        if length[best] == queues.shape[1]:
            queues = unrolled(queues, first, length)
            line = np.zeros(queues.shape[1])
        queues[best, (first[best] + length[best]) % queues.shape[1]] = now_s
        length[best] += 1
        if free_s[best] > now_s:
            came[began[best]] += 1.0
        turn = (turn + 1) % workers
    return serial


@kernel
def run_shared(
    arrivals: Floats, workers: int, timing: Timing, model: Integers, cap: Integers, clock: Clock, counts: Counts
) -> int:
    """One queue for all; a free worker takes at once up to `cap` of what waits, by the model in force."""
    latency_s, spread, draws, _, _ = timing
    which, tick_s, warm_s = clock
    tally, served, _ = counts
    total = arrivals.size
    free_s = np.zeros(workers)
    head, upto, serial, decision = 0, 0, 0, 0
    while head < total:
        w = int(np.argmin(free_s))
        now_s = max(free_s[w], arrivals[head])
        while upto < total and arrivals[upto] <= now_s:
            upto += 1
        table = which[min(int(now_s / tick_s), which.size - 1)]
        m, b = int(model[table]), min(upto - head, int(cap[table]))
        took_s = service_s(latency_s, spread, draws, m, b, decision)
        decision += 1
        free_s[w] = now_s + took_s
        if arrivals[head] >= warm_s:
            tally[DECISIONS] += 1.0
            tally[BUSY] += took_s
            served[m] += b
        serial = settle(arrivals, Batch(head, b, m, free_s[w]), timing, clock, counts, serial)
        head += b
    return serial
