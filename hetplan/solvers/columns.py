"""Dantzig-Wolfe for `Columns` forms: prices of shared rows by cutting planes, exact pricing, then a tree of choices.

The dual has a dimension per shared row only, so its best prices are found by Kelley's cuts (`Cuts`): first over all
columns of at most two items, priced at once as arrays (`Pairs`); then over all columns, by the form's exact oracle. At
those prices each block keeps its few cheapest columns; a greedy choice among them is made to fit and then improved.
Where the gap to the certified bound is still too large, all columns are found that a better choice may take, and a tree
over them ends the search with a proof (`columns_tree`).
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.answer import Answer, Limits, Status, Stop, left_of, relative_gap
from hetplan.planner.contract import Event
from hetplan.planner.forms.columns import Columns, Listed, Priced, near_columns
from hetplan.planner.forms.milp import Builder
from hetplan.planner.tolerances import SLIP
from hetplan.solvers.columns_tree import CLOSED, search
from hetplan.solvers.engine import OneByOne
from hetplan.solvers.highs import Highs
from hetplan.solvers.highs_model import quiet_highs

if TYPE_CHECKING:
    from hetplan.planner.contract import OnEvent

__all__ = ["ColumnsEngine", "Cuts", "Pairs", "cheap_columns", "chosen_by_program", "fit_choice", "pairs_of"]


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


class ColumnsEngine(OneByOne[Columns, Vector]):
    """The engine; `limits.work` counts exact pricings."""

    name: ClassVar[str] = "columns"
    form: ClassVar[str] = "columns"
    takes: ClassVar[type[Columns]] = Columns

    def version(self) -> str:
        """The version of HiGHS, which solves the small programs."""
        return Highs().version()

    def answer(
        self, form: Columns, limits: Limits, *, start: Vector | None, on_event: OnEvent | None
    ) -> Answer[Vector]:
        """Whole counts, and prices that prove how good they are."""
        return _Run(form, limits, start, on_event, f"{self.name} (highs {self.version()})").answer()


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
            return self._no_answer(Status.INFEASIBLE, {"prices": self.prices}, "a block cannot be covered at any price")
        self._take_better(free.x)
        if self.best is not None and self._usable(free.x) is not None:
            return self._to_answer(self.best)
        pairs = pairs_of(form)
        cuts = Cuts(form)
        cuts.add(free.x)
        self._rough(pairs, cuts)
        self._exact(cuts)
        choices = cheap_columns(form, pairs, self.found, self.prices, keep=KEPT)
        self._take_better(fit_choice(form, choices, self.prices))
        if self.best is None and (nothing := self._proof_of_nothing()) is not None:
            return nothing
        if self.best is None and not self._over():
            self._take_better(chosen_by_program(form, choices, self._limits_left(), self._target()))
        dearest = float(form.cost.max(initial=0.0) + form.surcharge.max(initial=0.0))
        scale = max(abs(self.bound), dearest, 1e-9)
        for share in FARTHER:
            if self.best is None and not self._over():
                self._search_tree(share * scale)
        enough = self._target() if form.need.size > FEW else CLOSED
        more = self.best is not None and self._gap() > enough and not self._over()
        if more and not self._search_tree(self._value() - self.at_prices):
            self._take_better(chosen_by_program(form, choices, self._limits_left(), self._target()))
        if self.best is None:
            return self._no_answer(Status.NO_ANSWER, {}, "no choice among the columns at hand fits")
        return self._to_answer(self.best)

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
            self._take_better(priced.x)
            prices, most = cuts.best()
            if most - self.bound <= 20 * SETTLED * max(abs(most), 1e-9) or self._over():
                break

    def _search_tree(self, slack: float) -> bool:
        """The best choice at most `slack` above the prices' bound, with a tree as proof; false: too many columns."""
        near = near_columns(self.form, self.prices, slack)
        if near is None:
            return False
        searched = search(near, min(self._value(), near.ceiling), self._target(), self._over)
        self.programs += searched.programs
        self._take_better(searched.x)
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

    def _take_better(self, x: Vector | None) -> None:
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

    def _limits_left(self) -> Limits:
        """The limits, with the time that is left of them."""
        return left_of(self.limits, self.began)

    def _to_answer(self, x: Vector) -> Answer[Vector]:
        value = self.form.value(x)
        bound = min(self.bound, value)
        status = Status.OPTIMAL if relative_gap(value, bound) <= 1e-6 else Status.FEASIBLE
        return Answer(
            status, self.stop, point=x, value=value, bound=bound, proof={"prices": self.prices, **self.tree},
            work={"pricings": float(self.pricings), "programs": float(self.programs)}, engine=self.engine,
        )  # fmt: skip

    def _proof_of_nothing(self) -> Answer[Vector] | None:
        prices = Cuts(self.form, costs=False).proof_of_nothing()
        return None if prices is None else self._no_answer(Status.INFEASIBLE, {"prices": prices})

    def _no_answer(self, status: Status, proof: dict[str, Any], why: str = "") -> Answer[Vector]:
        work = {"pricings": float(self.pricings)}
        return Answer(status, self.stop, proof=proof, work=work, engine=self.engine, detail=why)


