"""How long queries wait where servers are busy: a rule of thumb for warnings, no promise."""

from __future__ import annotations

import math

__all__ = ["MOST_BUSY", "waiting_ms"]

MOST_BUSY = 0.999999
"""A server that is busier than this is taken to be as busy as this."""


def waiting_ms(service_ms: float, busy: float, servers: float) -> float:
    """The wait before so many servers at this use: Sakasegawa's queue for times of little variance.

    T u^sqrt(2(c+1)) / (c (1 - u)) / 2.

    >>> round(waiting_ms(10.0, 0.5, 1), 6)
    2.5
    """
    use = min(busy, MOST_BUSY)
    return service_ms * math.pow(use, math.sqrt(2.0 * (servers + 1.0))) / (servers * (1.0 - use)) / 2.0
