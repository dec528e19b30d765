"""Loki's figures beside ours: the published program, the day under load, what is dropped, the sweep of limits, routing.

    python -m hetplan_papers.reproduce pipeline --data DIR
    python -m hetplan_papers.reproduce.pipeline fig-7 [fig-5 ...] [--data DIR] [--json]      # figure by figure

Loki's traces and branching series were never published, so the day is a seeded one of the same shape (diurnal, peak
eight times the trough); what is checked there is the order of the systems, not their numbers. Service times are the
profile's p50, which its plans rest on: the published means are up to ten times as long and would be planned by
`quantile=mean`.
"""

from __future__ import annotations

import argparse
import copy
import json as json_text
import math
import random
import sys
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import hetplan as hp
from hetplan.extend import PipelineHost, most_accurate_first
from hetplan_papers.datasets import loki
from hetplan_papers.datasets.sources import DATA, handed_on, planned
from hetplan_papers.reproduce.pool.rows import Check, Row, as_json, at_least, at_most, near, shown

__all__ = ["run"]

Json = dict[str, Any]

PLANNED = {"sizing": "fluid"}
"""Servers filled to the brim, as the paper sizes them; by default hetplan leaves room for queues."""

TITLES = {
    "program": "The published integer program, the paper's form and ours (traffic chain, 20 servers, percent)",
    "paths": "Most accurate first on the optimal plans (percent of the queries)",
    "Fig. 5": "A diurnal day on the traffic pipeline: Loki, InferLine, Proteus",
    "Fig. 6": "The same on the social pipeline",
    "Fig. 7": "What becomes of late requests: violations by policy",
    "Fig. 8": "Accuracy and violations over latency limits",
    "routing": "Time to route",
}


FIGURES = ("program", "paths", "fig-5", "fig-6", "fig-7", "fig-8", "routing")


def run(
    data: Path, *, json: bool = False, quick: bool = False, threads: int = 1, figures: Sequence[str] = FIGURES
) -> int:
    """These figures; 1 when a row is off."""
    if not (data / "loki").exists():
        print(f"no Loki data under {data}; set --data or HETPLAN_DATA")
        return 0
    made = {
        "program": lambda: _program(data, quick),
        "paths": lambda: _paths(data),
        "fig-5": lambda: _day("Fig. 5", lambda qps: loki.traffic_chain(qps, data=data), (60, 480), quick, threads),
        "fig-6": lambda: _day("Fig. 6", lambda qps: loki.social(qps, data=data), (30, 240), quick, threads),
        "fig-7": lambda: _dropping(data, quick, threads),
        "fig-8": lambda: _limits(data, quick, threads),
        "routing": _routing,
    }
    rows = [row for figure in figures for row in made[figure]()]
    print(as_json(rows, question="pipeline") if json else shown(rows, TITLES))
    return int(any(row.off for row in rows))


def accuracy(outcome: Any) -> float:
    """A plan's accuracy, percent; NaN without a plan."""
    if outcome.plan is None:
        return math.nan
    return 100.0 * next(claim.value for claim in outcome.plan.claims if claim.about == "quality")


def _program(data: Path, quick: bool) -> list[Row]:
    """Their answers were made with share bounds, two servers kept back and a floor under the demand."""
    theirs = {row["D"]: row for row in json_text.loads((data / "loki/theirs_gurobi_traffic.json").read_text())}
    rows = []
    for demand in (207, 300, 600, 1000) if quick else (207, 208, 250, 300, 450, 600, 800, 1000, 1300, 1800, 2300):
        ours = accuracy(hp.solve(*handed_on(loki.traffic_chain(demand, data=data)), options=PLANNED))
        paper = accuracy(
            hp.solve(*handed_on(loki.traffic_chain(demand, data=data)), options=PLANNED, formulation="loki")
        )
        published = theirs.get(float(demand), {}).get("acc")
        checks = [near("paper form", paper, 2e-8, "one hardware: the programs are equal")]
        if published is not None:
            checks.append(
                at_least("published code", published - 0.2, "it admits 0.1% on slow paths and rounds factors")
            )
        rows.append(
            Row("program", f"{demand} qps", "%", ours, code=published, source="theirs_gurobi_traffic.json",
                said=f"paper form {paper:.4f}", checks=tuple(checks))
        )  # fmt: skip
    return rows


