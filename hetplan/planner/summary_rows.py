"""Rows of a summary of one set of machines: each limit of the SLO beside what was simulated, and what runs where."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hetplan.planner.choices import Choices
from hetplan.planner.promise_figures import Estimate, Verdict, judge
from hetplan.planner.tolerances import SLIP
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Plan, Promise
from hetplan.profiles.plan_summary import MachineRow, PolicyRow, SloRow, per_month
from hetplan.profiles.workers import Load, Worker

if TYPE_CHECKING:
    from hetplan.profiles.slo import App

__all__ = ["machine_name", "machine_rows", "policy_rows", "slo_rows_of", "spot_offers", "verdict_of"]

# SLO

_METRICS = {"response": ("response_ms", "p"), "ttft": ("ttft_ms", "TTFT p"), "tpot": ("tpot_ms", "TPOT p")}
_QUANTITIES = dict(_METRICS.values())
_WORDS = {Verdict.MET: "met", Verdict.BROKEN: "violated", Verdict.UNDECIDED: "undecided"}
_SHARES = {"violations": "violation rate", "goodput": "attainment", "quality": "quality"}


def slo_rows_of(plan: Plan, promises: Sequence[Promise], inputs: Inputs | None) -> Iterator[SloRow]:
    """The rows of each application: from the SLO where it is given, else from what is promised."""
    names = dict.fromkeys(one.app for one in promises if one.app is not None)
    apps: Mapping[str, App] = inputs.slo.apps if inputs is not None else {}
    for app in apps or names:
        mine = [one for one in promises if one.app == app]
        yield from _rows_of_app(app, mine, apps.get(app), plan, inputs)


def _rows_of_app(
    app: str, promises: Sequence[Promise], wanted: App | None, plan: Plan, inputs: Inputs | None
) -> Iterator[SloRow]:
    word = "by formula" if plan.method.options.get("sizing") == "formula" else "not simulated"
    by_late = _policy_violation_rates(plan, app, promises)
    targets: list[tuple[str, str, float, float | None]]
    if wanted is not None:
        targets = [(*_METRICS[one.of], float(one.percentile), one.max_ms) for one in wanted.targets]
    else:
        listed = [one for one in promises if one.quantity in _QUANTITIES and one.percentile is not None]
        # What was measured states what was found, and not the limit.
        targets = [
            (one.quantity, _QUANTITIES[one.quantity], float(one.percentile or 0.0),
             None if one.model == "measured" else one.value)
            for one in listed
        ]  # fmt: skip
    for quantity, prefix, percentile, limit in targets:
        row = SloRow(app, f"{prefix}{percentile:g}", "ms", "" if limit is None else "<=", limit, verdict=word)
        found = _best_promise(
            [one for one in promises if one.quantity == quantity and _same_percentile(one.percentile, percentile)]
        )
        if found is not None:
            yield _row_with_result(row, found)
        elif quantity == "response_ms" and by_late:
            yield _row_by_violations(row, by_late, 1.0 - percentile / 100.0, len(plan.policies[app]))
        else:
            alone = next((one for one in promises if one.quantity == "service_ms"), None)
            yield row if alone is None else replace(row, note=f"service time {alone.value:.3g} ms")
    yield from _share_rows(app, promises, wanted, _least_quality(plan, app, inputs))
    yield from _sought_rows(app, promises, wanted, plan)


def _same_percentile(percentile: float | None, other: float) -> bool:
    return percentile is not None and abs(percentile - other) < SLIP


def _best_promise(promises: Sequence[Promise]) -> Promise | None:
    """What was simulated, else measured, else worked out."""
    order = {"simulation": 0, "measurement": 1}
    return min(promises, key=lambda one: order.get(_basis(one), 2), default=None)


def _basis(promise: Promise) -> str:
    if promise.model.startswith("simulation"):
        return "simulation"
    return "measurement" if promise.model == "measured" else "formula"


def _least_quality(plan: Plan, app: str, inputs: Inputs | None) -> float | None:
    """The least quality of the models that answer an application of one stage; None where the profile says none."""
    if inputs is None:
        return None
    loads = [load for worker in plan.workers for load in worker.loads if app in _apps_of(plan, load)]
    known = Choices(inputs.profile)
    found = [one for load in loads if (one := known.quality(load.variant or "")) is not None]
    whole = len(found) == len(loads) and not any(load.node for load in loads)
    return min(found, default=None) if whole else None


def _share_rows(app: str, promises: Sequence[Promise], wanted: App | None, quality: float | None) -> Iterator[SloRow]:
    """Violation rate, attainment and quality, where there are limits of them."""
    limits: dict[str, tuple[str, float | None]] = {}
    for promise in promises:
        if promise.quantity in _SHARES and promise.relation != "=" and _basis(promise) == "simulation":
            limits[promise.quantity] = (promise.relation, promise.value)
        elif promise.quantity == "quality" and wanted is None:
            limits["quality"] = ("", None)
    if wanted is not None:
        limits |= _stated_limits(wanted)
    for quantity, name in _SHARES.items():
        if quantity not in limits:
            continue
        relation, limit = limits[quantity]
        unit = "" if quantity == "quality" else "share"
        row = SloRow(app, name, unit, relation, limit, verdict="not simulated")
        found = _best_promise([one for one in promises if one.quantity == quantity])
        if found is None and quantity == "quality" and quality is not None:
            row = replace(row, value=quality, basis="formula", verdict="by formula", note="or more, of each model")
        yield row if found is None else _row_with_result(row, found)


def _stated_limits(wanted: App) -> dict[str, tuple[str, float | None]]:
    found: dict[str, tuple[str, float | None]] = {}
    if wanted.attainment is not None:
        found["goodput"] = (">=", wanted.attainment)
    if wanted.quality is not None:
        least = wanted.quality.min is not None
        found["quality"] = (">=", wanted.quality.min) if least else ("<=", wanted.quality.max)
    return found


def _sought_rows(app: str, promises: Sequence[Promise], wanted: App | None, plan: Plan) -> Iterator[SloRow]:
    """What is to be as much as it can be."""
    sought = {claim.about.partition("[")[0] for claim in plan.claims if claim.sense == "max"}
    if "rate_qps" in sought and (wanted is None or wanted.wants_most):
        found = _best_promise([one for one in promises if one.quantity == "rate_qps"])
        if found is not None:
            yield replace(_row_with_result(SloRow(app, "rate", "queries/s", "maximal"), found), verdict="")
    if "goodput" in sought and plan.policies.get(app):
        found = _best_promise([one for one in promises if one.quantity == "goodput"])
        if found is not None:
            at = re.match(r"at (\S+) qps", found.basis or "")
            note = f"at {at[1]} queries/s" if at else ""
            yield replace(_row_with_result(SloRow(app, "goodput", "", "maximal", note=note), found), verdict="")
    stated = wanted is not None and wanted.quality is not None
    if "quality" in sought and wanted is not None and not stated:
        found = _best_promise([one for one in promises if one.quantity == "quality"])
        if found is not None:
            yield replace(_row_with_result(SloRow(app, "quality", "", "maximal"), found), verdict="")


def _row_with_result(row: SloRow, promise: Promise) -> SloRow:
    """The row with what was found."""
    basis = _basis(promise)
    if basis == "formula" or promise.interval is None:
        return replace(row, value=promise.value, basis="formula", verdict="by formula")
    word = verdict_of(row.relation, row.limit, promise.interval)
    return replace(row, interval=promise.interval, basis=basis, verdict=word, seeds=promise.seeds,
        confidence=promise.confidence)  # fmt: skip


def verdict_of(relation: str, limit: float | None, interval: tuple[float, float]) -> str:
    """Whether an interval is within a limit: "met", "violated" or, where it holds the limit, "undecided".

    >>> verdict_of("<=", 60.0, (57.0, 58.0)), verdict_of("<=", 60.0, (57.0, 61.0)), verdict_of(">=", 0.9, (0.7, 0.8))
    ('met', 'undecided', 'violated')
    """
    if limit is None:
        return ""
    low, high = interval
    return _WORDS[judge(Estimate(low, low, high), relation, limit)]


def _policy_violation_rates(plan: Plan, app: str, promises: Sequence[Promise]) -> list[float]:
    """The simulated violation rates of an application's policies, of which no percentile is promised."""
    found = []
    for table in plan.policies.get(app, ()):
        run = table.get("simulated") if isinstance(table, Mapping) else table.simulated
        if run is None or "violation" not in run:
            return []
        found.append(float(run["violation"]))
    ends = [one.interval[1] for one in promises if one.quantity == "violations" and one.interval is not None]
    return [*found, *ends] if found else []


