"""What the searches over a catalog share: the loop of suggesting, valuing and leaving out, its limits and its account.

A search is ask and tell: it suggests a candidate that is still open, hears what it is worth, and suggests again. What
cannot be better any more is left out on the way, alike for all of them.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.answer import Answer, Limits, Status, Stop
from hetplan.planner.contract import Event
from hetplan.planner.forms.catalog import Catalog

if TYPE_CHECKING:
    from hetplan.planner.contract import OnEvent

__all__ = ["CatalogEngine", "Open", "Search"]


class Open:
    """The candidates still worth trying, given what was found."""

    def __init__(self, form: Catalog) -> None:
        self.form = form
        self.open: NDArray[np.bool_] = np.ones(len(form), dtype=bool)
        self.best: int | None = None
        self.best_value = -np.inf

    def tell(self, i: int, value: float) -> None:
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


class CatalogEngine:
    """The engine around a search; `limits.work` counts candidates valued."""

    name: ClassVar[str] = ""
    form: ClassVar[str] = "catalog"
    search: ClassVar[type[Search]] = Search

    def version(self) -> str:
        """hetplan's own."""
        return "1"

    def refuses(self, form: Any) -> str:
        """Only its kind."""
        return "" if isinstance(form, Catalog) else f"takes catalog forms, not {form.kind}"

    def solve(
        self, form: Catalog, limits: Limits, *, start: int | None = None, on_event: OnEvent | None = None
    ) -> Answer[int]:
        """Try candidates until none is worth trying, or a limit is hit."""
        if not len(form):
            return Answer(Status.INFEASIBLE, engine=self._engine)
        search = self.search(form, limits.seed)
        began, stop, tried, to_best = time.monotonic(), Stop.FINISHED, 0, 0
        for i in _with_start(start, search):
            stop = _limit(limits, form.most, tried, began)
            if stop is not Stop.FINISHED:
                break
            before = search.open.best
            value = form.value(i)
            search.open.tell(i, value)
            tried += 1
            if search.open.best != before:
                to_best = tried
            if on_event is not None:
                on_event(Event("valued", f"candidate {i}", value=value, bound=search.open.best_value))
        if stop is Stop.FINISHED and search.open.left.size:
            stop = Stop.WORK
        return self._answer(search, stop, tried, to_best)

    def solve_all(
        self, forms: Iterable[Catalog], limits: Limits, *, on_event: OnEvent | None = None
    ) -> list[Answer[int]]:
        """One after the other."""
        return [self.solve(form, limits, on_event=on_event) for form in forms]

    @property
    def _engine(self) -> str:
        return f"{self.name} {self.version()}"

    def _answer(self, search: Search, stop: Stop, tried: int, to_best: int) -> Answer[int]:
        best, left = search.open.best, int(search.open.left.size)
        work = {"evaluations": float(tried), "evaluations_to_best": float(to_best), "left": float(left)}
        if best is None:
            return Answer(Status.NO_ANSWER, stop, work=work, engine=self._engine)
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
            engine=self._engine,
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
