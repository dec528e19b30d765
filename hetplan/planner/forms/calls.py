"""Operators that are calls of an API at some levels of their knobs: where they run, what they cost, how they fail.

An API is one more place beside the tiers, and it is the configuration that says which operators run there: no other
placement of it is open. A call fails with a chance f, is made again up to r times, and each failure costs w seconds.
So k failures come before the answer with probability f^k (1 - f), and with f^(r + 1) there is none, which counts as
late. A sample that was measured counts for all these cases: a row of weight f^k (1 - f) / n for each of them. Where an
operator runs several times for a sample (the rounds of a loop), their failures add up. Where a query makes several
calls side by side (`fans`), the one that fails most often decides: the largest of as many draws as there are calls.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.forms.fans import Counted, Fans
from hetplan.planner.forms.space import Condition

__all__ = ["Call", "Calls", "Cases", "Runs", "cases_of", "quantile", "ranks"]

Vector = NDArray[np.float64]
Integers = NDArray[np.int64]

RAREST = 1e-7
"""Cases that are rarer count as late."""
SLIP = 1e-12


@dataclass(frozen=True, eq=False)
class Cases:
    """The weight of every row, where so many samples stand for several cases each."""

    weight: Vector
    samples: int


@dataclass(frozen=True, eq=False)
class Runs:
    """What each sample took: seconds on the reference and bytes out per operator, bytes in; a row per sample.

    An operator that did not run for a sample took NaN seconds; `rounds` says how often it ran, where not all ran once.
    With `cases` there are several rows of a sample, for what may go wrong on its way (`calls`), or how many calls it
    makes; `calls` says how many side by side, where not all make one.
    """

    seconds: Vector
    bytes_out: Vector
    bytes_in: Vector
    cases: Cases | None = None
    rounds: Vector | None = None
    calls: Vector | None = None

    def __len__(self) -> int:
        return len(self.bytes_in)

    @property
    def often(self) -> Vector:
        """How often each operator ran for each sample."""
        return (~np.isnan(self.seconds)).astype(float) if self.rounds is None else self.rounds

    def each_time(self) -> tuple[float, ...]:
        """The mean seconds of each operator, over the samples that it ran for."""
        ran = (~np.isnan(self.seconds)).sum(axis=0)
        return tuple((np.nan_to_num(self.seconds).sum(axis=0) / np.maximum(ran, 1)).tolist())


@dataclass(frozen=True)
class Call:
    """An operator (by number) that runs at a place (by number) where its knobs are at these levels (by place).

    `gap_s` is there where calls come at a rate: how far apart the API wants them.
    """

    operator: int
    place: int
    where: Condition
    per_hour: float = 0.0
    failures: float = 0.0
    retries: int = 0
    retry_s: float = 0.0
    gap_s: float = 0.0


@dataclass(frozen=True)
class Calls:
    """All calls that a pipeline may make; places from `first` on are APIs."""

    calls: tuple[Call, ...]
    first: int

    def per_hour(self, rows: Integers, placements: Integers, often: Vector | None = None) -> Vector:
        """What the calls of each setting cost, per placement; infinite where an operator does not run there.

        `often` are the shares of queries for which each operator runs.

        >>> calls = Calls((Call(0, 2, ((0, frozenset({1})),), per_hour=3.0),), first=2)
        >>> calls.per_hour(np.array([[0], [1]]), np.array([[0], [1], [2]])).tolist()
        [[0.0, 0.0, inf], [inf, inf, 3.0]]
        """
        cost = np.zeros((len(rows), len(placements)))
        at = np.full((len(rows), placements.shape[1]), -1, dtype=np.int64)
        for call in self.calls:
            made = _calls_made(call, rows) & (at[:, call.operator] < 0)
            at[made, call.operator] = call.place
            cost[made] += call.per_hour * (1.0 if often is None else float(often[call.operator]))
        for operator in range(placements.shape[1]):
            here = placements[None, :, operator]
            wanted = at[:, operator, None]
            cost[np.where(wanted >= 0, here != wanted, here >= self.first)] = np.inf
        return cost

    def of(self, row: Sequence[int]) -> list[Call]:
        """The calls that a setting makes: at most one of each operator, the first that fits."""
        made: dict[int, Call] = {}
        for call in self.calls:
            if _calls_made(call, np.array([row]))[0]:
                made.setdefault(call.operator, call)
        return list(made.values())

    def lost(self, row: Sequence[int], often: Vector) -> float:
        """The chance, at most, that some call of a query is never answered."""
        return float(min(1.0, sum(often[one.operator] * one.failures ** (one.retries + 1) for one in self.of(row))))


def cases_of(runs: Runs, calls: Sequence[Call], fans: Fans | None = None, exact: Collection[int] = frozenset()) -> Runs:
    """What samples take with all cases of failures and of numbers of calls, each with its weight.

    Of the operators in `exact` every number of calls is a case, of others only whether there are any.
    """
    failing = [call for call in calls if call.failures > 0]
    if not failing and fans is None:
        return runs
    often = runs.often.astype(np.int64)
    tables = [_failure_odds(call, int(often[:, call.operator].max())) for call in failing]
    once: Counted = ((1,) * runs.seconds.shape[1], 1.0)
    counted = [once] if fans is None else fans.counts({*exact, *(call.operator for call in failing)})
    if not failing and len(counted) == 1 and (fans is None or fans.sure):
        return replace(runs, calls=np.tile(np.array(counted[0][0], float), (len(runs), 1)))
    seconds, weight, several = [], [], []
    for counts, chance in counted:
        slowest = [_slowest(table, counts[call.operator]) for call, table in zip(failing, tables, strict=True)]
        for failed in product(*(range(table.shape[1]) for table in slowest)):
            likely, more = np.full(len(runs), chance), np.zeros(runs.seconds.shape[1])
            for call, table, times in zip(failing, slowest, failed, strict=True):
                likely = likely * table[often[:, call.operator], times]
                more[call.operator] = times * call.retry_s
            if likely.max() >= RAREST:
                seconds.append(np.where(np.array(counts) > 0, runs.seconds + more, np.nan))
                weight.append(likely / len(runs))
                several.append(np.tile(np.array(counts, float), (len(runs), 1)))
    return Runs(
        np.concatenate(seconds), np.tile(runs.bytes_out, (len(weight), 1)), np.tile(runs.bytes_in, len(weight)),
        cases=Cases(np.concatenate(weight), len(runs)), calls=None if fans is None else np.concatenate(several),
    )  # fmt: skip


def _slowest(table: Vector, calls: int) -> Vector:
    """How likely the call of several that fails most often fails so many times (columns).

    >>> _slowest(np.array([[0.5, 0.25]]), 2).tolist()
    [[0.25, 0.3125]]
    """
    return table if calls == 1 else np.diff(np.cumsum(table, axis=1) ** calls, axis=1, prepend=0.0)


def _failure_odds(call: Call, most: int) -> Vector:
    """How likely so many rounds (rows) have so many failures in all (columns) before each is answered.

    >>> _failure_odds(Call(0, 1, (), failures=0.5, retries=1), 2).tolist()
    [[1.0, 0.0, 0.0], [0.5, 0.25, 0.0], [0.25, 0.25, 0.0625]]
    """
    once = call.failures ** np.arange(call.retries + 1) * (1.0 - call.failures)
    table = np.zeros((most + 1, call.retries * most + 1))
    row = np.ones(1)
    for rounds in range(most + 1):
        table[rounds, : row.size] = row
        row = np.convolve(row, once)
    return table


def _calls_made(call: Call, rows: Integers) -> NDArray[np.bool_]:
    held = np.ones(len(rows), dtype=bool)
    for knob, levels in call.where:
        held &= np.isin(rows[:, knob], list(levels))
    return held


def quantile(each: Vector, cases: Cases, level: float, share: float) -> Vector:
    """The least values (along the first axis) that weights of `level` do not exceed; the largest, where all weigh less.

    Where all weigh less than `share`, too many are never answered: infinite.
    """
    weight, whole = cases.weight, float(cases.weight.sum())
    if whole < share - SLIP:
        return np.full(each.shape[1:], np.inf)
    order = np.argsort(each, axis=0, kind="stable")
    total = np.cumsum(weight[order], axis=0)
    enough = total >= min(level, whole) - SLIP
    place = np.expand_dims(enough.argmax(axis=0), 0)
    found: Vector = np.take_along_axis(np.take_along_axis(each, order, axis=0), place, axis=0)[0]
    return found


def ranks(samples: int, share: float, confidence: float) -> tuple[int, int]:
    """Between which of so many ordered values (from 1) the quantile is: at least at the first, at most at the second.

    Each holds with this confidence, whatever the distribution. 0, or one more than there are, says that none does.

    >>> ranks(1000, 0.99, 0.99), ranks(458, 0.99, 0.99)[1], ranks(459, 0.99, 0.99)[1]
    ((982, 998), 459, 459)
    """
    from scipy.special import bdtr

    below = bdtr(np.arange(samples + 1), samples, share)
    high = int(np.searchsorted(below[:-1], confidence)) + 1
    low = int(np.searchsorted(below[:-1], 1.0 - confidence, side="right"))
    return low, high
