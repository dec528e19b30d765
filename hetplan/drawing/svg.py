"""The pencil: an SVG picture made of boxes, lines, ribbons and words, scales with round ticks, and one style sheet.

>>> picture = Picture(100, 40, title="two < three")
>>> picture.box(0, 0, 50, 20, "k0")
>>> "two &lt; three" in picture.svg()
True
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape

__all__ = ["COLOURS", "STYLE", "Picture", "Scale", "clipped", "colour_class", "letters_in", "plain", "short", "ticks"]

COLOURS = 8
"""Kinds of things that get a colour of their own; all beyond share a grey."""

_LIGHT = {
    "ground": "#ffffff",
    "soft": "#f3f5f7",
    "line": "#cfd6dd",
    "faint": "#56626e",
    "ink": "#171c21",
    "good": "#1a7f4b",
    "bad": "#c0362c",
    "maybe": "#996200",
    "k0": "#2a78d6",
    "k1": "#12936a",
    "k2": "#b97700",
    "k3": "#7a4fc4",
    "k4": "#cf4544",
    "k5": "#0f8c99",
    "k6": "#c2548c",
    "k7": "#6c8016",
    "k8": "#7b8794",
}
_DARK = {
    "ground": "#14181c",
    "soft": "#1e242a",
    "line": "#3a444e",
    "faint": "#a3afba",
    "ink": "#eceff2",
    "good": "#4cc38a",
    "bad": "#ff8278",
    "maybe": "#e0aa3e",
    "k0": "#5b9df0",
    "k1": "#34b98c",
    "k2": "#dc9f2e",
    "k3": "#a98be6",
    "k4": "#ee7b78",
    "k5": "#3bb7c4",
    "k6": "#e288b4",
    "k7": "#a3b848",
    "k8": "#93a0ad",
}


def _colours(of: dict[str, str]) -> str:
    return "".join(f"--{name}:{value};" for name, value in of.items())


STYLE = (
    f".hp{{{_colours(_LIGHT)}color:var(--ink)}}"
    f"@media screen and (prefers-color-scheme:dark){{.hp{{{_colours(_DARK)}}}}}"
    "svg.hp{font:12px system-ui,-apple-system,'Segoe UI',sans-serif;background:var(--ground)}"
    ".hp text{fill:var(--ink)}.hp text.faint{fill:var(--faint)}.hp text.bold{font-weight:600}"
    ".hp text.small{font-size:10.5px}.hp text.good{fill:var(--good)}.hp text.bad{fill:var(--bad)}"
    ".hp text.maybe{fill:var(--maybe)}"
    ".hp .soft{fill:var(--soft);stroke:var(--line)}.hp .grid{stroke:var(--line);fill:none}"
    ".hp .limit{stroke:var(--bad);stroke-dasharray:5 4;fill:none}.hp .axis{stroke:var(--faint);fill:none}"
    ".hp .area{fill-opacity:.22;stroke:none}.hp .ribbon{fill-opacity:.32;stroke:none}"
    ".hp .curve{fill:none!important;stroke-width:2;stroke-linejoin:round}"
    + "".join(
        f".hp .{name}{{fill:var(--{name});stroke:var(--{name})}}"
        for name in (*(f"k{number}" for number in range(COLOURS + 1)), "good", "bad", "maybe", "faint")
    )
    + ".hp .ribbon,.hp .area{stroke:none}.hp text,.hp text[class]{stroke:none}"
)
"""The style sheet of pictures and pages: light, dark where the reader's screen is, and light on paper."""


def colour_class(place: int) -> str:
    """The class that colours the thing at this place of its kind's list.

    >>> colour_class(0), colour_class(40)
    ('k0', 'k8')
    """
    return f"k{min(place, COLOURS)}"


def plain(text: object) -> str:
    """Text for HTML and SVG: escaped, and without characters that these may not hold.

    >>> plain("<b>\\x00 & 'c'")
    '&lt;b&gt;? &amp; &#x27;c&#x27;'
    """
    shown = "".join(letter if _may_stand(ord(letter)) else "?" for letter in str(text))
    return escape(shown, quote=True)


def _may_stand(code: int) -> bool:
    if code in (0x202A, 0x202B, 0x202C, 0x202D, 0x202E, 0x2066, 0x2067, 0x2068, 0x2069):
        return False  # these turn the direction of what follows
    return code in (9, 10) or 32 <= code < 127 or 160 <= code < 0xD800 or 0xE000 <= code < 0xFFFE or code > 0xFFFF


def clipped(text: object, letters: int) -> str:
    """At most so many letters, the last one a mark that some are missing.

    >>> clipped("resnet50-fp16", 8), clipped("net", 8)
    ('resnet5…', 'net')
    """
    whole = str(text)
    return whole if len(whole) <= letters else whole[: max(letters - 1, 0)] + "…"


def letters_in(width: float, *, size: float = 12.0) -> int:
    """How many letters of this size fit into a width, by their usual width."""
    return max(int(width / (0.56 * size)), 1)