ROUNDS_OF_PROOF = 40


class Cuts:
    """Every choice of columns x bounds L from above by a line: cost(x) + mu (use x - capacity).

    Rows are scaled by their capacities; a box, widened when its best lies on its border, keeps the steps sane.
    """

    def __init__(self, form: Columns, *, costs: bool = True) -> None:
        self.form, self.costs = form, costs
        self.scale = np.where(form.capacity > 0, np.abs(form.capacity), 1.0)
        self.slopes: list[Vector] = []
        self.heights: list[float] = []
        self.middle = np.zeros(form.capacity.size)
        self.reach = 0.0

    def add(self, x: Vector) -> None:
        """One more line."""
        form = self.form
        self.slopes.append((form.use @ x - form.capacity) / self.scale)
        self.heights.append(form.value(x) if self.costs else 0.0)
        if not self.reach:
            self.reach = 0.25 * max(self.heights[0], 1e-9)

    def center(self, prices: Vector) -> None:
        """Look for better prices around these."""
        self.middle = prices * self.scale

    def best(self) -> tuple[Vector, float]:
        """The best prices that the cuts allow within the box, and the bound they would give."""
        while True:
            point, most = self._solve(np.maximum(self.middle - self.reach, 0.0), self.middle + self.reach)
            on_border = (point >= self.middle + self.reach * (1 - 1e-9)).any() or (
                (point <= self.middle - self.reach * (1 - 1e-9)) & (point > 0)
            ).any()
            if not on_border or self.reach > 1e6 * max(self.heights[0], 1e-9):
                return point / self.scale, most
            self.reach *= 2.0
            if len(self.heights) < 2:
                return point / self.scale, most

    def _solve(self, lower: Vector, upper: Vector) -> tuple[Vector, float]:
        import highspy

        size = self.middle.size
        highs = quiet_highs()
        highs.setOptionValue("threads", 1)
        rows = len(self.slopes)
        matrix = np.hstack([-np.array(self.slopes), np.ones((rows, 1))])
        start = np.arange(rows + 1, dtype=np.int32) * (size + 1)
        columns = np.tile(np.arange(size + 1, dtype=np.int32), rows)
        ceiling = max(self.heights) + float(np.abs(np.array(self.slopes)).max(initial=1.0)) * float(upper.sum()) * 4 + 1
        highs.passModel(
            size + 1, rows, matrix.size, int(highspy.MatrixFormat.kRowwise), int(highspy.ObjSense.kMaximize), 0.0,
            np.append(np.zeros(size), 1.0), np.append(lower, -highspy.kHighsInf), np.append(upper, ceiling),
            np.full(rows, -highspy.kHighsInf), np.array(self.heights), start, columns, matrix.ravel(),
            np.zeros(size + 1, dtype=np.int32),
        )  # fmt: skip
        highs.run()
        point = np.asarray(highs.getSolution().col_value, dtype=float)
        return np.clip(point[:-1], 0.0, None), float(point[-1])

    def proof_of_nothing(self) -> Vector | None:
        """Prices at which even the least use of all blocks is worth more than all capacity, where there are such."""
        size = self.form.capacity.size
        prices = np.full(size, 1.0) / self.scale
        for _ in range(ROUNDS_OF_PROOF):
            priced = self.form.price(prices, costs=False)
            if priced.bound > 0:
                return prices
            self.add(priced.x)
            point, most = self._solve(np.zeros(size), np.ones(size))
            if most <= 1e-9:
                return None
            prices = point / self.scale
        return None


