"""How soon the desk answers a movement: every shipped example, as its page asks, without the network.

usage: python benchmarks/desk.py [--against CHECKOUT] [--rounds 5] [--only WORD] [--seconds 60] [--profile]

Each round moves one number of the SLO file (budget, rate, limit on latency or resources) to a new place, and asks for
a quick plan, drawn for the page. Shown are milliseconds: the first plan; of the rounds after it the median wall and CPU
time; the median CPU time after each other number was moved as often (`AXES`: a limit on latency of the first
application, of the second and of the third, a quality, a price, a stock, the most machines, and machines pinned); and
the widest gap that was said.
With `--against` another checkout is measured in turns, so that the ratios hold whatever else the machine does.
`--profile` shows where the time of one movement goes.
"""

from __future__ import annotations

import argparse
import copy
import cProfile
import json
import os
import pstats
import statistics
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from hetplan.desk.answers import Answers
from hetplan.desk.work import Allowance, Task
from hetplan.errors import InputError

Json = dict[str, Any]
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
QUICK = {"quick": True, "page": True}
"""What a page asks for first."""


def documents(name: str) -> dict[str, Any]:
    """What the page would send of an example."""
    paths = zip(("profile", "slo", "measured"), EXAMPLES[name], strict=False)
    return {what: json.loads((ROOT / "examples" / path).read_text(encoding="utf-8")) for what, path in paths}


def moved(slo: Json, factor: float) -> Json:
    """The SLO file with its budget, else a rate, a limit on latency, or a resource, times a factor."""
    held = copy.deepcopy(slo)
    limits = held.get("limits", {})
    if "cost_per_hour" in limits:
        limits["cost_per_hour"] = f"{float(limits['cost_per_hour']) * factor:.6g}"
        return held
    app = next(iter(held["apps"].values()))
    if isinstance(app.get("rate_qps"), int | float):
        app["rate_qps"] *= factor
    elif app.get("latency"):
        app["latency"][next(iter(app["latency"]))] *= factor
    else:
        held["limits"]["capacity"]["edge"] *= factor
    return held


AXES = ("limit", "second", "third", "quality", "price", "stock", "most", "pin")


def others(files: Json, factor: float) -> dict[str, Json]:
    """Other movements, where the files have such numbers, by the names of `AXES`."""
    found, profile, slo = dict[str, Json](), files["profile"], files["slo"]
    up = 1 if factor > 1 else -1
    machines = profile.get("machines", {})
    if (machine := next(iter(machines), None)) is not None:
        if "price_per_hour" in machines[machine]:
            price = float(f"{machines[machine]['price_per_hour'] * factor:.6g}")
            found["price"] = {**files, "profile": changed(profile, ["machines", machine, "price_per_hour"], price)}
        most, pinned = [0, round(500 * factor)], [8 + up, 8 + up]
        found["most"] = {**files, "slo": changed(slo, ["limits", "instances", machine], most)}
        found["pin"] = {**files, "slo": changed(slo, ["limits", "instances", machine], pinned)}
    stocked = next((name for name, one in machines.items() if one.get("stock")), None)
    if stocked is not None:
        there = machines[stocked]["stock"]
        found["stock"] = {**files, "profile": changed(profile, ["machines", stocked, "stock"], max(there + up, 0))}
    for name, app in zip(("limit", "second", "third"), slo["apps"], strict=False):
        if latency := slo["apps"][app].get("latency"):
            key, limit_ms = next(iter(latency.items()))
            path: list[str | int] = ["apps", app, "latency", key]
            found[name] = {**files, "slo": changed(slo, path, limit_ms * factor)}
        if (least := slo["apps"][app].get("quality", {}).get("min")) is not None:
            found["quality"] = {**files, "slo": changed(slo, ["apps", app, "quality", "min"], least * factor)}
    return found


def changed(document: Json, path: list[str | int], value: Any) -> Json:
    """The document with one value in place of another."""
    held: Any = copy.deepcopy(document)
    one = held
    for step in path[:-1]:
        one = one.setdefault(step, {}) if isinstance(one, dict) else one[step]
    one[path[-1]] = value
    made: Json = held
    return made


def timed(answers: Answers, asked: dict[str, Any]) -> tuple[float, float, dict[str, Any]]:
    """Milliseconds of wall and of CPU time, and what was answered."""
    begun, cpu = time.perf_counter(), time.process_time()
    said = answers.solve({**asked, **QUICK}, Task())
    return 1000 * (time.perf_counter() - begun), 1000 * (time.process_time() - cpu), said


def _gap(said: dict[str, Any]) -> float | None:
    """How far a plan is from the best at most: only a bound of all plans says so."""
    bound: dict[str, Any] = next(iter((said.get("summary") or {}).get("bounds") or ()), {})
    return bound.get("gap") if bound.get("scope") in ("problem", "relaxation") else None


def measured(name: str, rounds: int, seconds: float) -> dict[str, Any]:
    """One example in this process."""
    files, answers = documents(name), Answers(Allowance(seconds=seconds))
    places = [files, *({**files, "slo": moved(files["slo"], factor)} for factor in STEPS[:rounds])]
    first, *plans = [timed(answers, place) for place in places]
    more: dict[str, list[Any]] = {}
    for factor in STEPS[:rounds]:
        for axis, place in others(files, factor).items():
            with suppress(InputError):  # a question that has no such limit says so
                plan = timed(answers, place)
                more.setdefault(axis, []).append(plan)
    return {
        "first": first[0],
        "wall": statistics.median(one[0] for one in plans),
        "cpu": statistics.median(one[1] for one in plans),
        "others": {axis: statistics.median(one[1] for one in each) for axis, each in more.items()},
        "within": [_gap(one[2]) for one in (*plans, *(one for each in more.values() for one in each))],
        "status": sorted({one[2]["status"] for one in (first, *plans)}),
    }


def profiled(name: str, seconds: float) -> None:
    """Where the time of one movement goes, on the terminal."""
    files, answers = documents(name), Answers(Allowance(seconds=seconds))
    timed(answers, files)
    print(name)
    watch = cProfile.Profile()
    watch.enable()
    timed(answers, {**files, "slo": moved(files["slo"], 1.04)})
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
    columns = "".join(f"{name:>8}" for name in ("first", "moved", "CPU", *AXES))
    print(f"{'example':22}{'tree':8}{columns}  gap, status")
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
            figures = "".join(f"{one[key]:8.0f}" for key in ("first", "wall", "cpu"))
            kinds = [one["others"].get(key) for key in AXES]
            figures += "".join("       -" if kind is None else f"{kind:8.0f}" for kind in kinds)
            gaps = [gap for gap in one["within"] if gap is not None]
            said = f"{100 * max(gaps):.2g}% " if gaps else ""
            print(f"{name:22}{word:8}{figures}  {said}{', '.join(one['status'])}", flush=True)


if __name__ == "__main__":
    main()
