"""How many small faults planted in the verifier's own code its tests find.

    python benchmarks/mutation_score.py [--every N] [--seed S] [--only claims]

Each mutant changes one thing of one module of `hetplan/verifier`: a comparison, an arithmetic or boolean operator, a
number, a negation, or it drops a statement. It is loaded into a forked process, where the tests of `tests/verifier` run
until one fails. What they let pass is listed. `--every 1` tries every mutant, the default a third of them.
"""

from __future__ import annotations

import argparse
import ast
import copy
import importlib.abc
import importlib.util
import inspect
import itertools
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, ModuleType

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "hetplan" / "verifier"
TESTS = ROOT / "tests" / "verifier"
SECONDS_PER_MUTANT = 30

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


class _Sites(ast.NodeVisitor):
    """Every place of a module where something can be changed, as (line, words, change of the node)."""

    def __init__(self) -> None:
        self.found: list[tuple[ast.AST, str, Callable[[ast.AST], ast.AST | None]]] = []

    def visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.JoinedStr | ast.Import | ast.ImportFrom | ast.AnnAssign) and not _valued(node):
            return
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "__all__":
            return
        self.add(node)
        if isinstance(node, ast.keyword) and node.arg == "strict":
            return
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    self.visit(child)

    def add(self, node: ast.AST) -> None:
        if isinstance(node, ast.Compare):
            for place, operator in enumerate(node.ops):
                for other in _COMPARISONS.get(type(operator), ()):
                    self.found.append((node, f"{type(operator).__name__} -> {other.__name__}", _operator(place, other)))
        elif isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
            other_op = _ARITHMETIC[type(node.op)]
            self.found.append((node, f"{type(node.op).__name__} -> {other_op.__name__}", _set("op", other_op())))
        elif isinstance(node, ast.BoolOp):
            other_bool = ast.Or if isinstance(node.op, ast.And) else ast.And
            self.found.append((node, f"-> {other_bool.__name__}", _set("op", other_bool())))
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
            self.found.append((node, "negation dropped", lambda one: one.operand))  # type: ignore[attr-defined]
        elif isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
            new = not node.value if isinstance(node.value, bool) else node.value + 1
            self.found.append((node, f"{node.value} -> {new}", _set("value", new)))
        elif isinstance(node, _DROPPED) and not _docstring(node):
            self.found.append((node, f"{type(node).__name__} dropped", lambda _: ast.Pass()))


def _valued(node: ast.AST) -> bool:
    return isinstance(node, ast.AnnAssign) and node.value is not None


def _docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


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
    def __init__(self, number: int, change: Callable[[ast.AST], ast.AST | None]) -> None:
        self.number, self.change = number, change

    def visit(self, node: ast.AST) -> ast.AST:
        if getattr(node, "number", None) == self.number:
            changed = self.change(node)
            assert changed is not None
            return ast.copy_location(changed, node)
        return self.generic_visit(node)


def mutants(path: Path) -> Iterator[tuple[str, CodeType]]:
    """Every mutant of a module: what was changed, and the compiled module."""
    tree = ast.parse(path.read_text())
    for number, node in enumerate(ast.walk(tree)):
        node.number = number  # type: ignore[attr-defined]
    sites = _Sites()
    sites.visit(tree)
    for node, words, change in sites.found:
        spoilt = _Replace(node.number, change).visit(copy.deepcopy(tree))  # type: ignore[attr-defined]
        code = compile(ast.fix_missing_locations(spoilt), str(path), "exec")
        yield f"{path.name}:{node.lineno} {words}", code  # type: ignore[attr-defined]


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Loads one module from the mutant's code."""

    def __init__(self, name: str, code: CodeType) -> None:
        self.name, self.code = name, code

    def find_spec(self, name: str, *_: object) -> object:
        return importlib.util.spec_from_loader(name, self) if name == self.name else None

    def exec_module(self, module: ModuleType) -> None:
        exec(self.code, module.__dict__)


def run_tests() -> bool:
    """Run the tests until one fails; whether all passed. Understands `parametrize`, skips what is marked slow."""
    for path in sorted(TESTS.glob("test_*.py"), key=lambda path: path.stat().st_size):
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        for name, test in list(vars(module).items()):
            if not name.startswith("test_") or not inspect.isfunction(test):
                continue
            marks = getattr(test, "pytestmark", [])
            if any(mark.name == "slow" for mark in marks):
                continue
            try:
                for arguments in _arguments(marks):
                    test(**arguments)
            except BaseException:
                return False
    return True


def _arguments(marks: list[object]) -> Iterator[dict[str, object]]:
    axes = []
    for mark in marks:
        if mark.name == "parametrize":  # type: ignore[attr-defined]
            names, values = mark.args[:2]  # type: ignore[attr-defined]
            single = isinstance(names, str) and "," not in names
            split = [names] if single else names.split(",") if isinstance(names, str) else list(names)
            axes.append([dict(zip(split, [value] if single else value, strict=True)) for value in values])
    for combination in itertools.product(*axes):
        yield {name: value for one in combination for name, value in one.items()}


def survives(name: str, code: CodeType) -> bool:
    """Whether all tests pass on the mutant, tried in a forked process."""
    child = os.fork()
    if child == 0:
        signal.alarm(SECONDS_PER_MUTANT)
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        for loaded in [loaded for loaded in sys.modules if loaded.startswith("hetplan.verifier")]:
            del sys.modules[loaded]
        sys.meta_path.insert(0, _Finder(name, code))  # type: ignore[arg-type]
        passed = False
        try:
            passed = run_tests()
        finally:
            os._exit(0 if passed else 1)
    _, status = os.waitpid(child, 0)
    return status == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, default=3, help="try one in so many mutants")
    parser.add_argument("--seed", type=int, default=0, help="which of them")
    parser.add_argument("--only", default="", help="modules whose names contain this")
    asked = parser.parse_args()
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
    if not run_tests():
        print("the tests fail on the code as it is")
        return 1
    tried, killed = Counter[str](), Counter[str]()
    chance = random.Random(asked.seed)
    for path in sorted(PACKAGE.glob("*.py")):
        # A question's own check may have its tests with the question, outside `tests/verifier`.
        if asked.only not in path.stem or f"hetplan.verifier.{path.stem}" not in sys.modules:
            continue
        for words, code in mutants(path):
            if chance.randrange(asked.every):
                continue
            tried[path.stem] += 1
            if survives(f"hetplan.verifier.{path.stem}", code):
                print(f"survived: {words}", flush=True)
            else:
                killed[path.stem] += 1
    for module in tried:
        print(f"{module:12} {killed[module]:4} of {tried[module]:4} found")
    total = sum(tried.values())
    print(f"score {sum(killed.values()) / max(total, 1):.1%} of {total} mutants")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
