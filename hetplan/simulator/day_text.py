"""Text within a day that is played: each hour, and what each failure leaves, token by token for so many requests.

Machines that make text are played by laws of their own (`tokens`). An hour is a steady load on the hour's machines,
once they have filled; hours of the same machines and rate are played once. How they fill anew when the hour changes,
and the first minute of a failure, are not played. In time is a request that keeps all limits at once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Plan
from hetplan.profiles.plan_parts import Part
from hetplan.profiles.plan_periods import inputs_of_part, of_part
from hetplan.profiles.slo import App
from hetplan.serving.tokens import Group, TokenFleet, demand_of, fleet_of_plan, limits_of, settling_s
from hetplan.simulator.runs import seed_of
from hetplan.simulator.token_report import REQUESTS
from hetplan.simulator.tokens import draw, play

__all__ = ["DayText", "promised_of_text"]

MOST_REQUESTS = 200_000
"""So many requests of an hour are played per seed at most."""


def promised_of_text(wanted: App) -> float:
    """The share that is asked to keep all limits at once; of percentiles, what they say of all of them together."""
    if wanted.goodput is not None:
        return wanted.goodput
    return max(0.0, 1.0 - sum(1.0 - target.percentile / 100.0 for target in wanted.latency))


@dataclass
class DayText:
    """The parts of a plan that make text, by name; each played at the rates and with the machines that are asked."""

    plan: Plan
    inputs: Inputs
    seed: int
    played: int = 0
    _shares: dict[object, float] = field(default_factory=dict)
    _fleets: dict[str, TokenFleet] = field(default_factory=dict)

    @property
    def parts(self) -> Mapping[str, Part]:
        """The parts that make text."""
        return {name: part for name, part in (self.plan.parts or {}).items() if part.question == "llm"}

    def app(self, name: str) -> str:
        """Whom a part serves."""
        return next(iter(self.parts[name].rate_qps))

    def machines(self, name: str) -> dict[str, tuple[str, int]]:
        """Workers of a part, with their offer and how many they are."""
        return {one.id: (one.offer or one.hardware, one.count) for one in self.parts[name].workers}

    def share(self, name: str, rate: float, gone: Mapping[str, int], number: int) -> float:
        """In time of a part's requests at a rate, where so many machines of its workers are gone; seed by number."""
        key = (name, rate, tuple(sorted(gone.items())), number)
        if key not in self._shares:
            self._shares[key] = self._play(name, rate, gone, number)
        return self._shares[key]

    def _play(self, name: str, rate: float, gone: Mapping[str, int], number: int) -> float:
        app = self.app(name)
        wanted = self.inputs.slo.apps[app]
        whole = self._fleet(name)
        owner = {load.id: worker.id for worker in self.parts[name].workers for load in worker.loads}
        counts = {one.id: worker.count for worker in self.parts[name].workers for one in worker.loads}
        groups = list[Group]()
        for group in whole.groups:
            left = counts[group.id] - gone.get(owner[group.id], 0)
            each = group.count // max(counts[group.id], 1)
            groups.append(replace(group, count=each * max(left, 0)))
        held = [group for group in groups if group.count > 0]
        if {group.law.role for group in held} != {group.law.role for group in whole.groups} or not held:
            return 0.0
        demand, limits = demand_of(wanted, rate), limits_of(wanted)
        settles_s = settling_s(demand, limits, [group.law for group in held])
        usual = math.ceil(max(2.0 * settles_s, demand.arrivals.cycle_s) * rate)
        count = min(max(REQUESTS, usual), MOST_REQUESTS)
        seed = seed_of(self.seed, number)
        found = play(
            replace(whole, groups=tuple(held)), draw(demand, seed=seed, count=count, settles_s=settles_s), seed=seed
        )
        self.played += len(found.arrival_ms)
        return found.goodput(limits)

    def _fleet(self, name: str) -> TokenFleet:
        if name not in self._fleets:
            app = self.app(name)
            files = inputs_of_part(self.inputs, self.parts[name].rate_qps)
            self._fleets[name] = fleet_of_plan(of_part(self.plan, name), files, app)
        return self._fleets[name]
