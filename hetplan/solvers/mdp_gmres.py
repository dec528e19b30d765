"""Linear systems of decision processes solved by GMRES, the matrix known only by what it does to a vector."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, gmres

__all__ = ["solve_by_action"]

Floats = NDArray[np.float64]


_by_action: Callable[..., Any] = LinearOperator
"""Its constructor chooses a subclass by its arguments, which its annotations do not tell."""


def solve_by_action(apply: Callable[[Floats], Floats], right: Floats, *, guess: Floats, tolerance: float) -> Floats:
    """The x with apply(x) = right, from a guess; as near as a thousand applications bring it.

    >>> solve_by_action(lambda x: 2 * x, np.array([2.0, 4.0]), guess=np.zeros(2), tolerance=1e-12).round(9).tolist()
    [1.0, 2.0]
    """

    def matvec(x: Floats) -> Floats:
        return apply(np.array(x, dtype=np.float64).ravel())

    system = _by_action((right.size, right.size), matvec=matvec, dtype=np.float64)
    found, _ = gmres(system, right, x0=guess, rtol=tolerance, restart=80, maxiter=12)
    return np.asarray(found, dtype=np.float64)
