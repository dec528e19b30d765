"""The model that takes the times of its table: batches in a row take no longer than the table says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from hetplan.executor.serving import models
from hetplan.executor.serving.law import ServiceLaw
from hetplan.executor.serving.models import Result, SleepModel
from hetplan.executor.serving.query_body import Query


class LateTimer:
    """A clock of its own that wakes up so much too late."""

    def __init__(self, late_s: float) -> None:
        self.late_s, self.now_s = late_s, 100.0
        self.due: list[tuple[float, Callable[..., None], tuple[Any, ...]]] = []

    def call_at(self, when_s: float, callback: Callable[..., None], *arguments: Any) -> None:
        self.due.append((when_s, callback, arguments))

    def play(self) -> None:
        while self.due:
            when_s, callback, arguments = self.due.pop(0)
            self.now_s = max(self.now_s, when_s) + self.late_s
            callback(*arguments)


@pytest.mark.parametrize(("late_ms", "all_ms"), [(0.3, 100.3), (5.0, 100.0 + 9 * 4.0 + 5.0)])
def test_ten_in_a_row_wake_up_late_once(monkeypatch: pytest.MonkeyPatch, late_ms: float, all_ms: float) -> None:
    """What is later than a millisecond is a standstill, and counts."""
    timer = LateTimer(late_ms / 1e3)
    monkeypatch.setattr(models, "monotonic", lambda: timer.now_s)
    model = SleepModel(ServiceLaw({"ms": 10.0}), timer)  # type: ignore[arg-type]
    ended: list[float] = []

    def done(_results: Sequence[Result]) -> None:
        ended.append(timer.now_s)
        if len(ended) < 10:
            model.run([Query({})], done)

    model.run([Query({})], done)
    timer.play()
    assert 1e3 * (ended[-1] - 100.0) == pytest.approx(all_ms)


def test_after_a_pause_it_begins_when_it_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    timer = LateTimer(0.0005)
    monkeypatch.setattr(models, "monotonic", lambda: timer.now_s)
    model = SleepModel(ServiceLaw({"ms": 10.0}), timer)  # type: ignore[arg-type]
    model.run([Query({})], lambda _results: None)
    timer.play()
    timer.now_s = 200.0
    model.run([Query({})], lambda _results: None)
    assert timer.due[0][0] == pytest.approx(200.01)
