"""What is shipped: a wheel that works, a source archive whose tests pass, an editable install that type-checks."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
pytestmark = pytest.mark.slow


def run(*command: str, path: Path | None = None, at: Path) -> str:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    if path is not None:
        environment["PYTHONPATH"] = str(path)
    ran = subprocess.run(command, cwd=at, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
    return ran.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive of the source, and the wheel that is built from it."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT), at=folder)
    return folder


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of a fresh environment with the wheel, and with the lowest versions that it says it works with."""
    folder = tmp_path_factory.mktemp("fresh")
    run(sys.executable, "-m", "venv", "venv", at=folder)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lowest = folder / "lowest.txt"
    lowest.write_text("\n".join(re.sub(r">=([0-9.]+).*", r"==\1", one) for one in project["dependencies"]))
    (wheel,) = built.glob("hetplan-*.whl")
    run("venv/bin/python", "-m", "pip", "install", "--quiet", "-c", str(lowest), str(wheel), at=folder)
    return folder / "venv" / "bin"


def test_the_wheel_holds_the_package_alone(built: Path) -> None:
    (wheel,) = built.glob("hetplan-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "hetplan/py.typed" in names
    assert not [name for name in names if not name.startswith(("hetplan/", "hetplan-"))]
    assert any(name.endswith("entry_points.txt") for name in names)


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="the lowest versions are older than this Python")
def test_the_lowest_versions_plan(installed: Path, tmp_path: Path) -> None:
    """As a user begins: nothing of this checkout is there, and a command that does nothing fails here."""
    hetplan = str(installed / "hetplan")
    assert "all is well" in run(hetplan, "doctor", at=tmp_path)
    where = run(str(installed / "python"), "-c", "import hetplan; print(hetplan.__file__)", at=tmp_path)
    assert where.startswith(str(installed.parent))
    said = run(hetplan, "init", "--example", "pool", at=tmp_path)
    solve = said.splitlines()[-1].removeprefix("Next: hetplan ").split()
    assert solve[0] == "solve"
    run(hetplan, *solve, "-o", "plan.json", at=tmp_path)
    assert json.loads((tmp_path / "plan.json").read_text())["workers"]
    run(hetplan, "verify", "plan.json", *solve[1:3], at=tmp_path)


def test_the_source_archive_installs(built: Path, tmp_path: Path) -> None:
    """In an environment that has its dependencies: what it builds is the package that the checkout has."""
    (source,) = built.glob("hetplan-*.tar.gz")
    (wheel,) = built.glob("hetplan-*.whl")
    how = ("--quiet", "--no-deps", "--no-build-isolation", "--target", str(tmp_path / "site"))
    run(sys.executable, "-m", "pip", "install", *how, str(source), at=tmp_path)
    here = {str(one.relative_to(tmp_path / "site")) for one in (tmp_path / "site").rglob("*") if one.is_file()}
    shipped = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("hetplan/")}
    assert shipped <= here
    said = run(sys.executable, "-m", "hetplan", "--version", path=tmp_path / "site", at=tmp_path)
    assert said.startswith("hetplan ")


@pytest.mark.parametrize(
    "extra", tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
)
def test_an_extra_resolves(extra: str, built: Path, tmp_path: Path) -> None:
    """Beside what development installs."""
    (wheel,) = built.glob("hetplan-*.whl")
    run(sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", f"{wheel}[{extra}]", at=tmp_path)


@pytest.mark.longest
def test_the_source_archive_can_be_tested(built: Path, tmp_path: Path) -> None:
    (source,) = built.glob("hetplan-*.tar.gz")
    with tarfile.open(source) as archive:
        archive.extractall(tmp_path, filter="data")
    (tree,) = (folder for folder in tmp_path.iterdir() if folder.name.startswith("hetplan-"))
    for wanted in ("tests/cases/pool.py", "examples/pool/slo.json", "docs/design.md", "benchmarks/house.py", "LICENSE"):
        assert (tree / wanted).is_file(), wanted
    tests = ["tests/profiles/test_canonical.py", "tests/problems/pool/test_plan.py", "tests/api/test_solve.py"]
    run(sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *tests, path=tree, at=tree)


def test_an_editable_install_names_its_folder(tmp_path: Path) -> None:
    """Type checkers follow a path in a .pth file, and no import hook: nothing has to be said in MYPYPATH."""
    code = f"import hatchling.build as b; print(b.build_editable({str(tmp_path)!r}))"
    wheel = tmp_path / run(sys.executable, "-c", code, at=ROOT).split()[-1]
    with zipfile.ZipFile(wheel) as archive:
        (pth,) = (name for name in archive.namelist() if name.endswith(".pth"))
        lines = archive.read(pth).decode().split()
    assert [Path(line).resolve() for line in lines] == [ROOT]
    caller = tmp_path / "caller.py"
    caller.write_text("import hetplan as hp\n\nreveal_type(hp.solve)\n")
    said = run(sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), str(caller),
               path=ROOT, at=tmp_path)  # fmt: skip
    assert "Outcome" in said
