"""The part of a summary that only plans of several periods have: hours, what is paid ahead, the worst hour of each SLO.

Periods with the same machines for the same applications are one row. Their hours are written as on a clock; the day
comes again after its last period, so a row may begin in the evening and end in the morning ("22-06").
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hetplan.errors import InputError
from hetplan.planner.summary_rows import machine_name, slo_rows_of, verdict_of
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Period, Plan
from hetplan.profiles.plan_parts import Part
from hetplan.profiles.plan_periods import machines_with_users, of_part
from hetplan.profiles.plan_summary import Group, HoursRow, MachineRow, Reserved, SloRow, Worst, per_month
from hetplan.profiles.workers import Worker

__all__ = ["check_parts", "derived_of_periods", "stated_of_periods"]


def check_parts(plan: Plan) -> None:
    """Raise `InputError` where a plan has no periods, or one of them names a part that is not there."""
    if not plan.periods:
        why, remedy = "the plan has parts and no periods", "Make the plan again."
        raise InputError.one(file="plan", path="$.periods", why=why, remedy=remedy)
    for place, period in enumerate(plan.periods):
        named = [*(period.parts or ()), *(name for names in (period.failures or {}).values() for name in names)]
        for name in named:
            if name not in (plan.parts or {}):
                raise InputError.one(
                    file="plan", path=f"$.periods[{place}]", value=name, why="the plan has no such part",
                    remedy=f"Name one of {', '.join(plan.parts or {}) or 'none'}.",
                )  # fmt: skip


def stated_of_periods(plan: Plan, inputs: Inputs | None) -> dict[str, Any]:
    """What the summary of a plan of several periods states otherwise than that of one."""
    found = {
        "slo": tuple(_slo_rows(plan, inputs)),
        "hours": (),
        "machine_count": max(_machine_count(plan, one) for one in plan.periods),
        "reserved": _reserved_machines(plan, inputs),
        "failures": _failures(plan, inputs),
        "survivors": _survivors(plan, inputs),
    }
    if len(plan.periods) > 1:
        found |= {"hours": _hour_rows(plan, inputs), "machines": tuple(_rows_of_all_hours(plan, inputs))}
    return found


def derived_of_periods(plan: Plan) -> dict[str, Any]:
    """What follows from a plan of several periods."""
    end, bill = plan.periods[-1].end_s, plan.bill
    levers = bill.levers if bill is not None else ()
    return {
        "length_h": None if end is None else end / 3600.0,
        "models": _models_of(plan),
        "cost_of_apps": dict(bill.apps) if bill is not None else {},
        "cost_of_idle": bill.idle_per_hour if bill is not None else 0.0,
        "cost_of_starts": bill.starts_per_hour if bill is not None else 0.0,
        "savings": tuple((one.name, one.cost_per_hour) for one in levers if one.cost_per_hour is not None),
        "routing": _rules(plan),
    }


def _parts(plan: Plan, names: Sequence[str] | None) -> list[Part]:
    return [(plan.parts or {})[name] for name in names or ()]


def _hour_rows(plan: Plan, inputs: Inputs | None) -> tuple[HoursRow, ...]:
    """A row for each set of machines, in the order of the day."""
    signs = [(_machines(plan, one, inputs), one) for one in plan.periods]
    cost = _cost_by_period(plan)
    rows = []
    for period_ids in _merge_periods(signs):
        periods = [one for one in plan.periods if one.id in period_ids]
        apps = next(machines for machines, one in signs if one.id in period_ids)
        per_hour = sum(cost.get(one.id, 0.0) for one in periods) / len(periods) if plan.bill is not None else None
        rows.append(HoursRow(_hours_text(plan, periods), apps, _spot_share(plan, periods[0], inputs), per_hour))
    return tuple(rows)


def _machine_count(plan: Plan, period: Period) -> int:
    return sum(worker.count + worker.standby for worker, _ in machines_with_users(_parts(plan, period.parts)))


def _machines(plan: Plan, period: Period, inputs: Inputs | None) -> dict[str, tuple[Group, ...]]:
    """The machines of each application in a period."""
    found: dict[str, dict[tuple[str, str, str, bool], int]] = {}
    for worker, users in machines_with_users(_parts(plan, period.parts)):
        machine, purchase, _ = machine_name(worker, inputs)
        for app in users:
            counts = found.setdefault(app, {})
            key = (machine, purchase, _models_on(worker, app), len(users) > 1)
            counts[key] = counts.get(key, 0) + worker.count + worker.standby
    return {
        app: tuple(
            Group(count, machine, purchase, model, shared)
            for (machine, purchase, model, shared), count in sorted(found[app].items(), key=lambda one: one[0][1])
        )
        for app in sorted(found)
    }


def _rows_of_all_hours(plan: Plan, inputs: Inputs | None) -> Iterator[MachineRow]:
    """Machines of each application and model over all hours: the fewest and the most of them, and the mean of money.

    What a bill line says of an offer and an application is shared out over the models that these machines run.
    """
    counts: dict[tuple[str, str, str, str], list[float]] = {}
    costs: dict[tuple[str, str, str, str], float] = {}
    for place, period in enumerate(plan.periods):
        lines = [one for one in plan.bill.lines if one.period == period.id] if plan.bill is not None else []
        by_line: dict[tuple[str, str], dict[tuple[str, str, str, str], float]] = {}
        for worker, users in machines_with_users(_parts(plan, period.parts)):
            for app in users:
                machine, purchase, _ = machine_name(worker, inputs)
                key = (app, _models_on(worker, app), machine, purchase)
                counts.setdefault(key, [0] * len(plan.periods))[place] += worker.count + worker.standby
                mine = by_line.setdefault((app, worker.offer or ""), {})
                mine[key] = mine.get(key, 0.0) + (worker.count + worker.standby) / len(users)
        for line in lines:
            name = inputs.profile.offers[line.offer].hardware if inputs is not None else line.offer
            keys = by_line.get((line.app or "", line.offer)) or {("", "", name, ""): line.committed + line.rented}
            if line.app is None:
                unused = counts.setdefault(("", "", name, ""), [0] * len(plan.periods))
                unused[place] += line.committed + line.rented
            total = sum(keys.values())
            for key, part in keys.items():
                share = part / total if total else 1.0 / len(keys)
                costs[key] = costs.get(key, 0.0) + line.cost_per_hour * share / len(plan.periods)
    for key in sorted(counts, key=lambda one: (not one[0], one)):
        app, model, machine, purchase = key
        most, least = max(counts[key]), min(counts[key])
        cost = per_month(costs[key]) if key in costs else None
        yield MachineRow(machine, round(most), model, app, purchase, least=round(least), cost_per_month=cost)


def _models_on(worker: Worker, app: str) -> str:
    mine = [load for load in worker.loads if load.app in (app, None)]
    return ", ".join(dict.fromkeys(load.variant or load.node or "" for load in mine))


def _merge_periods(signs: Sequence[tuple[dict[str, tuple[Group, ...]], Period]]) -> list[list[str]]:
    """The ids of periods with the same machines, each set once, in the order of the day."""
    sets: list[tuple[dict[str, tuple[Group, ...]], list[str]]] = []
    for machines, period in signs:
        same = next((ids for known, ids in sets if known == machines), None)
        if same is None:
            sets.append((machines, [period.id]))
        else:
            same.append(period.id)
    return [ids for _, ids in sets]


def _hours_text(plan: Plan, periods: Sequence[Period]) -> str:
    """Hours of periods, neighbours joined, the last of the day and the first as well.

    A day of two periods, of which the first and a third are alike:

    >>> from types import SimpleNamespace as At
    >>> day = [At(id=str(n), start_s=n * 21600.0, end_s=(n + 1) * 21600.0) for n in range(4)]
    >>> _hours_text(At(periods=day), [day[0], day[3]]), _hours_text(At(periods=day), [day[0], day[2]])
    ('18-06', '00-06, 12-18')
    """
    whole = plan.periods
    runs: list[list[float | None]] = []
    for one in periods:
        if runs and runs[-1][1] == one.start_s:
            runs[-1][1] = one.end_s
        else:
            runs.append([one.start_s, one.end_s])
    wraps = len(runs) > 1 and runs[0][0] == whole[0].start_s and runs[-1][1] == whole[-1].end_s
    if wraps:
        runs = [[runs[-1][0], runs[0][1]], *runs[1:-1]]
    exact = all(float(one.start_s) % 3600.0 == 0.0 for one in whole)
    return ", ".join("-".join(_clock(end, exact) for end in run) for run in runs)


def _clock(at_s: float | None, exact: bool) -> str:
    if at_s is None:
        return "end"
    hours, rest = divmod(at_s, 3600.0)
    minutes, seconds = divmod(rest, 60.0)
    whole = f"{int(hours):02d}" if exact else f"{int(hours):02d}:{int(minutes):02d}"
    return f"{whole}:{round(seconds, 3):g}" if seconds >= 0.0005 else whole


def _spot_share(plan: Plan, period: Period, inputs: Inputs | None) -> float | None:
    """The share of a period's machines that may be taken back; None where the profile would have to say."""
    if inputs is None:
        return None
    counts = {"spot": 0, "": 0}
    for worker, _ in machines_with_users(_parts(plan, period.parts)):
        counts[machine_name(worker, inputs)[1]] += worker.count + worker.standby
    total = sum(counts.values())
    return counts["spot"] / total if total else None


