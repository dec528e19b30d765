"""Operators that are calls of an API at some levels of their knobs: where they run, what they cost, how they fail.

An API is one more place beside the tiers, and it is the configuration that says which operators run there: no other
placement of it is open. A call fails with a chance f, is made again up to r times, and each failure costs w seconds.
So k failures come before the answer with probability f^k (1 - f), and with f^(r + 1) there is none, which counts as
late. A sample that was measured stands for all these cases: a row of weight f^k (1 - f) / n for each of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.forms.space import Condition

__all__ = ["Call", "Calls", "Cases", "Runs", "quantile"]

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

    An operator that did not run for a sample took NaN seconds.

    With `cases` there are several rows of a sample, for what may go wrong on its way (`calls`).
    """

    seconds: Vector
    bytes_out: Vector
    bytes_in: Vector
    cases: Cases | None = None

    def __len__(self) -> int:
        return len(self.bytes_in)

    def each_time(self) -> tuple[float, ...]:
        """The mean seconds of each operator, over the samples that it ran for."""
        ran = (~np.isnan(self.seconds)).sum(axis=0)
        return tuple((np.nan_to_num(self.seconds).sum(axis=0) / np.maximum(ran, 1)).tolist())


@dataclass(frozen=True)
class Call:
    """An operator (by number) that runs at a place (by number) where its knobs are at these levels (by place)."""

    operator: int
    place: int
    where: Condition
    per_hour: float = 0.0
    failures: float = 0.0
    retries: int = 0
    retry_s: float = 0.0


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
            made = _made(call, rows) & (at[:, call.operator] < 0)
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
            if _made(call, np.array([row]))[0]:
                made.setdefault(call.operator, call)
        return list(made.values())

    def lost(self, row: Sequence[int], often: Vector) -> float:
        """The chance, at most, that some call of a query is never answered."""
        return float(min(1.0, sum(often[one.operator] * one.failures ** (one.retries + 1) for one in self.of(row))))

    def cases(self, row: Sequence[int]) -> list[tuple[dict[int, float], float]]:
        """How often a setting's calls may fail before their answers: seconds more by operator, and how likely."""
        failing = [call for call in self.of(row) if call.failures > 0]
        found = []
        for failed in product(*(range(call.retries + 1) for call in failing)):
            likely = 1.0
            for call, times in zip(failing, failed, strict=True):
                likely *= call.failures**times * (1.0 - call.failures)
            if likely >= RAREST:
                more = {call.operator: times * call.retry_s for call, times in zip(failing, failed, strict=True)}
                found.append((more, likely))
        return found

    def tried(self, runs: Runs, row: Sequence[int]) -> Runs:
        """What samples take with all cases of failures, each with its weight."""
        cases = self.cases(row)
        if len(cases) == 1 and not any(call.failures > 0 for call in self.of(row)):
            return runs
        count, more = len(runs), np.zeros((len(cases), runs.seconds.shape[1]))
        for k, (extra, _) in enumerate(cases):
            for operator, seconds in extra.items():
                more[k, operator] = seconds
        return Runs(
            (runs.seconds[None, :, :] + more[:, None, :]).reshape(len(cases) * count, -1),
            np.tile(runs.bytes_out, (len(cases), 1)),
            np.tile(runs.bytes_in, len(cases)),
            cases=Cases(np.repeat([likely for _, likely in cases], count) / count, count),
        )


def _made(call: Call, rows: Integers) -> NDArray[np.bool_]:
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
