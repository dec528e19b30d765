r"""The paper's own ways to choose a pool (Kairos, HPDC 2023): pools are listed, ranked by Eq. 15, and tried one by one.

**The list.** All counts of machines within a budget (`configurations`); for a rate, those no dearer than a pool that
surely carries it (`list_affordable`).

**Eq. 15** (formulation `kairos`) estimates the rate of a configuration from a few numbers per type, for all of them at
once. It is no bound: the exact fluid rate is higher for most configurations, and where one strong instance raises s'
for many weak ones the estimate is far too high.

======  ==================================================================================================
letter  meaning
======  ==================================================================================================
u       instances of the base type; v_i of the auxiliary type i
Qb      rate of one base instance on all queries, 1000 / E[L_base]
s_i     largest size such that type i serves every size up to it in time; f_i = P(size <= s_i)
s', f'  the largest s_i of the auxiliary types present, and its share
Qs      rate of one base instance on sizes above s'
Qa_i    rate of one instance of i on sizes up to s' (also where it is late there)
======  ==================================================================================================

With A = sum_i v_i Qa_i and C = A (1 - f') / f'::

    (15)  u Qs <= C:  u Qs / (1 - f')          the base is the bottleneck
          else:       A / f' + (1 - C / (u Qs)) u Qb
          no auxiliary, or f' = 0:  u Qb;      f' = 1:  u Qb + A

s' takes one of few values ("levels"), so f', Qs and Qa are small tables over levels, and the estimate of a million
configurations is a handful of array operations.

**Kairos+** (formulation `kairos-plus`, Algorithm 1) tries configurations in simulation, or by a measurement that is
handed in, in the order of a bound, and leaves out those whose bound is below the best value found; so may an engine of
another package that searches. The bound is the fluid rate with all the lateness that the target leaves, which no
dispatcher can exceed, or the estimate of Eq. 15, which proves nothing. Where the order does not depend on values, the
simulation of a pool ends as soon as it is known not to beat the best.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, cast

import numpy as np
from numpy.typing import NDArray

from hetplan.errors import InputError
from hetplan.planner.answer import Status
from hetplan.planner.contract import Ask
from hetplan.planner.draft import Infeasibility, Reported
from hetplan.planner.elastic import explain
from hetplan.planner.forms.catalog import Catalog
from hetplan.planner.request import MachineType
from hetplan.problems.pool.capacity import (
    ChosenPool,
    RatedPool,
    SimulatedRate,
    check_can_simulate,
    meets_request,
    rate_at,
    rate_by_answer,
    simulate,
    value_of,
)
from hetplan.problems.pool.infeasible import nothing_served, rate_not_reached
from hetplan.problems.pool.options import Eq15Options, SearchOptions
from hetplan.problems.pool.plan import plan_chosen
from hetplan.problems.pool.program import MOST_PROGRAMS, Counts, Pool, fluid_program, rates_of
from hetplan.problems.pool.request import Vector
from hetplan.profiles.plan import Notice

__all__ = [
    "Configurations",
    "Eq15",
    "best_rated",
    "cheapest_enough",
    "choose_by_estimate",
    "configurations",
    "costs_of_counts",
    "enumerate_counts",
    "eq15_numbers",
    "estimate_rates",
    "list_affordable",
    "missing_base",
    "most_similar",
    "search_pools",
    "serves_all_classes",
    "unbounded_claim",
    "with_estimate",
]

Columns = Sequence[NDArray[np.int32]] | NDArray[np.int32]

MOST_CONFIGURATIONS = 10_000_000
"""Above this many, listing them is the wrong tool: the program finds the best without listing any."""
TIES = 1e-12
"""Rates that differ by less than this share are the same number, rounded along different ways."""
BATCH = 512
"""Programs asked for together while the cheapest that is enough is looked for."""
OVERESTIMATES = 0.95
"""A warning says that an estimate is too high where the fluid rate is below this share of it."""
ROOM = 1.25
"""For how much more than the rate pools are listed when the estimate chooses: more than it was seen to fall short."""
CHUNK = 1 << 16
"""Configurations worked on at once: their intermediate arrays stay in the processor's cache."""


