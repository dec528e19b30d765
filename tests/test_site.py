"""The site: every page is in its menu, and it builds without a warning."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("mkdocs") is None, reason="needs the extra docs")
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    front = (tmp_path / "site" / "index.html").read_text()
    assert "http://" not in front.replace("http://www.w3.org", "")
    assert (tmp_path / "site" / "howto" / "two-llms" / "index.html").is_file()
