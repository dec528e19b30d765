"""INFaaS' comparisons on the seeded generator's snapshots and a Twitter-like load (Figs. 5 to 8, Table 7).

The paper's traces, profiles and machines are not published: what is held against it is the direction of each
comparison and the speed of decisions, and its ratios stand beside ours. Loads follow the published Twitter trace's
shape where it is at hand (`ramsis/twitter_trace.json`), else a seeded one like it. All ways to scale are played with
the same queries, leave the same room for waiting (``sizing=formula``) and are asked as often.
"""

from __future__ import annotations

import json as json_text
import math
import random
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import hetplan as hp
from hetplan import Inputs, Plan, Planner, load
from hetplan.extend import (
    OfflineWork,
    OnMachine,
    ProfiledVariant,
    Replanning,
    VariantMachine,
    VariantQuery,
    VariantSnapshot,
    VariantState,
    autoscale,
    get_variant,
    next_state,
)
from hetplan_papers.datasets import infaas_generator
from hetplan_papers.datasets.sources import handed_on, planned

__all__ = ["FIGURES", "run"]

PERIOD_S = 10.0
REPLANNING = Replanning(every_s=2.0, hold_s=16.0, headroom=0.0, change=0.0)
"""How often scaling is decided (the paper's monitor: 2 s), and over how many looks the highest load counts."""
SLACK = 1.3
PLANNED = {"sizing": "fluid"}
"""Sizes as in the paper."""
WITHIN = 1.05
"""Costs this near are called equal."""
BURSTS = (0.4, 0.4, 0.4, 2.2, 2.2, 2.2, 0.4, 0.4, 0.4, 2.2, 2.2, 2.2, 0.4, 0.4)
MOST_QPS = 60.0
"""Loads are cut to what simulates in seconds."""
PAPER_MACHINES = {"cpu": 5, "gpu": 5, "inferentia": 2}
"""What the paper's evaluation starts with."""
GPU_ONLY = "replicate-only, GPU variants"


def choosing() -> dict[str, float]:
    """`get_variant` at 175 variants on 20 machines."""
    rng = random.Random(0)
    hardware = ("cpu", "gpu", "inferentia")
    variants = {
        f"v{k}": ProfiledVariant(
            f"v{k}", f"a{k // 8}", rng.choice(hardware), rng.uniform(5, 300), rng.uniform(5, 500), rng.uniform(0.1, 10)
        )
        for k in range(175)
    }
    machines = {f"m{k}": VariantMachine(f"m{k}", hardware[k % 3], {"busy": rng.random()}) for k in range(20)}
    states = (VariantState.ACTIVE, VariantState.OVERLOADED, VariantState.INTERFERED)
    pairs = tuple(
        OnMachine(v, m, rng.choice(states), rng.random()) for v in variants for m in machines if rng.random() < 0.1
    )
    snapshot = VariantSnapshot(variants, machines, pairs)
    began = time.process_time()
    get_variant(snapshot, VariantQuery("a0", slo_ms=100))
    first_ms = 1000 * (time.process_time() - began)
    spent = []
    for _ in range(5000):
        query = VariantQuery(rng.choice(["", *(f"a{k}" for k in range(22))]), slo_ms=rng.uniform(5, 300))
        began = time.perf_counter()
        get_variant(snapshot, query)
        spent.append(1e6 * (time.perf_counter() - began))
    return {"get_variant_median_us": statistics.median(spent), "first_on_a_new_snapshot_us": 1000 * first_ms}


@dataclass(frozen=True)
class Row:
    """One comparison: ours beside another way, what the paper says of it, and whether the direction is the same."""

    figure: str
    what: str
    ours: float
    against: str
    beside: float
    paper: str
    holds: bool


@dataclass(frozen=True)
class Scale:
    """How much is played."""

    data: Path
    quick: bool
    threads: int

    def twitter(self, periods: int) -> list[float]:
        """A load over time, relative to its mean."""
        file = self.data / "ramsis" / "twitter_trace.json"
        if file.exists():
            held = [float(value) for value in json_text.loads(file.read_text())["qps"]][:periods]
        else:
            rng = random.Random(0)
            held = [1.0 + 0.5 * math.sin(k / 3.0) + rng.uniform(-0.2, 0.2) for k in range(periods)]
        return relative(held)


def relative(loads: Sequence[float]) -> list[float]:
    """Loads as multiples of their mean."""
    mean = sum(loads) / len(loads)
    return [value / mean for value in loads]


SETTINGS = ((1.3, 0.1), (1.3, 1.0), (1.8, 1.0), (2.5, 1.0))
"""(slack, weight of loading) that each way is played at: lateness against money."""
FEW_LATE = (0.05, 0.01)
"""Each way's money is compared at its cheapest setting that has so few late."""


