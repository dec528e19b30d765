"""Sizing by simulation: when runs confirm that a plan meets its SLO.

A search looks at many plans, and the one that it likes best has been lucky. So what it hands out is confirmed by runs
whose seeds chose nothing, until it is clear: after 6 runs, 8, 11, ..., 50 at most. Of every limit each run gives the
share of queries that violate it. A plan is confirmed where each limit is kept by the upper end of a confidence sequence
(`planner.confidence`), which may be looked at again and again; and where queues are remembered for long, once the runs
have seen enough of them (`Runs.is_settled`). What no number of runs here could show is left open, and said
(`Confirmation.unjudged`): of an application of which hardly a query comes beside others, of one whose bursts come once
in days, of a share that is next to nothing.

**Error budget.** If a plan violates a limit, it is confirmed with a probability of ``alpha_j`` at most: all limits have
to be confirmed, so that one is enough to refuse it. The j-th plan that is put to the test gets ``ALPHA / 2^j``. So all
that a search tries, until it finds one that is confirmed, has a chance of `ALPHA` at most that it is wrong.

**Ends early.** An application that is confirmed is run no more where it waits apart from those that are not: all of
them have to be confirmed, each at a time of its own, so the chance of an error stays what it was. A plan is given up
where a limit is violated on the mean, or where the spread of its runs says that even twice as many runs as there may be
would leave it open. Giving up errs on the safe side, and needs no budget.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import inf, log
from typing import Protocol

from hetplan.planner.confidence import LEAST_RUNS, sequence, share_interval
from hetplan.planner.promise_figures import Verdict

__all__ = ["ALPHA", "LOOKS", "Confirmation", "ErrorBudget", "LimitShares", "Runs", "Verdict", "confirm"]

ALPHA = 0.05
"""The chance that a search hands out a plan that violates its SLO, as far as the simulator tells."""
LOOKS = (LEAST_RUNS, 8, 11, 15, 20, 27, 36, 50)
"""Runs after which one looks: a third more each time, up to ten times as many as a person takes."""
HOPELESS = 2 * LOOKS[-1]
"""What so many runs that differ as much would leave open is given up: of few runs the spread is not well known."""
LEAST_CYCLES = 5.0
"""So often at least arrivals go through their states in all runs together: else no run need have seen a burst."""
CONFIRMING_SEEDS = 2_000_003
"""Between the seeds that choose a plan (`LOOK_SEEDS` apart) and those that confirm it."""


@dataclass(frozen=True)
class LimitShares:
    """Of one limit of one application: the share of queries that may violate it, and the share that did in each run."""

    app: str
    allowed: float
    by_run: tuple[float, ...]
    queries: float
    """In all runs together."""
    cycles: float = inf
    """How often its arrivals went through their states in all runs together."""

    @property
    def mean(self) -> float:
        """The share that violates it, each run counted alike."""
        return sum(self.by_run) / len(self.by_run)

    def interval(self, alpha: float) -> tuple[float, float]:
        """The interval of the mean, whose upper end is wrong with the probability `alpha` at most."""
        if self.mean == 0.0:
            return 0.0, self._of_none(alpha)
        return share_interval(self.by_run, sequence(len(self.by_run), alpha))

    def _of_none(self, alpha: float, count: int | None = None) -> float:
        """The upper end where no query violates the limit: of n none does with the chance (1 - p)^n < exp(-p n)."""
        queries = self.queries * (count or len(self.by_run)) / len(self.by_run)
        return min(-log(alpha) / queries, 1.0) if queries > 0 else 1.0

    def may_be_shown(self, alpha: float) -> bool:
        """Whether as many runs as there may be can show it: if they have enough queries, and go through all states."""
        times = LOOKS[-1] / len(self.by_run)
        return self._of_none(alpha, LOOKS[-1]) <= self.allowed and self.cycles * times >= LEAST_CYCLES

    def is_met(self, alpha: float, count: int | None = None) -> bool:
        """Whether its upper end is within the limit; or would be, if `count` runs had shown the same."""
        runs = count or len(self.by_run)
        if self.cycles * runs / len(self.by_run) < LEAST_CYCLES:
            return False
        if self.mean == 0.0:
            return self._of_none(alpha, runs) <= self.allowed
        return share_interval(self.by_run, sequence(runs, alpha))[1] <= self.allowed


class Runs(Protocol):
    """Runs of one plan, which become more."""

    def add(self, count: int, seed: int, apps: Sequence[str] | None = None, /) -> None:
        """Run the plan so many times more, by seeds that follow from this one alone.

        Of `apps`, if they are named, runs have to say more: those that wait apart from them may be left out.
        """

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
    alpha: float = ALPHA

    def spend(self) -> tuple[float, int]:
        """The chance of an error that the next plan may take up, and where its seeds begin."""
        self.spent += 1
        return self.alpha * 0.5**self.spent, self.seed + CONFIRMING_SEEDS + LOOKS[-1] * self.spent

    def parts(self, count: int) -> list[ErrorBudget]:
        """What the next plan may take up, in equal parts for that of it which is put to the test apart.

        >>> [part.spend() for part in ErrorBudget(seed=7).parts(2)] == [(ALPHA / 4, ErrorBudget(seed=7).spend()[1])] * 2
        True
        """
        alpha, seed = self.spend()
        return [ErrorBudget(seed - CONFIRMING_SEEDS - LOOKS[-1], alpha=2.0 * alpha / count) for _ in range(count)]


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
    unjudged: tuple[str, ...] = ()
    """Applications of which no number of runs could confirm a limit."""

    @property
    def width(self) -> float:
        """Half of each interval, in spreads."""
        return sequence(self.runs, self.alpha)


def confirm(runs: Runs, budget: ErrorBudget, *, may_go_on: Callable[[], bool] = lambda: True) -> Confirmation:
    """Run a plan until it is clear whether it meets every limit; `may_go_on` is asked before each further run."""
    alpha, seed = budget.spend()
    made, unclear, unjudged = 0, tuple[str, ...](), tuple[str, ...]()
    for count in LOOKS:
        if made and not may_go_on():
            break
        runs.add(count - made, seed + made, unclear if unclear and runs.is_settled else None)
        made, limits = count, runs.limits()
        unjudged = _apps(one for one in limits if not one.may_be_shown(alpha))
        judged = [one for one in limits if one.may_be_shown(alpha)]
        unclear = _apps(one for one in judged if not one.is_met(alpha))
        violated = _apps(one for one in limits if one.mean > one.allowed)
        if violated:
            unsure = tuple(app for app in (unclear if runs.is_settled else _apps(limits)) if app not in violated)
            return Confirmation(Verdict.BROKEN, made, alpha, violated, unsure, unjudged)
        if not unclear and (runs.is_settled or count == LOOKS[-1]):
            unjudged = unjudged if runs.is_settled else _apps(limits)
            return Confirmation(Verdict.MET, made, alpha, unjudged=unjudged)
        if not all(one.is_met(alpha, HOPELESS) for one in judged):
            break
    return Confirmation(Verdict.UNDECIDED, made, alpha, unclear or _apps(runs.limits()), unjudged=unjudged)


def _apps(limits: Iterable[LimitShares]) -> tuple[str, ...]:
    """The applications of these limits."""
    return tuple(dict.fromkeys(one.app for one in limits))
