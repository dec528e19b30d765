"""What the documentation shows is run: its files, its commands, its Python, and the output in the README.

In a page, `<!-- file: NAME -->` before a fenced block writes that block to a file, `<!-- run -->` before a `console` or
`python` block runs it, in a folder of the page's own beside a copy of `examples/`; its Python files can be imported. A
console block shows commands after `$ `; lines below a command are its output, and then have to be exactly that. Every
command must succeed.
"""

from __future__ import annotations

import doctest
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hetplan import registry

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
LONG_PAGES = {
    "README", "cli", "compound", "design", "executor", "llm", "pipeline", "policy", "pool", "profiling", "variants",
}  # fmt: skip
"""Pages whose commands take seconds each: they run with the slow tests, started as a user starts them.

The commands of the others run in the process of the tests.
"""
FENCE = re.compile(
    r"(?:<!-- (?P<mark>run|file: (?P<name>[\w./-]+)) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.M | re.S
)
LINK = re.compile(r"\]\((?!https?://|#|mailto:)([^)#\s]+)(?:#[\w-]+)?\)")


@dataclass(frozen=True)
class Block:
    language: str
    text: str
    mark: str
    file: str
    line: int


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    return [
        Block(
            m["language"],
            m["text"],
            (m["mark"] or "").split(":")[0],
            m["name"] or "",
            text[: m.start()].count("\n") + 1,
        )
        for m in FENCE.finditer(text)
    ]


def shell(command: str, folder: Path) -> str:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    ran = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PATH": path, "COLUMNS": "120"},
    )
    assert ran.returncode == 0, f"$ {command}\nexit {ran.returncode}\n{ran.stdout}{ran.stderr}"
    return ran.stdout


def in_process(command: str) -> str:
    """What a command of hetplan prints, without starting a process for it."""
    from hetplan.cli.app import build_app

    ran = CliRunner().invoke(build_app(), shlex.split(command)[1:], env={"COLUMNS": "120"})
    assert ran.exit_code == 0, f"$ {command}\nexit {ran.exit_code}\n{ran.output}{ran.exception!r}"
    return ran.stdout


def run_console(block: Block, folder: Path, *, started: bool) -> None:
    parts = re.split(r"^\$ ", block.text, flags=re.M)
    assert not parts[0].strip(), f"line {block.line}: a console block starts with a command"
    for part in parts[1:]:
        command, _, expected = part.partition("\n")
        plain = command.startswith("hetplan ") and not set("|&;<>$`*~\\\n") & set(command)
        printed = in_process(command) if plain and not started else shell(command, folder)
        if expected.strip():
            assert printed.strip("\n") == expected.strip("\n"), f"line {block.line}: the output of {command}"


def run_python(block: Block, page: Path, names: dict[str, object]) -> None:
    test = doctest.DocTestParser().get_doctest(block.text, names, page.name, str(page), block.line)
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    said: list[str] = []
    runner.run(test, out=said.append, clear_globs=False)
    names.update(test.globs)
    assert runner.summarize(verbose=False).failed == 0, "".join(said)


def shown() -> list[Any]:
    """The pages that show what runs."""
    marked = [page for page in PAGES if any(block.mark for block in blocks(page))]
    slow = pytest.mark.slow
    return [
        *(pytest.param(page, False, id=page.name) for page in marked if page.stem not in LONG_PAGES),
        *(pytest.param(page, True, id=page.name, marks=slow) for page in marked if page.stem in LONG_PAGES),
    ]


