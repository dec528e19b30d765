"""What a pool is made of: types of machines, their offers, and how long classes of queries take on them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hetplan.profiles.profile import Run

__all__ = ["MOST_INSTANCES", "Column", "Matrix", "Times", "Type"]

MOST_INSTANCES = 10**9
"""Above this many of one type engines no longer count exactly."""

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Type:
    """A hardware that runs the variant; `most` (machines) is None where nothing but stock and money limits it."""

    run: Run
    least: int
    most: int | None
    per_machine: int = 1

    @property
    def hardware(self) -> str:
        """Its hardware's id."""
        return self.run.hardware

    @property
    def is_rate(self) -> bool:
        """Whether its table gives requests per second, several being served at once, and not times of single ones."""
        return self.run.latency is None

    @property
    def table_id(self) -> str:
        """The table of its times or rates."""
        return self.run.latency or self.run.rate or ""


@dataclass(frozen=True)
class Column:
    """An offer of a type: what one machine costs per hour (a count of 1e-9) and how many there are."""

    offer: str | None
    type: int
    price: int
    stock: int | None


@dataclass(frozen=True)
class Times:
    """Per class and type: the mean time one query holds an instance, and the statistic compared with the target.

    A class that a type cannot serve at all takes infinitely long. `extrapolated` marks what was read outside a table.
    """

    mean_ms: Matrix
    compared_ms: Matrix
    std_ms: Matrix | None
    max_ms: Matrix | None
    extrapolated: NDArray[np.bool_]
