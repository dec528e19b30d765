"""How sure a mean is, and when enough samples have been seen: stratified estimates and sequential stopping rules.

::

    betting  stop when bets against "the mean is on the other side of A" have won 1/a times the stake
    t        stop when |m - A| > t(n - 1, confidence) se         the paper's; it looks at every sample and overclaims
    fixed    no looking before n_max

`betting` holds however often one looks, whatever the scores are, as long as they stay in their range. A stake put on
"above A" by a fixed share f of itself becomes prod(1 + f (x - A) / A). Its mean never grows while the true mean is
below A, so that it reaches 1/a with a probability of a at most (Ville). The stake is spread evenly over shares from 1 %
to 98 %. In the same way against "below A". `t` relies on scores that are nearly normal: with rare failures it stops on
the wrong side in up to half of the cases, and at A itself in 12 % (`false_stops` measures it).

Samples that are alike in bursts (clips of one scene) count for fewer. Where the means of neighbours (`index` says where
each sample lies) vary more than those of independent ones would, each sample counts for 1/b: its bet is taken to the
power 1/b, which holds for any dependence within b samples (Hölder). `Alike` is found anew at each look.

Samples come from the strata by their shares, so that every sample weighs the same; m = sum p_k m_k and se^2 =
sum p_k^2 s_k^2 / n_k once each stratum has two.
`stratify` sorts samples into strata of alike ones by their features (K-means); a small one is joined to its nearest.
"""

from __future__ import annotations

import csv
import math
import os
from dataclasses import dataclass
from functools import cached_property
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
    "alike",
    "critical",
    "false_stops",
    "read_features",
    "stratify",
]

Vector = NDArray[np.float64]
Integers = NDArray[np.int64]

LEAST_SPREAD = 0.01
"""A continuous score varies by at least this share of its range: else equal first samples would prove anything."""
LOOK = 1.04
"""Bets are counted at sizes that grow by this: each count goes over all samples."""
STAKES = 0.98 * 1.5 ** -np.arange(12.0)
EDGE = 1e-9
SURE_ALIKE = 0.99
LEAST_BATCHES = 8


@dataclass(frozen=True)
class Rule:
    """When to stop and what it means: is the mean at least `target` (at most, where lower is better)?

    Scores are between `low` and `low + span`.
    """

    target: float
    kind: Literal["betting", "t", "fixed"] = "betting"
    confidence: float = 0.99
    n_min: int = 50
    n_max: int = 1000
    bernoulli: bool = True
    lower: bool = False
    span: float = 1.0
    undecided: Literal["sign", "reject"] = "sign"
    low: float = 0.0

    def __post_init__(self) -> None:
        if self.kind not in ("betting", "t", "fixed"):
            raise ValueError(f"no stopping rule is called {self.kind!r}: betting, t, fixed")

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


def alike(scores: Vector) -> float:
    """For how many independent samples too many each of these counts: 1 where neighbours are not alike.

    Means of batches of 2, 4, 8, ... neighbours are compared with what chance leaves them.

    >>> rng = np.random.default_rng(0)
    >>> alike(rng.random(200)), alike(np.repeat(rng.random(20), 10)) > 5
    (1.0, True)
    """
    from scipy.special import chdtri

    spread, size, found = float(np.var(scores)), 2, 1.0
    while spread > 0 and scores.size // size >= LEAST_BATCHES:
        batches = scores.size // size
        means = scores[: batches * size].reshape(batches, size).mean(axis=1)
        ratio = size * float(np.var(means, ddof=1)) / spread
        if ratio > float(chdtri(batches - 1, 1.0 - SURE_ALIKE)) / (batches - 1):
            found = max(found, ratio)
        size *= 2
    return found


@dataclass(frozen=True)
class Estimate:
    """What is known of a mean after n samples; each counts for 1 / `alike` independent ones."""

    n: int
    mean: float
    se: float
    decided: bool
    alike: float = 1.0


