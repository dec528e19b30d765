"""What a person checks of a plan, made once: money, bound, SLO, which model on which machine for which application.

`summarize` reads the plan, and the files that it was made from where they are at hand. From the plan alone it leaves
out what only files say (`missing`): money and utilization of each machine, the currency, limits that were not
simulated. Nothing is made up for them. Whoever prints a summary adds words and never a figure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from hetplan.planner.tolerances import LARGEST_GAP, SLIP
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Claim, Notice, Plan, Promise
from hetplan.profiles.workers import Load, Worker

if TYPE_CHECKING:
    from hetplan.planner.summary_hours import HoursRow
    from hetplan.profiles.slo import App

__all__ = [
    "HOURS_A_MONTH",
    "Bound",
    "MachineRow",
    "PolicyRow",
    "Reserved",
    "SloRow",
    "Summary",
    "Worst",
    "machine_name",
    "slo_rows_of",
    "summarize",
    "verdict_of",
]

HOURS_A_MONTH = 730.0
_NOT_ITS_OWN = "W-interruptions"
"""What is said in the line about failures, and not among the warnings."""


@dataclass(frozen=True)
class Worst:
    """The worst of the situations that a plan was simulated in: its interval, the failure ("": none), the hours."""

    interval: tuple[float, float]
    failure: str = ""
    hours: str = ""


@dataclass(frozen=True)
class SloRow:
    """One limit of the SLO of one application, beside what was simulated of it.

    `basis` is "simulation", "measurement", "formula" (nothing was run) or "" (the plan says nothing about it). `word`
    is "met", "violated" or "undecided" where something was run, else "by formula" or "not simulated". Shares are of 1.
    """

    app: str
    metric: str
    unit: str = ""
    relation: str = ""
    limit: float | None = None
    interval: tuple[float, float] | None = None
    value: float | None = None
    basis: str = ""
    word: str = "not simulated"
    seeds: int | None = None
    note: str = ""
    worst: tuple[Worst, ...] = ()


@dataclass(frozen=True)
class MachineRow:
    """Identical machines, and what each of them runs for one application."""

    machine: str
    purchase: str
    count: int
    model: str
    app: str
    stage: str = ""
    host: str = ""
    zone: str = ""
    standby: int = 0
    on_same_machines: bool = False
    """Whether these are the machines of the row before, which run this too."""
    replicas: int = 1
    batch: int = 1
    chunk: int | None = None
    gpu: float | None = None
    share: float | None = None
    utilization: float | None = None
    per_month: float | None = None


@dataclass(frozen=True)
class PolicyRow:
    """One policy: the rate that it is for, what the queue model says of it, and what it gave in simulation."""

    app: str
    rate_qps: float
    goodput: float | None
    bound: float | None
    violation_rate: float | None
    utilization: float | None


@dataclass(frozen=True)
class Bound:
    """What no plan can better, in one respect; `vouched` is "certified", "claimed", "none" or "not proved here"."""

    objective: str
    sense: str
    value: float
    bound: float | None
    gap: float | None
    scope: str
    vouched: str


@dataclass(frozen=True)
class Reserved:
    """Machines that are paid for ahead."""

    count: int
    machine: str
    days: float


@dataclass(frozen=True)
class Summary:
    """What a person checks of a plan; money per month is for 730 hours."""

    question: str
    formulation: str
    status: str
    """"optimal", "feasible" or "not simulated"; of an outcome also "not verified" and "a stated target is missed"."""
    made_here: bool
    is_fluid: bool
    currency: str | None
    per_hour: float | None
    budget_per_hour: float | None
    machine_count: int
    rates_qps: Mapping[str, tuple[float, float]]
    """Application -> the lowest and the highest rate that the plan is for."""
    bounds: tuple[Bound, ...]
    slo: tuple[SloRow, ...]
    machines: tuple[MachineRow, ...]
    policies: tuple[PolicyRow, ...] = ()
    served: str = ""
    hours: tuple[HoursRow, ...] = ()
    length_h: float | None = None
    models: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    reserved: tuple[Reserved, ...] = ()
    cost_of_apps: Mapping[str, float] = field(default_factory=dict)
    cost_of_idle: float = 0.0
    cost_of_starts: float = 0.0
    savings: tuple[tuple[str, float], ...] = ()
    routing: Mapping[str, str] = field(default_factory=dict)
    failures: tuple[str, ...] = ()
    survivors: float | None = None
    """The least share of a rate that is planned for after a failure."""
    interruptions: tuple[str, ...] = ()
    limits: tuple[tuple[str, int, int], ...] = ()
    """Machine type, how many run, how many may."""
    marginal: tuple[tuple[str, float, str], ...] = ()
    """One more of what, what that brings, of what."""
    changes: Mapping[str, int] = field(default_factory=dict)
    """What leads from what runs to the plan, where something runs: how many actions of each kind."""
    unserved: tuple[str, ...] = ()
    warnings: tuple[tuple[str, int, str], ...] = ()
    """Code, how often, the first sentence with it."""
    missing: tuple[str, ...] = ()

    @property
    def per_month(self) -> float | None:
        """Money per month."""
        return None if self.per_hour is None else _per_month(self.per_hour)

    @property
    def simulated(self) -> tuple[SloRow, ...]:
        """The limits that something was run for."""
        return tuple(row for row in self.slo if row.basis in ("simulation", "measurement") and row.limit is not None)


def _per_month(per_hour: float) -> float:
    """Of an hour's money; a sum of prices is a hair off its decimal figure, which must not decide how it is rounded."""
    return round(per_hour * HOURS_A_MONTH, 6)


