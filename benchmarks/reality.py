"""Simulated against measured: plans applied to this machine for real, loaded, and set beside their simulation.

    python benchmarks/reality.py [--seconds 20] [--only SET ...] [--write docs/measured/reality.md]

A cell is a set of models, a dispatch rule and a load. Workers of the sets `pool`, `pipeline` and `policy` take the
times of their tables without computing (as many "machines" as the plan wants fit on two cores); those of `onnx` run
real models, one per core. Each cell: p99, violations and quality, measured and simulated, with the measured causes
that a difference can have: how late requests were sent, and how much of the time the cores were taken by others.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
ORDER = ("pool", "pipeline", "policy", "onnx")
SETS = frozenset(ORDER)
P99_WITHIN, VIOLATIONS_WITHIN, QUALITY_WITHIN = 0.10, 0.01, 0.005


@dataclass(frozen=True)
class Cell:
    """What came of one cell."""

    models: str
    rule: str
    load: str
    requests: int
    p99_ms: tuple[float, float]
    p50_ms: tuple[float, float]
    violations: tuple[float, float]
    quality: tuple[float, float]
    p99_interval: tuple[float, float]
    late_p99_ms: float
    stolen: float

    @property
    def p99_off(self) -> float:
        if math.isinf(self.p99_ms[0]) or math.isinf(self.p99_ms[1]):
            return 0.0 if self.p99_ms[0] == self.p99_ms[1] else math.inf
        return self.p99_ms[1] / self.p99_ms[0] - 1.0

    def holds(self) -> bool:
        return (
            abs(self.p99_off) <= P99_WITHIN
            and abs(self.violations[1] - self.violations[0]) <= VIOLATIONS_WITHIN
            and abs(self.quality[1] - self.quality[0]) <= QUALITY_WITHIN
        )

    def row(self) -> str:
        low, high = self.p99_interval
        return (
            f"| {self.models} | {self.rule} | {self.load} | {self.requests} | {self.p99_ms[0]:.1f} | "
            f"{self.p99_ms[1]:.1f} ({low:.1f} .. {high:.1f}) | {100 * self.p99_off:+.1f} % | "
            f"{self.p50_ms[1] - self.p50_ms[0]:+.2f} | {100 * (self.violations[1] - self.violations[0]):+.2f} | "
            f"{100 * (self.quality[1] - self.quality[0]):+.2f} | {self.late_p99_ms:.2f} | {100 * self.stolen:.0f} % | "
            f"{'yes' if self.holds() else 'no'} |"
        )


HEAD = (
    "| models | rule | load | requests | p99 simulated, ms | p99 measured, ms (interval) | p99 off | p50 off, ms | "
    "violations off, points | quality off, points | sender late p99, ms | cores taken by others | holds |\n"
    "|---|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|"
)


@dataclass(frozen=True)
class Case:
    """A plan to make, and the loads to send it."""

    models: str
    rule: str
    profile: dict[str, Any]
    slo: dict[str, Any]
    solve: Sequence[str]
    loads: Sequence[tuple[str, float, str]]
    kind: str = "sleep"
    dispatch: str = ""


def table(batches: Sequence[int], mean: Sequence[float], *, spread: float = 0.08) -> dict[str, Any]:
    std = [spread * value for value in mean]
    factors = {"p50": 0.0, "p95": 1.7, "p99": 2.5}
    tails = {name: [value * (1 + factor * spread) for value in mean] for name, factor in factors.items()}
    return {
        "quantity": "latency_ms", "axes": {"batch": list(batches)}, "mean": list(mean), "std": std, **tails,
        "outside": "linear",
    }  # fmt: skip


def document(
    tables: dict[str, dict[str, dict[str, Any]]],
    *,
    quality: dict[str, float],
    task: dict[str, str],
    price: dict[str, str],
) -> dict[str, Any]:
    """A profile: tables by variant and hardware."""
    return {
        "format": "hetplan/profile/1.0",
        "metrics": {"right": {"kind": "bernoulli"}},
        "hardware": {name: {"kind": "cpu"} for name in price},
        "offers": {f"{name}-od": {"hardware": name, "price_per_hour": cost} for name, cost in price.items()},
        "tasks": {name: {"metric": "right"} for name in dict.fromkeys(task.values())},
        "variants": {
            variant: {
                "task": task[variant],
                "family": task[variant],
                "quality": {"value": quality[variant]},
                "runs": [{"hardware": name, "latency": f"{variant}-{name}"} for name in by],
            }
            for variant, by in tables.items()
        },
        "tables": {f"{variant}-{name}": one for variant, by in tables.items() for name, one in by.items()},
    }


def pools(_folder: Path) -> Iterator[Case]:
    """Queries of three sizes over fast and slow machines, under every central and decentral rule."""
    sizes = (1, 4, 8)
    profile = document(
        {"rank": {"big": table(sizes, (14, 20, 30)), "little": table(sizes, (24, 52, 90))}},
        quality={"rank": 0.8}, task={"rank": "rank"}, price={"big": "0.5", "little": "0.2"},
    )  # fmt: skip
    mix = {"axes": ["batch"], "bins": [[1], [4], [8]], "share": [0.6, 0.3, 0.1]}
    app = {
        "runs": {"variants": ["rank"]},
        "latency": [{"percentile": 99, "max_ms": 150}],
        "demand": {"rate_qps": "max", "mix": mix},
    }
    limits = {"cost_per_hour": "3", "instances": {"big": [4, 4], "little": [5, 5]}}
    slo = {"format": "hetplan/slo/1.0", "limits": limits, "apps": {"rank": app}}
    loads = (("150 qps", 150.0, "poisson"), ("230 qps", 230.0, "poisson"), ("180 qps, gamma 0.5", 180.0, "gamma:0.5"))
    for rule in ("matching", "threshold", "earliest", "fcfs", "shares"):
        planned = "matching" if rule in ("fcfs", "shares") else rule
        solve = ("--question", "pool", "--set", f"dispatch={planned}")
        yield Case("pool", rule, profile, slo, solve, loads, dispatch=rule if rule != planned else "")


def pipelines(_folder: Path) -> Iterator[Case]:
    """Two steps with a fan-out, queries served late or given up."""
    sizes = (1, 2, 4, 8)
    profile = document(
        {
            "find-s": {"m": table(sizes, (9, 13, 21, 37))},
            "find-l": {"m": table(sizes, (22, 34, 58, 106))},
            "name-s": {"m": table(sizes, (7, 10, 16, 28))},
            "name-l": {"m": table(sizes, (18, 28, 48, 88))},
        },
        quality={"find-s": 0.7, "find-l": 0.85, "name-s": 0.75, "name-l": 0.9},
        task={"find-s": "find", "find-l": "find", "name-s": "name", "name-l": "name"},
        price={"m": "0.3"},
    )
    edges = [{"from": "find", "to": "name", "fanout": 1.5}]
    nodes = {"find": {"task": "find"}, "name": {"task": "name"}}
    profile["pipelines"] = {"p": {"nodes": nodes, "edges": edges}}
    for late in ("serve", "drop"):
        app = {
            "runs": {"pipeline": "p"},
            "latency": [{"percentile": 99, "max_ms": 300}],
            "late": late,
            "demand": {"rate_qps": 220.0},
        }
        limits = {"instances": {"m": [0, 14]}}
        slo = {"format": "hetplan/slo/1.0", "limits": limits, "apps": {"p": app}}
        loads = (
            ("120 qps", 120.0, "poisson"),
            ("180 qps", 180.0, "poisson"),
            ("150 qps, gamma 0.5", 150.0, "gamma:0.5"),
        )
        yield Case("pipeline", f"path-shares, late: {late}", profile, slo, (), loads)


def policies(_folder: Path) -> Iterator[Case]:
    """Which of three models, and how many queries at once, by queue length and slack."""
    sizes = tuple(range(1, 9))
    speeds = {"s": 4.0, "m": 10.0, "l": 24.0}
    profile = document(
        {name: {"m": table(sizes, [speed * (0.4 + 0.6 * size) for size in sizes])} for name, speed in speeds.items()},
        quality={"s": 0.65, "m": 0.78, "l": 0.88}, task=dict.fromkeys(speeds, "see"), price={"m": "0.3"},
    )  # fmt: skip
    for balancing in ("round_robin", "shortest_queue"):
        app = {
            "runs": {"task": "see"},
            "latency": [{"percentile": 99, "max_ms": 120}],
            "balancing": balancing,
            "demand": {"rate_qps": 250.0},
        }
        limits = {"instances": {"m": [6, 6]}}
        slo = {"format": "hetplan/slo/1.0", "limits": limits, "objective": [{"max": "goodput"}], "apps": {"see": app}}
        loads = (
            ("150 qps", 150.0, "poisson"),
            ("250 qps", 250.0, "poisson"),
            ("200 qps, gamma 0.5", 200.0, "gamma:0.5"),
        )
        yield Case("policy", f"queue-slack, {balancing}", profile, slo, ("--set", "batching=max"), loads)


def onnx(folder: Path) -> Iterator[Case]:
    """Real models on this machine's cores, measured just before."""
    sys.path.insert(0, str(ROOT / "examples" / "end-to-end"))
    models = import_module("models")
    if not (folder / "labelled.npz").exists():
        models.write_models(folder, fit_to=300, labelled=200)
    lines = ['format = "hetplan/measure/1.0"', "[hardware.cpu-1]", "provides = {mem_gib = 4}"]
    lines += ["[repeats]", "pause_ms = 2", "[metrics.top1]", 'kind = "bernoulli"', "[tasks.see]", 'metric = "top1"']
    for name in models.FILTERS:
        lines += [f"[variants.{name}]", 'task = "see"', f'onnx = "{name}.onnx"', 'quality = "labelled.npz"']
    (folder / "measure.toml").write_text("\n".join(lines))
    hetplan(folder, "profile", "measure.toml", "-o", "onnx.json")
    profile = json.loads((folder / "onnx.json").read_text())
    profile["offers"] = {"cpu-1-od": {"hardware": "cpu-1", "price_per_hour": "0.04"}}
    for name in ("medium", "large"):
        mean_ms = profile["tables"][f"{name}-cpu-1"]["mean"][0]
        app = {
            "runs": {"variants": [name]},
            "latency": [{"percentile": 99, "max_ms": float(f"{10 * mean_ms:.3g}")}],
            "demand": {"rate_qps": "max", "mix": {"axes": ["batch"], "bins": [[1]], "share": [1.0]}},
        }
        limits = {"cost_per_hour": "1", "instances": {"cpu-1": [2, 2]}}
        slo = {"format": "hetplan/slo/1.0", "limits": limits, "apps": {"see": app}}
        loads = tuple((f"{share:.0%} of two cores", share * 2000.0 / mean_ms, "poisson") for share in (0.15, 0.3, 0.45))
        yield Case("onnx", f"fcfs, {name}", profile, slo, ("--question", "pool"), loads, kind="onnx", dispatch="fcfs")


