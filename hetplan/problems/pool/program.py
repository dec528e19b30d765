r"""One pool and its programs, in the letters of the paper (Kairos, HPDC 2023).

An instance serves one query at a time; queries come in classes (batch sizes, or bins of several axes). The types differ
in price and in which classes they serve in time.

==========  =======================  ==================================================================================
letter      field                    meaning
==========  =======================  ==================================================================================
s           `points`                 class of queries (bin of the mix); only those that come at all
t           `types`                  machine type; o, an offer: a price at which t is rented (`request`)
p_s         `p`                      share of class s, sum 1
L_st        `L` (ms)                 mean service time of s on t; infinite where t cannot serve s
k_t         `k`                      instances on one machine of t: as many as its resources have room for
W_st        `W` (ms)                 L_st / k_t: what a query takes of a machine
M_st        `M` (ms)                 the statistic of that time that is compared with the target (`statistic`)
QoS         `qos` (ms)               latency target, less the network's hop (`limits`: of every percentile stated)
c_o         `c`                      price of one machine under offer o, a count of 1e-9 per hour
B           `request.budget`         budget, a count of 1e-9 per hour (None: least cost for `wish.rate_qps`)
eps         `eps`                    share of queries that may be sent where they are late
lam         --                       rate (queries/s) of the whole pool
x_st        --                       rate of class s sent to type t
n_o         --                       machines rented under offer o
==========  =======================  ==================================================================================

The exact fluid program (`fluid_program`), in place of the paper's Eq. 15, which is no bound: rows (1) to (6) of
`planner.program` (N_o are the n_o here) say what may be rented, and these what it is used for::

    max lam
    u_t = sum_s W_st x_st / 1000                          in (1): a machine is busy at most all the time
    (7) sum_t x_st = p_s lam                              every class is served, in its share
    (8) x_st = 0 where M_st > QoS;  with eps > 0 allowed there, in all at most eps lam;  so for every percentile

Least cost instead minimises the left of (4), with a row (9) lam >= rate / derate. With n fixed it is a linear program,
and a true bound on the rate of any dispatcher (mean service times, stationary mix) when eps is the share of late
queries that the target allows (`Pool.relaxation`). Where a pool drops late queries, (7) is <= in that bound, and in (8)
all are late but those in time.

Bursts ask more of every plan, whoever dispatches. Of the N queries that come in a window of length T
(`serving.window`), those that are to be in time have the machines for T + D. With N_j the atoms of N, q_j their
chances, D a response limit that a share m of the queries may miss::

    y_stj                                                  share of class s that is in time on type t, where N_j come
    (10) sum_t y_stj <= 1                                  every class s, every j
    (11) sum_s p_s N_j w_st y_stj <= n_t (T + D)           every type t, every j: machines have no more time
    (12) sum_j q_j N_j (1 - sum_st p_s y_stj) <= m E N     no more are late than may be

A burst may be met by those classes alone that are quick to serve: so the classes are here, and not their mean. Their
shares in a window vary, too; as the program is convex in them, their mean is on the safe side. w_st is the machine time
that a query in time takes at least: the service time, if that is within D. Where times vary, `serving.window` says what
it is, and T + 2 D takes the place of T + D in (11).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.answer import Answer
from hetplan.planner.choices import Choice
from hetplan.planner.forms.milp import Builder, Elastic, Milp
from hetplan.planner.machine_limits import PRICE_OF_SLACK, MachineLimit, keeps, machine_limits
from hetplan.planner.program import Expression, Uses, grant, rent
from hetplan.planner.request import Offer, Request, cheapest_first
from hetplan.planner.terms import Tools
from hetplan.planner.tolerances import SLIP
from hetplan.problems.pool.options import PoolOptions
from hetplan.problems.pool.request import Matrix, PoolRequest, Times, Vector
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Notice
from hetplan.serving.window import Window, busiest, least_work, time_after

if TYPE_CHECKING:
    from hetplan.planner.contract import Ask

__all__ = [
    "MOST_LISTED",
    "MOST_PROGRAMS",
    "Burst",
    "Counts",
    "Pool",
    "bursts_of",
    "cover_program",
    "fluid_program",
    "fluid_program_at",
    "fluid_programs_at",
    "minima_program",
    "rates_of",
    "read_counts",
    "read_shares",
]

Counts = NDArray[np.int64]

MOST_LISTED = 16
"""Up to so many types all their subsets are looked at (65 536)."""
AT_ONCE = 4096
"""Subsets looked at in one array."""
MOST_COLUMNS = 1500
"""Larger programs of bursts take longer than the plan that they bound: fewer atoms do then."""
MOST_PROGRAMS = 100_000
"""Above this many configurations, solving one program each is the wrong tool."""


@dataclass(frozen=True)
class Pool:
    """One pool to choose; see the module for the letters."""

    inputs: Inputs
    wish: PoolRequest
    types: tuple[Choice, ...]
    request: Request
    """Its machine types are those of `types`, in the same order."""
    times: Times
    options: PoolOptions
    formulation: str = "pool-milp"
    tools: Tools = field(default_factory=Tools)
    notices: tuple[Notice, ...] = ()
    may_drop: bool = False
    """Whether queries may go unanswered, as late ones: in bounds of pools that drop what would be late."""

    @property
    def offers(self) -> tuple[Offer, ...]:
        """What can be rented; machines are counted by these."""
        return self.request.offers

    @property
    def p(self) -> Vector:
        """Share of each class."""
        return self.wish.p

    @property
    def L(self) -> Matrix:
        """Mean service time of class s on type t, ms."""
        return self.times.mean_ms

    @cached_property
    def k(self) -> Counts:
        """Instances that one machine of each type holds."""
        return np.array([kind.per_machine for kind in self.types], dtype=np.int64)

    @cached_property
    def W(self) -> Matrix:
        """What a query of class s takes of a machine of type t, ms."""
        return self.L / self.k

    @property
    def M(self) -> Matrix:
        """The compared statistic of the service time, ms."""
        return self.times.compared_ms

    @property
    def is_rated_by_simulation(self) -> bool:
        """Whether its rate is the highest that long simulations sustain: of rules without a formula."""
        return self.wish.dispatch != "matching"

    @property
    def qos(self) -> float:
        """The latency target at the highest percentile, less the network, ms (infinite where there is none)."""
        return self.wish.app.targets[-1].limit_ms() if self.wish.app.targets else np.inf

    @property
    def eps(self) -> float:
        """Share of queries that may be late by design."""
        return self.options.allow_late

    @cached_property
    def limits(self) -> tuple[tuple[float, float], ...]:
        """(ms, share that may take longer) of every response target: eps at the highest percentile, all below it."""
        lower = [(target.limit_ms(), target.left) for target in self.wish.app.targets[:-1]]
        return (*lower, (self.qos, self.eps))

    @cached_property
    def usable(self) -> NDArray[np.bool_]:
        """Where x_st may be positive: served, and within every limit that nothing may exceed."""
        strict = min((limit for limit, share in self.limits if share <= 0), default=np.inf)
        return self.served & (strict >= self.M)

    @cached_property
    def c(self) -> Counts:
        """Price of each offer, a count of 1e-9 per hour."""
        return np.array([offer.nanos for offer in self.offers], dtype=np.int64)

    @cached_property
    def type_of(self) -> Counts:
        """The type of each offer."""
        place = {kind.hardware: t for t, kind in enumerate(self.types)}
        return np.array([place[offer.machine] for offer in self.offers], dtype=np.int64)

    @cached_property
    def served(self) -> NDArray[np.bool_]:
        """Which type can serve which class at all."""
        return np.isfinite(self.L)

    @cached_property
    def timely(self) -> NDArray[np.bool_]:
        """Which type serves which class in time: M_st <= QoS."""
        return self.served & (self.qos >= self.M)

    @cached_property
    def fluid_target(self) -> float | None:
        """The fluid rate that must be reached so that the derated one is the rate wished for."""
        return None if self.wish.rate_qps is None else self.wish.rate_qps / self.options.derate

    @property
    def sought(self) -> Literal["cost_per_hour", "rate_qps"]:
        """What is sought: the least cost of a stated rate, or the most rate."""
        return "rate_qps" if self.wish.rate_qps is None else "cost_per_hour"

    @cached_property
    def relaxation(self) -> Pool:
        """The pool with all the lateness that the target leaves: its fluid rate is a bound on every dispatcher's."""
        app = self.wish.app
        left = app.targets[-1].left if app.targets else 0.0
        may_drop = app.min_answered_share < 1.0
        return replace(self.with_options(allow_late=left, derate=1.0), may_drop=may_drop)

    def with_options(self, **changes: Any) -> Pool:
        """The pool with other options."""
        return replace(self, options=self.options.model_copy(update=changes))

    @cached_property
    def unit_rate(self) -> float:
        """Queries/s of one instance that is the fastest for every class: the unit in which programs count rates."""
        return 1000.0 / float(self.p @ np.where(self.served, self.L, np.inf).min(axis=1))

    @cached_property
    def prices(self) -> Vector:
        """The least price of each type, per hour and not 0; infinite where none is to be had."""
        price = np.full(len(self.types), np.inf)
        for t in self.rentable:
            price[t] = max(1.0, float(self.request.machines[t].cost(1)))
        return price

    @cached_property
    def cover(self) -> Counts | None:
        """The cheapest pool that carries any rate (None where limits forbid it, or the types are too many to look)."""
        return _cheapest_cover(self)

    @cached_property
    def sizes(self) -> Vector | None:
        """The size of each class, where queries have one axis."""
        points = self.wish.points
        return np.array([next(iter(point.values())) for point in points]) if len(points[0]) == 1 else None

    @cached_property
    def rentable(self) -> list[int]:
        """Types of which at least one instance may be had."""
        return [t for t, kind in enumerate(self.request.machines) if kind.available > 0]

    @cached_property
    def machine_limits(self) -> tuple[MachineLimit, ...]:
        """What limits the machines of each offer, money apart."""
        return tuple(machine_limits(replace(self.request, budget=None)))

    def allows(self, counts: Sequence[int] | Counts) -> bool:
        """Whether so many machines of each offer may be rented; money apart."""
        return keeps(self.machine_limits, np.asarray(counts, dtype=float))

    def unserved_classes(self, there: NDArray[np.bool_]) -> Counts:
        """The classes that no type of those that are `there` may serve."""
        return np.flatnonzero(~self.usable[:, there].any(axis=1))

    @cached_property
    def least(self) -> Counts:
        """The instances per type that the limits demand."""
        return np.array([kind.least for kind in self.request.machines], dtype=np.int64)

    @cached_property
    def weights(self) -> Vector:
        """C_j = L(base, largest class) / L(j, largest class), per type; C of the base is 1."""
        largest = max(range(len(self.wish.points)), key=lambda s: tuple(self.wish.points[s].values()))
        return np.asarray(self.L[largest, self.base] / self.L[largest], dtype=np.float64)

    def class_label(self, s: int) -> str:
        """A class in the user's words: ``batch=8``."""
        return " ".join(f"{axis}={size:g}" for axis, size in self.wish.points[s].items()) or "all"

    def provides(self, resource: str) -> Vector:
        """What one machine of each type counts for in a total: what it provides."""
        return np.array([kind.provides.get(resource, 0.0) for kind in self.request.machines], dtype=np.float64)

    @cached_property
    def base(self) -> int:
        """The base type: the first of those that serve the most queries in time (all, mostly)."""
        return int(np.argmax(np.round(self.p @ self.timely, 12)))

    def of_type(self, counts: Counts) -> Counts:
        """Machines per type of machines per offer."""
        return np.bincount(self.type_of, weights=counts, minlength=len(self.types)).astype(np.int64)

    def instances(self, counts: Counts) -> int:
        """All instances on machines per offer."""
        return int(self.k[self.type_of] @ counts)

    def cost(self, counts: Counts) -> int:
        """What the machines cost per hour, exactly."""
        return sum(int(price) * int(count) for price, count in zip(self.c, counts, strict=True))

    def base_among(self, per_type: Counts | Sequence[int]) -> int:
        """The base type, or where there is none of it, the type that is there and serves the most queries in time."""
        if per_type[self.base] > 0:
            return self.base
        there = np.asarray(per_type) > 0
        return int(np.argmax(np.where(there, np.round(self.p @ self.timely, 12), -1.0)))

    def by_offer(self, per_type: Counts | Vector) -> Counts:
        """Machines per offer of machines per type: offers cheapest first."""
        each = zip(self.request.machines, per_type, strict=True)
        counts = [cheapest_first(int(count), [offer.stock for offer in kind.offers]) for kind, count in each]
        return np.array([number for some in counts for number in some], dtype=np.int64)

    def within_resources(self, per_type: Counts | Vector) -> bool:
        """Whether the totals of resources allow these instances."""
        limits = self.request.resources
        return all(float(self.provides(name) @ per_type) <= total * (1 + 1e-12) for name, total in limits.items())


