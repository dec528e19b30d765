r"""A search among settings that nobody can list: 10^6 and more, with conditions and rules between knobs.

What is believed: the accuracy of a setting is a Gaussian process over its row of knobs, whose kernel is a sum::

    k(x, y) = a mean_g c(x_g, y_g)                    what each knob does by itself
            + b prod_g (r + (1 - r) c(x_g, y_g))      what knobs do together
            + s sum_gh [x_g = y_h] / G^2              what a level does wherever it is chosen (knobs of the same levels)
            + t mean_g u(x_g) u(y_g)                  what goes on rising along knobs in order

c is 1 for equal levels, 0 for others, and falls with the distance of levels in order. Weights, r and the noise are the
likeliest of a short list. Seconds and bytes of an operator are processes over the knobs that it reads.

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

from hetplan.planner.forms.black_box import BlackBox, Measured, Verdict, unbeaten
from hetplan.planner.forms.space import Space
from hetplan.solvers.gaussian_process import LightProcess, expected_improvement, normal_below
from hetplan.solvers.search import Search, SearchEngine
from hetplan.solvers.search_beliefs import ACCURACY_SPREAD, LATENCY_SPREAD, LOG_SPREAD, MakeProcess

__all__ = ["PointProcess", "Wide", "WideSearch"]

Vector = NDArray[np.float64]
Integers = NDArray[np.int64]

DRAWN, PAIRS, KEPT, PLACED, CLIMBS = 400, 200, 6, 48, 4
MOST_OF_A_KNOB = 24
FALL = 3.0
WEIGHTS = (
    (0.6, 0.4, 0.0), (0.85, 0.15, 0.0), (0.1, 0.9, 0.0),
    (0.3, 0.3, 0.4), (0.4, 0.1, 0.5), (0.45, 0.05, 0.5), (0.1, 0.4, 0.5), (0.1, 0.1, 0.8),
)  # fmt: skip
UNLIKE = 3
"""Of knobs by themselves, together, and of levels wherever they are; the first are for knobs that share none."""
KEEPS = (0.5, 0.75, 0.9)
NOISES = (1e-3, 0.03, 0.2)
TREND = 0.5
REFIT = 3
PRIOR_WEIGHT = 2.0
LEAST = 1e-4


@dataclass(frozen=True)
class Grid:
    """What the process knows of knobs: how many levels, which in an order, and which knobs have the same levels."""

    levels: tuple[int, ...]
    ordered: tuple[bool, ...]
    alike: tuple[tuple[int, ...], ...] = ()

    def of(self, knobs: tuple[int, ...]) -> Grid:
        """The same of some knobs only."""
        at = {knob: place for place, knob in enumerate(knobs)}
        groups = tuple(tuple(at[k] for k in group if k in at) for group in self.alike)
        return Grid(
            tuple(self.levels[k] for k in knobs), tuple(self.ordered[k] for k in knobs),
            tuple(group for group in groups if len(group) > 1),
        )  # fmt: skip


class PointProcess:
    """The process of the module over rows; every row may be asked about, none is listed."""

    def __init__(self, grid: Grid, expected: float) -> None:
        self.grid, self.expected = grid, expected
        self.rows: Integers = np.zeros((0, len(grid.levels)), dtype=np.int64)
        self.values: list[float] = []
        self.noise: list[float] = []
        self._since, self._chosen = REFIT, (WEIGHTS[0], KEEPS[1], NOISES[1])
        self._factor: Vector | None = None

    def add(self, row: Integers, value: float, noise: float = 0.0) -> None:
        """Take in an observation with the variance of its own error."""
        self.rows = np.concatenate([self.rows, row[None, :]])
        self.values.append(value)
        self.noise.append(noise)
        self._factor = None
        self._since += 1

    def _parts(self, a: Integers, b: Integers) -> tuple[Vector, Vector, Vector, Vector]:
        """Mean agreement per knob, agreements by knob, agreement of labels anywhere, and what rises along orders."""
        size = max(1, a.shape[1])
        each = np.zeros((a.shape[1], len(a), len(b)))
        trend = np.zeros((len(a), len(b)))
        for k, (levels, ordered) in enumerate(zip(self.grid.levels, self.grid.ordered, strict=True)):
            if ordered and levels > 1:
                u, v = 2.0 * a[:, k] / (levels - 1) - 1.0, 2.0 * b[:, k] / (levels - 1) - 1.0
                each[k] = np.exp(-FALL / 2.0 * np.abs(u[:, None] - v[None, :]))
                trend += u[:, None] * v[None, :]
            else:
                each[k] = a[:, k][:, None] == b[:, k][None, :]
        labels = np.zeros((len(a), len(b)))
        for group in self.grid.alike:
            bags = [_bag(rows, group, self.grid.levels[group[0]]) for rows in (a, b)]
            labels += bags[0] @ bags[1].T / len(group) ** 2 / len(self.grid.alike)
        return each.mean(axis=0) if len(each) else np.ones_like(trend), each, labels, trend / size

    def _kernel(self, a: Integers, b: Integers, weights: tuple[float, float, float], keep: float) -> Vector:
        alone, each, labels, trend = self._parts(a, b)
        together = np.prod(keep + (1.0 - keep) * each, axis=0)
        return np.asarray(weights[0] * alone + weights[1] * together + weights[2] * labels + TREND * trend)

    def _fit(self) -> None:
        values = np.array(self.values)
        self.centre = float(values.mean())
        away = float(((values - self.centre) ** 2).sum())
        self.scale = float(np.sqrt((PRIOR_WEIGHT * self.expected**2 + away) / (PRIOR_WEIGHT + values.size)))
        scaled = (values - self.centre) / self.scale
        known = np.array(self.noise) / self.scale**2
        if self._since >= max(REFIT, len(values) // 8):
            self._since = 0
            self._chosen = self._likeliest(scaled, known)
        weights, keep, jitter = self._chosen
        kernel = self._kernel(self.rows, self.rows, weights, keep)
        factor = np.asarray(np.linalg.cholesky(kernel + np.diag(known + jitter)), dtype=np.float64)
        self._factor, self._weights = factor, np.linalg.solve(factor.T, np.linalg.solve(factor, scaled))

    def _likeliest(self, scaled: Vector, known: Vector) -> tuple[tuple[float, float, float], float, float]:
        alone, each, labels, trend = self._parts(self.rows, self.rows)
        best, likely = self._chosen, -np.inf
        for weights, keep in product(WEIGHTS if self.grid.alike else WEIGHTS[:UNLIKE], KEEPS):
            together = np.prod(keep + (1.0 - keep) * each, axis=0)
            kernel = weights[0] * alone + weights[1] * together + weights[2] * labels + TREND * trend
            factors = np.linalg.cholesky(kernel + np.eye(len(known)) * (known + np.array(NOISES)[:, None])[:, None, :])
            halves = np.linalg.solve(factors, np.broadcast_to(scaled[:, None], (len(NOISES), len(known), 1)))[..., 0]
            found = -0.5 * (halves**2).sum(axis=1) - np.log(np.diagonal(factors, axis1=1, axis2=2)).sum(axis=1)
            if found.max() > likely:
                likely, best = float(found.max()), (weights, keep, NOISES[int(found.argmax())])
        return best

    def posterior(self, rows: Integers) -> tuple[Vector, Vector]:
        """Mean and deviation of the function itself at these rows."""
        if not self.values:
            return np.zeros(len(rows)), np.full(len(rows), self.expected)
        if self._factor is None:
            self._fit()
        assert self._factor is not None
        weights, keep, _ = self._chosen
        cross = self._kernel(self.rows, rows, weights, keep)
        prior = self._own(rows, weights)
        half = np.linalg.solve(self._factor, cross)
        variance = np.maximum(prior - (half**2).sum(axis=0), 1e-9)
        return self.centre + self.scale * (cross.T @ self._weights), self.scale * np.sqrt(variance)

    def _own(self, rows: Integers, weights: tuple[float, float, float]) -> Vector:
        """Each row's variance before anything was seen."""
        own = np.full(len(rows), weights[0] + weights[1])
        for group in self.grid.alike:
            bag = _bag(rows, group, self.grid.levels[group[0]])
            own += weights[2] * (bag**2).sum(axis=1) / len(group) ** 2 / len(self.grid.alike)
        for k, (levels, ordered) in enumerate(zip(self.grid.levels, self.grid.ordered, strict=True)):
            if ordered and levels > 1:
                own += TREND * (2.0 * rows[:, k] / (levels - 1) - 1.0) ** 2 / rows.shape[1]
        return own


