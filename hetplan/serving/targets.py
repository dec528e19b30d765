"""By when answers must be there: the limits on the response time of an application, less what the network takes."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hetplan.profiles.slo import App

__all__ = ["Target", "late_share", "limit_ms", "response_targets", "strictest", "strictest_ms"]


@dataclass(frozen=True)
class Target:
    """A limit on the response time: its place in `app.latency`, its percentile, the network's time per hop and once."""

    place: int
    percentile: float
    max_ms: float
    hop_ms: float
    once_ms: float = 0.0

    @property
    def left(self) -> float:
        """The share of queries that may take longer."""
        return 1.0 - self.percentile / 100.0

    def limit_ms(self, steps: int = 1) -> float:
        """What is left for waiting and serving on a path of so many steps: each costs one hop. May be 0 or less.

        >>> Target(0, 99.0, 100.0, 5.0).limit_ms(), Target(0, 99.0, 100.0, 5.0, 20.0).limit_ms(steps=3)
        (95.0, 65.0)
        """
        return self.max_ms - self.once_ms - steps * self.hop_ms


def response_targets(app: App) -> tuple[Target, ...]:
    """The limits on the response time, the highest percentile last (of equal ones, the widest)."""
    found = [
        Target(place, target.percentile, target.max_ms, app.network_ms_per_hop, app.network_ms_once)
        for place, target in enumerate(app.latency)
        if target.of == "response"
    ]
    return tuple(sorted(found, key=lambda target: (target.percentile, target.max_ms)))


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


def limit_ms(app: App, steps: int = 1) -> float:
    """What the strictest limit leaves on a path of so many steps; infinite without a limit."""
    target = strictest(app)
    return target.limit_ms(steps) if target is not None else math.inf


def late_share(app: App) -> float:
    """The share of queries that may miss the strictest limit: `violations`, else what its percentile leaves, else 1."""
    if app.violations is not None:
        return app.violations.max
    target = strictest(app)
    return target.left if target is not None else 1.0