def short(value: object) -> str:
    """A figure for a picture: four digits that count, thousands apart; words as they are.

    >>> short(0.0123456), short(12345.6), short(3.0), short(None), short(1e-9), short(float("inf"))
    ('0.01235', '12,346', '3', '-', '1e-09', 'inf')
    """
    if value is None:
        return "-"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if not math.isfinite(value):
        return f"{value:g}"
    if abs(value) < 1e-300:
        return "0"  # what rounding on the safe side leaves of a zero
    if abs(value) >= 1e15:
        return f"{value:.3g}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers that cover a range, about so many.

    >>> ticks(0.0, 9.3), ticks(0.0, 0.0)
    ([0.0, 2.0, 4.0, 6.0, 8.0, 10.0], [0.0, 1.0])
    """
    if not (math.isfinite(low) and math.isfinite(high)) or high - low < 1e-300:
        low = low if math.isfinite(low) else 0.0
        return [low, low + (abs(low) or 1.0)]
    rough = (high - low) / max(count, 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * times for times in (1.0, 2.0, 5.0, 10.0) if power * times >= rough * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [float(f"{number * step:.12g}") for number in range(first, last + 1)]


class Scale:
    """From a range of values to a range of pixels.

    >>> scale = Scale((0.0, 10.0), (0.0, 200.0))
    >>> scale(5.0), scale(99.0)
    (100.0, 200.0)
    """

    def __init__(self, values: tuple[float, float], pixels: tuple[float, float], *, logarithmic: bool = False) -> None:
        self.low, self.high = values
        self.start, self.end = pixels
        self.logarithmic = logarithmic and self.low > 0

    def __call__(self, value: float) -> float:
        """The pixel of a value; what is outside is drawn at the edge."""
        held = min(max(value, self.low), self.high) if value == value else self.low
        if self.logarithmic:
            share = math.log(held / self.low) / (math.log(self.high / self.low) or 1.0)
        else:
            share = (held - self.low) / ((self.high - self.low) or 1.0)
        return self.start + share * (self.end - self.start)


class Picture:
    """An SVG picture under way; lengths are pixels, a class names the colour."""

    def __init__(self, width: float, height: float, *, title: str) -> None:
        self.width, self.height, self.title = width, height, title
        self._parts: list[str] = []

    def box(
        self, x: float, y: float, width: float, height: float, kind: str, *, round_by: float = 0, tip: str = ""
    ) -> None:
        """A rectangle, with a tip that shows under the pointer."""
        rounded = f' rx="{_px(round_by)}"' if round_by else ""
        place = f'x="{_px(x)}" y="{_px(y)}" width="{_px(max(width, 0))}" height="{_px(max(height, 0))}"'
        self._add("rect", f'{place}{rounded} class="{kind}"', tip)

    def line(self, points: Iterable[tuple[float, float]], kind: str, *, tip: str = "") -> None:
        """A line through points."""
        self._add("polyline", f'points="{_points(points)}" class="{kind}"', tip)

    def area(self, points: Iterable[tuple[float, float]], kind: str, *, tip: str = "") -> None:
        """A filled shape."""
        self._add("polygon", f'points="{_points(points)}" class="{kind}"', tip)

    def dot(self, x: float, y: float, radius: float, kind: str, *, tip: str = "") -> None:
        """A dot."""
        self._add("circle", f'cx="{_px(x)}" cy="{_px(y)}" r="{_px(radius)}" class="{kind}"', tip)

    def ribbon(
        self, start: tuple[float, float], end: tuple[float, float], thick: float, kind: str, *, tip: str = ""
    ) -> None:
        """A band that flows from one place to another; the places are its upper corners."""
        (x, y), (to_x, to_y) = start, end
        middle = _px((x + to_x) / 2)
        upper = f"M{_px(x)} {_px(y)}C{middle} {_px(y)} {middle} {_px(to_y)} {_px(to_x)} {_px(to_y)}"
        low, to_low = _px(y + thick), _px(to_y + thick)
        lower = f"L{_px(to_x)} {to_low}C{middle} {to_low} {middle} {low} {_px(x)} {low}Z"
        self._add("path", f'd="{upper}{lower}" class="ribbon {kind}"', tip)

    def words(self, x: float, y: float, text: object, kind: str = "", *, to: str = "start", tip: str = "") -> None:
        """A line of text that starts, ends or has its middle here."""
        anchor = f' text-anchor="{to}"' if to != "start" else ""
        named = f' class="{kind}"' if kind else ""
        inner = f"<title>{plain(tip)}</title>" if tip and tip != str(text) else ""
        self._parts.append(f'<text x="{_px(x)}" y="{_px(y)}"{anchor}{named}>{inner}{plain(text)}</text>')

    def svg(self, *, alone: bool = False) -> str:
        """The picture; `alone` with its style sheet, as a file or a notebook wants it."""
        style = f"<style>{STYLE}</style>" if alone else ""
        wide, high = _px(self.width), _px(self.height)
        size = f'width="{wide}" height="{high}" ' if alone else ""
        least = min(int(self.width * 0.72), 640)
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="hp" {size}viewBox="0 0 {wide} {high}" role="img" '
            f'style="min-width:{least}px;max-width:{wide}px;width:100%">'
        )
        return "\n".join([f"{head}<title>{plain(self.title)}</title>{style}", *self._parts, "</svg>"]) + "\n"

    def _add(self, kind: str, attributes: str, tip: str) -> None:
        self._parts.append(
            f"<{kind} {attributes}><title>{plain(tip)}</title></{kind}>" if tip else f"<{kind} {attributes}/>"
        )


def _px(value: float) -> str:
    """A length with at most a tenth of a pixel.

    >>> _px(3.0), _px(3.14159), _px(float("nan"))
    ('3', '3.1', '0')
    """
    if not math.isfinite(value):
        return "0"
    return f"{round(value, 1):g}" if abs(value) < 1e5 else str(round(value))


def _points(points: Iterable[tuple[float, float]] | Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{_px(x)},{_px(y)}" for x, y in points)
