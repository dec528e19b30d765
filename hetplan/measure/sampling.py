"""How sure a mean is, and when enough samples have been seen: stratified estimates and sequential stopping rules.

::

    t        stop when |m - A| > t(n - 1, confidence) se               the paper's; looks at every sample
    mixture  stop when |m - A| > se sqrt((n + rho)/n ln((n + rho)/(rho a^2)))      valid however often one looks
    spend    t at n = n_min 1.3^j and n_max only, each at a/J          valid, by the union of J looks
    fixed    no looking before n_max

Looking at every sample with `t` stops falsely far more often than a = 1 - confidence says where the true mean is near
the target (12 % at it); `false_stops` measures it. Samples come from the strata in turn, so that m = sum p_k m_k and
se^2 = sum p_k^2 s_k^2 / n_k once each stratum has two.

`stratify` sorts samples into strata of alike ones by their features (K-means); a small one is joined to its nearest.
"""

from __future__ import annotations

import csv
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hetplan.errors import InputError

__all__ = [
    "Estimate",
    "Rule",
    "Seen",
    "Strata",
    "critical",
    "false_stops",
    "read_features",
    "stratified_variance",
    "stratify",
]

Vector = NDArray[np.float64]

RHO = 12.0
GROWTH = 1.3
LEAST_SPREAD = 0.01
"""A continuous score varies by at least this share of its range: else equal first samples would prove anything."""


@dataclass(frozen=True)
class Rule:
    """When to stop and what it means: is the mean at least `target` (at most, where lower is better)?"""

    target: float
    kind: Literal["t", "mixture", "spend", "fixed"] = "t"
    confidence: float = 0.99
    n_min: int = 50
    n_max: int = 1000
    bernoulli: bool = True
    lower: bool = False
    span: float = 1.0
    undecided: Literal["sign", "reject"] = "sign"

    @property
    def looks(self) -> tuple[int, ...]:
        """The sample sizes at which `spend` looks."""
        sizes, size = [], float(self.n_min)
        while size < self.n_max:
            sizes.append(round(size))
            size *= GROWTH
        return (*dict.fromkeys(sizes), self.n_max)

    def passes(self, mean: float) -> bool:
        """On which side of the target a mean is."""
        return mean <= self.target if self.lower else mean >= self.target


def critical(n: NDArray[np.int64] | int, confidence: float) -> Vector:
    """Two-sided Student t at n - 1 degrees of freedom.

    >>> [round(float(critical(n, 0.99)), 4) for n in (100, 110, 115)]
    [2.6264, 2.6217, 2.6196]
    """
    from scipy.special import stdtrit

    return np.asarray(stdtrit(np.asarray(n, dtype=float) - 1.0, 1.0 - (1.0 - confidence) / 2.0), dtype=np.float64)


@dataclass(frozen=True)
class Estimate:
    """What is known of a mean after n samples."""

    n: int
    mean: float
    se: float
    decided: bool


