"""The summary that a plan begins with, recomputed from its machines, prices, promises and claims.

Nothing here is read by the code that made it. Of each row of it what it says is held against what follows from the
other sections and the files: counts, money, limits, intervals, verdicts, hours. Texts are free, and so are utilization,
shares of queries and warnings, which only inform.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hetplan.planner.tolerances import SLIP, VALUE
from hetplan.profiles.fields import NANO
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Plan, Promise
from hetplan.profiles.plan_summary import PlanSummary, SloRow
from hetplan.profiles.workers import Load, Worker
from hetplan.verifier.facts import Facts, machines, quality_of
from hetplan.verifier.promises import WITHIN_GAP
from hetplan.verifier.report import Violation
from hetplan.verifier.resources import cost_nanos, machine_nanos

__all__ = [
    "MONTH_HOURS",
    "Amounts",
    "Key",
    "Results",
    "check_summary",
    "differences",
    "header_faults",
    "limit_faults",
    "machine_faults",
    "machine_rows",
    "slo_faults",
]

MONTH_HOURS = 730.0
CENTS = 1e-5
"""Sums of money a month are rounded to a millionth."""
_OF = {"p": "response", "TTFT p": "ttft", "TPOT p": "tpot"}
_SHARES = {"violation rate": "violations", "attainment": "goodput", "quality": "quality"}
_SOUGHT = {"rate": "rate_qps", "goodput": "goodput", "quality": "quality"}
Key = tuple[Any, ...]


def check_summary(facts: Facts) -> list[Violation]:
    """What a plan of one set of machines says of itself at its beginning, and what it is."""
    plan, stated = facts.plan, facts.plan.summary
    assert stated is not None
    found = list(header_faults(plan, facts.inputs, stated, _cost(facts)))
    found += differences("machine_count", stated.machine_count, sum(map(machines, plan.workers)))
    found += differences("hours", len(stated.hours), 0)
    found += machine_faults(stated, machine_rows(facts))
    found += slo_faults(stated, facts.inputs, Results.of(plan, facts))
    return [*found, *limit_faults(stated, facts.inputs, plan.workers)]


def limit_faults(stated: PlanSummary, inputs: Inputs, workers: Sequence[Worker]) -> Iterator[Violation]:
    """How many machines of a type run, of how many that may."""
    known = {name: most for name, (_, most) in inputs.slo.limits.instances.items() if most is not None}
    counts = {name: sum(machines(one) for one in workers if one.hardware == name) for name in known}
    yield from differences("limits", stated.limits, tuple((name, counts[name], most) for name, most in known.items()))


def differences(at: str, stated: object, own: object) -> Iterator[Violation]:
    """The fault where a value of the summary is another than the one that was recomputed."""
    if not _same(stated, own):
        yield Violation("summary", f"summary.{at}", f"says {_text(stated)}, recomputed it is {_text(own)}")


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, float | int) and isinstance(other, float | int):
        return math.isclose(one, other, rel_tol=SLIP, abs_tol=SLIP)
    return bool(one == other)


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return " .. ".join(map(_text, value))
    return f"{value:.9g}" if isinstance(value, float) else "nothing" if value in (None, "") else str(value)


# Money, bound, rates


def header_faults(plan: Plan, inputs: Inputs, stated: PlanSummary, cost: float | None) -> Iterator[Violation]:
    """Status, money, rates and bounds."""
    limits = inputs.slo.limits
    own = [one for one in plan.claims if one.about != "fluid_rate_qps"] or list(plan.claims)
    near = bool(own) and own[0].gap is not None and own[0].gap <= WITHIN_GAP and own[0].scope != "restriction"
    status = "optimal" if plan.status in ("optimal", "within-gap") and near else "feasible"
    yield from differences("status", stated.status, "not simulated" if plan.status == "not-simulated" else status)
    yield from differences("cost_per_hour", stated.cost_per_hour, cost)
    month, mine = stated.cost_per_month, None if cost is None else MONTH_HOURS * cost
    if (month is None) != (mine is None) or not math.isclose(month or 0.0, mine or 0.0, rel_tol=SLIP, abs_tol=CENTS):
        yield from differences("cost_per_month", month, mine)
    yield from differences("currency", stated.currency, limits.currency)
    budget = None if limits.cost_per_hour is None else limits.cost_per_hour / NANO
    yield from differences("budget_per_hour", stated.budget_per_hour, budget)
    rates = _rates(plan, inputs)
    for app in rates.keys() | stated.rates_qps.keys():
        yield from differences(f"rates_qps.{app}", stated.rates_qps.get(app), rates.get(app))
    yield from differences("bounds", len(stated.bounds), len(own))
    for number, (one, claim) in enumerate(zip(stated.bounds, own, strict=False)):
        for name, value in (
            ("objective", claim.about), ("sense", claim.sense), ("value", claim.value), ("bound", claim.bound),
            ("gap", claim.gap), ("scope", claim.scope), ("vouched", claim.vouched),
        ):  # fmt: skip
            yield from differences(f"bounds[{number}].{name}", getattr(one, name), value)


def _cost(facts: Facts) -> float | None:
    """Money per hour: what is promised, which is recomputed elsewhere, else what the machines cost."""
    if not _is_priced(facts.inputs):
        return None
    said = (one.value for one in facts.plan.promises if one.quantity == "cost_per_hour" and one.app is None)
    nanos = cost_nanos(facts)
    return next(said, None if nanos is None else nanos / NANO)


def _is_priced(inputs: Inputs) -> bool:
    runs = (run for variant in inputs.profile.variants.values() for run in variant.runs)
    return bool(inputs.profile.offers) or any(run.price_per_hour is not None for run in runs)


def _rates(plan: Plan, inputs: Inputs) -> dict[str, tuple[float, float]]:
    found: dict[str, list[float]] = {}
    for promise in plan.promises:
        if promise.app is not None and promise.situation is None and promise.quantity in ("rate_qps", "planned_qps"):
            found.setdefault(promise.app, []).append(promise.value)
    for app, tables in plan.policies.items():
        found[app] = [table.rate_qps for table in tables]
    for app, (_, most) in plan.valid.rate_qps.items():
        if most is not None and app not in found:
            found[app] = [most]
    for app, wanted in inputs.slo.apps.items():
        rate = wanted.demand.rate_qps
        if app not in found and isinstance(rate, int | float):
            found[app] = [rate]
    return {app: (min(rates), max(rates)) for app, rates in found.items()}


# Machines


@dataclass
class Amounts:
    """Machines that run the same, and their money a month where it is known."""

    most: float = 0.0
    least: float | None = None
    standby: float = 0.0
    month: float | None = None

    def add(self, count: float, standby: float, month: float | None) -> None:
        """Further machines."""
        self.most, self.standby = self.most + count, self.standby + standby
        if month is not None:
            self.month = (self.month or 0.0) + month


def machine_faults(stated: PlanSummary, own: Mapping[Key, Amounts]) -> Iterator[Violation]:
    """Rows of machines, those that say the same together, against what the plan has."""
    said: dict[Key, Amounts] = {}
    first: dict[Key, int] = {}
    for number, row in enumerate(stated.machines):
        names = (_names(row.app), _names(row.model), _names(row.stage))
        gpu = None if row.gpu is None else round(row.gpu, 9)
        key = (row.machine, row.purchase, row.zone, row.host, *names, row.replicas, row.batch, row.chunk, gpu)
        first.setdefault(key, number)
        amounts = said.setdefault(key, Amounts(least=row.least))
        amounts.add(row.count, row.standby, row.cost_per_month)
    for key in said.keys() | own.keys():
        at = f"machines[{first[key]}]" if key in first else "machines"
        name = " ".join(", ".join(sorted(one)) if isinstance(one, frozenset) else one for one in key[:7] if one)
        if key not in own:
            yield Violation("summary", f"summary.{at}", f"says {said[key].most:g} x {name}, recomputed there is none")
        elif key not in said:
            yield Violation("summary", f"summary.{at}", f"says nothing of {own[key].most:g} x {name}")
        else:
            one, other = said[key], own[key]
            yield from differences(f"{at}.count ({name})", one.most, other.most)
            yield from differences(f"{at}.least ({name})", one.least, other.least)
            yield from differences(f"{at}.standby ({name})", one.standby, other.standby)
            close = math.isclose(one.month or 0.0, other.month or 0.0, rel_tol=VALUE, abs_tol=CENTS)
            if (one.month is None) != (other.month is None) or not close:
                yield from differences(f"{at}.cost_per_month ({name})", one.month, other.month)


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split(", ")) - {""}


def machine_rows(facts: Facts) -> dict[Key, Amounts]:
    """What each machine runs for whom, how many do, and what they cost."""
    found: dict[Key, Amounts] = {}
    offers, plan = facts.inputs.profile.offers, facts.plan
    for worker in plan.workers:
        sold = offers.get(_offer_of(facts.inputs, worker))
        spot = "spot" if sold is not None and sold.interruptions_per_hour is not None else ""
        place = (worker.hardware, spot, "" if sold is None else sold.zone or "", worker.host or "")
        seats = [facts.seats[load.id] for load in worker.loads]
        nanos = machine_nanos(facts, worker, seats) if _is_priced(facts.inputs) else None
        month = None if nanos is None else float(nanos) * machines(worker) / NANO * MONTH_HOURS
        for loads in _together(plan, worker) or [[]]:
            apps = frozenset(_apps_of(plan, loads[0]) if loads else ())
            models = _names(", ".join(_model(load) for load in loads))
            stages = frozenset(load.node for load in loads if load.node is not None)
            gpu = math.fsum(load.share.gpu for load in loads if load.share is not None and load.share.gpu is not None)
            batch = max((load.serve.max_batch for load in loads), default=1)
            ends = (loads[0].instances if loads else 1, batch, loads[0].serve.most_tokens if loads else None)
            key = (*place, apps, models, stages, *ends, round(gpu, 9) or None)
            found.setdefault(key, Amounts()).add(worker.count, worker.standby, month)
            month = None  # the machines' money is with what they run first
    for promise in plan.promises if _is_priced(facts.inputs) else ():
        wanted = facts.inputs.slo.apps.get(promise.app or "")
        if promise.quantity == "calls_per_query" and wanted and isinstance(wanted.demand.rate_qps, int | float):
            app = frozenset({promise.app or ""})
            key = ("calls", "", "", "", app, frozenset(), frozenset(), 1, 1, None, None)
            cost = 3600.0 * wanted.demand.rate_qps * promise.value * MONTH_HOURS
            found.setdefault(key, Amounts()).add(1, 0, cost)
    return found


def _offer_of(inputs: Inputs, worker: Worker) -> str:
    """The offer that a group names, else that of its host."""
    host = inputs.profile.hosts.get(worker.host or "")
    return worker.offer or (host.offer if host is not None else None) or ""


def _apps_of(plan: Plan, load: Load) -> list[str]:
    if load.app is not None:
        return [load.app]
    return [app for app, routes in plan.routing.items() if any(load.id in route.to for route in routes)]


def _together(plan: Plan, worker: Worker) -> list[list[Load]]:
    """Loads that are one row: each model of an application, but operators of one query, and a policy's models."""
    found: dict[Key, list[Load]] = {}
    for load in worker.loads:
        apps = tuple(sorted(_apps_of(plan, load)))
        joined = load.variant is None or any(app in plan.policies for app in apps)
        found.setdefault((apps, None if joined else load.id), []).append(load)
    return list(found.values())


