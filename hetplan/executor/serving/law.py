"""How long a batch takes, by a table in plain data: read as `Table.read` reads it, without numpy, and remembered.

A query says where on the table it stands (`at`: {"batch": 64}); a batch of queries that each carry a batch of their
own is as large as all of them. Times are drawn as the simulator draws them.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

__all__ = ["OffTable", "ServiceLaw"]

At = Mapping[str, float]
_ORDER = ("mean", "p50", "p90", "p95", "p99", "max")


class OffTable(ValueError):
    """A query stands where the table holds nothing."""


class ServiceLaw:
    """The law of one load: mean times, and draws around them.

    >>> law = ServiceLaw({"quantity": "latency_ms", "outside": "clamp", "axes": {"batch": [1, 8]}, "mean": [10, 80]})
    >>> law.mean_ms({}, 1), law.mean_ms({}, 4), law.mean_ms({"batch": 8}, 2)
    (10.0, 40.0, 80.0)
    >>> ServiceLaw({"ms": 5}).mean_ms({"batch": 9}, 3)
    5.0
    """

    def __init__(self, law: Mapping[str, Any], *, statistic: str = "table", times: float = 1.0, seed: int = 0) -> None:
        self._law, self._times = law, times
        self._fixed_ms = float(law["ms"]) if "ms" in law else None
        self._fixed_at: At = law.get("at", {})
        self._rate = law.get("quantity") == "requests_per_s"
        held = [name for name in _ORDER if name in law]
        drawn = statistic in ("table", "exponential")
        self._statistic = (held[0] if held else "mean") if drawn else statistic
        if self._fixed_ms is None and self._statistic not in law:
            raise OffTable(f"the table has no {self._statistic}, only {', '.join(held)}")
        self._spread = statistic == "table" and "std" in law and "mean" in law and not self._rate
        self._exponential = statistic == "exponential"
        self._random = Random(seed)
        self._known: dict[tuple[Any, int], tuple[float, float, float, float]] = {}

    def mean_ms(self, at: At, size: int) -> float:
        """The time of a batch of this size, all of this class."""
        return self._cell(at, size)[0]

    def draw_ms(self, ats: Sequence[At]) -> float:
        """The time that this batch takes: that of its slowest class, scattered as the table says."""
        size = len(ats)
        mean, mu, sigma, most = max(self._cell(at, size) for at in ats) if size > 1 else self._cell(ats[0], size)
        if self._exponential:
            return mean * self._random.expovariate(1.0)
        if sigma == 0.0:
            return mean
        return min(math.exp(mu + sigma * self._random.gauss(0.0, 1.0)), most)

    def _cell(self, at: At, size: int) -> tuple[float, float, float, float]:
        key = (tuple(at.items()), size)
        found = self._known.get(key)
        if found is None:
            if len(self._known) > 10_000:
                self._known.clear()
            found = self._known[key] = self._computed(at, size)
        return found

    def _computed(self, at: At, size: int) -> tuple[float, float, float, float]:
        if self._fixed_ms is not None:
            return self._fixed_ms * self._times, 0.0, 0.0, math.inf
        point = self._point(at, size)
        read = self._read(self._statistic, point)
        mean = self._times * (1000.0 / read if self._rate else read)
        if not self._spread:
            return mean, 0.0, 0.0, math.inf
        std = self._times * self._read("std", point)
        most = self._times * self._read("max", point) if "max" in self._law else math.inf
        sigma2 = math.log(1.0 + (std / mean) ** 2)
        return mean, math.log(mean) - sigma2 / 2.0, math.sqrt(sigma2), most

    def _point(self, at: At, size: int) -> dict[str, float]:
        point = {}
        for axis, steps in self._law["axes"].items():
            if axis == "batch":
                # One below the smallest that was measured takes as long as that.
                point[axis] = max(float(at.get("batch", 1.0)) * size, float(steps[0]))
            elif axis in at:
                point[axis] = float(at[axis])
            elif axis in self._fixed_at:
                point[axis] = float(self._fixed_at[axis])
            else:
                raise OffTable(f'the query does not say its {axis}: send "at": {{"{axis}": ...}}')
        return point

    def _read(self, statistic: str, point: Mapping[str, float]) -> float:
        value = self._blend(self._law[statistic], list(self._law["axes"].items()), point)
        if not value > 0.0 and statistic != "std":
            raise OffTable(f"the table gives {value:g} at {dict(point)}")
        return value

    def _blend(self, cells: Any, axes: Sequence[tuple[str, Sequence[float]]], point: Mapping[str, float]) -> float:
        """Multilinear: along the first axis, between what the others give."""
        if not axes:
            if cells is None:
                raise OffTable(f"nothing was measured at {dict(point)}")
            return float(cells)
        (name, steps), rest = axes[0], axes[1:]
        value, outside = point[name], self._law.get("outside", "refuse")
        if not steps[0] <= value <= steps[-1]:
            if outside == "refuse" or (outside == "linear" and len(steps) == 1):
                raise OffTable(f"{name} {value:g} is outside the table ({steps[0]:g} to {steps[-1]:g})")
            if outside == "clamp":
                value = min(max(value, steps[0]), steps[-1])
        if len(steps) == 1:
            return self._blend(cells[0], rest, point)
        low = min(max(bisect_right(steps, value) - 1, 0), len(steps) - 2)
        part = (value - steps[low]) / (steps[low + 1] - steps[low])
        below = self._blend(cells[low], rest, point) if part != 1.0 else 0.0
        above = self._blend(cells[low + 1], rest, point) if part != 0.0 else 0.0
        return below * (1.0 - part) + above * part
