"""Simulated against measured: plans applied to this machine for real, loaded, and set beside their simulation.

    python benchmarks/reality.py [--seconds 30] [--only SET ...] [--write docs/measured/reality.md]

A cell is a set of models, a dispatch rule and a load. Workers of the sets `pool`, `pipeline` and `policy` take the
times of their tables without computing (as many "machines" as the plan wants fit on two cores); those of `onnx` run
real models, one on a core of its own, or two that share the cores with all else (`onnx-shared`). The simulation plays
the very queries that were sent. What the way through sockets, router and event loops takes is measured first, on idle
workers, and stated as `network_ms_per_hop` in the SLO file of every cell. Each cell: p99, violations and quality,
measured and simulated, with the measured causes that a difference can have: how late requests were sent, how much of
the cores' time the host took, and how long a core stood still.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.crowding import crowding
from benchmarks.reality_cases import ONNX, Case, hops, onnx, pipelines, policies, pools
from benchmarks.stalls import StallWatch

ORDER = ("pool", "pipeline", "policy", "onnx", "onnx-shared")
P99_WITHIN, VIOLATIONS_WITHIN, QUALITY_WITHIN = 0.10, 0.01, 0.005
STILL = 0.0025
"""Stalls that take so much of the time reach a quarter as many requests as lie beyond p99, or more."""
RUNS = 8
HOSTS = ("--hosts", "hosts.toml")


@dataclass(frozen=True)
class Cell:
    """What came of one cell; pairs are (simulated, measured)."""

    models: str
    rule: str
    load: str
    requests: int
    p99_ms: tuple[float, float]
    one_run_ms: tuple[float, float]
    """Where the p99 of a single simulated run lies, 95 of 100 times."""
    p50_ms: tuple[float, float]
    violations: tuple[float, float]
    quality: tuple[float, float]
    late_p99_ms: float
    watch: StallWatch

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

    def verdict(self) -> str:
        """Whether it holds; where it does not, the measured cause, if there is one."""
        if self.holds():
            return "yes"
        elsewhere = abs(self.violations[1] - self.violations[0]) > VIOLATIONS_WITHIN
        elsewhere = elsewhere or abs(self.quality[1] - self.quality[0]) > QUALITY_WITHIN
        if not elsewhere and self.one_run_ms[0] <= self.p99_ms[1] <= self.one_run_ms[1]:
            return "no: as far as runs differ"
        # What is above the simulation by more than the longest stall is no stall's doing.
        if self.watch.still >= STILL and 0.0 <= self.p99_ms[1] - self.p99_ms[0] <= self.watch.longest_ms:
            return "no: cores stood still"
        return "no"

    def row(self) -> str:
        low, high = self.one_run_ms
        return (
            f"| {self.models} | {self.rule} | {self.load} | {self.requests} | "
            f"{self.p99_ms[0]:.1f} ({low:.1f} .. {high:.1f}) | {self.p99_ms[1]:.1f} | {100 * self.p99_off:+.1f} % | "
            f"{self.p50_ms[1] - self.p50_ms[0]:+.2f} | {100 * (self.violations[1] - self.violations[0]):+.2f} | "
            f"{100 * (self.quality[1] - self.quality[0]):+.2f} | {self.late_p99_ms:.2f} | "
            f"{100 * self.watch.stolen:.1f} % | {self.watch.longest_ms:.0f} | {100 * self.watch.still:.2f} % | "
            f"{self.verdict()} |"
        )


HEAD = (
    "| models | rule | load | requests | p99 simulated, ms (of one run) | p99 measured, ms | p99 off | p50 off, ms | "
    "violations off, points | quality off, points | sender late p99, ms | stolen by the host | longest stall, ms | "
    "time in stalls | holds |\n"
    "|---|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|"
)


class Workplace:
    """A folder in which commands are run, one after the other."""

    def __init__(self, folder: Path, seconds: float) -> None:
        self.folder, self.seconds = folder, seconds

    def hetplan(self, *words: str, allow: Sequence[int] = (0,), watch: StallWatch | None = None) -> dict[str, Any]:
        """The last line of a command's stream; `watch` is on while load is sent."""
        command = [str(Path(sys.executable).with_name("hetplan")), *words, "--json"]
        ran = subprocess.Popen(
            command, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1
        )
        assert ran.stdout is not None
        assert ran.stderr is not None
        line, sending = "", False
        for line in ran.stdout:
            if watch is not None and ('"what": "load"' in line) is not sending:
                sending = not sending
                (watch.start if sending else watch.stop)()
        told = ran.stderr.read()
        if ran.wait() not in allow:
            raise RuntimeError(f"{' '.join(words)}: exit {ran.returncode}\n{line[-500:]}{told}")
        last: dict[str, Any] = json.loads(line)
        return last

    def cells_of(self, case: Case, hop_ms: float) -> Iterator[Cell]:
        """Plan, apply, load at every rate, tear down."""
        apps = {name: {**app, "network_ms_per_hop": hop_ms} for name, app in case.slo["apps"].items()}
        self._write("profile.json", case.profile)
        self._write("slo.json", {**case.slo, "apps": apps})
        self._write_hosts(case)
        self.hetplan("solve", "profile.json", "slo.json", *case.solve, "-o", "plan.json")
        if case.dispatch:
            _redispatched(self.folder / "plan.json", case.dispatch)
        try:
            endpoint = self.hetplan("apply", "plan.json", *HOSTS, "--yes")["endpoint"]
            for load, rate_qps, arrivals in case.loads:
                asked = {name: {**app, "demand": {**app["demand"], "rate_qps": rate_qps}} for name, app in apps.items()}
                self._write("load.json", {**case.slo, "apps": asked})
                files = ("plan.json", "profile.json", "load.json")
                how = ("--arrivals", arrivals, "--duration", f"{self.seconds:g}", "--simulations", str(RUNS))
                with StallWatch() as watch:
                    sent = self.hetplan("load", *files, "--endpoint", endpoint, *how, allow=(0, 6), watch=watch)
                report = sent["report"]
                yield _cell(case, load, report, watch)
        finally:
            self.hetplan("down", *HOSTS, "--yes")

    def onnx_profile(self) -> dict[str, Any]:
        """The example's models, profiled here."""
        sys.path.insert(0, str(ROOT / "examples" / "end-to-end"))
        models = import_module("models")
        if not (self.folder / "labelled.npz").exists():
            models.write_models(self.folder, fit_to=300, labelled=200)
        lines = ['format = "hetplan/measure/1.0"', "[hardware.cpu-1]", "provides = {mem_gib = 4}"]
        lines += ["[repeats]", "pause_ms = 2", "[metrics.top1]", 'kind = "bernoulli"', "[tasks.see]", 'metric = "top1"']
        for name in ONNX:
            lines += [f"[variants.{name}]", 'task = "see"', f'onnx = "{name}.onnx"', 'quality = "labelled.npz"']
        (self.folder / "measure.toml").write_text("\n".join(lines))
        self.hetplan("profile", "measure.toml", "-o", "onnx.json")
        profile: dict[str, Any] = json.loads((self.folder / "onnx.json").read_text())
        return profile | {"offers": {"cpu-1-od": {"hardware": "cpu-1", "price_per_hour": "0.04"}}}

    def _write(self, name: str, told: dict[str, Any]) -> None:
        (self.folder / name).write_text(json.dumps(told))

    def _write_hosts(self, case: Case) -> None:
        """The trusted file: everything on this machine."""
        rule = 'path = "{variant}.onnx"\nthreads = 1' if case.kind == "onnx" else ""
        names = json.dumps(list(case.profile["hardware"]))
        (self.folder / "hosts.toml").write_text(
            f'slo = "slo.json"\nprofiles = ["profile.json"]\n[router]\nport = 0\n[targets.here]\nkind = "local"\n'
            f'[hosts.this]\ntarget = "here"\nhardware = {names}\n{case.hosts}\n'
            f'[[models]]\nkind = "{case.kind}"\n{rule}\n'
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


def _cell(case: Case, load: str, report: dict[str, Any], watch: StallWatch) -> Cell:
    both = [line for line in report["lines"] if line["simulated"] is not None and line["measured"] is not None]
    found = {(line["quantity"], line["percentile"]): line for line in both}
    (app,) = report["apps"].values()

    def value(told: float | None) -> float:
        return math.inf if told is None else told  # a percentile that some queries never reach

    def pair(quantity: str, percentile: float | None = None) -> tuple[float, float]:
        line = found.get((quantity, percentile))
        if line is None:  # nothing was answered that it could be the quality of
            return math.nan, math.nan
        return value(line["simulated"]["value"]), value(line["measured"]["value"])

    p99_ms = pair("response_ms", 99.0)
    _, high = (value(end) for end in found["response_ms", 99.0]["simulated"]["interval"])
    # The interval is of the mean of so many runs; that of one more run is wider by this factor.
    half = (high - p99_ms[0]) * math.sqrt(RUNS + 1) if math.isfinite(high) else math.inf
    return Cell(
        case.models, case.rule, load, app["requests"], p99_ms, (max(p99_ms[0] - half, 0.0), p99_ms[0] + half),
        pair("response_ms", 50.0), pair("violations"), pair("accuracy"), app["late_sender_ms"]["p99"],
        watch,
    )  # fmt: skip


def calibrated(place: Workplace) -> dict[str, float]:
    """Milliseconds per hop for each way that queries can take, to a hundredth."""
    found: dict[str, float] = {}
    for case in hops():
        (cell,) = place.cells_of(case, 0.0)
        steps = 2 if case.way == "pipeline" else 1
        found[case.way] = round(max(cell.p50_ms[1] - cell.p50_ms[0], 0.0) / steps, 2)
    return found


def write_page(page: Path, cells: Sequence[Cell], calibration: str) -> None:
    """Put the rows into the page; those of sets that were not run this time stay."""
    text, _, below = page.read_text().partition("<!-- table -->")
    run = {cell.models for cell in cells}
    columns = HEAD.splitlines()[0].count("|")
    old = [line for line in below.splitlines() if line.split(" | ")[0][2:] in set(ORDER) - run]
    old = [line for line in old if line.count("|") == columns]
    rows = sorted([*old, *(cell.row() for cell in cells)], key=lambda row: ORDER.index(row.split(" | ")[0][2:]))
    table = "\n".join([HEAD, *rows])
    page.write_text(f"{text}<!-- table -->\n\n{_told(rows)} {calibration}\n\n{table}\n")


def _told(rows: Sequence[str]) -> str:
    verdicts = [row.split(" | ")[-1].removesuffix(" |") for row in rows]
    held, explained = verdicts.count("yes"), sum(verdict.startswith("no: ") for verdict in verdicts)
    told = f"{held} of {len(rows)} cells hold ({held / max(len(rows), 1):.0%})"
    return f"{told}; others with a measured cause: {explained}." if held < len(rows) else f"{told}."


def _told_hops(hop_ms: dict[str, float]) -> str:
    return "Per hop: " + ", ".join(f"{ms:.2f} ms ({way})" for way, ms in hop_ms.items()) + "."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30.0, help="of load per cell")
    parser.add_argument("--only", nargs="*", choices=ORDER)
    parser.add_argument(
        "--folder", type=Path, help="work there; models and their profile are taken from an earlier run"
    )
    parser.add_argument("--write", type=Path, help="put the rows into this page, below its mark")
    asked = parser.parse_args()
    cells: list[Cell] = []
    with tempfile.TemporaryDirectory(prefix="hetplan-") as name:
        place = Workplace((asked.folder or Path(name)).resolve(), asked.seconds)
        hop_ms = calibrated(Workplace(place.folder, 5.0))
        calibration = _told_hops(hop_ms)
        sets: dict[str, Callable[[], Iterator[Case]]] = {
            "pool": pools,
            "pipeline": pipelines,
            "policy": policies,
            "onnx": lambda: onnx(place.onnx_profile()),
            "onnx-shared": lambda: onnx(place.onnx_profile(), shared=True),
        }
        wanted = [case for kind in asked.only or ORDER for case in sets[kind]()]
        if any(case.kind == "onnx" for case in wanted):
            crowded = {name: crowding(place.folder / f"{name}.onnx") for name in ONNX}
            listed = ", ".join(f"{times:.2f} times ({name})" for name, times in crowded.items())
            calibration += f" A model takes longer while the other core runs it too: {listed}."
        print(calibration, HEAD, sep="\n\n", flush=True)
        for case in wanted:
            try:
                for cell in place.cells_of(case, hop_ms[case.way]):
                    cells.append(cell)
                    print(cell.row(), flush=True)
            except RuntimeError as error:
                print(f"{case.models}, {case.rule}: {error}", file=sys.stderr, flush=True)
    print("", _told([cell.row() for cell in cells]), sep="\n")
    if asked.write is not None:
        write_page(asked.write, cells, calibration)


if __name__ == "__main__":
    main()
