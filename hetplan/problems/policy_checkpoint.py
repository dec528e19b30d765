"""Policies that are done, on disk: a long search that was killed goes on where it stopped.

JSON lines, flushed to disk one by one; the first says for which inputs and options they hold, and a last line that was
cut off is dropped. What is recalled was certified by the run that wrote it; a plan made of it says so (`claimed`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from hetplan.errors import InputError
from hetplan.planner.answer import Answer, Status, Stop
from hetplan.planner.forms.queue_process import QueuePolicy
from hetplan.planner.forms.queue_process_measures import Measures
from hetplan.planner.plan_policy import read_runs, write_runs

if TYPE_CHECKING:
    from hetplan.planner.forms.queue_process import QueueProcess
    from hetplan.problems.policy_options import PolicyOptions
    from hetplan.problems.policy_solved import Solved
    from hetplan.profiles.inputs import Inputs

__all__ = ["Checkpoint", "Recalled", "asked_for"]

FORMAT = "hetplan/policies/1.0"

_SIMULATED = (
    "queries",
    "goodput",
    "accuracy",
    "violation",
    "utilisation",
    "goodput_interval",
    "accuracy_interval",
    "violation_interval",
    "seeds",
)


def asked_for(inputs: Inputs, options: PolicyOptions, formulation: str, seed: int) -> str:
    """One text for all that policies depend on: the files, the options, the seed, this version."""
    from importlib.metadata import version

    parts = [dict(inputs.digests), dict(inputs.trace_digests), options.model_dump(mode="json"), formulation, seed]
    return sha256(json.dumps([version("hetplan"), *parts], sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class Recalled:
    """A line read back: the policy, and what was found of it."""

    line: Mapping[str, Any]

    @property
    def batching(self) -> Literal["max", "variable"]:
        """Which batches were chosen from."""
        return "variable" if self.line["batching"] == "variable" else "max"

    def policy(self, form: QueueProcess) -> QueuePolicy:
        """The policy; ValueError where it does not belong to the form."""
        policy = QueuePolicy(_matrix(self.line["model"]), _matrix(self.line["batch"]))
        if policy.model.shape != (form.queue, form.slacks) or (form.chosen(policy) < 0).any():
            raise ValueError("the policy is none of this process")
        return policy

    def answer(self, policy: QueuePolicy) -> Answer[QueuePolicy]:
        """The answer as far as a plan tells of it."""
        found = self.line["answer"]
        return Answer(
            status=Status(found["status"]),
            stop=Stop(found["stop"]),
            point=policy,
            value=found["value"],
            bound=found["bound"],
            work={"sweeps": found["sweeps"]},
            engine=found["engine"],
        )

    @property
    def measures(self) -> Measures:
        """What was expected of it."""
        found: dict[str, Any] = {
            name: tuple(x) if isinstance(x, list) else x for name, x in self.line["measures"].items()
        }
        return Measures(**found)

    @property
    def simulated(self) -> Any:
        """What it gave in simulation; None where it was not simulated."""
        found = self.line["simulated"]
        return None if found is None else SimpleNamespace(**found)

    @property
    def beaten(self) -> str:
        """What else had been tried."""
        return str(self.line["beaten"])


@dataclass
class Checkpoint:
    """A file of policies that are done; opened once, added to as more are."""

    path: Path
    of: str
    _done: dict[str, dict[str, Any]] = field(default_factory=dict, repr=False)

    @classmethod
    def open(cls, path: str | Path, of: str) -> Checkpoint:
        """Read what is there, and cut off a line that was not finished; raises InputError where it is another's."""
        found = cls(Path(path), of)
        try:
            content = found.path.read_bytes() if found.path.exists() else b""
            whole = content[: content.rfind(b"\n") + 1]
            found._take_in(whole)
            if not whole:
                found.path.write_bytes(_line({"format": FORMAT, "of": of}))
            elif len(whole) < len(content):
                os.truncate(found.path, len(whole))
        except OSError as error:
            raise found._refused(f"the checkpoint cannot be used: {error.strerror}", "Name a file of yours.") from None
        return found

    def __len__(self) -> int:
        return len(self._done)

    def recall(self, key: str) -> Recalled | None:
        """What was kept under a key."""
        line = self._done.get(key)
        return None if line is None else Recalled(line)

    def keep(self, key: str, solved: Solved) -> None:
        """Write a policy down, whole and on disk before this returns."""
        answer, run = solved.answer, solved.simulated
        if key in self._done or answer is None or answer.status is not Status.OPTIMAL or solved.measures is None:
            return
        line = {
            "key": key,
            "batching": str(solved.form.batching),
            "model": [write_runs(row) for row in solved.policy.model.tolist()],
            "batch": [write_runs(row) for row in solved.policy.batch.tolist()],
            "answer": {
                "status": str(answer.status),
                "stop": str(answer.stop),
                "value": answer.value,
                "bound": answer.bound,
                "sweeps": answer.work.get("sweeps", 0),
                "engine": answer.engine,
            },
            "measures": asdict(solved.measures),
            "simulated": None if run is None else {name: getattr(run, name) for name in _SIMULATED},
            "beaten": solved.beaten,
        }
        with open(self.path, "ab") as file:
            file.write(_line(line))
            file.flush()
            os.fsync(file.fileno())
        self._done[key] = line

    def _take_in(self, content: bytes) -> None:
        for number, raw in enumerate(content.splitlines()):
            try:
                line = json.loads(raw)
                if number:
                    self._done[line["key"]] = line
                    continue
                if line["format"] != FORMAT:
                    raise ValueError("another format")
            except (ValueError, KeyError, TypeError):
                remedy = "Name another file, or delete this one."
                raise self._refused("this is no checkpoint of policies", remedy, number + 1) from None
            if line.get("of") != self.of:
                remedy = "Name another file: the inputs, options, seed or version changed."
                raise self._refused("this checkpoint was written for another plan", remedy)

    def _refused(self, why: str, remedy: str, line: int = 0) -> InputError:
        return InputError.one(file=str(self.path), path=f"line {line}" if line else "", why=why, remedy=remedy)


def _matrix(rows: Sequence[str]) -> NDArray[np.int64]:
    return np.array([[int(item) for item in read_runs(text)] for text in rows], dtype=np.int64)


def _line(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, separators=(",", ":"), allow_nan=False, default=float).encode() + b"\n"
