"""What every engine for the Milp form shares: the conversation around the one call that differs.

An engine writes `_run`: hand the form to its package and say what came back as a `Found`. Around it `MilpEngine`
refuses what the engine cannot take, answers forms that need no engine and keeps one deadline over a family. It settles
"infeasible or unbounded", finds the ray that proves it and puts integers on integers. It never returns less than the
start it was given. So each engine's own file holds only what is peculiar to that engine.

An engine's own tree is not handed over, so its bound is its word: `prove_bound` grows a small one that proves it.
"""

from __future__ import annotations

import functools
import heapq
import importlib.util
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from hetplan.errors import NoSolver
from hetplan.planner.answer import Answer, Limits, Status, Stop, left_of, relative_gap
from hetplan.planner.forms.milp import Milp, Vector
from hetplan.planner.forms.program import point_faults
from hetplan.planner.safe_bound import DIGITS, BoundTree, attach_node
from hetplan.planner.tolerances import GAP, OPTIMAL_GAP
from hetplan.solvers.highs_model import DEFAULT_GAP, Found, HighsModel, Word

if TYPE_CHECKING:
    from hetplan.planner.contract import OnEvent
    from hetplan.planner.forms.form import Form

__all__ = [
    "DEFAULT_GAP",
    "Found",
    "MilpEngine",
    "Proof",
    "Word",
    "better",
    "feasible",
    "needs_no_engine",
    "on_integers",
    "prove_bound",
    "seated",
    "stopped",
    "within_whole_bounds",
]


EXACT = 1e-9
"""A point whose rows hold to this (relative to their largest term) needs no second look after its integers moved; a
bound this close to a whole number was meant as one."""


def feasible(form: Milp, point: Vector) -> bool:
    """Whether the point passes the check that `certify` will make."""
    return not point_faults(form, point)[0]


def within_whole_bounds(form: Milp) -> Milp:
    """The form with the bounds of its whole columns drawn in to whole numbers.

    Not every engine does so itself: HiGHS has been seen to return wrong optima under a bound such as 0.5 <= x.
    """
    lower = np.where(form.whole, np.ceil(form.lower - EXACT), form.lower)
    upper = np.where(form.whole, np.floor(form.upper + EXACT), form.upper)
    if np.array_equal(lower, form.lower) and np.array_equal(upper, form.upper):
        return form
    return replace(form, lower=lower, upper=upper)


def seated(form: Milp, start: Vector | None) -> Vector | None:
    """A start as an array of the form's length, or None: a start of another shape is no start."""
    if start is None:
        return None
    point = np.asarray(start, dtype=float)
    return point if point.shape == form.cost.shape and np.isfinite(point).all() else None


def better(form: Milp, answer: Answer[Vector], start: Vector) -> Answer[Vector]:
    """The answer, or the same with the start as its point where that is the better one."""
    if answer.status in (Status.INFEASIBLE, Status.UNBOUNDED) or not feasible(form, start):
        return answer
    value, sign = form.value(start), 1.0 if form.sense == "min" else -1.0
    if answer.value is not None and sign * answer.value <= sign * value:
        return answer
    status = Status.FEASIBLE if answer.status is Status.NO_ANSWER else answer.status
    return replace(answer, status=status, point=start.copy(), value=value)


def on_integers(form: Milp, point: Vector, limits: Limits) -> Vector:
    """The point inside its bounds and with whole columns whole; the continuous part is solved again where that matters.

    Engines return 2.9999999 for 3, and accept rows broken by as much. Where rounding that breaks a row, HiGHS solves
    the continuous columns again around the rounded ones; if there is nothing, the engine's own point is kept.
    """
    clipped = np.clip(point, form.lower, form.upper) + 0.0
    if form.pure_lp:
        return clipped
    rounded = np.where(form.whole, np.round(clipped), clipped)
    faults, residual = point_faults(form, rounded)
    if not faults and residual <= EXACT:
        return rounded
    from hetplan.solvers.linear import around_integers

    again = around_integers(form, rounded, limits)
    if again is not None:
        return again
    return clipped if faults else rounded


def needs_no_engine(form: Milp) -> Answer[Vector] | None:
    """The answer of a form without columns, without rows, or with bounds that cross; None for all others.

    Engines differ most where there is nothing to do: some fail on an empty matrix, some take crossed bounds for an
    error. These forms are answered here, alike for all.
    """
    drawn = within_whole_bounds(form)
    lower, upper = drawn.lower, drawn.upper
    n_rows, n_columns = form.matrix.shape
    if (lower > upper).any() or (form.row_lower > form.row_upper).any():
        return Answer(Status.INFEASIBLE, ray=np.zeros(n_rows), detail="bounds cross")
    if (np.isinf(lower) & (lower > 0)).any() or (np.isinf(upper) & (upper < 0)).any():
        return Answer(Status.INFEASIBLE, detail="a bound excludes every number")
    if n_columns == 0:
        from hetplan.solvers.milp_proofs import no_columns

        return _empty_row(form) or no_columns(form)
    if n_rows == 0:
        from hetplan.solvers.milp_proofs import no_rows

        return no_rows(form, lower, upper)
    return _empty_row(form)


