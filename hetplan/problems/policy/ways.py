"""How `policy` is answered: load or workers divided, a policy per load, stated targets checked, the fewest workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import cast

import numpy as np

from hetplan.errors import Interrupted
from hetplan.planner.draft import Draft, Infeasibility, Reported
from hetplan.problems.policy.bench import Bench
from hetplan.problems.policy.draft import draft
from hetplan.problems.policy.form import Asked, Group, SolvedPolicy
from hetplan.problems.policy.held import held
from hetplan.problems.policy.options import FewestOptions
from hetplan.problems.policy.why import fewest, fewest_possible, repairs_of
from hetplan.problems.policy.wish import capacity_qps
from hetplan.profiles.plan import Notice

__all__ = ["best_policies", "best_split", "divided", "fewest_workers"]

_CHECKED_LOADS = 5
"""The fewest workers for a range of loads must keep the targets at so many of them."""
_SHARES = 20
"""Load is divided among unlike workers in steps of a twentieth."""
_FINEST = 128
"""Workers are divided one by one up to so many, in this many parts beyond."""


def divided(asked: Asked, bench: Bench) -> list[Group]:
    """Who serves what: load or workers divided where several share them."""
    first, *unlike = asked.workers
    if unlike:
        groups = _split_load(bench, [held(bench, group) for group in asked.groups()], asked.apps[0].loads_qps)
        # The largest group says for all: an application has one way to balance.
        largest = max(groups, key=lambda group: group.loads_qps[-1])
        wish = _balanced(bench, largest).wish
        return [replace(group, wish=wish) for group in groups]
    groups = [_balanced(bench, held(bench, group)) for group in asked.groups()]
    if len(asked.apps) == 1:
        return groups
    return _split_workers(bench, groups, cast(int, first.most), asked.options.workers)


def _balanced(bench: Bench, group: Group) -> Group:
    """The better of turns and shortest queues where the wish leaves that open: over the family, at the highest load."""
    if not bench.robust or group.wish.app.balancing is not None or group.workers < 2:
        return group
    load, best = group.loads_qps[-1], group
    worth = -np.inf
    for balancing in ("round_robin", "shortest_queue"):
        tried = replace(group, wish=replace(group.wish, balancing=balancing))
        found = bench.tried(tried, load, "max")
        if found is not None and found > worth + 1e-4:
            best, worth = tried, found
    return best


def best_policies(asked: Asked, bench: Bench, groups: Sequence[Group]) -> Draft | Infeasibility:
    """A set of policies per group; where a stated target is missed, what would keep it."""
    solved: list[list[SolvedPolicy]] = []
    notices: list[Notice] = []
    for group in groups:
        policies, open_gaps = _policy_set(bench, group, also_qps=_loads_before(asked, group))
        solved.append(policies)
        if open_gaps:
            listed = ", ".join(f"{low:g}-{high:g}" for low, high in open_gaps[:4])
            text = f"stopped before {group.id} was fine enough between {listed} qps"
            notices.append(Notice(code="W-set-open", at=f"policies.{group.wish.app.id}", text=text))
    missing = [one for policies in solved for one in policies if one.misses()]
    if not missing:
        return draft(asked, solved, notices=notices)
    worst = max(missing, key=lambda one: one.violation)
    missed = f"{worst.group.id} at {worst.load_qps:g} qps: {'; '.join(worst.misses())}"
    repairs = repairs_of(bench, worst)
    return Infeasibility((missed,), repairs, proved=False)


def _loads_before(asked: Asked, group: Group) -> list[float]:
    """Loads within the range for which a previous plan has tables: where an interrupted set goes on from."""
    tables = asked.start.policies.get(group.wish.app.id, ()) if asked.start is not None else ()
    low, high = group.loads_qps[0], group.loads_qps[-1]
    slo_ms = 1000.0 * group.wish.slo_s
    same = (table for table in tables if abs(table.slo_ms - slo_ms) <= 1e-9 * slo_ms)
    return sorted({table.rate_qps for table in same if low <= table.rate_qps <= high})


def fewest_workers(asked: Asked, bench: Bench) -> Draft | Infeasibility:
    """The least number of workers with which the targets hold at every load."""
    group, given = asked.groups()[0], asked.workers[0]
    if group.wish.violation_most is None:
        # Accuracy alone, of the queries in time, would let nearly all of them be late.
        group = replace(group, wish=replace(group.wish, violation_most=group.wish.left))
    beyond = asked.options.most_workers if isinstance(asked.options, FewestOptions) else 10_000
    most = given.most or beyond
    group = held(bench, group.with_workers(most))
    ends, top = group.loads_qps, group.loads_qps[-1]
    loads = ends if len(ends) == 1 else tuple(np.linspace(ends[0], ends[-1], _CHECKED_LOADS).tolist())
    found = fewest(bench, group, loads, least=given.least, most=most)
    if found is None:
        worst = bench.solve(group.with_workers(most), [top], about="most workers")[0]
        why = f"{most} workers do not keep the targets at {top:g} qps: {'; '.join(worst.misses())}"
        return Infeasibility((why,), repairs_of(bench, worst), proved=False)
    group, policies = found
    if len(ends) > 1:
        policies, _ = _policy_set(bench, group, {one.load_qps: one for one in policies})
    bound = fewest_possible(group, top)
    servers = Reported(
        about="servers",
        sense="min",
        scope="relaxation",
        value=float(group.workers),
        bound=float(min(bound, group.workers)),
        vouched="claimed",
        note="bound: worker time that the queries in time need at that accuracy, without waiting or idling",
    )
    return draft(asked, [policies], reported=(servers,))


def _policy_set(
    bench: Bench, group: Group, known: Mapping[float, SolvedPolicy] | None = None, *, also_qps: Sequence[float] = ()
) -> tuple[list[SolvedPolicy], list[tuple[float, float]]]:
    """One policy, or a set over a range of loads; and the gaps that a limit or a cancellation left open.

    Between neighbours whose expected accuracy differs by more than `accuracy_step` another is put, until they lie
    `min_gap` of the range apart; `also_qps` are loads to begin with. Accuracy need not fall with the load, so all
    neighbours are looked at each time.
    """
    found: dict[float, SolvedPolicy] = dict(known or {})
    wanted = [load for load in sorted({*group.loads_qps, *also_qps}) if load not in found]
    open_gaps: list[tuple[float, float]] = []
    least = bench.options.min_gap * (group.loads_qps[-1] - group.loads_qps[0])
    while wanted:
        try:
            for solved in bench.solve(group, wanted, about=f"{group.id} policies"):
                found[solved.load_qps] = solved
        except Interrupted:
            if not found:
                raise
        if group.loads_qps[-1] not in found:
            raise Interrupted("the work was over before the highest load had a policy: the others do not hold there")
        if any(load not in found for load in wanted):
            return [found[load] for load in sorted(found)], open_gaps or _gaps(wanted, found)
        loads = sorted(found)
        open_gaps = [
            (low, high)
            for low, high in pairwise(loads)
            if high - low > least and abs(_expected(found[low]) - _expected(found[high])) > bench.options.accuracy_step
        ]
        if bench.ask.remaining <= 0:
            return [found[load] for load in loads], open_gaps
        wanted = [0.5 * (low + high) for low, high in open_gaps]
    return [found[load] for load in sorted(found)], []


def _gaps(wanted: Sequence[float], found: Mapping[float, SolvedPolicy]) -> list[tuple[float, float]]:
    loads = sorted([*wanted, *found])
    return [(low, high) for low, high in pairwise(loads) if low in wanted or high in wanted]


def _expected(solved: SolvedPolicy) -> float:
    return solved.measures.accuracy_by_query if solved.measures is not None else solved.accuracy


def _split_load(bench: Bench, groups: Sequence[Group], loads_qps: Sequence[float]) -> list[Group]:
    """Divide an application's load among unlike workers: by capacity, or for the most goodput at its highest load."""
    capacity = np.array([g.workers * (capacity_qps(g.models, 0, g.wish.slo_s) or 1e-9) for g in groups])
    shares = capacity / capacity.sum()
    if bench.options.split == "dp" and len(groups) > 1:
        steps = np.arange(1, _SHARES + 1) / _SHARES
        gains = [_gains_by_load(bench, group, (loads_qps[-1] * steps).tolist()) for group in groups]
        parts = best_split(gains, _SHARES, least=0)
        shares = np.array(parts) / _SHARES
    return [
        replace(group, loads_qps=tuple(float(f"{load * share:.12g}") for load in loads_qps))
        for group, share in zip(groups, shares, strict=True)
        if share > 0
    ]


