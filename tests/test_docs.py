"""What the documentation shows is run: its files, its commands, its Python, and the output in the README.

In a page, `<!-- file: NAME -->` before a fenced block writes that block to a file, `<!-- run -->` before a `console` or
`python` block runs it, in a folder of the page's own; its Python files can be imported. Pages of the checkout, such as
the README, have a copy of `examples/` there, those of the site have to make it. A
console block shows commands after `$ `; lines below a command are its output, and then have to be exactly that, where
`...` stands for anything. Every command must succeed. `<!-- start -->` starts the one command of a block, waits until
it printed what is shown, and stops it at the end of the page; a port that it names is replaced by a free one.

A command that is shown and not run is in `NOT_RUN` with the reason, or the tests fail.
"""

from __future__ import annotations

import doctest
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML
from typer.testing import CliRunner

from hetplan.profiles.profile_file import ProfileFile

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
LONG_PAGES = {
    "README", "SKILL", "tutorial", "howto/mixed-machines", "howto/two-llms", "howto/day", "howto/pipeline",
    "howto/compound", "howto/scheduler", "howto/run", "howto/exchange",
}  # fmt: skip
"""Pages whose commands take seconds each: they run with the slow tests, started as a user starts them.

The commands of the others run in the process of the tests.
"""
BY_HAND = "takes minutes or hours, or reads data from beside the repository; its figures are on the page"
ENDPOINT = (
    "sends real queries, and its verdict hangs on how busy the machine is: tests/measure sends to routers of its own"
)
CLUSTER = "a reader's own cluster: tests/executor/apply plays one"
NOT_RUN: dict[str, dict[str, str]] = {
    "CONTRIBUTING": {
        "python3 -m venv": "sets up: continuous integration does the same",
        ".venv/bin/": "continuous integration runs these over the whole repository",
        "pip install -e examples/extend": "tests/test_extend.py does, and asks for each of its parts",
        "hetplan list problems": "the same",
        "hetplan solve": "the same",
        "hetplan verify": "the same",
    },
    "README": {"python3 -m venv": "continuous integration runs these two blocks as they stand"},
    "howto/compound": {
        "hetplan autoscale profile.json slo.json --site": "waits for live samples, and asks a reader's own evaluator",
    },
    "howto/day": {"hetplan compare": "plays each way many times: minutes. tests/studies does so with smaller files"},
    "howto/run": {
        "hetplan loadtest": ENDPOINT,
        "hetplan apply pool.json": CLUSTER,
        "hetplan down --site": CLUSTER,
    },
    "reference/fields": {"hetplan check --schema": "tests/profiles/test_schema.py reads every schema"},
    "reference/options": {"hetplan list options": "the page is this list, and tests/test_reference.py makes it anew"},
    **{f"measured/{page.stem}": {"python ": BY_HAND} for page in (ROOT / "docs" / "measured").glob("*.md")},
}
"""Of each page how the commands begin that are shown and not run, with the reason."""
FENCE = re.compile(
    r"(?:<!-- (?P<mark>run|start|file: (?P<name>[\w./-]+)) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.M | re.S,
)
COMMAND = re.compile(r"(?:\$ |(?:\.venv/bin/)?(?:hetplan|python3?|pip|pytest|ruff|mypy|pyright|lint-imports|curl) )")
PORT = re.compile(r"--port (\d+)")
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


def commands_of(block: Block) -> list[tuple[str, str]]:
    """The commands of a console block, each with the output that is shown."""
    parts = re.split(r"^\$ ", block.text, flags=re.M)
    assert not parts[0].strip(), f"line {block.line}: a console block starts with a command"
    return [(command, expected.strip("\n")) for command, _, expected in (part.partition("\n") for part in parts[1:])]


def is_shown(expected: str, printed: str) -> bool:
    """Whether output is as shown, `...` standing for anything."""
    return re.fullmatch(".*".join(map(re.escape, expected.split("..."))), printed.strip("\n"), re.S) is not None


def run_console(block: Block, folder: Path, *, started: bool) -> None:
    for command, expected in commands_of(block):
        plain = command.startswith("hetplan ") and not set("|&;<>$`*~\\\n") & set(command)
        printed = in_process(command) if plain and not started else shell(command, folder)
        if expected.strip() and not is_shown(expected, printed):
            assert printed.strip("\n") == expected, f"line {block.line}: the output of {command}"


