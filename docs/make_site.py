"""The documentation as a site: the pages of `docs/`, and a page per public module from its docstrings.

    python docs/make_site.py site
    python docs/make_site.py site --versions    # into site/VERSION, beside other versions, with a list of all

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
MODULES = ("hetplan", "hetplan.extend", "hetplan.search", "hetplan.studies.whatif", "hetplan.testing", "hetplan.errors")
"""What programs may rely on: `__all__` of these."""
HOUSE = ("README.md", "CONTRIBUTING.md", "CODE_OF_CONDUCT.md", "SECURITY.md", "CHANGELOG.md")
"""Pages beside `docs/`."""
STYLE = PAGE_STYLE + (
    ".hp nav{display:flex;flex-wrap:wrap;gap:4px 14px;font-size:.9rem;padding:10px 16px}"
    ".hp nav{border-bottom:1px solid var(--line)}"
    ".hp a{color:var(--link)}.hp pre{background:var(--panel);border:1px solid var(--line);border-radius:6px;"
    "padding:10px 12px;overflow-x:auto;font-size:.88rem;line-height:1.4}.hp img{max-width:100%}"
    ".hp section{border-top:1px solid var(--line);margin-top:1.6em}.hp .of{margin-left:1.2em}"
)


def pages() -> list[Path]:
    """The pages of the documentation, the README first."""
    first = [ROOT / name for name in (*HOUSE, "papers/README.md")]
    return [*first, *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs" / "measured").glob("*.md"))]


def place_of(page: Path) -> str:
    """Where a page is in the site."""
    if page == ROOT / "README.md":
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


def site_page(title: str, body: str, place: str, *, versions: bool = False) -> str:
    """A whole page around a body, with the links at the top of each, and to the list of versions."""
    up = "../" * place.count("/")
    links = [("index.html", "hetplan"), ("questions.html", "questions"), ("cli.html", "command line")]
    links += [("formats.html", "files"), ("design.html", "the house"), ("api/index.html", "Python")]
    nav = "".join(f'<a href="{up}{to}">{escape(name)}</a>' for to, name in links)
    version = f"version {escape(hetplan.__version__)}"
    version = f'<a href="{up}../index.html">{version}</a>' if versions else version
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>"
        f'<body class="hp"><nav>{nav}<span class="small">{version}</span></nav>'
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
        parts.append(f'<div class="of"><h3><code>{escape(head)}</code> <span class="small">{kind}</span></h3>')
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


def make(folder: Path, *, versions: bool = False) -> list[str]:
    """Write the site; returns its pages. With `versions` it goes into a folder of its version, and all are listed."""
    top, folder = folder, folder / hetplan.__version__ if versions else folder
    if versions and folder.exists():
        shutil.rmtree(folder)  # pages that this version no longer has
    made = {}
    for page in pages():
        place, text = place_of(page), page.read_text()
        title = next((line[2:] for line in text.splitlines() if line.startswith("# ")), page.stem)
        made[place] = site_page(title, rendered(text, page, place), place, versions=versions)
    known = modules()
    items = "".join(f'<li><a href="{name}.html"><code>{name}</code></a></li>' for name in known)
    python = f"<h1>From Python</h1><ul>{items}</ul>"
    made["api/index.html"] = site_page("Python", python, "api/index.html", versions=versions)
    for name in known:
        place = f"api/{name}.html"
        made[place] = site_page(name, api_page(name, place), place, versions=versions)
    for place, text in made.items():
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_text(text)
    shutil.copytree(ROOT / "docs" / "pictures", folder / "pictures", dirs_exist_ok=True)
    for name in ("LICENSE", "docs/tutorial.ipynb"):
        if (ROOT / name).exists():
            shutil.copy(ROOT / name, folder)
    if versions:
        (top / "index.html").write_text(list_of_versions(top))
    return sorted(made)


def list_of_versions(top: Path) -> str:
    """The page above all versions: those that lie there, the newest first."""
    found = [one.parent.name for one in top.glob("*/index.html") if re.fullmatch(r"\d[\w.+-]*", one.parent.name)]
    found.sort(key=_order, reverse=True)
    items = "".join(f'<li><a href="{escape(one)}/index.html">{escape(one)}</a></li>' for one in found)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>hetplan: versions</title><style>{STYLE}</style></head>"
        f'<body class="hp"><main><h1>hetplan: the pages of each version</h1><ul>{items}</ul></main></body></html>\n'
    )


def _order(version: str) -> tuple[list[int], bool, str]:
    """0.10.0 is after 0.9.0, and a release after what was tried before it (0.10.0rc1)."""
    plain = re.match(r"[\d.]*", version)
    numbers = plain.group().strip(".") if plain is not None else ""
    rest = version[len(numbers) :]
    return [int(one) for one in numbers.split(".") if one], not rest.startswith(("a", "b", "rc", ".dev")), rest


if __name__ == "__main__":
    given = [one for one in sys.argv[1:] if one != "--versions"]
    to = Path(given[0] if given else "site")
    print(f"{len(make(to, versions='--versions' in sys.argv))} pages written to {to}")
