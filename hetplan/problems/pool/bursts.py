r"""What bursts ask of a pool, whoever dispatches: rows that join the fluid program where it bounds every plan.

Of the N queries that come in a window of length T (`serving.window`), those that are to be in time have the machines
for T + D. With N_j the atoms of N, q_j their chances, D a response limit that a share m of the queries may miss::

    y_stj                                                  share of class s that is in time on type t, where N_j come
    (10) sum_t y_stj <= 1                                  every class s, every j
    (11) sum_s p_s N_j w_st y_stj <= n_t (T + D)           every type t, every j: machines have no more time
    (12) sum_j q_j N_j (1 - sum_st p_s y_stj) <= m E N     no more are late than may be

A burst may be met by those classes alone that are quick to serve: so the classes are here, and not their mean. Their
shares in a window vary, too; as the program is convex in them, their mean is on the safe side.

w_st is the machine time that a query in time takes at least: the service time, if that is within D. Where times vary,
`serving.window` says what it is, and T + 2 D takes the place of T + D in (11).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.forms.milp import Builder
from hetplan.planner.tolerances import SLIP
from hetplan.problems.pool.letters import Counts, Matrix, Pool, Vector
from hetplan.serving.window import Window, busiest, least_work, time_after

__all__ = ["Burst", "bursts_of"]

MOST_COLUMNS = 1500
"""Larger programs take longer than the plan that they bound: fewer atoms do then."""


@dataclass(frozen=True)
class Burst:
    """A window of arrivals, and a limit, ms, that a share `late` of the queries may miss.

    `work` is w_st in ms, `span_ms` how long the machines of each type have for those in time.
    """

    window: Window
    limit_ms: float
    late: float
    work: Matrix
    span_ms: Vector

    def machines(self, pool: Pool, count: float) -> Matrix:
        """Machines of each type that each class keeps busy where so many queries come, served there alone."""
        return pool.p[:, None] * self.work * count / self.span_ms

    def useful(self, pool: Pool) -> Vector:
        """How many machines of each type the largest burst could keep busy, and one more."""
        busy = self.machines(pool, float(self.window.count.max()))
        return np.asarray(np.ceil(np.where(np.isfinite(busy), busy, 0.0).sum(axis=0)) + 1.0)

    def add(self, pool: Pool, m: Builder, rented: Counts) -> None:
        """Add the columns y and their rows; `rented` are the columns of the machines under each offer."""
        window, at = self.window, f" of {self.limit_ms:g} ms ({self.late:.4g})"
        s, t = np.nonzero(np.isfinite(self.work))
        served = [f"{pool.class_label(int(a))}@{pool.types[int(b)].hardware}" for a, b in zip(s, t, strict=True)]
        part = window.chance * window.count / window.mean / self.late  # what may be late is 1: few may be
        late = m.rows("late in bursts" + at, ["share"], lower=part.sum() - 1.0, equation="(12)")
        for j, count in enumerate(window.count.tolist()):
            burst = f"burst {j}{at}"
            y = m.columns(f"in time, {burst}", served)
            come = m.rows(f"classes, {burst}", pool.class_label, size=pool.p.size, upper=1.0, equation="(10)")
            room = m.rows(f"time, {burst}", [kind.hardware for kind in pool.types], upper=0.0, equation="(11)")
            m.add(come[s], y, 1.0)
            m.add(room[t], y, self.machines(pool, count)[s, t])
            m.add(room[pool.of], rented, -1.0)
            m.add(late, y, pool.p[s] * part[j])


def bursts_of(pool: Pool) -> Sequence[Burst]:
    """The bursts that ask for more machines than the rate does; none where it is not known when queries come."""
    arrivals, rate = pool.wish.app.arrivals, pool.wish.rate_qps
    found = list[Burst]()
    for target in pool.wish.app.targets if rate and all(kind.is_timed for kind in pool.types) else ():
        limit = target.limit_ms()
        window = busiest(arrivals, rate or 0.0, limit / 1000.0, target.left) if limit > 0.0 else None
        while window is not None and window.count.size * pool.L.size > MOST_COLUMNS:
            window = window.coarser() if window.count.size > 1 else None
        if window is not None:
            work, varies = _works(pool, limit)
            after = [time_after(limit, varies=bool(one)) for one in varies]
            span_ms = 1000.0 * window.seconds + np.array(after)
            found.append(Burst(window, limit, target.left, work / pool.k, span_ms))
    return found


def _works(pool: Pool, limit_ms: float) -> tuple[Matrix, NDArray[np.bool_]]:
    """What queries take of an instance of each type; and of which types times vary."""
    varies = np.zeros(len(pool.types), dtype=bool)
    works = np.where(limit_ms * (1 + SLIP) >= pool.L, pool.L, np.inf)
    for t, kind in enumerate(pool.types):
        varies[t] = kind.law.has_spread
        for s, point in enumerate(pool.wish.points) if varies[t] else ():
            times = kind.law.distribution(point)
            works[s, t] = works[s, t] if times is None else min(works[s, t], least_work(times, limit_ms))
    return works, varies
