"""`hetplan whatif`: how a plan changes when a price, a stock, a limit or a rate does.

`--robust`: how far numbers may be off, and machines that hold all the same.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hetplan.cli.arguments import (
    AsJson,
    Files,
    Formulation,
    Settings,
    method_from,
    option,
)
from hetplan.cli.output import Exit, Output, Page, number
from hetplan.cli.read_files import plan_from
from hetplan.errors import InputError
from hetplan.profiles.given_files import GivenFiles, sort_files

if TYPE_CHECKING:
    from hetplan.profiles.inputs import Inputs
    from hetplan.studies.robust import Box, InBox, Robustness
    from hetplan.studies.whatif import Segment, WhatIf

__all__ = ["Jobs", "JournalFile", "On", "robustness", "whatif"]


Vary = Annotated[
    list[str] | None,
    option(
        "--vary",
        "NAME=RANGE",
        "Vary budget, price:OFFER, stock:OFFER, rate:APP, p99:APP, ttft_p95:APP, quality:APP, demand, latency, prices, "
        "or a path such as slo.limits.changes, over LOW:HIGH, LOW:HIGH:COUNT or A,B,C. At most two.",
    ),
]
Csv = Annotated[Path | None, option("--csv", "FILE", "Write every point here as CSV; - is stdout.")]
Svg = Annotated[Path | None, option("--svg", "FILE", "Draw the curves into this SVG file.")]
Most = Annotated[int, typer.Option("--most", min=2, metavar="N", help="Most points to plan.")]
Confirm = Annotated[
    bool,
    typer.Option("--confirm/--no-confirm", help="Also simulate the plans at the ends and where they change."),
]
Robust = Annotated[
    bool, typer.Option("--robust", help="Find how far demand, times and prices may be off before the plan fails.")
]
BoxOf = Annotated[
    str | None,
    option(
        "--box",
        "demand=D,latency=L,prices=P",
        "With --robust: plan for numbers that are off by up to these shares: demand=0.2,latency=0.1.",
    ),
]
Gamma = Annotated[
    int | None, typer.Option("--gamma", min=1, help="With --box: the most numbers that are off together.")
]
Jobs = Annotated[int, typer.Option("--jobs", min=1, metavar="N", help="Processes in parallel.")]
On = Annotated[str | None, option("--on", "ray[:ADDRESS]", "Spread the work over a Ray cluster.")]
JournalFile = Annotated[
    Path | None, option("--journal", "FILE", "Keep results here; the same command goes on from it.")
]


def whatif(
    files: Files,
    vary: Vary = None,
    formulation: Formulation = None,
    settings: Settings = None,
    csv: Csv = None,
    svg: Svg = None,
    most: Most = 400,
    confirm: Confirm = True,
    robust: Robust = False,
    box: BoxOf = None,
    gamma: Gamma = None,
    jobs: Jobs = 1,
    on: On = None,
    journal: JournalFile = None,
    as_json: AsJson = False,
) -> None:
    """Plan over a range of prices, rates or limits; find the margin of a plan.

    --vary plans along one or two ranges and finds where the machines change. --robust finds how far the numbers may be
    off before the plan fails.
    """
    with Output("whatif", as_json=as_json, quiet=str(csv) == "-") as out:
        if robust == bool(vary):
            raise InputError.one(
                file="--vary", why="expected --vary or --robust, and not both", remedy="Add --vary budget=1:5."
            )
        formulation, options = method_from(settings, formulation=formulation)
        how: dict[str, Any] = {"formulation": formulation, "options": options}
        named = sort_files(files, "whatif", plans=(0, 1 if robust else 0))
        if robust:
            robustness(out, named, how, (box, gamma),
                       {"jobs": jobs, "on": on, "journal": journal})  # fmt: skip
            return
        found = _found(out, named.inputs, vary or [], how, most=most, confirm=confirm,
                       where={"jobs": jobs, "on": on, "journal": journal})  # fmt: skip
        for file, text in ((csv, found.csv), (svg, found.svg)):
            if file is not None:
                _write(out, file, text())
        _show(out, found)
        some = any(point["ok"] for point in found.points)
        reason = "the range is planned" if some else "infeasible: no value of the range has a plan"
        out.end(Exit.OK if some else Exit.INFEASIBLE, reason, **found.as_dict())


def _found(
    out: Output, inputs: Inputs, vary: list[str], how: Mapping[str, Any], *, most: int, confirm: bool,
    where: Mapping[str, Any],
) -> WhatIf:  # fmt: skip
    from hetplan.cli.long_work import interruptible, progress, quiet_engines
    from hetplan.planner.spread import Spread
    from hetplan.studies.whatif import whatif_for

    with quiet_engines(out), progress(out) as show:

        def work(cancel: threading.Event) -> WhatIf:
            spread = Spread(**where, on_event=show, cancel=cancel)
            return whatif_for(inputs, vary, most=most, confirm=confirm, spread=spread, **how)

        return interruptible(work, say=out.note, hurry=True)


def _write(out: Output, file: Path, text: str) -> None:
    import sys

    from hetplan.profiles.plan_file import write_atomically

    if str(file) == "-":
        sys.stdout.write(text)
        return
    write_atomically(file, text.encode())
    out.note(f"written to {file}")


def _show(out: Output, found: WhatIf) -> None:
    from hetplan.studies.points import fleet_text

    page, first = out.people, found.axes[0]
    goal = f"{found.sense} {found.about}".strip() or "plan"
    now = "" if first.now is None else f" (now {number(first.now)})"
    many = f"{len(found.points)} point{'' if len(found.points) == 1 else 's'}"
    page.line(f"{found.question}: {goal} along {first.name}{now}, {many}")
    page.line()
    second = [axis.name for axis in found.axes[1:]]
    brings = ["one more brings"] if any(one.brings for one in found.segments) else []
    rows = [
        [*_beside(found, one.beside), _stretch(one), _values(one.first, one.last),
         *(_brings(one.brings) for _ in brings),
         fleet_text(one.fleet) if one.fleet is not None else f"no plan: {one.why}"]
        for one in found.segments
    ]  # fmt: skip
    page.table([*second, first.name, found.about or "value", *brings, "fleet"], rows)
    if found.breakpoints:
        page.heading("Where the fleet changes")
        rows = [
            [*_beside(found, one.beside), number(one.low) if one.exact else f"{number(one.low)} to {number(one.high)}",
             _values(one.value_before, one.value_after), _changes(one.before, one.after)]
            for one in found.breakpoints
        ]  # fmt: skip
        page.table([*second, first.name, found.about or "value", "what changes"], rows)
    _show_confirmed(found, page)
    page.line()
    for note in found.notes:
        page.line(f"  {note}")


def _show_confirmed(found: WhatIf, page: Page) -> None:
    from hetplan.studies.points import fleet_text

    if not found.confirmed:
        return
    page.heading("Plans made in full there")
    figures = list(dict.fromkeys([found.about or "value", "cost_per_hour"]))
    rows = [
        [", ".join(number(value) for value in one["values"]), one["status"],
         *(number(one.get("value" if name == found.about else name)) for name in figures), fleet_text(one["fleet"])]
        for one in found.confirmed
    ]  # fmt: skip
    page.table((", ".join(axis.name for axis in found.axes), "status", *figures, "fleet"), rows)


def _beside(found: WhatIf, value: float | None) -> list[str]:
    return [number(value)] if len(found.axes) > 1 else []


def _stretch(one: Segment) -> str:
    return number(one.start) if one.start == one.end else f"{number(one.start)} to {number(one.end)}"


def _values(first: float | None, last: float | None) -> str:
    return number(first) if first == last else f"{number(first)} to {number(last)}"


def _brings(brings: float | None) -> str:
    return f"{brings:+.4g}" if brings else "-"


def _changes(before: Mapping[str, int] | None, after: Mapping[str, int] | None) -> str:
    """What comes and what goes, in few words.

    >>> _changes({"a": 3, "b": 1}, {"a": 1, "b": 1, "c": 1})
    '-2 a, +1 c'
    """
    if before is None or after is None:
        return "a plan from here on" if before is None else "no plan from here on"
    moved = {name: after.get(name, 0) - before.get(name, 0) for name in (*before, *after)}
    names = sorted((name for name in moved if moved[name]), key=lambda name: (moved[name] > 0, name))
    return ", ".join(f"{moved[name]:+d} {name}" for name in names)


def robustness(
    out: Output, named: GivenFiles, how: Mapping[str, Any], asked: tuple[str | None, int | None],
    where: Mapping[str, Any],
) -> None:  # fmt: skip
    """Look, show and end the command; `asked` are the box and gamma."""
    from hetplan.cli.long_work import interruptible, progress, quiet_engines
    from hetplan.planner.spread import Spread
    from hetplan.studies.robust import robust_for

    said, gamma = asked
    box = _box(said, gamma)
    plan = plan_from(named.plan, warn=out.warn) if named.plans else None
    inputs = named.inputs
    stated = {name: value for name, value in how.items() if value}
    with quiet_engines(out), progress(out) as show:

        def work(cancel: threading.Event) -> Robustness:
            spread = Spread(**where, on_event=show, cancel=cancel)
            return robust_for(inputs, plan=plan, box=box, spread=spread, **stated)

        found = interruptible(work, say=out.note, hurry=True)
    _show_margins(out, found)
    held = box is None or found.box is not None
    reason = "the margins are known" if held else "no machines hold in the box"
    out.end(Exit.OK if held else Exit.INFEASIBLE, reason, **found.as_dict())


def _box(said: str | None, gamma: int | None) -> Box | None:
    from hetplan.studies.robust import Box

    if said is None:
        if gamma is not None:
            raise InputError.one(file="--gamma", value=gamma, why="a box of errors", remedy="Add --box demand=0.2.")
        return None
    parts: dict[str, float] = {}
    for one in said.split(","):
        name, sign, text = one.partition("=")
        value = math.nan
        with suppress(ValueError):
            value = float(text)
        if not sign or math.isnan(value) or name.strip() not in ("demand", "latency", "prices"):
            why = "parts by which demand, latency and prices may be off"
            raise InputError.one(file="--box", value=one, why=why, remedy="Write --box demand=0.2,latency=0.1.")
        parts[name.strip()] = value
    return Box(**parts, gamma=gamma)


def _show_margins(out: Output, found: Robustness) -> None:
    from hetplan.studies.points import fleet_text

    page = out.people
    page.line(f"{fleet_text(found.fleet)} ({found.sense} {found.about}: {number(found.value)})")
    page.heading("How far numbers may be off")
    fails = "fails" if found.sense == "min" else "fails, or brings 5% less"
    rows = [
        (one.what, _off(one.fails_from), _off(one.fails_below), _off(one.too_dear_below), _off(one.too_dear_from))
        for one in found.margins
    ]
    columns = (f"{fails} from", "below", "5% from the best below", "from")
    shown = [place for place in range(4) if any(row[place + 1] != "-" for row in rows)]
    page.table(("", *(columns[place] for place in shown)), [(row[0], *(row[p + 1] for p in shown)) for row in rows])
    if found.box is not None:
        page.heading("Machines that hold in the box")
        page.table(("what", "found"), _box_rows(found, found.box))
    if found.notes:
        page.line()
    for note in found.notes:
        page.line(f"  {note}")


def _off(factor: float | None) -> str:
    """A factor as people say it.

    >>> _off(1.2), _off(0.875), _off(None)
    ('+20%', '-12.5%', '-')
    """
    return "-" if factor is None else f"{100 * (factor - 1):+.3g}%"


def _box_rows(found: Robustness, box: InBox) -> list[tuple[str, str]]:
    from hetplan.studies.points import fleet_text

    least = found.sense == "min"
    worth = found.about if least else f"{found.about} in the worst corner"
    rows = [
        ("machines", fleet_text(box.fleet)),
        (worth, f"{number(box.value)} in place of {number(box.nominal)} ({100 * box.price:+.3g}%)" if least
         else f"{number(box.value)}; where nothing is off {number(box.nominal)}"),
        ("no machines that hold do better than", "-" if box.bound is None else number(box.bound)),
        ("corners", str(box.corners)),
    ]  # fmt: skip
    if box.bill_at_worst is not None:
        rows.append(("bill at the worst prices", number(box.bill_at_worst)))
        rows.append(("bill then of the machines above", number(box.nominal_bill_at_worst)))
    if box.confirmed is not None:
        said = "in every corner" if box.confirmed else "not in every corner: the program alone holds there"
        rows.append(("plans made in full", said))
    kept = ", ".join(f'"{name}": [{least_}, {most}]' for name, (least_, most) in box.instances.items())
    rows.append(("to take them: limits.instances", "{" + kept + "}"))
    return rows