def _model(load: Load) -> str:
    knobs = ", ".join(f"{name} {value}" for name, value in load.knobs.items())
    return knobs if load.variant is None else f"{load.variant} ({knobs})" if knobs else load.variant


# SLO


@dataclass(frozen=True)
class Results:
    """What promises say of each application, in each set of machines that it runs on; "" where nothing failed."""

    by_app: Mapping[str, Sequence[tuple[str, Sequence[Promise]]]]
    late: Mapping[str, Sequence[float]]
    """Of applications under policies: the violation rate of each."""
    quality: Mapping[str, float]
    """The least of the models that answer an application."""
    several: bool = False
    """Whether there are several sets of machines, by the hour or after failures."""

    @classmethod
    def of(cls, plan: Plan, facts: Facts) -> Results:
        """Those of a plan of one set of machines."""
        apps = facts.inputs.slo.apps
        quality: dict[str, float] = {}
        for seat in facts.seats.values():
            for app in _apps_of(plan, seat.load):
                quality[app] = min(quality.get(app, math.inf), quality_of(facts, seat.load))
        late = {
            app: [float(one.simulated["violation"]) for one in tables if one.simulated and "violation" in one.simulated]
            for app, tables in plan.policies.items()
        }
        return cls({app: [("", [one for one in plan.promises if one.app == app])] for app in apps}, late, quality)


