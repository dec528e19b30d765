"""Claims: values are the plan's, bounds are those of the solves named, gaps and vouchers are what they say.

Nothing can be solved again from a plan alone; that claims, the log of solves and the plan agree can be seen.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from hetplan.planner.answer import relative_gap
from hetplan.planner.tolerances import BOUND_SLIP, OPTIMAL_GAP, VALUE
from hetplan.profiles.plan import Claim, Plan, Solve
from hetplan.verifier.facts import Facts, option
from hetplan.verifier.promises import QUESTIONS, is_claimable, sense_of
from hetplan.verifier.report import Violation

__all__ = ["bound_faults", "check_claims", "status_faults"]

WITHIN_GAP = 0.05
"""No plan may call itself within a gap of more than this, whatever gap was allowed."""

SOLVED_AGAIN = 0.1
"""How far a value of the plan may lie from that of the program which chose it: a program may stop within a gap that was
asked for, and what is then solved again for the counts that it chose may close it."""

CLAMPED = 10 * BOUND_SLIP
"""A bound that is no further than this inside the plan's own value is moved onto it."""

_TRIED_ALL = ("brute-force", "enumerate-lp")
"""Formulations whose word that nothing better exists rests on no solve: they went through everything."""


def _about(facts: Facts, claim: Claim, whole: Mapping[str, float]) -> Iterator[str]:
    """A claim is about something that the plan promises, or that can be recomputed, and says the same of it."""
    promised = [promise for promise in facts.plan.promises if promise.quantity == claim.about]
    known = [promise.value for promise in promised]
    if claim.about in whole:
        known = [whole[claim.about]]
    elif claim.about == "least_quality":
        known = [min((one.value for one in facts.plan.promises if one.quantity == "quality"), default=math.nan)]
    elif len({promise.app for promise in promised}) > 1:
        # Of several applications a mean, weighed by somebody's weights, or the sum of their rates.
        most = max(known) if claim.about == "quality" else sum(known)
        if claim.value > most + VALUE * max(abs(most), 1.0):
            yield f"claims {claim.about} {claim.value:.9g}, the plan has {most:.9g} at most"
        return
    if is_claimable(facts.plan.question, claim.about):
        solve = _solve_of(facts, claim)
        if solve is not None and solve.count == 1 and claim.bound is not None:
            value = math.nan if solve.value is None else solve.value
            # A simulation may show a longer latency than the formula by which plans were compared.
            known += [max(value, claim.value) if claim.about == "mean_latency_ms" else value]
        elif not known:
            return
    if known:
        if not any(math.isclose(claim.value, value, rel_tol=VALUE, abs_tol=VALUE) for value in known):
            yield f"claims {claim.about} {claim.value:.9g}, the plan has {known[0]:.9g}"
    elif facts.plan.question in QUESTIONS and (facts.plan.workers or sense_of(claim.about) is None):
        yield f"nothing in the plan says what {claim.about} is"


def bound_faults(claim: Claim) -> Iterator[str]:
    """What a claim's bound, gap and voucher say that cannot all be so."""
    if (sense_of(claim.about) or claim.sense) != claim.sense:
        yield f"{claim.about} is not to be {claim.sense}imised"
    if claim.bound is None:
        if claim.gap is not None or claim.vouched != "none":
            yield "there is no bound, so there can be neither gap nor voucher"
        return
    if claim.vouched == "none":
        yield "a bound without the mark who proved it"
    ahead = claim.value - claim.bound if claim.sense == "max" else claim.bound - claim.value
    if ahead > BOUND_SLIP * max(abs(claim.value), abs(claim.bound), 1.0):
        yield f"the value {claim.value:.9g} is better than the bound {claim.bound:.9g}"
    gap = relative_gap(claim.value, claim.bound)
    if claim.gap is None or not math.isclose(claim.gap, gap, rel_tol=VALUE, abs_tol=1e-9):
        yield f"states a gap of {claim.gap}, recomputed it is {gap:.9g}"


def _solve_of(facts: Facts, claim: Claim) -> Solve | None:
    return next((solve for solve in facts.plan.solves if solve.id == claim.solve), None)


def _backing(facts: Facts, claim: Claim) -> Iterator[str]:
    """What the plan says of who vouches for a bound."""
    if claim.bound is None:
        return
    solve = _solve_of(facts, claim)
    if solve is None:
        if claim.vouched == "certified":
            yield "certified, but no solve carries a certified bound"
        unfounded = facts.plan.question in QUESTIONS and facts.plan.method.formulation not in _TRIED_ALL
        if claim.scope == "problem" and unfounded and facts.plan.workers:
            yield "bounds all plans, and no solve says so"
        return
    if solve.status not in ("optimal", "feasible"):
        yield f"rests on solve {solve.id}, which ended {solve.status}"
    elif solve.vouched in (None, "none") or (claim.vouched == "certified" and solve.certified_bound is None):
        yield f"{claim.vouched}, and solve {solve.id} is {solve.vouched or 'none'}"
    elif solve.count == 1 and facts.plan.question in QUESTIONS:
        # Of a family the log holds one member only; forms of other packages may be in units of their own.
        yield from _carried(facts, claim, solve)


