"""The loop of `hetplan autoscale` with a clock, a demand and a deployment of the test's own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from hetplan.api.autoscaler import Applied, Ended, Happened, Watching
from hetplan.dispatch.replanning import Replanning
from hetplan.errors import InputError, Interrupted, SolverFailed
from hetplan.planner.outcome import Outcome
from hetplan.planner.schedule import Schedule
from hetplan.planner.status import Exit, Finding, Found
from hetplan.profiles.plan import InputHashes, Method, Plan, Unserved, Valid
from hetplan.profiles.state import State
from hetplan.profiles.workers import Worker


def plan_of(servers: int, rate_qps: float) -> Plan:
    return Plan(
        question="pipeline",
        method=Method(formulation="by hand"),
        inputs=InputHashes(profile="sha256:00", slo="sha256:00"),
        valid=Valid(rate_qps={"a": (0.0, rate_qps)}),
        workers=(Worker(id="w1", hardware="gpu", count=servers),),
    )


def made(plan: Plan | None, **finding: Any) -> Outcome:
    found = Found.PLAN if plan is not None else Found.INFEASIBLE
    return Outcome(Finding(found, **finding), plan=plan, why=() if plan is not None else ("the stock is 9",))


@dataclass
class World:
    """One server carries 10 queries/s; demand is `rate(seconds)`; everything that is done is written down."""

    rate: Callable[[float], float]
    until_s: float = 1000.0
    servers: int = 0
    most: int = 9
    at_s: float = 0.0
    count: float = 0.0
    asked: list[tuple[float, Mapping[str, float] | None, Plan | None]] = field(default_factory=list)
    applied: list[tuple[float, int]] = field(default_factory=list)
    faults: list[Happened] = field(default_factory=list)
    broken_apply: Callable[[float], bool] = lambda _now: False
    unreadable: Callable[[float], bool] = lambda _now: False
    last: Plan | None = None
    waiting: int | None = None

    def now_s(self) -> float:
        return self.at_s

    def wait(self, seconds: float, cancel: threading.Event) -> None:
        self.count += self.rate(self.at_s) * seconds
        self.at_s += seconds
        if self.at_s >= self.until_s:
            cancel.set()

    def arrived(self) -> Mapping[str, int]:
        if self.unreadable(self.at_s):
            raise ConnectionRefusedError("no router answers")
        return {"a": round(self.count)} if self.servers else {}

    def under_way(self) -> int | None:
        return self.waiting

    def state(self) -> State | None:
        return State(workers=(Worker(id="w1", hardware="gpu", count=self.servers),)) if self.servers else None

    def plan(self) -> Plan | None:
        return self.last

    def difference(self, plan: Plan) -> list[str]:
        missing = plan.workers[0].count - self.servers
        return [f"{'start' if missing > 0 else 'stop'} a server"] * abs(missing)

    def apply(self, plan: Plan, cancel: threading.Event) -> Applied:
        if self.broken_apply(self.at_s):
            return Applied(False, why="host m2 does not answer")
        changes = len(self.difference(plan))
        self.servers = plan.workers[0].count
        if changes:
            self.applied.append((self.at_s, self.servers))
        return Applied(True, changes)

    def make(
        self, *, demand: Mapping[str, float] | None, state: State | None, start: Plan | None, cancel: threading.Event
    ) -> Outcome:
        self.asked.append((self.at_s, demand, start))
        rate = demand["a"] if demand else 40.0
        servers = max(1, -(-round(rate, 6) // 10))
        return made(plan_of(int(servers), rate) if servers <= self.most else None)

    def watching(self, **how: Any) -> Watching:
        replanning = how.pop("replanning", None) or Replanning(every_s=10, period_s=300, hold_s=60, headroom=0.0)
        make = how.pop("make", self.make)
        return Watching(make, self, replanning, clock=self, on_event=self.faults.append, **how)

    def run(self, **how: Any) -> Ended:
        once = how.pop("once", False)
        return self.watching(**how).run(threading.Event(), once=once)

    def events(self, what: str) -> list[Happened]:
        return [event for event in self.faults if event.what == what]


def test_it_plans_first_for_the_demand_stated_then_follows_what_is_measured() -> None:
    world = World(rate=lambda now: 40.0 if now < 300 else 80.0)
    ended = world.run()
    assert ended.code == Exit.INTERRUPTED
    assert world.asked[0][1] is None
    servers = [servers for _, servers in world.applied]
    assert (servers[0], servers[-1]) == (4, 8)
    assert servers == sorted(servers)
    assert all(300 <= at <= 360 for at, _ in world.applied[1:])


def test_each_plan_starts_from_the_one_before_and_knows_what_runs() -> None:
    world = World(rate=lambda now: 40.0 if now < 300 else 80.0)
    seen: list[State | None] = []

    def make(*, state: State | None, **rest: Any) -> Outcome:
        seen.append(state)
        return world.make(state=state, **rest)

    world.run(make=make)
    assert seen[0] is None
    assert seen[1] is not None
    assert seen[1].workers[0].count == 4
    assert world.asked[0][2] is None
    assert world.asked[1][2] is not None


def test_no_plan_keeps_what_runs_and_tries_again_more_rarely() -> None:
    world = World(rate=lambda now: 40.0 if now < 100 else 200.0)
    world.run()
    assert 4 <= world.servers <= 9
    kept = world.events("kept")
    assert kept
    assert all("the stock is 9" in event.text and "what runs is kept" in event.text for event in kept)
    waits = [event.data["next_try_s"] for event in kept]
    assert waits == sorted(waits)
    assert len(kept) < 12


def test_a_failed_apply_is_reported_and_tried_again() -> None:
    world = World(rate=lambda now: 40.0 if now < 100 else 80.0, broken_apply=lambda now: 100 < now < 400)
    world.run()
    assert "host m2 does not answer" in world.events("kept")[0].text
    assert world.applied[0] == (0.0, 4)
    assert world.applied[1][0] >= 400
    assert world.servers == 8


def test_a_router_that_cannot_be_read_moves_nothing() -> None:
    world = World(rate=lambda _now: 40.0, unreadable=lambda now: 200 < now < 600)
    world.run()
    assert [servers for _, servers in world.applied] == [4]
    assert "no router answers" in world.events("blind")[0].text


@pytest.mark.parametrize("finding", [{"violations": 1}, {"target_missed": True}])
def test_a_plan_that_breaks_its_promises_is_not_applied(finding: dict[str, Any]) -> None:
    world = World(rate=lambda _now: 40.0)
    world.run(make=lambda **_: made(plan_of(3, 30.0), **finding))
    assert world.applied == []
    assert world.events("kept")


def test_an_error_while_planning_keeps_what_runs() -> None:
    def make(**_: Any) -> Outcome:
        raise SolverFailed("highs", "the engine broke")

    world = World(rate=lambda _now: 40.0, until_s=100)
    assert world.run(make=make).code == Exit.INTERRUPTED
    assert "the engine broke" in world.events("kept")[0].text


def test_a_dry_run_touches_nothing_and_tells_the_steps() -> None:
    world = World(rate=lambda _now: 40.0)
    ended = world.run(dry_run=True, once=True)
    assert (ended.code, ended.reason) == (Exit.OK, "dry run: 4 changes, none made")
    assert world.applied == []
    assert [event.text for event in world.events("change")] == ["start a server"] * 4


def test_what_runs_by_an_unknown_plan_is_measured_before_it_is_planned_anew() -> None:
    world = World(rate=lambda _now: 80.0, servers=4, until_s=100)
    world.run()
    assert world.asked[0][0] == 10
    assert world.asked[0][1] == {"a": pytest.approx(80)}
    assert world.asked[0][2] is None


def test_once_measures_between_two_looks_and_ends() -> None:
    world = World(rate=lambda _now: 80.0, servers=4)
    world.last = plan_of(4, 40.0)
    ended = world.run(once=True)
    assert ended == Ended(Exit.OK, "what runs matches the plan")
    assert world.servers == 8
    assert len(world.events("look")) == 2


def test_once_with_nothing_to_change() -> None:
    world = World(rate=lambda _now: 40.0, servers=4)
    world.last = plan_of(4, 40.0)
    assert world.run(once=True) == Ended(Exit.OK, "no reason to plan again")
    assert world.asked == []


def test_once_ends_with_the_code_of_what_failed() -> None:
    blind = World(rate=lambda _now: 1.0, servers=1, unreadable=lambda _now: True)
    assert blind.run(once=True).code == Exit.APPLY_FAILED
    none = World(rate=lambda _now: 1.0, most=0)
    assert none.run(once=True).code == Exit.INFEASIBLE
    broken = World(rate=lambda _now: 1.0, broken_apply=lambda _now: True)
    assert broken.run(once=True).code == Exit.APPLY_FAILED


def test_demand_left_unserved_is_reported() -> None:
    plan = plan_of(4, 40.0).model_copy(update={"unserved": (Unserved(app="a", rate_qps=7.0, why="no stock"),)})
    world = World(rate=lambda _now: 40.0)
    world.run(make=lambda **_: made(plan), once=True)
    assert "leaves unserved a at 7 queries/s" in world.events("plan")[0].text


def test_an_interrupt_while_planning_applies_nothing() -> None:
    world = World(rate=lambda _now: 40.0)

    def make(*, cancel: threading.Event, **_: Any) -> Outcome:
        cancel.set()
        return made(plan_of(4, 40.0), interrupted=True)

    assert world.run(make=make).code == Exit.INTERRUPTED
    assert world.applied == []


def test_a_cancelled_apply_ends_the_watch() -> None:
    world = World(rate=lambda _now: 40.0)

    def apply(_plan: Plan, _cancel: threading.Event) -> Applied:
        raise Interrupted("stopped between two steps")

    world.apply = apply  # type: ignore[method-assign]
    assert world.run().code == Exit.INTERRUPTED
    assert not world.events("kept")


def test_noise_does_not_move_a_server() -> None:
    world = World(rate=lambda now: 38.0 + 4.0 * (round(now / 10) % 2), until_s=3000)
    world.run()
    assert len(world.applied) == 1


def test_what_has_piled_up_is_planned_for() -> None:
    """40 a second come, and 600 wait where 20 are usual: ten a second more for a minute."""
    world = World(rate=lambda _now: 40.0, until_s=200.0)
    world.waiting = 620
    world.run(lead_and_limits=lambda _plan: {"lead_s": 0.0, "limits_s": {"a": 0.5}})
    assert world.applied == [(0.0, 4), (10.0, 5)]


def test_each_plan_that_runs_says_how_far_ahead_to_look() -> None:
    leads, settings = [], Replanning(every_s=10, period_s=1e9, headroom=0.0)
    world = World(rate=lambda _now: 40.0, until_s=200.0)

    def read(plan: Plan) -> dict[str, Any]:
        leads.append(plan.workers[0].count)
        return {"lead_s": 30.0 * plan.workers[0].count, "limits_s": {}}

    world.run(replanning=settings, lead_and_limits=read)
    assert leads == [4]
    assert settings.lead_s == 120.0
    known = World(rate=lambda _now: 40.0, servers=4)
    known.last = plan_of(4, 40.0)
    leads.clear()
    known.run(lead_and_limits=read, once=True)
    assert leads == [4], "what ran before it began is known too"


@dataclass
class Drifting:
    """A service in which something drifts at a moment, until another plan runs."""

    world: World
    at_s: float
    plans: list[float] = field(default_factory=list)

    def drifted(self) -> str:
        return "accuracy has drifted" if self.world.at_s >= self.at_s > max(self.plans, default=-1.0) else ""

    def runs(self, plan: Plan) -> None:
        self.plans.append(self.world.at_s)


def test_what_has_drifted_is_a_reason_to_plan_anew_and_a_failure_waits() -> None:
    world = World(lambda _now: 20.0, until_s=400.0)
    world.broken_apply = lambda now: 200.0 <= now < 206.0
    service = Drifting(world, 200.0)
    watching = Watching(
        world.make,
        world,
        Replanning(period_s=80, change=0.2),
        clock=world,
        on_event=world.faults.append,
        service=service,
    )
    watching.run(world_cancel := threading.Event())
    assert world_cancel.is_set()
    reasons = [(event.at_s, event.data["why"]) for event in world.faults if event.what == "plan"]
    assert [why for now, why in reasons if 195 <= now <= 215] == ["accuracy has drifted"] * 3
    assert next(now for now, why in reasons if why == "accuracy has drifted") == 200.0
    assert sum(why == "accuracy has drifted" for _, why in reasons) <= 3


# A schedule


def part_of(servers: int, rate_qps: float) -> dict[str, Any]:
    load = {"id": "l", "app": "a", "variant": "m", "at": {}}
    return {
        "question": "pool", "method": {"formulation": "by-hand"}, "rate_qps": {"a": rate_qps},
        "valid": {"rate_qps": {"a": (0.0, rate_qps)}},
        "workers": [{"id": "w1", "hardware": "gpu", "count": servers, "loads": [load]}],
        "routing": {"a": [{"to": {"l": 1.0}}]},
    }  # fmt: skip


def schedule(ahead_s: float = 20.0) -> Schedule:
    """Two servers for 100 s, five for the next 100 s, over and over; a server takes 20 s to start."""
    actions = [{"id": 1, "do": "start", "worker": "w1", "count": 3, "ahead_s": ahead_s}]
    return Schedule(
        Plan.model_validate(
            {
                "question": "fleet", "requires": ["periods"], "method": {"formulation": "fleet"},
                "inputs": {"profile": "sha256:00", "slo": "sha256:00"},
                "periods": [
                    {"id": "quiet", "start_s": 0.0, "end_s": 100.0, "parts": ["low"]},
                    {"id": "busy", "start_s": 100.0, "end_s": 200.0, "parts": ["high"], "actions": actions},
                ],
                "parts": {"low": part_of(2, 20.0), "high": part_of(5, 50.0)},
            }
        )
    )  # fmt: skip


def test_a_schedule_is_kept_with_starts_ahead_of_the_hour() -> None:
    world = World(rate=lambda now: 15.0 if now % 200 < 100 else 45.0, until_s=410.0)
    world.run(schedule=schedule(), wall_s=world.now_s)
    assert [servers for _, servers in world.applied] == [2, 5, 2, 5]
    times = [at for at, _ in world.applied]
    assert (times[0], times[1], times[3]) == (0.0, 80.0, 280.0)
    assert 200.0 <= times[2] <= 250.0, "machines go once less comes"
    assert not world.asked, "nothing is planned anew while demand is as it was planned for"


def test_demand_beyond_the_schedule_is_planned_for_and_the_schedule_comes_back() -> None:
    """From 30 s on 60 a second come, where the quiet period holds for 20; from 110 s on the busy one is enough."""
    world = World(rate=lambda now: 60.0 if 30 <= now < 70 else 15.0, until_s=300.0)
    world.run(schedule=schedule(), wall_s=world.now_s)
    assert world.asked
    assert 30.0 <= world.asked[0][0] <= 50.0
    assert [event.data["step"] for event in world.events("schedule")] == ["quiet"]
    assert world.applied[-1] == (280.0, 5)
    assert any(at > 70.0 and servers == 2 for at, servers in world.applied)


def test_a_step_that_fails_is_tried_again() -> None:
    world = World(rate=lambda _now: 10.0, until_s=120.0, broken_apply=lambda now: now < 15.0)
    world.run(schedule=schedule(), wall_s=world.now_s)
    assert world.applied[0][1] == 2
    assert 20.0 <= world.applied[0][0] <= 60.0
    assert world.events("kept")


def test_what_a_schedule_says_at_any_moment() -> None:
    held = schedule()
    labels = {at: held.at(at).label for at in (0.0, 79.0, 80.0, 100.0, 199.0, 200.0, 481.0)}
    assert labels == {
        0.0: "quiet", 79.0: "quiet", 80.0: "quiet, and what busy starts", 100.0: "busy", 199.0: "busy",
        200.0: "quiet", 481.0: "quiet, and what busy starts",
    }  # fmt: skip
    both = held.at(90.0).plan
    assert (both.workers[0].count, both.routing["a"][0].to) == (5, {"l": 1.0})
    assert held.at(90.0).until_s == 100.0
    assert held.at(-10.0).label == "busy"
    with pytest.raises(InputError, match="a plan with periods"):
        Schedule(plan_of(1, 10.0))


@pytest.mark.parametrize(
    ("violation", "is_applied"), [("", True), ("p99 of a is 300 ms, and 100 are allowed", False), (None, False)]
)
def test_a_plan_that_a_limit_ended_runs_only_if_simulation_says_so(violation: str | None, is_applied: bool) -> None:
    """What runs goes on where the simulation says no, and where nobody can simulate."""
    asked: list[Mapping[str, float] | None] = []
    world = World(rate=lambda _now: 40.0 if _now < 300 else 80.0)

    def make(**how: Any) -> Outcome:
        outcome = world.make(**how)
        assert outcome.plan is not None
        late = world.at_s > 300
        plan = outcome.plan.model_copy(update={"status": "not-simulated"}) if late else outcome.plan
        return made(plan, limited=late)

    def simulate(plan: Plan, *, demand: Mapping[str, float] | None, cancel: threading.Event) -> str:
        asked.append(demand)
        return violation or ""

    world.run(make=make, simulate=None if violation is None else simulate)
    servers = [servers for _, servers in world.applied]
    assert servers[0] == 4
    assert (max(servers) == 8) == is_applied
    assert is_applied or servers == [4]
    assert all(demand is not None and demand["a"] > 40 for demand in asked)
    assert bool(asked) == (violation is not None)
    said = [event.text for event in world.events("kept")]
    assert is_applied or all(violation is None or violation in text for text in said)
    assert bool(said) != is_applied
