"""The loop of `hetplan autoscale`: observe arrivals, decide whether to replan, plan, apply, observe again.

Everything it touches is handed in: a clock, what runs (`Running`), what plans (`Make`) and what simulates. When to plan
is decided by `dispatch/replanning.py` alone, as it is in simulations. Whatever fails, what runs is kept: no plan, a
plan that breaks its own promises and an apply that did not reach its end are reported, and tried again later. A plan
that a limit ended before it was simulated is simulated first, and applied only if it meets the SLO.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from hetplan.dispatch.replanning import Look, Replanning
from hetplan.errors import HetplanError, Interrupted
from hetplan.planner.outcome import Outcome
from hetplan.planner.schedule import Schedule, Step
from hetplan.planner.status import Exit, PlanStatus
from hetplan.profiles.plan import Plan
from hetplan.profiles.state import State

__all__ = [
    "Applied",
    "Clock",
    "Ended",
    "Happened",
    "Make",
    "Running",
    "Service",
    "Simulate",
    "SystemClock",
    "Watching",
    "planned_for",
]


@dataclass(frozen=True)
class Applied:
    """What came of applying a plan; where `reached` is false, `why` says what came instead."""

    reached: bool
    changes: int = 0
    why: str = ""


class Running(Protocol):
    """What runs, as far as the loop has to do with it. Each call may raise a `HetplanError` or an `OSError`."""

    def arrived(self) -> Mapping[str, int]:
        """Queries counted so far per application; empty where nothing runs yet."""
        ...

    def under_way(self) -> int | None:
        """How many of these wait or are served, as of when they were counted; None where nobody knows."""
        ...

    def state(self) -> State | None:
        """What runs now, or None where nothing does."""
        ...

    def plan(self) -> Plan | None:
        """The plan that was applied last, where it is known."""
        ...

    def difference(self, plan: Plan) -> Sequence[str]:
        """What applying a plan would change, a line for each change."""
        ...

    def apply(self, plan: Plan, cancel: threading.Event) -> Applied:
        """Make it run; on failure, or where `cancel` came first, what ran before runs again."""
        ...


class Clock(Protocol):
    """Time, so that tests own it."""

    def now_s(self) -> float:
        """Seconds since any fixed moment."""
        ...

    def wait(self, seconds: float, cancel: threading.Event) -> None:
        """Let time pass; less of it where `cancel` is set."""
        ...


class SystemClock:
    """The machine's own monotonic clock."""

    def now_s(self) -> float:
        """Seconds since the machine started."""
        return time.monotonic()

    def wait(self, seconds: float, cancel: threading.Event) -> None:
        """Sleep, or wake at once where `cancel` is set."""
        cancel.wait(seconds)


class Make(Protocol):
    """Planning, for instance `Planner.plan`."""

    def __call__(
        self, *, demand: Mapping[str, float] | None, state: State | None, start: Plan | None, cancel: threading.Event
    ) -> Outcome:
        """An outcome for this demand; None for the demand that the wish itself states."""
        ...


class Simulate(Protocol):
    """A quick simulation, for instance `planner.violation_of`."""

    def __call__(self, plan: Plan, *, demand: Mapping[str, float] | None, cancel: threading.Event) -> str:
        """How a plan violates the SLO at this demand; empty where it meets it."""
        ...


class Service(Protocol):
    """What live traffic says of the plan that runs. Each call may raise a `HetplanError` or an `OSError`."""

    def drifted(self) -> str:
        """What has drifted since the plan that runs was made; empty where nothing has."""
        ...

    def runs(self, plan: Plan) -> None:
        """From now on this plan runs."""
        ...


@dataclass(frozen=True)
class Happened:
    """One event: look, blind, plan, simulated, apply, change (of a dry run) or kept; `text` says it to people."""

    what: str
    at_s: float
    text: str
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Ended:
    """How the loop ended: an exit code and why."""

    code: int
    reason: str


_INTERRUPTED = Ended(Exit.INTERRUPTED, "interrupted; what runs stays as it is")


def planned_for(plan: Plan) -> dict[str, float]:
    """The rate per application that a plan was made for, where it states one."""
    return {app: highest for app, (_, highest) in plan.valid.rate_qps.items() if highest is not None}


