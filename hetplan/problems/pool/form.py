"""The programs of a pool: the exact fluid program over whole counts, and at given counts.

The equations are those of `letters`.
"""

from __future__ import annotations

import math

import numpy as np

from hetplan.planner.forms.milp import Builder, Elastic, Milp
from hetplan.problems.pool.letters import EXTRA, Counts, Matrix, Pool, Vector
from hetplan.profiles.fields import NANO

__all__ = [
    "fluid",
    "fluid_at",
    "most_of",
    "read_counts",
    "read_shares",
]

Index = Counts


def most_of(pool: Pool, *, target: float | None) -> Vector:
    """The most of each column that can be of use: stock, max_t, the budget, or what the target could ever keep busy."""
    most = np.full(len(pool.columns), np.inf)
    for o, column in enumerate(pool.columns):
        kind = pool.types[column.type]
        limits = [limit for limit in (column.stock, kind.most) if limit is not None]
        if pool.wish.budget is not None and column.price > 0:
            limits.append(pool.wish.budget // column.price)
        elif target is not None:
            usable = pool.usable[:, column.type]
            work = float(pool.p[usable] @ pool.W[usable, column.type]) * target / 1000.0
            # One more than the work needs: the last bit of a rounded product must not cut off the answer.
            limits.append(max(kind.least, math.ceil(work * (1 + 1e-9)) + 1))
        most[o] = min(limits, default=np.inf)
    return most


def _pairs(pool: Pool) -> tuple[Index, Index]:
    """(s, t) of every x that may be positive."""
    s, t = np.nonzero(pool.usable)
    return s.astype(np.int64), t.astype(np.int64)


def add_flows(pool: Pool, m: Builder, capacity: Vector, *, scale: float) -> tuple[Index, Index]:
    """Columns lam and x with equations (1), (5) and, for these capacities per type, (2); returns lam and rows (2).

    An engine's tolerances are absolute, so rates are counted in units of `scale`, and flows also in units of their
    class's share: column lam is lam / scale, and column x of class s is x_st / (p_s scale).
    """
    s, t = _pairs(pool)
    unit = f"{scale:.6g} qps"
    lam = m.columns("lam", ["rate"], unit=unit, cost=scale if m.sense == "max" else 0.0)

    def label(i: int) -> str:
        return f"{pool.class_label(int(s[i]))}@{pool.types[int(t[i])].hardware}"

    x = m.columns("x", label, size=s.size, unit=f"its share of {unit}")
    served = m.rows("served", pool.class_label, size=pool.p.size, lower=0.0, upper=0.0, unit=unit, equation="(1)")
    m.add(served[s], x, 1.0)
    m.add(served, lam, -1.0)
    lax = [(limit, share) for limit, share in pool.limits if share > 0]
    if lax:
        late = m.rows("late", [f"{limit:g} ms" for limit, _ in lax], upper=0.0, unit=unit, equation="(5)")
        for row, (limit, share) in zip(late, lax, strict=True):
            is_late = pool.M[s, t] > limit
            m.add(row, x[is_late], pool.p[s[is_late]])
            m.add(row, lam, -share)
    names = [kind.hardware for kind in pool.types]
    busy = m.rows("capacity", names, upper=capacity, unit="instances", equation="(2)")
    m.add(busy[t], x, pool.p[s] * (scale / 1000.0) * pool.W[s, t])
    return lam, busy


def fluid(pool: Pool, target: float | None, *, slip: float = 0.0, most: Vector | None = None) -> Milp:
    """The program over whole counts: most lam within the budget, or least cost at lam >= target (above 0).

    Rates are counted in units of the target, or of `pool.unit_rate`. `slip` tightens budget and target by that share:
    the way out where an engine's tolerance let it through by a hair. `most` replaces the bounds of n.
    """
    m = Builder("max" if target is None else "min", name=f"pool {pool.wish.app_id}")
    scale = pool.unit_rate if target is None else target
    lam, busy = add_flows(pool, m, np.zeros(len(pool.types)), scale=scale)
    price = pool.c / NANO
    n = m.columns(
        "n",
        pool.column_names,
        upper=most_of(pool, target=target) if most is None else most,
        whole=True,
        unit="instances",
        cost=price if target is not None else 0.0,
    )
    m.add(busy[pool.of], n, -1.0)
    if target is not None:
        at = f"slo.apps.{pool.wish.app_id}.demand.rate_qps"
        per_unit = pool.options.derate * target
        elastic = Elastic(EXTRA, at, verb="lower", per_unit=per_unit, unit="qps")
        row = m.rows(
            "target", ["rate"], lower=1.0 + slip, unit=f"{target:.6g} qps", equation="min_cost", elastic=elastic
        )
        m.add(row, lam, 1.0)
    if pool.wish.budget is not None:
        row = m.rows(
            "budget",
            ["hour"],
            upper=budget_row(pool, pool.wish.budget) * (1 - slip),
            unit=f"{pool.inputs.slo.limits.currency}/h",
            equation="(3)",
            elastic=Elastic(EXTRA, "slo.limits.cost_per_hour", unit=pool.inputs.slo.limits.currency),
        )
        m.add(row, n, price)
    if pool.cover is not None:
        _someone_for_each(pool, m, n)
    if pool.has_limits:
        from hetplan.problems.pool.form_limits import add_limits

        add_limits(pool, m, n)
    return m.build()


def _someone_for_each(pool: Pool, m: Builder, n: Index) -> None:
    """At least one instance for each class: without it a class of little work is served by nobody within a tolerance.

    Classes alike in where they may go are one row. A class too frequent to be late needs somebody in time.
    """
    wanted = [pool.usable]
    for limit, share in pool.limits:
        often = pool.p > share * (1 + 1e-9)
        wanted.append((pool.usable & (limit >= pool.M))[often])
    patterns = np.unique(np.concatenate(wanted), axis=0)
    rows = m.rows("somebody", lambda i: f"pattern {i}", size=len(patterns), lower=1.0, unit="instances")
    for row, pattern in zip(rows, patterns, strict=True):
        m.add(row, n[pattern[pool.of]], 1.0)


def budget_row(pool: Pool, budget: int) -> float:
    """The budget as a row's limit: lowered to what whole counts can cost at all.

    Costs are multiples of the prices' common divisor, far coarser than an engine's tolerance; so no pool that costs a
    hair too much passes the row.
    """
    step = math.gcd(*(int(price) for price in pool.c))
    return (budget // step * step if step else budget) / NANO


def fluid_at(pool: Pool, per_type: Counts | Vector) -> Milp:
    """The linear program at given counts per type: the rate that no dispatcher can beat."""
    m = Builder("max", name=f"pool {pool.wish.app_id} at given counts")
    add_flows(pool, m, np.asarray(per_type, dtype=float), scale=pool.unit_rate)
    return m.build()


def read_counts(pool: Pool, point: Vector) -> Counts:
    """Whole counts per column from a point of `fluid`."""
    return np.rint(point[-len(pool.columns) :]).astype(np.int64)


def read_shares(pool: Pool, point: Vector) -> Matrix:
    """x_st / (p_s lam) as a matrix from a point of either program (0 where its rate is 0)."""
    s, t = _pairs(pool)
    share = np.zeros_like(pool.L)
    if point[0] > 0:
        share[s, t] = np.maximum(point[1 : 1 + s.size], 0.0) / point[0]
    return share
