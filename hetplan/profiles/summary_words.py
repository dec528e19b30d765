"""The summary of a plan in words: sentences, tables and lines with a label, for whoever shows it.

Money per month, what is served, status; bound and gap; SLO; machines or hours; failures; warnings; what was checked.
Every figure is the summary's: this file chooses words, digits and columns.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

from hetplan.drawing.summary import SIGNS, Axis, Bar, Limit, SummaryText, Table, limits_once
from hetplan.drawing.svg import colour_class
from hetplan.profiles.plan_summary import per_month

if TYPE_CHECKING:
    from hetplan.profiles.plan_summary import Bound, Group, MachineRow, SloRow, Summary

__all__ = ["NOTHING_CHECKED", "figure", "head_text", "runs_tables", "summary_text"]

NOTHING_CHECKED = ("Checked", "nothing here: hetplan verify PLAN PROFILE SLO recomputes all, and simulates again")
"""Of a plan that is only shown."""
COSTS = ("cost_per_hour", "packed_per_hour")
"""Objectives that are money which is paid each month."""
BELOW = 1e-6
"""By what part a value may be beyond its bound: what engines take for equal."""
MOST_NAMES = 4
"""Of more applications a title has the number and not the names: it is one line on a phone."""


def summary_text(summary: Summary, checked: tuple[str, str] = NOTHING_CHECKED) -> SummaryText:
    """The whole summary in words; `checked` is what was checked, under its label."""
    runs = runs_tables(summary)
    if summary.status == "not verified":  # what is wrong elsewhere meets no limit
        rows = (replace(row, verdict="not verified") if row.verdict[:3] == "met" else row for row in summary.slo)
        summary = replace(summary, slo=tuple(rows))
    tables = [_slo_table(summary), *runs, _policy_table(summary)]
    lines = [*_labeled_lines(summary), (checked[0], (checked[1],))]
    lines += [("Missing", (", ".join(summary.missing),))] if summary.missing else []
    return SummaryText(
        head=head_text(summary),
        status=_status_sentence(summary),
        bounds=tuple(_bound_sentences(summary)),
        reserved=tuple(_reserved_sentences(summary)),
        tables=tuple(one for one in tables if one.rows or one in runs),
        lines=tuple((label, sentences) for label, sentences in lines if sentences),
        state=_state(summary),
        costs=tuple(_costs(summary)),
        title=_title(summary),
        money=_money_and_unit(summary),
        buy=_machines_sentence(summary),
        monthly_bounds=tuple(_bound_sentences(summary, monthly=True)),
        axis=_axis(summary),
        limits=tuple(map(partial(_limit, summary), summary.slo)),
        budget=tuple(_budget(summary)),
        ways=tuple(_ways(summary)),
        cautions=tuple(_cautions(summary)),
        stated=not summary.made_here,
    )


# Figures


def figure(value: float) -> str:
    """A figure with three digits; thousands are whole and have commas.

    >>> figure(57.8937), figure(2102.4), figure(0.97685), figure(633.1), figure(60.0), figure(0.00001)
    ('57.9', '2,102', '0.977', '633', '60', '1e-05')
    """
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value + 0.0:.3g}"  # -0.0 + 0.0 is 0.0


def money(value: float, currency: str | None) -> str:
    """Money; below 1,000 with cents.

    >>> money(2102.4, "USD"), money(2.88, "USD"), money(1.5, "CHF"), money(3.0, None), money(-0.0, "USD")
    ('$2,102', '$2.88', 'CHF 1.50', '3.00', '$0.00')
    """
    sign = "" if currency is None else SIGNS.get(currency, f"{currency} ")
    return f"{sign}{value:,.0f}" if abs(value) >= 100 else f"{sign}{round(value, 2) + 0.0:.2f}"


def whole_money(value: float, currency: str | None) -> str:
    """Money without cents."""
    return f"{'' if currency is None else SIGNS.get(currency, f'{currency} ')}{round(value) + 0.0:,.0f}"


def _percent(share: float) -> str:
    return f"{100 * share:.3g}%"


def _whole_percent(share: float | None) -> str:
    """A share in whole percent; full is what is full."""
    return "" if share is None else f"{100 * share:.0f}%"


def _interval_text(interval: tuple[float, float], unit: str) -> str:
    low, high = (max(end, 0.0) for end in interval)
    if unit == "share":
        texts, tail = [f"{100 * low:.2f}", f"{100 * high:.2f}"], "%"
    else:
        texts, tail = [figure(low), figure(high)], f" {unit}" if unit else ""
    return " .. ".join(dict.fromkeys(texts)) + tail


def _value_text(value: float, unit: str) -> str:
    return _percent(value) if unit == "share" else f"{figure(value)} {unit}".strip()


# Head


def head_text(summary: Summary, *, names: bool = True) -> str:
    """Money and what is served, as a sentence; with `names` each application is named where there are few."""
    return f"{_money_words(summary)} {_serving_words(summary, names=names)}."


def _money_and_unit(summary: Summary) -> tuple[str, str]:
    """Money a month; where nothing has a price, machines."""
    if summary.cost_per_month is not None:
        return money(summary.cost_per_month, summary.currency), "a month"
    if not summary.machine_count:
        return summary.served.partition(" queries")[0], "queries are served" if summary.served else ""
    if summary.missing:
        return str(summary.machine_count), "machines"
    return str(summary.machine_count), f"machine{'' if summary.machine_count == 1 else 's'}, no prices given"


def _title(summary: Summary) -> str:
    """The applications by their names, where they are few, and what they are served at."""
    names = dict.fromkeys([*summary.rates_qps, *(row.app for row in summary.slo), *summary.routing])
    apps = ", ".join(names) if 0 < len(names) <= MOST_NAMES else f"{len(names)} applications"
    served = _serving_words(summary, names=False).partition("serve")[2].removeprefix("s ").removeprefix(" ")
    told = "" if served.startswith(f"{len(summary.rates_qps)} applications") and not summary.hours else served
    return " \u00b7 ".join(filter(None, [apps, told.removeprefix(f"{len(names)} applications over ")]))


def _machines_sentence(summary: Summary) -> str:
    """Which machines; of a day those that are reserved, and the most that run at once."""
    if summary.hours:
        most = f"at most {summary.machine_count} machines run at once."
        held = tuple(_reserved_sentences(summary))
        return " ".join(
            [*held, f"The others are rented by the hour: {most}" if held else f"{most[0].upper()}{most[1:]}"]
        )
    counts: dict[str, int] = {}
    for row in summary.machines:
        if not row.on_same_machines:
            name = _machine_text(row, zones=False)
            counts[name] = counts.get(name, 0) + row.count + row.standby
    listed = [f"{count} {name}" for name, count in counts.items()]
    return f"{_list_words(listed)}." if listed else ""


def _list_words(words: Sequence[str]) -> str:
    """
    >>> _list_words(["3 t4", "4 cpu4", "1 h100"])
    '3 t4, 4 cpu4 and 1 h100'
    """
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def _money_words(summary: Summary) -> str:
    machines = f"{summary.machine_count} machine{'' if summary.machine_count == 1 else 's'}"
    if summary.cost_per_hour is None or summary.cost_per_month is None:
        if not summary.machine_count:
            return "The plan"  # stated candidates take shares of machines that are not counted
        return machines if summary.missing else f"{machines} (no prices given)"
    hour = f"{money(summary.cost_per_hour, summary.currency)}/h"
    if summary.budget_per_hour is not None:
        hour += f" of at most {money(summary.budget_per_hour, summary.currency)}/h"
    if summary.hours:
        hour += " on average"
    return f"{money(summary.cost_per_month, summary.currency)} a month ({hour})"


def _serving_words(summary: Summary, *, names: bool) -> str:
    rates = summary.rates_qps
    during = f" over {summary.length_h:g} hours" if summary.hours and summary.length_h is not None else ""
    if summary.policies:
        count = len(summary.policies)
        low, high = min(low for low, _ in rates.values()), max(high for _, high in rates.values())
        verb = "policy serves" if count == 1 else "policies serve"
        head = "with" if summary.cost_per_hour is None else f"for {summary.machine_count} machines;"
        return f"{head} {count} {verb} {_rate_text((low, high))} queries/s"
    verb = "serve" if summary.cost_per_hour is None and summary.machine_count > 1 else "serves"
    if not rates:
        apps = {row.app for row in summary.slo} | {row.app for row in summary.machines}
        return f"{verb} {summary.served or f'{len(apps)} applications'}"
    if len(rates) == 1:
        return f"{verb} {_rate_text(next(iter(rates.values())))} queries/s{during}"
    if names and not summary.hours:
        return f"{verb} " + ", ".join(f"{app} {_rate_text(rate)}/s" for app, rate in rates.items())
    return f"{verb} {len(rates)} applications{during}"


def _rate_text(rate: tuple[float, float]) -> str:
    return figure(rate[1]) if figure(rate[0]) == figure(rate[1]) else f"{figure(rate[0])} to {figure(rate[1])}"


def _status_sentence(summary: Summary) -> str:
    """The status in a sentence; of a plan that was not made here it is the plan's own word."""
    if not summary.made_here and (wrong := _contradiction(summary)):
        return f"CONTRADICTS ITSELF: {wrong}."
    said = _status_words(summary)
    own = summary.made_here or said.isupper()
    return f"{said}." if own else f"{said}, as the plan states."