def summarize(plan: Plan, inputs: Inputs | None = None, *, made_here: bool = False) -> Summary:
    """The summary of a plan; with the files that it was made from it is whole.

    Bounds of a plan that was not made here are "not proved here", also where the plan calls them certified.
    """
    from hetplan.planner.summary_hours import check_parts, hours_of, slo_rows_of_periods

    periods = plan.parts is not None
    if periods:
        check_parts(plan)
    shown = _one_period(plan) if periods else plan
    rates = _rates(plan, inputs)
    prices = _prices(shown, inputs)
    rows = slo_rows_of_periods(plan, inputs) if periods else slo_rows_of(plan, plan.promises, inputs)
    found = Summary(
        question=plan.question,
        formulation=plan.method.formulation,
        status=_status(plan),
        made_here=made_here,
        is_fluid=plan.method.options.get("size") == "planned",
        currency=_currency(plan, inputs),
        per_hour=_per_hour(plan, inputs, prices),
        budget_per_hour=_budget(inputs),
        machine_count=sum(worker.count + worker.standby for worker in shown.workers) if shown is not None else 0,
        rates_qps=rates,
        bounds=tuple(_bound(claim, made_here) for claim in _main_claims(plan.claims)),
        slo=tuple(rows),
        machines=tuple(_machine_rows(shown, inputs, prices, rates)) if shown is not None else (),
        policies=tuple(_policy_rows(plan)),
        served=_served_words(plan),
        routing={app: _routing_of(plan, app, inputs) for app in plan.dispatch or plan.routing},
        interruptions=tuple(one.text for one in plan.warnings if one.code == _NOT_ITS_OWN),
        limits=tuple(_limits(shown, inputs)),
        marginal=tuple(_marginal(plan)),
        changes=_changes(plan),
        unserved=tuple(f"{one.rate_qps:.4g} queries/s of {one.app}: {one.why}" for one in plan.unserved),
        warnings=tuple(_warnings(plan.warnings)),
        missing=() if inputs is not None else ("money and utilization of each machine", "limits of the SLO"),
    )
    return hours_of(found, plan, inputs) if periods else found


