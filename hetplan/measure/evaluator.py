"""The evaluator runs a pipeline on one sample: a Python callable, or a command that speaks JSON lines.

A callable takes (knobs, stratum, index) and returns a mapping (or `Sample`) of ``score``, ``seconds`` per operator on
the reference, ``bytes`` that each operator passes on and, where wanted, ``input_bytes``. A command reads one JSON
object per line, ``{"knobs": {...}, "stratum": 3, "index": 41}``, and answers each with one line of the same keys as a
callable's, or ``{"error": "..."}``. `Guarded` is around either: whatever raises, hangs or answers nonsense is tried
again, then given up with a reason.

Which command a name means is said only in trusted configuration, never in a profile or a plan::

    [evaluators.track-eval]
    command = ["python3", "measure_tracking.py"]
    timeout_s = 30

It runs in the folder of that file, on this machine or on a cluster (`hetplan.measure.evaluator_cluster`; `gpus` says
how many each process takes there). Where several samples are wanted at once there are as many processes of it, each
with a number in ``HETPLAN_EVALUATOR`` (0, 1, ...) of its environment, so that each may take its own device. What it
writes to standard error goes into the reason when it fails.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import queue
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from hetplan.errors import HetplanError, InputError, Interrupted
from hetplan.planner.forms.black_box import OutOfTime
from hetplan.profiles.fields import MOST
from hetplan.profiles.plain_data import is_number
from hetplan.profiles.read_text import read_text

__all__ = ["Command", "EvaluationFailed", "Guarded", "Process", "Sample", "load_evaluators"]

T = TypeVar("T")

LOOK_S = 0.2
"""How often a thread that waits for a sample looks whether it is still wanted."""


class EvaluationFailed(HetplanError):
    """A sample could not be had, or made no sense, however often it was tried."""


@dataclass(frozen=True)
class Sample:
    """What one sample gave; `again` answers before it made no sense or did not come, the first for this reason."""

    score: float
    seconds: Mapping[str, float]
    bytes: Mapping[str, float] = field(default_factory=dict)
    input_bytes: float = 0.0
    again: int = 0
    again_why: str = ""
    rounds: Mapping[str, int] = field(default_factory=dict)


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
    way: Callable[[Collection[str]], object] | None = None
    """Where not every query runs all operators: None for operators that no query runs together, and no others."""

    def __call__(self, knobs: Mapping[str, Any], stratum: int, index: int) -> Sample:
        """One sample; raises `EvaluationFailed` after the last try, `Interrupted`, or `OutOfTime`."""
        sample, wrong = self._try_to(
            lambda: self._read_sample(self._in_time(lambda: self.evaluate(knobs, stratum, index)))
        )
        return replace(sample, again=len(wrong), again_why=wrong[0]) if wrong else sample

    def many(self, knobs: Mapping[str, Any], begin: int, count: int) -> tuple[list[float], Sample]:
        """The scores of so many samples from an evaluator that has ``many``, and what each of them costs."""
        ask: Callable[..., Any] = self.evaluate.many  # type: ignore[attr-defined]
        given, wrong = self._try_to(lambda: self._all_checked(self._in_time(lambda: ask(knobs, begin, count)), count))
        return given if not wrong else (given[0], replace(given[1], again=len(wrong), again_why=wrong[0]))

    def _try_to(self, attempt: Callable[[], T]) -> tuple[T, list[str]]:
        """What an attempt gave, and why those before it gave nothing."""
        reasons: list[str] = []
        for _ in range(self.retries + 1):
            try:
                return attempt(), reasons
            except (Interrupted, OutOfTime):
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
        checked = [self._read_sample({**costs, "score": score}) for score in (min(scores), max(scores))]
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
                raise Interrupted("cancelled while measuring")
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

    def _read_sample(self, raw: Any) -> Sample:
        given = raw if isinstance(raw, Mapping) else _as_mapping(raw)
        right_or_wrong = given.get("score")
        score = float(right_or_wrong) if isinstance(right_or_wrong, bool) else _number(right_or_wrong, "score")
        if not self.low - 1e-9 <= score <= self.high + 1e-9:
            raise EvaluationFailed(f"a score of {score:g} is outside the metric's range {self.low:g} .. {self.high:g}")
        seconds = _per_operator(given.get("seconds"), "seconds", self.operators, needed=self.way is None)
        if self.way is not None:
            seconds = {name: each for name, each in seconds.items() if name in given["seconds"]}
            if self.way(seconds.keys()) is None:
                raise EvaluationFailed(f"no query runs {', '.join(seconds) or 'nothing'}, and no other operators")
        sizes = _per_operator(given.get("bytes", {}), "bytes", self.operators, needed=False)
        arrived = _not_below_0(_number(given.get("input_bytes", 0.0), "input_bytes"))
        return Sample(score, seconds, sizes, arrived, rounds=_rounds(given.get("rounds") or {}, seconds))


def _as_mapping(raw: Any) -> Mapping[str, Any]:
    if isinstance(raw, Sample):
        return vars(raw)
    if isinstance(raw, tuple) and len(raw) in (2, 3, 4):
        return dict(zip(("score", "seconds", "bytes", "input_bytes"), raw, strict=False))
    raise EvaluationFailed(f"a mapping with score, seconds and bytes is wanted, not {type(raw).__name__}")


def _number(value: Any, name: str) -> float:
    if hasattr(value, "item") and not hasattr(value, "__len__"):
        value = value.item()  # a NumPy scalar
    if not is_number(value):
        raise EvaluationFailed(f"{name} is {str(value)[:40]!r}, not a finite number")
    if abs(value) > MOST:
        raise EvaluationFailed(f"{name} is {value:g}, more than anything measured is ({MOST:g})")
    return float(value)


def _not_below_0(value: float) -> float:
    if value < 0:
        raise EvaluationFailed("input_bytes below 0")
    return value


MOST_ROUNDS = 1000
"""An answer that says more rounds of an operator is taken for a mistake."""


def _rounds(value: Any, ran: Mapping[str, float]) -> dict[str, int]:
    """How often operators ran: whole numbers of those that ran."""
    if not isinstance(value, Mapping) or not set(value) <= set(ran):
        raise EvaluationFailed("rounds is no mapping of operators that ran to whole numbers")
    found = {name: _number(times, f"rounds of {name}") for name, times in value.items()}
    if any(times != int(times) or not 1 <= times <= MOST_ROUNDS for times in found.values()):
        raise EvaluationFailed(f"rounds are whole numbers from 1 to {MOST_ROUNDS}")
    return {name: int(times) for name, times in found.items()}


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


LAST_LINES = 3
"""Of what a process wrote to standard error, so many lines are shown."""
SETTLE_S = 1.0
"""How long is waited for what a process wrote before it ended."""
LONGEST_LINE = 1_000_000
MOST_UNASKED = 1000
"""Who writes longer lines, or so many that nobody asked for, is not listened to any more."""


class Command:
    """A command that answers JSON lines: started when first asked, ended and started anew after it failed or hung."""

    def __init__(
        self, command: Sequence[str], *, timeout_s: float = 60.0, folder: Path | None = None, gpus: float = 0.0
    ) -> None:
        self.command, self.timeout_s, self.folder, self.gpus = list(command), timeout_s, folder, gpus
        self._lock = threading.Lock()
        self._idle: list[Process] = []
        self._all: dict[int, Process] = {}
        self._closed = False

    def __call__(self, knobs: Mapping[str, Any], stratum: int, index: int) -> Any:
        """Ask for one sample; several threads may ask at once."""
        process = self._take_process()
        try:
            answer = process.ask({"knobs": dict(knobs), "stratum": stratum, "index": index}, self.timeout_s)
        except EvaluationFailed:
            # Whatever it still says belongs to a question of the past: the next one goes to a fresh process.
            self._end(process)
            raise
        with self._lock:
            self._idle.append(process)
        if isinstance(answer, dict) and "error" in answer:
            raise EvaluationFailed(str(answer["error"]))
        return answer

    def close(self) -> None:
        """End all processes of it; it answers no more."""
        with self._lock:
            self._closed = True
            running = list(self._all.values())
        for process in running:
            self._end(process)

    def _take_process(self) -> Process:
        with self._lock:
            if self._closed:
                raise EvaluationFailed("the command was ended")
            while self._idle:
                process = self._idle.pop()
                if process.quiet:
                    return process
                self._all.pop(process.number, None)
                process.end()
            number = next(n for n in range(len(self._all) + 1) if n not in self._all)
            process = self._all[number] = self._begun(number)
            return process

    def _begun(self, number: int) -> Process:
        return Process(self.command, self.folder, number)

    def _end(self, process: Process) -> None:
        process.end()
        with self._lock:
            if self._all.get(process.number) is process:
                del self._all[process.number]
            if process in self._idle:
                self._idle.remove(process)


class Process:
    """One running copy of a command."""

    def __init__(self, command: Sequence[str], folder: Path | None, number: int) -> None:
        self.number = number
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._errors: deque[str] = deque(maxlen=LAST_LINES)
        self._process: subprocess.Popen[str] | None = None
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder,
                env={**os.environ, "HETPLAN_EVALUATOR": str(number)}, start_new_session=True, errors="replace",
            )  # fmt: skip
        except OSError as error:
            self._broken = f"the command does not start: {error}"
            return
        self._listeners = [
            threading.Thread(target=self._listen, daemon=True),
            threading.Thread(target=self._overhear, daemon=True),
        ]
        for listener in self._listeners:
            listener.start()

    @property
    def quiet(self) -> bool:
        """Whether it runs and has said nothing that nobody asked for."""
        return self._process is not None and self._process.poll() is None and self._lines.empty()

    def ask(self, question: Mapping[str, Any], timeout_s: float) -> Any:
        """One question, one answer."""
        process = self._process
        if process is None:
            raise EvaluationFailed(self._broken)
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(question) + "\n")
            process.stdin.flush()
            line = self._lines.get(timeout=timeout_s)
        except queue.Empty:
            raise EvaluationFailed(f"no answer within {timeout_s:g} s{self._last_words()}") from None
        except (OSError, ValueError):  # it reads no more
            line = None
        if line is None:
            raise EvaluationFailed(f"the command ended without an answer{self._last_words(wait=True)}")
        try:
            return json.loads(line)
        except ValueError:
            said = line.strip()[:80]
            raise EvaluationFailed(
                f"the command answered no JSON: {said!r} (remarks belong on standard error)"
            ) from None

    def end(self) -> None:
        """End it, with whatever it started."""
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            with contextlib.suppress(OSError):
                if hasattr(os, "killpg"):
                    os.killpg(process.pid, signal.SIGKILL)
                else:
                    process.kill()
            process.wait()
        for listener in self._listeners:
            listener.join(SETTLE_S)
        with contextlib.suppress(OSError):
            if process.stdin is not None:
                process.stdin.close()

    def _last_words(self, *, wait: bool = False) -> str:
        """The last lines that it wrote to standard error."""
        if wait:
            self._listeners[1].join(SETTLE_S)
        return f" (it wrote: {' | '.join(self._errors)})" if self._errors else ""

    def _listen(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        with contextlib.suppress(ValueError, OSError), self._process.stdout as stream:
            while (line := stream.readline(LONGEST_LINE)) and self._lines.qsize() < MOST_UNASKED:
                self._lines.put(line)
                if not line.endswith("\n"):
                    break
        self._lines.put(None)

    def _overhear(self) -> None:
        assert self._process is not None
        assert self._process.stderr is not None
        with contextlib.suppress(ValueError, OSError), self._process.stderr as stream:
            while line := stream.readline(LONGEST_LINE):
                if line.strip():
                    self._errors.append(line.strip()[:200])


def load_evaluators(path: str | os.PathLike[str]) -> dict[str, Command]:
    """The commands of a trusted configuration file (TOML, section ``evaluators``), by name."""
    import tomllib

    file = Path(path)
    try:
        content = tomllib.loads(read_text(file, wanted="a TOML file"))
    except tomllib.TOMLDecodeError as error:
        raise InputError.one(file=str(path), why=str(error), remedy="Give a readable TOML file.") from None
    section = content.get("evaluators", {})
    if not isinstance(section, dict):
        raise InputError.one(
            file=str(path), path="evaluators", value=section, why="a table per evaluator",
            remedy="Write [evaluators.NAME] and its command.",
        )  # fmt: skip
    return {name: _command(file, name, entry) for name, entry in section.items()}


def _command(file: Path, name: str, entry: Any) -> Command:
    given = entry if isinstance(entry, dict) else {}
    command, timeout_s = given.get("command"), given.get("timeout_s", 60.0)
    if not isinstance(command, list) or not command or not all(isinstance(word, str) for word in command):
        raise InputError.one(
            file=str(file), path=f"evaluators.{name}.command", value=command,
            why="a command is a list of words", remedy='Write for instance command = ["python", "measure.py"].',
        )  # fmt: skip
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float) or not 0 < timeout_s < float("inf"):
        raise InputError.one(
            file=str(file), path=f"evaluators.{name}.timeout_s", value=timeout_s,
            why="seconds that a sample may take, above 0", remedy="Write for instance timeout_s = 60.",
        )  # fmt: skip
    gpus = given.get("gpus", 0.0)
    if isinstance(gpus, bool) or not isinstance(gpus, int | float) or not 0 <= gpus < float("inf"):
        raise InputError.one(
            file=str(file), path=f"evaluators.{name}.gpus", value=gpus,
            why="how many GPUs of a cluster (--on ray) one process of it takes", remedy="Write for instance gpus = 1.",
        )  # fmt: skip
    if unknown := sorted(set(given) - {"command", "timeout_s", "gpus"}):
        raise InputError.one(
            file=str(file), path=f"evaluators.{name}.{unknown[0]}", why="unknown key of an evaluator",
            remedy="Known are command, timeout_s and gpus.",
        )  # fmt: skip
    return Command(command, timeout_s=float(timeout_s), folder=file.resolve().parent, gpus=float(gpus))
