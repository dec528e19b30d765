"""What is wanted: objectives, limits and, per application, latency, quality and demand (`docs/reference/files.md`).

It holds only the wish: how to answer it (formulation, solver, search budget) goes into options.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast, get_args

from pydantic import AfterValidator, BeforeValidator, Field, Strict, WithJsonSchema, model_validator

from hetplan.profiles.fields import (
    Amount,
    Count,
    Currency,
    Fraction,
    Id,
    Key,
    Later,
    Model,
    Money,
    Named,
    PositiveAmount,
    PositiveCount,
    Real,
    wrong,
)

if TYPE_CHECKING:
    from hetplan.profiles.fleet_fields import OfferLimit
    from hetplan.profiles.fleet_fields import OfferLimit as _OfferLimit
    from hetplan.profiles.slo_sections import Candidate as _Candidate
    from hetplan.profiles.slo_sections import Device as _Device
    from hetplan.profiles.slo_sections import QualityTarget as _QualityTarget
    from hetplan.profiles.slo_sections import TraceRef
    from hetplan.profiles.slo_sections import TraceRef as _TraceRef
else:
    _OfferLimit = Annotated[Any, Later("hetplan.profiles.fleet_fields:OfferLimit")]
    _Candidate = Annotated[Any, Later("hetplan.profiles.slo_sections:Candidate")]
    _Device = Annotated[Any, Later("hetplan.profiles.slo_sections:Device")]
    _QualityTarget = Annotated[Any, Later("hetplan.profiles.slo_sections:QualityTarget")]
    _TraceRef = Annotated[Any, Later("hetplan.profiles.slo_sections:TraceRef")]

__all__ = [
    "ANSWERERS",
    "App",
    "Arrivals",
    "Balancer",
    "Change",
    "Horizon",
    "LatencyLimits",
    "LatencyTarget",
    "Mix",
    "Objective",
    "Rates",
    "Slo",
    "Survive",
    "WishLimits",
    "answered_by",
]

Traded = Literal["quality", "cost", "latency"]

_SOUGHT = {
    "max": ("rate", "quality", "goodput", "served"),
    "min": ("cost", "machines", "changes", "violations", "latency"),
    "front": get_args(Traded),
}
"""What each first word of a term may be followed by."""
_NEW_WORDS = {"servers": "machines", "moves": "changes"}
"""Words of an older SLO file, and those of today."""


def _terms(value: object) -> object:
    """One term or several in a list, the most important first."""
    if isinstance(value, str):
        return (value,)
    said = list(value) if isinstance(value, list | tuple) else [value]
    if not all(isinstance(one, str) for one in said):
        said = [_term_in_new_form(one) for one in said]
        meant = json.dumps(said if len(said) > 1 else said[0]) if None not in said else '["max quality", "min cost"]'
        raise wrong("terms as texts", f"Write {meant}.")
    return value


def _term_in_new_form(old: object) -> str | None:
    if isinstance(old, str):
        return old
    if not isinstance(old, Mapping) or len(old) != 1:
        return None
    ((sense, sought),) = old.items()
    words = [sought] if isinstance(sought, str) else list(sought) if isinstance(sought, list | tuple) else []
    words = [_NEW_WORDS.get(word, word) for word in words]
    is_known = sense in _SOUGHT and bool(words) and all(word in _SOUGHT[sense] for word in words)
    return " ".join([sense, *words]) if is_known else None


def _term(value: str) -> str:
    sense, *words = value.split(" ")
    known = _SOUGHT.get(sense, ())
    if not known:
        raise wrong("a term begins with max, min or front", 'Write for instance "max rate" or "min cost".')
    if not words or any(word not in known for word in words) or (sense != "front" and len(words) > 1):
        why = f"{sense} is followed by {'some' if sense == 'front' else 'one'} of {', '.join(known)}"
        raise wrong(why, f'Write for instance "{sense} {_NEW_WORDS.get(words[0] if words else "", known[0])}".')
    if len(set(words)) < len(words):
        raise wrong("front is followed by two or three different words", 'Write for instance "front quality cost".')
    return value


Objective = Annotated[
    tuple[Annotated[str, Strict(), AfterValidator(_term)], ...],
    BeforeValidator(_terms),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "pattern": "^(max|min|front) [a-z ]+$"},
                {"type": "array", "items": {"type": "string", "pattern": "^(max|min|front) [a-z ]+$"}},
            ]
        }
    ),
]
"""A term such as "max rate", or several in order of importance; "front quality cost" seeks both at once."""


class Survive(Model):
    """How many may fail at once with the promises still kept."""

    machines: Count = 0
    zones: Count = 0
    spot: Literal["none", "zone", "all"] = Field(default="none", description="spot machines gone: of a zone, or all")
    serve: Fraction = Field(default=1.0, description="share of each rate that is served after a failure")


class WishLimits(Model):
    """What a plan may spend."""

    cost_per_hour: Money | None = None
    currency: Currency = "USD"
    changes: Count | None = Field(default=None, description="most machines, or instances, that may be new")
    instances: Named[tuple[Count, Count | None]] = Field(
        default_factory=dict, description="[least, most] per hardware, over all its offers; most null: up to its stock"
    )
    spot: _OfferLimit | None = None
    on_demand: _OfferLimit | None = None
    reserved: _OfferLimit | None = Field(default=None, description="machines that are paid for a term")
    offers: Named[_OfferLimit] = Field(default_factory=dict, description="machines of each offer")
    only_listed: bool = False
    provides: dict[Key, Amount] = Field(
        default_factory=dict, description="most of what all machines that a plan rents provide, such as watts or cores"
    )
    capacity: dict[Key, Amount] = Field(
        default_factory=dict, description="totals of what runs and candidates take, where machines are not counted"
    )
    survive: Survive = Field(default_factory=Survive)

    @property
    def purchases(self) -> Mapping[str, OfferLimit]:
        """The limits on ways to buy (spot, on_demand, reserved) and on offers, by name."""
        kinds = {"spot": self.spot, "on_demand": self.on_demand, "reserved": self.reserved}
        return {**{name: limit for name, limit in kinds.items() if limit is not None}, **self.offers}

    @model_validator(mode="after")
    def _least_to_most(self) -> WishLimits:
        for hardware, (least, most) in self.instances.items():
            if most is not None and least > most:
                why = f"[least, most] with least <= most, not [{least}, {most}]"
                raise wrong(why, f"Write [{most}, {least}], or raise the second.", at=("instances", hardware))
        return self


class Change(Model):
    """What a change of the running state costs, and how much room to keep."""

    slack: Real = Field(default=1.05, ge=1, description="need / load")
    slack_qps: Amount | None = Field(default=None, description="an additive slack instead")
    load_weight_per_s: Amount = 0.1
    offline_below: Fraction = 0.4


class Robust(Model):
    """What may turn out worse than it is stated."""

    law: bool = Field(default=True, description="whether laws of engines are slower by their stated error")


class Horizon(Model):
    """Periods planned ahead."""

    period_s: PositiveAmount = 3600.0
    periods: PositiveCount = 1
    repeats: PositiveCount = Field(default=1, description="how often the periods come again, one after the other")
    starts: bool = Field(default=True, description="whether machines are paid while they start")


_LIMIT = re.compile(r"(?:(ttft|tpot|response)_)?p([0-9]+(?:\.[0-9]+)?)(?:_ms)?")
_KEY = r"^((ttft|tpot)_)?p([1-9][0-9]?(\.[0-9]*[1-9])?|100)_ms$"
"""What `LatencyTarget.key` writes, in the words of a JSON schema, whose patterns are ECMA's."""
_TIMES = ("response", "ttft", "tpot")


