"""Charts: bars, limits beside what was found, curves, and panels over time. What is counted is drawn as steps.

A chart with words is a function of its width, so that a page draws it for a desk, a tablet and a phone and words keep
their size. Bars have no words and stretch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from hetplan.drawing.summary import Axis, Bar, Limit
from hetplan.drawing.svg import Picture, Scale, clipped, colour_class, letters_in, short, ticks

__all__ = [
    "COURSES",
    "WIDTH",
    "Curve",
    "Panel",
    "bar_chart",
    "curves",
    "length_bar",
    "limit_bar",
    "money_line",
    "panels",
    "parts_bar",
    "timeline_picture",
]

WIDTH = 1000.0
"""How wide a chart is for a desk."""
NARROW = 500.0
"""Below this a chart is for a phone: notes stand above it, not at its right."""
MOST_DOTS = 40
"""Of more points a line alone is shown."""
MOST_STEPS = 60
"""A step of a course over time is at least five pixels wide on a phone."""
LIMIT_AT = 0.85
"""Where on its bar a limit is, as long as what was found is not far beyond it."""


# Bars


def limit_bar(one: Limit) -> Picture:
    """A limit as an upright line, and what was found: to its low end a bar, on to its high end a paler one.

    What was not simulated is hatched. The side of the limit that violates it is hatched, too.

    >>> 'class="bar"' in limit_bar(Limit("a", "p99", "", "<= 60 ms", "50 ms", "met", "<=", 60.0, 50.0, 55.0)).svg()
    True
    """
    named = f"{one.app}, {one.metric}: {one.found or one.verdict}, limit {one.asked}"
    picture, asked = Picture(WIDTH, 22, label=named, stretch=True), one.limit or 0.0
    ends = [end for end in (one.low, one.high) if end is not None and math.isfinite(end)]
    most = max([asked / LIMIT_AT, *(1.02 * end for end in ends)], default=1.0) or 1.0
    scale = Scale((0.0, most), (0.0, WIDTH))
    picture.box(0, 4, WIDTH, 14, "track")
    at_most = one.relation != ">="
    begin, end = (scale(asked), WIDTH) if at_most else (0.0, scale(asked))
    picture.box(begin, 4, end - begin, 14, "never")
    if ends:
        low, high = min(ends), max(ends)
        picture.box(0, 7, scale(low), 8, "bar")
        picture.box(scale(low), 7, scale(high) - scale(low), 8, "paler")
    else:
        picture.box(0, 7, scale(asked), 8, "never")
    picture.upright(scale(asked), 0, 22, 4)
    return picture


def length_bar(bar: Bar, most: float, *, mark: float | None = None) -> Picture:
    """One bar on a scale from 0 to `most`; `mark` is an upright line that all bars are compared with."""
    picture = Picture(WIDTH, 18, label=f"{bar.label}: {bar.note}", stretch=True)
    scale = Scale((0.0, most or 1.0), (0.0, WIDTH))
    picture.box(0, 0, scale(bar.value), 18, bar.colour, tip=f"{bar.label}: {bar.note}")
    if mark is not None:
        picture.upright(scale(mark), 0, 18, 3)
    return picture


def parts_bar(parts: Sequence[Bar], *, label: str, height: float = 18) -> Picture:
    """One bar that its parts fill."""
    picture = Picture(WIDTH, height, label=label, stretch=True)
    _filled(picture, parts, (0.0, WIDTH), 0, height)
    return picture


def _filled(picture: Picture, parts: Sequence[Bar], ends: tuple[float, float], y: float, height: float) -> None:
    at, total = ends[0], math.fsum(_held(part.value) for part in parts) or 1.0
    for part in parts:
        wide = (ends[1] - ends[0]) * _held(part.value) / total
        picture.box(at, y, wide, height, f"{part.colour} part", tip=f"{part.label}: {part.note}")
        at += wide


def bar_chart(rows: Sequence[tuple[str, Sequence[Bar]]], *, label: str) -> Picture:
    """Rows of parts with their names and words, as a file by itself."""
    left, width, row = 210.0, 720.0, 46.0
    picture = Picture(width, row * len(rows) + 8, label=label)
    for number, (name, parts) in enumerate(rows):
        y = 4 + row * number
        picture.words(0, y + 16, clipped(name, letters_in(left - 10 if parts else width)), "key", tip=name)
        _filled(picture, parts, (left, width), y + 4, 16)
        words = ", ".join(f"{part.label} {part.note}".strip() for part in parts)
        picture.words(left, y + 34, clipped(words, letters_in(width - left)), tip=words)
    return picture


def money_line(axis: Axis, width: float) -> Picture:
    """One line: where no plan can be, where nobody knows, this plan, and a simpler way to buy at its end."""
    (value, said), (bound, bound_said) = axis.value, axis.bound
    least = axis.sense == "min"
    known = [value, bound, *([axis.end[0]] if axis.end else [])]
    scale = Scale((0.0, max(known) * (1.0 if axis.end else 1.1) or 1.0), (0.0, width))
    words = f"{'below' if least else 'above'} {bound_said}: impossible"
    label = f"{words}; this plan {said}{f'; {axis.end[1]}' if axis.end else ''}"
    picture = Picture(width, 66 if width > NARROW else 84, label=label)
    picture.box(0, 30, width, 14, "track")
    begin, end = (0.0, scale(bound)) if least else (scale(bound), width)
    picture.box(begin, 30, end - begin, 14, "never")
    low, high = sorted((scale(bound), scale(value)))
    picture.box(low, 30, high - low, 14, "unknown")
    if not least:
        picture.box(0, 30, scale(value), 14, "bar")
    for at in (value, bound, *([axis.end[0]] if axis.end else [])):
        picture.upright(scale(at), 25, 49, 3)
    _word_at(picture, scale(value), 18, f"this plan {said}", "key")
    _word_at(picture, scale(bound), 62, words)
    if axis.end:
        # Beside the words about the bound there is room on a wide line only.
        row = 62 if width - scale(bound) > 7.0 * (len(words) + len(axis.end[1])) else 80
        picture.height = max(picture.height, row + 4)
        picture.words(width, row, clipped(axis.end[1], letters_in(width)), to="end")
    return picture


def _word_at(picture: Picture, x: float, y: float, text: str, kind: str = "") -> None:
    """Words at a place, moved so far that they stay in the frame."""
    half = (4.0 if kind else 3.4) * len(text)
    to = "start" if x < half else "end" if x > picture.width - half else "middle"
    picture.words(0 if to == "start" else picture.width if to == "end" else x, y, text, kind, to=to)


# Curves


@dataclass(frozen=True)
class Curve:
    """A curve through points.

    `better` says which values of y are wished: "min" or "max". Such a curve is drawn as steps, between two points at
    the worse of their values: a plan that is known to do so much is there in any case. Without it points are joined,
    with "none" they are not. `notes` stand beside the points.
    """

    label: str
    x: Sequence[float]
    y: Sequence[float | None]
    better: str = ""
    notes: Sequence[str] = ()


def curves(
    drawn: Sequence[Curve],
    width: float = 720.0,
    *,
    label: str,
    x: str,
    y: str,
    limits: Mapping[str, float] | None = None,
    late: Mapping[str, float] | None = None,
    zero: bool = True,
    log: bool = False,
) -> Picture:
    """Curves over common axes; `limits` are values of x that an upright line marks. Both axes may be logarithmic.

    Beyond a limit no curve may be above the value of `late`: that side is hatched.

    >>> picture = curves([Curve("cost", [1, 2], [3, 4])], label="t", x="rate (qps)", y="dollars an hour")
    >>> "rate (qps)" in picture.svg()
    True
    """
    left, right, top, base = 56.0, width - 16.0, 30.0, 250.0
    many = len(drawn) > 1
    rows = _legend_rows([curve.label for curve in drawn], width) if many else []
    top += 18.0 * max(len(rows) - (width > NARROW), 0)
    picture = Picture(width, base + 42, label=label)
    xs = [at for curve in drawn for at in curve.x if math.isfinite(at)]
    xs += [at for at in (limits or {}).values() if math.isfinite(at)]
    ys = [at for curve in drawn for at in curve.y if at is not None and math.isfinite(at)]
    log = log and min(xs, default=0.0) > 0.0 and min(ys, default=0.0) > 0.0
    low_x, high_x = min(xs, default=0.0), max(xs, default=1.0)
    at_x = _rounds(low_x, high_x) if log else ticks(low_x, high_x, 6 if width > NARROW else 4)
    low_y, high_y = 0.0 if zero and not log else min(ys, default=0.0), max(ys, default=1.0)
    at_y = _decades(low_y, high_y) if log else ticks(min(low_y, high_y), high_y)
    over = Scale((low_x, high_x), (left, right), logarithmic=log)
    up = Scale((at_y[0], at_y[-1]), (base, top), logarithmic=log)
    for value in at_y:
        picture.line([(left, up(value)), (right, up(value))], "gridline")
        picture.words(left - 6, up(value) + 4, short(value), to="end")
    for value in at_x:
        if over.low * (1 - 1e-9) <= value <= over.high * (1 + 1e-9):
            _word_at(picture, over(value), base + 16, short(value))
    picture.words((left + right) / 2, base + 36, clipped(x, letters_in(width)), to="middle")
    picture.words(0, 14, clipped(y, letters_in(width if not many or width <= NARROW else 180)), "key", tip=y)
    for number, (name, value) in enumerate((limits or {}).items()):
        if math.isfinite(value):
            if name in (late or {}):
                picture.box(over(value), top, right - over(value), up((late or {})[name]) - top, "never")
            picture.upright(over(value), top - 6, base, 2, tip=f"{name}: {short(value)}")
            to_right = over(value) < left + 150.0
            at = over(value) + (6 if to_right else -6)
            picture.words(at, base - 8 - 16 * number, clipped(name, 30), to="start" if to_right else "end")
    for number, curve in enumerate(drawn):
        _curve(picture, curve, over, up, colour_class(number) if many else "bar")
    for number, row in enumerate(rows):
        place = width
        for which, name in reversed(row):
            place -= 7.0 * len(name) + 26
            picture.box(place, 5 + 18 * (number + (width <= NARROW)), 12, 10, colour_class(which))
            picture.words(place + 16, 14 + 18 * (number + (width <= NARROW)), name, tip=drawn[which].label)
    return picture


def _legend_rows(labels: Sequence[str], width: float) -> list[list[tuple[int, str]]]:
    """The names of curves in as many rows as they need."""
    rows: list[list[tuple[int, str]]] = []
    room, wide = (width - (190.0 if width > NARROW else 0.0)), math.inf
    for place, label in enumerate(labels):
        name = clipped(label, 24)
        size = 7.0 * len(name) + 26
        if wide + size > room:
            rows.append([])
            wide = 0.0
        rows[-1].append((place, name))
        wide += size
    return rows


def _decades(low: float, high: float) -> list[float]:
    """Powers of ten that cover a range.

    >>> _decades(0.1, 99.0)
    [0.1, 1.0, 10.0, 100.0]
    """
    first, last = math.floor(math.log10(low) + 1e-9), math.ceil(math.log10(high) - 1e-9)
    return [float(f"1e{power}") for power in range(first, max(last, first + 1) + 1)]


def _rounds(low: float, high: float) -> list[float]:
    """Round numbers of a logarithmic axis, as long as they are few.

    >>> _rounds(6.6, 60.0)
    [10.0, 20.0, 50.0]
    """
    times = (1, 2, 5) if high < 1e4 * low else (1,)
    return [float(f"{one * ten:.6g}") for ten in _decades(low, high) for one in times if low <= one * ten <= high]


def _curve(picture: Picture, curve: Curve, over: Scale, up: Scale, colour: str) -> None:
    stretch: list[tuple[float, float]] = []
    for place, (at, value) in enumerate(zip(curve.x, curve.y, strict=True)):
        if value is None or not math.isfinite(value):
            _stretch(picture, stretch, colour)
            stretch = []
            continue
        point = (over(at), up(value))
        if curve.better == "none":
            stretch = []
        elif curve.better and stretch:
            worse = max if (curve.better == "max") == (up.start > up.end) else min
            level = worse(point[1], stretch[-1][1])
            stretch += [(stretch[-1][0], level), (point[0], level)]
        stretch.append(point)
        if len(curve.x) <= MOST_DOTS or curve.notes:
            picture.dot(*point, 2.5, colour, tip=f"{curve.label}: {short(value)} at {short(at)}")
        if curve.notes:
            _word_at(picture, point[0], point[1] - 6, curve.notes[place])
    _stretch(picture, stretch, colour)


def _stretch(picture: Picture, points: Sequence[tuple[float, float]], colour: str) -> None:
    if len(points) > 1:
        picture.line(points, f"curve {colour}")


# Panels over time


@dataclass(frozen=True)
class Panel:
    """One quantity over time, or several that are stacked: of each a colour and its value in each stretch of time.

    `note` stands at its right end; `ceiling` is its natural top; without a `scale` its note says how large it is.
    """

    title: str
    stack: Sequence[tuple[str, Sequence[float]]]
    note: str = ""
    ceiling: float | None = None
    scale: bool = True


def panels(
    drawn: Sequence[Panel], ends: Sequence[float], marks: Sequence[tuple[float, str]], *, label: str, width: float
) -> Picture:
    """Panels under one another over one time axis; `ends` are where stretches of time begin and end.

    >>> drawn = panels([Panel("machines", [("ahead", [1, 2])])], [0, 1, 2], [(0, "00:00")], label="t", width=358.0)
    >>> "machines" in drawn.svg()
    True
    """
    wide = width > NARROW
    left, right = (56.0, width - 128.0) if wide else (40.0, width - 4.0)
    over = Scale((ends[0], ends[-1]), (left, right))
    heights = [84.0 if panel.scale else 34.0 for panel in drawn]
    picture = Picture(width, sum(heights) + 34.0 * len(drawn) + 20, label=label)
    y = 0.0
    for panel, high in zip(drawn, heights, strict=True):
        top, base = y + 28, y + 28 + high
        sums = [
            math.fsum(_held(one) for one in values) for values in zip(*(each for _, each in panel.stack), strict=True)
        ]
        most = max([panel.ceiling or 0.0, *sums], default=0.0) or 1.0
        at_y = ticks(0.0, most, 3)
        up = Scale((0.0, at_y[-1] if panel.scale else most), (base, top))
        room = letters_in(width if wide else width - 7.0 * len(panel.note))
        picture.words(0, y + 14, clipped(panel.title, room), "key", tip=panel.title)
        for value in at_y if panel.scale else ():
            picture.line([(left, up(value)), (right, up(value))], "gridline")
            picture.words(left - 6, up(value) + 4, short(value), to="end")
        foot = [0.0] * (len(ends) - 1)
        for colour, values in panel.stack:
            head = [low + _held(value) for low, value in zip(foot, values, strict=True)]
            if any(value > 0.0 for value in values):
                _band(picture, over, up, ends, foot, head, f"{colour} part" if len(panel.stack) > 1 else colour)
            foot = head
        picture.line(_steps(over, up, ends, foot), "curve ink")
        picture.line([(left, base), (right, base)], "axis")
        if panel.note:
            x = right + 10 if wide else width
            words = clipped(panel.note, letters_in(118.0)) if wide else panel.note
            picture.words(x, up(foot[-1]) + 4 if wide else y + 14, words, to="start" if wide else "end", tip=panel.note)
        y = base + 12
    for at, text in marks:
        _word_at(picture, over(at), y + 10, text)
    picture.height = y + 16
    return picture


def _held(value: float) -> float:
    return float(value) if math.isfinite(value) and value > 0.0 else 0.0


def _steps(over: Scale, up: Scale, ends: Sequence[float], values: Sequence[float]) -> list[tuple[float, float]]:
    """The corners of a line of steps; stretches of the same value are one."""
    points: list[tuple[float, float]] = []
    for place, value in enumerate(values):
        if place and value == values[place - 1]:
            points[-1] = (over(ends[place + 1]), up(value))
        else:
            points += [(over(ends[place]), up(value)), (over(ends[place + 1]), up(value))]
    return points


def _band(
    picture: Picture, over: Scale, up: Scale, ends: Sequence[float], foot: Sequence[float], head: Sequence[float],
    colour: str,
) -> None:  # fmt: skip
    """What lies between two lines of steps, in pieces where there is nothing between them."""
    begin = 0
    for place in range(1, len(head) + 1):
        if place < len(head) and (head[place] > foot[place]) == (head[begin] > foot[begin]):
            continue
        if head[begin] > foot[begin]:
            span = ends[begin : place + 1]
            upper, lower = (_steps(over, up, span, values[begin:place]) for values in (head, foot))
            picture.area([*upper, *reversed(lower)], colour)
        begin = place


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


def timeline_picture(timeline: Mapping[str, Any], *, label: str = "", width: float = WIDTH) -> Picture | None:
    """The course of a simulation, from its document; None where it has none."""
    told = [(name, list(timeline[field]), top) for field, name, top in COURSES if timeline.get(field) is not None]
    if not told or not told[0][1]:
        return None
    count = len(told[0][1])
    seconds = float(timeline.get("width_s") or 1.0) * count
    if count > MOST_STEPS:
        told, count = [(name, _means(values), top) for name, values, top in told], MOST_STEPS
    drawn = [Panel(name, [("flow", values)], f"most {short(_most(values))}", top) for name, values, top in told]
    marks = [(share * count, f"{short(float(f'{share * seconds:.3g}'))} s") for share in (0.0, 0.25, 0.5, 0.75, 1.0)]
    said = label or f"simulated {short(seconds)} s"
    return panels(drawn, range(count + 1), marks, label=said, width=width)


def _means(values: Sequence[float]) -> list[float]:
    """Means of equal stretches, so few that a step can be seen."""
    edges = [round(place * len(values) / MOST_STEPS) for place in range(MOST_STEPS + 1)]
    return [math.fsum(values[begin:end]) / (end - begin) for begin, end in pairwise(edges)]


def _most(values: Iterable[float]) -> float:
    return max((_held(value) for value in values), default=0.0)
