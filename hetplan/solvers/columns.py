"""Dantzig-Wolfe for `Columns` forms: prices of shared rows by cutting planes, exact pricing, then a tree of choices.

The dual has a dimension per shared row only, so its best prices are found by Kelley's cuts: first over all columns of
at most two items, priced at once as arrays; then over all columns, by the form's exact oracle. At those prices each
block keeps its few cheapest columns; a greedy choice among them is made to fit and then improved. Where the gap to the
certified bound is still too large, all columns are found that a better choice may take, and a tree over them ends the
search with a proof (`columns_tree`).
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.answer import Answer, Limits, Status, Stop
from hetplan.planner.contract import Event
from hetplan.planner.forms.columns import Columns, Priced
from hetplan.planner.forms.columns_near import near_columns
from hetplan.planner.gap import relative_gap
from hetplan.solvers.columns_choice import cheap_columns, chosen_by_program, fitted
from hetplan.solvers.columns_dual import Cuts
from hetplan.solvers.columns_pairs import Pairs, pairs_of
from hetplan.solvers.columns_tree import CLOSED, search

if TYPE_CHECKING:
    from hetplan.planner.contract import OnEvent

__all__ = ["ColumnsEngine"]

Vector = NDArray[np.float64]

GAP = 1e-3
EXACT_ROUNDS = 8
ROUGH_ROUNDS = 60
SETTLED = 1e-5
"""Cuts have settled when the best they allow is this near (relative) to the best bound found."""
FEW = 200
"""So many blocks are searched to the end whatever the wanted gap: it takes milliseconds."""
FARTHER = (0.01, 0.1, 1.0, 10.0)
"""How far above the bound (of the bound, or of the dearest item) counts are sought while none at hand fit."""
KEPT = 8
"""Columns of each block that the choice is made from."""


class ColumnsEngine:
    """The engine; `limits.work` counts exact pricings."""

    name: ClassVar[str] = "columns"
    form: ClassVar[str] = "columns"

    def version(self) -> str:
        """The version of HiGHS, which solves the small programs."""
        try:
            from importlib.metadata import version

            return version("highspy")
        except ImportError:
            return ""

    def refuses(self, form: Any) -> str:
        """Only its kind."""
        return "" if isinstance(form, Columns) else f"takes columns forms, not {form.kind}"

    def solve(
        self, form: Columns, limits: Limits, *, start: Vector | None = None, on_event: OnEvent | None = None
    ) -> Answer[Vector]:
        """Whole counts, and prices that prove how good they are."""
        return _Run(form, limits, start, on_event, f"{self.name} (highs {self.version()})").answer()

    def solve_all(
        self, forms: Iterable[Columns], limits: Limits, *, on_event: OnEvent | None = None
    ) -> list[Answer[Vector]]:
        """One after the other."""
        return [self.solve(form, limits, on_event=on_event) for form in forms]


class _Run:
    """One solve."""

    def __init__(
        self, form: Columns, limits: Limits, start: Vector | None, on_event: OnEvent | None, engine: str
    ) -> None:
        self.form, self.limits, self.on_event, self.engine = form, limits, on_event, engine
        self.began, self.pricings, self.stop = time.monotonic(), 0, Stop.FINISHED
        self.best: Vector | None = None if start is None else self._usable(np.rint(start))
        self.bound, self.prices = -np.inf, np.zeros(form.capacity.size)
        self.at_prices = -np.inf
        self.tree: dict[str, Any] = {}
        self.programs = 0
        self.found: list[Vector] = []

    def answer(self) -> Answer[Vector]:
        """Prices, columns, counts."""
        form = self.form
        free = self._price(self.prices)
        if not np.isfinite(free.bound):
            return self._nothing(Status.INFEASIBLE, {"prices": self.prices}, "a block cannot be covered at any price")
        self._improved(free.x)
        if self.best is not None and self._usable(free.x) is not None:
            return self._told(self.best)
        pairs = pairs_of(form)
        cuts = Cuts(form)
        cuts.add(free.x)
        self._rough(pairs, cuts)
        self._exact(cuts)
        choices = cheap_columns(form, pairs, self.found, self.prices, keep=KEPT)
        self._improved(fitted(form, choices, self.prices))
        if self.best is None and (nothing := self._proof_of_nothing()) is not None:
            return nothing
        if self.best is None and not self._over():
            self._improved(chosen_by_program(form, choices, self._left(), self._target()))
        dearest = float(form.cost.max(initial=0.0) + form.surcharge.max(initial=0.0))
        scale = max(abs(self.bound), dearest, 1e-9)
        for share in FARTHER:
            if self.best is None and not self._over():
                self._searched(share * scale)
        enough = self._target() if form.need.size > FEW else CLOSED
        more = self.best is not None and self._gap() > enough and not self._over()
        if more and not self._searched(self._value() - self.at_prices):
            self._improved(chosen_by_program(form, choices, self._left(), self._target()))
        if self.best is None:
            return self._nothing(Status.NO_ANSWER, {}, "no choice among the columns at hand fits")
        return self._told(self.best)

    def _rough(self, pairs: Pairs, cuts: Cuts) -> None:
        """The best prices over columns of at most two items."""
        best = -np.inf
        for _ in range(ROUGH_ROUNDS):
            prices, most = cuts.best()
            x, bound = pairs.priced(prices)
            if bound > best:
                best, self.prices = bound, prices
                cuts.center(prices)
            if most - bound <= SETTLED * max(abs(most), 1e-9):
                break
            cuts.add(x)

    def _exact(self, cuts: Cuts) -> None:
        """The best prices over all columns, from there on."""
        prices = self.prices
        self.prices = np.zeros(prices.size)
        for _ in range(EXACT_ROUNDS):
            priced = self._price(prices)
            cuts.add(priced.x)
            cuts.center(self.prices)
            self._improved(priced.x)
            prices, most = cuts.best()
            if most - self.bound <= 20 * SETTLED * max(abs(most), 1e-9) or self._over():
                break

    def _searched(self, slack: float) -> bool:
        """The best choice at most `slack` above the prices' bound, with a tree as proof; false: too many columns."""
        near = near_columns(self.form, self.prices, slack)
        if near is None:
            return False
        searched = search(near, min(self._value(), near.ceiling), self._target(), self._over)
        self.programs += searched.programs
        self._improved(searched.x)
        if searched.bound > self.bound:
            self.bound, self.tree = searched.bound, {"slack": slack, **searched.proof}
        return True

    def _price(self, prices: Vector) -> Priced:
        priced = self.form.price(prices)
        self.pricings += 1
        self.found.append(priced.x)
        if np.isfinite(priced.bound) and priced.bound > self.bound:
            self.bound, self.at_prices, self.prices = priced.bound, priced.bound, prices
            if self.on_event is not None:
                self.on_event(Event("bound", bound=self.bound, value=None if self.best is None else self._value()))
        return priced

    def _usable(self, x: Vector) -> Vector | None:
        form = self.form
        if x.shape != form.cost.shape or (x < 0).any() or (x > form.upper).any():
            return None
        covered = np.bincount(form.block, weights=form.gain * x, minlength=form.need.size)
        fits = (form.use @ x <= form.capacity + 1e-7 * np.maximum(np.abs(form.capacity), 1.0)).all()
        return x if fits and (covered >= form.need * (1 - 1e-8)).all() else None

    def _improved(self, x: Vector | None) -> None:
        """Take counts that are better, where they hold to the form: rounding in sums may say that they do."""
        if x is not None and self.form.value(x) < self._value():
            x = self._usable(x)
            self.best = self.best if x is None else x

    def _value(self) -> float:
        return self.form.value(self.best) if self.best is not None else np.inf

    def _gap(self) -> float:
        return np.inf if self.best is None else relative_gap(self._value(), self.bound)

    def _target(self) -> float:
        return GAP if self.limits.gap is None else self.limits.gap

    def _over(self) -> bool:
        if self.limits.cancel is not None and self.limits.cancel.is_set():
            self.stop = Stop.CANCELLED
        elif self.limits.work is not None and self.pricings >= self.limits.work:
            self.stop = Stop.WORK
        elif self.limits.seconds is not None and time.monotonic() - self.began >= self.limits.seconds:
            self.stop = Stop.TIME
        return self.stop is not Stop.FINISHED

    def _left(self) -> Limits:
        """The limits, with the time that is left of them."""
        if self.limits.seconds is None:
            return self.limits
        return replace(self.limits, seconds=max(0.0, self.limits.seconds - (time.monotonic() - self.began)))

    def _told(self, x: Vector) -> Answer[Vector]:
        value = self.form.value(x)
        bound = min(self.bound, value)
        status = Status.OPTIMAL if relative_gap(value, bound) <= 1e-6 else Status.FEASIBLE
        return Answer(
            status, self.stop, point=x, value=value, bound=bound, proof={"prices": self.prices, **self.tree},
            work={"pricings": float(self.pricings), "programs": float(self.programs)}, engine=self.engine,
        )  # fmt: skip

    def _proof_of_nothing(self) -> Answer[Vector] | None:
        prices = Cuts(self.form, costs=False).proof_of_nothing()
        return None if prices is None else self._nothing(Status.INFEASIBLE, {"prices": prices})

    def _nothing(self, status: Status, proof: dict[str, Any], why: str = "") -> Answer[Vector]:
        work = {"pricings": float(self.pricings)}
        return Answer(status, self.stop, proof=proof, work=work, engine=self.engine, detail=why)
