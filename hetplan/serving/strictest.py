"""The one limit by which single queries are judged: the lowest on the response time of an application."""

from __future__ import annotations

import math

from hetplan.profiles.slo import App
from hetplan.serving.demand import Target, response_targets

__all__ = ["late_share", "strictest", "strictest_ms"]


def strictest(app: App) -> Target | None:
    """The lowest limit, by which single queries are judged (of equal ones, the highest percentile); None without any.

    >>> app = App.model_validate({"model": "m", "latency": {"p99_ms": 200, "p50_ms": 80}})
    >>> strictest(app).max_ms
    80.0
    """
    return min(response_targets(app), key=lambda target: (target.max_ms, -target.percentile), default=None)


def strictest_ms(app: App) -> float:
    """The deadline by which an application's queries are judged, the network included; infinite without a limit."""
    target = strictest(app)
    return target.max_ms if target is not None else math.inf


def late_share(app: App) -> float:
    """The share of queries that may miss the strictest limit: what its percentile leaves; all without a limit."""
    target = strictest(app)
    return target.left if target is not None else 1.0