def snapshot(
    count: int, *, only: str | None = None, slack: float = SLACK, weight: float | None = None
) -> tuple[Any, Any]:
    """A generated profile and wish without limits; with `only`, variants of that hardware where there are any in time.

    That is what a developer does who chose a hardware for the model once.
    """
    made = infaas_generator.make(count, 1)
    profile, slo, _ = infaas_generator.inputs(count, 1)
    slo["change"]["slack"] = slack
    if weight is not None:
        slo["change"]["load_weight_per_s"] = weight
    slo["limits"] = {}
    for app in slo["apps"].values():
        app["rate_qps"] = min(app["rate_qps"], MOST_QPS)
    if only is not None:
        for model in made.architectures:
            kept = [v.name for v in model.variants if v.hardware == only and 2 * v.latency_ms <= model.slo_ms]
            for app in slo["apps"].values():
                if kept and app.get("family") == [model.name]:
                    del app["family"]
                    app["models"] = kept
    return profile, slo


class Played:
    """One way to scale, played over a load."""

    def __init__(self, documents: tuple[Any, Any], formulation: str, **options: Any) -> None:
        self.profile, self.slo = handed_on(documents)
        self.inputs: Inputs = load(self.profile, self.slo)
        self.options = {"sizing": "formula", **options}
        self.planner = self._planner(formulation)
        self.decided = list[float]()

    def _planner(self, formulation: str) -> Planner:
        return Planner(self.profile, self.slo, formulation=f"variants/{formulation}", options=self.options)

    def plan(self, rates: Mapping[str, float], now: Plan) -> Plan | None:
        """The next plan."""
        began = time.perf_counter()
        outcome = self.planner.plan(rates, state=next_state(now))
        self.decided.append(1000 * (time.perf_counter() - began))
        return outcome.plan

    def over(self, shape: Sequence[float], scale: Scale, *, offline: OfflineWork | None = None) -> dict[str, float]:
        """Cost per hour, the share of late queries, offline jobs per second."""
        base = {name: float(app["rate_qps"]) for name, app in self.slo["apps"].items()}
        series = {name: [rate * value for value in shape] for name, rate in base.items()}
        first = self._planner("variants-columns").plan().require()
        report = autoscale(
            first, self.inputs, self.plan, series=series, period_s=PERIOD_S, replanning=REPLANNING,
            offline=offline, threads=scale.threads,
        )  # fmt: skip
        queries = {name: report.apps[name].queries_per_seed for name in series if name in report.apps}
        late = sum(report.apps[name].figures["violations"].value * n for name, n in queries.items())
        done = report.apps["offline-work"].figures["rate_qps"].value if offline is not None else 0.0
        cost = report.cost_per_hour.value if report.cost_per_hour is not None else math.nan
        return {"cost": cost, "late": late / max(sum(queries.values()), 1), "offline_qps": done}


def over_time(scale: Scale) -> list[Row]:
    """Figs. 5 and 6: cost and violations of choosing variants, of replicating one, of standing still."""
    return [
        *_played("Twitter's load", 4 if scale.quick else 22, scale.twitter(6 if scale.quick else 27), scale),
        *_played("bursts", 4 if scale.quick else 10, relative(BURSTS[:6] if scale.quick else BURSTS), scale),
    ]


def _played(load: str, count: int, shape: Sequence[float], scale: Scale) -> list[Row]:
    """Money of each way at the cheapest of its settings that has so few late."""
    plays: dict[str, list[dict[str, float]]] = {}
    for way in ("variants-columns", "greedy", "replicate-only", "static", GPU_ONLY):
        only, formulation = ("gpu", "replicate-only") if way == GPU_ONLY else (None, way)
        for slack, weight in SETTINGS:
            documents = snapshot(count, only=only, slack=slack, weight=weight)
            played = Played(documents, formulation).over(shape, scale)
            said = f"{way}, slack {slack:g}, loading {weight:g}: {played['cost']:.0f}, {played['late']:.2%} late"
            print(f"{'':8} {load}: {said}", file=sys.stderr)
            plays.setdefault(way, []).append(played)
    saved, fewer = "8.5 times cheaper on average, 21.6 at most", "latency objectives violated 1.6 times less often"
    rows = []
    for most in FEW_LATE:
        money = {
            way: min((one["cost"] for one in found if one["late"] <= most), default=math.inf)
            for way, found in plays.items()
        }
        what = f"{count} models under {load}: cost per hour with at most {most:.0%} late"
        rows += [
            Row("Fig. 5, 6", what, money["variants-columns"], name, money[name], fewer if name == "static" else saved,
                money["variants-columns"] <= WITHIN * money[name])
            for name in ("greedy", "replicate-only", GPU_ONLY, "static")
        ]  # fmt: skip
    ours = min(one["late"] for one in plays["variants-columns"][:1])
    naive = Played(snapshot(count), "variants-columns", sizing="fluid").over(shape, scale)
    note = "(not in the paper: instances run up to saturation)"
    what = f"{count} models under {load}: share of late queries"
    return [*rows, Row("Fig. 6", what, ours, "sizing=fluid", naive["late"], note, ours < naive["late"])]