def _contradiction(summary: Summary) -> str:
    """Where a plan states more than what it says that no plan can better ("" if nowhere)."""
    for one in summary.bounds:
        is_cost = one.objective == "cost_per_hour" and summary.cost_per_hour is not None
        for value in (summary.cost_per_hour if is_cost else None, one.value):
            if value is None or one.bound is None:
                continue
            beyond = value - one.bound if one.sense == "max" else one.bound - value
            if beyond > BELOW * max(abs(one.bound), abs(value)):
                told = f"{_month(value, summary)} a month" if is_cost else _counted_value(one, value)
                return f"it states {told}, and {_limit_words(summary, one, monthly=True)}"
    return ""


def _status_words(summary: Summary) -> str:
    """The status, and what is known of the SLO: only what was run is said to be met."""
    once = limits_once(summary.slo)
    limits = [rows for rows in once if rows[0].metric != "quality"]
    if summary.status not in ("optimal", "feasible"):
        return summary.status.upper()
    name = summary.status.capitalize()
    for word in ("violated", "undecided"):
        if count := sum(any(row.verdict == word for row in rows) for rows in once):
            head = "" if word == "violated" else f"{name}; "
            return f"{head}{count} of {len(once)} SLO limits {'is' if count == 1 else 'are'} {word}"
    left = sum(any(row.verdict != "met" for row in rows) for rows in limits)
    if limits and not left:
        measured = all(row.basis == "measurement" for rows in limits for row in rows)
        return f"{name}: every SLO is met {'as measured' if measured else 'in simulation'}"
    if summary.is_fluid and left == len(limits):
        return f"{name} at fluid rates; no SLO was simulated"
    how = "simulated in part" if any(_in_part(rows) for rows in limits) else "not simulated"
    return f"{name}; {left} of {len(limits)} SLO limits {'was' if left == 1 else 'were'} {how}" if left else name