Integers = NDArray[np.int64]

MOST_STEPS = 4000
"""Exchanges in one choice, at most."""


def cheap_columns(form: Columns, pairs: Pairs, exact: list[Vector], prices: Vector, *, keep: int) -> Listed:
    """The `keep` cheapest pairs of every block at these prices, and whatever exact pricing found."""
    worth = pairs.reduced(prices)
    order = np.lexsort((worth, pairs.block))
    rank = np.arange(order.size) - np.repeat(pairs.starts, np.diff(np.append(pairs.starts, order.size)))
    # Beside the cheapest by price, the cheapest by cost and the most frugal of each row.
    kept = [order[rank < keep]]
    for measure in (pairs.cost, *pairs.use):
        by = np.lexsort((worth, measure, pairs.block))
        kept.append(by[rank < 2])
    chosen = np.unique(np.concatenate(kept))
    number, size = np.arange(chosen.size), chosen.size
    blocks = [pairs.block[chosen]]
    entries, items = [number, number], [pairs.first[chosen], pairs.second[chosen]]
    counts = [pairs.k[chosen], pairs.m[chosen]]
    for x in exact:
        # A full choice: a column of every block.
        used = np.flatnonzero(x)
        blocks.append(np.arange(form.need.size))
        entries.append(size + form.block[used])
        items.append(used)
        counts.append(x[used])
        size += form.need.size
    return Listed.of(
        form, np.concatenate(blocks), np.concatenate(entries), np.concatenate(items), np.concatenate(counts)
    )


def fit_choice(form: Columns, choices: Listed, prices: Vector) -> Vector | None:
    """A choice that fits: from the cheapest at these prices, exchanges that cost least per violation undone."""
    worth = choices.cost + prices @ choices.use
    order = np.lexsort((worth, choices.block))
    _, lead = np.unique(choices.block[order], return_index=True)
    taken = np.full(form.need.size, -1, dtype=np.int64)
    taken[choices.block[order[lead]]] = order[lead]
    if (taken < 0)[form.need > 0].any():
        return None
    taken = taken[choices.block[order[lead]]] if (taken < 0).any() else taken
    position = np.full(form.need.size, -1, dtype=np.int64)
    position[choices.block[taken]] = np.arange(taken.size)
    scale = np.where(form.capacity > 0, form.capacity, 1.0)
    use = choices.use / scale[:, None]
    room = form.capacity / scale
    total = use[:, taken].sum(axis=1)
    for _ in range(MOST_STEPS):
        over = np.maximum(total - room - SLIP, 0.0)
        if not over.any():
            break
        now = taken[position[choices.block]]
        step = use - use[:, now]
        undone = over.sum() - np.maximum(total[:, None] + step - room[:, None] - SLIP, 0.0).sum(axis=0)
        dearer = np.maximum(worth - worth[now], 0.0) + 1e-12
        ratio = np.divide(dearer, undone, out=np.full(undone.size, np.inf), where=undone > 1e-12)
        best = int(np.argmin(ratio))
        if not np.isfinite(ratio[best]):
            return None
        total = total + step[:, best]
        taken[position[choices.block[best]]] = best
    else:
        return None
    _improve(choices, use, room, total, taken, position)
    return choices.counts(taken)


def _improve(choices: Listed, use: Vector, room: Vector, total: Vector, taken: Integers, position: Integers) -> None:
    """Exchanges that make it cheaper and still fit, the largest saving first."""
    for _ in range(MOST_STEPS):
        now = taken[position[choices.block]]
        saved = choices.cost[now] - choices.cost
        candidates = np.flatnonzero(saved > 1e-9)
        fits = (total[:, None] + use[:, candidates] - use[:, now[candidates]] <= room[:, None] + SLIP).all(axis=0)
        candidates = candidates[fits]
        if not candidates.size:
            return
        best = int(candidates[np.argmax(saved[candidates])])
        total = total + use[:, best] - use[:, now[best]]
        taken[position[choices.block[best]]] = best


