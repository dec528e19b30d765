"""Figures of a run, and what several runs say together: means with intervals, percentiles, warm-up, run length.

**Run length.** A percentile is only as good as the queries beyond it. A run has at least 200 queries beyond the
highest percentile asked for (20,000 for p99; a share of 0.001 that may be late is p99.9). It spans at least 200 times
the latency limit, so that it cannot be over before its queues have grown, and is as long as utilisation and accuracy
need (`runs`). Where the rate itself varies, it holds ten stays in every state or one whole day. No run is lengthened
for percentiles above p99.99: where too few queries lie beyond them, the report warns.

**Warm-up.** A run starts empty, so its first queries are luckier than later ones. Left out are the first 1,000, or
the first 20 latency limits' worth where that is more, never more than a fifth. Where the load follows a day or a
trace nothing is left out: then the start is part of the question.

**Intervals.** Each seed gives one value; the interval is Student's, at 95%, over the seeds: of shares on the scale of
their log odds, of percentiles through the shares of queries beyond (`Together`). With a single seed the value
is that of the whole run, and the interval around it as wide as five stretches of the run, taken for seeds, make it;
the report warns that several seeds tell more. Figures that cannot be below 0, or above 1, have intervals that are
not.

**Percentiles.** The percentile is that of all runs together, each counted alike. Its interval holds every response
time beyond which, as far as the runs say, the stated share of queries may lie: Student's at 95%, over the shares that
the runs show beyond it, on the scale of their log odds. A few long queues make most of a high percentile. Runs that
happen to hold few of them show a low percentile and little spread, so that an interval around the mean of the runs'
percentiles lies below the truth too often: of an M/M/1 queue at a load of 0.97 it held the 99th percentile in 92 or
93 of 100 cases, this one in 95 to 97.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from hetplan.planner.confidence import share_interval, share_intervals, student
from hetplan.planner.promise_figures import Estimate
from hetplan.profiles.fields import NANO
from hetplan.profiles.slo import Arrivals
from hetplan.serving.distribution import nearest_rank

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from hetplan.simulator.run_records import RunResult

__all__ = [
    "BATCHES",
    "HIGHEST_PERCENTILE",
    "TAIL_QUERIES",
    "AppFigures",
    "Responses",
    "Times",
    "Together",
    "at_least_none",
    "cost_of",
    "estimate",
    "estimate_of",
    "estimate_of_one",
    "estimate_of_share",
    "estimates_of_percentiles",
    "figures_of",
    "mean_of",
    "mean_share",
    "rates_of",
    "responses_of",
    "run_length_s",
    "stretch_of",
    "warm_up_queries",
]

_ALL_OF, _STEP = 200, 1.005
_ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class Responses:
    """Response times of a run, thinned: some that occurred, ascending, and the share of queries beyond each.

    A query without an answer is beyond all of them.
    """

    at_ms: NDArray[np.float64]
    beyond: NDArray[np.float64]

    def share_beyond(self, response_ms: NDArray[np.float64] | float) -> NDArray[np.float64]:
        """The share of queries with a longer response; between two that are kept, that beyond the shorter.

        >>> float(responses_of([10.0, 20.0, 20.0, 40.0]).share_beyond(20.0))
        0.25
        """
        import numpy as np

        shares: NDArray[np.float64] = np.append(1.0, self.beyond)
        return shares[np.searchsorted(self.at_ms, response_ms, side="right")]


def responses_of(ordered_ms: Sequence[float] | NDArray[np.float64]) -> Responses:
    """The responses of a run from all of them in order: all of the outermost, further in one in so many."""
    import numpy as np

    ordered = np.asarray(ordered_ms, dtype=np.float64)
    count = len(ordered)
    steps = max(math.ceil(math.log(max(count, _ALL_OF) / _ALL_OF) / math.log(_STEP)), 0)
    ranks = np.concatenate([np.arange(_ALL_OF), (_ALL_OF * _STEP ** np.arange(steps)).astype(np.int64)])
    ranks = ranks[ranks < count]
    kept = np.unique(ordered[np.concatenate([ranks, count - 1 - ranks])])
    kept = kept[np.isfinite(kept)]
    return Responses(kept, 1.0 - np.searchsorted(ordered, kept, side="right") / max(count, 1))


@dataclass(frozen=True)
class Together:
    """The response times of several runs, each counted alike; `width` is half an interval of a mean, in spreads."""

    runs: Sequence[Responses]
    width: float | None = None
    """Student's, of 95%, where it is left out."""

    @cached_property
    def at_ms(self) -> NDArray[np.float64]:
        """Every response time that a run keeps."""
        import numpy as np

        return np.unique(np.concatenate([run.at_ms for run in self.runs])) if self.runs else np.zeros(0)

    @cached_property
    def beyond(self) -> NDArray[np.float64]:
        """The share of queries beyond each of them: one row per run."""
        import numpy as np

        return np.array([run.share_beyond(self.at_ms) for run in self.runs])

    @cached_property
    def _intervals(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        return share_intervals(self.beyond, student(len(self.runs)) if self.width is None else self.width)

    def percentile(self, percentile: float) -> tuple[float, float, float]:
        """The percentile of all runs together and its interval; infinite where too many queries have no answer.

        >>> runs = [responses_of([10.0, 20.0, 30.0, 40.0]), responses_of([10.0, 20.0, 30.0, 50.0])]
        >>> Together(runs).percentile(75.0)
        (30.0, 30.0, 50.0)
        """
        if not self.runs:
            return math.nan, math.nan, math.nan
        tail, at_ms = 1.0 - percentile / 100.0 + _ROUNDING, self.at_ms

        def least(bound: NDArray[np.float64], start: int, stop: int) -> int:
            """The first place from which no more than the tail is beyond, by this bound on the share."""
            return start + bisect_left(bound[start:stop] <= tail, True)

        def response_ms(place: int) -> float:
            return float(at_ms[place]) if place < len(at_ms) else math.inf

        middle = least(self.beyond.mean(axis=0), 0, len(at_ms))
        if len(self.runs) < 2:
            return response_ms(middle), math.nan, math.nan
        low, high = self._intervals
        return response_ms(middle), response_ms(least(low, 0, middle)), response_ms(least(high, middle, len(at_ms)))

    def distribution(self) -> tuple[tuple[float, float], ...]:
        """Percentages of the queries, and within which time they are answered.

        >>> Together([responses_of([10.0, 20.0, 30.0, 40.0])]).distribution()[9:11]
        ((50.0, 20.0), (55.0, 30.0))
        """
        import numpy as np

        if not self.runs:
            return ()
        beyond, at_ms, found = self.beyond.mean(axis=0), self.at_ms, []
        for percentage in _SHOWN:
            first = int(np.searchsorted(-beyond, -(1.0 - percentage / 100.0 + _ROUNDING), side="left"))
            found.append((percentage, float(at_ms[first]) if first < len(at_ms) else math.inf))
        return tuple(found)


_SHOWN = (1.0, *(5.0 * step for step in range(2, 20)), 97.0, 98.0, 99.0, 99.5, 99.9)
TAIL_QUERIES = 200
HIGHEST_PERCENTILE = 99.99
SPANS = 200.0
BATCHES = 5
SHARES = ("in_time", "late", "dropped", "violations")
"""Figures that are shares of the queries."""
_WARM_QUERIES, _WARM_SPANS, _WARM_SHARE = 1000, 20.0, 0.2


def estimate(values: Sequence[float]) -> Estimate:
    """The mean of independent values with its 95% interval.

    >>> found = estimate([1.0, 2.0, 3.0])
    >>> found.value, round(found.low, 3), round(found.high, 3)
    (2.0, -0.484, 4.484)
    """
    import numpy as np

    found = np.asarray(values, dtype=np.float64)
    found = found[~np.isnan(found)]
    if not len(found):
        return Estimate(math.nan, math.nan, math.nan)
    if not np.isfinite(found).all():
        return Estimate(math.inf, float(found.min()), math.inf)
    mean, first = float(found.mean()), float(found[0])
    if np.ptp(found) <= 1e-12 * abs(first):
        return Estimate(first, first, first)
    from scipy.special import stdtrit

    half = float(stdtrit(len(found) - 1, 0.975)) * float(found.std(ddof=1)) / math.sqrt(len(found))
    return Estimate(mean, mean - half, mean + half)


def estimate_of_one(whole: float, stretches: Sequence[float]) -> Estimate:
    """A figure of one run, with an interval around it from the spread of stretches of the run.

    >>> found = estimate_of_one(2.5, [1.0, 2.0, 3.0])
    >>> found.value, round(found.low, 3), round(found.high, 3)
    (2.5, 0.016, 4.984)
    >>> estimate_of_one(2.5, [])
    Estimate(value=2.5, low=nan, high=nan)
    """
    spread = estimate(stretches)
    if not math.isfinite(whole) or math.isnan(spread.value):
        return Estimate(whole, math.nan, math.nan) if math.isnan(spread.value) else Estimate(whole, spread.low, whole)
    if not math.isfinite(spread.value):
        return Estimate(whole, min(whole, spread.low), math.inf)
    half = spread.high - spread.value
    return Estimate(whole, whole - half, whole + half)


def estimate_of_share(values: Sequence[float], stretches: Sequence[float] = ()) -> Estimate:
    """The mean of a share over runs; of a single run its own, with the interval that its stretches make.

    >>> estimate_of_share([0.0, 0.0])
    Estimate(value=0.0, low=0.0, high=0.0)
    """
    import numpy as np

    found = [value for value in values if not math.isnan(value)]
    if not found:
        return Estimate(math.nan, math.nan, math.nan)
    mean = float(np.mean(found))
    seen = found if len(values) > 1 else [value for value in stretches if not math.isnan(value)]
    return _around(mean, *(share_interval(seen, student(len(seen))) if seen else (math.nan, math.nan)))


def estimate_of(name: str, runs: Sequence[AppFigures], stretches: Sequence[AppFigures] = ()) -> Estimate:
    """A figure over runs; of a single run its own, with the interval that stretches of the run make."""
    values, parts = ([one.values[name] for one in several] for several in (runs, stretches))
    if name in runs[0].shares:
        return estimate_of_share(values, parts)
    return at_least_none(estimate(values) if len(values) > 1 else estimate_of_one(values[0], parts))


def at_least_none(found: Estimate) -> Estimate:
    """An interval that does not go below 0, where the figure cannot."""
    return replace(found, low=max(found.low, 0.0)) if found.value >= 0.0 else found


def mean_share(values: Sequence[float]) -> Estimate:
    """The mean of shares over runs, its interval within 0 to 1; one run has none."""
    found = at_least_none(estimate(values) if len(values) > 1 else estimate_of_one(values[0], []))
    return replace(found, high=min(found.high, 1.0))


def estimates_of_percentiles(
    of: str, runs: Sequence[AppFigures], stretches: Sequence[AppFigures] = ()
) -> dict[float, Estimate]:
    """Percentiles over runs, of a single run its own, with the intervals that the spread makes."""
    spread = Together([one.times[of].responses for one in (runs if len(runs) > 1 else stretches) if one.queries])
    found = {}
    for percentile, own in runs[0].times[of].percentiles_ms.items():
        value, low, high = spread.percentile(percentile)
        found[percentile] = _around(value if len(runs) > 1 else own, low, high)
    return found


def _around(value: float, low: float, high: float) -> Estimate:
    """An interval that holds its value, which stretches of a run need not give."""
    return Estimate(value, value if low > value else low, value if high < value else high)


def cost_of(nanos_ms: float, horizon_ms: float) -> float:
    """Currency units per hour from prices (1e-9 per hour) times milliseconds paid, over a run."""
    return float(f"{nanos_ms / NANO / horizon_ms:.12g}") if horizon_ms > 0 else 0.0


def queries_needed(percentile: float, *, rate_qps: float, slo_ms: float) -> int:
    """How many queries a run must have to say something about a percentile.

    >>> queries_needed(99.0, rate_qps=100.0, slo_ms=350.0), queries_needed(99.0, rate_qps=1200.0, slo_ms=350.0)
    (20000, 84000)
    """
    tail = TAIL_QUERIES / max(1.0 - percentile / 100.0, 1e-9)
    spans = SPANS * rate_qps * slo_ms / 1000.0 if math.isfinite(slo_ms) else 0.0
    return math.ceil(round(max(tail, spans), 6))


def warm_up_queries(count: int, *, rate_qps: float, slo_ms: float, arrivals: Arrivals) -> int:
    """How many of the first queries are left out."""
    if arrivals.process in ("diurnal", "empirical"):
        return 0
    spans = _WARM_SPANS * rate_qps * slo_ms / 1000.0 if math.isfinite(slo_ms) else 0.0
    return int(min(max(_WARM_QUERIES, spans), _WARM_SHARE * count))


def run_length_s(percentile: float, *, rate_qps: float, slo_ms: float, arrivals: Arrivals) -> float:
    """How long a run must be, warm-up included.

    >>> run_length_s(99.0, rate_qps=100.0, slo_ms=350.0, arrivals=Arrivals())
    210.0
    """
    if rate_qps <= 0:
        return 0.0
    wanted = queries_needed(min(percentile, HIGHEST_PERCENTILE), rate_qps=rate_qps, slo_ms=slo_ms)
    spans = _WARM_SPANS * rate_qps * slo_ms / 1000.0 if math.isfinite(slo_ms) else 0.0
    warm = 0.0 if arrivals.process in ("diurnal", "empirical") else max(_WARM_QUERIES, spans)
    length = max(wanted + warm, wanted / (1.0 - _WARM_SHARE) if warm > _WARM_SHARE * wanted else 0.0) / rate_qps
    return float(max(length, arrivals.cycle_s))


@dataclass(frozen=True)
class Times:
    """One time of the queries of a run: its percentiles, and how many queries take longer than how long."""

    percentiles_ms: Mapping[float, float]
    responses: Responses

    @classmethod
    def of(cls, response_ms: NDArray[np.float64], percentiles: Sequence[float]) -> Times:
        """From the time of each query; a query without an answer is never answered."""
        import numpy as np

        ordered = np.sort(response_ms)
        at = {percentile: nearest_rank(ordered, percentile / 100.0) for percentile in percentiles}
        return cls(at, responses_of(ordered))


@dataclass(frozen=True)
class AppFigures:
    """What one run says of one application, its warm-up left out: figures by name, and times by what they are about.

    `response` is from a query to its answer; of text there are `ttft` (to the first token) and `tpot` (per token after
    it), too. `shares` names the figures that are shares of the queries.
    """

    queries: int
    values: Mapping[str, float]
    times: Mapping[str, Times]
    shares: tuple[str, ...] = SHARES


def figures_of(
    result: RunResult, app: str, *, percentiles: Sequence[float], warm_up: int = 0, part: tuple[int, int] = (0, 1)
) -> AppFigures:
    """The figures of an application; `part` (i, n) is the i-th of n stretches of equal numbers of queries.

    `in_time` is a share of all queries, `accuracy` the mean quality of the answers in time, `goodput` their product,
    `goodput_qps` answers in time per second.
    """
    import numpy as np

    every = result.columns
    whole = every.of_app(result.apps.index(app))
    came = whole.start + int(np.count_nonzero(~np.isnan(every.arrival[whole])))
    mine = stretch_of(slice(min(whole.start + warm_up, came), came), part)
    status, arrival, finish, quality = every.status[mine], every.arrival[mine], every.finish[mine], every.quality[mine]
    served = status == 1
    response = np.where(served, finish - arrival + result.once_ms.get(app, 0.0), np.inf)
    in_time = every.in_time[mine]
    accuracy, timely = mean_of(quality[in_time]), mean_of(in_time)
    return AppFigures(
        len(arrival),
        {
            "mean_ms": mean_of(response[served]),
            "in_time": timely,
            "late": mean_of(served & ~in_time),
            "dropped": mean_of((status == 2) | (status == 3)),
            "accuracy": accuracy,
            "served_accuracy": mean_of(quality[served]),
            **rates_of(arrival, in_time, result.horizon_ms, last=part[0] + 1 == part[1]),
            "violations": 1.0 - timely,
            "goodput": timely * (0.0 if math.isnan(accuracy) else accuracy),
        },
        {"response": Times.of(response, percentiles)},
    )


def stretch_of(whole: slice, part: tuple[int, int]) -> slice:
    """The i-th of n equal parts of a slice.

    >>> stretch_of(slice(10, 20), (1, 5))
    slice(12, 14, None)
    """
    (number, parts), count = part, whole.stop - whole.start
    return slice(whole.start + count * number // parts, whole.start + count * (number + 1) // parts)


def mean_of(values: NDArray[Any]) -> float:
    """The mean; of nothing it is NaN. Of what is true or not it is counted."""
    import numpy as np

    if not len(values):
        return math.nan
    return float(np.count_nonzero(values) / len(values)) if values.dtype == np.bool_ else float(values.mean())


def rates_of(
    arrival_ms: NDArray[np.float64], in_time: NDArray[np.bool_], horizon_ms: float, *, last: bool
) -> dict[str, float]:
    """How many queries come in a second of the time that they span, and how many of them are answered in time.

    Where they are not the last, their span ends with the last of them: it holds one gap less than there are queries.
    """
    import numpy as np

    count = len(arrival_ms)
    if count == 0:
        return {"rate_qps": 0.0, "goodput_qps": 0.0}
    if count == 1 and not last:
        return {"rate_qps": math.nan, "goodput_qps": math.nan}
    rate_qps = (count if last else count - 1) / _span_s(arrival_ms, horizon_ms, last)
    return {"rate_qps": rate_qps, "goodput_qps": rate_qps * float(np.mean(in_time))}


def _span_s(arrival_ms: NDArray[np.float64], horizon_ms: float, last: bool) -> float:
    """The time that these queries span: to the horizon where they are the last, else to their last arrival."""
    end = max(horizon_ms, float(arrival_ms[-1])) if last else float(arrival_ms[-1])
    span = end - float(arrival_ms[0])
    return span / 1000.0 if span > 0 else 1e-9
