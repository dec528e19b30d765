"""Stated targets: whether policies keep them, the smallest change that would, and the fewest workers that do."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from hetplan.errors import Interrupted
from hetplan.planner.draft import Infeasibility, Repair
from hetplan.problems.policy.bench import Bench
from hetplan.problems.policy.form import Asked, Group, SolvedPolicy
from hetplan.problems.policy.wish import capacity_qps
from hetplan.profiles.plan import Notice

__all__ = ["fewest", "fewest_possible", "overload_notice", "repairs_of", "too_tight"]

_MOST_WORKERS = 10_000
_FINE = 0.01
"""Loads and SLOs in repairs are found to one percent."""
_ROUGH = 0.1
"""An SLO that nobody can meet is far from any that somebody does."""


def too_tight(asked: Asked, bench: Bench) -> Infeasibility | None:
    """Why an SLO that no model meets can be kept by nobody, and the least at which the targets are kept.

    Where not even many times the fastest answer keeps them, the fastest is a part of what would: alone it is tried, and
    not named.
    """
    why, repairs = list[str](), list[Repair]()
    for group in asked.groups():
        models, hop = group.models, group.wish.app.network_ms()
        if group.wish.slo_s >= models.fastest_s:
            continue
        takes_ms = 1000.0 * models.fastest_s
        why.append(f"{group.wish.app.id}: {models.names[0]}, the fastest on {models.hardware}, takes {takes_ms:g} ms")
        if not _sought(bench):
            continue
        kept, fastest_s = partial(_kept, bench, group, group.loads_qps[-1]), models.fastest_s
        least_s = fastest_s if kept(fastest_s) else _smallest_slo(kept, fastest_s, fine=_ROUGH)
        least_ms, wanted_ms = 1000.0 * (least_s or fastest_s) + hop, 1000 * group.wish.slo_s + hop
        field = f"slo.apps.{group.wish.app.id}.latency"
        repairs.append(Repair(field, "raise", least_ms - wanted_ms, least_ms, "ms", f"raise max_ms to {least_ms:.4g}"))
    return Infeasibility(tuple(why), tuple(repairs)) if why else None


def repairs_of(bench: Bench, solved: SolvedPolicy) -> tuple[Repair, ...]:
    """The smallest number of workers, the largest load and the smallest SLO with which the targets would be kept."""
    if not _sought(bench):
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
    workers = _least_count(lambda k: _kept(bench, group.with_workers(k), load), group.workers + 1, _MOST_WORKERS)
    if workers is not None:
        text = f"raise the workers on {group.models.hardware} to {workers}"
        field = f"slo.limits.instances.{group.models.hardware}"
        found.append(Repair(field, "raise", workers - group.workers, workers, "workers", text))
    lower = _largest(lambda share: _kept(bench, group, share * load), 0.0, 1.0)
    if lower is not None:
        text = f"lower the load of {group.id} to {lower * load:.4g} qps"
        field = f"slo.apps.{wish.app.id}.rate_qps"
        found.append(Repair(field, "lower", (1 - lower) * load, lower * load, "qps", text))
    longer = _smallest_slo(partial(_kept, bench, group, load), wish.slo_s)
    if longer is not None:
        to_ms = 1000 * longer + wish.app.network_ms()
        text = f"raise max_ms to {to_ms:.4g}"
        found.append(
            Repair(f"slo.apps.{wish.app.id}.latency", "raise", 1000 * (longer - wish.slo_s), to_ms, "ms", text)
        )
    return tuple(found)


def _sought(bench: Bench) -> bool:
    """Whether repairs are looked for."""
    return bench.tools.says_what_helps


def _kept(bench: Bench, group: Group, load_qps: float, slo_s: float | None = None) -> bool:
    """Whether the best policy of whole batches keeps the targets: what is found so is tried by the whole question."""
    answer = bench.briefly.solve(group, [load_qps], slo_s=slo_s, about="repair")[0]
    return not replace(answer, group=group).misses()


def _least_count(holds: Callable[[int], bool], low: int, most: int) -> int | None:
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


def _largest(holds: Callable[[float], bool], low: float, high: float) -> float | None:
    """The largest share that holds, to one percent; None where one percent does not."""
    if not holds(low + _FINE):
        return None
    low += _FINE
    while high - low > _FINE:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def _smallest_slo(holds: Callable[[float], bool], slo_s: float, *, fine: float = _FINE) -> float | None:
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


def overload_notice(solved: SolvedPolicy) -> Notice:
    """What to say of a load that the workers cannot carry."""
    group, load = solved.group, solved.load_qps
    per_worker = group.sustainable_qps / group.workers
    need = max(math.floor(load / per_worker) + 1, group.workers + 1)
    text = (
        f"{load:g} qps is more than {group.workers} workers keep up with: at most {group.sustainable_qps:.4g} qps with "
        f"{group.models.names[0]}; {need} workers would"
    )
    latency = group.models.latency_s[0, :-1]
    enough = latency[group.workers * np.arange(1, latency.size + 1) / latency > load]
    if enough.size and float(enough.min()) > group.wish.slo_s:
        text += f", and so would an SLO of {1000 * float(enough.min()):.4g} ms"
    return Notice(code="W-overload", at=f"policies.{group.wish.app.id}", text=text)


def fewest_possible(group: Group, load_qps: float) -> int:
    """A bound: fewer workers have not the time, in any batches within the SLO, to answer what must be in time.

    Models with c seconds per query answer shares f of those queries: least sum of f c with sum of f a >= the accuracy
    wanted. Two models do.
    """
    models = group.models
    rates = np.array([capacity_qps(models, m, group.wish.slo_s) for m in range(models.accuracy.size)])
    able = np.flatnonzero(rates > 0)
    if able.size == 0:
        return 1
    seconds, accuracy = 1.0 / rates[able], models.accuracy[able]
    wanted = min(group.wish.app.floor or 0.0, float(accuracy.max()))
    least = float(seconds[accuracy >= wanted].min())
    for good in np.flatnonzero(accuracy > wanted):
        for quick in np.flatnonzero(accuracy < wanted):
            share = (wanted - accuracy[quick]) / (accuracy[good] - accuracy[quick])
            least = min(least, float(share * seconds[good] + (1.0 - share) * seconds[quick]))
    in_time = load_qps * (1.0 - group.wish.left)
    return max(1, math.ceil(in_time * least - 1e-9))


def fewest(
    bench: Bench, group: Group, loads_qps: Sequence[float], *, least: int, most: int
) -> tuple[Group, list[SolvedPolicy]] | None:
    """The least number of workers with which every load keeps the targets; None where `most` does not.

    By bisection: more workers are taken to be no worse, which holds for goodput and was found to hold for the targets.
    """
    memory: dict[int, list[SolvedPolicy]] = {}

    def holds(workers: int) -> bool:
        if workers not in memory:
            memory[workers] = bench.solve(group.with_workers(workers), loads_qps, about=f"{workers} workers")
            if len(memory[workers]) < len(loads_qps):
                raise Interrupted(f"cancelled before {workers} workers were tried at every load")
        return not any(solved.misses() for solved in memory[workers])

    low = max(least, min(fewest_possible(group, max(loads_qps)), most), 1)
    count = _least_count(holds, low, most)
    return None if count is None else (group.with_workers(count), memory[count])