def _in_part(rows: Sequence[SloRow]) -> bool:
    return any(row.verdict.startswith("met in") for row in rows)


def _state(summary: Summary) -> str:
    """Whether all limits are met as far as was simulated ("good"), one is missed ("bad"), or one is open ("open").

    A plan that was only read is open at best.
    """
    asked = [row for row in summary.slo if row.limit is not None]
    missed = any(row.verdict == "violated" for row in asked)
    contradicts = not summary.made_here and _contradiction(summary)
    if missed or contradicts or summary.status not in ("optimal", "feasible", "not simulated"):
        return "bad"
    partly = any(row.verdict not in ("met", "by formula" if row.metric == "quality" else "met") for row in asked)
    return "open" if partly or summary.status == "not simulated" or not summary.made_here else "good"


def _axis(summary: Summary) -> Axis | None:
    """The plan between what no plan betters and the simplest way to buy; None where no such bound is known."""
    known = [one for one in summary.bounds if one.bound is not None]
    one = next((one for one in known if one.objective in COSTS), next(iter(known), None))
    if one is None or one.bound is None or summary.policies or not 0.0 < one.value < math.inf:
        return None
    if one.objective not in COSTS:
        if "per_hour" in one.objective:
            return None  # of moving machines: no money that is paid each month
        return Axis(one.sense, (one.value, _counted_value(one, one.value)), (one.bound, _counted_value(one, one.bound)))

    def month(cost: float) -> tuple[float, str]:
        return per_month(cost), money(per_month(cost), summary.currency)

    first = summary.savings[0] if len(summary.savings) > 1 else None
    end = None if first is None or first[1] <= one.value else (month(first[1])[0], f"{first[0]} {month(first[1])[1]}")
    return Axis(one.sense, month(one.value), month(one.bound), end)


