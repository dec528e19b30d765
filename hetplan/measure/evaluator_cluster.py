"""Evaluators on a Ray cluster: each process of a command is kept by an actor, on whatever node has room for it.

A process there is asked, and fails, as one of this machine is (`hetplan.measure.evaluator`). What is asked and what is
made of the answers stays here, so the same command gives the same plan, journal and bytes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetplan.errors import InputError
from hetplan.measure.evaluator import Command, EvaluationFailed, Process

if TYPE_CHECKING:
    from hetplan.planner.spread import RayCluster

__all__ = ["ClusterCommand"]

START_S = 30.0
"""How long a cluster may take to find room for the processes."""
END_S = 5.0
SLACK_S = 10.0


class ClusterCommand(Command):
    """A command whose processes run on a cluster; so many are started at once, before anything is asked."""

    def __init__(self, of: Command, cluster: RayCluster, at_once: int) -> None:
        super().__init__(of.command, timeout_s=of.timeout_s, folder=of.folder, gpus=of.gpus)
        self._cluster = cluster
        begun = [self._begun(number) for number in range(at_once)]
        ray = cluster.ray
        ready, waiting = ray.wait([one.ready for one in begun], num_returns=at_once, timeout=START_S)
        if waiting:
            for one in begun:
                one.end()
            raise InputError.one(
                file="--jobs", value=at_once,
                why=f"the cluster has room for {len(ready)} processes of the evaluator"
                + (f", which take a CPU and {of.gpus:g} GPUs each" if of.gpus else ", which take a CPU each"),
                remedy=f"Write --jobs {max(1, len(ready))}, or make room there.",
            )  # fmt: skip
        self._idle = list(reversed(begun))
        self._all = dict(enumerate(begun))

    def _begun(self, number: int) -> ClusterProcess:
        return ClusterProcess(self._cluster.ray, self, number)


class ClusterProcess(Process):
    """One running copy of a command on a node; it is asked as one of this machine."""

    def __init__(self, ray: Any, of: Command, number: int) -> None:
        self.number, self._ray, self._ended = number, ray, False
        # Two calls at a time: it can be ended while it is asked.
        actor = ray.remote(num_cpus=1, num_gpus=of.gpus, max_restarts=0, max_concurrency=2)(_Keeper)
        self._actor = actor.remote(of.command, of.folder, number)
        self.ready = self._actor.ready.remote()

    @property
    def quiet(self) -> bool:
        """Whether it may be asked: the node looks itself at what was said that nobody asked for."""
        return not self._ended

    def ask(self, question: Mapping[str, Any], timeout_s: float) -> Any:
        """One question, one answer."""
        try:
            found = self._ray.get(self._actor.ask.remote(dict(question), timeout_s), timeout=timeout_s + SLACK_S)
        except self._ray.exceptions.GetTimeoutError:
            raise EvaluationFailed(f"the cluster gave no answer within {timeout_s + SLACK_S:g} s") from None
        except self._ray.exceptions.RayError as error:
            raise EvaluationFailed(f"the node that measured is gone: {str(error).splitlines()[0]}") from None
        if "failed" in found:
            raise EvaluationFailed(found["failed"])
        return found["answer"]

    def end(self) -> None:
        """End it, with whatever it started."""
        if self._ended:
            return
        self._ended = True
        with contextlib.suppress(self._ray.exceptions.RayError):
            self._ray.get(self._actor.end.remote(), timeout=END_S)
        self._ray.kill(self._actor)


class _Keeper:
    """Keeps a process of a command on its node."""

    def __init__(self, command: Sequence[str], folder: Path | None, number: int) -> None:
        self._given = (command, folder, number)
        self._process = Process(*self._given)

    def ready(self) -> bool:
        """It is there."""
        return True

    def ask(self, question: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        """The answer, or why there is none; a process that speaks unasked is started again."""
        if not self._process.quiet:
            self._process.end()
            self._process = Process(*self._given)
        try:
            return {"answer": self._process.ask(question, timeout_s)}
        except EvaluationFailed as error:
            return {"failed": str(error)}

    def end(self) -> None:
        """End the process."""
        self._process.end()
