"""Engines for catalogs: candidates at random, bred (genetic), annealed, or by a Gaussian process as in Ribbon.

Candidates are whole numbers, so the Gaussian process is only ever asked at rounded counts, as Ribbon does.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from hetplan.extend import CatalogEngine, CatalogSearch, expected_improvement
from hetplan_papers.pool.matern import matern_posterior

__all__ = ["Annealing", "GaussianProcess", "Genetic", "Nearness", "RandomOrder"]


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


class _Shuffled(CatalogSearch):
    def suggest(self) -> Iterator[int]:
        """All of them, shuffled."""
        for i in self.random.permutation(len(self.form)):
            yield int(i)


class RandomOrder(CatalogEngine):
    """At random, each once."""

    name: ClassVar[str] = "random-order"
    search: ClassVar[type[CatalogSearch]] = _Shuffled
    fixed_order: ClassVar[bool] = True


POPULATION = 10
PARENTS = 4
MUTATION = 0.3
"""Odds that a coordinate of a child moves by one step, up or down."""


class _Breeding(CatalogSearch):
    def suggest(self) -> Iterator[int]:
        """A first population at random, then children of the best valued so far."""
        form, near = self.form, Nearness(self.form.place)
        for i in self.random.permutation(len(form))[:POPULATION]:
            yield int(i)
        while self.open.left.size:
            fittest = sorted(form.journal, key=lambda i: (-form.journal[i], i))[:PARENTS]
            child = self._child(form.place[fittest])
            yield near.nearest(child, self.open.left)

    def _child(self, parents: NDArray[np.int64]) -> NDArray[np.float64]:
        """Each coordinate from one of two parents, now and then a step beside it."""
        mother, father = parents[self.random.integers(len(parents), size=2)]
        child = np.where(self.random.random(mother.size) < 0.5, mother, father)
        step = self.random.integers(0, 2, size=child.size) * 2 - 1
        moved: NDArray[np.float64] = child + np.where(self.random.random(child.size) < MUTATION, step, 0)
        return moved.astype(np.float64)


class Genetic(CatalogEngine):
    """Uniform crossover of the four best, single-step mutation."""

    name: ClassVar[str] = "genetic"
    search: ClassVar[type[CatalogSearch]] = _Breeding


START = 0.3
"""The first temperature, as a share of the value at the start."""
COOLING = 0.93
"""By how much a step cools."""
REACH = 2.5
"""How far a step goes, in steps of the grid: the spread of a normal draw per coordinate, shrinking as it cools."""


class _Walk(CatalogSearch):
    def suggest(self) -> Iterator[int]:
        """From a random candidate to an open one near it, and on from there where it was accepted."""
        form, near = self.form, Nearness(self.form.place)
        here = int(self.random.integers(len(form)))
        yield here
        warmth = START
        while self.open.left.size:
            reach = 1.0 + (REACH - 1.0) * warmth / START
            step = np.rint(self.random.normal(scale=reach, size=form.place.shape[1]))
            there = near.nearest(form.place[here] + step, self.open.left)
            yield there
            fall = form.value(here) - form.value(there)
            scale = warmth * max(abs(form.value(here)), 1e-300)
            if fall <= 0 or self.random.random() < np.exp(-fall / scale):
                here = there
            warmth = max(warmth * COOLING, 1e-6)


class Annealing(CatalogEngine):
    """Temperatures fall from 30% of the value by 7% a step."""

    name: ClassVar[str] = "annealing"
    search: ClassVar[type[CatalogSearch]] = _Walk


FIRST = 5
"""Candidates tried at random before there is anything to learn from."""
KNOWN = 400
"""The process learns from at most so many values, the best and the latest."""
ASKED = 20_000
"""At most so many open candidates are asked about, drawn at random."""

Vector = NDArray[np.float64]


class _Learning(CatalogSearch):
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
            mean, spread = matern_posterior(near.points[known], values, near.points[left])
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
    search: ClassVar[type[CatalogSearch]] = _Learning
