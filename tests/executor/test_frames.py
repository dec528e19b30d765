"""Frames that are larger than the usual ones."""

from __future__ import annotations

from hetplan.executor.serving.frames import SERVED, Answered, batch_frame, done_frame, read_batch, read_done


def test_a_batch_may_hold_more_than_two_bytes_count() -> None:
    items = [(number, 0.0, 9.0, b"") for number in range(70_000)]
    name, read = read_batch(batch_frame(b"w1.a", items)[5:])
    assert (name, len(read), read[-1][0]) == ("w1.a", 70_000, 69_999)
    assert read_done(done_frame(Answered(1, SERVED, 0.0, 1.0, 70_000, "w1.a", b"", b""))[5:]).batch == 70_000