def _empty_row(form: Milp) -> Answer[Vector] | None:
    """A row without entries that 0 does not satisfy makes the form infeasible, which not every engine notices."""
    empty = np.bincount(form.matrix.indices, minlength=form.matrix.shape[0]) == 0
    off = empty & ((form.row_lower > 0) | (form.row_upper < 0))
    if not off.any():
        return None
    return Answer(Status.INFEASIBLE, ray=np.where(off, np.where(form.row_lower > 0, 1.0, -1.0), 0.0))


LARGEST_PROVED = 20_000
"""Rows and columns together beyond which no tree is tried: one linear program takes longer than all of it may."""


class MilpEngine:
    """The ancestor of the engines that answer Milp forms; see the module."""

    name: ClassVar[str]
    form: ClassVar[str] = "milp"
    package: ClassVar[str]
    """The distribution whose version counts."""
    module: ClassVar[str]
    """What must be importable for the engine to run."""
    extra: ClassVar[str] = ""
    """The extra of hetplan that installs it ("" when it always is)."""
    interruptible: ClassVar[bool] = True
    """Whether `limits.cancel` stops a solve under way (otherwise it is looked at before and after)."""
    deterministic: ClassVar[bool] = True
    """Whether the same form, limits and versions give the same answer."""
    heuristic: ClassVar[bool] = False
    """Whether it only finds points: never a bound, never a proof."""
    instead: ClassVar[str] = ""
    """The engine that answers, where this one is named, the forms that it refuses."""
    by_name_only: ClassVar[bool] = False
    """Whether the engine runs only where it is named."""
    gives_rays: ClassVar[bool] = False
    """Whether the engine proves linear programs infeasible and unbounded itself."""

    def version(self) -> str:
        """The installed version of the engine's package ("" where it is not installed)."""
        return _installed_version(self.package, self.module)

    def refuses(self, form: Form[Vector]) -> str:
        """Why this engine cannot take the form ("" when it can)."""
        if not isinstance(form, Milp):
            return f"{self.name} answers Milp forms, not {form.kind}"
        if not self.version():
            wanted = f"hetplan[{self.extra}]" if self.extra else self.package
            return f"{self.package} is not installed; run: pip install '{wanted}'"
        return not_a_number(form) or self._refuses(form)

    def _refuses(self, form: Milp) -> str:  # noqa: ARG002
        """What this engine cannot take beyond that."""
        return ""

    def _run(self, form: Milp, limits: Limits, *, start: Vector | None, on_event: OnEvent | None) -> Found:
        """Hand the form to the engine, within the limits."""
        raise NotImplementedError

    def solve(
        self, form: Milp, limits: Limits, *, start: Vector | None = None, on_event: OnEvent | None = None
    ) -> Answer[Vector]:
        """Answer the form within the limits; `start` is a point to begin from, feasible or not."""
        if reason := self.refuses(form):
            raise NoSolver(form.kind, {self.name: reason})
        started = time.monotonic()
        ready = needs_no_engine(form) or stopped(limits)
        start = seated(form, start)
        if ready is None:
            found = self._run(within_whole_bounds(form), limits, start=start, on_event=on_event)
            ready = self.settled(form, found, left_of(limits, started), start=start)
        return self.signed(ready if start is None else better(form, ready, start), limits)

    def prove(self, form: Milp, answer: Answer[Vector], limits: Limits) -> Answer[Vector]:
        """The answer to a whole-number program with a tree by which anybody can check how good it is.

        It is asked for where a single answer may become a claim, not for every member of a family. A better point that
        is met on the way is taken.
        """
        if form.pure_lp or answer.value is None or answer.stop in (Stop.TIME, Stop.CANCELLED):
            return answer
        if sum(form.matrix.shape) > LARGEST_PROVED or not _installed_version("highspy", "highspy"):
            return answer
        found = prove_bound(form, answer.value, limits)
        proved = replace(answer, proof={**answer.proof, "tree": found.tree})
        if found.by_clock:
            proved = replace(proved, deterministic=False)
        return proved if found.better is None else _with_better_point(form, proved, found.better, limits)

    def solve_all(
        self, forms: Iterable[Milp], limits: Limits, *, on_event: OnEvent | None = None
    ) -> list[Answer[Vector]]:
        """Answer a family one by one. `limits.seconds` is for all of it, `limits.work` for each."""
        started = time.monotonic()
        return [self.solve(form, left_of(limits, started), on_event=on_event) for form in forms]

    def settled(self, form: Milp, found: Found, limits: Limits, *, start: Vector | None = None) -> Answer[Vector]:
        """The answer that `found` amounts to, once it is unambiguous and proved as far as it goes."""
        if found.word in (Word.EITHER, Word.INFEASIBLE, Word.UNBOUNDED):
            from hetplan.solvers.milp_proofs import without_best

            def run(other: Milp) -> Found:
                return self._run(other, limits, start=None, on_event=None)

            return without_best(form, found, limits, run=run, start=start, own_rays=self.gives_rays and form.pure_lp)
        if found.word is Word.NOTHING or found.point is None:
            return found.answered(Status.NO_ANSWER, bound=found.finite_bound)
        point = on_integers(form, found.point, limits)
        status = Status.OPTIMAL if found.word is Word.OPTIMAL else Status.FEASIBLE
        value, bound = form.value(point), found.finite_bound
        within_gap = status is Status.OPTIMAL and bound is not None and relative_gap(value, bound) > OPTIMAL_GAP
        return replace(
            found.answered(status, point=point, bound=bound),
            stop=Stop.GAP if within_gap and not form.pure_lp else found.stop,
            value=value,
            row_duals=found.row_duals if form.pure_lp else None,
        )

    def signed(self, answer: Answer[Vector], limits: Limits) -> Answer[Vector]:
        """The answer with the engine's name, and whether asking again would give the same."""
        by_clock = answer.stop is Stop.CANCELLED or (answer.stop is Stop.TIME and limits.seconds is not None)
        return replace(
            answer, engine=f"{self.name} {self.version()}", deterministic=self.deterministic and not by_clock
        )


