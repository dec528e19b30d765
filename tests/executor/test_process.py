"""Whoever passes queries on has short turns; whoever computes keeps the usual ones."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from hetplan.executor.serving import router
from hetplan.executor.serving.http_server import HttpConnection
from hetplan.executor.serving.links import Link
from hetplan.executor.serving.process import Receiver, ask_for_short_turns

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


@pytest.mark.slow
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


class Kept(Receiver):
    def __init__(self) -> None:
        self.got: list[bytes] = []

    def data_received(self, data: bytes) -> None:
        self.got.append(data)


def test_all_connections_read_into_one_piece_of_memory_and_keep_what_came() -> None:
    """A piece of its own for each read goes back to the system each time, which costs more than the request."""
    one, other = Kept(), Kept()
    for kept, said in ((one, b"first"), (other, b"2nd"), (one, b"")):
        room = kept.get_buffer(-1)
        assert room is one.get_buffer(1)
        room[: len(said)] = said
        kept.buffer_updated(len(said))
    assert (one.got, other.got) == ([b"first", b""], [b"2nd"])
    assert all(issubclass(kind, Receiver) for kind in (HttpConnection, Link))


def test_what_comes_alone_is_decided_at_once_and_the_rest_at_the_end_of_the_turn(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    clock, decided, soon = [10.0], list[float](), list[Callable[[], None]]()
    monkeypatch.setattr(router, "monotonic", lambda: clock[0])
    ours = router.Router(tmp_path / "routes.json")
    ours._loop = SimpleNamespace(call_soon=soon.append)  # type: ignore[assignment]

    def decide() -> None:
        decided.append(clock[0])

    for passed in (0.0, 0.00002, 0.00002, 0.001):
        clock[0] += passed
        ours._soon(decide)
    assert (len(decided), len(soon)) == (2, 2)
