"""How fast policies are made: against targets, beside general solvers on the same process, and as the question grows.

    python benchmarks/policy.py [--json] [--quick]

CPU seconds of one thread, median of five, compiled code warm; what compiling takes has its own row. The
nine published models are used where they are at hand (`../shared/data`, or HETPLAN_DATA), else nine made-up ones of the
same shape. QuantEcon and mdpsolver take part where they are installed; they get the same process as an explicit matrix.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

# One thread is measured; BLAS would start as many as there are cores for vectors above ten thousand numbers.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "papers"), str(ROOT / "tests")]

from cases.explicit_process import Explicit, explicit

from hetplan.dispatch.monitors import LoadMonitor
from hetplan.dispatch.policy_lookup import PolicySelector
from hetplan.planner.answer import Limits
from hetplan.planner.forms.queue_process import Batching, Criterion, PerWhat, QueueProcess
from hetplan.planner.forms.queue_process_measures import measure
from hetplan.profiles.plan_policy import PolicyTable
from hetplan.simulator.policy import simulate_policy
from hetplan.solvers.queue_structured import QueueStructured
from hetplan_papers.datasets.sources import DATA, present

PUBLISHED = {"9 models, 150 ms, 100 sweeps": 18.1, "9 models, 500 ms, 100 sweeps": 30.8}
"""CPU seconds of the published generator, measured on one machine together with the targets."""


@dataclass(frozen=True)
class Row:
    """One figure: seconds, what was wanted of it, what it is set beside."""

    what: str
    seconds: float
    target: float | None = None
    beside: str = ""
    note: str = ""


def models(count: int = 9) -> tuple[np.ndarray, np.ndarray]:
    """Latencies (s) of batches 1..33 and accuracies: published, or made up; more than nine lie between them."""
    if present("ramsis/image_artifact_inputs.npz"):
        with np.load(DATA / "ramsis" / "image_artifact_inputs.npz", allow_pickle=False) as held:
            latency, accuracy = held["lat_us"] * 1e-6, held["acc"]
    else:
        batches = np.arange(1, 34)
        base, step = np.geomspace(0.006, 0.05, 9), np.geomspace(0.015, 0.22, 9)
        latency = base[:, None] + step[:, None] * batches
        accuracy = np.linspace(0.58, 0.86, 9)
    if count <= 9:
        kept = np.unique(np.linspace(0, 8, count).round().astype(int))
        return latency[kept], accuracy[kept]
    wanted = np.linspace(accuracy[0], accuracy[-1], count)
    between = np.stack([np.interp(wanted, accuracy, latency[:, b]) for b in range(33)], axis=1)
    return between, wanted


def longer(latency: np.ndarray, batches: int) -> np.ndarray:
    """Latencies for more batches, on the line through the smallest and the largest that were measured."""
    known = latency.shape[1]
    slope = (latency[:, -1:] - latency[:, :1]) / (known - 1)
    return np.concatenate([latency, latency[:, -1:] + slope * np.arange(1, batches - known + 1)], axis=1)


def process(
    slo_s: float = 0.15,
    *,
    count: int = 9,
    steps: int | None = 100,
    queue: int = 32,
    load: float = 2000.0,
    workers: int = 60,
    **how: Any,
) -> QueueProcess:
    """A worker's process; no steps means a slack per latency (MD)."""
    latency, accuracy = models(count)
    latency = longer(latency, queue + 1)[:, : queue + 1]
    parts = [np.array([0.0, slo_s])]
    if steps is None:
        parts.append(latency[:, :-1][latency[:, :-1] <= slo_s])
    else:
        parts.append((slo_s / steps) * np.arange(1, steps))
    return QueueProcess(
        latency_s=latency,
        accuracy=accuracy,
        grid_s=np.unique(np.concatenate(parts)),
        stages=workers,
        stage_rates=np.array([load]),
        **how,
    )


def cpu_s(work: Callable[[], Any], repeat: int = 5) -> float:
    """CPU seconds of one call, the median of several."""
    spent = []
    for _ in range(repeat):
        began = time.process_time()
        work()
        spent.append(time.process_time() - began)
    return statistics.median(spent)


def fresh(form: QueueProcess) -> QueueProcess:
    """The same process with nothing computed beforehand."""
    return replace(form)


def policy_of(form: QueueProcess) -> None:
    """Build, solve, stationary distribution and averages."""
    new = fresh(form)
    answer = QueueStructured().solve(new, Limits())
    mass = answer.proof.get("stationary")
    mass = new.long_run(new.chosen(answer.point)) if mass is None else np.asarray(mass)  # type: ignore[arg-type]
    measure(new, answer.point, mass)  # type: ignore[arg-type]


