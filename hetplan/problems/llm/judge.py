"""What a simulation shows of a fleet: whether it keeps every limit, on one draw of requests or surely on many."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from hetplan.problems.llm.wish import Wish
from hetplan.profiles.slo import Arrivals
from hetplan.serving.tokens import Limit, TokenDemand, TokenFleet, settling_s

__all__ = ["FEW", "Judge", "Shown"]

FRESH = 1_000_003
"""Seeds from here on confirm a fleet: none of them was used to choose it."""
FEW = 800
"""Requests of a play that only shows which fleets are far from their limits."""
PLAYED, CONFIRMED = 2.0, 6.0
"""So many times as long as a fleet takes to fill it is played at least, to choose and to confirm it."""
MOST_CYCLES, LONG = 30_000, 40.0
"""Bursts and days are shortened to about so many requests, but not to less than so many times as long as that."""
SURE = 0.95
"""How sure it is that a fleet keeps a limit, where the upper end of the interval does."""
EARLY, FAR = 4, 1.1
"""After so many draws a fleet that misses a limit by this factor is given up."""


@dataclass(frozen=True)
class Shown:
    """What several draws showed of a fleet: per limit, the time at its percentile with a one-sided interval; goodput.

    `kept` says whether every upper end is within its limit, and the lower end of the goodput is what is wished.
    """

    percentiles: tuple[tuple[Limit, float, float, float], ...]
    goodput: tuple[float, float, float]
    seeds: int
    kept: bool
    lost: float


@dataclass
class Judge:
    """Plays fleets under one demand; each draw of requests is made once."""

    wish: Wish
    play: Callable[..., Any]
    draw: Callable[..., Any]
    seed: int
    repairs: bool = True
    """Whether repairs are looked for, which takes simulations."""
    played: int = 0
    sent: list[float] = field(default_factory=list)
    """Of the fleet that was confirmed last: the requests that each instance got."""
    _drawn: dict[tuple[int, int, int, float], tuple[TokenDemand, Any]] = field(default_factory=dict)
    """By the demand's identity, which is its own as long as it is kept here."""
    _shortened: dict[int, tuple[TokenDemand, TokenDemand]] = field(default_factory=dict)

    def of(self, wish: Wish) -> Judge:
        """A judge of another wish, with the same simulator and seed."""
        return Judge(wish, self.play, self.draw, self.seed, self.repairs)

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

    def coming(self, demand: TokenDemand, seed: int, count: int, settles_s: float = 0.0) -> Any:
        """The requests of a draw; those that choose a fleet are kept, as every candidate meets them."""
        key = (id(demand), seed, count, settles_s)
        if key not in self._drawn:
            drawn = self.draw(demand, seed=seed, count=count, settles_s=settles_s)
            if seed >= FRESH:
                return drawn
            self._drawn[key] = (demand, drawn)
        return self._drawn[key][1]

    def once(self, fleet: TokenFleet, *, seed: int, demand: TokenDemand | None = None, lasts: float = PLAYED) -> Any:
        """One play of as many requests as the options say, and as long as a fleet takes to fill so many times."""
        asked = self.played_demand(demand or self.wish.demand)
        least_s = max(lasts * self.settles_s, asked.arrivals.cycle_s)
        count = max(self.wish.options.requests, math.ceil(least_s * asked.rate_qps))
        self.played += 1
        return self.play(fleet, self.coming(asked, self.seed + seed, count, self.settles_s))

    def briefly(self, fleet: TokenFleet) -> Any:
        """A play of few requests, which meet an emptier fleet than those behind them would."""
        demand = (
            replace(self.wish.demand, arrivals=Arrivals()) if self.wish.demand.arrivals.cycle_s else self.wish.demand
        )
        self.played += 1
        return self.play(fleet, self.coming(demand, self.seed, min(FEW, self.wish.options.requests)))

    def excess(self, run: Any) -> float:
        """How far a play is from keeping every limit: the worst of late requests over those that may be; 1 is kept."""
        worst = 0.0
        for limit in self.wish.limits:
            worst = max(worst, self.late(run, limit) / max(limit.left, 1e-9))
        if self.wish.goodput is not None:
            bad = 1.0 - run.goodput(self.wish.limits)
            worst = max(worst, bad / max(1.0 - self.wish.goodput, 1e-9))
        return worst

    def late(self, run: Any, limit: Limit) -> float:
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

    def surely(self, fleet: TokenFleet) -> Shown:
        """Fresh draws, one-sided; and once more on others: of many fleets some are lucky on the first ones."""
        first = self._shown(fleet, FRESH)
        return self._shown(fleet, 2 * FRESH) if first.kept else first

    def _shown(self, fleet: TokenFleet, fresh: int) -> Shown:
        options, limits = self.wish.options, self.wish.limits
        runs = list[Any]()
        for k in range(options.seeds):
            runs.append(self.once(fleet, seed=fresh + k, lasts=CONFIRMED))
            if len(runs) == EARLY and self._is_far(runs):
                break
        machines = sum(group.count for group in fleet.groups)
        self.sent = [float(sum((run.machine == j).sum() for run in runs)) for j in range(machines)]
        rows, kept = [], True
        for limit in limits:
            value, low, high = runs[0].percentile(runs, limit, SURE)
            rows.append((limit, value, low, high))
            kept &= high <= limit.max_ms
        goodput = runs[0].attainment(runs, limits, SURE)
        wanted = self.wish.goodput
        kept &= wanted is None or goodput[1] >= wanted
        kept &= len(runs) == options.seeds
        lost = float(np.mean([run.lost.mean() for run in runs]))
        return Shown(tuple(rows), goodput, len(runs), bool(kept), lost)

    def _is_far(self, runs: Sequence[Any]) -> bool:
        """Whether some limit is missed by so much on the mean that more draws would not help."""
        return any(runs[0].percentile(runs, limit, SURE)[0] > FAR * limit.max_ms for limit in self.wish.limits)
