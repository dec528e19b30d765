"""Fronts: plans of which none is beaten in all that is sought, as a problem hands them back and as outcomes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

__all__ = ["FrontOf", "unbeaten"]

Point = TypeVar("Point")
Other = TypeVar("Other")


@dataclass(frozen=True)
class FrontOf(Generic[Point]):
    """Points with their figures (of `of`, in the user's units), and a draft or an outcome each.

    `whole`: all that could be a point was measured. Else `chance`, where it is known, is how likely under the search's
    model no setting that was not measured would extend the front by more than a twentieth of its range.
    `queued`: queries wait for each other, and a formula said how long when points were chosen.
    """

    of: tuple[str, ...]
    points: tuple[tuple[Mapping[str, float], Point], ...]
    whole: bool = False
    chance: float | None = None
    queued: bool = False

    def each(self, change: Callable[[Point], Other]) -> FrontOf[Other]:
        """The same front with something else at every point."""
        points = tuple((figures, change(point)) for figures, point in self.points)
        return FrontOf(self.of, points, self.whole, self.chance, self.queued)


def unbeaten(rows: Sequence[tuple[int, tuple[float, ...]]]) -> list[tuple[int, tuple[float, ...]]]:
    """Those that no other one beats: no larger in any figure, and smaller in one; of equal ones the first.

    >>> unbeaten([(0, (1.0, 2.0)), (1, (2.0, 1.0)), (2, (2.0, 2.0)), (3, (1.0, 2.0))])
    [(0, (1.0, 2.0)), (1, (2.0, 1.0))]
    """
    kept: list[tuple[int, tuple[float, ...]]] = []
    for number, figures in sorted(rows, key=lambda row: row[1]):
        if not any(all(a <= b for a, b in zip(other, figures, strict=True)) for _, other in kept):
            kept.append((number, figures))
    return kept
