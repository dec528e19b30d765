"""How often intervals of simulated percentiles hold the truth: reports of M/M/1 near capacity by the engine itself.

    python benchmarks/intervals.py [--load 0.97] [--seeds 5] [--first 0] [--reports 25] [--top 99] [--keep FILE]

Every report is one `simulate_system` as `hetplan simulate` makes it, runs as long as it finds right for percentile
`--top`. With `--keep` each report is a line of that file, reports that stand there already are not made again, and the
counts are over all of them: 200 reports are made in as many slices as one likes.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from hetplan.profiles.slo import Arrivals
from hetplan.serving.system import App, Group, Load, Route, Rule, Service, Stage, System, Way
from hetplan.simulator.demand import AppDemand
from hetplan.simulator.simulate import simulate_system

SERVICE_MS, SLO_MS = 10.0, 100.0
PERCENTILES = (50.0, 90.0, 95.0, 99.0, 99.9)


def truths(load: float) -> dict[str, float]:
    """The mean response and percentiles of M/M/1, whose responses are exponential, and the share beyond the limit."""
    mean = SERVICE_MS / (1.0 - load)
    found = {"mean": mean, "late": math.exp(-SLO_MS / mean)}
    return found | {f"p{at:g}": -mean * math.log(1.0 - at / 100.0) for at in PERCENTILES}


def report(load: float, *, seed: int, seeds: int, top: float) -> dict[str, Any]:
    """One report's figures with their intervals, and what it took."""
    servers = Load("serve", {"ask": Service(np.array([[SERVICE_MS]]))})
    system = System(
        apps=(App("ask", (Stage("only"),), slo_ms=SLO_MS),),
        groups=(Group("gpu", (servers,)),),
        routes=(Route("ask", "only", (Way("gpu", "serve"),), rule=Rule.CENTRAL),),
    )
    demand = AppDemand("ask", 0, 1000.0 * load / SERVICE_MS, Arrivals(), SLO_MS, top)
    started = time.process_time()
    found = simulate_system(
        system, [demand], seeds=seeds, seed=seed, noise="exponential", threads=1, percentiles=PERCENTILES
    )
    figures = found.apps["ask"]
    estimates = {"mean": figures.figures["mean_ms"], "late": figures.figures["violations"]}
    estimates |= {f"p{at:g}": one for at, one in figures.percentiles_ms.items()}
    return {
        "load": load,
        "seeds": seeds,
        "seed": seed,
        "top": top,
        "queries_per_run": figures.queries_per_seed,
        "cpu_s": round(time.process_time() - started, 2),
        "figures": {name: [one.value, one.low, one.high] for name, one in estimates.items()},
        "warnings": [code for code, _, _ in found.warnings],
    }


def counted(found: list[dict[str, Any]]) -> list[str]:
    """A line per figure: held, missed below and above, and how wide the intervals were."""
    true = truths(found[0]["load"])
    each, spent = (float(np.median([one[name] for one in found])) for name in ("queries_per_run", "cpu_s"))
    lines = [
        f"{len(found)} reports of {found[0]['seeds']} seeds at load {found[0]['load']:g}, runs for "
        f"p{found[0]['top']:g}: {each:,.0f} queries per run, {spent:.2f} CPU s each (medians)"
    ]
    for name, truth in true.items():
        of = np.array([one["figures"][name] for one in found])
        below, above = int((of[:, 2] < truth).sum()), int((of[:, 1] > truth).sum())
        width = np.median(of[:, 2] - of[:, 1]) / truth
        endless = int(np.isinf(of[:, 2]).sum())
        lines.append(
            f"{name:>6} {truth:10.4g}: {len(of) - below - above} hold it ({(len(of) - below - above) / len(of):.1%}), "
            f"{below} lie below, {above} above; as wide as {width:.2f} of it (median)"
            + (f", {endless} without an end" if endless else "")
        )
    return lines


def main(argv: list[str]) -> int:
    """Make the reports that are missing, and count over all of this load, number of seeds and percentile."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--load", type=float, default=0.97)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--reports", type=int, default=25)
    parser.add_argument("--top", type=float, default=99.0)
    parser.add_argument("--keep", type=Path)
    given = parser.parse_args(argv)
    lines = given.keep.read_text().splitlines() if given.keep is not None and given.keep.exists() else []
    found = [one for one in map(json.loads, lines) if one["load"] == given.load and one["seeds"] == given.seeds]
    found = [one for one in found if one["top"] == given.top]
    for seed in range(given.first, given.first + given.reports):
        if any(one["seed"] == seed for one in found):
            continue
        found.append(report(given.load, seed=seed, seeds=given.seeds, top=given.top))
        if given.keep is not None:
            with given.keep.open("a") as kept:
                kept.write(json.dumps(found[-1]) + "\n")
    print("\n".join(counted(found)) if found else "no reports")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
