"""Work over processes and emulated nodes: how many times faster, and what several candidates at once cost in steps.

usage: python benchmarks/sweeps.py [work] [waiting] [search] [steps] [--queries 20]

work     plans of the README's example, and plain arithmetic: 1 process, 2 processes, Ray with 2 nodes of one CPU
waiting  tasks that wait (for a machine that is elsewhere): 1, 8 processes, 8 Ray nodes of one CPU each, emulated here
search   a search whose evaluator waits: 1 candidate, 8 at once here, 8 at once on the nodes
steps    synthetic compound queries: measurements, and rounds of them, until a plan within 5% of the cheapest

Without a name all of them. Each prints rows of its table; whatever should be the same bytes is compared. Ray is left
out with a line where it is not installed.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "papers")]

import hetplan as hp
from hetplan.errors import InputError
from hetplan.planner.spread import Spread

NODES = 8
TASKS, WAIT_S = 96, 0.5
PLANS, LOOPS = 24, 8_000_000
EVALUATOR = """
import json, random, sys, time
for line in sys.stdin:
    asked = json.loads(line)
    size, model = asked["knobs"]["size"], asked["knobs"]["model"]
    time.sleep(0.02)
    compute = {"n": 0.1, "s": 0.25, "m": 0.55, "x": 1.0}[model] * (size / 1280) ** 2
    score = float(random.Random(f"{size}/{model}/{asked['index']}").random() < 0.95 - 0.25 * (1 - compute) ** 4)
    print(json.dumps({"score": score, "seconds": {"sample": 0.001, "detect": 0.16 * compute, "track": 0.01},
                      "bytes": {"sample": 1e4, "detect": 6e3, "track": 2e3}, "input_bytes": 1e4}), flush=True)
"""


@contextmanager
def nodes(count: int) -> Iterator[bool]:
    """So many Ray nodes of one CPU each on this machine; whether there are any."""
    try:
        import ray
        from ray.cluster_utils import Cluster
    except ImportError:
        print("ray is not installed: its rows are left out")
        yield False
        return
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    try:
        for _ in range(count):
            cluster.add_node(num_cpus=1)
        cluster.wait_for_nodes()
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        yield True
    finally:
        ray.shutdown()
        cluster.shutdown()


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds by the clock, and what came of it."""
    began = time.perf_counter()
    found = call()
    return time.perf_counter() - began, found


def each_way(once: Callable[[Spread], Any], start: Callable[[Spread], Any], several: int) -> None:
    """The rows of the same work alone, over processes here, and over nodes; `start` has every worker begin."""
    print("| where | s to start | s of work | times as fast | with the start | bytes |\n|---|---|---|---|---|---|")
    ways: list[tuple[str, int, str | None]] = [
        ("1 process", 1, None), (f"{several} processes", several, None), (f"Ray, {several} nodes", several, "ray")
    ]  # fmt: skip
    alone, first = 0.0, None
    for name, jobs, on in ways:
        with nodes(several) if on else nullcontext(True) as there:
            if not there:
                continue
            with Spread(jobs=jobs, on=on) as spread:
                begun, _ = timed(lambda spread=spread: start(spread))
            # The same crew would keep what it found: it starts once more, and the start is not counted twice.
            with Spread(jobs=jobs, on=on) as spread:
                start(spread)
                seconds, found = timed(lambda spread=spread: once(spread))
            alone, first = alone or seconds, found if first is None else first
            print(
                f"| {name} | {begun:.1f} | {seconds:.1f} | {alone / seconds:.2f} | {alone / (seconds + begun):.2f} | "
                f"{'same' if found == first else 'DIFFERENT'} |", flush=True,
            )  # fmt: skip


def waited(shared: float, task: dict[str, Any], _cancel: threading.Event | None = None) -> dict[str, Any]:
    """Work of a machine that is elsewhere: nothing is computed here."""
    time.sleep(task.get("s", shared))
    return {"of": task["of"]}


def waiting() -> None:
    """What waits: as many times faster as there are workers, less what handing out costs."""
    begin = [{"of": -number, "s": 0.2} for number in range(1, NODES + 1)]
    each_way(
        lambda spread: spread.all(waited, WAIT_S, [{"of": number} for number in range(TASKS)]),
        lambda spread: spread.all(waited, WAIT_S, begin),
        NODES,
    )


def computed(shared: int, task: dict[str, Any], _cancel: threading.Event | None = None) -> dict[str, Any]:
    """A plan of the README's example, planned anew."""
    example = ROOT / "examples" / "pool"
    found = hp.solve(example / "profile.json", example / "slo.json", seed=shared + task["of"])
    return {"plan": found.require().digest}


def spun(shared: int, task: dict[str, Any], _cancel: threading.Event | None = None) -> dict[str, Any]:
    """Plain arithmetic, which needs a core and nothing else."""
    total = task["of"]
    for number in range(shared):
        total = (total * 31 + number) % 1_000_003
    return {"total": total}


