"""A command among others: closed pipes, a full disk, an interrupt before it began; a plan as JSON."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

POOL = Path(__file__).resolve().parents[2] / "examples" / "pool"
FILES = [str(POOL / "profile.json"), str(POOL / "slo.json"), "--set", "sizing=fluid"]


def hetplan(*arguments: str, **how: Any) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, "-m", "hetplan", *arguments], capture_output=True, check=False, **how)


def test_show_as_json_is_the_plan(run: Callable[..., Any], tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    assert run("solve", *FILES, "-o", plan).code == 0
    first, last = map(json.loads, run("show", plan, "--json").out.splitlines())
    assert first["command"] == "show"
    assert last["exit"] == {"code": 0, "reason": "done"}
    assert last["plan"]["workers"] == json.loads(plan.read_text())["workers"]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", ">&- 2>&- <&-"])
@pytest.mark.parametrize("command", ["list problems", f"solve {' '.join(FILES)}"])
def test_closed_streams_are_no_fault(closed: str, command: str) -> None:
    line = f'"{sys.executable}" -m hetplan {command} {closed}'
    ran = subprocess.run(["sh", "-c", line], capture_output=True, check=False)
    assert ran.returncode == 0
    assert b"Traceback" not in ran.stderr


@pytest.mark.slow
def test_a_reader_that_leaves_is_no_fault() -> None:
    line = f'"{sys.executable}" -m hetplan solve {" ".join(FILES)} | head -c 1'
    ran = subprocess.run(["sh", "-c", line], capture_output=True, check=False)
    assert b"Traceback" not in ran.stderr
    assert b"fault of hetplan" not in ran.stderr


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_full_disk_names_the_file() -> None:
    ran = hetplan("solve", *FILES, "-o", "/dev/full")
    assert ran.returncode == 2
    assert b"/dev/full: No space left on device. Make room" in ran.stderr
    assert b"fault of hetplan" not in ran.stderr


@pytest.mark.quick_cases(3)
@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@pytest.mark.parametrize("after_s", [0.12, 0.2, 0.3, 0.45])
def test_an_interrupt_while_it_begins_leaves_no_traceback(after_s: float) -> None:
    """Python itself takes about 0.05 s to begin; an interrupt before that is Python's."""
    with subprocess.Popen(
        [sys.executable, "-m", "hetplan", "solve", *FILES], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        time.sleep(after_s)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=120)
    if b"hetplan" in said or b"interrupted" in said:
        assert b"Traceback" not in said or b"site.py" in said or b"import_site" in said
    assert process.returncode in (0, 130, -signal.SIGINT, 1)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_help_on_a_full_disk_leaves_no_traceback() -> None:
    ran = subprocess.run(
        ["sh", "-c", f'"{sys.executable}" -m hetplan solve --help > /dev/full'], capture_output=True, check=False
    )
    assert ran.returncode == 1
    assert ran.stderr == b"error: standard output: No space left on device\n"


@pytest.mark.quick_cases(1)
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
@pytest.mark.parametrize("asked", ["check {files}", "check {files} --json", "show --help"])
def test_an_output_that_cannot_be_written_is_named(asked: str) -> None:
    """A long text fails while it is written, a short one as the command ends."""
    command = f'"{sys.executable}" -m hetplan {asked.format(files=" ".join(FILES[:2]))} > /dev/full'
    ran = subprocess.run(["sh", "-c", command], capture_output=True, check=False)
    assert ran.returncode in (1, 2)
    assert b"standard output: No space left on device" in ran.stderr
    assert b"Traceback" not in ran.stderr


@pytest.mark.slow
def test_a_terminal_of_few_letters_shows_a_simulation(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    assert hetplan("solve", *FILES, "-o", str(plan)).returncode == 0
    few = {**os.environ, "PYTHONIOENCODING": "ascii", "LC_ALL": "C", "PYTHONUTF8": "0"}
    command = [sys.executable, "-m", "hetplan", "simulate", str(plan), *FILES[:2], "--seeds", "2"]
    ran = subprocess.run(command, capture_output=True, check=False, env=few)
    assert b"fault of hetplan" not in ran.stderr
    (line,) = [line for line in ran.stdout.decode("ascii").splitlines() if "servers busy" in line]
    assert set(line.split()[2]) <= set("%@*+")