def swept(form: QueueProcess) -> QueueProcess:
    """As published: a hundred undiscounted sweeps, per decision."""
    return replace(form, objective=PerWhat.PER_DECISION, criterion=Criterion.HORIZON, horizon=100)


def targets(quick: bool) -> list[Row]:
    """The wanted figures."""
    repeat = 3 if quick else 5
    few, much = process(), process(0.5)
    many, finest = process(0.5, count=64), process(0.5, count=64, steps=None)
    variable = process(0.5, batching=Batching.VARIABLE)
    policy_of(few)
    policy_of(process(batching=Batching.VARIABLE))
    rows = []
    for form, what, target in (
        (few, "9 models, 150 ms, 100 sweeps", 0.2),
        (much, "9 models, 500 ms, 100 sweeps", 0.25),
    ):
        seconds = cpu_s(lambda form=form: QueueStructured().solve(fresh(swept(form)), Limits()), repeat)
        beside = f"{PUBLISHED[what] / seconds:.0f} x the published generator ({PUBLISHED[what]} s on another machine)"
        rows.append(Row(what, seconds, target, beside))
    rows.append(Row("9 models, 150 ms, per query (Dinkelbach)", cpu_s(lambda: policy_of(few), repeat), 0.4))
    rows.append(
        Row("9 models, 500 ms, any batch", cpu_s(lambda: policy_of(variable), repeat), 2.0, "the paper: 3015 s")
    )
    rows.append(
        Row("64 models, 500 ms, whole batches", cpu_s(lambda: policy_of(many), repeat), 1.0, "the paper, 60: 1355 s")
    )
    text = f"64 models, 500 ms, MD ({finest.slacks} slacks)"
    rows.append(Row(text, cpu_s(lambda: policy_of(finest), 1 if quick else 3), 6.0, "the paper, 60: over 24 h"))
    loads = np.linspace(200, 4000, 20)
    family = [process(load=float(load), workers=k) for load in loads for k in (60, 70, 80)]
    rows.append(
        Row("60 policies (20 loads, 3 worker counts)", cpu_s(lambda: [policy_of(form) for form in family], 1), 6.0)
    )
    answer = QueueStructured().solve(few, Limits())
    rows.append(Row("certify that answer", cpu_s(lambda: fresh(few).certify(answer), repeat)))
    return rows


def online() -> list[Row]:
    """The parts that run while serving, per call; and the simulator, per query."""
    form = process()
    answer = QueueStructured().solve(form, Limits())
    policy = answer.point
    assert policy is not None
    names = tuple(f"m{i}" for i in range(form.models))
    table = PolicyTable(
        workers="w",
        slo_ms=150.0,
        rate_qps=2000.0,
        queue_max=form.queue,
        slack_ms=tuple((1000 * form.grid_s).tolist()),
        models=names,
        choice=PolicyTable.rows(np.array(names)[policy.model].tolist()),
        batch=PolicyTable.rows(policy.batch.tolist()),
        otherwise={"model": "m0", "batch": 33},
    )
    selector, monitor = PolicySelector([table]), LoadMonitor()
    calls = 100_000

    def look_up() -> None:
        for i in range(calls):
            selector.select(waiting=1 + i % 4, slack_ms=0.0015 * (i % 100_000), rate_qps=1900.0)

    def arrive() -> None:
        for i in range(calls):
            monitor.arrived(monitor.rate_qps(i * 5e-4) * 0 + i * 5e-4)

    rows = [
        Row("one look-up", cpu_s(look_up) / calls, 5e-6),
        Row("one arrival counted and the load read", cpu_s(arrive) / calls, 5e-6),
    ]
    queries = 3_000_000
    how: dict[str, Any] = {"workers": 60, "load_qps": 2000.0, "queries": queries, "seeds": (1,)}
    simulate_policy(form, [policy], **{**how, "queries": 10_000})
    alone = cpu_s(lambda: simulate_policy(form, [policy], **how), 3)
    rows.append(
        Row("a simulated query, exact marginal", alone / queries, 1 / 3e6, f"{queries / alone / 1e6:.1f} M per s")
    )
    every = cpu_s(lambda: simulate_policy(form, [policy], **how, every_worker=True), 3)
    rows.append(Row("a simulated query, 60 workers", every / queries, 1 / 3e6, f"{queries / every / 1e6:.1f} M per s"))
    how["balancing"] = "shortest_queue"
    simulate_policy(form, [policy], **{**how, "queries": 10_000})
    joined = cpu_s(lambda: simulate_policy(form, [policy], **how), 3)
    rows.append(
        Row("a simulated query, shortest queue", joined / queries, None, f"{queries / joined / 1e6:.1f} M per s")
    )
    return rows


