"""The plan of a pool that a formulation chose, with what the answers say about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hetplan.planner.answer import Status
from hetplan.planner.contract import Ask
from hetplan.planner.draft import Draft, Infeasibility, Reported, Scope
from hetplan.planner.transition import transition
from hetplan.problems.pool.draft import cost_promise, draft, worker_groups
from hetplan.problems.pool.infeasible import nothing_served, too_slow
from hetplan.problems.pool.letters import Counts, Pool
from hetplan.problems.pool.rates import Chosen, holds
from hetplan.profiles.plan import Promise, Unserved, Valid

__all__ = ["draft_chosen", "draft_idle"]


def draft_chosen(pool: Pool, ask: Ask, found: Chosen | Infeasibility | Draft) -> Draft | Infeasibility:
    """The plan of a chosen pool, with what the answers say about it."""
    if not isinstance(found, Chosen):
        return found
    rated, simulated, claims = found.rated, found.simulated, found.backed
    if rated.lam <= 0:
        if pool.wish.rate_qps == 0.0:
            return draft_idle(pool, rated.counts)
        return nothing_served(pool, ask, rated.counts)
    if pool.options.size == "auto" and pool.wish.app.targets and pool.wish.rate_qps != 0.0 and simulated is None:
        from hetplan.problems.pool.sizing import kept

        return kept(pool, ask, found)
    if pool.options.size == "simulated" and simulated is None:
        from hetplan.problems.pool import size

        simulated = size.simulate(pool, pool.of_type(rated.counts), rated.lam, first_seed=ask.limits.seed)
        simulated = replace(simulated, at_most=rated.lam)
        claims = tuple(size.claims(pool, ask, simulated, claims))
    elif simulated is None and pool.request.budget is None and not holds(pool, rated):
        given = pool.formulation == "fluid-lp" and rated.answer.status is Status.OPTIMAL
        return too_slow(pool, rated.counts, rated.lam, proved=given)
    note = "the most that the chosen pool can carry"
    scope: Scope = "restriction" if claims else "problem"
    reported = (*claims, Reported("fluid_rate_qps", "max", scope, rated.answer, value=rated.lam, note=note))
    threshold = simulated.threshold if simulated is not None else None
    if pool.options.dispatch == "threshold" and simulated is not None and threshold is None:
        from hetplan.problems.pool.size import simulate

        n, seed = pool.of_type(rated.counts), ask.limits.seed
        threshold = simulate(pool, n, rated.lam, first_seed=seed, look="sweep").threshold
    return draft(pool, replace(found, simulated=simulated), reported, threshold=threshold)


def draft_idle(pool: Pool, counts: Counts, reported: Sequence[Reported] = ()) -> Draft:
    """Instances to which no query is sent: a plan for a rate of 0 exactly."""
    app = pool.wish.app.id
    workers = tuple(worker for _, worker in worker_groups(pool, counts))
    rates = [
        Promise(app=app, quantity=quantity, relation=">=", value=0.0, model="fluid")
        for quantity in ("rate_qps", "fluid_rate_qps")
    ]
    return Draft(
        workers=workers,
        actions=transition(pool.request.running, workers, offers=pool.inputs.profile.offers),
        promises=(*rates, cost_promise(pool, counts)),
        reported=tuple(reported),
        unserved=(Unserved(app=app, rate_qps=0.0, why="nothing is asked for, so no query has a route"),),
        valid=Valid(rate_qps={app: (0.0, 0.0)}),
    )
