r"""Which model answers which batch, by queue length and slack, before any query comes (RAMSIS, EuroSys 2024).

Workers and the models they hold are given; what is decided is a table per load: with n queries waiting, the oldest with
slack T_j, run model m on b of them. `Policy` holds one such question.

==========  ===========================  ==============================================================================
letter      field                        meaning
==========  ===========================  ==============================================================================
K           `Group.workers`              workers behind one load balancer
N           `options.queue_max`          longest queue told apart
T_j         `slack_grid`                 slacks told apart (option `grid`)
l(m, b)     `Models.latency_s`           seconds at the table's percentile, repaired for b = 1..N + 1
acc_m       `Models.accuracy`            accuracy, a fraction
SLO         `AppWish.slo_s`              response target less the network
Phi, nu     `Group.arrivals`             own inter-arrival times: Erlang of Phi stages of rate nu
==========  ===========================  ==============================================================================

The process, its rewards and its transitions stand at `planner/forms/queue_process.py`. `per-query` (the default)
maximises accuracy per query that comes; `paper` maximises it per decision, as published. Goodput is accuracy x (1 -
violation). What is expected of a policy is an average of the model of the queue: slack is rounded down, and a batch
whose oldest query is late counts as late. Goodput was never above simulation in any case measured; that is no bound.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np

from hetplan.errors import InputError
from hetplan.planner.contract import Ask, Obstacle, Options, Tools
from hetplan.planner.draft import Draft, Infeasible, Reported
from hetplan.problems import ladder
from hetplan.problems.faults import Faults
from hetplan.problems.policy import targets as policy_targets
from hetplan.problems.policy.baselines import BASELINES
from hetplan.problems.policy.checkpoint import WHAT, Checkpoint, asked_for
from hetplan.problems.policy.draft import draft
from hetplan.problems.policy.group import Group
from hetplan.problems.policy.models import Models, read_models
from hetplan.problems.policy.options import (
    BaselineOptions,
    FewestOptions,
    PaperOptions,
    PolicyOptions,
    SingleOptions,
)
from hetplan.problems.policy.sets import policy_set, split_load, split_workers
from hetplan.problems.policy.solved import Bench, Solved
from hetplan.problems.policy.wish import AppWish, Workers, read_apps, read_workers, wants_fewest
from hetplan.profiles.plan import Notice

if TYPE_CHECKING:
    from hetplan.profiles.inputs import Inputs
    from hetplan.profiles.plan import Plan

__all__ = ["Policy"]

_ABSURD = 100
"""A load so many times what all workers can do is refused."""
_CHECKED_LOADS = 5
"""The fewest workers for a range of loads must keep the targets at so many of them."""


@dataclass(frozen=True)
class Policy:
    """One question; see the module for its letters."""

    question: ClassVar[str] = "policy"
    aliases: ClassVar[Sequence[str]] = ("ramsis",)
    formulations: ClassVar[Mapping[str, type[Options]]] = {
        "per-query": PolicyOptions,
        "paper": PaperOptions,
        "fewest-workers": FewestOptions,
        "jellyfish": BaselineOptions,
        "modelswitching": BaselineOptions,
        "greedy": BaselineOptions,
        "single": SingleOptions,
    }
    like: ClassVar[Mapping[str, str]] = {
        "per-query": "ramsis",
        "paper": "ramsis",
        "fewest-workers": "ramsis",
        "jellyfish": "jellyfish+",
        "modelswitching": "modelswitching",
    }

    inputs: Inputs
    apps: tuple[AppWish, ...]
    workers: tuple[Workers, ...]
    models: Mapping[tuple[str, str], Models]
    """What an application may run on a hardware."""
    options: PolicyOptions
    formulation: str = "per-query"
    tools: Tools = field(default_factory=Tools)
    start: Plan | None = None

    @classmethod
    def fits(cls, inputs: Inputs) -> tuple[Obstacle, ...]:
        """What keeps these files from asking for a policy."""
        return ladder.policy(inputs)

    @classmethod
    def from_inputs(
        cls, inputs: Inputs, options: Options, *, formulation: str, tools: Tools, start: Plan | None = None
    ) -> Policy:
        """Read the files; raises `InputError` with every fault found."""
        chosen = cast(PolicyOptions, options)
        faults = Faults.of(inputs)
        apps, workers = read_apps(inputs, faults), read_workers(inputs, faults)
        if not workers and not faults.found:
            faults.in_slo("$.limits.instances", "a policy is for given workers", 'Write {"HARDWARE": [1, 8]}.')
        models: dict[tuple[str, str], Models] = {}
        for app_id, app in inputs.slo.apps.items():
            for group in workers:
                found = read_models(inputs, app_id, app, group.hardware, chosen, faults)
                if found is not None:
                    models[app_id, group.hardware] = found
        policy = cls(inputs, apps, workers, models, chosen, formulation, tools, start)
        if not faults.found:
            policy._check(faults)
        faults.settle()
        return policy

    @property
    def fewest(self) -> bool:
        """Whether the number of workers is asked for."""
        return self.formulation == "fewest-workers" or wants_fewest(self.inputs)

    def decide(self, ask: Ask) -> Draft | Infeasible:
        """The conversation: policies at every load; targets checked; repairs where one is missed."""
        tight = [found for group in self.groups_wanted() if (found := policy_targets.too_tight(group)) is not None]
        if tight:
            return Infeasible(tuple(why for why, _ in tight), tuple(repair for _, repair in tight))
        bench = Bench(ask, self.options, self.tools, self._checkpoint(ask))
        if self.fewest:
            return self.fewest_workers(bench)
        groups = self.groups(bench)
        if self.formulation in BASELINES:
            return self.baseline(bench, groups)
        return self.best_policies(bench, groups)

    def groups_wanted(self) -> list[Group]:
        """Every application on every kind of workers, each as if it had all workers and all load to itself."""
        found = []
        for wish in self.apps:
            for workers in self.workers:
                count = workers.most if workers.most is not None else max(workers.least, 1)
                models = self.models[wish.app_id, workers.hardware]
                found.append(Group(f"{wish.app_id} on {workers.hardware}", wish, models, count, wish.loads_qps))
        return found

    def groups(self, bench: Bench) -> list[Group]:
        """Who serves what: load or workers divided where several share them."""
        groups = self.groups_wanted()
        if len(self.apps) == 1:
            return split_load(bench, groups, self.apps[0].loads_qps) if len(groups) > 1 else groups
        return split_workers(bench, groups, cast(int, self.workers[0].most), self.options.workers)

    def best_policies(self, bench: Bench, groups: Sequence[Group]) -> Draft | Infeasible:
        """A set of policies per group; where a stated target is missed, what would keep it."""
        solved: list[list[Solved]] = []
        notices: list[Notice] = []
        for group in groups:
            policies, open_gaps = policy_set(bench, group, also_qps=self.loads_before(group))
            solved.append(policies)
            if open_gaps:
                listed = ", ".join(f"{low:g}-{high:g}" for low, high in open_gaps[:4])
                text = f"stopped before {group.id} was fine enough between {listed} qps"
                notices.append(Notice(code="W-set-open", at=f"policies.{group.wish.app_id}", text=text))
        missing = [one for policies in solved for one in policies if one.misses()]
        if not missing:
            return draft(self.inputs, self.options, solved, notices=notices)
        worst = max(missing, key=lambda one: one.violation)
        missed = f"{worst.group.id} at {worst.load_qps:g} qps: {'; '.join(worst.misses())}"
        repairs = policy_targets.repairs_of(bench, worst)
        return Infeasible((missed,), repairs, proved=False)

    def loads_before(self, group: Group) -> list[float]:
        """Loads within the range for which a previous plan has tables: where an interrupted set goes on from."""
        tables = self.start.policies.get(group.wish.app_id, ()) if self.start is not None else ()
        low, high = group.loads_qps[0], group.loads_qps[-1]
        slo_ms = 1000.0 * group.wish.slo_s
        same = (table for table in tables if abs(table.slo_ms - slo_ms) <= 1e-9 * slo_ms)
        return sorted({table.rate_qps for table in same if low <= table.rate_qps <= high})

    def fewest_workers(self, bench: Bench) -> Draft | Infeasible:
        """The least number of workers with which the targets hold at every load."""
        group, given = self.groups_wanted()[0], self.workers[0]
        if group.wish.violation_most is None:
            # Accuracy alone, of the queries in time, would let nearly all of them be late.
            group = replace(group, wish=replace(group.wish, violation_most=group.wish.percentile_violation))
        beyond = self.options.most_workers if isinstance(self.options, FewestOptions) else 10_000
        most = given.most or beyond
        ends, top = group.loads_qps, group.loads_qps[-1]
        loads = ends if len(ends) == 1 else tuple(np.linspace(ends[0], ends[-1], _CHECKED_LOADS).tolist())
        found = policy_targets.fewest(bench, group, loads, least=given.least, most=most)
        if found is None:
            worst = bench.solve(group.with_workers(most), [top], about="most workers")[0]
            why = f"{most} workers do not keep the targets at {top:g} qps: {'; '.join(worst.misses())}"
            return Infeasible((why,), policy_targets.repairs_of(bench, worst), proved=False)
        group, policies = found
        if len(ends) > 1:
            policies, _ = policy_set(bench, group, {one.load_qps: one for one in policies})
        bound = policy_targets.fewest_possible(group, top)
        servers = Reported(
            about="servers",
            sense="min",
            scope="relaxation",
            value=float(group.workers),
            bound=float(min(bound, group.workers)),
            vouched="claimed",
            note="bound: worker time that the queries in time need at that accuracy, without waiting or idling",
        )
        return draft(self.inputs, self.options, [policies], reported=(servers,))

    def baseline(self, bench: Bench, groups: Sequence[Group]) -> Draft:
        """A rule of others at the given loads."""
        rule = BASELINES[self.formulation]
        solved = [[rule(bench, group, load) for load in group.loads_qps] for group in groups]
        shared = self.formulation in ("jellyfish", "modelswitching")
        reported = []
        for one in (one for policies in solved for one in policies):
            known = one.measures is not None or one.simulated is not None
            value = one.goodput if known else float(one.group.models.accuracy[int(one.policy.model[0, 0])])
            about = "goodput" if known else "quality"
            told = f"{about}[{one.group.id}@{one.load_qps:g}qps]"
            reported.append(Reported(about=told, sense="max", scope="none", value=value))
        return draft(
            self.inputs, self.options, solved, reported=reported, discipline="shared_fifo" if shared else "own"
        )

    def _checkpoint(self, ask: Ask) -> Checkpoint | None:
        if self.options.checkpoint is None:
            return None
        keep_lines = self.tools.extra.get("keep_lines")
        if keep_lines is None:
            raise InputError.one(
                path="options.checkpoint",
                value=self.options.checkpoint,
                why="nothing was handed in that keeps lines",
                remedy='Hand in Tools(extra={"keep_lines": ...}), or leave the option out.',
            )
        of = asked_for(self.inputs, self.options, self.formulation, ask.limits.seed)
        return Checkpoint.begin(keep_lines(self.options.checkpoint, WHAT), of)

    def _check(self, faults: Faults) -> None:
        """What needs several parts of the files at once."""
        at, first = "$.limits.instances", self.workers[0]
        app_id = self.apps[0].app_id
        if len(self.apps) > 1 and len(self.workers) > 1:
            faults.in_slo(
                "$.apps", "several applications share one hardware, not several", "Plan one hardware at a time."
            )
        if self.fewest and (len(self.apps) > 1 or len(self.workers) > 1):
            faults.in_slo(at, "the fewest workers are sought of one hardware for one application", "Name one.")
        for workers in self.workers:
            if workers.most is None and not self.fewest:
                faults.in_slo(f"{at}.{workers.hardware}", "a policy is for a given number of workers", "Give the most.")
        if self.fewest and not any(wish.stated for wish in self.apps):
            faults.in_slo(f"$.apps.{app_id}", "the fewest workers for what?", "State violations.max or quality.min.")
        total = first.most or 10_000
        if len(self.apps) > 1 and total < len(self.apps):
            faults.in_slo(at, f"{len(self.apps)} applications need a worker each", "Give more.", value=total)
        self._check_loads(faults)
        self._check_division(total, faults)
        self._check_arrivals(faults)
        self._check_rates(faults)
        dropping = [wish.app_id for wish in self.apps if wish.late == "drop"]
        if dropping and self.options.empty_state == "paper":
            why = f"idling is no decision where late queries are dropped, as by {', '.join(dropping)}"
            faults.in_options("empty_state", why, "Leave it at skip.", value="paper")

    def _check_loads(self, faults: Faults) -> None:
        """A load far beyond all workers is a wrong unit, and its tables would hold nothing but "over"."""
        for wish in self.apps:
            groups = [group for group in self.groups_wanted() if group.wish is wish]
            if self.fewest:
                groups = [group.with_workers(self.workers[0].most or 10_000) for group in groups]
            most = sum(group.sustainable_qps for group in groups)
            if wish.loads_qps[-1] > _ABSURD * most:
                why = f"{_ABSURD} times what the workers can do with their fastest model is {_ABSURD * most:.4g} qps"
                at = f"$.apps.{wish.app_id}.demand.rate_qps"
                faults.in_slo(at, why, "Is this per second? Lower it, or add workers.", value=wish.loads_qps[-1])

    def _check_division(self, total: int, faults: Faults) -> None:
        fixed: dict[str, Any] | None = self.options.workers
        if fixed is None:
            return
        names = {wish.app_id for wish in self.apps}
        if set(fixed) != names or min(fixed.values()) < 1 or sum(fixed.values()) > total:
            text = f"a count for each of {', '.join(sorted(names))}, {total} in all at most"
            faults.in_options("workers", text, "Name every application once, or leave it out.", value=fixed)

    def _check_arrivals(self, faults: Faults) -> None:
        for group in self.groups_wanted():
            wish = group.wish
            try:
                wish.stages(group.workers, clamp=self.options.clamp or wish.balancing == "shortest_queue")
            except ValueError as error:
                faults.in_slo(
                    f"$.apps.{wish.app_id}.demand.arrivals",
                    str(error),
                    "Give more workers, or set clamp=true to plan for Poisson arrivals without their bursts.",
                )

    def _check_rates(self, faults: Faults) -> None:
        simulator = "simulate_policy" in self.tools.extra and self.options.simulate
        if self.options.rates == "fitted" and not simulator:
            why = "fitted rates are simulated, and no simulator is at hand"
            faults.in_options("rates", why, "Hand one in, or use formula.")
