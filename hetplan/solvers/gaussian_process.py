r"""Gaussian processes, exact and in numpy, and what searches read from them.

`LightProcess` is over a grid of settings, light enough to be asked for every setting at every step. Its kernel is
exp(-w d). The distance d counts the coordinates in which two settings differ (Hamming); a coordinate whose levels have
an order counts a quarter for differing at all and the rest by how far apart the two levels are. To the kernel comes the
product of the two levels, scaled to -1 .. 1, of every coordinate with an order: what rises along it is expected to go
on rising, where distance alone would fall back to the mean. w and the noise are those of a small grid that make the
observations likeliest, chosen again every third one. In between, an observation adds a row to the Cholesky factor L of
the covariance and to V = L^-1 K*, from which mean and deviation at every setting follow (single precision).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["TREND", "UNIT", "LightProcess", "Process", "expected_improvement", "normal_below"]


Vector = NDArray[np.float64]
Integers = NDArray[np.int64]

WIDTHS = (0.1, 0.2, 0.4, 0.7, 1.2, 2.0)
NOISES = (1e-3, 0.01, 0.05, 0.2)
REFIT = 3
LEAST_SPREAD = 1e-3
LIKELY_WIDTH, WIDTH_SPREAD = 0.3, 0.6
"""Three observations say little of a width, and the likeliest is often the widest: a prior keeps it near."""
PRIOR_WEIGHT = 2.0
"""As many observations of the expected spread count beside the real ones."""


UNIT = 16
"""Distances are whole numbers of this part of a coordinate: kernels are looked up, not computed."""
DIFFERS = UNIT // 4
"""What two levels of a coordinate with an order count for being different at all."""
TREND = 1.0
"""The variance of a slope along a coordinate with an order, in that of the rest."""


class Process:
    """What searches want of a Gaussian process over numbered settings; `ordered` says which coordinates are."""

    def __init__(self, points: Integers, ordered: Sequence[bool] = ()) -> None:
        self.points = points
        self.ordered = np.zeros(points.shape[1], dtype=bool)
        self.ordered[: len(ordered)] = ordered
        self.apart = np.where(self.ordered, DIFFERS, UNIT)
        top = np.maximum(points.max(axis=0, initial=1), 1)
        self.span = np.where(self.ordered, (UNIT - DIFFERS) / top, 0.0)
        self.slope = np.where(self.ordered, 2.0 / top, 0.0)
        self.at: list[int] = []
        self.values: list[float] = []
        self.noise: list[float] = []

    def add(self, at: int, value: float, noise: float = 0.0) -> None:
        """Take in an observation with the variance of its own error."""
        self.at.append(at)
        self.values.append(value)
        self.noise.append(noise)

    def posterior(self) -> tuple[Vector, Vector]:
        """Mean and deviation of the function itself at every setting."""
        raise NotImplementedError


class LightProcess(Process):
    """The process of the module; with `width` and `jitter` given they are kept instead of chosen."""

    def __init__(
        self,
        points: Integers,
        ordered: Sequence[bool] = (),
        *,
        width: float | None = None,
        jitter: float | None = None,
        refit: int = REFIT,
        expected: float = 1.0,
    ) -> None:
        super().__init__(points, ordered)
        self.points = np.ascontiguousarray(points.astype(np.int16))
        self._places = np.rint(points * self.span).astype(np.int16)[:, self.ordered]
        self.fixed = (width, jitter)
        self.width, self.jitter = width or LIKELY_WIDTH, jitter or NOISES[1]
        self.refit = refit
        self.expected = expected
        self.distance = np.zeros((0, len(points)), dtype=np.uint16)
        self._along = (points * self.slope - self.ordered)[:, self.ordered].astype(np.float32)
        self._prior = 1.0 + TREND * (self._along**2).sum(axis=1)
        self._stale = True
        self._since = 0

    def add(self, at: int, value: float, noise: float = 0.0) -> None:
        """Take in an observation: a row more, or everything anew every few of them."""
        super().add(at, value, noise)
        self.distance = np.concatenate([self.distance, self._from(at)[None, :]])
        self._since += 1
        if self._stale or self._since >= self.refit or len(self.at) <= REFIT:
            self._stale = True
        else:
            self._append()

    def _from(self, at: int) -> NDArray[np.uint16]:
        """How far every setting is from one, in parts of a coordinate."""
        far = (self.points != self.points[at]) @ self.apart
        if self._places.size:
            far = far + np.abs(self._places - self._places[at]).sum(axis=1)
        return np.asarray(far, dtype=np.uint16)

    def _with_trend(
        self, kernel: NDArray[Any], at: int | list[int], to: list[int] | slice = slice(None)
    ) -> NDArray[Any]:
        """The covariance of settings with others (all of them), with what slopes add to it."""
        return kernel + TREND * self._along[at] @ self._along[to].T if self._along.size else kernel

    def posterior(self) -> tuple[Vector, Vector]:
        """Mean and deviation at every setting; without observations nothing is known but the prior of scale 1."""
        if not self.at:
            return np.zeros(len(self.points)), np.sqrt(self._prior.astype(float))
        if self._stale:
            self._refit()
        scaled = (np.array(self.values) - self.centre) / self.scale
        weights = np.linalg.solve(self.factor, scaled).astype(np.float32)
        mean = weights @ self.half
        variance = np.maximum(self._prior - self.explained, 1e-9)
        return self.centre + self.scale * mean.astype(float), self.scale * np.sqrt(variance.astype(float))

    def joint(self, at: Integers) -> tuple[Vector, Vector]:
        """Mean and covariance of the function at these settings together."""
        mean = self.posterior()[0][at]
        apart = (self.points[at][:, None, :] != self.points[at][None, :, :]) @ self.apart
        if self._places.size:
            apart = apart + np.abs(self._places[at][:, None, :] - self._places[at][None, :, :]).sum(axis=2)
        prior = np.exp(-self.width / UNIT * apart)
        along = self._along[at].astype(float)
        half = self.half[:, at].astype(float)
        return mean, self.scale**2 * (prior + TREND * along @ along.T - half.T @ half)

    def _refit(self) -> None:
        values = np.array(self.values)
        self.centre = float(values.mean())
        away = float(((values - self.centre) ** 2).sum())
        self.scale = max(
            float(np.sqrt((PRIOR_WEIGHT * self.expected**2 + away) / (PRIOR_WEIGHT + values.size))), LEAST_SPREAD
        )
        if None in self.fixed:
            self._choose((values - self.centre) / self.scale)
        self._rebuild()
        self._stale, self._since = False, 0

    def _choose(self, scaled: Vector) -> None:
        """The likeliest width and noise of the grid."""
        widths = np.array(WIDTHS if self.fixed[0] is None else (self.fixed[0],))
        jitters = np.array(NOISES if self.fixed[1] is None else (self.fixed[1],))
        between = self.distance[:, self.at] / UNIT
        known = np.array(self.noise) / self.scale**2
        kernels = self._with_trend(np.exp(-widths[:, None, None] * between), self.at, self.at)
        errors = np.eye(known.size) * (known + jitters[:, None])[:, None, :]
        factors = np.linalg.cholesky(kernels[:, None] + errors)
        halves = np.linalg.solve(factors, scaled[:, None])[..., 0]
        likelihood = -0.5 * (halves**2).sum(axis=-1) - np.log(np.diagonal(factors, axis1=-2, axis2=-1)).sum(axis=-1)
        likelihood -= 0.5 * (np.log(widths / LIKELY_WIDTH) / WIDTH_SPREAD)[:, None] ** 2
        w, j = np.unravel_index(int(likelihood.argmax()), likelihood.shape)
        self.width, self.jitter = float(widths[w]), float(jitters[j])

    def _rebuild(self) -> None:
        self._table = np.exp(-self.width / UNIT * np.arange(UNIT * self.points.shape[1] + 1))
        self._table32 = self._table.astype(np.float32)
        between = self._with_trend(self._table[self.distance[:, self.at]], self.at, self.at)
        known = np.array(self.noise) / self.scale**2 + self.jitter
        self.factor = np.linalg.cholesky(between + np.diag(known))
        cross = self._with_trend(self._table32.take(self.distance), self.at)
        # The inverse of a small factor times a wide matrix: a tenth of the time that solving for every column takes.
        self.half = np.linalg.inv(self.factor).astype(np.float32) @ cross
        self.explained = (self.half**2).sum(axis=0)

    def _append(self) -> None:
        """One row more of the factor and of V."""
        newest, older = self.at[-1], self.at[:-1]
        cross = self._with_trend(self._table[self.distance[-1, older]], newest, older)
        row = np.linalg.solve(self.factor, cross)
        known = self.noise[-1] / self.scale**2 + self.jitter
        corner = math.sqrt(max(float(self._prior[newest]) + known - float(row @ row), 1e-12))
        size = len(self.factor)
        factor = np.zeros((size + 1, size + 1))
        factor[:size, :size], factor[size, :size], factor[size, size] = self.factor, row, corner
        self.factor = factor
        # Every setting's covariance with the newest observation, less what older ones explain of it.
        covariance = self._with_trend(self._table32[self.distance[-1]], newest)
        fresh = (covariance - row.astype(np.float32) @ self.half) / np.float32(corner)
        self.half = np.concatenate([self.half, fresh[None, :]])
        self.explained = self.explained + fresh**2


def normal_below(z: Vector) -> Vector:
    """The standard normal distribution function."""
    from scipy.special import ndtr

    return np.asarray(ndtr(z))


def expected_improvement(mean: Vector, spread: Vector, best: float) -> Vector:
    """How much above the best a candidate is expected to be, counting what is below as nothing."""
    safe = np.maximum(spread, 1e-300)
    # Beyond 40 spreads the normal density is 0 to the last bit.
    z = np.clip((mean - best) / safe, -40.0, 40.0)
    gain = (mean - best) * normal_below(z) + safe * np.exp(-0.5 * z**2) / np.sqrt(2.0 * np.pi)
    found: Vector = np.where(spread > 0.0, gain, np.maximum(mean - best, 0.0))
    return found
