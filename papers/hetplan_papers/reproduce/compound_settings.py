"""Both stages together in many settings: ablation, load, budget, history, targets, tiers, drift (Figs. 14 to 17)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hetplan.extend import (
    Application,
    CompoundOptions,
    CompoundQuery,
    CompoundWay,
    Limits,
    Past,
    Profiler,
    Setup,
    Tier,
    candidates_of,
    packing_form,
    simulate_holding,
    solver,
)
from hetplan_papers.datasets.circinus_generator import SyntheticQuery, draw
from hetplan_papers.reproduce.compound_search import FIXED, METHODS, box_of, run_search, sought_of

__all__ = [
    "GPU_S",
    "ablation_rows",
    "budget_rows",
    "drift_rows",
    "history_rows",
    "load_rows",
    "target_rows",
    "tier_rows",
]

GPU_S = {"SR": 100.0, "VT": 60.0, "LVC": 200.0, "DVC": 1000.0, "ACG": 3000.0}
"""What planning one query may take of the reference GPU."""
GPUS = 2
"""In each shared tier: scarce for 20 queries."""


@dataclass(frozen=True)
class Planned:
    """A query with the ways that a search found for it within its budget."""

    query: SyntheticQuery
    tiers: tuple[Tier, ...]
    ways: tuple[CompoundWay, ...]

    def complies(self, way: CompoundWay) -> bool:
        """Whether a way truly is accurate enough (its latency is exact)."""
        assert way.found is not None
        c = self.query.configuration(way.found.knobs)
        return bool(self.query.accuracy[c] >= self.query.accuracy_min)


def plan_query(
    method: str, query: SyntheticQuery, gpu_s: float, *, fixed: bool = False, cache: bool = True, tiers: int = 3
) -> Planned:
    """Search one query for so many seconds of the reference GPU."""
    options = CompoundOptions(max_measurements=60, measure_s=gpu_s, search=method)
    sought = sought_of(query, tiers=tiers)
    setup = Setup.of(**sought.setup(options))
    rule = setup.rule
    if fixed or method in FIXED:
        rule, cache = replace(rule, kind="fixed", n_max=query.app.fixed_samples), False
    profiler = Profiler(replace(setup, rule=rule, use_cache=cache), query)
    form = sought.box(lambda c: profiler(c, sought.knobs(c)), options)
    if tiers == 1:
        form = replace(form, placements=form.placements[(form.placements == 2).all(axis=1)])
    METHODS[method].solve(form, Limits(seed=query.seed))
    return Planned(query, sought.tiers, tuple(candidates_of(form, sought, 20)))


def goodput(planned: Sequence[Planned], gpus: int, *, together: bool = True) -> float:
    """The share of queries that are served and truly comply, on so many GPUs in each shared tier."""
    app: Any = None
    limited = tuple(
        tier if tier.own else replace(tier, machines=float(gpus)) for tier in planned[0].tiers
    )  # fmt: skip
    queries = [
        CompoundQuery(Application(str(i), app, ()), one.ways if together else one.ways[:1])
        for i, one in enumerate(planned)
    ]  # fmt: skip
    form = packing_form(queries, limited, {}, sense="max")
    answer = (solver("dual") if together else solver("fcfs")).solve(form, Limits())
    assert answer.point is not None
    good = [
        one.complies(one.ways[int(option - form.first[i])])
        for i, (one, option) in enumerate(zip(planned, answer.point.option, strict=True))
        if option >= 0
    ]
    return sum(good) / len(planned)


def ablation_rows(apps: Sequence[str], seeds: Sequence[int]) -> Iterator[dict[str, Any]]:
    """What each part brings: goodput with one left out, against VideoStorm's search served in order of arrival."""
    for app in apps:
        queries = [draw(app, seed) for seed in seeds]
        full = [plan_query("struct-ci", query, GPU_S[app]) for query in queries]
        fixed = [plan_query("struct-ci", query, GPU_S[app], fixed=True) for query in queries]
        other = [plan_query("vulcan", query, GPU_S[app], fixed=False) for query in queries]
        storm = [plan_query("videostorm", query, GPU_S[app]) for query in queries]
        yield {
            "app": app, "gpu_s": GPU_S[app], "full": goodput(full, GPUS),
            "fixed samples, no cache": goodput(fixed, GPUS),
            "Vulcan's search": goodput(other, GPUS), "one by one": goodput(full, GPUS, together=False),
            "VideoStorm, one by one": goodput(storm, GPUS, together=False),
        }  # fmt: skip


def budget_rows(app: str, seeds: Sequence[int], budgets: Sequence[float]) -> Iterator[dict[str, Any]]:
    """Goodput by the time there is to plan."""
    for budget in budgets:
        row: dict[str, Any] = {"app": app, "gpu_s": budget}
        for method in ("struct-ci", "cmbo", "vulcan", "videostorm"):
            row[method] = goodput([plan_query(method, draw(app, seed), budget) for seed in seeds], GPUS)
        yield row


