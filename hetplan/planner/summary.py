"""What a person checks of a plan, made once: money, bound, SLO, which model on which machine for which application.

`plan_summary` is made where the plan is, with the files that it is made from, and stored in it. `summarize` reads it,
or makes it anew where the files are at hand. Of a plan that has none, it leaves out what only files say (`missing`).
Whoever prints a summary adds words and never a figure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from hetplan.planner.summary_hours import check_parts, derived_of_periods, stated_of_periods
from hetplan.planner.summary_rows import machine_name, machine_rows, policy_rows, slo_rows_of
from hetplan.planner.tolerances import LARGEST_GAP, SLIP
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Claim, Notice, Plan
from hetplan.profiles.plan_summary import Bound, PlanSummary, Summary, per_month

__all__ = ["bounds_of", "plan_summary", "status_of", "summarize", "summary_faults"]

NOTHING = 1e-15
"""What rounding leaves of the difference of two that are equal. A gap may be little more, and is one."""
TEXTS = ("note", "warnings", "next")
"""What is free: words that explain, which another version of hetplan may say otherwise."""

_NOT_ITS_OWN = "W-interruptions"
"""What is said in the line about failures, and not among the warnings."""
_OF_A_NUMBER = ("W-unit", "W-order")
"""Warnings about a number of the files, whose texts do not say of which."""


def summarize(plan: Plan, inputs: Inputs | None = None, *, made_here: bool = False) -> Summary:
    """The whole summary of a plan: what the plan states, or with its files what they say; and what follows from it.

    Bounds of a plan that was not made here are shown as "not proved here", also where the plan calls them certified.
    """
    if plan.parts is not None:
        check_parts(plan)
    stated = plan.summary if inputs is None else None
    missing = () if inputs is not None or stated else ("money and utilization of each machine", "limits of the SLO")
    derived: dict[str, Any] = {
        "question": plan.question,
        "formulation": plan.method.formulation,
        "made_here": made_here,
        "is_fluid": plan.method.options.get("sizing") == "fluid",
        "policies": tuple(policy_rows(plan)),
        "served": _served_words(plan),
        "routing": {app: _routing_of(plan, app, inputs) for app in plan.dispatch or plan.routing},
        "interruptions": tuple(one.text for one in plan.warnings if one.code == _NOT_ITS_OWN),
        "marginal": tuple(_marginal(plan)),
        "changes": _changes(plan),
        "unserved": tuple(f"{one.rate_qps:.4g} queries/s of {one.app}: {one.why}" for one in plan.unserved),
        "missing": missing,
    }
    if plan.parts is not None:
        derived |= derived_of_periods(plan)
    return Summary(**vars(stated or plan_summary(plan, inputs)), **derived)


def plan_summary(plan: Plan, inputs: Inputs | None) -> PlanSummary:
    """What a plan states of itself at its beginning."""
    from hetplan.serving.bill import prices_of

    periods = plan.parts is not None
    shown = _one_period(plan) if periods else plan
    rates = _rates(plan, inputs)
    prices = prices_of(shown, inputs) if shown is not None and inputs is not None else {}
    cost, status = _per_hour(plan, inputs, prices), status_of(plan)
    stated: dict[str, Any] = {
        "status": status,
        "cost_per_month": None if cost is None else per_month(cost),
        "cost_per_hour": cost,
        "currency": _currency(plan, inputs),
        "budget_per_hour": _budget(inputs),
        "machine_count": sum(one.count + one.standby for one in shown.workers) if shown is not None else 0,
        "rates_qps": rates,
        "bounds": bounds_of(plan.claims),
        "slo": () if periods else tuple(slo_rows_of(plan, plan.promises, inputs)),
        "machines": tuple(machine_rows(shown, inputs, prices, rates)) if shown is not None else (),
        "limits": tuple(_limits(shown, inputs)),
        "warnings": tuple(_warnings(plan.warnings)),
        "next": f"hetplan {'simulate' if status == 'not simulated' else 'explain'} PLAN PROFILE SLO",
    }
    return PlanSummary(**stated | (stated_of_periods(plan, inputs) if periods else {}))


def summary_faults(plan: Plan, inputs: Inputs) -> Iterator[tuple[str, str]]:
    """Where what a plan states of itself is not what its other sections and the files say, and both values."""
    yield from _differences("summary", plan.summary, plan_summary(plan, inputs))


def _differences(at: str, stated: Any, own: Any) -> Iterator[tuple[str, str]]:
    if is_dataclass(own) and is_dataclass(stated):
        for one in fields(own):
            if one.name not in TEXTS:
                yield from _differences(f"{at}.{one.name}", getattr(stated, one.name), getattr(own, one.name))
    elif isinstance(own, Mapping) and own.keys() == stated.keys():
        for key in own:
            yield from _differences(f"{at}.{key}", stated[key], own[key])
    elif isinstance(own, tuple) and isinstance(stated, tuple) and len(own) == len(stated):
        for number, (one, other) in enumerate(zip(stated, own, strict=True)):
            yield from _differences(f"{at}[{number}]", one, other)
    elif isinstance(own, float | int) and isinstance(stated, float | int):
        if not math.isclose(stated, own, rel_tol=SLIP, abs_tol=NOTHING):
            yield at, f"says {stated:.9g}, recomputed it is {own:.9g}"
    elif stated != own:
        yield at, f"says {_in_short(stated)}, recomputed it is {_in_short(own)}"


def _in_short(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(value) or "nothing"
    return f"{len(value)} rows" if isinstance(value, tuple) else "nothing" if value in (None, "") else str(value)


def _one_period(plan: Plan) -> Plan | None:
    """The plan of the one set of machines that runs all the time; None where it changes."""
    from hetplan.profiles.plan_periods import of_period

    first = plan.periods[0]
    return of_period(plan, first) if all(one.parts == first.parts for one in plan.periods) else None


# Money


def status_of(plan: Plan) -> str:
    """The plan's status in one of three words.

    A bound that leaves out waiting makes no sized plan optimal: its gap is above the largest, or the plan says less.
    """
    if plan.status == "not-simulated":
        return "not simulated"
    main = next(iter(_main_claims(plan.claims)), None)
    near = main is not None and main.gap is not None and main.gap <= LARGEST_GAP and main.scope != "restriction"
    return "optimal" if plan.status in ("optimal", "within-gap") and near else "feasible"


def _currency(plan: Plan, inputs: Inputs | None) -> str | None:
    if plan.bill is not None:
        return str(plan.bill.currency)
    return inputs.slo.limits.currency if inputs is not None else None


def _per_hour(plan: Plan, inputs: Inputs | None, prices: Mapping[str, float]) -> float | None:
    """Money per hour; None where nothing has a price, or one machine has none."""
    from hetplan.serving.price import has_prices

    if plan.bill is not None:
        return float(plan.bill.cost_per_hour)
    priced = has_prices(inputs.profile) if inputs is not None else any(one.offer for one in plan.workers)
    if not priced:
        return None
    for promise in plan.promises:
        if promise.quantity == "cost_per_hour" and promise.app is None:
            return promise.value
    if inputs is None or not {worker.id for worker in plan.workers} <= prices.keys():
        return None
    counts = {worker.id: worker.count + worker.standby for worker in plan.workers}
    return sum(each * counts.get(worker, 1) for worker, each in prices.items())


def _budget(inputs: Inputs | None) -> float | None:
    from hetplan.profiles.fields import NANO

    limit = inputs.slo.limits.cost_per_hour if inputs is not None else None
    return None if limit is None else limit / NANO


def _rates(plan: Plan, inputs: Inputs | None) -> dict[str, tuple[float, float]]:
    """The rates that a plan is for: of its policies the lowest and the highest, else what it promises to serve."""
    found: dict[str, tuple[float, float]] = {}
    for promise in plan.promises:
        if promise.quantity in ("rate_qps", "planned_qps") and promise.app is not None and promise.situation is None:
            low, high = found.get(promise.app, (promise.value, promise.value))
            found[promise.app] = (min(low, promise.value), max(high, promise.value))
    for app, tables in plan.policies.items():
        of_all = _policy_rates(tables)
        found[app] = (min(of_all), max(of_all))
    for app, (_, most) in plan.valid.rate_qps.items():
        if most is not None:
            found.setdefault(app, (most, most))
    for app, wanted in inputs.slo.apps.items() if inputs is not None else ():
        if (rate := wanted.stated_qps) is not None:
            found.setdefault(app, (rate, rate))
    return found


def _policy_rates(tables: Iterable[Any]) -> list[float]:
    return [float(one["rate_qps"] if isinstance(one, Mapping) else one.rate_qps) for one in tables]


def _served_words(plan: Plan) -> str:
    """Of single queries: how many of them are served."""
    served = next((one.value for one in plan.promises if one.quantity == "served"), None)
    asked = len(plan.dispatch.keys() | {one.app for one in plan.unserved})
    return "" if served is None else f"{served:g} of {asked} queries"


# How good it is


def _main_claims(claims: Sequence[Claim]) -> list[Claim]:
    """Claims about what is sought: a rate that nothing waits at is only a bound of it."""
    return [one for one in claims if one.about != "fluid_rate_qps"] or list(claims)


def bounds_of(claims: Sequence[Claim]) -> tuple[Bound, ...]:
    """What is claimed of the objective, and how far a better plan may be away."""
    return tuple(
        Bound(one.about, one.sense, one.value, one.scope, one.vouched, one.bound, one.gap)
        for one in _main_claims(claims)
    )


# Routing, limits, warnings


def _routing_of(plan: Plan, app: str, inputs: Inputs | None) -> str:
    """How queries of an application are sent, in one line."""
    rule = plan.dispatch.get(app)
    said = [str(getattr(rule, "rule", "shares/1"))]
    if (inside := getattr(rule, "balancing", None)) is not None:
        said[0] += f", {inside.replace('_', ' ')}"
    machines: dict[str, str] = {}
    for worker in plan.workers:
        name = " ".join(filter(None, machine_name(worker, inputs)[:2]))
        machines |= {load.id: name for load in worker.loads}
    ways: dict[tuple[str, ...], list[str]] = {}
    for route in plan.routing.get(app, ()):
        if route.when:
            to = tuple(dict.fromkeys(machines.get(load, load) for load, share in route.to.items() if share > 0.0))
            size = " ".join(f"{axis} {value:g}" for axis, value in route.when.items())
            ways.setdefault(to, []).append(size if len(route.when) > 1 else f"{next(iter(route.when.values())):g}")
    axis = next((next(iter(route.when)) for route in plan.routing.get(app, ()) if len(route.when) == 1), "")
    for place, (to, sizes) in enumerate(ways.items()):
        head = f"{axis} " if place == 0 and axis else ""
        said.append(f"{head}{_join_words(sizes)} to {_join_words(to)}")
    budgets: Mapping[str, float] = getattr(rule, "budget_ms", None) or {}
    if budgets:
        said.append("latency budgets " + ", ".join(f"{stage} {ms:.3g} ms" for stage, ms in budgets.items()))
    late = getattr(rule, "late", None)
    if late is not None:
        words = {"reroute": "rerouted", "serve": "served", "drop": "dropped"}
        said.append(f"late queries are {words.get(late, f'handled by {late}')}")
    return "; ".join(said)


def _join_words(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else words[0] if words else "nothing"


def _limits(plan: Plan | None, inputs: Inputs | None) -> Iterator[tuple[str, int, int]]:
    if plan is None or inputs is None:
        return
    for machine, (_, most) in inputs.slo.limits.instances.items():
        if most is not None:
            yield machine, sum(one.count + one.standby for one in plan.workers if one.hardware == machine), most


_MACHINES = ("machines", "instances", "servers")
"""Units of what people can have one more of."""


def _marginal(plan: Plan) -> Iterator[tuple[str, float, str]]:
    """What one more machine of a type brings, the most first: dual prices of the programs behind the claims."""
    about = next((claim.about for claim in _main_claims(plan.claims)), "")
    unit = {"rate_qps": "queries/s", "quality": "quality"}.get(about)
    if unit is None:
        return
    begun = min((claim.solve for claim in plan.claims if claim.solve is not None), default=1)
    first = next((solve for solve in plan.solves if solve.id >= begun and solve.binding), None)
    asked = [one for one in first.binding if one.unit in _MACHINES and one.price > 0.0] if first else []
    for one in sorted(asked, key=lambda one: (-one.price, one.label)):
        # Of a pipeline the block names the machine type, and the label says "all".
        yield one.label if one.label not in ("", "all") else one.block.rpartition(" ")[2], one.price, unit


def _changes(plan: Plan) -> dict[str, int]:
    counts: dict[str, int] = {}
    for action in plan.actions:
        counts[action.do] = counts.get(action.do, 0) + 1
    return counts if counts.keys() - {"start", "load"} else {}


def _warnings(notices: Iterable[Notice]) -> Iterator[tuple[str, int, str]]:
    """Each code once, in the plan's order; what hangs on the SLO's limits first."""
    found: dict[str, list[str]] = {}
    for notice in notices:
        if notice.code != _NOT_ITS_OWN:
            of = f"{notice.at}: " if notice.code in _OF_A_NUMBER else ""
            found.setdefault(notice.code, []).append(of + notice.text)
    for code, texts in found.items():
        yield code, len(texts), texts[0]
