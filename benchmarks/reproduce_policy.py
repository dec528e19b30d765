"""RAMSIS beside Jellyfish+ and ModelSwitching, with the paper's objective and with ours, on the published models.

Constant loads (Fig. 6, Table 4), the Twitter trace (Fig. 5, Table 3), expectation against simulation (Fig. 7), sixty
models against nine (Fig. 8), three models (Fig. 12), how long policies take (Table 2). All of it is simulated at the
95th percentile of the measured latencies, as the paper's own artifact does; the paper's tables come from a prototype,
whose latencies vary, so they stand beside and are not checked. RAMSIS keeps a queue per worker, the baselines one for
all: the disciplines are the systems' own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.datasets import ramsis
from benchmarks.datasets.sources import read
from benchmarks.reproduce_pool.rows import Check, Row, as_json, at_least, between, shown
from hetplan.planner.answer import Limits
from hetplan.planner.ask import Asking
from hetplan.planner.contract import Tools
from hetplan.planner.forms.queue_process import QueueProcess
from hetplan.problems.policy import Policy
from hetplan.problems.policy_baselines import jellyfish, modelswitching
from hetplan.problems.policy_group import Group
from hetplan.problems.policy_models import Models
from hetplan.problems.policy_options import BaselineOptions, PaperOptions, PolicyOptions
from hetplan.problems.policy_solved import Bench, Solved
from hetplan.profiles.load import load_inputs
from hetplan.simulator.policy import PolicyRun, simulate_policy
from hetplan.solvers.queue_structured import QueueStructured

__all__ = ["run"]

SLOS_MS = {"image": (150, 300, 500), "text": (100, 200, 300)}
CONSTANT_WORKERS = {"image": 60, "text": 20}
LOADS = tuple(range(400, 4001, 400))
PLOTTED = 0.05
"""The paper's figures leave out points with more violations than this."""

TABLE_4 = {
    150: "0.067 0.109 0.499 0.364 0.308 0.052 0.229 0.479 2.45 19.5",
    300: "0.025 0.440 0.073 0.339 0.288 0.017 0.228 0.075 0.338 4.39",
    500: "0.504 0.751 0.131 0.232 0.174 0.011 0.024 0.094 0.556 1.80",
}
"""Violations (percent) of the RAMSIS prototype on images, 60 workers, 400 to 4000 qps."""

TITLES = {
    "Fig. 6": "constant load: accuracy of queries in time, simulated (image: 60 workers, text: 20)",
    "Fig. 6, artifact": "gain over the baselines in points of accuracy, as the artifact prints it",
    "Table 4": "violations under constant load",
    "Fig. 5": "Twitter trace: accuracy of queries in time",
    "Fig. 5, artifact": "gain over the baselines on the trace, 60 to 80 workers, 150 ms",
    "Table 3": "violations on the Twitter trace",
    "Fig. 7": "expectation against simulation (150 ms)",
    "Fig. 8": "sixty models against nine, 100 workers",
    "Fig. 12": "three models of the nine",
    "Table 2": "seconds to make a policy",
}

SAME_SIMULATION = "the artifact's own simulator with its own seeds; 30 s per load there"
MARGINAL = (
    "at 2800 qps Jellyfish+'s rule is a close call (60 workers carry 2818 qps within half the SLO): by the rule as "
    "stated it keeps the 73.0 % model there; 15.04 points is what falling back to the 58.0 % one gives"
)
NEVER_WORSE = "the simulation's noise (three seeds)"


