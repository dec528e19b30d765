"""What is shipped: a wheel that works, a source archive whose tests pass, an editable install that type-checks."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
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


def test_the_wheel_plans_and_is_typed(built: Path, tmp_path: Path) -> None:
    (wheel,) = built.glob("hetplan-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        archive.extractall(tmp_path / "site")
    assert "hetplan/py.typed" in names
    assert not [name for name in names if not name.startswith(("hetplan/", "hetplan-"))]
    assert any(name.endswith("entry_points.txt") for name in names)
    pool = ROOT / "examples" / "pool"
    where = run(sys.executable, "-c", "import hetplan; print(hetplan.__file__)", path=tmp_path / "site", at=tmp_path)
    assert where.startswith(str(tmp_path / "site"))
    run(sys.executable, "-m", "hetplan", "solve", str(pool / "profile.json"), str(pool / "slo.json"),
        path=tmp_path / "site", at=tmp_path)  # fmt: skip
    said = run(sys.executable, "-m", "hetplan", "init", "--example", "pool", path=tmp_path / "site", at=tmp_path)
    run(
        sys.executable, "-m", *said.splitlines()[-1].removeprefix("Next: ").split(), path=tmp_path / "site", at=tmp_path
    )


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