def work() -> None:
    """What computes: as many times faster as there are cores, at most; what two cores allow is measured beside it."""
    print("Plans of the README's example, each by another seed\n")
    each_way(
        lambda spread: spread.all(computed, 0, [{"of": number} for number in range(PLANS)]),
        lambda spread: spread.all(computed, 0, [{"of": number} for number in (1001, 1002, 1003, 1004)]),
        2,
    )
    print("\nPlain arithmetic, at the same time of day\n")
    each_way(
        lambda spread: spread.all(spun, LOOPS, [{"of": number} for number in range(PLANS)]),
        lambda spread: spread.all(spun, LOOPS, [{"of": number} for number in (1001, 1002)]),
        2,
    )


def search() -> None:
    """A search whose evaluator waits; several at once need not propose what one at a time does."""
    from typer.testing import CliRunner

    from hetplan.cli.app import build_app

    example = ROOT / "examples" / "compound"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        slo = json.loads((example / "slo.json").read_text())
        slo["apps"] = {"gate": slo["apps"]["gate"] | {"latency": {"p50_ms": 100}}}
        (folder / "slo.json").write_text(json.dumps(slo))
        profile = json.loads((example / "profile.json").read_text())
        (pipeline,) = profile["pipelines"].values()
        pipeline["knobs"]["size"] = [640, 800, 960, 1120, 1280, 1440]  # times four models: three times eight
        (folder / "profile.json").write_text(json.dumps(profile))
        (folder / "measure.py").write_text(EVALUATOR)
        command = json.dumps([sys.executable, "measure.py"])
        (folder / "site.toml").write_text(f"[evaluators.track-eval]\ncommand = {command}\n")

        def once(jobs: int, on: str | None) -> tuple[int, bytes, bytes]:
            journal, plan = folder / "journal.jsonl", folder / "plan.json"
            journal.unlink(missing_ok=True)
            ran = CliRunner().invoke(
                build_app(),
                ["solve", str(folder / "profile.json"), str(folder / "slo.json"), "--evaluate", "track-eval",
                 "--site", str(folder / "site.toml"), "--journal", str(journal), "--set", "samples_min=100",
                 "--set", "samples_max=100", "--set", "stop_rule=fixed", "--set", "early=false", "--set", "steps=24",
                 "--jobs", str(jobs), *(["--on", on] if on else []), "-o", str(plan)],
            )  # fmt: skip
            if ran.exit_code not in (0, 4):
                raise SystemExit(ran.output)
            lines = [json.loads(line) for line in journal.read_text().splitlines()]
            return sum("plan" in line for line in lines), journal.read_bytes(), plan.read_bytes()

        print("| where | s | candidates | s a candidate | times as fast | bytes |\n|---|---|---|---|---|---|")

        def said(name: str, seconds: float, found: Any, alone: float, same: str) -> float:
            each = seconds / found[0]
            print(f"| {name} | {seconds:.1f} | {found[0]} | {each:.2f} | {(alone or each) / each:.2f} | {same} |")
            return each

        seconds, found = timed(lambda: once(1, None))
        alone = said("1 at a time", seconds, found, 0.0, "")
        seconds, here = timed(lambda: once(NODES, None))
        said(f"{NODES} at once, processes", seconds, here, alone, "")
        with nodes(NODES) as there:
            if there:
                once(NODES, "ray")
                seconds, found = timed(lambda: once(NODES, "ray"))
                same = "plan and journal the same" if found == here else "DIFFERENT"
                said(f"{NODES} at once, Ray nodes", seconds, found, alone, same)


def steps(queries: int) -> None:
    """What a batch of proposals costs: each knows less than one that waits for those before it."""
    sys.path.insert(0, str(Path(__file__).parent))
    from compound_search import METHODS, NEAR, NEAR_DOLLARS, box_of, sought_of

    from hetplan_papers.datasets.circinus_generator import APPS, draw

    most = 96
    print("| application | at once | measurements (median, mean) | rounds (median, mean) | not found |")
    print("|---|---|---|---|---|")
    for app in APPS:
        for at_once in (1, 2, 4, 8):
            counts = []
            for seed in range(500, 500 + queries):
                query = draw(app, seed)
                form, knobs = box_of(query), sought_of(query).knobs
                found, best = METHODS["struct-ci"].begin(form, seed), np.inf
                done = None
                while done is None and found.observed < most and (plans := found.ask(at_once)):
                    for plan in plans:
                        c = plan // len(form.placements)
                        one = form.observe(c)
                        found.tell(plan, one)
                        if one.passes and query.accuracy[query.configuration(knobs(c))] >= query.accuracy_min:
                            best = min(best, float(form.costs(c).min()))
                    done = found.observed if best <= NEAR * query.least_cost + NEAR_DOLLARS else None
                counts.append(done)
            known = np.array([count for count in counts if count is not None], dtype=float)
            rounds = np.ceil(known / at_once)
            print(
                f"| {app} | {at_once} | {np.median(known):.3g}, {known.mean():.3g} | {np.median(rounds):.3g}, "
                f"{rounds.mean():.3g} | {counts.count(None)} of {queries} |", flush=True,
            )  # fmt: skip


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", choices=["work", "waiting", "search", "steps", []])
    parser.add_argument("--queries", type=int, default=20)
    asked = parser.parse_args(argv)
    sections: dict[str, Callable[[], None]] = {
        "work": work, "waiting": waiting, "search": search, "steps": lambda: steps(asked.queries)
    }  # fmt: skip
    for name in asked.sections or list(sections):
        print(f"\n## {name}\n")
        try:
            sections[name]()
        except InputError as error:
            print(error)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
