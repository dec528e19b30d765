"""Which of several policy tables a group follows: the one for the load that is seen, estimated over a moving window."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque

import numpy as np

from hetplan.serving.system import System
from hetplan.simulator.simulation import Simulation

__all__ = ["follow_load"]

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
