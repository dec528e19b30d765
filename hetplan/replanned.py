"""A variants plan and its successors, played under the loads of successive periods: what re-planning would be worth.

>>> import hetplan as hp
>>> from hetplan.replanned import play_replanned  # doctest: +SKIP
>>> report = play_replanned(plan, hp.load_inputs(profile, slo), every_s=2.0)  # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hetplan import registry
from hetplan.errors import InputError
from hetplan.planner.next_state import next_state
from hetplan.planning_again import Planner
from hetplan.profiles.slo import Demand, Horizon

if TYPE_CHECKING:
    from hetplan.profiles.inputs import Inputs
    from hetplan.profiles.plan import Plan
    from hetplan.profiles.slo import Slo
    from hetplan.simulator.report import SimulationReport

__all__ = ["play_replanned"]

QUESTION = "variants"


def play_replanned(plan: Plan, inputs: Inputs, *, every_s: float, **how: Any) -> SimulationReport:
    """The planner asked every so often, by the plan's own formulation and options, for the rates seen.

    Loads are `demand.series` of the SLO file, its wishes are judged over the whole time, and `how` is
    `hetplan.simulator.autoscale.autoscale`'s.
    """
    from hetplan.simulator.autoscale import autoscale

    if plan.question != QUESTION:
        raise InputError.one(
            file="plan", path="$.question", value=plan.question,
            why=f"a plan of {QUESTION} is played with re-planning",
            remedy="Simulate it as it is; `hetplan watch` re-plans what runs.",
        )  # fmt: skip
    series, planner, slo = _series(inputs.slo), Planner(inputs.profile), _without_periods(inputs.slo)
    asked = registry.problem(QUESTION).formulations.get(plan.method.formulation)
    known = asked.model_fields if asked is not None else {}
    options = {name: value for name, value in plan.method.options.items() if name in known}
    if options.get("size") == "auto":
        # The formula's plan, which auto begins with: to simulate each of hundreds of plans by itself takes minutes, and
        # what is played here is a simulation of them all.
        options["size"] = "estimated"
    carried: list[bool] = []

    def plan_for(rates: Mapping[str, float], now: Plan) -> Plan | None:
        outcome = planner.plan(
            slo, state=next_state(now), demand=rates, question=QUESTION, formulation=plan.method.formulation,
            options=options,
        )  # fmt: skip
        carried.append(outcome.plan is not None)
        return outcome.plan

    period_s = inputs.slo.horizon.period_s
    report = autoscale(plan, inputs, plan_for, series=series, period_s=period_s, every_s=every_s, **how)
    if missing := carried.count(False):
        text = f"at {missing} of {len(carried)} looks no plan carried the rates seen, and the last one stayed in force"
        report = replace(report, warnings=(*report.warnings, ("W-no-plan", "slo.apps", text)))
    return report


def _series(slo: Slo) -> dict[str, tuple[float, ...]]:
    """The rates of every application, period by period; one that states a single rate has it in all of them."""
    found: dict[str, tuple[float, ...]] = {}
    for name, app in slo.apps.items():
        rate = app.demand.rate_qps
        stated = (float(rate),) * slo.horizon.periods if isinstance(rate, int | float) else ()
        found[name] = app.demand.series or stated
    if not any(app.demand.series for app in slo.apps.values()) or not all(found.values()):
        raise InputError.one(
            file="slo", path="$.apps", why="loads over time: demand.series (a rate per period) of some application",
            remedy='Write "horizon": {"period_s": 60, "periods": 3} and "demand": {"series": [100, 300, 100]}.',
        )  # fmt: skip
    return found


def _without_periods(slo: Slo) -> Slo:
    """The wish as it is at any one moment: rates come from what is seen."""
    apps = {}
    for name, app in slo.apps.items():
        stated = app.demand.model_dump(by_alias=True, exclude_unset=True, exclude={"series"})
        highest = max(app.demand.series) if app.demand.series else app.demand.rate_qps
        demand = Demand.model_validate({**stated, "rate_qps": highest})
        apps[name] = app.model_copy(update={"demand": demand})
    return slo.model_copy(update={"apps": apps, "horizon": Horizon(), "requires": ()})