@dataclass
class Watching:
    """The loop. `run` returns when `cancel` is set, or after one decision with `once`."""

    make: Make
    running: Running
    replanning: Replanning = field(default_factory=Replanning)
    clock: Clock = field(default_factory=SystemClock)
    on_event: Callable[[Happened], None] = field(default=lambda _event: None)
    dry_run: bool = False
    service: Service | None = None
    schedule: Schedule | None = None
    simulate: Simulate | None = None
    """Without it no plan is applied that planning did not simulate."""
    lead_and_limits: Callable[[Plan], Mapping[str, Any]] | None = None
    """What `Replanning.runs` is to know of a plan that runs."""
    wall_s: Callable[[], float] = time.time
    """The clock by which the schedule's periods begin."""
    _plan: Plan | None = field(default=None, init=False)
    _step: str = field(default="", init=False)
    """What of the schedule runs; nothing while demand is beyond what it holds for."""
    _not_before_s: float = field(default=float("-inf"), init=False)

    def run(self, cancel: threading.Event, *, once: bool = False) -> Ended:
        """Look as often as `replanning` says; with `once`, look twice (rates need two), decide and return."""
        self._plan = self.running.plan()
        if self._plan is not None:
            self.replanning.planned(self.clock.now_s() - self.replanning.settle_s, planned_for(self._plan))
            self._runs(self._plan)
        # Where nothing runs there is nothing to measure: the demand that the wish states is the best that is known.
        blank = self._plan is None and self.running.state() is None
        looks = 0
        while not cancel.is_set():
            look = self._look()
            looks += 1
            ended = Ended(Exit.OK, "no reason to plan again") if look is not None else Ended(Exit.APPLY_FAILED, "blind")
            if look is not None and self.schedule is not None:
                look, kept = self._by_schedule(self.schedule, look, cancel)
                looks, ended = (looks, ended) if kept is None else (max(looks, 2), kept)
            if look is not None and look.due and (look.demand_qps or look.drifted or (blank and self._plan is None)):
                ended = self._renew(look, cancel)
                looks = max(looks, 2)
            if once and (looks >= 2 or ended.code != Exit.OK):
                return ended
            if not cancel.is_set():
                self.clock.wait(self.replanning.every_s, cancel)
        return _INTERRUPTED

    def _by_schedule(self, schedule: Schedule, look: Look, cancel: threading.Event) -> tuple[Look | None, Ended | None]:
        """Go over to what the schedule says; where demand is beyond what that holds for, leave it to planning anew."""
        step, now_s = schedule.at(self.wall_s()), self.clock.now_s()
        beyond = step.left_by(look.forecast_qps)
        if beyond:
            if self._plan is not None and not Step("", self._plan, 0.0).left_by(look.forecast_qps):
                # What runs holds for it: less comes with the hour, and machines go when it did.
                return None, None
            if self._step:
                self._say("schedule", f"{beyond}: the schedule is left", step=step.label)
                self._step = ""
                look = replace(look, due=True, why=beyond)
            return look, None
        if step.label == self._step or now_s < self._not_before_s:
            return None, None
        wanted = replace(look, demand_qps=planned_for(step.plan), why=f"schedule: {step.label}")
        try:
            ended = self._apply(step.plan, wanted, cancel)
        except (HetplanError, OSError) as error:
            ended = self._kept(getattr(error, "exit_code", Exit.APPLY_FAILED), str(error))
        if ended.code == Exit.OK:
            self._step, self._not_before_s = step.label, now_s
        else:
            self._not_before_s = now_s + max(self.replanning.every_s, self.replanning.period_s / 16)
        return None, ended

    def _look(self) -> Look | None:
        try:
            arrived, under_way = self.running.arrived(), self.running.under_way()
            drifted = self.service.drifted() if self.service is not None else ""
        except (HetplanError, OSError) as error:
            self._say("blind", f"what arrives cannot be read: {error}; what runs stays", error=str(error))
            return None
        look = self.replanning.look(self.clock.now_s(), arrived, under_way)
        if drifted and self.replanning.ready(self.clock.now_s()):
            look = replace(look, due=True, why=drifted, drifted=True)
        rates = ", ".join(f"{app} {rate:.4g}" for app, rate in look.forecast_qps.items())
        self._say(
            "look",
            f"forecast in queries/s: {rates}" if rates else "nothing is measured yet",
            rate_qps=dict(look.rate_qps),
            forecast_qps=dict(look.forecast_qps),
            demand_qps=dict(look.demand_qps),
            due=look.due,
            why=look.why,
        )
        return look

    def _renew(self, look: Look, cancel: threading.Event) -> Ended:
        """Plan and apply; on any failure keep what runs, say so and try again later."""
        try:
            outcome = self.make(
                demand=look.demand_qps or None, state=self.running.state(), start=self._plan, cancel=cancel
            )
            if cancel.is_set():
                return _INTERRUPTED
            if outcome.plan is None or outcome.exit_code not in (Exit.OK, Exit.GAP_NOT_REACHED, Exit.LIMIT):
                code = outcome.exit_code or Exit.LIMIT
                reasons = "; ".join([outcome.reason, *outcome.why, *outcome.violations])
                return self._kept(code, f"no plan for {_rates(look.demand_qps)}: {reasons}")
            why = self._violation(outcome.plan, look, cancel)
            if why:
                return self._kept(Exit.LIMIT, f"a limit ended the planning before the plan was simulated: {why}")
            if cancel.is_set():
                return _INTERRUPTED
            return self._apply(outcome.plan, look, cancel)
        except Interrupted:
            cancel.set()
            return _INTERRUPTED
        except HetplanError as error:
            return self._kept(error.exit_code, str(error))
        except OSError as error:
            return self._kept(Exit.APPLY_FAILED, str(error))

    def _violation(self, plan: Plan, look: Look, cancel: threading.Event) -> str:
        """Why a plan is not applied; empty where planning, or a simulation now, says that it meets the SLO."""
        if plan.status != PlanStatus.NOT_SIMULATED.value:
            return ""
        if self.simulate is None:
            return "it is not applied"
        why = self.simulate(plan, demand=look.demand_qps or None, cancel=cancel)
        self._say("simulated", why or "a limit ended the planning; the plan meets the SLO in simulation", why=why)
        return why

    def _apply(self, plan: Plan, look: Look, cancel: threading.Event) -> Ended:
        unserved = {one.app: one.rate_qps for one in plan.unserved}
        left = f"; leaves unserved {_rates(unserved)}" if unserved else ""
        self._say(
            "plan", f"{look.why}: a plan, {plan.status}{left}", why=look.why, digest=plan.digest, unserved=unserved
        )
        if self.dry_run:
            changes = self.running.difference(plan)
            for change in changes:
                self._say("change", change)
            self._accept(plan, look)
            return Ended(Exit.OK, f"dry run: {len(changes)} changes, none made")
        applied = self.running.apply(plan, cancel)
        if not applied.reached:
            return self._kept(Exit.APPLY_FAILED, f"the plan could not be applied: {applied.why}")
        self._accept(plan, look)
        text = f"applied, {applied.changes} steps" if applied.changes else "nothing to change"
        self._say("apply", text, steps=applied.changes, digest=plan.digest)
        return Ended(Exit.OK, "what runs matches the plan")

    def _accept(self, plan: Plan, look: Look) -> None:
        self._plan = plan
        self._runs(plan)
        self.replanning.planned(self.clock.now_s(), look.demand_qps or planned_for(plan))

    def _runs(self, plan: Plan) -> None:
        if self.service is not None:
            self.service.runs(plan)
        if self.lead_and_limits is not None:
            self.replanning.runs(**self.lead_and_limits(plan))

    def _kept(self, code: int, why: str) -> Ended:
        wait_s = self.replanning.failed(self.clock.now_s())
        self._say("kept", f"{why}; what runs is kept, next try in {wait_s:.3g} s", why=why, next_try_s=wait_s)
        return Ended(code, why)

    def _say(self, what: str, text: str, **data: Any) -> None:
        self.on_event(Happened(what, self.clock.now_s(), text, data))


def _rates(rates: Mapping[str, float]) -> str:
    return ", ".join(f"{app} at {rate:.4g} queries/s" for app, rate in rates.items()) or "the demand stated"