class Seen:
    """Scores seen so far; `add` says after which sample a rule stops."""

    def __init__(self, rule: Rule, weights: Vector) -> None:
        self.rule, self.weights = rule, weights / weights.sum()
        self.scores: Vector = np.zeros(0)
        self.strata: Integers = np.zeros(0, dtype=np.int64)
        self.index: Integers = np.zeros(0, dtype=np.int64)
        self.latest = Estimate(0, math.nan, math.nan, False)

    @property
    def n(self) -> int:
        """Samples seen."""
        return self.scores.size

    @cached_property
    def looks(self) -> Integers:
        """The sample sizes at which the rule looks: whole rounds over the strata."""
        rule, turn = self.rule, self.weights.size
        first = min(rule.n_min, rule.n_max)
        if rule.kind == "fixed":
            return np.array([rule.n_max])
        if rule.kind == "t":
            return np.arange(first, rule.n_max + 1)
        grown = first * LOOK ** np.arange(1 + math.ceil(math.log(rule.n_max / first, LOOK)))
        sizes = np.ceil(np.ceil(grown) / turn).astype(np.int64) * turn
        return np.unique(np.append(sizes[sizes < rule.n_max], rule.n_max))

    def next_look(self) -> int:
        """How many more samples there will be before the rule looks again; 0 when it is done."""
        if self.latest.decided or self.n >= self.rule.n_max:
            return 0
        return int(self.looks[np.searchsorted(self.looks, self.n, side="right")]) - self.n

    def add(self, strata: Integers, scores: Vector, index: Integers | None = None) -> int:
        """Take in scores until the rule stops; how many were taken. `index` says where each sample lies."""
        before = self.n
        places = before + np.arange(scores.size) if index is None else index
        self.scores = np.concatenate([self.scores, scores])
        self.strata, self.index = np.concatenate([self.strata, strata]), np.concatenate([self.index, places])
        mean, se = self._estimates(before)
        stops, counts = np.zeros(scores.size, dtype=bool), 1.0
        ahead = (self.looks > before) & (self.looks <= self.n) & (not self.latest.decided)
        for n in self.looks[ahead]:
            stop, counts = self._stops(int(n), float(mean[n - before - 1]), float(se[n - before - 1]))
            if stop:
                stops[n - before - 1] = True
                break
        taken = int(np.argmax(stops)) + 1 if stops.any() else scores.size
        keep = before + taken
        self.scores, self.strata, self.index = self.scores[:keep], self.strata[:keep], self.index[:keep]
        if taken:
            decided = self.latest.decided or bool(stops[taken - 1])
            self.latest = Estimate(keep, float(mean[taken - 1]), float(se[taken - 1]), decided, counts)
        return taken

    def interval(self) -> tuple[float, float]:
        """Where the mean is, by `confidence`, however often one looked: the means against which no bet has won."""
        stake, counts = math.log(2.0 / (1.0 - self.rule.confidence)), self.burst(self.n)
        middle = (float(np.mean(self.scores)) - self.rule.low) / self.rule.span
        ends = []
        for above, edge in ((True, 0.0), (False, 1.0)):
            out, inside = edge, min(max(middle, 0.0), 1.0)
            if self._log_wealth(self.n, edge, above=above, counts=counts) < stake:
                ends.append(edge)
                continue
            for _ in range(40):
                half = (out + inside) / 2
                lost = self._log_wealth(self.n, half, above=above, counts=counts) >= stake
                out, inside = (half, inside) if lost else (out, half)
            ends.append(out)
        return self.rule.low + self.rule.span * ends[0], self.rule.low + self.rule.span * ends[1]

    def burst(self, n: int) -> float:
        """How alike neighbours are, beyond what their strata have in common."""
        of, scores = self.strata[:n], self.scores[:n]
        each = np.bincount(of, scores, self.weights.size) / np.maximum(np.bincount(of, None, self.weights.size), 1)
        return alike((scores - each[of])[np.argsort(self.index[:n], kind="stable")])

    def _log_wealth(self, n: int, mean: float, *, above: bool, counts: float) -> float:
        """The logarithm of what a stake of 1 has become that was put on a true mean above (below) this one."""
        at = min(max(mean, EDGE), 1.0 - EDGE)
        shares = np.clip((self.scores[:n] - self.rule.low) / self.rule.span, 0.0, 1.0)
        gain = (shares - at) / at if above else (at - shares) / (1.0 - at)
        logs = np.log1p(STAKES[:, None] * gain[None, :]).sum(axis=1) / counts
        return float(np.logaddexp.reduce(logs)) - math.log(STAKES.size)

    def _estimates(self, before: int) -> tuple[Vector, Vector]:
        """Mean and its standard error after each sample from that one on."""
        one = np.zeros((self.n, self.weights.size))
        one[np.arange(self.n), self.strata] = 1.0
        counts, totals = np.cumsum(one, axis=0), np.cumsum(one * self.scores[:, None], axis=0)
        squares = np.cumsum(one * self.scores[:, None] ** 2, axis=0)[before:]
        counts, totals = counts[before:], totals[before:]
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
        same = (successes <= 0) | (successes >= n)
        least = 1 / (n + 2)
        return np.where(same, share * (1 - share), least * (1 - least))

    def _stops(self, n: int, mean: float, se: float) -> tuple[bool, float]:
        """Whether the rule stops after n samples, and how alike they are."""
        rule = self.rule
        if rule.kind == "t":
            return abs(mean - rule.target) > se * float(critical(n, rule.confidence)), 1.0
        if rule.kind == "fixed" or n < rule.n_min:
            return False, 1.0
        at, stake = (rule.target - rule.low) / rule.span, -math.log(1.0 - rule.confidence)
        above = mean >= rule.target
        if self._log_wealth(n, at, above=above, counts=1.0) < stake:
            return False, 1.0
        counts = self.burst(n)
        return counts == 1.0 or self._log_wealth(n, at, above=above, counts=counts) >= stake, counts


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


@dataclass(frozen=True)
class Strata:
    """Which stratum each sample belongs to, the share of each, and what was joined."""

    of: NDArray[np.int64]
    share: Vector
    joined: tuple[str, ...] = ()

    def order(self, seed: int = 0) -> NDArray[np.int64]:
        """Samples in their order of drawing: from the strata by their shares, shuffled; the same for every plan."""
        rng = np.random.default_rng(seed)
        queues = [rng.permutation(np.flatnonzero(self.of == k)) for k in range(self.share.size)]
        due = np.concatenate([(np.arange(queue.size) + 0.5) / max(queue.size, 1) for queue in queues])
        return np.asarray(np.concatenate(queues)[np.argsort(due, kind="stable")], dtype=np.int64)


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
