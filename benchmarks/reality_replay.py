"""One load of a real model, sent once and simulated three ways: what makes simulation and measurement differ.

    python benchmarks/reality_replay.py PLAN ALONE SLO_ALONE THROUGH SLO_THROUGH --endpoint URL --hand-over MS

ALONE is a profile of the model by itself, SLO_ALONE states the whole of a hop; THROUGH was measured through the router
by its own clock, SLO_THROUGH states what a hop costs beside that, and its simulation is the one to compare with.

Every reply says how long its worker took. So the very queries can be played again, each with the time that was served
to it in place of one drawn from a profile, and with the usual time of the hand-over between router and worker. Where
that agrees with the measurement, all but the service times is simulated right: arrivals, queues, sockets, who is served
where and when. It has no number that is fitted: a dispatcher that waits, or sends queries elsewhere than the plan says,
still shows.

A query without an answer has no such time: it is counted as lost and left out of the replays; the report counts it.

With PLAN, ALONE and SLO_ALONE only, all that is said is what queries spent their time on.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import numpy as np
from numpy.typing import NDArray

from hetplan.executor.serving.process import ask_for_short_turns
from hetplan.measure.load_report import figures_of, load_report
from hetplan.measure.load_send import Sent, Target, send_load
from hetplan.profiles.load import load_inputs
from hetplan.profiles.read_plan import read_plan
from hetplan.serving.planned_system import planned_systems
from hetplan.serving.system import Service, System
from hetplan.simulator.runs import seed_of
from hetplan.simulator.simulate import demands_of, simulate
from hetplan.simulator.simulation import Simulation, Stream

if TYPE_CHECKING:
    from hetplan.profiles.inputs import Inputs
    from hetplan.profiles.plan import Plan
    from hetplan.simulator.demand import AppDemand

__all__ = ["Replay", "Spent", "replayed", "spent"]

Times = NDArray[np.float64]


@dataclass(frozen=True)
class Replay:
    """What a simulation says of the queries that were sent."""

    p50_ms: float
    p99_ms: float
    violations: float


@dataclass(frozen=True)
class Spent:
    """Per query, in the order in which they were due: when that was, and what its time went into (milliseconds).

    A response is waiting (in the router and at the worker), service, what the hand-over from router to worker and back
    took, and what lies before and after (`beside_ms`). `answered` are their places among all that was sent.
    """

    answered: NDArray[np.int64]
    due_ms: Times
    waiting_ms: Times
    service_ms: Times
    hand_over_ms: Times
    beside_ms: Times

    def reported(self) -> dict[str, dict[str, float]]:
        """Mean and percentiles of each part; `ways_ms` is all that is neither waiting nor service.

        `between_ms` is what the router takes beyond service: where nobody queues, its decision and the hand-over.
        """
        parts = {name: values for name, values in vars(self).items() if name not in ("answered", "due_ms")}
        parts["ways_ms"] = self.hand_over_ms + self.beside_ms
        parts["between_ms"] = self.waiting_ms + self.hand_over_ms
        return {
            name: {"mean": float(values.mean()), **{f"p{at}": float(np.percentile(values, at)) for at in (50, 99)}}
            for name, values in parts.items()
        }


def spent(sent: Sent) -> Spent:
    """What full replies say, of queries of one step; those without an answer are left out."""
    answered = np.flatnonzero(np.isfinite(sent.response_ms))
    said = [json.loads(sent.bodies[place]) for place in answered.tolist()]
    if not said or any(len(one.get("path", ())) != 1 for one in said):
        raise ValueError("no query was answered, or not by one step")
    hops = [one["path"][0] for one in said]
    inside_ms, service_ms = np.array([one["ms"] for one in said]), np.array([hop["service_ms"] for hop in hops])
    waiting_ms = np.array([hop["router_ms"] + hop["queue_ms"] for hop in hops])
    return Spent(
        answered=answered,
        due_ms=1e3 * sent.due_s[answered],
        waiting_ms=waiting_ms,
        service_ms=service_ms,
        hand_over_ms=inside_ms - waiting_ms - service_ms,
        beside_ms=sent.response_ms[answered] - inside_ms,
    )


def replayed(system: System, app: str, due_ms: Times, took_ms: Times, *, warm_up: int = 0) -> Replay:
    """The queries once more, the first `warm_up` not counted: each takes the worker that it meets for its own time."""
    (asked,) = (one for one in system.apps if one.id == app)
    stream = Stream(app, due_ms, np.arange(len(due_ms), dtype=np.int32))
    played = Simulation(_taking(system, app, took_ms), [stream]).run().queries[warm_up:]
    response_ms = played["finish"] - played["arrival"]
    p50_ms, p99_ms = (float(np.percentile(response_ms, at, method="inverted_cdf")) for at in (50, 99))
    return Replay(p50_ms, p99_ms, float((response_ms > asked.slo_ms).mean()))


def _taking(system: System, app: str, took_ms: Times) -> System:
    """The system with as many classes of query as there are queries, each with its own time."""
    groups = []
    for group in system.groups:
        loads = []
        for load in group.loads:
            sizes = load.services[app].mean_ms.shape[1]
            service = Service(np.repeat(took_ms[:, None], sizes, axis=1))
            loads.append(replace(load, services={app: service}))
        groups.append(replace(group, loads=tuple(loads)))
    apps = tuple(replace(one, kinds=len(took_ms)) for one in system.apps)
    return replace(system, apps=apps, groups=tuple(groups))


def _sent(demand: AppDemand, endpoint: str, seconds: float) -> Sent:
    """Send the queries that the simulation plays, and keep the replies."""
    stream = demand.stream(seed_of(0, 0), seconds)
    at = dict(zip(demand.mix.axes, demand.mix.bins[0], strict=True)) if demand.mix else {}
    kinds = np.zeros(len(stream.times_ms), np.int32)
    target = Target(
        demand.app, f"{endpoint}/v1/{demand.app}", stream.times_ms / 1000.0, kinds, [json.dumps({"at": at}).encode()],
        keep=True,
    )  # fmt: skip
    print(json.dumps({"what": "load"}), flush=True)
    (sent,) = send_load([target])
    print(json.dumps({"what": "sent"}), flush=True)
    return sent


def _simulated(plan: Plan, inputs: Inputs, how: dict[str, Any], app: str) -> dict[tuple[str, str, float | None], Any]:
    found = simulate(plan, inputs, **how).apps[app]
    figures = [((app, name, None), one) for name, one in found.figures.items()]
    percentiles = [((app, "response_ms", at), one) for at, one in found.percentiles_ms.items()]
    return {key: (one.value, one.low, one.high) for key, one in (*figures, *percentiles)}


def reported_of(
    files: Sequence[str], endpoint: str, *, seconds: float, runs: int, hand_over_ms: float
) -> dict[str, Any]:
    """Send, simulate, compare: a report as `hetplan loadtest` makes it, the replays, and what times went into."""
    ask_for_short_turns()
    plan, alone = read_plan(Path(files[0])), load_inputs([files[1]], files[2])
    (demand,) = demands_of(plan, alone)
    sent = _sent(demand, endpoint, seconds)
    went = spent(sent)
    lost = len(sent.due_s) - len(went.answered)
    if len(files) < 5:
        return {"went": went.reported(), "lost": lost}
    through = load_inputs([files[3]], files[4])
    app, warm_up = demand.app, demand.warm_up(len(sent.due_s))
    measured = figures_of(sent, slo_ms=demand.slo_ms, warm_up=warm_up)
    how: dict[str, Any] = {"seeds": runs, "seed": 0, "duration_s": seconds, "queries_seed": seed_of(0, 0)}
    beside, by_itself = (_simulated(plan, inputs, how, app) for inputs in (through, alone))
    report = load_report(plan, [measured], duration_s=seconds, slo=through.slo, simulated=beside)
    figures = (("response_ms", 50.0), ("response_ms", 99.0), ("violations", None))
    (stage,) = planned_systems(plan, through, noise="mean")
    early = int((went.answered < warm_up).sum())
    replays = {
        "served": replayed(stage.system, app, went.due_ms, went.service_ms + hand_over_ms, warm_up=early),
        "alone": Replay(*(by_itself[app, name, at][0] for name, at in figures)),
    }
    played = {name: asdict(one) for name, one in replays.items()}
    return {"went": went.reported(), "lost": lost, "report": report.as_dict(), "replays": played}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", metavar="FILE")
    parser.add_argument("--endpoint", required=True)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--hand-over", type=float, default=0.0, help="milliseconds that it usually takes")
    asked = parser.parse_args()
    how = {"seconds": asked.seconds, "runs": asked.runs, "hand_over_ms": asked.hand_over}
    print(json.dumps(reported_of(asked.files, asked.endpoint, **how)), flush=True)


if __name__ == "__main__":
    main()