@contextmanager
def going_on(block: Block, folder: Path) -> Iterator[None]:
    """The one command of a block, from when it printed what is shown."""
    [(command, expected)] = commands_of(block)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    with tempfile.TemporaryFile("w+") as output:
        going = subprocess.Popen(
            ["bash", "-c", f"exec env {command}"],
            cwd=folder,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PATH": path},
        )
        try:
            printed = ""
            while not is_shown(expected, printed):
                assert going.poll() is None, f"line {block.line}: {command} ended: {printed}"
                time.sleep(0.05)
                output.seek(0)
                printed = output.read()
            yield
        finally:
            going.terminate()
            going.wait()


def free_ports(page: Path) -> list[tuple[str, str]]:
    """The ports that commands of a page listen at, and free ones for them."""
    named = sorted({port for block in blocks(page) if block.mark == "start" for port in PORT.findall(block.text)})
    with ExitStack() as held:
        sockets = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in named]
        return [(name, str(one.getsockname()[1])) for name, one in zip(named, sockets, strict=True)]


def run_python(block: Block, page: Path, names: dict[str, object]) -> None:
    if ">>> " not in block.text:
        exec(compile("\n" * block.line + block.text, str(page), "exec"), names)
        return
    test = doctest.DocTestParser().get_doctest(block.text, names, page.name, str(page), block.line)
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    said: list[str] = []
    runner.run(test, out=said.append, clear_globs=False)
    names.update(test.globs)
    assert runner.summarize(verbose=False).failed == 0, "".join(said)


def page_name(page: Path) -> str:
    return page.relative_to(ROOT / "docs" if page.is_relative_to(ROOT / "docs") else ROOT).with_suffix("").as_posix()


def shown() -> list[Any]:
    """The pages that show what runs."""
    marked = [page for page in PAGES if any(block.mark for block in blocks(page))]
    return [
        pytest.param(page, started, id=page_name(page), marks=pytest.mark.slow if started else ())
        for page in marked
        for started in [page_name(page) in LONG_PAGES]
    ]


