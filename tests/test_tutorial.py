"""The tutorial notebook, run cell by cell: what it shows as output is what comes out."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
CELLS = json.loads((ROOT / "docs" / "tutorial.ipynb").read_text())["cells"]


def last_value(source: str, names: dict[str, Any]) -> Any:
    """Run a cell as a notebook does; the value of its last line, where that is an expression."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), names)
    return eval(compile(ast.Expression(last.value), "cell", "eval"), names) if isinstance(last, ast.Expr) else None


def test_the_notebook_runs_and_shows_what_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    names: dict[str, Any] = {}
    shown = 0
    for cell in CELLS:
        if cell["cell_type"] != "code":
            continue
        value = last_value(cell["source"], names)
        for output in cell["outputs"]:
            assert repr(value) == output["data"]["text/plain"], cell["source"]
            shown += 1
        if hasattr(value, "_repr_html_"):
            assert "<div" in value._repr_html_()
    assert shown >= 6
