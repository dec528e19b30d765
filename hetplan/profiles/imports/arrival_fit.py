"""What recorded arrivals are like: rates over time, how bursty they are, and the process that is nearest to them.

What is fitted, in this order; the first that the record shows is taken:

- **diurnal**, where two days or more of rates follow one daily wave (at least half of their variance is that wave);
- **deterministic**, where gaps hardly vary (their squared coefficient of variation is below 0.01);
- **mmpp**, where counts over long windows vary much more than independent gaps could make them: two rates, and how long
  each stays, found by maximum likelihood over counts (Baum and Welch);
- **gamma**, where gaps, measured in the rate of their own minutes, vary otherwise than those of a Poisson process by
  more than chance;
- **poisson** else.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["dispersion", "fitted", "fitted_rates", "gap_variation", "percentiles", "rates_of"]

DAY_S = 86_400.0
_PERCENTILES = (50, 90, 95, 99, 100)
_LEAST_WINDOWS = 30
_BURSTY = 3.0
"""From so many times the dispersion that independent gaps have, the rate itself changes."""

Floats = NDArray[np.float64]


def rates_of(times: Floats, period_s: float) -> Floats:
    """Arrivals per second in successive whole periods from the first arrival.

    >>> rates_of(np.array([0.0, 1.0, 2.0, 11.0, 20.0]), 10.0).tolist()
    [0.3, 0.1]
    """
    if not len(times):
        return np.zeros(0)
    whole = max(1, int((times[-1] - times[0]) / period_s))
    counts, _ = np.histogram(times - times[0], bins=np.arange(whole + 1) * period_s)
    if (times[-1] - times[0]) == whole * period_s:  # numpy counts the last edge into the last bin
        counts[-1] -= int(np.sum(times - times[0] == whole * period_s))
    return counts / period_s


def percentiles(values: Sequence[float] | Floats) -> dict[str, float]:
    """The middle and the upper end of some numbers.

    >>> percentiles([1.0, 2.0, 3.0])
    {'p50': 2.0, 'p90': 2.8, 'p95': 2.9, 'p99': 2.98, 'max': 3.0}
    """
    found = np.percentile(np.asarray(values, dtype=np.float64), _PERCENTILES)
    names = [f"p{which}" if which < 100 else "max" for which in _PERCENTILES]
    return {name: float(f"{value:.6g}") for name, value in zip(names, found, strict=True)}


def gap_variation(times: Floats, window_s: float = 60.0) -> float:
    """The squared coefficient of variation of gaps, each measured in the rate of its own window; 1 for Poisson."""
    gaps = np.diff(times)
    if len(gaps) < 2:
        return 1.0
    place = ((times[:-1] - times[0]) // window_s).astype(int)
    counts = np.bincount(place)
    length = np.bincount(place, weights=gaps)
    known = counts[place] >= 10
    if known.sum() < 20:
        known, own = np.ones(len(gaps), dtype=np.bool_), np.full(len(gaps), gaps.mean())
    else:
        own = (length / np.maximum(counts, 1))[place]
    scaled = gaps[known] / own[known]
    mean = float(scaled.mean())
    return float(scaled.var() / mean**2) if mean > 0 else 0.0


def dispersion(times: Floats, window_s: float) -> float | None:
    """The variance of counts over windows, in parts of their mean; None where there are too few windows."""
    counts = rates_of(times, window_s) * window_s
    if len(counts) < _LEAST_WINDOWS or counts.mean() == 0:
        return None
    return float(counts.var(ddof=1) / counts.mean())


def fitted(times: Floats) -> dict[str, Any]:
    """`arrivals` of recorded arrival times."""
    rate = (len(times) - 1) / (times[-1] - times[0])
    wave = fitted_rates(rates_of(times, 600.0), 600.0)
    if wave["process"] == "diurnal":
        return wave
    variation = gap_variation(times)
    if variation < 0.01:
        return {"process": "deterministic"}
    span = float(times[-1] - times[0])
    window_s = min(20.0 / rate, span / (2 * _LEAST_WINDOWS))
    long = dispersion(times, max(window_s, span / (_LEAST_WINDOWS + 1)))
    if long is not None and long > _BURSTY * max(variation, 1.0):
        states = _two_rates(rates_of(times, window_s) * window_s)
        if states is not None:
            stays = [float(f"{stay * window_s:.6g}") for stay in states[1]]
            mean = sum(rate * stay for rate, stay in zip(states[0], stays, strict=True)) / sum(stays)
            return {"process": "mmpp", "relative_rates": [rate / mean for rate in states[0]], "stay_s": stays}
    # The error of a squared variation of n exponential gaps is about sqrt(8 / n).
    if abs(variation - 1.0) > 3.0 * math.sqrt(8.0 / len(times)):
        return {"process": "gamma", "shape": float(f"{1.0 / variation:.4g}")}
    return {"process": "poisson"}


def fitted_rates(rates: Floats, period_s: float) -> dict[str, Any]:
    """`arrivals` of rates alone: a daily wave, or nothing that rates could say of gaps."""
    seconds = np.arange(len(rates)) * period_s
    whole = int(len(rates) * period_s / DAY_S) * int(DAY_S / period_s)
    if period_s > DAY_S / 8 or whole * period_s < 2 * DAY_S or rates[:whole].mean() <= 0:
        return {"process": "poisson"}
    used, at = rates[:whole], seconds[:whole]
    wave = np.mean(used * np.exp(-2j * np.pi * at / DAY_S))
    part = 2.0 * abs(wave) / used.mean()
    explained = 2.0 * abs(wave) ** 2 / used.var() if used.var() > 0 else 0.0
    if explained < 0.5:
        return {"process": "poisson"}
    return {"process": "diurnal", "peak": float(f"{1.0 + min(part, 1.0):.4g}"), "period_s": DAY_S}


def _two_rates(counts: Floats) -> tuple[tuple[float, float], tuple[float, float]] | None:
    """Two means of counts per window, and how many windows each stays; None where the counts do not show two.

    Baum and Welch's steps for a chain of two states with Poisson counts.
    """
    low, high = np.percentile(counts, 25), np.percentile(counts, 90)
    if high <= low:
        return None
    means = np.array([max(low, 0.1), high], dtype=np.float64)
    moves = np.array([[0.9, 0.1], [0.2, 0.8]])
    start = np.array([0.5, 0.5])
    logs = np.array([math.lgamma(count + 1.0) for count in counts])
    for _ in range(60):
        log_seen = counts[:, None] * np.log(means) - means - logs[:, None]
        seen = np.exp(log_seen - log_seen.max(axis=1, keepdims=True))
        ahead, behind = _passes(seen, moves, start)
        state = ahead * behind
        state /= state.sum(axis=1, keepdims=True)
        pairs = ahead[:-1, :, None] * moves[None] * (seen[1:] * behind[1:])[:, None, :]
        pairs /= pairs.sum(axis=(1, 2), keepdims=True)
        moves = pairs.sum(axis=0) / np.maximum(pairs.sum(axis=(0, 2))[:, None], 1e-12)
        means = np.maximum((state * counts[:, None]).sum(axis=0) / np.maximum(state.sum(axis=0), 1e-12), 1e-3)
        start = state[0]
    order = np.argsort(means)
    stays = 1.0 / np.maximum(1.0 - np.diag(moves)[order], 1e-6)
    rates = means[order]
    if rates[1] < 1.2 * rates[0] or stays.max() > 2 * len(counts):
        return None
    return (float(rates[0]), float(rates[1])), (float(stays[0]), float(stays[1]))


def _passes(seen: Floats, moves: Floats, start: Floats) -> tuple[Floats, Floats]:
    """The forward and backward pass over all windows, each scaled to a sum of 1."""
    ahead, behind = np.empty_like(seen), np.ones_like(seen)
    ahead[0] = start * seen[0]
    ahead[0] /= ahead[0].sum()
    for place in range(1, len(seen)):
        ahead[place] = (ahead[place - 1] @ moves) * seen[place]
        ahead[place] /= ahead[place].sum()
    for place in range(len(seen) - 2, -1, -1):
        behind[place] = moves @ (seen[place + 1] * behind[place + 1])
        behind[place] /= behind[place].sum()
    return ahead, behind
