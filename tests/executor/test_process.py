"""Whoever passes queries on has short turns; whoever computes keeps the usual ones."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from hetplan.executor.serving.process import ask_for_short_turns

CODE = """
import ctypes, os, struct, threading
from hetplan.executor.serving.process import ask_for_short_turns

def turn_ns():
    held = ctypes.create_string_buffer(48)
    if ctypes.CDLL(None).syscall({call}, 0, held, 48, 0):
        raise SystemExit(77)
    return struct.unpack("IIQiIQQQ", held.raw)[5]

usual = turn_ns()
assert ask_for_short_turns() and turn_ns() == 100_000 and os.getpriority(os.PRIO_PROCESS, 0) == {nice}
started = []
thread = threading.Thread(target=lambda: started.append(turn_ns()))
thread.start()
thread.join()
assert started == [usual] != [100_000]
"""
CALLS = {"x86_64": 315, "aarch64": 275}


@pytest.mark.skipif(sys.platform != "linux" or os.uname().machine not in CALLS, reason="Linux alone has this")
def test_a_thread_gets_short_turns_and_those_that_it_starts_the_usual_ones() -> None:
    if tuple(int(part) for part in os.uname().release.split("-")[0].split(".")[:2]) < (6, 12):
        pytest.skip(f"Linux {os.uname().release} is older than 6.12")
    nice = min(os.getpriority(os.PRIO_PROCESS, 0) + 3, 19)
    code = f"import os; os.setpriority(os.PRIO_PROCESS, 0, {nice})\n"
    code += CODE.format(call=CALLS[os.uname().machine], nice=nice)
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    if ran.returncode == 77:
        pytest.skip("the system does not tell how long turns are")
    assert ran.returncode == 0, ran.stderr


def test_elsewhere_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not ask_for_short_turns()
