r"""What queries leave of an instance's saturation, by formulas: waiting, service times that vary, bursts.

**How busy an instance may be** and still answer in time (`leave_room_to_wait`). It serves a batch of up to b queries
in T, whenever it is free and someone waits; queries come as a Poisson stream of rho b in T (rho is the use). With n
waiting when a batch ends, the next leaves (n - b)^+ behind, so

    n' = (n - b)^+ + A,  A ~ Poisson(rho b)

has a stationary law, and a query that comes a share u of T after a batch began, with k full batches ahead of it, is
answered after T (1 - u) + k T + T. The use looked for is the highest at which the share of queries later than the SLO
is what its percentile allows. It depends on b, S / T and the percentile alone: three numbers, so a table per (b,
percentile) serves all variants. Several servers of one instance count as so many instances: they would wait less. Where
smaller batches take less, their times s(1), ..., s(b) decide (`batch_queue`).

**Instances that share a queue** wait less (`share_queues`): so many do not have to be free. Of n of them each may be
busy for

    rho_n = rho^(n^-0.7)

which is Erlang's C within a few percent from 2 to 16 servers, where 2% may wait.

**Late though none waits** (`drop_hopeless`): an instance's own times, as they vary (`serving.distribution`), pass a
limit too often, in batches of the size that is best for it. No number of instances helps then. (An application that no
variant keeps in time is refused before it is planned: `planner.service_times`.)

**What no plan can do without** (`answer_fewest`, `ask_for_bursts`), whoever dispatches. Where late queries are dropped,
those that may be late need no instance: those that take longest, of any instance. What others take of what all would is
asked for; the least of it that is so for some instance. Nor are instances too slow for all queries of no use: some
queries may be late there on purpose, as many as may be late, or more where only some of those are. As many as the best
such instance may have are not asked for.

In bursts (`serving.window`): where the queries of an application are alike, and instances serve no other, these answer
at most mu (T + D) of those that come in a window T within the limit D, mu the rate of all of them, full. So they must
serve `factor` times its rate at least. Applications whose queries differ, or that share instances, are asked for their
rate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from hetplan.errors import Interrupted
from hetplan.planner.tolerances import SLIP
from hetplan.problems.batch_queue import busy_limit_of_law
from hetplan.problems.variants.request import Serves, Snapshot, Vector
from hetplan.serving.demand import Target
from hetplan.serving.law import Law
from hetplan.serving.table_points import answering_statistic
from hetplan.serving.window import busiest, least_work, time_after

__all__ = [
    "answer_fewest",
    "ask_for_bursts",
    "busy_limit",
    "busy_together",
    "drop_hopeless",
    "leave_room_to_wait",
    "share_queues",
]

USES = np.concatenate([[0.0, 0.01, 0.03], np.arange(0.05, 0.951, 0.05)])
RATIOS = np.concatenate([np.arange(1.0, 4.0, 0.1), np.arange(4.0, 20.1, 1.0)])
"""S / T; beyond the last, as at the last."""
MOMENTS = 12
"""Of a batch's time, at whose middles queries are looked at."""
LEAST = 0.002
"""An instance is never taken for less useful than this share of its saturation."""
LARGEST = 64
"""Batches above this are taken to be always full: that is careful, and quick to work out."""
SURE = 1.1
"""Times the queries that may be late: where all variants of an application have more than that, none is left out."""
FAR = 2.0
"""A variant with more than that is left out where there are others; below, it may serve a part of the queries."""
LEAST_ASKED = 1e-6
"""Where instances that are too slow may have all queries, next to none are asked for: programs need some."""
SETTLED = 1e-7
MOST_STEPS = 3000
POOLED = 0.7
ROUNDS = 16
"""By which the number of instances that share a load is found: each halves what is open."""


def leave_room_to_wait(v: Snapshot, until: Callable[[], bool] = lambda: False) -> Snapshot:
    """The same, each pair at the rate at which its queries are still in time; `until` ends the work."""
    serves = []
    for pair in v.serves:
        if until():
            raise Interrupted("the work was ended before it was known how busy instances may be")
        serves.append(_leave_room(v, pair))
    return replace(v, serves=tuple(serves))


