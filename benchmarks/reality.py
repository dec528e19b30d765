"""Simulated against measured: plans applied to this machine for real, loaded, and set beside their simulation.

    python benchmarks/reality.py [--seconds 30] [--only SET ...] [--plant FAULT] [--write docs/measured/reality.md]

A cell is a set of models, a dispatch rule and a load. Workers of the sets `pool`, `pipeline` and `policy` take the
times of their tables without computing (as many "machines" as the plan wants fit on two cores); those of `onnx` run
real models, one on a core of its own, or two that share the cores with all else (`onnx-shared`). The simulation plays
the very queries that were sent. What the way through sockets, router and event loops takes is measured first, on idle
workers, and stated as `network_ms_per_hop` in the SLO file of every cell. Each cell: p99, violations and quality,
measured and simulated, with the measured causes that a difference can have: how late requests were sent, how much of
the cores' time the host took, and how long a core stood still; for real models also how long each inference took, with
which the queries are played again (`reality_replay`). `--plant` puts a fault into the sets with real models that no
such cause may explain: `routing` sends queries to either worker at random where the plan says to whoever is free,
`delay` stops the router for 8 of every 48 ms.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.crowding import crowding
from benchmarks.reality_cases import ONNX, Case, chain, hops, onnx, pipelines, policies, pools
from benchmarks.reality_cells import ORDER, REAL, REPEATS, Cell, RealCell, heading, reported, write_page
from benchmarks.reality_replay import Replay
from benchmarks.stalls import StallWatch
from hetplan.executor.kept_process import marked
from hetplan.profiles.load_one import load_profile
from tests.written_profile import written_profile

RUNS = 8
HOSTS = ("--site", "site.toml")
_IDLY = 0.3
"""The share of a core at which ways are measured, with one query after the other."""


class Workplace:
    """A folder in which commands are run, one after the other."""

    def __init__(self, folder: Path, seconds: float) -> None:
        self.folder, self.seconds = folder, seconds
        self.ways: list[str] = []
        """What hand-over and the rest of a hop cost in cells of real models, in words."""

    def hetplan(self, *words: str, allow: Sequence[int] = (0,), watch: StallWatch | None = None) -> dict[str, Any]:
        """The last line of a command's stream; `watch` is on while load is sent."""
        command = [str(Path(sys.executable).with_name("hetplan")), *words, "--json"]
        return self.last_line(command, allow=allow, watch=watch)

    def last_line(
        self, command: Sequence[str], *, allow: Sequence[int] = (0,), watch: StallWatch | None = None,
        cores: Sequence[int] = (),
    ) -> dict[str, Any]:  # fmt: skip
        """Run a command that tells lines of JSON, on these cores."""
        ran = subprocess.Popen(
            command, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1
        )
        if cores:
            os.sched_setaffinity(ran.pid, cores)
        assert ran.stdout is not None
        assert ran.stderr is not None
        line, sending = "", False
        for line in ran.stdout:
            if watch is not None and ('"what": "load"' in line) is not sending:
                sending = not sending
                (watch.start if sending else watch.stop)()
        reported = ran.stderr.read()
        if ran.wait() not in allow:
            raise RuntimeError(f"{' '.join(command)}: exit {ran.returncode}\n{line[-500:]}{reported}")
        last: dict[str, Any] = json.loads(line)
        return last

    def cells_of(self, case: Case, hop_ms: float) -> Iterator[Cell]:
        """Plan, apply, load at every rate, tear down."""
        apps = {name: {**app, "network_ms_per_hop": hop_ms} for name, app in case.slo["apps"].items()}
        self._write("profile.json", written_profile(case.profile))
        self._write("slo.json", {**case.slo, "apps": apps})
        self._write_hosts(case)
        self.hetplan("solve", "profile.json", "slo.json", *case.solve, "-o", "plan.json")
        if case.dispatch:
            _redispatched(self.folder / "plan.json", case.dispatch)
        try:
            endpoint = self.hetplan("apply", "plan.json", *HOSTS, "--yes")["endpoint"]
            self._models_below(endpoint, case)
            for load, rate_qps, arrivals in case.loads:
                asked = {name: {**app, "rate_qps": rate_qps} for name, app in apps.items()}
                self._write("load.json", {**case.slo, "apps": asked})
                files = ("plan.json", "profile.json", "load.json")
                how = (
                    "--arrivals",
                    arrivals,
                    "--duration",
                    f"{self.seconds:g}",
                    "--simulations",
                    str(RUNS),
                    *case.load,
                )

                def once(load: str = load, files: Sequence[str] = files, how: Sequence[str] = how) -> Cell:
                    with StallWatch() as watch:
                        words = ("loadtest", *files, "--endpoint", endpoint, *how)
                        sent = self.hetplan(*words, allow=(0, 6, 9), watch=watch)
                    return _cell(case, load, sent["report"], watch)

                yield _repeated(once)
        finally:
            self.hetplan("down", *HOSTS, "--yes")

    def real_cells_of(self, case: Case, plant: str = "") -> Iterator[Cell]:
        """As `cells_of`, for models that compute: sent and simulated by `reality_replay`."""
        self._write("profile.json", written_profile(case.profile))
        self._write("slo.json", case.slo)
        self._write_hosts(case)
        self.hetplan("solve", "profile.json", "slo.json", *case.solve, "-o", "plan.json")
        _redispatched(self.folder / "plan.json", case.dispatch)
        (self.folder / "applied.json").write_bytes((self.folder / "plan.json").read_bytes())
        if plant == "routing":
            _redispatched(self.folder / "applied.json", "shares")
        try:
            endpoint = self.hetplan("apply", "applied.json", *HOSTS, "--yes")["endpoint"]
            with urllib.request.urlopen(f"{endpoint}/healthz") as reply:
                router = int(json.load(reply)["pid"])
            os.sched_setaffinity(router, case.other_cores)
            self._models_below(endpoint, case)
            hand_over_ms, beside_ms = self._ways_of(endpoint, case)
            self.ways.append(f"{hand_over_ms:.2f} + {beside_ms:.2f} ms ({case.models}, {case.rule})")
            for load, rate_qps, _ in case.loads:
                self._write("load.json", _asking(case, rate_qps, hand_over_ms + beside_ms))
                self._write("load-through.json", _asking(case, rate_qps, beside_ms))
                through = self._learned(endpoint, case)

                def once(load: str = load, through: dict[str, Any] = through) -> Cell:
                    files = ("plan.json", "profile.json", "load.json", "through.json", "load-through.json")
                    with StallWatch() as watch, _stopped_now_and_then(router if plant == "delay" else 0):
                        how = ("--seconds", f"{self.seconds:g}", "--runs", str(RUNS), "--hand-over", str(hand_over_ms))
                        sent = self._sent(endpoint, case, files, *how, watch=watch)
                    # What a server is taken for without waiting, as the router's clock in `through` has it.
                    took = {name: ms + hand_over_ms for name, ms in sent["went"]["service_ms"].items()}
                    return _real_cell(case, load, sent, watch, beyond(took, through, case))

                yield _repeated(once)
        finally:
            self.hetplan("down", *HOSTS, "--yes")

    def _models_below(self, endpoint: str, case: Case) -> None:
        """Under a real-time priority, threads in which models compute get the next lower one.

        Else whoever passes queries on waits until a model is done, where usually it asks for short turns.
        """
        if case.kind != "onnx" or os.sched_getscheduler(0) not in (os.SCHED_FIFO, os.SCHED_RR):
            return
        with suppress(OSError):  # whatever comes of it: the threads are there then
            urllib.request.urlopen(f"{endpoint}/v1/see", b'{"at": {"batch": 1}}', timeout=5.0).close()
        lower = os.sched_param(os.sched_getparam(0).sched_priority - 1)
        for process in marked((self.folder / ".hetplan" / "targets" / "here").resolve()):
            if b"serving.worker" in Path(f"/proc/{process}/cmdline").read_bytes():
                for thread in map(int, os.listdir(f"/proc/{process}/task")):
                    if thread != process:
                        os.sched_setscheduler(thread, os.sched_getscheduler(0), lower)

    def _ways_of(self, endpoint: str, case: Case) -> tuple[float, float]:
        """What a hop costs where one query comes after the other: from service to service, and beside the router."""
        self._write("load.json", _asking(case, _IDLY * 1e3 / _mean_ms(case), 0.0, arrivals="deterministic"))
        went = self._sent(endpoint, case, ("plan.json", "profile.json", "load.json"), "--seconds", "5")["went"]
        return round(went["between_ms"]["p50"], 2), round(went["beside_ms"]["p50"], 2)

    def _sent(
        self, endpoint: str, case: Case, files: Sequence[str], *how: str, watch: StallWatch | None = None
    ) -> dict[str, Any]:
        script = str(ROOT / "benchmarks" / "reality_replay.py")
        command = [sys.executable, script, *files, "--endpoint", endpoint, *how]
        return self.last_line(command, watch=watch, cores=case.other_cores)

    def _learned(self, endpoint: str, case: Case) -> dict[str, Any]:
        """The profile that an earlier load of the same rate, of other queries, teaches: `hetplan loadtest --learn`."""
        (self.folder / "through.json").unlink(missing_ok=True)
        words = ["loadtest", "plan.json", "profile.json", "load.json", "--endpoint", endpoint, "--arrivals", "poisson"]
        words += ["--duration", f"{self.seconds:g}", "--seed", "1", "--simulations", "1", "--learn", "through.json"]
        command = [str(Path(sys.executable).with_name("hetplan")), *words, "--json"]
        self.last_line(command, allow=(0, 6, 9), cores=case.other_cores)
        return self._planned("through.json")

    def onnx_profile(
        self, names: Sequence[str] = ONNX, *, through: str = "nothing", busy: float | None = None
    ) -> dict[str, Any]:
        """The example's models, profiled here: alone, or through a router, as `hetplan profile` does by default.

        `busy` is the share of its time that a worker will serve for, which says how often queries come.
        """
        sys.path.insert(0, str(ROOT / "examples" / "end-to-end"))
        models = import_module("models")
        if not (self.folder / "labelled.npz").exists():
            models.write_models(self.folder, fit_to=300, labelled=200)
        core = max(os.sched_getaffinity(0))  # that on which a worker with a core of its own will serve
        lines = ['format = "hetplan/measure/1.0"', "[machines.cpu-1]", "provides = {mem_gib = 4}", f"cores = [{core}]"]
        how = ["pause_ms = 2"] if through == "nothing" else [f"busy = {busy}"] if busy is not None else []
        lines += ["[repeats]", f'through = "{through}"', *how]
        lines += ["[metrics.top1]", 'kind = "bernoulli"', "[tasks.see]", 'metric = "top1"']
        for name in names:
            lines += [f"[models.{name}]", 'task = "see"', f'onnx = "{name}.onnx"', 'quality = "labelled.npz"']
        (self.folder / "measure.toml").write_text("\n".join(lines))
        self.hetplan("profile", "measure.toml", "-o", "onnx.json", "--fresh", "--force")
        return self._planned("onnx.json") | {"offers": {"cpu-1": {"hardware": "cpu-1", "price_per_hour": "0.04"}}}

    def _planned(self, name: str) -> dict[str, Any]:
        """The profile in this file, as it is planned with."""
        return load_profile(self.folder / name).model_dump(mode="json", by_alias=True, exclude_unset=True)

    def _write(self, name: str, reported: dict[str, Any]) -> None:
        (self.folder / name).write_text(json.dumps(reported))

    def _write_hosts(self, case: Case) -> None:
        """The trusted file: everything on this machine."""
        rule = 'path = "{variant}.onnx"\nthreads = 1' if case.kind == "onnx" else ""
        names = json.dumps(list(case.profile["hardware"]))
        (self.folder / "site.toml").write_text(
            f'files = ["profile.json", "slo.json"]\n[router]\nport = 0\n[targets.here]\nkind = "local"\n'
            f'[hosts.this]\ntarget = "here"\nmachines = {names}\n{case.hosts}\n'
            f'[models."*"]\nkind = "{case.kind}"\n{rule}\n'
        )


