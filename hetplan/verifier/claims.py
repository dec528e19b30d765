"""Claims: values are the plan's, bounds stand on the right side, gaps and vouchers are what they say."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from hetplan.planner.gap import relative_gap
from hetplan.planner.plan import Claim
from hetplan.planner.tolerances import BOUND_SLIP, OPTIMAL_GAP, VALUE
from hetplan.verifier.facts import Facts
from hetplan.verifier.report import Violation

__all__ = ["check_claims"]

_SENSE = {"cost_per_hour": "min", "servers": "min", "rate_qps": "max", "fluid_rate_qps": "max", "quality": "max"}


def _value(facts: Facts, claim: Claim, whole: Mapping[str, float]) -> Iterator[str]:
    known = [promise.value for promise in facts.plan.promises if promise.quantity == claim.about]
    if claim.about in whole:
        known = [whole[claim.about]]
    # With several applications a claim may be of their sum; only a lone promise says what it must be.
    if len(known) == 1 and not math.isclose(claim.value, known[0], rel_tol=VALUE, abs_tol=VALUE):
        yield f"claims {claim.about} {claim.value:.9g}, the plan has {known[0]:.9g}"
    if _SENSE.get(claim.about, claim.sense) != claim.sense:
        yield f"{claim.about} is not to be {claim.sense}imised"


def _bound(claim: Claim) -> Iterator[str]:
    if claim.bound is None:
        if claim.gap is not None or claim.vouched != "none":
            yield "there is no bound, so there can be neither gap nor voucher"
        return
    if claim.vouched == "none":
        yield "a bound that nobody vouches for"
    ahead = claim.value - claim.bound if claim.sense == "max" else claim.bound - claim.value
    if ahead > BOUND_SLIP * max(abs(claim.value), abs(claim.bound), 1.0):
        yield f"the value {claim.value:.9g} is better than the bound {claim.bound:.9g}"
    gap = relative_gap(claim.value, claim.bound)
    if claim.gap is None or not math.isclose(claim.gap, gap, rel_tol=VALUE, abs_tol=1e-9):
        yield f"states a gap of {claim.gap}, recomputed it is {gap:.9g}"


def _voucher(facts: Facts, claim: Claim) -> Iterator[str]:
    if claim.vouched == "certified":
        solve = next((solve for solve in facts.plan.solves if solve.id == claim.solve), None)
        if solve is None or (solve.vouched != "certified" and solve.certified_bound is None and not solve.proof):
            yield "certified, but no solve carries a certified bound"


def _status(facts: Facts) -> Iterator[Violation]:
    """A plan is no better than its first claim; a bound of a restriction says nothing about the problem."""
    status, claims = facts.plan.status, facts.plan.claims
    if status not in ("optimal", "within-gap"):
        return
    gap = claims[0].gap if claims and claims[0].scope != "restriction" else None
    if gap is None:
        yield Violation("status", "status", f"{status}, yet the first claim has no bound on the problem")
    elif status == "optimal" and gap > OPTIMAL_GAP * (1.0 + VALUE):
        yield Violation("status", "status", f"optimal, yet the gap of the first claim is {gap:.3g}")


def check_claims(facts: Facts, whole: Mapping[str, float]) -> list[Violation]:
    """Every claim of the plan, and the status that rests on them."""
    found = [
        Violation("claim", f"claims[{number}]", text)
        for number, claim in enumerate(facts.plan.claims)
        for text in (*_value(facts, claim, whole), *_bound(claim), *_voucher(facts, claim))
    ]
    return [*found, *_status(facts)]
