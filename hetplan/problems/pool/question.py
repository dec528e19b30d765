r"""How many instances of which type to rent for one model: the heterogeneous pool (Kairos, HPDC 2023).

An instance serves one query at a time; queries come in classes (batch sizes, or bins of several axes). The types differ
in price and in which classes they serve in time. `Pool` holds one such question in the paper's letters.

==========  =======================  ==================================================================================
letter      field                    meaning
==========  =======================  ==================================================================================
s           `points`                 class of queries (bin of the mix); only those that come at all
t           `types`                  type of instance (hardware); o, an offer, is a column: a price at which t is rented
p_s         `p`                      share of class s, sum 1
L_st        `L` (ms)                 mean service time of s on t; infinite where t cannot serve s
M_st        `M` (ms)                 the statistic of that time that is compared with the target (`latency_stat`)
QoS         `qos` (ms)               latency target, less the network's hop (`limits`: of every percentile stated)
c_o         `c`                      price of one instance under offer o, a count of 1e-9 per hour
B           `wish.budget`            budget, a count of 1e-9 per hour (None: least cost for `wish.rate_qps`)
eps         `eps`                    share of queries that may be sent where they are late
lam         --                       rate (queries/s) of the whole pool
x_st        --                       rate of class s sent to type t
n_o         --                       instances rented under offer o
==========  =======================  ==================================================================================

The exact fluid program (`pool_fluid`), in place of the paper's Eq. 15, which is no bound::

    max lam
    (1) sum_t x_st = p_s lam                              every class is served, in its share
    (2) sum_s L_st x_st / 1000 <= sum_{o of t} n_o        an instance is busy at most all the time
    (3) sum_o c_o n_o <= B
    (4) min_t <= sum_{o of t} n_o <= max_t,  0 <= n_o <= stock_o, whole
    (5) x_st = 0 where M_st > QoS;  with eps > 0 allowed there, in all at most eps lam;  so for every percentile

`min_cost` minimises the left of (3) at lam >= rate / derate instead. With n fixed it is a linear program, and a true
bound on the rate of any dispatcher (mean service times, stationary mix) when eps is the share of late queries that the
target allows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.answer import Answer, Status
from hetplan.planner.contract import Ask, Obstacle, Options, Tools
from hetplan.planner.draft import Draft, Infeasible, Reported, Scope
from hetplan.problems import ladder
from hetplan.problems.faults import Faults
from hetplan.problems.pool.checks import check_all
from hetplan.problems.pool.columns import Column, Times, Type, read_columns, read_types
from hetplan.problems.pool.options import (
    EnumerateOptions,
    Eq15Options,
    ExhaustiveOptions,
    FluidAtOptions,
    FluidOptions,
    HomogeneousOptions,
    PoolOptions,
    RerankOptions,
    SearchOptions,
)
from hetplan.problems.pool.wish import Wish, read_wish
from hetplan.profiles.fields import NANO
from hetplan.profiles.plan import Notice

if TYPE_CHECKING:
    from hetplan.problems.pool.simulated import Simulated
    from hetplan.profiles.inputs import Inputs
    from hetplan.profiles.plan import Plan

__all__ = ["Pool"]

Matrix = NDArray[np.float64]
Counts = NDArray[np.int64]

GAP = 1e-4
"""The default gap of the whole-number program."""

SLIPS = (0.0, 2e-6, 2e-5)
"""By how much budget and rate are tightened, in turn, until whole counts keep them exactly; the first is the rule."""

SAME_RATE = 1e-6
"""Rates nearer than this (relative) are the same rate: engines stop at 1e-7 per row."""


@dataclass(frozen=True)
class Rated:
    """Counts per column with the rate lam that they carry, the share of each class per type, and who says so."""

    counts: Counts
    lam: float
    share: Matrix
    answer: Answer[Any]


@dataclass(frozen=True)
class Pool:
    """One pool to choose; see the module for the letters."""

    question: ClassVar[str] = "pool"
    aliases: ClassVar[Sequence[str]] = ("kairos",)
    formulations: ClassVar[Mapping[str, type[Options]]] = {
        "fluid-milp": FluidOptions,
        "fluid-lp": FluidAtOptions,
        "eq15": Eq15Options,
        "eq15-rerank": RerankOptions,
        "enumerate-lp": EnumerateOptions,
        "homogeneous": HomogeneousOptions,
        "kairos-plus": SearchOptions,
        "exhaustive": ExhaustiveOptions,
        "rand": SearchOptions,
        "gene": SearchOptions,
        "anneal": SearchOptions,
        "bo": SearchOptions,
    }
    like: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("fluid-milp", "fluid-lp", "eq15", "eq15-rerank", "enumerate-lp", "homogeneous"), "kairos"),
        "kairos-plus": "kairos+",
        "bo": "ribbon",
    }

    inputs: Inputs
    wish: Wish
    types: tuple[Type, ...]
    columns: tuple[Column, ...]
    times: Times
    options: PoolOptions
    formulation: str = "fluid-milp"
    tools: Tools = field(default_factory=Tools)
    notices: tuple[Notice, ...] = ()

    @classmethod
    def fits(cls, inputs: Inputs) -> tuple[Obstacle, ...]:
        """What keeps these files from asking for a pool."""
        return ladder.pool(inputs)

    @classmethod
    def from_inputs(
        cls, inputs: Inputs, options: Options, *, formulation: str, tools: Tools, start: Plan | None = None
    ) -> Pool:
        """Read the files; raises `InputError` with every fault found. The program needs no previous plan."""
        del start
        chosen = cast(PoolOptions, options)
        faults, notices = Faults.of(inputs), list[Notice]()
        wish = read_wish(inputs, faults)
        types, columns = read_types(inputs, wish, faults, notices)
        times = read_columns(inputs, wish, types, chosen.latency_stat, faults, notices)
        names = [kind.hardware for kind in types]
        if chosen.base_type is not None and types and chosen.base_type not in names:
            faults.in_options(
                "base_type", "no type of this pool", f"Name one of {', '.join(names)}.", value=chosen.base_type
            )
        check_all(inputs, wish, types, times, chosen, faults)
        faults.settle()
        return cls(inputs, wish, tuple(types), tuple(columns), times, chosen, formulation, tools, tuple(notices))

    # --- the letters -------------------------------------------------------------------------------------------------

    @property
    def p(self) -> Matrix:
        """Share of each class."""
        return self.wish.p

    @property
    def L(self) -> Matrix:
        """Mean service time of class s on type t, ms."""
        return self.times.mean_ms

    @property
    def M(self) -> Matrix:
        """The compared statistic of the service time, ms."""
        return self.times.compared_ms

    @property
    def qos(self) -> float:
        """The latency target at the highest percentile, less the network, ms (infinite where there is none)."""
        return self.wish.targets[-1].limit_ms if self.wish.targets else np.inf

    @property
    def eps(self) -> float:
        """Share of queries that may be late by design."""
        return self.options.violation_tolerance

    @cached_property
    def limits(self) -> tuple[tuple[float, float], ...]:
        """(ms, share that may take longer) of every response target: eps at the highest percentile, all below it."""
        lower = [(target.limit_ms, target.left) for target in self.wish.targets[:-1]]
        return (*lower, (self.qos, self.eps))

    @cached_property
    def usable(self) -> NDArray[np.bool_]:
        """Where x_st may be positive: served, and within every limit that nothing may exceed."""
        strict = min((limit for limit, share in self.limits if share <= 0), default=np.inf)
        return self.served & (strict >= self.M)

    @cached_property
    def c(self) -> Counts:
        """Price of each column, a count of 1e-9 per hour."""
        return np.array([column.price for column in self.columns], dtype=np.int64)

    @cached_property
    def of(self) -> Counts:
        """The type of each column."""
        return np.array([column.type for column in self.columns], dtype=np.int64)

    @cached_property
    def served(self) -> NDArray[np.bool_]:
        """Which type can serve which class at all."""
        return np.isfinite(self.L)

    @cached_property
    def timely(self) -> NDArray[np.bool_]:
        """Which type serves which class in time: M_st <= QoS."""
        return self.served & (self.qos >= self.M)

    @cached_property
    def fluid_target(self) -> float | None:
        """The fluid rate that must be reached so that the derated one is the rate wished for."""
        return None if self.wish.rate_qps is None else self.wish.rate_qps / self.options.derate

    @cached_property
    def unit_rate(self) -> float:
        """Queries/s of one instance that is the fastest for every class: the unit in which programs count rates."""
        return 1000.0 / float(self.p @ np.where(self.served, self.L, np.inf).min(axis=1))

    @cached_property
    def cover(self) -> Counts | None:
        """The cheapest pool that carries any rate (None where limits forbid it, or the types are too many to look)."""
        from hetplan.problems.pool.start import cheapest_cover

        return cheapest_cover(self)

    def takes(self, resource: str) -> Matrix:
        """What one instance of each type counts for in a total: what it provides, and no less than its run needs."""
        hardware = self.inputs.profile.hardware
        amounts = [
            max(hardware[kind.hardware].provides.get(resource, 0.0), kind.run.needs.get(resource, 0.0))
            for kind in self.types
        ]
        return np.array(amounts, dtype=np.float64)

    @cached_property
    def base(self) -> int:
        """The base type: the option, else the first of those that serve the most queries in time (all, mostly)."""
        if self.options.base_type is not None:
            return [kind.hardware for kind in self.types].index(self.options.base_type)
        return int(np.argmax(np.round(self.p @ self.timely, 12)))

    def of_type(self, counts: Counts) -> Counts:
        """Instances per type of instances per column."""
        return np.bincount(self.of, weights=counts, minlength=len(self.types)).astype(np.int64)

    def cost(self, counts: Counts) -> int:
        """What the instances cost per hour, exactly."""
        return sum(int(price) * int(count) for price, count in zip(self.c, counts, strict=True))

    # --- the conversation --------------------------------------------------------------------------------------------

    def decide(self, ask: Ask) -> Draft | Infeasible:
        """Answer by the chosen formulation; also where there is no pool, what reading the files found is told."""
        found = self._decided(ask)
        return replace(found, warnings=(*self.notices, *found.warnings)) if isinstance(found, Infeasible) else found

    def _decided(self, ask: Ask) -> Draft | Infeasible:
        from hetplan.problems.pool import (
            idle as pool_idle,
        )
        from hetplan.problems.pool import (
            ranked as pool_ranked,
        )
        from hetplan.problems.pool import (
            search as pool_search,
        )
        from hetplan.problems.pool import (
            simulated as pool_simulated,
        )
        from hetplan.problems.pool.infeasible import impossible

        if self.wish.rate_qps == 0.0 and self.formulation != "fluid-lp":
            return pool_idle.idle(self, ask)
        if self.options.size == "simulated" or self.options.dispatch == "threshold":
            pool_simulated.check_can_simulate(self)
        reason = impossible(self)
        if reason is not None:
            return reason
        ways: dict[str, Callable[[Pool, Ask], Draft | Infeasible]] = {
            "fluid-milp": Pool.fluid_milp,
            "fluid-lp": Pool.fluid_lp,
            "eq15": pool_ranked.by_eq15,
            "eq15-rerank": pool_ranked.by_rerank,
            "enumerate-lp": pool_ranked.by_enumeration,
            "homogeneous": pool_ranked.homogeneous,
        }
        return ways.get(self.formulation, pool_search.by_search)(self, ask)

    def fluid_milp(self, ask: Ask) -> Draft | Infeasible:
        """The exact fluid program over whole counts; for a rate to be kept in simulation, a search upward from it."""
        from hetplan.problems.pool import (
            merged as pool_merged,
        )
        from hetplan.problems.pool import (
            simulated as pool_simulated,
        )

        if self.options.size == "simulated" and self.fluid_target is not None:
            return pool_simulated.smallest(self, ask)
        if pool_merged.worth_merging(self, cast("FluidOptions", self.options).classes):
            drafted = pool_merged.merged_best(self, ask)
            if drafted is not None:
                return drafted
        found = self.fluid_best(ask)
        if isinstance(found, Infeasible):
            return found
        rated, answer = found
        if self.fluid_target is not None:
            return self.drafted(ask, rated, [self._backed("cost_per_hour", answer, rated)])
        if self.wish.then_cheapest and rated.lam > 0:
            return self._then_cheapest(ask, rated, answer)
        return self.drafted(ask, rated, [self._backed("rate_qps", answer, rated)])

    def fluid_best(self, ask: Ask) -> tuple[Rated, Answer[Any]] | Infeasible:
        """The pool that the program chooses, and the program's answer."""
        from hetplan.problems.pool import infeasible as pool_infeasible
        from hetplan.problems.pool.fluid import fluid, read_counts
        from hetplan.problems.pool.start import point_of, start

        target = self.fluid_target
        first = start(self, target)
        tightened = list(SLIPS)
        while True:
            slip = tightened.pop(0)
            form = fluid(self, target, slip=slip)
            scale = target or self.unit_rate
            at = None
            if first is not None:
                at = point_of(self, first, lam=target * (1 + slip) if target else first.lam, scale=scale)
            about = "least cost for the rate" if target else "most rate for the budget"
            answer = ask(form, start=at, gap=GAP, about=about)
            if answer.status is Status.INFEASIBLE:
                return pool_infeasible.unreachable(self, ask, form, answer)
            if answer.point is None:
                return Infeasible(why=(f"no pool was found: {answer.stop}",), proved=False)
            rated = self.rate_at(ask, read_counts(self, answer.point), known=answer.point)
            if not self.holds(rated) and not tightened and first is not None:
                rated = self.rate_at(ask, first.counts)
            if self.holds(rated) or not tightened:
                return rated, answer

    def _then_cheapest(self, ask: Ask, best: Rated, answer: Answer[Any]) -> Draft | Infeasible:
        """Of all pools of the most rate, one of the least cost."""
        from hetplan.problems.pool.fluid import fluid, read_counts

        target = best.lam * (1 - SAME_RATE / 10)
        again = ask(fluid(self, target), gap=GAP, about="least cost at that rate")
        if again.point is not None:
            cheaper = read_counts(self, again.point)
            if self.cost(cheaper) < self.cost(best.counts):
                best = self.rate_at(ask, cheaper, known=again.point)
        claims = [self._backed("rate_qps", answer, best), self._backed("cost_per_hour", again, best)]
        return self.drafted(ask, best, claims)

    def fluid_lp(self, ask: Ask) -> Draft | Infeasible:
        """The fluid program at given counts."""
        from hetplan.problems.pool import infeasible as pool_infeasible
        from hetplan.problems.pool.fluid import given_counts

        counts = given_counts(self)
        reason = pool_infeasible.unaffordable(self, counts)
        return reason if reason is not None else self.drafted(ask, self.rate_at(ask, counts), [])

    def holds(self, rated: Rated) -> bool:
        """Whether whole counts keep, exactly, what an engine keeps to within its tolerance."""
        if self.wish.budget is not None:
            return self.cost(rated.counts) <= self.wish.budget
        return rated.lam >= (self.fluid_target or 0.0) * (1 - SAME_RATE)

    def rate_at(self, ask: Ask, counts: Counts, *, known: Matrix | None = None) -> Rated:
        """The fluid program at these counts: a verdict is taken on whole counts with the flows solved again.

        `known` is a point of a program that has these counts.
        """
        from hetplan.problems.pool.fluid import fluid_at

        answer = ask(fluid_at(self, self.of_type(counts)), about="rate of the chosen pool")
        return self.rated(counts, answer, known=known)

    def rated(self, counts: Counts, answer: Answer[Any], *, known: Matrix | None = None) -> Rated:
        """Counts with what an answer to their fluid program says.

        An engine that was stopped early has said nothing about the rate: then what is known of it counts, or flows
        that need no engine.
        """
        from hetplan.problems.pool.start import flows, shares_there

        per_type = self.of_type(counts)
        found = [Rated(counts, 0.0, np.zeros_like(self.L), answer)]
        # A class that nobody serves makes the rate 0, not the hair that an engine's tolerance leaves.
        if not self.usable[:, per_type > 0].any(axis=1).all():
            return found[0]
        points = [] if answer.point is None else [answer.point]
        if answer.status is not Status.OPTIMAL:
            points += [] if known is None else [known]
            lam, share = flows(self, per_type)
            found += [self.carried(counts, share, answer)] if lam > 0 else []
        for point in points:
            shares = shares_there(self, point, per_type)
            found += [self.carried(counts, shares, answer)] if shares is not None else []
        return max(found, key=lambda one: one.lam)

    def carried(self, counts: Counts, share: Matrix, answer: Answer[Any]) -> Rated:
        """What these shares of each class carry, to the last digit."""
        work = (self.p[:, None] * share * np.where(self.served, self.L, 0.0)).sum(axis=0) / 1000.0
        busy = work > 0
        lam = float((self.of_type(counts)[busy] / work[busy]).min())
        return Rated(counts, lam, share, answer)

    def drafted(
        self,
        ask: Ask,
        rated: Rated,
        backed: Sequence[Reported],
        *,
        simulated: Simulated | None = None,
        alternatives: Sequence[Mapping[str, Any]] = (),
        warnings: Sequence[Notice] = (),
        searched: bool = False,
    ) -> Draft | Infeasible:
        """The plan of a pool whose rate is known, with what the answers say about it."""
        from hetplan.problems.pool import (
            idle as pool_idle,
        )
        from hetplan.problems.pool import (
            infeasible as pool_infeasible,
        )
        from hetplan.problems.pool import (
            simulated as pool_simulated,
        )
        from hetplan.problems.pool.draft import draft

        if rated.lam <= 0 and self.wish.rate_qps == 0.0:
            return pool_idle.waiting(self, rated.counts)
        if rated.lam <= 0:
            return pool_infeasible.nothing_served(self, ask, rated.counts)
        if self.options.size == "simulated" and simulated is None:
            found = pool_simulated.simulate(self, self.of_type(rated.counts), rated.lam, first_seed=ask.limits.seed)
            simulated = replace(found, at_most=rated.lam)
            backed = pool_simulated.claims(self, ask, simulated, backed)
        elif simulated is None and self.wish.budget is None and not self.holds(rated):
            given = self.formulation == "fluid-lp" and rated.answer.status is Status.OPTIMAL
            return pool_infeasible.too_slow(self, rated.counts, rated.lam, proved=given)
        note = "the most that the chosen pool can carry"
        scope: Scope = "restriction" if backed else "problem"
        reported = (*backed, Reported("fluid_rate_qps", "max", scope, rated.answer, value=rated.lam, note=note))
        tried = None
        if self.options.dispatch == "threshold" and simulated is not None and simulated.threshold is None:
            n, seed = self.of_type(rated.counts), ask.limits.seed
            tried = pool_simulated.simulate(self, n, rated.lam, first_seed=seed, look="sweep")
        made = draft(self, rated, reported, simulated=simulated, tried=tried, warnings=warnings)
        return replace(made, alternatives=tuple(alternatives), searched=searched)

    def _backed(self, about: str, answer: Answer[Any], rated: Rated) -> Reported:
        if about == "cost_per_hour":
            return Reported(about, "min", "problem", answer, value=self.cost(rated.counts) / NANO)
        derate = self.options.derate
        return Reported(about, "max", "problem", answer, value=derate * rated.lam, scale=derate)