def _cheapest_cover(pool: Pool) -> Counts | None:
    """Machines per offer of the cheapest pool that carries any rate: the minima, and one more of each of some types.

    Late shares are least where each class goes to its fastest type, so a subset of types either keeps all targets
    that way or never. None where no subset does, or where there are too many types to look at all.
    """
    least = pool.least
    free = [t for t in pool.rentable if least[t] == 0]
    if len(free) > MOST_LISTED:
        return None
    subsets = np.arange(1 << len(free), dtype=np.int64)
    cost = np.zeros(subsets.size)
    for i, t in enumerate(free):
        cost += ((subsets >> i) & 1) * float(pool.request.machines[t].cost(1))
    order = np.argsort(cost, kind="stable")
    for start_at in range(0, order.size, AT_ONCE):
        part = order[start_at : start_at + AT_ONCE]
        for subset in part[_meets_targets(pool, free, part)]:
            per_type = least.copy()
            per_type[free] = (subset >> np.arange(len(free))) & 1
            if pool.within_resources(per_type):
                return pool.by_offer(per_type)
    return None


def _meets_targets(pool: Pool, free: Sequence[int], subsets: Counts) -> NDArray[np.bool_]:
    """Which subsets (bit i is free type i), with the minima, serve every class and keep every target at some rate."""

    def served_by(may: NDArray[np.bool_]) -> Counts:
        """Of each class the free types, as bits; the minima, which are in every subset, are one bit more."""
        columns = np.column_stack([may[:, free], may[:, pool.least > 0].any(axis=1)])
        return np.asarray(columns @ (1 << np.arange(columns.shape[1], dtype=np.int64)), dtype=np.int64)

    masks = subsets | (1 << len(free))
    keep = np.ones(masks.size, dtype=bool)
    for pattern in np.unique(served_by(pool.usable)):
        keep &= (masks & pattern) != 0
    for limit, allowed in pool.limits:
        if allowed > 0:
            patterns, which = np.unique(served_by(pool.usable & (limit >= pool.M)), return_inverse=True)
            share = np.bincount(which.ravel(), weights=pool.p)
            late = np.zeros(masks.size)
            for pattern, part in zip(patterns, share, strict=True):
                late += np.where((masks & pattern) == 0, part, 0.0)
            keep &= late <= allowed * (1 + 1e-9)
    return keep


