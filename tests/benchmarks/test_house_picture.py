"""The picture of the house in its page is the code's own."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def house() -> ModuleType:
    spec = importlib.util.spec_from_file_location("house_of_benchmarks", ROOT / "benchmarks" / "house.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def tree_of(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        file = folder / "hetplan" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return folder


@pytest.mark.slow
def test_the_picture_in_the_page_is_that_of_the_code(house: ModuleType) -> None:
    page = (ROOT / "docs" / "design.md").read_text()
    assert house.picture() in page, "write what `python benchmarks/house.py --picture` prints into docs/design.md"


def test_an_import_upwards_would_be_drawn(house: ModuleType, tmp_path: Path) -> None:
    types_only = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from hetplan.cli import app\n"
    tree = tree_of(
        tmp_path,
        {
            "profiles/load.py": "from hetplan.planner.ask import Asking\n",
            "planner/ask.py": types_only,
            "cli/app.py": "def show():\n    import hetplan.planner.ask\n",
        },
    )
    assert house.arrows(tree) == {("profiles", "planner"), ("cli", "planner")}
    assert "profiles --> planner" in house.picture(tree)


def test_an_arrow_that_follows_from_two_others_is_left_out(house: ModuleType, tmp_path: Path) -> None:
    tree = tree_of(
        tmp_path,
        {
            "cli/app.py": "import hetplan.planner.ask\nimport hetplan.profiles.load\n",
            "planner/ask.py": "import hetplan.profiles.load\n",
            "profiles/load.py": "",
        },
    )
    drawn = house.picture(tree)
    assert "cli --> planner" in drawn
    assert "cli --> profiles" not in drawn