class Seen:
    """Scores seen so far, per stratum: count, sum, sum of squares; `add` says after which sample a rule stops."""

    def __init__(self, rule: Rule, weights: Vector) -> None:
        self.rule, self.weights = rule, weights / weights.sum()
        self.count = np.zeros(weights.size)
        self.total = np.zeros(weights.size)
        self.squares = np.zeros(weights.size)
        self.latest = Estimate(0, math.nan, math.nan, False)

    @property
    def n(self) -> int:
        """Samples seen."""
        return int(self.count.sum())

    def next_look(self) -> int:
        """How many more samples there will be before the rule looks again; 0 when it is done."""
        n, rule = self.n, self.rule
        if self.latest.decided or n >= rule.n_max:
            return 0
        if rule.kind == "fixed":
            return rule.n_max - n
        if rule.kind == "spend":
            return next(size for size in rule.looks if size > n) - n
        return max(1, min(rule.n_min, rule.n_max) - n)

    def add(self, strata: NDArray[np.int64], scores: Vector) -> int:
        """Take in scores until the rule stops; how many were taken."""
        counts, totals, squares = self._running(strata, scores)
        n = counts.sum(axis=1)
        mean, se = self._estimates(counts, totals, squares)
        stops = self._stops(n, mean, se)
        taken = int(np.argmax(stops)) + 1 if stops.any() else scores.size
        last = taken - 1
        if taken:
            self.count, self.total, self.squares = counts[last], totals[last], squares[last]
            self.latest = Estimate(int(n[last]), float(mean[last]), float(se[last]), bool(stops[last]))
        return taken

    def _running(self, strata: NDArray[np.int64], scores: Vector) -> tuple[Vector, Vector, Vector]:
        one = np.zeros((scores.size, self.weights.size))
        one[np.arange(scores.size), strata] = 1.0
        return (
            self.count + np.cumsum(one, axis=0),
            self.total + np.cumsum(one * scores[:, None], axis=0),
            self.squares + np.cumsum(one * scores[:, None] ** 2, axis=0),
        )

    def _estimates(self, counts: Vector, totals: Vector, squares: Vector) -> tuple[Vector, Vector]:
        """Mean and its standard error after each sample."""
        n = counts.sum(axis=1)
        pooled = totals.sum(axis=1) / n
        with np.errstate(divide="ignore", invalid="ignore"):
            each = totals / counts
            spread = np.maximum(squares - counts * each**2, 0.0) / (counts - 1)
            plain = np.maximum(squares.sum(axis=1) - n * pooled**2, 0.0) / np.maximum(n - 1, 1)
        ready = (counts >= 2).all(axis=1)
        mean = np.where(ready, np.where(counts > 0, each, 0.0) @ self.weights, pooled)
        within = np.where(counts >= 2, spread, 0.0) / np.maximum(counts, 1)
        variance = np.where(ready, within @ self.weights**2, plain / n)
        return mean, np.sqrt(np.maximum(variance, self._least(n, totals.sum(axis=1)) / n))

    def _least(self, n: Vector, successes: Vector) -> Vector:
        """The variance that scores have at least, where those seen show none."""
        if not self.rule.bernoulli:
            return np.full(n.size, (LEAST_SPREAD * self.rule.span) ** 2)
        share = (successes + 1) / (n + 2)
        alike = (successes <= 0) | (successes >= n)
        least = 1 / (n + 2)
        return np.where(alike, share * (1 - share), least * (1 - least))

    def _stops(self, n: Vector, mean: Vector, se: Vector) -> NDArray[np.bool_]:
        rule = self.rule
        away, alpha = np.abs(mean - rule.target), 1.0 - rule.confidence
        if rule.kind == "fixed":
            return np.zeros(n.size, dtype=bool)
        if rule.kind == "mixture":
            margin = np.sqrt((n + RHO) / n * np.log((n + RHO) / (RHO * alpha**2)))
            return (away > se * margin) & (n >= rule.n_min)
        if rule.kind == "spend":
            looks = np.isin(n, rule.looks)
            return looks & (away > se * critical(n.astype(np.int64), 1.0 - alpha / len(rule.looks)))
        return (away > se * critical(n.astype(np.int64), rule.confidence)) & (n >= rule.n_min)


def false_stops(rule: Rule, mean: float, *, runs: int, seed: int = 0) -> tuple[float, float]:
    """By simulation with Bernoulli scores: how often the rule stops on the wrong side, and the median sample size.

    At the target itself every stop counts as wrong.
    """
    rng = np.random.default_rng(seed)
    wrong, sizes = 0, []
    for _ in range(runs):
        seen = Seen(rule, np.ones(1))
        seen.add(np.zeros(rule.n_max, dtype=np.int64), (rng.random(rule.n_max) < mean).astype(float))
        at_target = mean == rule.target
        wrong += seen.latest.decided and (at_target or rule.passes(seen.latest.mean) != rule.passes(mean))
        sizes.append(seen.latest.n)
    return wrong / runs, float(np.median(sizes))


