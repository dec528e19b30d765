r"""A search among settings that nobody can list: 10^6 and more, with conditions and rules between knobs.

What is believed: the accuracy of a setting is a Gaussian process over its row of knobs x_g, whose kernel is a sum::

    k(x, y) = 1                                       what all settings have in common
            + sum_g w_g^2 (1 - p) c(x_g, y_g)         what each knob does alone
            + p sum_gh w_g w_h [x_g = y_h]            what a level does wherever it is chosen
            + b^2 prod_g (r + (1 - r) c(x_g, y_g))    what knobs do together
            + e^2 s(x) s(y)                           what it does to choose the same level twice in a row

    c     1 for equal levels, 0 for others; falls with the distance of levels in order, and rises with what goes on
          rising along them
    p     between knobs g, h of the same levels; 0 for other knobs
    s(x)  how often an operator and one that it follows are at the same level of such knobs

The weights w_g, p, b, e and the noise n are where the likelihood is highest, under a prior that is wide for each
logarithm (for p, of the odds). They are found by steps whose length grows while the slope keeps its sign (Rprop).
Seconds and bytes of an operator are processes over the knobs that it reads.

Candidates are drawn at random, or made of the best so far by changing one knob or two or by crossing two of them.
They are improved by climbing from one to the best of its neighbours. The best of them by the same score as in
`hetplan.solvers.search` is measured. Only the likeliest are placed, on every placement, by arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.forms.black_box import BlackBox, Measured, Operator, Verdict
from hetplan.planner.forms.space import Space
from hetplan.planner.front import unbeaten
from hetplan.solvers.gaussian_process import LightProcess, expected_improvement, normal_below
from hetplan.solvers.search import BlackBoxEngine, BlackBoxSearch
from hetplan.solvers.search_beliefs import ACCURACY_SPREAD, LATENCY_SPREAD, LOG_SPREAD, MakeProcess

__all__ = ["PointProcess", "Wide", "WideSearch"]

Vector = NDArray[np.float64]
Integers = NDArray[np.int64]

DRAWN, PAIRS, KEPT, PLACED, CLIMBS = 400, 200, 6, 48, 12
MOST_OF_A_KNOB = 24
FALL = 3.0
TREND = 0.8
KEEP = 0.75
"""The r of the module."""
TOGETHER, AGAIN, NOISE = 0.3, 0.3, 0.05
"""Where b, e and n are likeliest beforehand; of G knobs each w_g is at 1 / sqrt(G)."""
WIDTHS = 0.6, 0.5, 0.5, 1.0, 1.0
"""How wide the priors of w, b, e, n and p are."""
REFIT, STEPS, FIRST_STEP, LONGEST_STEP = 3, 10, 0.15, 0.5
PRIOR_WEIGHT = 2.0
LEAST = 1e-4


@dataclass(frozen=True)
class Grid:
    """What the process knows of knobs: how many levels, which in an order, and which knobs have the same levels.

    `joined` are pairs of the latter of which an operator reads one, and an operator that it follows the other.
    """

    levels: tuple[int, ...]
    ordered: tuple[bool, ...]
    alike: tuple[tuple[int, ...], ...] = ()
    joined: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, form: BlackBox) -> Grid:
        """That of a form."""
        ordered = (*form.ordered, *(False,) * (len(form.levels) - len(form.ordered)))
        joined = {
            (one, other)
            for group in form.alike
            for operator in form.operators
            for before in operator.after
            for one, other in product(form.operators[before].reads, operator.reads)
            if one != other and one in group and other in group
        }
        return cls(form.levels, ordered, form.alike, tuple(sorted(joined)))

    def part(self, operator: Operator) -> Grid:
        """What an operator reads."""
        at = {knob: place for place, knob in enumerate(operator.reads)}
        groups = tuple(tuple(at[k] for k in group if k in at) for group in self.alike)
        return Grid(
            tuple(self.levels[k] for k in at), tuple(self.ordered[k] for k in at),
            tuple(group for group in groups if len(group) > 1),
        )  # fmt: skip

    def slopes(self, rows: Integers) -> Vector:
        """Where each level is along its order, from -1 to 1; 0 where there is none."""
        top = np.maximum(np.array(self.levels) - 1, 1)
        return np.asarray((2.0 * rows / top - 1.0) * (np.array(self.ordered) & (np.array(self.levels) > 1)))

    def each(self, a: Integers, b: Integers) -> Vector:
        """The c of the module, a matrix per knob."""
        found = np.empty((len(self.levels), len(a), len(b)))
        u, v = self.slopes(a), self.slopes(b)
        for k, ordered in enumerate(self.ordered):
            if ordered:
                found[k] = np.exp(-FALL / 2.0 * np.abs(u[:, k][:, None] - v[:, k][None, :]))
            else:
                found[k] = a[:, k][:, None] == b[:, k][None, :]
        return found

    def again(self, rows: Integers) -> Vector:
        """The s of the module."""
        return sum((rows[:, one] == rows[:, other] for one, other in self.joined), np.zeros(len(rows)))

    def bags(self, rows: Integers, weights: Vector) -> list[Vector]:
        """Per group of knobs with the same levels: the weights of the knobs that are at each level."""
        found = []
        for group in self.alike:
            bag = np.zeros((len(rows), self.levels[group[0]]))
            for knob in group:
                bag[np.arange(len(rows)), rows[:, knob]] += weights[knob]
            found.append(bag)
        return found


class Weights:
    """The letters of the module's kernel, and how likely they make what was seen."""

    def __init__(self, grid: Grid) -> None:
        self.grid, self.knobs = grid, len(grid.levels)
        start = [-0.5 * np.log(max(1, self.knobs))] * self.knobs + [*np.log((TOGETHER, AGAIN, NOISE)), 0.0]
        self.prior = np.array(start)
        self.width = np.array([WIDTHS[0]] * self.knobs + list(WIDTHS[1:]))
        self.known = np.ones(self.prior.size, dtype=bool)
        self.known[self.knobs + 1], self.known[self.knobs + 3] = bool(grid.joined), bool(grid.alike)
        self.shared = np.isin(np.arange(self.knobs), [knob for group in grid.alike for knob in group])
        self.set(self.prior)

    def set(self, at: Vector) -> None:
        """Take these logarithms (of p, of the odds)."""
        self.at = at
        self.w = np.exp(at[: self.knobs])
        self.b, self.e, self.n = np.exp(at[self.knobs : self.knobs + 3]) * self.known[self.knobs : self.knobs + 3]
        self.p = np.where(self.shared, 1.0 / (1.0 + np.exp(-at[-1])), 0.0)

    def kernel(self, a: Integers, b: Integers, each: Vector | None = None) -> Vector:
        """The k of the module between rows."""
        grid, square = self.grid, self.w**2
        each = grid.each(a, b) if each is None else each
        found = 1.0 + np.tensordot(square * (1.0 - self.p), each, axes=1)
        found += (grid.slopes(a) * square * TREND) @ grid.slopes(b).T
        found += self.b**2 * np.prod(KEEP + (1.0 - KEEP) * each, axis=0)
        found += self.e**2 * np.outer(grid.again(a), grid.again(b))
        for one, other in zip(grid.bags(a, self.w), grid.bags(b, self.w), strict=True):
            found += self.p.max() * one @ other.T
        return np.asarray(found)

    def own(self, rows: Integers) -> Vector:
        """Each row's variance before anything was seen."""
        grid, square = self.grid, self.w**2
        found = 1.0 + square @ (1.0 - self.p) + self.b**2 + self.e**2 * grid.again(rows) ** 2
        found += TREND * grid.slopes(rows) ** 2 @ square
        for bag in grid.bags(rows, self.w):
            found += self.p.max() * (bag**2).sum(axis=1)
        return np.asarray(found)

    def slope(self, rows: Integers, each: Vector, values: Vector, known: Vector) -> tuple[float, Vector]:
        """How unlikely values at rows are, up to a constant, and how that changes with each logarithm."""
        grid, inner, count = self.grid, len(values), self.knobs
        inverse = np.linalg.inv(self.kernel(rows, rows, each) + np.diag(known + self.n**2))
        solved = inverse @ values
        apart = (self.at - self.prior) / self.width
        unlikely = 0.5 * (values @ solved - np.linalg.slogdet(inverse)[1] + apart @ apart)
        pull = 0.5 * (inverse - np.outer(solved, solved))
        alone = each.reshape(count, inner**2) @ pull.ravel()
        slopes, again = grid.slopes(rows), grid.again(rows)
        found = np.zeros(self.at.size)
        found[:count] = 2.0 * self.w**2 * (
            (1.0 - self.p) * alone + TREND * ((pull @ slopes) * slopes).sum(axis=0)
        )  # fmt: skip
        found[count] = 2.0 * self.b**2 * (pull * np.prod(KEEP + (1.0 - KEEP) * each, axis=0)).sum()
        found[count + 1] = 2.0 * self.e**2 * (again @ pull @ again)
        found[count + 2] = 2.0 * self.n**2 * np.trace(pull)
        share = float(self.p.max(initial=0.0))
        together = 0.0
        for group, bag in zip(grid.alike, grid.bags(rows, self.w), strict=True):
            pulled = pull @ bag
            together += float((pulled * bag).sum())
            for knob in group:
                found[knob] += 2.0 * share * self.w[knob] * pulled[np.arange(inner), rows[:, knob]].sum()
        found[-1] = share * (1.0 - share) * (together - float((self.w**2 * alone)[self.shared].sum()))
        return float(unlikely), np.where(self.known, found + apart / self.width, 0.0)

    def fit(self, rows: Integers, values: Vector, known: Vector) -> None:
        """Find them by Rprop from where they are."""
        each, at = self.grid.each(rows, rows), self.at
        step, before = np.full(at.size, FIRST_STEP), np.zeros(at.size)
        best, least = at, np.inf
        for _ in range(STEPS):
            self.set(at)
            unlikely, slope = self.slope(rows, each, values, known)
            if unlikely < least:
                best, least = at, unlikely
            turned = np.sign(slope) * np.sign(before)
            step = np.minimum(step * np.where(turned > 0, 1.3, np.where(turned < 0, 0.5, 1.0)), LONGEST_STEP)
            at, before = at - step * np.sign(slope), slope
        self.set(best)


