"""The plan for a demand of nothing: the least instances that the limits ask for, and no more.

A loop that plans every few seconds meets minutes in which nobody asks; that is no error, and costs as little as it may.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hetplan.planner.answer import Answer, Status
from hetplan.planner.contract import Ask
from hetplan.planner.draft import Draft, Infeasible, Reported
from hetplan.planner.elastic import explain
from hetplan.planner.forms.milp import Builder, Milp
from hetplan.planner.transition import transition
from hetplan.problems.pool.configurations import columns_of
from hetplan.problems.pool.draft import groups_of, running
from hetplan.problems.pool.fluid import add_limits, read_counts
from hetplan.problems.pool.start import least_per_type
from hetplan.profiles.fields import NANO
from hetplan.profiles.plan import Promise, Unserved, Valid

if TYPE_CHECKING:
    from hetplan.problems.pool.question import Counts, Pool

__all__ = ["idle", "minima", "waiting"]


def idle(pool: Pool, ask: Ask) -> Draft | Infeasible:
    """The minima alone: as a pool that serves where they can serve every class in time, else as machines that wait."""
    form = minima(pool)
    answer = ask(form, gap=0.0, about="the least instances")
    if answer.status is Status.INFEASIBLE:
        return explain(form, ask)
    least = least_per_type(pool)
    counts = columns_of(pool, least) if answer.point is None else read_counts(pool, answer.point)
    cost = _cost(pool, counts, answer)
    if pool.usable[:, least > 0].any(axis=1).all() and pool.options.size == "fluid":
        rated = pool.rate_at(ask, counts)
        if rated.lam > 0:
            return pool.drafted(ask, rated, [cost])
    return waiting(pool, counts, [cost])


def minima(pool: Pool) -> Milp:
    """Least cost of the instances that the limits ask for."""
    m = Builder("min", name=f"pool {pool.wish.app_id} idle")
    most = [np.inf if column.stock is None else column.stock for column in pool.columns]
    names = [column.offer or pool.types[column.type].hardware for column in pool.columns]
    n = m.columns("n", names, upper=most, whole=True, unit="instances", cost=pool.c / NANO)
    add_limits(pool, m, n)
    return m.build()


def waiting(pool: Pool, counts: Counts, reported: Sequence[Reported] = ()) -> Draft:
    """Instances to which no query is sent: a plan for a rate of 0 exactly."""
    app = pool.wish.app_id
    workers = tuple(worker for _, worker in groups_of(pool, counts))
    cost = Promise(quantity="cost_per_hour", relation="=", value=pool.cost(counts) / NANO, model="no-queueing")
    rates = [
        Promise(app=app, quantity=quantity, relation=">=", value=0.0, model="fluid")
        for quantity in ("rate_qps", "fluid_rate_qps")
    ]
    return Draft(
        workers=workers,
        actions=transition(running(pool), list(workers), offers=pool.inputs.profile.offers),
        promises=(*rates, cost),
        reported=tuple(reported),
        unserved=(Unserved(app=app, rate_qps=0.0, why="nothing is asked for, so no query has a route"),),
        valid=Valid(rate_qps={app: (0.0, 0.0)}),
    )


def _cost(pool: Pool, counts: Counts, answer: Answer[Any]) -> Reported:
    note = "nothing is asked for: the least instances alone"
    return Reported("cost_per_hour", "min", "problem", answer, value=pool.cost(counts) / NANO, note=note)
