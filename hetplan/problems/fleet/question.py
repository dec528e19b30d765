"""The question `fleet`: reads its files and answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, cast

from hetplan.errors import Interrupted
from hetplan.planner.contract import Ask, Obstacle, Options, Tools
from hetplan.problems import infer_problem
from hetplan.problems.faults import Faults
from hetplan.problems.fleet.request import FleetOptions

if TYPE_CHECKING:
    from hetplan.planner.certify import Bounding
    from hetplan.planner.draft import Draft, Infeasibility
    from hetplan.planner.fleet_part import Part
    from hetplan.problems.draft_simulation import Played
    from hetplan.problems.fleet.formulations import Found
    from hetplan.problems.fleet.request import FleetRequest
    from hetplan.problems.fleet.sharing import Play
    from hetplan.profiles.inputs import Inputs
    from hetplan.profiles.plan import Claim, Plan
    from hetplan.profiles.plan_parts import Part as PlanPart

__all__ = ["FleetQuestion"]

PLAYED = ("question", "method", "workers", "routing", "dispatch", "tables", "valid")
"""What a simulation reads of a part."""


@dataclass(frozen=True)
class FleetQuestion:
    """Machines of several applications over time; the package's page has the letters and the mathematics."""

    question: ClassVar[str] = "fleet"
    formulations: ClassVar[Mapping[str, type[Options]]] = {"fleet": FleetOptions}
    like: ClassVar[Mapping[str, str]] = {}

    wish: FleetRequest
    tools: Tools = field(default_factory=Tools)
    sharing: Sequence[str] | None = None
    """The questions whose applications share machines in slices; None: all that can."""

    @classmethod
    def fits(cls, inputs: Inputs) -> tuple[Obstacle, ...]:
        """What keeps these files from asking for a fleet."""
        return infer_problem.fleet(inputs)

    @classmethod
    def from_inputs(
        cls, inputs: Inputs, options: Options, *, formulation: str, tools: Tools, start: Plan | None = None
    ) -> FleetQuestion:
        """Read the files; raises `InputError` with every fault found. Nothing is taken from a previous plan."""
        from hetplan.problems.fleet.request import read_fleet

        del formulation, start
        wish = read_fleet(inputs, cast(FleetOptions, options), Faults.of(inputs))
        return cls(replace(wish, explains=tools.explains), tools)

    def bounding(self, claim: Claim, plan: Plan) -> Sequence[Bounding]:
        """What bounds a claim of such a plan."""
        from hetplan.problems.fleet.bounds import bounding

        return bounding(self.wish, self.tools, claim, plan)

    def lost_too_much(self, plan: Plan) -> Iterator[tuple[str, str]]:
        """Where single machines that are shared may be lost, and what is left carries too little, and why."""
        from hetplan.problems.fleet.bounds import lost_too_much

        return lost_too_much(self.wish, self.tools, plan)

    def decide(self, ask: Ask) -> Draft | Infeasibility:
        """Prices and menus, then whole machines, then each part by its own question; pools get room to wait."""
        from hetplan.planner.draft import Infeasibility, without_bound
        from hetplan.problems.fleet.after_failure import with_slow_pipelines, with_standby_loads
        from hetplan.problems.fleet.bounds import with_bound
        from hetplan.problems.fleet.draft import draft_fleet
        from hetplan.problems.fleet.first_fleet import keep_first
        from hetplan.problems.fleet.formulations import (
            BESIDE,
            is_quick,
            is_small,
            part_of,
            parts_of,
            planner_of,
            with_margins,
            with_parts_replanned,
        )
        from hetplan.problems.fleet.infeasible import with_reason_of_problem
        from hetplan.problems.fleet.max_objectives import best_fleet_of_period, needs_levels
        from hetplan.problems.fleet.savings import SavingsPlanner, savings_of
        from hetplan.problems.fleet.search import is_over
        from hetplan.problems.fleet.sharing import (
            ALONE,
            bounding_less,
            cheapest_sharing,
            in_slices,
            is_unseen,
            on_machines,
            with_fewer_slices,
            with_sharing,
        )
        from hetplan.problems.fleet.sizing import Answers, with_own_machines, with_room

        between = needs_levels(self.wish)
        if self.wish.goal == "cost" and not self.tools.trial:
            keep_first(self.wish, self.tools, ask)
        whole = {} if between else parts_of(self.wish, self.tools)
        asked, parts = in_slices(self.wish, whole, self.tools, self.sharing)
        unplayed = self.tools.trial and not is_quick(self.wish, whole)
        asked = with_margins(asked, parts) if unplayed else asked

        def as_drafted(found: Found) -> Draft:
            return draft_fleet(with_slow_pipelines(on_machines(found, parts), parts), (), parts)

        def answer(wish: FleetRequest, last: Found | None) -> tuple[Found, Mapping[str, Part]] | Infeasibility:
            if between:
                return best_fleet_of_period(wish, lambda files, app: part_of(files, app, self.tools), ask)
            planned = planner_of(parts, ask)(wish, last)
            if isinstance(planned, Infeasibility):
                return planned
            found = planned[0]
            settled = found if found.parts or is_over(ask) else with_parts_replanned(found, parts)
            if settled is not None and settled.parts:
                made = without_bound(as_drafted(settled))  # at once: it may ask for plans of parts
                ask.keep(lambda: made, rank=(1,), value=settled.cost_per_hour)
            return planned

        answers: Answers = {}
        over, nearer = (lambda: unplayed or is_over(ask)), not self.tools.trial
        best = with_room(asked, answer, over, answers=answers, nearer=nearer)
        if isinstance(best, Infeasibility) and not (between or unplayed or is_over(ask)):
            best = with_own_machines(best, asked, parts, answer, answers)
        tables = any(parts[name].question in BESIDE for name in asked.slices)
        if isinstance(best, Infeasibility) and tables and not is_over(ask):
            # By their own plans variants and pipelines may do with what slices refuse.
            return replace(self, sharing=ALONE).decide(ask)
        if isinstance(best, Infeasibility):
            return with_reason_of_problem(best, self.wish, whole) if self.tools.repairs else best
        done, played = best, not is_over(ask)

        def kept() -> Draft:
            joined = bounding_less(on_machines(*done), done[1])
            return draft_fleet(with_slow_pipelines(joined, done[1]), (), done[1])

        ask.keep(kept, simulated=played)
        if not played and self.wish.options.sizing == "simulation" and not unplayed:
            raise Interrupted("the time limit ended before the applications were simulated")
        hurried = self.tools.trial or is_over(ask)
        if asked is not self.wish and (best[0].wish.given_room or is_small(self.wish)) and not hurried:
            with suppress(Interrupted):
                for fewer, own in with_fewer_slices(asked, self.wish, whole, self.tools):
                    best = cheapest_sharing(best, fewer, own, ask, lambda one: with_sharing(on_machines(*one), one[1]))
        best = with_bound(best, asked, {} if between or hurried else parts, ask)
        wanted = self.wish.options.savings and self.wish.periods > 1 and not hurried
        joined = on_machines(*best) if hurried else with_sharing(on_machines(*best, self._play(ask)), best[1])
        if tables and not (hurried or is_over(ask)) and is_unseen(joined):
            # On machines that are shared some are late, or were not played: they have their own then.
            apart = replace(self, sharing=ALONE).decide(ask)
            if not isinstance(apart, Infeasibility):
                return apart
        joined = bounding_less(joined, best[1])
        joined = with_slow_pipelines(with_standby_loads(joined, best[1]), best[1])
        by = SavingsPlanner(self.wish, whole, ask, self.tools, answers if asked is self.wish else {})
        levers, made = savings_of(best, joined, by) if wanted else ((), {})
        return replace(draft_fleet(joined, levers, best[1]), ways=made)

    def _play(self, ask: Ask) -> Play | None:
        """Who plays a part on machines that it shares; nobody without a simulator."""
        from hetplan.planner.sizing import ErrorBudget
        from hetplan.problems.draft_simulation import QUERIES, Played, play_length_s, play_until_clear
        from hetplan.profiles.plan import InputHashes, Plan
        from hetplan.profiles.plan_periods import inputs_of_part

        simulate = self.tools.extra.get("simulate_plan")
        if simulate is None:
            return None

        def played(part: PlanPart) -> Played:
            plan = Plan(
                requires=tuple(sorted({one.rule for one in part.dispatch.values()})),
                inputs=InputHashes(profile="", slo=""),
                **{name: getattr(part, name) for name in PLAYED},
            )
            inputs, budget = inputs_of_part(self.wish.inputs, part.rate_qps), ErrorBudget(ask.limits.seed)
            rates = {app: rate for app, rate in part.rate_qps.items() if rate > 0}
            if not rates:
                return Played(0.0, ())
            length_s = play_length_s(inputs, rates, QUERIES)
            return play_until_clear(
                simulate, plan, inputs, budget, apps=tuple(rates), length_s=length_s,
                may_go_on=lambda: ask.remaining > 0,
            )  # fmt: skip

        return played
