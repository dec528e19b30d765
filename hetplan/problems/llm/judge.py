"""What a simulation shows of a fleet: whether it keeps every limit, on one draw of requests or surely on many."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from hetplan.planner.sizing import CONFIRMING_SEEDS, ErrorBudget, LimitShares, Verdict, confirm
from hetplan.problems.llm.request import TextRequest
from hetplan.profiles.operating_points import Limit
from hetplan.profiles.slo import Arrivals
from hetplan.serving.tokens import TokenDemand, TokenFleet, settling_s

__all__ = ["FEW", "Judge", "Shown"]

FEW = 800
"""Requests of a play that only shows which fleets are far from their limits."""
PLAYED, CONFIRMED = 2.0, 3.0
"""So many times as long as a fleet takes to fill it is played at least to choose it. A run that confirms it is so many
times as long, with as many more requests: the means of short runs lie far apart."""
MOST_CYCLES, LONG = 30_000, 40.0
"""Bursts and days are shortened to about so many requests, but not to less than so many times as long as that."""


@dataclass(frozen=True)
class Shown:
    """What runs showed of a fleet: per limit, the time at its percentile with its interval; goodput.

    `kept` says whether they confirm it.
    """

    percentiles: tuple[tuple[Limit, float, float, float], ...]
    goodput: tuple[float, float, float]
    seeds: int
    confidence: float
    kept: bool
    lost: float


@dataclass
class Judge:
    """Plays fleets under one demand; each draw of requests is made once."""

    wish: TextRequest
    play: Callable[..., Any]
    draw: Callable[..., Any]
    seed: int
    repairs: bool = True
    """Whether repairs are looked for, which takes simulations."""
    may_go_on: Callable[[], bool] = lambda: True
    """Whether there is time for another play of a fleet that is put to the test."""
    budget: ErrorBudget = field(default_factory=lambda: ErrorBudget(0))
    played: int = 0
    sent: list[float] = field(default_factory=list)
    """Of the fleet that was confirmed last: the requests that each instance got."""
    _drawn: dict[tuple[int, int, int, float], tuple[TokenDemand, Any]] = field(default_factory=dict)
    """By the demand's identity, which is its own as long as it is kept here."""
    _shortened: dict[int, tuple[TokenDemand, TokenDemand]] = field(default_factory=dict)

    def for_wish(self, wish: TextRequest) -> Judge:
        """A judge of another wish, with the same simulator and seed."""
        return Judge(wish, self.play, self.draw, self.seed, self.repairs, self.may_go_on)

    def played_demand(self, demand: TokenDemand) -> TokenDemand:
        """The demand with bursts and days that a play sees whole.

        Long ones are shortened: what part of the time is busy, and for how much of it requests are late, stays alike
        as long as bursts are much longer than a fleet takes to fill.
        """
        cycle_s = demand.arrivals.cycle_s
        most_s = max(MOST_CYCLES / max(demand.rate_qps, 1e-12), LONG * self.settles_s)
        if cycle_s <= most_s:
            return demand
        if id(demand) not in self._shortened:
            arrivals, part = demand.arrivals, most_s / cycle_s
            changed = arrivals.model_copy(
                update={
                    "period_s": arrivals.period_s and arrivals.period_s * part,
                    "stay_s": arrivals.stay_s and tuple(stay * part for stay in arrivals.stay_s),
                }
            )
            self._shortened[id(demand)] = (demand, replace(demand, arrivals=changed))
        return self._shortened[id(demand)][1]

    @cached_property
    def settles_s(self) -> float:
        """How long a fleet takes to fill."""
        return settling_s(self.wish.demand, self.wish.limits, self.wish.laws)

    def requests_of(self, demand: TokenDemand, seed: int, count: int, settles_s: float = 0.0) -> Any:
        """The requests of a draw; those that choose a fleet are kept, as every candidate meets them."""
        key = (id(demand), seed, count, settles_s)
        if key not in self._drawn:
            drawn = self.draw(demand, seed=seed, count=count, settles_s=settles_s)
            if seed >= CONFIRMING_SEEDS:
                return drawn
            self._drawn[key] = (demand, drawn)
        return self._drawn[key][1]

    def play_once(self, fleet: TokenFleet, *, seed: int, times: float = 1.0) -> Any:
        """One play, so many times as long as to choose a fleet: as many requests as the options say, and no shorter
        than it takes a fleet to fill."""
        asked = self.played_demand(self.wish.demand)
        least_s = max(times * PLAYED * self.settles_s, asked.arrivals.cycle_s)
        count = math.ceil(max(times * self.wish.options.queries, least_s * asked.rate_qps))
        self.played += 1
        return self.play(fleet, self.requests_of(asked, self.seed + seed, count, self.settles_s))

    def play_briefly(self, fleet: TokenFleet) -> Any:
        """A play of few requests, which meet an emptier fleet than those behind them would."""
        demand = (
            replace(self.wish.demand, arrivals=Arrivals()) if self.wish.demand.arrivals.cycle_s else self.wish.demand
        )
        self.played += 1
        return self.play(fleet, self.requests_of(demand, self.seed, min(FEW, self.wish.options.queries)))

    def minute(self, times: float, seconds: float, most: int) -> Any:
        """The requests of so long a time at so many times the rate, steady, or so many of them at most."""
        demand = replace(self.wish.demand, arrivals=Arrivals())
        count = min(math.ceil(times * seconds * demand.rate_qps), max(most, self.wish.options.queries))
        return self.draw(demand, seed=self.seed, count=count).at_rate(times)

    def excess(self, run: Any) -> float:
        """How far a play is from keeping every limit: the worst of late requests over those that may be; 1 is kept."""
        worst = 0.0
        for limit in self.wish.limits:
            worst = max(worst, self.late_share(run, limit) / max(limit.left, 1e-9))
        if self.wish.goodput is not None:
            bad = 1.0 - run.goodput(self.wish.limits)
            worst = max(worst, bad / max(1.0 - self.wish.goodput, 1e-9))
        return worst

    def late_share(self, run: Any, limit: Limit) -> float:
        """The share of requests beyond a limit."""
        return float(np.mean(run.times_ms(limit.of) > limit.max_ms))

    def shares(self, counts: Sequence[int]) -> list[float]:
        """What part of the requests each type got, of the fleet that was confirmed last."""
        found, place = list[float](), 0
        for kind, count in zip(self.wish.kinds, counts, strict=True):
            instances = count * kind.instances
            found.append(sum(self.sent[place : place + instances]))
            place += instances
        return found

    def confirm_fleet(self, fleet: TokenFleet) -> Shown:
        """What fresh draws show, until it is clear whether the fleet meets every limit."""
        draws = _Draws(self, fleet)
        found = confirm(draws, self.budget, may_go_on=self.may_go_on)
        runs, limits, width = draws.runs, self.wish.limits, found.width
        machines = sum(group.count for group in fleet.groups)
        sent = [np.bincount(run.machine[run.machine >= 0], minlength=machines) for run in runs]
        self.sent = [float(count) for count in np.sum(sent, axis=0)]
        is_kept, rows = found.verdict is Verdict.MET, list[tuple[Limit, float, float, float]]()
        for limit in limits:
            time, low, high = runs[0].percentile(runs, limit, width)
            # So many in time, at the upper end of their share, is what was confirmed: runs keep some times, not this.
            rows.append((limit, time, low, min(high, limit.max_ms) if is_kept else high))
        lost = float(np.mean([run.lost.mean() for run in runs]))
        goodput = runs[0].attainment(runs, limits, width)
        return Shown(tuple(rows), goodput, found.runs, 1.0 - found.alpha, is_kept, lost)


@dataclass
class _Draws:
    """Runs of a fleet, each of other requests."""

    judge: Judge
    fleet: TokenFleet
    runs: list[Any] = field(default_factory=list)

    def add(self, count: int, seed: int, _: Sequence[str] | None = None) -> None:
        """Play so many more."""
        self.runs += [self.judge.play_once(self.fleet, seed=seed + k, times=CONFIRMED) for k in range(count)]

    def limits(self) -> list[LimitShares]:
        """What part of the requests is beyond each limit; and is not good, where a share of good ones is wished."""
        wish, runs = self.judge.wish, self.runs
        judged = float(sum(len(run.times_ms("response")) for run in runs))
        found = [
            LimitShares(wish.app.id, limit.left, tuple(self.judge.late_share(run, limit) for run in runs), judged)
            for limit in wish.limits
        ]
        if wish.goodput is not None:
            bad = tuple(1.0 - run.goodput(wish.limits) for run in runs)
            found.append(LimitShares(wish.app.id, 1.0 - wish.goodput, bad, judged))
        return found

    @property
    def is_settled(self) -> bool:
        """A run is many times as long as a fleet takes to fill: how near it is to all that it can do is not known."""
        return True