def hetplan(folder: Path, *words: str, allow: Sequence[int] = (0,)) -> dict[str, Any]:
    """The last line of a command's stream."""
    command = [str(Path(sys.executable).with_name("hetplan")), *words, "--json"]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if ran.returncode not in allow:
        raise RuntimeError(f"{' '.join(words)}: exit {ran.returncode}\n{ran.stdout[-500:]}{ran.stderr}")
    last: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return last


def hosts_of(case: Case, folder: Path) -> None:
    """The trusted file: everything on this machine."""
    rule = 'path = "{variant}.onnx"\nthreads = 1' if case.kind == "onnx" else ""
    names = json.dumps(list(case.profile["hardware"]))
    (folder / "hosts.toml").write_text(
        f'slo = "slo.json"\nprofiles = ["profile.json"]\n[router]\nport = 0\n[targets.here]\nkind = "local"\n'
        f'[hosts.this]\ntarget = "here"\nhardware = {names}\nmachines = 40\n[[models]]\nkind = "{case.kind}"\n{rule}\n'
    )


def _redispatched(file: Path, rule: str) -> None:
    """The same workers under a simpler rule, which no question plans with by itself."""
    from hetplan.planner.plan import SharesDispatch
    from hetplan.planner.plan_file import plan_digest, read_plan, write_plan
    from hetplan.planner.plan_pool import FcfsDispatch

    plan = read_plan(file)
    other = FcfsDispatch() if rule == "fcfs" else SharesDispatch()
    requires = (*(name for name in plan.requires if not name.startswith("matching/")), other.rule)
    plan = plan.model_copy(update={"dispatch": dict.fromkeys(plan.dispatch, other), "requires": requires})
    write_plan(plan.model_copy(update={"digest": plan_digest(plan)}), file)


