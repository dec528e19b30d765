"""A page of HTML under way: headings, rows, tables and charts in one file, with no script and no address.

>>> page = Html("a plan")
>>> page.table("who", ["who"], [["<script>"]])
>>> "&lt;script&gt;" in page.html()
True
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from hetplan.drawing.svg import HATCHES, STYLE, Picture, plain

__all__ = ["PAGE_STYLE", "Html", "Row"]

WIDTHS = {"wide": 1000.0, "mid": 690.0, "narrow": 358.0}
"""Each chart is drawn for a desk, a tablet and a phone; the style sheet shows one."""

_PAPER = (
    "@page{margin:14mm}@media print{.hp{font-size:10pt;print-color-adjust:exact;-webkit-print-color-adjust:exact}"
    ".hp main{max-width:none;padding:0}.hp .row{padding:4px 0}.hp th,.hp td{padding:4px 10px}.hp .money{font-size:32pt}"
    ".hp .notes li{padding:8px 12px}.hp th .small{display:inline}.hp th .small::before{content:'  '}"
    ".hp figure,.hp .rows,.hp .scroll,.hp .notes{margin-top:3mm}.hp summary{min-height:0;padding:4px 0}"
    ".hp .foot{margin-top:5mm}.hp .wide,.hp .narrow,.hp .skip{display:none}.hp .mid{display:block}"
    ".hp h2{margin-top:6mm;break-after:avoid}.hp .lead,.hp .key{break-after:avoid}.hp .scroll{overflow:visible}"
    ".hp figure,.hp .heat,.hp .row,.hp tr,.hp .notes li,.hp details{break-inside:avoid}.hp th:first-child{"
    "position:static}}"
)
PAGE_STYLE = (
    STYLE + ".hp *{box-sizing:border-box}"
    "body.hp{margin:0}.hp{background:var(--paper);color:var(--ink);font:16px/1.5 system-ui,-apple-system,'Segoe UI',"
    "Roboto,'Helvetica Neue',Arial,sans-serif;font-variant-numeric:tabular-nums;-webkit-text-size-adjust:100%}"
    ".hp main{max-width:1064px;margin:0 auto;padding:40px 32px 72px}"
    ".hp h1,.hp h2,.hp h3,.hp p,.hp figure,.hp dl,.hp dd{margin:0}"
    ".hp h1{font-size:1rem;font-weight:600;color:var(--soft)}"
    ".hp h2{font-size:1.25rem;line-height:1.3;font-weight:650;letter-spacing:-.01em;margin-top:56px;text-wrap:balance}"
    ".hp h3{font-size:1rem;font-weight:650;margin-top:20px}.hp p,.hp li{overflow-wrap:anywhere}"
    ".hp .val .small{white-space:nowrap}"
    ".hp .lead{color:var(--soft);max-width:66ch;margin-top:6px}.hp .small{font-size:.875rem;color:var(--soft);"
    "font-weight:400}"
    ".hp a{color:var(--link)}.hp :focus-visible{outline:3px solid var(--link);outline-offset:2px;border-radius:3px}"
    ".hp .skip{position:absolute;left:-999px}.hp .skip:focus{left:16px;top:8px;background:var(--paper);"
    "padding:8px 12px;z-index:9}"
    ".hp .answer{display:flex;flex-wrap:wrap;justify-content:space-between;gap:12px 32px;align-items:end;"
    "margin-top:10px}"
    ".hp .money{font-size:clamp(2.6rem,7vw,4.25rem);line-height:1.02;font-weight:700;letter-spacing:-.035em}"
    ".hp .money span{font-size:.36em;font-weight:600;letter-spacing:-.01em;color:var(--soft)}"
    ".hp .says{font-size:1.125rem;max-width:62ch;margin-top:12px;text-wrap:pretty}"
    ".hp .look{margin-top:10px;font-weight:600}.hp .look a{display:inline-flex;align-items:center;"
    "min-height:40px;color:var(--warn)}"
    ".hp .chip{display:inline-block;padding:7px 14px;border-radius:16px;font-weight:600;font-size:.9375rem;"
    "max-width:56ch}.hp .gain{font-size:1.375rem;font-weight:650;margin-top:6px}"
    ".hp .chip.good{background:var(--good-bg);color:var(--good)}.hp .chip.open{background:var(--warn-bg);"
    "color:var(--warn)}"
    ".hp .chip.bad{background:var(--bad-bg);color:var(--bad)}"
    ".hp .good{color:var(--good)}.hp .bad{color:var(--bad)}.hp .open{color:var(--warn)}"
    ".hp .mid,.hp .narrow{display:none}.hp figure{margin-top:18px}.hp figcaption{color:var(--soft);font-size:.875rem}"
    ".hp .rows{margin-top:18px;border-top:1px solid var(--line)}"
    ".hp .row{display:grid;grid-template-columns:minmax(190px,1.15fr) minmax(160px,2fr) minmax(180px,1.3fr);"
    "grid-template-areas:'name bar val' 'sub bar word';gap:0 28px;align-items:center;padding:12px 0;"
    "border-bottom:1px solid var(--line);overflow-wrap:anywhere}"
    ".hp .row>.name{grid-area:name;align-self:end;font-weight:650}.hp .row>.sub{grid-area:sub;align-self:start}"
    ".hp .row>.bar{grid-area:bar}.hp .row>.val{grid-area:val;align-self:end;font-weight:650}"
    ".hp .row>.word{grid-area:word;align-self:start}.hp svg.stretch{width:100%;overflow:visible}"
    ".hp .key{display:flex;flex-wrap:wrap;gap:6px 20px;margin:14px 0 0;font-size:.875rem;color:var(--soft);"
    "padding:0;list-style:none}"
    ".hp .key li{display:flex;align-items:center;gap:7px}.hp .key b{color:var(--ink)}"
    ".hp .scroll{overflow-x:auto;margin-top:18px;border:1px solid var(--line);border-radius:10px}"
    ".hp table{border-collapse:separate;border-spacing:0;width:100%;font-size:.9375rem}"
    ".hp th,.hp td{padding:10px 14px;text-align:left;vertical-align:top;border-bottom:1px solid var(--line)}"
    ".hp thead th{font-size:.8125rem;font-weight:600;color:var(--soft);background:var(--panel);white-space:nowrap}"
    ".hp tbody tr:last-child>*,.hp tfoot tr:last-child>*{border-bottom:0}.hp tbody th{font-weight:600}"
    ".hp tfoot th,.hp tfoot td{font-weight:650;background:var(--panel);border-top:1px solid var(--line)}"
    ".hp .right{text-align:right;white-space:nowrap}.hp th .small{display:block}"
    ".hp th:first-child{position:sticky;left:0;background:var(--paper);z-index:1}"
    ".hp thead th:first-child,.hp tfoot th:first-child{background:var(--panel)}"
    ".hp .heat{display:grid;gap:2px;margin-top:16px;align-items:center;font-size:.75rem}.hp .heat b{"
    "font-size:.875rem;padding-right:10px}"
    ".hp .heat i{font-style:normal;display:grid;place-items:center;height:34px;border-radius:3px;min-width:0;"
    "overflow:hidden}"
    + "".join(f".hp .h{level}{{background:var(--heat{level});fill:var(--heat{level})}}" for level in range(5))
    + ".hp .h2{color:#08202f}.hp .h3,.hp .h4{color:#fff}"
    "@media screen and (prefers-color-scheme:dark){.hp .h2{color:#fff}.hp .h3,.hp .h4{color:#08131b}}"
    ".hp .none{background:repeating-linear-gradient(45deg,var(--track) 0 3px,transparent 3px 7px);color:var(--soft)}"
    ".hp .heat i.hour{overflow:visible;height:auto;color:var(--soft);white-space:nowrap}"
    ".hp .notes{display:grid;gap:12px;margin:18px 0 0;padding:0;list-style:none}"
    ".hp .notes li{padding:14px 16px;background:var(--warn-bg);border-radius:10px}"
    ".hp details{border-top:1px solid var(--line)}.hp details:last-of-type{border-bottom:1px solid var(--line)}"
    ".hp summary{cursor:pointer;padding:12px 0;font-weight:600;min-height:48px}.hp details>div{padding:0 0 20px}"
    ".hp h2+details,.hp h3+details{margin-top:14px}.hp .foot{margin-top:56px}.hp .scroll svg{max-width:none}"
    ".hp code,.hp pre{font:.875rem/1.6 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;overflow-wrap:anywhere}"
    ".hp pre{background:var(--panel);padding:14px 16px;border-radius:10px;white-space:pre-wrap;margin:12px 0 0}"
    "@media screen and (max-width:1064px){.hp .wide{display:none}.hp .mid{display:block}}"
    "@media screen and (max-width:760px){.hp main{padding:24px 16px 56px}.hp h2{margin-top:44px}"
    ".hp .wide,.hp .mid{display:none}"
    ".hp .narrow{display:block}"
    ".hp .row{grid-template-columns:minmax(100px,1fr) minmax(0,auto);"
    "grid-template-areas:'name val' 'bar bar' 'sub sub' 'word word';"
    "gap:4px 12px;padding:14px 0}"
    ".hp th,.hp td{padding:10px 12px}.hp .scroll th:first-child{box-shadow:1px 0 0 var(--line);min-width:124px;"
    "max-width:150px}"
    ".hp .heat i{height:26px;font-size:0}.hp .heat b{grid-column:1/-1;padding-top:8px}.hp .heat i.hour{"
    "font-size:.6875rem;overflow:visible}}"
    "@media (forced-colors:active){.hp .heat i,.hp svg{forced-color-adjust:none}}" + _PAPER
)
"""The style sheet of pages; readable on a phone, printable, light and dark."""

GLYPHS = {"good": "\u2713", "open": "\u25cb", "bad": "\u2715"}
"""A state is never told by its colour alone."""


@dataclass(frozen=True)
class Row:
    """A row of a list: what it is of, a bar, how much; below them what else is known. `kind` colours the last words."""

    name: str
    about: str = ""
    bar: Picture | None = None
    value: str = ""
    of: str = ""
    words: tuple[str, ...] = ()
    verdict: str = ""
    kind: str = ""


class Html:
    """A page under way."""

    def __init__(self, title: str) -> None:
        self.title = title
        self._parts: list[str] = []

    def heading(self, text: object, level: int = 2, *, name: str = "") -> None:
        """A heading; level 1 is the page's own. `name` is for links to it within the page."""
        self._parts.append(f"<h{level}{_attribute('id', name)}>{plain(text)}</h{level}>")

    def text(self, text: object, kind: str = "") -> None:
        """A paragraph."""
        self._parts.append(f"<p{_attribute('class', kind)}>{plain(text)}</p>")

    def answer(self, large: tuple[str, str], state: str, status: str) -> None:
        """What stands largest on the page, with its unit, and the state of the plan."""
        money = f'<div class="money">{plain(large[0])} <span>{plain(large[1])}</span></div>' if large[0] else ""
        chip = f'<span class="chip {plain(state)}">{GLYPHS[state]} {plain(status)}</span>'
        self._parts.append(f'<div class="answer">{money}<div>{chip}</div></div>')

    def link(self, text: str, to: str) -> None:
        """A link to a heading of this page."""
        self._parts.append(f'<p class="look"><a href="#{plain(to)}">\u26a0 {plain(text)}</a></p>')

    def items(self, lines: Iterable[object], kind: str = "") -> None:
        """A list; nothing where there are no lines."""
        held = "".join(f"<li>{plain(line)}</li>" for line in lines)
        if held:
            self._parts.append(f"<ul{_attribute('class', kind)}>{held}</ul>")

    def rows(self, rows: Iterable[Row]) -> None:
        """Rows with a bar each."""
        self._parts.append('<div class="rows">')
        for row in rows:
            bar = row.bar.svg() if row.bar is not None else ""
            of = f' <span class="small">{plain(row.of)}</span>' if row.of else ""
            verdict = [f"<span{_attribute('class', row.kind)}>{plain(row.verdict)}</span>"] if row.verdict else []
            words = ", ".join([*verdict, *map(plain, row.words)])
            self._parts.append(
                f'<div class="row"><div class="name">{plain(row.name)}</div><div class="sub small">{plain(row.about)}'
                f'</div><div class="bar">{bar}</div><div class="val">{plain(row.value)}{of}</div>'
                f'<div class="word small">{words}</div></div>'
            )
        self._parts.append("</div>")

    def legend(self, entries: Iterable[tuple[str, str, str]]) -> None:
        """What colours mean: of each the colour, what it is, and a figure."""
        held = "".join(
            f'<li><svg width="16" height="12" aria-hidden="true">'
            f'<rect width="16" height="12" class="{kind} part"/></svg>'
            f"{plain(text)}{f' <b>{plain(value)}</b>' if value else ''}</li>"
            for kind, text, value in entries
        )
        self._parts.append(f'<ul class="key">{held}</ul>')

    def table(
        self,
        name: str,
        columns: Sequence[str],
        rows: Iterable[Sequence[object]],
        *,
        right: Iterable[int] = (),
        kinds: Iterable[str] = (),
        foot: Sequence[object] = (),
    ) -> None:
        """A table in a frame that scrolls; `kinds` colours the last cell of each row. Nothing where there are no rows.

        A first cell of two texts has the second one below, smaller.
        """
        held, of_row, to_right = list(rows), list(kinds), set(right)
        if not held:
            return

        def line(cells: Sequence[object], head: bool, kind: str = "") -> str:
            made = []
            for at, text in enumerate(cells):
                tag = "th" if head or at == 0 else "td"
                scope = f' scope="{"col" if head else "row"}"' if tag == "th" else ""
                names = " ".join(
                    filter(None, ["right" if at in to_right else "", kind if at == len(cells) - 1 else ""])
                )
                over, *below = text if isinstance(text, tuple) else (text,)
                inner = plain(over) + "".join(f'<span class="small">{plain(one)}</span>' for one in below if one)
                made.append(f"<{tag}{scope}{_attribute('class', names)}>{inner}</{tag}>")
            return f"<tr>{''.join(made)}</tr>"

        body = "".join(line(row, False, of_row[at] if at < len(of_row) else "") for at, row in enumerate(held))
        last = f"<tfoot>{line(foot, False)}</tfoot>" if foot else ""
        self._parts.append(
            f'<div class="scroll" tabindex="0" role="region" aria-label="{plain(name)}"><table>'
            f"<thead>{line(columns, True)}</thead><tbody>{body}</tbody>{last}</table></div>"
        )

    def heat(self, label: str, columns: Sequence[str], rows: Iterable[tuple[str, Sequence[float | None]]]) -> None:
        """Shares of a limit in percent by hour, the darker the closer to it; what is not known is hatched."""
        grid = f"grid-template-columns:minmax(96px,auto) repeat({len(columns)},minmax(0,1fr))"
        cells = ["<b></b>", *(f'<i class="hour">{plain(text)}</i>' for text in columns)]
        for name, shares in rows:
            cells.append(f"<b>{plain(name)}</b>")
            for share in shares:
                if share is None:
                    cells.append('<i class="none">-</i>')
                else:
                    level = sum(share >= step for step in (35, 55, 75, 90))
                    cells.append(f'<i class="h{level}">{share:.0f}</i>')
        self._parts.append(
            f'<div class="heat" style="{grid}" role="img" aria-label="{plain(label)}">{"".join(cells)}</div>'
        )

    def chart(self, draw: Callable[[float], Picture], caption: str = "") -> None:
        """A chart, drawn for each width."""
        drawn = "".join(f'<div class="{name}">{draw(width).svg()}</div>' for name, width in WIDTHS.items())
        below = f"<figcaption>{plain(caption)}</figcaption>" if caption else ""
        self._parts.append(f"<figure>{drawn}{below}</figure>")

    def picture(self, picture: Picture) -> None:
        """A bar of the page's width."""
        self._parts.append(f"<figure>{picture.svg()}</figure>")

    def drawn(self, svg: str, label: str) -> None:
        """A picture that another room of hetplan drew, with its text escaped there."""
        frame = f'<div class="scroll" tabindex="0" role="region" aria-label="{plain(label)}">'
        self._parts.append(f'<figure>{frame}<div role="img" aria-label="{plain(label)}">{svg}</div></div></figure>')

    def commands(self, lines: Iterable[str]) -> None:
        """Commands to copy."""
        self._parts.append(f"<pre>{plain(chr(10).join(lines))}</pre>")

    @contextmanager
    def fold(self, title: str) -> Iterator[None]:
        """What is added meanwhile is closed until somebody opens it; nothing where nothing is added."""
        begin = len(self._parts)
        yield
        if len(self._parts) > begin:
            self._parts.insert(begin, f"<details><summary>{plain(title)}</summary><div>")
            self._parts.append("</div></details>")

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
        skip = '<a class="skip" href="#plan">Skip to the plan</a>'
        return f'{head}\n<body class="hp">{skip}<main id="plan">\n{self.body()}\n</main></body></html>\n'

    def body(self) -> str:
        """The same without style sheet, for a page that has it."""
        hatches = f'<svg width="0" height="0" style="position:absolute" aria-hidden="true">{HATCHES}</svg>'
        return "\n".join([hatches, *self._parts])

    def fragment(self) -> str:
        """The same as a part of another page, as a notebook shows it."""
        return f'<style>{PAGE_STYLE}</style>\n<div class="hp">\n{self.body()}\n</div>\n'


def _attribute(name: str, value: str) -> str:
    return f' {name}="{plain(value)}"' if value else ""
