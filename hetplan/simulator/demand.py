"""The queries that a run is fed: when they come and of which class, per application and seed.

Arrivals are Poisson, gamma, MMPP, diurnal, deterministic or recorded. Times are seconds from 0, as numpy arrays. A
generator is a function of its seed alone. Every process has the mean rate that it was asked for; what differs is how
it spreads around it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import ValidationError

from hetplan.errors import InputError
from hetplan.profiles.mix import count_into_bins
from hetplan.profiles.operating_points import Limit, limits_of
from hetplan.profiles.plan import Plan
from hetplan.profiles.slo import App, Arrivals, Mix
from hetplan.serving.tokens import TokenDemand, TokenFleet, demand_of, settling_s
from hetplan.simulator.figures import HIGHEST_PERCENTILE, queries_needed, run_length_s, warm_up_queries
from hetplan.simulator.simulation import Stream

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "LEAST_REQUESTS",
    "LEAST_SHAPE",
    "AppDemand",
    "TextDemand",
    "arrival_times",
    "arrivals_named",
    "checked_trace",
    "draw_kinds",
    "offered_qps",
    "scaled_trace",
    "seeded",
    "steadily",
]

LEAST_SHAPE = 0.01
"""The burstiest gamma process that is drawn: the squared variation of its gaps is 100."""


def seeded(seed: int, *names: int) -> np.random.Generator:
    """A generator that is a function of a seed and of numbers that name its purpose.

    >>> seeded(1, 2).integers(100) == seeded(1, 2).integers(100)
    np.True_
    """
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed & 0xFFFFFFFFFFFFFFFF, *names])))


def steadily(arrivals: Arrivals) -> Arrivals:
    """A process for minutes: one whose rate changes over a day, or as recorded, is Poisson within them."""
    return Arrivals() if arrivals.process in ("empirical", "diurnal") else arrivals


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
            path="arrivals.process", value="empirical", why="no trace was given", remedy="Give `rate_qps.trace`."
        )
    return scaled_trace(trace_s, rate_qps=rate_qps, duration_s=duration_s, random=random)


def _renewal(random: np.random.Generator, rate_qps: float, duration_s: float, shape: float) -> NDArray[np.float64]:
    """Independent gamma gaps of mean 1/rate; shape 1 is Poisson, larger is smoother, smaller is burstier."""
    if shape < LEAST_SHAPE:
        raise InputError.one(
            path="arrivals.shape",
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
    times = _renewal(random, most_qps, duration_s, 1.0)
    return np.asarray(times[random.random(len(times)) < accept(times)])


def _diurnal(
    arrivals: Arrivals, rate_qps: float, duration_s: float, random: np.random.Generator
) -> NDArray[np.float64]:
    """A sine over the day from (2 - peak) to `peak` times the mean, lowest at the start; above 2 the valley is flat."""
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
    if mix is None:
        return np.zeros(count, np.int32)
    edges = np.cumsum(count_into_bins(mix).share or (1.0,))
    return np.asarray(np.searchsorted(edges / edges[-1], random.random(count), side="right"), np.int32)


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


def _validated(described: Mapping[str, Any], written: str | None = None) -> Arrivals:
    """The process so described; what pydantic finds is bad input, with the reason that it gives."""
    try:
        return Arrivals.model_validate(described)
    except ValidationError as error:
        first = error.errors()[0]
        at = ".".join(str(part) for part in first["loc"])
        why = f"{at}: {first['msg']}" if at else first["msg"]
        own = first.get("ctx", {}).get("remedy")
        remedy = f"{own} {_REMEDY}" if own else _REMEDY
        raise InputError.one(file="--arrivals", value=written or dict(described), why=why, remedy=remedy) from None


@dataclass(frozen=True, eq=False)
class TextDemand:
    """How long requests for text are, what they are to keep, what the network adds; how long machines take to fill.

    Of a steady load, what comes while they fill does not count (`tokens.Played.judged`).
    """

    lengths: TokenDemand
    limits: tuple[Limit, ...]
    hop_ms: float
    settles_s: float = 0.0

    @classmethod
    def of(cls, wanted: App, fleet: TokenFleet, rate_qps: float) -> TextDemand:
        """What an application asks of the engines that there are for it."""
        lengths, limits, laws = (
            demand_of(wanted.mix, wanted.arrivals, rate_qps),
            limits_of(wanted),
            [one.law for one in fleet.groups],
        )
        hop_ms = wanted.network_ms_once + wanted.network_ms_per_hop
        return cls(lengths, limits, hop_ms, settling_s(lengths, limits, laws))

    def filling(self, rate_qps: float) -> int:
        """How many come in twice the time to fill the machines: half of them count."""
        return math.ceil(2.0 * self.settles_s * rate_qps)

    def holding(self, judged: int, rate_qps: float) -> int:
        """How many come in a steady run of which so many count (`tokens.Played.judged` says which do not)."""
        filling = self.settles_s * rate_qps
        return math.ceil(max(judged / 0.85, (judged + filling) / 0.95, judged + 1.25 * filling, 2.0 * filling))

    def requests(self, rate_qps: float) -> int:
        """How many a run of a steady load has: they fill the machines, or make a cycle of the arrivals."""
        return max(LEAST_REQUESTS, self.filling(rate_qps), math.ceil(self.lengths.arrivals.cycle_s * rate_qps))


LEAST_REQUESTS = 6000
"""Requests for text in a run where no duration is asked for."""
_PEAK_S = 10.0
_REMEDY = "Write poisson, deterministic, empirical, gamma:2, diurnal:1.8,86400 or mmpp:0.5,10/1.5,10."


@dataclass(frozen=True)
class AppDemand:
    """What one application asks for: a rate and a process, or a recorded trace, or rates of successive periods.

    `percentile` is the strictest that anything is said of, `states_accuracy` tells whether an accuracy is, too;
    `from_start` that the start of a run is part of the question. With `queries_seed` every run gets the queries of that
    seed, whatever its own. With `samples`, a query is like one of so many that were measured, drawn at random. An
    application whose answers are made token by token has a `text`.
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
    samples: int = 0
    states_accuracy: bool = False
    from_start: bool = False
    queries_seed: int | None = None
    text: TextDemand | None = None

    @property
    def stationary(self) -> bool:
        """Whether the start of a run means nothing, so that a warm-up is left out."""
        moving = self.as_recorded or self.series_qps or self.arrivals.process in ("diurnal", "empirical")
        return not (moving or self.from_start)

    @property
    def spanned_ms(self) -> float:
        """The latency limit that a run spans many times; one of text spans the time that machines take to fill."""
        return self.slo_ms if self.text is None else math.inf

    def length_s(self) -> float:
        """How long a run must be for this application's percentile."""
        if self.clients:
            # A client that waits for its answer before it asks again takes about so long, if answers are in time.
            each_s = self.slo_ms / 1000.0 if math.isfinite(self.slo_ms) else 0.0
            return len(self._times(np.random.default_rng(0), 0.0)) * each_s / self.clients
        if self.series_qps:
            return len(self.series_qps) * self.period_s
        if self.as_recorded and self.trace_s is not None and len(self.trace_s):
            return float(self.trace_s[-1]) * (1.0 + 1e-9) + 1e-9
        length_s = run_length_s(self.percentile, rate_qps=self.rate_qps, slo_ms=self.spanned_ms, arrivals=self.arrivals)
        if self.text is None or self.rate_qps <= 0:
            return length_s
        return max(length_s, max(self.text.requests(self.rate_qps), self.needed()) / self.rate_qps)

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

    def needed(self) -> int:
        """How many queries say something of the percentile; of text, with those that do not count."""
        needed = queries_needed(self.percentile, rate_qps=self.rate_qps, slo_ms=self.spanned_ms)
        return needed if self.text is None or not self.stationary else self.text.holding(needed, self.rate_qps)

    def is_too_short(self, duration_s: float) -> bool:
        """Whether a run of that length has too few queries beyond the percentile."""
        return self.rate_qps > 0 and self.rate_qps * duration_s < 0.95 * self.needed()

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
        return max(self.length_s(), self.needed() / self.rate_qps if self.rate_qps > 0 else 0.0)

    def stream(self, seed: int, duration_s: float) -> Stream:
        """The queries of a run with this seed."""
        times, seed = self.times(seed, duration_s), seed if self.queries_seed is None else self.queries_seed
        random = seeded(seed, 2 * self.number + 1)
        if self.samples:
            return Stream(self.app, times * 1000.0, random.integers(self.samples, size=len(times), dtype=np.int32))
        kinds = draw_kinds(self.mix, len(times), random)
        return Stream(self.app, times * 1000.0, kinds)

    def times(self, seed: int, duration_s: float) -> NDArray[np.float64]:
        """When the queries of a run with this seed come, in seconds."""
        seed = seed if self.queries_seed is None else self.queries_seed
        return self._times(seeded(seed, 2 * self.number), duration_s)

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


def offered_qps(plan: Plan, app_id: str, app: App) -> float:
    """The rate that a plan is to be tried with: what is wished, else what the plan promises to carry.

    Of a plan that promises none, the upper end of where it is valid; else the highest rate that the wish mentions.
    """
    stated = app.stated_qps
    if stated is not None:
        return stated
    promised = [
        promise.value
        for promise in plan.promises
        if promise.app == app_id and promise.quantity == "rate_qps" and promise.relation in (">=", "=")
    ]
    if promised:
        return min(promised)
    upper = plan.valid.rate_qps.get(app_id, (0.0, None))[1]
    if upper is not None:
        return float(upper)
    if app.range_qps is not None:
        return app.range_qps[1]
    return max(app.history or (0.0,))
