"""The rules of the house that no other tool enforces: names, who prints, what start-up loads."""

from __future__ import annotations

import ast
import doctest
import importlib
import pkgutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import hetplan

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "hetplan"
FILES = sorted(PACKAGE.rglob("*.py"))
ROOMS = sorted({file.parent for file in FILES})
HEAVY = ("numpy", "scipy", "pandas", "torch", "ortools", "pyomo", "matplotlib", "numba", "highspy")
FORBIDDEN_NAMES = {"utils", "util", "common", "base", "core", "manager", "helpers", "helper", "misc"}


def module_name(file: Path) -> str:
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def ids(file: Path) -> str:
    return str(file.relative_to(ROOT))


@cache
def tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text())


def loaded_by(code: str) -> set[str]:
    """Top-level modules in sys.modules after a fresh interpreter ran the code."""
    report = "import sys; sys.stderr.write(' '.join(sorted({name.split('.')[0] for name in sys.modules})))"
    ran = subprocess.run(
        [sys.executable, "-c", f"{code}\n{report}"], capture_output=True, text=True, check=True, cwd=ROOT
    )
    return set(ran.stderr.split())


RUN_CLI = """
import sys
sys.argv = ["hetplan", *{argument!r}.split()]
from hetplan.cli import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
"""


@pytest.mark.parametrize(
    "code",
    [
        "import hetplan",
        "import hetplan, hetplan.cli",
        RUN_CLI.format(argument="--help"),
        RUN_CLI.format(argument="--version"),
    ],
    ids=["import", "import-cli", "help", "version"],
)
def test_start_up_loads_nothing_heavy(code: str) -> None:
    assert loaded_by(code).isdisjoint(HEAVY)


def test_help_loads_neither_pydantic_nor_the_planner() -> None:
    assert "pydantic" not in loaded_by(RUN_CLI.format(argument="--help"))


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("room", ROOMS, ids=ids)
def test_every_public_module_says_what_it_offers(room: Path) -> None:
    for file in sorted(room.glob("*.py")):
        module = importlib.import_module(module_name(file))
        assert module.__doc__, f"{file}: a module says what it is"
        defines = any(isinstance(node, ast.FunctionDef | ast.ClassDef) for node in tree(file).body)
        if not defines and not hasattr(module, "__all__"):
            continue
        assert hasattr(module, "__all__"), f"{file} defines things but has no __all__"
        missing = [name for name in module.__all__ if not hasattr(module, name)]
        assert not missing, f"{file}: __all__ names what is not there: {missing}"
        assert len(set(module.__all__)) == len(module.__all__), file


@pytest.mark.quick_sample(40)
@pytest.mark.parametrize("file", [file for file in FILES if ">>> " in file.read_text()], ids=ids)
def test_examples_in_docstrings_hold(file: Path) -> None:
    module = importlib.import_module(module_name(file))
    result = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    assert result.failed == 0


def test_files_are_named_after_what_they_hold() -> None:
    parts = {part for file in FILES for part in file.relative_to(PACKAGE).with_suffix("").parts}
    assert parts.isdisjoint(FORBIDDEN_NAMES)
    words = {word for part in parts for word in part.split("_")}
    assert words.isdisjoint(FORBIDDEN_NAMES - {"core"})


def test_only_the_command_line_prints() -> None:
    """The conformance kit may touch the streams: it listens whether an engine prints."""
    printing = []
    for file in FILES:
        room, text = file.relative_to(PACKAGE).parts[0], file.read_text()
        if "print" not in text and "sys.std" not in text:
            continue
        for node in ast.walk(tree(file)):
            prints = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
            streams = isinstance(node, ast.Attribute) and ast.unparse(node) in {"sys.stdout", "sys.stderr"}
            if (prints and room != "cli") or (streams and room not in ("cli", "testing")):
                printing.append(f"{ids(file)}:{node.lineno}")
    assert not printing


def test_problems_solve_no_programs_by_themselves() -> None:
    """The floors of imports name whole packages: of scipy, problems may use matrices and distributions."""
    solving = {ids(file) for file in FILES if "problems" in file.parts and "scipy.optimize" in file.read_text()}
    assert solving <= {"hetplan/problems/llm/program.py"}, "ask, or be handed a callable (`registry.TOOLS`)"