def slo_faults(stated: PlanSummary, inputs: Inputs, results: Results) -> Iterator[Violation]:
    """Each limit of the SLO has a row, and each row the limit of the SLO, what was simulated, and the verdict."""
    rows = {(row.app, row.metric): number for number, row in enumerate(stated.slo)}
    if len(rows) < len(stated.slo):
        yield Violation("summary", "summary.slo", "two rows are of the same limit")
    for app, wanted in inputs.slo.apps.items():
        prefix = {of: text for text, of in _OF.items()}
        for target in wanted.latency:
            metric = f"{prefix[target.of]}{target.percentile:g}"
            if (app, metric) not in rows and results.by_app.get(app):
                yield Violation("summary", "summary.slo", f"has no row of {metric} of {app}")
    for (app, metric), number in rows.items():
        row, at = stated.slo[number], f"slo[{number}]"
        if app not in inputs.slo.apps:
            yield Violation("summary", f"summary.{at}", f"is of {app}, which the SLO has not")
            continue
        limits, quantity, percentile = _limits_of(row, inputs)
        found = [
            (failure, _best([one for one in promises if one.quantity == quantity and _is_at(one, percentile)]))
            for failure, promises in results.by_app.get(app, ())
        ]
        if not limits and row.limit is not None and metric in _SHARES:  # a share that only simulation was held to
            limits = [(one.relation, one.value) for _, one in found if one is not None]
        if row.relation == "maximal" and metric in _SOUGHT:
            limits = [("maximal", None)]
        if not any(_same((row.relation, row.limit), one) for one in limits):
            known = " or ".join(_text(one) for one in limits) or "none"
            text = f"says {_text((row.relation, row.limit))}, the limit of {metric} of {app} is {known}"
            yield Violation("summary", f"summary.{at}.limit", text)
        else:
            yield from _result_faults(row, at, found, results)


