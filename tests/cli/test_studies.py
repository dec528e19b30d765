"""`hetplan whatif` and its like on the command line."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import hetplan as hp
from hetplan.studies.points import fleet_of, fleet_text
from tests.build import shipped

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@dataclass(frozen=True)
class Varied:
    """Two axes of a question's example: as `--vary` takes them, and where in the files each is."""

    first: str
    second: str
    at: tuple[tuple[str | int, ...], tuple[str | int, ...]] = ((), ())
    changes: bool | None = True
    """Whether the fleet changes along the first."""
    more: tuple[str, ...] = ()

    @classmethod
    def of_app(cls, app: str, first: str, second: str, **more: Any) -> Varied:
        """Axes that are an application's rate, its floor of quality or its first limit."""
        where = {"rate": ("rate_qps",), "quality": ("quality", "min")}
        at = [
            ("slo", "apps", app, *where.get(name := axis.partition("=")[0], ("latency", f"{name}_ms")))
            for axis in (first, second)
        ]
        named = [axis.replace("=", f":{app}=", 1) for axis in (first, second)]
        return cls(*named, (at[0], at[1]), **more)


MEASURED = EXAMPLES / "compound" / "measured.json"
RATE = ("slo", "apps", "assistant", "rate_qps")
QUESTIONS = {
    "pool": Varied("budget=2.8:3:2", "p99:ranking=55,60",
                   (("slo", "limits", "cost_per_hour"), ("slo", "apps", "ranking", "latency", "p99_ms"))),
    "variants": Varied.of_app("faces", "rate=170:190:2", "quality=0.7,0.74"),
    "llm": Varied("price:a10g=0.8:1.4:2", "rate:assistant=20,25",
                  (("profile", "offers", "a10g", "price_per_hour"), RATE)),
    "compound": Varied.of_app("gate", "p50=220:240:2", "quality=0.7,0.72", more=(str(MEASURED),)),
    "pipeline": Varied.of_app("cameras", "p99=270:290:2", "quality=0.8"),
    "policy": Varied.of_app("images", "p99=100,200", "rate=100", changes=False),
    # A fleet's search stops within its gap, so twice the prices may buy other machines for .01% less.
    "fleet": Varied("prices=1,2", "demand=1", changes=None),
}  # fmt: skip
LONG = {"pipeline": pytest.mark.longest, "policy": pytest.mark.slow, "fleet": pytest.mark.slow}


@pytest.mark.slow
def test_whatif_writes_a_table_a_csv_and_a_picture(run: Callable[..., Any], files: Any) -> None:
    table, picture = files.folder / "points.csv", files.folder / "curve.svg"
    ran = run("whatif", files.profile, files.slo, "--vary", "budget=1:3:3", "--no-confirm",
              "--csv", table, "--svg", picture)  # fmt: skip
    assert ran.code == 0, ran.err
    assert "max rate_qps along budget (now 3)" in ran.out
    assert "2 a, 2 base" in ran.out
    assert len(table.read_text().splitlines()) > 4
    assert picture.read_text().startswith("<svg ")


@pytest.mark.slow
def test_whatif_for_machines_is_json_and_a_csv_goes_to_standard_output(run: Callable[..., Any], files: Any) -> None:
    ran = run("whatif", files.profile, files.slo, "--vary", "budget=2.9,3", "--json", "--no-confirm")
    last = ran.lines[-1]
    assert last["exit"]["code"] == 0
    assert last["points"][-1]["fleet"] == {"a": 2, "base": 2}
    alone = run("whatif", files.profile, files.slo, "--vary", "budget=2.9,3", "--csv", "-", "--no-confirm")
    assert alone.out.startswith("budget,by,about,status,value")


def points_of(file: Path) -> dict[str, list[dict[str, str]]]:
    """The points that a table of two axes has, by the second."""
    found: dict[str, list[dict[str, str]]] = {}
    with file.open() as rows:
        for row in csv.DictReader(rows):
            found.setdefault(list(row.values())[1], []).append(row)
    return found


def planned_by_hand(question: str, values: Sequence[str]) -> hp.Plan:
    """The plan of files into which the values of both axes were written, by its program alone."""
    files = {name: shipped(EXAMPLES / question / f"{name}.json") for name in ("profile", "slo")}
    for steps, value in zip(QUESTIONS[question].at, values, strict=True):
        at: Any = files
        for step in steps[:-1]:
            at = at[step]
        at[steps[-1]] = value if isinstance(at[steps[-1]], str) else float(value)
    options = {} if question in ("policy", "compound") else {"sizing": "fluid"}
    measured = MEASURED if question == "compound" else None
    return hp.solve(files["profile"], files["slo"], measured, options=options).require()


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("question", [pytest.param(one, marks=LONG.get(one, ())) for one in QUESTIONS])
def test_every_question_is_asked_along_two_axes(question: str, run: Callable[..., Any], tmp_path: Path) -> None:
    """The table, the points and the picture agree, and a change is where plans made by hand change as well."""
    varied, table, picture = QUESTIONS[question], tmp_path / "points.csv", tmp_path / "curves.svg"
    files = (EXAMPLES / question / "profile.json", EXAMPLES / question / "slo.json")
    ran = run("whatif", *files, "--vary", varied.first, "--vary", varied.second, "--no-confirm", "--csv", table,
              "--svg", picture, *varied.more)  # fmt: skip
    assert ran.code == 0, ran.err
    name = varied.first.partition("=")[0]
    assert f"along {name}" in ran.out
    points = points_of(table)
    assert len(points) == varied.second.count(",") + 1
    drawn = [one for one in ElementTree.parse(picture).iter() if "curve" in one.attrib.get("class", "").split()]
    assert len(drawn) >= len(points), "a curve for each value of the second axis"
    neighbours = [(value, *pair) for value, line in points.items() for pair in pairwise(line)]
    changes = [one for one in neighbours if one[1]["fleet"] != one[2]["fleet"]]
    assert ("Where the fleet changes" in ran.out) == bool(changes)
    if varied.changes is None:
        return
    assert bool(changes) == varied.changes
    for beside, *both in changes:
        plans = [planned_by_hand(question, (point[name], beside)) for point in both]
        assert fleet_of(plans[0]) != fleet_of(plans[1])
        for point, plan in zip(both, plans, strict=True):
            assert float(point["value"]) == pytest.approx(plan.claims[0].value, rel=1e-6)
            assert fleet_text(fleet_of(plan)) in ran.out


