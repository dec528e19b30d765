"""Pipelines on one cluster, in the letters of their paper.

Loki (HPDC 2024): while the demand fits at the best accuracy, the fewest servers (hardware scaling); beyond, the best
accuracy that the cluster can carry (accuracy scaling). Pipelines are trees of tasks, each with variants that trade
accuracy for speed; servers may be of several types; several pipelines may share a cluster.

==========  ========================  ==================================================================================
letter      field                     meaning
==========  ========================  ==================================================================================
t           `Tree.tasks`              task (step); the first ones are reached by every query
k           `Task.variants`           variant of a task, with accuracy A_k
g           `Fleet.hardware`          type of server; S_g (`most`) of it
b           `Task.batch`              batch size
y           --                        configuration (k, g, b) of a task
l_y         `Task.ms`                 milliseconds per batch, at `quantile`
q_y         `Task.qps`                queries/s of one server, (1 - headroom) b / l
r           `Task.factor`             queries sent on to a child task per query, by variant
D           `Tree.demand`             queries/s at the entrance
H           `Tree.limit_ms`           (slo - network per hop x hops) / slo_divisor, per last task
x_y, n_p    (programs)                servers of y; share of the queries on paths that begin with p
==========  ========================  ==================================================================================

The programs are in `programs`. The paper leaves out that all queries are
served at every last task, and counts the factor of the last task of a prefix: both are mended here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from hetplan.planner.contract import Tools
from hetplan.planner.draft import Scope
from hetplan.planner.request import Request
from hetplan.problems.pipeline.programs import Aim, Program, steps_form
from hetplan.problems.pipeline.request import Goal, PipelineOptions, PipelineRequest, read_pipelines
from hetplan.problems.pipeline.tree import (
    ON_LIMIT_MS,
    Tree,
    count_prefixes,
    ends_of,
    top_variants,
    with_least_loads,
    without_dominated,
)
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Plan

__all__ = ["LEVELS", "MOST_PREFIXES", "Pipelines"]

MOST_PREFIXES, MOST_INTEGERS = 20_000, 1_500
"""With more prefixes of configurations, or more whole numbers, latency levels take the place of the exact program."""
LEVELS = 8
"""Latency levels per step, if they are used."""


@dataclass(frozen=True)
class Pipelines:
    """Pipelines on one cluster; see the module for the letters."""

    inputs: Inputs
    wish: PipelineRequest
    options: PipelineOptions
    formulation: str = "pipeline-milp"
    start: Plan | None = None
    tools: Tools = field(default_factory=Tools)
    before: tuple[Tree, ...] | None = None
    """The trees looked at, where a formulation has narrowed them down already."""
    of: tuple[Tree, ...] | None = None
    """The trees to be served, where a formulation has narrowed them down already."""
    passes: int | None = None
    """Solves over latency levels, each around the last solution; None: one where they are asked for, else two."""

    def with_options(self, **changed: Any) -> Pipelines:
        """The same question, with some options changed."""
        options = self.options.model_copy(update=changed)
        return Pipelines(
            self.inputs, read_pipelines(self.inputs, options), options, self.formulation, self.start, self.tools
        )

    @cached_property
    def asked_for(self) -> tuple[Tree, ...]:
        """Applications that are asked for anything."""
        return tuple(with_least_loads(tree) for tree in self.wish.trees if tree.demand > 0)

    @property
    def scope(self) -> Scope:
        """What a bound of whole servers is about; of plans with servers of each step's own, where others fit."""
        return "restriction" if self.wish.fleet.apart else "problem"

    @property
    def scope_in_parts(self) -> Scope:
        """What a bound of servers in parts is about."""
        return "restriction" if self.wish.fleet.apart == "unlike" else "relaxation"

    @cached_property
    def considered(self) -> tuple[Tree, ...]:
        """Applications that are asked for anything, with every configuration that the formulation looks at."""
        if self.before is not None:
            return self.before
        if getattr(self.options, "models", "all") == "top":
            return tuple(top_variants(tree) for tree in self.asked_for)
        return self.asked_for

    @cached_property
    def served(self) -> tuple[Tree, ...]:
        """Those without configurations that are never worth choosing (a running one is kept)."""
        return self.of if self.of is not None else tuple(without_dominated(tree) for tree in self.considered)

    @cached_property
    def has_one_hardware(self) -> bool:
        """Whether all configurations run on the same hardware."""
        return len({int(g) for tree in self.served for task in tree.tasks for g in task.hardware}) <= 1

    @cached_property
    def form(self) -> str:
        """The formulation; instead of a `pipeline-milp` that would be too large, `loki-budget`."""
        if self.formulation != "pipeline-milp":
            return self.formulation
        whole = sum(task.size for tree in self.served for task in tree.tasks)
        if sum(map(count_prefixes, self.served)) > MOST_PREFIXES or whole > MOST_INTEGERS:
            return "loki-budget"
        # With one hardware the paper's program has the same optimum, and several pipelines are solved faster by it.
        return "loki" if self.has_one_hardware and len(self.served) > 1 else "pipeline-milp"

    @property
    def fair(self) -> bool:
        """Whether the worst served application comes first."""
        return getattr(self.options, "fairness", "weighted") == "maxmin" and len(self.served) > 1

    @property
    def levels(self) -> tuple[Goal, ...]:
        """The levels of the objective, one program each."""
        goals = self.wish.goals
        return tuple(
            one for goal in goals for one in (("fairest", goal) if goal == "quality" and self.fair else (goal,))
        )

    @property
    def counts_servers_alone(self) -> bool:
        """Whether accuracy comes first, and nothing limits it but how many servers of each type there are."""
        asks = self.request
        unlimited = asks.budget is None and asks.changes is None and not asks.resources
        return unlimited and self.levels[0] == "quality" and bool(np.isfinite(self.wish.fleet.most).all())

    def aim(self, goal: Goal, *, slip: float = 0.0, whole: bool = True) -> Aim:
        """What a program of this question is asked for."""
        return Aim(goal, slip=slip, whole=whole)

    @property
    def request(self) -> Request:
        """What is asked for, and what may be rented."""
        return self.wish.fleet.request

    def edges_of(self, tree: Tree) -> Sequence[tuple[int, int]]:
        """Which steps follow which; of a pipeline whose branches meet again, all edges."""
        own = [(task.parent, t) for t, task in enumerate(tree.tasks) if task.parent >= 0]
        return self.wish.joins.get(tree.app, own)

    def step_limits_ms(self, tree: Tree) -> list[float]:
        """H per step: the limit less the network of the longest way there."""
        hops = ends_of([1.0] * len(tree.tasks), self.edges_of(tree))
        slo = self.stated_ms(tree.app)
        return [(slo - self.network_ms(tree.app, int(n))) / self.options.slo_divisor for n in hops]

    @cached_property
    def by_steps(self) -> list[Tree]:
        """Where branches meet again: the steps, with the configurations in time beside the fastest of others."""
        return [self._in_time_at_best(tree) for tree in self.considered]

    def _in_time_at_best(self, tree: Tree) -> Tree:
        edges, room = self.edges_of(tree), np.array(self.step_limits_ms(tree))
        least = [float(task.ms.min()) if task.size else np.inf for task in tree.tasks]
        for u, v in sorted(edges, key=lambda edge: -edge[1]):
            room[u] = min(room[u], room[v] - least[v])
        starts = np.array(ends_of(least, edges)) - least
        return tree.keeping([task.ms <= room[t] - starts[t] + ON_LIMIT_MS for t, task in enumerate(tree.tasks)])

    def steps_form(self, trees: Sequence[Tree], aim: Aim) -> Program:
        """The program of steps whose branches meet again."""
        edges, limits = [self.edges_of(tree) for tree in trees], [self.step_limits_ms(tree) for tree in trees]
        return steps_form(trees, edges, limits, self.wish.fleet, aim)

    def stated_ms(self, app: str) -> float:
        """The limit on response that the user states."""
        return self.request.apps[app].strictest_ms

    def network_ms(self, app: str, steps: int) -> float:
        """What the network takes of a query on a path of so many steps."""
        return self.request.apps[app].network_ms(steps)
