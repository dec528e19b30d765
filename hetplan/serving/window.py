r"""How many queries come in one window of time: what no machines can answer in time, whoever dispatches.

N(T) queries come in a window of length T. Those of them that are in time are served within T + D, D the deadline. So
machines that serve no more than mu queries/s answer at most mu (T + D) of them in time, and of all queries ::

    late  >=  E (N(T) - mu (T + D))+ / E N(T),        every T.

It holds of every dispatcher, and of one who knows all arrivals, too. Seen over a long window it is the fluid bound; in
a short one it sees bursts. With classes of queries the same is a program (`problems.pool.program`) whose optimum h(N)
is convex and never falls in N. So any N' below N(T) in the increasing convex order, E (N' - c)+ <= E (N(T) - c)+ for
all c, is late no more often: whatever is left out or averaged here must go that way, and each step says why it does.

**The excess** e(c) = E (N(T) - c)+ at whole c, with r the rate, window at any moment of a stationary process:

- *gamma* (a the shape; a = 1 is Poisson): the first gap is what is left of one, so that P(N(T) >= k) is r times the
  integral over [0, T] of F_{k-1} - F_k, with F_k the law of k gaps, gamma of shape a k and rate a r. That telescopes::

      e(c) = r int_0^T F_c = r T P(a c, a r T) - c P(a c + 1, a r T),        P the regularised incomplete gamma

- *mmpp*: given the states, N(T) is Poisson of mean r R, with R the integral of the relative rate. So e(c) is the mean
  of Poisson's excess over the law of R. It is convex in R: any average of R is on the safe side (Jensen). T is cut into
  steps. What a step adds to R is averaged given the states at its ends (from one matrix exponential, after Van Loan),
  and sums near one another in the same state are made one, their mean.

Other processes are not stationary (diurnal, recorded) or have no bursts (deterministic): nothing is claimed of them.

**The atoms.** N' has the chance P(N >= b_i) - P(N >= b_{i+1}) at the mean of N between two thresholds, all else at 0:
again an average, and less. The window is the one in which one class needs the most machines: mu / r is largest.

**Times that vary.** Nobody knows beforehand which queries are short, and one that is begun is ended. Of those begun by
T + D, P(S <= D) at most are in time, and up to T + 2 D each has taken min(S, D) of its machine, or more. So one in time
takes w = E min(S, D) / P(S <= D) in the mean, and T + 2 D takes the place of T + D. The same of batches.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hetplan.profiles.slo import Arrivals
from hetplan.serving.distribution import Distribution

__all__ = ["Window", "busiest", "excess_of", "least_work", "time_after"]

Vector = NDArray[np.float64]

STEPS, CELLS = 16, 64
"""Steps of a window, and sums that are kept apart in each state: a factor loses .1% to 256 steps and 2,048 sums."""
DOUBLINGS, PAST = 12, 0.9
"""Windows that are looked at: half a deadline, and each twice the one before, until one asks for so much less."""
LEVELS = 2.0 ** np.arange(3, -6, -1)
"""Thresholds: where the excess is so many times what may be late. Above and below, averages lose next to nothing."""
QUANTILES = np.arange(-5.0, 5.01, 0.04).tolist()
"""Standard normal numbers at which times are looked at: a step loses a fiftieth of the logarithm's deviation."""
MOST, SAFE = 1e6, 1e-6
"""Windows of more queries are not looked at; figures are lowered by this part: more than their sums are rounded by."""
TINY = 1e-9
"""What comes more seldom is left out."""
MOST_WORK = 1e4
"""Limits' worth of work for one query that is in time: more is called this, as solvers work to a part of 1e7."""

Excess = Callable[[int], float]


@dataclass(frozen=True)
class Window:
    """A window of some length: the mean number of queries that come, and the atoms of N' above 0.

    `factor` is mu / r: how many times the rate machines must serve at least, were all queries alike.
    """

    seconds: float
    mean: float
    chance: Vector
    count: Vector
    factor: float

    def coarser(self) -> Window:
        """The same with half as many atoms: each two are one, their mean."""
        starts = np.arange(0, self.count.size, 2)
        chance = np.add.reduceat(self.chance, starts)
        count = np.add.reduceat(self.chance * self.count, starts) / chance
        return replace(self, chance=chance, count=count)


