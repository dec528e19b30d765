"""The programs beside the main one: the least cover and the least raise, which explain, and the minima alone."""

from __future__ import annotations

import numpy as np

from hetplan.planner.forms.milp import Builder, Milp
from hetplan.problems.pool.form import add_flows
from hetplan.problems.pool.form_limits import add_limits, limit_resources
from hetplan.problems.pool.letters import Pool
from hetplan.profiles.fields import NANO

__all__ = ["cover", "least_raise", "minima"]


def cover(pool: Pool) -> Milp:
    """Least cost of a pool that serves every class within the targets at some rate, however small, and has all minima.

    Classes alike in where they are served in time are one pattern i; y_it is the share of pattern i that type t takes.
    """
    m = Builder("min", name=f"pool {pool.wish.app_id} cover")
    late = [limit < pool.M for limit, share in pool.limits if share > 0]
    alike, which = np.unique(np.hstack([pool.usable, *late]), axis=0, return_inverse=True)
    share = np.bincount(which.ravel(), weights=pool.p, minlength=len(alike))
    width = len(pool.types)
    i, t = np.nonzero(alike[:, :width])
    y = m.columns("y", lambda k: f"pattern {i[k]} on {pool.types[int(t[k])].hardware}", size=i.size, upper=1.0)
    most = [np.inf if column.stock is None else column.stock for column in pool.columns]
    n = m.columns("n", pool.column_names, upper=most, whole=True, unit="instances", cost=pool.c / NANO)
    m.add(m.rows("served", lambda k: f"pattern {k}", size=len(alike), lower=1.0, upper=1.0)[i], y, 1.0)
    there = m.rows("there", lambda k: f"pattern {i[k]}", size=i.size, upper=0.0)
    m.add(there, y, 1.0)
    at, o = np.nonzero(np.equal.outer(t, pool.of))
    m.add(there[at], n[o], -1.0)
    for k, (_, allowed) in enumerate((limit, share) for limit, share in pool.limits if share > 0):
        row = m.rows(f"late {k}", ["share"], upper=allowed)
        m.add(row, y, np.where(alike[i, width * (k + 1) + t], share[i], 0.0))
    least = [float(kind.least) for kind in pool.types]
    top = [np.inf if kind.most is None else float(kind.most) for kind in pool.types]
    m.add(m.rows("count", [kind.hardware for kind in pool.types], lower=least, upper=top)[pool.of], n, 1.0)
    limit_resources(pool, m, n)
    return m.build()


def least_raise(pool: Pool, target: float) -> Milp:
    """The target with every max and stock loosened, at the price of the instances beyond them."""
    m = Builder("min", name=f"pool {pool.wish.app_id} raised")
    lam, busy = add_flows(pool, m, np.zeros(len(pool.types)), scale=target)
    names = pool.column_names
    n = m.columns("n", names, whole=True, unit="instances")
    m.add(busy[pool.of], n, -1.0)
    row = m.rows("target", ["rate"], lower=1.0, unit=f"{target:.6g} qps")
    m.add(row, lam, 1.0)
    price = np.maximum(pool.c / NANO, 1e-3)
    stocked = [o for o, column in enumerate(pool.columns) if column.stock is not None]
    if stocked:
        extra = m.columns("extra_stock", [names[o] for o in stocked], whole=True, cost=price[stocked])
        rows = m.rows("stock", [names[o] for o in stocked], upper=[float(pool.columns[o].stock or 0) for o in stocked])
        m.add(rows, n[stocked], 1.0)
        m.add(rows, extra, -1.0)
    capped = [t for t, kind in enumerate(pool.types) if kind.most is not None]
    if capped:
        cost = [price[pool.of == t].min() for t in capped]
        extra = m.columns("extra_most", [pool.types[t].hardware for t in capped], whole=True, cost=cost)
        rows = m.rows(
            "most", [pool.types[t].hardware for t in capped], upper=[float(pool.types[t].most or 0) for t in capped]
        )
        for row, t in zip(rows, capped, strict=True):
            m.add(row, n[pool.of == t], 1.0)
        m.add(rows, extra, -1.0)
    limit_resources(pool, m, n)
    return m.build()


def minima(pool: Pool) -> Milp:
    """Least cost of the instances that the limits ask for."""
    m = Builder("min", name=f"pool {pool.wish.app_id} idle")
    most = [np.inf if column.stock is None else column.stock for column in pool.columns]
    n = m.columns("n", pool.column_names, upper=most, whole=True, unit="instances", cost=pool.c / NANO)
    add_limits(pool, m, n)
    return m.build()
