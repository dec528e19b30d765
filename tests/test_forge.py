"""What a forge and tools beside hetplan read: each file is what it should be, and each command that it names exists."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

import hetplan

ROOT = Path(__file__).resolve().parents[1]
HIDDEN = ROOT / ".github"
WORKFLOWS = sorted((HIDDEN / "workflows").glob("*.yml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SHELL = {"!", "grep"}
"""What every runner has."""
pytestmark = pytest.mark.skipif(not HIDDEN.is_dir(), reason="a forge's files are not in this copy")


def read(file: Path) -> Any:
    return YAML(typ="safe", pure=True).load(file)


def installed_by(words: list[str]) -> set[str]:
    """The packages that a command of pip installs."""
    return set(words[2:]) if words[0].endswith("pip") and words[1] == "install" else set()


def missing_from(commands: Iterator[str]) -> list[str]:
    """Of commands one after the other those that nothing brings: not the repository, nor an earlier command."""
    there: set[str] = set()
    missing = []
    for command in commands:
        words = shlex.split(command)
        there |= installed_by(words)
        name = words[0].removeprefix(".venv/bin/")
        module = words[2] if name == "python" and words[1] == "-m" else ""
        known = name in SHELL or (ROOT / name).is_file() or (Path(sys.executable).parent / name).is_file()
        if not known or (module and module not in there and importlib.util.find_spec(module) is None):
            missing.append(command)
    return missing


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.stem)
def test_a_workflow_runs_what_is_there(file: Path) -> None:
    workflow = read(file)
    # YAML 1.1, which forges read, calls the key `on` true.
    assert {"name", "permissions", "jobs"} <= workflow.keys()
    assert workflow.keys() & {"on", True}
    for job in workflow["jobs"].values():
        assert {"runs-on", "timeout-minutes", "steps"} <= job.keys()
        assert all(("run" in step) != ("uses" in step) for step in job["steps"])
        assert all(re.fullmatch(r"actions/[\w-]+@v\d+", step["uses"]) for step in job["steps"] if "uses" in step)
        ran = [line for step in job["steps"] for line in step.get("run", "").splitlines()]
        assert ".ci/run" in ran
        assert not missing_from(iter(ran))


def test_a_command_that_nothing_brings_is_noticed() -> None:
    assert missing_from(iter(["no-such-command --help"])) == ["no-such-command --help"]
    assert missing_from(iter(["python -m no_such_module"])) == ["python -m no_such_module"]
    assert not missing_from(iter(["pip install no_such_module", "python -m no_such_module"]))


def test_every_python_that_the_package_names_is_tried() -> None:
    named = [one.rpartition(" ")[2] for one in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", one)]
    assert read(HIDDEN / "workflows" / "ci.yml")["jobs"]["whole"]["strategy"]["matrix"]["python"] == named
    assert PROJECT["requires-python"] == f">={named[0]}"


def test_a_release_publishes_nothing() -> None:
    workflow = read(HIDDEN / "workflows" / "release.yml")
    assert workflow["permissions"] == {"contents": "read", "id-token": "write"}
    text = (HIDDEN / "workflows" / "release.yml").read_text()
    assert not re.search(r"twine|upload\.pypi|pypi-publish|gh release|docker push", text)


def test_hooks_before_a_commit_are_steps_of_continuous_integration() -> None:
    steps = (ROOT / ".ci" / "run").read_text().splitlines()
    hooks = [hook for repo in read(ROOT / ".pre-commit-config.yaml")["repos"] for hook in repo["hooks"]]
    for hook in hooks:
        assert {"id", "name", "entry", "language"} <= hook.keys()
        assert any(line == f".venv/bin/{hook['entry']}" or line.startswith(f".venv/bin/{hook['entry']} --")
                   for line in steps), hook["entry"]  # fmt: skip
    assert not missing_from(hook["entry"] for hook in hooks)
    linting = [line for line in steps if re.match(r"\.venv/bin/(ruff|mypy|pyright|lint-imports)", line)]
    assert len(linting) == len(hooks) == len({hook["id"] for hook in hooks})


@pytest.mark.parametrize("file", sorted((HIDDEN / "ISSUE_TEMPLATE").glob("*.yml")), ids=lambda file: file.stem)
def test_an_issue_form_asks(file: Path) -> None:
    form = read(file)
    assert {"name", "description", "body"} <= form.keys()
    assert any(field.get("validations", {}).get("required") for field in form["body"])
    ids = [field["id"] for field in form["body"]]
    assert len(set(ids)) == len(ids)
    assert all(field["type"] == "textarea" and field["attributes"]["label"] for field in form["body"])


def test_the_citation_is_of_this_version() -> None:
    cited = read(ROOT / "CITATION.cff")
    assert {"cff-version", "message", "title", "authors", "version", "license", "type"} <= cited.keys()
    assert cited["version"] == hetplan.__version__ == PROJECT["version"]
    assert (cited["license"], cited["title"], cited["url"]) == (
        PROJECT["license"],
        PROJECT["name"],
        PROJECT["urls"]["Homepage"],
    )
    assert cited["authors"] == PROJECT["authors"]


def test_classifiers_are_known_ones() -> None:
    known = pytest.importorskip("trove_classifiers").classifiers
    assert set(PROJECT["classifiers"]) <= set(known)


def test_addresses_are_reserved_ones_or_those_of_the_project() -> None:
    """A name of somebody else's account must not stand in what is shipped: RFC 2606 reserves `.example`."""
    release = (HIDDEN / "workflows" / "release.yml").read_text()
    for address in PROJECT["urls"].values():
        assert address.startswith("https://hetplan.example"), "the project has a home: drop this test, and that step"
    assert "hetplan[.]example" in release


def test_renovate_reads_json() -> None:
    asked = json.loads((ROOT / "renovate.json").read_text())
    assert asked["extends"] == ["config:recommended"]
