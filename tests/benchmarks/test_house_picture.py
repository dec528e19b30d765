"""The picture of the house and the tables in its page are the code's own."""

from __future__ import annotations

import importlib.util
import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "design.md").read_text()
PLACE = re.compile(r"`((?:[\w-]+/)+(?:\w+\.py)?|\w+\.py)`")
"""A folder, or a file of Python."""


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
    assert house.picture() in PAGE, "write what `python benchmarks/house.py --picture` prints into docs/design.md"


def test_the_table_of_rooms_has_the_floors_that_are_enforced() -> None:
    """Each room once, on its floor, from the top to the bottom."""
    (layers, *_) = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    enforced = [{name.strip().removeprefix("hetplan.") for name in one.split("|")} for one in layers["layers"]]
    shown: list[set[str]] = []
    for floor, room in re.findall(r"^\| (\d*) ?\| `(\w+)/` \|", PAGE, re.M):
        if floor:
            assert int(floor) == len(enforced) - 1 - len(shown)
            shown.append(set())
        shown[-1].add(room)
    loose = {name for name in enforced[-1] if (ROOT / "hetplan" / f"{name}.py").is_file()}
    assert shown == [*enforced[:-1], enforced[-1] - loose]
    assert all(f"`{name}.py`" in PAGE for name in loose)


def test_files_and_folders_that_the_page_names_are_there() -> None:
    prose = re.sub(r"^```mermaid.*?^```", "", PAGE, flags=re.M | re.S)
    named = set(PLACE.findall(prose)) | set(re.findall(r" {2}((?:\w+/)+\w+\.py) ", prose))
    assert len(named) > 50
    roots = (ROOT / "hetplan", ROOT)
    assert not [place for place in sorted(named) if not any((root / place).exists() for root in roots)]


def test_an_import_upwards_would_be_drawn(house: ModuleType, tmp_path: Path) -> None:
    types_only = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from hetplan.cli import app\n"
    tree = tree_of(
        tmp_path,
        {
            "profiles/load.py": "from hetplan.planner.solver_calls import Asking\n",
            "planner/solver_calls.py": types_only,
            "cli/app.py": "def show():\n    import hetplan.planner.solver_calls\n",
        },
    )
    assert house.arrows(tree) == {("profiles", "planner"), ("cli", "planner")}
    assert "profiles --> planner" in house.picture(tree)


def test_an_arrow_that_follows_from_two_others_is_left_out(house: ModuleType, tmp_path: Path) -> None:
    tree = tree_of(
        tmp_path,
        {
            "cli/app.py": "import hetplan.planner.solver_calls\nimport hetplan.profiles.load\n",
            "planner/solver_calls.py": "import hetplan.profiles.load\n",
            "profiles/load.py": "",
        },
    )
    drawn = house.picture(tree)
    assert "cli --> planner" in drawn
    assert "cli --> profiles" not in drawn
