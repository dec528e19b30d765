"""A page of HTML under way: headings, paragraphs, tables and pictures in one file, with no script and no address.

>>> page = Html("a plan")
>>> page.table(["who"], [["<script>"]])
>>> "&lt;script&gt;" in page.html()
True
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hetplan.drawing.svg import STYLE, Picture, plain

__all__ = ["PAGE_STYLE", "Html"]

PAGE_STYLE = (
    STYLE + ".hp rect.ground{fill:var(--ground)}"
    "body.hp,div.hp{background:var(--ground);color:var(--ink);"
    "font:15px/1.5 system-ui,-apple-system,'Segoe UI',sans-serif}"
    "body.hp{margin:0}"
    ".hp main{max-width:960px;margin:0 auto;padding:16px 16px 48px}"
    ".hp h1{font-size:1.5rem;line-height:1.25;margin:.6em 0 .2em}.hp h2{font-size:1.15rem;margin:2em 0 .5em}"
    ".hp h3{font-size:1rem;margin:1.2em 0 .3em}.hp p{margin:.4em 0}.hp .faint{color:var(--faint)}"
    ".hp .scroll{overflow-x:auto;margin:.5em 0}"
    ".hp table{border-collapse:collapse;font-size:.9rem;font-variant-numeric:tabular-nums}"
    ".hp th,.hp td{text-align:left;padding:.28em .9em .28em 0;border-bottom:1px solid var(--line);vertical-align:top}"
    ".hp th{color:var(--faint);font-weight:600}.hp td.right,.hp th.right{text-align:right}"
    ".hp .good{color:var(--good)}.hp .bad{color:var(--bad)}.hp .maybe{color:var(--maybe)}"
    ".hp code{font-family:ui-monospace,Menlo,Consolas,monospace;font-size:.9em;overflow-wrap:anywhere}"
    "@media print{.hp main{max-width:none;padding:0}.hp .scroll{overflow:visible}.hp h2{break-after:avoid}"
    ".hp figure,.hp table,.hp svg{break-inside:avoid}svg.hp{min-width:0!important}"
    "*{-webkit-print-color-adjust:exact;print-color-adjust:exact}}"
    "@media screen and (max-width:640px){.hp .scroll table{width:max-content}.hp .scroll td{max-width:19em}}"
    ".hp figure{margin:.6em 0}.hp figcaption{color:var(--faint);font-size:.9rem}"
)
"""The style sheet of pages; readable on a phone, printable, light and dark."""


class Html:
    """A page under way."""

    def __init__(self, title: str) -> None:
        self.title = title
        self._parts: list[str] = []

    def heading(self, text: object, level: int = 2) -> None:
        """A heading; level 1 is the page's own."""
        self._parts.append(f"<h{level}>{plain(text)}</h{level}>")

    def text(self, text: object, kind: str = "") -> None:
        """A paragraph."""
        named = f' class="{kind}"' if kind else ""
        self._parts.append(f"<p{named}>{plain(text)}</p>")

    def items(self, lines: Iterable[object]) -> None:
        """A list; nothing where there are no lines."""
        held = "".join(f"<li>{plain(line)}</li>" for line in lines)
        if held:
            self._parts.append(f"<ul>{held}</ul>")

    def table(
        self,
        columns: Sequence[str],
        rows: Iterable[Sequence[object]],
        *,
        right: Iterable[str] = (),
        kinds: Iterable[str] = (),
    ) -> None:
        """A table; `kinds` colours the last cell of each row. Nothing where there are no rows."""
        to_right = {columns.index(name) for name in right}
        held, of_row = list(rows), list(kinds)
        if not held:
            return

        def cell(tag: str, place: int, text: object, kind: str = "") -> str:
            names = " ".join(filter(None, ["right" if place in to_right else "", kind]))
            return f"<{tag}{f' class={chr(34)}{names}{chr(34)}' if names else ''}>{plain(text)}</{tag}>"

        head = "".join(cell("th", place, name) for place, name in enumerate(columns))
        body = []
        for number, row in enumerate(held):
            kind = of_row[number] if number < len(of_row) else ""
            cells = [cell("td", at, text, kind if at == len(row) - 1 else "") for at, text in enumerate(row)]
            body.append(f"<tr>{''.join(cells)}</tr>")
        self._parts.append(
            f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{"".join(body)}</tbody></table></div>'
        )

    def picture(self, picture: Picture, caption: str = "") -> None:
        """A picture, wide ones in a box that scrolls."""
        below = f"<figcaption>{plain(caption)}</figcaption>" if caption else ""
        self._parts.append(f'<figure><div class="scroll">{picture.svg()}</div>{below}</figure>')

    def drawn(self, svg: str) -> None:
        """A picture that another room of hetplan drew, with its text escaped there."""
        self._parts.append(f'<figure><div class="scroll">{svg}</div></figure>')

    def html(self) -> str:
        """The whole file."""
        policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
        head = (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
            '<meta name="viewport" content="width=device-width,initial-scale=1">'
            '<meta name="color-scheme" content="light dark">'
            f"<title>{plain(self.title)}</title><style>{PAGE_STYLE}</style></head>"
        )
        return "\n".join([head, '<body class="hp"><main>', *self._parts, "</main></body></html>"]) + "\n"

    def body(self) -> str:
        """The same without style sheet, for a page that has it."""
        return "\n".join(self._parts)

    def fragment(self) -> str:
        """The same as a part of another page, as a notebook shows it."""
        return "\n".join([f"<style>{PAGE_STYLE}</style>", '<div class="hp">', *self._parts, "</div>"]) + "\n"
