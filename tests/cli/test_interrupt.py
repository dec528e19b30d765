"""Ctrl-C: the best plan so far, or nothing; never half a file, and never a wait for an engine that does not listen."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


def wait_until_working(process: subprocess.Popen[str], ready: Path) -> None:
    until = time.monotonic() + 120
    while time.monotonic() < until:
        if ready.exists():
            return
        if process.poll() is not None:
            pytest.fail(f"ended early: {process.communicate()}")
        time.sleep(0.05)
    process.kill()
    pytest.fail("the work never began")


def interrupted(process: subprocess.Popen[str], ready: Path, *, times: int = 1) -> tuple[int, str, str]:
    wait_until_working(process, ready)
    for time_left in range(times, 0, -1):
        process.send_signal(signal.SIGINT)
        if time_left > 1:
            time.sleep(0.5)
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


@pytest.mark.slow
def test_the_best_plan_so_far_is_written(files: Any, spawn: Callable[..., Any], tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    arguments = ("solve", files.profile, files.slo, "--solver", "sleepy", "-o", files.plan)
    code, _, err = interrupted(spawn(*arguments, ODD_ENGINE_READY=str(ready)), ready)
    assert code == 130, err
    assert json.loads(files.plan.read_text())["workers"]
    assert "Traceback" not in err


@pytest.mark.slow
def test_an_engine_that_does_not_listen_is_not_waited_for(
    files: Any, spawn: Callable[..., Any], tmp_path: Path
) -> None:
    ready = tmp_path / "ready"
    process = spawn(
        "solve",
        files.profile,
        files.slo,
        "--solver",
        "deaf",
        "-o",
        files.plan,
        "--json",
        before="import hetplan.cli.long_work as i; i.GRACE_SECONDS = 0.3",
        ODD_ENGINE_READY=str(ready),
    )
    code, out, err = interrupted(process, ready)
    assert code == 130
    assert json.loads(out.splitlines()[-1])["exit"] == {"code": 130, "reason": "interrupted"}
    assert "Traceback" not in err
    assert not files.plan.exists()
    assert {path.name for path in files.folder.iterdir()} == {"profile.json", "slo.json", "ready"}


@pytest.mark.slow
def test_a_second_interrupt_leaves_at_once(files: Any, spawn: Callable[..., Any], tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    process = spawn("solve", files.profile, files.slo, "--solver", "deaf", ODD_ENGINE_READY=str(ready))
    code, _, err = interrupted(process, ready, times=2)
    assert code == 130
    assert "Ctrl-C again" in err


@pytest.mark.slow
def test_an_older_plan_survives_an_interrupt(files: Any, spawn: Callable[..., Any], tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    files.plan.write_text("an older plan")
    process = spawn(
        "solve", files.profile, files.slo, "--solver", "deaf", "-o", files.plan, ODD_ENGINE_READY=str(ready)
    )
    code, _, _ = interrupted(process, ready, times=2)
    assert code == 130
    assert files.plan.read_text() == "an older plan"


@pytest.mark.slow
@pytest.mark.parametrize("command", ["whatif", "verify"])
def test_work_that_has_nothing_to_hand_over_is_left_after_seconds(
    command: str, files: Any, run: Callable[..., Any], spawn: Callable[..., Any], tmp_path: Path
) -> None:
    assert run(*files.solve, "-o", files.plan).code == 0
    ready, plan = tmp_path / "ready", files.plan.read_text()
    vary = ("--vary", "budget=1:3:2", "--csv", tmp_path / "points.csv", "--svg", tmp_path / "curves.svg")
    asked = vary if command == "whatif" else ("--prove", "--solver", "highs")
    given = (files.profile, files.slo) if command == "whatif" else (files.plan, files.profile, files.slo)
    deaf = "from hetplan import registry as r; odd_engines.Deaf.name = 'highs'; r.SOLVERS['highs'] = r.SOLVERS['deaf']"
    process = spawn(command, *given, *asked, before=deaf, ODD_ENGINE_READY=str(ready))
    wait_until_working(process, ready)
    process.send_signal(signal.SIGINT)
    began = time.monotonic()
    _, err = process.communicate(timeout=120)
    # Work that may hand over a plan is waited for for 30 s, and the engine itself would take 60.
    assert 2.5 < time.monotonic() - began < 20
    assert process.returncode == 130
    assert "Ctrl-C again" in err
    assert "Traceback" not in err
    assert {path.name for path in files.folder.iterdir()} == {"profile.json", "slo.json", "plan.json", "ready"}
    assert files.plan.read_text() == plan
