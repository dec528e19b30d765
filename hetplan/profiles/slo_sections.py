"""Sections that few SLOs have: a recorded trace, an application's own device, candidate plans. Loaded when stated."""

from __future__ import annotations

from pydantic import Field

from hetplan.profiles.fields import Amount, Key, Model, Money, PositiveAmount, Real, Sha256
from hetplan.profiles.profile import Link

__all__ = ["Candidate", "Device", "TraceRef"]


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
