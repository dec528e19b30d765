"""The allowable rate of a pool: the highest at which no more than 1% of queries are late, by simulation.

The share of late queries need not grow with the rate (a pool with a noisy type can be worse at a trickle than at a
stream), so plain bisection would be wrong: twelve rates up to 1.1 times the fluid bound are tried from the top, and
only the cell above the highest that passes is bisected. A run that has more late queries than allowed stops at once.
Where only a pool that beats a known rate is wanted (`above`), a seed's search ends when all that is left of it is
below. The pool's ends when most of its seeds have ended so. What beats the rate is found as if nothing were left out.

The fluid bound, the highest rate that any dispatch could serve, is a small linear program.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from hetplan.dispatch.queue_rules import Threshold, climb, sweep, thresholds
from hetplan.dispatch.rules import Rule, rule_name
from hetplan.errors import InputError
from hetplan.simulator.pool import Conditions, Draws, Pool, checked_pmf, default_rule, oracle_rate_qps, simulate_pool

__all__ = [
    "AllowableRate",
    "Search",
    "allowable_rate",
    "allowable_rates",
    "fluid_qps",
    "highest_passing",
    "queries_needed",
]


def fluid_qps(pool: Pool, pmf: ArrayLike, *, late_share: float = 0.0) -> float:
    """The fluid bound of a pool: shares of bins over types, no queueing, at most `late_share` sent where they are late.

    >>> round(fluid_qps(Pool.of([[10, 40], [20, 200]], (1, 1), 100), [0.75, 0.25]), 6)
    85.714286
    """
    from scipy.optimize import linprog

    share = checked_pmf(pmf)
    types = len(pool.counts)
    late = (pool.latency_ms > pool.qos_ms).ravel()
    # Unknowns: the rate, then the flow of each bin to each type (row by row of latency_ms).
    bins = np.hstack([-share[:, None], np.tile(np.eye(share.size), types)])
    busy = np.zeros((types, 1 + types * share.size))
    for kind in range(types):
        busy[kind, 1 + kind * share.size : 1 + (kind + 1) * share.size] = pool.latency_ms[kind] / 1000.0
    tail = np.concatenate(([-late_share], late.astype(np.float64)))
    upper = np.where(late & (late_share == 0.0), 0.0, np.inf)
    answer = linprog(
        np.concatenate(([-1.0], np.zeros(types * share.size))),
        A_ub=np.vstack([busy, tail]),
        b_ub=np.concatenate([np.asarray(pool.counts, dtype=np.float64), [0.0]]),
        A_eq=bins,
        b_eq=np.zeros(share.size),
        bounds=[(0.0, None), *((0.0, limit) for limit in upper.tolist())],
    )
    return 0.0 if answer.x is None else float(answer.x[0])


ORACLE = ("oracle", "orcl")


@dataclass(frozen=True)
class AllowableRate:
    """The rate in queries per second, per seed and over seeds; 0 where every rate that was tried failed.

    `feasible` is false when most seeds are known to have no rate at all: infeasible at any rate. `threshold` is the
    best batch-size threshold where the rule has one. `evaluations` counts runs, all seeds and thresholds together.
    `not_above` is the rate to beat where the search ended because most seeds carry less; then the seeds are those
    looked at until then, and their rates what they were seen to carry so far.
    """

    median: float
    min: float
    max: float
    per_seed: tuple[float, ...]
    seeds: tuple[int, ...]
    evaluations: int
    feasible: bool
    rule: str
    threshold: float | None = None
    not_above: float | None = None

    @property
    def why(self) -> str:
        """Why there is no rate; empty when there is."""
        return "" if self.feasible else "infeasible at any rate"


@dataclass(frozen=True, eq=False)
class Search:
    """One allowable rate to be found; see `allowable_rate` for the fields."""

    pool: Pool
    pmf: ArrayLike
    rule: Rule | str = "matching/1"
    seeds: Sequence[int] = (0, 1, 2)
    lp_qps: float | None = None
    conditions: Conditions | None = None
    most_late: float = 0.01
    least_queries: int = 20_000
    threshold: Literal["sweep", "climb"] = "sweep"
    above: float = 0.0


def queries_needed(rate_qps: float, qos_ms: float, *, least: int = 20_000) -> int:
    """How many queries a run needs so that it cannot pass by being over before its queue has grown.

    >>> queries_needed(100, 35), queries_needed(1200, 350)
    (20000, 84000)
    """
    return max(least, math.ceil(round(200.0 * rate_qps * qos_ms / 1000.0, 6)))


def highest_passing(
    passes: Callable[[float], bool], top_qps: float, *, cells: int = 12, precision: float = 0.005, above: float = 0.0
) -> float:
    """The highest rate found to pass: a grid from the top, then bisection of the cell above the highest that passes.

    Where the whole grid fails, rates are halved from its lowest downwards, to a thousandth of it; 0 when all fail.
    With `above` it ends as soon as the answer must lie below that, with the highest rate that passed until then.

    >>> round(highest_passing(lambda rate: rate <= 61.0 and not 20 < rate < 40, 100), 1)
    60.9
    >>> highest_passing(lambda rate: False, 100)
    0.0
    """
    low, high = 0.0, 0.0
    for cell in range(cells, 0, -1):
        rate = top_qps * cell / cells
        if passes(rate):
            low = rate
            break
        high = rate
        if high <= above:
            return low
    if low == 0.0:
        rate = high / 2.0
        while rate > top_qps / cells / 1024.0 and low == 0.0 and high > above:
            if passes(rate):
                low = rate
            else:
                high, rate = rate, rate / 2.0
    if low == 0.0 or high == 0.0:
        return low
    while high - low > precision * high and high > above:
        middle = 0.5 * (low + high)
        if passes(middle):
            low = middle
        else:
            high = middle
    return low


def allowable_rate(
    latency_ms: ArrayLike | Pool,
    counts: Sequence[int] = (),
    pmf: ArrayLike = (),
    qos_ms: float = 0.0,
    *,
    rule: Rule | str = "matching/1",
    seeds: Sequence[int] = (0, 1, 2),
    lp_qps: float | None = None,
    base: int = 0,
    sizes: Sequence[float] | None = None,
    conditions: Conditions | None = None,
    noise: Literal["mean", "lognormal"] | None = None,
    std_ms: ArrayLike | None = None,
    max_ms: ArrayLike | None = None,
    most_late: float = 0.01,
    least_queries: int = 20_000,
    threshold: Literal["sweep", "climb"] = "sweep",
    above: float = 0.0,
    threads: int = 1,
) -> AllowableRate:
    """The allowable rate of a pool: latencies by type and bin, instances by type, the share of each bin, the target.

    `rule` is a rule, its name, or ``oracle``; the name ``threshold/1`` tries thresholds by `threshold`. `lp_qps` is
    the fluid bound of the pool, solved here when not given. A rate passes when at most `most_late` of the queries are
    late in a run of at least `least_queries`. `noise`, `std_ms` and `max_ms` may be given here instead of in
    `conditions`. Seeds run in parallel on `threads`. `above` is a rate to beat: the median is exact if it is higher,
    and if it is not, the search ends once that is certain (see `AllowableRate.not_above`); a rule whose thresholds are
    tried is searched to the end.

    >>> found = allowable_rate([[10, 40], [20, 200]], (1, 3), [0.75, 0.25], 100, least_queries=2000)
    >>> found.feasible, found.min <= found.median <= found.max
    (True, True)
    """
    pool = latency_ms if isinstance(latency_ms, Pool) else Pool.of(latency_ms, counts, qos_ms, base=base, sizes=sizes)
    given = conditions or Conditions()
    if noise is not None:
        given = replace(given, noise=noise, std_ms=std_ms, max_ms=max_ms)
    search = Search(pool, pmf, rule, seeds, lp_qps, given, most_late, least_queries, threshold, above)
    return next(allowable_rates([search], threads=threads))


def allowable_rates(
    searches: Sequence[Search],
    *,
    threads: int = 1,
    on_progress: Callable[[int, int], None] | None = None,
) -> Iterator[AllowableRate]:
    """Many allowable rates, in order; every seed of every search is a piece of work of its own.

    Compiled loops leave the interpreter's lock, so threads run side by side. `on_progress` hears (seeds done, all).
    """
    tops = [_top_qps(search) for search in searches]
    total, done = sum(len(search.seeds) for search in searches), 0
    with ThreadPoolExecutor(max_workers=max(threads, 1)) as pool:
        pending = [
            [_begun(pool if threads > 1 else None, search, seed, top) for seed in search.seeds]
            for search, top in zip(searches, tops, strict=True)
        ]
        for search, top, of_seeds in zip(searches, tops, pending, strict=True):
            found: list[_Found] = []
            for of_seed in of_seeds:
                if not _most_below(search, found):
                    found.append(of_seed())
                done += 1
                if on_progress is not None:
                    on_progress(done, total)
            if not _most_below(search, found):
                # The median may beat the rate: the seeds that ended early are searched to the end.
                found = [
                    one if one.complete else _of_seed(search, seed, top)
                    for one, seed in zip(found, search.seeds, strict=True)
                ]
            yield _over_seeds(search, found)


def _begun(pool: ThreadPoolExecutor | None, search: Search, seed: int, top_qps: float) -> Callable[[], _Found]:
    """One seed's search, which a thread begins now, or which is done when it is called."""
    work = partial(_of_seed, search, seed, top_qps, above=search.above)
    return work if pool is None else pool.submit(work).result


