"""A front of several wishes at once, for people: a table, a CSV, a picture, and the plan of every point."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetplan.cli.output import Page, number

if TYPE_CHECKING:
    from hetplan.planner.front import FrontOf
    from hetplan.planner.outcome import Outcome

__all__ = ["front_body", "front_csv", "front_of", "front_svg", "how_sure", "show_front", "write_front"]

WIDE, HIGH, LEFT, BELOW = 520, 320, 70, 50
WORDS = {"quality": "quality", "cost_per_hour": "cost per hour", "latency_ms": "latency, ms"}


def how_sure(front: FrontOf[Outcome]) -> str:
    """What is known of points that might be missing: proved only where everything was measured."""
    if front.queued and front.whole:
        return (
            "every setting was measured; by a formula for queues no other size that was tried beats a chosen point, "
            "and each was played"
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
    """The first two figures against one another; of three, the third beside each point."""
    names = list(front.points[0][0])
    across, up = names[1], names[0]
    xs = [figures[across] for figures, _ in front.points]
    ys = [figures[up] for figures, _ in front.points]

    def at(value: float, values: list[float], length: int) -> float:
        low, high = min(values), max(values)
        return 0.5 * length if high == low else (0.05 + 0.9 * (value - low) / (high - low)) * length

    places = [(LEFT + at(x, xs, WIDE), HIGH + 20 - at(y, ys, HIGH)) for x, y in zip(xs, ys, strict=True)]
    dots = [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="#2c728e"/>' for x, y in places]
    third = names[2] if len(names) > 2 else None
    label = [
        f'<text x="{x + 6:.1f}" y="{y - 6:.1f}">{place}{"" if third is None else f" ({number(figures[third])})"}</text>'
        for place, ((x, y), (figures, _)) in enumerate(zip(places, front.points, strict=True), start=1)
    ]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in sorted(places))
    line = [f'<polyline points="{path}" fill="none" stroke="#28ae80"/>'] if third is None else []
    axes = [
        f'<path d="M{LEFT} 20 V{HIGH + 20} H{LEFT + WIDE}" fill="none" stroke="#444"/>',
        f'<text x="{LEFT}" y="{HIGH + 38}">{number(min(xs))}</text>',
        f'<text x="{LEFT + WIDE}" y="{HIGH + 38}" text-anchor="end">{number(max(xs))}</text>',
        f'<text x="{LEFT + WIDE / 2:g}" y="{HIGH + 58}" text-anchor="middle">{escape(WORDS[across])}</text>',
        f'<text x="{LEFT - 6}" y="{HIGH + 20}" text-anchor="end">{number(min(ys))}</text>',
        f'<text x="{LEFT - 6}" y="30" text-anchor="end">{number(max(ys))}</text>',
        f'<text x="{LEFT}" y="14">{escape(WORDS[up])}</text>',
    ]
    if third is not None:
        axes.append(f'<text x="{LEFT + 90}" y="14">(in brackets: {escape(WORDS[third])})</text>')
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDE + 60}" height="{HIGH + 20 + BELOW}" '
        'font-family="sans-serif" font-size="12">'
    )
    ground = '<rect width="100%" height="100%" fill="white"/>'
    return "\n".join([head, ground, *axes, *line, *dots, *label, f"<desc>{escape(how_sure(front))}</desc>", "</svg>\n"])
