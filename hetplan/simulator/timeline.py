"""The course of a simulation over time: as text for a terminal, and as an SVG picture that needs no library."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from hetplan.drawing.charts import COURSES, timeline_picture
from hetplan.simulator.run_summary import Timeline

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["timeline_svg", "timeline_text"]

_BLOCKS = " ▁▂▃▄▅▆▇█"
_PLAIN = " .:-=+*%@"


def _rows(timeline: Timeline) -> list[tuple[str, str, float | None]]:
    """The courses that this timeline has."""
    return [row for row in COURSES if getattr(timeline, row[0]) is not None]


def timeline_text(timeline: Timeline, *, width: int = 60, encoding: str = "utf-8") -> str:
    """One line of blocks per course, lowest to highest, with the largest value at its end.

    >>> import numpy as np
    >>> flat = np.zeros(4)
    >>> print(timeline_text(Timeline(1.0, np.array([0.0, 1, 2, 4]), flat, flat, flat, flat), width=4).splitlines()[1])
    jobs waiting         ▁▃▅█ most 4
    """
    blocks = _BLOCKS if _writes(encoding) else _PLAIN
    lines = []
    for name, title, ceiling in _rows(timeline):
        values = _resampled(getattr(timeline, name), width)
        top = max(ceiling or 0.0, float(values.max(initial=0.0)))
        marks = "".join(_block(value, top, blocks) for value in values)
        lines.append(f"{title:<20} {marks} most {_number(float(values.max(initial=0.0)))}")
    total = timeline.width_s * len(timeline.waiting)
    lines.append(
        f"{'':<20} 0 s{' ' * max(0, min(width, len(timeline.waiting)) - 4 - len(_number(total)))}{_number(total)} s"
    )
    return "\n".join(lines)


def _writes(encoding: str) -> bool:
    """Whether blocks can be written there.

    >>> _writes("utf-8"), _writes("ascii"), _writes("latin-1")
    (True, False, False)
    """
    try:
        _BLOCKS.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _block(value: float, top: float, blocks: str) -> str:
    if top <= 0.0 or value <= 0.0:
        return blocks[1] if top <= 0.0 or value == 0.0 else blocks[0]
    return blocks[max(1, min(8, 1 + round(7 * value / top)))]


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


def timeline_svg(timeline: Timeline, *, title: str = "") -> str:
    """An SVG file by itself: one strip per course over a common time axis, for light and dark grounds.

    >>> import numpy as np
    >>> flat = np.zeros(4)
    >>> timeline_svg(Timeline(1.0, flat, flat, flat, flat, flat)).startswith("<svg ")
    True
    """
    drawn = timeline_picture(timeline.as_dict(), label=title or "Timeline of a simulation")
    assert drawn is not None
    return drawn.svg(alone=True)
