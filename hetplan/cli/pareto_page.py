"""Prints a front of plans for several objectives: a table, a CSV, a picture, and the plan of every point."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetplan.cli.output import Page, number

if TYPE_CHECKING:
    from hetplan.planner.front import FrontOf
    from hetplan.planner.outcome import Outcome

__all__ = ["front_body", "front_csv", "front_of", "front_svg", "how_sure", "show_front", "write_front"]

WORDS = {"quality": "quality", "cost_per_hour": "cost per hour", "latency_ms": "latency, ms"}


def how_sure(front: FrontOf[Outcome]) -> str:
    """What is known of points that might be missing: proved only where everything was measured."""
    if front.queued and front.whole:
        return (
            "every setting was measured; by a queueing formula no other size that was tried beats a chosen point, and "
            "each was simulated"
        )
    if front.whole:
        return "every setting was measured: no other plan of these settings beats a point of it"
    if front.chance is None:
        return "not all settings were measured, and nothing says how likely one is missing"
    return (
        f"not all settings were measured: with probability {front.chance:.2f} under the search's model (not proved) "
        "none of the others would extend it by more than 5 % of its range"
    )


def show_front(front: FrontOf[Outcome], page: Page) -> None:
    """The points as a table, best of the first wish first."""
    page.heading("Front")
    names = list(front.points[0][0])
    rows = [
        (place, *(number(figures[name]) for name in names), outcome.status)
        for place, (figures, outcome) in enumerate(front.points, start=1)
    ]
    shown = ["point", *(WORDS[name] for name in names)]
    page.table([*shown, "status"], rows, right=shown)
    page.line(f"  {how_sure(front)}")


def front_body(front: FrontOf[Outcome]) -> dict[str, Any]:
    """The front as the last JSON object says it; the plans are in the files."""
    points = [
        {"figures": dict(figures), "status": outcome.status, "exit": outcome.exit_code,
         "plan": outcome.plan.digest if outcome.plan is not None else None}
        for figures, outcome in front.points
    ]  # fmt: skip
    return {"of": list(front.of), "whole": front.whole, "chance": front.chance, "points": points}


def front_of(outcome: Outcome, page: Page, folder: Path | None) -> dict[str, Any]:
    """Show the front, write it where a folder is named, and say it as the last JSON object does."""
    assert outcome.front is not None
    show_front(outcome.front, page)
    if folder is not None:
        page.line(f"  written to {folder}: {len(write_front(outcome.front, folder))} files")
    return front_body(outcome.front)


def write_front(front: FrontOf[Outcome], folder: Path) -> list[str]:
    """front.csv, front.svg and plan-01.json, plan-02.json, ...; points that failed a check are written nowhere."""
    from hetplan.profiles.plan_file import write_atomically, write_plan

    folder.mkdir(exist_ok=True)
    written = []
    for place, (_, outcome) in enumerate(front.points, start=1):
        path = folder / f"plan-{place:02d}.json"
        if outcome.plan is not None and outcome.exit_code == 0:
            write_plan(outcome.plan, path)
            written.append(str(path))
        elif path.exists():
            path.unlink()
    for path in sorted(folder.glob("plan-[0-9][0-9].json"))[len(front.points) :]:
        path.unlink()
    for name, text in (("front.csv", front_csv(front)), ("front.svg", front_svg(front))):
        write_atomically(folder / name, text.encode())
        written.append(str(folder / name))
    return written


def front_csv(front: FrontOf[Outcome]) -> str:
    """A row per point: its figures, and its plan."""
    names = list(front.points[0][0])
    lines = [",".join(["point", *names, "status", "plan"])]
    for place, (figures, outcome) in enumerate(front.points, start=1):
        plan = f"plan-{place:02d}.json" if outcome.exit_code == 0 else ""
        lines.append(",".join([str(place), *(f"{figures[name]:.12g}" for name in names), outcome.status, plan]))
    return "\n".join(lines) + "\n"


def front_svg(front: FrontOf[Outcome]) -> str:
    """The first two figures against one another, each point with its number; of three, with the third figure."""
    from hetplan.drawing.charts import Curve, curves

    up, across, *third = list(front.points[0][0])
    points = sorted((figures[across], figures[up], place) for place, (figures, _) in enumerate(front.points, start=1))
    notes = [
        f"{place} ({number(front.points[place - 1][0][third[0]])})" if third else str(place) for _, _, place in points
    ]
    x, y = [at for at, _, _ in points], [value for _, value, _ in points]
    drawn = Curve(WORDS[up], x, y, "max", notes) if not third else Curve(WORDS[up], x, y, "none", notes)
    words = WORDS[up] + (f" (in brackets: {WORDS[third[0]]})" if third else "")
    return curves([drawn], label=how_sure(front), x=WORDS[across], y=words, zero=False).svg(alone=True)
