"""The whole loop on this machine: make models, measure them, plan, apply, send load, compare, tear down.

    python examples/end-to-end/run.py            a few minutes on two cores, no GPU, nothing downloaded
    python examples/end-to-end/run.py --quick    the same with tiny models and seconds of load

Every step is a `hetplan` command, shown as it runs; only `models.py` and `evaluate.py` are the example's own.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).resolve().parent
PROFILES = ["profile.json", "prices.json"]
_ROOM = 4
"""A limit is at least so many times the slowest batch: queries wait, too."""
ROW = "{:<22} {:<9} {:<18} {:>12} {:>12} {:>12} {:>24}  {}"


class Example:
    """The folder that everything happens in, and what was measured there."""

    def __init__(self, folder: Path, *, quick: bool, seconds: float) -> None:
        self.folder, self.quick, self.seconds = folder, quick, seconds
        self.rows: list[tuple[str, dict[str, Any]]] = []
        for file in HERE.iterdir():
            if file.suffix in (".json", ".toml", ".py") and file.name not in ("profile.json", "run.py"):
                shutil.copy(file, folder)

    def hetplan(self, *words: str, allow: tuple[int, ...] = (0,), stream: bool = True) -> list[dict[str, Any]]:
        """Run a command as a user would; the lines of its stream."""
        print(f"$ hetplan {' '.join(words)}", flush=True)
        command = [str(Path(sys.executable).with_name("hetplan")), *words, *(["--json"] if stream else [])]
        ran = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False)
        lines = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
        for line in ran.stderr.splitlines():
            print(f"  {line}")
        if ran.returncode not in allow:
            reason = lines[-1]["exit"]["reason"] if lines and "exit" in lines[-1] else ran.stdout[-300:]
            raise SystemExit(f"exit {ran.returncode}: {reason}")
        return lines

    def measure(self) -> None:
        """Three models of different size, made here, and their profile."""
        sys.path.insert(0, str(HERE))
        import models

        if self.quick:
            models.FILTERS = {"small": 8, "medium": 16, "large": 24}
            # It shows the way and no figures, so a busy machine is good enough. A few runs of small models say little
            # there: all may seem slow, and a large batch quick.
            self._replace("measure.toml", "max_s = 4", "max_s = 0.2\nmost_waited = 1")
            self._replace("measure.toml", 'outside = "linear"', 'outside = "clamp"')
            # So small models get little right.
            self._replace("variants.slo.json", '"min": 0.75', '"min": 0.1')
            self._replace("two-tier.slo.json", '"min": 0.7', '"min": 0.1')
        print(f"three ONNX models of {', '.join(map(str, models.FILTERS.values()))} filters", flush=True)
        if not (self.folder / "labelled.npz").exists():
            models.write_models(self.folder, fit_to=200 if self.quick else 1200, labelled=200 if self.quick else 500)
        self.hetplan("profile", "measure.toml", "-o", "profile.json")
        self._aim()

    def _aim(self) -> None:
        """Limits and the way to the router for the machine at hand, as they were measured."""
        profile = json.loads((self.folder / "profile.json").read_text())
        times = [run["p99_ms"] for one in profile["models"].values() for run in one["runs"].values()]
        slowest_ms = max(ms for grid in times for ms in grid if ms is not None)
        ways_ms = median(
            cell["beside_ms"]
            for name, on in profile["extensions"].items() if name.startswith("measured.")
            for one in on.values() if "cells" in one
            for cell in one["cells"]
        )  # fmt: skip
        for file in self.folder.glob("*slo.json"):
            slo = json.loads(file.read_text())
            for app in slo["apps"].values():
                if file.name != "two-tier.slo.json":  # there links say what the way takes
                    # A query takes it once, and the SLO file states it per step.
                    app["network_ms_per_hop"] = round(ways_ms / (2 if "pipeline" in app else 1), 3)
                ((key, limit_ms),) = app["latency"].items()
                app["latency"][key] = limit_ms = max(limit_ms, math.ceil(_ROOM * slowest_ms))
                print(f"{file.name}: at most {limit_ms:g} ms; the slowest batch took {slowest_ms:.3g} ms (p99)")
            file.write_text(json.dumps(slo, indent=2))

    def _replace(self, file: str, before: str, after: str) -> None:
        text = (self.folder / file).read_text()
        (self.folder / file).write_text(text.replace(before, after))

    def plan(self, name: str, slo: str, *more: str, profiles: list[str] | None = None) -> str:
        """A verified plan."""
        words = ("solve", *(profiles or PROFILES), slo, *more, "-o", f"{name}.plan.json")
        try:
            self.hetplan(*words)
        except SystemExit:
            # What is in the way, and which wish would do, is on the page for people.
            command = [str(Path(sys.executable).with_name("hetplan")), *words]
            print(subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False).stdout)
            raise
        return f"{name}.plan.json"

    @contextmanager
    def running(self, plan: str, slo: str, *, profiles: list[str] | None = None) -> Iterator[str]:
        """The plan applied to this machine, and taken down again; the router's address."""
        text = (HERE / "site.toml").read_text().replace("python3", sys.executable)
        text = text.replace(json.dumps(PROFILES), json.dumps([*(profiles or PROFILES), slo]))
        (self.folder / "site.toml").write_text(text)
        try:
            yield self.apply(plan)
        finally:
            self.hetplan("down", "--site", "site.toml", "--yes")

    def apply(self, plan: str) -> str:
        """Bring the machine to what the plan wants; the router's address."""
        return str(self.hetplan("apply", plan, "--site", "site.toml", "--yes")[-1]["endpoint"])

    def load(
        self, name: str, plan: str, slo: str, endpoint: str, *more: str, profiles: list[str] | None = None
    ) -> None:
        """Real load, beside promise and simulation."""
        words = [
            "loadtest",
            plan,
            *(profiles or PROFILES),
            slo,
            "--endpoint",
            endpoint,
            "--duration",
            f"{self.seconds:g}",
        ]
        report = self.hetplan(*words, *more, allow=(0, 6, 9))[-1]["report"]
        self.rows += [(name, line) for line in report["lines"]]

    def tell(self) -> None:
        """Promise, simulation and measurement, side by side."""
        print()
        print(ROW.format("plan", "app", "quantity", "promised", "simulated", "measured", "interval", "verdict"))
        for name, line in self.rows:
            if line["measured"] is None:
                continue
            quantity = line["quantity"] + (f" p{line['percentile']:g}" if line["percentile"] is not None else "")
            promised = "-" if line["promised"] is None else f"{line['relation']} {line['promised']:.5g}"
            simulated = _number((line["simulated"] or {}).get("value"))
            measured, interval = line["measured"]["value"], line["measured"]["interval"]
            between = f"{_number(interval[0])} .. {_number(interval[1])}"
            app = line["app"] or "-"
            print(ROW.format(name, app, quantity, promised, simulated, _number(measured), between, line["verdict"]))


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.5g}"