@dataclass(frozen=True)
class Configurations:
    """`counts[t]` is the count of type t in each configuration; `cost` counts 1e-9 per hour."""

    counts: tuple[NDArray[np.int32], ...]
    cost: NDArray[np.int64]

    def __len__(self) -> int:
        return int(self.cost.size)

    def row(self, i: int) -> Counts:
        """The counts per type of one configuration."""
        return np.array([int(column[i]) for column in self.counts], dtype=np.int64)

    def rows(self, chosen: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
        """The counts per type of some configurations, a row each."""
        at = np.asarray(chosen, dtype=np.int64)
        return np.stack([column[at].astype(np.int64) for column in self.counts], axis=1)

    def where(self, keep: NDArray[np.bool_]) -> Configurations:
        """Only those."""
        return Configurations(tuple(column[keep] for column in self.counts), self.cost[keep])


def enumerate_counts(ladders: Sequence[NDArray[np.int64]], least: Sequence[int], budget: int) -> Configurations:
    """All counts whose cost is within the budget; `ladders[t][k]` is the cost of least[t] + k instances of type t.

    >>> found = enumerate_counts([np.array([0, 2, 4]), np.array([0, 1])], [0, 0], 3)
    >>> found.rows(range(len(found))).tolist(), found.cost.tolist()
    ([[0, 0], [0, 1], [1, 0], [1, 1]], [0, 1, 2, 3])
    """
    # What the later types cost at their least can not be spent before.
    reserved = [int(sum(int(later[0]) for later in ladders[t + 1 :])) for t in range(len(ladders))]
    counts: list[NDArray[np.int32]] = []
    cost = np.zeros(1, dtype=np.int64)
    for t, ladder_t in enumerate(ladders):
        room = budget - reserved[t] - cost
        steps = _affordable(ladder_t, room)
        total = int(steps.sum())
        if total > MOST_CONFIGURATIONS:
            raise InputError.one(
                path="method.formulation",
                value=f"more than {MOST_CONFIGURATIONS:,} configurations",
                why="so many are not listed one by one",
                remedy="Use formulation pool-milp, which lists none, or lower the budget or limits.instances.",
            )
        ends = np.cumsum(steps)
        step = np.arange(total, dtype=np.int64) - np.repeat(ends - steps, steps)
        counts = [np.repeat(column, steps) for column in counts]
        counts.append((step + least[t]).astype(np.int32))
        cost = np.repeat(cost, steps) + ladder_t[step]
    return Configurations(tuple(counts), cost)


def _affordable(costs: NDArray[np.int64], room: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many steps of a ladder fit into each room."""
    if costs.size > 2 and costs[1] > costs[0] and bool((np.diff(costs) == costs[1] - costs[0]).all()):
        # One price: a division is far faster than a search.
        return np.asarray(np.clip((room - costs[0]) // (costs[1] - costs[0]) + 1, 0, costs.size), dtype=np.int64)
    return np.asarray(np.searchsorted(costs, room, side="right"), dtype=np.int64)


def costs_of_counts(kind: MachineType, least: int, budget: int) -> NDArray[np.int64]:
    """The costs of least, least + 1, ... machines of a type, as far as its offers, its most and the budget reach."""
    steps = [
        np.full(min(count, MOST_CONFIGURATIONS), offer.nanos, dtype=np.int64)
        for offer, count in kind.cheapest_offers(max(kind.affordable(budget), 0))
    ]
    return np.concatenate([np.zeros(1, dtype=np.int64), *steps]).cumsum()[least:]


def configurations(pool: Pool, budget: int, *, with_base: bool = False) -> Configurations:
    """All configurations of the pool that cost at most `budget`; `with_base` asks for at least one base instance."""
    least = [max(kind.least, int(with_base and t == pool.base)) for t, kind in enumerate(pool.request.machines)]
    ladders = [costs_of_counts(kind, some, budget) for kind, some in zip(pool.request.machines, least, strict=True)]
    if any(one.size == 0 for one in ladders):
        return Configurations(tuple(np.zeros(0, np.int32) for _ in ladders), np.zeros(0, np.int64))
    found = enumerate_counts(ladders, least, budget)
    for resource, total in pool.request.resources.items():
        used = sum(column * amount for column, amount in zip(found.counts, pool.provides(resource), strict=True))
        found = found.where(np.asarray(used <= total * (1 + 1e-12)))
    return found


def serves_all_classes(pool: Pool, found: Configurations) -> NDArray[np.bool_]:
    """Which configurations have an instance for every class: the others carry nothing."""
    keep = np.ones(len(found), dtype=bool)
    for pattern in np.unique(pool.usable, axis=0):
        keep &= np.logical_or.reduce(
            [found.counts[t] > 0 for t in np.flatnonzero(pattern)] or [np.zeros(len(found), bool)]
        )
    return keep


# -- the best of a list ----------------------------------------------------------------------------------------------
#
# With a budget the highest rate is wanted; with a rate, the cheapest configuration that carries it. Ties: the cheaper
# first, then the lexicographically first.


def list_affordable(
    pool: Pool, ask: Ask, *, with_base: bool = False, room: float = 1.0
) -> Configurations | Infeasibility:
    """All configurations that may be the answer; for a rate, those no dearer than a pool that surely carries it.

    That pool is the program's without whole numbers, each count rounded up. `room` asks for more than the rate, where
    the choice is made by something that may say less than the truth.
    """
    if pool.request.budget is not None:
        return configurations(pool, pool.request.budget, with_base=with_base)
    form = fluid_program(pool, pool.fluid_target)
    answer = ask(replace(form, whole=np.zeros_like(form.whole)), about="least cost without whole numbers")
    if answer.status is Status.INFEASIBLE:
        return explain(form, ask)
    if answer.point is None:
        return Infeasibility(why=(f"no pool was found: {answer.stop}",), proved=False)
    counts = np.ceil(room * answer.point[-len(pool.offers) :] - 1e-6).astype(np.int64)
    cost = pool.cost(counts) + (int(pool.c[pool.type_of == pool.base].max()) if with_base else 0)
    return configurations(pool, cost, with_base=with_base)


def cheapest_enough(pool: Pool, ask: Ask, found: Configurations, at: Counts) -> RatedPool | Infeasibility:
    """The first configuration, in order of cost, whose fluid rate reaches the target."""
    best: RatedPool | None = None
    for start in range(0, at.size, BATCH):
        part = at[start : start + BATCH]
        answers = rates_of(pool, ask, found.rows(part), about="fluid rate of each configuration, cheapest first")
        for i, answer in zip(part, answers, strict=True):
            rated = rate_by_answer(pool, pool.by_offer(found.row(int(i))), answer)
            if meets_request(pool, rated):
                return rated
            best = rated if best is None or rated.lam > best.lam else best
    if best is None or best.lam <= 0:
        return Infeasibility(why=("no listed configuration reaches the rate; pool-milp finds why",), proved=False)
    return rate_not_reached(pool, best.counts, best.lam, proved=False)


def best_rated(rates: Vector, cost: Counts, k: int) -> Counts:
    """The k best configurations in order: highest rate, then cheapest, then lexicographic (their order in the list)."""
    k = min(k, rates.size)
    if k == 0:
        return np.zeros(0, dtype=np.int64)
    kth = rates[np.argpartition(-rates, k - 1)[:k]].min()
    near = np.flatnonzero(rates >= kth - TIES * abs(kth))
    order = near[np.argsort(-rates[near], kind="stable")]
    # Runs of equal rates are put into order of cost; the list's own order settles the rest.
    falls = rates[order[:-1]] - rates[order[1:]] > TIES * np.abs(rates[order[:-1]])
    group = np.concatenate([[0], np.cumsum(falls)])
    return order[np.lexsort((order, cost[order], group))][:k]


# -- Eq. 15 ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Eq15:
    """The numbers of Eq. 15. Tables run over levels, the distinct values of s_i in growing order.

    `base` is the base's place among the types; `level[i]`, in the order of the types, is the level of s_i (the base's
    is not looked at, -1 marks a type that serves no size in time); `f`, `Qs` have an entry per level, `Qa[i]` too.
    """

    base: int
    Qb: float
    level: tuple[int, ...]
    f: Vector
    Qs: Vector
    Qa: NDArray[np.float64]

    @property
    def auxiliary(self) -> list[int]:
        """The types of A: all but the base, also those that are late on every size."""
        return [i for i in range(len(self.level)) if i != self.base]


def eq15_numbers(pool: Pool) -> Eq15:
    """The numbers of a pool, from the exact shares; s_i is the last size in time (as published: the first late one)."""
    sizes = _sizes(pool)
    order = np.argsort(sizes)
    p, times, timely = pool.p[order], pool.W[order], pool.timely[order]
    # How many sizes, from the smallest on, each type serves in time without a gap.
    reach = np.where(timely.all(axis=0), p.size, np.argmin(timely, axis=0))
    aux = [t for t in range(len(pool.types)) if t != pool.base]
    levels = sorted({int(reach[t]) for t in aux if reach[t] > 0})
    base = times[:, pool.base]
    f = np.array([float(p[:n].sum()) if n < p.size else 1.0 for n in levels])
    Qs = np.array([_rate(p[n:], base[n:]) for n in levels])
    Qa = np.array([[_rate(p[:n], times[:n, t]) for n in levels] for t in range(len(pool.types))])
    level = tuple(levels.index(int(n)) if n > 0 and t in aux else -1 for t, n in enumerate(reach))
    return Eq15(pool.base, _rate(p, base), level, f, Qs, Qa.reshape(len(pool.types), len(levels)))


def _sizes(pool: Pool) -> Vector:
    if pool.sizes is None or not all(kind.is_timed for kind in pool.types):
        raise InputError.one(
            file=pool.inputs.files.get("slo", "slo.json"),
            path=f"$.apps.{pool.wish.app.id}.mix.axes",
            value=", ".join(pool.wish.points[0]),
            why="Eq. 15 is about one size of query, and tables of latency",
            remedy="Use formulation pool-milp, which takes any classes of queries.",
        )
    return pool.sizes


def _rate(p: Vector, times: Vector) -> float:
    """Queries per second of one instance on sizes with these shares (infinite on none)."""
    work = float(p @ times)
    return 1000.0 * float(p.sum()) / work if work > 0 else np.inf


def estimate_rates(numbers: Eq15, counts: Columns) -> Vector:
    """(15) for every configuration, `counts[t]` being the count of type t in each."""
    total = counts[0].size
    found = np.empty(total)
    for start in range(0, total, CHUNK):
        part = slice(start, start + CHUNK)
        found[part] = _estimate(numbers, [column[part] for column in counts])
    return found


def _estimate(numbers: Eq15, counts: Columns) -> Vector:
    u = counts[numbers.base].astype(np.float64)
    alone = u * numbers.Qb
    aux = [i for i, level in enumerate(numbers.level) if level >= 0]
    if not aux:
        return alone
    # Level of s' + 1, the least present first so that the largest counts; 0: nobody is there.
    at = np.zeros(u.size, dtype=np.int8)
    for i in sorted(aux, key=lambda i: numbers.level[i]):
        np.putmask(at, counts[i] > 0, numbers.level[i] + 1)
    f = np.concatenate([[1.0], numbers.f])
    Qs = np.concatenate([[1.0], numbers.Qs])
    A = np.zeros(u.size)
    for i in numbers.auxiliary:
        A += counts[i] * np.concatenate([[0.0], numbers.Qa[i]])[at]
    with np.errstate(divide="ignore", invalid="ignore"):
        large = np.where(f < 1.0, (1.0 - f) / f, 0.0)[at]
        C = A * large
        served = u * np.where(f < 1.0, Qs, 1.0)[at]
        bottleneck = served * np.where(f < 1.0, 1.0 / (1.0 - f), 0.0)[at]
        spare = A * (1.0 / f)[at] + (1.0 - C / served) * alone
    whole = (f >= 1.0)[at]
    found = np.where(served <= C, bottleneck, spare)
    np.copyto(found, alone + A, where=whole)
    np.copyto(found, alone, where=at == 0)
    # Without a base instance nobody serves what is above s'.
    np.copyto(found, 0.0, where=~whole & (u == 0))
    return found


def most_similar(ranked: NDArray[np.int64], base: int) -> int:
    """The paper's choice among ranked configurations (rows of counts): its place.

    If the best three share the number of base instances, the first; else the one of the best ten whose squared
    distances to the others sum to the least, at a tie the better ranked.

    >>> most_similar(np.array([[1, 5], [1, 4], [1, 3], [9, 9]]), 0)
    0
    """
    if len(set(ranked[:3, base].tolist())) == 1:
        return 0
    ten = ranked[:10].astype(np.int64)
    apart = ((ten[:, None, :] - ten[None, :, :]) ** 2).sum(axis=(1, 2))
    return int(np.argmin(apart))


def choose_by_estimate(pool: Pool, ask: Ask) -> ChosenPool | Infeasibility:
    """The best by the estimate, or the most typical of its best ten (`select`)."""
    numbers, found = eq15_numbers(pool), list_affordable(pool, ask, with_base=True, room=ROOM)
    if isinstance(found, Infeasibility) or not len(found):
        return found if isinstance(found, Infeasibility) else missing_base(pool)
    rates = estimate_rates(numbers, found.counts)
    if pool.fluid_target is not None:
        enough = np.flatnonzero(rates >= pool.fluid_target)
        rated = cheapest_enough(pool, ask, found, enough[np.argsort(found.cost[enough], kind="stable")])
        return rated if isinstance(rated, Infeasibility) else with_estimate(pool, rated, numbers)
    best = best_rated(rates, found.cost, 10)
    chosen = best[0]
    if cast(Eq15Options, pool.options).select == "similarity":
        chosen = best[most_similar(found.rows(best), pool.base)]
    return with_estimate(pool, rate_at(pool, ask, pool.by_offer(found.row(int(chosen)))), numbers)


def with_estimate(pool: Pool, rated: RatedPool, numbers: Eq15) -> ChosenPool:
    """The plan of a pool chosen by the estimate, which is reported beside the exact rate."""
    (said,) = estimate_rates(numbers, pool.of_type(rated.counts)[:, None].astype(np.int32)).tolist()
    warnings: tuple[Notice, ...] = ()
    if rated.lam < OVERESTIMATES * said:
        text = f"Eq. 15 gives {said:.6g} qps for this pool, its exact fluid rate is {rated.lam:.6g}"
        warnings = (Notice(code="W-overestimates", at="alternatives", text=text),)
    more = {"what": "estimate of this pool by Eq. 15, which is no bound", "eq15_qps": said}
    return ChosenPool(rated, (unbounded_claim(pool, rated),), alternatives=(more,), warnings=warnings)


def unbounded_claim(pool: Pool, rated: RatedPool) -> Reported:
    """What a heuristic claims: a value without a bound."""
    sense: Literal["min", "max"] = "min" if pool.sought == "cost_per_hour" else "max"
    return Reported(pool.sought, sense, "none", value=value_of(pool, pool.sought, rated))


def missing_base(pool: Pool) -> Infeasibility:
    """Why a formulation that needs a base instance has none."""
    base = pool.types[pool.base].hardware
    why = f"this formulation builds on instances of the base type {base}, and too few are within the budget and limits"
    remedy = "use formulation pool-milp, which needs no base type"
    return Infeasibility(why=(why, remedy), proved=False)


# -- Kairos+ ---------------------------------------------------------------------------------------------------------


def search_pools(pool: Pool, ask: Ask, *, solver: str | None = None) -> ChosenPool | Infeasibility:
    """The best pool that an engine for catalogs finds, by the options `SearchOptions`."""
    if pool.request.budget is None:
        raise InputError.one(
            file=pool.inputs.files.get("slo", "slo.json"),
            path=f"$.apps.{pool.wish.app.id}.rate_qps",
            value=pool.wish.rate_qps,
            why=f"{pool.formulation} looks for the most rate within a budget",
            remedy='Set rate_qps to "max" with a budget, or use formulation pool-milp.',
        )
    options = cast(SearchOptions, pool.options)
    found = configurations(pool, pool.request.budget, with_base=options.bound == "eq15")
    bound = _bounds(pool, ask, found)
    if not (bound > 0).any():
        return nothing_served(pool, ask, np.zeros(len(pool.offers), dtype=np.int64))
    found, bound = found.where(bound > 0), bound[bound > 0]
    trials = _Trials(pool, ask, found, bound)
    form = Catalog(
        place=found.rows(np.arange(len(found))),
        evaluate=trials.evaluate,
        evaluate_above=trials.evaluate,
        bound=bound,
        cost=found.cost.astype(np.float64),
        monotone=options.prune == "subsets",
        prune=bool(options.prune),
        most=options.max_simulations,
        name=f"pools of {pool.wish.app.id}",
    )
    answer = ask(form, about=f"search by {pool.formulation}", solver=solver)
    if answer.point is None:
        return Infeasibility(why=(f"no pool was tried: {answer.stop}",), proved=False)
    if trials.tried[answer.point].median <= 0:
        why = f"none of the {len(trials.tried)} pools tried carries any rate within the target"
        return Infeasibility(why=(why,), proved=False)
    proved = options.bound == "lp" and options.prune != "subsets"
    best = int(answer.work.get("evaluations_to_best", 0))
    return trials.choose(answer.point, form.upper_bound() if proved else None, best=best)


def _bounds(pool: Pool, ask: Ask, found: Configurations) -> Vector:
    if cast(SearchOptions, pool.options).bound == "eq15":
        return estimate_rates(eq15_numbers(pool), found.counts)
    if len(found) > MOST_PROGRAMS:
        raise InputError.one(
            path="method.options.bound",
            value=f"{len(found):,} configurations",
            why=f"one program each is worth it up to {MOST_PROGRAMS:,}",
            remedy="Set option bound to eq15, or lower the budget or limits.instances.",
        )
    rows = found.rows(np.arange(len(found)))
    answers = rates_of(pool.relaxation, ask, rows, about="bound on the rate of each configuration")
    bounds = np.array([answer.bound if answer.bound is not None else np.inf for answer in answers])
    # A plan needs somebody in time for every class, also where the bound could do without.
    return np.where(serves_all_classes(pool, found), bounds, 0.0)


@dataclass
class _Trials:
    """What listed pools are worth, each tried once: the median rate over seeds, or what was measured."""

    pool: Pool
    ask: Ask
    found: Configurations
    bound: Vector
    tried: dict[int, SimulatedRate] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.measures:
            check_can_simulate(self.pool)
        elif self.pool.tools.evaluate is None:
            raise InputError.one(
                file="options",
                path="evaluator",
                value="evaluate",
                why="nothing was handed in to value a pool with",
                remedy='Hand in Tools(evaluate=...), or set the option to "simulate".',
            )

    @property
    def measures(self) -> bool:
        """Whether pools are measured, and not simulated."""
        return cast(SearchOptions, self.pool.options).evaluator == "evaluate"

    def evaluate(self, place: int, above: float = 0.0) -> float:
        """What the pool at a place of the list is worth; the best so far is kept."""
        pool, counts, measure = self.pool, self.found.row(place), self.pool.tools.evaluate
        if self.measures and measure is not None:
            point = {"counts": dict(zip((t.hardware for t in pool.types), counts.tolist(), strict=True))}
            value = SimulatedRate((float(measure(point)),), model="measured")
        else:
            value = simulate(pool, counts, float(self.bound[place]), first_seed=self.ask.limits.seed, above=above)
        self.tried[place] = value
        if value.median > 0:
            self.ask.keep(
                lambda: plan_chosen(pool, self.ask, self.choose(place, None)), simulated=True, rank=(value.median,)
            )
        return value.median

    def choose(self, place: int, top: float | None, best: int | None = None) -> ChosenPool:
        """A pool that was tried, with the rate that it is worth and the most that any is (`top`)."""
        options = cast(SearchOptions, self.pool.options)
        rated = rate_at(self.pool, self.ask, self.pool.by_offer(self.found.row(place)))
        value = replace(self.tried[place], at_most=rated.lam)
        tried = f"{len(self.tried)} of {len(self.found)} pools tried"
        note = tried + (f", the best as number {best}" if best is not None else "")
        is_bounded = top is not None and np.isfinite(top)
        claim = Reported(
            "rate_qps",
            "max",
            "relaxation" if is_bounded else "none",
            value=value.promised,
            bound=top if is_bounded else None,
            vouched="claimed" if is_bounded else None,
            note=note,
        )
        warnings: tuple[Notice, ...] = ()
        if options.bound == "eq15" and options.prune:
            text = "Eq. 15 is an estimate, not a bound: a pool that was left out because of it may be better"
            warnings = (Notice(code="W-no-bound", at="claims", text=text),)
        return ChosenPool(rated, (claim,), simulated=value, warnings=warnings, searched=True)