def stratified_variance(weights: Vector, means: Vector, variances: Vector, *, stratified: bool) -> float:
    """n times the variance of the mean of n samples, drawn from the strata in turn or at random (Theorem 1).

    >>> p, m = np.array([0.5, 0.5]), np.array([0.6, 0.9])
    >>> round(stratified_variance(p, m, m * (1 - m), stratified=True), 4)
    0.165
    >>> round(stratified_variance(p, m, m * (1 - m), stratified=False), 4)
    0.1875
    """
    within = float(weights @ variances)
    return within if stratified else within + float(weights @ (means - weights @ means) ** 2)


@dataclass(frozen=True)
class Strata:
    """Which stratum each sample belongs to, the share of each, and what was joined."""

    of: NDArray[np.int64]
    share: Vector
    joined: tuple[str, ...] = ()

    def order(self, seed: int = 0) -> NDArray[np.int64]:
        """Samples in the order of drawing: from the strata in turn, shuffled within; the same for every plan."""
        rng = np.random.default_rng(seed)
        queues = [rng.permutation(np.flatnonzero(self.of == k)) for k in range(self.share.size)]
        longest = max((queue.size for queue in queues), default=0)
        drawn = [queue[turn] for turn in range(longest) for queue in queues if turn < queue.size]
        return np.array(drawn, dtype=np.int64)


def read_features(path: str | os.PathLike[str]) -> Vector:
    """The features of a CSV file with a header: a row of numbers per sample, which are asked for by their place.

    A column ``id`` may name them and is passed over.
    """
    file = str(path)
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = f"the feature file cannot be read: {getattr(error, 'strerror', None) or error}"
        raise InputError.one(file=file, why=why, remedy="Name a CSV file, relative to the profile.") from None
    header, *rows = [row for row in csv.reader(text.splitlines()) if row] or [[]]
    columns = [n for n, name in enumerate(header) if name.strip().lower() != "id"]
    if not columns or not rows:
        why = "a header and a row of numbers per sample"
        raise InputError.one(file=file, why=why, remedy="Write for instance: id,brightness,motion.")
    values = np.empty((len(rows), len(columns)))
    for number, row in enumerate(rows):
        for place, column in enumerate(columns):
            try:
                values[number, place] = float(row[column])
            except (IndexError, ValueError):
                values[number, place] = math.nan
        if not np.isfinite(values[number]).all() or len(row) != len(header):
            raise InputError.one(
                file=file, path=f"row {number + 2}", value=",".join(row)[:40],
                why=f"a finite number in each of {len(columns)} columns", remedy="Mend the row, or leave it out.",
            )  # fmt: skip
    return values


def stratify(features: Vector, count: int, *, seed: int = 0, least: int = 2) -> Strata:
    """Sort samples (rows of features) into at most `count` strata; those of fewer than `least` samples are joined.

    >>> strata = stratify(np.array([[0.0], [0.1], [9.0], [9.1], [9.2]]), 2)
    >>> sorted(strata.share.tolist()), bool(strata.of[0] == strata.of[1])
    ([0.4, 0.6], True)
    """
    from scipy.cluster.vq import kmeans2

    rows = np.asarray(features, dtype=float).reshape(len(features), -1)
    spread = rows.std(axis=0)
    scaled = (rows - rows.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    count = max(1, min(count, len(np.unique(scaled, axis=0))))
    centres, of = kmeans2(scaled, count, minit="++", rng=np.random.default_rng(seed))
    of = of.astype(np.int64)
    joined = []
    while True:
        names, sizes = np.unique(of, return_counts=True)
        if names.size < 2 or sizes.min() >= least:
            break
        small = names[sizes.argmin()]
        others = names[names != small]
        nearest = others[np.linalg.norm(centres[others] - centres[small], axis=1).argmin()]
        of[of == small] = nearest
        joined.append(f"stratum {small} with {sizes.min()} samples is joined to stratum {nearest}")
    names, of = np.unique(of, return_inverse=True)
    share = np.bincount(of, minlength=names.size) / len(of)
    return Strata(of.astype(np.int64), share, tuple(joined))
