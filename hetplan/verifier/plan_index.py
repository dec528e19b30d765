"""A plan and its inputs, indexed for checks: every load with its worker, its run and its place; the options.

Options are read where verification rests on them, and none may excuse what the wish forbids.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from hetplan.profiles.columns import STATISTICS
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Plan
from hetplan.profiles.profile import Profile, Run
from hetplan.profiles.tables import Table
from hetplan.profiles.workers import Load, Worker
from hetplan.verifier.report import Violation

__all__ = [
    "QUESTIONS",
    "Facts",
    "Seat",
    "check_options",
    "gather",
    "judged_statistic",
    "machines",
    "needs_of",
    "option",
    "own_needs",
    "own_table",
    "quality_of",
    "run_of",
    "runs_alike",
    "runs_meant",
    "says_another_statistic",
    "slo_divisor",
    "statistics_of",
]

QUESTIONS = frozenset({"pool", "pipeline", "variants", "policy", "compound", "llm"})
"""hetplan's own questions: of their plans every quantity is known. What a plan of another one says more is its own."""


@dataclass(frozen=True)
class Seat:
    """A load in its worker group. `run` is how the profile says that its variant runs there."""

    worker: Worker
    load: Load
    run: Run | None

    @property
    def at(self) -> str:
        """Where it is in the plan."""
        return f"workers.{self.worker.id}.loads.{self.load.id}"


@dataclass(frozen=True)
class Facts:
    """What the checks look things up in; built once references are known to be sound."""

    plan: Plan
    inputs: Inputs
    seats: Mapping[str, Seat] = field(default_factory=dict)

    def promised_rate(self, app: str) -> float | None:
        """The rate that the plan promises to serve of an app at least, where it does."""
        return self._promised.get(app)

    @cached_property
    def says_another(self) -> bool:
        """Whether the plan says that another statistic was taken than the one wanted; asked for every load."""
        return says_another_statistic(self.plan)

    @cached_property
    def alike(self) -> Counter[tuple[object, ...]]:
        """Instances that run the same, on the machines of all groups (`runs_alike`)."""
        found = Counter[tuple[object, ...]]()
        for worker in self.plan.workers:
            for load in worker.loads:
                found[runs_alike(worker, load)] += worker.count * load.instances
        return found

    @cached_property
    def _promised(self) -> Mapping[str | None, float]:
        found: dict[str | None, float] = {}
        for one in self.plan.promises:
            if one.quantity == "rate_qps" and one.relation != "<=":
                found.setdefault(one.app, one.value)
        return found


def machines(worker: Worker) -> int:
    """How many machines a group rents: those that serve and the spare ones."""
    return worker.count + worker.standby


def runs_meant(profile: Profile, worker: Worker, load: Load) -> list[Run]:
    """The runs that a load can mean: those of its variant on its hardware, at the point that it names."""
    if load.variant is None:
        return []
    runs = [run for run in profile.variants[load.variant].runs if run.hardware == worker.hardware]
    return runs if load.at is None else [run for run in runs if _point_text(run.at) == _point_text(load.at)]


def _point_text(point: Mapping[str, float]) -> dict[str, str]:
    # Plans carry 12 significant digits, profiles any number of them.
    return {axis: f"{value:.12g}" for axis, value in point.items()}


def run_of(profile: Profile, worker: Worker, load: Load) -> Run | None:
    """The run that a load of a plan names; None where there is none, or where it fits two."""
    runs = runs_meant(profile, worker, load)
    return runs[0] if len(runs) == 1 else None


def gather(plan: Plan, inputs: Inputs) -> Facts:
    """Index a plan whose references are sound."""
    seats = {
        load.id: Seat(worker, load, run_of(inputs.profile, worker, load))
        for worker in plan.workers
        for load in worker.loads
    }
    return Facts(plan, inputs, seats)