def _carried(facts: Facts, claim: Claim, solve: Solve) -> Iterator[str]:
    """The bound is the solve's own, in the plan's unit; over all plans, so is the value."""
    bound = solve.certified_bound if claim.vouched == "certified" else solve.bound
    scales = {1.0, option(facts.plan, "derate", 1.0)} if claim.about == "rate_qps" else {1.0}
    if bound is None or claim.bound is None:
        yield f"solve {solve.id} has no bound"
        return
    fitting = [scale for scale in scales if _same_bound(claim, scale * bound)]
    if not fitting:
        yield f"is bounded by {claim.bound:.9g}, solve {solve.id} by {bound:.9g}"
    if solve.value is None:
        return
    ahead = solve.value - bound if claim.sense == "max" else bound - solve.value
    if ahead > CLAMPED * max(abs(bound), 1.0):
        yield f"solve {solve.id} found {solve.value:.9g}, better than its own bound {bound:.9g}"
    gaps = [relative_gap(claim.value, scale * solve.value, floor=1.0) for scale in fitting]
    if claim.scope == "problem" and solve.status == "optimal" and min(gaps, default=0.0) > SOLVED_AGAIN:
        yield f"claims {claim.value:.9g}, solve {solve.id} found {solve.value:.9g}"


def _same_bound(claim: Claim, bound: float) -> bool:
    assert claim.bound is not None
    if math.isclose(claim.bound, bound, rel_tol=1e-9, abs_tol=1e-9):
        return True
    inside = bound < claim.value if claim.sense == "max" else bound > claim.value
    return inside and claim.bound == claim.value and relative_gap(bound, claim.value, floor=1.0) <= CLAMPED


def _solves(facts: Facts) -> Iterator[Violation]:
    """No entry of the log contradicts itself."""
    for number, solve in enumerate(facts.plan.solves):
        at, vouched = f"solves[{number}]", solve.vouched or "none"
        if solve.status in ("infeasible", "unbounded") and solve.value is not None:
            yield Violation("solve", at, f"{solve.status}, yet it found {solve.value:.9g}")
        if (solve.bound is None) != (vouched == "none"):
            yield Violation("solve", at, f"the bound {solve.bound} is {vouched}")
        stated, proved = (math.nan if one is None else one for one in (solve.bound, solve.certified_bound))
        if vouched == "certified" and not math.isclose(stated, proved, rel_tol=VALUE, abs_tol=VALUE):
            text = f"the bound {solve.bound} is certified, and what was re-proved is {solve.certified_bound}"
            yield Violation("solve", at, text)


def status_faults(plan: Plan) -> Iterator[Violation]:
    """A plan is what its first claim makes it; that it was the best of those tried is its own word alone."""
    status, claims = plan.status, plan.claims
    gap, scope = (claims[0].gap, claims[0].scope) if claims else (None, "none")
    allowed: tuple[str, ...] = ("feasible",)
    if gap is None or scope == "none":
        allowed = ("heuristic",)
    elif scope != "restriction" and gap <= OPTIMAL_GAP * (1.0 + VALUE):
        # A later level of the objective that is the best of some plans alone may keep it from being called that.
        open_ = any(claim.scope == "restriction" for claim in claims[1:])
        allowed = ("optimal", "within-gap") if open_ else ("optimal",)
    elif scope != "restriction" and gap <= WITHIN_GAP:
        allowed = ("within-gap", "feasible")
    if status not in (*allowed, "best-of-measured"):
        why = "no bound" if gap is None else f"a gap of {gap:.3g}"
        text = f"{status}, yet the first claim, of scope {scope}, has {why}: that is {' or '.join(allowed)}"
        yield Violation("status", "status", text)


def check_claims(facts: Facts, whole: Mapping[str, float]) -> list[Violation]:
    """Every claim of the plan, the solves that they rest on, and the status that rests on them."""
    found = [
        Violation("claim", f"claims[{number}]", text)
        for number, claim in enumerate(facts.plan.claims)
        for text in (*_about(facts, claim, whole), *bound_faults(claim), *_backing(facts, claim))
    ]
    return [*found, *_solves(facts), *status_faults(facts.plan)]
