"""The question of a policy: which files ask it (given workers, and queries that are alike), and its formulations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, cast

from hetplan.planner.contract import Ask, Obstacle, Options, Tools
from hetplan.problems import infer_problem
from hetplan.problems.applicability import ANOTHER, amount_field
from hetplan.problems.policy.options import PaperOptions, PolicyOptions

if TYPE_CHECKING:
    from hetplan.planner.certify import Bounding
    from hetplan.planner.draft import Draft, Infeasibility
    from hetplan.planner.request import Application, Request
    from hetplan.problems.policy.group import PolicyProblem
    from hetplan.problems.policy.policy_search import PolicySearch
    from hetplan.profiles.inputs import Inputs
    from hetplan.profiles.plan import Claim, Plan

__all__ = ["Policy", "obstacles"]

POLICY_OBJECTIVES = {"quality", "goodput", "violations", "machines"}


def obstacles(request: Request) -> Iterator[Obstacle]:
    """What keeps these files from asking for a policy."""
    terms = set(request.goals)
    if foreign := sorted(terms - POLICY_OBJECTIVES):
        text = f"a policy is judged by quality or goodput, not by {', '.join(foreign)}"
        yield Obstacle(text, "$.objective", 'Write "max goodput".', essential=True)
    own = bool(terms) or any(map(_is_of_a_policy, request.apps.values()))
    if not own and request.change != type(request.change)():
        text = "a policy is for given workers, and plans no change of them"
        yield Obstacle(text, "$.change", "Leave it out, or name the question.", essential=True)
    if not own and _is_of_lone_sizes(request):
        text = "every run states its saturation_qps for one batch size, and a policy decides how large a batch is"
        yield Obstacle(text, "$.models", "Measure each run at two batch sizes.", essential=True, file="profile")
    if request.budget is not None:
        text = "a policy is for given workers, so it has no budget"
        yield Obstacle(text, "$.limits.cost_per_hour", "Leave it out.", essential=not own)
    if not request.instances:
        text = "a policy is for given workers: limits.instances names none"
        yield Obstacle(text, "$.limits.instances", 'Write {"HARDWARE": [1, 8]}.')
    for name, app in request.apps.items():
        at = f"$.apps.{name}"
        if app.pipeline is not None:
            yield Obstacle(f"{name} runs a pipeline", f"{at}.pipeline", ANOTHER, essential=True)
        if app.candidates or app.streams is not None or app.series is not None or app.mix is not None:
            text = f"{name} comes in streams, series, sizes or with candidates; a policy serves queries that are alike"
            yield Obstacle(text, f"{at}.{_unlike_field(app)}", ANOTHER, essential=True)
        if not app.targets:
            text = f"{name} has no response target, so there is no slack to decide by"
            yield Obstacle(text, f"{at}.latency", 'Write {"p99_ms": 150}.')
        if app.trace is None and app.rate_qps is None and app.range_qps is None:
            text = f"{name} has no load; a policy is made for one, or for a range"
            yield Obstacle(text, f"{at}.{amount_field(app)}", 'Write a rate_qps, or {"low": 60, "high": 300}.')
        if app.dispatch is not None and app.balancing is None:
            text = f"{app.dispatch} is no balancer of workers with policies"
            yield Obstacle(text, f"{at}.dispatch", 'Write "round-robin", "shortest-queue" or "random".')
        if not terms and not _is_of_a_policy(app) and len(app.variants) < 2:
            text = f"{name} has one model and states no dispatch"
            yield Obstacle(text, f"{at}.dispatch", 'Write "dispatch": "round-robin".', essential=True)


def _is_of_a_policy(app: Application) -> bool:
    """Whether an application says what only a policy is asked."""
    return app.range_qps is not None or app.balancing is not None


def _is_of_lone_sizes(request: Request) -> bool:
    """Whether every run has a highest rate, and was measured at one batch size."""
    runs = request.choices()
    return bool(runs) and all(
        one.saturation_qps is not None
        and one.is_timed
        and ("batch" not in one.open_axes or len(one.own_table.axes["batch"]) < 2)
        for one in runs
    )


def _unlike_field(app: Application) -> str:
    """The field that makes an application's queries differ."""
    stated = {
        "candidates": app.candidates or None,
        "streams": app.streams,
        "rate_qps.series": app.series,
        "mix": app.mix,
    }
    return next(name for name, one in stated.items() if one is not None)


@dataclass(frozen=True)
class Policy:
    """One question; the package's page has the letters."""

    takes_formulations: ClassVar[bool] = True
    question: ClassVar[str] = "policy"
    formulations: ClassVar[Mapping[str, type[Options]]] = {
        "policy-mdp": PolicyOptions,
        "ramsis": PaperOptions,
    }
    like: ClassVar[Mapping[str, str]] = {
        "policy-mdp": "ramsis",
        "ramsis": "ramsis",
    }

    asked: PolicyProblem
    formulation: str = "policy-mdp"
    tools: Tools = field(default_factory=Tools)

    @classmethod
    def fits(cls, inputs: Inputs) -> tuple[Obstacle, ...]:
        """What keeps these files from asking for a policy."""
        return infer_problem.policy(inputs)

    @classmethod
    def from_inputs(
        cls, inputs: Inputs, options: Options, *, formulation: str, tools: Tools, start: Plan | None = None
    ) -> Policy:
        """Read the files; raises `InputError` with every fault found."""
        from hetplan.problems.policy.group import read_problem

        chosen, can_simulate = cast(PolicyOptions, options), "simulate_policy" in tools.extra
        return cls(read_problem(inputs, chosen, formulation, start, can_simulate=can_simulate), formulation, tools)

    def bounding(self, claim: Claim, plan: Plan) -> Sequence[Bounding] | None:
        """The decision process that a claim of such a plan is about, or the fewest workers that have the time."""
        from hetplan.problems.policy.plan import bounding_of_claim

        return None if self.tools.formulation is not None else bounding_of_claim(self.asked, claim, plan)

    def decide(self, ask: Ask) -> Draft | Infeasibility:
        """The conversation: policies at every load; targets checked; repairs where one is missed."""
        from hetplan.problems.policy.infeasible import slo_too_tight
        from hetplan.problems.policy.policy_search import PolicySearch

        bench = PolicySearch(ask, self.asked.options, self.tools)
        if (reason := slo_too_tight(self.asked, bench)) is not None:
            return reason
        if bench.can_simulate or self.asked.fewest:
            ask.keep(lambda: self._quick_answer(ask))
        return self._answer(self.asked, bench)

    def _answer(self, asked: PolicyProblem, bench: PolicySearch) -> Draft | Infeasibility:
        from hetplan.problems.policy.formulations import best_policies, divide_work, fewest_workers

        if asked.fewest:
            return fewest_workers(asked, bench)
        brought = self.tools.formulation
        if brought is not None and brought.decide is not None:
            planned: Draft | Infeasibility = brought.decide(asked, bench)
            return planned
        return best_policies(asked, bench, divide_work(asked, bench))

    def _quick_answer(self, ask: Ask) -> Draft | Infeasibility:
        """Policies of whole batches at the ends of the range: these are found soon. None is simulated."""
        from hetplan.planner.draft import Draft
        from hetplan.problems.policy.policy_search import WHOLE_BATCHES, PolicySearch

        options = self.asked.options.model_copy(update=WHOLE_BATCHES)
        bench = PolicySearch(ask, options, replace(self.tools, repairs=False, trial=False))
        made = self._answer(replace(self.asked, options=options), bench)
        return replace(made, chosen=WHOLE_BATCHES) if isinstance(made, Draft) else made
