"""Charts: bars, curves, promises beside what happened, and courses over time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hetplan.drawing.svg import Picture, Scale, clipped, colour_class, letters_in, short, ticks

__all__ = ["COURSES", "Bar", "Course", "Curve", "Judged", "bars", "courses", "curves", "judged", "timeline_picture"]


@dataclass(frozen=True)
class Bar:
    """One bar: what it is of, how long, and words after its end."""

    label: str
    value: float
    note: str = ""
    colour: str = "k0"


def bars(rows: Sequence[Bar], *, title: str, most: float | None = None) -> Picture:
    """Bars beside one another, their labels at the left.

    >>> "3.5 a week" in bars([Bar("t4", 3.5, "3.5 a week")], title="prices").svg()
    True
    """
    left, width, row = 170.0, 720.0, 24.0
    picture = Picture(width, row * len(rows) + 8, title=title)
    longest = max([most or 0.0, *(bar.value for bar in rows if math.isfinite(bar.value))], default=0.0)
    scale = Scale((0.0, longest or 1.0), (left, width - 190.0))
    for number, bar in enumerate(rows):
        y = 4 + row * number
        picture.words(left - 8, y + 15, clipped(bar.label, letters_in(left - 8)), to="end", tip=bar.label)
        picture.box(
            left, y + 3, scale(bar.value) - left, row - 8, bar.colour, round_by=2, tip=f"{bar.label}: {bar.note}"
        )
        picture.words(scale(bar.value) + 6, y + 15, clipped(bar.note, 30), "faint")
    return picture


@dataclass(frozen=True)
class Curve:
    """A curve through points; `low` and `high` are a band around it, `steps` keeps a value until the next point."""

    label: str
    x: Sequence[float]
    y: Sequence[float | None]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    steps: bool = False


def curves(
    drawn: Sequence[Curve], *, title: str, x: str, y: str, limits: Mapping[str, float] | None = None, zero: bool = True
) -> Picture:
    """Curves over common axes; `limits` are values of x that a dashed line marks.

    >>> picture = curves([Curve("cost", [1, 2], [3, 4])], title="t", x="rate (qps)", y="dollars an hour")
    >>> "rate (qps)" in picture.svg()
    True
    """
    left, right, top, base, height = 62.0, 700.0, 30.0, 250.0, 292.0
    picture = Picture(720.0, height, title=title)
    xs = [value for curve in drawn for value in curve.x if math.isfinite(value)]
    xs += [value for value in (limits or {}).values() if math.isfinite(value)]
    ys = [value for curve in drawn for value in (*curve.y, *curve.high) if value is not None and math.isfinite(value)]
    lows = [value for value in (*ys, *(low for curve in drawn for low in curve.low)) if math.isfinite(value)]
    at_x = ticks(min(xs, default=0.0), max(xs, default=1.0), 6)
    at_y = ticks(0.0 if zero else min(lows, default=0.0), max(ys, default=1.0))
    over = Scale((min(xs, default=0.0), max(xs, default=1.0)), (left, right))
    up = Scale((at_y[0], at_y[-1]), (base, top))
    for value in at_y:
        picture.line([(left, up(value)), (right, up(value))], "grid")
        picture.words(left - 6, up(value) + 4, short(value), "faint small", to="end")
    for value in at_x:
        if over.low - 1e-9 <= value <= over.high + 1e-9:
            picture.words(over(value), base + 16, short(value), "faint small", to="middle")
    picture.words((left + right) / 2, height - 6, x, "faint", to="middle")
    picture.words(left, 14, y, "faint")
    _limits(picture, over, limits or {}, top, base)
    for number, curve in enumerate(drawn):
        _curve(picture, curve, over, up, colour_class(number))
    if len(drawn) > 1:
        place = right
        for number, curve in reversed(list(enumerate(drawn))):
            name = clipped(curve.label, 24)
            place -= 7.0 * len(name) + 26
            picture.box(place, 5, 12, 10, colour_class(number))
            picture.words(place + 16, 14, name, tip=curve.label)
    return picture


def _limits(picture: Picture, over: Scale, limits: Mapping[str, float], top: float, base: float) -> None:
    for number, (name, value) in enumerate(limits.items()):
        if math.isfinite(value):
            picture.line([(over(value), top - 6), (over(value), base)], "limit", tip=f"{name}: {short(value)}")
            # Shares of answers rise to the right: at the foot of a limit there is room.
            right_of = over(value) < over(over.low) + 140.0
            at = over(value) + (4 if right_of else -4)
            picture.words(at, base - 8 - 14 * number, clipped(name, 30), "bad small", to="start" if right_of else "end")


def _curve(picture: Picture, curve: Curve, over: Scale, up: Scale, colour: str) -> None:
    if curve.low and curve.high:
        above = [(over(at), up(value)) for at, value in zip(curve.x, curve.high, strict=True)]
        below = [(over(at), up(value)) for at, value in zip(curve.x, curve.low, strict=True)]
        picture.area([*above, *reversed(below)], f"area {colour}")
    stretch: list[tuple[float, float]] = []
    for at, value in zip(curve.x, curve.y, strict=True):
        if value is None or not math.isfinite(value):
            _stretch(picture, stretch, colour)
            stretch = []
            continue
        point = (over(at), up(value))
        if curve.steps and stretch:
            stretch.append((point[0], stretch[-1][1]))
        stretch.append(point)
        if len(curve.x) <= 40:
            picture.dot(*point, 2.5, colour, tip=f"{curve.label}: {short(value)} at {short(at)}")
    _stretch(picture, stretch, colour)


def _stretch(picture: Picture, points: Sequence[tuple[float, float]], colour: str) -> None:
    if len(points) > 1:
        picture.line(points, f"curve {colour}")


@dataclass(frozen=True)
class Judged:
    """One promise or wish beside what was simulated of it."""

    label: str
    relation: str
    promised: float
    value: float | None
    low: float | None
    high: float | None
    verdict: str


_MARKS = {"met": "good", "broken": "bad", "undecided": "maybe"}


def judged(rows: Sequence[Judged], *, title: str) -> Picture:
    """Each row's own scale has the promise at one place, so that what was simulated is seen to be above or below it.

    >>> row = Judged("response p99", "<=", 60.0, 48.0, 47.0, 49.5, "met")
    >>> "&lt;= 60" in judged([row], title="promises").svg()
    True
    """
    row, left, right, width = 30.0, 250.0, 490.0, 720.0
    picture = Picture(width, row * len(rows) + 26, title=title)
    scale = Scale((0.0, 2.0), (left, right))
    picture.words(scale(1.0), 12, "promised", "faint small", to="middle")
    picture.line([(scale(1.0), 16), (scale(1.0), row * len(rows) + 22)], "axis")
    for number, one in enumerate(rows):
        y = 22 + row * number
        mark = _MARKS.get(one.verdict, "faint")
        picture.words(left - 8, y + 15, clipped(one.label, letters_in(left - 8)), to="end", tip=one.label)
        good = (left, scale(1.0)) if one.relation == "<=" else (scale(1.0), right)
        if one.relation != "=":
            picture.box(good[0], y + 5, good[1] - good[0], row - 14, "soft")
        said = f"{one.relation} {short(one.promised)}"
        if one.value is not None:
            at, low, high = (_beside(one.promised, value) for value in (one.value, one.low, one.high))
            if low is not None and high is not None:
                picture.line([(scale(low), y + 12), (scale(high), y + 12)], f"curve {mark}")
            if at is not None:
                tip = f"simulated {short(one.value)} [{short(one.low)}, {short(one.high)}], promised {said}"
                picture.dot(scale(at), y + 12, 4.5, mark, tip=tip)
            said += f", simulated {short(one.value)}"
        picture.words(right + 10, y + 11, clipped(said, 36), "small")
        picture.words(right + 10, y + 24, one.verdict, f"{mark} small")
    return picture


def _beside(promised: float, value: float | None) -> float | None:
    """How many times the promise a value is; None where that says nothing."""
    if value is None or not math.isfinite(value):
        return None
    if promised == 0:
        return 1.0 if value == 0 else 2.0
    return value / promised if promised > 0 else None


@dataclass(frozen=True)
class Course:
    """One quantity over time, as means of equal stretches; `ceiling` is its natural top."""

    label: str
    values: Sequence[float]
    ceiling: float | None = None


def courses(drawn: Sequence[Course], *, seconds: float, title: str) -> Picture:
    """Strips over a common time axis, one per quantity.

    >>> "jobs waiting" in courses([Course("jobs waiting", [0.0, 2.0])], seconds=10.0, title="a run").svg()
    True
    """
    left, width, high, gap, top = 150.0, 720.0, 64.0, 16.0, 26.0
    base = top + len(drawn) * (high + gap)
    picture = Picture(left + width + 20, base + 24, title=title)
    picture.words(left, 16, title, "bold")
    for number, course in enumerate(drawn):
        y, colour = top + number * (high + gap), colour_class(number)
        held = [float(value) if math.isfinite(value) else 0.0 for value in course.values]
        most = max([course.ceiling or 0.0, *held], default=0.0) or 1.0
        step = width / max(len(held), 1)
        points = [(left, y + high)]
        for place, value in enumerate(held):
            level = y + high * (1.0 - max(value, 0.0) / most)
            points += [(left + place * step, level), (left + (place + 1) * step, level)]
        picture.area([*points, (left + width, y + high)], f"area {colour}")
        picture.line(points[1:], f"curve {colour}")
        picture.line([(left, y + high), (left + width, y + high)], "grid")
        picture.words(left - 8, y + high / 2, clipped(course.label, letters_in(left - 8)), to="end", tip=course.label)
        picture.words(left - 8, y + high / 2 + 15, f"most {short(max(held, default=0.0))}", "faint small", to="end")
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        at = short(float(f"{share * seconds:.3g}"))
        picture.words(left + share * width, base + 8, f"{at} s", "faint small", to="middle")
    return picture


COURSES = (
    ("rate_qps", "arrivals per second", None),
    ("waiting", "jobs waiting", None),
    ("utilisation", "servers busy", 1.0),
    ("workers", "servers", None),
    ("late", "share not in time", None),
    ("kv", "share of KV in use", 1.0),
    ("batch", "sequences decoding", None),
)
"""What a simulation records over time: the field, what it is called, and its natural top where it has one."""


def timeline_picture(timeline: Mapping[str, Any], *, title: str = "") -> Picture | None:
    """The course of a simulation, from its document; None where it has none."""
    drawn = [Course(name, timeline[field], top) for field, name, top in COURSES if timeline.get(field) is not None]
    if not drawn:
        return None
    seconds = float(timeline.get("width_s") or 1.0) * len(drawn[0].values)
    return courses(drawn, seconds=seconds, title=title or f"simulated {short(seconds)} s")