def target_rows(app: str, seeds: Sequence[int], budget: float) -> Iterator[dict[str, Any]]:
    """Goodput under easy, medium and hard latency targets (2.0, 1.5 and 1.1 times)."""
    for name, factor in (("easy", 2.0), ("medium", 1.5), ("hard", 1.1)):
        queries = [draw(app, seed) for seed in seeds]
        queries = [replace(query, latency_max_s=query.latency_max_s * factor / 1.5) for query in queries]
        row: dict[str, Any] = {"app": app, "target": name}
        for method in ("struct-ci", "vulcan", "videostorm"):
            row[method] = goodput([plan_query(method, query, budget) for query in queries], GPUS)
        yield row


def tier_rows(app: str, seeds: Sequence[int], budget: float) -> Iterator[dict[str, Any]]:
    """Goodput in the cloud alone, over three tiers, and with a near edge as a fourth."""
    for tiers in (1, 3, 4):
        row: dict[str, Any] = {"app": app, "tiers": tiers}
        for method in ("struct-ci", "vulcan", "videostorm"):
            row[method] = goodput([plan_query(method, draw(app, seed), budget, tiers=tiers) for seed in seeds], GPUS)
        yield row


def load_rows(app: str, seeds: Sequence[int], budget: float) -> Iterator[dict[str, Any]]:
    """Queries that come, stay and go: the share served compliantly at loads around the tiers' capacity."""
    rng = np.random.default_rng(0)
    both = {m: [plan_query(m, draw(app, seed), budget) for seed in seeds] for m in ("struct-ci", "videostorm")}
    for rate in (0.5, 1.0, 2.0):
        row: dict[str, Any] = {"app": app, "relative_rate": rate}
        count, at_once = 400, 16
        arrivals = np.cumsum(rng.exponential(1.0 / (rate * at_once), count))
        lives = rng.exponential(1.0, count)
        which = rng.integers(0, len(seeds), count)
        for method, planned in both.items():
            served = [i for i, k in enumerate(which) if planned[k].ways]
            demands = [_demands(planned[which[i]]) for i in served]
            run = simulate_holding(arrivals[served], lives[served], demands, np.array([1e9, 2.0, 2.0]))
            good = sum(
                planned[which[i]].complies(planned[which[i]].ways[int(choice)])
                for i, choice in zip(served, run.chosen, strict=True)
                if choice >= 0
            )
            row[method] = good / count
        yield row


def _demands(one: Planned) -> np.ndarray:
    names = [tier.name for tier in one.tiers]
    rows = np.zeros((len(one.ways), len(names)))
    for w, way in enumerate(one.ways):
        for item in way.items:
            rows[w, names.index(item.tier)] += item.size.get("gpu", 0.0)
    return rows


def history_rows(apps: Sequence[str], past_seeds: Sequence[int], seeds: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Steps with no history, with one past query and with ten."""
    for app in apps:
        past = [_past(app, seed) for seed in past_seeds]
        for models in (0, 1, len(past)):
            runs = [run_search("struct-ci", draw(app, s), seed=s, past=tuple(past[:models])) for s in seeds]
            yield {
                "app": app, "past": models, "first": _median([r.first for r in runs]),
                "near": _median([r.near for r in runs]), "near_p75": _median([r.near for r in runs], 75),
                "gpu_s_first": _median([r.gpu_s_first for r in runs]),
            }  # fmt: skip


def _past(app: str, seed: int) -> Past:
    form = box_of(draw(app, seed))
    METHODS["struct-ci"].solve(form, Limits(seed=seed, work=20))
    return Past(str(seed), tuple(form.journal.values()))


def _median(values: Sequence[float | None], percent: float = 50) -> float:
    return float(np.percentile([np.inf if v is None else v for v in values], percent, method="lower"))


def drift_rows(apps: Sequence[str], seeds: Sequence[int]) -> Iterator[dict[str, Any]]:
    """A link at half its rate: compliant anew by arithmetic? Accuracies lower by 0.1: measurements until compliant."""
    for app in apps:
        by_arithmetic, steps = [], []
        for seed in seeds:
            query = draw(app, seed)
            form = box_of(query)
            before = METHODS["struct-ci"].solve(form, Limits(seed=seed, work=20))
            slower = replace(query, bandwidth=(query.bandwidth[0], query.bandwidth[1] / 2))
            there = box_of(slower)
            there = replace(there, journal=dict(form.journal))
            by_arithmetic.append(any(np.isfinite(there.costs(c).min()) for c in there.journal))
            darker = replace(query, mean=np.clip(query.mean - 0.1, 0.01, 0.99))
            changed = box_of(darker)
            changed = replace(changed, old=tuple(form.journal.values()), drift=0.1)
            after = METHODS["struct-ci"].solve(changed, Limits(seed=seed), start=before.point)
            steps.append(after.work["to_first"] or None)
        yield {
            "app": app, "link halved: replanned without measuring": float(np.mean(by_arithmetic)),
            "accuracy -0.1: measurements to a compliant plan": _median(steps),
        }  # fmt: skip