@dataclass(frozen=True)
class LatencyTarget:
    """At this percentile, no more than this, of the response time, of the first token or of the time per token."""

    of: str
    percentile: float
    max_ms: float

    @property
    def key(self) -> str:
        """Its name in the file.

        >>> LatencyTarget("ttft", 95.0, 600.0).key, LatencyTarget("response", 99.9, 60.0).key
        ('ttft_p95_ms', 'p99.9_ms')
        """
        return f"{'' if self.of == 'response' else f'{self.of}_'}p{self.percentile:.12g}_ms"

    @classmethod
    def named(cls, name: str, max_ms: float = 0.0) -> LatencyTarget | None:
        """The limit that a name means, as files, commands and measurements write it; None where it names none.

        >>> LatencyTarget.named("ttft_p95_ms").key, LatencyTarget.named("p99.90").key, LatencyTarget.named("max_ms")
        ('ttft_p95_ms', 'p99.9_ms', None)
        """
        matched = _LIMIT.fullmatch(name)
        return None if matched is None else cls(matched[1] or "response", float(matched[2]), max_ms)

    @property
    def is_percentile(self) -> bool:
        """Whether its percentile is one: a number from 1 to 100."""
        return 1 <= self.percentile <= 100

    @property
    def in_percent(self) -> LatencyTarget:
        """Itself, or what a share in place of a percentile means: p0.99 is p99."""
        return replace(self, percentile=self.percentile * 100) if 0.01 <= self.percentile < 1 else self


