r"""One pool to choose, in the letters of its paper (Kairos, HPDC 2023).

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
M_st        `M` (ms)                 the statistic of that time that is compared with the target (`latency_stat`)
QoS         `qos` (ms)               latency target, less the network's hop (`limits`: of every percentile stated)
c_o         `c`                      price of one machine under offer o, a count of 1e-9 per hour
B           `request.budget`         budget, a count of 1e-9 per hour (None: least cost for `wish.rate_qps`)
eps         `eps`                    share of queries that may be sent where they are late
lam         --                       rate (queries/s) of the whole pool
x_st        --                       rate of class s sent to type t
n_o         --                       machines rented under offer o
==========  =======================  ==================================================================================

The exact fluid program (`program`), in place of the paper's Eq. 15, which is no bound: rows (1) to (6) of
`planner.program` (N_o are the n_o here) say what may be rented, and these what it is used for::

    max lam
    u_t = sum_s W_st x_st / 1000                          in (1): a machine is busy at most all the time
    (7) sum_t x_st = p_s lam                              every class is served, in its share
    (8) x_st = 0 where M_st > QoS;  with eps > 0 allowed there, in all at most eps lam;  so for every percentile

Least cost instead minimises the left of (4), with a row (9) lam >= rate / derate. With n fixed it is a linear program,
and a true bound on the rate of any dispatcher (mean service times, stationary mix) when eps is the share of late
queries that the target allows. Where a pool drops late queries, (7) is <= in that bound, and in (8) all are late but
those in time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.choices import Choice
from hetplan.planner.machine_limits import MachineLimit, keeps, machine_limits
from hetplan.planner.request import Application, Offer, Request, cheapest_first
from hetplan.planner.terms import Tools
from hetplan.problems.pool.options import PoolOptions
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Notice

__all__ = ["Counts", "Matrix", "Pool", "Times", "Vector", "Wish"]


Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Wish:
    """The SLO as the pool reads it.

    `points` are the classes of queries with a positive share `p`. Choosing is about the last response target of `app`.
    `rate_qps` is served at the least cost; where it is None, the most is served for `Request.budget`. `then_cheapest`
    asks for the least cost among the pools of the most rate.
    """

    app: Application
    variant: str
    points: tuple[Mapping[str, float], ...]
    p: NDArray[np.float64]
    rate_qps: float | None
    then_cheapest: bool

    @property
    def max_ms(self) -> float | None:
        """The latency target as the file states it (None where there is none)."""
        return self.app.targets[-1].max_ms if self.app.targets else None


@dataclass(frozen=True)
class Times:
    """Per class and type: the mean time one query holds an instance, and the statistic compared with the target.

    A class that a type cannot serve at all takes infinitely long. `extrapolated` marks what was read outside a table.
    """

    mean_ms: Matrix
    compared_ms: Matrix
    std_ms: Matrix | None
    max_ms: Matrix | None
    extrapolated: NDArray[np.bool_]


Vector = NDArray[np.float64]
Counts = NDArray[np.int64]

MOST_LISTED = 16
"""Up to so many types all their subsets are looked at (65 536)."""

AT_ONCE = 4096
"""Subsets looked at in one array."""


@dataclass(frozen=True)
class Pool:
    """One pool to choose; see the module for the letters."""

    inputs: Inputs
    wish: Wish
    types: tuple[Choice, ...]
    request: Request
    """Its machine types are those of `types`, in the same order."""
    times: Times
    options: PoolOptions
    formulation: str = "fluid-milp"
    tools: Tools = field(default_factory=Tools)
    notices: tuple[Notice, ...] = ()
    may_drop: bool = False
    """Whether queries may go unanswered, as late ones: in bounds of pools that drop what would be late."""

    @property
    def offers(self) -> tuple[Offer, ...]:
        """What can be rented; machines are counted by these."""
        return self.request.offers

    @property
    def p(self) -> Matrix:
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
    def qos(self) -> float:
        """The latency target at the highest percentile, less the network, ms (infinite where there is none)."""
        return self.wish.app.targets[-1].limit_ms() if self.wish.app.targets else np.inf

    @property
    def eps(self) -> float:
        """Share of queries that may be late by design."""
        return self.options.violation_tolerance

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
    def of(self) -> Counts:
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
    def rentable(self) -> list[int]:
        """Types of which at least one instance may be had."""
        return [t for t, kind in enumerate(self.request.machines) if kind.available > 0]

    def allows(self, counts: Sequence[int] | Counts) -> bool:
        """Whether so many machines of each offer may be rented; money apart."""
        return keeps(self._limits, np.asarray(counts, dtype=float))

    @cached_property
    def _limits(self) -> tuple[MachineLimit, ...]:
        return tuple(machine_limits(replace(self.request, budget=None)))

    def missed(self, there: NDArray[np.bool_]) -> NDArray[np.int64]:
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

    def takes(self, resource: str) -> Matrix:
        """What one machine of each type counts for in a total: what it provides."""
        return np.array([kind.provides.get(resource, 0.0) for kind in self.request.machines], dtype=np.float64)

    @cached_property
    def base(self) -> int:
        """The base type: the first of those that serve the most queries in time (all, mostly)."""
        return int(np.argmax(np.round(self.p @ self.timely, 12)))

    def of_type(self, counts: Counts) -> Counts:
        """Machines per type of machines per offer."""
        return np.bincount(self.of, weights=counts, minlength=len(self.types)).astype(np.int64)

    def instances(self, counts: Counts) -> int:
        """All instances on machines per offer."""
        return int(self.k[self.of] @ counts)

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
        counts = [
            number
            for kind, count in zip(self.request.machines, per_type, strict=True)
            for number in cheapest_first(int(count), [offer.stock for offer in kind.offers])
        ]
        return np.array(counts, dtype=np.int64)

    def within_resources(self, per_type: Counts | Vector) -> bool:
        """Whether the totals of resources allow these instances."""
        limits = self.request.resources
        return all(float(self.takes(name) @ per_type) <= total * (1 + 1e-12) for name, total in limits.items())


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
        for subset in part[_keeps_targets(pool, free, part)]:
            per_type = least.copy()
            per_type[free] = (subset >> np.arange(len(free))) & 1
            if pool.within_resources(per_type):
                return pool.by_offer(per_type)
    return None


def _keeps_targets(pool: Pool, free: Sequence[int], subsets: Counts) -> NDArray[np.bool_]:
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
