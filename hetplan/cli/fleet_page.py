"""Plans with periods for people: machines by the hour, what is paid ahead, the bill; and the bill as JSON and CSV."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from hetplan.cli.arguments import AsJson, PlanFile, option
from hetplan.cli.given_files import plan_from
from hetplan.cli.output import Exit, Output, Page, number
from hetplan.errors import InputError

if TYPE_CHECKING:
    from hetplan.profiles.plan import Plan
    from hetplan.profiles.plan_parts import Bill

__all__ = ["bill", "bill_csv", "show_bill", "show_periods"]

CsvTo = Annotated[Path | None, option("--csv", "FILE", "Write its lines here as CSV.")]
COLUMNS = ("period", "offer", "app", "committed", "rented", "cost_per_hour", "starts_per_hour")


def bill(plan: PlanFile, csv_to: CsvTo = None, as_json: AsJson = False) -> None:
    """What a plan with periods costs: per hour, day and month, per application and offer, and what each lever saves."""
    with Output("bill", as_json=as_json) as out:
        found = plan_from(plan, warn=out.warn)
        if found.bill is None:
            raise InputError.one(
                file=str(plan), path="$.bill", why="the plan has no bill: only plans with periods have one",
                remedy="Plan with the question fleet, or see the bill of one period: hetplan report.",
            )  # fmt: skip
        show_bill(found.bill, out.people)
        if csv_to is not None:
            csv_to.write_text(bill_csv(found.bill))
            out.people.line(f"written to {csv_to}")
        out.end(Exit.OK, "done", bill=found.bill.model_dump(mode="json", exclude_none=True))


def bill_csv(bill: Bill) -> str:
    """Its lines as CSV, one per period, offer and application."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(COLUMNS)
    for line in bill.lines:
        writer.writerow([getattr(line, name) if getattr(line, name) is not None else "" for name in COLUMNS])
    return stream.getvalue()


def show_periods(plan: Plan, page: Page) -> None:
    """Machines of each offer, period by period."""
    from hetplan.profiles.plan_periods import machines_of

    rows = [(period.id, period.start_s or 0.0, machines_of(plan, period)) for period in plan.periods]
    offers = sorted({offer for _, _, counts in rows for offer in counts})
    page.heading("Machines")
    page.table(
        ("period", "from, h", *offers),
        [(name, number(start / 3600), *(counts.get(offer, "-") for offer in offers)) for name, start, counts in rows],
        right=["from, h", *offers],
    )
    if plan.commitments:
        page.heading("Paid for ahead")
        rows_ahead = [(one.count, one.offer, f"{one.term_s / 86400:g} days") for one in plan.commitments]
        page.table(("count", "offer", "for"), rows_ahead, right=["count"])
    if plan.bill is not None:
        show_bill(plan.bill, page)


def show_bill(bill: Bill, page: Page) -> None:
    """Per hour, day and month; per application and offer; what each lever saves."""
    page.heading("Bill")
    rows = [("all", bill.cost_per_hour)]
    rows += [(f"application {name}", cost) for name, cost in bill.apps.items()]
    rows += [(f"offer {name}", cost) for name, cost in bill.offers.items()]
    if bill.idle_per_hour:
        rows.append(("paid for, and idle", bill.idle_per_hour))
    if bill.starts_per_hour:
        rows.append(("while machines start", bill.starts_per_hour))
    columns = ("of", f"{bill.currency} per hour", "per day", "per month")
    page.table(
        columns, [(name, f"{cost:.4f}", f"{24 * cost:.2f}", f"{730 * cost:.2f}") for name, cost in rows],
        right=columns[1:],
    )  # fmt: skip
    if bill.levers:
        page.heading("What each way to buy saves")
        page.table(
            ("way", "per hour", "saves", "what it is"),
            [
                (
                    one.name,
                    "none" if one.cost_per_hour is None else f"{one.cost_per_hour:.4f}",
                    "" if one.saves_per_hour is None else f"{one.saves_per_hour:.4f}",
                    one.about,
                )
                for one in bill.levers
            ],
            right=["per hour", "saves"],
        )
