"""The summary of a plan as at most 30 lines of text: what a person checks comes first.

Money per month, what is served, status; bound and gap; SLO; machines or hours; failures; warnings; what was checked.
Every figure is the summary's: this file chooses words, digits and columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hetplan.cli.output import Page
    from hetplan.planner.summary_records import Bound, Group, MachineRow, SloRow, Summary

__all__ = ["Closing", "figure", "groups_text", "show_summary", "summary_lines"]

WIDTH = 120
"""Letters of a line; tables of more columns than fit drop what a plan's other views have."""
MOST_ROWS = {"slo": 10, "machines": 8, "policies": 5, "hours": 6, "routing": 2, "warnings": 2}
"""The most rows of each part."""
MOST_LINES = 28
"""With the line on what to do next, and an empty one, a summary has at most 30."""
SHRINKING = ("slo", "machines", "hours", "policies")
"""The parts of which fewer rows are shown where there would be more lines."""
LABEL = 11
TABLES = ("SLO", "Machines", "Hours", "Policies")
"""How the titles of tables begin."""
LONGEST_NAME = 20
"""A plan with a longer name is called PLAN in the commands that are advised."""
SIGNS = {"USD": "$", "EUR": "€", "GBP": "£"}
Table = list[list[str]]


class Closing:
    """What stands below a summary: what was checked, in words, and where the plan's other views are."""

    def __init__(self, checked: tuple[str, str], plan: str = "PLAN") -> None:
        self.checked = checked
        self.plan = plan if len(plan) <= LONGEST_NAME else "PLAN"

    def more(self, count: int | str, view: str) -> str:
        """Where the rest is."""
        return f"{count} more: hetplan show {self.plan} --view {view}"


def show_summary(summary: Summary, page: Page, closing: Closing) -> None:
    """Write the summary to the page."""
    for line in summary_lines(summary, closing):
        if line.split(" ")[0] in TABLES:
            page.columns(line)
        else:
            page.line(line)


def summary_lines(summary: Summary, closing: Closing) -> list[str]:
    """The summary, line by line; empty lines part its tables."""
    most = dict(MOST_ROWS)
    lines = _lines_of_at_most(summary, closing, most)
    while len(lines) > MOST_LINES and (longest := max(SHRINKING, key=lambda part: most[part])) and most[longest] > 2:
        most[longest] -= 1
        lines = _lines_of_at_most(summary, closing, most)
    return lines


def _lines_of_at_most(summary: Summary, closing: Closing, most: Mapping[str, int]) -> list[str]:
    """The summary with at most so many rows of each part."""
    runs = (
        _hours_table(summary, closing, most["hours"])
        if summary.hours
        else _machine_table(summary, closing, most["machines"])
    )
    blocks = [
        [*_head_lines(summary), *_bound_lines(summary)],
        _slo_table(summary, closing, most["slo"]),
        [*_reserve_lines(summary), *runs],
        _policy_table(summary, closing, most["policies"]),
        [_clip(f"{label:<{LABEL}}{text}") for label, text in _labeled_lines(summary, closing)],
    ]
    lines: list[str] = []
    for block in blocks:
        if block:
            lines += ["", *block] if lines else block
    return lines


def _clip(line: str) -> str:
    return line if len(line) <= WIDTH else f"{line[: WIDTH - 3].rstrip()}..."


# Figures


def figure(value: float) -> str:
    """A figure with three digits; thousands are whole and have commas.

    >>> figure(57.8937), figure(2102.4), figure(0.97685), figure(633.1), figure(60.0), figure(0.00001)
    ('57.9', '2,102', '0.977', '633', '60', '1e-05')
    """
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def money(value: float, currency: str | None) -> str:
    """Money; below 1,000 with cents.

    >>> money(2102.4, "USD"), money(2.88, "USD"), money(1.5, "CHF"), money(3.0, None)
    ('$2,102', '$2.88', 'CHF 1.50', '3.00')
    """
    sign = "" if currency is None else SIGNS.get(currency, f"{currency} ")
    return f"{sign}{value:,.0f}" if abs(value) >= 100 else f"{sign}{value:.2f}"


