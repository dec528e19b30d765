"""The service law of a load: class of query x batch x statistic -> milliseconds; plain data, read without NumPy.

A law is a table and the settings at which it is read; `table_points` says where on its axes a batch of queries is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hetplan.profiles.multilinear import Cells, OffTable
from hetplan.serving.table_points import ORDER, At, point_of

if TYPE_CHECKING:
    from hetplan.serving.distribution import Distribution

__all__ = ["Law", "OffTable", "same_value"]


def same_value(one: float, other: float) -> bool:
    """Whether two values are the same, as far as the 12 significant digits of a plan can tell."""
    return one == other or _digits(one) == _digits(other)


def _digits(value: float) -> str:
    return format(float(value), ".12g")


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
        percentiles = sum(name in data for name in ORDER if name.startswith("p"))
        # Whether times vary by more than a mean and a standard deviation say; whether they vary at all.
        self.has_percentiles = percentiles + ("mean" in data) > 1 and percentiles > 0 and not self.is_rate
        self.has_spread = self.has_percentiles or ("std" in data and "mean" in data and not self.is_rate)
        self._cells: dict[str, Cells] = {}

    def point(self, at: At, size: int = 1) -> dict[str, float]:
        """Where on the table a batch of `size` queries of one class is."""
        return point_of(self.axes, self.settings, at, size)

    def read(self, at: At, size: int = 1, statistic: str = "mean") -> tuple[float, bool]:
        """The law's number at a class and batch, and whether it lies outside what was measured.

        Milliseconds (of a table of rates, the time for which one request occupies its server); `OffTable` where there
        is none.
        """
        if self.fixed_ms is not None:
            return (0.0 if statistic == "std" else self.fixed_ms), False
        value, beyond = self._law_cells(statistic).read(self.point(at, size))
        if self.is_rate:
            value = 1000.0 / value if value > 0.0 else math.inf
        return value, beyond

    def ms(self, at: At, size: int = 1, statistic: str = "mean") -> float:
        """Milliseconds of a batch of `size` queries of one class."""
        return self.read(at, size, statistic)[0]

    def stated(self, at: At, size: int = 1) -> dict[str, float]:
        """All that is stated of the time of a batch of `size` queries of one class; what was not measured is not."""
        found = {}
        for name in (*self.statistics, "std") if self.has_spread else ():
            try:
                found[name] = self.ms(at, size, name)
            except OffTable:
                continue
        return found

    def distribution(self, at: At, size: int = 1, *, times: float = 1.0) -> Distribution | None:
        """The distribution of the time of a batch of `size` queries of one class; None where it does not vary.

        `times` makes all times longer.
        """
        from hetplan.serving.distribution import distribution_of

        stated = self.stated(at, size)
        return distribution_of(**{name: times * value for name, value in stated.items()}) if stated else None

    def _law_cells(self, statistic: str) -> Cells:
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
