"""The door of the question `variants`: whether files ask it, reading them, and answering."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, cast

from hetplan.planner.contract import Ask, Options, Tools
from hetplan.problems.variants.options import GreedyOptions, PaperOptions, SimpleOptions, VariantsOptions
from hetplan.profiles.collector import collector_at_rest

if TYPE_CHECKING:
    from hetplan.planner.draft import Draft, Infeasible
    from hetplan.problems.variants.wish import Snapshot
    from hetplan.profiles.inputs import Inputs
    from hetplan.profiles.plan import Plan

__all__ = ["Variants"]

RULES = ("greedy", "replicate-only", "static", "brute-force")
"""Formulations that are baselines."""


@dataclass(frozen=True)
class Variants:
    """One snapshot to plan; the package's page has the letters and the mathematics."""

    question: ClassVar[str] = "variants"
    aliases: ClassVar[Sequence[str]] = ("infaas",)
    formulations: ClassVar[Mapping[str, type[Options]]] = {
        "columns": VariantsOptions,
        "milp": VariantsOptions,
        "infaas-paper": PaperOptions,
        "greedy": GreedyOptions,
        "replicate-only": SimpleOptions,
        "static": SimpleOptions,
        "brute-force": SimpleOptions,
    }
    like: ClassVar[Mapping[str, str]] = {
        "infaas-paper": "infaas",
        "greedy": "infaas-greedy",
        "replicate-only": "sagemaker",
        "static": "clipper",
    }

    snapshot: Snapshot
    formulation: str = "columns"
    tools: Tools = field(default_factory=Tools)

    @classmethod
    def fits(cls, inputs: Inputs) -> str:
        """Why these files do not ask for variants ("" when they may)."""
        return _why_not(inputs)

    @classmethod
    def from_inputs(
        cls, inputs: Inputs, options: Options, *, formulation: str, tools: Tools, start: Plan | None = None
    ) -> Variants:
        """Read the files; raises `InputError` with every fault found. The state, not a plan, says what runs."""
        from hetplan.problems.variants.wish import read_snapshot

        del start
        snapshot = read_snapshot(inputs, cast(VariantsOptions, options))
        if snapshot.options.size != "planned":
            from hetplan.problems.variants.size import leaving_room_to_wait

            snapshot = leaving_room_to_wait(snapshot)
        return cls(snapshot, formulation, tools)

    def decide(self, ask: Ask) -> Draft | Infeasible:
        """Answer by the chosen formulation."""
        from hetplan.problems.variants.why import impossible

        v = self.snapshot
        if self.formulation not in ("static", "replicate-only") and (reason := impossible(v)) is not None:
            return reason
        if self.formulation in RULES:
            from hetplan.problems.variants.baselines.rules import WAYS
        else:
            from hetplan.problems.variants.ways import WAYS
        way = WAYS[self.formulation]
        if v.options.size == "simulated":
            from hetplan.problems.variants.size import sized

            return sized(v, ask, way, self.tools, self.formulation)
        with collector_at_rest():
            return way(v, ask)


def _why_not(inputs: Inputs) -> str:
    slo = inputs.slo
    if not slo.apps:
        return "there is no application"
    terms = [term.max or term.min for term in slo.objective]
    if terms not in ([], ["cost"]):
        return "variants are scaled at least cost, and the objective says otherwise"
    saturated = any(run.saturation_qps is not None for v in inputs.profile.variants.values() for run in v.runs)
    if not saturated:
        return "no run states its saturation_qps"
    for name, app in slo.apps.items():
        if app.candidates or app.runs is None:
            return f"{name} has candidate plans, which are for packing"
        if app.runs.pipeline is not None:
            return f"{name} runs a pipeline"
        rate = app.demand.rate_qps
        if not isinstance(rate, int | float):
            return f"{name} states no load: demand.rate_qps as a number"
        if app.demand.streams is not None or app.balancing is not None:
            return f"{name} comes in streams, or under a balancing policy"
    return ""
