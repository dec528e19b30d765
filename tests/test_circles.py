"""No file imports a file that imports it, by whatever way: at the top, for types only, or inside a function."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "hetplan"


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Every statement below a node: imports are statements, so nothing else is looked at."""
    for part in ("body", "orelse", "finalbody", "handlers", "cases"):
        for inner in getattr(node, part, ()):
            yield inner
            yield from statements(inner)


def imported(package: Path) -> dict[str, set[str]]:
    """Each module of the package and the modules of the package that it imports anywhere in its file."""
    files = {}
    for file in package.rglob("*.py"):
        parts = file.relative_to(package.parent).with_suffix("").parts
        files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    graph: dict[str, set[str]] = {}
    for name, file in files.items():
        found = set()
        for node in statements(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    inner = f"{node.module}.{alias.name}"
                    found.add(inner if inner in files else node.module)
            elif isinstance(node, ast.Import):
                found.update(alias.name for alias in node.names)
        graph[name] = {other for other in found if other in files and other != name}
    return graph


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """The sets of modules that reach one another (Tarjan's algorithm, without recursion)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    held: list[str] = []
    found = []
    for root in sorted(graph):
        if root in index:
            continue
        work = [(root, iter(sorted(graph[root])))]
        index[root] = low[root] = len(index)
        held.append(root)
        while work:
            node, rest = work[-1]
            for other in rest:
                if other not in index:
                    index[other] = low[other] = len(index)
                    held.append(other)
                    work.append((other, iter(sorted(graph[other]))))
                    break
                if other in held:
                    low[node] = min(low[node], index[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    one = []
                    while True:
                        one.append(held.pop())
                        if one[-1] == node:
                            break
                    if len(one) > 1:
                        found.append(sorted(one))
    return found


@pytest.mark.slow
def test_no_file_imports_a_file_that_imports_it() -> None:
    assert circles(imported(PACKAGE)) == []


def test_a_circle_would_be_found(tmp_path: Path) -> None:
    package = tmp_path / "house"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "a.py").write_text("def f():\n    from house.b import g\n")
    (package / "b.py").write_text("from house import c\n")
    (package / "c.py").write_text("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from house.a import f\n")
    (package / "d.py").write_text("import house.a\n")
    assert circles(imported(package)) == [["house.a", "house.b", "house.c"]]
