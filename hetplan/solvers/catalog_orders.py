"""Searches over a catalog in a fixed order: best bound first, one after the other, at random."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from hetplan.solvers.catalog_engine import CatalogEngine, Search

__all__ = ["BoundOrder", "Exhaustive", "RandomOrder"]


class _ByBound(Search):
    def suggest(self) -> Iterator[int]:
        """Highest bound first, then cheapest, then the first."""
        form = self.form
        bound = np.full(len(form), np.inf) if form.bound is None else form.bound
        cost = np.zeros(len(form)) if form.cost is None else form.cost
        for i in np.lexsort((np.arange(len(form)), cost, -bound)):
            yield int(i)


class _InOrder(Search):
    def suggest(self) -> Iterator[int]:
        """As they are listed."""
        yield from range(len(self.form))


class _Shuffled(Search):
    def suggest(self) -> Iterator[int]:
        """All of them, shuffled."""
        for i in self.random.permutation(len(self.form)):
            yield int(i)


class BoundOrder(CatalogEngine):
    """In the order of the bounds (Kairos+, Algorithm 1): what is left has no bound above the best value.

    >>> from hetplan.planner.answer import Limits
    >>> from hetplan.planner.forms.catalog import Catalog
    >>> form = Catalog(np.array([[0], [1], [2]]), [3.0, 5.0, 4.0].__getitem__, bound=np.array([4.0, 6.0, 4.5]))
    >>> answer = BoundOrder().solve(form, Limits())
    >>> answer.status.value, answer.point, answer.work["evaluations"]
    ('optimal', 1, 1.0)
    """

    name: ClassVar[str] = "bound-order"
    search: ClassVar[type[Search]] = _ByBound


class Exhaustive(CatalogEngine):
    """One after the other, as they are listed."""

    name: ClassVar[str] = "exhaustive"
    search: ClassVar[type[Search]] = _InOrder


class RandomOrder(CatalogEngine):
    """At random, each once."""

    name: ClassVar[str] = "random-order"
    search: ClassVar[type[Search]] = _Shuffled
