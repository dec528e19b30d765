r"""Loads covered one by one by whole counts, under a few capacities that all share: a form with its own exact oracle.

::

    min   sum_j cost_j x_j + sum_g surcharge_g max(sum_{j in g} x_j - free_g, 0)
    (1)   sum_{j in b} gain_j x_j >= need_b                    for every block b
    (2)   sum_j use_rj x_j <= capacity_r                       for every row r
          0 <= x_j <= upper_j, whole

Every j belongs to one block and one group, a group lies in one block, and its members have one gain. Nothing costs or
takes less than nothing, and `free` and `upper` are whole. A *column* is a choice of counts that covers a block. For any
prices mu >= 0 of the rows::

    L(mu) = sum_b min { cost + mu use of a column of b } - mu capacity

bounds the value from below over *all* columns, generated or not, because each minimum is taken exactly (a bounded
covering knapsack, by depth-first branch and bound), or bounded itself where that takes too long. So `certify` re-proves
a bound from the prices alone; and where a few large blocks leave a gap that no prices close, from a tree of choices
with prices at its leaves (`columns_near`).

Columns of a form one by one: what each costs and takes, and its counts.

All columns that a better choice may take, and the tree by which a bound over them is proved.

At prices mu with bound L(mu), a choice with a column that costs `slack` more than the cheapest of its block costs at
least L(mu) + slack. So whatever costs less takes only *near* columns; there are few of them, and every one is found.
A tree splits their choices by how many there are of an item (at least k, or fewer). At a leaf each block keeps some of
its near columns, and any prices of the rows bound it::

    L_leaf(mu) = sum_b min { cost + mu use of the columns that b keeps } - mu capacity

What is at or above a limit need not be distinguished: at every split the columns go that by its prices no choice below
the limit takes. The least of the leaves, of the limit and of L + slack bounds the form. The proof that an answer
carries is the first prices, the slack, the limit, the splits and the prices of splits and leaves; the columns are found
again by the checker.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.answer import Answer, Status
from hetplan.planner.forms.columns_knapsack import cheapest_cover, covers_within
from hetplan.planner.forms.form import Form
from hetplan.planner.tolerances import BOUND_SLIP, FEASIBILITY, INTEGRALITY, PROOF_NUMBERS, VALUE

if TYPE_CHECKING:
    from hetplan.planner.answer import Certificate

__all__ = ["Columns", "Listed", "Near", "Priced", "bound_of_tree", "near_columns"]


Vector = NDArray[np.float64]
Integers = NDArray[np.int64]

ROUNDING = 1e-10
"""Relative to the sum of absolute terms: far above the rounding of the few thousand additions behind a bound."""
STEPS, FEWEST_STEPS = 200_000, 500
"""Of all covers of one pricing, and of a single one at least: a tenth of a second; some 20 are what a cover takes."""


@dataclass(frozen=True)
class Priced:
    """A cheapest column of every block at some prices: their counts together, L(mu), and mu itself."""

    x: Vector
    bound: float
    prices: Vector


@dataclass(frozen=True, eq=False)
class Columns(Form[Vector]):
    """See the module.

    >>> form = Columns(
    ...     block=np.array([0, 0]), need=np.array([10.0]), gain=np.array([5.0, 100.0]), cost=np.array([1.0, 3.0]),
    ...     group=np.array([0, 1]), free=np.zeros(2), surcharge=np.zeros(2), upper=np.array([2.0, 1.0]),
    ...     use=np.array([[4.0, 0.0]]), capacity=np.array([4.0]),
    ... )
    >>> [round(form.price(np.array([mu])).bound, 6) for mu in (0.0, 0.125)]
    [2.0, 2.5]
    """

    kind: ClassVar[str] = "columns"
    sense: ClassVar[str] = "min"

    block: Integers
    need: Vector
    gain: Vector
    cost: Vector
    group: Integers
    free: Vector
    surcharge: Vector
    upper: Vector
    use: Vector
    capacity: Vector
    rows: tuple[str, ...] = ()
    item_name: Callable[[int], str] | None = None
    name: str = ""

    def __post_init__(self) -> None:
        if self.block.size and (np.diff(self.block) < 0).any():
            raise ValueError("items are in the order of their blocks")
        parts = (self.gain, self.cost, self.free, self.surcharge, self.upper, self.use)
        if any(not np.isfinite(part).all() or part.min(initial=0.0) < 0 for part in parts) or not self.gain.all():
            raise ValueError("something gains nothing, costs or takes less than nothing, or is without limit")
        if not np.isfinite(self.need).all() or not np.isfinite(self.capacity).all():
            raise ValueError("a need or a capacity is no finite number")
        if any((part != np.floor(part)).any() for part in (self.free, self.upper)):
            raise ValueError("counts that are free, or the most there may be, are not whole")
        _, first, of = np.unique(self.group, return_index=True, return_inverse=True)
        if (self.block != self.block[first][of]).any() or (self.gain != self.gain[first][of]).any():
            raise ValueError("a group lies in several blocks, or its members differ in gain")

    def size(self) -> dict[str, int]:
        """Blocks with the shared rows, and items."""
        return {"rows": self.need.size + self.capacity.size, "columns": self.block.size, "blocks": self.need.size}

    @cached_property
    def starts(self) -> Integers:
        """Where each block's items begin, and one past the last."""
        return np.searchsorted(self.block, np.arange(self.need.size + 1)).astype(np.int64)

    def value(self, x: Vector) -> float:
        """The objective."""
        in_group = np.bincount(self.group, weights=x, minlength=self.free.size)
        return float(self.cost @ x + self.surcharge @ np.maximum(in_group - self.free, 0.0))

    def price(self, prices: Vector, *, costs: bool = True) -> Priced:
        """The cheapest column of every block at these prices; without `costs` only the prices count.

        In a block with many items of nearly one rate the cheapest column may not be found in some thousand steps. Then
        the best one found takes its place, and the bound is that of what was not looked at.
        """
        worth = prices @ self.use
        plain = (self.cost + worth if costs else worth).tolist()
        extra = self.surcharge.tolist() if costs else [0.0] * self.surcharge.size
        x, total = np.zeros(self.block.size), 0.0
        most_steps = max(FEWEST_STEPS, STEPS // max(self.need.size, 1))
        for b, need in enumerate(self.need.tolist()):
            if need <= 0:
                continue
            segments, owner = self._segments(b, need, plain, extra)
            found = cheapest_cover(segments, need, most_steps)
            if found is None:
                return Priced(x, np.inf, prices)
            total += found.bound
            for place, count in found.counts:
                x[owner[place]] += count
        spent = float(prices @ self.capacity)
        slip = ROUNDING * (abs(total) + abs(spent))
        return Priced(x, total - spent - slip, prices)

    def by_block(self, x: Vector, plain: Vector) -> Vector:
        """What the counts of each block cost at `plain` per item, with what loading costs."""
        in_group = np.bincount(self.group, weights=x, minlength=self.free.size)
        block = np.zeros(self.free.size, dtype=np.int64)
        block[self.group] = self.block
        loaded = self.surcharge * np.maximum(in_group - self.free, 0.0)
        size = self.need.size
        return np.asarray(np.bincount(self.block, plain * x, size) + np.bincount(block, loaded, size), dtype=np.float64)

    @cached_property
    def lists(self) -> tuple[list[int], list[float], list[float]]:
        """Group and gain of every item, what is free of every group, as plain numbers."""
        return self.group.tolist(), self.gain.tolist(), self.free.tolist()

    @cached_property
    def _members(self) -> list[list[list[int]]]:
        """The items of every group, by block."""
        found: list[dict[int, list[int]]] = [{} for _ in range(self.need.size)]
        for j, (b, g) in enumerate(zip(self.block.tolist(), self.group.tolist(), strict=True)):
            found[b].setdefault(g, []).append(j)
        return [list(groups.values()) for groups in found]

    def _segments(
        self, b: int, need: float, plain: list[float], extra: list[float]
    ) -> tuple[list[tuple[float, float, float]], list[int]]:
        """What there is to cover a block with, (gain, cost, most), and of which item.

        So many of a group cost least by its cheapest members, each up to its limit, the first of all free of the
        surcharge: costs that only grow, so that nobody takes a later segment of a group before an earlier one is full.
        """
        (group, gain, free_of), most_of = self.lists, self._upper
        segments: list[tuple[float, float, float]] = []
        owner: list[int] = []
        for members in self._members[b]:
            g = group[members[0]]
            free, more, enough = free_of[g], extra[g], need / gain[members[0]] + 1.0
            for j in sorted(members, key=plain.__getitem__) if len(members) > 1 else members:
                most = most_of[j]
                spared = min(most, free)
                if spared > 0:
                    segments.append((gain[j], plain[j], spared))
                    owner.append(j)
                if most > spared:
                    segments.append((gain[j], plain[j] + more, most - spared))
                    owner.append(j)
                free -= spared
                enough -= most
                if enough <= 0:
                    # The cheaper members alone cover all.
                    break
        return segments, owner

    @cached_property
    def _upper(self) -> list[float]:
        return list(self.upper.tolist())

    def certify(self, answer: Answer[Vector]) -> Certificate:
        """Feasibility and value recomputed; the bound (or infeasibility) re-proved from the prices by the oracle."""
        from hetplan.planner.answer import Certificate, Vouched

        prices = _prices(answer.proof, self.capacity.size)
        if answer.status is Status.INFEASIBLE:
            proved = prices is not None and self.price(prices, costs=False).bound > 0
            return Certificate(infeasible=Vouched.CERTIFIED if proved else Vouched.CLAIMED)
        if answer.status is Status.UNBOUNDED:
            return Certificate(faults=("unbounded, yet nothing costs less than nothing",))
        if answer.point is None:
            return Certificate()
        faults = self._faults(answer)
        if faults:
            return Certificate(faults=tuple(faults))
        value = self.value(np.rint(answer.point))
        proved_bound = self.price(prices).bound if prices is not None else -np.inf
        if prices is not None and "splits" in answer.proof:
            proved_bound = max(proved_bound, bound_of_tree(self, answer.proof))
        if answer.bound is not None and answer.bound > value + BOUND_SLIP * max(1.0, abs(value)):
            return Certificate(faults=(f"bounds all by {answer.bound:.9g} from below, and {value:.9g} was found",))
        if np.isfinite(proved_bound):
            certified = min(proved_bound, value)
            claimed = answer.bound if answer.bound is not None else -np.inf
            if claimed <= certified + VALUE * max(1.0, abs(certified)):
                return Certificate(value=value, bound=certified, vouched=Vouched.CERTIFIED, certified_bound=certified)
            return Certificate(value=value, bound=float(claimed), vouched=Vouched.CLAIMED, certified_bound=certified)
        vouched = Vouched.CLAIMED if answer.bound is not None else Vouched.NONE
        return Certificate(value=value, bound=answer.bound, vouched=vouched)

    def written_proof(self, answer: Answer[Vector]) -> dict[str, Any] | None:
        """The prices by row, and the tree with items by name; what is too long for a plan is left out, and said so."""
        prices = _prices(answer.proof, self.capacity.size)
        if prices is None or self.item_name is None or len(self.rows) != prices.size:
            return None
        named = {row: float(price) for row, price in zip(self.rows, prices, strict=True) if price}
        tree = _Tree.read(self, answer.proof) if "splits" in answer.proof else None
        if tree is None:
            return {"prices": named}
        numbers = 4 * len(tree.splits) + np.count_nonzero(tree.prices_of_splits) + np.count_nonzero(tree.leaves)
        if numbers > PROOF_NUMBERS:
            return {"left_out": f"tree: {len(tree.leaves)} leaves, {numbers} numbers"}
        items = np.unique(tree.splits[:, 0])
        place = np.searchsorted(items, tree.splits[:, 0])
        written = {
            "slack": tree.slack,
            "limit": tree.limit,
            "rows": list(self.rows),
            "items": [self.item_name(item) for item in items.tolist()],
            "splits": [
                f"{item} {least} {more} {fewer}"
                for item, (_, least, more, fewer) in zip(place.tolist(), tree.splits.tolist(), strict=True)
            ],
            "prices_of_splits": _lines(tree.prices_of_splits),
            "leaves": _lines(tree.leaves),
        }
        return {"prices": named, "tree": written}

    def bound_of_written(self, proof: Mapping[str, Any]) -> float | None:
        """By the prices of the rows, and by the tree where there is one."""
        named, tree = proof["prices"], proof.get("tree")
        if not named.keys() <= set(self.rows) or self.item_name is None:
            return None
        prices = _prices({"prices": [float(named.get(row, 0.0)) for row in self.rows]}, self.capacity.size)
        if prices is None:
            return None
        shown = self.price(prices).bound
        if tree is None or sorted(tree["rows"]) != sorted(self.rows):
            return float(shown)
        place = {self.item_name(j): j for j in range(self.cost.size)}
        items, order = [place[name] for name in tree["items"]], [tree["rows"].index(row) for row in self.rows]
        splits = [[int(number) for number in line.split()] for line in tree["splits"]]
        if any(not 0 <= item < len(items) for item, *_ in splits):
            return None

        def numbers(lines: Sequence[str]) -> list[list[float]]:
            each = [[float(number) for number in line.split()] for line in lines]
            return [[line[at] for at in order] for line in each]

        read = {
            "prices": prices,
            "slack": tree["slack"],
            "limit": tree["limit"],
            "splits": [[items[item], *rest] for item, *rest in splits],
            "prices_of_splits": numbers(tree["prices_of_splits"]),
            "leaves": numbers(tree["leaves"]),
        }
        return max(float(shown), bound_of_tree(self, read))

    def _faults(self, answer: Answer[Vector]) -> list[str]:
        assert answer.point is not None
        point = np.asarray(answer.point, dtype=float)
        if point.shape != self.cost.shape or not np.isfinite(point).all():
            return ["the point has not one finite count per item"]
        x = np.rint(point)
        faults = []
        if np.abs(point - x).max(initial=0.0) > INTEGRALITY:
            faults.append("a count is not whole")
        if (x < 0).any() or (x > self.upper + 0.5).any():
            faults.append("a count is beyond its limits")
        covered = np.bincount(self.block, weights=self.gain * x, minlength=self.need.size)
        short = np.flatnonzero(covered < self.need * (1 - FEASIBILITY))
        if short.size:
            faults.append(f"block {short[0]} is covered by {covered[short[0]]:.9g} of {self.need[short[0]]:.9g}")
        taken = self.use @ x
        over = np.flatnonzero(taken > self.capacity + FEASIBILITY * np.maximum(np.abs(self.capacity), 1.0))
        if over.size:
            faults.append(f"row {over[0]} takes {taken[over[0]]:.9g} of {self.capacity[over[0]]:.9g}")
        value = self.value(x)
        if answer.value is not None and abs(answer.value - value) > VALUE * max(1.0, abs(value)):
            faults.append(f"says {answer.value:.9g} where it is {value:.9g}")
        return faults


def _prices(proof: Mapping[str, object], size: int) -> Vector | None:
    given = proof.get("prices")
    if given is None:
        return None
    prices = np.asarray(given, dtype=float)
    if prices.shape != (size,) or not np.isfinite(prices).all() or (prices < 0).any():
        return None
    return prices


def _lines(numbers: Vector) -> list[str]:
    """Rows of numbers as lines, with all their digits."""
    return [" ".join(f"{number:.17g}" for number in line) for line in numbers.tolist()]


@dataclass(frozen=True, eq=False)
class Listed:
    """Some columns: the block of each, and their counts as triplets (which column, which item, how many of it)."""

    form: Columns
    block: Integers
    entry: Integers
    item: Integers
    count: Vector
    cost: Vector
    """Of each, loading included."""
    use: Vector
    """Of each, per row of the form."""

    @classmethod
    def of(cls, form: Columns, block: Integers, entry: Integers, item: Integers, count: Vector) -> Self:
        """What these columns cost and take."""
        size = block.size
        plain = np.bincount(entry, form.cost[item] * count, size)
        groups, place = np.unique(entry * form.free.size + form.group[item], return_inverse=True)
        in_group, g = np.bincount(place, count, groups.size), groups % max(form.free.size, 1)
        loaded = form.surcharge[g] * np.maximum(in_group - form.free[g], 0.0)
        cost = np.asarray(plain + np.bincount(groups // max(form.free.size, 1), loaded, size), dtype=np.float64)
        use = np.array([np.bincount(entry, row[item] * count, size) for row in form.use], dtype=np.float64)
        return cls(form, block, entry, item, count, cost, use.reshape(form.capacity.size, size))

    def counts(self, taken: Integers) -> Vector:
        """The counts of the taken columns together, by item of the form."""
        mine = np.isin(self.entry, taken)
        return np.asarray(np.bincount(self.item[mine], self.count[mine], self.form.cost.size), dtype=np.float64)


Kept = NDArray[np.bool_]

MOST_COLUMNS = 20_000
MOST_STEPS, MOST_OF_ONE = 1_000_000, 60_000
"""In finding them, of all blocks and of one: where there is so much to choose, a tree over it would not end."""
"""Relative to the sum of absolute terms, as in the bound of the prices alone."""
HAIR = 1e-9
"""Columns a hair beyond the slack are near as well: rounding shall not leave one out."""


@dataclass(frozen=True, eq=False)
class Near(Listed):
    """Near columns, in the order of their blocks."""

    ceiling: float = np.inf
    """What any choice costs at least that takes another column."""

    @cached_property
    def starts(self) -> Integers:
        """Where the columns of each block begin; blocks that need nothing have none."""
        return np.unique(self.block, return_index=True)[1].astype(np.int64)

    @cached_property
    def all(self) -> Kept:
        """Every column kept."""
        return np.ones(self.block.size, dtype=np.bool_)

    def counts_of(self, item: int) -> Vector:
        """How many of an item each column has."""
        found = np.zeros(self.block.size)
        mine = self.item == item
        found[self.entry[mine]] = self.count[mine]
        return found

    def within(self, kept: Kept, prices: Vector, limit: float) -> Kept:
        """Of the kept columns those that, by these prices, a choice that costs less than `limit` may take."""
        if not kept.size:
            return kept
        worth = np.where(kept, self.cost + prices @ self.use, np.inf)
        least = np.minimum.reduceat(worth, self.starts)
        if not np.isfinite(least).all():
            return kept
        over = worth - np.repeat(least, np.diff(np.append(self.starts, worth.size)))
        return np.asarray(kept & (self.bound(kept, prices) + over < limit))

    def parted(self, item: int, least: int) -> tuple[Kept, Kept]:
        """Columns with at least so many of an item, and with fewer; those of other blocks are in both."""
        enough = self.counts_of(item) >= least
        other = self.block != self.form.block[item]
        return enough | other, ~enough | other

    def bound(self, kept: Kept, prices: Vector) -> float:
        """L of the kept columns; infinite where some block keeps none."""
        worth = np.where(kept, self.cost + prices @ self.use, np.inf)
        total = float(np.minimum.reduceat(worth, self.starts).sum()) if worth.size else 0.0
        spent = float(prices @ self.form.capacity)
        return total - spent - ROUNDING * (abs(total) + abs(spent)) if np.isfinite(total) else np.inf


def near_columns(form: Columns, prices: Vector, slack: float) -> Near | None:
    """All near columns at prices of 0 or more; None where there are too many, or no row is shared."""
    if not form.capacity.size:
        return None
    plain = (form.cost + prices @ form.use).tolist()
    cheapest = form.price(prices)
    if not np.isfinite(cheapest.bound):
        return None
    worth = form.by_block(cheapest.x, np.array(plain)).tolist()
    blocks, entries, items, counts, left = list[int](), list[int](), list[int](), list[int](), MOST_STEPS
    for b, need in enumerate(form.need.tolist()):
        if need <= 0:
            continue
        limit = worth[b] + slack * (1.0 + HAIR) + HAIR * worth[b]
        found = _of_block(form, b, plain, limit, min(left, MOST_OF_ONE))
        if found is None or len(blocks) + len(found[0]) > MOST_COLUMNS:
            return None
        left -= found[1]
        for column in found[0]:
            entries += [len(blocks)] * len(column)
            items += [j for j, _ in column]
            counts += [k for _, k in column]
            blocks.append(b)
    triplets = (np.array(entries, np.int64), np.array(items, np.int64), np.array(counts, dtype=float))
    return replace(Near.of(form, np.array(blocks, np.int64), *triplets), ceiling=cheapest.bound + slack)


def _of_block(
    form: Columns, b: int, plain: list[float], limit: float, most_steps: int
) -> tuple[list[tuple[tuple[int, int], ...]], int] | None:
    """The near columns of one block, each once, and the steps that it took to find them.

    Of what is free each member of a group may have all: found too much.
    """
    group, gain, free_of = form.lists
    segments, owner = list[tuple[float, float, float]](), list[int]()
    for j in range(int(form.starts[b]), int(form.starts[b + 1])):
        most = float(form.upper[j])
        free = min(free_of[group[j]], most)
        if free > 0:
            segments.append((gain[j], plain[j], free))
            owner.append(j)
        if most > free:
            segments.append((gain[j], plain[j] + float(form.surcharge[group[j]]), most - free))
            owner.append(j)
    covers = covers_within(segments, float(form.need[b]), limit, most_steps)
    if covers is None:
        return None
    found: dict[tuple[tuple[int, int], ...], None] = {}
    for cover in covers[0]:
        column: dict[int, int] = {}
        for place, count in cover:
            column[owner[place]] = column.get(owner[place], 0) + count
        found[tuple(sorted(column.items()))] = None
    return sorted(found), covers[1]


def bound_of_tree(form: Columns, proof: Mapping[str, Any]) -> float:
    """What the tree of a proof proves, its columns found anew; minus infinity where it proves nothing."""
    tree = _Tree.read(form, proof)
    near = near_columns(form, tree.prices, tree.slack) if tree is not None else None
    if tree is None or near is None:
        return -np.inf
    low = min(near.ceiling, tree.limit)
    left: list[tuple[int, Kept]] = [(0 if len(tree.splits) else -1, near.all)]
    while left:
        number, kept = left.pop()
        if number < 0:
            low = min(low, near.bound(kept, tree.leaves[-number - 1]))
            continue
        item, least, more, fewer = tree.splits[number].tolist()
        if not tree.leads_on(number, item, more, fewer):
            return -np.inf
        kept = near.within(kept, tree.prices_of_splits[number], tree.limit)
        sides = near.parted(item, least)
        left += [(more, kept & sides[0]), (fewer, kept & sides[1])]
    return low


@dataclass(frozen=True)
class _Tree:
    """A proof: where it begins, what it need not look beyond, its splits (item, at least, more, fewer) and leaves.

    `more` and `fewer` lead to a split, or (below 0) to a leaf: -1 is the first.
    """

    prices: Vector
    slack: float
    limit: float
    splits: Integers
    prices_of_splits: Vector
    leaves: Vector
    items: int

    @classmethod
    def read(cls, form: Columns, proof: Mapping[str, Any]) -> _Tree | None:
        """The parts, where they are what they should be."""
        rows = form.capacity.size
        try:
            prices, of_splits, leaves = (
                np.asarray(proof[key], dtype=np.float64).reshape(-1, rows)
                for key in ("prices", "prices_of_splits", "leaves")
            )
            splits = np.asarray(proof["splits"], dtype=np.int64).reshape(-1, 4)
            slack, limit = float(proof["slack"]), float(proof["limit"])
        except (KeyError, TypeError, ValueError):
            return None
        sound = len(prices) == 1 and len(splits) == len(of_splits) and len(leaves) > 0
        # A limit that is no number would drop every column, and seem to prove all.
        sound = sound and slack >= 0 and math.isfinite(limit)
        for part in (prices, of_splits, leaves):
            sound = sound and bool((np.isfinite(part) & (part >= 0)).all())
        return cls(prices[0], slack, limit, splits, of_splits, leaves, form.cost.size) if sound else None

    def leads_on(self, number: int, item: int, more: int, fewer: int) -> bool:
        """Whether a split is of an item that there is, and leads on, never back."""
        ends = [number < child < len(self.splits) or -len(self.leaves) <= child < 0 for child in (more, fewer)]
        return 0 <= item < self.items and all(ends)