def cells_of(case: Case, folder: Path, seconds: float) -> Iterator[Cell]:
    """Plan, apply, load at every rate, tear down."""
    (folder / "profile.json").write_text(json.dumps(case.profile))
    (folder / "slo.json").write_text(json.dumps(case.slo))
    hosts_of(case, folder)
    hetplan(folder, "solve", "profile.json", "slo.json", *case.solve, "-o", "plan.json")
    if case.dispatch:
        _redispatched(folder / "plan.json", case.dispatch)
    endpoint = hetplan(folder, "apply", "plan.json", "--yes")["endpoint"]
    try:
        for name, rate_qps, arrivals in case.loads:
            (app,) = case.slo["apps"].values()
            asked = {**app, "demand": {**app["demand"], "rate_qps": rate_qps}}
            (folder / "load.json").write_text(json.dumps({**case.slo, "apps": dict.fromkeys(case.slo["apps"], asked)}))
            before = _taken_s()
            began = time.monotonic()
            words = ("load", "plan.json", "profile.json", "load.json", "--endpoint", endpoint, "--arrivals", arrivals)
            report = hetplan(folder, *words, "--duration", f"{seconds:g}", "--simulations", "8", allow=(0, 6))["report"]
            stolen = (_taken_s() - before) / (time.monotonic() - began)
            yield _cell(case, name, report, stolen)
    finally:
        hetplan(folder, "down", "--yes")


