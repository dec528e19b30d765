"""Policies of small queues as the planner makes them, and ways of changing what their plans say."""

from __future__ import annotations

from functools import cache
from typing import Any

from cases.policy import files

from hetplan.api.solve import solve
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.load import load_inputs
from hetplan.profiles.plan import Plan
from hetplan.profiles.plan_policy import PolicyTable, write_runs
from hetplan.verifier.policy import check

Wish = dict[str, Any]
ONE_QUEUE = "one-queue"
"""The formulation of another package, which keeps one queue for all workers."""
OPTIONS = {"queue_max": 4, "grid": "fld{8}", "sizing": "fluid"}


def gamma(shape: float) -> Wish:
    return {"rate_qps": 100.0, "arrivals": {"process": "gamma", "shape": shape}}


WISHES: dict[str, tuple[Wish, Wish, str | None]] = {
    "late are served": ({"late": "serve"}, {}, None),
    "late are dropped": ({"late": "drop", "rate_qps": 400.0}, {"batching": "variable"}, None),
    "all that wait": ({"rate_qps": 300.0}, {"batching": "max"}, None),
    "all that wait, or dropped": ({"late": "drop", "rate_qps": 400.0}, {"batching": "max"}, None),
    "no more than N": ({"rate_qps": 250.0}, {"overflow": "truncate"}, None),
    "as the paper": ({}, {"empty_state": "paper"}, "ramsis"),
    "as the paper, swept": ({}, {"sweeps": 3}, "ramsis"),
    "by decisions": ({}, {"objective": "per_decision"}, None),
    "by decisions, weighed": ({}, {"objective": "per_decision", "reward": "b_over_n"}, None),
    "the shortest queue": ({"dispatch": "shortest-queue"}, {}, None),
    "the shortest queue, much to do": ({"dispatch": "shortest-queue", "rate_qps": 400.0}, {}, None),
    "the shortest queue, too much to do": ({"dispatch": "shortest-queue", "rate_qps": 3000.0}, {}, None),
    # Four at once take the slow model 63 ms.
    "the shortest queue, just in time": ({"dispatch": "shortest-queue", "slo_ms": 63.0}, {}, None),
    "the shortest queue, short of time": ({"dispatch": "shortest-queue", "slo_ms": 60.0}, {}, None),
    "the shortest queue of three": ({"dispatch": "shortest-queue", "rate_qps": 600.0, "workers": (3, 3)}, {}, None),
    "the shortest queue, and drops": ({"dispatch": "shortest-queue", "rate_qps": 800.0, "late": "drop"}, {}, None),
    "hardly anything": ({"rate_qps": 0.5}, {}, None),
    # The model that is fastest on one query is not on two.
    "fast on one, fast on many": ({"models": {"one": (0.6, 1.0, 9.0), "many": (0.75, 8.0, 3.0)}}, {}, None),
    "more regular": (gamma(3.0), {}, None),
    "a bit more regular": (gamma(1.3), {}, None),
    "much more regular": (gamma(500.0), {}, None),
    "much more regular, of more workers": (gamma(500.0) | {"workers": (5, 5)}, {}, None),
    "over a range": ({"rate_qps": {"low": 60.0, "high": 120.0}}, {"accuracy_step": 0.5}, None),
    "far too much": ({"rate_qps": 3000.0}, {}, None),
    "over a network": ({"network_ms_per_hop": 5}, {}, None),
    "one queue for all": ({}, {}, ONE_QUEUE),
}


@cache
def planned(name: str) -> tuple[Plan, Inputs]:
    wish, options, formulation = WISHES[name]
    documents = files(**{"workers": (2, 2), **wish})
    own = None if formulation == ONE_QUEUE else formulation
    plan = solve(*documents, formulation=f"policy/{own}" if own else "policy", options={**OPTIONS, **options}).require()
    return of_one_queue(plan) if formulation == ONE_QUEUE else plan, load_inputs(*documents)


def of_one_queue(plan: Plan) -> Plan:
    """The plan as a rule of another package would make it that keeps one queue for all workers."""
    rule = plan.dispatch["a"].model_copy(update={"balancing": "shared_fifo"})
    method = plan.method.model_copy(update={"formulation": ONE_QUEUE})
    promises = tuple(one for one in plan.promises if not one.model.startswith("stationary"))
    plan = plan.model_copy(
        update={
            "dispatch": {"a": rule},
            "method": method,
            "promises": promises,
            "claims": (),
            "status": "heuristic",
            "summary": None,
        }
    )
    return with_table(plan, expected=None, gain=None)


def named(plan: Plan, inputs: Inputs) -> list[str]:
    return sorted({f"{one.code} @ {one.at}" for one in check(plan, inputs)})


def promised(plan: Plan, quantity: str, **changes: Any) -> Plan:
    changed = tuple(one.model_copy(update=changes) if one.quantity == quantity else one for one in plan.promises)
    return plan.model_copy(update={"promises": changed})


def with_table(plan: Plan, **changes: Any) -> Plan:
    first, *others = plan.policies["a"]
    changed = PolicyTable.model_construct(**{**dict(first), **changes})
    return plan.model_copy(update={"policies": {"a": (changed, *others)}})


def chosen(plan: Plan, waiting: int, slack: int, model: str, batch: int) -> Plan:
    """Another choice of the first table, of which nothing is stated any more."""
    table = plan.policies["a"][0]
    models = [table.models[place] for place in table.model_rows()[waiting - 1]]
    batches = list(table.batch_rows()[waiting - 1])
    models[slack], batches[slack] = model, batch
    return with_table(
        plan,
        choice={**table.choice, str(waiting): write_runs(models)},
        batch={**table.batch, str(waiting): write_runs(batches)},
    )


def by_option(plan: Plan, **options: Any) -> Plan:
    every = {**plan.method.options, **options}
    return plan.model_copy(update={"method": plan.method.model_copy(update={"options": every})})
