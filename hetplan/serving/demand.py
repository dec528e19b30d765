"""What is asked for: classes of queries and their shares, the rate of an application, by when it is answered."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hetplan.profiles.slo import App, Mix

__all__ = [
    "Classes",
    "Target",
    "classes_of",
    "late_share",
    "points_of",
    "response_targets",
    "strictest_ms",
    "strictest_target",
]


@dataclass(frozen=True)
class Target:
    """A limit on the response time: its name in `app.latency`, its percentile, the network's time per hop and once."""

    key: str
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

        >>> Target("p99_ms", 99.0, 100.0, 5.0).limit_ms(), Target("p99_ms", 99.0, 100.0, 5.0, 20.0).limit_ms(steps=3)
        (95.0, 65.0)
        """
        return self.max_ms - self.once_ms - steps * self.hop_ms


def response_targets(app: App) -> tuple[Target, ...]:
    """The limits on the response time, the highest percentile last (of equal ones, the widest)."""
    found = [
        Target(target.key, target.percentile, target.max_ms, app.network_ms_per_hop, app.network_ms_once)
        for target in app.targets
        if target.of == "response"
    ]
    return tuple(sorted(found, key=lambda target: (target.percentile, target.max_ms)))


def strictest_target(app: App) -> Target | None:
    """The lowest limit, by which single queries are judged (of equal ones, the highest percentile); None without any.

    >>> app = App.model_validate({"model": "m", "latency": {"p99_ms": 200, "p50_ms": 80}})
    >>> strictest_target(app).max_ms
    80.0
    """
    return min(response_targets(app), key=lambda target: (target.max_ms, -target.percentile), default=None)


def strictest_ms(app: App) -> float:
    """The deadline by which an application's queries are judged, the network included; infinite without a limit."""
    target = strictest_target(app)
    return target.max_ms if target is not None else math.inf


def late_share(app: App) -> float:
    """The share of queries that may miss the strictest limit: what its percentile leaves; all without a limit."""
    target = strictest_target(app)
    return target.left if target is not None else 1.0


@dataclass(frozen=True)
class Classes:
    """The classes of queries, in the order of the mix, each a point on the axes that it names, and their shares."""

    points: tuple[dict[str, float], ...]
    shares: tuple[float, ...]

    def coming(self) -> Classes:
        """Those that come at all."""
        kept = [number for number, share in enumerate(self.shares) if share > 0.0]
        return Classes(tuple(self.points[n] for n in kept), tuple(self.shares[n] for n in kept))


def classes_of(mix: Mix | None) -> Classes:
    """The classes of a mix, and what share of the queries each is; one class of no axes without a mix.

    Observed sizes are counted into the bins (`AboveLargestBin` where one fits none).

    >>> classes_of(Mix(axes=("batch",), bins=((1,), (8,)), share=(0.75, 0.25)))
    Classes(points=({'batch': 1.0}, {'batch': 8.0}), shares=(0.75, 0.25))
    >>> classes_of(None).points
    ({},)
    """
    if mix is None:
        return Classes(({},), (1.0,))
    if mix.observed is not None:
        from hetplan.profiles.mix import count_into_bins

        mix = count_into_bins(mix)
    return Classes(points_of(mix), tuple(float(share) for share in mix.share or ()))


def points_of(mix: Mix | None) -> tuple[dict[str, float], ...]:
    """The classes alone, shares not counted."""
    if mix is None:
        return ({},)
    return tuple(dict(zip(mix.axes, (float(value) for value in size), strict=True)) for size in mix.bins)
