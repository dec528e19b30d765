"""The package goes through hetplan's public face: `hetplan` and `hetplan.extend` alone."""

from __future__ import annotations

import ast
from importlib.metadata import entry_points
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PUBLIC = {"hetplan", "hetplan.extend"}
KIT = {"hetplan.testing", "hetplan.testing.black_box_checks"}
"""What tests of other packages may use besides."""
OWN = sorted(path for part in ("hetplan_papers", "benchmarks", "tests") for path in (ROOT / part).rglob("*.py"))


def imported(path: Path) -> set[str]:
    """The modules of hetplan that a file imports, at its top or within a function."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
            if node.module == "hetplan":
                names |= {f"hetplan.{alias.name}" for alias in node.names if (alias.name in ("extend", "testing"))}
    return {name for name in names if name.split(".")[0] == "hetplan"}


@pytest.mark.parametrize("path", OWN, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_else_of_hetplan_is_imported(path: Path) -> None:
    assert imported(path) - PUBLIC <= (KIT if "tests" in path.relative_to(ROOT).parts else set())


def test_an_import_of_the_inside_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "inside.py"
    path.write_text("def f():\n    from hetplan.problems.pool import question\n    import hetplan.solvers\n")
    assert imported(path) == {"hetplan.problems.pool", "hetplan.solvers"}


@pytest.mark.parametrize("group", ["formulations", "solvers"])
def test_all_that_is_brought_loads(group: str) -> None:
    found = [point for point in entry_points(group=f"hetplan.{group}") if point.value.startswith("hetplan_papers")]
    assert found
    for point in found:
        point.load()
