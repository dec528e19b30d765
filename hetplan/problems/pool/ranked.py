"""Choosing a pool by listing: the paper's estimate (Eq. 15), its best ranked again, every fluid rate, base alone.

With a budget the highest rate is wanted; with a rate, the cheapest configuration that carries it. Ties: the cheaper
first, then the lexicographically first. Whatever chooses, the plan promises the fluid rate of what was chosen.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from hetplan.errors import InputError
from hetplan.planner.answer import Answer, Status
from hetplan.planner.contract import Ask
from hetplan.planner.draft import Draft, Infeasible, Reported
from hetplan.problems.pool import (
    eq15 as pool_eq15,
)
from hetplan.problems.pool import (
    infeasible as pool_infeasible,
)
from hetplan.problems.pool.columns import Type
from hetplan.problems.pool.configurations import Configurations, columns_of, configurations
from hetplan.problems.pool.fluid import at_counts, fluid
from hetplan.problems.pool.start import flows
from hetplan.profiles.fields import NANO
from hetplan.profiles.plan import Notice

if TYPE_CHECKING:
    from hetplan.problems.pool.options import Eq15Options, RerankOptions
    from hetplan.problems.pool.question import Pool, Rated

__all__ = ["by_enumeration", "by_eq15", "by_rerank", "covers", "homogeneous", "rates_of"]

MOST_PROGRAMS = 100_000
"""Above this many, solving one program each is the wrong tool."""

BATCH = 512
"""Programs asked for together while the cheapest that is enough is looked for."""

OVERESTIMATES = 0.95
"""An estimate is told to be too high where the fluid rate is below this share of it."""

ROOM = 1.25
"""For how much more than the rate pools are listed when the estimate chooses: more than it was seen to fall short."""

UNDERESTIMATES = 0.85
"""The estimate was measured up to 13.2% below the exact fluid rate: what is so far below may still do."""


def by_eq15(pool: Pool, ask: Ask) -> Draft | Infeasible:
    """The best by the estimate, or the most typical of its best ten (`select`)."""
    numbers, found = pool_eq15.from_pool(pool), _listed(pool, ask, with_base=True, room=ROOM)
    if isinstance(found, Infeasible) or not len(found):
        return found if isinstance(found, Infeasible) else _no_base(pool)
    rates = pool_eq15.estimate(numbers, found.counts)
    if pool.fluid_target is not None:
        enough = np.flatnonzero(rates >= pool.fluid_target)
        rated = _cheapest_enough(pool, ask, found, enough[np.argsort(found.cost[enough], kind="stable")])
        return rated if isinstance(rated, Infeasible) else _estimated(pool, ask, rated, numbers)
    best = pool_eq15.top(rates, found.cost, 10)
    chosen = best[0]
    if cast("Eq15Options", pool.options).select == "similarity":
        chosen = best[pool_eq15.most_similar(found.rows(best), pool.base)]
    return _estimated(pool, ask, pool.rate_at(ask, columns_of(pool, found.row(int(chosen)))), numbers)


def by_rerank(pool: Pool, ask: Ask) -> Draft | Infeasible:
    """The best by the estimate, ranked again by their exact fluid rates."""
    numbers, found = pool_eq15.from_pool(pool), _listed(pool, ask, with_base=True, room=ROOM)
    if isinstance(found, Infeasible) or not len(found):
        return found if isinstance(found, Infeasible) else _no_base(pool)
    keep = cast("RerankOptions", pool.options).keep
    rates = pool_eq15.estimate(numbers, found.counts)
    if pool.fluid_target is None:
        best = pool_eq15.top(rates, found.cost, keep)
        rated, _ = _best_of(pool, ask, found, best)
    else:
        near = np.flatnonzero(rates >= UNDERESTIMATES * pool.fluid_target)
        order = near[np.argsort(found.cost[near], kind="stable")][:keep]
        enough = _cheapest_enough(pool, ask, found, order)
        if isinstance(enough, Infeasible):
            return enough
        rated = enough
    return _estimated(pool, ask, rated, numbers)


def by_enumeration(pool: Pool, ask: Ask) -> Draft | Infeasible:
    """The exact fluid rate of every configuration: what the program over whole counts is checked against."""
    found = _listed(pool, ask)
    if isinstance(found, Infeasible):
        return found
    if pool.fluid_target is None:
        # One instance more never lowers the rate: only what cannot be added to is worth a program.
        at = np.flatnonzero(_maximal(pool, found))
        _at_most(at.size)
        if not at.size:
            return pool_infeasible.nothing_served(pool, ask, np.zeros(len(pool.columns), dtype=np.int64))
        rated, bound = _best_of(pool, ask, found, at)
        derate = pool.options.derate
        claim = Reported(
            "rate_qps", "max", "problem", rated.answer, value=derate * rated.lam, scale=derate, note="the best of all"
        )
        return pool.drafted(ask, rated, [claim] if bound <= rated.lam * (1 + pool_eq15.TIES) else [])
    at = np.flatnonzero(covers(pool, found))
    _at_most(at.size)
    enough = _cheapest_enough(pool, ask, found, at[np.argsort(found.cost[at], kind="stable")])
    if isinstance(enough, Infeasible):
        return enough
    cost = pool.cost(enough.counts) / NANO
    claim = Reported(
        "cost_per_hour",
        "min",
        "problem",
        value=cost,
        bound=cost,
        vouched="claimed",
        note="all cheaper ones are too slow",
    )
    return pool.drafted(ask, enough, [claim])


def homogeneous(pool: Pool, ask: Ask) -> Draft | Infeasible:
    """Base instances alone, as many as the budget buys or the rate needs; told also scaled to the whole budget."""
    only = replace(pool, types=_base_only(pool))
    found = _listed(only, ask, with_base=True)
    if isinstance(found, Infeasible) or not len(found):
        return _no_base(pool)
    if pool.fluid_target is None:
        rated = pool.rate_at(ask, columns_of(pool, found.row(len(found) - 1)))
    else:
        enough = _cheapest_enough(pool, ask, found, np.arange(len(found)))
        if isinstance(enough, Infeasible):
            return enough
        rated = enough
    cost = pool.cost(rated.counts)
    more: list[dict[str, Any]] = []
    if pool.wish.budget is not None and cost:
        scaled = rated.lam * pool.wish.budget / cost
        more = [{"what": "the same pool scaled to the whole budget", "fluid_rate_qps": scaled}]
    return pool.drafted(ask, rated, [_word(pool, rated)], alternatives=more)


def rates_of(pool: Pool, ask: Ask, rows: NDArray[np.int64], *, about: str) -> list[Answer[Any]]:
    """The fluid programs of configurations (rows of counts per type), by one warm engine."""
    return ask.all(at_counts(pool, rows), about=about)


def _listed(pool: Pool, ask: Ask, *, with_base: bool = False, room: float = 1.0) -> Configurations | Infeasible:
    """All configurations that may be the answer; for a rate, those no dearer than a pool that surely carries it.

    That pool is the program's without whole numbers, each count rounded up. `room` asks for more than the rate, where
    the choice is made by something that may say less than the truth.
    """
    if pool.wish.budget is not None:
        return configurations(pool, pool.wish.budget, with_base=with_base)
    form = fluid(pool, pool.fluid_target)
    answer = ask(replace(form, whole=np.zeros_like(form.whole)), about="least cost without whole numbers")
    if answer.status is Status.INFEASIBLE:
        return pool_infeasible.unreachable(pool, ask, form, answer)
    if answer.point is None:
        return Infeasible(why=(f"no pool was found: {answer.stop}",), proved=False)
    counts = np.ceil(room * answer.point[-len(pool.columns) :] - 1e-6).astype(np.int64)
    cost = pool.cost(counts) + (int(pool.c[pool.of == pool.base].max()) if with_base else 0)
    return configurations(pool, cost, with_base=with_base)


def _base_only(pool: Pool) -> tuple[Type, ...]:
    """The types with every other limited to its least."""
    return tuple(kind if t == pool.base else replace(kind, most=kind.least) for t, kind in enumerate(pool.types))


def _at_most(count: int) -> None:
    if count > MOST_PROGRAMS:
        raise InputError.one(
            path="method.formulation",
            value=f"{count:,} configurations",
            why=f"one program each is worth it up to {MOST_PROGRAMS:,}",
            remedy="Use formulation fluid-milp, or lower the budget or limits.instances.",
        )


def covers(pool: Pool, found: Configurations) -> NDArray[np.bool_]:
    """Which configurations have an instance for every class: the others carry nothing."""
    keep = np.ones(len(found), dtype=bool)
    for pattern in np.unique(pool.usable, axis=0):
        keep &= np.logical_or.reduce(
            [found.counts[t] > 0 for t in np.flatnonzero(pattern)] or [np.zeros(len(found), bool)]
        )
    return keep


def _maximal(pool: Pool, found: Configurations) -> NDArray[np.bool_]:
    """Which configurations serve every class and have no other that holds one instance more."""
    keep = covers(pool, found)
    if not len(found):
        return keep
    # A configuration is a number in mixed radix; "one more of t" is the number plus t's place value.
    radix = [int(column.max()) + 2 for column in found.counts]
    code, place = np.zeros(len(found), dtype=np.int64), 1
    places = []
    for column, size in zip(reversed(found.counts), reversed(radix), strict=True):
        code += column.astype(np.int64) * place
        places.append(place)
        place *= size
    there = np.sort(code)
    for step in places:
        at = np.minimum(np.searchsorted(there, code + step), there.size - 1)
        keep &= there[at] != code + step
    return keep


def _best_of(pool: Pool, ask: Ask, found: Configurations, at: NDArray[np.int64]) -> tuple[Rated, float]:
    """Of some configurations the one of the highest fluid rate, and the highest bound of any."""
    answers = rates_of(pool, ask, found.rows(at), about="fluid rate of each configuration")
    said = [
        answer.value if answer.value is not None else flows(pool, found.row(int(i)))[0]
        for i, answer in zip(at, answers, strict=True)
    ]
    bounds = [answer.bound if answer.bound is not None else np.inf for answer in answers]
    (best,) = pool_eq15.top(np.array(said), found.cost[at], 1)
    return pool.rated(columns_of(pool, found.row(int(at[best]))), answers[int(best)]), float(max(bounds))


def _cheapest_enough(pool: Pool, ask: Ask, found: Configurations, at: NDArray[np.int64]) -> Rated | Infeasible:
    """The first configuration, in order of cost, whose fluid rate reaches the target."""
    best: Rated | None = None
    for start in range(0, at.size, BATCH):
        part = at[start : start + BATCH]
        answers = rates_of(pool, ask, found.rows(part), about="fluid rate of each configuration, cheapest first")
        for i, answer in zip(part, answers, strict=True):
            rated = pool.rated(columns_of(pool, found.row(int(i))), answer)
            if pool.holds(rated):
                return rated
            best = rated if best is None or rated.lam > best.lam else best
    if best is None or best.lam <= 0:
        return Infeasible(why=("no configuration looked at reaches the rate; fluid-milp finds why",), proved=False)
    return pool_infeasible.too_slow(pool, best.counts, best.lam, proved=False)


def _estimated(pool: Pool, ask: Ask, rated: Rated, numbers: pool_eq15.Eq15) -> Draft | Infeasible:
    """The plan of a pool chosen by the estimate, which is told beside the exact rate."""
    said = pool_eq15.estimate_one(numbers, pool.of_type(rated.counts).tolist())
    warnings = []
    if rated.lam < OVERESTIMATES * said:
        text = f"Eq. 15 gives {said:.6g} qps for this pool, its exact fluid rate is {rated.lam:.6g}"
        warnings.append(Notice(code="W-overestimates", at="alternatives", text=text))
    more = [{"what": "estimate of this pool by Eq. 15, which is no bound", "eq15_qps": said}]
    return pool.drafted(ask, rated, [_word(pool, rated)], alternatives=more, warnings=warnings)


def _word(pool: Pool, rated: Rated) -> Reported:
    """A heuristic's word: a value without a bound."""
    if pool.fluid_target is not None:
        return Reported("cost_per_hour", "min", "none", value=pool.cost(rated.counts) / NANO)
    return Reported("rate_qps", "max", "none", value=pool.options.derate * rated.lam)


def _no_base(pool: Pool) -> Infeasible:
    base = pool.types[pool.base].hardware
    why = f"this formulation builds on instances of the base type {base}, and too few are within the budget and limits"
    remedy = "use formulation fluid-milp, which needs no base type"
    return Infeasible(why=(why, remedy), proved=False)
