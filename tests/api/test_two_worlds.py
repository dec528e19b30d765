"""One decider, two worlds: what is planned for, and when, is the same where a run is simulated and where it is real."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from api.test_watching import World, made, plan_of

import hetplan as hp
from hetplan.api.autoscaler import Watching
from hetplan.dispatch.replanning import Replanning
from hetplan.planner.outcome import Outcome
from hetplan.profiles.load import load_inputs
from hetplan.serving.planned_system import planned_systems
from hetplan.serving.system import System
from hetplan.simulator.simulate import demands_of, simulate_system
from hetplan.simulator.simulation import Simulation
from hetplan.simulator.system_changes import follow, lead_and_limits

START_S = 12.0
PROFILE: dict[str, Any] = {
    "format": "hetplan/profile/1.0",
    "hardware": {"gpu": {"kind": "gpu", "startup_s": START_S}},
    "offers": {"gpu": {"hardware": "gpu", "price_per_hour": "1", "stock": 20}},
    "tasks": {"rank": {}},
    "variants": {"m": {"task": "rank", "runs": [{"hardware": "gpu", "latency": "t"}]}},
    "tables": {"t": {"quantity": "latency_ms", "axes": {"batch": [1]}, "mean": [10]}},
}  # fmt: skip
SLO: dict[str, Any] = {
    "format": "hetplan/slo/1.0",
    "horizon": {"period_s": 40, "periods": 6},
    "apps": {
        "a": {
            "model": "m",
            "latency": {"p95_ms": 80},
            "rate_qps": {"series": [40, 160, 40, 320, 90, 40]},
            "mix": {"axes": ["batch"], "bins": [[1]], "share": [1]},
        }
    },
}
MOST_QPS = 300.0
"""No plan is for more."""
Asked = list[tuple[float, dict[str, float]]]


@dataclass
class Simulated:
    """A run that is looked at, and what there was to see; a machine for each 70 queries a second."""

    run: Simulation
    system: System
    seen: dict[float, tuple[int, int]] = field(default_factory=dict)
    asked: Asked = field(default_factory=list)
    short: bool = False
    came: int = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.run, name)

    def arrived(self) -> dict[str, int]:
        counts = self.run.arrived()
        self.came += counts["a"]
        self.seen[round(self.run.now_ms / 1000.0, 6)] = (self.came, self.run.under_way)
        return counts

    def system_for(self, rates: Mapping[str, float], before: System | None = None) -> System | None:
        self.asked.append((self.run.now_ms / 1000.0, dict(rates)))
        if rates["a"] > MOST_QPS:
            return None
        count = int(rates["a"] // 70) + 1
        (group,) = self.system.groups
        return replace(self.system, groups=(replace(group, count=count),))


@dataclass
class Real(World):
    """Hosts whose counters are those of a run that was simulated."""

    seen: Mapping[float, tuple[int, int]] = field(default_factory=dict)
    planned: Asked = field(default_factory=list)

    def arrived(self) -> Mapping[str, int]:
        return {"a": self.seen[self.at_s][0]}

    def under_way(self) -> int | None:
        return self.seen[self.at_s][1]

    def make(self, *, demand: Mapping[str, float] | None, **_: Any) -> Outcome:
        assert demand
        self.planned.append((self.at_s, dict(demand)))
        return made(plan_of(1, demand["a"]) if demand["a"] <= MOST_QPS else None)


@pytest.mark.parametrize(
    "how",
    [{}, {"runs_for": {"a": 250.0}}, {"kind": "seasonal", "season_s": 80.0, "quantile": 0.7, "settle_s": 15.0}],
)
def test_the_same_counters_make_the_same_plans_at_the_same_times(how: dict[str, Any]) -> None:
    slo = {**SLO, "apps": {"a": {**SLO["apps"]["a"]}}}
    once = {key: value for key, value in slo.items() if key != "horizon"}
    once["apps"] = {"a": {**slo["apps"]["a"], "rate_qps": 40}}
    plan = hp.solve(PROFILE, once, options={"sizing": "fluid"}, formulation="pool").require()
    inputs = load_inputs(PROFILE, slo)
    system, demands = planned_systems(plan, inputs)[0].system, demands_of(plan, inputs)
    facts = lead_and_limits(system, demands)
    assert facts == {"lead_s": START_S, "limits_s": {"a": 0.08}}
    decider = Replanning(every_s=5.0, period_s=60.0, hold_s=20.0, **facts, **how)

    worlds: list[Simulated] = []

    def control(run: Simulation) -> None:
        worlds.append(Simulated(run, system))
        follow(worlds[-1], decider, ["a"])(worlds[-1])  # type: ignore[arg-type]

    simulate_system(system, demands, control=control, duration_s=240.0, seeds=1)
    (simulated,) = worlds

    real = Real(lambda _now: 0.0, until_s=max(simulated.seen) + 5.0, servers=1, seen=simulated.seen)
    real.last = plan_of(1, decider.runs_for["a"]) if decider.runs_for else None
    Watching(real.make, real, replace(decider, runs_for={}), clock=real).run(threading.Event())

    assert real.planned == simulated.asked
    rates = [demand["a"] for _, demand in real.planned]
    assert len(set(rates)) > 4, "else it is no matter when it is decided"
    assert max(rates) > MOST_QPS, "some of them came to nothing"
    assert max(waiting for _, waiting in simulated.seen.values()) > 100, "there was something to catch up"