# -- the programs ------------------------------------------------------------------------------------------------------


def _machines_of_use(pool: Pool, target: float) -> dict[str, float]:
    """How many machines of each type a rate could ever keep busy; the least that is asked for in any case.

    One more than the work needs: the last bit of a rounded product must not cut off the answer.
    """
    work = (pool.p[:, None] * np.where(pool.usable, pool.W, 0.0)).sum(axis=0) * target / 1000.0
    return {
        kind.id: float(max(kind.least, math.ceil(busy * (1 + 1e-9)) + 1))
        for kind, busy in zip(pool.request.machines, work.tolist(), strict=True)
    }


def _add_flows(pool: Pool, m: Builder, *, scale: float) -> tuple[Counts, dict[str, Expression]]:
    """Columns lam and x with rows (7) and (8); returns lam, and the machines of each type that x keeps busy.

    An engine's tolerances are absolute, so rates are counted in units of `scale`, and flows also in units of their
    class's share: column lam is lam / scale, and column x of class s is x_st / (p_s scale). Where a pool may drop
    queries, not all are served, and all but those in time are late.
    """
    s, t = np.nonzero(pool.usable)
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


def fluid_program(pool: Pool, target: float | None, *, slip: float = 0.0, bursts: Sequence[Burst] = ()) -> Milp:
    """The program over whole counts: most lam within the budget, or least cost at lam >= target (above 0).

    Rates are counted in units of the target, or of `pool.unit_rate`. `slip` tightens budget and target by that share:
    the way out where an engine's tolerance let it through by a hair. `bursts` are to be kept too.
    """
    m = Builder("max" if target is None else "min", name=f"pool {pool.wish.app.id}")
    lam, machines = _add_flows(pool, m, scale=pool.unit_rate if target is None else target)
    most = {} if target is None else _machines_of_use(pool, target)
    for burst in bursts:
        most = {
            name: max(one, more) for (name, one), more in zip(most.items(), burst.useful(pool).tolist(), strict=True)
        }
    n = rent(m, pool.request, Uses(machines, _types_needed(pool), most), priced=target is not None, slip=slip)
    for burst in bursts:
        burst.add(pool, m, n)
    if target is not None:
        at = f"slo.apps.{pool.wish.app.id}.rate_qps"
        per_unit = pool.options.derate * target
        elastic = Elastic(PRICE_OF_SLACK, at, verb="lower", per_unit=per_unit, unit="qps")
        row = m.rows("target", ["rate"], lower=1.0 + slip, unit=f"{target:.6g} qps", equation="(9)", elastic=elastic)
        m.add(row, lam, 1.0)
    return m.build()


