"""Searches over a catalog: best bound first, or as listed.

A search suggests a candidate of those that are still open, is sent what it is worth, and suggests again. What cannot be
better any more is left out on the way, alike for all of them.
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
from hetplan.solvers.engine import OneByOne

if TYPE_CHECKING:
    from hetplan.planner.contract import OnEvent

__all__ = ["BoundOrder", "CatalogEngine", "CatalogSearch", "Exhaustive", "Open"]


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


class CatalogSearch:
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
    search: ClassVar[type[CatalogSearch]] = CatalogSearch
    fixed_order: ClassVar[bool] = False
    """Whether it suggests the same whatever candidates are worth that are not the best."""

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
            value = form.value(i, above=search.open.best_value if self.fixed_order else -np.inf)
            search.open.note(i, value)
            tried += 1
            if search.open.best != before:
                to_best = tried
            if on_event is not None:
                on_event(Event("valued", f"candidate {i}", value=value, bound=search.open.best_value))
        if stop is Stop.FINISHED and search.open.left.size:
            stop = Stop.WORK
        return self._answer(search, stop, tried, to_best)

    def _answer(self, search: CatalogSearch, stop: Stop, tried: int, to_best: int) -> Answer[int]:
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


def _with_start(start: int | None, search: CatalogSearch) -> Iterator[int]:
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


class _ByBound(CatalogSearch):
    def suggest(self) -> Iterator[int]:
        """Highest bound first, then cheapest, then the first."""
        form = self.form
        bound = np.full(len(form), np.inf) if form.bound is None else form.bound
        cost = np.zeros(len(form)) if form.cost is None else form.cost
        for i in np.lexsort((np.arange(len(form)), cost, -bound)):
            yield int(i)


class _InOrder(CatalogSearch):
    def suggest(self) -> Iterator[int]:
        """As they are listed."""
        yield from range(len(self.form))


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
    search: ClassVar[type[CatalogSearch]] = _ByBound
    fixed_order: ClassVar[bool] = True


class Exhaustive(CatalogEngine):
    """One after the other, as they are listed."""

    name: ClassVar[str] = "exhaustive"
    search: ClassVar[type[CatalogSearch]] = _InOrder
    fixed_order: ClassVar[bool] = True