@functools.lru_cache(maxsize=64)
def _installed_version(package: str, module: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package) if importlib.util.find_spec(module) else ""
    except (PackageNotFoundError, ModuleNotFoundError):
        return ""


def stopped(limits: Limits) -> Answer[Vector] | None:
    """The answer of an engine that may not even begin, or None when it may."""
    if limits.cancel is not None and limits.cancel.is_set():
        return Answer(Status.NO_ANSWER, Stop.CANCELLED)
    if limits.seconds is not None and limits.seconds <= 0.0:
        return Answer(Status.NO_ANSWER, Stop.TIME)
    return None


def _with_better_point(form: Milp, answer: Answer[Vector], better: Vector, limits: Limits) -> Answer[Vector]:
    """The answer with a better point, where it is one; a bound that the point refutes goes."""
    point = on_integers(form, better, limits)
    if not feasible(form, point):
        return answer
    value, sign = form.value(point), 1.0 if form.sense == "min" else -1.0
    if answer.value is not None and sign * value >= sign * answer.value:
        return answer
    refuted = answer.bound is not None and sign * (answer.bound - value) > 0
    return replace(answer, point=point, value=value, bound=None if refuted else answer.bound)


def not_a_number(form: Milp) -> str:
    """Where the form's data are not numbers ("" when they all are): no engine says so, some loop for ever."""
    finite = {"cost": form.cost, "matrix": form.matrix.data}
    wide = {"lower": form.lower, "upper": form.upper, "row_lower": form.row_lower, "row_upper": form.row_upper}
    for name, values in finite.items():
        if not np.isfinite(values).all():
            return f"the form's {name} has an entry that is not finite"
    for name, values in wide.items():
        if np.isnan(values).any():
            return f"the form's {name} has an entry that is not a number"
    return ""


WHOLE = 1e-6
"""A column this near to a whole number is one."""
CLOSED = 0.5
"""The share of a gap at which a node is closed: the safe bound is a hair below the program's own."""
NEAR = 0.9
"""The share of the gap GAP that is to be proved; what is left is for rounding."""
CHEAP, MOST = 60_000, 400_000
"""Work (columns and rows of the programs solved, and of their iterations): up to CHEAP to close a gap for good, up to
MOST to come within GAP."""
LEAST_WORK = 20
"""Iterations that a program counts for beyond its own: what it costs to hand over bounds and read an answer."""
TRIED = 8
"""Columns that are tried on both sides at most, at one node."""
KNOWN = 2
"""So often a column must have been split before its gain is believed without a try."""
CHOOSE, PRIMAL = 0, 4
"""HiGHS' numbers of simplex strategies."""
NO_GAIN = 1e-6
"""What a side that gains nothing counts for, against one that gains all."""


