"""What an application asks for: classes of queries and their shares, latency targets, the wanted rate."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hetplan.profiles.operating_points import Limit, limits_of
from hetplan.profiles.slo import App, Mix

__all__ = ["Classes", "classes_of", "least_wanted", "response_targets", "strictest_limit_ms"]


def _key(values: Sequence[float]) -> tuple[float, ...]:
    # Plans carry 12 significant digits, inputs any number of them.
    return tuple(float(format(value, ".12g")) for value in values)


@dataclass(frozen=True)
class Classes:
    """The classes of queries of an application; without a mix there is one, of no axes."""

    axes: tuple[str, ...]
    bins: tuple[tuple[float, ...], ...]
    share: tuple[float, ...]
    index: Mapping[tuple[float, ...], int]
    limits: tuple[Limit, ...] = ()
    """By which rates of a table of runs are read."""

    def find(self, when: Mapping[str, float]) -> int | None:
        """The class that `when` names, or None."""
        if when.keys() != set(self.axes):
            return None
        return self.index.get(_key([when[axis] for axis in self.axes]))

    def name(self, number: int) -> str:
        """A class in words."""
        return ", ".join(f"{axis} {value:g}" for axis, value in zip(self.axes, self.bins[number], strict=True)) or "all"


def classes_of(app: App) -> Classes:
    """The classes that the demand of an application comes in; shares are brought to a sum of exactly 1."""
    mix = app.mix
    if mix is None:
        return Classes((), ((),), (1.0,), {}, limits_of(app))
    weights: Sequence[float] = mix.share or ()
    if mix.share is None:
        weights = _bin_counts(mix, mix.observed or ())
    total = sum(weights)
    share = tuple(weight / total for weight in weights)
    index = {_key(size): number for number, size in enumerate(mix.bins)}
    return Classes(mix.axes, mix.bins, share, index, limits_of(app))


def _bin_counts(mix: Mix, observed: Sequence[Sequence[float]]) -> list[float]:
    """How often each bin was met: a size counts as the bin that holds it and is fewest of the axes' values up.

    Of bins equally far up, the first that is listed.
    """
    counts = [0.0] * len(mix.bins)
    values = [sorted(set(column)) for column in zip(*mix.bins, strict=True)]
    up = [sum(column.index(at) for column, at in zip(values, one, strict=True)) for one in mix.bins]
    for size in observed:
        holding = [n for n, one in enumerate(mix.bins) if all(a <= b for a, b in zip(size, one, strict=True))]
        if holding:
            counts[min(holding, key=lambda n: up[n])] += 1.0
    return counts


def response_targets(app: App) -> tuple[tuple[float, float], ...]:
    """Limits on the response time (ms), the highest percentile last, each with the share of queries that it leaves."""
    targets = sorted((target.percentile, target.max_ms) for target in app.targets if target.of == "response")
    return tuple((max_ms, 1.0 - percentile / 100.0) for percentile, max_ms in targets)


def strictest_limit_ms(app: App) -> float:
    """The least limit on the response time; infinite without any."""
    return min((limit_ms for limit_ms, _ in response_targets(app)), default=math.inf)


def least_wanted(app: App) -> float | None:
    """The least that a number in the wish can mean: the rate itself, or the lowest of the past that a forecast has."""
    stated = app.stated_qps
    past = app.history or app.series
    return min(past) if stated is None and past is not None else stated
