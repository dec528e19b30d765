"""The generic check of a plan, whatever its question: everything that arithmetic can recompute from the inputs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Plan
from hetplan.profiles.validate import collector_at_rest
from hetplan.verifier.actions import check_actions
from hetplan.verifier.facts import Facts, check_options, gather
from hetplan.verifier.flow import Flow, why_not_followed
from hetplan.verifier.follow import follow
from hetplan.verifier.promises import (
    Computed,
    check_claims,
    check_extrapolation,
    check_promises,
    not_recomputed,
    plan_figures,
    worst_of,
)
from hetplan.verifier.references import check_header, check_inputs, check_references, check_tables
from hetplan.verifier.report import Report, Violation
from hetplan.verifier.resources import check_cost, check_resources, not_provided
from hetplan.verifier.wanted import (
    asked,
    check_capacity,
    check_demand,
    check_late,
    check_latency,
    declined,
    largest_rates,
)

if TYPE_CHECKING:
    from hetplan.verifier.claims_again import ClaimAgain

__all__ = ["QuestionCheck", "Report", "Violation", "verify_plan"]

QuestionCheck = Callable[[Plan, Inputs], list[Violation]]

CHECKS = "inputs references options resources cost tables serving promises claims actions"
"""What is checked of every plan, in order."""

_NOTHING = Computed({"rate_qps": 0.0, "fluid_rate_qps": 0.0})
"""What an application gets that is not served."""


def verify_plan(
    plan: Plan, inputs: Inputs, question_check: QuestionCheck | None = None, *, proofs: bool = True, exact: bool = True
) -> Report:
    """Recompute what a plan says from profile, SLO and state; `question_check` adds the question's own promise.

    With `proofs`, bounds are proved again; with `exact`, a plan is held to what it can say in one way only. Broken
    references end the check early: nothing can be computed of things that are not there.
    """
    with collector_at_rest():
        return _verified(plan, inputs, question_check, proofs, exact)


def _verified(plan: Plan, inputs: Inputs, question_check: QuestionCheck | None, proofs: bool, exact: bool) -> Report:
    found = [*check_inputs(plan, inputs), *check_header(plan)]
    references = check_references(plan, inputs)
    unchecked = question_check is None
    if references:
        return Report((*found, *references), ("inputs", "references"), unchecked=unchecked)
    facts = gather(plan, inputs)
    found += [*check_options(plan), *check_late(facts)]
    found += [*check_resources(facts), *check_cost(facts), *check_tables(plan, inputs)]
    skipped, computed = _serving(facts, found)
    whole = plan_figures(facts)
    found += check_promises(facts, computed, whole)
    found += check_extrapolation(facts, computed)
    found += check_claims(facts, whole.values)
    found += check_actions(facts)
    skipped += [*not_recomputed(facts, whole), *not_provided(facts)]
    checked = list[str](CHECKS.split())
    claims: list[ClaimAgain] = []
    if proofs:
        from hetplan.verifier.proofs import check_proofs

        claims, unproved = check_proofs(facts)
        found, checked = [*found, *unproved], [*checked, "proofs"]
    if exact:
        from hetplan.verifier.exact import check_exactly

        found += check_exactly(facts, computed)
        checked.append("exact")
    if question_check is not None:
        found += question_check(plan, inputs)
        checked.append(plan.question)
    return Report(tuple(dict.fromkeys(found)), tuple(checked), tuple(skipped), unchecked, tuple(claims))


def _serving(facts: Facts, found: list[Violation]) -> tuple[list[str], dict[str, Computed]]:
    """Routing, latency, quality, capacity and demand, period by period; what was recomputed of each application."""
    why = {name: why_not_followed(facts, name) for name in facts.inputs.slo.apps}
    names = [name for name, reason in why.items() if not reason]
    computed: dict[str, list[Computed]] = {name: [_NOTHING] if declined(facts, name) else [] for name in names}
    for period in (period.id for period in facts.plan.periods):
        followed = {name: follow(facts, name, period) for name in names if not declined(facts, name)}
        found += [fault for flow in followed.values() for fault in flow.faults.values()]
        for name, flow in followed.items():
            if flow.faults:
                computed.pop(name, None)
        # What follows from flows that end nowhere would only bury the reason.
        flows = {name: flow for name, flow in followed.items() if not flow.faults}
        most = largest_rates(facts, flows)
        for name, flow in flows.items():
            found += check_latency(facts, name, flow)
            if facts.inputs.slo.apps[name].quality is not None:
                from hetplan.verifier.quality import check_quality

                found += check_quality(facts, name, flow.work, flow.quality)
            if name in computed:
                computed[name].append(Computed(_figures(flow, most[name]), frozenset(flow.extrapolated)))
        found += check_capacity(facts, flows, period)
        if asked(facts):
            from hetplan.verifier.losses import check_survival  # few wishes ask for it

            found += check_survival(facts, list(flows), period)
    for name in names:
        found += check_demand(facts, name)
    skipped = [f"{name}: {reason}" for name, reason in why.items() if reason]
    if asked(facts):
        from hetplan.verifier.losses import not_computed

        skipped += not_computed(facts, names)
    return skipped, {name: worst_of(parts) for name, parts in computed.items()}


def _figures(flow: Flow, most: float) -> dict[str, float]:
    rate = {"rate_qps": most, "fluid_rate_qps": most} if math.isfinite(most) else {}
    quality = {} if math.isnan(flow.quality) else {"quality": flow.quality}
    return {**rate, **quality, "response_ms": flow.worst_ms, "service_ms": flow.worst_ms}
