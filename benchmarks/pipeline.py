"""How long pipelines take to plan, beside the paper's own program in the same run, and how that grows.

    python benchmarks/pipeline.py [--quick] [--json]

Process time of one thread, reading included, verification included. Published profiles are needed for the first tables.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "papers")]

import hetplan as hp
from hetplan.api.solve import choose, pose
from hetplan.dispatch.pipelines import Host, most_accurate_first
from hetplan.problems.pipeline.programs import config_form
from hetplan.problems.pipeline.tree import prefixes
from hetplan.profiles.load import load_inputs
from hetplan_papers.datasets import loki, loki_generator
from hetplan_papers.datasets.sources import present

Json = dict[str, Any]
DEMANDS = (150, 208, 250, 300, 450, 600, 800, 1000, 1300, 1800)
PLANNED = {"sizing": "fluid"}
"""The program alone is timed, as the paper sizes it."""
PAIRS = ((100, 50), (200, 60), (300, 60), (300, 80), (400, 80), (400, 120), (500, 60), (600, 100))


def timed(files: tuple[Json, Json], **how: Any) -> tuple[float, Any]:
    """Seconds of processor time, and the outcome."""
    began, profile = time.process_time(), hp.Profile.model_validate(files[0])
    outcome = hp.solve(profile, *files[1:], options=PLANNED, **how)
    return time.process_time() - began, outcome


def row(name: str, cases: Iterable[tuple[Json, Json]], **how: Any) -> Json:
    """Median and worst over the cases."""
    runs = [timed(files, **how) for files in cases]
    seconds = [took for took, _ in runs]
    return {
        "what": name,
        "formulation": how.get("formulation", "pipeline-milp"),
        "cases": len(seconds),
        "median_s": round(statistics.median(seconds), 3),
        "worst_s": round(max(seconds), 3),
        "verified": sum(outcome.reason == "verified" for _, outcome in runs),
    }


def beside_the_paper() -> list[Json]:
    """The published pipelines on 20 servers, to gap 0, by the exact program and by the paper's."""
    sets: dict[str, Callable[[], list[tuple[Json, Json]]]] = {
        "traffic chain, 20 servers": lambda: [loki.traffic_chain(demand) for demand in DEMANDS],
        "traffic tree, 20 servers": lambda: [loki.traffic_tree(demand) for demand in DEMANDS[:8]],
        "two pipelines, 20 servers": lambda: [loki.both(*pair) for pair in PAIRS],
    }
    hp.solve(*loki.traffic_chain(100), options=PLANNED)  # imports are not what is measured
    rows = [row(name, cases(), formulation=form) for name, cases in sets.items() for form in ("pipeline-milp", "loki")]
    chain = "traffic chain, 20 servers"
    return [*rows, row(chain, sets[chain](), formulation="loki-budget")]


def large(quick: bool) -> list[Json]:
    """Generated trees, by one latency level per task."""
    found = []
    cases = [("T5", 200, 1.5), ("T7", 1000, 2.0), *([] if quick else [("T7", 2000, 2.0)])]
    for shape, servers, utilisation in cases:
        files = loki_generator.inputs(getattr(loki_generator, shape), servers=servers, utilisation=utilisation)
        found.append({"what": f"{shape}, {servers} servers, 8 levels"} | claim(files, formulation="loki-budget"))
    found.append(
        {"what": "4 x T5, 2000 servers, 8 levels"} | claim(loki_generator.shared_cluster(), formulation="loki-budget")
    )
    return found


def few_servers(quick: bool) -> list[Json]:
    """Bushy or several pipelines on few servers within a limit in seconds."""
    cases = [
        ("T7, 20 servers", 5.0, loki_generator.inputs(loki_generator.T7, servers=20, utilisation=1.5)),
        ("2 x T5, 20 servers", 5.0, loki_generator.shared_cluster((1, 2), servers=20, each=10)),
    ]
    if not quick:
        cases.append(("8 x T5, 200 servers", 30.0, loki_generator.shared_cluster(range(1, 9), servers=200, each=25)))
    return [{"what": name, "limit_s": most} | claim(files, time_limit=most)
            for name, most, files in cases]  # fmt: skip


