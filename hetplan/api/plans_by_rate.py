"""Plans of one problem for other rates, cached: for replanning, and for baselines that follow a demand.

`Recipes` are a question's plans for other rates, each made once: rates are rounded up to a grid, so that a day needs a
few dozen plans. Questions that count moves, or what a change costs, are asked with the plan in force as their state,
and so are asked again and again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from hetplan import registry
from hetplan.api.planner import with_rates
from hetplan.api.solve import plan_for
from hetplan.planner.next_state import next_state
from hetplan.profiles.load import load_inputs
from hetplan.profiles.load_one import read_profile
from hetplan.profiles.plan_periods import of_period
from hetplan.profiles.slo import Horizon

if TYPE_CHECKING:
    from hetplan.planner.outcome import Outcome
    from hetplan.profiles.inputs import Inputs
    from hetplan.profiles.plan import Plan
    from hetplan.profiles.slo import Slo
    from hetplan.serving.service import NoiseName
    from hetplan.serving.system import System

__all__ = ["GRID", "STATEFUL", "Recipes", "at_any_moment"]

STATEFUL = "variants"
"""The question in which a change costs something."""
GRID = 0.05
"""Plans are made for rates this far apart."""
_STEPS_DOWN = 60
_ON_THE_WAY = (1.0, 0.5, 0.25, 0.125)
"""Where so many moves as are allowed do not do for the rates that are wanted, they are for so much of the way there."""


@dataclass
class Recipes:
    """Plans by a plan's own question, formulation and options, for other rates: the least cost at any one moment.

    A wish that asks for the highest rate is asked for the least cost instead, without its budget: what is compared
    serves what comes. Where no plan carries a rate, the one for the highest rate below that has a plan is in force.
    """

    plan: Plan
    inputs: Inputs
    noise: NoiseName = "table"
    grid: float = GRID
    asked: int = 0
    missing: int = 0
    """How often a plan was wanted, and how often no plan carried the rates."""
    short: bool = field(default=False, init=False)
    """Whether the last plan is for less than the rates that it was wanted for."""
    _outcomes: dict[Any, Outcome] = field(default_factory=dict, repr=False)
    _systems: dict[str, System] = field(default_factory=dict, repr=False)
    _plans: dict[int, Plan] = field(default_factory=dict, repr=False)
    """By the system that was made of it."""
    _carried: dict[str, Mapping[str, float]] = field(default_factory=dict, repr=False)
    """The rates that a plan was made for, where moves are limited."""

    def __post_init__(self) -> None:
        from hetplan.simulator.system_changes import Names

        self._names = Names()
        self._profile, self._slo = read_profile(self.inputs.profile), at_any_moment(self.inputs.slo)
        asked = registry.formulation(registry.problem(self.plan.question), self.plan.method.formulation)
        known = asked.options.model_fields if asked is not None else {}
        self._options = {name: value for name, value in self.plan.method.options.items() if name in known}
        if self.stateful and self._options.get("sizing") == "simulation":
            # The formula's plan, which auto begins with: to simulate each of hundreds of plans by itself takes minutes,
            # and what is played here is a simulation of them all.
            self._options["sizing"] = "formula"
        if self.plan.question == "llm":
            self._options["sizing"] = "fluid"
        if self.limited and "share_machines" in known:
            # Moves are counted by application: the first plan shares no machines, as those that follow it do not.
            self._options["share_machines"] = False

    @property
    def stateful(self) -> bool:
        """Whether a plan depends on the one before it."""
        return self.plan.question == STATEFUL or self.limited

    @property
    def limited(self) -> bool:
        """Whether from one plan to the next so many moves are allowed, and no more."""
        return self.inputs.slo.limits.changes is not None

    def rounded(self, rates: Mapping[str, float], *, up: bool = True) -> dict[str, float]:
        """The nearest rates of the grid that are no lower (or no higher)."""
        to, step = (math.ceil, -1e-9) if up else (math.floor, 1e-9)
        return {
            app: round((1.0 + self.grid) ** to(math.log(max(rate, 1e-3)) / math.log1p(self.grid) + step), 6)
            for app, rate in rates.items()
        }

    def outcome(self, rates: Mapping[str, float], now: Plan | None = None) -> Outcome:
        """What the question says of these rates."""
        state = next_state(of_period(now, now.periods[0])) if now is not None and self.stateful else None
        key = (tuple(sorted(rates.items())), state.model_dump_json() if state is not None else None)
        if key not in self._outcomes:
            limits = self._slo.limits if state is not None else self._slo.limits.model_copy(update={"changes": None})
            slo = with_rates(self._slo.model_copy(update={"limits": limits}), rates)
            self._outcomes[key] = plan_for(
                load_inputs(self._profile, slo, state=state), question=self.plan.question,
                formulation=self.plan.method.formulation, options=self._options, try_repairs=False,
            )  # fmt: skip
        return self._outcomes[key]

    def plan_for(self, rates: Mapping[str, float], now: Plan | None = None) -> Plan | None:
        """The plan for rates on the grid, or for the highest below them that has one; None where none has."""
        if now is not None and self.stateful:
            return self.following(self.rounded(rates), now)
        self.asked += 1
        for step in range(_STEPS_DOWN):
            tried = {app: rate / (1.0 + self.grid) ** step for app, rate in rates.items()}
            plan = self._kept(self.rounded(tried), None)
            self.short = step > 0
            if plan is not None:
                return plan
            if step == 0:
                self.missing += 1
            if self.stateful and not self.limited:
                # What runs goes on.
                return None
        return None

    def following(self, rates: Mapping[str, float], now: Plan) -> Plan | None:
        """The plan for these rates that follows one; with few moves for as much of the way to them as these do."""
        self.asked += 1
        before = self._carried.get(now.digest or "", rates)
        for part in _ON_THE_WAY if self.limited else (1.0,):
            had = {app: min(rate, before.get(app, rate)) for app, rate in rates.items()}
            plan = self._kept({app: had[app] + part * (rate - had[app]) for app, rate in rates.items()}, now)
            self.short = part < 1.0
            if plan is not None:
                return plan
            self.missing += part == 1.0
        return None

    def _kept(self, rates: Mapping[str, float], now: Plan | None) -> Plan | None:
        """The plan for these rates; what it was made for is kept."""
        plan = self.outcome(rates, now).plan
        if plan is not None and self.limited:
            self._carried[plan.digest or ""] = rates
        return plan

    def system_for(self, rates: Mapping[str, float], before: System | None = None) -> System | None:
        """What runs by the plan for these rates, after what runs `before`; machines that stay keep their names."""
        plan = self.plan_for(rates, self._plans.get(id(before)))
        return self.system_of(plan) if plan is not None else None

    def system_of(self, plan: Plan) -> System:
        """What runs by a plan, its groups named by what they hold."""
        from hetplan.serving.planned_system import planned_systems

        key = plan.digest or ""
        if key not in self._systems or not key:
            single = of_period(plan, plan.periods[0])
            labels = {worker.id: worker.offer or "" for worker in single.workers} if plan.parts is not None else None
            system = planned_systems(single, self.inputs, noise=self.noise)[0].system
            self._systems[key] = self._names.named(system, labels=labels)
            self._plans[id(self._systems[key])] = plan
        return self._systems[key]

    def least_cost(self, rates: Mapping[str, float]) -> float | None:
        """A bound on what these rates cost per hour, by whatever plan of the question; None where none is known.

        Of variants without the slack and the room to wait that each plan leaves: over time both may be done without.
        """
        recipes = self
        if self.plan.question == STATEFUL:
            change, recipes = self._slo.change, replace(self, _outcomes={})
            recipes._options |= {"sizing": "fluid"}
            less = change.slack_qps or 0.0
            rates = {app: max(min(rate / change.slack, rate - less), 0.0) for app, rate in rates.items()}
        plan = recipes.outcome(recipes.rounded(rates, up=False)).plan
        if plan is None:
            return None
        bounds = [c.bound for c in plan.claims if c.about.endswith("cost_per_hour") and c.bound is not None]
        return min(bounds, default=None)


def at_any_moment(slo: Slo) -> Slo:
    """The wish as it is at any one moment, for the least money: rates come from what is seen.

    >>> import hetplan as hp
    >>> at_any_moment(hp.load("examples/pool/profile.json", "examples/pool/slo.json").slo).objective
    ('min cost',)
    """
    apps = {}
    for name, app in slo.apps.items():
        highest = max(app.series) if app.series else app.stated_qps
        apps[name] = app.at_rate(1.0 if highest is None else highest)
    changed: dict[str, Any] = {"apps": apps, "horizon": Horizon(), "requires": ()}
    if {"max rate", "max served"} & set(slo.objective):
        changed["objective"] = ("min cost",)
        changed["limits"] = slo.limits.model_copy(update={"cost_per_hour": None})
    return slo.model_copy(update=changed)