@dataclass
class Lab:
    """The published models on so many workers, and the ways to serve them."""

    task: str
    slo_ms: float
    workers: int
    data: Path
    queries: int
    only: tuple[int, ...] = ()
    count: int = 0
    _made: dict[Any, Solved] = field(default_factory=dict)

    def bench(self, options: PolicyOptions) -> Bench:
        """A conversation of its own, with the simulator at hand."""
        tools = Tools(extra={"simulate_policy": simulate_policy})
        return Bench(Asking([QueueStructured()], Limits()), options, tools)

    def group(self, load: float) -> Group:
        """The group at a load."""
        pair = ramsis.inputs(self.task, self.slo_ms, self.workers, load, data=self.data)
        options = PaperOptions(simulate=False)
        inputs = load_inputs(*pair)
        policy = Policy.from_inputs(inputs, options, formulation="paper", tools=Tools())
        (group,) = policy._all_groups()
        if self.only:
            group = replace(group, models=group.models.only(self.only))
        return replace(group, models=between_models(group.models, self.count)) if self.count else group

    def served(self, way: str, load: float) -> Solved:
        """A way's policy for a load, with its simulation."""
        if (way, load) not in self._made:
            self._made[way, load] = self._serve(way, load)
        return self._made[way, load]

    def _serve(self, way: str, load: float) -> Solved:
        how: dict[str, Any] = {"queries": self.queries, "monotone": "optimistic"}
        if way == "paper":
            return self.bench(PaperOptions(**how)).solve(self.group(load), [load])[0]
        if way == "ours":
            return self.bench(PolicyOptions(**how)).solve(self.group(load), [load])[0]
        rule = {"jellyfish": jellyfish, "modelswitching": modelswitching}[way]
        # Half a minute, as the paper's: near capacity queues grow with the length of the run.
        how["queries"] = max(10_000, int(30 * load))
        return rule(self.bench(BaselineOptions(**how)), self.group(load), load)

    def on_trace(self, way: str, seeds: Sequence[int]) -> PolicyRun:
        """A set of policies, one per 200 qps (100 for the baselines), on the Twitter trace."""
        held = read("ramsis/twitter_trace.json", self.data)
        own_queues = way in ("paper", "ours")
        # The trace asks for 1617 to 3905 queries per second.
        loads = [float(x) for x in range(1400, 4201, 200 if own_queues else 100)]
        solved = [self.served(way, load) for load in loads]
        return simulate_policy(
            solved[0].form,
            [one.policy for one in solved],
            workers=self.workers,
            piece_qps=np.array(held["qps"], dtype=float),
            piece_s=float(held["interval_s"]),
            balancing="round_robin" if own_queues else "shared_fifo",
            loads_qps=loads,
            seeds=seeds,
        )


def between_models(models: Models, count: int) -> Models:
    """The models with others between them, evenly in accuracy, on the line between neighbours."""
    wanted = np.union1d(
        np.linspace(models.accuracy[0], models.accuracy[-1], count - len(models.names) + 2), models.accuracy
    )
    latency = np.stack(
        [np.interp(wanted, models.accuracy, models.latency_s[:, b]) for b in range(models.latency_s.shape[1])], axis=1
    )
    names = tuple(f"m{i}" for i in range(wanted.size))
    return replace(models, names=names, tables=names, latency_s=latency, accuracy=wanted, spread=np.zeros_like(latency))


WAYS = ("paper", "ours", "jellyfish", "modelswitching")
CALLED = {"paper": "RAMSIS", "ours": "hetplan", "jellyfish": "Jellyfish+", "modelswitching": "ModelSwitching"}


def gains(mine: Iterable[Any], theirs: Iterable[Any]) -> tuple[float, float]:
    """Mean and largest gain in accuracy, in points, over the loads or workers that the figures show of both."""
    found = [
        100 * (a.accuracy - b.accuracy)
        for a, b in zip(mine, theirs, strict=True)
        if a.violation < PLOTTED and b.violation < PLOTTED
    ]
    return float(np.mean(found)), float(np.max(found))