def _most_below(search: Search, found: Sequence[_Found]) -> bool:
    """Whether so many seeds are known to carry no more than `above` that the median of all must be below it."""
    return 2 * sum(not one.complete for one in found) > len(search.seeds)


def _top_qps(search: Search) -> float:
    """1.1 times the fluid bound, with the tolerated lateness where nothing fits without it."""
    if not search.seeds:
        raise InputError.one(file="simulation", path="seeds", value=[], why="needs a seed", remedy="Give three.")
    bound = search.lp_qps
    if bound is None:
        bound = fluid_qps(search.pool, search.pmf)
        if bound <= 0.0:
            bound = fluid_qps(search.pool, search.pmf, late_share=search.most_late)
    return 1.1 * bound


@dataclass(frozen=True)
class _Found:
    """What one seed found: the rate of each threshold (None where the rule has none), and how many runs it took.

    Not `complete`: the rate is below what was to be beaten, and was not searched for any further.
    """

    rates: dict[float | None, float]
    evaluations: int
    complete: bool = True


def _of_seed(search: Search, seed: int, top_qps: float, *, above: float = 0.0) -> _Found:
    draws, conditions = Draws(search.pmf, seed=seed), search.conditions or Conditions()
    evaluations, least_failing_qps = 0, math.inf

    def rate_of(rule: Rule, beat_qps: float = 0.0) -> float:
        def passes(rate_qps: float) -> bool:
            nonlocal evaluations, least_failing_qps
            evaluations += 1
            count = queries_needed(rate_qps, search.pool.qos_ms, least=search.least_queries)
            most_late = math.floor(search.most_late * count)
            run = simulate_pool(
                search.pool,
                search.pmf,
                rate_qps=rate_qps,
                rule=rule,
                count=count,
                conditions=conditions,
                most_late=most_late,
                draws=draws,
            )
            if run.late > most_late:
                least_failing_qps = min(least_failing_qps, rate_qps)
            return run.late <= most_late

        return highest_passing(passes, top_qps, above=beat_qps) if top_qps > 0.0 else 0.0

    if isinstance(search.rule, str) and search.rule.lower() in ORACLE:
        count = queries_needed(max(top_qps, 1e-9), search.pool.qos_ms, least=search.least_queries)
        queries = draws.queries(search.pool, rate_qps=1.0, count=count, conditions=conditions)
        return _Found({None: oracle_rate_qps(search.pool, queries)}, 1)
    if isinstance(search.rule, str) and rule_name(search.rule) == Threshold.name:
        walk = climb if search.threshold == "climb" else sweep
        base = search.pool.base
        tried = walk(lambda value: rate_of(Threshold(value, base)), _candidates(search.pool)).tried
        return _Found(dict(tried.items()), evaluations)
    rule = default_rule(search.rule, search.pool) if isinstance(search.rule, str) else search.rule
    rate_qps = rate_of(rule, above)
    return _Found({None: rate_qps}, evaluations, complete=least_failing_qps > above)