def _counted_value(one: Bound, value: float) -> str:
    """A value of an objective that is no money, with what it counts."""
    unit = {"rate_qps": "queries/s", "servers": "machines"}.get(one.objective)
    return f"{figure(value)} {unit}" if unit else f"{one.objective.partition('[')[0].replace('_', ' ')} {figure(value)}"


def _bound_sentences(summary: Summary, *, monthly: bool = False) -> Iterator[str]:
    told = [one for one in summary.bounds if one.bound is not None]
    if summary.policies and len(told) == len(summary.policies) > 1:
        gaps = [one.gap for one in told if one.gap is not None]
        vouched = {_vouched_words(summary, one) for one in told}
        how = vouched.pop() if len(vouched) == 1 else "not all certified"
        within = _gap_text(max(gaps, default=0.0))
        yield f"the goodput of every policy is within {within} of the best in its queue model ({how})."
        return
    if not told:
        yield f"{'Bound: ' * monthly}none is known; a better plan may exist."
    for one in told[:2]:
        yield _bound_sentence(summary, one, monthly=monthly)


def _gap_text(gap: float) -> str:
    return "0%" if gap < 5e-7 else f"{100 * gap:.3g}%"


def _bound_sentence(summary: Summary, one: Bound, *, monthly: bool) -> str:
    assert one.bound is not None
    scope = {
        "problem": "exact",
        "relaxation": "relaxation" if summary.is_fluid else "relaxation without queueing",
        "restriction": "only of the configurations that were measured",
        "model": "in the queue model",
    }.get(one.scope, one.scope)
    vouched = _vouched_words(summary, one)
    gap = "" if one.gap is None else f"  Gap {_gap_text(one.gap)}."
    return f"{_limit_words(summary, one, monthly=monthly)} ({scope}, {vouched}).{gap}"


def _vouched_words(summary: Summary, one: Bound) -> str:
    """Who proved a bound; of a plan that was not made here nobody did here, unless it was proved again."""
    if one.vouched != "none" and summary.proofs is not None:
        word = summary.proofs.get(f"{one.sense} {one.objective}", "not proved here")
        if word != "proved again":
            return word
    elif one.vouched != "none" and not summary.made_here:
        return "not proved here"
    return {"none": "not certified", "claimed": "claimed by the solver"}.get(one.vouched, one.vouched)


def _limit_words(summary: Summary, one: Bound, *, monthly: bool = False) -> str:
    """What no plan betters, as a sentence."""
    bound = one.bound or 0.0
    name = one.objective.partition("[")[0]
    if "per_hour" in name:
        said = f"{money(bound, summary.currency)}/h"
        what = {"gross_cost_per_hour": "with loading", "net_cost_per_hour": "for new machines"}.get(name)
        if what is None and summary.cost_per_hour is None and not summary.missing:
            return f"at least {(least := _whole_machines(bound))} machine{'s' * (least > 1)}"
        if what is None:
            return f"no plan costs less than {_month(bound, summary) + ' a month' if monthly else said}"
        return f"at least {said} {what}, of this plan {money(one.value, summary.currency)}/h"
    if name == "rate_qps":
        return f"no plan serves more than {figure(bound)} queries/s"
    if name == "servers":
        return f"at least {_whole_machines(bound)} machines"
    return f"{name.replace('_', ' ')} {figure(bound)} {'at most' if one.sense == 'max' else 'at least'}"


