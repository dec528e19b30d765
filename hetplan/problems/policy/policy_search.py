"""Solves the decision process of a group of workers at each load for a policy, and simulates that policy.

The simulator is handed in as ``Tools.extra["simulate_policy"]``; nothing here imports it. It is called as ::

    simulate_policy(form, [policy], workers=, load_qps=, shape=, times_s=, balancing=, queries=, seeds=)

with ``bursts=``, the stated arrivals, where their rate changes under way,

and returns an object with `goodput`, `accuracy`, `violation`, their intervals, `utilisation` and `rates_by_queue`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from hetplan.errors import Interrupted
from hetplan.planner.answer import Answer, Status
from hetplan.planner.contract import Ask, Event, Tools
from hetplan.planner.forms.queue_process import QueuePolicy, QueueProcess
from hetplan.planner.forms.queue_process_measures import Measures, measure
from hetplan.problems.draft_simulation import LOOK_SEEDS
from hetplan.problems.policy.group import Group, SolvedPolicy
from hetplan.problems.policy.options import PolicyOptions

__all__ = ["WHOLE_BATCHES", "PolicySearch"]

Floats = NDArray[np.float64]
Batches = Literal["max", "variable"]

_FITTING_ROUNDS = 3
FAMILY_QUERIES, FAMILY_SEEDS = 60_000, 2
"""Of each member of the family, for each table that may be chosen."""
BURSTS, BURST_S = (0.7, 0.7, 1.6), 1.0
"""Rates of the family's bursts / the load, in turn, each for so many seconds; where queries are rarer than that, for as
long as one takes to come: shorter bursts would leave no trace."""
NOISE = 0.1
"""The standard deviation of the logarithm of the family's noisy service times."""
SHIFTS = (0.1, 0.3, 1.0, 10.0, 100.0, 1e3, 1e5)
"""What accuracies are raised by, in turn, until answers in time weigh enough for the percentile to be kept."""
_AT_ONCE = 4
"""Processes solved together where all that wait is taken: they hold a few megabytes each until they are certified."""


WHOLE_BATCHES: Mapping[str, Any] = {"sizing": "fluid", "batching": "max", "accuracy_step": 1.0}
"""Options with which a policy is found some fifty times as soon, a percent of accuracy off or so: none is simulated."""


