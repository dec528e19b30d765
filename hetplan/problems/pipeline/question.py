"""The question of pipelines: which files ask it, and how it is read and answered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, cast

from hetplan.planner.contract import Ask, Obstacle, Options, Tools
from hetplan.planner.draft import Draft, Infeasibility
from hetplan.problems import infer_problem
from hetplan.problems.pipeline.pipelines import Pipelines
from hetplan.problems.pipeline.request import (
    BudgetOptions,
    ConfigOptions,
    PaperOptions,
    PipelineOptions,
    RerouteOptions,
    read_pipelines,
)
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Claim, Plan

if TYPE_CHECKING:
    from hetplan.planner.certify import Bounding

__all__ = ["PipelineQuestion"]


@dataclass(frozen=True)
class PipelineQuestion(Pipelines):
    """Which variants of a pipeline's tasks to host, on how many servers, and how queries go through."""

    takes_formulations: ClassVar[bool] = True
    question: ClassVar[str] = "pipeline"
    formulations: ClassVar[Mapping[str, type[Options]]] = {
        "pipeline-milp": ConfigOptions,
        "loki": PaperOptions,
        "loki-budget": BudgetOptions,
        "pipeline-routes": RerouteOptions,
    }
    like: ClassVar[Mapping[str, str]] = dict.fromkeys(formulations, "loki")

    @classmethod
    def fits(cls, inputs: Inputs) -> tuple[Obstacle, ...]:
        """What keeps these files from asking for pipelines."""
        return infer_problem.pipeline(inputs)

    @classmethod
    def from_inputs(
        cls, inputs: Inputs, options: Options, *, formulation: str, tools: Tools, start: Plan | None = None
    ) -> PipelineQuestion:
        """Read the files; raises `InputError` with every fault found."""
        chosen = cast(PipelineOptions, options)
        return cls(inputs, read_pipelines(inputs, chosen), chosen, formulation, start, tools)

    def bounding(self, claim: Claim, plan: Plan) -> Sequence[Bounding] | None:
        """The programs that bound a claim of such a plan."""
        from hetplan.problems.pipeline.bounds import programs_of_claim

        return programs_of_claim(self, claim, plan)

    def decide(self, ask: Ask) -> Draft | Infeasibility:
        """Answer by the chosen formulation."""
        from hetplan.problems.pipeline.sizing import plan_pipelines

        return plan_pipelines(self, ask)