def _whole_machines(bound: float) -> int:
    """Machines are whole: no fewer than this many.

    >>> _whole_machines(15.84), _whole_machines(16.0000001)
    (16, 16)
    """
    whole = round(bound)
    return whole if abs(bound - whole) < 1e-6 else int(bound) + 1


# Tables


def _slo_table(summary: Summary) -> Table:
    rows = summary.slo
    if worst := [one for row in rows for one in row.worst]:
        failing = any(one.failure for one in worst)
        head = f"{'no failure' if failing else 'simulated'}{' (worst hour)' * any(one.hours for one in worst)}"
        columns = ("application", "metric", "limit", head, *["worst failure"] * failing, "verdict")
        return Table("SLO", columns, tuple(_slo_cells_of_hours(row, failing=failing) for row in rows), (2,))
    seen = {row.basis for row in rows} & {"simulation", "measurement"}
    heads = {"simulation": f"simulated ({_interval_words(rows)})", "measurement": "measured (interval)"}
    head = heads[seen.pop()] if len(seen) == 1 else "simulated or measured (interval)" if seen else "simulated"
    cells = tuple((row.app, row.metric, _limit_text(row), _result_text(row), row.verdict) for row in rows)
    return Table("SLO", ("application", "metric", "limit", head, "verdict"), cells, (2,))


def _interval_words(rows: Sequence[SloRow]) -> str:
    """How sure the intervals are, of both ends: a plan that was confirmed late in a search had to be surer of each."""
    known = [row.confidence for row in rows if row.interval is not None and row.limit is not None]
    levels = {0.95 if one is None else 2.0 * one - 1.0 for one in known} or {0.95}
    low, high = (f"{100 * one:.3g}" for one in (min(levels), max(levels)))
    return f"{low}% interval" if low == high else f"{low} to {high}% intervals"


def _limit_text(row: SloRow) -> str:
    if row.limit is None:
        return row.relation
    unit = "" if row.unit == "queries/s" else row.unit
    return f"{row.relation} {_value_text(row.limit, unit)}".strip()


def _result_text(row: SloRow) -> str:
    if row.interval is not None:
        text = _interval_text(row.interval, row.unit)
    elif row.value is not None:
        text = _value_text(row.value, row.unit)
    else:
        return row.note
    return f"{text} {row.note}" if row.note else text


def _slo_cells_of_hours(row: SloRow, *, failing: bool) -> tuple[str, ...]:
    cells: dict[bool, str] = {}
    for one in row.worst:
        when = ", ".join(filter(None, [one.failure, one.hours]))
        cells[bool(one.failure)] = _worst_text(row, one.interval) + (f" ({when})" if when else "")
    told = (cells.get(False, row.note if row.worst else _result_text(row)), *[cells.get(True, "")] * failing)
    return (row.app, row.metric, _limit_text(row), *told, row.verdict)


def _worst_text(row: SloRow, interval: tuple[float, float]) -> str:
    """The end of an interval that is nearer to the limit."""
    return _value_text(interval[1] if row.relation == "<=" else interval[0], row.unit)


def runs_tables(summary: Summary) -> list[Table]:
    """Which model runs on which machine for which application; where that changes, by the hour and in all."""
    return [*[_hours_table(summary)] * bool(summary.hours), _machine_table(summary)]


