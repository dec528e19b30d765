"""Keeps finished policies as lines of a file, so that a search that was killed goes on where it stopped.

The first line says for which inputs and options they hold. What is recalled was certified by the run that wrote it; a
plan made of it says so (`claimed`). Where the lines are kept is not known here: `Tools.extra["keep_lines"]` makes what
keeps them, as `hetplan.profiles.line_journal.LineJournal` does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from hetplan.errors import InputError
from hetplan.planner.answer import Answer, Status, Stop
from hetplan.planner.contract import Tools
from hetplan.planner.forms.queue_process import QueuePolicy, QueueProcess
from hetplan.planner.forms.queue_process_measures import Measures
from hetplan.problems.policy.form import Asked, Solved
from hetplan.profiles.plan_policy import read_runs, write_runs

__all__ = ["Checkpoint", "Recalled", "begun"]

FORMAT = "hetplan/policies/1.0"
WHAT = "checkpoint of policies"

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


def _asked_for(asked: Asked, seed: int) -> str:
    """One text for all that policies depend on: the files, the options, the seed, this version."""
    inputs, options = asked.inputs, asked.options.model_dump(mode="json")
    parts = [dict(inputs.digests), dict(inputs.trace_digests), options, asked.formulation, seed]
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
        """The answer as far as a plan needs it."""
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


class Kept(Protocol):
    """Lines that outlive this process."""

    lines: list[dict[str, Any]]

    def append(self, line: Mapping[str, Any], *, sync: bool = False) -> None:
        """Keep one more."""
        ...

    def refused(self, why: str, remedy: str = ..., *, line: int = ...) -> InputError:
        """What to raise where the lines are not what was hoped for."""
        ...


@dataclass
class Checkpoint:
    """Policies that are done; opened once, added to as more are."""

    kept: Kept
    _done: dict[str, dict[str, Any]] = field(default_factory=dict, repr=False)

    @classmethod
    def begin(cls, keep_lines: Callable[..., Kept], path: str, of: str) -> Checkpoint:
        """Take in what is there; raises InputError where it is another's."""
        other = "another plan (the inputs, options, seed or version changed)"
        found = cls(keep_lines(path, what=WHAT, format=FORMAT, of=of, other=other))
        for number, line in enumerate(found.kept.lines, start=2):
            if not isinstance(line.get("key"), str):
                raise found.kept.refused(f"this is no {WHAT}", line=number)
            found._done[line["key"]] = line
        return found

    def __len__(self) -> int:
        return len(self._done)

    def recall(self, key: str) -> Recalled | None:
        """What was kept under a key."""
        line = self._done.get(key)
        return None if line is None else Recalled(line)

    def keep(self, key: str, solved: Solved) -> None:
        """Write a policy down; it is kept once this returns."""
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
        self.kept.append(line, sync=True)
        self._done[key] = line


def _matrix(rows: Sequence[str]) -> NDArray[np.int64]:
    return np.array([[int(item) for item in read_runs(text)] for text in rows], dtype=np.int64)


def begun(asked: Asked, tools: Tools, seed: int) -> Checkpoint | None:
    """The checkpoint that the options name, with what it has; None where they name none."""
    path = asked.options.checkpoint
    if path is None:
        return None
    keep_lines = tools.extra.get("keep_lines")
    if keep_lines is None:
        raise InputError.one(
            path="options.checkpoint",
            value=path,
            why="nothing was handed in that keeps lines",
            remedy='Hand in Tools(extra={"keep_lines": ...}), or leave the option out.',
        )
    return Checkpoint.begin(keep_lines, path, _asked_for(asked, seed))
