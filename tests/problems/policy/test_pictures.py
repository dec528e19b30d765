"""`hetplan show` draws the policies of a plan, in the terminal and into a file."""

import re
import xml.etree.ElementTree as Xml
from pathlib import Path
from typing import Any

import pytest
from cases.policy import files
from click.testing import Result
from typer.testing import CliRunner

import hetplan as hp
from hetplan.cli.app import build_app
from hetplan.planner.plan_policy_picture import colour_of, svg_of, text_of
from hetplan.profiles.plan_file import write_plan
from hetplan.profiles.plan_policy import PolicyTable

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def plan_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    options = {"queue_max": 6, "grid": "fld{10}", "accuracy_step": 0.015, "sizing": "fluid", "batching": "variable"}
    outcome = hp.solve(*files(rate_qps={"low": 40.0, "high": 240.0}), options=options, formulation="policy")
    path = tmp_path_factory.mktemp("plans") / "set.json"
    write_plan(outcome.require(), path)
    return path


def show(*arguments: object) -> Result:
    return CliRunner().invoke(build_app(), ["show", *map(str, arguments)])


def table(**more: Any) -> PolicyTable:
    return PolicyTable.model_validate(
        {
            "workers": "w",
            "slo_ms": 30,
            "rate_qps": 5,
            "queue_max": 4,
            "slack_ms": [0, 10, 25, 30],
            "models": ["fast", "slow"],
            "choice": {str(n): "fastx1 slowx2 fastx1" for n in (1, 2, 3, 4)},
            "batch": {"1": "0x1 1x3", "2": "2x2 1x1 2x1", "3": "2x4", "4": "2x4"},
            "otherwise": {"model": "fast", "batch": 5},
            **more,
        }
    )


def test_letters_stand_where_their_slack_is() -> None:
    lines = text_of(table(), width=31)
    assert lines[1] == "      1  " + "." * 10 + "b" * 20 + "a"
    assert lines[2] == "      2  " + "a" * 10 + "b" * 15 + "B" * 5 + "a"
    assert lines[3] == "    3-4  " + "A" * 10 + "B" * 20 + "A", "rows that look alike are one"
    assert lines[4] == "   more  a, 5 at most"
    assert lines[5].split() == ["0", "15", "30", "ms", "of", "slack"]
    assert lines[6] == "a fast, b slow; capital: fewer than wait; . drops the oldest"


def test_long_pictures_are_cut() -> None:
    lines = text_of(table(), width=10, rows=2)
    assert [line.split()[0] for line in lines[1:4]] == ["1", "2", "3-4"]
    assert lines[3].endswith("...")


def test_an_svg_is_drawn_to_the_scale_of_time() -> None:
    root = Xml.fromstring(svg_of(table(), title="a < b", wide=300))
    drawn = [box for box in root.iter(f"{SVG}rect") if box.find(f"{SVG}title") is not None]
    first = [(float(b.get("x", 0)), float(b.get("width", 0)), b.findtext(f"{SVG}title")) for b in drawn[:3]]
    assert first == [(0, 100, "drop the oldest"), (100, 200, "slow on 1 of 1"), (300, 4, "fast on 1 of 1")]
    said = {text.text for text in root.iter(f"{SVG}text")}
    assert {"a < b", "fast", "slow", "fewer than wait", "drop the oldest"} <= said


def test_models_have_colours_of_their_own() -> None:
    assert len({colour_of(place, 9) for place in range(9)}) == 9
    assert colour_of(0, 1) == colour_of(0, 5)


def test_show_draws_the_busiest_load_and_any_other(plan_file: Path) -> None:
    shown = show(plan_file, "--view", "policies")
    assert shown.exit_code == 0
    assert re.search(r"a: 240 qps, SLO 100 ms, workers w1 \(one of \d+ loads", shown.output)
    assert re.search(r"^  a +w1 +40 +100 +variable +0\.\d+", shown.output, re.MULTILINE), "a line per load"
    other = show(plan_file, "--load", 30)
    assert "a: 40 qps" in other.output
    beyond = show(plan_file, "--load", 900)
    assert "900 qps is above every table" in beyond.output


def test_an_svg_of_a_set_holds_every_load(plan_file: Path, tmp_path: Path) -> None:
    path = tmp_path / "set.svg"
    assert show(plan_file, "--svg", path).exit_code == 0
    headings = re.findall(r">([0-9.]+) qps, SLO 100 ms", path.read_text())
    assert (headings[0], headings[-1]) == ("40", "240")
    assert len(headings) > 2
    assert show(plan_file, "--svg", path, "--load", 50).exit_code == 0
    assert path.read_text().count("qps, SLO") == 1


def test_an_svg_of_no_load_holds_the_lowest_table(plan_file: Path, tmp_path: Path) -> None:
    for load, name in (("0", "none.svg"), ("1", "little.svg")):
        assert show(plan_file, "--load", load, "--svg", tmp_path / name).exit_code == 0
    assert (tmp_path / "none.svg").read_text() == (tmp_path / "little.svg").read_text()


def test_an_svg_that_cannot_be_written_is_reported(plan_file: Path, tmp_path: Path) -> None:
    result = show(plan_file, "--svg", tmp_path / "nowhere" / "x.svg")
    assert result.exit_code == 2
    assert "cannot be written" in result.stderr