@dataclass(frozen=True)
class Proof:
    """A tree, a better point if one was met on the way, and whether a clock ended the work."""

    tree: BoundTree
    better: Vector | None
    by_clock: bool


def prove_bound(form: Milp, value: float, limits: Limits) -> Proof:
    """A tree that bounds the form near the value of a known point, as near as the work allows."""
    return _Search(form, value, limits).run()


@dataclass(order=True)
class _Node:
    """A box, and what its linear program says; `place` is the split that it hangs on, and which side of it."""

    bound: float
    number: int
    lower: Vector = field(compare=False)
    upper: Vector = field(compare=False)
    point: Vector | None = field(compare=False)
    duals: Vector = field(compare=False)
    place: tuple[int, int] | None = field(compare=False, default=None)


class _Search:
    """Grows a tree of linear programs over the whole columns; its leaves carry the multipliers that prove the bound.

    The node of the weakest bound is next. Of the columns that its program leaves open those are tried on both sides of
    which little is known yet; that one is split which raises both sides most. The work is counted, never timed, so that
    the same question gives the same tree.
    """

    def __init__(self, form: Milp, value: float, limits: Limits) -> None:
        self.form, self.limits = form, limits
        self.flip = 1.0 if form.sense == "min" else -1.0
        self.value = self.flip * value
        self.better: Vector | None = None
        self.columns = np.flatnonzero(form.whole)
        self.program = _Relaxed(form, self.columns, self.flip)
        self.gains = np.zeros((2, self.columns.size))
        self.seen = np.zeros((2, self.columns.size))
        self.heap: list[_Node] = []
        self.splits: list[list[int]] = []
        self.leaves: list[Vector] = []
        self.began, self.by_clock, self.number = time.monotonic(), False, 0

    def run(self) -> Proof:
        root = self._solve_node(self.form.lower[self.columns].copy(), self.form.upper[self.columns].copy())
        self._enter(root)
        while self.heap and not self._is_spent(self.heap[0].bound):
            self._split(heapq.heappop(self.heap))
        for node in self.heap:
            self._close(node)
        splits = np.array(self.splits, dtype=np.int64).reshape(-1, 4)
        return Proof(BoundTree(splits, _short(np.array(self.leaves))), self.better, self.by_clock)

    @property
    def target(self) -> float:
        """At this bound a node is closed."""
        return self.value - CLOSED * OPTIMAL_GAP * max(abs(self.value), 1e-9)

    def _is_spent(self, bound: float) -> bool:
        far = relative_gap(self.value, bound) > NEAR * GAP
        if self.limits.cancel is not None and self.limits.cancel.is_set():
            self.by_clock = True
        if self.limits.seconds is not None and time.monotonic() - self.began >= self.limits.seconds:
            self.by_clock = True
        return self.by_clock or self.program.work >= (MOST if far else CHEAP)

    def _solve_node(self, lower: Vector, upper: Vector) -> _Node:
        bound, point, duals = self.program.solved(lower, upper)
        self.number += 1
        return _Node(bound, self.number, lower, upper, point, duals)

    def _enter(self, node: _Node) -> None:
        """A node of the tree: closed where nothing can be gained below it, and else to be split."""
        if node.point is not None and node.bound < self.value and not self._open(node).size:
            self._improve(node.point)
        if node.point is None or node.bound >= self.target or not self._open(node).size:
            self._close(node)
        else:
            heapq.heappush(self.heap, node)

    def _open(self, node: _Node) -> NDArray[np.int64]:
        """Which of the whole columns the node's program leaves between whole numbers."""
        assert node.point is not None
        x = node.point[self.columns]
        return np.flatnonzero(np.abs(x - np.round(x)) > WHOLE)

    def _improve(self, point: Vector) -> None:
        """Take a point that is better by more than an optimum is known to: another point as good changes nothing."""
        whole = np.where(self.form.whole, np.round(point), point)
        value = self.flip * self.form.value(whole)
        if value < self.value - OPTIMAL_GAP * max(abs(self.value), 1e-9):
            self.value, self.better = value, whole

    def _close(self, node: _Node) -> None:
        self.leaves.append(node.duals)
        attach_node(self.splits, node.place, -len(self.leaves))

    def _split(self, node: _Node) -> None:
        which, sides = self._choose_split(node)
        assert node.point is not None
        at = int(np.floor(node.point[self.columns[which]]))
        number = len(self.splits)
        attach_node(self.splits, node.place, number)
        self.splits.append([int(self.columns[which]), at, 0, 0])
        for side, child in enumerate(sides or self._sides(node, which)):
            child.place = (number, side)
            self._enter(child)

    def _sides(self, node: _Node, which: int) -> list[_Node]:
        """Both sides of a column at a node, and what is learned of splitting it."""
        assert node.point is not None
        x = float(node.point[self.columns[which]])
        lower, upper = node.lower.copy(), node.upper.copy()
        upper[which], lower[which] = np.floor(x), np.floor(x) + 1
        sides = [self._solve_node(node.lower, upper), self._solve_node(lower, node.upper)]
        room = max(self.target - node.bound, 1e-300)
        for side, (child, step) in enumerate(zip(sides, (x - np.floor(x), np.ceil(x) - x), strict=True)):
            self.gains[side, which] += min(child.bound - node.bound, room) / step
            self.seen[side, which] += 1
        return sides

    def _choose_split(self, node: _Node) -> tuple[int, list[_Node] | None]:
        """The open column whose split promises most, and its sides where they were tried."""
        assert node.point is not None
        fractional = self._open(node)
        x = node.point[self.columns[fractional]]
        steps = np.stack([x - np.floor(x), np.ceil(x) - x])
        seen = self.seen[:, fractional]
        mean = self.gains[:, fractional] / np.maximum(seen, 1.0)
        unseen = self.gains.sum() / max(self.seen.sum(), 1.0)
        promise = self._score(node, np.where(seen > 0, mean, unseen) * steps)
        unknown = np.flatnonzero(seen.min(axis=0) < KNOWN)
        tried: dict[int, list[_Node]] = {}
        for k in unknown[np.argsort(-promise[unknown], kind="stable")][:TRIED].tolist():
            sides = self._sides(node, int(fractional[k]))
            tried[k] = sides
            promise[k] = self._score(node, np.array([[side.bound - node.bound] for side in sides]))[0]
            if min(side.bound for side in sides) >= self.target:
                break
        best = int(np.argmax(promise))
        return int(fractional[best]), tried.get(best)

    def _score(self, node: _Node, gains: Vector) -> Vector:
        room = max(self.target - node.bound, 1e-300)
        return np.asarray(np.maximum(np.minimum(gains, room) / room, NO_GAIN).prod(axis=0))


