"""The generated pages of the reference say what the code says."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]
REFERENCE = ROOT / "docs" / "reference"


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_reference", ROOT / "docs" / "make_reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["commands.md", "options.md", "fields.md"])
def test_a_generated_page_is_current(maker: ModuleType, name: str) -> None:
    assert (REFERENCE / name).read_text() == maker.pages()[name], "run: python docs/make_reference.py"


def test_types_of_fields_are_said_in_words(maker: ModuleType) -> None:
    assert maker.type_of({"anyOf": [{"type": "number"}, {"type": "null"}]}, "slo") == "number"
    assert (
        maker.type_of({"type": "array", "items": {"$ref": "#/$defs/Run"}}, "profile") == "list of [Run](#profile-run)"
    )
    assert maker.type_of({"type": ["string", "number"]}, "slo") == "text or number"
    assert maker.default_of({"default": None}) == ""
    assert list(maker.table(("a",), [("x|y",)]))[-1] == "| x\\|y |"


def test_every_section_that_a_type_links_to_is_there() -> None:
    text = (REFERENCE / "fields.md").read_text()
    headings = {
        re.sub(r"[^a-z0-9 -]", "", one.lower()).replace(" ", "-") for one in re.findall(r"^#+ (.*)$", text, re.M)
    }
    linked = set(re.findall(r"\]\(#([\w-]+)\)", text))
    assert linked
    assert linked <= headings


def test_the_documented_exit_codes_are_those_of_the_code() -> None:
    from hetplan.planner.status import Exit

    table = (REFERENCE / "messages.md").read_text().split("## Exit codes")[1].split("\n## ")[0]
    assert [int(code) for code in re.findall(r"^\| (\d+) \|", table, re.M)] == [int(code) for code in Exit]


def test_documented_warnings_exist() -> None:
    code = "\n".join(file.read_text() for file in (ROOT / "hetplan").rglob("*.py"))
    named = set(re.findall(r"W-[a-z-]+", (REFERENCE / "messages.md").read_text()))
    assert len(named) > 30
    assert not {one for one in named if f'"{one}"' not in code}


def test_the_python_page_names_what_the_package_exports() -> None:
    import hetplan

    text = (REFERENCE / "python.md").read_text()
    assert not [name for name in hetplan.__all__ if name != "__version__" and not re.search(rf"\b{name}\b", text)]
