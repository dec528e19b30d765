"""The library of instances: what it says of each is so, and its programs mean the same to another solver."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

ROOT = Path(__file__).resolve().parents[2]
INDEX = ROOT / "benchmarks" / "library" / "library.json"
INSTANCES = json.loads(INDEX.read_text())["instances"]


def library(*arguments: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.library", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=600)


def test_the_index_names_what_is_there() -> None:
    names = [one["name"] for one in INSTANCES]
    assert len(names) == len(set(names)) >= 60
    questions = {"pool", "pipeline", "policy", "variants", "llm", "compound", "fleet"}
    assert {one["question"] for one in INSTANCES} >= questions
    folders = {path.name for path in INDEX.parent.iterdir() if path.is_dir() and (path / "slo.json").exists()}
    assert folders == {Path(one["folder"]).name for one in INSTANCES if one["folder"].startswith("benchmarks/")}
    for one in INSTANCES:
        found = one["found"]
        assert found["status"] == "infeasible" or found["bound_is"] == "certified"
        assert one["name"] in (ROOT / "docs" / "measured" / "library.md").read_text()
        for word in one["command"].split():
            assert not word.endswith(".json") or (ROOT / word).exists()


@pytest.mark.slow
def test_a_few_are_proved_again() -> None:
    ran = library("prove", "pool-01", "packed-02", "pipeline-13", "fleet-02")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.count("as it is written") == 4


def test_a_value_that_is_not_so_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks.library import __main__ as library

    was: dict[str, Any] = {"status": "optimal", "value": 10.0, "bound": 10.0, "bound_is": "certified"}
    assert library.differs(was, dict(was)) == ""
    for name, value in (("value", 10.1), ("bound", 9.9), ("bound_is", "claimed"), ("status", "feasible")):
        assert library.differs(was, {**was, name: value})


def solved(program: dict[str, Any]) -> float:
    """The program as another solver reads it."""
    columns, rows = program["columns"], program["rows"]
    i, j, value = (np.array(part) for part in zip(*program["entries"], strict=True))
    matrix = coo_array((value.astype(float), (i, j)), shape=(len(rows), len(columns)))

    def side(things: list[Any], name: str, none: float) -> Any:
        return np.array([none if one[name] is None else one[name] for one in things])

    sign = -1.0 if program["sense"] == "max" else 1.0
    found = milp(
        sign * np.array([one["cost"] for one in columns]),
        integrality=np.array([int(one["whole"]) for one in columns]),
        bounds=Bounds(side(columns, "lower", -np.inf), side(columns, "upper", np.inf)),
        constraints=LinearConstraint(matrix, side(rows, "lower", -np.inf), side(rows, "upper", np.inf)),
    )
    assert found.success
    return float(sign * found.fun + program["offset"])


@pytest.mark.slow
def test_exported_programs_have_the_known_value(tmp_path: Path) -> None:
    names = ["pool-02", "pool-04"]
    assert library("export", *names, "-o", str(tmp_path)).returncode == 0
    for name in names:
        best = next(one["found"]["value"] for one in INSTANCES if one["name"] == name)
        values = [solved(json.loads(file.read_text())) for file in sorted(tmp_path.glob(f"{name}.*.json"))]
        assert any(value == pytest.approx(best, rel=1e-5) for value in values), (best, values)
        assert all(file.with_suffix(".mps").exists() for file in tmp_path.glob(f"{name}.*.json"))


def test_a_fleet_is_not_exported(tmp_path: Path) -> None:
    ran = library("export", "fleet-01", "-o", str(tmp_path))
    assert ran.returncode == 0
    assert "none of which is the instance" in ran.stdout
    assert not list(tmp_path.iterdir())


@pytest.mark.longest
def test_every_instance_is_proved_again() -> None:
    ran = library("prove")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.count("as it is written") == len(INSTANCES)
