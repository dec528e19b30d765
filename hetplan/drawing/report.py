"""A plan as one page: money, limits, machines, the day, the bill, failures, alternatives, cautions, and proof at last.

Words are the summary's; all else is read from documents: what `hetplan` writes as JSON. Where one is missing, its block
is left out.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from hetplan.drawing import day
from hetplan.drawing.charts import Curve, curves, length_bar, limit_bar, money_line, parts_bar, timeline_picture
from hetplan.drawing.page import Html, Row
from hetplan.drawing.routes import MOST_ROWS, hardware_colours, route_rows
from hetplan.drawing.summary import Bar, Limit, SummaryText, Table, limits_once
from hetplan.drawing.svg import Picture, short
from hetplan.drawing.tables import judged_rows

__all__ = [
    "Documents",
    "outcome_fragment",
    "plan_fragment",
    "report_page",
    "simulation_fragment",
    "verdict_fragment",
    "write_plan",
]

Document = Mapping[str, Any]
_BROKEN = "Simulated again for this page, a limit or a promise is broken."
_PLAYED = " Simulated for this page, no limit or promise is broken."
_KINDS = {
    "met": "good",
    "violated": "bad",
    "broken": "bad",
    "undecided": "open",
    "not simulated": "open",
    "not verified": "open",
}
"""Colours of what is said of a limit."""
MOST_NOTES = 5
"""What somebody reads before they buy, or violations below the state of a plan; more are closed."""
HEAT = ("under 35", "35 to 55", "55 to 75", "75 to 90", "over 90")
OWN_BLOCKS = ("Money", "Saved", "Marginal", "Failures", "Warnings", "Unserved", "Checked", "Verified")
"""Labels of lines that have a block of their own."""


@dataclass(frozen=True)
class Documents:
    """What a report is drawn from; `verified` is what a verification found, `pictures` more drawings by name.

    `spot` are the offers whose machines may be taken back, `unplayed` is why no
    simulation is there.
    """

    plan: Document
    summary: SummaryText
    slo: Document | None = None
    simulation: Document | None = None
    baselines: Mapping[str, Document] = field(default_factory=dict)
    verified: Document | None = None
    whatif: Document | None = None
    compared: Document | None = None
    pictures: Mapping[str, str] = field(default_factory=dict)
    spot: Collection[str] | None = None
    unplayed: str = ""


def report_page(given: Documents) -> str:
    """The whole report, one file of HTML."""
    told = given.summary
    if given.simulation is not None:
        limits = tuple(_as_simulated(one, given.simulation) for one in told.limits)
        kept = told.stated and _is_kept(given, limits)
        said = f"{told.status}{_PLAYED * (kept or limits != told.limits)}"
        told = replace(told, limits=limits, status=said, stated=told.stated and not kept)
        if kept:
            told = replace(told, state="good")
        if given.simulation.get("ok") is False or given.simulation.get("broken"):
            told = replace(told, status=f"{given.summary.status} {_BROKEN}", state="bad")
    page = Html(told.head)
    write_plan(page, replace(given, summary=told), level=1)
    return page.html()


def _is_kept(given: Documents, limits: Sequence[Limit]) -> bool:
    """Whether what a plan states of its limits was found here, too: nothing is wrong, and each limit is met again."""
    asked = [line for line in (given.simulation or {}).get("lines") or () if line.get("by") == "slo"]
    found = {str(line.get("verdict")) for line in asked}
    words = {one.verdict for one in limits if one.limit is not None}
    sound = (given.verified or {}).get("ok") is True and given.summary.state == "open"
    return sound and found == {"met"} and words <= {"met", "by formula"}


def _as_simulated(one: Limit, simulation: Document) -> Limit:
    """A limit of which the plan has no simulation, with what was simulated for this page."""
    if one.limit is None or one.verdict not in ("not simulated", "by formula"):
        return one
    lines = [line for line in simulation.get("lines") or () if line.get("by") == "slo" and line.get("simulated")]
    mine = [line for line in lines if (line.get("app"), day.metric_of(line)) == (one.app, one.metric)]
    if not mine:
        return one
    low, high = (math.inf if end is None else float(end) for end in mine[0]["simulated"]["interval"][:2])
    share = one.metric in ("violation rate", "attainment")
    found = f"{100 * low:.2f} .. {100 * high:.2f}%" if share else f"{short(low)} .. {short(high)} ms"
    word = {"broken": "violated"}.get(str(mine[0].get("verdict")), str(mine[0].get("verdict")))
    return replace(one, low=low, high=high, found=found, verdict=word, notes=(*one.notes, "simulated for this page"))


def _finding(limits: Sequence[Limit], *, stated: bool = False) -> str:
    """What is known of all limits together, as a heading; `stated`: by the plan alone."""
    asked = [one for one in limits if one.limit is not None]
    if not asked:
        return "There is no limit"
    for word in ("violated", "undecided"):
        bad = [f"{one.app}: {one.metric}" for one in asked if one.verdict == word]
        if bad:
            return f"{', '.join(bad[:3])}{' and more' * (len(bad) > 3)} {'is' if len(bad) == 1 else 'are'} {word}"
    if any(one.verdict == "not verified" for one in asked):
        return "No limit is verified"
    timed = [rows for rows in limits_once(asked) if rows[0].metric != "quality"]
    left = [rows for rows in timed if any(one.verdict != "met" for one in rows)]
    if left and all(one.verdict in ("not simulated", "by formula") for rows in timed for one in rows):
        return "No limit was simulated"
    if left:
        return f"{len(left)} of {len(timed)} limits {'was' if len(left) == 1 else 'were'} not simulated in full"
    worst = any(note.startswith("worst at") for one in asked for note in one.notes)
    return f"Every limit is met{', in its worst hour' * worst}{', as the plan states' * stated}"


def plan_fragment(plan: Document, summary: SummaryText | None = None) -> str:
    """A plan as a notebook shows it."""
    page = Html("")
    write_plan(page, Documents(plan, summary or SummaryText("A plan", "", (), (), (), ())))
    return page.fragment()


def simulation_fragment(report: Document) -> str:
    """A simulation as a notebook shows it."""
    page = Html("")
    _simulated(page, report)
    return page.fragment()


def outcome_fragment(
    said: Sequence[str], repairs: Sequence[str], summary: SummaryText | None = None, plan: Document | None = None
) -> str:
    """How planning ended, as a notebook shows it: why there is no plan and what would give one, else the plan."""
    page = Html("")
    page.items(said)
    if repairs:
        page.text("What would make it possible:")
        page.items(repairs)
    if plan is not None and summary is not None:
        write_plan(page, Documents(plan, summary))
    return page.fragment()


def verdict_fragment(
    reason: str, faults: Sequence[Sequence[str]], claims: Sequence[Sequence[str]], tried: Sequence[Sequence[str]],
    looked_at: tuple[Sequence[str], Sequence[str]],
) -> str:  # fmt: skip
    """What a verification found, as a notebook shows it; `looked_at` is what was checked, and what was not."""
    page, (checked, skipped) = Html(""), looked_at
    page.text(reason, "bad" if faults else "good" if reason == "verified" else "")
    page.table("faults", ("fault", "where", "what"), faults)
    page.table("promises", ("promise", "in simulation", "why"), tried)
    page.table("claims", ("claim", "bound is", "why"), claims)
    page.text(f"checked: {', '.join(checked)}", "lead")
    page.items(f"not checked: {what}" for what in skipped)
    return page.fragment()


def write_plan(page: Html, given: Documents, *, level: int = 2) -> None:
    """All of a plan below a heading of this level; at level 1 the page is about nothing else."""
    below = level + 1
    _answer(page, given, level)
    _limits(page, given, below)
    _machines(page, given, below)
    _hours(page, given, below)
    _bill(page, given, below)
    _routes(page, given, below)
    _tails(page, given, below)
    _failures(page, given, below)
    _alternatives(page, given, below)
    _whatif(page, given.whatif, below)
    _cautions(page, given, below)
    _proof(page, given, below)


# The answer


def _answer(page: Html, given: Documents, level: int) -> None:
    told = given.summary
    page.heading(told.title or told.head if level == 1 else told.head, level)
    if told.status:
        verified = (given.verified or {}).get("reason") == "verified"
        status = f"{told.status.removesuffix('.')}{'; verified' * verified}"
        page.answer(told.money if level == 1 else ("", ""), told.state, status)
    if level == 1 and told.axis is not None and told.axis.sense == "max":
        page.text(told.axis.value[1], "gain")
    _notes(page, (given.verified or {}).get("violations") or ())
    if given.unplayed:
        page.text(f"Not simulated for this page: {given.unplayed}", "says")
    if told.buy:
        page.text(told.buy, "says")
    for bound in told.monthly_bounds:
        page.text(f"{bound[0].upper()}{bound[1:]}", "says")
    if told.cautions:
        count = len(told.cautions)
        page.link(f"{count} thing{'' if count == 1 else 's'} to look at before you buy", "look")
    if told.axis is not None:
        page.chart(partial(money_line, told.axis))
        unknown = [("unknown", "not known whether one can", "")] * (told.axis.value[1] != told.axis.bound[1])
        page.legend([("never", "no plan can be here", ""), *unknown])


# Limits


def _limits(page: Html, given: Documents, level: int) -> None:
    told = given.summary
    if not told.limits:
        return
    page.heading(_finding(told.limits, stated=told.stated), level)
    lead = "The bar reaches to what was simulated, its paler end is the uncertainty. The upright line is the limit."
    page.text(lead, "lead")
    page.rows(_limit_row(one, stated=told.stated) for one in (*told.limits, *told.budget))
    _tight_hours(page, given, level)


def _limit_row(one: Limit, *, stated: bool) -> Row:
    is_known = bool(one.found) or one.verdict in ("not simulated", "by formula")
    bar = limit_bar(one) if one.limit is not None and is_known else None
    found = one.found or "-"
    at_least = "at least " * (one.relation == ">=")
    asked = f"of {at_least}{one.asked.lstrip('<=> ')}" if one.limit is not None else one.asked
    kind = _kind(one.verdict, stated=stated)
    return Row(f"{one.app}, {one.metric}", one.about, bar, found, asked, one.notes, one.verdict, kind)


def _kind(verdict: str, *, stated: bool) -> str:
    """The colour of a verdict; what only the plan states is not called good."""
    kind = _KINDS.get(verdict.split(" in ")[0], "")
    return "" if stated and kind == "good" else kind


def _tight_hours(page: Html, given: Documents, level: int) -> None:
    limits = {
        (one.app, one.metric): one.limit
        for one in given.summary.limits
        if one.limit is not None and one.metric.split("p")[0] in ("", "TTFT ", "TPOT ")
    }
    hours = day.hours_of(given.plan)
    rows = day.tight_hours(given.plan, limits) if len(hours) > 1 else {}
    if not any(share is not None for row in rows.values() for share in row):
        return
    page.heading("Where it is tight", level)
    page.text("The slow tail in percent of its limit; the darker, the closer.", "lead")
    step = max(len(hours) // 8, 1)
    begins = day.hour_names(hours)
    names = [name if place % step == 0 else "" for place, name in enumerate(begins)]
    page.heat(
        "the simulated tail in percent of its limit, by period; the table below has the numbers", names, rows.items()
    )
    page.legend((f"h{level}", text, "") for level, text in enumerate(HEAT))
    left = sum(share is None for row in rows.values() for share in row)
    if left:
        page.text(f"- not simulated: {left} of {len(hours) * len(rows)} cells.", "small")
    with page.fold("The same as a table"):
        table = [
            [begins[at], *("-" if row[at] is None else f"{row[at]:.0f}" for row in rows.values())]
            for at in range(len(hours))
        ]
        page.table("the tail by period", ["from", *rows], table, right=range(1, 1 + len(rows)))


# Machines and hours


def _table(told: SummaryText, title: str) -> Table | None:
    return next((one for one in told.tables if one.title == title), None)


def _machines(page: Html, given: Documents, level: int) -> None:
    told = given.summary
    table = _table(told, "Machines")
    if table is None:
        return
    page.heading("What runs where", level, name="machines")
    if not table.rows:
        page.text("No machines: the plan is about each query alone.", "lead")
        return
    at = {name: place for place, name in enumerate(table.columns)}
    shown = ("machine", "model", "application", "stage")
    money = [name for name in at if name.endswith("/month")]
    first = [name for name in ("count", "count + standby") if name in at]
    others = [name for name in at if name not in (*shown, *money, *first)]
    names = [*first, *money, *others]
    rows, machine = [], ""
    for row in table.rows:
        machine = row[at["machine"]] or machine
        model, app = row[at["model"]], row[at["application"]]
        stage = f", {row[at['stage']]}" if "stage" in at and row[at["stage"]] else ""
        idle = model in ("", "-") and app in ("", "(nobody)")
        name = f"{machine}, idle" if idle else f"{model if model not in ('', '-') else 'no model'} on {machine}"
        rows.append([(name, "reserved" if idle else f"for {app}{stage}"), *(row[at[each]] for each in names)])
    counts = [row[at[first[0]]] for row in table.rows] if first else []
    whole = all(one.isdigit() or not one for one in counts)
    total = [str(sum(int(one) for one in counts if one))] if whole and counts else ["" for _ in first]
    month = [_sum_of_rows([row[at[name]] for row in table.rows], told.money[0]) for name in money]
    heads = [{"count": "machines"}.get(name, name.replace("/month", " a month")) for name in names]
    right = [1 + place for place, name in enumerate(names) if at[name] in table.right]
    page.table("What runs where", ["model on machine", *heads], rows, right=right,
        foot=["all", *total, *month, *("" for _ in others)] if money or total != [""] else ())  # fmt: skip


def _sum_of_rows(cells: Sequence[str], stated: str) -> str:
    """The sum of a column of whole money: as stated, where that differs from it by no more than its rounding.

    >>> _sum_of_rows(["1,200", "", "903"], "$2,102"), _sum_of_rows(["2,679"], "$7,702")
    ('2,102', '2,679')
    """
    values = [float(cell.replace(",", "")) for cell in cells if re.fullmatch(r"-?[\d,]*\d", cell)]
    told = re.fullmatch(r"\D*?(-?\d[\d,]*(?:\.\d+)?)", stated)
    is_near = told is not None and abs(float(told[1].replace(",", "")) - sum(values)) <= 0.5 * (len(values) + 1)
    return told[1] if told is not None and is_near else f"{sum(values):,.0f}"


def _hours(page: Html, given: Documents, level: int) -> None:
    told, hours = given.summary, day.hours_of(given.plan, given.spot or ())
    table = _table(told, "Hours")
    if len(hours) < 2:
        return
    page.heading("The day" if hours[-1].end_s > 7200.0 else "The hour", level)
    page.text("Machines follow demand.", "lead")
    words = day.ways_words(given.spot)
    page.legend((way, words[way], "") for way in day.ways_of(hours))
    money = str((given.plan.get("bill") or {}).get("currency") or "money")
    page.chart(partial(day.day_picture, hours, money=money))
    columns, rows = day.hour_rows(hours)
    columns = [name.replace(day.WAYS["demand"], words["demand"]) for name in columns]
    with page.fold(f"The same as a table ({len(rows)} row{'s' * (len(rows) != 1)}; equal hours are one row)"):
        page.table("machines by hour", columns, rows, right=range(1, len(columns)))
        if table is not None:
            page.table("machines of each application by hour", table.columns, table.rows, right=table.right)


def _bill(page: Html, given: Documents, level: int) -> None:
    costs = day.bill_parts(given.plan, given.spot) or given.summary.costs
    if not costs:
        return
    page.heading("Where the money goes", level)
    page.picture(parts_bar(costs, label="money a month", height=30))
    total = sum(bar.value for bar in costs) or 1.0
    page.legend((bar.colour, bar.label, f"{bar.note}, {_percent(bar.value / total)}") for bar in costs)


def _percent(share: float) -> str:
    """
    >>> _percent(0.004), _percent(0.7), _percent(0.9999)
    ('under 1%', '70%', 'over 99.9%')
    """
    return "under 1%" if 0.0 < share < 0.005 else "over 99.9%" if 0.999 < share < 1.0 else f"{100 * share:.0f}%"


# Where queries go, and how long they take


def _routes(page: Html, given: Documents, level: int) -> None:
    rows = [] if given.plan.get("parts") else route_rows(given.plan, given.slo, given.spot)
    if any(len(parts) > 1 for _, _, parts in rows):
        page.heading("Which machine answers which query", level)
        page.legend((colour, name, "") for name, colour in hardware_colours(given.plan).items())
        page.rows(
            Row(name, about, parts_bar(parts, label=f"{name}: {_told(parts)}"), _mostly(parts), words=_rest(parts))
            for name, about, parts in rows[:MOST_ROWS]
        )
        if len(rows) > MOST_ROWS:
            page.text(f"and {len(rows) - MOST_ROWS} more routes in the plan file", "small")
    table = _table(given.summary, "Policies")
    if table is not None or given.pictures:
        page.heading("Which model answers which queue", level)
        for name, svg in given.pictures.items():
            page.drawn(svg, name)
        if table is not None:
            page.table("policies", table.columns, table.rows, right=table.right)


def _mostly(parts: Sequence[Bar]) -> str:
    most = max(parts, key=lambda part: part.value, default=None)
    return "" if most is None else f"{'all' if len(parts) == 1 else most.note} on {most.label}"


def _rest(parts: Sequence[Bar]) -> tuple[str, ...]:
    return (_told(parts),) if len(parts) > 1 else ()


def _told(parts: Sequence[Bar]) -> str:
    return ", ".join(f"{part.label} {part.note}" for part in parts)


def _tails(page: Html, given: Documents, level: int) -> None:
    apps = {name: one.get("distribution_ms") for name, one in ((given.simulation or {}).get("apps") or {}).items()}
    apps = {name: points for name, points in apps.items() if points}
    if not apps:
        return
    page.heading("How long answers take", level)
    for name, points in list(apps.items())[:8]:
        known = [(float(at), float(ms)) for at, ms in points if ms is not None and at < 100.0]
        asked = [one for one in given.summary.limits if one.app == name and one.limit and one.metric[:1] == "p"]
        limits = {f"{one.metric[1:]}% within {short(one.limit)} ms": one.limit or 0.0 for one in asked}
        late = {said: float(f"{100.0 - float(said.partition('%')[0]):.12g}") for said in limits}
        slower = Curve(name, [ms for _, ms in known], [float(f"{100.0 - at:.12g}") for at, _ in known])
        last = f"; {short(slower.y[-1])}% take longer than {short(slower.x[-1])} ms" if known else ""
        if known:
            page.text(f"{name}: {last.removeprefix('; ')}.", "lead")
        draw = partial(
            curves, [slower], label=f"{name}: response times{last}", x="response ms",
            y=f"{name}: % of queries that are slower", limits=limits, late=late, log=True,
        )  # fmt: skip
        page.chart(draw)


# Failures, alternatives, cautions


def _line(told: SummaryText, label: str) -> tuple[str, ...]:
    return next((lines for name, lines in told.lines if name == label), ())


def _failures(page: Html, given: Documents, level: int) -> None:
    said = _line(given.summary, "Failures")
    if not said:
        return
    page.heading("What if it fails", level)
    page.text(f"Failures: {'; '.join(said)}.", "lead")
    table = _table(given.summary, "SLO")
    if table is not None and "worst failure" in table.columns:
        at = table.columns.index("worst failure")
        rows = [(*row[:3], row[at], row[-1]) for row in table.rows if row[at]]
        columns = (*table.columns[:3], "worst failure", "verdict")
        kinds = [_kind(row[-1], stated=given.summary.stated) for row in rows]
        page.table("after failures", columns, rows, kinds=kinds)
    rows = [
        (one["situation"], app, f"{(one['at_first'].get(app) or {}).get('value', 0.0):.2%}", f"{after['value']:.2%}",
         one["verdicts"].get(app, ""))
        for one in (given.simulation or {}).get("failures") or ()
        for app, after in one["after"].items()
    ]  # fmt: skip
    columns = ("failure", "application", "in time at first", "in time after", "verdict")
    page.table("simulated failures", columns, rows, right=(2, 3), kinds=[_KINDS.get(row[-1], "") for row in rows])


def _alternatives(page: Html, given: Documents, level: int) -> None:
    told = given.summary
    if told.ways:
        page.heading("Why not simpler", level)
        page.text("Each line adds one way to buy to those above it.", "lead")
        bound = told.axis.bound if told.axis is not None else None
        most = max(way.value for way in told.ways)
        rows = [_bar_row(way, most, bound[0] if bound else None) for way in told.ways]
        if bound:
            rows.append(_bar_row(Bar("no plan costs less", *bound, "never"), most, None))
        page.rows(rows)
    if marginal := _line(told, "Marginal"):
        page.heading("What one more machine would bring", level)
        page.items(marginal)
    _compared(page, given.compared, level)
    _baselines(page, given, level)


def _bar_row(bar: Bar, most: float, mark: float | None) -> Row:
    return Row(bar.label, "", length_bar(bar, most, mark=mark), bar.note, words=(bar.about,) if bar.about else ())


def _compared(page: Html, found: Document | None, level: int) -> None:
    """Ways to serve the same demand at their cheapest settings; money against lateness over all that was played."""
    ways = [one for one in (found or {}).get("ways") or () if one.get("best")]
    if found is None or not ways:
        return
    page.heading("Beside other ways to serve this demand", level)
    money = found.get("currency") or "USD"
    costs = [float(one["best"]["cost_per_hour"]) for one in ways]
    bars = [Bar(str(one["way"]), cost, f"{short(cost)} {money}/h") for one, cost in zip(ways, costs, strict=True)]
    page.rows(_bar_row(bar, max(costs), None) for bar in bars)
    columns = ("way", "setting", "per hour", "per month", "per million in time", "late", "reached")
    rows = []
    for one in ways:
        best = one["best"]
        figures = (short(best.get(name)) for name in ("cost_per_hour", "cost_per_month", "cost_per_million_in_time"))
        late = f"{best.get('late') or 0.0:.2%}"
        reached = "yes" if one.get("reached") else one.get("note") or "no"
        rows.append((one["way"], best.get("setting"), *figures, late, reached))
    page.table("ways", columns, rows, right=range(2, 6))
    lines = []
    for one in ways:
        points = sorted((100.0 * float(each["late"]), float(each["cost_per_hour"])) for each in one.get("tried") or ())
        lines.append(Curve(str(one["way"]), [late for late, _ in points], [cost for _, cost in points], "min"))
    if any(len(line.x) > 1 for line in lines):
        label = "money against lateness; the table above has the best of each way"
        page.chart(partial(curves, lines, label=label, x="late, percent of queries", y=f"{money} per hour"))


def _baselines(page: Html, given: Documents, level: int) -> None:
    if not given.baselines or given.simulation is None:
        return
    page.heading("Beside what people run today", level)
    page.text("The same queries, played over each way.", "lead")
    ways = {"this plan": given.simulation, **given.baselines}
    costs = {name: (one.get("cost_per_hour") or {}).get("value") for name, one in ways.items()}
    most = max((cost for cost in costs.values() if cost is not None), default=0.0)
    page.rows(
        _bar_row(Bar(name, cost, f"{short(cost)} per hour", "ahead" if name == "this plan" else "bar"), most, None)
        for name, cost in costs.items()
        if cost is not None
    )
    rows, kinds = [], []
    for name, app, found in ((name, *pair) for name, one in ways.items() for pair in (one.get("apps") or {}).items()):
        told = {key: (held or {}).get("value") for key, held in (found.get("figures") or {}).items()}
        late = "-" if told.get("violations") is None else f"{told['violations']:.2%}"
        rows.append((name, app, short(costs[name]), short(told.get("goodput_qps")), late))
        kinds.append("bad" if ways[name].get("ok") is False else "")
    columns = ("way", "application", "per hour", "in time per second", "late")
    page.table("ways", columns, rows, right=(2, 3, 4), kinds=kinds)


def _whatif(page: Html, found: Document | None, level: int) -> None:
    if found is None:
        return
    page.heading("What if", level)
    sense = str((found.get("objective") or {}).get("sense") or "")
    for axis in found.get("curves") or ():
        drawn = [
            Curve(str(one.get("label")), one.get("x") or (), one.get("y") or (), sense)
            for one in axis.get("lines") or ()
        ]
        if drawn:
            draw = partial(
                curves, drawn, label=str(axis.get("title")), x=str(axis.get("x")), y=str(axis.get("y")),
                limits=axis.get("marks"),
            )  # fmt: skip
            page.chart(draw, str(axis.get("title")))


def _cautions(page: Html, given: Documents, level: int) -> None:
    said = given.summary.cautions
    if said:
        page.heading("Look at these before you buy", level, name="look")
        _notes(page, said)


def _notes(page: Html, said: Sequence[str]) -> None:
    page.items(said[:MOST_NOTES], "notes")
    with page.fold(f"{len(said) - MOST_NOTES} more"):
        page.items(said[MOST_NOTES:])


# Proof


def _proof(page: Html, given: Documents, level: int) -> None:
    plan, told = given.plan, given.summary
    page.heading("How this is known", level)
    with page.fold("Planned and verified"):
        method = plan.get("method") or {}
        like = f", like {method['like']}" if method.get("like") else ""
        page.text(f"A {plan.get('question')} plan, made by {method.get('formulation')}{like}.")
        page.items(f"Bound: {bound}" for bound in told.bounds)
        checked = ("Checked", "Verified", "Missing")
        page.items(f"{label}: {line}" for label, lines in told.lines if label in checked for line in lines)
        if given.verified is not None:
            claims = [(one["about"], one["word"], one["text"]) for one in given.verified.get("claims") or ()]
            page.table("claims", ("claim", "bound is", "why"), claims)
            page.text(f"Checked again here: {', '.join(given.verified.get('checked') or ())}.", "small")
            page.items(f"not checked: {what}" for what in given.verified.get("skipped") or ())
        elif not _line(told, "Verified"):
            page.text("This page was made from the plan file alone: nothing was recomputed.", "small")
    if given.simulation is not None:
        with page.fold("Promised and simulated"):
            _simulated(page, given.simulation)
    with page.fold("Routing and limits on machines"):
        page.items(
            f"{label}: {line}" for label, lines in told.lines if label not in (*OWN_BLOCKS, "Missing") for line in lines
        )
    with page.fold("Files, and how to repeat this"):
        digests = {**(plan.get("inputs") or {}), "plan": plan.get("digest")}
        rows = [(name, of.removeprefix("sha256:")[:8]) for name, of in digests.items() if isinstance(of, str)]
        page.table("digests", ("file", "its digest begins with"), rows)
        page.commands(f"hetplan {verb} plan.json PROFILE SLO" for verb in ("verify", "simulate", "explain"))
    if told.money[1] == "a month":
        page.text("A month is 730 hours.", "foot small")


def _simulated(page: Html, report: Document) -> None:
    """What was simulated: each promise and limit with its verdict, and the course over time."""
    if report.get("seeds") is not None:
        page.text(
            f"{len(report.get('seeds') or ())} runs of {short(report.get('duration_s'))} simulated seconds; "
            f"service times vary by {report.get('noise')}. Intervals are of 95% over the runs."
        )
    rows = []
    for line in judged_rows(report):
        at = f" p{line['percentile']:.12g}" if line["percentile"] is not None else ""
        of = f"{line['app']}: " if line["app"] else ""
        name = (f"{of}{line['quantity']}{at}", "limit" if line["by"] == "slo" else "promise")
        ends = "-" if line["simulated"] is None else f"{short(line['low'])} .. {short(line['high'])}"
        asked = f"{line['relation']} {short(line['promised'])}"
        rows.append((name, asked, short(line["simulated"]), ends, str(line["verdict"])))
    columns = ("of", "promised", "simulated", "interval", "verdict")
    page.table(
        "promised and simulated", columns, rows, right=(1, 2, 3), kinds=[_KINDS.get(row[-1], "") for row in rows]
    )
    _timeline(page, report.get("timeline") or {})


def _timeline(page: Html, timeline: Document) -> None:
    def draw(width: float) -> Picture:
        drawn = timeline_picture(timeline, width=width)
        assert drawn is not None
        return drawn

    if timeline_picture(timeline) is not None:
        page.chart(draw, "The mean of the runs.")