def _limit_name(key: str) -> str:
    """The name of a latency limit; an error where it names none, or writes its percentile in another way."""
    target = LatencyTarget.named(key)
    if target is None or not key.endswith("_ms"):
        remedy = "Write for instance p99_ms, ttft_p95_ms or tpot_p95_ms."
        if target is not None and target.is_percentile:
            remedy = f"Write {target.key}."
        raise wrong("a limit is named by its percentile, and ends with _ms", remedy)
    if not target.is_percentile:
        meant = target.in_percent
        remedy = f"Write {meant.key}." if meant.is_percentile else "Write for instance p99_ms."
        raise wrong("a percentile is a number from 1 to 100", remedy)
    if key.startswith("response_"):
        raise wrong("a limit on the response time is named by its percentile alone", f"Write {target.key}.")
    if key != target.key:
        raise wrong("a percentile is written without zeros at its ends, in 12 digits at most", f"Write {target.key}.")
    return key


def _limit_ms(value: float) -> float:
    if not 0.001 <= value <= 3_600_000:
        seconds = "; if these are seconds, write milliseconds" if value < 1 else ""
        raise wrong("a latency limit between 0.001 ms and an hour", f"Check the unit{seconds}.")
    return value


def _limits_by_name(value: object) -> object:
    if isinstance(value, list | tuple):
        raise wrong("limits by name", f"Write {json.dumps(_limits_in_new_form(value) or {'p99_ms': 60})}.")
    return value


def _limits_in_new_form(old: Sequence[object]) -> dict[str, float]:
    """What a list of limits says by name, of two at one percentile the tighter; nothing where one cannot be read."""
    found: dict[str, float] = {}
    for one in old:
        of, percentile, max_ms = _old_limit(one)
        if of not in _TIMES or not (_is_number(percentile) and _is_number(max_ms)):
            return {}
        target = LatencyTarget(of, percentile, max_ms).in_percent
        if not target.is_percentile:
            return {}
        found[target.key] = min(max_ms, found.get(target.key, max_ms))
    return found


def _old_limit(old: object) -> tuple[Any, Any, Any]:
    if not isinstance(old, Mapping):
        return None, None, None
    return old.get("of", "response"), old.get("percentile"), old.get("max_ms", 60)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


LatencyLimits = Annotated[
    dict[
        Annotated[str, Strict(), AfterValidator(_limit_name), Field(json_schema_extra={"pattern": _KEY})],
        Annotated[PositiveAmount, AfterValidator(_limit_ms)],
    ],
    BeforeValidator(_limits_by_name),
    Field(json_schema_extra={"additionalProperties": False}),
]


@cache
def _targets(limits: tuple[tuple[str, float], ...]) -> tuple[LatencyTarget, ...]:
    found = []
    for key, max_ms in limits:
        target = LatencyTarget.named(key, max_ms)
        assert target is not None
        found.append(target)
    return tuple(sorted(found, key=lambda one: (_TIMES.index(one.of), one.percentile)))


