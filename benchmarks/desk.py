"""How soon the desk answers a movement: every shipped example, as its page asks, without the network.

usage: python benchmarks/desk.py [--against CHECKOUT] [--rounds 5] [--only WORD] [--seconds 60] [--profile]

Each round moves one number of the SLO file (budget, rate, limit on latency or resources) to another place, and asks `/desk/look`.
The median of the rounds is shown in milliseconds of wall time and of CPU time, after one look that is not counted; and
beside them the first look, and one after a price was moved. With `--against` another checkout is measured in turns, so
that the ratios hold whatever else the machine does. `--profile` shows where the time of one movement goes.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import os
import pstats
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = {
    "compound": ("compound/profile.json", "compound/slo.json", "compound/measured.json"),
    "compound rate": ("compound/profile.json", "compound/rate-slo.json", "compound/measured.json"),
    "compound candidates": ("compound/candidates-profile.json", "compound/candidates-slo.json"),
    "fleet": ("fleet/profile.json", "fleet/slo.json"),
    "llm": ("llm/profile.json", "llm/slo.json"),
    "llm disaggregated": ("llm-disaggregated/profile.json", "llm-disaggregated/slo.json"),
    "pipeline street": ("pipeline/profile.json", "pipeline/slo.json"),
    "pipeline social": ("pipeline/social-profile.json", "pipeline/social-slo.json"),
    "policy": ("policy/profile.json", "policy/slo.json"),
    "policy fewest": ("policy/profile.json", "policy/fewest.slo.json"),
    "pool": ("pool/profile.json", "pool/slo.json"),
    "pool llm": ("pool/llm-profile.json", "pool/llm-slo.json"),
    "variants": ("variants/profile.json", "variants/slo.json"),
    "end-to-end pool": ("end-to-end/profile.json", "end-to-end/pool.slo.json"),
    "end-to-end variants": ("end-to-end/profile.json", "end-to-end/variants.slo.json"),
    "end-to-end pipeline": ("end-to-end/profile.json", "end-to-end/pipeline.slo.json"),
}
STEPS = (1.04, 0.97, 1.1, 0.94, 1.02, 1.07)


def documents(name: str) -> dict[str, Any]:
    """What the page would send of an example."""
    paths = zip(("profile", "slo", "measured"), EXAMPLES[name], strict=False)
    return {what: json.loads((ROOT / "examples" / path).read_text(encoding="utf-8")) for what, path in paths}


def moved(slo: dict[str, Any], factor: float) -> dict[str, Any]:
    """The SLO file with its budget, else a rate, a limit on latency, or a resource, times a factor."""
    held = json.loads(json.dumps(slo))
    limits = held.get("limits", {})
    if "cost_per_hour" in limits:
        limits["cost_per_hour"] = f"{float(limits['cost_per_hour']) * factor:.6g}"
        return held
    app = next(iter(held["apps"].values()))
    if isinstance(app.get("demand", {}).get("rate_qps"), int | float):
        app["demand"]["rate_qps"] *= factor
    elif app.get("latency"):
        app["latency"][0]["max_ms"] *= factor
    else:
        held["limits"]["resources"]["edge"] *= factor
    return held


def dearer(profile: dict[str, Any], factor: float) -> dict[str, Any]:
    """The profile with its first price times a factor."""
    held = json.loads(json.dumps(profile))
    for offer in held.get("offers", {}).values():
        if "price_per_hour" in offer:
            offer["price_per_hour"] = f"{float(offer['price_per_hour']) * factor:.6g}"
            break
    return held


def timed(look: Any, asked: dict[str, Any]) -> tuple[float, float, dict[str, Any]]:
    """Milliseconds of wall and of CPU time, and what was answered."""
    begun, cpu = time.perf_counter(), time.process_time()
    said = look(asked, threading.Event())
    return 1000 * (time.perf_counter() - begun), 1000 * (time.process_time() - cpu), said


def measured(name: str, rounds: int, seconds: float) -> dict[str, Any]:
    """One example in this process."""
    from hetplan.desk.answers import Answers
    from hetplan.desk.work import Allowance

    files, look = documents(name), Answers(Allowance(seconds=seconds)).look
    first = timed(look, files)
    found = [timed(look, {**files, "slo": moved(files["slo"], factor)}) for factor in STEPS[:rounds]]
    price = timed(look, {**files, "profile": dearer(files["profile"], 1.03)})
    return {
        "first_ms": first[0],
        "wall_ms": statistics.median(one[0] for one in found),
        "cpu_ms": statistics.median(one[1] for one in found),
        "price_ms": price[0],
        "status": [one[2]["status"] for one in (first, *found, price)],
        "within": [one[2].get("within") for one in (first, *found, price)],
    }


def profiled(name: str, seconds: float) -> None:
    """Where the time of one movement goes, on the terminal."""
    from hetplan.desk.answers import Answers
    from hetplan.desk.work import Allowance

    files, look = documents(name), Answers(Allowance(seconds=seconds)).look
    timed(look, files)
    watch = cProfile.Profile()
    watch.enable()
    timed(look, {**files, "slo": moved(files["slo"], 1.04)})
    watch.disable()
    pstats.Stats(watch).sort_stats("cumulative").print_stats("hetplan|highs|json|pydantic", 45)


def asked_of(tree: Path, name: str, rounds: int, seconds: float) -> dict[str, Any]:
    """One example in a fresh process on a checkout."""
    command = [sys.executable, str(Path(__file__).resolve()), "--only", name, "--one", "--rounds", str(rounds)]
    ran = subprocess.run(
        [*command, "--seconds", str(seconds)],
        env={**os.environ, "PYTHONPATH": str(tree)},
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode:
        raise SystemExit(f"{name}: {ran.stderr}")
    held: dict[str, Any] = json.loads(ran.stdout)
    return held


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measured(given.only, given.rounds, given.seconds)))
        return
    print(f"{'example':22}{'tree':8}{'first':>8}{'moved':>8}{'CPU':>8}{'price':>8}  answers")
    for name in EXAMPLES:
        if given.only not in name:
            continue
        if given.profile:
            profiled(name, given.seconds)
            continue
        for word, tree in (("before", given.against), ("now", ROOT)):
            if tree is None:
                continue
            one = asked_of(tree.resolve(), name, given.rounds, given.seconds)
            figures = "".join(f"{one[key]:8.0f}" for key in ("first_ms", "wall_ms", "cpu_ms", "price_ms"))
            print(f"{name:22}{word:8}{figures}  {', '.join(sorted(set(one['status'])))} {one['within']}", flush=True)


if __name__ == "__main__":
    main()