def _redispatched(file: Path, rule: str) -> None:
    """The same workers under a simpler rule, which no question plans with by itself."""
    from hetplan.profiles.plan import SharesDispatch
    from hetplan.profiles.plan_dispatch_rules import FcfsDispatch
    from hetplan.profiles.plan_file import plan_digest, write_plan
    from hetplan.profiles.read_plan import read_plan

    plan = read_plan(file)
    other = FcfsDispatch() if rule == "fcfs" else SharesDispatch()
    requires = (*(name for name in plan.requires if not name.startswith("matching/")), other.rule)
    plan = plan.model_copy(update={"dispatch": dict.fromkeys(plan.dispatch, other), "requires": requires})
    write_plan(plan.model_copy(update={"digest": plan_digest(plan)}), file)


def _cell(case: Case, load: str, report: dict[str, Any], watch: StallWatch) -> Cell:
    lines = [{**line, "measured": line["measured"] or line.get("stated")} for line in report["lines"]]
    both = [line for line in lines if line["simulated"] is not None and line["measured"] is not None]
    found = {(line["quantity"], line["percentile"]): line for line in both}
    (app,) = report["apps"].values()

    def value(reported: float | None) -> float:
        return math.inf if reported is None else reported  # a percentile that some queries never reach

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
        watch, quality_known=not _holds_both(found.get(("accuracy", None))), deadline_ms=case.deadline_ms,
    )  # fmt: skip