def quality_of(facts: Facts, load: Load) -> float:
    """The measured quality of what a load answers, NaN where there is none."""
    quality = facts.inputs.profile.variants[load.variant].quality if load.variant is not None else None
    return quality.value if quality is not None else math.nan


# Options

# name -> (least, most) of what a plan may say; outside, its own options would make it look better than it is.
_RANGES = {
    "budget_factor": (1.0, 10.0),
    "derate": (0.0, 1.0),
    "headroom": (0.0, 1.0),
    "slo_divisor": (1.0, 1e9),
    "spare": (0.0, 1e9),
    "allow_late": (0.0, 0.5),
    "xi": (0.0, 1.0),
}


def option(plan: Plan, name: str, default: float) -> float:
    """A number among the options that the plan was made with."""
    value = plan.method.options.get(name)
    return float(value) if isinstance(value, int | float) else default


def runs_alike(worker: Worker, load: Load) -> tuple[object, ...]:
    """What instances have in common that are kept free together."""
    return worker.hardware, worker.period, load.app, load.node, load.variant, load.serve.max_batch


def slo_divisor(plan: Plan) -> float:
    """What limits are divided by, to leave time for queueing: at least 1, even where `check_options` complains."""
    return max(option(plan, "slo_divisor", 1.0), 1.0)


USUAL = {"pipeline": "p50", "policy": "p95"}
"""Question -> the statistic of its tables where the plan says `auto`; of the others the mean."""


def statistics_of(plan: Plan) -> tuple[str, str]:
    """Which statistics of a latency table are used for capacity and for the target."""
    said = judged_statistic(plan)
    return said if plan.question == "pipeline" else "mean", said


def judged_statistic(plan: Plan) -> str:
    """The statistic of latency tables that the plan says, or that is usual for its question."""
    said = str(plan.method.options.get("statistic", "auto"))
    return USUAL.get(plan.question, "mean") if said == "auto" else said


def says_another_statistic(plan: Plan) -> bool:
    """Whether the plan says that some statistic was not measured, and another taken in its place."""
    return any(notice.code == "W-statistic" for notice in plan.warnings)


def check_options(plan: Plan) -> Iterator[Violation]:
    """Options within their ranges; latencies judged by a statistic of latencies."""
    for name, (least, most) in _RANGES.items():
        most = 1.0 if name == "allow_late" and plan.question == "llm" else most
        value = option(plan, name, most)
        if not least <= value <= most:
            text = f"{name} {value:g} is not within {least:g} .. {most:g}"
            yield Violation("option", f"method.options.{name}", text)
    if (statistic := judged_statistic(plan)) not in STATISTICS or statistic == "std":
        yield Violation("option", "method.options.statistic", f"{statistic} is no latency of a table")


def own_table(profile: Profile, run: Run) -> Table:
    """The table that times a run: of latencies, else of rates."""
    return profile.tables[run.latency if run.latency is not None else run.rate or ""]


def own_needs(facts: Facts, seat: Seat) -> dict[str, float]:
    """What one instance takes by its run, else by its step."""
    load, app = seat.load, facts.inputs.slo.apps.get(seat.load.app or "")
    if seat.run is None and load.node is not None and app is not None and app.pipeline:
        return dict(facts.inputs.profile.pipelines[app.pipeline].nodes[load.node].needs)
    return dict(seat.run.needs) if seat.run is not None else {}


def needs_of(facts: Facts, seat: Seat) -> dict[str, float]:
    """What one load of one machine takes: its run's needs or its step's, and no less than its slice of the device."""
    load, needs = seat.load, own_needs(facts, seat)
    if load.share is not None and load.share.gpu is not None:
        needs["gpu"] = max(needs.get("gpu", 0.0), load.share.gpu)
    if load.share is not None and load.share.cpu_cores is not None:
        needs["cpu_cores"] = max(needs.get("cpu_cores", 0.0), load.share.cpu_cores)
    return {resource: load.instances * amount for resource, amount in needs.items()}
