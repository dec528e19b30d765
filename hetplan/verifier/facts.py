"""A plan and its inputs, indexed: every load with its worker, its run and where it is in the plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Plan
from hetplan.profiles.profile import Profile, Run
from hetplan.profiles.workers import Load, Worker

__all__ = ["Facts", "Seat", "gather", "machines", "run_of", "runs_meant"]


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
    return runs if load.at is None else [run for run in runs if _written(run.at) == _written(load.at)]


def _written(point: Mapping[str, float]) -> dict[str, str]:
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
