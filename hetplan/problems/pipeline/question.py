r"""Which variants of a pipeline's tasks to host, on how many servers, with which batches, and how queries go through.

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

The programs: `pipeline_config` (exact), `pipeline_paper` (Loki's own, linearised), `pipeline_budget` (one latency level
per task; relax-and-fix for large clusters, prices for several pipelines). The paper leaves out that all queries are
served at every last task, and counts the factor of the last task of a prefix: both are mended here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, cast

from hetplan.planner.contract import Ask, Obstacle, Options, Tools
from hetplan.planner.draft import Draft, Infeasible, Reported
from hetplan.problems import ladder
from hetplan.problems.pipeline.baselines import by_inferline, by_reroute, fixed_variants
from hetplan.problems.pipeline.exact import top_variants
from hetplan.problems.pipeline.options import (
    BudgetOptions,
    ConfigOptions,
    InferLineOptions,
    PaperOptions,
    PipelineOptions,
    ProteusOptions,
    RerouteOptions,
)
from hetplan.problems.pipeline.proteus import by_proteus, own_batches
from hetplan.problems.pipeline.rows import Asked
from hetplan.problems.pipeline.tree import Tree, count_prefixes, with_least_loads, without_dominated
from hetplan.problems.pipeline.wish import Wish, read_wish

if TYPE_CHECKING:
    from hetplan.problems.pipeline.levels import Solved
    from hetplan.profiles.inputs import Inputs
    from hetplan.profiles.plan import Plan

__all__ = ["Pipeline"]


@dataclass(frozen=True)
class Pipeline:
    """Pipelines on one cluster; see the module for the letters."""

    question: ClassVar[str] = "pipeline"
    aliases: ClassVar[Sequence[str]] = ("loki",)
    formulations: ClassVar[Mapping[str, type[Options]]] = {
        "config": ConfigOptions,
        "paper": PaperOptions,
        "budget": BudgetOptions,
        "inferline": InferLineOptions,
        "proteus": ProteusOptions,
        "reroute": RerouteOptions,
    }
    like: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("config", "paper", "budget", "reroute"), "loki"),
        "inferline": "inferline",
        "proteus": "proteus",
    }

    inputs: Inputs
    wish: Wish
    options: PipelineOptions
    formulation: str = "config"
    start: Plan | None = None
    tools: Tools = field(default_factory=Tools)
    of: tuple[Tree, ...] | None = None
    """The trees to be served, where a formulation has narrowed them down already."""

    @classmethod
    def fits(cls, inputs: Inputs) -> tuple[Obstacle, ...]:
        """What keeps these files from asking for pipelines."""
        return ladder.pipeline(inputs)

    @classmethod
    def from_inputs(
        cls, inputs: Inputs, options: Options, *, formulation: str, tools: Tools, start: Plan | None = None
    ) -> Pipeline:
        """Read the files; raises `InputError` with every fault found."""
        chosen = cast(PipelineOptions, options)
        return cls(inputs, read_wish(inputs, chosen), chosen, formulation, start, tools)

    @cached_property
    def considered(self) -> tuple[Tree, ...]:
        """Applications that are asked for anything, with every configuration that the formulation looks at."""
        asked = [with_least_loads(tree) for tree in self.wish.trees if tree.demand > 0]
        if isinstance(self.options, InferLineOptions):
            return tuple(fixed_variants(tree, self.options) for tree in asked)
        if getattr(self.options, "variants", "all") == "top":
            return tuple(top_variants(tree) for tree in asked)
        return tuple(asked)

    @cached_property
    def served(self) -> tuple[Tree, ...]:
        """The same without configurations that are never worth choosing (a running one is kept)."""
        if self.of is not None:
            return self.of
        if isinstance(self.options, ProteusOptions):
            divided = self.options.slo_divisor / self.options.step_divisor
            return tuple(own_batches(tree, divided * max(tree.limit_ms.values())) for tree in self.considered)
        if isinstance(self.options, RerouteOptions):
            return self.considered
        return tuple(without_dominated(tree) for tree in self.considered)

    @property
    def fair(self) -> bool:
        """Whether the worst served application comes first."""
        return getattr(self.options, "fairness", "weighted") == "maxmin" and len(self.served) > 1

    @property
    def levels(self) -> tuple[str, ...]:
        """The levels of the objective, one program each."""
        goals = self.wish.goals
        return tuple(
            one for goal in goals for one in (("fairest", goal) if goal == "quality" and self.fair else (goal,))
        )

    def asked(self, goal: str, *, slip: float = 0.0, whole: bool = True) -> Asked:
        """What a program of this question is asked for."""
        multibatch = bool(getattr(self.options, "multibatch", False))
        return Asked(goal, slip=slip, whole=whole, multibatch=multibatch)  # type: ignore[arg-type]

    def valued(self, found: Solved, reported: Reported) -> Reported:
        """A level's claim with the value that the finished plan has."""
        values = {
            "quality": sum(tree.weight * a for (tree, _), a in zip(found.forest, found.qualities, strict=True)),
            "least_quality": min(found.qualities, default=0.0),
            "servers": float(sum(int(counts.sum()) for counts in found.counts)),
        }
        value, answer = values.get(reported.about), reported.answer
        if value is None:
            return reported
        if answer is not None and answer.bound is not None and abs(value - answer.bound) <= 1e-12:
            value = answer.bound  # the same number but for its last digit
        return replace(reported, value=value)

    def for_size(self) -> Pipeline:
        """Itself; by one latency level per step where the exact program would be too large."""
        options = self.options
        if self.formulation != "config" or not isinstance(options, ConfigOptions):
            return self
        whole = sum(task.size for tree in self.served for task in tree.tasks)
        if sum(map(count_prefixes, self.served)) <= options.prefixes and whole <= options.integers:
            # With one hardware the paper's program has the same optimum, and several pipelines are solved faster by it.
            one = len({int(g) for tree in self.served for task in tree.tasks for g in task.hardware}) == 1
            return replace(self, formulation="paper") if one and len(self.served) > 1 else self
        return replace(self, formulation="budget")

    def decide(self, ask: Ask) -> Draft | Infeasible:
        """Answer by the chosen formulation; with `size=simulated`, with as much headroom as simulation asks for."""
        if self.options.size == "simulated" and self.served:
            from hetplan.problems.pipeline.simulated import sized

            return sized(self, ask, Pipeline._planned)
        return self._planned(ask)

    def _planned(self, ask: Ask, *, explained: bool = True) -> Draft | Infeasible:
        from hetplan.problems.pipeline import (
            budget as pipeline_budget,
        )
        from hetplan.problems.pipeline import (
            draft as pipeline_draft,
        )
        from hetplan.problems.pipeline import (
            exact as pipeline_exact,
        )
        from hetplan.problems.pipeline import (
            infeasible as pipeline_infeasible,
        )
        from hetplan.problems.pipeline import (
            joins as pipeline_joins,
        )
        from hetplan.problems.pipeline import (
            paper as pipeline_paper,
        )

        if not self.served:
            return pipeline_draft.nothing_to_do(self)
        if self.wish.joins:
            pipeline_joins.check_joins(self)
            steps = pipeline_joins.by_steps(self, ask)
            return steps if isinstance(steps, Infeasible) else pipeline_draft.draft(self, steps)
        slow = pipeline_infeasible.too_slow(self)
        if slow is not None:
            return slow
        few = pipeline_infeasible.too_few(self, ask) if self.formulation not in ("proteus", "reroute") else None
        if few is not None:
            return few
        ways: dict[str, Callable[[Pipeline, Ask], Solved | Infeasible]] = {
            "config": pipeline_exact.by_config,
            "paper": pipeline_paper.by_paper,
            "budget": pipeline_budget.by_budget,
            "inferline": by_inferline,
            "proteus": by_proteus,
            "reroute": by_reroute,
        }
        found = ways[self.for_size().formulation](self, ask)
        if isinstance(found, Infeasible):
            if found.why or not explained:
                return found
            return pipeline_infeasible.explain(self, ask, proved=found.proved)
        return pipeline_draft.draft(self, found)
