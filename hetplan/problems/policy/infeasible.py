"""Why no policy meets the SLO, and the smallest change with which one would: fewer queries, more workers, more time."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from hetplan.planner.draft import Infeasibility, Repair
from hetplan.problems.policy.group import Group, PolicyProblem, SolvedPolicy
from hetplan.problems.policy.options import MOST_WORKERS
from hetplan.problems.policy.policy_search import PolicySearch

__all__ = ["least_count", "repairs_of", "slo_too_tight"]

_FINE = 0.01
"""Loads and SLOs in repairs are found to one percent."""
_ROUGH = 0.1
"""An SLO that nobody can meet is far from any that somebody does."""


def slo_too_tight(problem: PolicyProblem, bench: PolicySearch) -> Infeasibility | None:
    """Why an SLO that no model meets can be kept by nobody, and the least at which the targets are kept.

    Where not even many times the fastest answer keeps them, the fastest is a part of what would: alone it is tried, and
    not named.
    """
    why, repairs = list[str](), list[Repair]()
    for group in problem.groups():
        models, hop = group.models, group.wish.app.network_ms()
        if group.wish.slo_s >= models.fastest_s:
            continue
        takes_ms = 1000.0 * models.fastest_s
        why.append(f"{group.wish.app.id}: {models.names[0]}, the fastest on {models.hardware}, takes {takes_ms:g} ms")
        if not bench.tools.says_what_helps:
            continue
        meets, fastest_s = partial(_meets_targets, bench, group, group.loads_qps[-1]), models.fastest_s
        least_s = fastest_s if meets(fastest_s) else _smallest_slo(meets, fastest_s, fine=_ROUGH)
        least_ms, wanted_ms = 1000.0 * (least_s or fastest_s) + hop, 1000 * group.wish.slo_s + hop
        field = f"slo.apps.{group.wish.app.id}.latency"
        repairs.append(Repair(field, "raise", least_ms - wanted_ms, least_ms, "ms", f"raise max_ms to {least_ms:.4g}"))
    return Infeasibility(tuple(why), tuple(repairs)) if why else None


def repairs_of(bench: PolicySearch, solved: SolvedPolicy) -> tuple[Repair, ...]:
    """The smallest number of workers, the largest load and the smallest SLO with which the targets would be kept."""
    if not bench.tools.says_what_helps:
        return ()
    group, load = solved.group, solved.load_qps
    wish = group.wish
    if wish.app.floor is not None and wish.app.floor > float(group.models.accuracy.max()):
        best = float(group.models.accuracy.max())
        field, text = f"slo.apps.{wish.app.id}.quality.min", f"lower quality.min to {best:g}, the most accurate model's"
        if len(solved.misses()) == 1 and solved.accuracy < best:
            # Nothing else is missed: the accuracy of this policy is a floor that it keeps.
            most, best = best, math.floor(10_000 * solved.accuracy) / 10_000
            text = f"lower quality.min to {best:g}, reached at {load:g} qps (the most accurate model has {most:g})"
        return (Repair(field, "lower", wish.app.floor - best, best, "", text),)

    found: list[Repair] = []
    workers = least_count(lambda k: _meets_targets(bench, group.with_workers(k), load), group.workers + 1, MOST_WORKERS)
    if workers is not None:
        text = f"raise the workers on {group.models.hardware} to {workers}"
        field = f"slo.limits.instances.{group.models.hardware}"
        found.append(Repair(field, "raise", workers - group.workers, workers, "workers", text))
    lower = _largest_share(lambda share: _meets_targets(bench, group, share * load))
    if lower is not None:
        text = f"lower the load of {group.id} to {lower * load:.4g} qps"
        field = f"slo.apps.{wish.app.id}.rate_qps"
        found.append(Repair(field, "lower", (1 - lower) * load, lower * load, "qps", text))
    longer = _smallest_slo(partial(_meets_targets, bench, group, load), wish.slo_s)
    if longer is not None:
        to_ms = 1000 * longer + wish.app.network_ms()
        text = f"raise max_ms to {to_ms:.4g}"
        found.append(
            Repair(f"slo.apps.{wish.app.id}.latency", "raise", 1000 * (longer - wish.slo_s), to_ms, "ms", text)
        )
    return tuple(found)


def _meets_targets(bench: PolicySearch, group: Group, load_qps: float, slo_s: float | None = None) -> bool:
    """Whether the best policy of whole batches keeps the targets: what is found so is tried by the whole question."""
    answer = bench.without_simulation.solve(group, [load_qps], slo_s=slo_s, about="repair")[0]
    return not replace(answer, group=group).misses()


def least_count(holds: Callable[[int], bool], low: int, most: int) -> int | None:
    """The least count that holds, by doubling and bisection; None where `most` does not."""
    high, step = low, 1
    while not holds(high):
        if high >= most:
            return None
        low, high, step = high + 1, min(high + step, most), 2 * step
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return high


def _largest_share(holds: Callable[[float], bool]) -> float | None:
    """The largest share that holds, to one percent; None where one percent does not."""
    if not holds(_FINE):
        return None
    low, high = _FINE, 1.0
    while high - low > _FINE:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def _smallest_slo(holds: Callable[[float], bool], slo_s: float, *, fine: float = _FINE) -> float | None:
    """The smallest SLO above this one that holds, up to 32 times as long; None where none of these does."""
    low, high = slo_s, 2 * slo_s
    for _ in range(4):
        if holds(high):
            break
        low, high = high, 2 * high
    else:
        return None
    while high - low > fine * slo_s:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
