"""Default plans beside those of 0d1c952c: what they cost, whether they are late, and the CPU seconds that they took.

    python benchmarks/reference/sized.py [--kinds pool,llm] [--seeds 20]

Random instances of each kind, drawn by the generators of `benchmarks/kept*.py` from seed 20,000 on, are solved with the
default size. Each plan is simulated by 10 runs of 30,000 queries or more, with seeds that no search uses. It is late
where the lower end of a 99% interval of the share beyond some limit is above what may be. `sized.json` has the same of
0d1c952c. It is made in two steps: `--solve FOLDER` with a wheel of that commit, in an environment of its own, writes
its plans, and `--record FOLDER` with this hetplan judges them.

Compared are instances of which neither plan is late. A ratio is cost over recorded cost (of quality, rate or goodput
the other way round), so less is better.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path += [str(ROOT), str(ROOT / "benchmarks")]

from scipy.special import stdtrit

import hetplan as hp
from benchmarks import kept, kept_compound
from benchmarks.reference.planned import KINDS as PLANNED
from benchmarks.reference.planned import handed_over

__all__ = ["KINDS", "judged", "solved"]

Json = dict[str, Any]
FIRST, UNSEEN = 20_000, 8_000_009
RUNS, QUERIES, MOST_QUERIES = 10, 30_000, 300_000
SURE = 0.99
RECORDED = Path(__file__).with_name("sized.json")


def _policy(kind: str, seed: int) -> tuple[Json, Json]:
    made = kept.QUESTIONS[kind].make(seed)
    return made.profile, made.slo


def _compound(seed: int) -> tuple[Json, Json, Json]:
    one = kept_compound.case(seed)
    return one.profile, one.slo, one.measured


KINDS: Mapping[str, Callable[[int], tuple[Json, ...]]] = {
    **{kind: make for kind, (_, make) in PLANNED.items() if kind != "pipeline-nodes"},
    "policy": partial(_policy, "policy"),
    "compound": _compound,
}
"""Kind -> the files of a seed: profile, SLO and, where there are some, measurements."""


def solved(kind: str, seed: int) -> tuple[Json, Any]:
    """Status, objective and CPU seconds of the default plan of an instance, and the plan."""
    files = handed_over(*KINDS[kind](seed))
    question = kind if kind == "policy" else kind.partition("-")[0]
    begun = time.process_time()
    try:
        found = hp.solve(*files, formulation=question)
    except hp.InputError as error:
        return {"status": "refused", "why": str(error)[:120]}, None
    row: Json = {"status": str(found.status), "cpu_s": round(time.process_time() - begun, 2)}
    if found.plan is None or found.exit_code or not found.plan.claims:
        return row, None
    claim = found.plan.claims[0]
    return row | {"about": f"{claim.sense} {claim.about}", "value": claim.value}, found.plan


def judged(kind: str, seed: int, row: Json, plan: Any) -> Json:
    """The same with how late the plan is."""
    return row if plan is None else row | {"late": round(lateness(kind, seed, plan), 3)}


def lateness(kind: str, seed: int, plan: Any) -> float:
    """The lower end of the share beyond a limit, as a part of what may be; the worst of all limits."""
    files = handed_over(*KINDS[kind](seed))
    noise = kept.QUESTIONS[kind].noise if kind in kept.QUESTIONS else "table"
    inputs = hp.load(*files)
    apps = inputs.slo.apps
    length_s = None
    if plan.question != "llm":
        rates = {name: _rate(plan, name, app) for name, app in apps.items()}
        cycle_s = max(sum(app.arrivals.stay_s or ()) for app in apps.values())
        length_s = min(max(QUERIES / min(rates.values()), 40.0 * cycle_s), MOST_QUERIES / sum(rates.values()))
    how: Json = {"seeds": RUNS, "seed": UNSEEN, "duration_s": length_s, "noise": noise}
    report = hp.simulate(plan, *files, **how)
    worst = 0.0
    for name, app in apps.items():
        allowed = {target: 1.0 - target.percentile / 100.0 for target in app.targets}
        for target, share in allowed.items():
            if name not in report.apps or target.of not in report.apps[name].responses:
                continue
            runs = report.apps[name].responses[target.of].runs
            beyond = [float(run.share_beyond(target.max_ms)) for run in runs]
            slip = float(stdtrit(len(beyond) - 1, SURE)) * statistics.stdev(beyond) / math.sqrt(len(beyond))
            worst = max(worst, (statistics.mean(beyond) - slip) / max(share, 1e-9))
    return worst


def _rate(plan: Any, name: str, app: Any) -> float:
    if app.stated_qps is not None:
        return float(app.stated_qps)
    return float(next(one.value for one in plan.promises if one.app == name and one.quantity == "rate_qps"))


def ratio(row: Json, then: Json) -> float | None:
    """Cost over recorded cost; None where there are not two plans that are in time."""
    if "value" not in row or "value" not in then or row["about"] != then["about"] or max(row["late"], then["late"]) > 1:
        return None
    pair = (row["value"], then["value"]) if row["about"].startswith("min") else (then["value"], row["value"])
    return pair[0] / pair[1] if pair[1] > 0 else 1.0


def summary(kind: str, rows: Mapping[str, Json], known: Mapping[str, Json]) -> str:
    """What came of a kind, in a few lines."""
    ratios = {seed: one for seed, row in rows.items() if (one := ratio(row, known[seed])) is not None}
    late = [seed for seed, row in rows.items() if row.get("late", 0.0) > 1.0]
    before = [seed for seed in rows if known[seed].get("late", 0.0) > 1.0]
    lost = [seed for seed, row in rows.items() if "value" not in row and known[seed].get("late", 2.0) <= 1.0]
    mean = math.exp(statistics.fmean(math.log(one) for one in ratios.values())) if ratios else math.nan
    cpu, then = (sum(one.get("cpu_s", 0.0) for one in some) for some in (rows.values(), [known[s] for s in rows]))
    pairs = [rows[seed]["cpu_s"] / max(known[seed]["cpu_s"], 0.01) for seed in rows if "cpu_s" in rows[seed]]
    worse = {seed: round(one, 3) for seed, one in ratios.items() if one > 1.05}
    return (
        f"{kind}: {len(rows)} instances, {len(ratios)} compared: geometric mean {mean:.4f}, above 1.05: {worse or 0}; "
        f"late: {late or 0} (recorded {before or 0}); refused, and not then: {lost or 0}; "
        f"CPU s {cpu:.1f} ({then:.1f} recorded, median ratio {statistics.median(pairs):.2f})"
    )


def main() -> int:
    """Solve them all; write what came out, or hold it against what is recorded."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=FIRST)
    parser.add_argument("--each", action="store_true", help="a line per instance")
    parser.add_argument("--solve", type=Path, metavar="FOLDER", help="write what is solved, and compare nothing")
    parser.add_argument("--record", type=Path, metavar="FOLDER", help="judge what is there, and record it")
    given = parser.parse_args()
    known: Json = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    for kind in given.kinds.split(","):
        rows = dict[str, Json]()
        for seed in range(given.first, given.first + given.seeds):
            at = (given.solve or given.record or Path()) / f"{kind}-{seed}.json"
            if given.solve is not None:
                row, plan = solved(kind, seed)
                said = None if plan is None else plan.model_dump(mode="json", by_alias=True, exclude_none=True)
                at.write_text(json.dumps({"row": row, "plan": said}))
            elif given.record is not None and at.exists():
                read = json.loads(at.read_text())
                plan = read["plan"] and hp.Plan.model_validate(read["plan"])
                known.setdefault(kind, {})[str(seed)] = judged(kind, seed, read["row"], plan)
                RECORDED.write_text(json.dumps(known, indent=0, sort_keys=True) + "\n")
            elif given.record is None and str(seed) in known.get(kind, {}):
                rows[str(seed)] = judged(kind, seed, *solved(kind, seed))
                if given.each:
                    print(kind, seed, rows[str(seed)], known[kind][str(seed)], flush=True)
        if rows:
            print(summary(kind, rows, known[kind]), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
