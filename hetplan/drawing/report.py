"""A plan as one page: the wish, the fleet, the bill, promises beside simulation, the proof in words, curves of what-if.

All is read from documents: what `hetplan` writes as JSON. Where a document is missing, its section is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hetplan.drawing.charts import Bar, Curve, Judged, bars, curves, judged, timeline_picture
from hetplan.drawing.fleet import (
    MOST_GROUPS,
    fleet_picture,
    hardware_colours,
    largest_period,
    load_words,
    machines_in,
    of_period,
)
from hetplan.drawing.page import Html
from hetplan.drawing.svg import clipped, colour_class, short

__all__ = [
    "BillLine",
    "Documents",
    "claim_words",
    "outcome_fragment",
    "plan_fragment",
    "report_page",
    "simulation_fragment",
    "verdict_fragment",
    "wish_words",
]

Document = Mapping[str, Any]
HOURS_OF_A_MONTH = 730
MOST_ROWS = 60


@dataclass(frozen=True)
class BillLine:
    """What one group of workers costs per hour."""

    worker: str
    count: int
    hardware: str
    offer: str
    each: float | None
    period: str = "t0"

    @property
    def cost(self) -> float | None:
        """Of all workers of the group."""
        return None if self.each is None else self.each * self.count


@dataclass(frozen=True)
class Documents:
    """What a report is drawn from; `verified` is what a verification found, `pictures` more drawings by name."""

    plan: Document
    slo: Document | None = None
    bill: Sequence[BillLine] = ()
    simulation: Document | None = None
    baselines: Mapping[str, Document] = field(default_factory=dict)
    verified: Document | None = None
    whatif: Document | None = None
    compared: Document | None = None
    pictures: Mapping[str, str] = field(default_factory=dict)


def report_page(given: Documents) -> str:
    """The whole report, one file of HTML."""
    plan = given.plan
    page = Html(f"{plan.get('question')} plan: {plan.get('status')}")
    question = str(plan.get("question"))
    page.heading(f"{'An' if question[:2] == 'll' or question[:1] in 'aeiou' else 'A'} {question} plan", 1)
    _head(page, given)
    _wish(page, given.slo)
    _fleet(page, given)
    _bill(page, given)
    _promises(page, given)
    _distributions(page, given.simulation, given.slo)
    _timeline(page, given.simulation)
    for name, svg in given.pictures.items():
        page.heading(name)
        page.drawn(svg)
    _proof(page, given)
    _limits(page, plan)
    _whatif(page, given.whatif)
    _beside(page, given)
    _compared(page, given.compared)
    _warnings(page, plan)
    _made_from(page, plan)
    return page.html()


def plan_fragment(plan: Document) -> str:
    """A plan as a notebook shows it: the fleet, the promises and how good it is."""
    page = Html("")
    page.text(f"{plan.get('question')} plan by {_method(plan)}: {plan.get('status')}")
    if len(plan.get("periods") or ()) > 1:
        most = largest_period(plan)
        page.picture(fleet_picture(plan, period=most), f"The fleet of {most}, the largest.")
    elif plan.get("workers"):
        page.picture(fleet_picture(plan))
    _promise_table(page, plan)
    page.items(claim_words(claim) for claim in plan.get("claims", ()))
    return page.fragment()


def simulation_fragment(report: Document) -> str:
    """A simulation as a notebook shows it."""
    page = Html("")
    page.text(_simulated_words(report))
    _judged(page, report)
    _timeline(page, report, heading=False)
    return page.fragment()


def outcome_fragment(status: str, reason: str, why: Sequence[str], repairs: Sequence[str]) -> str:
    """How planning ended, as a notebook shows it above the plan."""
    page = Html("")
    page.text(f"{status}: {reason}")
    page.items(why)
    if repairs:
        page.text("What would make it possible:")
        page.items(repairs)
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


def _head(page: Html, given: Documents) -> None:
    plan = given.plan
    page.text(f"Made by {_method(plan)}; status: {plan.get('status')}. {_verdict(given.verified)}".strip())
    facts: list[tuple[str, object]] = []
    machines = sum(worker.get("count", 1) for worker in plan.get("workers", ()))
    if len(plan.get("periods", ())) < 2:
        facts.append(("machines", machines))
    rates: dict[str, list[float]] = {}
    for promise in plan.get("promises", ()):
        if promise.get("quantity") == "cost_per_hour":
            facts.insert(0, ("per hour", short(promise["value"])))
            facts.insert(1, ("per month of 730 hours", _per_hour_and_month(promise["value"])[1]))
        elif promise.get("quantity") == "rate_qps" and not promise.get("situation"):
            rates.setdefault(str(promise.get("app")), []).append(promise["value"])
    for app, found in rates.items():
        often = f"{short(min(found))} to " if min(found) < max(found) else ""
        facts.append((f"queries/s, {app}", f"{often}{short(max(found))}"))
    page.facts(facts[:8])


def _verdict(verified: Document | None) -> str:
    if verified is None:
        return ""
    broken = verified.get("violations") or ()
    if broken:
        return f"Verification found {len(broken)} faults: {'; '.join(str(one) for one in broken[:3])}."
    head = str(verified.get("reason") or "not simulated").capitalize()
    return f"{head}: independent arithmetic over the same files finds nothing that contradicts it."


def wish_words(slo: Document) -> Iterator[str]:
    """The wish, a sentence per line.

    >>> list(wish_words({"objective": [{"max": "rate"}], "limits": {"cost_per_hour": "3"}, "apps": {}}))
    ['Most rate.', 'At most 3 USD per hour.']
    """
    order = [
        f"{'most' if term.get('max') else 'least'} {term.get('max') or term.get('min')}"
        for term in slo.get("objective", ())
    ]
    if order:
        yield f"{', then '.join(order).capitalize()}."
    limits = slo.get("limits") or {}
    if limits.get("cost_per_hour") is not None:
        yield f"At most {limits['cost_per_hour']} {limits.get('currency') or 'USD'} per hour."
    for hardware, (least, most) in (limits.get("instances") or {}).items():
        many = f"exactly {least}" if least == most else f"at most {most}" if not least else f"{least} to {most}"
        yield f"{hardware}: {f'at least {least}' if most is None else many}."
    survive = limits.get("survive") or {}
    lost = [
        f"{many} {'spot machines' if what == 'spot' else what.removesuffix('s') if many == 1 else what}"
        for what, many in survive.items()
        if what != "keep" and many not in (0, "none", None)
    ]
    if lost:
        yield f"What may be lost at once: {', '.join(lost)}; {survive.get('keep', 1):.4g} of each rate is kept then."
    for name, app in (slo.get("apps") or {}).items():
        yield f"{name}: {'; '.join(_app_words(app)) or 'no more than to be served'}."


def _app_words(app: Document) -> Iterator[str]:
    rate = (app.get("demand") or {}).get("rate_qps")
    if rate == "max":
        yield "as many queries a second as can be had"
    elif isinstance(rate, Mapping):
        yield f"{short(rate.get('low'))} to {short(rate.get('high'))} queries/s"
    elif rate is not None:
        yield f"{short(rate)} queries/s"
    yield from _more_demand(app.get("demand") or {})
    for target in app.get("latency") or ():
        of = {"response": "answers", "ttft": "first tokens", "tpot": "each further token"}.get(
            target.get("of") or "response"
        )
        yield f"{short(target.get('percentile'))}% of {of} within {short(target.get('max_ms'))} ms"
    if app.get("goodput") is not None:
        yield f"{app['goodput']:.4g} of all requests within all limits"
    quality = app.get("quality") or {}
    if quality.get("min") is not None:
        yield f"quality at least {short(quality['min'])}"
    if app.get("violations"):
        yield f"at most {app['violations'].get('max'):.2%} late"


def _more_demand(demand: Document) -> Iterator[str]:
    """Demand that is no single rate: rates over time, a history, streams."""
    series, history = demand.get("series") or (), demand.get("history_qps") or ()
    if series:
        yield f"{short(min(series))} to {short(max(series))} queries/s over {len(series)} periods"
    if history:
        yield f"the next of {', '.join(map(short, history[-3:]))} queries/s"
    if (streams := demand.get("streams")) is not None:
        yield f"{short(streams)} stream{'' if streams == 1 else 's'}, one query after the other"


def _wish(page: Html, slo: Document | None) -> None:
    if slo is None:
        return
    page.heading("What was wished")
    page.items(list(wish_words(slo))[:MOST_ROWS])


def _fleet(page: Html, given: Documents) -> None:
    plan = given.plan
    page.heading("The fleet")
    periods, shown = plan.get("periods") or (), plan
    if len(periods) > 1:
        most = largest_period(plan)
        shown = of_period(plan, most)
        page.picture(fleet_picture(shown, given.slo), f"The fleet of {most}, the largest of {len(periods)}.")
        machines_over_time(page, plan)
    elif plan.get("workers"):
        page.picture(fleet_picture(plan, given.slo), "Flows are as wide as their share of the queries.")
    else:
        page.text("The plan has no workers.")
    rows = [
        (
            *(worker.get(name) or "-" for name in ("id", "count", "hardware", "offer")),
            "; ".join(map(load_words, worker.get("loads") or ())),
        )
        for worker in (shown.get("workers") or ())[:MOST_GROUPS]
    ]
    page.table(("group", "count", "hardware", "offer", "each runs"), rows, right=("count",))


def machines_over_time(page: Html, plan: Document) -> None:
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


def _bill(page: Html, given: Documents) -> None:
    if given.plan.get("bill"):
        bill_over_time(page, given.plan["bill"])
        return
    if not given.bill or len(given.plan.get("periods", ())) > 1:
        return
    colours = hardware_colours(given.plan)
    currency = ((given.slo or {}).get("limits") or {}).get("currency") or "USD"
    page.heading("The bill")
    rows = [line for line in given.bill if line.cost is not None][:MOST_GROUPS]
    drawn = []
    for line in rows:
        note = f"{short(line.cost)} {currency}/h"
        drawn.append(Bar(f"{line.count} x {line.offer}", line.cost or 0.0, note, colours.get(line.hardware, "k8")))
    page.picture(bars(drawn, title="what each group of workers costs per hour"))
    each = f"{currency} per hour each"
    lines: list[tuple[object, ...]] = [
        (one.worker, one.count, one.offer, short(one.each), *_per_hour_and_month(one.cost or 0.0)) for one in rows
    ]
    total = sum(line.cost or 0.0 for line in given.bill)
    lines.append(("in all", sum(line.count for line in given.bill), "", "", *_per_hour_and_month(total)))
    columns = ("group", "machines", "offer", each, "per hour", "per month")
    page.table(columns, lines, right=("machines", each, "per hour", "per month"))
    unknown = [line.worker for line in given.bill if line.cost is None]
    if unknown:
        page.text(f"Without a price: {', '.join(unknown[:12])}.", "faint")


def bill_over_time(page: Html, bill: Document) -> None:
    """Of a plan with periods: the mean, whose it is, and what each way to buy saves."""
    page.heading("The bill")
    rows = [("in all", bill.get("cost_per_hour"))]
    rows += [(f"application {name}", cost) for name, cost in (bill.get("apps") or {}).items()]
    rows += [(f"offer {name}", cost) for name, cost in (bill.get("offers") or {}).items()]
    rows += [("paid for, and idle", bill.get("idle_per_hour")), ("while machines start", bill.get("starts_per_hour"))]
    each = f"{bill.get('currency') or 'USD'} per hour"
    page.table(
        ("of", each, "per month"),
        [(name, *_per_hour_and_month(cost)) for name, cost in rows if cost][:MOST_ROWS],
        right=(each, "per month"),
    )
    ways = [
        (
            one.get("name"),
            short(one.get("cost_per_hour")),
            short(one.get("saves_per_hour")),
            {True: "yes", False: "no"}.get(one.get("kept"), "not played"),
            one.get("about"),
        )
        for one in bill.get("levers") or ()
    ]
    page.table(("way to buy", each, "saves", "kept when played", "what it is"), ways, right=(each, "saves"))


def _per_hour_and_month(cost: float) -> tuple[str, str]:
    # A sum of prices is a hair off its decimal figure, which must not decide how a half is rounded.
    return short(cost), short(round(cost * HOURS_OF_A_MONTH, 6))


def _promises(page: Html, given: Documents) -> None:
    if given.simulation is not None:
        page.heading("Promised and simulated")
        page.text(_simulated_words(given.simulation), "faint")
        _judged(page, given.simulation)
    else:
        page.heading("What is promised")
    _promise_table(page, given.plan)


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
            "Each row has its own scale: the promise is the line in the middle, the kept side is shaded.",
        )


def _promise_table(page: Html, plan: Document) -> None:
    rows: dict[tuple[str, ...], dict[str, list[str]]] = {}
    for promise in plan.get("promises") or ():
        share = f" p{promise['percentile']:.12g}" if promise.get("percentile") is not None else ""
        said = f"{promise.get('relation', '<=')} {short(promise.get('value'))}"
        what = (promise.get("app") or "all", f"{promise.get('quantity')}{share}", said)
        why = (str(promise.get("model")), promise.get("basis") or "")
        after = rows.setdefault((*what, *why), {})
        after.setdefault(promise.get("situation") or "", []).append(str(promise.get("period") or ""))
    lines = list[tuple[str, ...]]()
    for row, situations in list(rows.items())[:MOST_ROWS]:
        alike: dict[str, list[str]] = {}
        for situation, periods in situations.items():
            alike.setdefault(", ".join(filter(None, periods)), []).append(situation)
        lines += [(*row[:3], when, ", ".join(after), *row[3:]) for when, after in alike.items()]
    # What no promise of this plan says has no column.
    said_of = [place for place in range(7) if place not in (3, 4, 6) or any(line[place] for line in lines)]
    columns = ("app", "quantity", "promised", "when", "after", "by the model", "why so")
    page.table([columns[place] for place in said_of], [[line[place] for place in said_of] for line in lines])


def _distributions(page: Html, report: Document | None, slo: Document | None) -> None:
    apps = {name: one.get("distribution_ms") for name, one in ((report or {}).get("apps") or {}).items()}
    apps = {name: points for name, points in apps.items() if points}
    if not apps:
        return
    page.heading("How long answers take")
    for name, points in list(apps.items())[:8]:
        # What the last hundredth takes would leave the rest of the picture to a narrow strip.
        known = [(at, ms) for at, ms in points if ms is not None and at <= 99]
        wanted = (((slo or {}).get("apps") or {}).get(name) or {}).get("latency") or ()
        limits = {
            f"{short(one['percentile'])}% within {short(one['max_ms'])} ms": float(one["max_ms"])
            for one in wanted if one.get("of", "response") == "response"
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


_SCOPES = {
    "problem": "for the question as it was asked",
    "relaxation": "for a looser question, whose best is at least as good",
    "restriction": "for a narrower question only",
    "model": "within the model only",
}


def claim_words(claim: Document, *, again: str = "") -> str:
    r"""How good a plan is in one respect, as a sentence.

    >>> claim = {"about": "cost_per_hour", "sense": "min", "value": 2.88, "bound": 2.7, "gap": 0.0667,
    ...          "scope": "problem", "vouched": "certified"}
    >>> print(claim_words(claim).replace(". ", ".\n"))
    cost_per_hour is 2.88.
    No plan has less than 2.7 (6.7% away), for the question as it was asked.
    The plan calls this bound proved.
    """
    about, value, bound = claim.get("about"), short(claim.get("value")), claim.get("bound")
    if bound is None:
        return f"{about} is {value}. Nothing is claimed of the best possible."
    less = "less" if claim.get("sense") == "min" else "more"
    gap = claim.get("gap") or 0.0
    if gap <= 1e-9:
        said = f"No plan has {less}, {_SCOPES.get(str(claim.get('scope')), 'as far as it goes')}."
    else:
        scope = _SCOPES.get(str(claim.get("scope")), "as far as it goes")
        said = f"No plan has {less} than {short(bound)} ({gap:.1%} away), {scope}."
    if again:
        whose = f"This bound is {again}."
    elif claim.get("vouched") == "certified":
        whose = "The plan calls this bound proved."
    else:
        whose = "The bound is the word of the engine that found it."
    note = f" {claim['note'].capitalize()}." if claim.get("note") else ""
    return f"{about} is {value}. {said} {whose}{note}"


def _proof(page: Html, given: Documents) -> None:
    claims = given.plan.get("claims") or ()
    if not claims:
        return
    page.heading("How good it is, and how that is known")
    again = {
        one.get("at"): f"{one.get('word')} ({one.get('text')})" for one in (given.verified or {}).get("claims") or ()
    }
    page.items(
        claim_words(claim, again=again.get(f"claims[{place}]", "")) for place, claim in enumerate(claims[:MOST_ROWS])
    )
    solves = given.plan.get("solves") or ()
    page.table(
        ("solve", "about", "form", "engine", "ended", "value", "bound", "bound is"),
        [
            (one.get("id"), one.get("about") or "-", one.get("form"), one.get("solver"), one.get("status"),
             short(one.get("value")), short(one.get("bound")), one.get("vouched") or "-")
            for one in solves[:20]
        ],
        right=("value", "bound"),
    )  # fmt: skip
    if given.verified is not None:
        page.text(f"Checked again here: {', '.join(given.verified.get('checked') or ())}.", "faint")
        page.items(f"not checked: {what}" for what in given.verified.get("skipped") or ())
    else:
        page.text("This page was made from the plan file alone: `hetplan verify` proves the bounds again.", "faint")


def _limits(page: Html, plan: Document) -> None:
    begun = min((one["solve"] for one in plan.get("claims") or () if one.get("solve") is not None), default=1)
    behind: dict[str, Document] = {}
    for solve in plan.get("solves") or ():
        # The first of each kind behind the claims: others were tried before or after it.
        if (solve.get("id") or begun) >= begun:
            behind.setdefault(str(solve.get("about")), solve)
    rows = dict.fromkeys(
        (
            f"{one.get('block')}[{one.get('label')}]" if one.get("label") else one.get("block"),
            one.get("unit"),
            short(one.get("price")),
        )
        for solve in behind.values()
        for one in solve.get("binding") or ()
        if one.get("unit")  # without one it is a row of the program that nobody can have more of
    )
    if rows:
        page.heading("What limits it")
        page.table(("limit", "one more of", "brings"), list(rows)[:30], right=("brings",))


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


def _warnings(page: Html, plan: Document) -> None:
    if plan.get("unserved"):
        page.heading("Left unserved")
        page.items(
            f"{one.get('app')}: {short(one.get('rate_qps'))} queries/s, {one.get('why')}" for one in plan["unserved"]
        )
    if plan.get("warnings"):
        page.heading("Warnings")
        page.items(f"{one.get('code')} {one.get('at')}: {one.get('text')}" for one in plan["warnings"][:MOST_ROWS])


def _made_from(page: Html, plan: Document) -> None:
    page.heading("Made from")
    hashes = plan.get("inputs") or {}
    rows = [(name, clipped(value, 80)) for name, value in hashes.items() if isinstance(value, str)]
    options = ", ".join(f"{name}={value}" for name, value in ((plan.get("method") or {}).get("options") or {}).items())
    page.table(("what", "which"), [*rows, ("plan", plan.get("digest") or "-"), ("options", options or "-")])
