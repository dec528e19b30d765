"""The published models on so many workers, and the ways to serve them: RAMSIS, hetplan, and the two baselines.

All of it is simulated at the 95th percentile of the measured latencies, as the paper's own artifact does. RAMSIS and
hetplan keep a queue per worker, the baselines one for all: the disciplines are the systems' own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.datasets import ramsis
from benchmarks.datasets.sources import read
from hetplan.planner.answer import Limits
from hetplan.planner.ask import Asking
from hetplan.planner.contract import Tools
from hetplan.problems.policy import Policy
from hetplan.problems.policy_baselines import jellyfish, modelswitching
from hetplan.problems.policy_group import Group
from hetplan.problems.policy_models import Models
from hetplan.problems.policy_options import BaselineOptions, PaperOptions, PolicyOptions
from hetplan.problems.policy_solved import Bench, Solved
from hetplan.profiles.load import load_inputs
from hetplan.simulator.policy import PolicyRun, simulate_policy
from hetplan.solvers.queue_structured import QueueStructured

__all__ = ["AVERAGED", "CALLED", "WAYS", "Lab", "between_models"]

WAYS = ("paper", "ours", "jellyfish", "modelswitching")
AVERAGED = "jellyfish on average"
"""Jellyfish+ whose throughput of a model is the average over the batches within half the SLO, not the largest."""
CALLED = {
    "paper": "RAMSIS",
    "ours": "hetplan",
    "jellyfish": "Jellyfish+",
    AVERAGED: "Jellyfish+ (average throughput)",
    "modelswitching": "ModelSwitching",
}


@dataclass
class Lab:
    """One task, SLO and number of workers; keeps the policies that it made."""

    task: str
    slo_ms: float
    workers: int
    data: Path
    queries: int
    only: tuple[str, ...] = ()
    """Some of the models, by name."""
    count: int = 0
    """So many models, those added lying between the published ones."""
    _groups: dict[float, Group] = field(default_factory=dict, repr=False)
    _made: dict[Any, Solved] = field(default_factory=dict, repr=False)

    def bench(self, options: PolicyOptions) -> Bench:
        """A conversation of its own, with the simulator at hand."""
        tools = Tools(extra={"simulate_policy": simulate_policy})
        return Bench(Asking([QueueStructured()], Limits()), options, tools)

    def group(self, load: float) -> Group:
        """The group at a load."""
        if not self._groups:
            inputs = load_inputs(*ramsis.inputs(self.task, self.slo_ms, self.workers, load, data=self.data))
            policy = Policy.from_inputs(inputs, PaperOptions(simulate=False), formulation="paper", tools=Tools())
            (group,) = policy.groups_wanted()
            if self.only:
                kept = [i for i, name in enumerate(group.models.names) if name in self.only]
                group = replace(group, models=group.models.only(kept))
            self._groups[load] = (
                replace(group, models=between_models(group.models, self.count)) if self.count else group
            )
        first = next(iter(self._groups.values()))
        wish = replace(first.wish, loads_qps=(load,))
        return replace(first, wish=wish, loads_qps=(load,))

    def served(self, way: str, load: float) -> Solved:
        """A way's policy for a load, with its simulation."""
        if (way, load) not in self._made:
            self._made[way, load] = self._serve(way, load)
        return self._made[way, load]

    def _serve(self, way: str, load: float) -> Solved:
        how: dict[str, Any] = {"queries": self.queries, "monotone": "optimistic"}
        if way == "paper":
            return self.bench(PaperOptions(**how)).solve(self.group(load), [load])[0]
        if way == "ours":
            return self.bench(PolicyOptions(**how)).solve(self.group(load), [load])[0]
        averaged = partial(jellyfish, rate_qps=average_qps)
        rule = {"jellyfish": jellyfish, AVERAGED: averaged, "modelswitching": modelswitching}[way]
        # Half a minute, as the paper's: near capacity queues grow with the length of the run.
        how["queries"] = max(10_000, int(30 * load))
        return rule(self.bench(BaselineOptions(**how)), self.group(load), load)

    def on_trace(self, way: str, seeds: Sequence[int], *, queries: float | None = None) -> PolicyRun:
        """A set of policies, one per 200 qps (100 for the baselines), on the Twitter trace, scaled to so many queries.

        As published the trace asks for 1617 to 3905 queries per second.
        """
        held = read("ramsis/twitter_trace.json", self.data)
        qps, interval_s = np.array(held["qps"], dtype=float), float(held["interval_s"])
        if queries is not None:
            qps *= queries / (interval_s * qps.sum())
        own_queues = way in ("paper", "ours")
        step = 200 if own_queues else 100
        loads = [float(x) for x in range(int(qps.min() - 100) // 200 * 200, 4201, step)]
        solved = [self.served(way, load) for load in loads]
        return simulate_policy(
            solved[0].form,
            [one.policy for one in solved],
            workers=self.workers,
            piece_qps=qps,
            piece_s=interval_s,
            balancing="round_robin" if own_queues else "shared_fifo",
            loads_qps=loads,
            seeds=seeds,
        )


def average_qps(models: Models, model: int, limit_s: float) -> float:
    """Queries per second that a worker serves with a model, averaged over the batches that take no longer."""
    latency = models.latency_s[model, :-1]
    fits = latency <= limit_s
    return float((np.arange(1, latency.size + 1) / latency)[fits].mean()) if fits.any() else 0.0


def between_models(models: Models, count: int) -> Models:
    """The models with others between them, evenly in accuracy, on the line between neighbours."""
    wanted = np.union1d(
        np.linspace(models.accuracy[0], models.accuracy[-1], count - len(models.names) + 2), models.accuracy
    )
    latency = np.stack(
        [np.interp(wanted, models.accuracy, models.latency_s[:, b]) for b in range(models.latency_s.shape[1])], axis=1
    )
    names = tuple(f"m{i}" for i in range(wanted.size))
    return replace(models, names=names, tables=names, latency_s=latency, accuracy=wanted, spread=np.zeros_like(latency))
