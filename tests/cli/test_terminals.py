"""On terminals: no colours where NO_COLOR says so, lines that fit a narrow one, and how long work will still take."""

from __future__ import annotations

import os
import re
import shlex
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hetplan.cli.progress import Lines, Pace
from hetplan.planner.contract import Event

CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
COLOURS = re.compile(r"\x1b\[(?:\d+;)*(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])[;m]")
POOL = Path(__file__).resolve().parents[2] / "examples" / "pool"


def on_terminal(*arguments: str, columns: int, **environment: str) -> str:
    """What the command line writes to a terminal of so many columns."""
    fcntl, pty, termios = (pytest.importorskip(name) for name in ("fcntl", "pty", "termios"))
    here, there = pty.openpty()
    fcntl.ioctl(there, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    kept = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "LINES", "NO_COLOR"}}
    kept |= {"TERM": "xterm-256color", **environment}
    command = [sys.executable, "-m", "hetplan", *arguments]
    with subprocess.Popen(command, stdin=there, stdout=there, stderr=there, env=kept):
        os.close(there)
        written = b""
        while True:
            try:
                part = os.read(here, 65536)
            except OSError:
                break
            if not part:
                break
            written += part
    os.close(here)
    return written.decode()


@pytest.fixture
def plan(run: Callable[..., Any], tmp_path: Path) -> str:
    made = tmp_path / "plan.json"
    assert run("solve", POOL / "profile.json", POOL / "slo.json", "--set", "sizing=fluid", "-o", made).code == 0
    return str(made)


@pytest.mark.slow
def test_colours_are_for_terminals_that_want_them(plan: str) -> None:
    assert COLOURS.search(on_terminal("show", plan, columns=100))
    assert not COLOURS.search(on_terminal("show", plan, columns=100, NO_COLOR="1"))


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("columns", [40, 60])
def test_lines_fit_a_narrow_terminal(plan: str, columns: int) -> None:
    shown = CODES.sub("", on_terminal("show", plan, columns=columns)).replace("\r", "\n")
    assert "4 spot machines" in " ".join(shown.split())
    assert [line for line in shown.split("\n") if len(line) > columns] == []


@pytest.mark.slow
def test_the_next_command_is_in_one_piece_and_quoted(tmp_path: Path) -> None:
    folder = tmp_path / "my files"
    said = ("--model", "m", "--machine", "t4=1", "--ms", "t4:1=6", "--rate", "5", "--slo", "p99=60", "-o", str(folder))
    shown = CODES.sub("", on_terminal("init", *said, columns=40)).replace("\r", "")
    (line,) = [line for line in shown.split("\n") if line.startswith("Next: ")]
    files = [str(folder / name) for name in ("profile.json", "slo.json", "plan.json")]
    assert shlex.split(line)[1:] == ["hetplan", "solve", *files[:2], "-o", files[2]]


def test_what_remains_is_estimated_from_the_pace_so_far() -> None:
    clock = iter([0.0, 5.0, 20.0, 100.0])
    pace = Pace(lambda: next(clock))
    assert "left" not in pace.text(Event("simulate", done=0.1))
    assert pace.text(Event("simulate", done=0.2)).endswith("about 40 s left")
    assert pace.text(Event("simulate", done=0.9)).endswith("about 2 s left")
    assert "left" not in pace.text(Event("simulate", done=1.0))


def test_long_work_in_a_pipe_speaks_every_half_minute() -> None:
    said: list[str] = []
    now = [0.0]
    show = Lines(said.append, lambda: now[0]).show
    for second in range(100):
        now[0] = float(second)
        show(Event("simulate", f"{second} of 100", done=second / 100))
    assert said == [
        "30 s, 30 of 100, 30%, about 70 s left",
        "60 s, 60 of 100, 60%, about 40 s left",
        "90 s, 90 of 100, 90%, about 10 s left",
    ]


def test_work_that_tells_nothing_new_is_still_heard_of() -> None:
    said: list[str] = []
    now = [0.0]
    lines = Lines(said.append, lambda: now[0])
    for second in range(100):
        now[0] = float(second)
        if second < 10:
            lines.show(Event("fleet", f"round {second}", best=19.5))
        lines.beat()
    assert said == [f"{second} s, still at: round 9, best so far 19.5" for second in (30, 60, 90)]