def _gains_by_load(bench: Bench, group: Group, loads_qps: Sequence[float]) -> list[float]:
    """Goodput per second at each load, 0 at none."""
    forms = [group.form(float(load), bench.options, batching="max") for load in loads_qps]
    answers = bench.ask.all(forms, about=f"{group.id}: goodput by load")
    return [0.0, *(float(load) * (answer.value or 0.0) for load, answer in zip(loads_qps, answers, strict=True))]


def _split_workers(bench: Bench, groups: Sequence[Group], total: int, fixed: Mapping[str, int] | None) -> list[Group]:
    """Divide like workers among applications: as given, or for the most load-weighted goodput."""
    if fixed is not None:
        return [group.with_workers(fixed[group.wish.app.id]) for group in groups]
    if len(groups) == 1:
        return [groups[0].with_workers(total)]
    size = max(1, -(-total // _FINEST))
    parts = total // size
    gains = [_gains_by_workers(bench, group, size, parts) for group in groups]
    chosen = best_split(gains, parts, least=1)
    counts = [size * part for part in chosen]
    counts[int(np.argmax(counts))] += total - sum(counts)
    return [group.with_workers(count) for group, count in zip(groups, counts, strict=True)]


def _gains_by_workers(bench: Bench, group: Group, size: int, parts: int) -> list[float]:
    load = group.loads_qps[-1]
    forms = [group.with_workers(size * k).form(load, bench.options, batching="max") for k in range(1, parts + 1)]
    answers = bench.ask.all(forms, about=f"{group.id}: goodput by workers")
    return [0.0, *(load * (answer.value or 0.0) for answer in answers)]


def best_split(gains: Sequence[Sequence[float]], total: int, *, least: int) -> list[int]:
    """Parts that sum to `total`, each at least `least`, of the largest sum of gains: exact, by dynamic programming.

    >>> best_split([[0, 1, 5, 6], [0, 3, 4, 4]], 3, least=0)
    [2, 1]
    """
    worst = -np.inf
    reached = np.full(total + 1, worst)
    reached[0] = 0.0
    choices = []
    for gain in gains:
        values = np.array([gain[k] if k >= least else worst for k in range(total + 1)])
        nextly, choice = np.full(total + 1, worst), np.zeros(total + 1, dtype=int)
        for used in range(total + 1):
            options = reached[used::-1] + values[: used + 1]
            choice[used] = int(options.argmax())
            nextly[used] = options[choice[used]]
        reached = nextly
        choices.append(choice)
    parts, left = [], total
    for choice in reversed(choices):
        parts.append(int(choice[left]))
        left -= parts[-1]
    return parts[::-1]
