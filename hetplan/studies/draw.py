"""Curves as an SVG file by itself: no library, no network; its colours hold on light and dark grounds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from hetplan.studies.points import fleet_text

if TYPE_CHECKING:
    from hetplan.studies.whatif import WhatIf

__all__ = ["COLOURS", "whatif_svg"]

COLOURS = ("#2a6f97", "#b5651d", "#6a994e", "#ae2012", "#6d597a", "#5b6770", "#355070", "#bc6c25")
_WIDTH, _HEIGHT, _LEFT, _TOP = 640, 260, 90, 40
_MOST_NAMED = 24


def whatif_svg(found: WhatIf) -> str:
    """The objective along the first axis, one curve per value of the second; below, the fleets in their order."""
    curves = _curves(found)
    named = [one for one in found.segments if one.fleet is not None][:_MOST_NAMED]
    height = _TOP + _HEIGHT + 60 + 16 * (len(named) + 1)
    axis, beside = found.axes[0], found.axes[1] if len(found.axes) > 1 else None
    title = f"{found.about or 'plan'} along {axis.name}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_LEFT + _WIDTH + 30} {height}" role="img" '
        f'font-family="system-ui, sans-serif" font-size="12" fill="currentColor">',
        f"<title>{escape(title)}</title>",
        f'<text x="{_LEFT}" y="18" font-size="14">{escape(title)}</text>',
    ]
    values = [value for _, points in curves for _, value in points]
    if values:
        x, y = _scale(axis.ends, _LEFT, _LEFT + _WIDTH), _scale(_around(values), _TOP + _HEIGHT, _TOP)
        parts += _frame(x, y, f"{axis.name} {axis.unit}".strip())
        for number, (label, points) in enumerate(curves):
            parts += _curve(points, label, COLOURS[number % len(COLOURS)], x, y, number)
        parts += _confirmed(found, x, y)
        parts += [
            f'<line x1="{x(one.low):.1f}" x2="{x(one.low):.1f}" y1="{_TOP}" y2="{_TOP + _HEIGHT}" '
            f'stroke="currentColor" stroke-opacity="0.25" stroke-dasharray="3 3"/>'
            for one in found.breakpoints
        ]
    base = _TOP + _HEIGHT + 62
    for place, one in enumerate(named):
        at = f"{one.start:.6g} to {one.end:.6g}" if one.end > one.start else f"{one.start:.6g}"
        who = f"{beside.name} {one.beside:.6g}: " if beside is not None and one.beside is not None else ""
        parts.append(f'<text x="10" y="{base + 16 * place}">{escape(f"{who}{at}: {fleet_text(one.fleet)}")}</text>')
    parts.append("</svg>")
    return "\n".join(parts) + "\n"


def _curves(found: WhatIf) -> list[tuple[str, list[tuple[float, float]]]]:
    lines: dict[tuple[float, ...], list[tuple[float, float]]] = {}
    for point in found.points:
        line = lines.setdefault(tuple(point["values"][1:]), [])
        if point.get("value") is not None and point["ok"]:
            line.append((point["values"][0], point["value"]))
    return [(f"{found.axes[1].name} {beside[0]:.6g}" if beside else "", sorted(line)) for beside, line in lines.items()]


def _scale(ends: tuple[float, float], start: float, end: float) -> Any:
    low, high = ends
    width = high - low or 1.0
    return lambda value: start + (value - low) / width * (end - start)


def _around(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    room = (high - low) * 0.05 or abs(high) * 0.05 or 1.0
    return low - room, high + room


def _frame(x: Any, y: Any, name: str) -> Iterator[str]:
    low, high = _TOP + _HEIGHT, _TOP
    yield f'<path d="M{_LEFT} {high}V{low}H{_LEFT + _WIDTH}" fill="none" stroke="currentColor" stroke-opacity="0.6"/>'
    for place in range(5):
        at = _LEFT + _WIDTH * place / 4
        yield f'<text x="{at:.1f}" y="{low + 18}" text-anchor="middle">{_of(x, at):.5g}</text>'
        up = low + (high - low) * place / 4
        yield f'<text x="{_LEFT - 8}" y="{up + 4:.1f}" text-anchor="end">{_of(y, up):.5g}</text>'
    yield f'<text x="{_LEFT + _WIDTH / 2}" y="{low + 36}" text-anchor="middle">{escape(name)}</text>'


def _of(scale: Any, at: float) -> float:
    """The value that a place shows."""
    zero, one = scale(0.0), scale(1.0)
    value: float = (at - zero) / (one - zero)
    return 0.0 if math.isclose(value, 0.0, abs_tol=1e-9) else value


def _curve(
    points: Sequence[tuple[float, float]], label: str, colour: str, x: Any, y: Any, number: int
) -> Iterator[str]:
    line = " ".join(f"{x(at):.1f},{y(value):.1f}" for at, value in points)
    yield f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>'
    for at, value in points:
        yield f'<circle cx="{x(at):.1f}" cy="{y(value):.1f}" r="2.5" fill="{colour}"/>'
    if label:
        yield f'<text x="{_LEFT + 8}" y="{_TOP + 14 + 15 * number}" fill="{colour}">{escape(label)}</text>'


def _confirmed(found: WhatIf, x: Any, y: Any) -> Iterator[str]:
    """Plans that were made in full, where they promise the same quantity."""
    for point in found.confirmed:
        if point["ok"] and point.get("about") == found.about and point.get("value") is not None:
            at, value = x(point["values"][0]), y(point["value"])
            if _TOP <= value <= _TOP + _HEIGHT:
                yield f'<circle cx="{at:.1f}" cy="{value:.1f}" r="5" fill="none" stroke="currentColor"/>'
