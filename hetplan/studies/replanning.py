"""A plan and its successors, played under loads that change: what re-planning would be worth.

`play_replanned` is for plans of one question, `replanned_fleet` for plans with periods.

>>> import hetplan as hp
>>> from hetplan.studies.replanning import play_replanned  # doctest: +SKIP
>>> report = play_replanned(plan, hp.load(profile, slo), every_s=2.0)  # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hetplan.api.autoscaler import planned_for
from hetplan.api.plans_by_rate import STATEFUL, Recipes
from hetplan.dispatch.replanning import Replanning
from hetplan.errors import InputError
from hetplan.profiles.plan_periods import text_apps, without
from hetplan.simulator.autoscale import autoscale, system_of
from hetplan.simulator.report import SimulationReport, wishes_of
from hetplan.simulator.simulate import demands_of, percentiles_of, simulate_system
from hetplan.simulator.system_changes import follow, lead_and_limits
from hetplan.studies.fleet_strategies import FleetPlayed
from hetplan.studies.llm_baselines import text_beside

if TYPE_CHECKING:
    from hetplan.profiles.inputs import Inputs
    from hetplan.profiles.plan import Plan
    from hetplan.profiles.slo import Slo

__all__ = ["PLAYED", "play_replanned", "replanned_fleet"]

PLAYED = ("pool", "pipeline", "policy", "variants", "llm")
"""The questions whose plans are played one after another."""


def play_replanned(plan: Plan, inputs: Inputs, *, every_s: float, **how: Any) -> SimulationReport:
    """The planner asked as `hetplan autoscale --every` asks it, by the plan's own formulation and options.

    Loads are `rate_qps.series` of the SLO file, its wishes are judged over the whole time, and `how` is
    `hetplan.simulator.autoscale.autoscale`'s (for variants), else `hetplan.simulator.simulate.simulate_system`'s.
    """
    if plan.question not in PLAYED:
        raise InputError.one(
            file="plan", path="$.question", value=plan.question,
            why=f"plans of {', '.join(PLAYED)} are simulated with replanning",
            remedy="Simulate it as it is; `hetplan autoscale` re-plans what runs.",
        )  # fmt: skip
    recipes, series = Recipes(plan, inputs, noise=how.get("noise", "table")), _series(inputs.slo)
    if plan.question == STATEFUL:
        begin = lead_and_limits(system_of(plan, inputs, recipes.noise), demands_of(plan, inputs))
        report = autoscale(
            plan, inputs, recipes.following, series=series, period_s=inputs.slo.horizon.period_s,
            replanning=Replanning(every_s=every_s, runs_for=planned_for(plan), **begin), **how,
        )  # fmt: skip
        return _with_warning(report, recipes)
    return _play_recipes(plan, inputs, recipes, every_s, how)


def replanned_fleet(
    plan: Plan, inputs: Inputs, *, every_s: float, beside: Callable[..., Any] | None = None, **how: Any
) -> dict[str, SimulationReport]:
    """Fleets planned anew as `hetplan autoscale --every` does it, with what they start and end; loads are the series'.

    They rent by the hour, on demand and spot, and survive what the plan does; what it paid for ahead is not used.
    `beside` plays the baselines, of machines on demand.
    """
    fleet = FleetPlayed(plan, inputs, how.get("noise", "table"))
    recipes, texts = fleet.recipes(fleet.by_the_hour), text_apps(plan)
    found = {"plan": _play_recipes(fleet.busiest, fleet.by_the_hour, recipes, every_s, how, whole=plan)}
    if beside is None:
        return found
    if texts:
        rest, others = without(plan, inputs, texts)
        alone = FleetPlayed(rest, others, fleet.noise) if others.slo.apps else None
        queries = (alone.busiest, alone.on_demand) if alone is not None else None
        return found | text_beside(fleet.busiest, fleet.on_demand, whole=plan, queries=queries, **how)
    return {**found, **beside(fleet.busiest, fleet.on_demand, **how)}


def _with_warning(report: SimulationReport, recipes: Recipes) -> SimulationReport:
    """The report, with a warning where no plan carried what was seen."""
    if not recipes.missing:
        return report
    text = f"{recipes.missing} of {recipes.asked} times no plan carried the rates that were wanted: the last one stayed"
    return replace(report, warnings=(*report.warnings, ("W-no-plan", "slo.apps", text)))


def _play_recipes(
    plan: Plan, inputs: Inputs, recipes: Recipes, every_s: float, how: Mapping[str, Any], *, whole: Plan | None = None
) -> SimulationReport:
    """Plans one after another, for the rates that are foreseen; where moves are limited, each from the one before.

    `plan` is any one plan of one period: it says which applications are served; `whole` has the periods, if there are
    any. What is under way when a plan changes goes on; every wish is judged over the whole time.
    """
    demands = demands_of(plan, inputs)
    rates = {one.app: one.series_qps[0] for one in demands if one.series_qps}
    first = recipes.system_for(rates)
    if first is None:
        first, rates = recipes.system_of(whole or plan), planned_for(whole or plan)
    decider = Replanning(every_s=every_s, runs_for=rates, **lead_and_limits(first, demands))
    control = follow(recipes, decider, [one.app for one in demands])
    how = {"noise": recipes.noise, **how}
    report = simulate_system(first, demands, control=control, percentiles=percentiles_of(inputs), **how)
    lines = wishes_of(plan, inputs, report)
    report = replace(report, plan=(whole or plan).digest, currency=inputs.slo.limits.currency, lines=lines)
    return _with_warning(report, recipes)


def _series(slo: Slo) -> dict[str, tuple[float, ...]]:
    """The rates of every application, period by period; one that states a single rate has it in all of them."""
    found: dict[str, tuple[float, ...]] = {}
    for name, app in slo.apps.items():
        stated = (app.stated_qps,) * slo.horizon.periods if app.stated_qps is not None else ()
        found[name] = app.series or stated
    if not any(app.series for app in slo.apps.values()) or not all(found.values()):
        raise InputError.one(
            file="slo", path="$.apps", why="loads over time: rate_qps.series (a rate per period) of some application",
            remedy='Write "horizon": {"period_s": 60, "periods": 3} and "rate_qps": {"series": [100, 300, 100]}.',
        )  # fmt: skip
    return found
