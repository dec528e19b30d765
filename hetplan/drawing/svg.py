"""The pencil: an SVG picture made of boxes, lines and words, scales with round ticks, colours, and the one escape.

>>> picture = Picture(100, 40, label="two < three")
>>> picture.box(0, 0, 50, 20, "k0")
>>> "two &lt; three" in picture.svg()
True
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape

__all__ = ["COLOURS", "HATCHES", "STYLE", "Picture", "Scale", "clipped", "colour_class", "letters_in", "plain", "short",
    "ticks"]  # fmt: skip

COLOURS = 8
"""Kinds of things that get a colour of their own; all beyond share a grey."""

_TOKENS = {
    "paper": ("#ffffff", "#11171d"), "panel": ("#f4f6f8", "#1a222a"), "ink": ("#14202b", "#e9eef2"),
    "soft": ("#51606e", "#a3b1bd"), "line": ("#d9dfe5", "#303b45"), "grid": ("#e8ecf0", "#26303a"),
    "edge": ("#7a8794", "#8a98a5"), "link": ("#0b5c94", "#7fc0ee"), "ahead": ("#0b5c94", "#3f93d2"),
    "spot": ("#3f97cf", "#a5d8f5"), "demand": ("#c47d06", "#f0b24a"), "bar": ("#3d86bd", "#5aa5dc"),
    "track": ("#e8ecf0", "#2a353f"), "never": ("#c9d1d8", "#5a6976"), "good": ("#0a6b4f", "#6fd0ab"),
    "good-bg": ("#e5f3ee", "#12322a"), "warn": ("#8a4b00", "#f3bd6a"), "warn-bg": ("#fdf1dc", "#35270f"),
    "bad": ("#b3261e", "#ff9d94"), "bad-bg": ("#fbe9e7", "#3b1b19"), "heat0": ("#eaf2f8", "#1b2731"),
    "heat1": ("#bcd9ec", "#24445c"), "heat2": ("#7fb5da", "#2f6c98"), "heat3": ("#2f78b0", "#4f9dd3"),
    "heat4": ("#0b4a78", "#a9daf7"), "k0": ("#5b4b9a", "#a493e6"), "k1": ("#129a78", "#37b08c"),
    "k2": ("#b97700", "#dc9f2e"), "k3": ("#2a78d6", "#5b9df0"), "k4": ("#cf4544", "#ee7b78"),
    "k5": ("#0f8c99", "#3bb7c4"), "k6": ("#c2548c", "#e288b4"), "k7": ("#6c8016", "#a3b848"),
    "k8": ("#7b8794", "#93a0ad"),
}  # fmt: skip
"""Colours on light and on dark ground: text has 4.5:1 or more on them, bars 3:1."""
_PLAIN = ("ahead", "demand", "bar", "track", *(f"k{number}" for number in range(COLOURS + 1)))
_HATCHED = {
    "spot": "spot", "idle": "ahead", "never": "never", **{f"k{one}-spot": f"k{one}" for one in range(COLOURS + 1)},
}  # fmt: skip


def _colours(dark: bool) -> str:
    return "".join(f"--{name}:{pair[dark]};" for name, pair in _TOKENS.items())


STYLE = (
    f".hp{{{_colours(False)}color-scheme:light dark}}"
    f"@media screen and (prefers-color-scheme:dark){{.hp{{{_colours(True)}}}}}"
    ".hp svg,svg.hp{display:block;max-width:100%}"
    ".hp svg text,svg.hp text{font:12px system-ui,-apple-system,'Segoe UI',Roboto,Arial,sans-serif;"
    "fill:var(--soft);font-variant-numeric:tabular-nums}"
    ".hp svg text.key,svg.hp text.key{fill:var(--ink);font-weight:600}"
    ".hp .gridline{stroke:var(--grid);fill:none}.hp .axis{stroke:var(--edge);fill:none}"
    ".hp .limit{fill:var(--ink)}.hp .mark{stroke:var(--ink);stroke-width:2;fill:none}"
    ".hp .flow{fill:var(--grid)}.hp .paler{fill:var(--bar);fill-opacity:.55}.hp .unknown{fill:var(--demand);"
    "fill-opacity:.5}"
    ".hp .ground{fill:var(--paper)}.hp .curve{fill:none;stroke-width:2;stroke-linejoin:round}"
    + "".join(f".hp .{name}{{fill:var(--{name})}}" for name in _PLAIN)
    + "".join(f".hp .{name}{{fill:url(#hp-{name})}}" for name in _HATCHED)
    + "".join(f".hp .curve.{name}{{fill:none;stroke:var(--{name})}}" for name in (*_PLAIN, "ink"))
    + ".hp .part{stroke:var(--paper);stroke-width:1.5;vector-effect:non-scaling-stroke}"
    ".hp .idle.part{stroke:var(--ahead)}"
)
"""The style sheet of pictures: light, dark where the reader's screen is, and light on paper."""