READS_WISHES = {
    "planner/request.py": "the one reader",
    "planner/fleet_part.py": "asks a question again with other files, which it writes",
    "planner/outcome.py": "shows the rows of a summary that are called slo",
    "planner/repairs.py": "tries other files, which it writes",
    "planner/summary.py": "shows a plan beside its files, whoever made it",
    "planner/summary_hours.py": "shows a plan beside its files, whoever made it",
    "planner/summary_rows.py": "shows a plan beside its files, whoever made it",
    "problems/faults.py": "walks every field that is written, to refuse by name those that a question does not keep",
    "problems/variants/baselines/rules.py": "a baseline keeps counters in the state: what was observed, not what runs",
}
"""Files of the planner and of questions that read SLO or state from their inputs, and why not from `Request`."""


def reads_a_wish(node: ast.AST) -> bool:
    """Whether this is `inputs.slo`, `inputs.state`, or a field of the section that an `Application` was read from."""
    if not isinstance(node, ast.Attribute):
        return False
    of = ast.unparse(node.value)
    return (
        (node.attr == "slo" and of not in ("self", "summary"))
        or (node.attr == "state" and of.endswith("inputs"))
        or of.endswith(".stated")
    )


def test_slo_and_state_are_read_once() -> None:
    """`planner.request` reads them for every question, and for who says which question files ask."""
    rooms = [file for file in FILES if file.relative_to(PACKAGE).parts[0] in ("planner", "problems")]
    reading = {str(file.relative_to(PACKAGE)) for file in rooms if any(map(reads_a_wish, ast.walk(tree(file))))}
    assert reading <= READS_WISHES.keys()


RUN_READERS = {
    "hetplan.serving.loads": {"fitting_runs", "law_of_load", "law_of_run", "run_of", "slowdown_of", "table_of"},
    "hetplan.serving.price": {"price_of"},
    "hetplan.serving.runs": {"instances_on", "runs_on"},
    "hetplan.serving.times": {"law_data", "law_of_table"},
}
"""What serving offers to read one run by."""


def reads_a_run(node: ast.AST) -> bool:
    """Whether this is `profile.variants` or `profile.tables`, or brings in what reads a run by itself."""
    if isinstance(node, ast.ImportFrom):
        return not RUN_READERS.get(node.module or "", set()).isdisjoint(name.name for name in node.names)
    return isinstance(node, ast.Attribute) and (
        node.attr == "in_order" or (node.attr in ("variants", "tables") and ast.unparse(node.value).endswith("profile"))
    )


def test_runs_and_tables_are_read_once() -> None:
    """`planner.choices` reads them for every question: what one of them means, it means in all."""
    rooms = [file for file in FILES if file.relative_to(PACKAGE).parts[0] in ("planner", "problems")]
    reading = {str(file.relative_to(PACKAGE)) for file in rooms if any(map(reads_a_run, ast.walk(tree(file))))}
    assert reading == {"planner/choices.py"}


def test_the_package_offers_what_it_names() -> None:
    missing = [name for name in hetplan.__all__ if not hasattr(hetplan, name)]
    assert not missing


def test_every_package_is_a_package() -> None:
    """A folder without __init__.py would be left out of a wheel without a word."""
    folders = {file.parent for file in FILES}
    assert not [folder for folder in folders if not (folder / "__init__.py").is_file()]
    named = {name for _, name, _ in pkgutil.iter_modules([str(PACKAGE)])}
    assert {"cli", "planner", "problems", "profiles", "solvers", "verifier"} <= named


def test_the_project_names_no_path_of_one_machine() -> None:
    """Nothing written here may depend on where it was written."""
    suspicious = ("/" + "root/", "/" + "home/", "/" + "work/", "/" + "Users/")
    texts = [
        *FILES,
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("examples/**/*.json"),
        ROOT / "pyproject.toml",
    ]
    found = [ids(file) for file in texts if any(path in file.read_text() for path in suspicious)]
    assert not found
