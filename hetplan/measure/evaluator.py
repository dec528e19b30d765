"""Whoever runs a pipeline on one sample: a Python callable, or a command that speaks JSON lines.

A callable takes (knobs, stratum, index) and returns a mapping (or `Sample`) of ``score``, ``seconds`` per operator on
the reference, ``bytes`` that each operator passes on and, where wanted, ``input_bytes``. A command reads one JSON
object per line, ``{"knobs": {...}, "stratum": 3, "index": 41}``, and answers each with one line of the same keys as a
callable's, or ``{"error": "..."}`` (`evaluator_command`).

`Guarded` stands before either: whatever raises, hangs or answers nonsense is tried again, then given up with a reason.
"""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from hetplan.errors import Cancelled, HetplanError
from hetplan.planner.forms.black_box import OutOfTime
from hetplan.profiles.fields import MOST

__all__ = ["EvaluationFailed", "Guarded", "Sample"]

T = TypeVar("T")

LOOK_S = 0.2
"""How often whoever waits for a sample looks whether it is still wanted."""


class EvaluationFailed(HetplanError):
    """A sample could not be had, or made no sense, however often it was tried."""


@dataclass(frozen=True)
class Sample:
    """What one sample gave."""

    score: float
    seconds: Mapping[str, float]
    bytes: Mapping[str, float] = field(default_factory=dict)
    input_bytes: float = 0.0


Evaluate = Callable[[Mapping[str, Any], int, int], Any]


@dataclass
class Guarded:
    """An evaluator that never hangs and never lies about its shape: retried, then given up with a reason.

    A command keeps its own time; `cancel` ends the waiting for either at once, and so does the time `until` which
    anything may be measured (of `time.monotonic`).
    """

    evaluate: Evaluate
    operators: Sequence[str]
    low: float = 0.0
    high: float = 1.0
    timeout_s: float = 60.0
    retries: int = 2
    cancel: threading.Event | None = None
    until: float = math.inf

    def __call__(self, knobs: Mapping[str, Any], stratum: int, index: int) -> Sample:
        """One sample; raises `EvaluationFailed` after the last try, `Cancelled`, or `OutOfTime`."""
        return self._tried(lambda: self._checked(self._in_time(lambda: self.evaluate(knobs, stratum, index))))

    def many(self, knobs: Mapping[str, Any], begin: int, count: int) -> tuple[list[float], Sample]:
        """The scores of so many samples from an evaluator that has ``many``, and what each of them costs."""
        ask: Callable[..., Any] = self.evaluate.many  # type: ignore[attr-defined]
        return self._tried(lambda: self._all_checked(self._in_time(lambda: ask(knobs, begin, count)), count))

    def _tried(self, attempt: Callable[[], T]) -> T:
        reasons = []
        for _ in range(self.retries + 1):
            try:
                return attempt()
            except (Cancelled, OutOfTime):
                raise
            except EvaluationFailed as error:
                reasons.append(str(error))
            except Exception as error:
                reasons.append(f"{type(error).__name__}: {error}")
        raise EvaluationFailed("; then ".join(dict.fromkeys(reasons)))

    def _all_checked(self, raw: Any, count: int) -> tuple[list[float], Sample]:
        scores, costs = raw
        if len(scores) != count:
            raise EvaluationFailed(f"{len(scores)} scores where {count} were asked for")
        checked = [self._checked({**costs, "score": score}) for score in (min(scores), max(scores))]
        return [_number(score, "score") for score in scores], checked[0]

    def _in_time(self, call: Callable[[], Any]) -> Any:
        """What the evaluator answers; one that hangs keeps its (daemon) thread, and the work goes on without it."""
        answers: queue.Queue[tuple[Any, BaseException | None]] = queue.Queue()

        def ask() -> None:
            try:
                answers.put((call(), None))
            except BaseException as error:
                answers.put((None, error))

        threading.Thread(target=ask, name="hetplan-sample", daemon=True).start()
        own_time = getattr(self.evaluate, "timeout_s", None)
        end = time.monotonic() + (self.timeout_s if own_time is None else 2.0 * own_time + 1.0)
        while True:
            if self.cancel is not None and self.cancel.is_set():
                raise Cancelled("cancelled while measuring")
            now = time.monotonic()
            if now >= self.until:
                raise OutOfTime("no time is left for measuring")
            left = end - now
            try:
                answer, error = answers.get(timeout=max(0.0, min(LOOK_S, left, self.until - now)))
            except queue.Empty:
                if left > 0:
                    continue
                raise EvaluationFailed(f"no answer within {self.timeout_s:g} s") from None
            if error is not None:
                raise error if isinstance(error, Exception) else EvaluationFailed(f"{type(error).__name__}: {error}")
            return answer

    def _checked(self, raw: Any) -> Sample:
        given = raw if isinstance(raw, Mapping) else _as_mapping(raw)
        right_or_wrong = given.get("score")
        score = float(right_or_wrong) if isinstance(right_or_wrong, bool) else _number(right_or_wrong, "score")
        if not self.low - 1e-9 <= score <= self.high + 1e-9:
            raise EvaluationFailed(f"a score of {score:g} is outside the metric's range {self.low:g} .. {self.high:g}")
        seconds = _per_operator(given.get("seconds"), "seconds", self.operators, needed=True)
        sizes = _per_operator(given.get("bytes", {}), "bytes", self.operators, needed=False)
        return Sample(score, seconds, sizes, _not_below_0(_number(given.get("input_bytes", 0.0), "input_bytes")))


def _as_mapping(raw: Any) -> Mapping[str, Any]:
    if isinstance(raw, Sample):
        return vars(raw)
    if isinstance(raw, tuple) and len(raw) in (2, 3, 4):
        return dict(zip(("score", "seconds", "bytes", "input_bytes"), raw, strict=False))
    raise EvaluationFailed(f"a mapping with score, seconds and bytes is wanted, not {type(raw).__name__}")


def _number(value: Any, name: str) -> float:
    if hasattr(value, "item") and not hasattr(value, "__len__"):
        value = value.item()  # a NumPy scalar
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise EvaluationFailed(f"{name} is {str(value)[:40]!r}, not a finite number")
    if abs(value) > MOST:
        raise EvaluationFailed(f"{name} is {value:g}, more than anything measured is ({MOST:g})")
    return float(value)


def _not_below_0(value: float) -> float:
    if value < 0:
        raise EvaluationFailed("input_bytes below 0")
    return value


def _per_operator(value: Any, name: str, operators: Sequence[str], *, needed: bool) -> dict[str, float]:
    if not isinstance(value, Mapping):
        raise EvaluationFailed(f"{name} is {type(value).__name__}, not a mapping of operators to numbers")
    unknown = sorted(str(key) for key in set(value) - set(operators))
    missing = sorted(set(operators) - set(value)) if needed else []
    if unknown or missing:
        parts = [
            f"has {', '.join(unknown)}, no operators" if unknown else "",
            f"lacks {', '.join(missing)}" if missing else "",
        ]
        raise EvaluationFailed(f"{name} {' and '.join(part for part in parts if part)}")
    numbers = {operator: _number(value.get(operator, 0.0), f"{name} of {operator}") for operator in operators}
    if min(numbers.values(), default=0.0) < 0:
        raise EvaluationFailed(f"{name} below 0")
    return numbers