def claim(files: tuple[Json, Json], **how: Any) -> Json:
    """Seconds, accuracy, bound, gap and whose word the bound is."""
    took, outcome = timed(files, **how)
    first = outcome.require().claims[0]
    return {
        "seconds": round(took, 2),
        "accuracy": round(first.value, 6),
        "bound": None if first.bound is None else round(first.bound, 6),
        "gap": None if first.gap is None else round(first.gap, 6),
        "bound_is": first.vouched,
    }


def growth() -> list[Json]:
    """One thing at a time: servers, tasks, variants, pipelines."""
    found = []
    for servers in (50, 100, 200, 400, 800):
        files = loki_generator.inputs(loki_generator.T5, servers=servers, utilisation=1.5)
        found.append({"what": f"T5, {servers} servers"} | claim(files, formulation="loki-budget"))
    for tasks in (2, 3, 4, 5):
        chain = tuple((t + 1,) if t + 1 < tasks else () for t in range(tasks))
        fork = (loki_generator.T5[0], (3,), (4,) if tasks > 4 else (), *((),) * (tasks - 3))
        shape = chain if tasks <= 3 else fork
        files = loki_generator.inputs(shape, servers=200, utilisation=1.5)
        found.append({"what": f"{tasks} tasks, 200 servers"} | claim(files, formulation="loki-budget"))
    for variants in (5, 10):
        files = loki_generator.inputs(loki_generator.T5, servers=200, utilisation=1.5, variants=variants)
        found.append({"what": f"{variants} variants a task, 200 servers"} | claim(files, formulation="loki-budget"))
    for pipelines in (1, 2, 3, 4):
        files = loki_generator.shared_cluster(tuple(range(1, pipelines + 1)))
        found.append({"what": f"{pipelines} x T5, 2000 servers"} | claim(files, formulation="loki-budget"))
    return found


def building() -> list[Json]:
    """How long it takes to write the exact program of the traffic chain."""
    profile, slo = loki.traffic_chain(600)
    inputs = load_inputs(hp.Profile.model_validate(profile), slo)
    problem = pose(inputs, choose(inputs, question="pipeline", formulation="pipeline-milp"))
    runs, form = [], None
    for _ in range(21):
        began = time.process_time()
        forest = [(tree, prefixes(tree)) for tree in problem.served]
        form = config_form(forest, problem.wish.fleet, problem.aim("quality")).form
        runs.append(time.process_time() - began)
    assert form is not None
    rows, columns = form.matrix.shape
    return [{"what": f"{rows} rows, {columns} columns", "ms": round(1000 * statistics.median(runs), 2)}]


def filling() -> list[Json]:
    """Most accurate first, per call."""
    found = []
    for servers in (20, 200):
        half = servers // 2
        hosts = [Host(f"a{i}", "a", 1 - i / 1000, 10, {"b": 2.0}) for i in range(half)]
        hosts += [Host(f"b{i}", "b", 1 - i / 1000, 20) for i in range(half)]
        tasks, runs = {"a": ["b"], "b": []}, []
        for _ in range(30):
            began = time.process_time()
            for _ in range(20):
                most_accurate_first(hosts, tasks, 9.0 * half)
            runs.append((time.process_time() - began) / 20)
        found.append(
            {"what": f"most accurate first, {servers} servers", "ms": round(1000 * statistics.median(runs), 4)}
        )
    return found


def show(title: str, rows: list[Json]) -> None:
    """A table."""
    print(f"\n{title}")
    heads = list(rows[0])
    cells = [[str(one.get(head, "")) for head in heads] for one in rows]
    widths = [max(len(head), *(len(line[k]) for line in cells)) for k, head in enumerate(heads)]
    for line in (heads, *cells):
        print("  " + "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def main(argv: list[str]) -> int:
    """Run the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="without the tables of growth")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(argv)
    tables: dict[str, list[Json]] = {}
    if present("loki"):
        tables["beside the paper's program, to gap 0"] = beside_the_paper()
        tables["writing the program of the traffic chain"] = building()
    tables["large clusters"] = large(given.quick)
    tables["few servers"] = few_servers(given.quick)
    if not given.quick:
        tables["growth"] = growth()
    tables["routing"] = filling()
    if given.json:
        print(json.dumps(tables, indent=1))
        return 0
    for title, rows in tables.items():
        show(title, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
