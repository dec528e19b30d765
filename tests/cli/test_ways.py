"""`hetplan solve --alternatives`: the plan behind each lever of a bill, that anybody may verify and play."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.problems.fleet.test_fleet import app, wish
from tests.problems.fleet.test_levers import sold

QUICK = ("--formulation", "fleet", "--set", "sizing=fluid", "--set", "gap=0.2")


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    profile, slo = tmp_path / "profile.json", tmp_path / "slo.json"
    profile.write_text(json.dumps(sold(ahead=False)))
    slo.write_text(json.dumps(wish(app([20.0, 60.0]), periods=2)))
    return profile, slo


def test_each_way_is_a_file_that_verifies_and_costs_what_the_bill_says(
    files: tuple[Path, Path], run: Callable[..., Any], tmp_path: Path
) -> None:
    """A file that was changed by hand does not."""
    ways = tmp_path / "ways"
    made = run("solve", *files, *QUICK, "-o", tmp_path / "plan.json", "--alternatives", ways, "--json")
    assert made.code == 0, made.err
    levers = json.loads((tmp_path / "plan.json").read_text())["bill"]["levers"][:-1]
    assert made.lines[-1]["ways"] == {
        one["name"]: str(ways / f"{one['name'].replace(' ', '-')}.json") for one in levers
    }
    for one in levers:
        file = ways / f"{one['name'].replace(' ', '-')}.json"
        assert json.loads(file.read_text())["bill"]["cost_per_hour"] == one["cost_per_hour"]
        assert run("verify", file, *files).code == 0
        cheaper = json.loads(file.read_text())
        del cheaper["digest"]
        cheaper["bill"]["cost_per_hour"] *= 0.9
        file.write_text(json.dumps(cheaper))
        assert run("verify", file, *files).code == 6


@pytest.mark.parametrize("rates", [[20.0, 60.0], [20.0]])
def test_a_plan_without_other_ways_says_so(
    rates: list[float], files: tuple[Path, Path], run: Callable[..., Any], tmp_path: Path
) -> None:
    files[1].write_text(json.dumps(wish(app(rates), periods=len(rates))))
    without = ("--set", "savings=false") if len(rates) > 1 else ()
    ran = run("solve", *files, *QUICK, *without, "--alternatives", tmp_path / "ways")
    assert ran.code == 0, ran.err
    assert "--alternatives: nothing is written" in ran.err
    assert not (tmp_path / "ways").exists()


def test_a_folder_that_cannot_be_is_refused_before_the_work(
    files: tuple[Path, Path], run: Callable[..., Any], tmp_path: Path
) -> None:
    ran = run("solve", *files, "--alternatives", tmp_path / "none" / "ways")
    assert ran.code == 2
    assert "there is no folder for it" in ran.err


def test_a_file_in_place_of_the_folder_is_refused_before_the_work(
    files: tuple[Path, Path], run: Callable[..., Any]
) -> None:
    ran = run("solve", *files, "--alternatives", files[0])
    assert ran.code == 2
    assert "this is a file" in ran.err
