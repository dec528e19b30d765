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
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, cast

import numpy as np

from hetplan.errors import NoSolver
from hetplan.planner.answer import Answer, Status
from hetplan.planner.contract import Ask, Options, Tools
from hetplan.planner.draft import Draft, Infeasible
from hetplan.planner.forms.packing import Choice, Packing
from hetplan.planner.plan import Notice
from hetplan.problems.compound_options import CompoundOptions, PaperOptions
from hetplan.problems.compound_pipeline import Sought, read_sought
from hetplan.problems.compound_search import search_all
from hetplan.problems.compound_ways import Query, Tier, packing
from hetplan.problems.compound_wish import Wish, read_queries, read_tiers, read_wish, waited_before, why_not_compound
from hetplan.problems.pool_wish import Faults

if TYPE_CHECKING:
    from hetplan.planner.plan import Plan
    from hetplan.profiles.inputs import Inputs

__all__ = ["Compound", "Packed"]

GAP = 2e-3
"""The default gap of a packing."""


@dataclass(frozen=True)
class Packed:
    """All queries packed: the forms asked, the choice, and the answers that back value and cost."""

    form: Packing
    choice: Choice
    answer: Answer[Choice]
    cost: tuple[Packing, Answer[Choice]] | None = None


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
    def fits(cls, inputs: Inputs) -> str:
        """Why these files do not ask for compound plans ("" when they may)."""
        return why_not_compound(inputs)

    @classmethod
    def from_inputs(
        cls, inputs: Inputs, options: Options, *, formulation: str, tools: Tools, start: Plan | None = None
    ) -> Compound:
        """Read the files; raises `InputError` with every fault found."""
        del formulation
        chosen = cast(CompoundOptions, options)
        faults = Faults.of(inputs)
        wish = read_wish(inputs, faults)
        tiers = read_tiers(inputs, faults)
        queries, totals, notices = read_queries(inputs, tiers, chosen, faults, start)
        sought = read_sought(inputs, tiers, faults)
        faults.settle()
        return cls(inputs, wish, tiers, queries, sought, totals, chosen, tools, start, notices)

    def form(self, queries: Sequence[Query]) -> Packing:
        """The packing of these queries by the wished objective."""
        return packing(queries, self.tiers, self.totals, sense=self.wish.sense, aging=self.options.aging)

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
        from hetplan.problems.compound_draft import draft

        stages = search_all(self, ask, lambda app_id: waited_before(self.start, app_id))
        queries = (*self.queries, *(stage.query for stage in stages))
        notices = (*self.notices, *(notice for stage in stages for notice in stage.notices))
        if stages and not any(query.ways for query in queries):
            return Infeasible(why=tuple(f"{query.app_id}: {query.why_none}" for query in queries), proved=False)
        packed = self.pack(ask, queries)
        if isinstance(packed, Infeasible):
            return packed
        return draft(self, queries, packed, notices)

    def pack(self, ask: Ask, queries: Sequence[Query]) -> Packed | Infeasible:
        """One way per query, by the objective."""
        from hetplan.problems.compound_short import short

        form = self.form(queries)
        about = "most weight served" if form.sense == "max" else "all served at least cost"
        answer = ask(form, gap=GAP, about=about, solver=self.packer)
        if form.sense == "min" and answer.point is None and answer.status is not Status.INFEASIBLE:
            answer = self._exactly(ask, form, answer)
        if answer.status is Status.INFEASIBLE or (form.sense == "min" and answer.point is None):
            return short(self, ask, form, queries, proved=answer.status is Status.INFEASIBLE)
        if answer.point is None:
            return Infeasible(why=(f"no packing was found: {answer.stop}",), proved=False)
        packed = Packed(form, answer.point, answer)
        priced = any(way.price > 0 for query in queries for way in query.ways) or (
            form.items is not None and bool(form.items.price.any())
        )
        if self.wish.then_cheapest and priced and (answer.point.option >= 0).any():
            return self._then_cheapest(ask, queries, packed)
        return packed

    def _exactly(self, ask: Ask, form: Packing, answer: Answer[Choice]) -> Answer[Choice]:
        """Where a heuristic found no way to serve all, the whole program says whether there is one."""
        try:
            return ask(form, gap=GAP, about="whether all can be served", solver="exact")
        except NoSolver:
            return answer

    def _then_cheapest(self, ask: Ask, queries: Sequence[Query], packed: Packed) -> Packed:
        """The same queries served by ways of the same weight, at least cost."""
        served = [i for i, option in enumerate(packed.choice.option) if option >= 0]
        kept: list[list[int]] = []
        for i in served:
            weight = queries[i].ways[int(packed.choice.option[i] - packed.form.first[i])].weight
            kept.append([j for j, way in enumerate(queries[i].ways) if way.weight >= weight])
        fewer = [
            replace(queries[i], ways=tuple(queries[i].ways[j] for j in ways))
            for i, ways in zip(served, kept, strict=True)
        ]
        form = packing(fewer, self.tiers, self.totals, sense="min")
        begin = _within(packed, form, served, kept)
        answer = ask(form, start=begin, gap=GAP, about="the same queries at least cost", solver=self._cheaper)
        if answer.point is None:
            return packed
        option = np.full(packed.choice.option.size, -1, dtype=np.int64)
        machine = None if packed.choice.machine is None else np.full(packed.choice.machine.size, -1, dtype=np.int64)
        for k, i in enumerate(served):
            small = int(answer.point.option[k])
            option[i] = packed.form.first[i] + kept[k][small - int(form.first[k])]
            if machine is not None and form.items is not None and packed.form.items is not None:
                assert answer.point.machine is not None
                begin_at, from_at = packed.form.items.first[option[i]], form.items.first[small]
                count = int(form.items.first[small + 1] - from_at)
                machine[begin_at : begin_at + count] = answer.point.machine[from_at : from_at + count]
        return Packed(packed.form, Choice(option, machine), packed.answer, (form, answer))

    @property
    def _cheaper(self) -> str:
        return self.packer if self.packer in ("dual", "exact", "exact-cp-sat") else "dual"


def _within(packed: Packed, form: Packing, served: list[int], kept: list[list[int]]) -> Choice:
    """A choice of all queries, as one of those served alone."""
    option = np.full(len(served), -1, dtype=np.int64)
    machine = None if form.items is None else np.full(form.items.tier.size, -1, dtype=np.int64)
    for k, i in enumerate(served):
        chosen = int(packed.choice.option[i])
        option[k] = form.first[k] + kept[k].index(chosen - int(packed.form.first[i]))
        if machine is not None and form.items is not None and packed.form.items is not None:
            assert packed.choice.machine is not None
            begin, end = packed.form.items.first[chosen], packed.form.items.first[chosen + 1]
            at = int(form.items.first[option[k]])
            machine[at : at + end - begin] = packed.choice.machine[begin:end]
    return Choice(option, machine)
