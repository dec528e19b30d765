"""Queueing formulas: the mean wait, and the chance to wait at all (Erlang C), from servers and their utilization."""

from __future__ import annotations

import math

__all__ = ["MOST_BUSY", "wait_probability", "wait_probability_at", "waiting_ms"]

MOST_BUSY = 0.999999
"""A server that is busier than this is taken to be as busy as this."""

MANY = 100_000
"""Above so many servers a sum that ends early takes the place of a step for each."""
SMALL, LARGE = 1e-18, 1e300


def waiting_ms(service_ms: float, busy: float, servers: float) -> float:
    """Mean wait in ms at this utilization of this many servers (Sakasegawa's formula for low variance).

    T u^sqrt(2(c+1)) / (c (1 - u)) / 2.

    >>> round(waiting_ms(10.0, 0.5, 1), 6)
    2.5
    """
    use = min(busy, MOST_BUSY)
    return service_ms * math.pow(use, math.sqrt(2.0 * (servers + 1.0))) / (servers * (1.0 - use)) / 2.0


def wait_probability(servers: int, load: float) -> float:
    """Erlang C: the probability that a query finds all servers busy, at an offered load (in servers).

    >>> round(wait_probability(1, 0.5), 6), round(wait_probability(2, 1.0), 6)
    (0.5, 0.333333)
    """
    if load <= 0:
        return 0.0
    lost = _lost_of_many(servers, load) if servers > MANY else 1.0
    for k in range(1, servers + 1) if servers <= MANY else ():
        lost = load * lost / (k + load * lost)
    return servers * lost / (servers - load * (1.0 - lost)) if load < servers else 1.0


def _lost_of_many(servers: int, load: float) -> float:
    """Erlang's B by its reciprocal, of which terms are added until they are too small, or too many, to count.

    >>> round(_lost_of_many(2, 1.0), 6), _lost_of_many(10**9, 1.0)
    (0.2, 0.0)
    """
    term = total = 1.0
    for k in range(servers, 0, -1):
        term *= k / load
        total += term
        if term < SMALL * total or total > LARGE:
            break
    return 1.0 / total if total <= LARGE else 0.0


def wait_probability_at(servers: int, load: float, busy: float) -> float:
    """The probability that a query waits, at a stated utilization of one server as fast as all together.

    Until all are busy each serves one query, and `load` of them would do. From then on they work like that one.

    >>> round(wait_probability_at(2, 1.0, 0.5), 6)  # one at a time: Erlang's C
    0.333333
    """
    below = 1.0
    for k in range(1, servers):
        below = 1.0 + k * below / load if below < 1e250 else below
    return busy / (busy + (1.0 - busy) * below)