def _types_needed(pool: Pool) -> tuple[frozenset[str], ...]:
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


def fluid_program_at(pool: Pool, per_type: Counts | Vector) -> Milp:
    """The linear program at given counts per type: the rate that no dispatcher can beat."""
    m = Builder("max", name=f"pool {pool.wish.app.id} at given counts")
    _, machines = _add_flows(pool, m, scale=pool.unit_rate)
    names = (kind.hardware for kind in pool.types)
    grant(m, Uses(machines), dict(zip(names, np.asarray(per_type, dtype=float).tolist(), strict=True)))
    return m.build()


def cover_program(pool: Pool) -> Milp:
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


def minima_program(pool: Pool) -> Milp:
    """Least cost of the instances that the limits ask for."""
    m = Builder("min", name=f"pool {pool.wish.app.id} idle")
    least = {kind.id: float(kind.least) for kind in pool.request.machines}
    rent(m, replace(pool.request, budget=None), Uses({}, most=least), priced=True)
    return m.build()


def read_counts(pool: Pool, point: Vector) -> Counts:
    """Whole counts per offer from a point of a program that rents."""
    return np.rint(point[point.size - len(pool.offers) :]).astype(np.int64)


def read_shares(pool: Pool, point: Vector) -> Matrix:
    """x_st / (p_s lam) as a matrix from a point of either program (0 where its rate is 0)."""
    s, t = np.nonzero(pool.usable)
    share = np.zeros_like(pool.L)
    if point[0] > 0:
        share[s, t] = np.maximum(point[1 : 1 + s.size], 0.0) / point[0]
    return share


