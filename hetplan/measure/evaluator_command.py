"""Evaluators that are commands: one JSON object per line in, one per line out.

Which command a name stands for is said only in trusted configuration, never in a profile or a plan::

    [evaluators.track-eval]
    command = ["python3", "measure_tracking.py"]
    timeout_s = 30

It runs in the folder of that file. Where several samples are wanted at once there are as many processes of it, told
apart by ``HETPLAN_EVALUATOR`` (0, 1, ...) in their environment, so that each may take a device of its own. What it
writes to standard error goes into the reason when it fails.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hetplan.errors import InputError
from hetplan.measure.evaluator import EvaluationFailed

__all__ = ["Command", "load_evaluators"]

LAST_LINES = 3
SETTLE_S = 1.0
LONGEST_LINE = 1_000_000
MOST_UNASKED = 1000
"""Who writes longer lines, or so many that nobody asked for, is not listened to any more."""


class Command:
    """A command that answers JSON lines: started when first asked, ended and started anew after it failed or hung."""

    def __init__(self, command: Sequence[str], *, timeout_s: float = 60.0, folder: Path | None = None) -> None:
        self.command, self.timeout_s, self.folder = list(command), timeout_s, folder
        self._lock = threading.Lock()
        self._idle: list[_Process] = []
        self._all: dict[int, _Process] = {}
        self._closed = False

    def __call__(self, knobs: Mapping[str, Any], stratum: int, index: int) -> Any:
        """Ask for one sample; several threads may ask at once."""
        process = self._taken()
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

    def _taken(self) -> _Process:
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
            process = self._all[number] = _Process(self.command, self.folder, number)
            return process

    def _end(self, process: _Process) -> None:
        process.end()
        with self._lock:
            if self._all.get(process.number) is process:
                del self._all[process.number]
            if process in self._idle:
                self._idle.remove(process)


class _Process:
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
            raise EvaluationFailed(f"no answer within {timeout_s:g} s{self._told()}") from None
        except (OSError, ValueError) as error:
            raise EvaluationFailed(f"the command ended: {error}{self._told(wait=True)}") from None
        if line is None:
            raise EvaluationFailed(f"the command ended without an answer{self._told(wait=True)}")
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

    def _told(self, *, wait: bool = False) -> str:
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
        content = tomllib.loads(file.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
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
    if unknown := sorted(set(given) - {"command", "timeout_s"}):
        raise InputError.one(
            file=str(file), path=f"evaluators.{name}.{unknown[0]}", why="unknown key of an evaluator",
            remedy="Known are command and timeout_s.",
        )  # fmt: skip
    return Command(command, timeout_s=float(timeout_s), folder=file.resolve().parent)