def throughput(scale: Scale) -> list[Row]:
    """The highest load, as a multiple, that the paper's machines carry: choosing variants, or one for each model."""
    profile, slo, _ = infaas_generator.inputs(8 if scale.quick else 22, 1, machines=True)
    profile.pop("hosts", None)
    for name, offer in profile["offers"].items():
        offer["stock"] = PAPER_MACHINES[name]
    loads = {name: float(app["rate_qps"]) for name, app in slo["apps"].items()}

    def carried(formulation: str, factor: float) -> bool:
        rates = {name: rate * factor for name, rate in loads.items()}
        outcome = Planner(planned(profile), slo, formulation=f"variants/{formulation}", options=PLANNED).plan(rates)
        return outcome.plan is not None and not any(one.rate_qps > 0 for one in outcome.plan.unserved)

    most = {}
    for formulation in ("variants-columns", "replicate-only"):
        low, high = 0.0, 20.0
        for _ in range(5 if scale.quick else 8):
            middle = (low + high) / 2
            low, high = (middle, high) if carried(formulation, middle) else (low, middle)
        most[formulation] = low
    ours, beside = most["variants-columns"], most["replicate-only"]
    what = "highest load on 5 CPU, 5 GPU and 2 Inferentia machines, times the generator's"
    return [Row("Fig. 5", what, ours, "replicate-only", beside, "1.3 times the throughput", ours >= beside)]


def sharing(scale: Scale) -> list[Row]:
    """Fig. 7: applications that share instances against each with its own."""
    profile, slo, state = infaas_generator.inputs(10 if scale.quick else 25, 1, fives=False)
    families = list(slo["apps"])
    shared = {
        f"{name}-{k}": {**app, "rate_qps": app["rate_qps"] / 4} for name, app in slo["apps"].items() for k in range(4)
    }
    wish = {**slo, "apps": shared, "limits": {}}
    cost = {}
    for mode in ("shared", "dedicated"):
        outcome = hp.solve(planned(profile), wish, state, options={"sharing": mode, **PLANNED}, formulation="variants")
        cost[mode] = next(p.value for p in outcome.require().promises if p.quantity == "gross_cost_per_hour")
    what = f"gross cost per hour, {len(families)} models for four applications each"
    paper = "sharing serves the same at less cost"
    ours, beside = cost["shared"], cost["dedicated"]
    return [Row("Fig. 7", what, ours, "dedicated", beside, paper, ours < beside)]


def offline(scale: Scale) -> list[Row]:
    """Fig. 8: offline work beside online queries, standing aside or not."""
    documents, shape = snapshot(3), scale.twitter(4 if scale.quick else 10)
    work = OfflineWork(40.0, 10.0)
    alone = Played(documents, "static").over(shape, scale)
    beside = Played(documents, "static").over(shape, scale, offline=work)
    rude = Played(documents, "static").over(shape, scale, offline=OfflineWork(40.0, 10.0, gated=False))
    paper = "offline work uses what is idle, and online queries do not feel it"
    gated = "share of late queries, offline work gated"
    return [
        Row("Fig. 8", gated, beside["late"], "not gated", rude["late"], paper, beside["late"] <= rude["late"] + 0.01),
        Row("Fig. 8", gated, beside["late"], "no offline work", alone["late"], paper,
            beside["late"] <= alone["late"] + 0.05),
        Row("Fig. 8", "offline jobs done per second", beside["offline_qps"], "offered", work.rate_qps, paper,
            beside["offline_qps"] > 0),
    ]  # fmt: skip


def decisions(scale: Scale) -> list[Row]:
    """Table 7: how long a choice takes."""
    del scale
    median = choosing()["get_variant_median_us"] / 1000
    paper = "2.2 ms where it is active, 3.5 where it must be loaded"
    return [Row("Table 7", "get_variant, median ms", median, "the target", 0.1, paper, median <= 0.1)]


FIGURES: dict[str, Callable[[Scale], list[Row]]] = {
    "fig-5-6": over_time,
    "throughput": throughput,
    "fig-7": sharing,
    "fig-8": offline,
    "table-7": decisions,
}


def run(data: Path, *, json: bool, quick: bool, threads: int, figures: Sequence[str] = tuple(FIGURES)) -> int:
    """All comparisons, or those named; 1 where one does not hold."""
    scale = Scale(data, quick, threads)
    rows = [row for figure in map(partial(dict.__getitem__, FIGURES), figures) for row in figure(scale)]
    if json:
        print(json_text.dumps([asdict(row) for row in rows], indent=1))
    else:
        for row in rows:
            sign = "holds" if row.holds else "DOES NOT HOLD"
            print(f"{row.figure:8} {row.what}: {row.ours:.6g} against {row.beside:.6g} ({row.against}) {sign}")
            print(f"{'':8} paper: {row.paper}")
    return 0 if all(row.holds for row in rows) else 1