def one_after_the_other(example: Example) -> None:
    """A pool, a pipeline and a policy: each planned, applied, loaded and taken down."""
    for name, slo, question in (
        ("pool", "pool.slo.json", ["--formulation", "pool"]),
        ("pipeline", "pipeline.slo.json", []),
        ("policy", "slo.json", ["--formulation", "policy", "--set", "batching=max"]),
    ):
        plan = example.plan(name, slo, *question)
        with example.running(plan, slo) as endpoint:
            example.load(name, plan, slo, endpoint)


def with_more_load(example: Example) -> None:
    """Variants planned for little load, then planned again for more from what runs: only the difference is applied."""
    plan = example.plan("variants", "variants.slo.json")
    more = json.loads((example.folder / "variants.slo.json").read_text())
    more["apps"]["images"]["rate_qps"] *= 5
    (example.folder / "more.slo.json").write_text(json.dumps(more))
    with example.running(plan, "variants.slo.json") as endpoint:
        example.load("variants", plan, "variants.slo.json", endpoint)
        example.hetplan("status", "--site", "site.toml", "-o", "state.json", stream=False)
        plan = example.plan("variants-more", "more.slo.json", "state.json")
        endpoint = example.apply(plan)
        example.load("variants, re-planned", plan, "more.slo.json", endpoint, "state.json")


def two_tiers(example: Example) -> None:
    """A compound query over a device and an edge, its plans measured by an evaluator while they are searched."""
    (example.folder / "site.toml").write_text((HERE / "site.toml").read_text().replace("python3", sys.executable))
    (example.folder / "measured.jsonl").unlink(missing_ok=True)
    measuring = ["--evaluate", "gratings", "--site", "site.toml", "--journal", "measured.jsonl"]
    slo, profiles = "two-tier.slo.json", ["two-tier.json"]
    plan = example.plan("two tiers", slo, *measuring, profiles=profiles)
    with example.running(plan, slo, profiles=profiles) as endpoint:
        example.load("two tiers", plan, slo, endpoint, "measured.jsonl", profiles=profiles)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="tiny models and seconds of load")
    parser.add_argument("--seconds", type=float, default=30.0, help="of load, per plan")
    parser.add_argument("--keep", type=Path, help="work in this folder, and leave it")
    parser.add_argument("--only", choices=("plans", "variants", "tiers"), help="one part alone")
    asked = parser.parse_args()
    folder = asked.keep or Path(tempfile.mkdtemp(prefix="hetplan-"))
    folder.mkdir(parents=True, exist_ok=True)
    try:
        example = Example(folder, quick=asked.quick, seconds=min(asked.seconds, 2.0) if asked.quick else asked.seconds)
        example.measure()
        for part, run in (("plans", one_after_the_other), ("variants", with_more_load), ("tiers", two_tiers)):
            if asked.only in (None, part):
                run(example)
        example.tell()
    finally:
        if asked.keep is None:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