def _paths(data: Path) -> list[Row]:
    """What Algorithm 1 loses on the plans of the program."""
    said = json_text.loads((data / "loki/maf_on_milp_plans.json").read_text())
    clean = sum(1 for row in said if row["unserved_pct"] <= 1e-6 and row["slo_infeasible_pct"] <= 1e-6)
    kept = 0
    for row in said:
        files = loki.traffic_chain(row["D"], data=data)
        outcome = hp.solve(*handed_on(files), options={**PLANNED, "routing": "most-accurate-first"})
        kept += not any(notice.code == "W-routing" for notice in outcome.require().warnings)
    note = "plans of equal value differ, and with them what a routing blind to paths makes of them"
    return [Row("paths", f"plans of {len(said)} that it keeps", "plans", float(kept), code=float(clean),
                source="maf_on_milp_plans.json", checks=(Check("some, not all", 1, len(said) - 1, note),))]  # fmt: skip


def _day(figure: str, files: Any, ends: tuple[float, float], quick: bool, threads: int) -> list[Row]:
    """Ten minutes like a day, planned anew every minute for its forecast, simulated minute by minute."""
    chance = random.Random(5)
    low, high = ends
    steps = 6 if quick else 12
    rates = [
        (low + (high - low) * 0.5 * (1 - math.cos(2 * math.pi * (k + 0.5) / steps))) * chance.uniform(0.93, 1.07)
        for k in range(steps)
    ]
    systems = {"loki": ("pipeline-milp", 0.35), "inferline": ("inferline", 0.35), "proteus": ("proteus", 0.35)}
    rows, found = [], {}
    for name, (formulation, headroom) in systems.items():
        right = late = answered = servers = 0.0
        failed = 0
        for rate in rates:
            profile, slo = files(round(rate, 2))
            outcome = hp.solve(
                planned(profile), slo, formulation=formulation, options={**PLANNED, "headroom": headroom}
            )
            if outcome.plan is None:
                failed += 1
                late += rate
                continue
            report = hp.simulate(
                outcome.plan, planned(profile), slo, seeds=2, duration_s=20, noise="p50", threads=threads
            )
            figures = next(iter(report.apps.values())).figures
            dropped = sum(one.rate_qps for one in outcome.plan.unserved)
            in_time = figures["in_time"].value * (rate - dropped)
            right += figures["accuracy"].value * in_time if in_time else 0.0
            answered += in_time
            late += rate - in_time
            servers += sum(worker.count for worker in outcome.plan.workers)
        found[name] = (right / answered if answered else 0.0, late / sum(rates), servers / steps, failed)
    for name, (quality, violated, count, failed) in found.items():
        said = f"accuracy {100 * quality:.2f}%, {count:.1f} servers on the mean" + (
            f", {failed} failed" if failed else ""
        )
        rows.append(Row(figure, f"{name}: not in time or not served", "%", 100 * violated, said=said))
    best = found["loki"][1]
    for other in ("inferline", "proteus"):
        ratio = found[other][1] / max(best, 1e-9)
        # Beside one another, steps that plan on their own are not wrong about each other: there is no order to keep.
        checked = figure == "Fig. 5" or other == "inferline"
        checks = (at_least("the paper's order", 1.0, "the same day"),) if checked else ()
        note = (
            "" if checked else "two steps side by side: planning them apart costs no latency, and leaves more servers"
        )
        rows.append(Row(figure, f"violations of {other} / loki", "x", ratio, checks=checks, note=note))
    return rows