class Arrivals(Model):
    """How queries come. `shape` is for gamma, `rates_qps`/`stay_s` for mmpp, `peak`/`period_s` for diurnal."""

    process: Literal["poisson", "gamma", "mmpp", "diurnal", "empirical", "deterministic"] = "poisson"
    shape: PositiveAmount | None = None
    relative_rates: tuple[Amount, ...] | None = Field(default=None, description="mmpp: rate of each state / mean")
    stay_s: tuple[PositiveAmount, ...] | None = Field(default=None, description="mmpp: mean stay in each state")
    peak: PositiveAmount | None = Field(default=None, description="diurnal: peak / mean rate")
    period_s: PositiveAmount | None = Field(default=None, description="diurnal: length of a day")

    @model_validator(mode="after")
    def _own_parameters(self) -> Arrivals:
        if self.process != "poisson" or self.model_fields_set - {"process"}:
            from hetplan.profiles.slo_sections import check_arrivals

            check_arrivals(self.process, vars(self))
        return self

    @property
    def cycle_s(self) -> float:
        """How long it takes to see all that arrivals do: a period, ten stays in every state; 0 where nothing changes.

        >>> Arrivals(process="mmpp", relative_rates=(0.5, 1.5), stay_s=(10.0, 10.0)).cycle_s, Arrivals().cycle_s
        (200.0, 0.0)
        """
        return self.period_s or 10.0 * sum(self.stay_s or ())


def _shares(shares: tuple[float, ...]) -> tuple[float, ...]:
    """The shares brought to a sum of exactly 1, where they are within 1e-6 of it."""
    total = math.fsum(shares)
    if abs(total - 1) > 1e-6:
        percent = " Are these percent? Divide by 100." if abs(total - 100) < 1e-4 else ""
        raise wrong(f"shares sum to 1, not {total:.9g}", f"Mend or divide each by their sum.{percent}")
    return shares if abs(total - 1) < 1e-12 else tuple(share / total for share in shares)


class Mix(Model):
    """What queries are like: bins along table axes, and the share of each. Sizes between bins round up."""

    axes: tuple[Key, ...] = Field(min_length=1)
    bins: tuple[tuple[Amount, ...], ...] = Field(min_length=1)
    share: Annotated[tuple[Amount, ...], AfterValidator(_shares)] | None = Field(
        default=None, description="sums to 1; exclusive with observed"
    )
    observed: tuple[tuple[Amount, ...], ...] | None = Field(default=None, description="sizes seen; counted into bins")

    @model_validator(mode="after")
    def _matching_lengths(self) -> Mix:
        if len(set(self.axes)) < len(self.axes):
            raise wrong("different axes", "Name each once.", at=("axes",))
        for name, sizes in (("bins", self.bins), ("observed", self.observed or ())):
            for number, size in enumerate(sizes):
                if len(size) != len(self.axes):
                    listed = ", ".join(self.axes)
                    raise wrong(f"one number per axis ({listed})", "Add or drop numbers.", at=(name, number))
        if len(set(self.bins)) < len(self.bins):
            raise wrong("different bins", "Join equal bins, and their shares.", at=("bins",))
        if (self.share is None) == (self.observed is None):
            raise wrong("exactly one of share and observed", "Keep the one that is known.")
        if self.share is not None and len(self.share) != len(self.bins):
            raise wrong(f"one share per bin: {len(self.bins)}, not {len(self.share)}", "Add or drop.", at=("share",))
        if self.observed is not None and not self.observed:
            raise wrong("at least one observed size", 'List them, or give "share".', at=("observed",))
        return self


Rate = Annotated[float, Strict(), Field(ge=0)]
"""Queries per second, also of a demand that is handed in through the API: `load` says what is absurd of both."""


class Rates(Model):
    """Rates that are more than one number: a range, those of the past, one per period, or a recorded trace."""

    low: PositiveAmount | None = Field(default=None, description="a range to plan policies for, with high")
    high: PositiveAmount | None = None
    history: tuple[Rate, ...] | None = Field(default=None, min_length=1, description="a forecast is made of it")
    series: tuple[Rate, ...] | None = Field(default=None, min_length=1, description="a rate per period")
    mean: Rate | Literal["max"] | None = Field(
        default=None, description="the rate, where queries come as in a trace at another rate"
    )
    trace: _TraceRef | None = Field(default=None, description="alone; or beside rates, of which it says the arrivals")

    @model_validator(mode="after")
    def _one_amount(self) -> Rates:
        given = [name for name in ("low", "high", "history", "series", "mean") if getattr(self, name) is not None]
        for end, other in (("low", "high"), ("high", "low")):
            if end in given and other not in given:
                raise wrong("this key is required", f'Add "{other}".', at=(other,))
        if self.low is not None and self.high is not None and self.low > self.high:
            raise wrong("low <= high", "Exchange them.", at=("low",))
        amounts = [name for name in given if name != "high"]
        if len(amounts) > 1:
            raise wrong(f"only one of {' and '.join(amounts)}", "Keep one of them.", at=(amounts[1],))
        if self.trace is not None:
            self._check_trace(self.trace, amounts)
        elif not amounts:
            raise wrong("low and high, history, series or trace", 'Write for instance {"low": 60, "high": 300}.')
        elif amounts == ["mean"]:
            raise wrong("a mean stands beside a trace", f'Write "rate_qps": {json.dumps(self.mean)}.', at=("mean",))
        return self

    def _check_trace(self, trace: TraceRef, amounts: Sequence[str]) -> None:
        if amounts and trace.period_s is not None:
            why = f"rates of each period are counted in the trace, and {amounts[0]} says others"
            raise wrong(why, f'Leave out "{amounts[0]}", or "period_s".', at=("trace", "period_s"))
        if trace.percentile is not None and trace.period_s is None:
            why = "a percentile of the rates of windows, and nothing says how long those are"
            raise wrong(why, 'Write "period_s" in place of stated rates, or leave it out.', at=("trace", "percentile"))