def _bag(rows: Integers, group: tuple[int, ...], levels: int) -> Vector:
    """How often each level is chosen by the knobs of a group."""
    return np.stack([(rows[:, list(group)] == level).sum(axis=1) for level in range(levels)], axis=1).astype(float)


class WideSearch(Search):
    """The search of the module. Plans are numbers: that of the row times placements, plus the placement's."""

    whole: ClassVar[bool] = True

    def __init__(self, form: BlackBox, seed: int = 0, make: MakeProcess = LightProcess) -> None:
        del make
        self.form, self.random = form, np.random.default_rng(seed)
        self.space = form.space or Space(form.levels)
        self.best, self.best_value, self.observed = -1, np.inf, 0
        self._front = []
        ordered = (*form.ordered, *(False,) * (len(form.levels) - len(form.ordered)))
        grid = Grid(form.levels, ordered, form.alike)
        self.accuracy = PointProcess(grid, ACCURACY_SPREAD)
        of = [grid.of(tuple(operator.reads)) for operator in form.operators]
        self._seconds = [PointProcess(one, LOG_SPREAD) for one in of]
        self._bytes = [PointProcess(one, LOG_SPREAD) for one in of]
        self._arrives = PointProcess(of[0], LOG_SPREAD)
        self._known: list[set[bytes]] = [set() for _ in form.operators]
        self._closed: set[int] = set()
        self._value: dict[int, float] = {}
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
            return self._left()
        top = np.maximum(np.array(self.form.levels) - 1, 1)
        order = np.array([*self.form.ordered, *(False,) * (rows.shape[1] - len(self.form.ordered))])
        far = (np.abs(rows / top - 0.5) * order).sum(axis=1)
        return self.space.number(rows[int(np.argmin(far))].tolist()) * len(self.form.placements)

    def _left(self) -> int:
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
            return self._left()
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
        best = -self.best_value if np.isfinite(self.best_value) else float(mean.min())
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
            return pays * self._front_worth(mean, passes, cost, latency + paid * (1.0 / self._share - 1.0))
        if first == "quality":
            return pays * gain[:, None]
        figure = cost if first == "cost" else latency
        known = np.isfinite(self.best_value)
        reference = self.best_value if known else 1.3 * float(np.where(np.isfinite(figure), figure, 0.0).max())
        return np.asarray(pays * passes[:, None] * np.maximum(reference - figure, LEAST * max(reference, LEAST)))

    def _front_worth(self, mean: Vector, passes: Vector, cost: Vector, slow: Vector) -> Vector:
        of, form = self.form.aim.of, self.form
        if "latency" in of:
            cost = np.broadcast_to(form.full_price[None, :] * self._share + self._calls, slow.shape)
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


class Wide(SearchEngine):
    """Among settings that are too many to be listed."""

    name: ClassVar[str] = "wide"
    search: ClassVar[type[Search]] = WideSearch
    any_aim: ClassVar[bool] = True
    any_space: ClassVar[bool] = True
