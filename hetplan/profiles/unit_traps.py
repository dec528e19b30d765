"""Numbers that are probably in the wrong unit, which a plan warns of.

Seconds written as milliseconds, percent as a fraction, a price per month, bytes or MiB as GiB: each is wrong by a
factor that gives a plan of no use without any error, so the usual ranges are written down here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from hetplan.profiles.fields import NANO
from hetplan.profiles.profile import Profile
from hetplan.profiles.slo import Slo
from hetplan.profiles.tables import STATISTICS, Table

__all__ = ["Suspicion", "suspicious_profile", "suspicious_slo"]

Suspicion = tuple[str, str, str]
"""(code, place, text), as `Inputs.warnings` holds them."""


@dataclass(frozen=True)
class _Usual:
    """The usual range of a key, and what a number outside it might be."""

    low: float
    high: float
    below: str
    above: str

    def complaint(self, value: float) -> str:
        if value and value < self.low:
            return self.below
        return self.above if value > self.high else ""


_LATENCY = _Usual(1.0, 1e5, "are these seconds? {key} is in milliseconds", "is this microseconds?")
_SECONDS = _Usual(0.0, 36_000.0, "", "are these milliseconds? {key} is in seconds")
_MEMORY = _Usual(1e-3, 16_384.0, "is this TiB?", "are these MiB or bytes? {key} is in GiB")
_MEMORY_GPU = _Usual(1e-3, 1024.0, "is this TiB?", "are these MiB or bytes? {key} is in GiB")
_PRICE = _Usual(0.0, 150.0, "", "is this per month or year? Prices are per hour")
"""The dearest machines that can be rented by the hour cost about 100."""
_PRICE_ELSEWHERE = _Usual(0.0, 1e5, "", _PRICE.above)
_LIKE_THE_DOLLAR = frozenset({"USD", "EUR", "GBP", "CHF", "CAD", "AUD", "NZD", "SGD"})
_OUTLIER = 100.0
"""Times the median of the other offers: no profile compares machines so far apart, but a month has 730 hours."""
_BANDWIDTH = _Usual(0.01, 1e6, "is this Gbit/s?", "are these bits per second? {key} is in Mbit/s")


def _unusual(usual: _Usual, value: float | None, at: str, key: str) -> Iterator[Suspicion]:
    complaint = usual.complaint(value) if value is not None else ""
    if complaint:
        yield ("W-unit", at, f"{value:g} is unusual: {complaint.format(key=key)}")


def _memory(needs: dict[str, float], at: str) -> Iterator[Suspicion]:
    for key, amount in needs.items():
        # Nearly all are between what is small and what is large of either kind.
        if key.endswith("_gib") and not _MEMORY_GPU.low <= amount <= _MEMORY_GPU.high:
            yield from _unusual(_MEMORY_GPU if "gpu" in key else _MEMORY, amount, f"{at}.{key}", key)


def suspicious_profile(profile: Profile) -> Iterator[Suspicion]:
    """Numbers of a profile that are possible, but look like another unit."""
    for name, hardware in profile.hardware.items():
        at = f"hardware.{name}"
        yield from _unusual(_SECONDS, hardware.startup_s, f"{at}.startup_s", "startup_s")
        yield from _memory(hardware.provides, f"{at}.provides")
    yield from _prices(profile)
    for number, link in enumerate(profile.links):
        at = f"links[{number}]"
        yield from _unusual(_BANDWIDTH, link.bandwidth_mbps, f"{at}.bandwidth_mbps", "bandwidth_mbps")
        yield from _unusual(_Usual(0.001, 1e4, "are these seconds?", "is this microseconds?"), link.latency_ms, at, "")
    for name, variant in profile.variants.items():
        for number, run in enumerate(variant.runs):
            at = f"variants.{name}.runs[{number}]"
            if run.load_s > _SECONDS.high:
                yield from _unusual(_SECONDS, run.load_s, f"{at}.load_s", "load_s")
            if run.price_per_hour is not None and run.price_per_hour > _PRICE.high * NANO:
                yield from _unusual(_PRICE, run.price_per_hour / NANO, f"{at}.price_per_hour", "price_per_hour")
            if run.needs:
                yield from _memory(run.needs, f"{at}.needs")
    for name, table in profile.tables.items():
        yield from _suspicious_table(name, table)
    for name, engine in profile.engines.items():
        from hetplan.profiles.engine_faults import suspicions_of_engine

        for steps, text in suspicions_of_engine(engine):
            yield ("W-unit", f"engines.{name}.{'.'.join(map(str, steps))}", text)


def _prices(profile: Profile) -> Iterator[Suspicion]:
    """Prices that no machine has, or that are far above all others of the profile."""
    prices = {name: offer.price_per_hour / NANO for name, offer in profile.offers.items() if offer.per is None}
    for name, offer in profile.offers.items():
        at, price = f"offers.{name}.price_per_hour", offer.price_per_hour / NANO
        usual = _PRICE if offer.currency in _LIKE_THE_DOLLAR else _PRICE_ELSEWHERE
        found = list(_unusual(usual, price, at, "price_per_hour"))
        others = [other for key, other in prices.items() if key != name and other > 0]
        if not found and name in prices and others and price > _OUTLIER * median(others):
            text = f"{price:g} is {price / median(others):.0f} times the median of the other offers: {usual.above}"
            found = [("W-unit", at, text)]
        yield from found


def _suspicious_table(name: str, table: Table) -> Iterator[Suspicion]:
    """A whole table below a tenth of a millisecond, or above an hour, was written in another unit."""
    if table.quantity not in ("latency_ms", "ttft_ms", "tpot_ms"):
        return
    statistic = next(one for one in STATISTICS if one != "std" and getattr(table, one) is not None)
    cells = [getattr(table, statistic)]
    while cells and isinstance(cells[0], tuple):
        cells = [cell for row in cells for cell in row]
    known = [cell for cell in cells if cell is not None]
    if known and max(known) < 0.1:
        text = f"every {statistic} is below 0.1 ms: are these seconds? {table.quantity} is in milliseconds"
        yield ("W-unit", f"tables.{name}.{statistic}", text)
    elif known and min(known) > 3.6e6:
        yield ("W-unit", f"tables.{name}.{statistic}", f"every {statistic} is above an hour: is this microseconds?")


def suspicious_slo(slo: Slo) -> Iterator[Suspicion]:
    """Numbers of an SLO that are possible, but look like another unit."""
    if slo.limits.cost_per_hour is not None:
        budget = _Usual(0.0, 1e5, "", "is this per month or year? Budgets are per hour")
        yield from _unusual(budget, slo.limits.cost_per_hour / NANO, "limits.cost_per_hour", "cost_per_hour")
    if slo.horizon.period_s < 1:
        yield ("W-unit", "horizon.period_s", f"{slo.horizon.period_s:g} s is a short period: are these hours or days?")
    for name, app in slo.apps.items():
        for number, target in enumerate(app.latency):
            at = f"apps.{name}.latency[{number}].max_ms"
            yield from _unusual(_LATENCY, target.max_ms, at, "max_ms")
        for network_ms in (app.network_ms_per_hop, app.network_ms_once):
            yield from _unusual(_Usual(0.0, 1e4, "", "is this microseconds?"), network_ms, f"apps.{name}", "")
        for stated in _rates(app.demand.rate_qps, app.demand.history_qps):
            rates = _Usual(0.0, 1e8, "", "is this per hour or day? Rates are per second")
            yield from _unusual(rates, stated, f"apps.{name}.demand", "rate_qps")


def _rates(rate: object, history: tuple[float, ...] | None) -> Iterator[float]:
    if isinstance(rate, float):
        yield rate
    if history:
        yield max(history)
