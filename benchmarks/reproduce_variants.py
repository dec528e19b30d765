"""INFaaS' comparisons on the seeded generator's snapshots and a Twitter-like load (Figs. 5 to 8, Table 7).

The paper's traces and machines are not published; what is held against it is the direction of each comparison, and the
speed of decisions. Loads follow the published Twitter trace's shape where it is at hand (`ramsis/twitter_trace.json`),
else a seeded one like it.
"""

from __future__ import annotations

import json as json_text
import math
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.datasets import infaas_generator
from benchmarks.variants import choosing
from hetplan import front_door
from hetplan.planner.plan import Plan
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.load import load_inputs
from hetplan.profiles.state import State
from hetplan.simulator.autoscale import OfflineWork, autoscale

__all__ = ["run"]

PERIOD_S = 10.0
SLACK = 1.3
PAPER_MS = {"active": 2.2, "not loaded": 3.5}
"""Table 7: decisions for queries that state requirements."""


@dataclass(frozen=True)
class Row:
    """One comparison: ours, what it must be (below or above) and whether it is."""

    figure: str
    what: str
    ours: float
    against: str
    beside: float
    holds: bool


def loads(data: Path, periods: int) -> list[float]:
    """A load over time, relative to its mean."""
    file = data / "ramsis" / "twitter_trace.json"
    if file.exists():
        held = [float(value) for value in json_text.loads(file.read_text())["qps"]][:periods]
    else:
        rng = random.Random(0)
        held = [1.0 + 0.5 * math.sin(k / 3.0) + rng.uniform(-0.2, 0.2) for k in range(periods)]
    mean = sum(held) / len(held)
    return [value / mean for value in held]


def snapshot(count: int) -> tuple[Any, Any, Any]:
    """A generated snapshot with room to grow; its loads are scaled down to what simulates in seconds."""
    profile, slo, _ = infaas_generator.inputs(count, 1, 3.0)
    slo["change"]["slack"] = SLACK
    for app in slo["apps"].values():
        app["demand"]["rate_qps"] = min(app["demand"]["rate_qps"], 60.0)
    slo["limits"] = {}
    return profile, slo, {"format": "hetplan/state/1.0"}


class _Played:
    """One way to scale, played over a load."""

    def __init__(self, documents: tuple[Any, Any, Any], formulation: str, options: Mapping[str, Any]) -> None:
        self.profile, self.slo, _ = documents
        self.inputs: Inputs = load_inputs(self.profile, self.slo)
        self.formulation, self.options, self.decided = formulation, options, list[float]()

    def plan(self, rates: Mapping[str, float], now: Plan | None) -> Plan | None:
        wanted = {
            **self.slo,
            "apps": {
                name: {**app, "demand": {**app["demand"], "rate_qps": rates[name]}}
                for name, app in self.slo["apps"].items()
            },
        }
        began = time.perf_counter()
        outcome = front_door.solve(
            self.profile, wanted, state=State(workers=now.workers) if now is not None else None, question="variants",
            formulation=self.formulation, options=self.options,
        )  # fmt: skip
        self.decided.append(1000 * (time.perf_counter() - began))
        return outcome.plan

    def over(self, shape: Sequence[float], *, offline: OfflineWork | None = None, threads: int = 1) -> dict[str, float]:
        base = {name: float(app["demand"]["rate_qps"]) for name, app in self.slo["apps"].items()}
        series = {name: [rate * value for value in shape] for name, rate in base.items()}
        first = front_door.solve(
            self.profile, self.slo, question="variants", options={**self.options}, formulation="milp"
        ).require()
        report = autoscale(
            first, self.inputs, self.plan, series=series, period_s=PERIOD_S, every_s=5.0, hold=3, offline=offline,
            threads=threads,
        )  # fmt: skip
        queries = {name: report.apps[name].queries_per_seed for name in series if name in report.apps}
        late = sum(report.apps[name].figures["violations"].value * n for name, n in queries.items())
        done = report.apps["offline-work"].figures["rate_qps"].value if offline is not None else 0.0
        cost = report.cost_per_hour.value if report.cost_per_hour is not None else math.nan
        return {"cost": cost, "late": late / max(sum(queries.values()), 1), "offline_qps": done}


