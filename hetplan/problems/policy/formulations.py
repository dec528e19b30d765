"""How a policy is found: load or workers divided, models held, a policy per load, the fewest workers, others' rules.

Every model that a policy may choose stays loaded. Where a worker's memory is too small for all of them, only the sets
that no other fitting set contains can be best, since more models are never worse: for each of them the process is
solved, at both ends of the loads, and the one with the most goodput is planned with. Each is certified as every process
is; so the choice is, where all of them were looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import cast

import numpy as np

from hetplan.errors import Interrupted
from hetplan.planner.draft import Draft, Infeasibility, Reported
from hetplan.problems.policy.group import Group, PolicyProblem, SolvedPolicy, fewest_possible
from hetplan.problems.policy.infeasible import least_count, repairs_of
from hetplan.problems.policy.options import MOST_WORKERS
from hetplan.problems.policy.plan import draft_policies
from hetplan.problems.policy.policy_search import PolicySearch
from hetplan.problems.policy.request import capacity_qps
from hetplan.profiles.plan import Notice

__all__ = ["best_policies", "best_split", "divide_work", "fewest_workers", "plan_rule"]

_CHECKED_LOADS = 5
"""The fewest workers for a range of loads must keep the targets at so many of them."""
_SHARES = 20
"""Load is divided among unlike workers in steps of a twentieth."""
_FINEST = 128
"""Workers are divided one by one up to so many, in this many parts beyond."""


def best_policies(problem: PolicyProblem, bench: PolicySearch, groups: Sequence[Group]) -> Draft | Infeasibility:
    """A set of policies per group; where a stated target is missed, what would keep it."""
    solved: list[list[SolvedPolicy]] = []
    notices: list[Notice] = []
    for group in groups:
        policies, open_gaps = _policy_set(bench, group, also_qps=_loads_before(problem, group))
        solved.append(policies)
        if open_gaps:
            listed = ", ".join(f"{low:g}-{high:g}" for low, high in open_gaps[:4])
            text = f"stopped before {group.id} was fine enough between {listed} qps"
            notices.append(Notice(code="W-set-open", at=f"policies.{group.wish.app.id}", text=text))
    missing = [one for policies in solved for one in policies if one.misses()]
    if not missing:
        return draft_policies(problem, solved, notices=notices)
    worst = max(missing, key=lambda one: one.violation)
    missed = f"{worst.group.id} at {worst.load_qps:g} qps: {'; '.join(worst.misses())}"
    repairs = repairs_of(bench, worst)
    return Infeasibility((missed,), repairs, proved=False)


def _loads_before(problem: PolicyProblem, group: Group) -> list[float]:
    """Loads within the range for which a previous plan has tables: where an interrupted set goes on from."""
    tables = problem.start.policies.get(group.wish.app.id, ()) if problem.start is not None else ()
    low, high = group.loads_qps[0], group.loads_qps[-1]
    slo_ms = 1000.0 * group.wish.slo_s
    same = (table for table in tables if abs(table.slo_ms - slo_ms) <= 1e-9 * slo_ms)
    return sorted({table.rate_qps for table in same if low <= table.rate_qps <= high})


MIN_GAP = 0.01
"""The least distance of two policies of a range of rates, as a share of the range."""


def _policy_set(
    bench: PolicySearch,
    group: Group,
    known: Mapping[float, SolvedPolicy] | None = None,
    *,
    also_qps: Sequence[float] = (),
) -> tuple[list[SolvedPolicy], list[tuple[float, float]]]:
    """One policy, or a set over a range of loads; and the gaps that a limit or a cancellation left open.

    Between neighbours whose expected accuracy differs by more than `accuracy_step` another is put, until they lie
    `MIN_GAP` of the range apart; `also_qps` are loads to begin with. Accuracy need not fall with the load, so all
    neighbours are looked at each time.
    """
    found: dict[float, SolvedPolicy] = dict(known or {})
    wanted = [load for load in sorted({*group.loads_qps, *also_qps}) if load not in found]
    open_gaps: list[tuple[float, float]] = []
    least = MIN_GAP * (group.loads_qps[-1] - group.loads_qps[0])
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
            if high - low > least
            and abs(_expected_accuracy(found[low]) - _expected_accuracy(found[high])) > bench.options.accuracy_step
        ]
        if bench.ask.remaining <= 0:
            return [found[load] for load in loads], open_gaps
        wanted = [0.5 * (low + high) for low, high in open_gaps]
    return [found[load] for load in sorted(found)], []


def _gaps(wanted: Sequence[float], found: Mapping[float, SolvedPolicy]) -> list[tuple[float, float]]:
    loads = sorted([*wanted, *found])
    return [(low, high) for low, high in pairwise(loads) if low in wanted or high in wanted]


def _expected_accuracy(solved: SolvedPolicy) -> float:
    return solved.measures.accuracy_by_query if solved.measures is not None else solved.accuracy


# -- the fewest workers ----------------------------------------------------------------------------------------------


def fewest_workers(problem: PolicyProblem, bench: PolicySearch) -> Draft | Infeasibility:
    """The least number of workers with which the targets hold at every load."""
    group, given = problem.groups()[0], problem.workers[0]
    # Accuracy alone, of the queries in time, would let nearly all of them be late.
    group = replace(group, wish=group.wish.with_percentile_target())
    beyond = MOST_WORKERS
    most = given.most or beyond
    group = _hold_models(bench, group.with_workers(most))
    ends, top = group.loads_qps, group.loads_qps[-1]
    loads = ends if len(ends) == 1 else tuple(np.linspace(ends[0], ends[-1], _CHECKED_LOADS).tolist())
    found = _search_fewest(bench, group, loads, least=given.least, most=most)
    if found is None:
        worst = bench.solve(group.with_workers(most), [top], about="most workers")[0]
        why = f"{most} workers do not meet the SLO at {top:g} qps: {'; '.join(worst.misses())}"
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
    return draft_policies(problem, [policies], reported=(servers,))


def _search_fewest(
    bench: PolicySearch, group: Group, loads_qps: Sequence[float], *, least: int, most: int
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

    fewest = max(fewest_possible(group, max(loads_qps)), group.wish.fewest_for_stages())
    low = max(least, min(fewest, most), 1)
    count = least_count(holds, low, most)
    return None if count is None else (group.with_workers(count), memory[count])


# -- rules of other packages -----------------------------------------------------------------------------------------


def plan_rule(
    problem: PolicyProblem,
    bench: PolicySearch,
    *,
    rule: Callable[[PolicySearch, Group, float], SolvedPolicy],
    one_queue: bool = False,
) -> Draft:
    """The plan of what a rule does at each load; with `one_queue` all workers take from one, else each has its own.

    Nothing bounds what a rule reaches: goodput is claimed where it is known, else the quality of its first model.
    """
    solved = [[rule(bench, group, load) for load in group.loads_qps] for group in divide_work(problem, bench)]
    reported = []
    for one in (one for policies in solved for one in policies):
        known = one.measures is not None or one.simulated is not None
        value = one.goodput if known else float(one.group.models.accuracy[int(one.policy.model[0, 0])])
        about = "goodput" if known else "quality"
        of = f"{about}[{one.group.id}@{one.load_qps:g}qps]"
        reported.append(Reported(about=of, sense="max", scope="none", value=value))
    return draft_policies(problem, solved, reported=reported, discipline="shared_fifo" if one_queue else "own")


# -- who serves what -------------------------------------------------------------------------------------------------


def divide_work(problem: PolicyProblem, bench: PolicySearch) -> list[Group]:
    """Who serves what: load or workers divided where several share them."""
    first, *unlike = problem.workers
    if unlike:
        groups = _split_load(
            bench, [_hold_models(bench, group) for group in problem.groups()], problem.apps[0].loads_qps
        )
        # The largest group says for all: an application has one way to balance.
        largest = max(groups, key=lambda group: group.loads_qps[-1])
        wish = _choose_balancing(bench, largest).wish
        return [replace(group, wish=wish) for group in groups]
    groups = [_choose_balancing(bench, _hold_models(bench, group)) for group in problem.groups()]
    if len(problem.apps) == 1:
        return groups
    return _split_workers(bench, groups, cast(int, first.most))


def _choose_balancing(bench: PolicySearch, group: Group) -> Group:
    """The better of turns and shortest queues where the wish leaves that open: over the family, at the highest load."""
    if not bench.is_robust or group.wish.app.balancing is not None or group.workers < 2:
        return group
    load, best = group.loads_qps[-1], group
    worth = -np.inf
    for balancing in ("round_robin", "shortest_queue"):
        tried = replace(group, wish=replace(group.wish, balancing=balancing))
        found = bench.table_value(tried, load, "max")
        if found is not None and found > worth + 1e-4:
            best, worth = tried, found
    return best


def _hold_models(bench: PolicySearch, group: Group) -> Group:
    """The group with the models that its workers hold: the best set of those that fit together."""
    models = group.models
    if len(models.sets) < 2:
        return group if not models.sets else replace(group, models=models.only(models.sets[0]))
    ends = sorted({group.loads_qps[0], group.loads_qps[-1]})
    tried = [replace(group, models=models.only(chosen)) for chosen in models.sets]
    forms = [one.form(load, bench.options, batching="max") for one in tried for load in ends]
    answers = bench.ask.all(forms, about=f"{group.id}: which models to hold")
    worth = [sum(answers[k * len(ends) + j].value or 0.0 for j in range(len(ends))) for k in range(len(tried))]
    best = max(range(len(tried)), key=lambda k: (round(worth[k], 9), -k))
    text = (
        f"{', '.join(models.names)} do not fit a worker of {models.hardware} together: of {len(tried)} sets that do, "
        f"{', '.join(tried[best].models.names)} are held, with a goodput of {worth[best] / len(ends):.6g}"
        + ("" if models.all_sets else "; not every set was tried")
    )
    notice = Notice(code="W-models-held", at=f"limits.instances.{models.hardware}", text=text)
    return replace(tried[best], models=replace(tried[best].models, notices=(*models.notices, notice)))


def _split_load(bench: PolicySearch, groups: Sequence[Group], loads_qps: Sequence[float]) -> list[Group]:
    """Divide an application's load among unlike workers: by capacity, or for the most goodput at its highest load."""
    capacity = np.array([g.workers * (capacity_qps(g.models, 0, g.wish.slo_s) or 1e-9) for g in groups])
    shares = capacity / capacity.sum()
    if bench.options.split == "dp" and len(groups) > 1:
        loads = (loads_qps[-1] * (np.arange(1, _SHARES + 1) / _SHARES)).tolist()
        gains = [_gains(bench, [(g, load) for load in loads], f"{g.id}: goodput by load") for g in groups]
        parts = best_split(gains, _SHARES, least=0)
        shares = np.array(parts) / _SHARES
    return [
        replace(group, loads_qps=tuple(float(f"{load * share:.12g}") for load in loads_qps))
        for group, share in zip(groups, shares, strict=True)
        if share > 0
    ]


def _split_workers(bench: PolicySearch, groups: Sequence[Group], total: int) -> list[Group]:
    """Divide like workers among applications for the most load-weighted goodput."""
    if len(groups) == 1:
        return [groups[0].with_workers(total)]
    size = max(1, -(-total // _FINEST))
    parts = total // size
    gains = []
    for group in groups:
        sized = [(group.with_workers(size * k), group.loads_qps[-1]) for k in range(1, parts + 1)]
        gains.append(_gains(bench, sized, f"{group.id}: goodput by workers"))
    chosen = best_split(gains, parts, least=1)
    counts = [size * part for part in chosen]
    counts[int(np.argmax(counts))] += total - sum(counts)
    return [group.with_workers(count) for group, count in zip(groups, counts, strict=True)]


def _gains(bench: PolicySearch, groups: Sequence[tuple[Group, float]], about: str) -> list[float]:
    """Goodput per second of each group at its load; before these 0, that of none."""
    forms = [group.form(load, bench.options, batching="max") for group, load in groups]
    answers = bench.ask.all(forms, about=about)
    return [0.0, *(load * (answer.value or 0.0) for (_, load), answer in zip(groups, answers, strict=True))]


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
