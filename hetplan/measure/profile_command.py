"""A command that speaks JSON lines: the protocol of `hetplan.measure.evaluator`, asked once per run.

A request is ``{"knobs": {..., axis: value}, "stratum": 0, "index": 7}``. The answer may say ``seconds`` (a number, or
one per operator: their sum is the time of the run; without it the wall clock counts), ``bytes``, ``fanout``, ``score``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hetplan.measure.evaluator import EvaluationFailed
from hetplan.measure.evaluator_command import Command
from hetplan.measure.profile_subject import Answer, MeasurementFailed, Subject
from hetplan.measure.profile_wish import MeasuredHardware, MeasuredVariant

__all__ = ["CommandModel"]


class CommandModel(Subject):
    """One process that answers; it starts with the first question."""

    def __init__(self, name: str, variant: MeasuredVariant, hardware: MeasuredHardware, folder: Path) -> None:
        super().__init__(name, variant, hardware, folder)
        # A word that names a file beside the configuration means that file.
        words = [str(folder / word) if (folder / word).is_file() else word for word in variant.command or ()]
        self._command = Command(words, timeout_s=variant.timeout_s)
        self._index = 0

    def prepare(self, point: Mapping[str, float]) -> Callable[[], Any]:
        """A question about a point; each call asks for the next sample."""
        at = {axis: int(value) if value == int(value) else value for axis, value in point.items()}
        knobs = {**self.variant.knobs, **at}

        def once() -> Any:
            self._index += 1
            try:
                return self._command(knobs, 0, self._index - 1)
            except EvaluationFailed as error:
                raise MeasurementFailed(str(error)) from error

        return once

    def read(self, raw: Any) -> Answer:
        """What the answer says."""
        if not isinstance(raw, Mapping):
            raise MeasurementFailed(f"an answer is an object, not {type(raw).__name__}")
        seconds, size = raw.get("seconds"), raw.get("bytes")
        operators = None
        if isinstance(seconds, Mapping):
            operators = {str(name): 1000.0 * _number(value, f"seconds of {name}") for name, value in seconds.items()}
        # Bytes passed on by a chain of operators are those of the last.
        last = list(size.values())[-1] if isinstance(size, Mapping) and size else size
        return Answer(
            ms=sum(operators.values()) if operators is not None else _scaled(seconds, 1000.0, "seconds"),
            bytes_out=_scaled(last, 1.0, "bytes") if not isinstance(last, Mapping) else None,
            fanout=_scaled(raw.get("fanout"), 1.0, "fanout"),
            score=_scaled(raw.get("score"), 1.0, "score"),
            operators_ms=operators,
        )

    def close(self) -> None:
        """End the process."""
        self._command.close()


def _scaled(value: Any, factor: float, name: str) -> float | None:
    return None if value is None else factor * _number(value, name)


def _number(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        raise MeasurementFailed(f"{name} is {value!r}, not a number of 0 or more")
    return float(value)
