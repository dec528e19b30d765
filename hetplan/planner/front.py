"""Fronts: plans of which none is beaten in all that is sought, as a problem hands them back and as outcomes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

__all__ = ["FrontOf"]

Point = TypeVar("Point")
Other = TypeVar("Other")


@dataclass(frozen=True)
class FrontOf(Generic[Point]):
    """Points with their figures (of `of`, in the user's units), and a draft or an outcome each.

    `whole`: all that could be a point was measured. Else `chance`, where it is known, is how likely under the search's
    model no setting that was not measured would extend the front by more than a twentieth of its range.
    """

    of: tuple[str, ...]
    points: tuple[tuple[Mapping[str, float], Point], ...]
    whole: bool = False
    chance: float | None = None

    def each(self, change: Callable[[Point], Other]) -> FrontOf[Other]:
        """The same front with something else at every point."""
        points = tuple((figures, change(point)) for figures, point in self.points)
        return FrontOf(self.of, points, self.whole, self.chance)
