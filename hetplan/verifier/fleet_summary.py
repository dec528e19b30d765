"""The summary of a plan with periods, recomputed: hours, machines over the day, the worst hour of each limit."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from hetplan.planner.tolerances import VALUE
from hetplan.profiles.plan import Period, Promise
from hetplan.profiles.plan_periods import of_period
from hetplan.profiles.plan_summary import HoursRow, PlanSummary
from hetplan.verifier.facts import gather, machines
from hetplan.verifier.fleet_parts import Fleet, same
from hetplan.verifier.report import Violation
from hetplan.verifier.summary import (
    MONTH_HOURS,
    Amounts,
    Key,
    Results,
    differences,
    header_faults,
    limit_faults,
    machine_faults,
    machine_rows,
    slo_faults,
)

__all__ = ["check_fleet_summary"]


def check_fleet_summary(fleet: Fleet) -> Iterator[Violation]:
    """What such a plan says of itself at its beginning, and what it is."""
    plan, stated = fleet.plan, fleet.plan.summary
    if stated is None or plan.bill is None:
        return
    yield from header_faults(plan, fleet.inputs, stated, plan.bill.cost_per_hour)
    held = [[worker for worker, _ in fleet.machines(one.parts or ())] for one in plan.periods]
    most = max(sum(map(machines, workers)) for workers in held)
    yield from differences("machine_count", stated.machine_count, most)
    yield from slo_faults(stated, fleet.inputs, _results(fleet))
    ahead = Counter[tuple[str, float]]()
    for one in plan.commitments or ():
        ahead[fleet.inputs.profile.offers[one.offer].hardware, round(one.term_s / 86_400.0, 6)] += one.count
    said = Counter({(one.machine, round(one.days, 6)): one.count for one in stated.reserved})
    for key in ahead.keys() | said.keys():
        yield from differences(f"reserved ({key[0]} for {key[1]:g} days)", said[key], ahead[key])
    yield from differences("survivors", stated.survivors, _survivors(fleet))
    first = plan.periods[0]
    is_one = all(one.parts == first.parts for one in plan.periods)
    yield from limit_faults(stated, fleet.inputs, held[0]) if is_one else ()
    several = len(plan.periods) > 1
    own = _rows(fleet) if several else machine_rows(gather(of_period(plan, first), fleet.inputs))
    yield from machine_faults(stated, own)
    if several or stated.hours:
        yield from _hours(fleet, stated)


def _results(fleet: Fleet) -> Results:
    """What parts promise of each application, in each period and after each failure."""
    found: dict[str, list[tuple[str, Sequence[Promise]]]] = {app: [] for app in fleet.inputs.slo.apps}
    for period in fleet.plan.periods:
        for failure, names in {"": period.parts or (), **(period.failures or {})}.items():
            for part in (fleet.parts[name] for name in names):
                for app in part.rate_qps:
                    found[app].append((failure, [one for one in part.promises if one.app == app]))
    quality: dict[str, float] = {}
    for part in fleet.parts.values():
        for load in (load for worker in part.workers for load in worker.loads if load.variant is not None):
            known = fleet.inputs.profile.variants[load.variant or ""].quality
            for app in part.rate_qps:
                if load.app in (app, None):
                    value = known.value if known is not None else math.nan
                    quality[app] = min(quality.get(app, math.inf), value)
    return Results(found, {}, quality, several=True)


def _survivors(fleet: Fleet) -> float | None:
    """The least share of a rate that is promised after a failure; of single machines, what the SLO asks for."""
    rates = {
        (one.app, one.period, one.situation): one.value
        for one in fleet.plan.promises
        if one.quantity == "rate_qps" and one.app is not None
    }
    normal = {key[:2]: rate for key, rate in rates.items() if key[2] is None and rate}
    found = [rate / normal[key[:2]] for key, rate in rates.items() if key[2] is not None and key[:2] in normal]
    survive = fleet.inputs.slo.limits.survive
    return min(found, default=survive.keep if survive.hosts else None)


def _is_spot(fleet: Fleet, offer: str | None) -> bool:
    sold = fleet.inputs.profile.offers.get(offer or "")
    return sold is not None and sold.interruptions_per_hour is not None


def _in(fleet: Fleet, period: Period) -> Iterator[tuple[str, str, Key, float, int]]:
    """For each application on machines of a period: its offer, what it runs there, its part of them, and how many."""
    for worker, held in fleet.machines(period.parts or ()):
        users = fleet.users(held)
        loads = [load for _, one in held for load in one.loads]
        for app in users:
            models = frozenset(load.variant or load.node or "" for load in loads if load.app in (app, None)) - {""}
            kind = (worker.hardware, "spot" if _is_spot(fleet, worker.offer) else "", app, models, len(users) > 1)
            count = machines(worker)
            yield app, worker.offer or "", kind, count / len(users), count


def _key(machine: str, purchase: str, app: str, models: frozenset[str]) -> Key:
    return machine, purchase, "", "", frozenset({app} - {""}), models, frozenset(), 1, 1, None, None


def _rows(fleet: Fleet) -> Mapping[Key, Amounts]:
    """The fewest and the most machines of each kind; the bill's lines, shared out over what their machines run."""
    assert fleet.plan.bill is not None
    counts: dict[Key, dict[str, float]] = {}
    found: dict[Key, Amounts] = {}
    for period in fleet.plan.periods:
        runs: dict[tuple[str, str], list[tuple[Key, float]]] = {}
        for app, offer, (machine, purchase, _, models, _), part, count in _in(fleet, period):
            key = _key(machine, purchase, app, models)
            own = counts.setdefault(key, {})
            own[period.id] = own.get(period.id, 0.0) + count
            runs.setdefault((app, offer), []).append((key, part))
        for line in (one for one in fleet.plan.bill.lines if one.period == period.id):
            unused = _key(fleet.inputs.profile.offers[line.offer].hardware, "", "", frozenset())
            shares = runs.get((line.app or "", line.offer)) or [(unused, 1.0)]
            if line.app is None:
                own = counts.setdefault(unused, {})
                own[period.id] = own.get(period.id, 0.0) + line.committed + line.rented
            for key, part in shares:
                month = line.cost_per_hour * part / math.fsum(one for _, one in shares) * MONTH_HOURS
                found.setdefault(key, Amounts()).add(0, 0, month / len(fleet.plan.periods))
    for key, by_period in counts.items():
        amounts = found.setdefault(key, Amounts())
        each = [by_period.get(one.id, 0.0) for one in fleet.plan.periods]
        amounts.most, amounts.least = round(max(each)), round(min(each))
    return {key: one for key, one in found.items() if key in counts}