def _candidates(pool: Pool) -> tuple[float, ...]:
    """Thresholds worth trying: with only one kind of instance, the one that sends all there."""
    if pool.counts[pool.base] == sum(pool.counts):
        return (0.0,)
    if pool.counts[pool.base] == 0:
        return (max(pool.sizes),)
    return thresholds(pool.sizes)


def _over_seeds(search: Search, found: Sequence[_Found]) -> AllowableRate:
    """The rates of all seeds at the threshold whose median is best."""
    seen = {key for one in found for key in one.rates}
    best = max(sorted(seen, key=lambda key: -1.0 if key is None else key), key=lambda key: _median(found, key))
    rates = tuple(one.rates.get(best, 0.0) for one in found)
    below = _most_below(search, found)
    if isinstance(search.rule, str):
        name = "oracle" if search.rule.lower() in ORACLE else rule_name(search.rule)
    else:
        name, best = search.rule.name, search.rule.threshold if isinstance(search.rule, Threshold) else None
    return AllowableRate(
        median=median(rates),
        min=min(rates),
        max=max(rates),
        per_seed=rates,
        seeds=tuple(search.seeds[: len(found)]),
        evaluations=sum(one.evaluations for one in found),
        feasible=below or median(rates) > 0.0,
        rule=name,
        threshold=best,
        not_above=search.above if below else None,
    )


def _median(found: Sequence[_Found], key: float | None) -> float:
    return median(one.rates.get(key, 0.0) for one in found)
