"""What is asked of the instances of an application, whoever dispatches: also in bursts, and of who drops late queries.

In bursts (`serving.window`). Where the queries of an application are alike, and instances serve no other, these answer
at most mu (T + D) of those that come in a window T within the limit D, mu the rate of all of them, full. So they must
serve `factor` times its rate at least. Applications whose queries differ, or that share instances, are asked for their
rate.

Where late queries are dropped, those that may be late need no instance: those that take longest, of any instance. What
others take of what all would is asked for; the least of it that is so for some instance.

Nor are instances too slow for all queries of no use: some queries may be late there on purpose, as many as may be late,
or more where only some of those are. As many as the best such instance may have are not asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hetplan.planner.tolerances import SLIP
from hetplan.problems.variants.wish import Serves, Snapshot
from hetplan.serving.reading import answering
from hetplan.serving.window import busiest, least_work, time_after

__all__ = ["answering_fewest", "in_bursts"]

LEAST_ASKED = 1e-6
"""Where instances that are too slow may have all queries, next to none are asked for: programs need some."""


def answering_fewest(v: Snapshot) -> Snapshot:
    """The same, each application asked for what it cannot drop, nor have late on purpose; itself where that is all."""
    pairs, slow = _pairs(v), _too_slow(v)
    parts = [
        min((_part_answered(v, pair) * _part_in_time(v, slow.get(b, ())) for pair in pairs.get(b, ())), default=1.0)
        for b in range(len(v.asked))
    ]
    asked = [
        replace(one, load_qps=part * one.load_qps, need_qps=part * one.need_qps)
        for one, part in zip(v.asked, parts, strict=True)
    ]
    return v if min(parts, default=1.0) == 1.0 else replace(v, asked=tuple(asked))


def in_bursts(v: Snapshot) -> Snapshot:
    """The same, each application asked for what it cannot drop, and for what its bursts need; itself if that is v.

    `v` takes instances to serve all that they can.
    """
    pairs, slow, least = _pairs(v), _too_slow(v), answering_fewest(v)
    shared = {s.app for item in v.items if len(item.serves) > 1 for s in item.serves}
    asked = []
    for b, one in enumerate(v.asked):
        factor = 0.0
        for target in one.targets if b not in shared and one.load_qps > 0 and len(one.classes.points) == 1 else ():
            limit, mine = target.limit_ms(), pairs.get(b, ())
            some = any(_most_there(v, pair) > 1.0 - one.least_in_time for pair in slow.get(b, ()))
            if not mine or limit <= 0.0 or some:  # some queries of a burst may be in time on slower instances, too
                continue
            after_ms = time_after(limit, varies=any(v.kinds[s.kind].choice.law.has_spread for s in mine))
            window = busiest(one.arrivals, one.load_qps, after_ms / 1000.0, target.left)
            if window is not None:
                factor = max(factor, window.factor * min(_part_of_the_fastest(v, pair, limit) for pair in mine))
        fewest = least.asked[b]
        asked.append(replace(fewest, need_qps=max(fewest.need_qps, factor * one.load_qps)))
    return v if tuple(asked) == v.asked else replace(v, asked=tuple(asked))


def _pairs(v: Snapshot) -> dict[int, list[Serves]]:
    """The pairs of each application."""
    pairs: dict[int, list[Serves]] = {}
    for pair in v.eligible:
        pairs.setdefault(pair.app, []).append(pair)
    return pairs


def _too_slow(v: Snapshot) -> dict[int, list[Serves]]:
    """The pairs of each application that are good enough, and too slow for some of its queries."""
    slow: dict[int, list[Serves]] = {}
    for pair in v.serves:
        quality, one = v.kinds[pair.kind].choice.quality, v.asked[pair.app]
        poor = one.has_quality_limit and (quality is None or not one.meets_quality(quality))
        if pair.late and not poor:
            slow.setdefault(pair.app, []).append(pair)
    return slow


def _part_in_time(v: Snapshot, slow: Sequence[Serves]) -> float:
    """The share of an application's queries that none of these instances can have, with no more late than may be."""
    return 1.0 - max((_most_there(v, pair) for pair in slow), default=0.0)


def _most_there(v: Snapshot, pair: Serves) -> float:
    """The largest share of the queries that an instance may have: first those that it seldom answers late."""
    one, kind, law = v.asked[pair.app], v.kinds[pair.kind], v.kinds[pair.kind].choice.law
    limit, left, most = one.limit_ms(), 1.0 - one.least_in_time, 0.0
    classes = []
    for point, share in zip(one.classes.points, one.classes.shares, strict=True):
        times = law.distribution(point, kind.batch) if law.has_spread else None
        least = law.ms(point, kind.batch, answering(law.statistics, "mean"))
        is_late = float(least > limit * (1.0 + SLIP)) if times is None else times.longer_than(limit)
        classes.append((is_late, share / sum(one.classes.shares)))
    for is_late, share in sorted(classes):
        part = share if is_late * share <= left else left / is_late
        most, left = most + part, left - part * is_late
    return min(most, 1.0 - LEAST_ASKED)


def _part_answered(v: Snapshot, pair: Serves) -> float:
    """Of what all queries of its application take of an instance, what those take that must be answered, at least."""
    one, law = v.asked[pair.app], v.kinds[pair.kind].choice.law
    if (least := one.least_answered) == 1.0:
        return 1.0
    batch, statistic = v.kinds[pair.kind].batch, answering(law.statistics, "mean")
    shares = np.array(one.classes.shares) / sum(one.classes.shares)
    each = np.array([law.ms(point, batch, statistic) for point in one.classes.points])
    order = np.argsort(each)
    answered = np.diff(np.minimum(np.cumsum(shares[order]), least), prepend=0.0)
    return float(answered @ each[order] / (shares @ each))


def _part_of_the_fastest(v: Snapshot, pair: Serves, limit_ms: float) -> float:
    """The rate that an instance is planned with, in parts of the highest that its batches can have, at most 1.

    0 where that is not known, or where late queries are served too.
    """
    kind, (point,) = v.kinds[pair.kind], v.asked[pair.app].classes.points
    law = kind.choice.law
    if law.is_rate or pair.late:
        return 0.0
    statistic, fastest = answering(law.statistics, "mean"), 0.0
    for size in range(1, kind.batch + 1) if "batch" in law.axes and "batch" not in point else (1,):
        times, least = law.distribution(point, size) if law.has_spread else None, law.ms(point, size, statistic)
        least = least if times is None else min(least, least_work(times, limit_ms))
        fastest = max(fastest, 1000.0 * size / least)
    at_once = max(1, round(pair.saturation_qps * pair.latency_ms / 1000.0 / kind.batch))
    return min(1.0, pair.qps / (at_once * fastest))
