"""Frames that are larger than the usual ones."""

from __future__ import annotations

from typing import Any

import pytest

from hetplan.executor.serving import frames
from hetplan.executor.serving.frames import SERVED, Answered, batch_frame, done_frame, read_batch, read_done


def test_a_batch_may_hold_more_than_two_bytes_count() -> None:
    items = [(number, 0.0, 9.0, b"") for number in range(70_000)]
    name, read = read_batch(batch_frame(b"w1.a", items)[5:])
    assert (name, len(read), read[-1][0]) == ("w1.a", 70_000, 69_999)
    assert read_done(done_frame(Answered(1, SERVED, 0.0, 1.0, 70_000, "w1.a", b"", b""))[5:]).batch == 70_000


class Written:
    """A transport and an event loop that keep what they get."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.soon: list[tuple[Any, ...]] = []

    def write(self, data: bytes) -> None:
        self.writes.append(data)

    def call_soon(self, call: Any, *arguments: Any) -> None:
        self.soon.append((call, *arguments))

    def turn(self) -> None:
        for call, *arguments in self.soon:
            call(*arguments)
        self.soon.clear()


def test_a_lone_frame_goes_out_at_once_and_close_ones_together(monkeypatch: pytest.MonkeyPatch) -> None:
    written, clock = Written(), [10.0]
    monkeypatch.setattr(frames, "monotonic", lambda: clock[0])
    writer = frames.FrameWriter(written)  # type: ignore[arg-type]
    writer.write(written, b"a")
    assert written.writes == [b"a"]
    for frame in (b"b", b"c"):
        writer.write(written, frame)
    assert written.writes == [b"a"]
    written.turn()
    assert written.writes == [b"a", b"bc"]
    for frame in (b"d", b"e"):
        clock[0] += 0.001
        writer.write(written, frame)
        written.turn()
    assert written.writes == [b"a", b"bc", b"d", b"e"]
    clock[0] += 0.001
    writer.write(written, b"f")
    assert written.writes[-1] == b"f", "the one before was alone"
    clock[0] += 0.001
    writer.write(None, b"g")
    assert written.soon == []
