r"""The paper's Eq. 15: an estimate of the rate of a configuration from a few numbers per type, for all of them at once.

It is no bound: the exact fluid rate is higher for most configurations, and where one strong instance raises s' for many
weak ones the estimate is far too high.

======  ==================================================================================================
letter  meaning
======  ==================================================================================================
u       instances of the base type; v_i of the auxiliary type i
Qb      rate of one base instance on all queries, 1000 / E[L_base]
s_i     largest size such that type i serves every size up to it in time; f_i = P(size <= s_i)
s', f'  the largest s_i of the auxiliary types present, and its share
Qs      rate of one base instance on sizes above s'
Qa_i    rate of one instance of i on sizes up to s' (also where it is late there)
======  ==================================================================================================

With A = sum_i v_i Qa_i and C = A (1 - f') / f'::

    (15)  u Qs <= C:  u Qs / (1 - f')          the base is the bottleneck
          else:       A / f' + (1 - C / (u Qs)) u Qb
          no auxiliary, or f' = 0:  u Qb;      f' = 1:  u Qb + A

s' takes one of few values ("levels"), so f', Qs and Qa are small tables over levels, and the estimate of a million
configurations is a handful of array operations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import NDArray

from hetplan.errors import InputError
from hetplan.planner.contract import Ask
from hetplan.planner.draft import Infeasibility, Reported
from hetplan.problems.pool.letters import Pool, Vector
from hetplan.problems.pool.listing import best_rated, cheapest_enough, list_affordable
from hetplan.problems.pool.options import Eq15Options
from hetplan.problems.pool.rates import Chosen, Rated, rate_at
from hetplan.profiles.fields import NANO
from hetplan.profiles.plan import Notice

__all__ = [
    "Eq15",
    "choose_by_estimate",
    "eq15_numbers",
    "estimate_rate",
    "estimate_rates",
    "missing_base",
    "most_similar",
    "unbounded_claim",
    "with_estimate",
]


def unbounded_claim(pool: Pool, rated: Rated) -> Reported:
    """What a heuristic claims: a value without a bound."""
    if pool.fluid_target is not None:
        return Reported("cost_per_hour", "min", "none", value=pool.cost(rated.counts) / NANO)
    return Reported("rate_qps", "max", "none", value=pool.options.derate * rated.lam)


def missing_base(pool: Pool) -> Infeasibility:
    """Why a formulation that needs a base instance has none."""
    base = pool.types[pool.base].hardware
    why = f"this formulation builds on instances of the base type {base}, and too few are within the budget and limits"
    remedy = "use formulation fluid-milp, which needs no base type"
    return Infeasibility(why=(why, remedy), proved=False)


Columns = Sequence[NDArray[np.int32]]

OVERESTIMATES = 0.95
"""A warning says that an estimate is too high where the fluid rate is below this share of it."""

ROOM = 1.25
"""For how much more than the rate pools are listed when the estimate chooses: more than it was seen to fall short."""

CHUNK = 1 << 16
"""Configurations worked on at once: their intermediate arrays stay in the processor's cache."""


@dataclass(frozen=True)
class Eq15:
    """The numbers of Eq. 15. Tables run over levels, the distinct values of s_i in growing order.

    `base` is the base's place among the types; `level[i]`, in the order of the types, is the level of s_i (the base's
    is not looked at, -1 marks a type that serves no size in time); `f`, `Qs` have an entry per level, `Qa[i]` too.
    """

    base: int
    Qb: float
    level: tuple[int, ...]
    f: Vector
    Qs: Vector
    Qa: NDArray[np.float64]


def eq15_numbers(pool: Pool) -> Eq15:
    """The numbers from the exact shares, s_i the last size in time (the published profile takes the first late one)."""
    sizes = _sizes(pool)
    order = np.argsort(sizes)
    p, times, timely = pool.p[order], pool.W[order], pool.timely[order]
    # How many sizes, from the smallest on, each type serves in time without a gap.
    reach = np.where(timely.all(axis=0), p.size, np.argmin(timely, axis=0))
    aux = [t for t in range(len(pool.types)) if t != pool.base]
    levels = sorted({int(reach[t]) for t in aux if reach[t] > 0})
    base = times[:, pool.base]
    f = np.array([float(p[:n].sum()) if n < p.size else 1.0 for n in levels])
    Qs = np.array([_rate(p[n:], base[n:]) for n in levels])
    Qa = np.array([[_rate(p[:n], times[:n, t]) for n in levels] for t in range(len(pool.types))])
    level = tuple(levels.index(int(n)) if n > 0 and t in aux else -1 for t, n in enumerate(reach))
    return Eq15(pool.base, _rate(p, base), level, f, Qs, Qa.reshape(len(pool.types), len(levels)))


def _sizes(pool: Pool) -> Vector:
    axes = list(pool.wish.points[0])
    if len(axes) != 1 or not all(kind.is_timed for kind in pool.types):
        raise InputError.one(
            file=pool.inputs.files.get("slo", "slo.json"),
            path=f"$.apps.{pool.wish.app.id}.mix.axes",
            value=", ".join(axes),
            why="Eq. 15 is about one size of query, and tables of latency",
            remedy="Use formulation fluid-milp, which takes any classes of queries.",
        )
    return np.array([next(iter(point.values())) for point in pool.wish.points])


def _rate(p: Vector, times: Vector) -> float:
    """Queries per second of one instance on sizes with these shares (infinite on none)."""
    work = float(p @ times)
    return 1000.0 * float(p.sum()) / work if work > 0 else np.inf