def _repeated(once: Callable[[], Cell]) -> Cell:
    """A load; where it does not hold, with repeats, which say whether one run can tell."""
    first = once()
    return first if first.holds() else first.repeated([once() for _ in range(REPEATS - 1)])


def _holds_both(line: dict[str, Any] | None) -> bool:
    """Whether the simulated value lies in the interval of a measured one."""
    if line is None:
        return False
    low, high = line["measured"]["interval"]
    return low is not None and low <= line["simulated"]["value"] <= high


def _mean_ms(case: Case) -> float:
    name = case.slo["apps"]["see"]["model"]
    return float(case.profile["tables"][f"{name}-cpu-1"]["mean"][0])


def _asking(case: Case, rate_qps: float, hop_ms: float, *, arrivals: str = "poisson") -> dict[str, Any]:
    """The case's SLO file at this load."""
    app = case.slo["apps"]["see"]
    demand = {"rate_qps": rate_qps, "arrivals": {"process": arrivals}}
    return {**case.slo, "apps": {"see": {**app, "network_ms_per_hop": hop_ms, **demand}}}


def beyond(took: dict[str, float], profile: dict[str, Any], case: Case) -> tuple[float, float]:
    """By how much mean and p99 of these times are beyond those of the profile."""
    name = case.slo["apps"]["see"]["model"]
    table = profile["tables"][f"{name}-cpu-1"]
    return took["mean"] / table["mean"][0] - 1.0, took["p99"] / table["p99"][0] - 1.0


