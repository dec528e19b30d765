"""A hook of mkdocs: flowcharts of pages are drawn here, so that whoever reads the site fetches nothing for them.

Of Mermaid this reads what the pages use: boxes, edges with words, and rows of boxes (`subgraph`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html import escape
from typing import Any

FENCE = re.compile(r"^```mermaid\n(.*?)^```$", re.M | re.S)
NODE = re.compile(r'(\w+)(?:[\[({]+"?(.*?)"?[\])}]+)?')
EDGE = re.compile(r'\s*(?:-- "?(?P<plain>[^"-]*?)"? -->|-\. "?(?P<dotted>[^".]*?)"? \.->|-->)\s*')
LETTER, LINE, PAD, GAP = 7.4, 19.0, 12.0, 46.0
"""Pixels: a letter of 13 px, a line, the room inside a box and between boxes."""
MARK = (
    '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
    '<path d="M0 0L8 4L0 8z" fill="currentColor"/></marker></defs>'
)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The page with its flowcharts as pictures."""
    return FENCE.sub(lambda found: drawn(found[1]), markdown)


@dataclass
class Box:
    """A box: its lines, and where its middle is."""

    lines: list[str]
    row: str = ""
    x: float = 0.0
    y: float = 0.0

    @property
    def width(self) -> float:
        """Of its longest line."""
        return max(map(len, self.lines)) * LETTER + 2 * PAD

    @property
    def height(self) -> float:
        """Of all its lines."""
        return len(self.lines) * LINE + PAD


@dataclass
class Chart:
    """What a text says: boxes by their names, edges with their words, titles of rows."""

    boxes: dict[str, Box] = field(default_factory=dict)
    edges: list[tuple[str, str, str]] = field(default_factory=list)
    rows: dict[str, str] = field(default_factory=dict)


def read(text: str) -> Chart:
    """The chart of a text."""
    chart, row = Chart(), ""
    for line in map(str.strip, text.splitlines()[1:]):
        if line.startswith("subgraph"):
            name, _, title = line.removeprefix("subgraph ").partition("[")
            chart.rows[row := name] = title.strip('"]')
        elif line == "end":
            row = ""
        elif line:
            before, words, at = list[str](), "", 0
            for edge in [*EDGE.finditer(line), None]:
                here = [_box(chart, one.strip(), row) for one in line[at : edge.start() if edge else None].split(" & ")]
                chart.edges += [(one, other, words) for one in before for other in here]
                if edge is not None:
                    before, words, at = here, edge["plain"] or edge["dotted"] or "", edge.end()
    return chart


def _box(chart: Chart, text: str, row: str) -> str:
    found = NODE.fullmatch(text)
    if found is None:
        raise ValueError(f"no box: {text!r}")
    name, label = found.groups()
    if name not in chart.boxes or label is not None:
        chart.boxes[name] = Box((label or name).split("<br/>"), row or getattr(chart.boxes.get(name), "row", ""))
    return name


def drawn(text: str) -> str:
    """The picture of a text."""
    chart = read(text)
    across = not all(box.row for box in chart.boxes.values())  # a few boxes in a frame are boxes
    ranks = _ranks(chart) if across else {name: list(chart.rows).index(box.row) for name, box in chart.boxes.items()}
    layers = [[chart.boxes[name] for name in chart.boxes if ranks[name] == at] for at in range(max(ranks.values()) + 1)]
    width, height = _placed(layers, chart, ranks, across=across)
    told = "; ".join(f"{' '.join(chart.boxes[one].lines)} to {' '.join(chart.boxes[two].lines)}"
                     for one, two, _ in chart.edges)  # fmt: skip
    head = f'<svg width="{width:.0f}" height="{height:.0f}" role="img" aria-label="{escape(told)}" font-size="13"'
    frame = '<figure tabindex="0" style="overflow-x:auto;margin:1em 0">'  # a phone moves the picture in its frame
    parts = [f'{frame}{head} fill="currentColor">', MARK]
    for name, title in chart.rows.items():
        held = [box for box in chart.boxes.values() if box.row == name]
        left, top = min(box.x - box.width / 2 for box in held), min(box.y - box.height / 2 for box in held)
        right, low = max(box.x + box.width / 2 for box in held), max(box.y + box.height / 2 for box in held)
        parts.append(f'<text x="{left:.0f}" y="{top - 6:.0f}" font-weight="600">{escape(title)}</text>')
        if across:
            line = f"M{left - 4:.0f} {top - 4:.0f}H{right + 4:.0f}V{low + 4:.0f}H{left - 4:.0f}Z"
            parts.append(f'<path d="{line}" fill="none" stroke="currentColor" stroke-opacity=".3"/>')
    parts += [_edge(chart.boxes[one], chart.boxes[two], words, across=across) for one, two, words in chart.edges]
    parts += [_shown(box) for box in chart.boxes.values()]
    return "".join([*parts, "</svg></figure>"])


