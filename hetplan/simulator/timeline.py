"""The course of a simulation over time: as text for a terminal, and as an SVG picture that needs no library."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING

from hetplan.simulator.report import Timeline

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["timeline_svg", "timeline_text"]

_BLOCKS = " ▁▂▃▄▅▆▇█"
_ROWS = (
    ("rate_qps", "arrivals per second", None),
    ("waiting", "jobs waiting", None),
    ("utilisation", "servers busy", 1.0),
    ("workers", "servers", None),
    ("late", "share not in time", None),
    ("kv", "share of KV in use", 1.0),
    ("batch", "sequences decoding", None),
)
_COLOURS = {
    "rate_qps": "#5b6770",
    "waiting": "#b5651d",
    "utilisation": "#2a6f97",
    "workers": "#6a994e",
    "late": "#ae2012",
    "kv": "#6d597a",
    "batch": "#355070",
}


def _rows(timeline: Timeline) -> list[tuple[str, str, float | None]]:
    """The courses that this timeline has."""
    return [row for row in _ROWS if getattr(timeline, row[0]) is not None]


def timeline_text(timeline: Timeline, *, width: int = 60) -> str:
    """One line of blocks per course, lowest to highest, with the largest value at its end.

    >>> import numpy as np
    >>> flat = np.zeros(4)
    >>> print(timeline_text(Timeline(1.0, np.array([0.0, 1, 2, 4]), flat, flat, flat, flat), width=4).splitlines()[1])
    jobs waiting         ▁▃▅█ most 4
    """
    lines = []
    for name, title, ceiling in _rows(timeline):
        values = _resampled(getattr(timeline, name), width)
        top = max(ceiling or 0.0, float(values.max(initial=0.0)))
        marks = "".join(_block(value, top) for value in values)
        lines.append(f"{title:<20} {marks} most {_number(float(values.max(initial=0.0)))}")
    total = timeline.width_s * len(timeline.waiting)
    lines.append(
        f"{'':<20} 0 s{' ' * max(0, min(width, len(timeline.waiting)) - 4 - len(_number(total)))}{_number(total)} s"
    )
    return "\n".join(lines)


def _block(value: float, top: float) -> str:
    if top <= 0.0 or value <= 0.0:
        return _BLOCKS[1] if top <= 0.0 or value == 0.0 else _BLOCKS[0]
    return _BLOCKS[max(1, min(8, 1 + round(7 * value / top)))]


def _resampled(values: NDArray[np.float64], width: int) -> NDArray[np.float64]:
    """At most `width` means of neighbouring values."""
    import numpy as np

    count = len(values)
    if count <= width:
        return values
    edges = np.linspace(0, count, width + 1).astype(int)
    return np.array([values[start:end].mean() for start, end in pairwise(edges)])


def _number(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


_WIDTH, _HEIGHT, _LEFT, _GAP = 720, 72, 150, 18


def timeline_svg(timeline: Timeline, *, title: str = "") -> str:
    """An SVG file by itself: one strip per course over a common time axis. Colours hold on light and dark grounds.

    >>> import numpy as np
    >>> flat = np.zeros(4)
    >>> timeline_svg(Timeline(1.0, flat, flat, flat, flat, flat)).startswith("<svg ")
    True
    """
    top = 28 if title else 8
    total = timeline.width_s * len(timeline.waiting)
    height = top + len(_rows(timeline)) * (_HEIGHT + _GAP) + 28
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_LEFT + _WIDTH + 20} {height}" role="img" '
        f'font-family="system-ui, sans-serif" font-size="12" fill="currentColor">',
        f"<title>{escape(title or 'Timeline of a simulation')}</title>",
    ]
    if title:
        parts.append(f'<text x="{_LEFT}" y="18" font-size="14">{escape(title)}</text>')
    for number, (name, label, ceiling) in enumerate(_rows(timeline)):
        base = top + number * (_HEIGHT + _GAP)
        parts += _strip(getattr(timeline, name), label, _COLOURS[name], base, ceiling)
    axis = top + len(_rows(timeline)) * (_HEIGHT + _GAP)
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        x = _LEFT + share * _WIDTH
        parts.append(f'<text x="{x:.1f}" y="{axis + 6}" text-anchor="middle">{_number(share * total)} s</text>')
    parts.append("</svg>")
    return "\n".join(parts) + "\n"


def _strip(
    values: Sequence[float] | NDArray[np.float64], label: str, colour: str, base: int, ceiling: float | None
) -> list[str]:
    largest = max((float(value) for value in values), default=0.0)
    top = max(ceiling or 0.0, largest) or 1.0
    step = _WIDTH / max(len(values), 1)
    points = [f"{_LEFT:.1f},{base + _HEIGHT:.1f}"]
    for place, value in enumerate(values):
        y = base + _HEIGHT * (1.0 - float(value) / top)
        points += [f"{_LEFT + place * step:.1f},{y:.1f}", f"{_LEFT + (place + 1) * step:.1f},{y:.1f}"]
    points.append(f"{_LEFT + _WIDTH:.1f},{base + _HEIGHT:.1f}")
    return [
        f'<polygon points="{" ".join(points)}" fill="{colour}" fill-opacity="0.35" stroke="{colour}"/>',
        f'<text x="{_LEFT - 8}" y="{base + _HEIGHT / 2:.0f}" text-anchor="end">{escape(label)}</text>',
        f'<text x="{_LEFT - 8}" y="{base + _HEIGHT / 2 + 15:.0f}" text-anchor="end" opacity="0.7">'
        f"most {_number(largest)}</text>",
    ]