def whole_money(value: float, currency: str | None) -> str:
    """Money without cents."""
    return f"{'' if currency is None else SIGNS.get(currency, f'{currency} ')}{value:,.0f}"


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


def _head_lines(summary: Summary) -> list[str]:
    """Money, what is served, status; two lines where one does not hold them."""
    what, status = f"{_money_words(summary)} {_serving_words(summary)}.", _status_sentence(summary)
    if len(what) > WIDTH:
        what = f"{_money_words(summary)} {_serving_words(summary, names=False)}."
    whole = f"{what}  {status}"
    return [whole] if len(whole) <= WIDTH else [_clip(what), status]


def _money_words(summary: Summary) -> str:
    machines = f"{summary.machine_count} machine{'' if summary.machine_count == 1 else 's'}"
    if summary.per_hour is None or summary.per_month is None:
        if not summary.machine_count:
            return "The plan"  # stated candidates take shares of machines that are not counted
        return machines if summary.missing else f"{machines} (no prices given)"
    hour = f"{money(summary.per_hour, summary.currency)}/h"
    if summary.budget_per_hour is not None:
        hour += f" of at most {money(summary.budget_per_hour, summary.currency)}/h"
    if summary.hours:
        hour += " on average"
    return f"{money(summary.per_month, summary.currency)} a month ({hour})"


def _serving_words(summary: Summary, *, names: bool = True) -> str:
    rates = summary.rates_qps
    during = f" over {summary.length_h:g} hours" if summary.hours and summary.length_h is not None else ""
    if summary.policies:
        count = len(summary.policies)
        low, high = min(low for low, _ in rates.values()), max(high for _, high in rates.values())
        verb = "policy serves" if count == 1 else "policies serve"
        head = "with" if summary.per_hour is None else f"for {summary.machine_count} machines;"
        return f"{head} {count} {verb} {_rate_text((low, high))} queries/s"
    verb = "serve" if summary.per_hour is None and summary.machine_count > 1 else "serves"
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
    said = _status_words(summary)
    return f"{said}." if summary.made_here else f"{said}, as the plan states."


def _status_words(summary: Summary) -> str:
    """The status, and what is known of the SLO: only what was run is said to be met."""
    limits = [row for row in summary.slo if row.limit is not None and row.metric != "quality"]
    words = [row.word for row in summary.slo if row.limit is not None]
    if summary.status not in ("optimal", "feasible"):
        return summary.status.upper()
    name = summary.status.capitalize()
    for word in ("violated", "undecided"):
        if count := words.count(word):
            head = "" if word == "violated" else f"{name}; "
            return f"{head}{count} of {len(words)} SLO limits {'is' if count == 1 else 'are'} {word}"
    left = sum(row.word != "met" for row in limits)
    if limits and not left:
        measured = all(row.basis == "measurement" for row in limits)
        return f"{name}: every SLO is met {'as measured' if measured else 'in simulation'}"
    if summary.is_fluid and left == len(limits):
        return f"{name} at fluid rates; no SLO was simulated"
    how = "simulated in part" if any(row.word.startswith("met in") for row in limits) else "not simulated"
    return f"{name}; {left} of {len(limits)} SLO limits {'was' if left == 1 else 'were'} {how}" if left else name


