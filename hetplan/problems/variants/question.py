"""The question `variants`: reads its files and answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, cast

from hetplan.planner.contract import Ask, Obstacle, Options, Tools
from hetplan.problems import infer_problem
from hetplan.problems.variants.options import PaperOptions, VariantsOptions
from hetplan.profiles.validate import collector_at_rest

if TYPE_CHECKING:
    from hetplan.planner.certify import Bounding
    from hetplan.planner.draft import Draft, Infeasibility
    from hetplan.problems.variants.request import Snapshot
    from hetplan.profiles.inputs import Inputs
    from hetplan.profiles.plan import Claim, Plan

__all__ = ["Variants"]


@dataclass(frozen=True)
class Variants:
    """One snapshot to plan; `program` has the letters and the mathematics."""

    takes_formulations: ClassVar[bool] = True
    question: ClassVar[str] = "variants"
    formulations: ClassVar[Mapping[str, type[Options]]] = {
        "variants-columns": VariantsOptions,
        "variants-milp": VariantsOptions,
        "infaas": PaperOptions,
    }
    like: ClassVar[Mapping[str, str]] = {"infaas": "infaas"}

    snapshot: Snapshot
    formulation: str = "variants-columns"
    tools: Tools = field(default_factory=Tools)

    @classmethod
    def fits(cls, inputs: Inputs) -> tuple[Obstacle, ...]:
        """What keeps these files from asking for variants."""
        return infer_problem.variants(inputs)

    @classmethod
    def from_inputs(
        cls, inputs: Inputs, options: Options, *, formulation: str, tools: Tools, start: Plan | None = None
    ) -> Variants:
        """Read the files; raises `InputError` with every fault found. The state, not a plan, says what runs."""
        from hetplan.problems.variants.request import read_snapshot

        del start
        snapshot = read_snapshot(inputs, cast(VariantsOptions, options))
        snapshot = replace(snapshot, repairs=tools.says_what_helps, explains=tools.explains)
        return cls(snapshot, formulation, tools)

    def bounding(self, claim: Claim, plan: Plan) -> Sequence[Bounding] | None:
        """The programs that bound a claim of such a plan."""
        from hetplan.problems.variants.formulations import bounding_programs

        return None if self.tools.formulation is not None else bounding_programs(self.snapshot, claim, plan)

    def decide(self, ask: Ask) -> Draft | Infeasibility:
        """Answer by the chosen formulation."""
        from hetplan.problems.variants.formulations import FORMULATIONS, cheapest_plan
        from hetplan.problems.variants.infeasible import unservable_apps

        v, brought = self.snapshot, self.tools.formulation
        if not (brought and brought.partial) and (reason := unservable_apps(v)) is not None:
            return reason
        solve = brought.decide if brought and brought.decide else FORMULATIONS[self.formulation]
        if v.options.sizing != "fluid":
            from hetplan.problems.variants.queueing import leave_room_to_wait

            half = replace(v, serves=tuple(pair.at_use(0.5) for pair in v.serves))
            ask.keep(lambda: cheapest_plan(half, ask))
            v = roomy = leave_room_to_wait(v, lambda: ask.remaining <= 0)
            ask.keep(lambda: cheapest_plan(roomy, ask))
        if v.options.sizing == "simulation":
            from hetplan.problems.variants.sizing import size_plan

            return size_plan(v, ask, solve, self.tools, self.formulation)
        with collector_at_rest():
            return solve(v, ask)