def _real_cell(case: Case, load: str, sent: dict[str, Any], watch: StallWatch, longer: tuple[float, float]) -> RealCell:
    cell = _cell(case, load, sent["report"], watch)
    ways_ms = sent["went"]["ways_ms"]
    replays = {name: Replay(**one) for name, one in sent["replays"].items()}
    ways = (ways_ms["p50"], ways_ms["p99"])
    return RealCell(**{**vars(cell), "lost": sent["lost"]}, longer=longer, ways_ms=ways, replays=replays)


@contextmanager
def _stopped_now_and_then(process: int) -> Iterator[None]:
    """Stop a process for 8 of every 48 ms; none where 0."""
    over = threading.Event()

    def stop_and_go() -> None:
        while process and not over.wait(0.04):
            os.kill(process, signal.SIGSTOP)
            over.wait(0.008)
            os.kill(process, signal.SIGCONT)

    thread = threading.Thread(target=stop_and_go)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def calibrated(place: Workplace) -> dict[str, float]:
    """Milliseconds per hop for each way that queries can take, to a hundredth."""
    found: dict[str, float] = {}
    for case in hops():
        (cell,) = place.cells_of(case, 0.0)
        steps = 2 if case.way == "pipeline" else 1
        found[case.way] = round(max(cell.p50_ms[1] - cell.p50_ms[0], 0.0) / steps, 2)
    return found


