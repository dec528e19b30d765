"""`hetplan explain`: why a plan has these machines and not others, and what it costs."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from hetplan.cli.arguments import AsJson, PlanAndFiles
from hetplan.cli.output import Exit, Output, number
from hetplan.cli.read_files import plan_from
from hetplan.cli.whatif import Jobs, JournalFile, On
from hetplan.profiles.given_files import sort_files

if TYPE_CHECKING:
    from hetplan.profiles.plan import Plan
    from hetplan.profiles.plan_summary import Summary
    from hetplan.studies.explain import Absent, Explanation

__all__ = ["explain"]


Seconds = Annotated[
    float | None,
    typer.Option("--time-limit", min=0.0, help="Stop after these seconds, and name what is missing."),
]


def explain(
    files: PlanAndFiles,
    jobs: Jobs = 1,
    on: On = None,
    journal: JournalFile = None,
    thorough: Annotated[
        bool,
        typer.Option(
            "--thorough", help="For a fleet, also find the prices and times at which other machines would be rented."
        ),
    ] = False,
    time_limit: Seconds = None,
    as_json: AsJson = False,
) -> None:
    """Say why these machines, what is binding, and the next best plans.

    Needs the files that the plan was made from, and solves again for each alternative. Without them it prints only the
    summary of the plan.
    """
    with Output("explain", as_json=as_json) as out:
        named = sort_files(files, "explain", plans=(1, 1), needs_inputs=False)
        given = plan_from(named.plan, warn=out.warn)
        if not named.has_inputs:
            _of_plan(out, given)
            return
        from hetplan.cli.long_work import interruptible, progress, quiet_engines
        from hetplan.planner.spread import Spread
        from hetplan.planner.summary import summarize
        from hetplan.studies.explain import explain_for

        inputs = named.inputs
        with quiet_engines(out), progress(out) as show:

            def work(cancel: threading.Event) -> Explanation:
                spread = Spread(jobs, on=on, journal=journal, on_event=show, cancel=cancel, seconds=time_limit)
                return explain_for(given, inputs, spread=spread, thorough=thorough or None)

            found = interruptible(work, say=out.note, hurry=True)
        _show(out, found, summarize(given, inputs))
        out.end(Exit.OK, "explained", **found.as_dict())


def _of_plan(out: Output, plan: Plan) -> None:
    """What a plan says of itself: its summary."""
    from hetplan.cli.summary_page import show_summary
    from hetplan.planner.summary import summarize
    from hetplan.profiles.summary_lines import Closing

    show_summary(summarize(plan), out.people, Closing())
    out.people.line()
    out.people.line("Add the profile and SLO of the plan to compare other machines.")
    out.end(Exit.OK, "summary of the plan")


def _show(out: Output, found: Explanation, summary: Summary) -> None:
    from hetplan.profiles.summary_lines import opening_lines
    from hetplan.profiles.summary_words import money, summary_text
    from hetplan.studies.points import fleet_change, fleet_text

    page, told = out.people, summary_text(summary)
    for line in opening_lines(summary, told):
        page.line(line)
    per = {"million queries": found.cost_per_million_queries, "million output tokens": found.cost_per_million_tokens}
    for what, cost in per.items():
        if cost is not None:
            page.line(f"{money(cost, summary.currency)} per {what}")
    own = found.value if found.plan_value is None else found.plan_value
    page.line(f"{fleet_text(found.fleet)} ({found.sense} {found.about}: {number(own)})")
    if found.plan_value is not None:
        page.line(f"  Others are compared without simulation. This plan comes to {number(found.value)} there.")
    others = [
        (one.without_one_of, "infeasible without it" if one.worse_by is None else _worse(found, one.worse_by),
         fleet_change(one.fleet, found.fleet) if one.fleet is not None else one.why)
        for one in found.others
    ]  # fmt: skip
    if others:
        page.heading("Why these: the best machines with one fewer of a type")
        page.table(("one fewer", found.about, "fleet"), others)
    if found.absent:
        page.heading("Why not others")
        page.table(("offer", "why not"), [(one.offer, "; ".join(_kept_out(found, one))) for one in found.absent])
    if found.bounds:
        page.heading("What binds")
        rows = [
            (one.limit, number(one.now), f"{one.step:+g} {one.unit}".strip(),
             one.why if one.brings is None else f"{one.brings:+.6g}" if one.brings else "nothing",
             fleet_change(one.fleet, found.fleet))
            for one in found.bounds
        ]  # fmt: skip
        saves = "saves" if found.sense == "min" else "brings"
        page.table(("limit", "now", "with", f"{saves} ({found.about})", "fleet then"), rows)
    if found.notes:
        page.line()
    for note in found.notes:
        page.line(f"  {note}")


def _worse(found: Explanation, worse: float) -> str:
    if not worse:
        return "no worse"
    return f"{number(abs(worse))} {'more' if found.sense == 'min' else 'less'}"


def _kept_out(found: Explanation, one: Absent) -> Iterator[str]:
    if one.taken_by_program:
        yield "a plan with it does not meet the SLO in simulation"
        return
    if one.worse_by is None and not one.why and one.not_asked:
        yield "not tried: the time limit ended"
        return
    if one.worse_by is not None:
        yield f"with one such machine {_worse(found, one.worse_by)} {found.about}"
    elif one.why:
        yield "infeasible with one such machine"
    if not one.looked_for:
        return
    if one.enters_at_price is not None and one.price:
        yield f"would be rented at {number(one.enters_at_price)} per hour instead of {number(one.price)}"
    elif "price" not in one.not_asked:
        yield "not rented at any price"
    if one.enters_at_times is not None:
        yield f"would be rented if it took {_percent(one.enters_at_times)} of the measured times"
    elif "times" not in one.not_asked:
        yield "not rented even if 20 times as fast"


def _percent(part: float) -> str:
    """Rounded down: at what is shown it still comes in.

    >>> _percent(0.2379), _percent(0.06)
    ('23.7%', '6%')
    """
    return f"{math.floor(part * 1000 + 1e-9) / 10:g}%"