def busiest(arrivals: Arrivals, rate_qps: float, deadline_s: float, late: float) -> Window | None:
    """The window that asks for the most machines where a share of the queries may be late; None where none does.

    >>> bursts = Arrivals(process="mmpp", relative_rates=(0.6, 1.8), stay_s=(2.0, 1.0))
    >>> float(round(busiest(bursts, 500.0, 0.05, 0.01).factor, 2)), busiest(Arrivals(), 5000.0, 0.1, 0.01)
    (1.64, None)
    """
    found = list[tuple[float, float, Excess]]()
    for doubled in range(DOUBLINGS if 0.0 < late < 1.0 else 0):
        seconds = 0.5 * deadline_s * 2.0**doubled
        excess, mean = excess_of(arrivals, rate_qps, seconds), rate_qps * seconds
        if excess is None or mean > MOST:
            break
        after = _first(excess, late * mean, mean)
        least = after - (late * mean - excess(after)) / max(excess(after - 1) - excess(after), TINY)
        found.append((least / (rate_qps * (seconds + deadline_s)), seconds, excess))
        if found[-1][0] < PAST * max(one[0] for one in found):
            break
    factor, seconds, excess = max(found, key=lambda one: one[0], default=(0.0, 0.0, float))
    if factor <= 1.0:
        return None
    mean = rate_qps * seconds
    at = sorted({_first(excess, min(level * late, 1.0) * mean, mean) for level in LEVELS.tolist()})
    chance, count = _atoms(excess, at)
    return Window(seconds, mean, chance, count, (1.0 - SAFE) * factor) if count.size else None


def excess_of(arrivals: Arrivals, rate_qps: float, seconds: float) -> Excess | None:
    """E (N - c)+ for whole c of the N queries in a window, or a little less; None where nothing is known of it.

    >>> round(excess_of(Arrivals(), 2.0, 1.0)(1), 6)  # e^-2 of none is missing from 2 - 1
    1.135335
    """
    from scipy.special import gammainc

    if arrivals.process == "mmpp":
        chance, share = _intensity(arrivals.relative_rates or (), arrivals.stay_s or (), seconds)
        shape, mean = 1.0, rate_qps * share
    elif arrivals.process in ("poisson", "gamma"):
        chance, shape, mean = np.ones(1), arrivals.shape or 1.0, np.array([rate_qps * seconds])
    else:
        return None

    def excess(c: int) -> float:
        if c <= 0:
            return float(chance @ mean) - c
        least = mean * gammainc(shape * c, shape * mean) - c * gammainc(shape * c + 1.0, shape * mean)
        return float(chance @ np.maximum(least, 0.0))

    return excess


def _intensity(rates: tuple[float, ...], stays: tuple[float, ...], seconds: float) -> tuple[Vector, Vector]:
    """The law of R, the integral of the relative rate over a window: chances and values, averaged as said above."""
    from scipy.linalg import expm

    size, span = len(rates), seconds * max(rates)
    states, following = np.arange(size), (np.arange(size) + 1) % size
    moves = np.zeros((2 * size, 2 * size))
    for shift in (0, size):
        np.add.at(moves, (shift + states, shift + states), -1.0 / np.array(stays))
        np.add.at(moves, (shift + states, shift + following), 1.0 / np.array(stays))
    moves[states, size + states] = rates
    step = expm(moves * (seconds / STEPS))
    to, adds = step[:size, :size], step[:size, size:]
    adds = np.divide(adds, to, out=np.zeros_like(adds), where=to > 0)
    at, chance, value = states, np.divide(stays, sum(stays)), np.zeros(size)
    for _ in range(STEPS):
        chances, values = chance[:, None] * to[at], value[:, None] + adds[at]
        cell = np.minimum(values / span * CELLS, CELLS - 1).astype(np.int64) + CELLS * states
        total: Vector = np.bincount(cell.ravel(), chances.ravel()).astype(np.float64)
        sums: Vector = np.bincount(cell.ravel(), (chances * values).ravel()).astype(np.float64)
        there = np.flatnonzero(total > 0)
        at, chance, value = there // CELLS, total[there], sums[there] / total[there]
    return chance, value


def _first(excess: Excess, level: float, guess: float) -> int:
    """The least whole c above 0 whose excess is at most this."""
    low, high = 0, max(1, round(guess))
    while excess(high) > level:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if excess(middle) <= level else (middle, high)
    return high


def _atoms(excess: Excess, at: list[int]) -> tuple[Vector, Vector]:
    """Chances and means of N from each threshold to the next."""
    beyond = np.array([excess(b - 1) - excess(b) for b in at] + [0.0])  # P(N >= b)
    total = np.array([excess(b) + b * more for b, more in zip(at, beyond, strict=False)] + [0.0])  # E N, N >= b
    chance, sums = beyond[:-1] - beyond[1:], total[:-1] - total[1:]
    there = chance > TINY
    return chance[there], (1.0 - SAFE) * sums[there] / chance[there]


def time_after(limit_ms: float, *, varies: bool) -> float:
    """How long after a window, ms, machines serve those of it that are in time: D, or 2 D where times vary."""
    return (2.0 if varies else 1.0) * limit_ms


def least_work(times: Distribution, limit_ms: float) -> float:
    """What a query takes within the limit, per one that is in time, or a little less."""
    ends = sorted({min(times.at(z), limit_ms) for z in QUANTILES} | {limit_ms})
    longer: Vector = np.array([times.longer_than(end) for end in ends])
    taken = float(np.diff([0.0, *ends]) @ longer)  # a share never grows: each step is as high as its end
    in_time = float(1.0 - longer[-1])
    return min(taken / in_time, MOST_WORK * limit_ms) if in_time > 0.0 else np.inf