class _Relaxed:
    """The linear program without whole columns, warm from one box to the next."""

    def __init__(self, form: Milp, columns: NDArray[np.int64], flip: float) -> None:
        model = HighsModel(replace(form, whole=np.zeros_like(form.whole)))
        self.api, self.highs = model.api, model.highs
        self.columns, self.flip, self.work = columns.astype(np.int32), flip, 0
        self.rows, self.size = form.row_lower.size, sum(form.matrix.shape)
        for option, setting in (("threads", 1), ("presolve", "off"), ("solver", "simplex")):
            self.highs.setOptionValue(option, setting)

    def solved(self, lower: Vector, upper: Vector) -> tuple[float, Vector | None, Vector]:
        """The value as a minimum (inf: there is none), the point, and multipliers that prove it."""
        nothing = np.zeros(self.rows)
        if (lower > upper).any():
            return np.inf, None, nothing
        highs, statuses = self.highs, self.api.HighsModelStatus
        highs.changeColsBounds(self.columns.size, self.columns, lower, upper)
        highs.run()
        if highs.getModelStatus() not in (statuses.kOptimal, statuses.kInfeasible):
            # The dual simplex method has been seen to end without a verdict; the primal one, cold, reaches it.
            highs.clearSolver()
            highs.setOptionValue("simplex_strategy", PRIMAL)
            highs.run()
            highs.setOptionValue("simplex_strategy", CHOOSE)
        status, info = highs.getModelStatus(), highs.getInfo()
        self.work += self.size * (LEAST_WORK + max(0, info.simplex_iteration_count)) // 20
        if status == statuses.kInfeasible:
            _, there_is, ray = highs.getDualRay()
            return np.inf, None, np.array(ray, dtype=float) if there_is else nothing
        if status != statuses.kOptimal:
            return -np.inf, None, nothing
        solution = highs.getSolution()
        point = np.asarray(solution.col_value, dtype=float)
        return self.flip * info.objective_function_value, point, np.asarray(solution.row_dual, dtype=float)


def _short(y: Vector) -> Vector:
    """The multipliers with the digits that a plan keeps, so that what is proved is what is written."""
    size = np.floor(np.log10(np.where(y != 0.0, np.abs(y), 1.0)))
    scale = 10.0 ** np.clip(DIGITS - 1 - size, -300, 300)
    return np.asarray(np.round(y * scale) / scale, dtype=np.float64)