def _limits_of(row: SloRow, inputs: Inputs) -> tuple[list[tuple[str, float | None]], str, float | None]:
    """The limits that the SLO has for a row, and which promises are about it."""
    wanted = inputs.slo.apps[row.app]
    for target in wanted.latency:
        if row.metric == next(text for text, of in _OF.items() if of == target.of) + f"{target.percentile:g}":
            return [("<=", target.max_ms)], f"{target.of}_ms", target.percentile
    quantity = (_SHARES if row.relation != "maximal" else _SOUGHT).get(row.metric, "")
    if quantity == "violations" and wanted.violations is not None:
        return [("<=", wanted.violations.max)], quantity, None
    if quantity == "goodput" and wanted.goodput is not None and row.relation != "maximal":
        return [(">=", wanted.goodput)], quantity, None
    if quantity == "quality" and wanted.quality is not None:
        low, high = wanted.quality.min, wanted.quality.max
        return [("<=", high) if low is None else (">=", low)], quantity, None
    return [], quantity, None


def _is_at(promise: Promise, percentile: float | None) -> bool:
    return percentile is None or (promise.percentile is not None and abs(promise.percentile - percentile) < SLIP)


def _best(promises: Sequence[Promise]) -> Promise | None:
    """What was simulated, else measured, else worked out."""
    for was in (lambda one: one.model.startswith("simulation"), lambda one: one.model == "measured"):
        if (found := next(filter(was, promises), None)) is not None:
            return found
    return next(iter(promises), None)