def general() -> list[Row]:
    """The same discounted process by this engine, and by other packages on the explicit matrix."""
    form = process(objective=PerWhat.PER_DECISION, criterion=Criterion.DISCOUNTED, discount=0.99)
    began = time.process_time()
    matrix = explicit(form)
    built = time.process_time() - began
    size = f"{matrix.states} states, {matrix.reward.size} pairs, {matrix.moves.nnz / 1e6:.2f} M numbers"
    mine = cpu_s(lambda: QueueStructured().solve(fresh(form), Limits()))
    value = QueueStructured().solve(form, Limits()).value
    return [
        Row("structured, matrix-free, tables included", mine, None, f"value {value:.10f}"),
        Row("the explicit matrix, built", built, None, size),
        *_quantecon(matrix, mine),
        *_mdpsolver(matrix, mine),
    ]


def _quantecon(mdp: Explicit, mine: float) -> list[Row]:
    try:
        from quantecon.markov import DiscreteDP
    except ImportError:
        return [Row("QuantEcon", float("nan"), None, "not installed")]
    states = np.repeat(np.arange(mdp.states), np.diff(mdp.first))
    actions = np.arange(mdp.reward.size) - mdp.first[states]
    from scipy.sparse import csr_matrix

    matrix = csr_matrix((mdp.moves.data, mdp.moves.indices, mdp.moves.indptr), shape=mdp.moves.shape)
    ddp = DiscreteDP(mdp.reward, matrix, mdp.form.discount, states, actions)
    rows = []
    for method in ("modified_policy_iteration", "policy_iteration", "value_iteration"):
        result = ddp.solve(method=method, epsilon=1e-8, max_iter=10_000)
        seconds = cpu_s(lambda method=method: ddp.solve(method=method, epsilon=1e-8, max_iter=10_000), 3)
        said = f"value {result.v[mdp.form.slacks - 1]:.10f}"
        rows.append(Row(f"QuantEcon {method} on it", seconds, None, said, f"{seconds / mine:.1f} x"))
    return rows


def _mdpsolver(mdp: Explicit, mine: float) -> list[Row]:
    try:
        import mdpsolver
    except ImportError:
        return [Row("mdpsolver", float("nan"), None, "not installed")]
    ranges = list(zip(mdp.first[:-1].tolist(), mdp.first[1:].tolist(), strict=True))
    pointer, places, data = mdp.moves.indptr, mdp.moves.indices, mdp.moves.data
    rewards = [mdp.reward[a:b].tolist() for a, b in ranges]
    columns = [[places[pointer[i] : pointer[i + 1]].tolist() for i in range(a, b)] for a, b in ranges]
    odds = [[data[pointer[i] : pointer[i + 1]].tolist() for i in range(a, b)] for a, b in ranges]
    rows = []
    for algorithm in ("mpi", "vi"):
        model = mdpsolver.model()
        model.mdp(discount=mdp.form.discount, rewards=rewards, tranMatProbs=odds, tranMatColumns=columns)

        def work(model: Any = model, algorithm: str = algorithm) -> None:
            model.solve(algorithm=algorithm, tolerance=1e-8, parallel=False)

        seconds = cpu_s(work, 3)
        said = f"value {model.getValue(mdp.form.slacks - 1):.10f}"
        rows.append(Row(f"mdpsolver {algorithm} on it", seconds, None, said, f"{seconds / mine:.1f} x"))
    return rows


