"""The plan of a chosen pool: workers, routes, dispatch, promises, and what the answers say about it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from hetplan.dispatch.parts import SPLIT_ABOVE, parts_of_pool
from hetplan.planner.answer import Status
from hetplan.planner.contract import Ask
from hetplan.planner.draft import Draft, Infeasibility, Reported, Scope
from hetplan.planner.transition import Names, transition
from hetplan.problems.pool.capacity import ChosenPool, RatedPool, SimulatedRate, meets_request, simulate
from hetplan.problems.pool.infeasible import less_rate, nothing_served, rate_not_reached
from hetplan.problems.pool.program import Counts, Pool
from hetplan.problems.pool.request import Matrix
from hetplan.profiles.fields import NANO
from hetplan.profiles.plan import Dispatch, MatchingDispatch, Notice, Promise, Route, SharesDispatch, Unserved, Valid
from hetplan.profiles.plan_dispatch_rules import EarliestDispatch, ThresholdDispatch
from hetplan.profiles.tables import Table
from hetplan.profiles.workers import Worker
from hetplan.serving.table_points import answering_statistic

__all__ = ["draft_idle", "draft_pool", "plan_chosen"]

NO_SHARE = 1e-12
"""Shares below this are rounding, not routing."""
LATE_CHEAP = 0.098
"""Below this weight a late pair (10 QoS C_j) can cost less than a timely one on the base (xi QoS)."""
MISSED = 1e-6
"""A rate is missed when it falls short by more than this share."""
SMALL_POOL = 5
"""Up to so many instances a fixed derate promises more than queueing allows."""


def plan_chosen(pool: Pool, ask: Ask, chosen: ChosenPool) -> Draft | Infeasibility:
    """The plan of a chosen pool, with what the answers say about it; or why it is none."""
    rated, simulated, claims = chosen.rated, chosen.simulated, chosen.backed
    if rated.lam <= 0:
        if pool.wish.rate_qps == 0.0:
            return draft_idle(pool, rated.counts)
        return nothing_served(pool, ask, rated.counts)
    if simulated is None and pool.request.budget is None and not meets_request(pool, rated):
        given = pool.formulation == "pool-lp" and rated.answer.status is Status.OPTIMAL
        return rate_not_reached(pool, rated.counts, rated.lam, proved=given)
    note = "the most that the chosen pool can carry"
    scope: Scope = "restriction" if claims else "problem"
    reported = (*claims, Reported("fluid_rate_qps", "max", scope, rated.answer, value=rated.lam, note=note))
    threshold = simulated.threshold if simulated is not None else None
    if pool.wish.dispatch == "threshold" and simulated is not None and threshold is None:
        n, seed = pool.of_type(rated.counts), ask.limits.seed
        threshold = simulate(pool, n, rated.lam, first_seed=seed, look="sweep").threshold
    return draft_pool(pool, chosen, reported, threshold=threshold)


def draft_pool(
    pool: Pool, chosen: ChosenPool, reported: Sequence[Reported], *, threshold: float | None = None
) -> Draft:
    """The plan of a rated pool; a simulated rate takes the place of the derated fluid rate."""
    app, rated, counts = pool.wish.app.id, chosen.rated, chosen.rated.counts
    groups = _worker_groups(pool, counts)
    workers = tuple(worker for _, worker in groups)
    used = sorted({int(pool.type_of[o]) for o, _ in groups})
    extrapolated = bool(pool.times.extrapolated[:, used].any()) or None
    rate = _rate_promise(pool, rated, chosen.simulated, extrapolated)
    fluid = Promise(
        app=app, quantity="fluid_rate_qps", relation=">=", value=rated.lam, model="fluid", extrapolated=extrapolated
    )
    tables = {pool.types[t].table_id: pool.types[t].own_table for t in used}
    single = all(pool.types[t].is_timed for t in used)
    dispatch = _dispatch(pool, counts, single, threshold)
    notices = (*_notices(pool, used), *_warnings(pool, used, counts, single, chosen.simulated is not None))
    return Draft(
        workers=workers,
        routing={app: _routes(pool, counts, rated.share, groups)},
        dispatch={app: dispatch},
        tables={name: _dispatch_table(table, pool) for name, table in tables.items()}
        if dispatch.rule in ("matching/1", "earliest/1")
        else {},
        actions=transition(pool.request.running, workers, offers=pool.inputs.profile.offers),
        promises=(rate, fluid, _cost_promise(pool, counts)),
        reported=tuple(reported),
        warnings=(*notices, *chosen.warnings),
        valid=Valid(rate_qps={app: (0.0, rate.value)}),
        alternatives=chosen.alternatives,
        searched=chosen.searched,
        **_missed_rate(pool, rate.value),
    )


def draft_idle(pool: Pool, counts: Counts, reported: Sequence[Reported] = ()) -> Draft:
    """Instances to which no query is sent: a plan for a rate of 0 exactly."""
    app = pool.wish.app.id
    workers = tuple(worker for _, worker in _worker_groups(pool, counts))
    rates = [
        Promise(app=app, quantity=quantity, relation=">=", value=0.0, model="fluid")
        for quantity in ("rate_qps", "fluid_rate_qps")
    ]
    return Draft(
        workers=workers,
        actions=transition(pool.request.running, workers, offers=pool.inputs.profile.offers),
        promises=(*rates, _cost_promise(pool, counts)),
        reported=tuple(reported),
        unserved=(Unserved(app=app, rate_qps=0.0, why="nothing is asked for, so no query has a route"),),
        valid=Valid(rate_qps={app: (0.0, 0.0)}),
    )


def _cost_promise(pool: Pool, counts: Counts) -> Promise:
    """What these instances cost."""
    return Promise(quantity="cost_per_hour", relation="=", value=pool.cost(counts) / NANO, model="no-queueing")


def _rate_promise(pool: Pool, rated: RatedPool, simulated: SimulatedRate | None, extrapolated: bool | None) -> Promise:
    """The rate to plan with."""
    app = pool.wish.app.id
    if simulated is None:
        derate = pool.options.derate
        return Promise(
            app=app, quantity="rate_qps", relation=">=", value=derate * rated.lam, model="fluid",
            basis=f"derate {derate:g} of the fluid rate", extrapolated=extrapolated,
        )  # fmt: skip
    return simulated.promise(app, extrapolated)


def _missed_rate(pool: Pool, planned: float) -> dict[str, Any]:
    """A stated rate that the plan does not promise (only simulation finds that out after the choice)."""
    wanted = pool.wish.rate_qps
    if wanted is None or planned >= wanted * (1 - MISSED):
        return {}
    text = f"{wanted:g} qps are asked for, and the pool carries {planned:.6g} in simulation"
    return {"target_missed": text, "repairs": (less_rate(pool, planned),)}


# -- machines and routes ---------------------------------------------------------------------------------------------


def _worker_groups(pool: Pool, counts: Counts) -> list[tuple[int, Worker]]:
    """(offer, worker group) of every offer in use."""
    names = Names(pool.request.running)
    groups: list[tuple[int, Worker]] = []
    for o in np.flatnonzero(counts):
        offer, t = pool.offers[int(o)], int(pool.type_of[o])
        kind = pool.types[t]
        loads = (kind.load(app=pool.wish.app.id),) * pool.k[t]
        queue: Literal["shared", "per-load"] = "per-load" if len(loads) > 1 else "shared"
        worker = Worker(
            id="any", hardware=kind.hardware, offer=offer.id, count=int(counts[o]), queue=queue, loads=loads
        )
        groups.append((int(o), names.with_ids(worker)))
    return groups


def _routes(pool: Pool, counts: Counts, share: Matrix, groups: list[tuple[int, Worker]]) -> tuple[Route, ...]:
    """Shares of each class: over types as rated, within a type over all its instances."""
    per_type, of = pool.of_type(counts), [int(pool.type_of[o]) for o, _ in groups]
    part = [counts[o] / per_type[t] / pool.k[t] for (o, _), t in zip(groups, of, strict=True)]
    share = np.column_stack([share[:, [t] * pool.k[t]] * one for t, one in zip(of, part, strict=True)])
    share[share < NO_SHARE] = 0.0
    share = share / share.sum(axis=1, keepdims=True)
    loads = [load.id for _, worker in groups for load in worker.loads]
    return tuple(
        Route(
            when=dict(point),
            to={load: min(1.0, float(part)) for load, part in zip(loads, row, strict=True) if part > 0},
        )
        for point, row in zip(pool.wish.points, share, strict=True)
    )


def _dispatch(pool: Pool, counts: Counts, single: bool, threshold: float | None) -> Dispatch:
    """The rule chosen; where runs state rates, instances serve several at once and shares decide."""
    if not single or pool.wish.max_ms is None:
        return SharesDispatch(late=pool.wish.app.late)
    late, slo_ms, xi = pool.wish.app.late, pool.wish.max_ms, pool.options.xi
    per_type = pool.of_type(counts)
    used = [int(t) for t in np.flatnonzero(per_type)]
    predict = {f"{pool.wish.variant}@{pool.types[t].hardware}": pool.types[t].table_id for t in used}
    if pool.wish.dispatch == "earliest":
        return EarliestDispatch(late=late, slo_ms=slo_ms, xi=xi, predict=predict)
    if pool.wish.dispatch == "threshold":
        assert threshold is not None
        return ThresholdDispatch(late=late, threshold=threshold, base=pool.types[pool.base_among(per_type)].hardware)
    weight = pool.weights
    parts = parts_of_pool((pool.k * per_type).tolist(), weight=weight.tolist())
    return MatchingDispatch(
        late=late,
        slo_ms=slo_ms,
        xi=xi,
        weight={pool.types[t].hardware: float(weight[t]) for t in sorted({*used, pool.base})},
        penalty=pool.options.matching_cost,
        split_above=SPLIT_ABOVE if parts > 1 else None,
        predict=predict,
    )


def _dispatch_table(table: Table, pool: Pool) -> Table:
    """The table with the statistics that dispatch and the plan's checks look at."""
    keep = {answering_statistic(table.statistics, one) for one in ("mean", pool.options.judged_by)}
    return table.model_copy(
        update={name: None for name in ("std", "p50", "p90", "p95", "p99", "max", "samples") if name not in keep}
    )