@pytest.mark.parametrize(("page", "started"), shown())
def test_what_a_page_shows_runs(page: Path, started: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for table in ("PROBLEMS", "CHECKS", "TOOLS", "SOLVERS", "IMPORTERS"):
        monkeypatch.setattr(registry, table, dict(getattr(registry, table)))
    names: dict[str, object] = {}
    for block in blocks(page):
        if block.mark == "file":
            (tmp_path / block.file).write_text(block.text)
        elif block.mark == "run" and block.language == "console":
            run_console(block, tmp_path, started=started)
        elif block.mark == "run" and block.language == "python":
            run_python(block, page, names)
        else:
            assert not block.mark, f"{page.name}:{block.line}: what is a marked {block.language} block?"


@pytest.mark.parametrize("page", sorted(ROOT.glob("docs/**/*.md")), ids=lambda page: page.name)
def test_a_page_opens_with_a_picture(page: Path) -> None:
    """Before the first section, a drawing that a code host shows."""
    opening = page.read_text().split("\n## ")[0]
    assert "```mermaid\n" in opening or re.search(r"!\[[^]]*\]\([^)]+\.svg\)", opening)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_json_in_a_page_is_json(page: Path) -> None:
    for block in blocks(page):
        if block.language == "json":
            json.loads(block.text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    missing = [link for link in LINK.findall(page.read_text()) if not (page.parent / link).exists()]
    assert not missing


def test_every_example_folder_has_its_files_or_measures_them() -> None:
    folders = [folder for folder in (ROOT / "examples").iterdir() if folder.is_dir()]
    assert folders
    for folder in folders:
        assert (folder / "slo.json").is_file()
        made = (folder / "run.py").is_file() and "profile" in (folder / "run.py").read_text()
        assert (folder / "profile.json").is_file() or made, f"{folder.name}: no profile, and nothing that measures one"


@pytest.mark.parametrize("marker", ["main", "tests"])
def test_the_readme_has_the_commands_that_set_everything_up(marker: str) -> None:
    """Continuous integration runs these blocks as they stand (`.ci/run`)."""
    text = (ROOT / "README.md").read_text()
    block = re.search(rf"<!-- {marker}:start -->\n```(?:bash|sh)\n(.*?)```\n<!-- {marker}:end -->", text, re.S)
    assert block is not None
    assert ".venv" in block[1]
    assert {"main": "hetplan solve", "tests": "pytest"}[marker] in block[1]


def test_the_documented_exit_codes_are_those_of_the_code() -> None:
    from hetplan.planner.status import Exit

    table = (ROOT / "docs" / "cli.md").read_text().split("## Exit codes")[1]
    assert [int(code) for code in re.findall(r"^\| (\d+) \|", table, re.M)] == [int(code) for code in Exit]


def test_the_documented_commands_are_those_of_the_code() -> None:
    from typer.main import get_command

    from hetplan.cli.app import build_app

    text = (ROOT / "docs" / "cli.md").read_text()
    names = get_command(build_app()).list_commands(None)  # type: ignore[attr-defined]
    assert "solve" in names
    for name in names:
        assert f"`{name}" in text, f"docs/cli.md says nothing of `hetplan {name}`"


def test_commands_that_pages_show_without_running_them_exist_with_their_options() -> None:
    """A command for which a page has no files, or no cluster, is at least spelled as the command line takes it."""
    from typer.main import get_command

    from hetplan.cli.app import build_app

    seen, wrong = 0, []
    for page in PAGES:
        for block in blocks(page):
            if block.mark or block.language not in ("bash", "console", "sh", ""):
                continue
            for line in re.findall(r"^(?:\$ )?hetplan ([^|>&\n]*)", block.text, re.M):
                words = shlex.split(line, comments=True)
                command: Any = get_command(build_app())
                while words and (inner := getattr(command, "get_command", lambda *_: None)(None, words[0])):
                    command, words = inner, words[1:]
                options = {name for param in command.params for name in (*param.opts, *param.secondary_opts)}
                used = {word.split("=")[0] for word in words if re.match(r"--?[a-z]", word)}
                seen += 1
                if hasattr(command, "get_command") or not used <= options:
                    wrong.append(f"{page.name}:{block.line}: hetplan {line}")
    assert seen > 20
    assert not wrong


def test_every_option_of_solve_is_documented() -> None:
    from typer.main import get_command

    from hetplan.cli.app import build_app

    text = (ROOT / "docs" / "cli.md").read_text()
    solve = get_command(build_app()).get_command(None, "solve")  # type: ignore[attr-defined]
    names = [max(param.opts, key=len) for param in solve.params if param.param_type_name == "option"]
    assert len(names) > 15
    missing = [name for name in names if name not in text and not (name == "--output" and "`-o" in text)]
    assert not missing


def test_every_dependency_has_its_reason() -> None:
    """`docs/design.md` names each package; a bounded one with its bounds."""
    table = (ROOT / "docs" / "design.md").read_text().split("## Dependencies")[1]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = [
        *project["dependencies"],
        *(one for name, many in extras.items() if name not in ("all", "dev") for one in many),
    ]
    for requirement in wanted:
        name = re.match(r"[\w-]+", requirement)
        assert name is not None
        assert name[0] in table
        if "," in requirement and "<" in requirement and name[0] == "highspy":
            assert f"`{requirement.removeprefix(name[0])}`" in table
