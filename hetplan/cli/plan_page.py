"""All of a plan as tables, each under one view, and an outcome: its summary, or why there is no plan."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hetplan.cli.output import WRITES_A_PLAN, Page, number
from hetplan.profiles.summary_lines import WIDTH

if TYPE_CHECKING:
    from hetplan.drawing.summary import Table
    from hetplan.planner.outcome import Outcome
    from hetplan.profiles.plan import Notice, Plan, Solve
    from hetplan.profiles.plan_summary import Summary

__all__ = ["VIEWS", "show_notices", "show_outcome", "show_plan", "show_view"]

VIEWS = ("machines", "hours", "routes", "bill", "policies", "proof", "warnings", "changes")
"""What a plan can be looked at by, in the order of a page of all."""

MOST_ROUTES = 12

ROUNDING = 1e-9
"""A gap below this is the rounding of doubles, which differs between machines."""


def show_plan(plan: Plan, summary: Summary, page: Page, *, missed: bool = False) -> None:
    """Write all tables of a plan to the page; `missed`: one that misses a target is not called best at its head."""
    like = f", like {plan.method.like}" if plan.method.like else ""
    status = "a stated target is missed" if missed else plan.status
    page.line(f"{plan.question} plan by {plan.method.formulation}{like}: {status}")
    for view in VIEWS:
        if view != "machines" or not summary.hours:  # else they are those of the hours
            show_view(view, plan, summary, page)


def show_view(view: str, plan: Plan, summary: Summary, page: Page) -> None:
    """Write the tables of one of `VIEWS`; nothing of one that the plan has nothing for.

    Bounds of a plan that was not made here are shown as not proved here, also where the plan calls them certified.
    """
    from hetplan.cli.fleet_page import show_bill, show_offers
    from hetplan.profiles.summary_words import runs_tables

    if view == "machines":
        _machines(runs_tables(summary), page)
    elif view == "hours" and plan.parts is not None:
        if summary.hours:
            _machines(runs_tables(summary)[:1], page)
        show_offers(plan, page)
    elif view == "routes":
        _routing(plan, page)
    elif view == "bill" and plan.bill is not None:
        show_bill(plan.bill, page)
    elif view == "policies" and plan.policies:
        from hetplan.cli.policy_page import show_policies

        show_policies(plan, page)
    elif view == "proof":
        _promises(plan, page)
        _claims(plan, page, made_here=summary.made_here)
        _binding(plan, page)
        _unserved(plan, page)
    elif view == "changes":
        _actions(plan, page)
    elif view == "warnings":
        show_notices(plan.warnings, page)


def _machines(tables: Iterable[Table], page: Page) -> None:
    """All rows of what runs where: the summary prints the first of them."""
    for table in tables:
        page.heading(table.title)
        if not table.rows:
            page.line("  none")
        page.table(table.columns, table.rows, right=[table.columns[place] for place in table.right])


def _routing(plan: Plan, page: Page) -> None:
    names = _load_names(plan)
    rows = []
    for app, routes in plan.routing.items():
        for route in routes:
            which = ", ".join(f"{axis}={number(value)}" for axis, value in route.when.items())
            step = "/".join([*route.prefix, *([route.node] if route.node else [])])
            to = ", ".join(f"{names.get(load, load)} {share:.1%}" for load, share in route.to.items())
            after = ", ".join(f"after {node}: {outcome}" for node, outcome in (route.after or {}).items())
            rows.append((app, " ".join(filter(None, [step, after, which])) or "all", to))
    for app, rule in plan.dispatch.items():
        routed = {route.node for route in plan.routing.get(app, ())}
        placed: dict[str, str] = getattr(rule, "placement", {})
        rows += [(app, node, f"calls of {place}") for node, place in placed.items() if node not in routed]
    if rows:
        page.heading("Where queries go")
        page.table(("app", "queries", "to"), rows[:MOST_ROUTES])
        _more(page, len(rows) - MOST_ROUTES)


def _load_names(plan: Plan) -> dict[str, str]:
    """What a reader calls a load: its hardware, its offer where one hardware comes under several, else its id."""
    seats = [(load.id, worker) for worker in plan.workers for load in worker.loads]
    hardware = {load: worker.hardware for load, worker in seats}
    offers = {load: worker.offer or worker.hardware for load, worker in seats}
    for names in (hardware, offers):
        if len(set(names.values())) == len(names):
            return names
    return {}


def _promises(plan: Plan, page: Page) -> None:
    if not plan.promises:
        return
    page.heading("Promises")
    rows = []
    for promise in plan.promises:
        quantity = promise.quantity
        if promise.percentile is not None:
            quantity += f" p{promise.percentile:.12g}"
        model = f"{promise.model}, extrapolated" if promise.extrapolated else promise.model
        rows.append((promise.app or "-", quantity, f"{promise.relation} {number(promise.value)}", model))
    page.table(("app", "quantity", "promised", "by the model"), rows)


def _claims(plan: Plan, page: Page, *, made_here: bool) -> None:
    if not plan.claims:
        return
    page.heading("How good it is")
    rows = []
    for claim in plan.claims:
        gap = "-" if claim.gap is None else f"{claim.gap:.2g}" if claim.gap > ROUNDING else "0"
        whose = claim.vouched if made_here or claim.vouched == "none" else "not proved here"
        rows.append((f"{claim.sense} {claim.about}", number(claim.value), number(claim.bound), gap, claim.scope, whose))
    page.table(("claim", "value", "bound", "gap", "bound of", "bound is"), rows, right=["value", "bound", "gap"])
    if not made_here and any(claim.bound is not None for claim in plan.claims):
        page.line("  `hetplan verify` proves bounds again, or says that it does not")


def _binding(plan: Plan, page: Page) -> None:
    rows = [
        (f"{limit.block}[{limit.label}]" if limit.label else limit.block, limit.unit, number(limit.price))
        for solve in _behind_the_claims(plan)
        for limit in solve.binding
        if limit.unit  # without one it is a row of the program that nobody can have more of
    ]
    if rows:
        page.heading("What limits it")
        page.table(("limit", "one more of", "brings"), list(dict.fromkeys(rows)), right=["brings"])


def _behind_the_claims(plan: Plan) -> list[Solve]:
    """The solves behind the plan, where others of the same kind were tried before or after it."""
    begun = min((claim.solve for claim in plan.claims if claim.solve is not None), default=1)
    first_of: dict[str | None, Solve] = {}
    for solve in plan.solves:
        if solve.id >= begun:
            first_of.setdefault(solve.about, solve)
    return list(first_of.values())


def _unserved(plan: Plan, page: Page) -> None:
    if plan.unserved:
        page.heading("Left unserved")
        page.table(
            ("app", "rate_qps", "why"), [(u.app, number(u.rate_qps), u.why) for u in plan.unserved], right=["rate_qps"]
        )


def show_notices(notices: Iterable[Notice], page: Page) -> None:
    """Warnings, one line each."""
    listed = list(notices)
    if listed:
        page.heading("Warnings")
        for notice in listed:
            at = f" at {notice.at}" if notice.at else ""
            page.line(f"  {notice.code}{at}: {notice.text}")


def _more(page: Page, count: int) -> None:
    if count > 0:
        page.line(f"  ... and {count} more in the plan file")


def _actions(plan: Plan, page: Page) -> None:
    """The steps from what runs to the plan; of a plan with periods also what starts and stops before each of them."""
    rows = [
        (one.id, one.do, one.load or one.worker or "-", one.count or "-", one.host or "-",
         ", ".join(map(str, one.after)) or "-")
        for one in plan.actions
    ]  # fmt: skip
    if rows:
        page.heading("From what runs")
        page.table(("step", "do", "what", "count", "host", "after step"), rows, right=["step", "count"])
    changes = [
        (period.id, one.do, one.worker or "-", one.count or "-", "-" if one.ahead_s is None else number(one.ahead_s))
        for period in plan.periods
        for one in period.actions or ()
    ]
    if changes:
        page.heading("What starts and stops for each period")
        columns = ("period", "do", "worker", "count", "seconds ahead")
        page.table(columns, changes, right=["count", "seconds ahead"])


def _next_line(command: str, plan: str, written: str, files: Sequence[Path]) -> str:
    """What to do next: a command to copy, where one line holds the names of its files."""

    def line(plan: str, given: str) -> str:
        more = command.replace("PLAN", plan).replace("PROFILE SLO", given)
        return f"Written to {written}.   Next: {more}"

    begun = line(shlex.quote(written), shlex.join(map(str, files)))
    if not files or len(begun) > WIDTH:
        begun = line(plan, "PROFILE SLO")
    others = "   (or: verify, report, simulate)"
    return begun + others if len(begun + others) <= WIDTH else begun


def show_outcome(
    outcome: Outcome, page: Page, *, written: str | None = None, files: Sequence[Path] = (), details: bool = False
) -> None:
    """The summary of the plan, with `details` all its tables below; without a plan, why and the repairs.

    `files`: what it was made from, as it was given, for the command that is advised.
    """
    summary = outcome.summary
    if summary is None:
        page.line(outcome.reason)
        show_notices(outcome.warnings, page)
    else:
        from hetplan.cli.summary_page import show_summary
        from hetplan.profiles.summary_lines import Closing

        closing = Closing(outcome.verified_how, written or "PLAN")
        show_summary(summary, page, closing)
        page.line()
        if written is not None:
            page.line(_next_line(summary.next, closing.plan, written, files))
        elif outcome.exit_code in WRITES_A_PLAN:
            page.line("Nothing was written.   Next: the same with -o plan.json")
        else:
            page.line(f"Nothing was written: {outcome.reason}.")
    if outcome.violations or outcome.why or outcome.repairs:
        from hetplan.cli.failure_page import show_why

        show_why(outcome, page)
    if details and outcome.plan is not None and summary is not None:
        page.line()
        show_plan(outcome.plan, summary, page, missed=outcome.finding.target_missed)
