"""Sections that not every SLO has: quality, a trace, an own device, candidates. Loaded when stated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field, model_validator

from hetplan.profiles.fields import Amount, Key, Model, Money, PositiveAmount, Real, Sha256, wrong
from hetplan.profiles.pipelines import Link

__all__ = ["Candidate", "Device", "QualityTarget", "TraceRef", "check_arrivals", "late_word"]


_PARAMETERS = {"gamma": ("shape",), "mmpp": ("relative_rates", "stay_s"), "diurnal": ("peak", "period_s")}


class QualityTarget(Model):
    """A floor (or, for a metric where lower is better, a ceiling)."""

    min: Real | None = None
    max: Real | None = None

    @model_validator(mode="after")
    def _says_something(self) -> QualityTarget:
        if self.min is None and self.max is None:
            raise wrong('"min" or "max"', 'Write for instance {"min": 0.8}, or drop the target.')
        if self.min is not None and self.max is not None and self.min > self.max:
            raise wrong("min <= max", "Exchange them.", at=("min",))
        return self


class TraceRef(Model):
    """A recorded trace: a CSV file beside the SLO file, and what to do with it."""

    file: str = Field(min_length=1, description="relative to the SLO file, in its folder or below")
    sha256: Sha256 | None = None
    scale: PositiveAmount = Field(default=1.0, description="times as many arrivals")
    compress: PositiveAmount = Field(default=1.0, description="times as fast: an hour becomes 3600/compress seconds")
    period_s: PositiveAmount | None = Field(default=None, description="over so long arrivals are counted into rates")
    percentile: Real | None = Field(default=None, gt=0, le=100, description="of these rates, in each period planned")


class Device(Model):
    """An application's own device, where it differs from the profile's."""

    relative_time: PositiveAmount | None = None
    links: tuple[Link, ...] = ()


class Candidate(Model):
    """A plan that a query may get, for packing without a search."""

    demand: dict[Key, Amount] = Field(min_length=1)
    weight: Amount | None = None
    price_per_hour: Money | None = None
    label: str | None = None


def check_arrivals(process: str, stated: Mapping[str, Any]) -> None:
    """Arrivals have the parameters of their process, and no others."""
    wanted = _PARAMETERS.get(process, ())
    for name in ("shape", "relative_rates", "stay_s", "peak", "period_s"):
        given = stated[name] is not None
        if given and name not in wanted:
            raise wrong(f"process {process} has no {name}", "Drop it, or change the process.", at=(name,))
        if not given and name in wanted:
            raise wrong(f"process {process} needs {name}", f'Add "{name}".', at=(name,))
    if stated["peak"] is not None and stated["peak"] < 1:
        raise wrong("a peak is at least the mean: 1 or more", "Write peak rate / mean rate.", at=("peak",))
    if stated["relative_rates"] is not None and stated["stay_s"] is not None:
        _check_states(stated["relative_rates"], stated["stay_s"])


def _check_states(rates: tuple[float, ...], stays: tuple[float, ...]) -> None:
    """The states of mmpp arrivals: a stay for each, and rates whose mean over the stays is 1."""
    if len(rates) != len(stays) or len(rates) < 2:
        raise wrong("one stay per rate, two states or more", "Give both lists one entry per state.", at=("stay_s",))
    mean = sum(rate * stay for rate, stay in zip(rates, stays, strict=True)) / sum(stays)
    if abs(mean - 1) > 1e-6:
        better = ", ".join(f"{rate / mean:.6g}" for rate in rates) if mean > 0 else "at least one above 0"
        raise wrong(
            f"relative rates average 1 over the stays, not {mean:g}", f"Write [{better}].", at=("relative_rates",)
        )


_LATE = {
    "serve": "serve",
    "none": "serve",
    "drop": "drop",
    "reroute": "reroute",
    "opportunistic": "reroute",
    "drop-last-task": "drop-last-task",
    "last-task": "drop-last-task",
    "drop-per-task": "drop-per-task",
    "per-task": "drop-per-task",
}
"""What may be done with a late query, the papers' words among it."""


def late_word(word: str) -> str:
    """The rule that a word for late queries names."""
    known = _LATE.get(word.lower().replace("_", "-"))
    if known is None:
        listed = ", ".join(dict.fromkeys(_LATE.values()))
        raise wrong(f"one of {listed}", 'Leave it out for "serve".')
    return known