def _row_by_violations(row: SloRow, late: Sequence[float], allowed: float, policies: int) -> SloRow:
    """A percentile by the share of queries that are later than its limit, under each policy."""
    interval = (min(late), max(late))
    word = verdict_of("<=", allowed, interval)
    note = f"violation rate at most {100 * max(late):.2f}%" + (f", at {policies} rates" if policies > 1 else "")
    return replace(row, note=note, basis="simulation", verdict=word)


# Machines


def machine_name(worker: Worker, inputs: Inputs | None) -> tuple[str, str, str]:
    """Machine type, how it is bought ("": on demand), and its zone; without the profile only the type is known."""
    from hetplan.serving.loads import offer_of

    if inputs is None:
        return worker.hardware, "", ""
    offer = inputs.profile.offers.get(offer_of(inputs.profile, worker) or "")
    if offer is None:
        return worker.hardware, "", ""
    return worker.hardware, "spot" if offer.interruptions_per_hour is not None else "", offer.zone or ""


def spot_offers(inputs: Inputs) -> frozenset[str]:
    """The offers whose machines may be taken back."""
    return frozenset(name for name, one in inputs.profile.offers.items() if one.interruptions_per_hour is not None)


def machine_rows(
    plan: Plan, inputs: Inputs | None, prices: Mapping[str, float], rates: Mapping[str, tuple[float, float]]
) -> Iterator[MachineRow]:
    """A row per machine type, model, stage and application; groups of machines that run the same are one.

    Of machines that run several things the first row has the money, and the others are `on_same_machines`.
    """
    found: dict[tuple[Any, ...], list[MachineRow]] = {}
    busy = _utilization(plan, inputs, rates)
    shares = _shares(plan)
    for worker in plan.workers:
        first, *others = _rows_of_worker(plan, worker, inputs, busy, shares)
        if worker.id in prices:
            first = replace(first, cost_per_month=per_month(prices[worker.id] * (worker.count + worker.standby)))
        rows = [first, *(replace(row, on_same_machines=True) for row in others)]
        key = tuple(replace(row, count=0, standby=0, share=None, cost_per_month=None) for row in rows)
        before = found.get(key)
        found[key] = rows if before is None else list(map(_sum_of_rows, before, rows))
    for rows in found.values():
        yield from rows
    for name, each in prices.items():
        app = name.removeprefix("calls of ")
        if app != name:
            yield MachineRow("calls", 1, app=app, cost_per_month=per_month(each))