def _machine_table(summary: Summary) -> Table:
    rows = summary.machines
    zones = len({row.zone for row in rows}) > 1
    same = [row.on_same_machines for row in rows]  # blank is as above
    names = ["" if again else _machine_text(row, zones=zones) for row, again in zip(rows, same, strict=True)]
    columns: list[tuple[str, bool, list[str]]] = [("machine", False, names)]
    hosts = any(row.host for row in rows)
    if hosts:
        columns.append(("host", False, ["" if row.on_same_machines else row.host for row in rows]))
    standby = any(row.standby for row in rows)
    if not hosts or any(row.count > 1 for row in rows):
        counts = [_count_text(row) for row in rows]
        counts = ["" if again else count for count, again in zip(counts, same, strict=True)]
        columns.append(("count + standby" if standby else "count", True, counts))
    if hosts or any(row.replicas > 1 for row in rows):
        columns.append(("replicas", True, [str(row.replicas) for row in rows]))
    if any(row.stage for row in rows):
        columns.append(("stage", False, [row.stage for row in rows]))
    columns.append(("model", False, [row.model or "-" for row in rows]))
    columns.append(
        ("application", False, [row.app or "(nobody)" if row.least is not None else row.app for row in rows])
    )
    if any(row.chunk is not None for row in rows):
        columns.append(("chunk", True, ["" if row.chunk is None else str(row.chunk) for row in rows]))
    elif any(row.batch > 1 for row in rows):
        columns.append(("batch", True, [str(row.batch) for row in rows]))
    if any(row.gpu is not None for row in rows):
        columns.append(("share of a GPU", True, ["" if row.gpu is None else figure(row.gpu) for row in rows]))
    if all(row.share for row in rows) and any(row.share != 1.0 for row in rows):
        columns.append(("share", True, [_whole_percent(row.share) for row in rows]))
    if any(row.utilization is not None for row in rows):
        columns.append(("utilization", True, [_whole_percent(row.utilization) for row in rows]))
    if any(row.cost_per_month is not None for row in rows):
        sign = SIGNS.get(summary.currency or "", summary.currency or "money")
        cells = ["" if row.cost_per_month is None else f"{row.cost_per_month:,.0f}" for row in rows]
        columns.append((f"{sign}/month", True, cells))
    right = tuple(place for place, (_, is_right, _) in enumerate(columns) if is_right)
    of_rows = tuple(zip(*(cells for _, _, cells in columns), strict=True))
    return Table("Machines", tuple(head for head, _, _ in columns), of_rows, right)


def _count_text(row: MachineRow) -> str:
    """The machines of a row: the fewest and the most of them, or those that serve and those that stand by."""
    if row.least is not None and row.least != row.count:
        return f"{row.least}-{row.count}"
    return f"{row.count} + {row.standby}" if row.standby else str(row.count)


def _machine_text(row: MachineRow, *, zones: bool) -> str:
    return " ".join(filter(None, [row.machine, row.purchase, row.zone if zones else ""]))


def _reserved_sentences(summary: Summary) -> Iterator[str]:
    by_term: dict[float, list[str]] = {}
    for one in summary.reserved:
        by_term.setdefault(one.days, []).append(f"{one.count} {one.machine}")
    for days, listed in by_term.items():
        yield f"Reserve for {days:g} days: {', '.join(listed)}."


def _hours_table(summary: Summary) -> Table:
    apps = list(dict.fromkeys(app for row in summary.hours for app in row.apps))
    one_model = {app: len(summary.models.get(app, ())) == 1 for app in apps}
    heads = [f"{app} ({summary.models[app][0]})" if one_model[app] else app for app in apps]
    spot = any(row.spot for row in summary.hours)
    cost = any(row.cost_per_hour is not None for row in summary.hours)
    sign = SIGNS.get(summary.currency or "", summary.currency or "money")
    columns = ("hours", *heads, *["spot"] * spot, *[f"{sign}/h"] * cost)
    cells = tuple(
        (
            row.hours,
            *(_groups_text(row.apps.get(app, ()), models=not one_model[app]) for app in apps),
            *[_whole_percent(row.spot)] * spot,
            *[f"{row.cost_per_hour or 0.0:.2f}"] * cost,
        )
        for row in summary.hours
    )
    return Table("Hours", columns, cells, tuple(range(1 + len(apps), len(columns))))


def _groups_text(groups: Sequence[Group], *, models: bool) -> str:
    """Machines of an application: those by the hour or reserved, then "+" those that may be taken back."""
    plain = [one for one in groups if not one.purchase]
    spot = [one for one in groups if one.purchase]
    known = {one.machine for one in plain}

    def words(one: Group) -> str:
        alone = one.purchase and known == {one.machine} and not models
        parts = [str(one.count), "" if alone else one.machine, one.purchase, one.model if models else ""]
        return " ".join(filter(None, [*parts, "(shared)" if one.shared else "", "" if one.model else "(no model)"]))

    return " + ".join(filter(None, [", ".join(map(words, plain)), ", ".join(map(words, spot))])) or "-"


