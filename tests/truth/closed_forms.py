"""Queues whose answer is known: formulas alone."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np


def erlang_c(servers: int, offered: float) -> float:
    """The share of queries that wait in M/M/c."""
    blocked = 1.0
    for n in range(1, servers + 1):
        blocked = offered * blocked / (n + offered * blocked)
    return servers * blocked / (servers - offered * (1.0 - blocked))


def late_mmc(servers: int, rate: float, mean: float, limit: float) -> float:
    """The share of queries of M/M/c that take longer than a limit, waiting included (times in one unit)."""
    drain, waits = servers / mean - rate, erlang_c(servers, rate * mean)
    bare = math.exp(-limit / mean)
    if abs(drain * mean - 1.0) < 1e-9:
        return bare + waits * limit / mean * bare
    return bare * (1.0 - waits) + waits * (math.exp(-drain * limit) - drain * mean * bare) / (1.0 - drain * mean)


def late_md1(rate: float, service: float, limit: float) -> float:
    """The share of queries of M/D/1 that take longer than a limit (Erlang's series for the wait)."""
    wait = limit - service
    if wait < 0.0:
        return 1.0
    terms = (
        (-rate * (wait - k * service)) ** k / math.factorial(k) * math.exp(rate * (wait - k * service))
        for k in range(int(wait / service + 1e-12) + 1)
    )
    return 1.0 - (1.0 - rate * service) * math.fsum(terms)


def mean_mg1(rate: float, mean: float, square: float) -> float:
    """The mean response of M/G/1 (Pollaczek and Khinchine), of the first two moments of its service."""
    return mean + rate * square / (2.0 * (1.0 - rate * mean))


def mean_batches(rate: float, times: Sequence[float], most: int = 120) -> float:
    """The mean response of one server that takes what waits, up to `len(times)` queries, for `times[n - 1]`.

    The queue that a batch leaves behind is a Markov chain (Bailey, with times by size). Its cycles give the
    mean number of queries, and Little's law the response. `most` cuts the chain off.
    """
    sizes = np.arange(most)
    chain, area, length = np.zeros((most, most)), np.zeros(most), np.zeros(most)
    for left in range(most):
        size = min(max(left, 1), len(times))
        time = times[size - 1]
        idle = 1.0 / rate if left == 0 else 0.0
        arrived = np.exp(sizes * math.log(rate * time) - rate * time - np.array([math.lgamma(n + 1.0) for n in sizes]))
        behind = max(left, 1) - size
        chain[left, behind:] = arrived[: most - behind]
        chain[left, -1] += 1.0 - chain[left].sum()
        length[left] = idle + time
        # Who is there while the batch is served, those who come meanwhile for half of it.
        area[left] = (max(left, 1) + 0.5 * rate * time) * time
    known = np.vstack([chain.T - np.eye(most), np.ones(most)])
    law = np.linalg.lstsq(known, np.append(np.zeros(most), 1.0), rcond=None)[0]
    return float(law @ area / (law @ length) / rate)
