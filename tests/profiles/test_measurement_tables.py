"""Measurements in CSV files beside a profile: which files are read, what their columns mean, where their faults are."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import MappingProxyType
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


def written(folder: Path, measurements: Any, more: Any = MappingProxyType({}), **files: str) -> Path:
    """A profile that names CSV files, which lie beside it."""
    for name, text in files.items():
        (folder / f"{name}.csv").write_text(text)
    path = folder / "profile.json"
    path.write_text(json.dumps({**PROFILE, "measurements": measurements, **more}))
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
        (fault,) = faults_of(written(below, "times.csv", times=f"{head}\n"))
        assert (fault.file, fault.path) == (str(below / "times.csv"), "line 1")
        assert "secret" not in str(fault)


HEAD = "model,machine,batch,mean_ms,p99_ms"


@pytest.mark.parametrize(
    ("text", "at", "says"),
    [
        (f"{HEAD}\nnet,t4,1,6,nan\n", "line 2, p99_ms", "a number above 0"),
        (f"{HEAD}\nnet,t4,1,-6,8\n", "line 2, mean_ms", "a number above 0"),
        (f"{HEAD}\nnet,t4,1_0,6,8\n", "line 2, batch", "a whole number"),
        (f"{HEAD}\n\n\nnet,t4,1,6,x\n", "line 4, p99_ms", "a number above 0"),
        (f"\n{HEAD}\n\nnet,t4,8,fast,8\n", "line 4, mean_ms", "a number above 0"),
        (f'{HEAD}\n"net\n",t4,1,6,9\nnet,t4,8,x,8\n', "line 4, mean_ms", "a number above 0"),
        (f"{HEAD}\nnet,t4,1\n", "line 2", "a time in ms"),
        (f"{HEAD}\nnet,t4,1,6,5,7\n", "line 2", "5 cells"),
        (f"{HEAD}\nnet,t4,1,,\n", "line 2", "a time in ms"),
        (f"{HEAD}\n,t4,1,6,8\n", "line 2", "the model of this line"),
        (f"{HEAD}\nnet,t4,1,6,8\n\nnet,T4,1,7,8\n", "line 4", "in line 2 already"),
        (f"{HEAD},load_s\nnet,t4,1,6,8,3\nnet,t4,8,9,9,4\n", "line 3, load_s", "which is 3 in line 2"),
        (f"{HEAD},quality\nnet,t4,1,6,8,.7\nnet,h,1,6,8,.8\n", "line 3, quality", "one quality of net"),
        (f"{HEAD},co_load\nnet,t4,1,6,8,1\nnet,t4,8,6,8,\n", "line 3", "the axes of line 2"),
        (f"{HEAD}\n", "", "a line of latencies"),
        ("", "", "the file is empty"),
        (f"{HEAD},gpu_mem_gib\nnet,t4,1,6,8,9\n", "line 1", "no such column"),
        (f"{HEAD},mean (ms)\nnet,t4,1,6,8,9\n", "line 1", "each column once"),
    ],
)
def test_what_is_wrong_in_a_table_is_said_of_its_file_and_line(text: str, at: str, says: str, tmp_path: Path) -> None:
    """It was said of the first line of the profile, or taken: the last of two columns, a slip as an axis, 1_0 as 10."""
    (fault,) = faults_of(written(tmp_path, "times.csv", times=text))
    assert (fault.file, fault.path) == (str(tmp_path / "times.csv"), at)
    assert says in fault.why
    assert fault.remedy


def test_what_cannot_be_planned_with_is_said_of_the_table(tmp_path: Path) -> None:
    (fault,) = faults_of(written(tmp_path, "times.csv", times=f"{HEAD}\nnet,t5,1,6,8\n"))
    assert fault.file == str(tmp_path / "times.csv")
    prices = {"format": PROFILE["format"], "machines": {"h": {"price_per_hour": 2}}}
    with pytest.raises(InputError) as caught:
        load_profile(tmp_path / "profile.json", prices)
    assert [one.file for one in caught.value.faults] == [str(tmp_path / "times.csv")]


def test_a_missing_table_is_looked_for_in_a_folder_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, "none.csv")
    monkeypatch.chdir(tmp_path)
    (fault,) = faults_of("profile.json")
    assert fault.remedy == f"Check its name, which counts from {tmp_path}."


def test_ids_are_the_same_in_any_letters(tmp_path: Path) -> None:
    """Model `Net` of the file beside `net` of the table: "Rename"."""
    more = {
        "machines": {"T4": {"price_per_hour": 1}},
        "models": {"Net": {"task": "cars", "runs": {"T4": {"load_s": 3}}}},
    }
    profile = load_profile(written(tmp_path, "times.csv", more, times=f"{HEAD}\nnet,t4,1,6,8\nNET,T4,8,20,25\n"))
    ((name, variant),) = profile.variants.items()
    assert (name, variant.task, variant.runs[0].load_s) == ("net", "cars", 3)
    assert profile.tables["net-t4"].p99 == (8, 25)


@pytest.mark.parametrize("run", [{"mean_ms": [7]}, {"p95_ms": [7], "batch": [1]}, {"axes": {"batch": [1]}}])
def test_one_run_has_the_times_of_one_measurement(run: Any, tmp_path: Path) -> None:
    more = {"models": {"net": {"runs": {"t4": run}}}}
    (fault,) = faults_of(written(tmp_path, "times.csv", more, times=f"{HEAD}\nnet,t4,1,6,8\n"))
    assert "what is said of net on t4 in one place" in fault.why


def test_columns_mean_what_they_mean_to_init(tmp_path: Path) -> None:
    """Of the same table `hetplan init` reads a quality, a step and a price of the machine."""
    text = "Model;GPU;batch size;mean (ms);accuracy;price;task\nnet;T4;1;6;0.7;0.5;cars\n"
    profile = load_profile(written(tmp_path, "times.csv", {"machines": {"t4": {}}}, times=text))
    variant = profile.variants["net"]
    assert variant.quality is not None
    assert (variant.task, variant.quality.value) == ("cars", 0.7)
    assert profile.offers["t4"].price_per_hour == 500_000_000
    (fault,) = faults_of(written(tmp_path, "times.csv", {"machines": {"t4": {"price_per_hour": 0.6}}}))
    assert "price_per_hour is in" in fault.why, "the price of the machine stands in the profile"


def test_other_axes_say_that_they_are_some(tmp_path: Path) -> None:
    text = "model,machine,batch,axis:resolution,mean_ms\nnet,t4,1,640,6\nnet,t4,8,640,20\nnet,t4,1,320,3\n"
    table = load_profile(written(tmp_path, "times.csv", times=text)).tables["net-t4"]
    assert table.axes == {"batch": (1, 8), "resolution": (320, 640)}
    assert table.mean == ((3, 6), (None, 20)), "an empty cell was not measured"


def test_times_without_a_batch_are_those_of_one_query(tmp_path: Path) -> None:
    table = load_profile(written(tmp_path, "times.csv", times="model,machine,mean_ms\nnet,t4,6\n")).tables["net-t4"]
    assert (table.axes, table.mean) == ({"batch": (1,)}, (6,))
