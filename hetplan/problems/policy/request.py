"""Reads the files of policies: applications with their arrivals, the workers, and the models they may run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hetplan.errors import InputError
from hetplan.planner.choices import HAIR, Choice
from hetplan.planner.request import Application, Request
from hetplan.problems.faults import Faults, refused_fields
from hetplan.problems.metrics import higher_is_better
from hetplan.problems.policy.options import PolicyOptions
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Notice
from hetplan.profiles.slo import Arrivals
from hetplan.serving.law import Law, OffTable
from hetplan.serving.loads import point_text
from hetplan.serving.table_points import answering_statistic

__all__ = [
    "REFUSED",
    "AppRequest",
    "Models",
    "Workers",
    "capacity_qps",
    "dispersion",
    "offers_of_workers",
    "pareto",
    "read_apps",
    "read_models",
    "read_workers",
    "repair",
]

REFUSED = {
    **refused_fields(
        "apps.*.network_ms_once", "limits.capacity", "limits.survive.machines", "limits.survive.zones", "change.slack",
        "change.slack_qps", "change.load_weight_per_s", "horizon.period_s", "horizon.periods",
        "apps.*.latency.ttft_p*_ms", "apps.*.latency.tpot_p*_ms",
        "apps.*.attainment", "apps.*.lifetime_s", "apps.*.deadline_s", "apps.*.device", "apps.*.candidates",
        "apps.*.rate_qps.series", "apps.*.streams",
    ),
    "limits.cost_per_hour": ("a policy is for given workers, so it has no budget", "Leave it out."),
    "limits.changes": ("a policy is for given workers, and moves nothing", "Leave it out."),
    "limits.provides": ("a policy is for given workers, so it has no totals", "Say how many: instances."),
    "apps.*.quality.max": ("a policy's accuracy is better when higher", 'State a min.'),
    "apps.*.weight": ("each application has separate workers and policies, so none weighs more", "Leave it out."),
    "apps.*.rate_qps.history": ("a policy is made for stated loads", "Give rate_qps, or a range."),
    "apps.*.mix": ("a policy serves queries that are alike", "Leave it out."),
}  # fmt: skip
"""Fields of the SLO that this question does not keep: why, and what to write instead."""

Floats = NDArray[np.float64]
_LEAST_ARRIVALS = 1000
_MOST_SETS = 252
"""As many as ten models have at most, none within another."""
_IN_TURN = ("cpu_cores", "gpu")
"""A worker runs one model at a time: of these it needs what the greediest model takes, of all else what all take."""
_DIGITS = 9
"""Of milliseconds."""
_MOST_STAGES = 200
"""More stages than this, and than workers, are planned as so many: the gaps vary by seven percent then."""
_BURSTIEST = 0.75
"""Own inter-arrival times with a gamma shape below this are too far from any Erlang."""


@dataclass(frozen=True)
class AppRequest:
    """What an application asks of policies: `loads_qps` is a rate or a range, `shape` that of gamma arrivals.

    `left` is what the latency target's percentile says of lateness: a plan that misses it says so, and stays a plan.
    `violation_most` is the same where it is a target that a plan has to keep.
    """

    app: Application
    loads_qps: tuple[float, ...]
    shape: float
    late: Literal["serve", "drop"] | None
    balancing: Literal["round_robin", "shortest_queue", "random"]
    violation_most: float | None = None
    times_s: Floats | None = None
    notices: tuple[Notice, ...] = ()
    bursts: Arrivals | None = None
    """Stated arrivals whose rate changes under way: planned as Poisson, chosen and confirmed as they are stated."""

    @cached_property
    def slo_s(self) -> float:
        """What the strictest limit leaves for waiting and serving."""
        return self.app.limit_ms() / 1000.0

    @property
    def left(self) -> float:
        """The share that may miss this limit by its percentile."""
        return self.app.strictest.left if self.app.strictest is not None else 1.0

    def with_percentile_target(self) -> AppRequest:
        """The same, with what the percentile leaves as a target that a plan has to keep, where none is stated."""
        return self if self.violation_most is not None else replace(self, violation_most=round(self.left, 12))

    def fewest_for_stages(self) -> int:
        """The fewest workers whose own arrivals `stages` has an Erlang for: in turn, each sees calmer ones than all."""
        return 1 if self.balancing != "round_robin" else max(1, math.ceil(_BURSTIEST / self.shape))

    def stages(self, workers: int) -> tuple[int, float, str]:
        """K stages at one of so many workers under round robin, their rate per load, and what was rounded.

        Raises ValueError where arrivals are burstier than any Erlang.
        """
        exact = workers * self.shape
        if exact < _BURSTIEST:
            raise ValueError(f"own inter-arrival times have gamma shape {exact:.3g}, burstier than Poisson")
        stages = min(max(1, round(exact)), max(workers, _MOST_STAGES))
        if abs(exact - stages) < 1e-9:
            return stages, self.shape, ""
        rounded = f"own inter-arrival times of gamma shape {exact:.4g} planned as Erlang({stages})"
        return stages, stages / workers, rounded


@dataclass(frozen=True)
class Workers:
    """How many workers of one hardware there may be, of which offer where several hardware share the load."""

    hardware: str
    least: int
    most: int | None
    offer: str | None = None

    @property
    def count(self) -> int:
        """How many there are: the most; where none is stated the least, and one at least."""
        return self.most if self.most is not None else max(self.least, 1)


@dataclass(frozen=True)
class Models:
    """What one kind of worker runs, fastest first: `latency_s[m, b - 1]` for b = 1..N + 1."""

    hardware: str
    choices: tuple[Choice, ...]
    """The run of each."""
    latency_s: Floats
    accuracy: Floats
    notices: tuple[Notice, ...] = ()
    sets: tuple[tuple[int, ...], ...] = ()
    """Those that a worker holds together, where it does not hold all; `all_sets` where none was left out."""
    all_sets: bool = True

    def only(self, kept: Sequence[int]) -> Models:
        """Some of the models."""
        places = list(kept)
        return replace(
            self,
            choices=tuple(self.choices[i] for i in places),
            latency_s=self.latency_s[places],
            accuracy=self.accuracy[places],
            sets=(),
        )

    @property
    def names(self) -> tuple[str, ...]:
        """The models themselves."""
        return tuple(one.variant for one in self.choices)

    @property
    def fastest_s(self) -> float:
        """The least latency of a single query: no SLO below it can be kept."""
        return float(self.latency_s[0, 0])


def capacity_qps(models: Models, model: int, limit_s: float) -> float:
    """The most queries per second that one worker serves with a model in batches that take no longer than this."""
    latency = models.latency_s[model, :-1]
    fits = latency <= limit_s * (1.0 + HAIR)
    return float((np.arange(1, latency.size + 1)[fits] / latency[fits]).max(initial=0.0))


def pareto(latency_1: Floats, accuracy: Floats) -> list[int]:
    """Models that none beats: drop m where another is as accurate and as fast, and better in one of them.

    >>> pareto(np.array([1.0, 2.0, 3.0]), np.array([0.5, 0.9, 0.8]))
    [0, 1]
    """
    kept = []
    for m in range(accuracy.size):
        as_good = (accuracy >= accuracy[m]) & (latency_1 <= latency_1[m])
        better = as_good & ((accuracy > accuracy[m]) | (latency_1 < latency_1[m]))
        if not better.any():
            kept.append(m)
    return kept


def fitting_sets(
    needs: Sequence[Mapping[str, float]], provides: Mapping[str, float]
) -> tuple[list[tuple[int, ...]], bool]:
    """The sets of models that fit together and are within no other one, largest first; and whether these are all.

    Hardware that says nothing of what it provides takes all.

    >>> fitting_sets([{"mem": 3.0}, {"mem": 2.0}, {"mem": 2.0}], {"mem": 5.0})
    ([(0, 1), (0, 2), (1, 2)], True)
    >>> fitting_sets([{"mem": 3.0}, {"mem": 2.0}, {"mem": 2.0}], {})
    ([(0, 1, 2)], True)
    """
    everything = tuple(range(len(needs)))

    def fits(chosen: Sequence[int]) -> bool:
        for resource in {name for place in chosen for name in needs[place]} if provides else ():
            amounts = [needs[place].get(resource, 0.0) for place in chosen]
            room = provides.get(resource, 0.0)
            if (max(amounts) if resource in _IN_TURN else sum(amounts)) > room + HAIR * max(room, 1.0):
                return False
        return True

    found: list[tuple[int, ...]] = []
    alone = tuple(place for place in everything if fits((place,)))
    for size in range(len(alone), 0, -1):
        for chosen in combinations(alone, size):
            if any(set(chosen) <= set(larger) for larger in found) or not fits(chosen):
                continue
            if len(found) == _MOST_SETS:
                return found, False
            found.append(chosen)
    return found, True


def repair(batches: Floats, measured: Floats, *, queue_max: int, monotone: str) -> tuple[Floats, list[str]]:
    """Latencies for b = 1..N + 1 from those measured at some batches, and what was done to them.

    Missing batches lie on the regression line of the measured ones; latencies are made to grow with the batch; what
    lies beyond N continues the regression of 1..N and is never below N's.

    >>> repair(np.array([1.0, 2.0, 4.0]), np.array([10.0, 12.0, 16.0]), queue_max=4, monotone="safe")
    (array([10., 12., 14., 16., 18.]), ['batch 3 filled by regression'])
    """
    sizes = np.arange(1, queue_max + 1, dtype=float)
    done: list[str] = []
    known = {int(b): float(t) for b, t in zip(batches, measured, strict=True) if b <= queue_max}
    values = np.array([known.get(int(b), np.nan) for b in sizes])
    missing = np.isnan(values)
    if missing.any():
        slope, level = np.polyfit(batches, measured, 1)
        line = np.maximum(slope * sizes + level, float(np.min(measured)) * 0.5)
        # A line's last digits would say whether a batch that takes just as long as the limit is in time.
        values = np.where(missing, np.round(line, _DIGITS), values)
        inner = sizes[missing & (sizes < batches.max())]
        if inner.size:
            done.append(f"batch {_ranges(inner)} filled by regression")
    falls = np.diff(values) < 0
    if falls.any():
        if monotone == "safe":
            values = np.maximum.accumulate(values)
        else:
            values = np.minimum.accumulate(values[::-1])[::-1]
        done.append(f"latencies falling with the batch ({int(falls.sum())} places) made to grow, {monotone}")
    beyond = float(values[-1])
    if queue_max > 1:
        slope, level = np.polyfit(sizes, values, 1)
        beyond = max(beyond, float(slope * (queue_max + 1) + level))
    elif int(queue_max + 1) in {int(b) for b in batches}:
        beyond = max(beyond, float(measured[[int(b) for b in batches].index(queue_max + 1)]))
    else:
        beyond = 2 * beyond
    return np.append(values, beyond), done


def read_workers(request: Request, faults: Faults) -> tuple[Workers, ...]:
    """The workers that the SLO gives."""
    found = []
    for hardware, (least, most) in request.instances.items():
        path = f"$.limits.instances.{hardware}"
        if most == 0 or (most is not None and most > 10_000):
            faults.in_slo(path, "between 1 and 10000 workers", "Write how many there are.", value=most)
        else:
            found.append(Workers(hardware, least, most))
    return tuple(found)


def offers_of_workers(
    inputs: Inputs, request: Request, hardware: str, count: int, *, of_one: bool = False
) -> list[tuple[str | None, int]]:
    """Of which offers so many machines come, cheapest first; `of_one`: of the cheapest that has them all."""
    machines = request.renting(inputs.profile, [hardware]).machines
    if not machines:
        return [(None, count)]
    (kind,) = machines
    if of_one:
        kind = replace(kind, offers=tuple(offer for offer in kind.offers if offer.stock >= count)[:1])
    found = kind.cheapest_offers(count)
    there = sum(taken for _, taken in found)
    if there < count:
        why, remedy = f"no offers of {hardware} have {count} in stock: together they have {there}", "Add stock."
        if of_one:
            why = f"no offer of {hardware} has {count} in stock"
            remedy = "Workers that share one queue come of one offer: add stock."
        file = inputs.files.get("profile", "profile")
        raise InputError.one(file=file, path="$.offers", value=hardware, why=why, remedy=remedy)
    return [(offer.id, taken) for offer, taken in found]


def read_apps(inputs: Inputs, request: Request, faults: Faults) -> tuple[AppRequest, ...]:
    """Every application that is asked for."""
    faults.refuse(REFUSED)
    higher_is_better(request, faults)
    wishes = (_read_app(inputs, app, faults) for app in request.apps.values())
    return tuple(wish for wish in wishes if wish is not None)


def _read_app(inputs: Inputs, app: Application, faults: Faults) -> AppRequest | None:
    at = f"$.apps.{app.id}"
    before = len(faults.found)
    if app.strictest is None:
        faults.in_slo(f"{at}.latency", "a policy decides by the slack to a response target", "Give one.")
        return None
    if app.limit_ms() <= 0:
        faults.refuse_all_network(app)
        return None
    if app.late not in (None, "serve", "drop"):
        faults.in_slo(
            f"{at}.late", "a policy serves late queries or drops them", 'Write "serve" or "drop".', value=app.late
        )
    shape, times, notices = _arrivals(inputs, app, faults)
    loads = _loads(app, times, faults)
    if len(faults.found) > before:
        return None
    return AppRequest(
        app,
        loads,
        shape,
        "drop" if app.late == "drop" else "serve" if app.late else None,
        app.balancing or "round_robin",
        times_s=times,
        notices=tuple(notices),
        bursts=app.arrivals if app.arrivals.process == "mmpp" and times is None else None,
    )


def _loads(app: Application, times: Floats | None, faults: Faults) -> tuple[float, ...]:
    rate, at = app.rate_qps, f"$.apps.{app.id}.rate_qps"
    if app.range_qps is not None:
        low, high = app.range_qps
        if low >= high:
            faults.in_slo(at, "low is below high", "Swap them, or give one number.", value=f"{low:g}, {high:g}")
        return (low, high)
    if rate is not None:
        if rate <= 0:
            faults.in_slo(at, "a policy needs a load above 0", "Give queries per second, or a range.", value=rate)
        return (rate,)
    if times is not None:
        return ((times.size - 1) / float(times[-1] - times[0]),)
    faults.in_slo(
        at,
        "a policy is made for a load",
        "Give queries per second, or a range.",
        value="max" if app.wants_max_rate else None,
    )
    return ()


def _arrivals(inputs: Inputs, app: Application, faults: Faults) -> tuple[float, Floats | None, list[Notice]]:
    """The gamma shape of the inter-arrival times, recorded times where there are any, and warnings about them."""
    arrivals, at = app.arrivals, f"$.apps.{app.id}.arrivals"
    if app.trace is not None or arrivals.process == "empirical":
        return _recorded_arrivals(inputs, app, faults)
    if arrivals.process == "gamma":
        if arrivals.shape is None:
            faults.in_slo(f"{at}.shape", "gamma arrivals have a shape", "Give it; 1 is Poisson.")
        return arrivals.shape or 1.0, None, []
    if arrivals.process == "mmpp":
        text = (
            "policies are computed for Poisson arrivals, then chosen and promised by simulation with the stated bursts"
        )
        return 1.0, None, [Notice(code="W-arrivals-rounded", at=f"apps.{app.id}", text=text)]
    if arrivals.process != "poisson":
        faults.in_slo(
            f"{at}.process",
            f"policies are made for poisson, gamma, mmpp or recorded arrivals, not {arrivals.process}",
            "For a rate that changes give a range of rates; for regular arrivals a gamma with a large shape.",
        )
    return 1.0, None, []


def _recorded_arrivals(inputs: Inputs, app: Application, faults: Faults) -> tuple[float, Floats | None, list[Notice]]:
    slo_s, at = app.limit_ms() / 1000.0, f"$.apps.{app.id}.rate_qps.trace"
    if app.id not in inputs.traces:
        faults.in_slo(at, "recorded arrivals need a trace", "Name its file.")
        return 1.0, None, []
    times = np.asarray(inputs.traces[app.id], dtype=float)
    if times.size < _LEAST_ARRIVALS:
        faults.in_slo(at, f"{times.size} arrivals say too little", f"Record at least {_LEAST_ARRIVALS}.")
        return 1.0, None, []
    if (np.diff(times) < 0).any():
        faults.in_slo(
            at, "arrival times are in order", "Sort them.", value=f"entry {int(np.argmax(np.diff(times) < 0)) + 1}"
        )
        return 1.0, None, []
    spread = {window: dispersion(times, window * slo_s) for window in (1, 4, 16)}
    listed = ", ".join(
        f"{index:.3g} over {window * slo_s:g} s" for window, index in spread.items() if np.isfinite(index)
    )
    notices = [
        Notice(
            code="W-arrivals",
            at=f"apps.{app.id}",
            text=f"index of dispersion of the trace (1 is Poisson, more is burstier): {listed}",
        )
    ]
    if np.isfinite(spread[16]) and spread[16] > 2 * max(spread[1], 1e-9):
        text = "dispersion grows with the window: the rate changes; plan for a range of rates"
        notices.append(Notice(code="W-arrivals-change", at=f"apps.{app.id}", text=text))
    index = spread[1] if np.isfinite(spread[1]) and spread[1] > 0 else 1.0
    return 1.0 / index, times, notices


def dispersion(times_s: Floats, window_s: float) -> float:
    """Variance over mean of the counts in windows; 1 for Poisson arrivals, NaN where there are not ten windows.

    >>> dispersion(np.arange(0.5, 1000.0), 10.0)
    0.0
    """
    windows = int((times_s[-1] - times_s[0]) / window_s)
    if windows < 10:
        return float("nan")
    places = ((times_s - times_s[0]) / window_s).astype(np.int64)
    counts = np.bincount(places[places < windows], minlength=windows)
    return float(counts.var() / counts.mean())


def read_models(
    request: Request, app: Application, hardware: str, options: PolicyOptions, faults: Faults
) -> Models | None:
    """The models that an application may run on some hardware; None where a fault was found."""
    before, reading = len(faults.found), _Reading(options, faults)
    rows = []
    for name in app.variants:
        runs = request.choices(variants=[name], hardware=hardware)
        try:
            row = reading.model(runs) if runs else None
        except InputError as error:
            faults.also(error)
        else:
            rows += [row] if row is not None else []
    if len(faults.found) > before:
        return None
    if not rows:
        why = f"no variant that it may run has a run on {hardware}"
        faults.in_slo(f"$.apps.{app.id}.{app.answered_by}", why, "Profile one, or name others.")
        return None
    rows.sort(key=lambda row: (row[1][0], -(row[0].quality or 0.0), row[0].variant))
    accuracy = np.array([choice.quality or 0.0 for choice, _ in rows])
    choices, latencies = zip(*rows, strict=True)
    models = Models(hardware, choices, np.stack(latencies), accuracy, tuple(reading.notices))
    best = pareto(models.latency_s[:, 0], models.accuracy)
    provides, needs = request.profile.hardware[hardware].provides, [choice.needs for choice in choices]
    if fitting_sets([needs[place] for place in best], provides)[0] == [tuple(range(len(best)))]:
        return models.only(best)
    # A model that another one beats may be the one that there is room for.
    sets, every = fitting_sets(needs, provides)
    if not sets:
        why = f"no model that it may run fits a worker of {hardware}"
        faults.in_slo(f"$.apps.{app.id}.{app.answered_by}", why, "Name smaller ones, or let the hardware provide more.")
        return None
    return replace(models, sets=tuple(sets), all_sets=every)


@dataclass
class _Reading:
    """Reads the models of one hardware; faults and notices are collected."""

    options: PolicyOptions
    faults: Faults
    notices: list[Notice] = field(default_factory=list)

    def model(self, runs: Sequence[Choice]) -> tuple[Choice, Floats] | None:
        """The run of a model that workers hold, and its latencies; None where a fault was found, which is kept."""
        name, accuracy, options = runs[0].variant, runs[0].quality, self.options
        if accuracy is None or not 0 <= accuracy <= 1:
            hint = "is this a percentage? Write a fraction." if accuracy is not None and 1 < accuracy <= 100 else ""
            why = "a policy weighs models by accuracy, a fraction"
            self.faults.in_profile(f"$.variants.{name}.quality", why, hint or "Add it.", value=accuracy)
        choice = self._choose_run([one for one in runs if one.is_timed])
        if choice is None:
            why, remedy = "a policy needs measured times", "Give the run mean_ms."
            self.faults.in_profile(f"$.variants.{name}.runs", why, remedy)
            return None
        at = f"tables.{choice.table.name}"
        statistic, unlike = choice.statistic(options)
        self.notices += unlike
        measured = self._measured_times(choice.law, statistic, f"$.{at}")
        if measured is None:
            return None
        batches, times_ms = measured
        latency_ms, repairs = repair(batches, times_ms, queue_max=options.queue_max, monotone=options.monotone)
        self.notices += [Notice(code="W-table-repaired", at=at, text=text) for text in repairs]
        if options.queue_max > batches.max():
            text = f"batches above {batches.max():g}, the largest measured, are extrapolated"
            self.notices.append(Notice(code="W-extrapolated", at=at, text=text))
        return choice, latency_ms / 1000.0

    def _choose_run(self, runs: Sequence[Choice]) -> Choice | None:
        """The run that a worker holds: of several the fastest with one query, whatever their order."""
        runs = sorted(runs, key=lambda one: point_text(one.at))
        if len({one.table.name for one in runs}) > 1:
            runs.sort(key=self._single_query_ms)
            name, held = runs[0].variant, point_text(runs[0].at)
            text = f"{name} has several runs on {runs[0].hardware}: workers hold the fastest, at {held}"
            self.notices.append(Notice(code="W-run", at=f"variants.{name}.runs", text=text))
        return runs[0] if runs else None

    def _single_query_ms(self, choice: Choice) -> float:
        try:
            return choice.law.ms({}, 1, answering_statistic(choice.law.statistics, self.options.judged_by))
        except OffTable:
            return np.inf

    def _measured_times(self, law: Law, statistic: str, place: str) -> tuple[Floats, Floats] | None:
        """Batches and milliseconds that were measured at the run's settings."""
        for axis, points in law.axes.items():
            if axis != "batch" and law.settings.get(axis) not in points:
                why, remedy = "a policy's tables are by batch alone", f'Fix {axis} in the run\'s "at".'
                self.faults.in_profile(f"{place}.axes.{axis}", why, remedy)
                return None
        found = []
        for batch in law.axes.get("batch", (1.0,)):
            with suppress(OffTable):
                found.append((batch, law.ms({}, int(batch), statistic)))
        if not found:
            self.faults.in_profile(place, "nothing was measured", "Measure at least two batch sizes.")
            return None
        if len(found) < 2 and self.options.queue_max > 1:
            why, remedy = "one batch size says nothing about the others", "Measure at least two, or set queue_max=1."
            self.faults.in_profile(place, why, remedy)
            return None
        batches, times_ms = np.array(found).T
        return batches, times_ms


def _ranges(sizes: Floats) -> str:
    """Batches in words: "3, 5-8"."""
    parts: list[list[int]] = []
    for size in sizes.astype(int):
        if parts and size == parts[-1][-1] + 1:
            parts[-1] = [parts[-1][0], int(size)]
        else:
            parts.append([int(size)])
    return ", ".join("-".join(str(end) for end in part) for part in parts)