def _cell(case: Case, load: str, report: dict[str, Any], stolen: float) -> Cell:
    both = [line for line in report["lines"] if line["simulated"] is not None and line["measured"] is not None]
    found = {(line["quantity"], line["percentile"]): line for line in both}
    (app,) = report["apps"].values()

    def value(told: float | None) -> float:
        return math.inf if told is None else told  # a percentile that some queries never reach

    def pair(quantity: str, percentile: float | None = None) -> tuple[float, float]:
        line = found[quantity, percentile]
        return value(line["simulated"]["value"]), value(line["measured"]["value"])

    low, high = (value(end) for end in found["response_ms", 99.0]["measured"]["interval"])
    return Cell(
        case.models, case.rule, load, app["requests"], pair("response_ms", 99.0), pair("response_ms", 50.0),
        pair("violations"), pair("accuracy"), (low, high), app["late_sender_ms"]["p99"], stolen,
    )  # fmt: skip


def _taken_s() -> float:
    """Core seconds that the machine's own host took away (stolen), all cores together."""
    with open("/proc/stat", encoding="ascii") as file:
        return int(file.readline().split()[8]) / 100.0


def write_page(page: Path, cells: Sequence[Cell]) -> None:
    """Put the rows into the page; those of sets that were not run this time stay."""
    text, _, below = page.read_text().partition("<!-- table -->")
    run = {cell.models for cell in cells}
    old = [line for line in below.splitlines() if line.startswith("| ") and line.split(" | ")[0][2:] in SETS - run]
    rows = sorted([*old, *(cell.row() for cell in cells)], key=lambda row: ORDER.index(row.split(" | ")[0][2:]))
    held = sum(row.endswith(" yes |") for row in rows)
    told = f"{held} of {len(rows)} cells hold ({held / max(len(rows), 1):.0%})."
    table = "\n".join([HEAD, *rows])
    page.write_text(f"{text}<!-- table -->\n\n{told}\n\n{table}\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0, help="of load per cell")
    parser.add_argument("--only", nargs="*", choices=ORDER)
    parser.add_argument(
        "--folder", type=Path, help="work there; models and their profile are taken from an earlier run"
    )
    parser.add_argument("--write", type=Path, help="put the rows into this page, below its mark")
    asked = parser.parse_args()
    cells: list[Cell] = []
    print(HEAD, flush=True)
    with tempfile.TemporaryDirectory(prefix="hetplan-") as name:
        folder = asked.folder or Path(name)
        sets: dict[str, Callable[[Path], Iterator[Case]]]
        sets = {"pool": pools, "pipeline": pipelines, "policy": policies, "onnx": onnx}
        for kind, cases in sets.items():
            for case in cases(folder) if not asked.only or kind in asked.only else ():
                try:
                    for cell in cells_of(case, folder, asked.seconds):
                        cells.append(cell)
                        print(cell.row(), flush=True)
                except RuntimeError as error:
                    print(f"{case.models}, {case.rule}: {error}", file=sys.stderr, flush=True)
    held = sum(cell.holds() for cell in cells)
    told = f"{held} of {len(cells)} cells hold ({held / max(len(cells), 1):.0%})"
    print(told)
    if asked.write is not None:
        write_page(asked.write, cells)


if __name__ == "__main__":
    main()