def _ranks(chart: Chart) -> dict[str, int]:
    """How far each box is from the first ones; edges that lead back do not count."""
    order = {name: at for at, name in enumerate(chart.boxes)}
    ranks = dict.fromkeys(chart.boxes, 0)
    for _ in chart.boxes:
        for one, two, _words in chart.edges:
            if order[one] < order[two]:
                ranks[two] = max(ranks[two], ranks[one] + 1)
    return ranks


def _placed(layers: list[list[Box]], chart: Chart, ranks: dict[str, int], *, across: bool) -> tuple[float, float]:
    """Place the boxes, layer by layer; the size of the whole."""
    if not across:
        for at, layer in enumerate(layers):
            x = 0.0
            for box in layer:
                box.x, box.y = x + box.width / 2, 40.0 + 84.0 * at
                x += box.width + 18.0
        return max(box.x + box.width / 2 for layer in layers for box in layer) + 2, 84.0 * len(layers)
    tops, y = dict[str, tuple[float, float]](), 0.0
    for row in dict.fromkeys(box.row for box in chart.boxes.values()):
        high = max(sum(box.height + 22.0 for box in layer if box.row == row) for layer in layers)
        tops[row], y = (y + 26.0, high), y + high + 30.0
    x = 6.0
    for at, layer in enumerate(layers):
        wide = max(box.width for box in layer)
        for row, (top, high) in tops.items():
            here = [box for box in layer if box.row == row]
            low = top + (high - sum(box.height + 22.0 for box in here)) / 2
            for box in here:
                box.x, box.y = x + wide / 2, low + box.height / 2
                low += box.height + 22.0
        said = [len(words) * LETTER for one, two, words in chart.edges if ranks[one] == at and ranks[two] == at + 1]
        x += wide + max([GAP, *(one + 20.0 for one in said if one)])
    return max(box.x + box.width / 2 for layer in layers for box in layer) + 6, y + 56.0


def _edge(one: Box, two: Box, words: str, *, across: bool) -> str:
    """A line with its words; one that leads back goes below."""
    if across and one.x < two.x:
        begin, end = (one.x + one.width / 2, one.y), (two.x - two.width / 2, two.y)
        line = f"M{begin[0]:.0f} {begin[1]:.0f}L{end[0]:.0f} {end[1]:.0f}"
        middle = ((begin[0] + end[0]) / 2, (begin[1] + end[1]) / 2 - 5)
    elif across:
        low = max(one.y + one.height / 2, two.y + two.height / 2)
        line = f"M{one.x:.0f} {one.y + one.height / 2:.0f}Q{(one.x + two.x) / 2:.0f} {low + 44:.0f} "
        line += f"{two.x:.0f} {two.y + two.height / 2:.0f}"
        middle = ((one.x + two.x) / 2, low + 36)
    else:
        down = 1 if two.y > one.y else -1
        line = f"M{one.x:.0f} {one.y + down * one.height / 2:.0f}L{two.x:.0f} {two.y - down * two.height / 2:.0f}"
        middle, words = (0.0, 0.0), ""  # of a row to another the words are all the same
    said = f'<text x="{middle[0]:.0f}" y="{middle[1]:.0f}" text-anchor="middle" font-size="12">{escape(words)}</text>'
    strong = 0.8 if across else 0.35
    return (
        f'<path d="{line}" fill="none" stroke="currentColor" stroke-opacity="{strong}" marker-end="url(#tip)"/>'
        f"{said if words else ''}"
    )


def _shown(box: Box) -> str:
    lines = "".join(
        f'<text x="{box.x:.0f}" y="{box.y - box.height / 2 + LINE * (at + 1):.0f}" text-anchor="middle">'
        f"{escape(line)}</text>"
        for at, line in enumerate(box.lines)
    )
    place = f'x="{box.x - box.width / 2:.0f}" y="{box.y - box.height / 2:.0f}"'
    size = f'width="{box.width:.0f}" height="{box.height:.0f}"'
    return (
        f'<rect {place} {size} rx="6" fill="var(--md-default-bg-color,#fff)" stroke="currentColor"'
        f' stroke-opacity=".6"/>{lines}'
    )
