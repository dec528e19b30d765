"""The image: its file is read, and what its first stage is handed makes the package. It is not built here: that takes
a base image, which no package registry has."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from typer.main import get_command

from hetplan.cli.app import build_app
from hetplan.executor.render.router import _container
from hetplan.executor.site import Site

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "Dockerfile"
KNOWN = {"FROM", "WORKDIR", "COPY", "RUN", "ENV", "USER", "EXPOSE", "CMD"}


def stages() -> list[list[tuple[str, str]]]:
    """Of each stage its instructions, each with what follows."""
    lines = [line.partition(" ") for line in FILE.read_text().splitlines() if line and not line.startswith("#")]
    found: list[list[tuple[str, str]]] = []
    for word, _, rest in lines:
        assert word in KNOWN, word
        if word == "FROM":
            found.append([])
        found[-1].append((word, rest))
    return found


def copied() -> list[tuple[list[str], str]]:
    """What the first stage is handed, and where to."""
    return [(rest.split()[:-1], rest.split()[-1]) for word, rest in stages()[0] if word == "COPY"]


def test_the_last_stage_is_small_and_belongs_to_nobody_with_rights() -> None:
    build, last = stages()
    assert build[0][1].removesuffix(" AS build") == last[0][1]
    assert [rest.split()[0] for word, rest in last if word == "COPY"] == ["--from=build"]
    (user,) = (rest for word, rest in last if word == "USER")
    assert user.isdigit()
    assert int(user) > 0
    assert last.index(("USER", user)) < min(n for n, (word, rest) in enumerate(last) if rest.startswith("hetplan "))


def test_its_commands_are_hetplans() -> None:
    *_, (word, rest) = stages()[1]
    assert word == "CMD"
    ran = [shlex.split(line) for word, line in stages()[1] if word == "RUN" and line.startswith("hetplan ")]
    for program, name, *options in [json.loads(rest), *ran]:
        assert program == "hetplan"
        command = get_command(build_app()).get_command(None, name)  # type: ignore[attr-defined]
        known = {option for param in command.params for option in param.opts}
        assert {one for one in options if one.startswith("--")} <= known


def test_what_a_cluster_starts_in_it_is_there() -> None:
    """`python` is that of the environment, which has hetplan: the image has it first on its path."""
    assert ("ENV", "PATH=/opt/hetplan/bin:$PATH") in stages()[1]
    site = Site.model_validate({"name": "pool", "router": {"image": "registry.example/hetplan:1.0"}})
    program, dash, module, *_ = _container("router", site, 8600, "http")["command"]
    assert (program, dash) == ("python", "-m")
    assert (ROOT / module.replace(".", "/")).with_suffix(".py").is_file()


@pytest.mark.slow
def test_what_it_is_handed_makes_the_package(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    ignored = shutil.ignore_patterns("__pycache__")
    assert (ROOT / ".dockerignore").read_text() == "**/__pycache__\n"
    for names, to in copied():
        for name in names:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, source / to, ignore=ignored)
            else:
                shutil.copy(ROOT / name, source / to)
    how = ("--no-deps", "--no-build-isolation", "--quiet", "--wheel-dir", str(tmp_path))
    subprocess.run([sys.executable, "-m", "pip", "wheel", *how, str(source)], check=True, cwd=tmp_path)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {"hetplan/py.typed", "hetplan/desk/desk.html", "hetplan/examples/pool/slo.json"} <= set(names)