def _cost_by_period(plan: Plan) -> dict[str, float]:
    found: dict[str, float] = {}
    for line in plan.bill.lines if plan.bill is not None else ():
        found[line.period] = found.get(line.period, 0.0) + line.cost_per_hour
    return found


def _models_of(plan: Plan) -> dict[str, tuple[str, ...]]:
    """The models of each application, over all periods and failures."""
    found: dict[str, dict[str, None]] = {}
    for part in (plan.parts or {}).values():
        for load in (load for worker in part.workers for load in worker.loads):
            for app in [load.app] if load.app is not None else part.rate_qps:
                found.setdefault(app, {})[load.variant or load.node or load.id] = None
    return {app: tuple(found[app]) for app in sorted(found)}


def _reserved_machines(plan: Plan, inputs: Inputs | None) -> tuple[Reserved, ...]:
    offers = inputs.profile.offers if inputs is not None else {}
    counts: dict[tuple[str, float], int] = {}
    for one in plan.commitments or ():
        offer = offers.get(one.offer)
        key = (offer.hardware if offer is not None else one.offer, one.term_s / 86400.0)
        counts[key] = counts.get(key, 0) + one.count
    return tuple(Reserved(count, machine, days) for (machine, days), count in counts.items())


def _failures(plan: Plan, inputs: Inputs | None) -> tuple[str, ...]:
    """What may fail: the situations that the plan has parts or promises for; single machines only the SLO names."""
    listed = dict.fromkeys(name for one in plan.periods for name in one.failures or {})
    listed |= dict.fromkeys(one.situation for one in plan.promises if one.situation is not None)
    machines = inputs.slo.limits.survive.machines if inputs is not None else 0
    if machines and not listed:
        listed[f"any {machines} machine{'' if machines == 1 else 's'} of one type lost"] = None
    return tuple(listed)


