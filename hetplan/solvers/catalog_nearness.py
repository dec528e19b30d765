"""What is near what in a catalog: coordinates scaled to one range each."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["Nearness"]


class Nearness:
    """Candidates' coordinates, each axis scaled by its range.

    >>> near = Nearness(np.array([[0, 0], [4, 0], [0, 100]]))
    >>> near.nearest(np.array([0.0, 60.0]), np.array([0, 2]))
    2
    """

    def __init__(self, place: NDArray[np.int64]) -> None:
        low, high = place.min(axis=0), place.max(axis=0)
        self.scale: NDArray[np.float64] = np.maximum(high - low, 1).astype(np.float64)
        self.points: NDArray[np.float64] = place / self.scale

    def nearest(self, point: NDArray[np.float64], among: NDArray[np.int64]) -> int:
        """The candidate nearest to a point in unscaled coordinates; of equally near ones the first."""
        apart = ((self.points[among] - point / self.scale) ** 2).sum(axis=1)
        return int(among[int(np.argmin(apart))])
