"""The third protocol: a question that can be a part of a larger one says what it would take, and settles.

`hetplan.testing.part_checks` holds an implementation to all that is said here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from hetplan.planner.contract import Ask
    from hetplan.planner.forms.milp import Builder
    from hetplan.profiles.plan_parts import Part as PlanPart

__all__ = ["Cheapest", "Part", "Settled"]


@dataclass(frozen=True)
class Cheapest:
    """The least cost at which machines carry a rate (infinite where none do), and those machines per hardware."""

    cost: float
    machines: tuple[int, ...]


@dataclass(frozen=True)
class Settled:
    """The part of a plan that these machines run, or why they cannot."""

    part: PlanPart | None
    why: str = ""


@runtime_checkable
class Part(Protocol):
    """One application of one question, as machines for a rate. More machines, or a lower rate, are never worse."""

    app: str
    question: str
    hardware: tuple[str, ...]
    """The hardware that it may run on; machines are counted in this order."""

    def rows(self, m: Builder, machines: Sequence[NDArray[np.int64]], rate: float, about: str) -> None:
        """Rows that hold for all machines that carry the rate: `machines` are the columns to sum, per hardware.

        They may allow machines that do not: `carries` then says so, and rows asked for afterwards exclude them.
        """
        ...

    def carries(self, machines: Sequence[float], rate: float) -> bool:
        """Whether so many machines per hardware carry the rate."""
        ...

    def cheapest(self, prices: Sequence[float], rate: float, ask: Ask) -> Cheapest:
        """The least cost at these prices per machine, and machines that have it."""
        ...

    def settle(self, offers: Mapping[str, int], rate: float) -> Settled:
        """What runs on so many machines of each offer at this rate, as the question itself plans it."""
        ...