def _survivors(plan: Plan, inputs: Inputs | None) -> float | None:
    """The least share of a rate that is planned for after a failure."""
    rates = {
        (one.app, one.period, one.situation): one.value
        for one in plan.promises
        if one.quantity == "rate_qps" and one.app is not None
    }
    shares = [
        value / rates[app, period, None]
        for (app, period, situation), value in rates.items()
        if situation is not None and rates.get((app, period, None))
    ]
    if inputs is not None and inputs.slo.limits.survive.machines and not shares:
        shares.append(inputs.slo.limits.survive.serve)
    return min(shares, default=None)


def _rules(plan: Plan) -> dict[str, str]:
    rules = {app: rule for part in (plan.parts or {}).values() for app, rule in part.dispatch.items()}
    return {app: str(getattr(rules[app], "rule", "shares/1")) for app in sorted(rules)}


# SLO


def _slo_rows(plan: Plan, inputs: Inputs | None) -> Iterator[SloRow]:
    """Each limit once, with the worst hour without a failure, and the worst after one.

    Beside an SLO, what only some of an application's parts promise is left out: nobody asked for it.
    """
    total: dict[str, int] = {}
    found: dict[str, dict[str, list[_Seen]]] = {}
    hours = {one.id: _hours_text(plan, [one]) if len(plan.periods) > 1 else "" for one in plan.periods}
    known: dict[str, list[SloRow]] = {}
    for period in plan.periods:
        situations: Mapping[str, Any] = {"": period.parts or (), **(period.failures or {})}
        for failure, names in situations.items():
            for name in names:
                if name not in known:
                    part = (plan.parts or {})[name]
                    rows = slo_rows_of(of_part(plan, name), part.promises, inputs)
                    known[name] = [one for one in rows if one.app in part.rate_qps and one.limit is not None]
                for app in (plan.parts or {})[name].rate_qps:
                    total[app] = total.get(app, 0) + 1
                for row in known[name]:
                    seen = found.setdefault(row.app, {}).setdefault(row.metric, [])
                    seen.append(_Seen(row, failure, hours[period.id]))
    for app in sorted(found) if inputs is None else inputs.slo.apps:
        for seen in found.get(app, {}).values():
            if inputs is None or len(seen) == total[app]:
                yield _worst_row(seen, total[app])