def _policy_table(summary: Summary) -> Table:
    columns = ("application", "rate /s", "goodput", "bound", "violations", "utilization")
    cells = []
    for row in summary.policies:
        shares = ["" if one is None else f"{one:.4f}" for one in (row.goodput, row.bound)]
        late = "" if row.violation_rate is None else f"{100 * row.violation_rate:.2f}%"
        cells.append((row.app, figure(row.rate_qps), *shares, late, _whole_percent(row.utilization)))
    return Table("Policies", columns, tuple(cells), (1, 2, 3, 4, 5))


def _limit(summary: Summary, row: SloRow) -> Limit:
    """A limit with the models and machines that have to meet it."""
    mine = [one for one in summary.machines if row.app in one.app.split(", ")]
    models = dict.fromkeys(model for one in mine for model in one.model.split(", ") if model)
    machines = dict.fromkeys(one.machine for one in mine)
    about = [_few(list(models)), f"on {_few(list(machines))}" if machines else ""]
    notes = [row.note] * bool(row.note)
    notes += [f"worst at {one.hours}" for one in row.worst if one.hours and not one.failure]
    low, high = row.interval or (row.value, row.value)
    return Limit(
        app=row.app, metric=row.metric, about=" ".join(filter(None, about)), asked=_limit_text(row),
        found=_result_text(replace(row, note="")), verdict=row.verdict, relation=row.relation, limit=row.limit,
        low=low, high=high, notes=tuple(notes),
    )  # fmt: skip


def _budget(summary: Summary) -> Iterator[Limit]:
    cost, most = summary.cost_per_hour, summary.budget_per_hour
    if cost is not None and most is not None:
        kept = "not verified" if summary.status == "not verified" else "met"  # what is wrong elsewhere meets no limit
        verdict = kept if cost <= most * (1.0 + BELOW) else "violated"
        asked, found = (f"{money(one, summary.currency)}/h" for one in (most, cost))
        yield Limit("money", "an hour", "", f"<= {asked}", found, verdict, "<=", most, cost, cost)


def _few(names: Sequence[str]) -> str:
    return _list_words(names) if len(names) <= MOST_NAMES else f"{len(names)} kinds"


def _ways(summary: Summary) -> Iterator[Bar]:
    """Each way to buy, with what it saves beside the one before."""
    before: float | None = None
    for place, (name, cost) in enumerate(summary.savings if len(summary.savings) > 1 else ()):
        saved = 0.0 if before is None else before - cost
        about = "" if before is None else f"saves {_month(saved, summary)}" if saved > 0.0 else "saves nothing"
        last = place == len(summary.savings) - 1
        named = f"{name}: this plan" if last else name
        yield Bar(named, per_month(cost), _month(cost, summary), "ahead" if last else "bar", about)
        before = cost


def _month(cost: float, summary: Summary) -> str:
    return money(per_month(cost), summary.currency)


def _cautions(summary: Summary) -> Iterator[str]:
    """What may hurt whoever buys: what is not served, money for nothing, machines that may go, then warnings."""
    yield from (f"Not served: {one}." for one in summary.unserved)
    if summary.cost_of_idle:
        yield f"{_month(summary.cost_of_idle, summary)} a month is paid for reserved machines while they are idle."
    yield from (f"{one[0].upper()}{one[1:]}." for one in summary.interruptions)
    for _, count, text in summary.warnings:
        yield f"{text.removesuffix('.')}{f' ({count} times)' if count > 1 else ''}."


