"""The question `policy`: reads its files and answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, cast

from hetplan.planner.contract import Ask, Obstacle, Options, Tools
from hetplan.problems import ladder
from hetplan.problems.policy.options import FewestOptions, PaperOptions, PolicyOptions

if TYPE_CHECKING:
    from hetplan.planner.certify import Bounding
    from hetplan.planner.draft import Draft, Infeasibility
    from hetplan.problems.policy.bench import Bench
    from hetplan.problems.policy.form import Asked
    from hetplan.profiles.inputs import Inputs
    from hetplan.profiles.plan import Claim, Plan

__all__ = ["Policy"]


@dataclass(frozen=True)
class Policy:
    """One question; the package's page has the letters."""

    takes_formulations: ClassVar[bool] = True
    question: ClassVar[str] = "policy"
    aliases: ClassVar[Sequence[str]] = ("ramsis",)
    formulations: ClassVar[Mapping[str, type[Options]]] = {
        "per-query": PolicyOptions,
        "paper": PaperOptions,
        "fewest-workers": FewestOptions,
    }
    like: ClassVar[Mapping[str, str]] = {
        "per-query": "ramsis",
        "paper": "ramsis",
        "fewest-workers": "ramsis",
    }

    asked: Asked
    formulation: str = "per-query"
    tools: Tools = field(default_factory=Tools)

    @classmethod
    def fits(cls, inputs: Inputs) -> tuple[Obstacle, ...]:
        """What keeps these files from asking for a policy."""
        return ladder.policy(inputs)

    @classmethod
    def from_inputs(
        cls, inputs: Inputs, options: Options, *, formulation: str, tools: Tools, start: Plan | None = None
    ) -> Policy:
        """Read the files; raises `InputError` with every fault found."""
        from hetplan.problems.policy.form import read_asked

        chosen, can_simulate = cast(PolicyOptions, options), "simulate_policy" in tools.extra
        return cls(read_asked(inputs, chosen, formulation, start, can_simulate=can_simulate), formulation, tools)

    def bounding(self, claim: Claim, plan: Plan) -> Sequence[Bounding] | None:
        """The decision process that a claim of such a plan is about, or the fewest workers that have the time."""
        from hetplan.problems.policy.bounding import bounding

        return None if self.tools.formulation is not None else bounding(self.asked, claim, plan)

    def decide(self, ask: Ask) -> Draft | Infeasibility:
        """The conversation: policies at every load; targets checked; repairs where one is missed."""
        from hetplan.problems.policy.bench import Bench
        from hetplan.problems.policy.why import too_tight

        bench = Bench(ask, self.asked.options, self.tools)
        if (reason := too_tight(self.asked, bench)) is not None:
            return reason
        if bench.can_simulate or self.asked.fewest:
            ask.keep(lambda: self._unplayed(ask))
        return self._answered(self.asked, bench)

    def _answered(self, asked: Asked, bench: Bench) -> Draft | Infeasibility:
        from hetplan.problems.policy.ways import best_policies, divided, fewest_workers

        if asked.fewest:
            return fewest_workers(asked, bench)
        brought = self.tools.formulation
        if brought is not None and brought.decide is not None:
            planned: Draft | Infeasibility = brought.decide(asked, bench)
            return planned
        return best_policies(asked, bench, divided(asked, bench))

    def _unplayed(self, ask: Ask) -> Draft | Infeasibility:
        """Policies of whole batches at the ends of the range: these are found soon. None is simulated."""
        from hetplan.planner.draft import Draft
        from hetplan.problems.policy.bench import WHOLE_BATCHES, Bench

        options = self.asked.options.model_copy(update=WHOLE_BATCHES)
        bench = Bench(ask, options, replace(self.tools, repairs=False, trial=False))
        made = self._answered(replace(self.asked, options=options), bench)
        return replace(made, chosen=WHOLE_BATCHES) if isinstance(made, Draft) else made