HATCHES = "<defs>" + "".join(
    f'<pattern id="hp-{name}" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    f'<rect width="6" height="6" style="fill:var(--{"paper" if name == "idle" else colour})"/>'
    f'<path d="M0 0V6" style="stroke:var(--{colour if name == "idle" else "paper"})" stroke-width="2"'
    f' stroke-opacity="{1 if name == "idle" else 0.55}"/></pattern>'
    for name, colour in _HATCHED.items()
) + "</defs>"  # fmt: skip
"""What is taken back, idle or impossible is hatched, so that it is told apart without colours; once on each page."""


def colour_class(place: int, *, spot: bool = False) -> str:
    """The class that colours the thing at this place of its kind's list; what may be taken back is hatched.

    >>> colour_class(0), colour_class(40, spot=True)
    ('k0', 'k8-spot')
    """
    return f"k{min(place, COLOURS)}{'-spot' * spot}"


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
    """An SVG picture under way; lengths are pixels, a class names the colour. `label` is what it shows, in a sentence.

    One that has no words may `stretch` to the width that there is.
    """

    def __init__(self, width: float, height: float, *, label: str, stretch: bool = False) -> None:
        self.width, self.height, self.label, self.stretch = width, height, label, stretch
        self._parts: list[str] = []

    def box(self, x: float, y: float, width: float, height: float, kind: str, *, tip: str = "") -> None:
        """A rectangle, with a tip that shows under the pointer."""
        place = f'x="{_px(x)}" y="{_px(y)}" width="{_px(max(width, 0))}" height="{_px(max(height, 0))}"'
        self._add("rect", f'{place} class="{kind}"', tip)

    def upright(self, x: float, top: float, bottom: float, thick: float, *, tip: str = "") -> None:
        """An upright line about a place, moved so far that it stays in the frame."""
        left = min(max(x - thick / 2, 0.0), self.width - thick)
        self.box(left, top, thick, bottom - top, "limit", tip=tip)

    def line(self, points: Iterable[tuple[float, float]], kind: str, *, tip: str = "") -> None:
        """A line through points."""
        self._add("polyline", f'points="{_points(points)}" class="{kind}"', tip)

    def area(self, points: Iterable[tuple[float, float]], kind: str, *, tip: str = "") -> None:
        """A filled shape."""
        self._add("polygon", f'points="{_points(points)}" class="{kind}"', tip)

    def dot(self, x: float, y: float, radius: float, kind: str, *, tip: str = "") -> None:
        """A dot."""
        self._add("circle", f'cx="{_px(x)}" cy="{_px(y)}" r="{_px(radius)}" class="{kind}"', tip)

    def words(self, x: float, y: float, text: object, kind: str = "", *, to: str = "start", tip: str = "") -> None:
        """A line of text that starts, ends or has its middle here."""
        anchor = f' text-anchor="{to}"' if to != "start" else ""
        named = f' class="{kind}"' if kind else ""
        inner = f"<title>{plain(tip)}</title>" if tip and tip != str(text) else ""
        self._parts.append(f'<text x="{_px(x)}" y="{_px(y)}"{anchor}{named}>{inner}{plain(text)}</text>')

    def svg(self, *, alone: bool = False) -> str:
        """The picture; `alone` with its style sheet and ground, as a file wants it."""
        wide, high = _px(self.width), _px(self.height)
        size = f'height="{high}" preserveAspectRatio="none"' if self.stretch else f'width="{wide}" height="{high}"'
        kind = ' class="hp"' if alone else ' class="stretch"' if self.stretch else ""
        head = f'<svg xmlns="http://www.w3.org/2000/svg"{kind} viewBox="0 0 {wide} {high}" {size} role="img"'
        parts = [f'{head} aria-label="{plain(self.label)}">']
        if alone:
            parts.append(f'<style>{STYLE}</style>{HATCHES}<rect width="100%" height="100%" class="ground"/>')
        return "\n".join([*parts, *self._parts, "</svg>"]) + "\n"

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
