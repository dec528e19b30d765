"""The queries that a run is fed: when they come and of which class, per application and seed."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import ValidationError

from hetplan.errors import InputError
from hetplan.profiles.mix import count_into_bins
from hetplan.profiles.slo import Arrivals, Mix
from hetplan.simulator.arrivals import arrival_times, draw_kinds, scaled_trace, seeded
from hetplan.simulator.figures import HIGHEST_PERCENTILE, queries_needed, run_length_s, warm_up_queries
from hetplan.simulator.simulation import Stream

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["AppDemand", "arrivals_named", "checked_trace"]

_NAMED = re.compile(r"([a-z]+)(?::(.+))?\Z")


def arrivals_named(text: str | Mapping[str, Any] | Arrivals) -> Arrivals:
    """An arrival process from its name on a command line: poisson, deterministic, gamma:SHAPE, diurnal:PEAK,DAY_S,
    mmpp:RATE,STAY_S/RATE,STAY_S/...

    >>> arrivals_named("gamma:2").shape
    2.0
    >>> arrivals_named("mmpp:0.5,10/1.5,10").relative_rates
    (0.5, 1.5)
    """
    if isinstance(text, Arrivals):
        return text
    if isinstance(text, Mapping):
        return _validated(text)
    matched = _NAMED.match(text.strip().lower())
    name, rest = (matched.group(1), matched.group(2) or "") if matched else ("", "")
    try:
        if name == "gamma":
            return _validated({"process": "gamma", "shape": float(rest)}, text)
        if name == "diurnal":
            peak, _, day = rest.partition(",")
            day_s = float(day or 86_400)
            return _validated({"process": "diurnal", "peak": float(peak), "period_s": day_s}, text)
        if name == "mmpp":
            states = [tuple(float(value) for value in state.split(",")) for state in rest.split("/")]
            if any(len(state) != 2 for state in states):
                raise ValueError("a state is its relative rate and its stay in seconds")
            rates, stays = tuple(state[0] for state in states), tuple(state[1] for state in states)
            return _validated({"process": "mmpp", "relative_rates": rates, "stay_s": stays}, text)
        if name in ("poisson", "deterministic", "empirical") and not rest:
            return _validated({"process": name}, text)
    except ValueError as error:
        why = str(error).splitlines()[0]
        raise InputError.one(file="--arrivals", value=text, why=f"no such process ({why})", remedy=_REMEDY) from None
    raise InputError.one(file="--arrivals", value=text, why="no such process", remedy=_REMEDY)


def _validated(described: Mapping[str, Any], told: str | None = None) -> Arrivals:
    """The process so described; what pydantic finds is told as bad input, with the reason that it gives."""
    try:
        return Arrivals.model_validate(described)
    except ValidationError as error:
        first = error.errors()[0]
        at = ".".join(str(part) for part in first["loc"])
        why = f"{at}: {first['msg']}" if at else first["msg"]
        own = first.get("ctx", {}).get("remedy")
        remedy = f"{own} {_REMEDY}" if own else _REMEDY
        raise InputError.one(file="--arrivals", value=told or dict(described), why=why, remedy=remedy) from None


_PEAK_S = 10.0
_REMEDY = "Write poisson, deterministic, empirical, gamma:2, diurnal:1.8,86400 or mmpp:0.5,10/1.5,10."


@dataclass(frozen=True)
class AppDemand:
    """What one application asks for: a rate and a process, or a recorded trace, or rates of successive periods.

    `percentile` is the strictest that anything is said of, `states_accuracy` tells whether an accuracy is, too;
    `from_start` that the start of a run is part of the question. With `queries_seed` every run gets the queries of that
    seed, whatever its own.
    """

    app: str
    number: int
    rate_qps: float
    arrivals: Arrivals
    slo_ms: float
    percentile: float
    mix: Mix | None = None
    trace_s: NDArray[np.float64] | None = None
    as_recorded: bool = False
    series_qps: Sequence[float] = ()
    period_s: float = 3600.0
    clients: int = 0
    states_accuracy: bool = False
    from_start: bool = False
    queries_seed: int | None = None

    @property
    def stationary(self) -> bool:
        """Whether the start of a run means nothing, so that a warm-up is left out."""
        moving = self.as_recorded or self.series_qps or self.arrivals.process in ("diurnal", "empirical")
        return not (moving or self.from_start)

    def length_s(self) -> float:
        """How long a run must be for this application's percentile."""
        if self.clients:
            # Whoever waits for an answer before asking again takes about so long, where answers are in time.
            each_s = self.slo_ms / 1000.0 if math.isfinite(self.slo_ms) else 0.0
            return len(self._times(np.random.default_rng(0), 0.0)) * each_s / self.clients
        if self.series_qps:
            return len(self.series_qps) * self.period_s
        if self.as_recorded and self.trace_s is not None and len(self.trace_s):
            return float(self.trace_s[-1]) * (1.0 + 1e-9) + 1e-9
        return run_length_s(self.percentile, rate_qps=self.rate_qps, slo_ms=self.slo_ms, arrivals=self.arrivals)

    def shares(self) -> NDArray[np.float64]:
        """How many of the queries are of each class."""
        if self.mix is None:
            return np.ones(1)
        return np.asarray(count_into_bins(self.mix).share, dtype=np.float64)

    def peak_qps(self) -> float:
        """The highest rate that lasts: of a day, a period, a state; of a trace, over its busiest ten seconds."""
        if self.series_qps:
            return max(self.series_qps)
        if self.trace_s is not None and (self.as_recorded or self.arrivals.process == "empirical"):
            span = max(float(self.trace_s[-1]), 1e-9)
            busiest = float(np.bincount((self.trace_s / _PEAK_S).astype(np.int64)).max()) / min(_PEAK_S, span)
            return busiest if self.as_recorded else busiest * self.rate_qps / (len(self.trace_s) / span)
        if self.arrivals.process == "mmpp":
            return self.rate_qps * max(self.arrivals.relative_rates or (1.0,))
        return self.rate_qps * (self.arrivals.peak or 1.0)

    def warm_up(self, count: int) -> int:
        """How many of the first queries are left out."""
        if not self.stationary:
            return 0
        return warm_up_queries(count, rate_qps=self.rate_qps, slo_ms=self.slo_ms, arrivals=self.arrivals)

    def is_too_short(self, duration_s: float) -> bool:
        """Whether a run of that length has too few queries beyond the percentile."""
        needed = queries_needed(self.percentile, rate_qps=self.rate_qps, slo_ms=self.slo_ms)
        return self.rate_qps > 0 and self.rate_qps * duration_s < 0.95 * needed

    def drawn(self, duration_s: float) -> float:
        """About how many times are drawn for a run of that length, before any is left out."""
        if self.clients:
            return float(self.clients)
        if self.as_recorded and self.trace_s is not None:
            return float(len(self.trace_s))
        if self.series_qps:
            return max(1.0, self.arrivals.peak or 1.0) * sum(self.series_qps) * self.period_s
        most = max((self.arrivals.peak or 1.0, *(self.arrivals.relative_rates or ())))
        if self.trace_s is not None and self.arrivals.process == "empirical" and len(self.trace_s) > 1:
            recorded_qps = len(self.trace_s) / max(float(self.trace_s[-1] - self.trace_s[0]), 1e-9)
            return max(self.rate_qps, recorded_qps) * duration_s
        stay_s = self.arrivals.stay_s
        changes = duration_s * len(stay_s) / sum(stay_s) if stay_s else 0.0
        # A change of state is made in a plain loop.
        return self.rate_qps * most * duration_s + 10.0 * changes

    def enough_s(self) -> float:
        """The length from which a run is not too short for its percentile."""
        needed = queries_needed(self.percentile, rate_qps=self.rate_qps, slo_ms=self.slo_ms)
        return max(self.length_s(), needed / self.rate_qps if self.rate_qps > 0 else 0.0)

    def stream(self, seed: int, duration_s: float) -> Stream:
        """The queries of a run with this seed."""
        seed = seed if self.queries_seed is None else self.queries_seed
        times = self._times(seeded(seed, 2 * self.number), duration_s)
        kinds = draw_kinds(self.mix, len(times), seeded(seed, 2 * self.number + 1))
        return Stream(self.app, times * 1000.0, kinds)

    def _times(self, random: np.random.Generator, duration_s: float) -> NDArray[np.float64]:
        if self.clients:
            count = queries_needed(min(self.percentile, HIGHEST_PERCENTILE), rate_qps=0.0, slo_ms=self.slo_ms) + 1000
            return np.zeros(count)
        if self.series_qps:
            parts = [
                turn * self.period_s
                + arrival_times(self.arrivals, rate_qps=rate, duration_s=self.period_s, random=random)
                for turn, rate in enumerate(self.series_qps)
            ]
            times = np.concatenate(parts)
            return np.asarray(times[times < duration_s])
        if self.as_recorded and self.trace_s is not None:
            return np.asarray(self.trace_s[self.trace_s < duration_s], dtype=np.float64)
        if self.trace_s is not None and self.arrivals.process == "empirical":
            return scaled_trace(self.trace_s, rate_qps=self.rate_qps, duration_s=duration_s, random=random)
        return arrival_times(self.arrivals, rate_qps=self.rate_qps, duration_s=duration_s, random=random)


