"""measure.toml: what it may say, and how its slips are reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from hetplan.errors import InputError
from hetplan.measure.measure_file import points_of, read_wish

GOOD = """
format = "hetplan/measure/1.0"
[machines.cpu-1]
threads = 1
[tasks.classify]
metric = "top1"
[metrics.top1]
kind = "bernoulli"
[models.a]
task = "classify"
callable = "models:load"
axes = {resolution = [224, 448], batch = [1, 2]}
at = {resolution = 224, batch = 2}
"""


def read(tmp_path: Path, text: str) -> None:
    (tmp_path / "measure.toml").write_text(text)
    read_wish(tmp_path / "measure.toml")


def test_cells_are_every_point_of_every_variant(tmp_path: Path) -> None:
    (tmp_path / "measure.toml").write_text(GOOD)
    wish, folder = read_wish(tmp_path / "measure.toml")
    assert folder == tmp_path
    assert [cell[2] for cell in wish.cells()] == [
        {"batch": 1, "resolution": 224}, {"batch": 1, "resolution": 448},
        {"batch": 2, "resolution": 224}, {"batch": 2, "resolution": 448},
    ]  # fmt: skip
    assert points_of({}) == [{}]


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("measure/1.0", "measure/9.0", r"\$\.format"),
        ("threads = 1", "thread = 1", r"\$\.machines\.cpu-1\.thread .*threads"),
        ('callable = "models:load"', 'callable = "models"', r"models\.a\.callable.*module:function"),
        ('callable = "models:load"', "", "exactly one of onnx, callable, http, command, not none"),
        ('callable = "models:load"', 'onnx = "no.onnx"', r"models\.a\.onnx .*no such file"),
        ('callable = "models:load"', 'http = "ftp://x"', "http or https"),
        ("[224, 448]", "[448, 224]", r"axes\.resolution.*grow"),
        ("batch = [1, 2]}", "batch = [1.5]}", "a whole number"),
        ("batch = 2}", "batch = 3}", r"at\.batch.*no such value"),
        ("at = {resolution = 224, batch = 2}", "at = {batch = 2}", "a value for every axis"),
        ('task = "classify"', 'task = "classify"\non = ["gpu"]', r"models\.a\.on\[0\].*no machine type 'gpu'"),
        ("[metrics.top1]", "[metrics.top5]", r"tasks\.classify\.metric.*no metric 'top1'"),
        ("threads = 1", "threads = 2\ncores = [0]", "as many cores"),
        ("[machines.cpu-1]", "[repeats]\nmin_runs = 9\nmax_runs = 3\n[machines.cpu-1]", r"repeats\.min_runs"),
        ("[machines.cpu-1]", "[repeats]\npause_ms = 2\nrate_qps = 9\n[machines.cpu-1]", "one of pause_ms and rate_qps"),
        ("[machines.cpu-1]", "[machines.cpu-1", "cannot be read"),
    ],
)
def test_a_slip_is_reported_with_its_place(tmp_path: Path, before: str, after: str, said: str) -> None:
    assert before in GOOD
    with pytest.raises(InputError, match=said):
        read(tmp_path, GOOD.replace(before, after))


def test_no_file_at_all(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        read_wish(tmp_path / "none.toml")
