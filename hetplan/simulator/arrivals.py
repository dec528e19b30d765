"""Arrival times: Poisson, gamma, MMPP, diurnal, deterministic and recorded; and the sizes of queries.

Times are seconds from 0, as numpy arrays. A generator is a function of its seed alone. Every process has the mean rate
that it was asked for; what differs is how it spreads around it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from hetplan.errors import InputError
from hetplan.profiles.mix import count_into_bins
from hetplan.profiles.slo import Arrivals, Mix

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["LEAST_SHAPE", "arrival_times", "draw_kinds", "scaled_trace", "seeded"]

LEAST_SHAPE = 0.01
"""The burstiest gamma process that is drawn: the squared variation of its gaps is 100."""


def seeded(seed: int, *names: int) -> np.random.Generator:
    """A generator that is a function of a seed and of numbers that name its purpose.

    >>> seeded(1, 2).integers(100) == seeded(1, 2).integers(100)
    np.True_
    """
    import numpy as np

    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed & 0xFFFFFFFFFFFFFFFF, *names])))


def arrival_times(
    arrivals: Arrivals,
    *,
    rate_qps: float,
    duration_s: float,
    random: np.random.Generator,
    trace_s: NDArray[np.float64] | None = None,
) -> NDArray[np.float64]:
    """Arrival times in [0, duration) of a process with this mean rate.

    An empirical process needs `trace_s`, which is scaled to the rate with its shape kept, and repeated as needed.

    >>> fixed = Arrivals(process="deterministic")
    >>> arrival_times(fixed, rate_qps=2.0, duration_s=2.0, random=seeded(0)).tolist()
    [0.0, 0.5, 1.0, 1.5]
    """
    import numpy as np

    if rate_qps <= 0 or duration_s <= 0:
        return np.zeros(0)
    if arrivals.process == "poisson":
        return _renewal(random, rate_qps, duration_s, 1.0)
    if arrivals.process == "gamma":
        return _renewal(random, rate_qps, duration_s, arrivals.shape or 1.0)
    if arrivals.process == "deterministic":
        return np.asarray(np.arange(0.0, duration_s * rate_qps - 1e-9) / rate_qps)
    if arrivals.process == "diurnal":
        return _diurnal(arrivals, rate_qps, duration_s, random)
    if arrivals.process == "mmpp":
        return _mmpp(arrivals, rate_qps, duration_s, random)
    if trace_s is None or len(trace_s) == 0:
        raise InputError.one(
            path="demand.arrivals.process", value="empirical", why="no trace was given", remedy="Give `demand.trace`."
        )
    return scaled_trace(trace_s, rate_qps=rate_qps, duration_s=duration_s, random=random)


def _renewal(random: np.random.Generator, rate_qps: float, duration_s: float, shape: float) -> NDArray[np.float64]:
    """Independent gamma gaps of mean 1/rate; shape 1 is Poisson, larger is smoother, smaller is burstier."""
    import numpy as np

    if shape < LEAST_SHAPE:
        raise InputError.one(
            path="demand.arrivals.shape",
            value=shape,
            why=f"a shape below {LEAST_SHAPE:g}: nearly all queries come in one instant",
            remedy=f"Write {LEAST_SHAPE:g} or more; 1 is Poisson.",
        )
    expected = rate_qps * duration_s
    block = int(expected + 6.0 * np.sqrt(expected / min(shape, 1.0) + 1.0)) + 16
    parts: list[NDArray[np.float64]] = []
    last = 0.0
    while last < duration_s:
        gaps = random.standard_exponential(block) if shape == 1.0 else random.standard_gamma(shape, block) / shape
        times = last + np.cumsum(gaps) / rate_qps
        parts.append(times)
        last = float(times[-1])
    times = np.concatenate(parts)
    return np.asarray(times[times < duration_s])


def _thinned(
    random: np.random.Generator,
    most_qps: float,
    duration_s: float,
    accept: Callable[[NDArray[np.float64]], NDArray[np.float64]],
) -> NDArray[np.float64]:
    """A Poisson process whose rate is `accept(times)` times the highest, by thinning."""
    import numpy as np

    times = _renewal(random, most_qps, duration_s, 1.0)
    return np.asarray(times[random.random(len(times)) < accept(times)])


def _diurnal(
    arrivals: Arrivals, rate_qps: float, duration_s: float, random: np.random.Generator
) -> NDArray[np.float64]:
    """A sine over the day from (2 - peak) to `peak` times the mean, lowest at the start; above 2 the valley is flat."""
    import numpy as np

    peak, day = arrivals.peak or 1.0, arrivals.period_s or duration_s
    phase = np.arange(4096) / 4096
    swing, bend = peak - 1.0, 1.0
    if peak > 2.0:
        # Sharper than a sine can be: a power of it, found so that peak / mean is as asked.
        low, high = 1.0, 4096.0
        for _ in range(60):
            bend = np.sqrt(low * high)
            mean = float(np.mean((0.5 - 0.5 * np.cos(2 * np.pi * phase)) ** bend))
            low, high = (bend, high) if 1.0 / mean < peak else (low, bend)

    def share(times: NDArray[np.float64]) -> NDArray[np.float64]:
        wave = 0.5 - 0.5 * np.cos(2 * np.pi * times / day)
        return np.asarray(wave**bend if peak > 2.0 else (1.0 - swing + 2.0 * swing * wave) / peak)

    return _thinned(random, rate_qps * peak, duration_s, share)


def _mmpp(arrivals: Arrivals, rate_qps: float, duration_s: float, random: np.random.Generator) -> NDArray[np.float64]:
    """Poisson arrivals whose rate jumps between states in turn, each held for an exponential time."""
    import numpy as np

    rates, stay = np.asarray(arrivals.relative_rates or (1.0,)), np.asarray(arrivals.stay_s or (duration_s,))
    changes, states = [0.0], [int(random.choice(len(stay), p=stay / stay.sum()))]
    while changes[-1] < duration_s:
        changes.append(changes[-1] + float(random.exponential(stay[states[-1]])))
        states.append((states[-1] + 1) % len(stay))
    edges, held = np.array(changes), rates[np.array(states)]

    def share(times: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(held[np.searchsorted(edges, times, side="right") - 1] / rates.max())

    return _thinned(random, rate_qps * float(rates.max()), duration_s, share)


def scaled_trace(
    trace_s: NDArray[np.float64], *, rate_qps: float, duration_s: float, random: np.random.Generator
) -> NDArray[np.float64]:
    """A recorded trace at another rate, its shape in time kept.

    Less is had by leaving out queries at random, more by laying copies over each other that are shifted by up to a
    mean gap (so that no two arrive at exactly the same time), the last of them thinned. A run longer than the trace
    repeats it. Times start at 0.

    >>> import numpy as np
    >>> twice = scaled_trace(np.arange(100.0), rate_qps=2.0, duration_s=100.0, random=seeded(0))
    >>> len(twice), bool((np.diff(twice) >= 0).all())
    (200, True)
    """
    import numpy as np

    recorded = np.sort(np.asarray(trace_s, dtype=np.float64))
    count = len(recorded)
    span = float(recorded[-1] - recorded[0])
    gap = span / max(count - 1, 1)
    cycle = span + gap if span > 0 else duration_s
    factor = rate_qps / (count / cycle)
    whole, rest = int(factor + 1e-12), factor - int(factor + 1e-12)
    parts: list[NDArray[np.float64]] = []
    for turn in range(int(np.ceil(duration_s / cycle))):
        base = recorded - recorded[0] + turn * cycle
        for copy in range(whole):
            parts.append(base if copy == 0 else base + random.random(count) * gap)
        if rest > 1e-12:
            kept = base[random.random(count) < rest]
            parts.append(kept if whole == 0 else kept + random.random(len(kept)) * gap)
    times = np.sort(np.concatenate(parts))
    return np.asarray(times[times < duration_s])


def draw_kinds(mix: Mix | None, count: int, random: np.random.Generator) -> NDArray[np.int32]:
    """The class (bin of the mix) of each of `count` queries, drawn by the shares."""
    import numpy as np

    if mix is None:
        return np.zeros(count, np.int32)
    edges = np.cumsum(count_into_bins(mix).share or (1.0,))
    return np.asarray(np.searchsorted(edges / edges[-1], random.random(count), side="right"), np.int32)
