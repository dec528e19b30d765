"""The service law of a load: class of query x batch x statistic -> milliseconds; plain data, read without NumPy.

A law is a table and the settings at which it is read. **One order of precedence** says where on an axis of the table a
batch of queries is, the first that says it wins:

1. the class of the query, by the mix (a query that carries a ``batch`` of its own makes the batch larger still);
2. what the load sets: its batch as ``batch`` (a batch below the smallest that was measured takes as long as that),
   then its knobs;
3. the ``at`` of its run;
4. the knobs of its variant.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hetplan.profiles.multilinear import Cells, OffTable

__all__ = ["ORDER", "Law", "OffTable", "answering", "same_value", "settings_of"]

ORDER = ("mean", "p50", "p90", "p95", "p99", "max")
"""The statistics of a time, each no smaller than most times below it; `answering` goes along them."""

At = Mapping[str, float]


def same_value(one: float, other: float) -> bool:
    """Whether two values are the same, as far as the 12 significant digits of a plan can tell."""
    return one == other or _digits(one) == _digits(other)


def _digits(value: float) -> str:
    return format(float(value), ".12g")


def answering(held: Iterable[str], wanted: str) -> str:
    """The statistic that answers where `wanted` may be missing: itself, else the next higher one, else the next lower.

    So what is missing is never made to look faster while something slower was measured. One rule for every question;
    who takes another than was wanted says so (W-statistic), and refuses it where the user named it by an option.

    >>> answering(["p50", "p99"], "p95"), answering(["p50", "p99"], "mean"), answering(["mean", "p50"], "p95")
    ('p99', 'p50', 'p50')
    """
    known = [name for name in ORDER if name in set(held)]
    if wanted in known or wanted not in ORDER or not known:
        return wanted
    higher = [name for name in known if ORDER.index(name) > ORDER.index(wanted)]
    return higher[0] if higher else known[-1]


def settings_of(*, knobs: Mapping[str, Any], at: At, variant_knobs: Mapping[str, Any]) -> dict[str, float]:
    """Where a load is on the axes that no query names: its knobs, then its run's `at`, then its variant's knobs.

    >>> settings_of(knobs={"size": 320}, at={"size": 640, "co_load": 1}, variant_knobs={"co_load": 0, "mode": "fast"})
    {'co_load': 1.0, 'size': 320.0}
    """
    merged = {**variant_knobs, **at, **knobs}
    return {name: float(value) for name, value in merged.items() if isinstance(value, int | float)}


class Law:
    """How long a load takes, by a table in plain data, or by a fixed time.

    >>> law = Law({"quantity": "latency_ms", "outside": "refuse", "axes": {"batch": [1, 8]}, "mean": [10, 80]})
    >>> law.ms({}, 4), law.ms({"batch": 2}, 3), law.statistics
    (40.0, 60.0, ('mean',))
    >>> Law({"ms": 5}).ms({"batch": 9}, 3)
    5.0
    """

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.data = data
        self.fixed_ms = float(data["ms"]) if "ms" in data else None
        self.axes: Mapping[str, Sequence[float]] = data.get("axes", {})
        self.settings: At = data.get("at", {})
        self.is_rate = data.get("quantity") == "requests_per_s"
        self.statistics = tuple(name for name in ORDER if name in data)
        self.has_spread = "std" in data and "mean" in data and not self.is_rate
        self._cells: dict[str, Cells] = {}

    def point(self, at: At, size: int = 1) -> dict[str, float]:
        """Where on the table a batch of `size` queries of one class is."""
        point: dict[str, float] = {}
        for axis, steps in self.axes.items():
            if axis == "batch":
                point[axis] = max(float(at.get("batch", 1.0)) * size, float(steps[0]))
            elif axis in at:
                point[axis] = float(at[axis])
            elif axis in self.settings:
                point[axis] = float(self.settings[axis])
            else:
                raise OffTable(
                    f'nothing says where on the axis {axis} of its table a query is ("at": {{"{axis}": ...}})',
                    'Add it to the application\'s "mix", or to the run\'s "at".',
                )
        return point

    def read(self, at: At, size: int = 1, statistic: str = "mean") -> tuple[float, bool]:
        """The law's number at a class and batch, and whether it lies outside what was measured.

        Milliseconds (of a table of rates, the time for which one request occupies its server); `OffTable` where there
        is none.
        """
        if self.fixed_ms is not None:
            return (0.0 if statistic == "std" else self.fixed_ms), False
        value, beyond = self._held(statistic).read(self.point(at, size))
        if self.is_rate:
            value = 1000.0 / value if value > 0.0 else math.inf
        return value, beyond

    def ms(self, at: At, size: int = 1, statistic: str = "mean") -> float:
        """Milliseconds of a batch of `size` queries of one class."""
        return self.read(at, size, statistic)[0]

    def _held(self, statistic: str) -> Cells:
        cells = self._cells.get(statistic)
        if cells is None:
            if statistic not in self.data:
                held = ", ".join(self.statistics)
                raise OffTable(f"the table has no {statistic}", f"Measure it, or ask for one that is there: {held}.")
            cells = self._cells[statistic] = Cells(
                self.axes,
                self.data[statistic],
                outside=self.data.get("outside", "refuse"),
                quantity=self.data.get("quantity", "latency_ms"),
                may_be_zero=self.is_rate,
                statistic=statistic,
            )
        return cells