def _late(word: str) -> str:
    from hetplan.profiles.slo_sections import late_word

    return late_word(word)


def _different(names: tuple[str, ...]) -> tuple[str, ...]:
    if not names or len(set(names)) < len(names):
        raise wrong("a list of different ids, at least one", "Name each once.")
    return names


_SeveralIds = Annotated[tuple[Id, ...], AfterValidator(_different)]
ANSWERERS = ("model", "models", "family", "task", "pipeline")
"""The fields of an application of which one says what answers it."""


def answered_by(model: str) -> dict[str, object]:
    """The fields of an application that one model answers.

    >>> answered_by("net")["model"], answered_by("net")["task"]
    ('net', None)
    """
    return {**dict.fromkeys(ANSWERERS), "model": model}


Balancer = Literal[
    "round-robin", "shortest-queue", "random", "fewest-requests", "weighted-least", "split-then-fewest", "earliest",
    "threshold",
]  # fmt: skip


class App(Model):
    """One application: what it runs, how fast, how good, how much."""

    question: Id | None = Field(default=None, description="the question that plans it, as a part of a fleet")
    model: Id | None = Field(default=None, description="what answers: exactly one of model to pipeline, or candidates")
    models: _SeveralIds | None = None
    family: Id | _SeveralIds | None = None
    task: Id | None = None
    pipeline: Id | None = None
    latency: LatencyLimits = Field(default_factory=dict, description="p99_ms, ttft_p95_ms, tpot_p95_ms and so on")
    quality: _QualityTarget | None = None
    attainment: Fraction | None = Field(default=None, description="least share of requests within all limits at once")
    weight: Amount | None = None
    late: Annotated[str, AfterValidator(_late)] | None = None
    dispatch: Balancer | None = Field(
        default=None,
        description="the load balancer or dispatch rule that is there; else hetplan chooses (weighted-least: HAProxy's "
        "leastconn; of pools earliest, the replica that finishes first, or threshold, a split at a query size)",
    )
    network_ms_per_hop: Amount = 0.0
    network_ms_once: Amount = Field(
        default=0.0, description="between client and router, there and back, once per query"
    )
    rate_qps: Rate | Literal["max"] | Rates | None = Field(default=None, description="queries per second")
    streams: PositiveCount | None = Field(
        default=None, description="of queries, each sent once the one before is answered"
    )
    arrivals: Arrivals = Field(default_factory=Arrivals)
    mix: Mix | None = None
    lifetime_s: PositiveAmount | None = None
    deadline_s: PositiveAmount | None = Field(default=None, description="how soon a plan for this query is wanted")
    device: _Device | None = None
    candidates: tuple[_Candidate, ...] = ()

    @model_validator(mode="after")
    def _agrees(self) -> App:
        named = [name for name in ANSWERERS if getattr(self, name) is not None]
        if len(named) + bool(self.candidates) != 1:
            found = " and ".join([*named, *(["candidates"] if self.candidates else [])]) or "none"
            remedy = "Keep one of them." if named else 'Write for instance "model": "resnet50".'
            raise wrong(f"exactly one of {', '.join(ANSWERERS)} and candidates, not {found}", remedy)
        if self.arrivals.process == "empirical" and self.trace is None:
            remedy = 'Write "rate_qps": {"trace": {"file": "arrivals.csv"}}.'
            raise wrong("empirical arrivals need a trace", remedy, at=("arrivals",))
        return self

    @property
    def answered_by(self) -> str:
        """The field that says what answers: one of `ANSWERERS`, or candidates."""
        return next((name for name in ANSWERERS if getattr(self, name) is not None), "candidates")

    @property
    def named_models(self) -> tuple[str, ...] | None:
        """The models that are named one by one."""
        return self.models if self.model is None else (self.model,)

    @property
    def families(self) -> tuple[str, ...] | None:
        """The families of models that are named."""
        return (self.family,) if isinstance(self.family, str) else self.family

    @property
    def rates(self) -> Rates | None:
        """How much comes, where it is more than one number."""
        return self.rate_qps if isinstance(self.rate_qps, Rates) else None

    @property
    def stated_qps(self) -> float | None:
        """The rate that is stated as a number; None where it is the most, a range, a forecast or a series."""
        if isinstance(self.rate_qps, int | float):
            return float(self.rate_qps)
        mean = None if self.rates is None else self.rates.mean
        return None if mean == "max" else mean

    @property
    def wants_most(self) -> bool:
        """Whether the most rate is asked for."""
        return self.rate_qps == "max" or (self.rates is not None and self.rates.mean == "max")

    @property
    def range_qps(self) -> tuple[float, float] | None:
        """The lowest and the highest rate, where policies for a range are asked for."""
        rates = self.rates
        return None if rates is None or rates.low is None or rates.high is None else (rates.low, rates.high)

    @property
    def history(self) -> tuple[float, ...] | None:
        """The rates of the past, of which a forecast is made."""
        return None if self.rates is None else self.rates.history

    @property
    def series(self) -> tuple[float, ...] | None:
        """The rate in each period."""
        return None if self.rates is None else self.rates.series

    @property
    def trace(self) -> TraceRef | None:
        """The recorded arrivals."""
        return None if self.rates is None else self.rates.trace

    def at_rate(self, rate_qps: float) -> App:
        """Itself at one rate; a trace goes on saying how queries come, unless it says the rates of periods."""
        trace = self.trace
        rates = rate_qps if trace is None or trace.period_s is not None else Rates(mean=rate_qps, trace=trace)
        return self.model_copy(update={"rate_qps": rates})

    @property
    def balancing(self) -> Literal["round_robin", "shortest_queue", "random"] | None:
        """The load balancer that is there, as dispatch rules of plans name it: of whole queries, not of text."""
        known = ("round-robin", "shortest-queue", "random")
        return cast(Any, self.dispatch.replace("-", "_")) if self.dispatch in known else None

    @property
    def targets(self) -> tuple[LatencyTarget, ...]:
        """The limits on latency in one order: of responses, first tokens and times per token, the percentile rising."""
        return _targets(tuple(self.latency.items()))