def _leave_room(v: Snapshot, pair: Serves) -> Serves:
    if pair.late:
        return pair
    one, batch = v.asked[pair.app], v.kinds[pair.kind].batch
    wanted = [(target.limit_ms(), target.percentile) for target in one.targets]
    times = _times(v, pair)
    use = min(
        busy_limit_of_law(times, slo_ms=limit_ms, percentile=percentile) if times and math.isfinite(limit_ms)
        else busy_limit(time_ms=pair.latency_ms, batch=batch, slo_ms=limit_ms, percentile=percentile)
        for limit_ms, percentile in wanted or [(math.inf, 99.0)]
    )  # fmt: skip
    at_once = max(1, round(pair.qps * pair.latency_ms / 1000.0 / batch))
    return pair.at_use(max(min(1.0, use * at_once * batch * 1000.0 / pair.latency_ms / pair.qps), LEAST))


def _times(v: Snapshot, pair: Serves) -> tuple[float, ...]:
    """What batches of 1, 2, ... take, as long as a full one takes `latency_ms`; none where all take as long."""
    sizes, law = _batch_sizes(v, pair), _law(v, pair)
    if len(sizes) == 1:
        return ()
    points, stat = v.asked[pair.app].classes.points, answering_statistic(law.statistics, v.options.judged_by)
    slowest = [max(law.ms(point, size, stat) for point in points) for size in sizes]
    times = np.maximum.accumulate(slowest) * pair.latency_ms / slowest[-1]
    return tuple(times.tolist()) if times[0] < times[-1] else ()


def _batch_sizes(v: Snapshot, pair: Serves) -> range:
    """The sizes of batches that may be put together: 1, 2, ...; of those above `LARGEST`, or not open, the full one."""
    full, points = v.kinds[pair.kind].batch, v.asked[pair.app].classes.points
    is_fixed = "batch" not in _law(v, pair).axes or any("batch" in point for point in points)
    return range(full, full + 1) if is_fixed or full > LARGEST else range(1, full + 1)


def _law(v: Snapshot, pair: Serves) -> Law:
    return v.kinds[pair.kind].choice.law


def busy_limit(*, time_ms: float, batch: int, slo_ms: float, percentile: float) -> float:
    """The highest use at which this percentile of the response times is within the SLO.

    >>> round(busy_limit(time_ms=20, batch=1, slo_ms=200, percentile=99), 2)
    0.77
    >>> busy_limit(time_ms=20, batch=1, slo_ms=21, percentile=99) < 0.05
    True
    """
    limits = _limits(batch, percentile)
    return float(np.interp(slo_ms / time_ms, RATIOS, limits)) if slo_ms >= time_ms else 0.0


@lru_cache(maxsize=64)
def _limits(batch: int, percentile: float) -> Vector:
    """The limit at each of `RATIOS`."""
    allowed = 1.0 - percentile / 100.0
    return np.array([np.interp(allowed, column, USES) for column in _late_shares(batch).T])


@lru_cache(maxsize=64)
def _late_shares(batch: int) -> Vector:
    """The share of late queries at each of `USES` and `RATIOS`, of which every percentile is read."""
    late = np.array([np.zeros(RATIOS.size) if use == 0 else _late_share(use * batch, batch) for use in USES])
    return np.maximum.accumulate(late, axis=0)


