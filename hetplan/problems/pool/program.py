"""The programs of a pool: the exact fluid program over whole counts, and at given counts.

The equations are those of `letters`; what limits the machines is `planner.program`'s.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from hetplan.planner.answer import Answer
from hetplan.planner.forms.milp import Builder, Elastic, Milp
from hetplan.planner.machine_limits import PRICE_OF_SLACK
from hetplan.planner.program import Expression, Uses, grant, rent
from hetplan.problems.pool.letters import Counts, Matrix, Pool, Vector

if TYPE_CHECKING:
    from hetplan.planner.contract import Ask
    from hetplan.problems.pool.bursts import Burst

__all__ = [
    "MOST_PROGRAMS",
    "at_counts",
    "cover",
    "fluid",
    "fluid_at",
    "minima",
    "rates_of",
    "read_counts",
    "read_shares",
]

Index = Counts


def _useful_machines(pool: Pool, target: float) -> dict[str, float]:
    """How many machines of each type a rate could ever keep busy; the least that is asked for in any case.

    One more than the work needs: the last bit of a rounded product must not cut off the answer.
    """
    work = (pool.p[:, None] * np.where(pool.usable, pool.W, 0.0)).sum(axis=0) * target / 1000.0
    return {
        kind.id: float(max(kind.least, math.ceil(busy * (1 + 1e-9)) + 1))
        for kind, busy in zip(pool.request.machines, work.tolist(), strict=True)
    }


def _pairs(pool: Pool) -> tuple[Index, Index]:
    """(s, t) of every x that may be positive."""
    s, t = np.nonzero(pool.usable)
    return s.astype(np.int64), t.astype(np.int64)


def add_flows(pool: Pool, m: Builder, *, scale: float) -> tuple[Index, dict[str, Expression]]:
    """Columns lam and x with rows (7) and (8); returns lam, and the machines of each type that x keeps busy.

    An engine's tolerances are absolute, so rates are counted in units of `scale`, and flows also in units of their
    class's share: column lam is lam / scale, and column x of class s is x_st / (p_s scale). Where a pool may drop
    queries, not all are served, and all but those in time are late.
    """
    s, t = _pairs(pool)
    unit = f"{scale:.6g} qps"
    lam = m.columns("lam", ["rate"], unit=unit, cost=scale if m.sense == "max" else 0.0)

    def label(i: int) -> str:
        return f"{pool.class_label(int(s[i]))}@{pool.types[int(t[i])].hardware}"

    x = m.columns("x", label, size=s.size, unit=f"its share of {unit}")
    least = -np.inf if pool.may_drop else 0.0
    served = m.rows("served", pool.class_label, size=pool.p.size, lower=least, upper=0.0, unit=unit, equation="(7)")
    m.add(served[s], x, 1.0)
    m.add(served, lam, -1.0)
    lax = [(limit, share) for limit, share in pool.limits if share > 0]
    if lax:
        late = m.rows("late", [f"{limit:g} ms" for limit, _ in lax], upper=0.0, unit=unit, equation="(8)")
        for row, (limit, share) in zip(late, lax, strict=True):
            is_late = pool.M[s, t] > limit
            if pool.may_drop:  # all but those in time
                m.add(row, lam, 1.0)
                m.add(row, x[~is_late], -pool.p[s[~is_late]])
            else:
                m.add(row, x[is_late], pool.p[s[is_late]])
            m.add(row, lam, -share)
    busy = pool.p[s] * (scale / 1000.0) * pool.W[s, t]
    machines = {kind.hardware: Expression(x[t == number], busy[t == number]) for number, kind in enumerate(pool.types)}
    return lam, machines


def fluid(pool: Pool, target: float | None, *, slip: float = 0.0, bursts: Sequence[Burst] = ()) -> Milp:
    """The program over whole counts: most lam within the budget, or least cost at lam >= target (above 0).

    Rates are counted in units of the target, or of `pool.unit_rate`. `slip` tightens budget and target by that share:
    the way out where an engine's tolerance let it through by a hair. `bursts` are to be kept too.
    """
    m = Builder("max" if target is None else "min", name=f"pool {pool.wish.app.id}")
    lam, machines = add_flows(pool, m, scale=pool.unit_rate if target is None else target)
    most = {} if target is None else _useful_machines(pool, target)
    for burst in bursts:
        most = {
            name: max(one, more) for (name, one), more in zip(most.items(), burst.useful(pool).tolist(), strict=True)
        }
    n = rent(m, pool.request, Uses(machines, _somebody(pool), most), priced=target is not None, slip=slip)
    for burst in bursts:
        burst.add(pool, m, n)
    if target is not None:
        at = f"slo.apps.{pool.wish.app.id}.rate_qps"
        per_unit = pool.options.derate * target
        elastic = Elastic(PRICE_OF_SLACK, at, verb="lower", per_unit=per_unit, unit="qps")
        row = m.rows("target", ["rate"], lower=1.0 + slip, unit=f"{target:.6g} qps", equation="(9)", elastic=elastic)
        m.add(row, lam, 1.0)
    return m.build()


def _somebody(pool: Pool) -> tuple[frozenset[str], ...]:
    """Of which types some machine is needed: without it a class of little work is served by nobody within a tolerance.

    Classes alike in where they may go are one set. A class too frequent to be late needs somebody in time.
    """
    if pool.cover is None and pool.wish.rate_qps is None:
        return ()  # where nothing is asked for, too many types to look at say no more than a rate of 0
    wanted = [pool.usable[:0] if pool.may_drop else pool.usable]
    for limit, share in pool.limits:
        often = pool.p > share * (1 + 1e-9)
        wanted.append((pool.usable & (limit >= pool.M))[often])
    names = [kind.hardware for kind in pool.types]
    patterns = np.unique(np.concatenate(wanted), axis=0)
    sets = (frozenset(name for name, may in zip(names, row, strict=True) if may) for row in patterns.tolist())
    return tuple(one for one in sets if one)


def fluid_at(pool: Pool, per_type: Counts | Vector) -> Milp:
    """The linear program at given counts per type: the rate that no dispatcher can beat."""
    m = Builder("max", name=f"pool {pool.wish.app.id} at given counts")
    _, machines = add_flows(pool, m, scale=pool.unit_rate)
    names = (kind.hardware for kind in pool.types)
    grant(m, Uses(machines), dict(zip(names, np.asarray(per_type, dtype=float).tolist(), strict=True)))
    return m.build()


def cover(pool: Pool) -> Milp:
    """Least cost of a pool that serves every class within the targets at some rate, however small, and has all minima.

    Classes alike in where they are served in time are one pattern i; y_it is the share of pattern i that type t takes,
    and w_t whether there is a machine of t.
    """
    m = Builder("min", name=f"pool {pool.wish.app.id} cover")
    late = [limit < pool.M for limit, share in pool.limits if share > 0]
    alike, which = np.unique(np.hstack([pool.usable, *late]), axis=0, return_inverse=True)
    share = np.bincount(which.ravel(), weights=pool.p, minlength=len(alike))
    width = len(pool.types)
    names = [kind.hardware for kind in pool.types]
    i, t = np.nonzero(alike[:, :width])
    y = m.columns("y", lambda k: f"pattern {i[k]} on {names[int(t[k])]}", size=i.size, upper=1.0)
    w = m.columns("w", names, upper=1.0)
    m.add(m.rows("served", lambda k: f"pattern {k}", size=len(alike), lower=1.0, upper=1.0)[i], y, 1.0)
    there = m.rows("there", lambda k: f"pattern {i[k]}", size=i.size, upper=0.0)
    m.add(there, y, 1.0)
    m.add(there, w[t], -1.0)
    for k, (_, allowed) in enumerate((limit, share) for limit, share in pool.limits if share > 0):
        row = m.rows(f"late {k}", ["share"], upper=allowed)
        m.add(row, y, np.where(alike[i, width * (k + 1) + t], share[i], 0.0))
    used = {name: Expression(w[[number]]) for number, name in enumerate(names)}
    uses = Uses(used, most={kind.id: float(max(1, kind.least)) for kind in pool.request.machines})
    rent(m, replace(pool.request, budget=None), uses, priced=True)
    return m.build()


def minima(pool: Pool) -> Milp:
    """Least cost of the instances that the limits ask for."""
    m = Builder("min", name=f"pool {pool.wish.app.id} idle")
    least = {kind.id: float(kind.least) for kind in pool.request.machines}
    rent(m, replace(pool.request, budget=None), Uses({}, most=least), priced=True)
    return m.build()


def read_counts(pool: Pool, point: Vector) -> Counts:
    """Whole counts per offer from a point of a program that rents."""
    places = pool.offers
    return np.rint(point[point.size - len(places) :]).astype(np.int64)


def read_shares(pool: Pool, point: Vector) -> Matrix:
    """x_st / (p_s lam) as a matrix from a point of either program (0 where its rate is 0)."""
    s, t = _pairs(pool)
    share = np.zeros_like(pool.L)
    if point[0] > 0:
        share[s, t] = np.maximum(point[1 : 1 + s.size], 0.0) / point[0]
    return share


# -- many counts at once ---------------------------------------------------------------------------------------------
#
# The fluid programs of many configurations of a pool, solved by one warm engine.

MOST_PROGRAMS = 100_000
"""Above this many configurations, solving one program each is the wrong tool."""


def at_counts(pool: Pool, family: Counts) -> list[Milp]:
    """`fluid_at` for each row of counts per type; the forms share all but one vector."""
    first = fluid_at(pool, np.zeros(len(pool.types)))
    (capacity,) = [block for block in first.rows if block.name == "capacity"]
    forms = []
    for counts in family:
        upper = first.row_upper.copy()
        upper[capacity.start : capacity.stop] = counts
        forms.append(replace(first, row_upper=upper))
    return forms


def rates_of(pool: Pool, ask: Ask, rows: Counts, *, about: str) -> list[Answer[Any]]:
    """The fluid programs of configurations (rows of counts per type), by one warm engine."""
    return ask.all(at_counts(pool, rows), about=about)
