"""One run of a system under its demand: machines that serve batches, machines that make text, or both side by side.

All that runs goes at one pace: whoever changes machines under way sees every application at the same moment. Every
request is played to its end.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np

from hetplan.errors import Interrupted
from hetplan.serving.planned_system import PlannedSystem
from hetplan.serving.service import NoiseName, noise_of
from hetplan.serving.system import Group, Rule, System
from hetplan.simulator.control import follow_load
from hetplan.simulator.demand import AppDemand
from hetplan.simulator.report import SHOWN
from hetplan.simulator.run_summary import RunSummary, joined, summary_of, summary_of_text
from hetplan.simulator.simulation import Simulation
from hetplan.simulator.token_run import TokenRun
from hetplan.simulator.tokens import coming_of

__all__ = ["Failure", "Playing", "SideBySide"]

_BUCKETS = 120

T = TypeVar("T")


@dataclass(frozen=True)
class Failure:
    """A worker that breaks, and comes back or does not; with `retry` its queries start over elsewhere."""

    at_s: float
    worker: str
    number: int = 0
    back_s: float | None = None
    retry: bool = True


class SideBySide:
    """Runs of one system that keep the time of one of them: that of the queries, where there are any."""

    def __init__(self, system: System, queries: Simulation | None, texts: Mapping[str, TokenRun]) -> None:
        self.system, self.queries, self.texts = system, queries, texts
        self.clock: Simulation | TokenRun = queries if queries is not None else next(iter(texts.values()))
        self.horizon_ms = self.clock.horizon_ms

    @property
    def now_ms(self) -> float:
        """The time of all."""
        return self.clock.now_ms

    @property
    def under_way(self) -> int:
        """How many queries wait or are served."""
        return sum(run.under_way for run in self._all)

    def arrived(self) -> dict[str, int]:
        """How many queries of each application came since this was last asked."""
        return {app: count for run in self._all for app, count in run.arrived().items()}

    def at(self, when_ms: float, change: Callable[[], None]) -> None:
        """Make a change at a time, to which all have come."""

        def there() -> None:
            for run in self.texts.values():
                if run is not self.clock:
                    run.until(when_ms)
            change()

        self.clock.at(when_ms, there)

    def change(self, system: System) -> None:
        """Go over to another system."""
        if self.queries is not None and system.groups:
            self.queries.change(system)
        for app, run in self.texts.items():
            run.change(system.texts[app])
        self.system = system

    def play_text(self, stop: threading.Event, progressed: Callable[[float], None]) -> None:
        """Play what comes until the horizon, where text keeps the time."""
        if isinstance(self.clock, TokenRun):
            self.clock.play(stop, progressed)

    @property
    def _all(self) -> list[Simulation | TokenRun]:
        return [*([self.queries] if self.queries is not None else []), *self.texts.values()]


@dataclass(frozen=True, kw_only=True)
class Playing:
    """All that a run is made from, but for its seed and its length."""

    stages: Sequence[PlannedSystem]
    demands: Sequence[AppDemand]
    noise: NoiseName = "mean"
    misprediction: float = 0.0
    failures: Sequence[Failure] = ()
    control: Callable[[Any], None] | None = None
    """Called once per run before it starts; it may ask for changes (`at`, `change`).

    It gets the `Simulation` of a system that serves batches, else what runs `SideBySide`."""
    percentiles: Sequence[float] = SHOWN

    @property
    def is_steady(self) -> bool:
        """Whether one system serves from the beginning to the end."""
        return len(self.stages) == 1 and self.control is None and not self.failures

    @property
    def queries(self) -> list[AppDemand]:
        """The demands that are served in batches."""
        return [demand for demand in self.demands if demand.text is None]

    def run(
        self, seed: int, length_s: float, *, stretches: int, stop: threading.Event, progressed: Callable[[float], None]
    ) -> RunSummary:
        """Play once, and keep the figures, also of so many stretches."""
        first, asked = self.stages[0].system, {demand.app: demand for demand in self.demands}
        texts = {app: _text_run(first, asked[app], seed, length_s) for app in first.texts if app in asked}
        queries = self._of_queries(first, seed, length_s, stop) if self.queries else None
        together = queries if queries is not None and not texts else SideBySide(first, queries, texts)
        for stage in self.stages[1:]:
            together.at(stage.start_s * 1000.0, lambda stage=stage: together.change(stage.system))  # type: ignore[misc]
        if queries is not None:
            _ask_for_failures(queries, self.failures)
            follow_load(queries, first)
        if self.control is not None:
            self.control(together)
        found = list[RunSummary]()
        if queries is not None:
            result = _unless(stop, queries).run(cancel=stop, on_progress=progressed)
            # Systems that come later may have workers of other names.
            serving = _serving(self.stages) if self.control is None else {}
            work_of = partial(_work_at_full_batches, {group.id: group for group in first.groups})
            found.append(
                summary_of(
                    _unless(stop, result), self.queries, self.percentiles, stretches=stretches,
                    pooled=_is_pooled(first), work_of=work_of, serving=serving,
                )
            )  # fmt: skip
        if isinstance(together, SideBySide):
            together.play_text(stop, progressed)
        found += [summary_of_text(run, asked[app], self.percentiles, stretches=stretches) for app, run in texts.items()]
        return joined(found)

    def _of_queries(self, first: System, seed: int, length_s: float, stop: threading.Event) -> Simulation:
        streams = [_unless(stop, demand.stream(seed, length_s)) for demand in self.queries]
        return Simulation(
            first, streams, seed=seed, noise=noise_of(self.noise), mispredict=self.misprediction,
            horizon_ms=length_s * 1000.0, buckets=_BUCKETS,
        )  # fmt: skip


def _text_run(first: System, demand: AppDemand, seed: int, length_s: float) -> TokenRun:
    coming = coming_of(demand, seed, length_s)
    whole = not demand.stationary
    return TokenRun(demand.app, first.texts[demand.app], coming, seed, 1000.0 * length_s, _BUCKETS, whole)


def _unless(stop: threading.Event, made: T) -> T:
    """What was made, unless it is not wanted any more: drawing and ordering millions of queries take their time."""
    if stop.is_set():
        raise Interrupted("the simulation was cancelled")
    return made


def _is_pooled(system: System) -> bool:
    """Whether all workers serve one stream, so that their mean utilisation says how near capacity it is."""
    return len(system.routes) == 1 and system.routes[0].rule in (Rule.SHORTEST, Rule.EARLIEST, Rule.CENTRAL)


def _serving(stages: Sequence[PlannedSystem]) -> dict[str, set[str]]:
    """The groups of workers that the queries of each application go to."""
    found: dict[str, set[str]] = {}
    for route in (route for stage in stages for route in stage.system.routes):
        names = (*(way.group for way in route.ways), *(backup.group for backup in route.backups))
        found.setdefault(route.app, set()).update(names)
    return found


def _work_at_full_batches(groups: Mapping[str, Group], name: str, mean_batch: float) -> float:
    """Which part of its busy time a group would have needed at full batches, where its loads take batches.

    Groups under a policy choose batches by their queue, so nothing is known of them: all of it.
    """
    group = groups.get(name)
    services = [one for load in group.loads for one in load.services.values()] if group is not None else []
    if group is None or group.policies or not services or mean_batch <= 1e-9:
        return 1.0
    needed = 0.0
    for service in services:
        largest = service.mean_ms.shape[1]
        each = np.maximum(mean_batch, 1.0)
        now = [np.interp(each, np.arange(1, largest + 1), row) / min(each, largest) for row in service.mean_ms]
        full = service.mean_ms[:, -1] / largest
        needed = max(needed, float(np.max(full / np.maximum(now, 1e-12), initial=0.0)))
    return min(needed, 1.0) if needed > 0 else 1.0


def _ask_for_failures(run: Simulation, failures: Sequence[Failure]) -> None:
    for failure in failures:
        run.at(
            failure.at_s * 1000.0,
            lambda item=failure: run.fail(item.worker, item.number, retry=item.retry),  # type: ignore[misc]
        )
        if failure.back_s is not None:
            run.at(failure.back_s * 1000.0, lambda item=failure: run.recover(item.worker, item.number))  # type: ignore[misc]
