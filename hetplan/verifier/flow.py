"""What comes of queries that follow the routing shares: flows through every load, latency and quality of every path.

`check.follow` sends them.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from hetplan.verifier.plan_index import Facts
from hetplan.verifier.report import Violation

__all__ = ["Flow", "Steps", "why_not_followed"]

Steps = tuple[tuple[str | None, str], ...]
"""The steps of a path with the outcome of each, "" where a step has none."""


@dataclass
class Flow:
    """What one query per second at the entrance of an application means for its loads, in one period.

    `work` is instances kept busy per load. `late` holds, per latency limit (ms) and per way to an end, the share of
    queries that end there over the limit. `quality` is the mean quality (NaN where no query ends). `worst_ms` is the
    longest path. `slow` holds, per limit, the ms of each path of loads that is over it. `faults` cut some path short.
    """

    work: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    late: dict[float, dict[Steps, float]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(float)))
    slow: dict[float, dict[tuple[str, ...], float]] = field(default_factory=lambda: defaultdict(dict))
    quality: float = math.nan
    worst_ms: float = 0.0
    extrapolated: set[str] = field(default_factory=set)
    faults: dict[tuple[str, str], Violation] = field(default_factory=dict)

    def fault(self, code: str, at: str, text: str) -> None:
        """Note what ends a path early; of several alike, the first."""
        self.faults.setdefault((code, at), Violation(code, at, text))

    def late_share(self, limit_ms: float) -> tuple[float, str | None]:
        """The share of queries over a limit, and the step where most of them end.

        A query takes one outcome of a step: their shares add up. It takes all branches: the latest one counts.
        """
        return _worst_of(self.late.get(limit_ms, {}))


def _worst_of(ends: Mapping[Steps, float]) -> tuple[float, str | None]:
    branches: dict[str | None, dict[str, dict[Steps, float]]] = {}
    for steps, share in ends.items():
        if not steps:
            return share, None
        (node, outcome), rest = steps[0], steps[1:]
        branches.setdefault(node, {}).setdefault(outcome, {})[rest] = share
    found: list[tuple[float, str | None]] = [(0.0, None)]
    for node, outcomes in branches.items():
        parts = [_worst_of(below) for below in outcomes.values()]
        found.append((sum(share for share, _ in parts), max(parts, key=lambda part: part[0])[1] or node))
    return max(found, key=lambda one: one[0])


def why_not_followed(facts: Facts, name: str) -> str:
    """Why an application's queries cannot be followed by routing shares alone ("" when they can)."""
    app = facts.inputs.slo.apps[name]
    if facts.plan.question == "policy" and name in facts.plan.policies:
        return "a policy decides at run time"
    if any(
        seat.run is not None and seat.run.engine is not None for seat in facts.seats.values() if seat.load.app == name
    ):
        return "its requests are made token by token"
    if app.streams is not None:
        return "it comes in streams"
    if app.candidates:
        return "its candidate plans are packed"
    if app.pipeline is not None:
        pipeline = facts.inputs.profile.pipelines[app.pipeline]
        if getattr(facts.plan.dispatch.get(name), "rule", "") == "chosen-plan/1":
            return "its operators take what was measured of them"
        arrows = [edge.to for edge in pipeline.edges]
        if len(set(arrows)) < len(arrows):
            return "its pipeline joins branches"
    return ""
