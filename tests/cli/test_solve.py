"""`hetplan solve` from files to files."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

COMMAND = "from hetplan.cli import main; main()"


def process(*arguments: object) -> subprocess.CompletedProcess[bytes]:
    """The command in a process of its own, standard output a pipe."""
    code = f"import sys; sys.argv = {['hetplan', *map(str, arguments)]!r}; {COMMAND}"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)


def test_the_plan_is_the_one_worked_out_by_hand(files: Any, run: Callable[..., Any]) -> None:
    ran = run(*files.solve, "-o", files.plan)
    assert ran.code == 0
    plan = json.loads(files.plan.read_text())
    assert {worker["hardware"]: worker["count"] for worker in plan["workers"]} == {"base": 2, "a": 2}
    promises = {promise["quantity"]: promise["value"] for promise in plan["promises"]}
    assert promises["fluid_rate_qps"] == pytest.approx(160, rel=1e-9)
    assert promises["rate_qps"] == pytest.approx(128, rel=1e-9)
    assert promises["cost_per_hour"] == pytest.approx(3)


@pytest.mark.slow
def test_the_page_is_the_summary_and_with_details_all_tables(files: Any, run: Callable[..., Any]) -> None:
    short = run("solve", files.profile, files.slo).out
    out = run("solve", files.profile, files.slo, "--details").out
    assert out.startswith(short)
    for said in ("Promises", "How good it is", "fluid", "best-of-measured"):
        assert said in out
        assert said not in short
    assert "\x1b" not in out, "plain when piped"
    assert all(line == line.rstrip() for line in out.splitlines())


@pytest.mark.slow
def test_without_a_file_nothing_is_written(files: Any, run: Callable[..., Any]) -> None:
    assert run("solve", files.profile, files.slo).code == 0
    assert {path.name for path in files.folder.iterdir()} == {"profile.json", "slo.json"}


def test_what_is_advised_next_can_be_copied(
    files: Any, run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    files.folder.joinpath("a b").mkdir()
    monkeypatch.chdir(files.folder)

    def advised(*given: str) -> list[str]:
        out = run("solve", *given, "--set", "sizing=fluid", "-o", "a b/plan.json").out
        return shlex.split(out.splitlines()[-1].partition("Next: hetplan ")[2].partition("   (or")[0])

    for given in (("slo.json", "profile.json"), (".",)):
        assert advised(*given)[1:] == ["a b/plan.json", *given]
    assert run(*advised("slo.json", "profile.json")).code == 0
    assert advised(str(files.profile), str(files.slo))[-2:] == ["PROFILE", "SLO"], "too long for a line"


@pytest.mark.slow
def test_the_same_inputs_give_the_same_bytes(files: Any) -> None:
    first = process(*files.solve, "-o", "-")
    second = process(*files.solve, "-o", files.plan)
    assert (first.returncode, second.returncode) == (0, 0)
    assert first.stdout == files.plan.read_bytes()


@pytest.mark.slow
def test_a_plan_on_standard_output_is_nothing_but_the_plan(
    files: Any, spawn: Callable[..., subprocess.Popen[str]]
) -> None:
    running = spawn(*files.solve, "--solver", "chatty", "-o", "-")
    out, err = running.communicate(timeout=120)
    assert running.returncode == 0, err
    assert json.loads(out)["format"].startswith("hetplan/plan/")


@pytest.mark.slow
def test_the_json_stream_parses_line_by_line_and_ends_with_exit(
    files: Any, spawn: Callable[..., subprocess.Popen[str]]
) -> None:
    size = ("--set", "sizing=fluid")
    running = spawn("solve", files.profile, files.slo, "--solver", "chatty", "--json", *size, "-o", files.plan)
    out, err = running.communicate(timeout=120)
    assert running.returncode == 0, err
    lines = [json.loads(line) for line in out.splitlines()]
    assert lines[0]["format"] == "hetplan/stream/1.0"
    assert any("event" in line for line in lines[1:-1])
    last = lines[-1]
    assert last["exit"]["code"] == 0
    assert last["written"] == str(files.plan)
    assert last["claims"][0]["value"] == pytest.approx(128, rel=1e-9)
    assert json.dumps(last["plan"]["workers"])


def test_the_json_stream_tells_faults(files: Any, run: Callable[..., Any]) -> None:
    files.slo_with(lambda slo: slo["apps"]["rank"].update(latncy=[]))
    ran = run("solve", files.profile, files.slo, "--json")
    assert ran.code == 2
    last = ran.lines[-1]
    assert last["exit"]["code"] == 2
    assert {"file", "path", "value", "why", "remedy"} == set(last["faults"][0])
    assert "latency" in json.dumps(last["faults"])


@pytest.mark.slow
def test_the_json_stream_tells_repairs(files: Any, run: Callable[..., Any]) -> None:
    files.slo_with(lambda slo: slo["limits"].update(cost_per_hour="0.75"))
    last = run("solve", files.profile, files.slo, "--json", "-o", files.plan).lines[-1]
    assert last["exit"]["code"] == 3
    assert last["plan"] is None
    assert last["written"] is None
    assert any("cost_per_hour" in repair["field"] for repair in last["repairs"])


def test_json_and_a_plan_cannot_share_standard_output(files: Any, run: Callable[..., Any]) -> None:
    ran = run("solve", files.profile, files.slo, "--json", "-o", "-")
    assert ran.code == 2
    assert "-o plan.json" in ran.err


def test_a_refused_plan_leaves_an_older_one_alone_and_says_so(files: Any, run: Callable[..., Any]) -> None:
    files.plan.write_text("an older plan")
    files.slo_with(lambda slo: slo["limits"].update(cost_per_hour="0.75"))
    ran = run(*files.solve, "-o", files.plan)
    assert ran.code == 3
    assert files.plan.read_text() == "an older plan"
    assert "older plan" in ran.err


@pytest.mark.parametrize(
    ("output", "printed"), [("missing/plan.json", "there is no folder"), ("folder", "this is a folder")]
)
def test_a_place_where_the_plan_cannot_go_is_refused_before_the_work(
    output: str, printed: str, files: Any, run: Callable[..., Any]
) -> None:
    (files.folder / "folder").mkdir()
    ran = run(*files.solve, "-o", files.folder / output)
    assert ran.code == 2
    assert printed in ran.err


@pytest.mark.skipif(hasattr(os, "geteuid") and os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder_is_bad_input(files: Any, run: Callable[..., Any]) -> None:
    locked = files.folder / "locked"
    locked.mkdir(mode=0o555)
    ran = run(*files.solve, "-o", locked / "plan.json")
    assert ran.code == 2
    assert "read-only" in ran.err
    assert not list(locked.iterdir())


def test_a_folder_that_may_not_be_written_is_reported_with_a_remedy(
    files: Any, run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same as above for whoever runs the tests as root: what the system says is taken at its word."""
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    ran = run(*files.solve, "-o", files.plan)
    assert ran.code == 2
    assert "use -o - for stdout" in ran.err


