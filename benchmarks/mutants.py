"""Small faults for a module: each mutant changes one comparison, operator, number or negation, or drops a statement.

Annotations, decorators, imports, texts and ``strict=`` are left alone: no test is to find changes there.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType

__all__ = ["Mutant", "mutants"]

_COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.BitOr: ast.BitAnd,
}
_DROPPED = (ast.Expr, ast.Assign, ast.AugAssign, ast.Return, ast.Continue, ast.Break, ast.If)


@dataclass(frozen=True)
class Mutant:
    """A spoilt module: what was changed, and the lines of the statement that it was changed in.

    `lines` is empty where the statement runs when the module is loaded: then every line of the module depends on it.
    """

    words: str
    lines: range
    code: CodeType


def mutants(path: Path, line: int | None = None) -> Iterator[Mutant]:
    """Every mutant of a module, or of one statement of it that runs in a function, in the order of lines."""
    tree = ast.parse(path.read_text())
    for number, node in enumerate(ast.walk(tree)):
        node.number = number  # type: ignore[attr-defined]
    for place, statement in enumerate(tree.body):
        sites = _Sites()
        sites.visit(statement)
        for site in sites.found:
            if line is not None and line not in site.lines:
                continue
            # Only the function or class that the fault is in is copied: copies of whole modules take most of the time.
            replace = _Replace(site.node.number, site.change)  # type: ignore[attr-defined]
            spoilt = ast.fix_missing_locations(replace.visit(copy.deepcopy(statement)))
            module = ast.Module([*tree.body[:place], spoilt, *tree.body[place + 1 :]], [])
            words = f"{path.name}:{site.node.lineno} {site.words}"  # type: ignore[attr-defined]
            yield Mutant(words, site.lines, compile(module, str(path), "exec"))


@dataclass(frozen=True)
class _Site:
    """A place where something can be changed."""

    node: ast.AST
    lines: range
    words: str
    change: Callable[[ast.AST], ast.AST]


class _Sites(ast.NodeVisitor):
    """Every place of a module where something can be changed."""

    def __init__(self) -> None:
        self.found: list[_Site] = []
        self.lines = range(0)
        self.in_function = False

    def visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.JoinedStr | ast.Import | ast.ImportFrom | ast.AnnAssign) and not _valued(node):
            return
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "__all__":
            return
        before = self.lines
        if isinstance(node, ast.stmt) and self.in_function:
            self.lines = _own_lines(node)
        self.add(node)
        if not (isinstance(node, ast.keyword) and node.arg == "strict"):
            self.visit_children(node)
        self.lines = before

    def visit_children(self, node: ast.AST) -> None:
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list"):
                continue
            outside = self.in_function
            self.in_function |= isinstance(node, ast.FunctionDef) and name == "body"
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    self.visit(child)
            self.in_function = outside

    def add(self, node: ast.AST) -> None:
        if isinstance(node, ast.Compare):
            for place, operator in enumerate(node.ops):
                for other in _COMPARISONS.get(type(operator), ()):
                    self.put(node, f"{type(operator).__name__} -> {other.__name__}", _operator(place, other))
        elif isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
            other_op = _ARITHMETIC[type(node.op)]
            self.put(node, f"{type(node.op).__name__} -> {other_op.__name__}", _set("op", other_op()))
        elif isinstance(node, ast.BoolOp):
            other_bool = ast.Or if isinstance(node.op, ast.And) else ast.And
            self.put(node, f"-> {other_bool.__name__}", _set("op", other_bool()))
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
            self.put(node, "negation dropped", lambda one: one.operand)  # type: ignore[attr-defined]
        elif isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
            new = not node.value if isinstance(node.value, bool) else node.value + 1
            self.put(node, f"{node.value} -> {new}", _set("value", new))
        elif isinstance(node, _DROPPED) and not _docstring(node):
            self.put(node, f"{type(node).__name__} dropped", lambda _: ast.Pass())

    def put(self, node: ast.AST, words: str, change: Callable[[ast.AST], ast.AST]) -> None:
        self.found.append(_Site(node, self.lines, words, change))


def _valued(node: ast.AST) -> bool:
    return isinstance(node, ast.AnnAssign) and node.value is not None


def _docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _own_lines(statement: ast.stmt) -> range:
    """A statement's lines without those of its body, which may not be reached."""
    body = getattr(statement, "body", None)
    end = body[0].lineno if body else (statement.end_lineno or statement.lineno) + 1
    return range(statement.lineno, max(end, statement.lineno + 1))


def _set(name: str, value: object) -> Callable[[ast.AST], ast.AST]:
    def change(node: ast.AST) -> ast.AST:
        setattr(node, name, value)
        return node

    return change


def _operator(place: int, other: type[ast.cmpop]) -> Callable[[ast.AST], ast.AST]:
    def change(node: ast.AST) -> ast.AST:
        assert isinstance(node, ast.Compare)
        node.ops[place] = other()
        return node

    return change


class _Replace(ast.NodeTransformer):
    def __init__(self, number: int, change: Callable[[ast.AST], ast.AST]) -> None:
        self.number, self.change = number, change

    def visit(self, node: ast.AST) -> ast.AST:
        if getattr(node, "number", None) == self.number:
            return ast.copy_location(self.change(node), node)
        return self.generic_visit(node)
