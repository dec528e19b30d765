"""What bursts ask of the instances of an application, whoever dispatches (`serving.window`).

Where the queries of an application are alike, and instances serve no other, these answer at most mu (T + D) of those
that come in a window T within the limit D, mu the rate of all of them, full. So they must serve `factor` times its rate
at least. Applications whose queries differ, or that share instances, are asked for their rate.
"""

from __future__ import annotations

from dataclasses import replace

from hetplan.problems.variants.wish import Serves, Snapshot
from hetplan.serving.law import Law
from hetplan.serving.loads import law_of_run
from hetplan.serving.reading import answering
from hetplan.serving.window import busiest, least_work, time_after

__all__ = ["in_bursts"]


def in_bursts(v: Snapshot) -> Snapshot:
    """The same, each application asked for what its bursts need; itself where that is no more.

    `v` takes instances to serve all that they can.
    """
    pairs: dict[int, list[Serves]] = {}
    shared = {s.app for item in v.items if len(item.serves) > 1 for s in item.serves}
    for pair in v.eligible:
        pairs.setdefault(pair.app, []).append(pair)
    asked = []
    for b, one in enumerate(v.asked):
        factor = 0.0
        for target in one.targets if b not in shared and one.load_qps > 0 and len(one.classes.points) == 1 else ():
            limit, mine = target.limit_ms(), pairs.get(b, ())
            if not mine or limit <= 0.0:
                continue
            after_ms = time_after(limit, varies=any(_law_of(v, pair).has_spread for pair in mine))
            window = busiest(one.demand.arrivals, one.load_qps, after_ms / 1000.0, target.left)
            if window is not None:
                factor = max(factor, window.factor * min(_part_of_the_fastest(v, pair, limit) for pair in mine))
        asked.append(replace(one, need_qps=max(one.need_qps, factor * one.load_qps)))
    return v if tuple(asked) == v.asked else replace(v, asked=tuple(asked))


def _law_of(v: Snapshot, pair: Serves) -> Law:
    """The service law of an instance."""
    kind = v.kinds[pair.kind]
    return law_of_run(v.inputs.profile, kind.variant, v.inputs.profile.variants[kind.variant].runs[kind.run])


def _part_of_the_fastest(v: Snapshot, pair: Serves, limit_ms: float) -> float:
    """The rate that an instance is planned with, in parts of the highest that its batches can have, at most 1.

    0 where that is not known, or where late queries are served too.
    """
    kind, (point,), law = v.kinds[pair.kind], v.asked[pair.app].classes.points, _law_of(v, pair)
    if law.is_rate or pair.late:
        return 0.0
    statistic, fastest = answering(law.statistics, "mean"), 0.0
    for size in range(1, kind.batch + 1) if "batch" in law.axes and "batch" not in point else (1,):
        times, least = law.distribution(point, size) if law.has_spread else None, law.ms(point, size, statistic)
        least = least if times is None else min(least, least_work(times, limit_ms))
        fastest = max(fastest, 1000.0 * size / least)
    at_once = max(1, round(pair.saturation_qps * pair.latency_ms / 1000.0 / kind.batch))
    return min(1.0, pair.qps / (at_once * fastest))