@dataclass(frozen=True)
class PolicySearch:
    """Makes policies for groups of workers: solves each decision process, and simulates what comes of it."""

    ask: Ask
    options: PolicyOptions
    tools: Tools

    @property
    def can_simulate(self) -> bool:
        """Whether a simulator is at hand and wanted."""
        wanted = self.options.sizing == "simulation"
        return wanted and "simulate_policy" in self.tools.extra

    @property
    def is_robust(self) -> bool:
        """Whether tables are chosen over a family of arrivals and service noise."""
        return self.can_simulate and self.options.is_robust

    @property
    def _kinds(self) -> tuple[Batches, ...]:
        """The kinds of batches to try."""
        return ("max", "variable") if self.options.batching == "auto" else (self.options.batching,)

    @property
    def without_simulation(self) -> PolicySearch:
        """The same search with whole-queue batches only, and without simulation: fast, for counting workers."""
        return replace(self, options=self.options.model_copy(update=WHOLE_BATCHES))

    def solve(
        self, group: Group, loads_qps: Sequence[float], *, slo_s: float | None = None, about: str = "policy"
    ) -> list[SolvedPolicy]:
        """The best policy at each load; `batching` auto tries both kinds.

        Fewer come back where a cancellation ends the work; where it leaves nothing, `Interrupted` is raised.
        """
        found: dict[float, SolvedPolicy] = {}
        left = list(dict.fromkeys(loads_qps))
        # Where any number may be taken a process holds some hundred megabytes: no more of them than threads.
        few = max(_AT_ONCE if self.options.batching == "max" else 1, self.ask.limits.threads)
        try:
            for begin in range(0, len(left), few):
                for solved in self._solve_together(group, left[begin : begin + few], slo_s, about):
                    found[solved.load_qps] = solved
                if len(loads_qps) > 1:
                    detail = f"{about}: {len(found)} of {len(loads_qps)} loads"
                    self.ask.note(Event("policies", detail=detail, done=len(found) / len(loads_qps)))
        except Interrupted:
            if not found:
                raise
        return [found[load] for load in loads_qps if load in found]

    def _solve_together(
        self, group: Group, loads_qps: Sequence[float], slo_s: float | None, about: str
    ) -> list[SolvedPolicy]:
        """Some loads, side by side."""
        if self.options.rates == "fitted" and group.wish.balancing == "shortest_queue" and self.can_simulate:
            return [self._fit_rates(group, load, slo_s, about) for load in loads_qps]
        if self.options.batching == "auto" and not self.can_simulate:
            return [self._ask(group, [load], self._likely_batches(group, load), slo_s, about)[0] for load in loads_qps]
        tried = [self._ask(group, loads_qps, kind, slo_s, about) for kind in self._kinds]
        best = [_best_of(several) for several in zip(*tried, strict=True)]
        return [self._keep_percentile(one, about) for one in best] if self.is_robust else best

    def table_value(self, group: Group, load_qps: float, kind: Batches) -> float | None:
        """The objective of a policy table of one batching kind over the robust family; None where it cannot be made."""
        found = self._ask(group, [load_qps], kind, None, f"{group.wish.balancing} tables")
        return _worth(found[0]) if found else None

    def _keep_percentile(self, solved: SolvedPolicy, about: str) -> SolvedPolicy:
        """Confirmed by fresh seeds; where it is late too often, the policy for which answers in time weigh enough.

        Accuracies a are planned as (a + mu) / (1 + mu): the Lagrangian of the share of queries in time.
        """
        found = self._confirm(solved)
        most = solved.group.wish.violation_most
        if most is None or found.violation_shown <= most or found.overload or found.answer is None:
            return found
        if self.options.objective != "per_query":
            return found
        tried = solved.policy
        for shift in SHIFTS:
            form = solved.form
            raised = replace(form, accuracy=(form.accuracy + shift) / (1.0 + shift))
            (answer,) = self.ask.all([raised], about=f"{about}, in time above all")
            raised.forget()
            if answer.point is None:
                break
            if np.array_equal(answer.point.model, tried.model) and np.array_equal(answer.point.batch, tried.batch):
                continue
            tried = answer.point
            valued = self.evaluate(solved.group, solved.load_qps, form, tried)
            other = self._confirm(
                replace(valued, answer=solved.answer, beaten=solved.beaten, robust=solved.robust, shifted=shift)
            )
            if other.violation < found.violation:
                found = other
            if found.violation_shown <= most:
                break
        return found

    def _confirm(self, solved: SolvedPolicy) -> SolvedPolicy:
        """With what seeds show that chose nothing."""
        return replace(solved, simulated=self._play(solved, fresh=LOOK_SEEDS))

    def _simulate_family(self, solved: SolvedPolicy) -> SolvedPolicy:
        """With the goodput over the family, and what the stated arrivals gave."""
        few: dict[str, Any] = {"queries": FAMILY_QUERIES, "seeds": FAMILY_SEEDS}
        noise = {"spread": np.full(solved.form.latency_s.shape, NOISE)}
        piece_s = max(BURST_S, 1.0 / solved.load_qps)
        turns = max(1, round(FAMILY_QUERIES / (solved.load_qps * piece_s * len(BURSTS))))
        bursts = {"piece_qps": np.tile(np.array(BURSTS) * solved.load_qps, turns), "piece_s": piece_s, "times_s": None}
        stated = self._play(solved, **few)
        # Bursts that the wish states are those to be ready for.
        family = (noise, bursts, {**noise, **bursts}) if solved.group.wish.bursts is None else (noise,)
        found = [stated, *(self._play(solved, **few, **more) for more in family)]
        goodput = [float(one.goodput) for one in found]
        return replace(solved, simulated=stated, robust=0.5 * (float(np.mean(goodput)) + min(goodput)))

    def simulate(self, solved: SolvedPolicy) -> SolvedPolicy:
        """With what simulation gives, where there is a simulator."""
        if not self.can_simulate:
            return solved
        if self.is_robust:
            return self._simulate_family(solved)
        return replace(solved, simulated=self._play(solved))

    def _play(self, solved: SolvedPolicy, **changes: Any) -> Any:
        """One simulation of a policy at its load, as the application's queries come, but for `changes`."""
        return self.run(solved.form, solved.policy, **{**solved.group.traffic(solved.load_qps), **changes})

    def run(self, form: QueueProcess, policy: QueuePolicy, *, fresh: int = 0, **how: Any) -> Any:
        """One simulation, with the options' seeds and length where `how` says nothing else."""
        simulate = self.tools.extra["simulate_policy"]
        first = self.ask.limits.seed * 1000 + 1 + fresh
        seeds = tuple(range(first, first + int(how.pop("seeds", self.options.seeds))))
        return simulate(form, [policy], queries=how.pop("queries", self.options.queries), seeds=seeds, **how)

    def evaluate(self, group: Group, load_qps: float, form: QueueProcess, policy: QueuePolicy) -> SolvedPolicy:
        """A given policy with its long-run averages at a load."""
        mass = form.long_run(form.chosen(policy))
        return SolvedPolicy(group, load_qps, form, policy, None, measure(form, policy, mass))

    def _likely_batches(self, group: Group, load_qps: float) -> Batches:
        """Without a simulator: any batches, unless the load is beyond what the fastest model can do."""
        return "max" if load_qps > group.sustainable_qps else "variable"

    def _ask(
        self, group: Group, loads_qps: Sequence[float], kind: Batches, slo_s: float | None, about: str
    ) -> list[SolvedPolicy]:
        solved: list[SolvedPolicy] = []
        forms = [group.form(load, self.options, batching=kind, slo_s=slo_s) for load in loads_qps]
        answers = self.ask.all(forms, about=f"{about}, {kind} batches")
        for load, form, answer in zip(loads_qps, forms, answers, strict=True):
            if answer.point is not None and answer.status in (Status.OPTIMAL, Status.FEASIBLE):
                solved.append(SolvedPolicy(group, load, form, answer.point, answer, _averages(form, answer)))
            form.forget()
        if not self.can_simulate:
            return solved
        with ThreadPoolExecutor(max_workers=max(1, self.ask.limits.threads)) as pool:
            return list(pool.map(self.simulate, solved))

    def _fit_rates(self, group: Group, load_qps: float, slo_s: float | None, about: str) -> SolvedPolicy:
        """Arrival rates by queue length and policy, in turn: simulate, read the rates off, solve again."""
        solved = self._best_batches(group, load_qps, slo_s, about)
        for _ in range(_FITTING_ROUNDS):
            seen = np.asarray(solved.simulated.rates_by_queue, dtype=float)
            _, rates, rate_of = group.arrivals(load_qps, self.options)
            before = rates[rate_of] if rate_of is not None else np.full(seen.size, rates[0])
            merged = np.where(np.isfinite(seen) & (seen > 0), seen, before)
            group = replace(group, fitted_qps=tuple(float(rate) for rate in merged))
            again = self._best_batches(group, load_qps, slo_s, about)
            if again.goodput < solved.goodput:
                break
            solved = again
        return solved

    def _best_batches(self, group: Group, load_qps: float, slo_s: float | None, about: str) -> SolvedPolicy:
        return _best_of([self._ask(group, [load_qps], kind, slo_s, about)[0] for kind in self._kinds])


def _averages(form: QueueProcess, answer: Answer[QueuePolicy]) -> Measures:
    """Averages under the distribution that the answer carries (certified by one step), or one found anew."""
    policy = cast(QueuePolicy, answer.point)
    carried = answer.proof.get("stationary")
    mass = form.long_run(form.chosen(policy)) if carried is None else np.asarray(cast(Floats, carried), dtype=float)
    return measure(form, policy, mass)


def _worth(solved: SolvedPolicy) -> float:
    """What tables are chosen by."""
    return solved.goodput if solved.robust is None else solved.robust


def _best_of(several: Sequence[SolvedPolicy]) -> SolvedPolicy:
    """The one that simulates best; ties go to whole batches, which are exact."""
    best = max(several, key=lambda solved: round(_worth(solved), 7))
    others = [s for s in several if s is not best]
    lost = "; ".join(f"{s.form.batching} batches: goodput {_worth(s):.6g}" for s in others)
    if best.robust is not None and lost:
        lost += f", against {best.robust:.6g}, over arrivals as stated and in bursts, with service noise and without"
    return replace(best, beaten=lost)
