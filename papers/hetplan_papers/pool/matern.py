"""A Gaussian process over points with a Matern 5/2 kernel.

Coordinates are scaled to one range each; the length l is the most likely of a short list, and values are standardised.
A few hundred values at most are ever known::

    k(r) = (1 + sqrt(5) r / l + 5 r^2 / (3 l^2)) exp(-sqrt(5) r / l)
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["matern_posterior"]

Vector = NDArray[np.float64]

LENGTHS = (0.1, 0.2, 0.35, 0.6, 1.0, 2.0)
NUGGET = 1e-6


def _matern(a: Vector, b: Vector, length: float) -> Vector:
    apart = np.sqrt(np.maximum(((a[:, None, :] - b[None, :, :]) ** 2).sum(axis=2), 0.0)) * np.sqrt(5.0) / length
    found: Vector = (1.0 + apart + apart**2 / 3.0) * np.exp(-apart)
    return found


def matern_posterior(points: Vector, values: Vector, asked: Vector) -> tuple[Vector, Vector]:
    """Mean and spread of the process at `asked`, in the values' unit, under the most likely length.

    >>> mean, spread = matern_posterior(np.array([[0.0], [1.0]]), np.array([0.0, 1.0]), np.array([[0.0], [0.5], [1.0]]))
    >>> mean.round(2).tolist(), bool(spread[1] > spread[0])
    ([0.0, 0.5, 1.0], True)
    """
    centre, scale = float(values.mean()), float(values.std()) or 1.0
    target = (values - centre) / scale
    best, likely = LENGTHS[0], -np.inf
    for length in LENGTHS:
        factor = np.linalg.cholesky(_matern(points, points, length) + NUGGET * np.eye(len(points)))
        half = np.linalg.solve(factor, target)
        likelihood = -0.5 * float(half @ half) - float(np.log(np.diag(factor)).sum())
        if likelihood > likely:
            best, likely = length, likelihood
    factor = np.linalg.cholesky(_matern(points, points, best) + NUGGET * np.eye(len(points)))
    cross = np.linalg.solve(factor, _matern(points, asked, best))
    mean = cross.T @ np.linalg.solve(factor, target)
    variance = np.maximum(1.0 - (cross**2).sum(axis=0), 0.0)
    return mean * scale + centre, np.sqrt(variance) * scale