def _sum_of_rows(one: MachineRow, other: MachineRow) -> MachineRow:
    def of_both(a: float | None, b: float | None) -> float | None:
        return None if a is None and b is None else (a or 0.0) + (b or 0.0)

    return replace(
        one, count=one.count + other.count, standby=one.standby + other.standby, share=of_both(one.share, other.share),
        cost_per_month=of_both(one.cost_per_month, other.cost_per_month),
    )  # fmt: skip


def _rows_of_worker(
    plan: Plan, worker: Worker, inputs: Inputs | None, busy: Mapping[str, float], shares: Mapping[str, float]
) -> Iterator[MachineRow]:
    machine, purchase, zone = machine_name(worker, inputs)
    base = MachineRow(
        machine, worker.count, purchase=purchase, host=worker.host or "", zone=zone, standby=worker.standby
    )
    groups: dict[tuple[Any, ...], list[Load]] = {}
    for load in worker.loads:
        apps = _apps_of(plan, load)
        # Operators of one query, and models that one policy chooses from, are one row.
        together = load.variant is None or any(app in plan.policies for app in apps)
        groups.setdefault((apps, None if together else load.id), []).append(load)
    for (apps, _), loads in groups.items():
        first = loads[0]
        gpu = sum(one.share.gpu for one in loads if one.share is not None and one.share.gpu is not None)
        known = [busy[one.id] for one in loads if one.id in busy]
        models = [word for one in loads for word in ([_model(one)] if one.variant else _knobs(one))]
        yield replace(
            base,
            model=", ".join(dict.fromkeys(models)),
            stage=", ".join(dict.fromkeys(one.node for one in loads if one.node is not None)),
            app=", ".join(apps),
            replicas=first.instances,
            batch=max(one.serve.max_batch for one in loads),
            chunk=first.serve.most_tokens,
            gpu=gpu or None,
            share=shares.get(first.id) if len(loads) == 1 else None,
            utilization=max(known) if len(known) == len(loads) else None,
        )
    if not groups:
        yield base