@dataclass(frozen=True)
class _Seen:
    """A row of one part, in one period and situation."""

    row: SloRow
    failure: str
    hours: str


def _worst_row(seen: Sequence[_Seen], total: int) -> SloRow:
    """One row of all hours and situations: met where each is, and simulated in as many as were."""
    first = seen[0].row
    sign = 1.0 if first.relation == "<=" else -1.0
    shown = [(one.row.interval, one) for one in seen if one.row.interval is not None]
    values = [one.row.value for one in seen if one.row.value is not None]
    if not shown:
        value = max(values, key=lambda one: sign * one) if len(values) == len(seen) else None
        told = [one.row.verdict for one in seen]
        bad = next((one for one in ("violated", "undecided") if one in told), "")
        row = seen[told.index(bad)].row if bad else first
        is_part = not bad and 0 < told.count("met") < len(told)
        said = f"met in {told.count('met')} of {total}" if is_part else row.verdict
        return replace(row, value=value, verdict=said, note=row.note if value is None else "")
    worst = []
    for is_failure in (False, True):
        mine = [(interval, one) for interval, one in shown if bool(one.failure) == is_failure]
        if mine:
            interval, one = max(mine, key=lambda pair: sign * pair[0][1 if sign > 0 else 0])
            worst.append(Worst(interval, one.failure, one.hours))
    words = [verdict_of(first.relation, first.limit, interval) for interval, _ in shown]
    word = next((one for one in ("violated", "undecided") if one in words), "met")
    if len(shown) < total and word == "met":
        word = f"met in {len(shown)} of {total}"
    left = next((one.row.verdict for one in seen if one.row.interval is None), "")
    return replace(
        first, interval=worst[0].interval, basis="simulation", verdict=word, note=left, worst=tuple(worst),
        seeds=None, confidence=None,
    )  # fmt: skip
