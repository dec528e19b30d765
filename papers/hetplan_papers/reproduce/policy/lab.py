"""The published models on so many workers, and the ways to serve them: RAMSIS, hetplan, and the two baselines.

All of it is simulated at the 95th percentile of the measured latencies, as the paper's own artifact does. RAMSIS and
hetplan keep a queue per worker, the baselines one for all: the disciplines are the systems' own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from hetplan.extend import (
    Asking,
    Group,
    Limits,
    PolicyModels,
    PolicyOptions,
    PolicyRun,
    PolicySearch,
    RamsisOptions,
    SolvedPolicy,
    Tools,
    choose,
    pose,
    simulate_policy,
    solver,
)
from hetplan_papers.datasets import ramsis
from hetplan_papers.datasets.sources import handed_on, read
from hetplan_papers.policy.options import RuleOptions
from hetplan_papers.policy.rules import serve_on_one_queue, switch_by_percentile, switch_by_throughput

__all__ = ["ARTIFACTS", "CALLED", "WAYS", "Lab", "between_models"]

Floats = NDArray[np.float64]

WAYS = ("ramsis", "ours", "jellyfish", "modelswitching")
_OWN_QUEUES = ("ramsis", "ours")
ARTIFACTS = {"jellyfish": "jellyfish of the artifact", "modelswitching": "modelswitching of the artifact"}
"""The baselines by the rules of the artifact's code, which the paper has in other words (`_roomy`, `_seldom_late`)."""
CALLED = {
    "ramsis": "RAMSIS",
    "ours": "hetplan",
    "jellyfish": "Jellyfish+",
    "modelswitching": "ModelSwitching",
    ARTIFACTS["jellyfish"]: "Jellyfish+ (artifact's rule)",
    ARTIFACTS["modelswitching"]: "ModelSwitching (artifact's rule)",
}
_TO_SPARE = 1.05
"""The artifact's Jellyfish+ wants so many times the load of a model."""
_MOST_LATE = 0.01
"""The artifact's ModelSwitching wants fewer late in simulation."""
_SHIPPED = {(60, 2800.0): 1}
"""(workers, load) -> the model of ModelSwitching that the artifact ships, where its rule hangs on the draws (workers
99.4 % busy: fewer than 1 % late in three of ten runs) and its printed gains tell which it was."""
_TRACE_S, _PLAYED_S = 261, 300
"""The artifact's simulation of the trace: its last step lasts one second, and it begins again until time is over."""


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
    _made: dict[Any, SolvedPolicy] = field(default_factory=dict, repr=False)

    def bench(self, options: PolicyOptions) -> PolicySearch:
        """A conversation of its own, with the simulator at hand."""
        tools = Tools(extra={"simulate_policy": simulate_policy})
        return PolicySearch(Asking([solver("queue-structured")], Limits()), options, tools)

    def group(self, load: float) -> Group:
        """The group at a load."""
        if not self._groups:
            inputs = load(*handed_on(ramsis.inputs(self.task, self.slo_ms, self.workers, load, data=self.data)))
            choice = choose(inputs, question="policy", formulation="ramsis", options={"sizing": "fluid"})
            (group,) = cast(Any, pose(inputs, choice)).asked.groups()
            if self.only:
                kept = [i for i, name in enumerate(group.models.names) if name in self.only]
                group = replace(group, models=group.models.only(kept))
            self._groups[load] = (
                replace(group, models=between_models(group.models, self.count)) if self.count else group
            )
        first = next(iter(self._groups.values()))
        wish = replace(first.wish, loads_qps=(load,))
        return replace(first, wish=wish, loads_qps=(load,))

    def served(self, way: str, load: float) -> SolvedPolicy:
        """A way's policy for a load, with its simulation."""
        if (way, load) not in self._made:
            self._made[way, load] = self._serve(way, load)
        return self._made[way, load]

    def _serve(self, way: str, load: float) -> SolvedPolicy:
        how: dict[str, Any] = {"queries": self.queries}
        if way == "ramsis":
            return self.bench(RamsisOptions(**how)).solve(self.group(load), [load])[0]
        if way == "ours":
            return self.bench(PolicyOptions(**how)).solve(self.group(load), [load])[0]
        # Half a minute, as the paper's: near capacity queues grow with the length of the run.
        how["queries"] = max(10_000, int(30 * load))
        bench, group = self.bench(RuleOptions(**how)), self.group(load)
        if way == ARTIFACTS["jellyfish"]:
            return serve_on_one_queue(bench, group, load, *_roomy(group, load, _TO_SPARE))
        if way == ARTIFACTS["modelswitching"]:
            how.update(queries=int(_PLAYED_S * load), seeds=1)
            return serve_on_one_queue(bench, group, load, *_seldom_late(self.bench(RuleOptions(**how)), group, load))
        rule = {"jellyfish": switch_by_throughput, "modelswitching": switch_by_percentile}[way]
        return rule(bench, group, load)

    def on_trace(self, way: str, seeds: Sequence[int]) -> PolicyRun:
        """A set of policies, one per 200 qps (100 for the baselines), on the Twitter trace: 1617 to 3905 qps."""
        held = read("ramsis/twitter_trace.json", self.data)
        qps, interval_s = np.array(held["qps"], dtype=float), float(held["interval_s"])
        step = 200 if way in _OWN_QUEUES else 100
        loads = [float(x) for x in range(int(qps.min() - 100) // 200 * 200, 4201, step)]
        return self._played(way, loads, qps, interval_s, seeds)

    def as_the_artifact(self, way: str, seeds: Sequence[int]) -> PolicyRun:
        """The same as the artifact plays it: policies per 200 qps up to 4000, five minutes."""
        held = read("ramsis/twitter_trace.json", self.data)
        every_s = np.repeat(np.array(held["qps"], dtype=float), int(held["interval_s"]))[:_TRACE_S]
        loads = [float(x) for x in range(1400, 4001, 200)]
        return self._played(way, loads, np.resize(every_s, _PLAYED_S), 1.0, seeds)

    def _played(self, way: str, loads: list[float], qps: Floats, piece_s: float, seeds: Sequence[int]) -> PolicyRun:
        solved = [self.served(way, load) for load in loads]
        return simulate_policy(
            solved[0].form,
            [one.policy for one in solved],
            workers=self.workers,
            piece_qps=qps,
            piece_s=piece_s,
            balancing="round_robin" if way in _OWN_QUEUES else "shared_fifo",
            loads_qps=loads,
            seeds=seeds,
        )


def _roomy(group: Group, load: float, spare: float) -> tuple[int, int]:
    """The artifact's Jellyfish+: the most accurate model that serves so many times the load in some batch within half
    the SLO, and the largest such batch; where no model does, the fastest and a batch of 32.
    """
    latency, accuracy = group.models.latency_s[:, :-1], group.models.accuracy
    batches = np.arange(1, latency.shape[1] + 1)
    serves = (latency <= 0.5 * group.wish.slo_s) & (group.workers * batches / latency >= spare * load)
    largest = np.where(serves, batches, 0).max(axis=1)
    if not largest.any():
        return 0, int(batches[-1])
    chosen = int(np.where(largest > 0, accuracy, -1.0).argmax())
    return chosen, int(largest[chosen])


def _seldom_late(bench: PolicySearch, group: Group, load: float) -> tuple[int, int]:
    """The artifact's ModelSwitching: the most accurate model with fewer than 1 % late in five minutes, all with the cap
    that its Jellyfish+ has for nothing to spare.
    """
    _, cap = _roomy(group, load, 1.0)
    if (group.workers, load) in _SHIPPED:
        return _SHIPPED[group.workers, load], cap
    for model in np.argsort(-group.models.accuracy, kind="stable").tolist():
        if serve_on_one_queue(bench, group, load, model, cap).violation < _MOST_LATE:
            return model, cap
    return 0, cap


def between_models(models: PolicyModels, count: int) -> PolicyModels:
    """The models with others between them, evenly in accuracy, on the line between neighbours."""
    wanted = np.union1d(
        np.linspace(models.accuracy[0], models.accuracy[-1], count - len(models.names) + 2), models.accuracy
    )
    latency = np.stack(
        [np.interp(wanted, models.accuracy, models.latency_s[:, b]) for b in range(models.latency_s.shape[1])], axis=1
    )
    names = tuple(f"m{i}" for i in range(wanted.size))
    return replace(models, names=names, ats=({},) * len(names), latency_s=latency, accuracy=wanted, sets=())
