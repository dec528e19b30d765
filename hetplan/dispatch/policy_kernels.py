"""The look-up of a model-selection policy in plain numbers, for simulations: what `PolicySelector.select` decides."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hetplan.compiled import part

__all__ = ["LEEWAY_S", "slack_index"]

LEEWAY_S = 1e-9
"""A slack this little below a grid point counts as on it: sums of floats are no better than that."""


@part
def slack_index(slack_s: float, grid_s: NDArray[np.float64]) -> int:
    """The last grid point at or below a slack (up to the leeway); the first where there is none."""
    low, high = 0, grid_s.size
    while low < high:
        middle = (low + high) // 2
        if grid_s[middle] <= slack_s + LEEWAY_S:
            low = middle + 1
        else:
            high = middle
    return max(low - 1, 0)