class Slo(Model):
    """The wish."""

    format: str = "hetplan/slo/1.0"
    requires: tuple[str, ...] = ()
    objective: Objective = ()
    limits: WishLimits = Field(default_factory=WishLimits)
    change: Change = Field(default_factory=Change)
    robust: Robust = Field(default_factory=Robust)
    horizon: Horizon = Field(default_factory=Horizon)
    apps: Named[App] = Field(default_factory=dict)
    extensions: dict[str, Any] = Field(default_factory=dict)

    @property
    def goals(self) -> tuple[str, ...]:
        """What is sought, in order of importance: the word of each term; "" for a front."""
        return tuple("" if term.startswith("front ") else term.partition(" ")[2] for term in self.objective)

    @property
    def front(self) -> tuple[Traded, ...] | None:
        """What is sought at once; None without a front."""
        return next((cast(Any, tuple(term.split()[1:])) for term in self.objective if term.startswith("front ")), None)

    @model_validator(mode="after")
    def _fits_together(self) -> Slo:
        for number, term in enumerate(self.objective):
            if term in self.objective[:number]:
                raise wrong("this term is there twice", "Drop it.", at=("objective", number))
        for app_id, app in self.apps.items():
            series = app.series
            if series is not None and len(series) != self.horizon.periods:
                why = f"one rate per period: the horizon has {self.horizon.periods}, not {len(series)}"
                raise wrong(why, "Mend horizon.periods or the series.", at=("apps", app_id, "rate_qps", "series"))
        return self