def estimate_rates(numbers: Eq15, counts: Columns) -> Vector:
    """(15) for every configuration, `counts[t]` being the count of type t in each."""
    total = counts[0].size
    found = np.empty(total)
    for start in range(0, total, CHUNK):
        part = slice(start, start + CHUNK)
        found[part] = _estimate(numbers, [column[part] for column in counts])
    return found


def _estimate(numbers: Eq15, counts: Columns) -> Vector:
    u = counts[numbers.base].astype(np.float64)
    alone = u * numbers.Qb
    aux = [i for i, level in enumerate(numbers.level) if level >= 0]
    if not aux:
        return alone
    # Level of s' + 1, the least present first so that the largest counts; 0: nobody is there.
    at = np.zeros(u.size, dtype=np.int8)
    for i in sorted(aux, key=lambda i: numbers.level[i]):
        np.putmask(at, counts[i] > 0, numbers.level[i] + 1)
    f = np.concatenate([[1.0], numbers.f])
    Qs = np.concatenate([[1.0], numbers.Qs])
    A = np.zeros(u.size)
    for i in _counted(numbers):
        A += counts[i] * np.concatenate([[0.0], numbers.Qa[i]])[at]
    with np.errstate(divide="ignore", invalid="ignore"):
        large = np.where(f < 1.0, (1.0 - f) / f, 0.0)[at]
        C = A * large
        served = u * np.where(f < 1.0, Qs, 1.0)[at]
        bottleneck = served * np.where(f < 1.0, 1.0 / (1.0 - f), 0.0)[at]
        spare = A * (1.0 / f)[at] + (1.0 - C / served) * alone
    whole = (f >= 1.0)[at]
    found = np.where(served <= C, bottleneck, spare)
    np.copyto(found, alone + A, where=whole)
    np.copyto(found, alone, where=at == 0)
    # Without a base instance nobody serves what is above s'.
    np.copyto(found, 0.0, where=~whole & (u == 0))
    return found


def _counted(numbers: Eq15) -> list[int]:
    """The types of A: all but the base, also those that are late on every size."""
    return [i for i in range(len(numbers.level)) if i != numbers.base]


def estimate_rate(numbers: Eq15, counts: Sequence[int]) -> float:
    """(15) of one configuration, step by step as the paper writes it: what the arrays are tested against."""
    u = counts[numbers.base]
    present = [i for i in _counted(numbers) if counts[i] > 0 and numbers.level[i] >= 0]
    if not present:
        return u * numbers.Qb
    k = max(numbers.level[i] for i in present)
    f, Qs = float(numbers.f[k]), float(numbers.Qs[k])
    A = sum(counts[i] * float(numbers.Qa[i][k]) for i in _counted(numbers))
    if f >= 1.0:
        return u * numbers.Qb + A
    if u == 0:
        return 0.0
    C = A * (1.0 - f) / f
    if u * Qs <= C:
        return u * Qs / (1.0 - f)
    return A / f + (1.0 - C / (u * Qs)) * u * numbers.Qb


def most_similar(ranked: NDArray[np.int64], base: int) -> int:
    """The paper's choice among ranked configurations (rows of counts): its place.

    If the best three share the number of base instances, the first; else the one of the best ten whose squared
    distances to the others sum to the least, at a tie the better ranked.

    >>> most_similar(np.array([[1, 5], [1, 4], [1, 3], [9, 9]]), 0)
    0
    """
    if len(set(ranked[:3, base].tolist())) == 1:
        return 0
    ten = ranked[:10].astype(np.int64)
    apart = ((ten[:, None, :] - ten[None, :, :]) ** 2).sum(axis=(1, 2))
    return int(np.argmin(apart))


def choose_by_estimate(pool: Pool, ask: Ask) -> Chosen | Infeasibility:
    """The best by the estimate, or the most typical of its best ten (`select`)."""
    numbers, found = eq15_numbers(pool), list_affordable(pool, ask, with_base=True, room=ROOM)
    if isinstance(found, Infeasibility) or not len(found):
        return found if isinstance(found, Infeasibility) else missing_base(pool)
    rates = estimate_rates(numbers, found.counts)
    if pool.fluid_target is not None:
        enough = np.flatnonzero(rates >= pool.fluid_target)
        rated = cheapest_enough(pool, ask, found, enough[np.argsort(found.cost[enough], kind="stable")])
        return rated if isinstance(rated, Infeasibility) else with_estimate(pool, rated, numbers)
    best = best_rated(rates, found.cost, 10)
    chosen = best[0]
    if cast(Eq15Options, pool.options).select == "similarity":
        chosen = best[most_similar(found.rows(best), pool.base)]
    return with_estimate(pool, rate_at(pool, ask, pool.by_offer(found.row(int(chosen)))), numbers)


def with_estimate(pool: Pool, rated: Rated, numbers: Eq15) -> Chosen:
    """The plan of a pool chosen by the estimate, which is reported beside the exact rate."""
    said = estimate_rate(numbers, pool.of_type(rated.counts).tolist())
    warnings: tuple[Notice, ...] = ()
    if rated.lam < OVERESTIMATES * said:
        text = f"Eq. 15 gives {said:.6g} qps for this pool, its exact fluid rate is {rated.lam:.6g}"
        warnings = (Notice(code="W-overestimates", at="alternatives", text=text),)
    more = {"what": "estimate of this pool by Eq. 15, which is no bound", "eq15_qps": said}
    return Chosen(rated, (unbounded_claim(pool, rated),), alternatives=(more,), warnings=warnings)