@pytest.mark.slow
def test_the_report_of_a_plan_takes_its_curves(run: Callable[..., Any], files: Any) -> None:
    ran = run("whatif", files.profile, files.slo, "--vary", "budget=2:3:3", "--json", "--no-confirm")
    (files.folder / "whatif.jsonl").write_text(ran.out)
    assert run("solve", files.profile, files.slo, "--set", "sizing=fluid", "-o", files.plan).code == 0
    page = files.folder / "report.html"
    drawn = run("report", files.plan, "--whatif", files.folder / "whatif.jsonl", "-o", page)
    assert drawn.code == 0, drawn.err
    assert "rate_qps along budget" in page.read_text()


def test_whatif_without_a_plan_anywhere_is_infeasible(run: Callable[..., Any], files: Any) -> None:
    ran = run("whatif", files.profile, files.slo, "--vary", "budget=0.1:0.5:2", "--no-confirm")
    assert ran.code == 3
    assert "no plan: " in ran.out
    assert run("whatif", files.profile, files.slo).code == 2


@pytest.mark.slow
def test_explain_says_why_and_without_files_what_the_plan_says(run: Callable[..., Any], files: Any) -> None:
    assert run("solve", files.profile, files.slo, "--set", "sizing=fluid", "-o", files.plan).code == 0
    ran = run("explain", files.plan, files.profile, files.slo)
    assert ran.code == 0, ran.err
    assert "Why these" in ran.out
    assert "b" in ran.out.split("Why not others")[1]
    assert "budget" in ran.out.split("What binds")[1]
    alone = run("explain", files.plan)
    assert "$2,190 a month" in alone.out
    assert run("explain", files.plan, files.profile).code == 2
    assert run("explain", files.plan, files.profile, files.slo, "--json").lines[-1]["fleet"] == {
        "a": 2,
        "base": 2,
    }


@pytest.mark.slow
def test_robust_says_margins_and_machines_for_a_box(run: Callable[..., Any], files: Any) -> None:
    ran = run("whatif", files.profile, files.slo, "--robust", "--box", "latency=0.1", "--gamma", "1",
              "--set", "sizing=fluid")  # fmt: skip
    assert ran.code == 0, ran.err
    assert "How far numbers may be off" in ran.out
    assert '"base": [' in ran.out
    for wrong in (["--robust", "--vary", "budget=1:2"], ["--robust", "--box", "speed=1"], ["--robust", "--gamma", "2"]):
        assert run("whatif", files.profile, files.slo, *wrong).code == 2


@pytest.mark.slow
def test_what_a_killed_command_found_is_not_asked_again(files: Any) -> None:
    """Killed as hard as can be, in the middle; the second command says the same as one that was left alone."""
    journal = files.folder / "study.jsonl"
    asked = ["whatif", files.profile, files.slo, "--vary", "budget=1:3:41", "--no-confirm", "--json", "--jobs", "2"]
    code = f"import sys; sys.argv = {['hetplan', *asked]!r}; from hetplan.cli import main; main()"
    kept = code.replace("'--jobs'", f"'--journal', {str(journal)!r}, '--jobs'")
    first = subprocess.Popen([sys.executable, "-c", kept], stdout=subprocess.DEVNULL, start_new_session=True)
    end = time.monotonic() + 60
    while time.monotonic() < end and not (journal.exists() and journal.read_bytes().count(b"\n") > 5):
        time.sleep(0.02)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    done = journal.read_bytes().count(b"\n")
    assert 5 < done < 60
    again = subprocess.run([sys.executable, "-c", kept], capture_output=True, check=True)
    alone = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert again.stdout.splitlines()[-1] == alone.stdout.splitlines()[-1]
    assert len(set(journal.read_bytes().splitlines())) == journal.read_bytes().count(b"\n") > done


def test_an_empty_file_of_any_kind_is_answered_by_what_writes_one(run: Callable[..., Any], tmp_path: Any) -> None:
    empty = tmp_path / "slo.json"
    empty.write_text(" \n")
    ran = run("solve", empty, empty)
    assert ran.code == 2
    assert "hetplan init" in ran.err
