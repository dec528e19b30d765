"""Policies for a range of loads, and how load or workers are divided where several groups share them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from hetplan.errors import Cancelled

if TYPE_CHECKING:
    from hetplan.problems.policy.group import Group
    from hetplan.problems.policy.solved import Bench, Solved

__all__ = ["best_split", "policy_set", "split_load", "split_workers"]

_SHARES = 20
"""Load is divided among unlike workers in steps of a twentieth."""
_FINEST = 128
"""Workers are divided one by one up to so many, in this many parts beyond."""


def policy_set(
    bench: Bench, group: Group, known: Mapping[float, Solved] | None = None, *, also_qps: Sequence[float] = ()
) -> tuple[list[Solved], list[tuple[float, float]]]:
    """One policy, or a set over a range of loads; and the gaps that a limit or a cancellation left open.

    Between neighbours whose expected accuracy differs by more than `accuracy_step` another is put, until they lie
    `min_gap` of the range apart; `also_qps` are loads to begin with. Accuracy need not fall with the load, so all
    neighbours are looked at each time.
    """
    found: dict[float, Solved] = dict(known or {})
    wanted = [load for load in sorted({*group.loads_qps, *also_qps}) if load not in found]
    open_gaps: list[tuple[float, float]] = []
    least = bench.options.min_gap * (group.loads_qps[-1] - group.loads_qps[0])
    while wanted:
        try:
            for solved in bench.solve(group, wanted, about=f"{group.id} policies"):
                found[solved.load_qps] = solved
        except Cancelled:
            if not found:
                raise
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


def _gaps(wanted: Sequence[float], found: Mapping[float, Solved]) -> list[tuple[float, float]]:
    loads = sorted([*wanted, *found])
    return [(low, high) for low, high in pairwise(loads) if low in wanted or high in wanted]


def _expected(solved: Solved) -> float:
    return solved.measures.accuracy_by_query if solved.measures is not None else solved.accuracy


def split_load(bench: Bench, groups: Sequence[Group], loads_qps: Sequence[float]) -> list[Group]:
    """Divide an application's load among unlike workers: by capacity, or for the most goodput at its highest load."""
    from hetplan.problems.policy.models import capacity_qps

    capacity = np.array([g.workers * (capacity_qps(g.models, 0, g.wish.slo_s) or 1e-9) for g in groups])
    shares = capacity / capacity.sum()
    if bench.options.split == "dp" and len(groups) > 1:
        steps = np.arange(1, _SHARES + 1) / _SHARES
        gains = [_gains_by_load(bench, group, (loads_qps[-1] * steps).tolist()) for group in groups]
        parts = best_split(gains, _SHARES, least=0)
        shares = np.array(parts) / _SHARES
    return [
        replace(group, loads_qps=tuple(float(load * share) for load in loads_qps))
        for group, share in zip(groups, shares, strict=True)
        if share > 0
    ]


def _gains_by_load(bench: Bench, group: Group, loads_qps: Sequence[float]) -> list[float]:
    """Goodput per second at each load, 0 at none."""
    forms = [group.form(float(load), bench.options, batching="max") for load in loads_qps]
    answers = bench.ask.all(forms, about=f"{group.id}: goodput by load")
    return [0.0, *(float(load) * (answer.value or 0.0) for load, answer in zip(loads_qps, answers, strict=True))]


def split_workers(bench: Bench, groups: Sequence[Group], total: int, fixed: Mapping[str, int] | None) -> list[Group]:
    """Divide like workers among applications: as given, or for the most load-weighted goodput."""
    if fixed is not None:
        return [group.with_workers(fixed[group.wish.app_id]) for group in groups]
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
