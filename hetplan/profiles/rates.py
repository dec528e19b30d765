"""Demand as a file of rates over time: CSV with the columns `start_s` and `rate_qps`, in even steps.

>>> RatesOverTime(600.0, (2.0, 4.0, 6.0)).cut(0.0, 0.25).rates_qps
(2.0, 4.0)
"""

from __future__ import annotations

import csv
import io
import math
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from hetplan.errors import InputError
from hetplan.profiles.read_text import read_text

__all__ = ["RatesOverTime", "read_rates"]

_REMEDY = "Write a header start_s,rate_qps, and a line per step of equal length."


@dataclass(frozen=True)
class RatesOverTime:
    """Rates of successive steps of `period_s`."""

    period_s: float
    rates_qps: tuple[float, ...]

    def cut(self, first_h: float, last_h: float) -> RatesOverTime:
        """The steps that begin from one hour on and before another."""
        begin, end = (max(0, math.ceil(hour * 3600.0 / self.period_s - 1e-9)) for hour in (first_h, last_h))
        return replace(self, rates_qps=self.rates_qps[begin:end])

    def times(self, factor: float) -> RatesOverTime:
        """The same course at another height."""
        return replace(self, rates_qps=tuple(factor * rate for rate in self.rates_qps))

    @property
    def mean_qps(self) -> float:
        """Over time."""
        return sum(self.rates_qps) / max(len(self.rates_qps), 1)


def read_rates(path: Path) -> RatesOverTime:
    """The rates in a file; InputError names the line that is wrong."""

    def fault(why: str, value: object = "", line: int | None = None) -> InputError:
        at = f"line {line}" if line is not None else ""
        return InputError.one(file=str(path), path=at, value=value, why=why, remedy=_REMEDY)

    rows = list(csv.DictReader(io.StringIO(read_text(path))))
    if len(rows) < 2 or not {"start_s", "rate_qps"} <= set(rows[0]):
        raise fault("rates over time have the columns start_s and rate_qps, and two lines or more")
    starts, rates = list[float](), list[float]()
    for number, row in enumerate(rows, start=2):
        for name, into in (("start_s", starts), ("rate_qps", rates)):
            try:
                into.append(float(row[name] or ""))
            except (TypeError, ValueError):
                raise fault(f"{name} is no number", row[name], number) from None
        if not (0.0 <= rates[-1] < math.inf and math.isfinite(starts[-1])):
            raise fault("a time is finite and a rate 0 or more", row["start_s"] + ", " + row["rate_qps"], number)
    step = starts[1] - starts[0]
    for number, (before, after) in enumerate(pairwise(starts), start=3):
        if not step > 0 or abs(after - before - step) > 1e-6 * max(step, 1.0):
            raise fault(f"the steps are not of equal length: {step:g} s, then {after - before:g} s", after, number)
    return RatesOverTime(step, tuple(rates))
