"""The question of a pool: which files ask it, and how it is read and answered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, cast

from hetplan.planner.draft import Draft, Infeasibility
from hetplan.planner.request import read_request
from hetplan.planner.terms import Obstacle, Options, Tools
from hetplan.problems import ladder
from hetplan.problems.faults import Faults
from hetplan.problems.pool.letters import Pool
from hetplan.problems.pool.options import Eq15Options, FluidAtOptions, FluidOptions, PoolOptions, SearchOptions
from hetplan.problems.pool.reading import read_columns, read_types, read_wish
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Claim, Notice, Plan

if TYPE_CHECKING:
    from hetplan.planner.certify import Bounding
    from hetplan.planner.contract import Ask

__all__ = ["PoolQuestion"]

_TO_AGREE = {"dispatch", "violation_tolerance"}
"""Options that the files may contradict."""


@dataclass(frozen=True)
class PoolQuestion(Pool):
    """How many instances of which type to rent for one model."""

    takes_formulations: ClassVar[bool] = True
    question: ClassVar[str] = "pool"
    aliases: ClassVar[Sequence[str]] = ("kairos",)
    formulations: ClassVar[Mapping[str, type[Options]]] = {
        "fluid-milp": FluidOptions,
        "fluid-lp": FluidAtOptions,
        "eq15": Eq15Options,
        "kairos-plus": SearchOptions,
    }
    like: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("fluid-milp", "fluid-lp", "eq15"), "kairos"),
        "kairos-plus": "kairos+",
    }

    @classmethod
    def fits(cls, inputs: Inputs) -> tuple[Obstacle, ...]:
        """What keeps these files from asking for a pool."""
        return ladder.pool(inputs)

    @classmethod
    def from_inputs(
        cls, inputs: Inputs, options: Options, *, formulation: str, tools: Tools, start: Plan | None = None
    ) -> PoolQuestion:
        """Read the files; raises `InputError` with every fault found. The program needs no previous plan."""
        del start
        chosen = cast(PoolOptions, options)
        faults, notices = Faults.of(inputs), list[Notice]()
        request = read_request(inputs)
        wish = read_wish(request, faults)
        types, request = read_types(request, wish, faults, notices)
        times = read_columns(wish, types, chosen, faults, notices)
        if wish.rate_qps is not None or inputs.measured is not None or chosen.model_fields_set & _TO_AGREE:
            from hetplan.problems.pool.reading import check_all

            check_all(inputs, wish, types, times, chosen, faults)
        faults.settle()
        return cls(inputs, wish, tuple(types), request, times, chosen, formulation, tools, tuple(notices))

    def bounding(self, claim: Claim, plan: Plan) -> Sequence[Bounding] | None:
        """The programs that bound a claim of such a plan."""
        from hetplan.problems.pool.bounding import bounding

        return bounding(self, claim, plan)

    def decide(self, ask: Ask) -> Draft | Infeasibility:
        """Answer by the chosen formulation."""
        from hetplan.problems.pool.formulations import planned

        return planned(self, ask)
