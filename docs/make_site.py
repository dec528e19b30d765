"""The documentation as a site: the pages of `docs/`, and a page per public module from its docstrings.

    python docs/make_site.py site

No network is needed to build or to read it. The examples in docstrings run in the tests (`tests/test_house.py`), and so
do the commands of the pages (`tests/test_docs.py`), so what the site shows is what happens.
"""

from __future__ import annotations

import importlib
import inspect
import os
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from html import escape
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt

import hetplan
from hetplan.drawing.page import PAGE_STYLE

ROOT = Path(__file__).resolve().parents[1]
MODULES = ("hetplan", "hetplan.search", "hetplan.studies.whatif", "hetplan.testing", "hetplan.errors")
"""What programs may rely on: `__all__` of these."""
STYLE = PAGE_STYLE + (
    ".hp nav{display:flex;flex-wrap:wrap;gap:4px 14px;font-size:.9rem;padding:10px 16px}"
    ".hp nav{border-bottom:1px solid var(--line)}"
    ".hp a{color:var(--k0)}.hp pre{background:var(--soft);border:1px solid var(--line);border-radius:6px;"
    "padding:10px 12px;overflow-x:auto;font-size:.88rem;line-height:1.4}.hp img{max-width:100%}"
    ".hp section{border-top:1px solid var(--line);margin-top:1.6em}.hp .of{margin-left:1.2em}"
)


def pages() -> list[Path]:
    """The pages of the documentation, the README first."""
    first = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
    return [*first, *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs" / "measured").glob("*.md"))]


def place_of(page: Path) -> str:
    """Where a page is in the site."""
    if page.name == "README.md":
        return "index.html"
    inside = page.relative_to(ROOT / "docs") if page.is_relative_to(ROOT / "docs") else page.relative_to(ROOT)
    return str(inside.with_suffix(".html"))


def modules() -> list[str]:
    """The public modules that this version has."""
    found = []
    for name in MODULES:
        try:
            importlib.import_module(name)
        except ImportError:
            continue
        found.append(name)
    return found


def site_page(title: str, body: str, place: str) -> str:
    """A whole page around a body, with the links at the top of each."""
    up = "../" * place.count("/")
    links = [("index.html", "hetplan"), ("questions.html", "questions"), ("cli.html", "command line")]
    links += [("formats.html", "files"), ("design.html", "the house"), ("api/index.html", "Python")]
    nav = "".join(f'<a href="{up}{to}">{escape(name)}</a>' for to, name in links)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>"
        f'<body class="hp"><nav>{nav}<span class="faint">version {escape(hetplan.__version__)}</span></nav>'
        f"<main>{body}</main></body></html>\n"
    )


def rendered(text: str, page: Path, place: str) -> str:
    """Markdown as HTML, its headings with the names that links use, its links between pages kept."""
    markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = markdown.parse(re.sub(r"^<!--.*?-->\n", "", text, flags=re.M))
    used: dict[str, int] = {}
    for number, token in enumerate(tokens):
        if token.type == "heading_open":
            name = re.sub(r"[^\w\- ]", "", tokens[number + 1].content.lower()).replace(" ", "-")
            used[name] = used.get(name, -1) + 1
            token.attrSet("id", f"{name}-{used[name]}" if used[name] else name)
        for child in token.children or ():
            for attribute in ("href", "src"):
                to = child.attrGet(attribute)
                if to is not None:
                    child.attrSet(attribute, _link(str(to), page, place))
    html: str = markdown.renderer.render(tokens, markdown.options, {})
    return html.replace("<table>", '<div class="scroll"><table>').replace("</table>", "</table></div>")


def _link(to: str, page: Path, place: str) -> str:
    """A link of a page as the site has it: to the page that the other file became."""
    if re.match(r"[a-z]+:", to) or to.startswith("#"):
        return to
    path, sign, anchor = to.partition("#")
    target = (page.parent / path).resolve()
    if target in pages():
        there = place_of(target)
    elif target.is_relative_to(ROOT / "docs" / "pictures"):
        there = str(target.relative_to(ROOT / "docs"))
    else:
        there = str(target.relative_to(ROOT)) if target.is_relative_to(ROOT) else path
    return f"{os.path.relpath(there, Path(place).parent)}{sign}{anchor}"