def _bound_lines(summary: Summary) -> Iterator[str]:
    told = [one for one in summary.bounds if one.bound is not None]
    if summary.policies and len(told) == len(summary.policies) > 1:
        gaps = [one.gap for one in told if one.gap is not None]
        vouched = {one.vouched for one in told}
        how = vouched.pop() if len(vouched) == 1 else "not all certified"
        within = _gap_text(max(gaps, default=0.0))
        yield f"Bound: the goodput of every policy is within {within} of the best in its queue model ({how})."
        return
    if not told:
        yield "Bound: none is known; a better plan may exist."
        return
    sentences = [_bound_sentence(summary, one) for one in told[:2]]
    whole = "  ".join(sentences)
    yield from [f"Bound: {whole}"] if len(whole) < WIDTH - 6 else [_clip(f"Bound: {one}") for one in sentences]


def _gap_text(gap: float) -> str:
    return "0%" if gap < 5e-7 else f"{100 * gap:.3g}%"


def _bound_sentence(summary: Summary, one: Bound) -> str:
    assert one.bound is not None
    scope = {
        "problem": "exact",
        "relaxation": "relaxation" if summary.is_fluid else "relaxation without queueing",
        "restriction": "only of the configurations that were measured",
        "model": "in the queue model",
    }.get(one.scope, one.scope)
    vouched = {"none": "not certified", "claimed": "claimed by the solver"}.get(one.vouched, one.vouched)
    gap = "" if one.gap is None else f"  Gap {_gap_text(one.gap)}."
    return f"{_limit_words(summary, one)} ({scope}, {vouched}).{gap}"


def _limit_words(summary: Summary, one: Bound) -> str:
    """What no plan betters, as a sentence."""
    bound = one.bound or 0.0
    name = one.objective.partition("[")[0]
    if "per_hour" in name:
        said = f"{money(bound, summary.currency)}/h"
        what = {"gross_cost_per_hour": "with loading", "net_cost_per_hour": "for new machines"}.get(name)
        if what is None:
            return f"no plan costs less than {said}"
        return f"at least {said} {what}, of this plan {money(one.value, summary.currency)}/h"
    if name == "rate_qps":
        return f"no plan serves more than {figure(bound)} queries/s"
    if name == "servers":
        return f"at least {_ceiling(bound)} machines"
    return f"{name.replace('_', ' ')} {figure(bound)} {'at most' if one.sense == 'max' else 'at least'}"


def _ceiling(bound: float) -> int:
    """Machines are whole: no fewer than this many.

    >>> _ceiling(15.84), _ceiling(16.0000001)
    (16, 16)
    """
    whole = round(bound)
    return whole if abs(bound - whole) < 1e-6 else int(bound) + 1


# Tables


