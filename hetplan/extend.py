"""What a package needs that adds to hetplan: all that it may import beside `hetplan` itself.

`examples/extend/` has a small package with a question, a solver, a dispatch policy and a target.

A formulation is a named way to solve a problem. An entry point of the group ``hetplan.formulations`` names it
``PROBLEM/NAME`` and points to its `Formulation`: its options, and a function that decides. The problem does the rest:
it reads the files, sizes what was chosen and writes the plan, which is verified as all others are. Here is one for
pools: as many machines of the base type as the budget buys.

>>> import hetplan as hp
>>> from hetplan import extend
>>> class OneTypeOptions(extend.PoolOptions):
...     "`one-type`: machines of the base type alone."
>>> def rent_base_only(pool, ask):
...     found = extend.list_affordable(pool, ask, with_base=True)
...     alone = [row for row in found.rows(range(len(found))) if row.sum() == row[pool.base]]
...     rated = extend.rate_at(pool, ask, pool.by_offer(alone[-1]))
...     return extend.Chosen(rated, (extend.unbounded_claim(pool, rated),))
>>> ONE_TYPE = extend.Formulation(OneTypeOptions, rent_base_only)  # "pool/one-type" = "my_package:ONE_TYPE"

A problem as a formulation gets it, to try one by hand:

>>> profile = {"format": "hetplan/profile/1.0", "machines": {"gpu": {"price_per_hour": 1}},
...     "models": {"m": {"runs": {"gpu": {"batch": [1, 8], "mean_ms": [5, 20]}}}}}
>>> slo = {"format": "hetplan/slo/1.0", "limits": {"cost_per_hour": "2.5"}, "apps": {"rank": {
...     "model": "m", "latency": {"p99_ms": 50},
...     "rate_qps": "max", "mix": {"axes": ["batch"], "bins": [[1], [8]], "share": [0.5, 0.5]}}}}
>>> inputs = hp.load(profile, slo)
>>> pool = extend.pose(inputs, extend.choose(inputs, question="pool"))
>>> rent_base_only(pool, extend.Asking([extend.solver("highs")])).rated.counts.tolist()
[2]

====================  ==========================================================================================
what it is for        names
====================  ==========================================================================================
every problem         `Formulation` `Options` `TableOptions` `Sizing`; `Ask` `Answer` `Limits` `Status`; `Draft`
                      `Infeasibility` `Reported`; `Inputs` `Request` `Application` `Tools`; `choose`, `pose` and
                      `Asking` to try one by hand; `certify` an answer; `plan_for` with own tools; `load_profile`,
                      `load_slo`
a question            `read_request` reads SLO and state, `Request.choices` each way to run a model (`Choice`). A
                      `Builder` makes a program (`Milp`) of variables and rows; `rent` adds machines, money and limits
                      for an `Expression` of what it `Uses`. An `Elastic` row may give way; `explain_infeasible` says
                      which. `plan_to_simulate` and `confirm_in_simulation` try a `Draft` within an `ErrorBudget`. It
                      has `Worker`, `Route`, `SharesDispatch`, `Promise`. `Bounding` proves a `Claim` of a `Plan` again;
                      a check returns each `Violation`
pools                 decides by (`Pool`, `Ask`), with `PoolOptions` or `SearchOptions`, a `Chosen`: a `Rated` pool from
                      `rate_at` or `rated_by`; `Configurations` are those that `list_affordable` lists
variants              decides by (`Snapshot`, `Ask`), with `VariantsOptions`, by `plan_instances`: so many of each of
                      `Snapshot.items`, within each `Room` of `capacity_rooms`
policies              decides by (request, `PolicySearch`), with `PolicyOptions`, by `plan_rule`: of each `Group` of
                      workers at each load a `SolvedPolicy`, which `PolicySearch` solves, values and simulates
pipelines             decides by (`Pipelines`, `Ask`), with `PipelineOptions`, a `SolvedPipelines`: servers per
                      configuration of a `PipelineTree` and shares of its `prefixes`; `Formulation.narrow` may leave
                      configurations out before
engines               `Solver` is what one is, `solver` finds one by name. `MilpEngine` is the ancestor of those for
                      programs; it returns a `SolverResult` with `SolverStatus` and `Stop`. `CatalogEngine` asks a
                      `CatalogSearch` for candidates of a `Catalog`, `BlackBoxEngine` a `BlackBoxSearch` for plans of a
                      `BlackBox`
measuring             `measuring` makes an evaluator of a callable, by `Profiler`, `Setup` and a `StopRule`
simulation            `autoscale` with `Replanning` and `OfflineWork` and `next_state`; `allowable_rates` of pools,
                      `simulate_policy`, `simulate_holding`
a target              `Target` is what one is: made from a `Setting`, it runs each `Unit`, tells of each `SeenUnit` its
                      `Endpoint` and how it is, and raises `TargetFailed`
====================  ==========================================================================================

Names load on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hetplan.api.solve import choose, plan_for, pose
    from hetplan.dispatch.pipelines import Host as PipelineHost
    from hetplan.dispatch.pipelines import most_accurate_first
    from hetplan.dispatch.replanning import Replanning
    from hetplan.dispatch.variants import Machine as VariantMachine
    from hetplan.dispatch.variants import (
        OnMachine,
        ProfiledVariant,
        VariantQuery,
        VariantSnapshot,
        VariantState,
        get_variant,
    )
    from hetplan.executor.target import Setting, Target, TargetFailed
    from hetplan.executor.units import Endpoint, Unit
    from hetplan.executor.units import Seen as SeenUnit
    from hetplan.measure.evaluator_profiler import Profiler, Setup, measuring
    from hetplan.measure.sampling import Rule as StopRule
    from hetplan.measure.sampling import Seen as SeenSamples
    from hetplan.measure.sampling import false_stops
    from hetplan.planner.answer import Answer, Limits, Status, Stop
    from hetplan.planner.certify import Bounding
    from hetplan.planner.choices import Choice
    from hetplan.planner.contract import Ask, Solver
    from hetplan.planner.draft import Draft, Infeasibility, Reported
    from hetplan.planner.elastic import explain as explain_infeasible
    from hetplan.planner.forms.black_box import BlackBox, Measured, Past, Verdict
    from hetplan.planner.forms.catalog import Catalog
    from hetplan.planner.forms.form import certify
    from hetplan.planner.forms.milp import Builder, Milp
    from hetplan.planner.forms.packing import Items, Packing
    from hetplan.planner.forms.program import Elastic
    from hetplan.planner.forms.queue_process import Late, QueuePolicy, QueueProcess
    from hetplan.planner.next_state import COUNTERS, next_state
    from hetplan.planner.program import Expression, Uses, rent
    from hetplan.planner.request import Application, Request, read_request
    from hetplan.planner.sizing import ErrorBudget
    from hetplan.planner.solver_calls import Asking
    from hetplan.planner.terms import Formulation, Options, Sizing, TableOptions, Tools
    from hetplan.problems.compound.candidates import candidates_of
    from hetplan.problems.compound.options import CompoundOptions
    from hetplan.problems.compound.packing import packing as packing_form
    from hetplan.problems.compound.pipeline_query import PipelineQuery
    from hetplan.problems.compound.request import Query as CompoundQuery
    from hetplan.problems.compound.request import Tier
    from hetplan.problems.compound.request import Way as CompoundWay
    from hetplan.problems.draft_simulation import plan_to_simulate
    from hetplan.problems.draft_simulation import play_until_clear as confirm_in_simulation
    from hetplan.problems.draft_simulation import with_shown as with_simulated_promises
    from hetplan.problems.pipeline.pipelines import Pipelines
    from hetplan.problems.pipeline.programs import Aim as PipelineGoals
    from hetplan.problems.pipeline.programs import add_groups, add_servers, config_form
    from hetplan.problems.pipeline.request import PipelineOptions
    from hetplan.problems.pipeline.scaling import SLIPS, best_prefixes, serve_part
    from hetplan.problems.pipeline.scaling import Solution as SolvedPipelines
    from hetplan.problems.pipeline.scaling import climb as climb_goals
    from hetplan.problems.pipeline.scaling import polish as route_servers
    from hetplan.problems.pipeline.tree import Level as PipelineLevel
    from hetplan.problems.pipeline.tree import Task as PipelineTask
    from hetplan.problems.pipeline.tree import Tree as PipelineTree
    from hetplan.problems.pipeline.tree import prefixes, without_dominated
    from hetplan.problems.policy.formulations import plan_rule
    from hetplan.problems.policy.group import Group, SolvedPolicy
    from hetplan.problems.policy.options import PaperOptions as RamsisOptions
    from hetplan.problems.policy.options import PolicyOptions
    from hetplan.problems.policy.policy_search import PolicySearch
    from hetplan.problems.policy.request import Models as PolicyModels
    from hetplan.problems.policy.request import capacity_qps
    from hetplan.problems.pool.capacity import ChosenPool as Chosen
    from hetplan.problems.pool.capacity import RatedPool as Rated
    from hetplan.problems.pool.capacity import flows, rate_at
    from hetplan.problems.pool.capacity import rate_by_answer as rated_by
    from hetplan.problems.pool.infeasible import nothing_served
    from hetplan.problems.pool.kairos import (
        Configurations,
        best_rated,
        cheapest_enough,
        configurations,
        eq15_numbers,
        estimate_rates,
        list_affordable,
        missing_base,
        most_similar,
        search_pools,
        serves_all_classes,
        unbounded_claim,
        with_estimate,
    )
    from hetplan.problems.pool.options import PoolOptions, SearchOptions
    from hetplan.problems.pool.program import Pool, rates_of
    from hetplan.problems.variants.formulations import plan_instances
    from hetplan.problems.variants.options import VariantsOptions
    from hetplan.problems.variants.program import Room, capacity_rooms
    from hetplan.problems.variants.request import Snapshot
    from hetplan.profiles.inputs import Inputs
    from hetplan.profiles.load_one import load_profile, load_slo
    from hetplan.profiles.plan import Claim, Plan, Promise, Route, SharesDispatch
    from hetplan.profiles.workers import Worker
    from hetplan.simulator.admission import simulate_holding
    from hetplan.simulator.autoscale import OfflineWork, autoscale
    from hetplan.simulator.policy import PolicyRun, simulate_policy
    from hetplan.simulator.pool import Conditions as PoolConditions
    from hetplan.simulator.pool import Pool as SimulatedPool
    from hetplan.simulator.pool_allowable import AllowableRate, allowable_rates
    from hetplan.simulator.pool_allowable import Search as RateSearch
    from hetplan.solvers.catalog import CatalogEngine, CatalogSearch
    from hetplan.solvers.gaussian_process import LightProcess, expected_improvement
    from hetplan.solvers.milp_engine import Found as SolverResult
    from hetplan.solvers.milp_engine import MilpEngine
    from hetplan.solvers.milp_engine import Word as SolverStatus
    from hetplan.solvers.search import BlackBoxEngine, BlackBoxSearch, Cmbo, StructCi
    from hetplan.solvers.search_beliefs import MakeProcess
    from hetplan.verifier.report import Violation

__all__ = [
    "COUNTERS",
    "SLIPS",
    "AllowableRate",
    "Answer",
    "Application",
    "Ask",
    "Asking",
    "BlackBox",
    "BlackBoxEngine",
    "BlackBoxSearch",
    "Bounding",
    "Builder",
    "Catalog",
    "CatalogEngine",
    "CatalogSearch",
    "Choice",
    "Chosen",
    "Claim",
    "Cmbo",
    "CompoundOptions",
    "CompoundQuery",
    "CompoundWay",
    "Configurations",
    "Draft",
    "Elastic",
    "Endpoint",
    "ErrorBudget",
    "Expression",
    "Formulation",
    "Group",
    "Infeasibility",
    "Inputs",
    "Items",
    "Late",
    "LightProcess",
    "Limits",
    "MakeProcess",
    "Measured",
    "Milp",
    "MilpEngine",
    "OfflineWork",
    "OnMachine",
    "Options",
    "Packing",
    "Past",
    "PipelineGoals",
    "PipelineHost",
    "PipelineLevel",
    "PipelineOptions",
    "PipelineQuery",
    "PipelineTask",
    "PipelineTree",
    "Pipelines",
    "Plan",
    "PolicyModels",
    "PolicyOptions",
    "PolicyRun",
    "PolicySearch",
    "Pool",
    "PoolConditions",
    "PoolOptions",
    "ProfiledVariant",
    "Profiler",
    "Promise",
    "QueuePolicy",
    "QueueProcess",
    "RamsisOptions",
    "RateSearch",
    "Rated",
    "Replanning",
    "Reported",
    "Request",
    "Room",
    "Route",
    "SearchOptions",
    "SeenSamples",
    "SeenUnit",
    "Setting",
    "Setup",
    "SharesDispatch",
    "SimulatedPool",
    "Sizing",
    "Snapshot",
    "SolvedPipelines",
    "SolvedPolicy",
    "Solver",
    "SolverResult",
    "SolverStatus",
    "Status",
    "Stop",
    "StopRule",
    "StructCi",
    "TableOptions",
    "Target",
    "TargetFailed",
    "Tier",
    "Tools",
    "Unit",
    "Uses",
    "VariantMachine",
    "VariantQuery",
    "VariantSnapshot",
    "VariantState",
    "VariantsOptions",
    "Verdict",
    "Violation",
    "Worker",
    "add_groups",
    "add_servers",
    "allowable_rates",
    "autoscale",
    "best_prefixes",
    "best_rated",
    "candidates_of",
    "capacity_qps",
    "capacity_rooms",
    "certify",
    "cheapest_enough",
    "choose",
    "climb_goals",
    "config_form",
    "configurations",
    "confirm_in_simulation",
    "eq15_numbers",
    "estimate_rates",
    "expected_improvement",
    "explain_infeasible",
    "false_stops",
    "flows",
    "get_variant",
    "list_affordable",
    "load_profile",
    "load_slo",
    "measuring",
    "missing_base",
    "most_accurate_first",
    "most_similar",
    "next_state",
    "nothing_served",
    "packing_form",
    "plan_for",
    "plan_instances",
    "plan_rule",
    "plan_to_simulate",
    "pose",
    "prefixes",
    "rate_at",
    "rated_by",
    "rates_of",
    "read_request",
    "rent",
    "route_servers",
    "search_pools",
    "serve_part",
    "serves_all_classes",
    "simulate_holding",
    "simulate_policy",
    "solver",
    "unbounded_claim",
    "with_estimate",
    "with_simulated_promises",
    "without_dominated",
]

_NAMES = {
    "api.solve": "choose plan_for pose",
    "dispatch.pipelines": "Host:PipelineHost most_accurate_first",
    "dispatch.replanning": "Replanning",
    "dispatch.variants": "Machine:VariantMachine OnMachine ProfiledVariant VariantQuery "
    "VariantSnapshot VariantState get_variant",
    "executor.target": "Setting Target TargetFailed",
    "executor.units": "Endpoint Seen:SeenUnit Unit",
    "measure.evaluator_profiler": "Profiler Setup measuring",
    "measure.sampling": "Rule:StopRule Seen:SeenSamples false_stops",
    "planner.answer": "Answer Limits Status Stop",
    "planner.solver_calls": "Asking",
    "planner.certify": "Bounding",
    "planner.choices": "Choice",
    "planner.contract": "Ask Solver",
    "planner.draft": "Draft Infeasibility Reported",
    "planner.elastic": "explain:explain_infeasible",
    "planner.forms.black_box": "BlackBox Measured Verdict Past",
    "planner.forms.catalog": "Catalog",
    "planner.forms.form": "certify",
    "planner.forms.milp": "Builder Milp",
    "planner.forms.packing": "Items Packing",
    "planner.forms.program": "Elastic",
    "planner.forms.queue_process": "Late QueuePolicy QueueProcess",
    "planner.next_state": "COUNTERS next_state",
    "planner.program": "Expression Uses rent",
    "planner.request": "Request Application read_request",
    "planner.sizing": "ErrorBudget",
    "planner.terms": "Formulation Options Sizing TableOptions Tools",
    "problems.compound.options": "CompoundOptions",
    "problems.compound.packing": "packing:packing_form",
    "problems.compound.pipeline_query": "PipelineQuery",
    "problems.compound.candidates": "candidates_of",
    "problems.compound.request": "Query:CompoundQuery Tier Way:CompoundWay",
    "problems.pipeline.programs": "Aim:PipelineGoals add_groups add_servers config_form",
    "problems.pipeline.pipelines": "Pipelines",
    "problems.pipeline.scaling": "SLIPS Solution:SolvedPipelines best_prefixes climb:climb_goals "
    "polish:route_servers serve_part",
    "problems.pipeline.tree": "Level:PipelineLevel Task:PipelineTask Tree:PipelineTree prefixes without_dominated",
    "problems.pipeline.request": "PipelineOptions",
    "problems.policy.policy_search": "PolicySearch",
    "problems.policy.formulations": "plan_rule",
    "problems.policy.group": "Group SolvedPolicy",
    "problems.policy.options": "PolicyOptions PaperOptions:RamsisOptions",
    "problems.policy.request": "capacity_qps Models:PolicyModels",
    "problems.pool.capacity": "ChosenPool:Chosen RatedPool:Rated flows rate_at rate_by_answer:rated_by",
    "problems.pool.infeasible": "nothing_served",
    "problems.pool.kairos": "Configurations best_rated cheapest_enough configurations eq15_numbers estimate_rates "
    "list_affordable missing_base most_similar search_pools serves_all_classes unbounded_claim with_estimate",
    "problems.pool.options": "PoolOptions SearchOptions",
    "problems.pool.program": "Pool rates_of",
    "problems.draft_simulation": "plan_to_simulate play_until_clear:confirm_in_simulation "
    "with_shown:with_simulated_promises",
    "problems.variants.formulations": "plan_instances",
    "problems.variants.options": "VariantsOptions",
    "problems.variants.program": "Room capacity_rooms",
    "problems.variants.request": "Snapshot",
    "profiles.inputs": "Inputs",
    "profiles.load_one": "load_profile load_slo",
    "profiles.plan": "Claim Plan Promise Route SharesDispatch",
    "profiles.workers": "Worker",
    "simulator.autoscale": "OfflineWork autoscale",
    "simulator.admission": "simulate_holding",
    "simulator.policy": "PolicyRun simulate_policy",
    "simulator.pool": "Conditions:PoolConditions Pool:SimulatedPool",
    "simulator.pool_allowable": "AllowableRate Search:RateSearch allowable_rates",
    "solvers.catalog": "CatalogEngine CatalogSearch",
    "solvers.gaussian_process": "LightProcess expected_improvement",
    "solvers.milp_engine": "MilpEngine Found:SolverResult Word:SolverStatus",
    "solvers.search": "BlackBoxEngine BlackBoxSearch Cmbo StructCi",
    "solvers.search_beliefs": "MakeProcess",
    "verifier.report": "Violation",
}
"""Module -> what it hands in; ``NAME:OTHER`` is called OTHER here."""
_WHERE = {one.split(":")[-1]: (module, one.split(":")[0]) for module, names in _NAMES.items() for one in names.split()}


def solver(name: str) -> Solver:
    """An engine by its name, also of another package: for those who ask it themselves, not through a formulation."""
    from hetplan.errors import InputError
    from hetplan.registry import Engines

    found = Engines().find(name)
    if found is None:
        raise InputError.one(
            path="solver", value=name, why="there is no such solver", remedy="See hetplan list solvers."
        )
    return found


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'hetplan.extend' has no attribute {name!r}")
    module, inside = _WHERE[name]
    value = getattr(import_module(f"hetplan.{module}"), inside)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