def _reported_hops(hop_ms: dict[str, float]) -> str:
    return "Per hop: " + ", ".join(f"{ms:.2f} ms ({way})" for way, ms in hop_ms.items()) + "."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30.0, help="of load per cell")
    parser.add_argument("--only", nargs="*", choices=ORDER)
    parser.add_argument("--plant", choices=("routing", "delay"), default="", help="a fault into sets with real models")
    parser.add_argument(
        "--folder", type=Path, help="work there; models and their profile are taken from an earlier run"
    )
    parser.add_argument("--write", type=Path, help="put the rows into this page, below its mark")
    asked = parser.parse_args()
    cells: list[Cell] = []
    failed: list[str] = []
    with tempfile.TemporaryDirectory(prefix="hetplan-") as name:
        place = Workplace((asked.folder or Path(name)).resolve(), asked.seconds)
        wanted_sets = asked.only or ORDER
        hop_ms = calibrated(Workplace(place.folder, 5.0)) if set(wanted_sets) - {"chain", *REAL} else {}
        calibration = _reported_hops(hop_ms) if hop_ms else ""
        sets: dict[str, Callable[[], Iterator[Case]]] = {
            "pool": pools,
            "pipeline": pipelines,
            "policy": policies,
            "chain": lambda: chain(lambda name, busy: place.onnx_profile((name,), through="router", busy=busy)),
            "onnx": lambda: onnx(place.onnx_profile()),
            "onnx-shared": lambda: onnx(place.onnx_profile(), shared=True),
        }
        wanted = [case for kind in wanted_sets for case in sets[kind]()]
        if any(case.models in REAL for case in wanted):
            crowded = {name: crowding(place.folder / f"{name}.onnx") for name in ONNX}
            listed = ", ".join(f"{times:.2f} times ({name})" for name, times in crowded.items())
            calibration += f" A model takes longer while the other core runs it too: {listed}."
        print(calibration, flush=True)
        head = ""
        for case in wanted:
            if heading(case.models) != head:
                head = heading(case.models)
                print("", head, sep="\n", flush=True)
            try:
                real = case.models in REAL
                hop = case.hop_ms if case.hop_ms is not None else hop_ms.get(case.way, 0.0)
                found = place.real_cells_of(case, asked.plant) if real else place.cells_of(case, hop)
                for cell in found:
                    cells.append(cell)
                    print(cell.row(), flush=True)
            except RuntimeError as error:
                failed.append(f"{case.models}, {case.rule}: {error}")
                print(failed[-1], file=sys.stderr, flush=True)
    if place.ways:
        calibration += f" Hand-over and the rest of a hop, with real models: {', '.join(place.ways)}."
    print("", reported([cell.row() for cell in cells]), calibration, sep="\n")
    if asked.write is not None:
        write_page(asked.write, cells, calibration)
    if failed:
        sys.exit("\n".join(["Counted are the others; these could not be measured:", *failed]))


if __name__ == "__main__":
    main()