def _hours(fleet: Fleet, stated: PlanSummary) -> Iterator[Violation]:
    """Each period is in one row of hours, which has its machines; money is the mean of them."""
    assert fleet.plan.bill is not None
    places = {one.id: [n for n, row in enumerate(stated.hours) if _is_in(one, row)] for one in fleet.plan.periods}
    for number, row in enumerate(stated.hours):
        at = f"hours[{number}]"
        mine = [one for one in fleet.plan.periods if number in places[one.id]]
        if not mine:
            yield Violation("summary", f"summary.{at}.hours", f"says {row.hours}, and no period is in these hours")
            continue
        said = Counter[Key]()
        for app, groups in row.apps.items():
            for one in groups:
                models = frozenset(one.model.split(", ")) - {""}
                said[one.machine, one.purchase, app, models, one.shared] += one.count
        for period in mine:
            own = Counter[Key]()
            for _, _, kind, _, count in _in(fleet, period):
                own[kind] += count
            for key in said.keys() | own.keys():
                text = f"{key[2]}: {key[0]} {key[1]}".strip()
                yield from differences(f"{at} ({period.id}, {text})", said[key], own[key])
        lines = [one for one in fleet.plan.bill.lines if one.period in {period.id for period in mine}]
        cost = sum(one.cost_per_hour for one in lines) / len(mine)
        if row.cost_per_hour is None or not math.isclose(row.cost_per_hour, cost, rel_tol=VALUE, abs_tol=VALUE):
            yield from differences(f"{at}.cost_per_hour", row.cost_per_hour, cost)
        yield from _spot(fleet, mine[0], row.spot, at)
    for name, rows in places.items():
        if len(rows) != 1:
            yield Violation("summary", "summary.hours", f"says that {name} is in {len(rows)} rows")


def _spot(fleet: Fleet, period: Period, stated: float | None, at: str) -> Iterator[Violation]:
    workers = [worker for worker, _ in fleet.machines(period.parts or ())]
    counts = [(machines(worker), _is_spot(fleet, worker.offer)) for worker in workers]
    whole = sum(count for count, _ in counts)
    share = sum(count for count, spot in counts if spot) / whole if whole else None
    if (stated is None) != (share is None) or not same(stated or 0.0, share or 0.0):
        yield from differences(f"{at}.spot", stated, share)


def _is_in(period: Period, row: HoursRow) -> bool:
    """Whether a period begins in the hours of a row, such as "22-06, 09-13"."""
    for run in row.hours.split(", "):
        begin, _, end = run.partition("-")
        start, stop = _seconds(begin), _seconds(end)
        if start <= period.start_s < stop or (stop <= start and (period.start_s >= start or period.start_s < stop)):
            return True
    return False


def _seconds(clock: str) -> float:
    hours, _, minutes = clock.partition(":")
    try:
        return 3600.0 * float(hours) + 60.0 * float(minutes or 0)
    except ValueError:
        return math.inf
