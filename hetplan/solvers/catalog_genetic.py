"""A genetic search over a catalog: the fittest few breed, children are snapped to the nearest candidate still open."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from hetplan.solvers.catalog_engine import CatalogEngine, Search
from hetplan.solvers.catalog_nearness import Nearness

__all__ = ["Genetic"]

POPULATION = 10
PARENTS = 4
MUTATION = 0.3
"""Odds that a coordinate of a child moves by one step, up or down."""


class _Breeding(Search):
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
    search: ClassVar[type[Search]] = _Breeding