def _align(table: Table, right: Iterable[int]) -> list[str]:
    """Columns two spaces apart, those of figures to the right."""
    to_right = set(right)
    widths = [max(len(row[place]) for row in table) for place in range(len(table[0]))]
    return [
        _clip(
            "  ".join(
                cell.rjust(width) if place in to_right else cell.ljust(width)
                for place, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
        )
        for row in table
    ]


def _slo_table(summary: Summary, closing: Closing, most: int) -> list[str]:
    rows = summary.slo
    if not rows:
        return []
    if any(row.worst for row in rows):
        return _slo_table_of_hours(summary, closing, most)
    seen = {row.basis for row in rows} & {"simulation", "measurement"}
    heads = {"simulation": "simulated (95% interval)", "measurement": "measured (interval)"}
    head = heads[seen.pop()] if len(seen) == 1 else "simulated or measured (interval)" if seen else "simulated"
    table = [["SLO", "", "limit", head, ""]]
    shown = rows[:most]
    for app, row in _rows_by_app(shown):
        table.append([app, row.metric, _limit_text(row), _result_text(row), row.word])
    lines = _align(table, (2,))
    return [*lines, closing.more(len(rows) - len(shown), "proof")] if len(rows) > len(shown) else lines


def _rows_by_app(rows: Iterable[SloRow]) -> Iterator[tuple[str, SloRow]]:
    """Each row with its application, which is written once."""
    before = None
    for row in rows:
        yield "" if row.app == before else row.app, row
        before = row.app


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


def _slo_table_of_hours(summary: Summary, closing: Closing, most: int) -> list[str]:
    table = [["SLO", "", "limit", "no failure (worst hour)", "worst failure", ""]]
    shown = summary.slo[:most]
    for app, row in _rows_by_app(shown):
        cells = {
            bool(one.failure): f"{_worst_text(row, one.interval)} ({', '.join(filter(None, [one.failure, one.hours]))})"
            for one in row.worst
        }
        told = [cells.get(False, row.note if row.worst else _result_text(row)), cells.get(True, "")]
        table.append([app, row.metric, _limit_text(row), *told, row.word])
    lines = _align(table, (2,))
    return [*lines, closing.more(len(summary.slo) - len(shown), "proof")] if len(summary.slo) > len(shown) else lines


def _worst_text(row: SloRow, interval: tuple[float, float]) -> str:
    """The end of an interval that is nearer to the limit."""
    return _value_text(interval[1] if row.relation == "<=" else interval[0], row.unit)


def _machine_table(summary: Summary, closing: Closing, most: int) -> list[str]:
    rows = summary.machines
    if not rows:
        return ["Machines   none"]
    shown = rows[:most]
    zones = len({row.zone for row in rows}) > 1
    same = [row.on_same_machines for row in shown]  # blank is as above
    names = ["" if again else _machine_text(row, zones=zones) for row, again in zip(shown, same, strict=True)]
    columns: list[tuple[str, bool, list[str]]] = [("Machines", False, names)]
    hosts = any(row.host for row in rows)
    if hosts:
        columns.append(("host", False, ["" if row.on_same_machines else row.host for row in shown]))
    standby = any(row.standby for row in rows)
    if not hosts or any(row.count > 1 for row in rows):
        counts = [f"{row.count} + {row.standby}" if row.standby else str(row.count) for row in shown]
        counts = ["" if again else count for count, again in zip(counts, same, strict=True)]
        columns.append(("count + standby" if standby else "count", True, counts))
    if hosts or any(row.replicas > 1 for row in rows):
        columns.append(("replicas", True, [str(row.replicas) for row in shown]))
    if any(row.stage for row in rows):
        columns.append(("stage", False, [row.stage for row in shown]))
    columns.append(("model", False, [row.model or "-" for row in shown]))
    columns.append(("application", False, [row.app for row in shown]))
    if any(row.chunk is not None for row in rows):
        columns.append(("chunk", True, ["" if row.chunk is None else str(row.chunk) for row in shown]))
    elif any(row.batch > 1 for row in rows):
        columns.append(("batch", True, [str(row.batch) for row in shown]))
    if any(row.gpu is not None for row in rows):
        columns.append(("share of a GPU", True, ["" if row.gpu is None else figure(row.gpu) for row in shown]))
    if all(row.share for row in rows) and any(row.share != 1.0 for row in rows):
        columns.append(("share", True, [_whole_percent(row.share) for row in shown]))
    if any(row.utilization is not None for row in rows):
        columns.append(("utilization", True, [_whole_percent(row.utilization) for row in shown]))
    if any(row.per_month is not None for row in rows):
        sign = SIGNS.get(summary.currency or "", summary.currency or "money")
        cells = ["" if row.per_month is None else f"{row.per_month:,.0f}" for row in shown]
        columns.append((f"{sign}/month", True, cells))
    table = [[head for head, _, _ in columns], *map(list, zip(*(cells for _, _, cells in columns), strict=True))]
    lines = _align(table, [place for place, (_, right, _) in enumerate(columns) if right])
    return [*lines, closing.more(len(rows) - len(shown), "machines")] if len(rows) > len(shown) else lines


def _machine_text(row: MachineRow, *, zones: bool) -> str:
    return " ".join(filter(None, [row.machine, row.purchase, row.zone if zones else ""]))


def _reserve_lines(summary: Summary) -> list[str]:
    by_term: dict[float, list[str]] = {}
    for one in summary.reserved:
        by_term.setdefault(one.days, []).append(f"{one.count} {one.machine}")
    return [_clip(f"Reserve for {days:g} days: {', '.join(listed)}.") for days, listed in by_term.items()]


def _hours_table(summary: Summary, closing: Closing, most: int) -> list[str]:
    shown = summary.hours[:most]
    apps = list(dict.fromkeys(app for row in summary.hours for app in row.apps))
    one_model = {app: len(summary.models.get(app, ())) == 1 for app in apps}
    heads = [f"{app} ({summary.models[app][0]})" if one_model[app] else app for app in apps]
    spot = any(row.spot for row in summary.hours)
    cost = any(row.per_hour is not None for row in summary.hours)
    sign = SIGNS.get(summary.currency or "", summary.currency or "money")
    tail = [["spot"] * spot + [f"{sign}/h"] * cost]
    tail += [[_whole_percent(row.spot)] * spot + [f"{row.per_hour or 0.0:.2f}"] * cost for row in shown]
    table = [["Hours", *heads]]
    table += [
        [row.hours, *(groups_text(row.apps.get(app, ()), models=not one_model[app]) for app in apps)] for row in shown
    ]
    fit = len(apps)
    while fit > 1 and _width([[*row[: 1 + fit], *ends] for row, ends in zip(table, tail, strict=True)]) > WIDTH:
        fit -= 1
    lines = _align([[*row[: 1 + fit], *ends] for row, ends in zip(table, tail, strict=True)], range(1 + fit, 3 + fit))
    left = [f"{len(apps) - fit} applications"] * (fit < len(apps)) + [f"{len(summary.hours) - len(shown)} rows"] * (
        len(shown) < len(summary.hours)
    )
    return [*lines, closing.more(" and ".join(left), "hours")] if left else lines


def _width(table: Table) -> int:
    """Of the longest line of a table."""
    return sum(max(len(row[place]) for row in table) + 2 for place in range(len(table[0]))) - 2


def groups_text(groups: Sequence[Group], *, models: bool) -> str:
    """Machines of an application: those by the hour or reserved, then "+" those that may be taken back."""
    plain = [one for one in groups if not one.purchase]
    spot = [one for one in groups if one.purchase]
    known = {one.machine for one in plain}

    def words(one: Group) -> str:
        alone = one.purchase and known == {one.machine} and not models
        parts = [str(one.count), "" if alone else one.machine, one.purchase, one.model if models else ""]
        return " ".join(filter(None, [*parts, "(shared)" if one.shared else "", "" if one.model else "(no model)"]))

    return " + ".join(filter(None, [", ".join(map(words, plain)), ", ".join(map(words, spot))])) or "-"


def _policy_table(summary: Summary, closing: Closing, most: int) -> list[str]:
    rows = summary.policies
    if not rows:
        return []
    count = min(most, len(rows))
    places = [round(n * (len(rows) - 1) / max(count - 1, 1)) for n in range(count)]
    several = len({row.app for row in rows}) > 1
    table = [["Policies", *["application"] * several, "rate /s", "goodput", "bound", "violations", "utilization"]]
    for row in (rows[place] for place in places):
        cells = ["" if one is None else f"{one:.4f}" for one in (row.goodput, row.bound)]
        late = "" if row.violation_rate is None else f"{100 * row.violation_rate:.2f}%"
        table.append(["", *[row.app] * several, figure(row.rate_qps), *cells, late, _whole_percent(row.utilization)])
    lines = _align(table, range(1 + several, len(table[0])))
    rest = len(rows) - len(table) + 1
    return [*lines, " " * LABEL + closing.more(rest, "policies")] if rest else lines


# Lines with a label


def _labeled_lines(summary: Summary, closing: Closing) -> Iterator[tuple[str, str]]:
    if summary.cost_of_apps:
        yield "Money", _money_of_apps(summary)
    if len(summary.savings) > 1:
        yield "Saved", _savings_words(summary)
    yield from _routing_lines(summary, closing)
    yield "Failures", _failure_words(summary)
    if summary.limits:
        full = all(count == most for _, count, most in summary.limits)
        used = ", ".join(f"{machine} {count} of {most}" for machine, count, most in summary.limits)
        yield "Limits", f"{used}{': all in use' if full else ''}"
    if summary.marginal:
        unit = summary.marginal[0][2]
        listed = "; ".join(f"one more {of}: +{figure(brings)}" for of, brings, _ in summary.marginal[:3])
        yield "Marginal", f"{listed} {unit} (without queueing)"
    if summary.changes:
        yield "Changes", ", ".join(f"{count} {do}" for do, count in summary.changes.items())
    for one in summary.unserved[:2]:
        yield "Unserved", one
    yield from _warning_lines(summary, closing)
    yield closing.checked
    if summary.missing:
        yield "Missing", f"{', '.join(summary.missing)}: hetplan show {closing.plan} PROFILE SLO"


def _money_of_apps(summary: Summary) -> str:
    from hetplan.profiles.fields import HOURS_A_MONTH

    def month(cost: float) -> str:
        return whole_money(HOURS_A_MONTH * cost, summary.currency)

    apps = ", ".join(f"{app} {month(cost)}" for app, cost in summary.cost_of_apps.items())
    idle, starts = month(summary.cost_of_idle), month(summary.cost_of_starts)
    return f"{apps} a month; idle reserved machines {idle}; starting {starts}"


def _savings_words(summary: Summary) -> str:
    from hetplan.profiles.fields import HOURS_A_MONTH

    (first, most), (_, least) = summary.savings[0], summary.savings[-1]
    steps = [
        f"{name} {whole_money(HOURS_A_MONTH * (before - cost), summary.currency)}"
        for (_, before), (name, cost) in pairwise(summary.savings)
        if before - cost > 0.0
    ]
    total, whole = (whole_money(HOURS_A_MONTH * one, summary.currency) for one in (most - least, most))
    return f"{total} a month against {first} ({whole})" + (f": {', '.join(steps)}" if steps else "")


def _routing_lines(summary: Summary, closing: Closing) -> Iterator[tuple[str, str]]:
    alike: dict[str, list[str]] = {}
    for app, text in summary.routing.items():
        alike.setdefault(text, []).append(app)
    lines = [f"{', '.join(apps)}: {text}" if len(summary.routing) > 1 else text for text, apps in alike.items()]
    if len(joined := "; ".join(lines)) <= WIDTH - LABEL:
        lines = [joined] if lines else []
    shown = lines[: MOST_ROWS["routing"]]
    for place, line in enumerate(shown):
        yield "" if place else "Routing", line
    if len(lines) > len(shown):
        yield "", closing.more(len(lines) - len(shown), "routes")


def _failure_words(summary: Summary) -> str:
    if not summary.failures:
        return "; ".join(["none planned for", *summary.interruptions[:1]])
    share = "" if summary.survivors is None else f": at least {_percent(summary.survivors)} of each rate is served"
    return f"{', '.join(summary.failures)}{share}"


def _warning_lines(summary: Summary, closing: Closing) -> Iterator[tuple[str, str]]:
    if not summary.warnings:
        yield "Warnings", "none"
    shown = summary.warnings[: MOST_ROWS["warnings"]]
    rest = sum(count for _, count, _ in summary.warnings[len(shown) :])
    tail = f"   ({closing.more(rest, 'warnings')})" if rest else ""
    for place, (code, count, text) in enumerate(shown):
        last = tail if place + 1 == len(shown) else ""
        line = f"{code}{f' ({count})' if count > 1 else ''}: {text}"
        room = WIDTH - LABEL - len(last)
        yield "" if place else "Warnings", (line if len(line) <= room else f"{line[: room - 3].rstrip()}...") + last