def constant(data: Path, quick: bool, threads: int) -> list[Row]:
    """Constant loads."""
    rows: list[Row] = []
    cases = [("image", 150)] if quick else [(task, slo) for task in SLOS_MS for slo in SLOS_MS[task]]
    for task, slo_ms in cases:
        lab = Lab(task, float(slo_ms), CONSTANT_WORKERS[task], data, 100_000 if quick else 300_000)
        with ThreadPoolExecutor(max_workers=threads) as pool:
            jobs = [(way, float(load)) for way in WAYS for load in LOADS]
            list(pool.map(lambda job, lab=lab: lab.served(*job), jobs))
        for i, load in enumerate(LOADS):
            found = {way: lab.served(way, float(load)) for way in WAYS}
            told = ", ".join(
                f"{CALLED[way]} {found[way].accuracy:.4f} ({found[way].violation:.2%} late)" for way in WAYS[2:]
            )
            what = f"{task} {slo_ms} ms, {load} qps"
            paper, ours = found["paper"], found["ours"]
            rows.append(Row("Fig. 6", f"{what}: RAMSIS", "", paper.accuracy, told=told))
            better = at_least("RAMSIS's goodput", paper.goodput - 5e-4, NEVER_WORSE)
            rows.append(
                Row(
                    "Fig. 6",
                    f"{what}: hetplan, goodput",
                    "",
                    ours.goodput,
                    told=f"RAMSIS {paper.goodput:.4f}",
                    checks=[better],
                )
            )
            stated = TABLE_4.get(slo_ms, "").split() if task == "image" else []
            rows.append(
                Row(
                    "Table 4",
                    f"{what}: RAMSIS",
                    "%",
                    100 * paper.violation,
                    paper=f"{stated[i]}%" if stated else "",
                    told=f"hetplan {100 * ours.violation:.3f}%",
                )
            )
        if task == "image" and slo_ms == 150:
            rows += _artifact(
                "Fig. 6, artifact", {way: [lab.served(way, float(x)) for x in LOADS] for way in WAYS}, CONSTANT
            )
    return rows


CONSTANT = {"jellyfish": (3.70, 15.04), "modelswitching": (1.84, 6.71)}
TRACE = {"jellyfish": (5.70, 8.07), "modelswitching": (3.48, 4.63)}


def _artifact(figure: str, found: dict[str, list[Any]], printed: dict[str, tuple[float, float]]) -> list[Row]:
    rows = []
    for way, numbers in printed.items():
        for name, mine, theirs in zip(("mean", "highest"), gains(found["paper"], found[way]), numbers, strict=True):
            check: Check = between("artifact", theirs - 1.0, theirs + 1.0, SAME_SIMULATION)
            what = f"RAMSIS over {CALLED[way]}, {name}"
            note = MARGINAL if way == "jellyfish" else ""
            rows.append(Row(figure, what, "points", mine, paper=f"{theirs:.2f}", checks=[check], note=note))
        mean, _ = gains(found["ours"], found[way])
        rows.append(Row(figure, f"hetplan over {CALLED[way]}, mean", "points", mean))
    return rows


def trace(data: Path, quick: bool, threads: int) -> list[Row]:
    """The Twitter trace, compressed to 270 s."""
    rows: list[Row] = []
    kept: dict[str, list[Any]] = {way: [] for way in WAYS}
    cases = [("image", 150, k) for k in ((60, 80) if quick else (40, 60, 70, 80, 100))]
    if not quick:
        cases += [("image", 300, 60), ("image", 500, 60), ("text", 100, 20)]
    for task, slo_ms, workers in cases:
        lab = Lab(task, float(slo_ms), workers, data, 50_000)
        with ThreadPoolExecutor(max_workers=threads) as pool:
            runs = dict(zip(WAYS, pool.map(lambda way, lab=lab: lab.on_trace(way, (1, 2)), WAYS), strict=True))
        what = f"{task} {slo_ms} ms, {workers} workers"
        told = ", ".join(f"{CALLED[way]} {runs[way].accuracy:.4f}" for way in WAYS[2:])
        rows.append(Row("Fig. 5", f"{what}: RAMSIS", "", runs["paper"].accuracy, told=told))
        better = at_least("RAMSIS's goodput", runs["paper"].goodput - 2e-3, NEVER_WORSE)
        beside = f"RAMSIS {runs['paper'].goodput:.4f}"
        rows.append(Row("Fig. 5", f"{what}: hetplan, goodput", "", runs["ours"].goodput, told=beside, checks=[better]))
        late = ", ".join(f"{CALLED[way]} {runs[way].violation:.3%}" for way in WAYS[1:])
        rows.append(Row("Table 3", f"{what}: RAMSIS", "%", 100 * runs["paper"].violation, told=late))
        if task == "image" and slo_ms == 150 and workers in (60, 70, 80):
            for way in WAYS:
                kept[way].append(runs[way])
    return rows + _artifact("Fig. 5, artifact", kept, TRACE)


