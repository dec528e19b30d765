"""The decision processes that bound what a plan of policies claims."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

from hetplan.planner.certify import Bounding
from hetplan.planner.forms.mdp import Criterion
from hetplan.problems.policy.form import Asked, Group
from hetplan.profiles.plan import Claim, Plan
from hetplan.profiles.plan_policy import PolicyTable

__all__ = ["bounding"]


def bounding(asked: Asked, claim: Claim, plan: Plan) -> Sequence[Bounding] | None:
    """The process of the tables that a claim names; all are of one group at one load."""
    found = [(app, PolicyTable.model_validate(one)) for app, tables in plan.policies.items() for one in tables]
    groups = [(_group(asked, plan, app, table), table) for app, table in found]
    if (claim.about, claim.sense) == ("servers", "min"):
        from hetplan.problems.policy.why import fewest_possible

        alone = claim.scope == "relaxation" and bool(groups)
        top = max((group.loads_qps[-1] for group, _ in groups), default=0.0)
        return [Bounding(bound=float(fewest_possible(_kept(groups[0][0]), top)))] if alone else []
    if (claim.sense, claim.scope) != ("max", "model"):
        return []
    about, _, named = claim.about.partition("[")
    mine = [(group, table) for group, table in groups if named in ("", f"{group.id}@{group.loads_qps[-1]:g}qps]")]
    if not mine or (not named and len({one.loads_qps for one, _ in mine}) > 1):
        return []
    group, table = mine[0]
    if asked.options.rates == "fitted" and group.wish.balancing == "shortest_queue":
        return None  # its arrivals were fitted to a simulation
    form = group.form(group.loads_qps[-1], asked.options, batching=table.batching)
    wanted = "goodput" if asked.options.objective == "per_query" else "accuracy_per_decision"
    wanted = f"accuracy_of_{form.horizon}_decisions" if form.criterion is Criterion.HORIZON else wanted
    said = f"over all policies of {form.batching} batches on {form.slacks} slacks"
    return [Bounding(form, of_plans=True)] if about == wanted and (claim.note or "").startswith(said) else []


def _group(asked: Asked, plan: Plan, app: str, table: PolicyTable) -> Group:
    """The group of a table, at the table's load: all like workers of the application, unless groups are by offers."""
    workers = {one.id: one for one in plan.workers}
    own = workers[table.workers]
    group = next(
        one
        for one in asked.groups()
        if (one.wish.app.id, one.models.hardware) == (app, own.hardware) and one.offer in (None, own.offer)
    )
    count = own.count
    if group.offer is None:
        tables = [PolicyTable.model_validate(one) for one in plan.policies[app]]
        mine = {one.workers for one in tables if workers[one.workers].hardware == own.hardware}
        count = sum(workers[name].count for name in mine)
    models = group.models
    if models.names != table.models:
        # Fewer models bound less. Only a set that fits no more beside it may be held.
        kept = [models.names.index(name) for name in table.models]
        if sorted(kept) not in [sorted(one) for one in models.sets]:
            raise ValueError(f"workers for {app} hold other models than the files say")
        models = models.only(kept)
    balancing = cast(Any, plan.dispatch[app]).balancing
    load = float(f"{table.rate_qps * count / own.count:.12g}")
    wish = replace(group.wish, balancing=balancing)
    return replace(group, wish=wish, models=models, workers=count, loads_qps=(load,))


def _kept(group: Group) -> Group:
    """What is looked for are the fewest workers that leave no more late than the percentile does."""
    if group.wish.violation_most is not None:
        return group
    return replace(group, wish=replace(group.wish, violation_most=group.wish.left))
