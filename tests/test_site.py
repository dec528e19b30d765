"""The site: a section for every public name, links that lead somewhere, and nothing fetched from elsewhere."""

from __future__ import annotations

import importlib
import importlib.util
import re
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_site", ROOT / "docs" / "make_site.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def site(maker: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    maker.make(folder)
    return folder


@pytest.mark.slow
def test_every_public_name_has_its_section_and_its_words(maker: ModuleType, site: Path) -> None:
    assert "hetplan" in maker.modules()
    for name in maker.modules():
        text = (site / "api" / f"{name}.html").read_text()
        for one in importlib.import_module(name).__all__:
            if not one.startswith("__"):
                assert f'<h2 id="{one}">' in text, one
    top = (site / "api" / "hetplan.html").read_text()
    assert "from what was measured and what is wanted to a verified plan" in re.sub(r"\s+", " ", top)
    assert "&gt;&gt;&gt; outcome = hp.solve(slo, profile)" in top
    assert "require" in top


@pytest.mark.slow
def test_versions_lie_beside_one_another(maker: ModuleType, tmp_path: Path) -> None:
    older = ("0.0.9", "0.0.10", "0.1.0rc1", "notes")
    for name in older:
        (tmp_path / name).mkdir()
        (tmp_path / name / "index.html").write_text("as it was")
    gone = tmp_path / "0.1.0" / "gone.html"
    gone.parent.mkdir()
    gone.write_text("a page that this version no longer has")
    maker.make(tmp_path, versions=True)
    assert re.findall(r'href="([^"]*)"', (tmp_path / "index.html").read_text()) == [
        f"{one}/index.html" for one in ("0.1.0", "0.1.0rc1", "0.0.10", "0.0.9")
    ]
    assert not gone.exists()
    assert all((tmp_path / name / "index.html").read_text() == "as it was" for name in older)
    assert broken_links(tmp_path / "0.1.0") == []


def test_links_of_the_site_lead_somewhere(site: Path) -> None:
    assert broken_links(site) == []


def broken_links(site: Path) -> list[tuple[str, str]]:
    broken = []
    for page in site.rglob("*.html"):
        for to in re.findall(r'(?:href|src)="([^"]*)"', page.read_text()):
            path, _, anchor = unquote(to).partition("#")
            if re.match(r"[a-z]+:", to):
                continue
            target = (page.parent / path).resolve() if path else page
            if (not target.exists() and not _in_the_source(path)) or (
                anchor and target.suffix == ".html" and f'id="{anchor}"' not in target.read_text()
            ):
                broken.append((str(page.relative_to(site)), to))
    return broken


def _in_the_source(path: str) -> bool:
    """Files that are read with the source and are no pages: examples, benchmarks, code."""
    return (ROOT / path.replace("../", "")).exists() and not path.endswith(".md")


def test_the_site_fetches_nothing(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text()
        assert "<script" not in text
        assert not re.search(r'(?:src|<link[^>]*href)="https?:', text)
