"""Sizing by simulation: when runs confirm that a plan meets its SLO.

A search looks at many plans, and the one that it likes best has been lucky. So what it hands out is confirmed by runs
whose seeds chose nothing, until it is clear: after 6 runs, 8, 11, ..., 50 at most. Of every limit each run gives the
share of queries that violate it. A plan is confirmed where each limit is kept by the upper end of a confidence sequence
(`planner.confidence`), which may be looked at again and again; and where queues are remembered for long, once the runs
have seen enough of them (`Runs.is_settled`).

**Error budget.** If a plan violates a limit, it is confirmed with a probability of ``alpha_j`` at most: all limits have
to be confirmed, so that one is enough to refuse it. The j-th plan that is put to the test gets ``ALPHA / 2^j``. So all
that a search tries, until it finds one that is confirmed, has a chance of `ALPHA` at most that it is wrong.

**Ends early.** A plan is given up where a limit is violated on the mean, or where the spread of its runs says that even
the last look would leave it open. Giving up errs on the safe side, and needs no budget.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from math import log
from typing import Protocol

from hetplan.planner.confidence import LEAST_RUNS, sequence, share_interval

__all__ = ["ALPHA", "LOOKS", "Confirmation", "ErrorBudget", "LimitShares", "Runs", "Verdict", "confirm"]

ALPHA = 0.05
"""The chance that a search hands out a plan that violates its SLO, as far as the simulator tells."""
LOOKS = (LEAST_RUNS, 8, 11, 15, 20, 27, 36, 50)
"""Runs after which one looks: a third more each time, up to ten times as many as a person takes."""
LEAST_SEEN = 1e-4
"""A smaller share of the queries takes too many of them to be shown."""
FRESH = 1_000_003
"""Between the seeds that choose a plan and those that confirm it."""


class Verdict(Enum):
    """What runs say of a plan."""

    MET = "met"
    VIOLATED = "violated"
    OPEN = "open"


@dataclass(frozen=True)
class LimitShares:
    """Of one limit of one application: the share of queries that may violate it, and the share that did in each run."""

    app: str
    allowed: float
    by_run: tuple[float, ...]
    queries: float
    """In all runs together."""

    @property
    def mean(self) -> float:
        """The share that violates it, each run counted alike."""
        return sum(self.by_run) / len(self.by_run)

    def interval(self, alpha: float) -> tuple[float, float]:
        """The interval of the mean, each end of which is wrong with the probability `alpha` at most."""
        return share_interval(self.by_run, sequence(len(self.by_run), alpha))

    def is_met(self, alpha: float, count: int | None = None) -> bool:
        """Whether its upper end is within the limit; or would be, if `count` runs had shown the same.

        Of ``n`` queries none violates a limit with the probability ``(1 - p)^n < exp(-p n)``: so few may be no proof.
        """
        if self.mean == 0.0 and self.allowed > 0.0:
            queries = self.queries * (count or len(self.by_run)) / len(self.by_run)
            return -log(alpha) / queries <= max(self.allowed, LEAST_SEEN)
        return share_interval(self.by_run, sequence(count or len(self.by_run), alpha))[1] <= self.allowed


class Runs(Protocol):
    """Runs of one plan, which become more."""

    def add(self, count: int, seed: int) -> None:
        """Run the plan so many times more, by seeds that follow from this one alone."""

    def limits(self) -> list[LimitShares]:
        """What all runs so far say of each limit."""
        ...

    @property
    def is_settled(self) -> bool:
        """Whether they have seen enough of what a queue remembers to be called independent samples of it."""
        ...


@dataclass
class ErrorBudget:
    """What is left of `ALPHA`, and of the seeds, for the next plan of a search."""

    seed: int
    spent: int = 0

    def __iter__(self) -> Iterator[tuple[float, int]]:
        return self

    def __next__(self) -> tuple[float, int]:
        """The chance of an error that the next plan may take up, and where its seeds begin."""
        self.spent += 1
        return ALPHA * 0.5**self.spent, self.seed + FRESH + LOOKS[-1] * self.spent


@dataclass(frozen=True)
class Confirmation:
    """What came of a plan that was put to the test: after how many runs, and at which chance of an error."""

    verdict: Verdict
    runs: int
    alpha: float
    violated: tuple[str, ...] = ()
    """The applications that violate a limit; where the runs leave it open, those of which it is."""
    unsure: tuple[str, ...] = ()
    """Further applications, whose limits are not confirmed either."""

    @property
    def width(self) -> float:
        """Half of each interval, in spreads."""
        return sequence(self.runs, self.alpha)


def confirm(runs: Runs, budget: ErrorBudget, *, may_go_on: Callable[[], bool] = lambda: True) -> Confirmation:
    """Run a plan until it is clear whether it meets every limit; `may_go_on` is asked before each further run."""
    alpha, seed = next(budget)
    made, unclear = 0, tuple[str, ...]()
    for count in LOOKS:
        if made and not may_go_on():
            break
        runs.add(count - made, seed + made)
        made, limits = count, runs.limits()
        unclear = tuple(dict.fromkeys(one.app for one in limits if not one.is_met(alpha)))
        violated = tuple(dict.fromkeys(one.app for one in limits if one.mean > one.allowed))
        if violated:
            unsure = tuple(app for app in unclear if app not in violated)
            return Confirmation(Verdict.VIOLATED, made, alpha, violated, unsure)
        if not unclear and runs.is_settled:
            return Confirmation(Verdict.MET, made, alpha)
        if not all(one.is_met(alpha, LOOKS[-1]) for one in limits):
            break
    return Confirmation(Verdict.OPEN, made, alpha, unclear or tuple(dict.fromkeys(one.app for one in runs.limits())))