# -- many counts at once ---------------------------------------------------------------------------------------------
def fluid_programs_at(pool: Pool, family: Counts) -> list[Milp]:
    """`fluid_program_at` for each row of counts per type; the forms share all but one vector."""
    first = fluid_program_at(pool, np.zeros(len(pool.types)))
    (capacity,) = (block for block in first.rows if block.name == "capacity")
    upper = np.tile(first.row_upper, (len(family), 1))
    upper[:, capacity.start : capacity.stop] = family
    return [replace(first, row_upper=row) for row in upper]


def rates_of(pool: Pool, ask: Ask, rows: Counts, *, about: str) -> list[Answer[Any]]:
    """The fluid programs of configurations (rows of counts per type), by one warm engine."""
    return ask.all(fluid_programs_at(pool, rows), about=about)


# -- bursts -----------------------------------------------------------------------------------------------------------


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
            m.add(room[pool.type_of], rented, -1.0)
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
            work, varies = _least_work(pool, limit)
            after = [time_after(limit, varies=bool(one)) for one in varies]
            span_ms = 1000.0 * window.seconds + np.array(after)
            found.append(Burst(window, limit, target.left, work / pool.k, span_ms))
    return found


def _least_work(pool: Pool, limit_ms: float) -> tuple[Matrix, NDArray[np.bool_]]:
    """What queries take of an instance of each type; and of which types times vary."""
    varies = np.zeros(len(pool.types), dtype=bool)
    works = np.where(limit_ms * (1 + SLIP) >= pool.L, pool.L, np.inf)
    for t, kind in enumerate(pool.types):
        varies[t] = kind.law.has_spread
        for s, point in enumerate(pool.wish.points) if varies[t] else ():
            times = kind.law.distribution(point)
            works[s, t] = works[s, t] if times is None else min(works[s, t], least_work(times, limit_ms))
    return works, varies