def docstring(thing: Any, place: str) -> str:
    """A docstring as HTML: examples and indented blocks as code, the rest as Markdown."""
    text = inspect.getdoc(thing) or ""
    parts: list[str] = []
    for block in re.split(r"\n\s*\n", text):
        lines = block.splitlines()
        first = next((number for number, line in enumerate(lines) if line.lstrip().startswith(">>>")), None)
        if first is not None:
            parts += ["\n".join(lines[:first]), "```python\n" + "\n".join(lines[first:]) + "\n```"]
        elif all(line.startswith((" ", "=", "-")) for line in lines):
            if parts and parts[-1].startswith("```\n"):
                parts[-1] = f"{parts[-1][:-4]}\n\n{block}\n```"
            else:
                parts.append(f"```\n{block}\n```")
        else:
            parts.append("" if block.strip() == "::" else re.sub(r"::$", ":", block))
    return rendered("\n\n".join(part for part in parts if part), ROOT / "docs" / "api.md", place)


def signature(name: str, thing: Any) -> str:
    """How a thing is called, an argument per line where one line is too short for them."""
    try:
        found = inspect.signature(thing)
    except (TypeError, ValueError):
        return name
    text = re.sub(r"(: |-> )'([^']*)'", r"\1\2", f"{name}{found}")
    if len(text) <= 100:
        return text
    kinds, star, lines = inspect.Parameter, False, []
    for one in found.parameters.values():
        if one.kind is kinds.KEYWORD_ONLY and not star:
            lines.append("    *,")
        star = star or one.kind in (kinds.KEYWORD_ONLY, kinds.VAR_POSITIONAL)
        lines.append(re.sub(r": '([^']*)'", r": \1", f"    {one},"))
    back = (
        re.sub(r"'([^']*)'", r"\1", f" -> {found.return_annotation}")
        if found.return_annotation is not found.empty
        else ""
    )
    return "\n".join([f"{name}(", *lines, f"){back}"])


def entry(name: str, thing: Any, place: str) -> str:
    """One public name: how it is called, its docstring, and what a class has."""
    parts = [f'<section><h2 id="{escape(name)}"><code>{escape(name)}</code></h2>']
    if inspect.isclass(thing) or callable(thing):
        parts.append(f"<pre>{escape(signature(name, thing))}</pre>")
    parts.append(
        docstring(thing, place) if inspect.isclass(thing) or callable(thing) else f"<p>{escape(repr(thing))}</p>"
    )
    for inner, held in members(thing) if inspect.isclass(thing) else ():
        kind = "property" if isinstance(held, property) else ""
        head = inner if kind else signature(inner, held)
        parts.append(f'<div class="of"><h3><code>{escape(head)}</code> <span class="faint">{kind}</span></h3>')
        parts.append(f"{docstring(held.fget if isinstance(held, property) else held, place)}</div>")
    return "\n".join([*parts, "</section>"])


def members(kind: type) -> Iterator[tuple[str, Any]]:
    """What a class offers of its own: methods and properties with a docstring, without those of its records."""
    held = {field.name for field in fields(kind)} if is_dataclass(kind) else set(getattr(kind, "model_fields", {}))
    for name, thing in vars(kind).items():
        if name.startswith("_") or name in held:
            continue
        thing = thing.__func__ if isinstance(thing, classmethod | staticmethod) else thing
        if (inspect.isfunction(thing) or isinstance(thing, property)) and inspect.getdoc(thing):
            yield name, thing


def api_page(name: str, place: str) -> str:
    """The page of a module: its words, its names, a section for each."""
    module = importlib.import_module(name)
    names = [one for one in module.__all__ if not one.startswith("__")]
    listed = " ".join(f'<a href="#{escape(one)}"><code>{escape(one)}</code></a>' for one in names)
    body = [f"<h1><code>{escape(name)}</code></h1>", docstring(module, place), f"<p>{listed}</p>"]
    return "\n".join([*body, *(entry(one, getattr(module, one), place) for one in names)])


def make(folder: Path) -> list[str]:
    """Write the site; returns its pages."""
    made = {}
    for page in pages():
        place, text = place_of(page), page.read_text()
        title = next((line[2:] for line in text.splitlines() if line.startswith("# ")), page.stem)
        made[place] = site_page(title, rendered(text, page, place), place)
    known = modules()
    items = "".join(f'<li><a href="{name}.html"><code>{name}</code></a></li>' for name in known)
    made["api/index.html"] = site_page("Python", f"<h1>From Python</h1><ul>{items}</ul>", "api/index.html")
    for name in known:
        place = f"api/{name}.html"
        made[place] = site_page(name, api_page(name, place), place)
    for place, text in made.items():
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_text(text)
    shutil.copytree(ROOT / "docs" / "pictures", folder / "pictures", dirs_exist_ok=True)
    for name in ("LICENSE", "docs/tutorial.ipynb"):
        if (ROOT / name).exists():
            shutil.copy(ROOT / name, folder)
    return sorted(made)


if __name__ == "__main__":
    to = Path(sys.argv[1] if len(sys.argv) > 1 else "site")
    print(f"{len(make(to))} pages written to {to}")