def fidelity(data: Path, quick: bool) -> list[Row]:
    """What is expected, and what simulation gives."""
    rows = []
    for workers in (60,) if quick else (40, 60, 80):
        for load in (1200, 2000, 2800):
            solved = Lab("image", 150.0, workers, data, 300_000).served("paper", float(load))
            measures = solved.measures
            assert measures is not None
            what = f"{workers} workers, {load} qps"
            told = f"expected {measures.goodput:.5f}"
            empirical = at_least("expected goodput", measures.goodput - 3e-4, "holds in every case measured; no bound")
            rows.append(Row("Fig. 7", f"{what}: goodput", "", solved.goodput, told=told, checks=[empirical]))
            late = f"expected {measures.violation_by_query:.3%}"
            rows.append(Row("Fig. 7", f"{what}: violations", "%", 100 * solved.violation, told=late))
    return rows


def many_and_few(data: Path, quick: bool) -> list[Row]:
    """Sixty models, nine, three."""
    rows = []
    loads = (2000.0,) if quick else (1200.0, 2000.0, 2800.0, 3600.0)
    for load in loads:
        nine, sixty = (Lab("image", 150.0, 100, data, 200_000, count=n) for n in (0, 60))
        first, second = nine.served("paper", load), sixty.served("paper", load)
        switching = (nine.served("modelswitching", load).accuracy, sixty.served("modelswitching", load).accuracy)
        told = f"60 models {second.accuracy:.4f}; ModelSwitching {switching[0]:.4f}, {switching[1]:.4f}"
        rows.append(Row("Fig. 8", f"{load:g} qps: RAMSIS with 9 models", "", first.accuracy, told=told))
        three = Lab("image", 150.0, 60, data, 200_000, only=(0, 3, 6))
        fish = three.served("jellyfish", load)
        least = at_least("Jellyfish+ with 3", fish.goodput - 1e-3, NEVER_WORSE)
        solved = three.served("paper", load)
        rows.append(
            Row(
                "Fig. 12",
                f"{load:g} qps: RAMSIS with 3 models, goodput",
                "",
                solved.goodput,
                told=f"Jellyfish+ {fish.goodput:.4f}",
                checks=[least],
            )
        )
    return rows


def runtimes(data: Path, quick: bool) -> list[Row]:
    """Table 2: CPU seconds here against the paper's seconds."""
    rows = []
    cases = [
        ("FLD 100, max", "fld{100}", "max", 0, 132.20),
        ("FLD 10, max", "fld{10}", "max", 0, 14.62),
        ("MD, max", "md", "max", 0, 115.50),
    ]
    cases += [
        ("FLD 100, variable", "fld{100}", "variable", 0, 3014.89),
        ("FLD 100, max, 60 models", "fld{100}", "max", 60, 1355.09),
    ]
    cases += [] if quick else [("MD, max, 60 models", "md", "max", 60, float("nan"))]
    for what, grid, batching, count, paper in cases:
        group = Lab("image", 500.0, 60, data, 10_000, count=count).group(2000.0)
        options = PolicyOptions(grid=grid, batching=batching, simulate=False)
        form: QueueProcess = group.form(2000.0, options, batching=batching)
        QueueStructured().solve(replace(form), Limits())
        began = time.process_time()
        QueueStructured().solve(replace(form), Limits())
        seconds = time.process_time() - began
        stated = f"{paper:g} s" if paper == paper else "over 24 h"
        told = f"{paper / seconds:.0f} x faster" if paper == paper else ""
        rows.append(Row("Table 2", what, "s", seconds, paper=stated, told=told))
    return rows


def run(data: Path, *, json: bool, quick: bool, threads: int) -> int:
    """All figures; 1 where a row is off."""
    if not (data / "ramsis").exists():
        print(f"the published measurements are not at {data / 'ramsis'}")
        return 2
    parts: tuple[Callable[[], list[Row]], ...] = (
        lambda: runtimes(data, quick),
        lambda: constant(data, quick, threads),
        lambda: fidelity(data, quick),
        lambda: many_and_few(data, quick),
        lambda: trace(data, quick, threads),
    )
    rows: list[Row] = []
    for part in parts:
        found = sorted(part(), key=lambda row: list(TITLES).index(row.figure))
        rows += found
        if not json:
            print(shown(found, TITLES), flush=True)
    if json:
        print(as_json(rows))
    return int(any(row.off for row in rows))
