"""Searching for the best pool by trying pools out: a catalog of configurations, valued by simulation or measurement.

The bound of a configuration is its fluid rate with all the lateness that the target leaves, which no dispatcher can
exceed, or the estimate of Eq. 15, which proves nothing. Kairos+ (Algorithm 1) tries configurations in the order of the
bound and leaves out those whose bound is below the best value found; so may an engine of another package that searches.
Where the order does not depend on values, the simulation of a pool ends as soon as it is known not to beat the best.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import cast

import numpy as np

from hetplan.errors import InputError
from hetplan.planner.contract import Ask
from hetplan.planner.draft import Infeasibility, Reported
from hetplan.planner.forms.catalog import Catalog
from hetplan.problems.pool.chosen import draft_chosen
from hetplan.problems.pool.infeasible import nothing_served
from hetplan.problems.pool.letters import Pool, Vector
from hetplan.problems.pool.listing import Configurations, configurations, serves_all_classes
from hetplan.problems.pool.options import SearchOptions
from hetplan.problems.pool.program import MOST_PROGRAMS, rates_of
from hetplan.problems.pool.rates import Chosen, Simulated, rate_at
from hetplan.problems.pool.size import check_can_simulate, simulate, tolerant
from hetplan.profiles.plan import Notice

__all__ = ["catalog", "search_pools"]


def search_pools(pool: Pool, ask: Ask, *, solver: str | None = None) -> Chosen | Infeasibility:
    """The best pool that an engine for catalogs finds, by the options `SearchOptions`."""
    if pool.request.budget is None:
        raise InputError.one(
            file=pool.inputs.files.get("slo", "slo.json"),
            path=f"$.apps.{pool.wish.app.id}.rate_qps",
            value=pool.wish.rate_qps,
            why=f"{pool.formulation} looks for the most rate within a budget",
            remedy='Set rate_qps to "max" with a budget, or use formulation fluid-milp with option size "simulated".',
        )
    options = cast(SearchOptions, pool.options)
    found = configurations(pool, pool.request.budget, with_base=options.bound == "eq15")
    bound = _bounds(pool, ask, found)
    at = np.flatnonzero(bound > 0)
    if not at.size:
        return nothing_served(pool, ask, np.zeros(len(pool.offers), dtype=np.int64))
    found, bound = found.where(bound > 0), bound[at]
    tried: dict[int, Simulated] = {}

    def keep(at: int) -> None:
        """Keep the best of those that were tried."""
        if tried[at].median > 0:
            ask.keep(
                lambda: draft_chosen(pool, ask, _chosen(pool, ask, found, at, tried, None)),
                simulated=True,
                rank=(tried[at].median,),
            )

    form = catalog(pool, found, bound, _evaluator(pool, ask, found, bound, tried, keep))
    answer = ask(form, about=f"search by {pool.formulation}", solver=solver)
    if answer.point is None:
        return Infeasibility(why=(f"no pool was tried: {answer.stop}",), proved=False)
    if tried[answer.point].median <= 0:
        why = f"none of the {len(tried)} pools tried carries any rate within the target"
        return Infeasibility(why=(why,), proved=False)
    proved = options.bound == "lp" and not options.prune_sub
    best = int(answer.work.get("evaluations_to_best", 0))
    return _chosen(pool, ask, found, answer.point, tried, form.upper_bound() if proved else None, best=best)


def _chosen(
    pool: Pool, ask: Ask, found: Configurations, at: int, tried: Mapping[int, Simulated], top: float | None,
    best: int | None = None,
) -> Chosen:  # fmt: skip
    """A pool that was tried, with the rate that it is worth and the most that any is."""
    options, value = cast(SearchOptions, pool.options), tried[at]
    rated = rate_at(pool, ask, pool.by_offer(found.row(at)))
    value = replace(value, at_most=rated.lam)
    note = f"{len(tried)} of {len(found)} pools tried" + (f", the best as number {best}" if best is not None else "")
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
    return Chosen(rated, (claim,), simulated=value, warnings=warnings, searched=True)


def catalog(
    pool: Pool,
    found: Configurations,
    bound: Vector,
    evaluate: Callable[[int, float], float],
) -> Catalog:
    """The configurations as candidates."""
    options = cast(SearchOptions, pool.options)
    return Catalog(
        place=found.rows(np.arange(len(found))),
        evaluate=lambda i: evaluate(i, 0.0),
        evaluate_above=evaluate,
        bound=bound,
        cost=found.cost.astype(np.float64),
        monotone=options.prune_sub,
        prune=options.prune or options.prune_sub,
        most=options.evaluations,
        name=f"pools of {pool.wish.app.id}",
    )


def _bounds(pool: Pool, ask: Ask, found: Configurations) -> Vector:
    if cast(SearchOptions, pool.options).bound == "eq15":
        from hetplan.problems.pool.eq15 import eq15_numbers, estimate_rates

        return estimate_rates(eq15_numbers(pool), found.counts)
    if len(found) > MOST_PROGRAMS:
        raise InputError.one(
            path="method.options.bound",
            value=f"{len(found):,} configurations",
            why=f"one program each is worth it up to {MOST_PROGRAMS:,}",
            remedy="Set option bound to eq15, or lower the budget or limits.instances.",
        )
    rows = found.rows(np.arange(len(found)))
    answers = rates_of(tolerant(pool), ask, rows, about="bound on the rate of each configuration")
    bounds = np.array([answer.bound if answer.bound is not None else np.inf for answer in answers])
    # A plan needs somebody in time for every class, also where the bound could do without.
    return np.where(serves_all_classes(pool, found), bounds, 0.0)


def _evaluator(
    pool: Pool,
    ask: Ask,
    found: Configurations,
    bound: Vector,
    tried: dict[int, Simulated],
    keep: Callable[[int], None],
) -> Callable[[int, float], float]:
    """What a candidate is worth: the median rate over seeds; `tried` keeps the whole of it."""
    measure = pool.tools.evaluate
    if cast(SearchOptions, pool.options).evaluator == "evaluate":
        if measure is None:
            raise InputError.one(
                file="options",
                path="evaluator",
                value="evaluate",
                why="nothing was handed in to value a pool with",
                remedy='Hand in Tools(evaluate=...), or set the option to "simulate".',
            )

        def measured(i: int, above: float) -> float:
            del above
            point = {"counts": dict(zip((t.hardware for t in pool.types), found.row(i).tolist(), strict=True))}
            tried[i] = Simulated((float(measure(point)),), model="measured")
            keep(i)
            return tried[i].median

        return measured
    check_can_simulate(pool)

    def simulated(i: int, above: float) -> float:
        tried[i] = simulate(pool, found.row(i), float(bound[i]), first_seed=ask.limits.seed, above=above)
        keep(i)
        return tried[i].median

    return simulated
