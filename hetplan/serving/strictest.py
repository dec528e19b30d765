"""The one limit by which single queries are judged: the lowest on the response time of an application."""

from __future__ import annotations

import math

from hetplan.profiles.slo import App
from hetplan.serving.demand import Target, response_targets

__all__ = ["late_share", "least_answered", "strictest", "strictest_ms"]


def strictest(app: App) -> Target | None:
    """The lowest limit, by which single queries are judged (of equal ones, the highest percentile); None without any.

    >>> app = App.model_validate({"runs": {"variants": ["m"]}, "latency": [
    ...     {"percentile": 99, "max_ms": 200}, {"percentile": 50, "max_ms": 80}]})
    >>> strictest(app).max_ms
    80.0
    """
    return min(response_targets(app), key=lambda target: (target.max_ms, -target.percentile), default=None)


def strictest_ms(app: App) -> float:
    """The deadline by which an application's queries are judged, the network included; infinite without a limit."""
    target = strictest(app)
    return target.max_ms if target is not None else math.inf


def late_share(app: App) -> float:
    """The share of queries that may miss the strictest limit: `violations`, else what its percentile leaves, else 1."""
    if app.violations is not None:
        return app.violations.max
    target = strictest(app)
    return target.left if target is not None else 1.0


def least_answered(app: App) -> float:
    """The share of queries that machines have to answer: all, or where late ones are dropped all but those.

    Who is dropped is late by every limit, so the highest percentile counts.

    >>> said = {"runs": {"variants": ["m"]}, "latency": [{"percentile": 75, "max_ms": 200}]}
    >>> least_answered(App.model_validate(said)), least_answered(App.model_validate({**said, "late": "drop"}))
    (1.0, 0.75)
    """
    drops = app.late not in (None, "serve")
    return 1.0 - min((target.left for target in response_targets(app)), default=0.0) if drops else 1.0