def _apps_of(plan: Plan, load: Load) -> tuple[str, ...]:
    if load.app is not None:
        return (load.app,)
    return tuple(app for app, routes in plan.routing.items() if any(load.id in route.to for route in routes))


def _model(load: Load) -> str:
    knobs = ", ".join(_knobs(load))
    return f"{load.variant} ({knobs})" if knobs else load.variant or ""


def _knobs(load: Load) -> list[str]:
    return [f"{name} {value}" for name, value in load.knobs.items()]


def _utilization(plan: Plan, inputs: Inputs | None, rates: Mapping[str, tuple[float, float]]) -> Mapping[str, float]:
    """Of each load, at the highest rate that the plan is for; of machines under a policy as its queue model says."""
    if inputs is None:
        return {}
    found: dict[str, float] = {}
    if plan.policies:
        return found  # these have rows of their own
    if plan.workers:
        from hetplan.serving.utilization import fluid_utilization

        found = fluid_utilization(plan, inputs, {app: high for app, (_, high) in rates.items()})
    return found


def _shares(plan: Plan) -> dict[str, float]:
    """Load id -> its share of a stage's queries, where one route says that of all of them."""
    found: dict[str, float] = {}
    for routes in plan.routing.values():
        stages = [route.node for route in routes]
        for route in routes:
            if stages.count(route.node) == 1 and not route.when and not route.prefix and not route.after:
                found |= {load: share for load, share in route.to.items() if load not in found}
    return found


def policy_rows(plan: Plan) -> Iterator[PolicyRow]:
    """A row per policy."""
    from hetplan.profiles.plan_policy import PolicyTable

    bounds = {claim.about: claim.bound for claim in plan.claims if claim.about.startswith("goodput[")}
    for app, tables in plan.policies.items():
        for one in tables:
            table = one if isinstance(one, PolicyTable) else PolicyTable.model_validate(one)
            said, run = table.expected, table.simulated or {}
            mine = [bound for about, bound in bounds.items() if about.endswith(f"@{table.rate_qps:g}qps]")]
            yield PolicyRow(
                app, table.rate_qps, None if said is None else said.goodput, mine[0] if len(mine) == 1 else None,
                run.get("violation", None if said is None else said.violation_by_query),
                None if said is None else said.utilisation,
            )  # fmt: skip