def checked_trace(trace: object, *, app: str) -> NDArray[np.float64]:
    """Recorded arrivals that can be replayed: two or more finite times from 0 on, in order, that span some time."""

    def fault(why: str, remedy: str, value: object = None) -> InputError:
        return InputError.one(file="trace", path=f"apps.{app}", value=value, why=why, remedy=remedy)

    try:
        times = np.asarray(trace, dtype=np.float64)
    except (TypeError, ValueError):
        raise fault("arrival times in seconds", "Give an array of numbers.") from None
    if times.ndim != 1 or len(times) < 2:
        raise fault("the trace is too short: two arrivals at least", "Give a longer trace.", int(times.size))
    if not np.isfinite(times).all():
        at = int(np.flatnonzero(~np.isfinite(times))[0])
        raise fault(f"arrival {at} is no finite time", "Leave it out.", float(times[at]))
    if (np.diff(times) < 0).any():
        at = int(np.flatnonzero(np.diff(times) < 0)[0]) + 1
        raise fault(f"arrival {at} is before the one before it", "Sort the trace by time.", float(times[at]))
    if times[0] < 0:
        raise fault("times are seconds from 0", "Subtract the first time.", float(times[0]))
    if times[-1] <= times[0]:
        raise fault("the trace is too short: all come at one time", "Give a longer trace.", float(times[0]))
    return times
