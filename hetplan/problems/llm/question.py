"""The question `llm`: reads its files and answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, cast

from hetplan.errors import InputError
from hetplan.planner.contract import Ask, Obstacle, Options, Tools
from hetplan.problems import infer_problem
from hetplan.problems.llm.options import LlmOptions

if TYPE_CHECKING:
    import numpy as np

    from hetplan.planner.answer import Answer
    from hetplan.planner.certify import Bounding
    from hetplan.planner.draft import Draft, Infeasibility
    from hetplan.planner.forms.milp import Milp
    from hetplan.problems.llm.request import TextRequest
    from hetplan.profiles.inputs import Inputs
    from hetplan.profiles.plan import Claim, Plan

__all__ = ["LlmQuestion"]

ANY, TPOT = "any schedule", "mean iteration within tpot"


@dataclass(frozen=True)
class LlmQuestion:
    """One fleet that makes text; `program` has the letters and the mathematics."""

    question: ClassVar[str] = "llm"
    formulations: ClassVar[Mapping[str, type[Options]]] = {"llm-milp": LlmOptions}
    like: ClassVar[Mapping[str, str]] = {}

    wish: TextRequest
    tools: Tools = field(default_factory=Tools)

    @classmethod
    def fits(cls, inputs: Inputs) -> tuple[Obstacle, ...]:
        """What keeps these files from asking for a fleet that makes text."""
        return infer_problem.llm(inputs)

    @classmethod
    def from_inputs(
        cls, inputs: Inputs, options: Options, *, formulation: str, tools: Tools, start: Plan | None = None
    ) -> LlmQuestion:
        """Read the files; raises `InputError` with every fault found."""
        from hetplan.problems.llm.request import read_text_request

        del formulation, start
        return cls(read_text_request(inputs, cast(LlmOptions, options)), tools)

    def decide(self, ask: Ask) -> Draft | Infeasibility:
        """Bound by the program, then size: by the program with headroom, or by simulation upward from the bound."""
        from hetplan.planner.answer import Status
        from hetplan.planner.elastic import explain
        from hetplan.problems.llm.infeasible import (
            explain_none_in_time,
            explain_too_few,
            unreachable_limit,
            with_trials,
        )
        from hetplan.problems.llm.plan import draft_plan
        from hetplan.problems.llm.sizing import capped, judge_of, size_fleet

        wish, options = self.wish, self.wish.options
        played = options.sizing == "simulation"
        if not played and wish.rule != "least-work/1":
            raise InputError.one(
                file="options", path="sizing", value=options.sizing,
                why=f"the program sizes hetplan's router; what {wish.app.dispatch} carries is simulated",
                remedy='Set it to "simulation", or leave dispatch out.',
            )  # fmt: skip
        if played and not {"play_tokens", "draw_tokens"} <= set(self.tools.extra):
            raise InputError.one(
                file="options", path="sizing", value=options.sizing, why="no simulator of tokens was handed in",
                remedy='Hand in Tools(extra={"play_tokens": ..., "draw_tokens": ...}), or write "fluid".',
            )  # fmt: skip
        judge = judge_of(wish, self.tools, ask.limits.seed, lambda: ask.remaining > 0) if played else None
        if (reason := unreachable_limit(wish)) is not None:
            return reason if judge is None else with_trials(wish, reason)
        bounds: dict[str, Answer[np.ndarray]] = {}
        if judge is not None:
            ask.keep(lambda: self._planned(ask, bounds))
        what = self._bounding(ANY)
        bounds[ANY] = ask(what, gap=1e-6, about=f"least cost of {ANY}")
        if bounds[ANY].status is Status.INFEASIBLE:
            said = explain(what, ask)
            return said if judge is None else explain_too_few(wish, judge, ask, said)
        bounds[TPOT] = ask(self._bounding(TPOT), gap=1e-6, about=f"least cost of {TPOT}")
        if judge is None:
            return self._planned(ask, bounds)
        least = max(float(bounds[ANY].bound or 0.0), 1e-9)
        found, tried = size_fleet(judge, ask, least, any_will_do=self.tools.trial)
        if found is None:
            return explain_none_in_time(wish, judge, ask, least, tried)
        return draft_plan(wish, found if self.tools.trial else capped(judge, ask, found), bounds, tried=tried)

    def bounding(self, claim: Claim, plan: Plan) -> Sequence[Bounding]:
        """The programs that bound a claim of such a plan: the least cost of any schedule."""
        from hetplan.planner.certify import Bounding

        del plan
        known = (claim.about, claim.sense, claim.scope) == ("cost_per_hour", "min", "relaxation")
        return [Bounding(self._bounding(ANY))] if known else []

    def _bounding(self, name: str) -> Milp:
        """The program of any schedule, or of those whose mean iteration is within the limit per token."""
        from hetplan.problems.llm.program import program

        mean = name == TPOT
        late = self.wish.options.allow_late if mean else 1.0
        return program(self.wish, mean_tpot=mean, allow_late=late).build()

    def _planned(self, ask: Ask, bounds: dict[str, Answer[np.ndarray]]) -> Draft | Infeasibility:
        """The program at a higher rate, under slower laws."""
        from hetplan.planner.answer import Status
        from hetplan.planner.elastic import explain
        from hetplan.problems.llm.plan import draft_plan
        from hetplan.problems.llm.program import cheapest_at_once, is_empty, program
        from hetplan.problems.llm.sizing import planned_fleet, room_at_once

        for name in (ANY, TPOT):
            if name not in bounds:
                bounds[name] = ask(self._bounding(name), gap=1e-6, about=f"least cost of {name}")
        wish = self.wish
        room = room_at_once(wish) if wish.options.sizing == "formula" else wish.options.headroom
        slower = wish.slower(1.5)
        with_room = wish.with_rate(wish.rate_qps * (1.0 + room))
        what = program(with_room, mean_tpot=wish.options.is_firm, allow_late=wish.options.allow_late, laws=slower)
        form = what.build()
        answer = ask(form, gap=1e-6, about="least cost with headroom")
        point = answer.point
        if answer.status is not Status.INFEASIBLE and (answer.status is not Status.OPTIMAL or is_empty(wish, point)):
            point = cheapest_at_once(what, form, point, ask)
        if point is None:
            return explain(form, ask)
        found = planned_fleet(with_room, point, slower)
        sizing = "formula" if wish.options.sizing == "formula" else "fluid"
        return replace(draft_plan(wish, found, bounds, room=room), chosen={"sizing": sizing})
