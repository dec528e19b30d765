"""`hetplan whatif --robust`: how far numbers may be off, and machines that hold all the same."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetplan.cli.output import Exit, Output, number
from hetplan.errors import InputError

if TYPE_CHECKING:
    from hetplan.studies.robust import Box, InBox, Robustness

__all__ = ["robustness"]


def robustness(
    out: Output, profiles: list[Path], slo: Path, beside: Mapping[str, Path | None], how: Mapping[str, Any],
    asked: tuple[str | None, int | None, Path | None], where: Mapping[str, Any],
) -> None:  # fmt: skip
    """Look, show and end the command; `asked` are the box, gamma and the plan file."""
    from hetplan.cli.given_files import plan_from
    from hetplan.cli.long_work import interruptible, progress, quiet_engines
    from hetplan.planner.spread import Spread
    from hetplan.profiles.load import load_inputs
    from hetplan.studies.robust import robust_for

    said, gamma, file = asked
    box = _box(said, gamma)
    plan = None if file is None else plan_from(file, warn=out.warn)
    inputs = load_inputs(profiles, slo, **beside)
    stated = {name: value for name, value in how.items() if value}
    with quiet_engines(out), progress(out) as show:

        def work(cancel: threading.Event) -> Robustness:
            spread = Spread(**where, on_event=show, cancel=cancel)
            return robust_for(inputs, plan=plan, box=box, spread=spread, **stated)

        found = interruptible(work, say=out.note, hurry=True)
    _show(out, found)
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


def _show(out: Output, found: Robustness) -> None:
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