def _late_share(load: float, batch: int) -> Vector:
    """The share of queries that are later than each of `RATIOS`, where `load` come in a batch's time."""
    waiting = _waiting_law(load, batch)
    left = np.concatenate([[waiting[: batch + 1].sum()], waiting[batch + 1 :]])
    idle = waiting[0] / (load + waiting[0])
    late = np.zeros(RATIOS.size)
    for u in (np.arange(MOMENTS) + 0.5) / MOMENTS:
        ahead = np.convolve(left, _poisson(load * u, waiting.size))
        by_batches = np.bincount(np.arange(ahead.size) // batch, weights=ahead)
        beyond = np.append(np.cumsum(by_batches[::-1])[::-1], 0.0)  # so many batches ahead, or more
        # The highest k that is still in time; what rounding takes off an exact ratio is no lateness.
        most = np.floor(RATIOS - 2.0 + u + 1e-9).astype(np.int64)
        late += beyond[np.clip(most + 1, 0, by_batches.size)] / MOMENTS
    return np.asarray((1.0 - idle) * late)


def _waiting_law(load: float, batch: int) -> Vector:
    """The stationary law of how many wait when a batch ends."""
    size = int(3 * batch + 40 + 12 * np.sqrt(load) + batch / (batch - load))
    arrivals = _poisson(load, size)
    law = np.zeros(size)
    law[0] = 1.0
    for _ in range(MOST_STEPS):
        left = np.concatenate([[law[: batch + 1].sum()], law[batch + 1 :]])
        following = np.convolve(left, arrivals)[:size]
        following /= following.sum()
        change = float(np.abs(following - law).sum())
        law = following
        if change < SETTLED:
            break
    return law


def _poisson(mean: float, size: int) -> Vector:
    counts = np.arange(1, size)
    logs = np.concatenate([[0.0], np.cumsum(np.log(mean / counts))]) - mean
    return np.asarray(np.exp(logs))


def busy_together(busy: float, instances: float) -> float:
    """How busy each of some instances may be that share a queue, where one alone may be so busy.

    >>> [round(busy_together(0.02, n), 2) for n in (1, 2, 4, 10)]
    [0.02, 0.09, 0.23, 0.46]
    """
    return math.pow(busy, math.pow(max(instances, 1.0), -POOLED))


def share_queues(v: Snapshot) -> Snapshot:
    """The same, each pair asked for what it may be busy with as many like it as would carry the load alone."""
    return replace(v, serves=tuple(_share_queue(v, pair) for pair in v.serves))


def _share_queue(v: Snapshot, pair: Serves) -> Serves:
    load, low, high = v.asked[pair.app].need_qps / pair.saturation_qps, 0.0, -math.log(pair.busy)
    for _ in range(ROUNDS):  # of busy = exp(-middle), by which load / busy instances share it
        middle = (low + high) / 2.0
        enough = busy_together(pair.busy, load * math.exp(middle)) >= math.exp(-middle)
        low, high = (low, middle) if enough else (middle, high)
    return pair.at_use(math.exp(-high))


def drop_hopeless(v: Snapshot) -> Snapshot:
    """The snapshot whose variants may be in time, as far as there are any for an application."""
    serves, late = list(v.serves), [_late_alone(v, pair) for pair in v.serves]
    for b, one in enumerate(v.asked):
        mine = [k for k, pair in enumerate(v.serves) if pair.app == b and not pair.late]
        if one.load_qps <= 0 or min((late[k] for k in mine), default=math.inf) > SURE:
            continue
        for k in mine:
            if late[k] > FAR and not v.running[serves[k].kind]:
                serves[k] = replace(serves[k], late=True)
    return v if serves == list(v.serves) else replace(v, serves=tuple(serves))


def _late_alone(v: Snapshot, pair: Serves) -> float:
    """How many times more are late than may be though none waits, by the target that is farthest off."""
    law, classes = _law(v, pair), v.asked[pair.app].classes
    points = list(zip(classes.points, classes.shares, strict=True))

    def late(target: Target) -> float:
        """The share of answers that take longer than the limit, batches of the best size."""
        limit = target.limit_ms()
        each = (sum(share * _longer_than(law, limit, p, size) for p, share in points) for size in _batch_sizes(v, pair))
        return min(each) / sum(classes.shares)

    targets = [one for one in v.asked[pair.app].targets if 0.0 < one.percentile < 100.0] if law.has_spread else []
    return max((late(one) / one.left for one in targets), default=0.0)


def _longer_than(law: Law, limit_ms: float, point: dict[str, float], size: int) -> float:
    spread = law.distribution(point, size)
    return float(limit_ms < _mean_ms(law, point, size)) if spread is None else spread.longer_than(limit_ms)


def _mean_ms(law: Law, point: dict[str, float], size: int) -> float:
    return law.ms(point, size, answering_statistic(law.statistics, "mean"))


def answer_fewest(v: Snapshot) -> Snapshot:
    """The same, each application asked for what it cannot drop, nor have late on purpose; itself where that is all."""
    pairs, slow = _by_app(v.eligible), _by_app(_too_slow(v))
    parts = [
        min((_part_answered(v, pair) * _part_in_time(v, slow.get(b, ())) for pair in pairs.get(b, ())), default=1.0)
        for b in range(len(v.asked))
    ]
    asked = [
        replace(one, load_qps=part * one.load_qps, need_qps=part * one.need_qps)
        for one, part in zip(v.asked, parts, strict=True)
    ]
    return v if min(parts, default=1.0) == 1.0 else replace(v, asked=tuple(asked))


def ask_for_bursts(v: Snapshot) -> Snapshot:
    """The same, each application asked for what it cannot drop, and for what its bursts need; itself if that is v.

    `v` takes instances to serve all that they can.
    """
    pairs, slow, least = _by_app(v.eligible), _by_app(_too_slow(v)), answer_fewest(v)
    shared = {s.app for item in v.items if len(item.serves) > 1 for s in item.serves}
    asked = []
    for b, one in enumerate(v.asked):
        factor = 0.0
        for target in one.targets if b not in shared and one.load_qps > 0 and len(one.classes.points) == 1 else ():
            limit, mine = target.limit_ms(), pairs.get(b, ())
            some = any(_largest_part_there(v, pair) > 1.0 - one.min_attainment for pair in slow.get(b, ()))
            if not mine or limit <= 0.0 or some:  # some queries of a burst may be in time on slower instances, too
                continue
            after_ms = time_after(limit, varies=any(_law(v, s).has_spread for s in mine))
            window = busiest(one.arrivals, one.load_qps, after_ms / 1000.0, target.left)
            if window is not None:
                factor = max(factor, window.factor * min(_part_of_the_fastest(v, pair, limit) for pair in mine))
        fewest = least.asked[b]
        asked.append(replace(fewest, need_qps=max(fewest.need_qps, factor * one.load_qps)))
    return v if tuple(asked) == v.asked else replace(v, asked=tuple(asked))


def _by_app(pairs: Iterable[Serves]) -> dict[int, list[Serves]]:
    found: dict[int, list[Serves]] = {}
    for pair in pairs:
        found.setdefault(pair.app, []).append(pair)
    return found


def _too_slow(v: Snapshot) -> Iterable[Serves]:
    """The pairs that are good enough, and too slow for some of their queries."""
    for pair in v.serves:
        quality, one = v.kinds[pair.kind].choice.quality, v.asked[pair.app]
        poor = one.has_quality_limit and (quality is None or not one.meets_quality(quality))
        if pair.late and not poor:
            yield pair


def _part_in_time(v: Snapshot, slow: Sequence[Serves]) -> float:
    """The share of an application's queries that none of these instances can have, with no more late than may be."""
    return 1.0 - max((_largest_part_there(v, pair) for pair in slow), default=0.0)


def _largest_part_there(v: Snapshot, pair: Serves) -> float:
    """The largest share of the queries that an instance may have: first those that it seldom answers late."""
    one, batch, law = v.asked[pair.app], v.kinds[pair.kind].batch, _law(v, pair)
    limit, left, most = one.limit_ms(), 1.0 - one.min_attainment, 0.0
    classes = []
    for point, share in zip(one.classes.points, one.classes.shares, strict=True):
        times, least = law.distribution(point, batch), _mean_ms(law, point, batch)
        is_late = float(least > limit * (1.0 + SLIP)) if times is None else times.longer_than(limit)
        classes.append((is_late, share / sum(one.classes.shares)))
    for is_late, share in sorted(classes):
        part = share if is_late * share <= left else left / is_late
        most, left = most + part, left - part * is_late
    return min(most, 1.0 - LEAST_ASKED)


def _part_answered(v: Snapshot, pair: Serves) -> float:
    """Of what all queries of its application take of an instance, what those take that must be answered, at least."""
    one, law = v.asked[pair.app], _law(v, pair)
    if (least := one.min_answered_share) == 1.0:
        return 1.0
    shares = np.array(one.classes.shares) / sum(one.classes.shares)
    each = np.array([_mean_ms(law, point, v.kinds[pair.kind].batch) for point in one.classes.points])
    order = np.argsort(each)
    answered = np.diff(np.minimum(np.cumsum(shares[order]), least), prepend=0.0)
    return float(answered @ each[order] / (shares @ each))


def _part_of_the_fastest(v: Snapshot, pair: Serves, limit_ms: float) -> float:
    """The rate that an instance is planned with, in parts of the highest that its batches can have, at most 1.

    0 where that is not known, or where late queries are served too.
    """
    batch, law, (point,) = v.kinds[pair.kind].batch, _law(v, pair), v.asked[pair.app].classes.points
    if law.is_rate or pair.late:
        return 0.0
    fastest = 0.0
    for size in range(1, batch + 1) if "batch" in law.axes and "batch" not in point else (1,):
        times, least = law.distribution(point, size), _mean_ms(law, point, size)
        least = least if times is None else min(least, least_work(times, limit_ms))
        fastest = max(fastest, 1000.0 * size / least)
    at_once = max(1, round(pair.saturation_qps * pair.latency_ms / 1000.0 / batch))
    return min(1.0, pair.qps / (at_once * fastest))