# -- warnings --------------------------------------------------------------------------------------------------------


def _notices(pool: Pool, used: Sequence[int]) -> list[Notice]:
    """What reading the files found, without what concerns only tables of types that are not used."""
    unused = {f"tables.{kind.table_id}" for t, kind in enumerate(pool.types) if t not in used}
    unused -= {f"tables.{pool.types[t].table_id}" for t in used}
    return [notice for notice in pool.notices if notice.at not in unused]


def _warnings(pool: Pool, used: Sequence[int], counts: Counts, single: bool, simulated: bool) -> list[Notice]:
    notices: list[Notice] = []
    if not single:
        return notices
    weight = pool.weights
    low = [f"{pool.types[t].hardware} {weight[t]:.3g}" for t in used if weight[t] < LATE_CHEAP]
    if low and (pool.wish.dispatch, pool.options.matching_cost) == ("matching", "paper"):
        text = f"at weights below {LATE_CHEAP} ({', '.join(low)}) a late query could look cheaper than one in time; "
        text += "so the dispatcher raises its penalty for late ones"
        notices.append(Notice(code="W-late-cheap", at=f"dispatch.{pool.wish.app.id}.weight", text=text))
    if not simulated and pool.instances(counts) <= SMALL_POOL and pool.options.derate > 0.5:
        text = f"{pool.instances(counts)} instances: a fixed derate of {pool.options.derate:g} may promise too much; "
        text += "simulate the plan, or set sizing to simulation"
        notices.append(Notice(code="W-small-pool", at="promises", text=text))
    return notices
