"""A pool for a rate of 0: only the least instances that `limits` demand."""

from __future__ import annotations

from collections.abc import Sequence

from hetplan.planner.answer import Status
from hetplan.planner.contract import Ask
from hetplan.planner.draft import Draft, Infeasible, Reported
from hetplan.planner.transition import transition
from hetplan.problems.pool.draft import cost_promise, worker_groups
from hetplan.problems.pool.form import minima, read_counts
from hetplan.problems.pool.letters import Counts, Pool
from hetplan.problems.pool.rated import Chosen, rate_at
from hetplan.profiles.fields import NANO
from hetplan.profiles.plan import Promise, Unserved, Valid

__all__ = ["idle", "waiting"]


def idle(pool: Pool, ask: Ask) -> Chosen | Infeasible | Draft:
    """A demand of nothing: the minima alone, serving where they can serve every class in time, else waiting.

    A loop that plans every few seconds meets minutes in which nobody asks; that is no error, and costs as little as it
    may.
    """
    form = minima(pool)
    answer = ask(form, gap=0.0, about="the least instances")
    if answer.status is Status.INFEASIBLE:
        from hetplan.planner.elastic import explain

        return explain(form, ask)
    counts = pool.by_offer(pool.least) if answer.point is None else read_counts(pool, answer.point)
    note = "nothing is asked for: the least instances alone"
    cost = Reported("cost_per_hour", "min", "problem", answer, value=pool.cost(counts) / NANO, note=note)
    if pool.usable[:, pool.least > 0].any(axis=1).all() and pool.options.size != "simulated":
        rated = rate_at(pool, ask, counts)
        if rated.lam > 0:
            return Chosen(rated, (cost,))
    return waiting(pool, counts, [cost])


def waiting(pool: Pool, counts: Counts, reported: Sequence[Reported] = ()) -> Draft:
    """Instances to which no query is sent: a plan for a rate of 0 exactly."""
    app = pool.wish.app_id
    workers = tuple(worker for _, worker in worker_groups(pool, counts))
    rates = [
        Promise(app=app, quantity=quantity, relation=">=", value=0.0, model="fluid")
        for quantity in ("rate_qps", "fluid_rate_qps")
    ]
    return Draft(
        workers=workers,
        actions=transition(pool.running, workers, offers=pool.inputs.profile.offers),
        promises=(*rates, cost_promise(pool, counts)),
        reported=tuple(reported),
        unserved=(Unserved(app=app, rate_qps=0.0, why="nothing is asked for, so no query has a route"),),
        valid=Valid(rate_qps={app: (0.0, 0.0)}),
    )
