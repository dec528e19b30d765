"""The process behind a worker that runs a callable or a command of a wish (`hetplan.measure.profile_router` starts it).

It speaks JSON lines, as any command of site.toml does: ``{"at": [{"batch": 8}], "inputs": [null]}`` asks for a run at
each point, and ``{"outputs": [{"took_ms": 3.1, "ms": null, "bytes_out": 40.0, ...}]}`` comes back. With "ready" as its
input a point is made ready and not run. What the model prints goes to the standard error.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hetplan.measure.measure_file import MeasuredMachine, MeasuredModel
from hetplan.measure.profile_models import CallableModel, CommandModel, MeasurementFailed, Subject

__all__ = ["Runs"]


class Runs:
    """Runs of one subject, made ready once for each point."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._ready: dict[str, Callable[[], Any]] = {}

    def answer(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to one line."""
        try:
            pairs = zip(asked["at"], asked["inputs"], strict=True)
            return {"outputs": [self._one(point, inputs) for point, inputs in pairs]}
        except MeasurementFailed as error:
            return {"error": str(error)}

    def _one(self, point: Mapping[str, float], inputs: Any) -> dict[str, Any] | None:
        key = json.dumps(point, sort_keys=True)
        run = self._ready.get(key)
        if run is None:
            run = self._ready[key] = self._subject.prepare(point)
        if inputs == "ready":
            return None
        began = time.perf_counter_ns()
        raw = run()
        took_ms = (time.perf_counter_ns() - began) / 1e6
        return {"took_ms": took_ms, **asdict(self._subject.read(raw))}


def _read_subject(content: Mapping[str, Any]) -> Subject:
    kind = CommandModel if content["variant"]["command"] is not None else CallableModel
    variant = MeasuredModel.model_validate_json(json.dumps(content["variant"]))
    hardware = MeasuredMachine.model_validate_json(json.dumps(content["hardware"]))
    return kind(content["name"], variant, hardware, Path(content["folder"]))


def main() -> None:
    """Answer lines until there are no more."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        os.dup2(2, 1)
        subject = _read_subject(json.loads(sys.argv[1]))
        try:
            subject.load()
            runs = Runs(subject)
            for line in sys.stdin:
                answers.write(json.dumps(runs.answer(json.loads(line))) + "\n")
                answers.flush()
        except MeasurementFailed as error:
            sys.exit(str(error))
        finally:
            subject.close()


if __name__ == "__main__":
    main()
