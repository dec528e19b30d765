"""The question `compound`: reads its files and answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, cast

from hetplan.planner.contract import Ask, Obstacle, Options, Tools
from hetplan.problems import infer_problem
from hetplan.problems.compound.options import CompoundOptions, PaperOptions

if TYPE_CHECKING:
    from hetplan.planner.certify import Bounding
    from hetplan.planner.draft import Draft, Infeasibility
    from hetplan.problems.compound.pipeline_query import CompoundProblem
    from hetplan.profiles.inputs import Inputs
    from hetplan.profiles.plan import Claim, Plan

__all__ = ["Compound"]


@dataclass(frozen=True)
class Compound:
    """Queries to be served together; the package's page has the letters."""

    question: ClassVar[str] = "compound"
    formulations: ClassVar[Mapping[str, type[Options]]] = {"compound": CompoundOptions, "circinus": PaperOptions}
    like: ClassVar[Mapping[str, str]] = {"circinus": "circinus"}

    asked: CompoundProblem
    tools: Tools = field(default_factory=Tools)

    @classmethod
    def fits(cls, inputs: Inputs) -> tuple[Obstacle, ...]:
        """What keeps these files from asking for compound plans."""
        return infer_problem.compound(inputs)

    @classmethod
    def from_inputs(
        cls, inputs: Inputs, options: Options, *, formulation: str, tools: Tools, start: Plan | None = None
    ) -> Compound:
        """Read the files; raises `InputError` with every fault found."""
        from hetplan.problems.compound.pipeline_query import read_problem

        del formulation
        return cls(read_problem(inputs, cast(CompoundOptions, options), start), tools)

    def bounding(self, claim: Claim, plan: Plan) -> Sequence[Bounding] | None:
        """The program that bounds a claim of such a plan, where all candidates are stated, and nothing is rented."""
        from hetplan.planner.certify import Bounding
        from hetplan.problems.compound.packing import packing

        del plan
        asked = self.asked
        stated = not asked.sought and not any(tier.machine_price for tier in asked.tiers)
        wanted = asked.wish.of
        if claim.about != "goodput" or not stated or asked.wish.sense != "max" or len(wanted) != 1:
            return None
        if claim.scope != "problem":
            return []
        form = packing(asked.queries, asked.tiers, asked.totals, sense="max", figure=wanted[0])
        return [Bounding(form, of_plans=True)]

    def decide(self, ask: Ask) -> Draft | Infeasibility:
        """Search where plans are not stated, then pack."""
        from hetplan.problems.compound.two_stage import plan_queries

        return plan_queries(self.asked, ask, self.tools)
