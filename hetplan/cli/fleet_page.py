"""Plans with periods for people: machines by the hour, what is paid ahead, the bill; and the bill as JSON and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetplan.cli.output import Output, Page, number

if TYPE_CHECKING:
    from hetplan.planner.outcome import Outcome
    from hetplan.profiles.plan import Plan
    from hetplan.profiles.plan_parts import Bill, Lever

__all__ = ["bill_csv", "show_bill", "show_offers", "totals", "write_ways"]

COLUMNS = ("period", "offer", "app", "committed", "rented", "cost_per_hour", "starts_per_hour")
OF_TOTALS = ("cost_per_day", "cost_per_month", "saves_per_hour", "verified", "kept")


def totals(bill: Bill) -> Iterator[dict[str, Any]]:
    """What all costs, and each application and offer: means per hour, day and month."""
    rows: list[tuple[str, dict[str, str], float]] = [("total", {}, bill.cost_per_hour)]
    rows += [("application", {"app": name}, cost) for name, cost in bill.apps.items()]
    rows += [("offer", {"offer": name}, cost) for name, cost in bill.offers.items()]
    rows += [("idle", {}, bill.idle_per_hour)] if bill.idle_per_hour else []
    rows += [("starts", {}, bill.starts_per_hour)] if bill.starts_per_hour else []
    for of, whose, cost in rows:
        yield {"of": of, **whose, **_by_time(cost)}


def bill_csv(bill: Bill) -> str:
    """As CSV, by the first column: a `line` per period, offer and application, then totals, then each `way` to buy."""
    stream, columns = io.StringIO(), list[str](("of", "name", *COLUMNS, *OF_TOTALS))
    writer = csv.DictWriter(stream, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows({"of": "line", **line.model_dump()} for line in bill.lines)
    writer.writerows(totals(bill))
    for way in bill.levers:
        by_time = {} if way.cost_per_hour is None else _by_time(way.cost_per_hour)
        writer.writerow({"of": "way", **way.model_dump(), **by_time})
    return stream.getvalue()


def _by_time(cost: float) -> dict[str, float]:
    from hetplan.profiles.fields import HOURS_A_MONTH

    return {"cost_per_hour": cost, "cost_per_day": 24 * cost, "cost_per_month": HOURS_A_MONTH * cost}


def _checked(way: Lever) -> str:
    """What is known of the plan of a way to buy."""
    if way.cost_per_hour is None:
        return "not there"
    played = {True: "simulated", False: "violates the SLO", None: "not simulated"}[way.kept]
    return f"{'verified' if way.verified else 'not verified'}, {played}"


def write_ways(outcome: Outcome, out: Output, folder: Path) -> dict[str, str]:
    """Write the plan of each way to buy but the last, as one-type.json and so on: the file of each."""
    from hetplan.profiles.plan_file import write_plan

    if not outcome.ways:
        out.warn("--alternatives: nothing is written: only a front, or a bill of several periods, has other plans")
        return {}
    folder.mkdir(exist_ok=True)
    written = {}
    for name, plan in outcome.ways.items():
        path = folder / f"{name.replace(' ', '-')}.json"
        write_plan(plan, path)
        written[name] = str(path)
    out.people.line()
    out.people.line(
        f"ways to buy written to {folder}: {', '.join(sorted(Path(path).name for path in written.values()))}"
    )
    return written


def show_offers(plan: Plan, page: Page) -> None:
    """Machines of each offer, period by period, and what is paid for ahead."""
    from hetplan.profiles.plan_periods import machines_of

    rows = [(period.id, period.start_s or 0.0, machines_of(plan, period)) for period in plan.periods]
    offers = sorted({offer for _, _, counts in rows for offer in counts})
    page.heading("Machines of each offer")
    page.table(
        ("period", "from, h", *offers),
        [(name, number(start / 3600), *(counts.get(offer, "-") for offer in offers)) for name, start, counts in rows],
        right=["from, h", *offers],
    )
    if plan.commitments:
        page.heading("Paid for ahead")
        rows_ahead = [(one.count, one.offer, f"{one.term_s / 86400:g} days") for one in plan.commitments]
        page.table(("count", "offer", "for"), rows_ahead, right=["count"])


def show_bill(bill: Bill, page: Page) -> None:
    """Per hour, day and month; per application and offer; what each lever saves."""
    page.heading("Bill")
    words = {"total": "all", "idle": "paid for, and idle", "starts": "while machines start"}
    columns = ("of", f"{bill.currency} per hour", "per day", "per month")
    rows = [
        (
            words.get(one["of"]) or f"{one['of']} {one.get('app') or one.get('offer')}",
            f"{one['cost_per_hour']:.4f}",
            f"{one['cost_per_day']:.2f}",
            f"{one['cost_per_month']:.2f}",
        )
        for one in totals(bill)
    ]
    page.table(columns, rows, right=columns[1:])
    if bill.levers:
        page.heading("What each way to buy saves")
        page.table(
            ("way", "per hour", "saves", "its plan is", "what it is"),
            [
                (
                    one.name,
                    "none" if one.cost_per_hour is None else f"{one.cost_per_hour:.4f}",
                    "" if one.saves_per_hour is None else f"{one.saves_per_hour:.4f}",
                    _checked(one),
                    one.about,
                )
                for one in bill.levers
            ],
            right=["per hour", "saves"],
        )