def _dropping(data: Path, quick: bool, threads: int) -> list[Row]:
    """One plan beyond hardware scaling, with 30% headroom, at growing multiples of the demand that it was made for."""
    order = ("serve", "drop-last-task", "drop-per-task", "reroute")
    rows = []
    for rush in (1.3,) if quick else (1.1, 1.2, 1.3, 1.4, 1.5):
        shares = {}
        for late in order:
            profile, slo = loki.traffic_chain(600, data=data)
            slo["apps"]["cars"]["late"] = late
            plan = hp.solve(planned(profile), slo, options={**PLANNED, "headroom": 0.3}).require()
            hurried = copy.deepcopy(slo)
            hurried["apps"]["cars"]["rate_qps"] = 600 * rush
            report = hp.simulate(plan, planned(profile), hurried, seeds=2 if quick else 3,
                              duration_s=30 if quick else 40, noise="p50", threads=threads)  # fmt: skip
            figures = report.apps["cars"].figures
            shares[late] = figures["violations"].value
            said = f"accuracy {100 * figures['served_accuracy'].value:.2f}%"
            rows.append(Row("Fig. 7", f"{late}, {rush:g} x the demand", "% violated", 100 * shares[late], said=said))
        for worse, better in pairwise(order):
            ratio = shares[better] / max(shares[worse], 1e-9)
            # Below, next to nothing is late, and whoever drops by budgets drops in vain; above, nothing is left over.
            checks = (at_most("the paper's order", 1.0, "the same arrivals"),) if rush in (1.3, 1.4) else ()
            rows.append(
                Row("Fig. 7", f"{better} / {worse}, {rush:g} x", "x", ratio, said="paper: below 1", checks=checks)
            )
    return rows


def _limits(data: Path, quick: bool, threads: int) -> list[Row]:
    """The higher the limit, the better the accuracy and the fewer the violations."""
    rows, before = [], -1.0
    for slo_ms in (200, 300, 400) if quick else (200, 250, 300, 350, 400):
        profile, slo = loki.traffic_chain(400, slo_ms=slo_ms, data=data)
        outcome = hp.solve(planned(profile), slo, options={**PLANNED, "headroom": 0.35})
        ours = accuracy(outcome)
        report = hp.simulate(
            outcome.require(), planned(profile), slo, seeds=2, duration_s=30, noise="p50", threads=threads
        )
        violated = report.apps["cars"].figures["violations"].value
        checks = (at_least("a tighter limit", before, "more time never costs accuracy"),) if before >= 0 else ()
        rows.append(Row("Fig. 8", f"{slo_ms} ms", "%", ours, said=f"{100 * violated:.2f}% violated", checks=checks))
        before = ours - 1e-6
    return rows


def _routing() -> list[Row]:
    rows = []
    for servers, most in ((20, 0.05), (200, 0.3)):
        half = servers // 2
        hosts = [PipelineHost(f"a{i}", "a", 1 - i / 1000, 10, {"b": 2.0}) for i in range(half)]
        hosts += [PipelineHost(f"b{i}", "b", 1 - i / 1000, 20) for i in range(half)]
        runs = []
        for _ in range(50):
            began = time.perf_counter()
            most_accurate_first(hosts, {"a": ["b"], "b": []}, 9.0 * half)
            runs.append(1000 * (time.perf_counter() - began))
        checks = (at_most("target", most, "the paper routes within milliseconds"),)
        rows.append(Row("routing", f"{servers} servers", "ms", sorted(runs)[len(runs) // 2], checks=checks))
    return rows


def main(argv: list[str]) -> int:
    """Some of the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("figures", nargs="*", choices=FIGURES, default=FIGURES)
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the published data (or HETPLAN_DATA)")
    parser.add_argument("--json", action="store_true", help="rows as JSON instead of tables")
    parser.add_argument("--quick", action="store_true", help="fewer demands and shorter runs")
    given = parser.parse_args(argv)
    return run(given.data.resolve(), json=given.json, quick=given.quick, figures=given.figures)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
