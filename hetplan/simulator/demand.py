"""The queries that a run is fed: when they come and of which class, per application and seed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hetplan.errors import InputError
from hetplan.profiles.mix import count_into_bins
from hetplan.profiles.slo import Arrivals, Mix
from hetplan.simulator.arrivals import arrival_times, draw_kinds, scaled_trace, seeded
from hetplan.simulator.figures import queries_needed, run_length_s, warm_up_queries
from hetplan.simulator.simulation import Stream

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["AppDemand", "arrivals_named"]

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
        return Arrivals.model_validate(text)
    matched = _NAMED.match(text.strip().lower())
    name, rest = (matched.group(1), matched.group(2) or "") if matched else ("", "")
    try:
        if name == "gamma":
            return Arrivals(process="gamma", shape=float(rest))
        if name == "diurnal":
            peak, _, day = rest.partition(",")
            return Arrivals(process="diurnal", peak=float(peak), period_s=float(day or 86_400))
        if name == "mmpp":
            states = [tuple(float(value) for value in state.split(",")) for state in rest.split("/")]
            rates, stays = tuple(state[0] for state in states), tuple(state[1] for state in states)
            return Arrivals(process="mmpp", relative_rates=rates, stay_s=stays)
        if name in ("poisson", "deterministic", "empirical") and not rest:
            return Arrivals.model_validate({"process": name})
    except (ValueError, IndexError) as error:
        why = str(error).splitlines()[0]
        raise InputError.one(file="--arrivals", value=text, why=f"no such process ({why})", remedy=_REMEDY) from None
    raise InputError.one(file="--arrivals", value=text, why="no such process", remedy=_REMEDY)


_PEAK_S = 10.0
_REMEDY = "Write poisson, deterministic, empirical, gamma:2, diurnal:1.8,86400 or mmpp:0.5,10/1.5,10."


@dataclass(frozen=True)
class AppDemand:
    """What one application asks for: a rate and a process, or a recorded trace, or rates of successive periods."""

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

    @property
    def stationary(self) -> bool:
        """Whether the start of a run means nothing, so that a warm-up is left out."""
        return not (self.as_recorded or self.series_qps or self.arrivals.process in ("diurnal", "empirical"))

    def length_s(self) -> float:
        """How long a run must be for this application's percentile."""
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

    def stream(self, seed: int, duration_s: float) -> Stream:
        """The queries of one seed."""
        times = self._times(seeded(seed, 2 * self.number), duration_s)
        kinds = draw_kinds(self.mix, len(times), seeded(seed, 2 * self.number + 1))
        return Stream(self.app, times * 1000.0, kinds)

    def _times(self, random: np.random.Generator, duration_s: float) -> NDArray[np.float64]:
        if self.clients:
            count = queries_needed(self.percentile, rate_qps=0.0, slo_ms=self.slo_ms) + 1000
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