def _one_period(plan: Plan) -> Plan | None:
    """The plan of the one set of machines that runs all the time; None where it changes."""
    from hetplan.profiles.plan_periods import of_period

    first = plan.periods[0]
    return of_period(plan, first) if all(one.parts == first.parts for one in plan.periods) else None


# Money


def _status(plan: Plan) -> str:
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


def _prices(plan: Plan | None, inputs: Inputs | None) -> dict[str, float]:
    """Worker id -> money per hour of one machine, where it is known; calls of an application under "calls of APP"."""
    from hetplan.serving.bill import bill_of

    if plan is None or inputs is None:
        return {}
    return {line.worker: line.each for line in bill_of(plan, inputs) if line.each is not None}


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
        if isinstance(rate := wanted.demand.rate_qps, int | float):
            found.setdefault(app, (float(rate), float(rate)))
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


def _bound(claim: Claim, made_here: bool) -> Bound:
    vouched = claim.vouched if made_here or claim.vouched == "none" else "not proved here"
    return Bound(claim.about, claim.sense, claim.value, claim.bound, claim.gap, claim.scope, vouched)


# SLO

_METRICS = {"response": ("response_ms", "p"), "ttft": ("ttft_ms", "TTFT p"), "tpot": ("tpot_ms", "TPOT p")}
_QUANTITIES = dict(_METRICS.values())
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
    word = "by formula" if plan.method.options.get("size") == "estimated" else "not simulated"
    by_late = _policy_violation_rates(plan, app, promises)
    targets: list[tuple[str, str, float, float | None]]
    if wanted is not None:
        targets = [(*_METRICS[one.of], float(one.percentile), one.max_ms) for one in wanted.latency]
    else:
        listed = [one for one in promises if one.quantity in _QUANTITIES and one.percentile is not None]
        # What was measured states what was found, and not the limit.
        targets = [
            (one.quantity, _QUANTITIES[one.quantity], float(one.percentile or 0.0),
             None if one.model == "measured" else one.value)
            for one in listed
        ]  # fmt: skip
    for quantity, prefix, percentile, limit in targets:
        row = SloRow(app, f"{prefix}{percentile:g}", "ms", "" if limit is None else "<=", limit, word=word)
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
    models = [inputs.profile.variants.get(load.variant or "") for load in loads]
    found = [one.quality.value for one in models if one is not None and one.quality is not None]
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
        row = SloRow(app, name, "" if quantity == "quality" else "share", relation, limit)
        found = _best_promise([one for one in promises if one.quantity == quantity])
        if found is None and quantity == "quality" and quality is not None:
            row = replace(row, value=quality, basis="formula", word="by formula", note="or more, of each model")
        yield row if found is None else _row_with_result(row, found)


def _stated_limits(wanted: App) -> dict[str, tuple[str, float | None]]:
    found: dict[str, tuple[str, float | None]] = {}
    if wanted.violations is not None:
        found["violations"] = ("<=", wanted.violations.max)
    if wanted.goodput is not None:
        found["goodput"] = (">=", wanted.goodput)
    if wanted.quality is not None:
        least = wanted.quality.min is not None
        found["quality"] = (">=", wanted.quality.min) if least else ("<=", wanted.quality.max)
    return found


def _sought_rows(app: str, promises: Sequence[Promise], wanted: App | None, plan: Plan) -> Iterator[SloRow]:
    """What is to be as much as it can be."""
    sought = {claim.about.partition("[")[0] for claim in plan.claims if claim.sense == "max"}
    if "rate_qps" in sought and (wanted is None or wanted.demand.rate_qps == "max"):
        found = _best_promise([one for one in promises if one.quantity == "rate_qps"])
        if found is not None:
            yield replace(_row_with_result(SloRow(app, "rate", "queries/s", "maximal"), found), word="")
    if "goodput" in sought and plan.policies.get(app):
        found = _best_promise([one for one in promises if one.quantity == "goodput"])
        if found is not None:
            at = re.match(r"at (\S+) qps", found.basis or "")
            note = f"at {at[1]} queries/s" if at else ""
            yield replace(_row_with_result(SloRow(app, "goodput", "", "maximal", note=note), found), word="")
    stated = wanted is not None and wanted.quality is not None
    if "quality" in sought and wanted is not None and not stated:
        found = _best_promise([one for one in promises if one.quantity == "quality"])
        if found is not None:
            yield replace(_row_with_result(SloRow(app, "quality", "", "maximal"), found), word="")


