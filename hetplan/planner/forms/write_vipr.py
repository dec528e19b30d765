"""A bound of a program as a VIPR certificate: exact fractions, so that an outsider's checker needs no trust in ours.

The format is version 1.0 of https://github.com/ambros-gleixner/VIPR (Cheung, Gleixner and Steffy, 2017). Rows and
columns have the names of the LP file. Each split of a tree is two assumptions, each leaf a linear combination that
shows the bound or that nothing is there, and each split is undone from its last to its first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, TextIO

import numpy as np

from hetplan.errors import InputError
from hetplan.planner.forms.write_milp import program_names

if TYPE_CHECKING:
    from hetplan.planner.forms.program import Program
    from hetplan.planner.safe_bound import BoundTree

__all__ = ["write_vipr"]

LOWER, UPPER = 0, 1
DEPTH = 4
"""Rows that a bound of a column without one is implied through at most."""
Multipliers = dict[int, Fraction]
Bounded = tuple[Fraction, int, Fraction]
"""A bound, the constraint that says it, and times what part of the cost it holds: x <= value + part * cost."""
Shown = tuple[Fraction | None, Multipliers]
"""A bound of the cost, None where nothing is there, and the constraints whose sum shows it."""
Path = dict[tuple[int, int], Bounded]
"""What is assumed of columns and sides above a leaf."""
Terms = list[tuple[int, Fraction]]
NO_ROW = -1
"""The cost itself as a row: no constraint says it."""


def write_vipr(form: Program, tree: BoundTree, stream: TextIO, *, wanted: float) -> Fraction:
    """Write the certificate, and give the bound that it proves; a leaf has to show `wanted`, or that it is empty."""
    proof = _Proof(form)
    sides = [
        (proof.assume(column, UPPER, at), proof.assume(column, LOWER, at + 1))
        for column, at, _, _ in tree.splits.tolist()
    ]
    flip = 1 if form.sense == "min" else -1
    aim = flip * (Fraction(wanted) - Fraction(form.offset))
    shown = [
        proof.leaf([flip * y for y in leaf], path, aim)
        for leaf, path in zip(tree.leaves.tolist(), _paths(tree, sides), strict=True)
    ]
    values = [value for value, _ in shown if value is not None]
    bound = min(values, default=aim)
    leaves = [proof.derive(f"leaf{place}", bound, held) for place, (_, held) in enumerate(shown)]
    made: dict[int, int] = {-place - 1: at for place, at in enumerate(leaves)}
    for number in reversed(range(len(tree.splits))):
        low, high = (made[int(child)] for child in tree.splits[number, 2:])
        reason = f"uns {low} {sides[number][0][1]} {high} {sides[number][1][1]}"
        made[number] = proof.add(f"split{number} {proof.sense} {flip * bound} OBJ {{ {reason} }} -1")
    proof.write(stream, flip * bound)
    return flip * bound + Fraction(form.offset)


def _paths(tree: BoundTree, sides: list[tuple[Bounded, Bounded]]) -> list[Path]:
    """Of each leaf the tightest assumption above it about each column and side."""
    found: dict[int, Path] = {0 if len(tree.splits) else -1: {}}
    for number, (column, _, low, high) in enumerate(tree.splits.tolist()):
        above = found[number]
        found[low] = {**above, (column, UPPER): min(sides[number][0], above.get((column, UPPER), sides[number][0]))}
        found[high] = {**above, (column, LOWER): max(sides[number][1], above.get((column, LOWER), sides[number][1]))}
    return [found[-place - 1] for place in range(len(tree.leaves))]


class _Proof:
    """A certificate under way; constraints are numbered as they are written: bounds, rows, what is derived."""

    def __init__(self, form: Program) -> None:
        self.form, self.sense = form, "G" if form.sense == "min" else "L"
        self.flip = 1 if form.sense == "min" else -1
        self.cost = [self.flip * Fraction(value) for value in form.cost.tolist()]
        by_row = form.matrix.tocsr()
        ends = by_row.indptr.tolist()
        terms = list(zip(by_row.indices.tolist(), map(Fraction, by_row.data.tolist()), strict=True))
        self.rows = [terms[begin:end] for begin, end in pairwise(ends)]
        self.rows_of: list[list[int]] = [[] for _ in self.cost]
        for i, row in enumerate(self.rows):
            for j, _ in row:
                self.rows_of[j].append(i)
        self.row_names, self.names = program_names(form)
        self.lines: list[str] = []
        self.bounds: dict[tuple[int, int, bool], Bounded | None] = {}
        self.sides: dict[tuple[int, int], Bounded] = {}
        for side, values in ((LOWER, form.lower.tolist()), (UPPER, form.upper.tolist())):
            for j, value in enumerate(values):
                if np.isfinite(value):
                    at = self._say(f"{self.names[j]}.{'LU'[side]}", side, value, j)
                    self.bounds[j, side, False] = Fraction(value), at, Fraction(0)
        self.bound_count = len(self.lines)
        for i, (lower, upper) in enumerate(zip(form.row_lower.tolist(), form.row_upper.tolist(), strict=True)):
            if lower == upper:
                self.sides[i, LOWER] = self.sides[i, UPPER] = Fraction(lower), self._row(i, "E", lower), Fraction(0)
                continue
            for side, value in ((LOWER, lower), (UPPER, upper)):
                if np.isfinite(value):
                    self.sides[i, side] = Fraction(value), self._row(i, "GL"[side], value), Fraction(0)
        self.given = len(self.lines)

    def add(self, line: str) -> int:
        """Write a constraint; its number."""
        self.lines.append(line)
        return len(self.lines) - 1

    def _say(self, name: str, side: int, value: float, column: int) -> int:
        return self.add(f"{name} {'GL'[side]} {Fraction(value)} 1 {column} 1")

    def _row(self, i: int, sense: str, value: float) -> int:
        held = " ".join(f"{j} {a}" for j, a in self.rows[i])
        end = ".upper" if sense == "L" and (i, LOWER) in self.sides else ""
        return self.add(f"{self.row_names[i]}{end} {sense} {Fraction(value)} {len(self.rows[i])} {held}")

    def assume(self, column: int, side: int, at: int) -> Bounded:
        """A side of a split."""
        line = f"assumed{len(self.lines)} {'GL'[side]} {at} 1 {column} 1 {{ asm }} -1"
        return Fraction(at), self.add(line), Fraction(0)

    def derive(self, name: str, bound: Fraction, held: Multipliers) -> int:
        """The bound of the objective, by a sum of constraints."""
        return self.add(f"{name} {self.sense} {self.flip * bound} OBJ {{ {_sum(held, self.flip)} }} -1")

    def leaf(self, y: list[float], path: Path, aim: Fraction) -> Shown:
        """What multipliers show of the box of a leaf, as a minimum: a bound, or None where nothing is in the box."""
        for (column, side), (value, at, _) in path.items():
            other = self._bound(column, UPPER, path, by_cost=False) if side == LOWER else None
            if other is not None and other[0] < value:
                return None, {at: Fraction(1), other[1]: Fraction(-1)}
        exact = {i: Fraction(value) for i, value in enumerate(y) if value}
        # Where a leaf is beyond all that the known value allows, its own bounds cost more, or leave no room at all.
        ways = [self._combined(exact, 1, path), self._combined({}, 1, path), *self._dear(path)]
        found = max((one for one in ways if one is not None), key=_rank, default=None)
        if found is not None and _rank(found) >= (0, aim):
            return found
        for sign in (1, -1):
            more = self._combined({i: sign * value for i, value in exact.items()}, 0, path)
            if more is not None and (found is None or _rank(more) > _rank(found)):
                found = more
        if found is None:
            raise InputError.one(
                file="--to", value="vipr", why="its multipliers show nothing in exact numbers", remedy="Solve it anew."
            )
        return found

    def _dear(self, path: Path) -> Iterator[Shown]:
        """What the cost has to be for each assumption, by a bound that the cost implies against it."""
        for (column, side), (value, at, _) in path.items():
            other = self._implied(column, 1 - side, DEPTH, by_cost=True)
            if other is not None and (other[2] > 0 if side == LOWER else other[2] < 0):
                yield (value - other[0]) / other[2], {at: 1 / other[2], other[1]: -1 / other[2]}

    def _combined(self, y: dict[int, Fraction], costs: int, path: Path) -> Shown | None:
        """What rows times multipliers show of the cost (`costs` 1), or that nothing is there (`costs` 0).

        What is left of the cost is covered by the bounds of its columns. Where one holds by the cost alone, the sum is
        of more than once the cost, and is divided by that.
        """
        priced, held, total, times = [costs * one for one in self.cost], Multipliers(), Fraction(0), Fraction(costs)
        for i, value in y.items():
            side = self.sides.get((i, LOWER if value > 0 else UPPER))
            if side is None:
                continue
            held[side[1]] = held.get(side[1], Fraction(0)) + value
            total += value * side[0]
            for j, a in self.rows[i]:
                priced[j] -= value * a
        for j, left in enumerate(priced):
            if not left:
                continue
            bound = self._bound(j, LOWER if left > 0 else UPPER, path)
            if bound is None:
                return None
            held[bound[1]] = held.get(bound[1], Fraction(0)) + left
            total += left * bound[0]
            times -= left * bound[2]
        held = {at: value for at, value in held.items() if value}
        if times > 0:
            return total / times, {at: value / times for at, value in held.items()}
        return (None, held) if times == 0 and total > 0 else None

    def _bound(self, j: int, side: int, path: Path, *, by_cost: bool = True) -> Bounded | None:
        """The tightest bound of a column: assumed, stated, implied by rows, or by rows and the cost."""
        found = self._implied(j, side, DEPTH, by_cost=False)
        if (assumed := path.get((j, side))) is not None:
            return assumed if found is None else (max if side == LOWER else min)(assumed, found)
        return self._implied(j, side, DEPTH, by_cost=True) if found is None and by_cost else found

    def _implied(self, j: int, side: int, depth: int, *, by_cost: bool) -> Bounded | None:
        """A bound of a column that has none, through a row whose other columns have one; written once it is found."""
        known = self.bounds.get((j, side, False)) or self.bounds.get((j, side, by_cost))
        if known is not None or not depth or (j, side, by_cost) in self.bounds:
            return known
        found = [self._through(self.rows[i], j, side, depth, self.sides, i, by_cost) for i in self.rows_of[j]]
        if by_cost and self.cost[j]:
            terms = [(k, value) for k, value in enumerate(self.cost) if value]
            of_cost = (Fraction(0), NO_ROW, Fraction(1))
            found.append(
                self._through(terms, j, side, depth, dict.fromkeys(((0, LOWER), (0, UPPER)), of_cost), 0, False)
            )
        known_ones = [one for one in found if one is not None]
        if known_ones:
            value, held, slope = (max if side == LOWER else min)(known_ones, key=lambda one: (abs(one[2]), one[0]))
            terms = [(k, (k == j) - slope * a) for k, a in enumerate(self.cost) if k == j or slope * a]
            words = " ".join(f"{k} {a}" for k, a in terms if a)
            count = sum(a != 0 for _, a in terms)
            line = f"implied{len(self.lines)} {'GL'[side]} {value} {count} {words} {{ {_sum(held, 1)} }} -1"
            self.bounds[j, side, by_cost] = value, self.add(line), slope
        elif depth == DEPTH:
            self.bounds[j, side, by_cost] = None
        return self.bounds.get((j, side, by_cost))

    def _through(
        self, row: Terms, j: int, side: int, depth: int, sides: dict[tuple[int, int], Bounded], i: int, by_cost: bool
    ) -> tuple[Fraction, Multipliers, Fraction] | None:
        """What a row implies for one of its columns: the bound, its proof, and by how much of the cost it gives way."""
        a = next(a for k, a in row if k == j)
        of_row = sides.get((i, side if a > 0 else 1 - side))
        if of_row is None:
            return None
        value, slope = of_row[0] / a, of_row[2] / a
        held = {of_row[1]: 1 / a} if of_row[1] != NO_ROW else {}
        for k, b in row:
            if k == j:
                continue
            part = -b / a
            other = self._implied(k, side if part > 0 else 1 - side, depth - 1, by_cost=by_cost)
            if other is None:
                return None
            value += part * other[0]
            slope += part * other[2]
            held[other[1]] = held.get(other[1], Fraction(0)) + part
        return value, held, slope

    def write(self, stream: TextIO, bound: Fraction) -> None:
        """The whole file."""
        whole = np.flatnonzero(self.form.whole).tolist()
        priced = [(j, self.flip * value) for j, value in enumerate(self.cost) if value]
        stream.write(f"VER 1.0\nVAR {len(self.names)}\n{_lines(self.names)}INT {len(whole)}\n{_lines(map(str, whole))}")
        stream.write(f"OBJ {self.form.sense}\n{len(priced)} {' '.join(f'{j} {value}' for j, value in priced)}\n")
        stream.write(f"CON {self.given} {self.bound_count}\n{_lines(self.lines[: self.given])}")
        ends = (bound, "inf") if self.form.sense == "min" else ("-inf", bound)
        stream.write(f"RTP range {ends[0]} {ends[1]}\nSOL 0\n")
        stream.write(f"DER {len(self.lines) - self.given}\n{_lines(self.lines[self.given :])}")


def _rank(shown: Shown) -> tuple[int, Fraction]:
    """What shows that nothing is there shows more than any bound."""
    return (1, Fraction(0)) if shown[0] is None else (0, shown[0])


def _sum(held: Multipliers, sign: int) -> str:
    return f"lin {len(held)} {' '.join(f'{at} {sign * value}' for at, value in sorted(held.items()))}"


def _lines(texts: Iterable[str]) -> str:
    return "".join(_ended(texts))


def _ended(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        yield f"{text}\n"
