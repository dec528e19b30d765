"""Whoever runs a pipeline on one sample: a Python callable, or a command that speaks JSON lines.

A callable takes (knobs, stratum, index) and returns a mapping (or `Sample`) of ``score``, ``seconds`` per operator on
the reference, ``bytes`` that each operator passes on and, where wanted, ``input_bytes``. A command reads one JSON
object per line, ``{"knobs": {...}, "stratum": 3, "index": 41}``, and answers each with one line of the same keys, or
``{"error": "..."}``. Which command a name stands for is said only
in trusted configuration, never in a profile or a plan::

    [evaluators.track-eval]
    command = ["python", "measure_tracking.py"]
    timeout_s = 30
"""

from __future__ import annotations

import json
import math
import os
import queue
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as TooLate
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hetplan.errors import HetplanError, InputError

__all__ = ["Command", "EvaluationFailed", "Guarded", "Sample", "load_evaluators"]


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
    """An evaluator that never hangs and never lies about its shape: retried, then given up with a reason."""

    evaluate: Evaluate
    operators: Sequence[str]
    low: float = 0.0
    high: float = 1.0
    timeout_s: float = 60.0
    retries: int = 2

    def __call__(self, knobs: Mapping[str, Any], stratum: int, index: int) -> Sample:
        """One sample; raises `EvaluationFailed` after the last try."""
        reasons = []
        for _ in range(self.retries + 1):
            try:
                return self._checked(self._within_time(knobs, stratum, index))
            except TooLate:
                reasons.append(f"no answer within {self.timeout_s:g} s")
            except Exception as error:
                reasons.append(
                    f"{type(error).__name__}: {error}" if not isinstance(error, HetplanError) else str(error)
                )
        raise EvaluationFailed("; then ".join(dict.fromkeys(reasons)))

    def _within_time(self, knobs: Mapping[str, Any], stratum: int, index: int) -> Any:
        if isinstance(self.evaluate, Command):
            return self.evaluate(knobs, stratum, index)
        # A callable cannot be stopped from outside: a hung one keeps its thread, and the search goes on without it.
        pool = ThreadPoolExecutor(1)
        try:
            return pool.submit(self.evaluate, knobs, stratum, index).result(self.timeout_s)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def _checked(self, raw: Any) -> Sample:
        given = raw if isinstance(raw, Mapping) else _as_mapping(raw)
        score = _number(given.get("score"), "score")
        if not self.low - 1e-9 <= score <= self.high + 1e-9:
            raise EvaluationFailed(f"a score of {score:g} is outside the metric's range {self.low:g} .. {self.high:g}")
        seconds = _per_operator(given.get("seconds"), "seconds", self.operators, needed=True)
        sizes = _per_operator(given.get("bytes", {}), "bytes", self.operators, needed=False)
        return Sample(score, seconds, sizes, _number(given.get("input_bytes", 0.0), "input_bytes"))


def _as_mapping(raw: Any) -> Mapping[str, Any]:
    if isinstance(raw, Sample):
        return vars(raw)
    if isinstance(raw, tuple) and len(raw) in (2, 3, 4):
        return dict(zip(("score", "seconds", "bytes", "input_bytes"), raw, strict=False))
    raise EvaluationFailed(f"a mapping with score, seconds and bytes is wanted, not {type(raw).__name__}")


def _number(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise EvaluationFailed(f"{name} is {value!r}, not a finite number")
    return float(value)


def _per_operator(value: Any, name: str, operators: Sequence[str], *, needed: bool) -> dict[str, float]:
    if not isinstance(value, Mapping):
        raise EvaluationFailed(f"{name} is {type(value).__name__}, not a mapping of operators to numbers")
    unknown = sorted(set(value) - set(operators))
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


class Command:
    """A command that answers JSON lines, started when first asked and again after it failed or hung."""

    def __init__(self, command: Sequence[str], *, timeout_s: float = 60.0) -> None:
        self.command, self.timeout_s = list(command), timeout_s
        self._process: subprocess.Popen[str] | None = None
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._lock = threading.Lock()

    def __call__(self, knobs: Mapping[str, Any], stratum: int, index: int) -> Any:
        """Ask for one sample."""
        with self._lock:
            process = self._running()
            assert process.stdin is not None
            try:
                process.stdin.write(json.dumps({"knobs": dict(knobs), "stratum": stratum, "index": index}) + "\n")
                process.stdin.flush()
                line = self._lines.get(timeout=self.timeout_s)
            except queue.Empty:
                self.close()
                raise EvaluationFailed(f"no answer within {self.timeout_s:g} s") from None
            except OSError as error:
                self.close()
                raise EvaluationFailed(f"the command ended: {error}") from None
            if line is None:
                self.close()
                raise EvaluationFailed("the command ended without an answer")
        try:
            answer = json.loads(line)
        except ValueError:
            raise EvaluationFailed(f"the command answered no JSON: {line[:80]!r}") from None
        if isinstance(answer, dict) and "error" in answer:
            raise EvaluationFailed(str(answer["error"]))
        return answer

    def close(self) -> None:
        """End the command."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None or self._process.poll() is not None:
            self.close()
            try:
                self._process = subprocess.Popen(
                    self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
                )
            except OSError as error:
                raise EvaluationFailed(f"the command does not start: {error}") from None
            lines: queue.Queue[str | None] = queue.Queue()
            self._lines = lines
            threading.Thread(target=_listen, args=(self._process.stdout, lines), daemon=True).start()
        return self._process


def _listen(stream: Any, lines: queue.Queue[str | None]) -> None:
    try:
        for line in stream:
            lines.put(line)
    except ValueError:
        pass
    lines.put(None)


def load_evaluators(path: str | os.PathLike[str]) -> dict[str, Command]:
    """The commands of a trusted configuration file (TOML, section ``evaluators``), by name."""
    import tomllib

    file = Path(path)
    try:
        content = tomllib.loads(file.read_text())
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise InputError.one(file=str(path), why=str(error), remedy="Give a readable TOML file.") from None
    found = {}
    for name, entry in content.get("evaluators", {}).items():
        command = entry.get("command") if isinstance(entry, dict) else None
        if not isinstance(command, list) or not command or not all(isinstance(word, str) for word in command):
            raise InputError.one(
                file=str(path), path=f"evaluators.{name}.command", value=command,
                why="a command is a list of words", remedy='Write for instance command = ["python", "measure.py"].',
            )  # fmt: skip
        found[name] = Command(command, timeout_s=float(entry.get("timeout_s", 60.0)))
    return found
