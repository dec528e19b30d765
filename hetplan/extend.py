"""What a package needs that adds formulations, problems or solvers to hetplan: everything it may import but `hetplan`.

A formulation is a named way to solve a problem. It is a function of the problem and of `Ask`, by which it reaches the
solvers, and an entry point of the group `hetplan.formulations` named ``PROBLEM/NAME`` points to its `Formulation`. The
problem does the rest: it reads the files, sizes what was chosen, writes the plan. Here is one for pools, as the package
of the papers has it: as many machines of the base type as the budget buys.

>>> from hetplan import extend
>>> class FewOptions(extend.PoolOptions):
...     "What may be set about it."
>>> def rent_base_only(pool, ask):
...     found = extend.list_affordable(pool, ask, with_base=True)
...     base = [found.row(i) for i in range(len(found)) if found.row(i).sum() == found.row(i)[pool.base]]
...     rated = extend.rate_at(pool, ask, pool.by_offer(base[-1]))
...     return extend.Chosen(rated, (extend.unbounded_claim(pool, rated),))
>>> FEW = extend.Formulation(FewOptions, rent_base_only)

====================  ==========================================================================================
what it is for        names
====================  ==========================================================================================
every problem         `Formulation` `Options` `Size`; `Ask` `Answer` `Limits` `Status`; `Draft` `Infeasible` `Reported`;
                      `Inputs` `Request` `Tools`
pools                 decides by (`Pool`, `Ask`), with `PoolOptions` or `SearchOptions`, a `Chosen`: a `Rated` pool from
                      `rate_at` or `rated_by`; `Configurations` are those that `list_affordable` lists
variants              decides by (`Snapshot`, `Ask`), with `VariantsOptions`, by `plan_instances`: so many of each of
                      `Snapshot.items`, within each `Room` of `capacity_rooms`
policies              decides by (`Asked`, `Bench`), with `PolicyOptions`, by `plan_rule`: of each `Group` of workers at
                      each load a `SolvedPolicy`, which `Bench` solves, values and simulates
engines for catalogs  `CatalogEngine` asks a `CatalogSearch` for the next candidate of a `Catalog`
plans over time       `autoscale` with `Replanning` and `OfflineWork`; `next_state` of a plan
====================  ==========================================================================================

Names load on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hetplan.dispatch.replanning import Replanning
    from hetplan.measure.evaluator_profiler import Profiler, Setup, measuring
    from hetplan.measure.evaluator_synthetic import SyntheticQuery, draw
    from hetplan.planner.answer import Answer, Limits, Status
    from hetplan.planner.contract import Ask
    from hetplan.planner.draft import Draft, Infeasible, Reported
    from hetplan.planner.forms.black_box import BlackBox, Measured, Verdict
    from hetplan.planner.forms.catalog import Catalog
    from hetplan.planner.forms.queue_process import Late, QueuePolicy, QueueProcess
    from hetplan.planner.next_state import COUNTERS, next_state
    from hetplan.planner.request import Request
    from hetplan.planner.terms import Formulation, Options, Size, Tools
    from hetplan.problems.policy.bench import Bench
    from hetplan.problems.policy.form import Group, SolvedPolicy
    from hetplan.problems.policy.options import PolicyOptions
    from hetplan.problems.policy.rules import plan_rule
    from hetplan.problems.policy.wish import capacity_qps
    from hetplan.problems.pool.eq15 import eq15_numbers, estimate_rates, missing_base, unbounded_claim, with_estimate
    from hetplan.problems.pool.infeasible import nothing_served
    from hetplan.problems.pool.letters import Pool
    from hetplan.problems.pool.listing import (
        Configurations,
        best_rated,
        cheapest_enough,
        list_affordable,
        serves_all_classes,
    )
    from hetplan.problems.pool.options import PoolOptions, SearchOptions
    from hetplan.problems.pool.program import rates_of
    from hetplan.problems.pool.rates import Chosen, Rated, flows, rate_at, rated_by
    from hetplan.problems.pool.search import search_pools
    from hetplan.problems.variants.form import Room, capacity_rooms
    from hetplan.problems.variants.instances import plan_instances
    from hetplan.problems.variants.options import VariantsOptions
    from hetplan.problems.variants.wish import Snapshot
    from hetplan.profiles.inputs import Inputs
    from hetplan.simulator.autoscale import OfflineWork, autoscale
    from hetplan.solvers.catalog import CatalogEngine, CatalogSearch
    from hetplan.solvers.gaussian_process import LightProcess, expected_improvement
    from hetplan.solvers.search import BlackBoxEngine, BlackBoxSearch, Cmbo, StructCi
    from hetplan.solvers.search_beliefs import MakeProcess

__all__ = [
    "COUNTERS",
    "Answer",
    "Ask",
    "Bench",
    "BlackBox",
    "BlackBoxEngine",
    "BlackBoxSearch",
    "Catalog",
    "CatalogEngine",
    "CatalogSearch",
    "Chosen",
    "Cmbo",
    "Configurations",
    "Draft",
    "Formulation",
    "Group",
    "Infeasible",
    "Inputs",
    "Late",
    "LightProcess",
    "Limits",
    "MakeProcess",
    "Measured",
    "OfflineWork",
    "Options",
    "PolicyOptions",
    "Pool",
    "PoolOptions",
    "Profiler",
    "QueuePolicy",
    "QueueProcess",
    "Rated",
    "Replanning",
    "Reported",
    "Request",
    "Room",
    "SearchOptions",
    "Setup",
    "Size",
    "Snapshot",
    "SolvedPolicy",
    "Status",
    "StructCi",
    "SyntheticQuery",
    "Tools",
    "VariantsOptions",
    "Verdict",
    "autoscale",
    "best_rated",
    "capacity_qps",
    "capacity_rooms",
    "cheapest_enough",
    "draw",
    "eq15_numbers",
    "estimate_rates",
    "expected_improvement",
    "flows",
    "list_affordable",
    "measuring",
    "missing_base",
    "next_state",
    "nothing_served",
    "plan_instances",
    "plan_rule",
    "rate_at",
    "rated_by",
    "rates_of",
    "search_pools",
    "serves_all_classes",
    "unbounded_claim",
    "with_estimate",
]

_NAMES = {
    "dispatch.replanning": "Replanning",
    "measure.evaluator_profiler": "Profiler Setup measuring",
    "measure.evaluator_synthetic": "SyntheticQuery draw",
    "planner.answer": "Answer Limits Status",
    "planner.contract": "Ask",
    "planner.draft": "Draft Infeasible Reported",
    "planner.forms.black_box": "BlackBox Measured Verdict",
    "planner.forms.catalog": "Catalog",
    "planner.forms.queue_process": "Late QueuePolicy QueueProcess",
    "planner.next_state": "COUNTERS next_state",
    "planner.request": "Request",
    "planner.terms": "Formulation Options Size Tools",
    "problems.policy.bench": "Bench",
    "problems.policy.form": "Group SolvedPolicy",
    "problems.policy.options": "PolicyOptions",
    "problems.policy.rules": "plan_rule",
    "problems.policy.wish": "capacity_qps",
    "problems.pool.eq15": "eq15_numbers estimate_rates missing_base unbounded_claim with_estimate",
    "problems.pool.infeasible": "nothing_served",
    "problems.pool.letters": "Pool",
    "problems.pool.listing": "Configurations best_rated cheapest_enough list_affordable serves_all_classes",
    "problems.pool.options": "PoolOptions SearchOptions",
    "problems.pool.program": "rates_of",
    "problems.pool.rates": "Chosen Rated flows rate_at rated_by",
    "problems.pool.search": "search_pools",
    "problems.variants.form": "Room capacity_rooms",
    "problems.variants.instances": "plan_instances",
    "problems.variants.options": "VariantsOptions",
    "problems.variants.wish": "Snapshot",
    "profiles.inputs": "Inputs",
    "simulator.autoscale": "OfflineWork autoscale",
    "solvers.catalog": "CatalogEngine CatalogSearch",
    "solvers.gaussian_process": "LightProcess expected_improvement",
    "solvers.search": "BlackBoxEngine BlackBoxSearch Cmbo StructCi",
    "solvers.search_beliefs": "MakeProcess",
}
"""Module -> what it hands in."""
_WHERE = {name: module for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    where = _WHERE.get(name)
    if where is None:
        raise AttributeError(f"module 'hetplan.extend' has no attribute {name!r}")
    value = getattr(import_module(f"hetplan.{where}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
