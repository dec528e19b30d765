"""The site: every page is in its menu, and it builds without a warning."""

from __future__ import annotations

import importlib
import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from ruamel.yaml import YAML

ROOT = Path(__file__).resolve().parents[1]


def listed(entries: Any) -> Iterator[str]:
    """The pages of a menu."""
    if isinstance(entries, str):
        yield entries
    else:
        for entry in entries.values() if isinstance(entries, dict) else entries:
            yield from listed(entry)


def test_the_menu_has_every_page_once() -> None:
    menu = list(listed(YAML().load(ROOT / "mkdocs.yml")["nav"]))
    pages = [page.relative_to(ROOT / "docs").as_posix() for page in ROOT.glob("docs/**/*.md")]
    assert sorted(menu) == sorted(pages)


def test_every_flowchart_is_drawn_so_that_a_reader_fetches_nothing_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each box and word of a page's charts is in its picture, within the frame, and no box is over another."""
    monkeypatch.syspath_prepend(ROOT / "docs")
    diagrams = importlib.import_module("diagrams")
    charts = [text for page in ROOT.glob("docs/**/*.md") for text in diagrams.FENCE.findall(page.read_text())]
    assert len(charts) > 15
    for text in charts:
        made = diagrams.on_page_markdown(f"before\n\n```mermaid\n{text}```\nafter")
        assert "mermaid" not in made
        picture = ElementTree.fromstring(made[made.index("<svg") : made.index("</figure>")])
        shown = " ".join("".join(one.itertext()) for one in picture.iter("text"))
        for label in re.findall(r'"([^"]+)"', text):
            for line in label.split("<br/>"):
                assert line in shown or line == "by name", line
        boxes = [[float(one.attrib[side]) for side in ("x", "y", "width", "height")] for one in picture.iter("rect")]
        for at, (x, y, width, height) in enumerate(boxes):
            assert x >= 0
            assert y >= 0
            assert x + width <= float(picture.attrib["width"])
            assert y + height <= float(picture.attrib["height"])
            for other in boxes[:at]:
                apart = x >= other[0] + other[2] or other[0] >= x + width
                assert apart or y >= other[1] + other[3] or other[1] >= y + height
    assert "<b>" not in diagrams.drawn('flowchart LR\n  a["<b>"] -- "<b>" --> c\n')


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("mkdocs") is None, reason="needs the extra docs")
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    front = (tmp_path / "site" / "index.html").read_text()
    for page in (tmp_path / "site").rglob("*.html"):
        assert 'class="mermaid"' not in page.read_text(), "the theme would fetch a script for it"
    assert "http://" not in front.replace("http://www.w3.org", "")
    assert (tmp_path / "site" / "howto" / "two-llms" / "index.html").is_file()


def test_the_commit_of_each_measured_table_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table that is new or has more rows is listed anew: python benchmarks/measured_rows.py --write FILE."""
    monkeypatch.syspath_prepend(ROOT)
    rows = importlib.import_module("benchmarks.measured_rows")
    front = ROOT / "docs" / "measured" / "README.md"
    told = [line.strip("| ").split(" | ") for line in front.read_text().partition(rows.TITLE)[2].splitlines()[6:]]
    there = [
        (page.name, heading, str(len(lines)))
        for page in sorted(front.parent.glob("*.md"))
        if page != front
        for heading, lines in rows.tables(page)
    ]
    assert [(link.partition("(")[2].strip(")"), heading, count) for link, heading, count, _ in told] == there
    for _, heading, count, commits in told:
        assert sum(int(one) for one in re.findall(r", (\d+)\)", commits)) == int(count), heading
        assert re.fullmatch(r"([0-9a-f]{8} \(2\d{3}-\d\d-\d\d, \d+\)(, )?)+", commits), heading