def _is_run(promise: Promise | None) -> bool:
    shown = promise is not None and (promise.model.startswith("simulation") or promise.model == "measured")
    return shown and promise is not None and promise.interval is not None


def _result_faults(
    row: SloRow, at: str, found: Sequence[tuple[str, Promise | None]], results: Results
) -> Iterator[Violation]:
    """A row's interval or value, and its verdict, against those of the promises."""
    run = [(failure, one) for failure, one in found if one is not None and _is_run(one)]
    words: set[str] = set()
    least: float | None = None
    if run and not results.several:
        promise = run[0][1]
        yield from differences(f"{at}.interval", row.interval, promise.interval)
        yield from differences(f"{at}.confidence", row.confidence, promise.confidence)
        yield from differences(f"{at}.seeds", row.seeds, promise.seeds)
    elif run:
        yield from _worst_faults(row, at, run)
        yield from differences(f"{at}.confidence", row.confidence, None)
    else:
        yield from differences(f"{at}.interval", row.interval, None)
        values = [one.value for _, one in found if one is not None]
        if row.metric == "quality" and not values:
            least = results.quality.get(row.app)
        known = [one for one in [*values, least] if one is not None]
        if row.value is not None and not any(_same(row.value, one) for one in known):
            yield from differences(f"{at}.value", row.value, tuple(known))
    intervals = [one.interval for _, one in run if one.interval is not None]
    if late := (results.late.get(row.app) if not run and row.metric.startswith("p") else None):
        allowed = 1.0 - float(row.metric[1:]) / 100.0
        ends = [one.interval[1] for _, one in _promises_of(results, row.app, "violations") if one.interval is not None]
        words = {_verdict("<=", allowed, (min([*late, *ends]), max([*late, *ends])))}
    elif run:
        each = [_verdict(row.relation, row.limit, one) for one in intervals]
        word = next((one for one in ("violated", "undecided") if one in each), each[0])
        words = {f"met in {len(run)} of {len(found)}" if word == "met" and len(run) < len(found) else word}
    else:
        words = {"not simulated", "by formula"} if row.relation != "maximal" else {""}
    if row.verdict not in words:
        yield from differences(f"{at}.verdict", row.verdict, " or ".join(sorted(words)))


def _promises_of(results: Results, app: str, quantity: str) -> Iterator[tuple[str, Promise]]:
    """The promises of a quantity of an application."""
    for failure, promises in results.by_app.get(app, ()):
        yield from ((failure, one) for one in promises if one.quantity == quantity)


def _worst_faults(row: SloRow, at: str, run: Iterable[tuple[str, Promise]]) -> Iterator[Violation]:
    """The worst without a failure and the worst after one are those of some set of machines, and none is worse."""
    place = 1 if row.relation == "<=" else 0
    worse = max if row.relation == "<=" else min
    said = {bool(one.failure): one for one in row.worst}
    for after in (False, True):
        known = [(one.interval, name) for name, one in run if bool(name) == after and one.interval is not None]
        own = worse((one for one, _ in known), key=lambda one: one[place], default=None)
        stated = said[after].interval if after in said else None
        if (stated is None) != (own is None) or (stated and own and not _same(stated[place], own[place])):
            yield from differences(f"{at}.worst", stated, own)
        elif stated and not any(_same(stated, one) and said[after].failure == name for one, name in known):
            text = f"says {_text(stated)} ({said[after].failure or 'no failure'}), which nothing is promised of"
            yield Violation("summary", f"summary.{at}.worst", text)
    if row.worst:
        yield from differences(f"{at}.interval", row.interval, row.worst[0].interval)


def _verdict(relation: str, limit: float | None, interval: tuple[float, float]) -> str:
    if limit is None:
        return ""
    slack = SLIP * max(abs(limit), 1.0)
    best, worst = interval if relation == "<=" else (-interval[1], -interval[0])
    bar = limit if relation == "<=" else -limit
    return "met" if worst <= bar + slack else "violated" if best > bar + slack else "undecided"
