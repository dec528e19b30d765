"""How soon each search finds a compliant plan and a cheap one, on synthetic queries."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from hetplan import load
from hetplan.extend import (
    BlackBox,
    BlackBoxEngine,
    CompoundOptions,
    PipelineQuery,
    Profiler,
    Setup,
    choose,
    pose,
    solver,
)
from hetplan_papers.datasets.circinus_generator import SyntheticQuery, draw
from hetplan_papers.datasets.sources import handed_on

__all__ = ["METHODS", "Run", "run_search", "searched", "sought_of"]

METHODS = {
    name: cast(BlackBoxEngine, solver("random-plans" if name == "random" else name))
    for name in ("random", "videostorm", "vulcan", "cmbo", "cmbo-ci", "struct", "struct-ci")
}
FIXED = ("random", "videostorm", "vulcan")
NEAR, NEAR_DOLLARS = 1.05, 0.01


@dataclass(frozen=True)
class Run:
    """One search of one query; None where it did not happen within the steps."""

    first: int | None
    near: int | None
    gpu_s_first: float | None
    gpu_s_near: float | None
    seconds_first: float | None
    seconds_near: float | None
    gpu_s: float
    samples: float
    wrong: int
    proposal_ms: float
    best: float
    least: float


NEAR_EDGE = {"relative_time": 4.4, "price": "0.35"}
"""A T4 half way between the device and the MEC, at its list price."""


def four_tiers(query: SyntheticQuery) -> tuple[dict[str, Any], dict[str, Any]]:
    """Profile and SLO of a query with the near edge as a fourth tier."""
    profile, slo = query.profile(), query.slo()
    profile["tiers"].insert(1, "near-edge")
    profile["hardware"]["t4"] = {
        "kind": "gpu", "tier": "near-edge", "relative_time": NEAR_EDGE["relative_time"], "provides": {"gpu": 1}
    }  # fmt: skip
    profile["offers"]["t4-gpu"] = {"hardware": "t4", "price_per_hour": NEAR_EDGE["price"], "per": "gpu"}
    for links in (profile["links"], slo["apps"]["query"]["device"]["links"]):
        first, second = links
        rates = [link["bandwidth_mbps"] for link in links]
        links += [
            {"between": ["device", "near-edge"], "bandwidth_mbps": rates[0], "latency_ms": first["latency_ms"] / 2},
            {"between": ["near-edge", "mec"], "bandwidth_mbps": rates[1], "latency_ms": first["latency_ms"] / 2},
            # What came from the device to the MEC and the cloud before still comes as it did.
            {"between": ["device", "cloud"], "bandwidth_mbps": 1.0 / sum(1.0 / rate for rate in rates),
             "latency_ms": first["latency_ms"] + second["latency_ms"]},
        ]  # fmt: skip
    return profile, slo


def sought_of(query: SyntheticQuery, *, tiers: int = 3) -> PipelineQuery:
    """The query as the planner reads it; over three tiers, or over four."""
    inputs = load(*handed_on(four_tiers(query) if tiers == 4 else (query.profile(), query.slo())))
    (sought,) = cast(Any, pose(inputs, choose(inputs, question="compound"))).asked.sought
    return cast(PipelineQuery, sought)


def box_of(query: SyntheticQuery, method: str = "struct-ci") -> BlackBox:
    """The form of a query, measured by its truth."""
    sought, options = sought_of(query), CompoundOptions(search=method)
    profiler = Profiler(Setup.of(**sought.setup(options)), query)
    return sought.box(lambda c: profiler(c, sought.knobs(c)), options)


def run_search(
    method: str, query: SyntheticQuery, *, max_measurements: int = 60, seed: int = 0, **changes: object
) -> Run:
    """Search one query, and note when the first truly compliant plan and a cheap one were found."""
    options = CompoundOptions(max_measurements=max_measurements, search=method)
    sought = sought_of(query)
    setup = Setup.of(**sought.setup(options))
    rule = setup.rule
    if method in FIXED:
        rule = replace(rule, kind="fixed", n_max=query.app.fixed_samples)
    rule = replace(rule, **{k: v for k, v in changes.items() if k in vars(rule)})
    cache = bool(changes.get("cache", method not in FIXED))
    profiler = Profiler(replace(setup, rule=rule, use_cache=cache), query)
    form = sought.box(lambda c: profiler(c, sought.knobs(c)), options, changes.get("past", ()))
    # Numbers of configurations are the form's: it has the knobs in the order of their names, the truth in its own.
    good = query.accuracy >= query.accuracy_min
    good = good[[query.configuration(sought.knobs(c)) for c in range(len(good))]]
    return _walk(METHODS[method], form, good, query.least_cost, max_measurements, seed, no_cache=not cache)


def _walk(
    engine: BlackBoxEngine, form: BlackBox, good: NDArray[np.bool_], least: float, steps: int, seed: int,
    *, no_cache: bool,
) -> Run:  # fmt: skip
    search = engine.begin(form, seed)
    spent = clock = 0.0
    first = near = None
    best = np.inf
    marks: dict[str, tuple[float, float]] = {}
    samples, wrong, proposals = [], 0, []
    for step in range(1, steps + 1):
        began = time.perf_counter()
        plans = search.ask(1)
        proposals.append(time.perf_counter() - began)
        if not plans:
            break
        c = plans[0] // len(form.placements)
        again = c in form.journal
        found = form.observe(c)
        gpu_s = sum(found.seconds) * found.samples if no_cache else (0.0 if again else found.gpu_s)
        spent, clock = spent + gpu_s, clock + gpu_s + proposals[-1]
        samples.append(found.samples)
        wrong += (not again) and found.passes != bool(good[c])
        search.tell(plans[0], found)
        if found.passes and good[c]:
            best = min(best, float(form.costs(c).min()) if search.whole else form.value(plans[0]))
        if np.isfinite(best) and first is None:
            first, marks["first"] = step, (spent, clock)
        if best <= NEAR * least + NEAR_DOLLARS:
            near, marks["near"] = step, (spent, clock)
            break
    return Run(
        first, near, *(marks.get(name, (None, None))[part] for part in (0, 1) for name in ("first", "near")),
        spent, float(np.mean(samples)), wrong, 1000 * float(np.median(proposals)), best, least,
    )  # fmt: skip


def searched(method: str, app: str, seeds: Sequence[int], **how: object) -> list[Run]:
    """Many queries of one application."""
    return [run_search(method, draw(app, seed), seed=seed, **how) for seed in seeds]