def growth() -> list[Row]:
    """One thing grows, the rest stays at 9 models, 32 queries, 100 slacks, 60 workers, 150 ms; whole batches."""
    rows = []
    for count in (3, 9, 18, 36, 64):
        rows.append(Row(f"{count} models", cpu_s(lambda count=count: policy_of(process(count=count)), 3)))
    for queue in (8, 16, 32, 64, 128):
        rows.append(Row(f"queue of {queue}", cpu_s(lambda queue=queue: policy_of(process(queue=queue)), 3)))
    for steps in (25, 50, 100, 200, 400, 800):
        rows.append(Row(f"{steps} slacks", cpu_s(lambda steps=steps: policy_of(process(steps=steps)), 3)))
    for workers in (1, 10, 60, 300, 1000):
        load = 2000.0 * workers / 60
        form = process(workers=workers, load=load)
        rows.append(Row(f"{workers} workers", cpu_s(lambda form=form: policy_of(form), 3)))
    for steps in (25, 50, 100, 200):
        form = process(steps=steps, batching=Batching.VARIABLE)
        rows.append(Row(f"any batch, {steps} slacks", cpu_s(lambda form=form: policy_of(form), 3)))
    for load in (400, 2000, 3200, 3600, 4000):
        rows.append(Row(f"load of {load} qps", cpu_s(lambda load=load: policy_of(process(load=float(load))), 3)))
    return rows


ALONE = """
import sys, time
sys.path.insert(0, {root!r})
began = time.process_time()
{work}
held = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(time.process_time() - began, int(held.split()[1]) / 1024)
"""
MADE = "from benchmarks import policy as p; p.policy_of(p.process({how}))"
PLANNED = """
import hetplan
hetplan.solve("examples/policy/profile.json", "examples/policy/slo.json", options={options}).require()
"""


def alone() -> list[Row]:
    """A process of its own each: CPU seconds with compiled code loaded from disk, and the most memory it held.

    The examples are read, solved, certified, simulated, verified: all that the command does but printing.
    """
    rows = []
    for what, work in (
        ("9 models, 150 ms", MADE.format(how="0.15")),
        ("9 models, 500 ms, any batch", MADE.format(how="0.5, batching=p.Batching.VARIABLE")),
        ("64 models, MD", MADE.format(how="0.5, count=64, steps=None")),
        ("the example's set, whole batches", PLANNED.format(options={"batching": "max"})),
        ("the example's set, both kinds of batches", PLANNED.format(options={})),
    ):
        script = ALONE.format(root=str(ROOT), work=work)
        command = [sys.executable, "-c", script]
        said = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout.split()
        peak = float(said[1])
        kept = f" (wanted 300: {'ok' if peak < 300 else 'MISSED'})" if work.startswith("from") else ""
        rows.append(Row(what, float(said[0]), None, f"peak {peak:.0f} MB{kept}"))
    return rows


def side_by_side() -> list[Row]:
    """A family on one thread and on several: elapsed seconds, the least of five, and times faster."""
    loads = np.linspace(200, 4000, 20)
    whole = [process(load=float(load), workers=k) for load in loads for k in (60, 70, 80)]
    several = [process(load=float(load), batching=Batching.VARIABLE) for load in loads]
    rows = []
    for what, family in (("60 policies, whole batches", whole), ("20 policies, any batch", several)):
        one = 0.0
        for threads in (1, 2, 4, 8, 16):
            if threads > (os.cpu_count() or 1):
                break
            spent = []
            for _ in range(5):
                forms = [fresh(form) for form in family]
                began = time.perf_counter()
                QueueStructured().solve_all(forms, Limits(threads=threads))
                spent.append(time.perf_counter() - began)
            one = one or min(spent)
            rows.append(Row(f"{what}, {threads} threads", min(spent), None, f"{one / min(spent):.2f} x"))
    return rows


def shown(title: str, rows: Sequence[Row]) -> None:
    """A table."""
    print(f"\n{title}")
    for row in rows:
        target = (
            "" if row.target is None else f"(wanted {row.target:g}: {'ok' if row.seconds <= row.target else 'MISSED'})"
        )
        digits = f"{row.seconds:12.4f}" if row.seconds > 1e-4 else f"{row.seconds:12.3e}"
        print(f"  {row.what:52s} {digits} s  {target:26s} {row.beside} {row.note}".rstrip())


def main(argv: list[str]) -> int:
    """All tables, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true", help="targets and online parts only")
    given = parser.parse_args(argv)
    began = time.process_time()
    policy_of(process())
    tables = {"first call, compiled code loaded or made": [Row("9 models, 150 ms", time.process_time() - began)]}
    tables["targets"] = targets(given.quick)
    tables["online, and simulation"] = online()
    if not given.quick:
        tables["beside general solvers, discount 0.99"] = general()
        tables["growth"] = growth()
        tables["in a process of its own"] = alone()
        tables["side by side, elapsed"] = side_by_side()
    if given.json:
        print(json.dumps({name: [asdict(row) for row in rows] for name, rows in tables.items()}, indent=1))
        return 0
    for name, rows in tables.items():
        shown(name, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
