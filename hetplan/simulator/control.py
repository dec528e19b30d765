"""What changes a run under way: latencies that are learnt, and the policy table for the load that is seen.

A dispatcher may know no latencies when a run begins. One `LatencyLearner` serves all workers of one hardware that
hold the same load: at first a guess, then a line over the sizes seen, then a table. It looks at what was served after
about five queries, then ever more seldom, in the end every 500. Learnt are services of one query at a time, of classes
that differ on one axis.

A group with several policy tables follows the one for the load that is seen, estimated over a moving window.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from hetplan.dispatch.monitors import LatencyLearner
from hetplan.errors import InputError
from hetplan.serving.system import Group, Load, Pull, Rule, System
from hetplan.simulator.demand import AppDemand
from hetplan.simulator.simulation import Simulation

__all__ = ["follow_load", "learning"]

_FIRST, _LAST, _GROWTH = 5.0, 500.0, 1.1
_REMEDY = "Leave the option out: predictions then come from the plan's tables."


def learning(demands: Sequence[AppDemand]) -> Callable[[Simulation], None]:
    """What `simulate_system` calls as `control` before each run."""
    sizes = {demand.app: _sizes(demand) for demand in demands}
    rate_per_ms = sum(demand.rate_qps for demand in demands) / 1000.0

    def control(run: Simulation) -> None:
        pupils = [_Pupil(key, members, sizes) for key, members in _alike(run.system).items()]
        for pupil in pupils:
            pupil.tell(run)
        every = _FIRST

        def look() -> None:
            nonlocal every
            for pupil in pupils:
                pupil.look(run)
            every = min(every * _GROWTH, _LAST)
            if run.now_ms < run.horizon_ms:
                run.at(run.now_ms + every / rate_per_ms, look)

        run.at(every / rate_per_ms, look)

    return control


def _sizes(demand: AppDemand) -> list[float]:
    """The size of each class of query."""
    if demand.mix is None:
        return [1.0]
    if len(demand.mix.axes) != 1:
        raise InputError.one(
            file="--learn",
            path=f"apps.{demand.app}.mix.axes",
            value=list(demand.mix.axes),
            why="latencies are learnt over one axis of size",
            remedy=_REMEDY,
        )
    return [float(size) for (size,) in demand.mix.bins]


def _alike(system: System) -> dict[tuple[str, str, bytes], list[tuple[Group, Load]]]:
    """Loads by application, hardware and law; refused where no rule looks at predictions, or batches are served."""
    uses = [route for route in system.routes if route.rule is Rule.EARLIEST or route.pull is Pull.MATCHING]
    if not uses:
        raise InputError.one(
            file="--learn", why="no rule of this plan looks at predicted latencies", remedy="Leave the option out."
        )
    asked = {(way.group, way.load): route.app for route in uses for way in route.ways}
    found: dict[tuple[str, str, bytes], list[tuple[Group, Load]]] = {}
    for group in system.groups:
        for load in group.loads:
            app = asked.get((group.id, load.id))
            if app is None:
                continue
            law = load.services[app].mean_ms
            if law.shape[1] > 1 or len(load.services) > 1:
                raise InputError.one(
                    file="--learn",
                    path=f"workers.{group.id}.{load.id}",
                    why="latencies are learnt of loads that serve one application, one query at a time",
                    remedy=_REMEDY,
                )
            found.setdefault((app, group.hardware, law.tobytes()), []).append((group, load))
    return found


class _Pupil:
    """A learner, what it has seen so far, and the loads that it speaks for."""

    def __init__(
        self, key: tuple[str, str, bytes], members: list[tuple[Group, Load]], sizes: dict[str, list[float]]
    ) -> None:
        self.sizes, self.members = sizes[key[0]], members
        self.learner = LatencyLearner()
        self.known: list[NDArray[np.float64]] = [np.zeros((len(self.sizes), 2)) for _ in members]

    def look(self, run: Simulation) -> None:
        """Learn from what was served since the last look, and tell the dispatcher."""
        for place, (group, load) in enumerate(self.members):
            seen = run.seen(group.id, load.id)
            for size, (count, total_ms) in zip(self.sizes, seen - self.known[place], strict=True):
                for _ in range(round(count)):
                    self.learner.observe(size, total_ms / count)
            self.known[place] = seen
        self.tell(run)

    def tell(self, run: Simulation) -> None:
        """Let the dispatcher predict as the learner does."""
        predicted_ms = [self.learner.predict(size) for size in self.sizes]
        for group, load in self.members:
            run.seen(group.id, load.id)
            run.believe(group.id, load.id, predicted_ms)


WINDOW_MS = 500.0
_STEPS = 5


def follow_load(run: Simulation, system: System, *, window_ms: float = WINDOW_MS) -> None:
    """Let every group with several tables use the lowest-load one that is made for at least the estimated load."""
    groups = [group for group in system.groups if len(group.policies) > 1]
    if not groups:
        return
    shares = {group.id: _share(system, group.id) for group in groups}
    step_ms = window_ms / _STEPS
    counts: dict[str, deque[int]] = {app: deque(maxlen=_STEPS) for app in {app for app, _ in shares.values()}}
    current = {group.id: 0 for group in groups}

    def look() -> None:
        arrived = run.arrived()
        for app, seen in counts.items():
            seen.append(arrived[app])
        for group in groups:
            app, share = shares[group.id]
            seen = counts[app]
            rate = share * sum(seen) / (len(seen) * step_ms / 1000.0)
            rates = [table.rate_qps for table in group.policies]
            place = min(bisect_left(rates, rate), len(rates) - 1)
            if place != current[group.id]:
                current[group.id] = place
                run.use_policy(group.id, place)
        if run.now_ms + step_ms <= run.horizon_ms:
            run.at(run.now_ms + step_ms, look)

    run.at(step_ms, look)


def _share(system: System, group: str) -> tuple[str, float]:
    """The application that a group serves, and the part of its queries that comes to the group."""
    for route in system.routes:
        total = sum(way.share for way in route.ways)
        mine = sum(way.share for way in route.ways if way.group == group)
        if mine > 0:
            return route.app, float(np.divide(mine, total))
    return system.apps[0].id, 0.0
