r"""Bayesian search over a catalog: a Gaussian process on the coordinates, and the most expected improvement next.

The kernel is Matern 5/2 on coordinates scaled to one range each (candidates are whole numbers, so the process is only
ever asked at rounded counts, as Ribbon does)::

    k(r) = (1 + sqrt(5) r / l + 5 r^2 / (3 l^2)) exp(-sqrt(5) r / l)

The length l is the most likely of a short list; values are standardised. Exact and in numpy: a few hundred values at
most are ever known.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from hetplan.solvers.catalog_engine import CatalogEngine, Search
from hetplan.solvers.catalog_nearness import Nearness

__all__ = ["GaussianProcess", "expected_improvement", "fit"]

FIRST = 5
"""Candidates tried at random before there is anything to learn from."""
LENGTHS = (0.1, 0.2, 0.35, 0.6, 1.0, 2.0)
NUGGET = 1e-6
KNOWN = 400
"""The process learns from at most so many values, the best and the latest."""
ASKED = 20_000
"""At most so many open candidates are asked about, drawn at random."""

Vector = NDArray[np.float64]


def _kernel(a: Vector, b: Vector, length: float) -> Vector:
    apart = np.sqrt(np.maximum(((a[:, None, :] - b[None, :, :]) ** 2).sum(axis=2), 0.0)) * np.sqrt(5.0) / length
    found: Vector = (1.0 + apart + apart**2 / 3.0) * np.exp(-apart)
    return found


def fit(points: Vector, values: Vector, asked: Vector) -> tuple[Vector, Vector]:
    """Mean and spread of the process at `asked`, in the values' unit, under the most likely length.

    >>> mean, spread = fit(np.array([[0.0], [1.0]]), np.array([0.0, 1.0]), np.array([[0.0], [0.5], [1.0]]))
    >>> mean.round(2).tolist(), bool(spread[1] > spread[0])
    ([0.0, 0.5, 1.0], True)
    """
    centre, scale = float(values.mean()), float(values.std()) or 1.0
    target = (values - centre) / scale
    best, likely = LENGTHS[0], -np.inf
    for length in LENGTHS:
        factor = np.linalg.cholesky(_kernel(points, points, length) + NUGGET * np.eye(len(points)))
        half = np.linalg.solve(factor, target)
        likelihood = -0.5 * float(half @ half) - float(np.log(np.diag(factor)).sum())
        if likelihood > likely:
            best, likely = length, likelihood
    factor = np.linalg.cholesky(_kernel(points, points, best) + NUGGET * np.eye(len(points)))
    cross = np.linalg.solve(factor, _kernel(points, asked, best))
    mean = cross.T @ np.linalg.solve(factor, target)
    variance = np.maximum(1.0 - (cross**2).sum(axis=0), 0.0)
    return mean * scale + centre, np.sqrt(variance) * scale


def expected_improvement(mean: Vector, spread: Vector, best: float) -> Vector:
    """How much above the best a candidate is expected to be, counting what is below as nothing."""
    from scipy.special import ndtr

    safe = np.maximum(spread, 1e-300)
    # Beyond 40 spreads the normal density is 0 to the last bit.
    z = np.clip((mean - best) / safe, -40.0, 40.0)
    gain = (mean - best) * ndtr(z) + safe * np.exp(-0.5 * z**2) / np.sqrt(2.0 * np.pi)
    found: Vector = np.where(spread > 0.0, gain, np.maximum(mean - best, 0.0))
    return found


class _Learning(Search):
    def suggest(self) -> Iterator[int]:
        """A few at random, then whatever is expected to improve most."""
        form, near = self.form, Nearness(self.form.place)
        for i in self.random.permutation(len(form))[:FIRST]:
            yield int(i)
        while (left := self.open.left).size:
            if left.size > ASKED:
                left = np.sort(self.random.choice(left, ASKED, replace=False))
            known = self._known()
            values = np.array([form.journal[i] for i in known])
            mean, spread = fit(near.points[known], values, near.points[left])
            yield int(left[int(np.argmax(expected_improvement(mean, spread, float(values.max()))))])

    def _known(self) -> list[int]:
        journal = self.form.journal
        if len(journal) <= KNOWN:
            return list(journal)
        best = sorted(journal, key=lambda i: (-journal[i], i))[: KNOWN // 2]
        return [*best, *[i for i in list(journal)[-KNOWN // 2 :] if i not in set(best)]]


class GaussianProcess(CatalogEngine):
    """Expected improvement under a Matern 5/2 process."""

    name: ClassVar[str] = "gaussian-process"
    search: ClassVar[type[Search]] = _Learning