def chosen_by_program(form: Columns, choices: Listed, limits: Limits, gap: float) -> Vector | None:
    """The best choice among these columns, by a mixed-integer program."""

    m = Builder("min", name="columns chosen")
    scale = np.where(form.capacity > 0, form.capacity, 1.0)
    take = m.columns("take", lambda k: str(k), size=choices.block.size, cost=choices.cost, upper=1.0, whole=True)
    blocks = np.unique(choices.block)
    one = m.rows("one", lambda k: f"block {blocks[k]}", size=blocks.size, lower=1.0, upper=1.0)
    m.add(one[np.searchsorted(blocks, choices.block)], take, 1.0)
    for r in range(form.capacity.size):
        row = m.rows(f"row {r}", ["fits"], upper=form.capacity[r] / scale[r])
        m.add(row, take, choices.use[r] / scale[r])
    answer = Highs().solve(m.build(), replace(limits, gap=max(gap / 4, 1e-6), work=None))
    if answer.point is None:
        return None
    return choices.counts(np.flatnonzero(answer.point > 0.5))


STEPS = 6
"""Counts of the first item that are tried, from the most that leaves something over downwards."""


@dataclass(frozen=True)
class Pairs:
    """`k` of item `first` and `m` of item `second` (0 where one does it alone), with cost and use."""

    form: Columns
    block: Integers
    first: Integers
    k: Vector
    second: Integers
    m: Vector
    cost: Vector
    use: Vector
    starts: Integers
    blocks: Integers

    def reduced(self, prices: Vector) -> Vector:
        """Cost of every column at these prices."""
        return np.asarray(self.cost + prices @ self.use)

    def priced(self, prices: Vector) -> tuple[Vector, float]:
        """The cheapest of every block together, and the bound that they would give."""
        worth = self.reduced(prices)
        least = np.minimum.reduceat(worth, self.starts)
        size = np.diff(np.append(self.starts, worth.size))
        at = np.flatnonzero(worth == np.repeat(least, size))
        _, lead = np.unique(self.block[at], return_index=True)
        chosen = at[lead]
        return self.counts(chosen), float(least.sum() - prices @ self.form.capacity)

    def counts(self, chosen: Integers) -> Vector:
        """The counts of some columns together."""
        size = self.form.cost.size
        x = np.bincount(self.first[chosen], weights=self.k[chosen], minlength=size)
        return np.asarray(x + np.bincount(self.second[chosen], self.m[chosen], size), dtype=np.float64)


def pairs_of(form: Columns) -> Pairs:
    """Every pair of items of one block, in several splits."""
    first, second = _ordered_pairs(form)
    gain, need = form.gain, form.need[form.block]
    most = np.ceil(need / gain * (1 - 1e-9))
    parts = []
    alone = np.flatnonzero((need > 0) & (most <= form.upper))
    parts.append((alone, most[alone], alone, np.zeros(alone.size)))
    for step in range(STEPS):
        k = np.minimum(most[first] - 1 - step, form.upper[first])
        fits = (k >= 1) & (form.group[first] != form.group[second])
        a, b, count = first[fits], second[fits], k[fits]
        m = np.ceil((need[a] - count * gain[a]) / gain[b] * (1 - 1e-9))
        good = (m >= 1) & (m <= form.upper[b])
        parts.append((a[good], count[good], b[good], m[good]))
    a, k, b, m = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(form.block[a], kind="stable")
    a, k, b, m = a[order], k[order], b[order], m[order]
    cost = form.cost[a] * k + form.cost[b] * m
    for item, count in ((a, k), (b, m)):
        g = form.group[item]
        cost = cost + form.surcharge[g] * np.maximum(count - form.free[g], 0.0)
    use = form.use[:, a] * k + form.use[:, b] * m
    block = form.block[a]
    blocks, starts = np.unique(block, return_index=True)
    return Pairs(form, block, a, k, b, m, cost, use, starts.astype(np.int64), blocks)


def _ordered_pairs(form: Columns) -> tuple[Integers, Integers]:
    starts = form.starts
    size = np.diff(starts)
    repeats = size[form.block]
    first = np.repeat(np.arange(form.block.size), repeats)
    offset = np.arange(first.size) - np.repeat(np.cumsum(repeats) - repeats, repeats)
    second = starts[form.block[first]] + offset
    apart = first != second
    return first[apart], second[apart]
