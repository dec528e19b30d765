"""Measurements in CSV files beside a profile: which files are read, what their columns mean, where their faults are."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from hetplan.errors import Fault, InputError
from hetplan.profiles import load_profile

SECRET = "root:a-secret-hash:19000"
PROFILE = {"format": "hetplan/profile/1.0", "machines": {"t4": {"price_per_hour": 0.5}}}


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A file of this machine that no profile may show: above the profile's folder."""
    path = tmp_path / "shadow"
    path.write_text(f"{SECRET}\n")
    (tmp_path / "below").mkdir()
    return path


def faults_of(profile: Any) -> tuple[Fault, ...]:
    with pytest.raises(InputError) as caught:
        load_profile(profile)
    return caught.value.faults


def written(folder: Path, measurements: Any, **files: str) -> Path:
    """A profile that names CSV files, which lie beside it."""
    for name, text in files.items():
        (folder / f"{name}.csv").write_text(text)
    path = folder / "profile.json"
    path.write_text(json.dumps({**PROFILE, "measurements": measurements}))
    return path


def test_a_document_has_no_file_read(secret: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever sends one, over HTTP for instance, may not read the files of this machine."""
    monkeypatch.chdir(secret.parent)
    for name in (str(secret), "shadow", "../shadow"):
        for given in ({**PROFILE, "measurements": name}, json.dumps({**PROFILE, "measurements": name}).encode()):
            (fault,) = faults_of(given)
            assert (fault.path, "secret" in str(fault)) == ("$.measurements", False)
            assert fault.remedy == "Put the rows into the profile, or give the profile as a file."


def test_a_profile_names_files_of_its_own_folder_alone(secret: Path) -> None:
    below = secret.parent / "below"
    (below / "link.csv").symlink_to(secret)
    os.symlink(secret.parent, below / "up")
    for name in (str(secret), "../shadow", "sub/../../shadow", "link.csv", "up/shadow", str(below / "times.csv")):
        path = written(below, name, times="model,machine,mean_ms\nnet,t4,5\n")
        (fault,) = faults_of(path)
        assert (fault.file, fault.path, "secret" in str(fault)) == (str(path), "$.measurements", False)
        assert "own folder" in fault.why


def test_a_file_below_the_profile_is_read(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "times.csv").write_text("model,machine,batch,mean_ms\nnet,t4,1,6\nnet,t4,8,24\n")
    profile = load_profile(written(tmp_path, "sub/times.csv"))
    assert profile.tables["net-t4"].mean == (6, 24)


def test_no_fault_quotes_the_head_of_a_file(secret: Path) -> None:
    below = secret.parent / "below"
    for head in (SECRET, f"model,machine,mean_ms,{SECRET}", f"model,{SECRET}", f"model,machine,{SECRET},{SECRET}"):
        (fault,) = faults_of(written(below, "times.csv", times=f"{head}\nnet,t4,1,2\n"))
        assert (fault.file, fault.path) == (str(below / "times.csv"), "line 1")
        assert "secret" not in str(fault)