class PointProcess:
    """The process of the module over rows; every row may be asked about, none is listed."""

    def __init__(self, grid: Grid, expected: float) -> None:
        self.grid, self.expected, self.weights = grid, expected, Weights(grid)
        self.rows: Integers = np.zeros((0, len(grid.levels)), dtype=np.int64)
        self.values: list[float] = []
        self.noise: list[float] = []
        self._since = 0
        self._factor: Vector | None = None

    def add(self, row: Integers, value: float, noise: float = 0.0) -> None:
        """Take in an observation with the variance of its own error."""
        self.rows = np.concatenate([self.rows, row[None, :]])
        self.values.append(value)
        self.noise.append(noise)
        self._factor = None
        self._since += 1

    def _fit(self) -> None:
        values = np.array(self.values)
        self.centre = float(values.mean())
        away = float(((values - self.centre) ** 2).sum())
        self.scale = float(np.sqrt((PRIOR_WEIGHT * self.expected**2 + away) / (PRIOR_WEIGHT + values.size)))
        scaled = (values - self.centre) / self.scale
        known = np.array(self.noise) / self.scale**2
        if self._since >= max(REFIT, len(values) // 8):
            self._since = 0
            self.weights.fit(self.rows, scaled, known)
        kernel = self.weights.kernel(self.rows, self.rows) + np.diag(known + self.weights.n**2)
        factor = np.asarray(np.linalg.cholesky(kernel), dtype=np.float64)
        self._factor, self._solved = factor, np.linalg.solve(factor.T, np.linalg.solve(factor, scaled))

    def posterior(self, rows: Integers) -> tuple[Vector, Vector]:
        """Mean and deviation of the function itself at these rows."""
        if not self.values:
            return np.zeros(len(rows)), np.full(len(rows), self.expected)
        if self._factor is None:
            self._fit()
        assert self._factor is not None
        cross = self.weights.kernel(self.rows, rows)
        half = np.linalg.solve(self._factor, cross)
        variance = np.maximum(self.weights.own(rows) - (half**2).sum(axis=0), 1e-9)
        return self.centre + self.scale * (cross.T @ self._solved), self.scale * np.sqrt(variance)


class WideSearch(BlackBoxSearch):
    """The search of the module. Plans are numbers: that of the row times placements, plus the placement's."""

    whole: ClassVar[bool] = True

    def __init__(self, form: BlackBox, seed: int = 0, make: MakeProcess = LightProcess) -> None:
        del make
        self.form, self.random = form, np.random.default_rng(seed)
        self.space = form.space or Space(form.levels)
        self.best, self.best_value, self.observed = -1, np.inf, 0
        self._front = []
        grid = Grid.of(form)
        self.accuracy = PointProcess(grid, ACCURACY_SPREAD)
        of = [grid.part(operator) for operator in form.operators]
        self._seconds = [PointProcess(one, LOG_SPREAD) for one in of]
        self._bytes = [PointProcess(one, LOG_SPREAD) for one in of]
        self._arrives = PointProcess(of[0], LOG_SPREAD)
        self._known: list[set[bytes]] = [set() for _ in form.operators]
        self._closed: set[int] = set()
        self._value: dict[int, float] = {}
        self._kept: list[tuple[int, ...]] = []
        for found in form.old:
            self._learn(found, form.drift)

    # What is known

    def tell(self, plan: int, found: Measured) -> None:
        """Take in what measuring a plan's configuration gave."""
        del plan
        self.observed += 1
        c, form = found.configuration, self.form
        self._closed.add(c)
        if found.passes:
            values = form.values(c, below=self.best_value if form.aim.cheapest else np.inf)
            value, place = float(values.min()), int(np.argmin(values))
            if value < self.best_value:
                self.best, self.best_value = c * len(form.placements) + place, value
            if np.isfinite(value):
                self._kept.append(self.space.row(c))
            if len(form.aim.of) > 1:
                fresh = [(c * len(form.placements) + at, figures) for at, figures in form.figures(c)]
                self._front = unbeaten([*self._front, *fresh])
        self._learn(found, 0.0)

    def _learn(self, found: Measured, drift: float) -> None:
        if found.verdict is Verdict.SET_ASIDE:
            return
        row = np.array(self.space.row(found.configuration), dtype=np.int64)
        self.accuracy.add(row, self.form.orient(found.mean), found.se**2 + drift**2)
        self._value[found.configuration] = self.form.orient(found.mean)
        for o, operator in enumerate(self.form.operators):
            reads = row[list(operator.reads)]
            if reads.tobytes() in self._known[o] or found.made[o] == 0.0:
                continue
            self._known[o].add(reads.tobytes())
            self._seconds[o].add(reads, float(np.log(max(found.seconds[o], 1e-9))))
            self._bytes[o].add(reads, float(np.log(max(found.bytes_out[o], 1.0))))
            if o == 0:
                self._arrives.add(reads, float(np.log(max(found.bytes_in, 1.0))))

    # What is asked for

    def ask(self, count: int = 1) -> list[int]:
        """The next plans to measure, at most so many; none when nothing is left."""
        plans: list[int] = []
        closed = set(self._closed)
        while len(plans) < count:
            plan = self._first() if not self._value else self._next()
            if plan < 0:
                break
            plans.append(plan)
            self._closed.add(plan // len(self.form.placements))
        self._closed = closed
        return plans

    def _first(self) -> int:
        """Any allowed row that is near the middle of what has an order."""
        rows = self._open(self.space.draw(self.random, DRAWN))
        if not len(rows):
            return self._next_open()
        top = np.maximum(np.array(self.form.levels) - 1, 1)
        order = np.array([*self.form.ordered, *(False,) * (rows.shape[1] - len(self.form.ordered))])
        far = (np.abs(rows / top - 0.5) * order).sum(axis=1)
        return self.space.number(rows[int(np.argmin(far))].tolist()) * len(self.form.placements)

    def _next_open(self) -> int:
        """Any row that is left, where all are listed."""
        rows = self._open(self.space.rows) if self.space.rows is not None else np.zeros((0, 0))
        return self.space.number(rows[0].tolist()) * len(self.form.placements) if len(rows) else -1

    def _open(self, rows: Integers) -> Integers:
        """Those that were not measured, each once."""
        rows = np.unique(rows, axis=0)
        keep = [number not in self._closed for number in self.space.numbers(rows)]
        return rows[np.array(keep, dtype=bool)] if len(rows) else rows

    def _next(self) -> int:
        if len(self.form.aim.of) > 1:
            self._weights = self.random.dirichlet(np.ones(len(self.form.aim.of)))
            self._share = float(self.random.choice(self.form.placed.shares))
        rows = self._open(self._candidates())
        if not len(rows):
            return self._next_open()
        score, place = self._score(rows)
        for _ in range(CLIMBS if self.space.product > len(rows) else 0):
            tops = rows[np.argsort(-score, kind="stable")[:2]]
            more = self._open(
                np.concatenate([self.space.around(r, self.random, MOST_OF_A_KNOB) for r in tops.tolist()])
            )
            if not len(more):
                break
            fresh, where = self._score(more)
            if fresh.max() <= score.max() * (1 + 1e-9):
                break
            rows, place = np.concatenate([rows, more]), np.concatenate([place, where])
            score = np.concatenate([score, fresh])
        best = int(np.argmax(score))
        return self.space.number(rows[best].tolist()) * len(self.form.placements) + int(place[best])

    def _candidates(self) -> Integers:
        """Rows at random, all changes of one knob of the best, some of two, and the best crossed with one another."""
        space, random = self.space, self.random
        if space.rows is not None and len(space.rows) <= DRAWN:
            return space.rows
        order = sorted(self._value, key=lambda c: (-self._value[c], c))
        order = [c for c in (self.best // len(self.form.placements),) if c >= 0] + order[:KEPT]
        top = np.array([space.row(c) for c in dict.fromkeys(order)], dtype=np.int64)
        around = [space.around(row, random, MOST_OF_A_KNOB) for row in top.tolist()]
        pairs = top[random.integers(len(top), size=PAIRS)].copy()
        for _ in range(2):
            knob = random.integers(len(space.levels), size=PAIRS)
            pairs[np.arange(PAIRS), knob] = random.integers(0, np.array(space.levels)[knob])
        mothers, fathers = (top[random.integers(len(top), size=PAIRS)] for _ in range(2))
        crossed = np.where(random.random(mothers.shape) < 0.5, mothers, fathers)
        made = space.canonical(np.concatenate([pairs, crossed]))
        return np.concatenate([space.draw(random, DRAWN), *around, made[space.allowed(made)]])

    def _score(self, rows: Integers) -> tuple[Vector, Integers]:
        """The score of each row at its best placement; rows of poor accuracy are not placed, and score nothing."""
        form = self.form
        mean, sd = self.accuracy.posterior(rows)
        passes = normal_below((mean - form.orient(form.target)) / sd)
        gain = self._hope(mean, sd, passes)
        score, place = np.full(len(rows), -np.inf), np.zeros(len(rows), dtype=np.int64)
        near = np.argsort(-gain, kind="stable")[:PLACED]
        kept = rows[near]
        seconds, spread, sizes, arrives = self._predicted(kept)
        latency = form.latency_s(seconds, sizes, arrives)
        time = form.placed.relative_time[form.placements]
        wide = np.sqrt((spread**2 * seconds**2) @ (time**2).T) / np.maximum(seconds @ time.T, 1e-12) + LATENCY_SPREAD
        limit = max(form.limit_s, 1e-12)
        in_time = normal_below((np.log(limit) - np.log(np.maximum(latency, 1e-12))) / wide)
        calls = np.zeros((1, 1)) if form.calls is None else form.calls.per_hour(kept, form.placements, form.often)
        in_time = np.where(np.isfinite(calls), in_time, 0.0)
        self._calls = np.where(np.isfinite(calls), calls, 0.0)
        full = in_time * self._worth(mean[near], gain[near], passes[near], (seconds, latency))
        place[near], score[near] = full.argmax(axis=1), full.max(axis=1)
        return score, place

    def _hope(self, mean: Vector, sd: Vector, passes: Vector) -> Vector:
        """What a row promises whatever its placement: by this the rows to be placed are chosen."""
        if self.form.aim.of[0] != "quality":
            return passes
        if len(self.form.aim.of) > 1:
            return passes * (mean + sd - float(mean.min()) + LEAST)
        best = float(self.accuracy.posterior(np.array(self._kept))[0].max() if self._kept else mean.min())
        return passes * np.maximum(expected_improvement(mean, sd, best), LEAST * LEAST)

    def _worth(self, mean: Vector, gain: Vector, passes: Vector, timed: tuple[Vector, Vector]) -> Vector:
        """Per row and placement what it would be worth in time."""
        form, (seconds, latency) = self.form, timed
        scales = np.array([operator.by_share for operator in form.operators])
        time = form.placed.relative_time[form.placements]
        paid = seconds @ (time * (form.price > 0) * scales).T
        root = np.sqrt(seconds) @ np.sqrt(form.price * time * scales).T
        left, full = form.limit_s - (latency - paid), form.full_price[None, :]
        with np.errstate(divide="ignore", invalid="ignore"):
            cost = np.clip(np.where(left > 0, root**2 / left, np.inf), min(form.placed.shares) * full, full)
        cost = cost + form.carried(seconds) + self._calls
        budget, first = form.aim.budget, form.aim.of[0]
        pays = np.ones_like(cost) if np.isinf(budget) else normal_below((budget - cost) / (0.15 * max(budget, 1e-9)))
        if len(form.aim.of) > 1:
            if "latency" in form.aim.of:
                cost, latency = (
                    form.paid_at(seconds, self._share) + self._calls,
                    latency + paid * (1.0 / self._share - 1.0),
                )
            return pays * self._front_worth(mean, passes, cost, latency)
        if first == "quality":
            return pays * gain[:, None]
        figure = cost if first == "cost" else latency
        known = np.isfinite(self.best_value)
        reference = self.best_value if known else 1.3 * float(np.where(np.isfinite(figure), figure, 0.0).max())
        return np.asarray(pays * passes[:, None] * np.maximum(reference - figure, LEAST * max(reference, LEAST)))

    def _front_worth(self, mean: Vector, passes: Vector, cost: Vector, slow: Vector) -> Vector:
        of = self.form.aim.of
        figures = {"quality": np.broadcast_to(-mean[:, None], slow.shape), "cost": cost, "latency": slow}
        known = np.array([row for _, row in self._front]).reshape(-1, len(of))
        score, best = np.zeros(slow.shape), np.zeros(len(known))
        for k, name in enumerate(of):
            ends = np.concatenate([figures[name].ravel(), known[:, k]])
            low, unit = float(ends.min()), max(float(np.ptp(ends)), 1e-12)
            score = np.maximum(score, self._weights[k] * (figures[name] - low) / unit)
            best = np.maximum(best, self._weights[k] * (known[:, k] - low) / unit)
        return np.asarray(passes[:, None] * np.maximum(float(best.min(initial=1.0)) - score, LEAST))

    def _predicted(self, rows: Integers) -> tuple[Vector, Vector, Vector, Vector]:
        """Seconds, their spread and bytes of every operator, and bytes that come in."""
        seconds, spread, sizes = [], [], []
        arrives = np.zeros(len(rows))
        for o, operator in enumerate(self.form.operators):
            reads, of = np.unique(rows[:, list(operator.reads)], axis=0, return_inverse=True)
            of = of.ravel()
            mean, sd = self._seconds[o].posterior(reads)
            known = np.array([row.tobytes() in self._known[o] for row in reads])
            seconds.append(np.exp(mean)[of])
            spread.append(np.where(known, 0.0, sd)[of])
            sizes.append(np.exp(self._bytes[o].posterior(reads)[0])[of])
            if o == 0:
                arrives = np.exp(self._arrives.posterior(reads)[0])[of]
        return np.stack(seconds, axis=1), np.stack(spread, axis=1), np.stack(sizes, axis=1), arrives


class Wide(BlackBoxEngine):
    """Among settings that are too many to be listed."""

    name: ClassVar[str] = "wide"
    search: ClassVar[type[BlackBoxSearch]] = WideSearch
    any_aim: ClassVar[bool] = True
    any_space: ClassVar[bool] = True
