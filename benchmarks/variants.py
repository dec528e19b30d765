"""How fast and how good variant autoscaling is: columns beside the whole program and the greedy rule, in one run.

    python benchmarks/variants.py [--json] [--sizes 22,50,100,300,1000] [--tight 1.15,0.9] [--seeds 14]

Snapshots of the seeded generator at capacities with room (1.15 times what the loads use one by one) and without (1.0
to 0.9). With `--seeds`, columns alone over so many seeds of each size: what they leave open at worst.

Milliseconds of CPU: reading the files (once per profile), posing and deciding, and the whole way of
`Planner.plan` with the profile read: wish and state read, posed, decided, written with its proof, and verified. For the
greedy rule also what the rule alone takes, on a problem that is posed. The gaps of columns are certified.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "papers")]

from hetplan import registry
from hetplan.api.planner import Planner
from hetplan.api.solve import choose, pose
from hetplan.planner.answer import Limits
from hetplan.planner.draft import Draft
from hetplan.planner.solver_calls import Asking
from hetplan.problems.variants.question import Variants
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.load import load_inputs
from hetplan.profiles.profile import Profile
from hetplan.profiles.validate import collector_at_rest
from hetplan_papers.datasets import infaas_generator
from hetplan_papers.reproduce.variants import choosing
from hetplan_papers.variants.rules import greedy_counts

Row = dict[str, Any]
PLANNED = {"sizing": "fluid"}
"""Sizes as in the paper, for every formulation."""
FORMULATIONS = ("variants-columns", "variants-milp", "greedy")
MOST_FOR_MILP = 1000
TIGHT = (1.15, 1.0, 0.95, 0.9)


def cpu_ms(work: Callable[[], Any]) -> tuple[float, Any]:
    """CPU milliseconds of one call, and what it returned."""
    began = time.process_time()
    found = work()
    return 1000 * (time.process_time() - began), found


def planned(count: int, seed: int, tight: float, *, repeat: int) -> list[Row]:
    """One snapshot by every formulation."""
    profile, slo, state = infaas_generator.inputs(count, seed, tight)
    read_ms, inputs = cpu_ms(lambda: load_inputs(Profile.model_validate(profile), slo, state=state))
    rows = []
    for name in FORMULATIONS:
        if name == "variants-milp" and count > MOST_FOR_MILP:
            continue
        row: Row = {"architectures": count, "tight": tight, "formulation": name, "read_files_ms": read_ms}
        times = 1 if name == "variants-milp" and count > 100 else repeat
        rows.append(row | _decided(inputs, name, times))
        planner = Planner(profile, slo, formulation=f"variants/{name}", options=PLANNED)
        planner.plan(state=state) if times > 1 else None
        whole = [cpu_ms(lambda planner=planner: planner.plan(state=state))[0] for _ in range(times)]
        rows[-1]["whole_ms"] = statistics.median(whole)
    return rows


def _decided(inputs: Inputs, name: str, times: int) -> Row:
    """Posed and decided so many times: how long that takes, and what comes of it."""
    choice = choose(inputs, question="variants", formulation=name, options=PLANNED)
    spent, alone, draft, engine = [], [], None, ""
    for _ in range(times):
        ask = Asking(registry.solvers(), Limits())
        ms, draft = cpu_ms(lambda ask=ask: pose(inputs, choice).decide(ask))
        spent.append(ms)
        engine = ", ".join(record.engine for record in ask.records)
        if name == "greedy":
            posed = cast(Variants, pose(inputs, choice))
            _ = posed.snapshot.rooms
            with collector_at_rest():  # as `decide` runs it
                alone.append(cpu_ms(lambda posed=posed: greedy_counts(posed.snapshot))[0])
    row: Row = {"pose_and_decide_ms": statistics.median(spent), "engines": engine}
    if alone:
        row["rule_ms"] = statistics.median(alone)
    if isinstance(draft, Draft):
        (gross,) = [p.value / 3600 for p in draft.promises if p.quantity == "gross_cost_per_hour"]
        bounds = [record.certificates[-1].certified_bound for record in ask.records]
        bound = max((bound for bound in bounds if bound is not None), default=None)
        row |= {
            "gross_per_s": gross,
            "gap": None if bound is None else (gross - bound / 3600) / gross,
            "unserved": sum(1 for one in draft.unserved if one.rate_qps > 0),
        }
    return row


def over_seeds(count: int, seeds: int, tight: float) -> Row:
    """Columns over many snapshots: milliseconds, and the certified gap at worst; those that cannot be served apart."""
    rows = []
    for seed in range(seeds):
        profile, slo, state = infaas_generator.inputs(count, seed, tight)
        rows.append(_decided(load_inputs(Profile.model_validate(profile), slo, state=state), "columns", 1))
    served = [row for row in rows if "gap" in row]
    if not served:
        return {"architectures": count, "tight": tight, "served": 0, "of": seeds}
    spent, gaps = ([float(row[key]) for row in served] for key in ("pose_and_decide_ms", "gap"))
    return {
        "architectures": count, "tight": tight, "served": len(served), "of": seeds,
        "median_ms": statistics.median(spent), "most_ms": max(spent),
        "median_gap": statistics.median(gaps), "most_gap": max(gaps), "closed": sum(gap <= 1e-6 for gap in gaps),
    }  # fmt: skip


def main(argv: list[str]) -> int:
    """Print the table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--sizes", default="22,50,100,300,1000")
    parser.add_argument("--seeds", type=int, default=0)
    parser.add_argument("--tight", default=",".join(map(str, TIGHT)))
    chosen = parser.parse_args(argv)
    planned(22, 1, 1.15, repeat=1)
    tights = [float(text) for text in chosen.tight.split(",")]
    if chosen.seeds:
        for size in (int(text) for text in chosen.sizes.split(",")):
            for tight in tights:
                print(json.dumps(over_seeds(size, chosen.seeds, tight)))
        return 0
    rows: list[Row] = []
    for size in (int(text) for text in chosen.sizes.split(",")):
        for tight in tights:
            rows += planned(size, 0, tight, repeat=3)
    choice = choosing()
    if chosen.json:
        print(json.dumps({"plans": rows, "get_variant": choice}, indent=1))
        return 0
    print(
        f"{'archs':>6} {'tight':>6} {'formulation':12} {'decide ms':>9} {'whole ms':>9} {'rule ms':>8} "
        f"{'gross/s':>12} {'gap':>9} {'unserved':>8}  engines"
    )
    for row in rows:
        gap = "" if row.get("gap") is None else f"{row['gap']:.1e}"
        print(
            f"{row['architectures']:6d} {row['tight']:6.2f} {row['formulation']:12} {row['pose_and_decide_ms']:9.1f} "
            f"{row['whole_ms']:9.1f} {row.get('rule_ms', float('nan')):8.1f} "
            f"{row.get('gross_per_s', float('nan')):12.6f} {gap:>9} {row.get('unserved', '-')!s:>8}  {row['engines']}"
        )
    print(
        f"get_variant: median {choice['get_variant_median_us']:.1f} us, "
        f"the first of a snapshot {choice['first_on_a_new_snapshot_us']:.0f} us"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