def test_a_disk_that_fails_while_writing_leaves_no_half_file(
    files: Any, run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", str(files.plan))

    monkeypatch.setattr(os, "fsync", full)
    ran = run(*files.solve, "-o", files.plan)
    assert ran.code == 2
    assert "No space left" in ran.err
    assert {path.name for path in files.folder.iterdir()} == {"profile.json", "slo.json"}


@pytest.mark.slow
def test_settings_reach_the_plan_and_win_over_the_method_file(
    files: Any, run: Callable[..., Any], tmp_path: Path
) -> None:
    method = tmp_path / "method.json"
    method.write_text(json.dumps({"formulation": "pool-milp", "options": {"derate": 0.7, "xi": 0.9}}))
    ran = run("solve", files.profile, files.slo, "--set", f"@{method}", "--set", "derate=0.9", "-o", files.plan)
    assert ran.code == 0, ran.err
    options = json.loads(files.plan.read_text())["method"]["options"]
    assert (options["derate"], options["xi"]) == (0.9, 0.9)


def test_the_method_of_a_plan_is_a_method_file(files: Any, run: Callable[..., Any], tmp_path: Path) -> None:
    assert run(*files.solve, "--set", "derate=0.6", "-o", files.plan).code == 0
    method = tmp_path / "method.json"
    method.write_text(json.dumps(json.loads(files.plan.read_text())["method"]))
    again = tmp_path / "again.json"
    assert run("solve", files.profile, files.slo, "--set", f"@{method}", "-o", again).code == 0
    assert again.read_bytes() == files.plan.read_bytes()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--set", "derate"], "NAME=VALUE"),
        (["--set", "derate=lots"], "derate"),
        (["--set", "derat=0.5"], "derat"),
        (["--formulation", "nonsense"], "pool-milp"),
        (["--formulation", "nonsense"], "pool"),
        (["--solver", "nonsense"], "highs"),
        (["--gap", "-1"], "gap"),
        (["--set", "@nowhere.json"], "nowhere.json"),
        (["--from", "nowhere.json"], "nowhere.json"),
        (["nowhere.json"], "nowhere.json"),
    ],
)
def test_a_wrong_flag_is_bad_input_with_a_remedy(
    arguments: list[str], said: str, files: Any, run: Callable[..., Any]
) -> None:
    ran = run("solve", files.profile, files.slo, *arguments)
    assert ran.code == 2
    assert said in ran.err


@pytest.mark.parametrize(
    "method", ["[]", "{", '{"option": {}}', '{"options": []}', '{"formulation": 3}', '{"options": {}, "options": {}}']
)
def test_a_wrong_method_file_is_bad_input(method: str, files: Any, run: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "method.json"
    path.write_text(method)
    ran = run("solve", files.profile, files.slo, "--set", f"@{path}")
    assert ran.code == 2
    assert "method.json" in ran.err


def test_a_previous_plan_starts_the_search_and_changes_nothing(files: Any, run: Callable[..., Any]) -> None:
    again = files.folder / "again.json"
    assert run(*files.solve, "-o", files.plan).code == 0
    assert run(*files.solve, "--from", files.plan, "-o", again).code == 0
    workers = [json.loads(path.read_text())["workers"] for path in (files.plan, again)]
    assert workers[0] == workers[1]


@pytest.mark.usefixtures("odd_engines")
def test_a_time_limit_keeps_the_best_plan_so_far(files: Any, run: Callable[..., Any]) -> None:
    ran = run("solve", files.profile, files.slo, "--solver", "late", "--time-limit", "0.2", "-o", files.plan)
    assert ran.code == 5, ran.err
    plan = json.loads(files.plan.read_text())
    assert plan["status"] == "not-simulated"
    assert not all(solve["deterministic"] for solve in plan["solves"])


@pytest.mark.usefixtures("odd_engines")
@pytest.mark.slow
def test_a_gap_that_a_limit_kept_from_being_reached(files: Any, run: Callable[..., Any]) -> None:
    arguments = ("--solver", "late", "--time-limit", "0.2", "--gap", "0.01", "-o", files.plan)
    assert run("solve", files.profile, files.slo, *arguments).code == 4
    assert files.plan.exists()


def test_debugging_shows_the_traceback(files: Any, run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HETPLAN_DEBUG", "1")
    ran = run("solve", files.folder / "nowhere.json", files.slo)
    assert ran.code == 2
    assert "Traceback" in ran.err
