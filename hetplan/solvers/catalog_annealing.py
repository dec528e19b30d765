"""Simulated annealing over a catalog: a walk that accepts a worse neighbour ever more rarely."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from hetplan.solvers.catalog_engine import CatalogEngine, Search
from hetplan.solvers.catalog_nearness import Nearness

__all__ = ["Annealing"]

START = 0.3
"""The first temperature, as a share of the value at the start."""
COOLING = 0.93
"""By how much a step cools."""
REACH = 2.5
"""How far a step goes, in steps of the grid: the spread of a normal draw per coordinate, shrinking as it cools."""


class _Walk(Search):
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
    search: ClassVar[type[Search]] = _Walk
