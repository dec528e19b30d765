"""By when answers must be there: the limits on the response time of an application, less what the network takes."""

from __future__ import annotations

from dataclasses import dataclass

from hetplan.profiles.slo import App

__all__ = ["Target", "response_targets"]


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
