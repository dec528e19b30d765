r"""Compound queries over tiers: find plans per query with few measurements, then choose one per query (Circinus, 2025).

==========  ====================  ====================================================================================
letter      here                  meaning
==========  ====================  ====================================================================================
i, j        `queries`, `ways`     query (application), plan of it: knobs, a tier and a GPU share per operator
w_i         `Way.weight`          what serving the query is worth
d_ijr       `Way.demand`          what a plan takes of resource r in total; `Way.items`: of single machines
C_r         `totals`              how much there is of it
T_m, L_m    `Tier`                what a GPU of tier m holds, and how many there are; G_m its price
A, L        SLO of the app        least accuracy, most latency (a median unless measured otherwise)
==========  ====================  ====================================================================================

First stage, per query (`compound_search`): propose a plan, measure its accuracy until a test tells on which side of A
it is, learn, propose again; every compliant plan is then cut down to the least GPU shares that keep L. Second stage:
the `Packing` form over all queries: most weight served (goodput), then least cost; or all of them at least cost.
Formulation ``paper`` has the paper's rules as its defaults.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, cast

from hetplan.planner.contract import Ask, Obstacle, Options, Tools
from hetplan.problems import ladder
from hetplan.problems.compound.options import CompoundOptions, PaperOptions

if TYPE_CHECKING:
    from hetplan.planner.draft import Draft, Infeasible
    from hetplan.problems.compound.pipeline import Sought
    from hetplan.problems.compound.ways import Query, Tier
    from hetplan.problems.compound.wish import Wish
    from hetplan.profiles.inputs import Inputs
    from hetplan.profiles.plan import Notice, Plan

__all__ = ["Compound"]


@dataclass(frozen=True)
class Compound:
    """Queries to be served together; see the module for the letters."""

    question: ClassVar[str] = "compound"
    aliases: ClassVar[Sequence[str]] = ("circinus",)
    formulations: ClassVar[Mapping[str, type[Options]]] = {"two-stage": CompoundOptions, "paper": PaperOptions}
    like: ClassVar[Mapping[str, str]] = {"paper": "circinus"}

    inputs: Inputs
    wish: Wish
    tiers: tuple[Tier, ...]
    queries: tuple[Query, ...]
    sought: tuple[Sought, ...]
    totals: Mapping[str, float]
    options: CompoundOptions
    tools: Tools = field(default_factory=Tools)
    start: Plan | None = None
    notices: tuple[Notice, ...] = ()

    @classmethod
    def fits(cls, inputs: Inputs) -> tuple[Obstacle, ...]:
        """What keeps these files from asking for compound plans."""
        return ladder.compound(inputs)

    @classmethod
    def from_inputs(
        cls, inputs: Inputs, options: Options, *, formulation: str, tools: Tools, start: Plan | None = None
    ) -> Compound:
        """Read the files; raises `InputError` with every fault found."""
        from hetplan.problems.compound.pipeline import read_sought
        from hetplan.problems.compound.wish import read_queries, read_tiers, read_wish
        from hetplan.problems.faults import Faults

        del formulation
        chosen = cast(CompoundOptions, options)
        faults = Faults.of(inputs)
        wish = read_wish(inputs, faults)
        tiers = read_tiers(inputs, faults)
        queries, totals, notices = read_queries(inputs, tiers, chosen, faults, start)
        sought = read_sought(inputs, tiers, faults)
        faults.settle()
        return cls(inputs, wish, tiers, queries, sought, totals, chosen, tools, start, notices)

    @property
    def packer(self) -> str:
        """The engine that the options name."""
        if self.options.packing != "greedy":
            return self.options.packing
        if self.options.exhausted == "stop":
            return "greedy-stop"
        return "greedy" if self.options.norm == "best" else f"greedy-{self.options.norm}"

    def decide(self, ask: Ask) -> Draft | Infeasible:
        """Search where plans are not stated, then pack."""
        from hetplan.planner.draft import Infeasible
        from hetplan.problems.compound.draft import draft
        from hetplan.problems.compound.packed import pack
        from hetplan.problems.compound.search import search_all
        from hetplan.problems.compound.wish import waited_before

        stages = search_all(self, ask, lambda app_id: waited_before(self.start, app_id))
        queries = (*self.queries, *(stage.query for stage in stages))
        notices = (*self.notices, *(notice for stage in stages for notice in stage.notices))
        broken = [stage.broken for stage in stages if stage.broken is not None]
        cancelled = ask.limits.cancel is not None and ask.limits.cancel.is_set()
        if broken and not cancelled and (self.wish.sense == "min" or not any(query.ways for query in queries)):
            raise broken[0]
        if stages and not any(query.ways for query in queries):
            return Infeasible(
                why=tuple(f"{query.app_id}: {query.why_none}" for query in queries), proved=False, warnings=notices
            )
        packed = pack(self, ask, queries)
        if isinstance(packed, Infeasible):
            return packed
        return draft(self, queries, packed, notices)