def _costs(summary: Summary) -> Iterator[Bar]:
    """Of machines in the order and colours of their types, else of applications."""
    rows = () if summary.hours else summary.machines
    types = list(dict.fromkeys(row.machine for row in rows))
    for row in rows:
        if row.cost_per_month:
            of = _machine_text(row, zones=True)
            colour = colour_class(types.index(row.machine), spot=row.purchase == "spot")
            yield _bar(f"{row.count + row.standby} x {of}", row.cost_per_month, summary, colour)
    if summary.hours:
        parts = [*summary.cost_of_apps.items(), ("idle reserved machines", summary.cost_of_idle)]
        for place, (name, cost) in enumerate([*parts, ("starting", summary.cost_of_starts)]):
            if cost:
                yield _bar(name, per_month(cost), summary, colour_class(place))


def _bar(label: str, month: float, summary: Summary, colour: str) -> Bar:
    return Bar(label, month, whole_money(month, summary.currency), colour)


# Lines with a label


def _labeled_lines(summary: Summary) -> Iterator[tuple[str, tuple[str, ...]]]:
    if summary.cost_of_apps:
        yield "Money", tuple(_money_of_apps(summary))
    if len(summary.savings) > 1:
        yield "Saved", (_savings_words(summary),)
    yield "Routing", tuple(_routing_sentences(summary))
    yield "Failures", (_failure_words(summary),)
    if summary.limits:
        full = all(count == most for _, count, most in summary.limits)
        used = ", ".join(f"{machine} {count} of {most}" for machine, count, most in summary.limits)
        yield "Limits", (f"{used}{': all in use' if full else ''}",)
    if summary.marginal:
        unit = summary.marginal[0][2]
        listed = "; ".join(f"one more {of}: +{figure(brings)}" for of, brings, _ in summary.marginal[:3])
        yield "Marginal", (f"{listed} {unit} (without queueing)",)
    if summary.changes:
        yield "Changes", (", ".join(f"{count} {do}" for do, count in summary.changes.items()),)
    yield "Unserved", summary.unserved
    yield "Warnings", tuple(_warning_sentences(summary)) or ("none",)


def _warning_sentences(summary: Summary) -> Iterator[str]:
    for code, count, text in summary.warnings:
        yield f"{code}{f' ({count})' if count > 1 else ''}: {text}"


def _money_of_apps(summary: Summary) -> Iterator[str]:
    """Of each application its money a month, by models and machines where they change by the hour."""

    def month(cost: float) -> str:
        return whole_money(per_month(cost), summary.currency)

    alone: list[str] = []
    for app, cost in summary.cost_of_apps.items():
        by_model: dict[str, list[str]] = {}
        for row in summary.machines if summary.hours else ():
            if row.app == app and row.cost_per_month is not None:
                part = f"{_machine_text(row, zones=False)} {whole_money(row.cost_per_month, summary.currency)}"
                by_model.setdefault(row.model or "no model", []).append(part)
        listed = "; ".join(f"{model} on {', '.join(parts)}" for model, parts in by_model.items())
        if listed:
            yield f"{app} {month(cost)} a month: {listed}"
        else:
            alone.append(f"{app} {month(cost)}")
    if summary.cost_of_idle:
        alone.append(f"idle reserved machines {month(summary.cost_of_idle)}")
    if alone:
        yield f"{', '.join(alone)} a month"


def _savings_words(summary: Summary) -> str:
    (first, most), (_, least) = summary.savings[0], summary.savings[-1]
    steps = [
        f"{name} {whole_money(per_month(before - cost), summary.currency)}"
        for (_, before), (name, cost) in pairwise(summary.savings)
        if before - cost > 0.0
    ]
    total, whole = (whole_money(per_month(one), summary.currency) for one in (most - least, most))
    return f"{total} a month against {first} ({whole})" + (f": {', '.join(steps)}" if steps else "")


def _routing_sentences(summary: Summary) -> list[str]:
    alike: dict[str, list[str]] = {}
    for app, text in summary.routing.items():
        alike.setdefault(text, []).append(app)
    return [f"{', '.join(apps)}: {text}" if len(summary.routing) > 1 else text for text, apps in alike.items()]


def _failure_words(summary: Summary) -> str:
    if not summary.failures:
        return "; ".join(["none planned for", *summary.interruptions[:1]])
    share = "" if summary.survivors is None else f": at least {_percent(summary.survivors)} of each rate is served"
    return f"{', '.join(summary.failures)}{share}"
