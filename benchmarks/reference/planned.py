"""What plans at fluid rates cost beside those of 0d1c952c: the gate that every problem passes when its program moves.

    python benchmarks/reference/planned.py [--kinds pool,llm] [--record]

Random instances of each kind, seeds from 20,000 on, drawn by the generators of `benchmarks/kept*.py`, are solved with
`sizing=fluid`. `planned.json` has what 0d1c952c made of them: status, objective, CPU seconds. `--record` writes that
file anew from the hetplan that is installed: only a wheel of 0d1c952c, in an environment of its own, should do so.
A figure that is worse than recorded is listed, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path += [str(ROOT), str(ROOT / "benchmarks")]

import hetplan as hp
from benchmarks import kept, kept_pipelines

__all__ = ["KINDS", "handed_over", "planned"]

Json = dict[str, Any]
FIRST = 20_000
RECORDED = Path(__file__).with_name("planned.json")
LIMIT_S = 30.0
"""What is not planned by then is not compared: one of the 350 takes minutes."""
SAME = 1e-6
"""Objectives nearer than this are the same: solvers stop within 1e-7 of each row."""


def _kept(kind: str, seed: int) -> tuple[Json, Json]:
    made = kept.QUESTIONS[kind].make(seed)
    return made.profile, made.slo


def _text(seed: int) -> tuple[Json, Json]:
    from benchmarks import kept_text

    made = kept_text.case(seed)
    return made.profile, made.slo


KINDS: Mapping[str, tuple[int, Callable[[int], tuple[Json, Json]]]] = {
    "pool": (30, partial(_kept, "pool")),
    "pool-wide": (55, partial(_kept, "pool-wide")),
    "variants": (30, partial(_kept, "variants")),
    "variants-wide": (55, partial(_kept, "variants-wide")),
    "variants-shared": (15, partial(_kept, "variants-shared")),
    "llm": (60, _text),
    "pipeline": (40, kept_pipelines.pipeline),
    "pipeline-fair": (20, kept_pipelines.fair),
    "pipeline-wide": (20, kept_pipelines.wide),
    "pipeline-nodes": (25, kept_pipelines.nodes),
}
"""Kind -> how many instances, and the files of a seed."""


def handed_over(profile: Json, slo: Json, *measured: Json) -> tuple[Any, ...]:
    """The files of an instance, in the sections that are planned with; the recorded plans knew no error of laws."""
    if "engines" in profile:
        slo = {**slo, "robust": {"law": False}}
    return hp.Profile.model_validate(profile), slo, *measured


def planned(files: tuple[Json, Json]) -> Json:
    """Status, objective (with its sense) and CPU seconds of the plan at fluid rates."""
    begun = time.process_time()
    try:
        found = hp.solve(*handed_over(*files), options={"sizing": "fluid"}, time_limit=LIMIT_S)
    except hp.InputError as error:
        return {"status": "refused", "why": str(error)[:120]}
    row: Json = {"status": str(found.status), "cpu_s": round(time.process_time() - begun, 3)}
    if found.plan is not None and found.plan.claims:
        claim = found.plan.claims[0]
        row |= {"about": f"{claim.sense} {claim.about}", "value": claim.value}
    return row


def worse(row: Json, recorded: Json) -> str:
    """How a result is worse than the recorded one; "" where it is not."""
    if "value" not in recorded:
        return f"a plan, where {recorded['status']} was recorded" if "value" in row else ""
    if "value" not in row:
        return f"no plan ({row['status']}), {recorded['value']:.6g} recorded"
    if row["about"] != recorded["about"]:
        return f"{row['about']}, where {recorded['about']} was recorded"
    least = recorded["about"].startswith("min")
    more = (row["value"] - recorded["value"]) * (1 if least else -1)
    if more <= SAME * max(abs(recorded["value"]), 1e-9):
        return ""
    return f"{row['about']} {row['value']:.9g}, {recorded['value']:.9g} recorded"


def main() -> int:
    """Solve them all; write what came out, or hold it against what is recorded."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--record", action="store_true")
    given = parser.parse_args()
    known = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    failed = 0
    for kind in given.kinds.split(","):
        count, make = KINDS[kind]
        rows = {str(seed): planned(make(seed)) for seed in range(FIRST, FIRST + count)}
        seconds = [row.get("cpu_s", 0.0) for row in rows.values()]
        if given.record:
            known[kind] = rows
            RECORDED.write_text(json.dumps(known, indent=0, sort_keys=True) + "\n")
            print(f"{kind}: {len(rows)} recorded, {sum(seconds):.1f} CPU s", flush=True)
            continue
        then = [known[kind][seed].get("cpu_s", 0.0) for seed in rows]
        faults = {seed: text for seed, row in rows.items() if (text := worse(row, known[kind][seed]))}
        better = sum({"value"} <= row.keys() & known[kind][seed].keys() and bool(worse(known[kind][seed], row))
                     for seed, row in rows.items())  # fmt: skip
        failed += len(faults)
        print(
            f"{kind}: {len(rows)} instances, {len(faults)} worse, {better} better; CPU s median "
            f"{statistics.median(seconds):.3f} ({statistics.median(then):.3f} recorded), "
            f"sum {sum(seconds):.1f} ({sum(then):.1f})"
        )
        for seed, text in faults.items():
            print(f"  {seed}: {text}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