def over_time(data: Path, *, quick: bool, threads: int) -> list[Row]:
    """Figs. 5 and 6: cost and violations of choosing variants, of replicating one, of standing still."""
    documents, shape = snapshot(4 if quick else 8), loads(data, 6 if quick else 20)
    shown = {
        name: _Played(documents, name, {}).over(shape, threads=threads)
        for name in ("columns", "replicate-only", "static")
    }
    ours, replicated = shown["columns"], shown["replicate-only"]
    return [
        Row("Fig. 5", "cost per hour of choosing variants", ours["cost"], "replicate-only", replicated["cost"],
            ours["cost"] <= replicated["cost"] * 1.05),
        Row("Fig. 6", "share of late queries", ours["late"], "static", shown["static"]["late"],
            ours["late"] <= shown["static"]["late"] + 1e-9),
        Row("Fig. 6", "share of late queries", ours["late"], "replicate-only", replicated["late"],
            ours["late"] <= replicated["late"] + 0.05),
    ]  # fmt: skip


def sharing(*, quick: bool) -> list[Row]:
    """Fig. 7: applications that share instances against each with its own."""
    profile, slo, state = infaas_generator.inputs(10 if quick else 25, 1, fives=False)
    families = list(slo["apps"])
    shared = {
        f"{name}-{k}": {**app, "demand": {"rate_qps": app["demand"]["rate_qps"] / 4}}
        for name, app in slo["apps"].items()
        for k in range(4)
    }
    wish = {**slo, "apps": shared, "limits": {}}
    cost = {}
    for mode in ("shared", "dedicated"):
        outcome = front_door.solve(profile, wish, state=state, question="variants", options={"sharing": mode})
        cost[mode] = next(p.value for p in outcome.require().promises if p.quantity == "gross_cost_per_hour")
    what = f"gross cost per hour, {len(families)} models for four applications each"
    return [Row("Fig. 7", what, cost["shared"], "dedicated", cost["dedicated"], cost["shared"] < cost["dedicated"])]


def offline(data: Path, *, quick: bool, threads: int) -> list[Row]:
    """Fig. 8: offline work beside online queries, standing aside or not."""
    documents, shape = snapshot(3), loads(data, 4 if quick else 10)
    alone = _Played(documents, "static", {}).over(shape, threads=threads)
    beside = _Played(documents, "static", {}).over(shape, offline=OfflineWork(40.0, 10.0), threads=threads)
    rude = _Played(documents, "static", {}).over(shape, offline=OfflineWork(40.0, 10.0, gated=False), threads=threads)
    return [
        Row("Fig. 8", "share of late queries, offline work gated", beside["late"], "not gated", rude["late"],
            beside["late"] <= rude["late"] + 0.01),
        Row("Fig. 8", "share of late queries, offline work gated", beside["late"], "no offline work", alone["late"],
            beside["late"] <= alone["late"] + 0.05),
        Row("Fig. 8", "offline jobs done per second", beside["offline_qps"], "none", 0.0, beside["offline_qps"] > 0),
    ]  # fmt: skip


def decisions() -> list[Row]:
    """Table 7: how long a choice takes."""
    shown = choosing()
    median = shown["get_variant_median_us"] / 1000
    return [Row("Table 7", "get_variant, median ms", median, "the paper, active", PAPER_MS["active"], median <= 0.1)]


def run(data: Path, *, json: bool, quick: bool, threads: int) -> int:
    """All comparisons; 1 where one does not hold."""
    rows = [
        *over_time(data, quick=quick, threads=threads), *sharing(quick=quick),
        *offline(data, quick=quick, threads=threads), *decisions(),
    ]  # fmt: skip
    if json:
        print(json_text.dumps([asdict(row) for row in rows], indent=1))
    else:
        for row in rows:
            sign = "holds" if row.holds else "DOES NOT HOLD"
            print(f"{row.figure:8} {row.what:55} {row.ours:12.6g}  against {row.against:18} {row.beside:12.6g}  {sign}")
    return 0 if all(row.holds for row in rows) else 1