def _row_with_result(row: SloRow, promise: Promise) -> SloRow:
    """The row with what was found."""
    basis = _basis(promise)
    if basis == "formula" or promise.interval is None:
        return replace(row, value=promise.value, basis="formula", word="by formula")
    word = verdict_of(row.relation, row.limit, promise.interval)
    return replace(row, interval=promise.interval, basis=basis, word=word, seeds=promise.seeds)


def verdict_of(relation: str, limit: float | None, interval: tuple[float, float]) -> str:
    """Whether an interval is within a limit: "met", "violated" or, where it holds the limit, "undecided".

    >>> verdict_of("<=", 60.0, (57.0, 58.0)), verdict_of("<=", 60.0, (57.0, 61.0)), verdict_of(">=", 0.9, (0.7, 0.8))
    ('met', 'undecided', 'violated')
    """
    if limit is None:
        return ""
    low, high = interval if relation == "<=" else (-interval[1], -interval[0])
    most = limit if relation == "<=" else -limit
    slack = SLIP * max(abs(limit), 1.0)
    return "met" if high <= most + slack else "violated" if low > most + slack else "undecided"


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
    return replace(row, note=note, basis="simulation", word=word)


# Machines


def machine_name(worker: Worker, inputs: Inputs | None) -> tuple[str, str, str]:
    """Machine type, how it is bought ("": on demand), and its zone; without the profile the offer says both."""
    from hetplan.serving.loads import offer_of

    if inputs is None:
        return worker.hardware, (worker.offer or "").removeprefix(worker.hardware).strip("-_"), ""
    offer = inputs.profile.offers.get(offer_of(inputs.profile, worker) or "")
    if offer is None:
        return worker.hardware, "", ""
    return worker.hardware, "spot" if offer.interruptions_per_hour is not None else "", offer.zone or ""


def _machine_rows(
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
            first = replace(first, per_month=_per_month(prices[worker.id] * (worker.count + worker.standby)))
        rows = [first, *(replace(row, on_same_machines=True) for row in others)]
        key = tuple(replace(row, count=0, standby=0, share=None, per_month=None) for row in rows)
        before = found.get(key)
        found[key] = rows if before is None else list(map(_sum_of_rows, before, rows))
    for rows in found.values():
        yield from rows
    for name, each in prices.items():
        app = name.removeprefix("calls of ")
        if app != name:
            yield MachineRow("calls", "", 1, "", app, per_month=_per_month(each))


def _sum_of_rows(one: MachineRow, other: MachineRow) -> MachineRow:
    def of_both(a: float | None, b: float | None) -> float | None:
        return None if a is None and b is None else (a or 0.0) + (b or 0.0)

    return replace(
        one, count=one.count + other.count, standby=one.standby + other.standby, share=of_both(one.share, other.share),
        per_month=of_both(one.per_month, other.per_month),
    )  # fmt: skip


def _rows_of_worker(
    plan: Plan, worker: Worker, inputs: Inputs | None, busy: Mapping[str, float], shares: Mapping[str, float]
) -> Iterator[MachineRow]:
    machine, purchase, zone = machine_name(worker, inputs)
    base = MachineRow(
        machine, purchase, worker.count, "", "", host=worker.host or "", zone=zone, standby=worker.standby
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


def _policy_rows(plan: Plan) -> Iterator[PolicyRow]:
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
            found.setdefault(notice.code, []).append(notice.text)
    for code, texts in found.items():
        yield code, len(texts), texts[0]
