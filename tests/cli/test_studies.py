"""`hetplan whatif` and its like on the command line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest


def test_whatif_writes_a_table_a_csv_and_a_picture(run: Callable[..., Any], files: Any) -> None:
    table, picture = files.folder / "points.csv", files.folder / "curve.svg"
    ran = run("whatif", files.profile, files.slo, "--vary", "budget=1:3:3", "--no-confirm",
              "--csv", table, "--svg", picture)  # fmt: skip
    assert ran.code == 0, ran.err
    assert "max rate_qps along budget (now 3)" in ran.out
    assert "2 a-od, 2 base-od" in ran.out
    assert len(table.read_text().splitlines()) > 4
    assert picture.read_text().startswith("<svg ")


def test_whatif_for_machines_is_json_and_a_csv_goes_to_standard_output(run: Callable[..., Any], files: Any) -> None:
    ran = run("whatif", files.profile, files.slo, "--vary", "budget=2.9,3", "--json", "--no-confirm")
    last = ran.lines[-1]
    assert last["exit"]["code"] == 0
    assert last["points"][-1]["fleet"] == {"a-od": 2, "base-od": 2}
    alone = run("whatif", files.profile, files.slo, "--vary", "budget=2.9,3", "--csv", "-", "--no-confirm")
    assert alone.out.startswith("budget,by,about,status,value")


def test_the_report_of_a_plan_takes_its_curves(run: Callable[..., Any], files: Any) -> None:
    ran = run("whatif", files.profile, files.slo, "--vary", "budget=2:3:3", "--json", "--no-confirm")
    (files.folder / "whatif.jsonl").write_text(ran.out)
    assert run("solve", files.profile, files.slo, "--set", "size=planned", "-o", files.plan).code == 0
    page = files.folder / "report.html"
    drawn = run("report", files.plan, "--whatif", files.folder / "whatif.jsonl", "-o", page)
    assert drawn.code == 0, drawn.err
    assert "rate_qps along budget" in page.read_text()


def test_whatif_without_a_plan_anywhere_is_infeasible(run: Callable[..., Any], files: Any) -> None:
    ran = run("whatif", files.profile, files.slo, "--vary", "budget=0.1:0.5:2", "--no-confirm")
    assert ran.code == 3
    assert "no plan: " in ran.out
    assert run("whatif", files.profile, files.slo).code == 2


def test_explain_says_why_and_without_files_what_the_plan_says(run: Callable[..., Any], files: Any) -> None:
    assert run("solve", files.profile, files.slo, "--set", "size=planned", "-o", files.plan).code == 0
    ran = run("explain", files.plan, files.profile, files.slo)
    assert ran.code == 0, ran.err
    assert "Why these" in ran.out
    assert "b-od" in ran.out.split("Why not those")[1]
    assert "budget" in ran.out.split("What binds")[1]
    alone = run("explain", files.plan)
    assert "per month of 730 hours" in alone.out
    assert run("explain", files.plan, files.profile).code == 2
    assert run("explain", files.plan, files.profile, files.slo, "--json").lines[-1]["fleet"] == {
        "a-od": 2,
        "base-od": 2,
    }


@pytest.mark.slow
def test_robust_says_margins_and_machines_for_a_box(run: Callable[..., Any], files: Any) -> None:
    ran = run("whatif", files.profile, files.slo, "--robust", "--box", "latency=0.1", "--gamma", "1",
              "--set", "size=planned")  # fmt: skip
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
