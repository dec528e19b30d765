"""A plan as one page: its summary, the fleet drawn, promises beside simulation, the proof, curves of what-if.

All else is read from documents: what `hetplan` writes as JSON. Where one is missing, its section is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hetplan.drawing.charts import Bar, Curve, Judged, bars, curves, judged, timeline_picture
from hetplan.drawing.fleet import (
    fleet_picture,
    hardware_colours,
    largest_period,
    machines_in,
    of_period,
)
from hetplan.drawing.page import Html
from hetplan.drawing.summary import SummaryText, draw_costs, write_summary
from hetplan.drawing.svg import colour_class, short

__all__ = [
    "Documents",
    "draw_fleet",
    "outcome_fragment",
    "plan_fragment",
    "report_page",
    "simulation_fragment",
    "verdict_fragment",
]

Document = Mapping[str, Any]
MOST_ROWS = 60
_BROKEN = "Simulated again for this page, a limit or a promise is broken."


@dataclass(frozen=True)
class Documents:
    """What a report is drawn from; `verified` is what a verification found, `pictures` more drawings by name."""

    plan: Document
    summary: SummaryText
    slo: Document | None = None
    simulation: Document | None = None
    baselines: Mapping[str, Document] = field(default_factory=dict)
    verified: Document | None = None
    whatif: Document | None = None
    compared: Document | None = None
    pictures: Mapping[str, str] = field(default_factory=dict)


def report_page(given: Documents) -> str:
    """The whole report, one file of HTML."""
    plan = given.plan
    page, told = Html(given.summary.head), given.summary
    if (given.simulation or {}).get("ok") is False:
        told = replace(told, status=f"{told.status} {_BROKEN}", is_wrong=True)
    write_summary(page, told)
    page.text(f"A {plan.get('question')} plan, made by {_method(plan)}.", "faint")
    _fleet(page, given)
    _promises(page, given.simulation)
    _distributions(page, given.simulation, given.slo)
    _timeline(page, given.simulation)
    for name, svg in given.pictures.items():
        page.heading(name)
        page.drawn(svg)
    _proof(page, given)
    _whatif(page, given.whatif)
    _beside(page, given)
    _compared(page, given.compared)
    _made_from(page, plan)
    return page.html()


def plan_fragment(plan: Document, summary: SummaryText | None = None) -> str:
    """A plan as a notebook shows it: its summary, and what runs."""
    page = Html("")
    _plan(page, plan, summary)
    return page.fragment()


def _plan(page: Html, plan: Document, summary: SummaryText | None) -> None:
    if summary is not None:
        write_summary(page, summary, level=2)
    page.text(f"A {plan.get('question')} plan, made by {_method(plan)}.", "faint")
    draw_fleet(page, plan)


def simulation_fragment(report: Document) -> str:
    """A simulation as a notebook shows it."""
    page = Html("")
    page.text(_simulated_words(report))
    _judged(page, report)
    _timeline(page, report, heading=False)
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
    if plan is not None:
        _plan(page, plan, summary)
    return page.fragment()


def verdict_fragment(
    reason: str, faults: Sequence[Sequence[str]], claims: Sequence[Sequence[str]], tried: Sequence[Sequence[str]],
    looked_at: tuple[Sequence[str], Sequence[str]],
) -> str:  # fmt: skip
    """What a verification found, as a notebook shows it; `looked_at` is what was checked, and what was not."""
    page, (checked, skipped) = Html(""), looked_at
    page.text(reason, "bad" if faults else "good" if reason == "verified" else "")
    page.table(("fault", "where", "what"), faults)
    page.table(("promise", "in simulation", "why"), tried)
    page.table(("claim", "bound is", "why"), claims)
    page.text(f"checked: {', '.join(checked)}", "faint")
    page.items(f"not checked: {what}" for what in skipped)
    return page.fragment()


def _method(plan: Document) -> str:
    method = plan.get("method") or {}
    like = f", like {method['like']}" if method.get("like") else ""
    return f"{method.get('formulation')}{like}"


def _fleet(page: Html, given: Documents) -> None:
    page.heading("The fleet")
    draw_fleet(page, given.plan, given.slo)
    draw_costs(page, given.summary)


def draw_fleet(page: Html, plan: Document, slo: Document | None = None) -> None:
    """Where queries go; of a plan with periods in its largest one, and machines over time."""
    if not plan.get("workers") and not plan.get("parts"):
        return
    periods = plan.get("periods") or ()
    most = largest_period(plan) if periods else None
    whole = "Flows are as wide as their share of the queries."
    caption = f"The fleet of {most}, the largest of {len(periods)}." if len(periods) > 1 else whole
    page.picture(fleet_picture(plan, slo, period=most), caption)
    if len(periods) > 1:
        _machines_over_time(page, plan)


def _machines_over_time(page: Html, plan: Document) -> None:
    """Machines of each hardware over the periods."""
    starts = [float(one.get("start_s") or 0.0) / 3600 for one in plan["periods"]]
    every = [worker for one in plan["periods"] for worker in of_period(plan, one["id"]).get("workers") or ()]
    kinds = list(hardware_colours({"workers": every}))
    drawn = []
    for kind in kinds[:7]:
        counts = [machines_in(plan, one["id"], kind) for one in plan["periods"]]
        ends = [*starts, starts[-1] + (starts[-1] - starts[-2] if len(starts) > 1 else 1.0)]
        drawn.append(Curve(kind, ends, [*counts, counts[-1]], steps=True))
    page.picture(curves(drawn, title="machines over the day", x="hour", y="machines"))


def _promises(page: Html, report: Document | None) -> None:
    if report is None:
        return
    page.heading("Promised and simulated")
    page.text(_simulated_words(report), "faint")
    _judged(page, report)


def _simulated_words(report: Document) -> str:
    return (
        f"{len(report.get('seeds') or ())} runs of {short(report.get('duration_s'))} simulated seconds; "
        f"service times vary by {report.get('noise')}. Bars are 95% intervals over the runs."
    )


def _judged(page: Html, report: Document) -> None:
    rows = []
    for line in report.get("lines") or ():
        found = line.get("simulated") or {}
        low, high = found.get("interval") or (None, None)
        share = f" p{line['percentile']:.12g}" if line.get("percentile") is not None else ""
        label = f"{line.get('app') + ': ' if line.get('app') else ''}{line.get('quantity')}{share}"
        label = f"wish: {label}" if line.get("by") == "slo" else label
        rows.append(
            Judged(
                label,
                str(line.get("relation")),
                float(line["promised"]),
                found.get("value"),
                low,
                high,
                str(line.get("verdict")),
            )
        )
    if rows:
        page.picture(
            judged(rows[:MOST_ROWS], title="promises beside simulation"),
            "Each row has its own scale: the promise is the line in the middle, the side that meets it is shaded.",
        )


def _distributions(page: Html, report: Document | None, slo: Document | None) -> None:
    apps = {name: one.get("distribution_ms") for name, one in ((report or {}).get("apps") or {}).items()}
    apps = {name: points for name, points in apps.items() if points}
    if not apps:
        return
    page.heading("How long answers take")
    for name, points in list(apps.items())[:8]:
        # What the last hundredth takes would leave the rest of the picture to a narrow strip.
        known = [(at, ms) for at, ms in points if ms is not None and at <= 99]
        wanted = (((slo or {}).get("apps") or {}).get(name) or {}).get("latency") or {}
        limits = {
            f"{key[1:].removesuffix('_ms')}% within {short(ms)} ms": float(ms)
            for key, ms in wanted.items() if key.startswith("p")
        }  # fmt: skip
        drawn = [Curve(name, [ms for _, ms in known], [at for at, _ in known])]
        page.picture(
            curves(
                drawn, title=f"{name}: response times", x="response ms", y=f"{name}: % of queries within", limits=limits
            )
        )


def _timeline(page: Html, report: Document | None, *, heading: bool = True) -> None:
    drawn = timeline_picture((report or {}).get("timeline") or {})
    if drawn is None:
        return
    if heading:
        page.heading("Over time")
    page.picture(drawn, "The mean of the runs.")


def _proof(page: Html, given: Documents) -> None:
    if not given.plan.get("claims"):
        return
    page.heading("How good it is, and how that is known")
    if given.verified is not None:
        claims = given.verified.get("claims") or ()
        page.table(("claim", "bound is", "why"), [(one["about"], one["word"], one["text"]) for one in claims])
        page.text(f"Checked again here: {', '.join(given.verified.get('checked') or ())}.", "faint")
        page.items(f"not checked: {what}" for what in given.verified.get("skipped") or ())
    else:
        page.text("This page was made from the plan file alone: `hetplan verify` proves the bounds again.", "faint")
    page.table(
        ("solve", "about", "form", "engine", "ended", "value", "bound", "bound is"),
        [
            (one.get("id"), one.get("about") or "-", one.get("form"), one.get("solver"), one.get("status"),
             short(one.get("value")), short(one.get("bound")), one.get("vouched") or "-")
            for one in (given.plan.get("solves") or ())[:20]
        ],
        right=("value", "bound"),
    )  # fmt: skip


def _whatif(page: Html, found: Document | None) -> None:
    if found is None:
        return
    page.heading("What if")
    for axis in found.get("curves") or ():
        drawn = [
            Curve(str(one.get("label")), one.get("x") or (), one.get("y") or ()) for one in axis.get("lines") or ()
        ]
        if drawn:
            page.picture(
                curves(
                    drawn,
                    title=str(axis.get("title")),
                    x=str(axis.get("x")),
                    y=str(axis.get("y")),
                    limits=axis.get("marks"),
                )
            )


def _compared(page: Html, found: Document | None) -> None:
    """Ways to serve the same demand at their cheapest settings; money against lateness over all that was played."""
    ways = [one for one in (found or {}).get("ways") or () if one.get("best")]
    if found is None or not ways:
        return
    page.heading("Beside other ways to serve this demand")
    money = found.get("currency") or "USD"
    costs = [(str(one["way"]), float(one["best"]["cost_per_hour"])) for one in ways]
    drawn = [Bar(name, cost, f"{short(cost)} {money}/h", colour_class(at)) for at, (name, cost) in enumerate(costs)]
    page.picture(bars(drawn, title="cost per hour of each way"))
    columns = ("way", "setting", "per hour", "per month", "per million in time", "late", "reached")
    rows = []
    for one in ways:
        best = one["best"]
        figures = (short(best.get(name)) for name in ("cost_per_hour", "cost_per_month", "cost_per_million_in_time"))
        late = f"{best.get('late') or 0.0:.2%}"
        reached = "yes" if one.get("reached") else one.get("note") or "no"
        rows.append((one["way"], best.get("setting"), *figures, late, reached))
    page.table(columns, rows, right=columns[2:6])
    lines = []
    for one in ways:
        points = sorted((100.0 * float(each["late"]), float(each["cost_per_hour"])) for each in one.get("tried") or ())
        lines.append(Curve(str(one["way"]), [late for late, _ in points], [cost for _, cost in points]))
    if any(len(line.x) > 1 for line in lines):
        page.picture(curves(lines, title="money against lateness", x="late, percent of queries", y=f"{money} per hour"))


def _beside(page: Html, given: Documents) -> None:
    if not given.baselines or given.simulation is None:
        return
    page.heading("Beside what people run today")
    page.text("The same queries, played over each way.", "faint")
    ways = {"this plan": given.simulation, **given.baselines}
    costs = {name: (one.get("cost_per_hour") or {}).get("value") for name, one in ways.items()}
    page.picture(
        bars(
            [
                Bar(name, cost, f"{short(cost)} per hour", "k0" if name == "this plan" else "k8")
                for name, cost in costs.items()
                if cost is not None
            ],
            title="cost per hour of each way",
        )
    )
    rows, kinds = [], []
    for name, one in ways.items():
        for app, found in (one.get("apps") or {}).items():
            figures = found.get("figures") or {}
            late = (figures.get("violations") or {}).get("value")
            rows.append(
                (
                    name,
                    app,
                    short(costs[name]),
                    short((figures.get("goodput_qps") or {}).get("value")),
                    "-" if late is None else f"{late:.2%}",
                )
            )
            kinds.append("bad" if one.get("ok") is False else "")
    page.table(
        ("way", "app", "per hour", "in time per second", "late"),
        rows,
        right=("per hour", "in time per second", "late"),
        kinds=kinds,
    )


def _made_from(page: Html, plan: Document) -> None:
    """Digests, of each as much as tells plans and files apart."""
    page.heading("Made from")
    digests = {**(plan.get("inputs") or {}), "plan": plan.get("digest")}
    rows = [(name, of.removeprefix("sha256:")[:8]) for name, of in digests.items() if isinstance(of, str)]
    page.table(("what", "its digest begins with"), rows)
