"""Searches over a catalog: in a fixed order (best bound first, as listed, at random), genetic, annealing, Bayesian.

A search suggests a candidate of those that are still open, is sent what it is worth, and suggests again. What cannot be
better any more is left out on the way, alike for all of them. Candidates are whole numbers, so the Gaussian process is
only ever asked at rounded counts, as Ribbon does.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.answer import Answer, Limits, Status, Stop
from hetplan.planner.contract import Event
from hetplan.planner.forms.catalog import Catalog
from hetplan.solvers.gaussian_process import expected_improvement, matern_posterior
from hetplan.solvers.running import OneByOne

if TYPE_CHECKING:
    from hetplan.planner.contract import OnEvent

__all__ = [
    "Annealing",
    "BoundOrder",
    "CatalogEngine",
    "Exhaustive",
    "GaussianProcess",
    "Genetic",
    "Nearness",
    "Open",
    "RandomOrder",
    "Search",
]


class Open:
    """The candidates still worth trying, given what was found."""

    def __init__(self, form: Catalog) -> None:
        self.form = form
        self.open: NDArray[np.bool_] = np.ones(len(form), dtype=bool)
        self.best: int | None = None
        self.best_value = -np.inf

    def note(self, i: int, value: float) -> None:
        """Take note of a value, and leave out what it settles."""
        self.open[i] = False
        better = value > self.best_value or (value == self.best_value and self._cheaper(i))
        if better:
            self.best, self.best_value = i, value
        if not self.form.prune:
            return
        if better and self.form.bound is not None:
            self.open &= self.form.bound > self.best_value
        if self.form.monotone:
            self.open &= ~(self.form.place <= self.form.place[i]).all(axis=1)

    def _cheaper(self, i: int) -> bool:
        cost = self.form.cost
        if self.best is None or cost is None:
            return False
        return bool((cost[i], i) < (cost[self.best], self.best))

    @property
    def left(self) -> NDArray[np.int64]:
        """The open candidates' numbers."""
        return np.flatnonzero(self.open).astype(np.int64)


class Search:
    """One walk through a catalog: a generator that is sent the value of each candidate it suggested."""

    def __init__(self, form: Catalog, seed: int) -> None:
        self.form, self.open = form, Open(form)
        self.random = np.random.default_rng(seed)

    def suggest(self) -> Iterator[int]:
        """Candidates in the order of trying; only open ones, each at most once."""
        raise NotImplementedError


class CatalogEngine(OneByOne[Catalog, int]):
    """The engine around a search; `limits.work` counts candidates valued."""

    form: ClassVar[str] = "catalog"
    takes: ClassVar[type[Catalog]] = Catalog
    search: ClassVar[type[Search]] = Search

    def answer(self, form: Catalog, limits: Limits, *, start: int | None, on_event: OnEvent | None) -> Answer[int]:
        """Try candidates until none is worth trying, or a limit is hit."""
        if not len(form):
            return Answer(Status.INFEASIBLE, engine=self.signature)
        search = self.search(form, limits.seed)
        began, stop, tried, to_best = time.monotonic(), Stop.FINISHED, 0, 0
        for i in _with_start(start, search):
            stop = _limit(limits, form.most, tried, began)
            if stop is not Stop.FINISHED:
                break
            before = search.open.best
            value = form.value(i)
            search.open.note(i, value)
            tried += 1
            if search.open.best != before:
                to_best = tried
            if on_event is not None:
                on_event(Event("valued", f"candidate {i}", value=value, bound=search.open.best_value))
        if stop is Stop.FINISHED and search.open.left.size:
            stop = Stop.WORK
        return self._answer(search, stop, tried, to_best)

    def _answer(self, search: Search, stop: Stop, tried: int, to_best: int) -> Answer[int]:
        best, left = search.open.best, int(search.open.left.size)
        work = {"evaluations": float(tried), "evaluations_to_best": float(to_best), "left": float(left)}
        if best is None:
            return Answer(Status.NO_ANSWER, stop, work=work, engine=self.signature)
        # Without open candidates nothing is better, as far as bounds (and, where used, containment) say.
        status = Status.FEASIBLE if left else Status.OPTIMAL
        value = search.open.best_value
        bound = search.form.upper_bound() if left else value
        return Answer(
            status,
            stop,
            point=int(best),
            value=value,
            bound=bound if np.isfinite(bound) else None,
            work=work,
            engine=self.signature,
        )


def _with_start(start: int | None, search: Search) -> Iterator[int]:
    if start is not None and 0 <= start < len(search.form):
        yield start
    for i in search.suggest():
        if search.open.open[i]:
            yield i


def _limit(limits: Limits, most: int | None, tried: int, began: float) -> Stop:
    if limits.cancel is not None and limits.cancel.is_set():
        return Stop.CANCELLED
    if any(limit is not None and tried >= limit for limit in (limits.work, most)):
        return Stop.WORK
    if limits.seconds is not None and time.monotonic() - began >= limits.seconds:
        return Stop.TIME
    return Stop.FINISHED


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


FIRST = 5
"""Candidates tried at random before there is anything to learn from."""
KNOWN = 400
"""The process learns from at most so many values, the best and the latest."""
ASKED = 20_000
"""At most so many open candidates are asked about, drawn at random."""

Vector = NDArray[np.float64]


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
    search: ClassVar[type[Search]] = _Learning
