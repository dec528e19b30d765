"""The distribution of a service time, from what a table states of it: mean, standard deviation, percentiles, longest.

The logarithm of a time is piecewise linear in a standard normal number z: ``log Q = mu + sigma z`` on each piece.
With a mean and a deviation alone that is one piece, the lognormal. Percentiles are points (z_i, log q_i) that it passes
through, z_i the normal quantile of .5, .9, .95 and .99: they hold exactly. Between two of them it is straight. Left to
choose are the slopes of the lowest piece, a, and of the highest, b; the longest time cuts off what is above it.

- Without a mean, a and b are the slopes beside them.
- With one, a is such that the mean holds; b is the slope beside it or, where a deviation is stated, such that this
  holds too. A piece from z to z' adds ``exp(mu + sigma^2 / 2) (Phi(z' - sigma) - Phi(z - sigma))`` to the mean; to the
  mean of squares the same with 2 mu and 2 sigma.
- With a deviation and no median, one more point is free, a little below the lowest percentile; it and a are such that
  mean and deviation hold, so that a far percentile does not stretch the body of the times.
- Where no a and b reach the mean, the pieces between the percentiles bend: each becomes two, which meet above their
  chord, or below. So every mean is met that the percentiles allow; of others, and of a deviation that no b reaches,
  the nearest is taken.

A percentile below the one before it is raised to that. Plain Python: a worker's process draws by it too.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["PERCENTILES", "Distribution", "distribution_of", "nearest_rank"]

PERCENTILES: Mapping[str, tuple[float, float]] = {
    "p50": (50.0, 0.0),
    "p90": (90.0, 1.2815515655446004),
    "p95": (95.0, 1.6448536269514722),
    "p99": (99.0, 2.3263478740408408),
}
"""The statistics that are percentiles, and the standard normal number below which that share lies."""

STEEPEST = 30.0
"""The largest slope of the lowest piece: its mean is then a 40th of its end, or less."""
HEAVIEST = 6.0
"""The largest slope of the highest piece without a longest time: the mean beyond p99 is thousands of times p99."""
BODY = 0.5
"""How far below the lowest percentile, in z, the piece ends of which mean and deviation decide."""
LOWEST = 30.0
"""How far below it, in logarithms, that end may be."""
CORNER = 1e-4
"""How near to a corner a bend may come, as a part of its piece."""
CLOSE, CLOSE_STD = 1e-9, 1e-4
"""How near is near enough: of the mean, as a part of it; of the variance."""
ROUNDING = 1e-12
"""A time this little above a limit, as a part of it, is at the limit."""

Points = list[tuple[float, float]]


def nearest_rank(ordered: Sequence[float] | NDArray[np.float64], share: float) -> float:
    """The least of some times, in order, that at least this share of them does not exceed; NaN of none.

    >>> nearest_rank([1.0, 2.0, 3.0, 4.0], 0.5), nearest_rank([1.0, 2.0, 3.0, 4.0], 0.51)
    (2.0, 3.0)
    """
    if not len(ordered):
        return math.nan
    return float(ordered[min(max(math.ceil(share * len(ordered) - 1e-9) - 1, 0), len(ordered) - 1)])


@dataclass(frozen=True)
class Distribution:
    """Pieces (up to this z, mu, sigma), the last without end.

    >>> times = distribution_of(mean=20.0, p50=15.0, p95=45.0, p99=60.0)
    >>> round(times.moment(1), 6), round(times.at(PERCENTILES["p95"][1]), 9), round(times.longer_than(60.0), 9)
    (20.0, 45.0, 0.01)
    """

    pieces: tuple[tuple[float, float, float], ...]

    def at(self, z: float) -> float:
        """The time at a standard normal number."""
        _, mu, sigma = self.pieces[bisect_left(self.pieces, (z,))]
        return math.exp(mu + sigma * z)

    def longer_than(self, limit: float) -> float:
        """The share of times above a limit."""
        if limit <= 0.0:
            return 1.0
        log, low = math.log(limit) + ROUNDING, -math.inf
        for high, mu, sigma in self.pieces:
            cut = (log - mu) / sigma if sigma > 0.0 else math.copysign(math.inf, log - mu)
            if cut < high:
                return _normal_tail(max(low, cut))
            low = high
        return 0.0

    def moment(self, power: int) -> float:
        """The mean of its times to a power."""
        lows = (-math.inf, *(high for high, _, _ in self.pieces))
        return sum(_part(low, *piece, power) for low, piece in zip(lows, self.pieces, strict=False))


@lru_cache(maxsize=65536)
def distribution_of(
    *,
    mean: float | None = None,
    std: float | None = None,
    p50: float | None = None,
    p90: float | None = None,
    p95: float | None = None,
    p99: float | None = None,
    max: float | None = None,
) -> Distribution | None:
    """The distribution that these statistics state; None where they do not say that times vary."""
    points: Points = []
    for (_, z), value in zip(PERCENTILES.values(), (p50, p90, p95, p99), strict=True):
        if value:
            y = math.log(value)
            points.append((z, y if not points or y > points[-1][1] else points[-1][1]))
    top = math.inf if max is None else math.log(max)
    if mean is None or mean <= 0.0:
        made = _join_pieces(points, _slope(points, 0), _slope(points, -2), top) if len(points) > 1 else ()
    elif points:
        made = _fit_pieces(points, mean, std, top)
    else:
        square = math.log1p(((std or 0.0) / mean) ** 2)
        made = _join_pieces([(0.0, math.log(mean) - square / 2.0)], math.sqrt(square), math.sqrt(square), top)
    return Distribution(made) if any(sigma > 0.0 for _, _, sigma in made) else None


def _fit_pieces(points: Points, mean: float, std: float | None, top: float) -> tuple[tuple[float, float, float], ...]:
    """Pieces through the points that have the mean, and the deviation as nearly as can be."""
    squares = mean * mean + (std or 0.0) ** 2
    near, nearly = CLOSE, CLOSE_STD * (std or 0.0) ** 2 / squares
    heaviest = HEAVIEST if top == math.inf else STEEPEST

    def excess(lowest: float, heavy: float, through: Points = points) -> float:
        return math.log(_moment(through, lowest, heavy, top) / mean)

    def wider(lowest: float, heavy: float, through: Points = points) -> float:
        return math.log(_moment(through, lowest, heavy, top, 2) / squares)

    def lowest_for(heavy: float) -> float:
        return _root(lambda a: -excess(a, heavy), 0.0, STEEPEST, near)

    def with_body(lowest: float) -> Points:
        at, y = points[0]
        body = _root(lambda c: excess(lowest, heavy, [(at - BODY, c), *points]), y - LOWEST, y, near)
        return [(at - BODY, body), *points]

    # Between these slopes of the highest piece the lowest one can make the mean hold.
    least = _root(lambda b: excess(0.0, b), 0.0, heaviest, near)
    most = _root(lambda b: excess(STEEPEST, b), least, heaviest, near)
    beside = _slope(points, -2) if len(points) > 1 else _lognormal_slope(*points[0], mean)
    heavy = min(max(beside, least), most)
    if std is not None and points[0][0] > 0.0:
        flat = [(points[0][0] - BODY, points[0][1]), *points]
        steepest = _root(lambda a: -excess(a, heavy, flat), 0.0, STEEPEST, near)
        lowest = _root(lambda a: wider(a, heavy, with_body(a)), 0.0, steepest, nearly)
        points = with_body(lowest)
    elif std is not None:
        heavy = _root(lambda b: wider(lowest_for(b), b), least, most, nearly)
        lowest = lowest_for(heavy)
    else:
        lowest = lowest_for(heavy)
    if abs(excess(lowest, heavy, points)) > 1e-6:
        straight = points
        bend = _root(lambda t: excess(lowest, heavy, _bent(straight, t)), CORNER, 1.0 - CORNER, near)
        points = _bent(points, bend)
    return _join_pieces(points, lowest, heavy, top)


def _moment(points: Points, lowest: float, heavy: float, top: float, power: int = 1) -> float:
    """The mean of a power, of the pieces through these points."""
    (first, y), (last, over) = points[0], points[-1]
    total = _part(-math.inf, first, y - lowest * first, lowest, power)
    for (low, under), (high, above) in pairwise(points):
        sigma = (above - under) / (high - low)
        total += _part(low, high, under - sigma * low, sigma, power)
    top = max(top, over)
    cut = last + (top - over) / heavy if heavy > 0.0 else math.inf
    rest = math.exp(power * top) * _normal_tail(cut) if cut < math.inf else 0.0
    return total + _part(last, cut, over - heavy * last, heavy, power) + rest


def _bent(points: Points, bend: float) -> Points:
    """The points, and between each two one on the diagonal across their chord; at a half it is on the chord."""
    found = points[:1]
    for (z, y), (after, above) in pairwise(points):
        found += [(after - bend * (after - z), y + bend * (above - y)), (after, above)]
    return found


def _slope(points: Points, place: int) -> float:
    (z, y), (after, above) = points[place], points[place + 1]
    return (above - y) / (after - z)


def _lognormal_slope(z: float, y: float, mean: float) -> float:
    """The slope of the lognormal through a point that has the mean; where there is none, the nearest to it."""
    off = y - math.log(mean)
    root = math.sqrt(max(0.0, z * z - 2.0 * off))
    return z - root if off > 0.0 else z + root if off < 0.0 else 0.0


def _join_pieces(points: Points, lowest: float, heavy: float, top: float) -> tuple[tuple[float, float, float], ...]:
    """The pieces through the points, no time above e^top."""
    (z, y), pieces = points[0], []
    pieces.append((z, y - lowest * z, lowest))
    for (low, under), (high, over) in pairwise(points):
        sigma = (over - under) / (high - low)
        pieces.append((high, under - sigma * low, sigma))
    z, y = points[-1]
    top = max(top, y)
    pieces.append((z + (top - y) / heavy if heavy > 0.0 else math.inf, y - heavy * z, heavy))
    if pieces[-1][0] < math.inf:
        pieces.append((math.inf, top, 0.0))
    return tuple(pieces)


def _part(low: float, high: float, mu: float, sigma: float, power: int) -> float:
    """The integral of exp(power (mu + sigma z)) over the normal density from `low` to `high`."""
    mu, sigma = power * mu, power * sigma
    if high == math.inf:
        return math.exp(mu + sigma * sigma / 2.0) * _normal_tail(low - sigma)
    return _up_to(high, mu, sigma) - (_up_to(low, mu, sigma) if low > -math.inf else 0.0)


def _up_to(z: float, mu: float, sigma: float) -> float:
    """The same from minus infinity: without the large factor where the share is small."""
    x = sigma - z
    if x <= 0.0:
        return math.exp(mu + sigma * sigma / 2.0) * _normal_tail(x)
    mills = math.exp(x * x / 2.0) * math.sqrt(math.pi / 2.0) * math.erfc(x / math.sqrt(2.0)) if x < 30 else 1.0 / x
    return math.exp(mu + sigma * z - z * z / 2.0) / math.sqrt(2.0 * math.pi) * mills


def _normal_tail(z: float) -> float:
    """The share of standard normal numbers above z."""
    return 0.5 * math.erfc(z / math.sqrt(2.0))


def _root(rising: Callable[[float], float], low: float, high: float, close: float) -> float:
    """Where a rising function is 0, by false position (Illinois); an end where it is 0 nowhere between."""
    at_low, at_high = rising(low), rising(high)
    if at_low >= 0.0 or at_high <= 0.0:
        return low if at_low >= 0.0 else high
    side = 0
    for _ in range(200):
        x = (low * at_high - high * at_low) / (at_high - at_low)
        found = rising(x)
        if abs(found) <= close or high - low <= 1e-14 * high:
            return x
        if found > 0.0:
            high, at_high = x, found
            at_low *= 0.5 if side > 0 else 1.0
            side = 1
        else:
            low, at_low = x, found
            at_high *= 0.5 if side < 0 else 1.0
            side = -1
    return (low + high) / 2.0