@pytest.mark.parametrize(("page", "started"), shown())
def test_what_a_page_shows_runs(page: Path, started: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if "$ curl " in page.read_text() and shutil.which("curl") is None:
        pytest.skip("no curl here")
    if not page.is_relative_to(ROOT / "docs"):  # who reads the site has no checkout
        shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    names: dict[str, object] = {}
    ports = free_ports(page)
    with ExitStack() as until_the_end:
        for block in blocks(page):
            for shown_port, port in ports:
                block = replace(block, text=block.text.replace(shown_port, port))
            if block.mark == "file":
                (tmp_path / block.file).write_text(block.text)
            elif block.mark == "run" and block.language == "console":
                run_console(block, tmp_path, started=started)
            elif block.mark == "run" and block.language == "python":
                run_python(block, page, names)
            elif block.mark == "start" and block.language == "console":
                until_the_end.enter_context(going_on(block, tmp_path))
            else:
                assert not block.mark, f"{page.name}:{block.line}: what is a marked {block.language} block?"


@pytest.mark.parametrize("page", sorted(ROOT.glob("docs/**/*.md")), ids=lambda page: page.name)
def test_a_page_opens_with_a_picture(page: Path) -> None:
    """Before the first section, a drawing that a code host shows, or an example."""
    opening = page.read_text().split("\n## ")[0]
    assert re.search(r"^```", opening, re.M) or re.search(r"!\[[^]]*\]\([^)]+\.svg\)", opening)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_json_in_a_page_is_json(page: Path) -> None:
    for block in blocks(page):
        if block.language == "json":
            json.loads(block.text)


@pytest.mark.parametrize("page", sorted(ROOT.glob("docs/howto/*.md")), ids=lambda page: page.name)
def test_a_part_of_a_profile_in_a_page_has_keys_that_profiles_have(page: Path) -> None:
    yaml = YAML(typ="safe", pure=True)
    for block in blocks(page):
        if block.language == "yaml" and block.mark != "file":
            ProfileFile.model_validate({"format": "hetplan/profile/1.0", **yaml.load(block.text)})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    missing = [link for link in LINK.findall(page.read_text()) if not (page.parent / link).exists()]
    assert not missing


def test_every_example_folder_has_its_files_or_measures_them() -> None:
    folders = [folder for folder in (ROOT / "examples").iterdir() if folder.is_dir() and folder.name != "extend"]
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


def only_shown(page: Path) -> list[str]:
    """The commands in blocks of a page that no test runs."""
    lines = [
        line
        for block in blocks(page)
        if not block.mark and block.language in ("bash", "console", "sh", "")
        for line in block.text.splitlines()
    ]
    return [line.removeprefix("$ ") for line in lines if COMMAND.match(line)]


def spoken_of(page: Path) -> list[str]:
    """The commands within sentences of a page."""
    prose = FENCE.sub("", page.read_text())
    return [" ".join(span.split()) for span in re.findall(r"`((?:hetplan|python)\s[^`]+)`", prose)]


def not_as_listed(pages: dict[str, list[str]], listed: dict[str, dict[str, str]]) -> list[str]:
    """Commands that are shown and neither run nor listed, and entries that no page shows any more."""
    missing = [
        f"{page}: {command!r} is neither run nor in NOT_RUN"
        for page, commands in pages.items()
        for command in commands
        if not any(command.startswith(begin) for begin in listed.get(page, ()))
    ]
    stale = [
        f"NOT_RUN: {page} does not show {begin!r}"
        for page, entries in listed.items()
        for begin in entries
        if not any(command.startswith(begin) for command in pages.get(page, ()))
    ]
    return missing + stale


def test_commands_that_pages_show_are_run_or_listed_with_a_reason() -> None:
    assert not not_as_listed({page_name(page): only_shown(page) for page in PAGES}, NOT_RUN)
    assert all(reason for entries in NOT_RUN.values() for reason in entries.values())


def test_a_command_that_is_only_shown_and_an_entry_without_one_are_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A page\n\n```console\n$ hetplan list problems\n$ hetplan check a.json b.json\n```\n")
    shown = {"page": only_shown(page)}
    assert shown == {"page": ["hetplan list problems", "hetplan check a.json b.json"]}
    assert not not_as_listed(shown, {"page": {"hetplan list problems": "why", "hetplan check": "why"}})
    assert len(not_as_listed(shown, {"page": {"hetplan list problems": "why"}})) == 1
    assert (
        len(not_as_listed(shown, {"page": dict.fromkeys(("hetplan list problems", "hetplan check", "curl"), "why")}))
        == 1
    )


def wrong_in(line: str) -> str:
    """What is wrong with a command as it is spelled, "" if nothing is."""
    from typer.main import get_command

    from hetplan.cli.app import build_app

    words = shlex.split(re.split(r" [|>&]|\n", line)[0], comments=True)
    used = {word.split("=")[0] for word in words if re.match(r"--?[a-z]", word)} - {"-m", "--help"}
    if words[0] == "python":
        named = words[2].replace(".", "/") if words[1] == "-m" else words[1]
        script = next((one for one in (ROOT / named, ROOT / "papers" / named) if one.exists()), ROOT / named)
        if not script.exists():
            beside = [one.with_suffix(".py") for one in (script, ROOT / "papers" / named)]
            return "" if any(one.exists() for one in beside) else "no such script"
        ours = "".join(
            file.read_text()
            for file in [script, script / "__main__.py", *ROOT.glob("benchmarks/*.py")]
            if file.is_file()
        )
        return " ".join(option for option in sorted(used) if not re.search(rf'"(--)?{option[2:]}"', ours))
    command: Any = get_command(build_app())
    words = words[1:]
    while (
        words
        and not words[0].startswith("-")
        and (inner := getattr(command, "get_command", lambda *_: None)(None, words[0]))
    ):
        command, words = inner, words[1:]
    options = {name for param in command.params for name in (*param.opts, *param.secondary_opts)}
    return (
        "no command"
        if words and hasattr(command, "get_command") and not words[0].startswith("-")
        else " ".join(sorted(used - options))
    )


@pytest.mark.slow
def test_commands_that_are_shown_without_being_run_exist_with_their_options() -> None:
    """A command for which a page has no files, or no cluster, is at least spelled as the command line takes it."""
    named = [(page.name, line) for page in PAGES for line in [*only_shown(page), *spoken_of(page)]]
    seen = [(page, line) for page, line in named if re.match(r"(hetplan|python) (?!COMMAND)", line)]
    assert len(seen) > 100
    assert not [(page, line, wrong) for page, line in seen if (wrong := wrong_in(line))]
    assert wrong_in("hetplan solve a.json --sett x=1") == "--sett"
    assert wrong_in("python benchmarks/pol.py") == "no such script"
    assert wrong_in("python -m hetplan_papers.reproduce pool --swift") == "--swift"


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


def test_every_example_is_named_in_a_page() -> None:
    pages = "\n".join(page.read_text() for page in PAGES)
    examples = [one for one in (ROOT / "examples").iterdir() if one.name != "__pycache__"]
    assert not [one.name for one in examples if f"examples/{one.name}" not in pages]
