"""Bounds of a plan's claims, proved again from the inputs and the vectors that the plan carries.

A question's mathematics is written down anew by the verifier (`pool_bounds`), and the multipliers of the claim's solve
are put to it. What comes out is held against what the claim says. A bound that this does not show is
`not proved here`, whatever the plan calls it; one that is called certified where the proof shows less is a fault.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from hetplan.planner.answer import relative_gap
from hetplan.profiles.plan import Claim, Solve
from hetplan.verifier.claims_again import ClaimAgain, Word
from hetplan.verifier.facts import Facts
from hetplan.verifier.report import Violation
from hetplan.verifier.rows import NoProof, NotRebuilt

__all__ = ["check_proofs", "compared"]

Prover = Callable[[Facts, Claim, Any], float]
"""From a claim and its solve; of policies, whose bounds follow from the files alone, there may be no solve."""

_REBUILT = {
    "pool": "pool_bounds",
    "pipeline": "pipeline_bounds",
    "compound": "compound",
    "llm": "llm_bounds",
    "variants": "variants_bounds",
    "policy": "policy_bounds",
}
"""Questions whose mathematics is written down again, each in a module that is loaded where it is needed."""

SHORT = 1e-8
"""By how much less than a claim says a proof may show, relative to the bound: numbers of plans have 12 digits."""


def check_proofs(facts: Facts) -> tuple[list[ClaimAgain], list[Violation]]:
    """What becomes of each claim's bound, and what is called certified and is not."""
    found: list[ClaimAgain] = []
    faults: list[Violation] = []
    for number, claim in enumerate(facts.plan.claims):
        at, about = f"claims[{number}]", f"{claim.sense} {claim.about}"
        if claim.bound is None:
            found.append(ClaimAgain(at, about, Word.OPEN, "there is no bound"))
            continue
        rebuilt = True
        try:
            shown = _shown(facts, claim)
        except NoProof as reason:
            rebuilt = not isinstance(reason, NotRebuilt)
            text = f"bound {claim.bound:.6g} is not proved again here: {reason}"
            found.append(ClaimAgain(at, about, Word.OPEN, text))
        else:
            found.append(compared(claim, shown, at, about))
        if claim.vouched == "certified" and found[-1].word is Word.OPEN and _ought_to(facts, claim, rebuilt=rebuilt):
            faults.append(Violation("proof", at, f"called certified, and {found[-1].text}"))
    return found, faults


def _solve_of(facts: Facts, claim: Claim) -> Solve | None:
    return next((solve for solve in facts.plan.solves if solve.id == claim.solve), None)


def _shown(facts: Facts, claim: Claim) -> float:
    """The bound that the plan's own proof shows of a claim; NoProof where it shows none."""
    if facts.plan.question not in _REBUILT:
        raise NotRebuilt(f"the mathematics of question {facts.plan.question} is not rebuilt")
    solve = _solve_of(facts, claim)
    if solve is None and facts.plan.question != "policy":
        raise NoProof("no solve is named that would prove it")
    prover: Prover = import_module(f"hetplan.verifier.{_REBUILT[facts.plan.question]}").proved
    return prover(facts, claim, solve)


def compared(claim: Claim, shown: float, at: str, about: str) -> ClaimAgain:
    """A claim's bound against what was shown."""
    assert claim.bound is not None
    short = shown - claim.bound if claim.sense == "max" else claim.bound - shown
    if short > SHORT * max(abs(claim.bound), 1e-9):
        text = f"bound {claim.bound:.9g} is not proved again here: its proof shows {shown:.9g}"
        return ClaimAgain(at, about, Word.OPEN, text)
    gap = relative_gap(claim.value, claim.bound)
    return ClaimAgain(at, about, Word.PROVED, f"bound {claim.bound:.6g} is proved again", gap)


def _ought_to(facts: Facts, claim: Claim, *, rebuilt: bool) -> bool:
    """Whether a bound that is called certified must be proved by what the plan carries, or at least carry a proof.

    Of programs solved together the log holds one, and a proof that is too long for a plan is left out of it.
    """
    solve = _solve_of(facts, claim)
    if solve is not None and (solve.count > 1 or "left_out" in (solve.proof or {})):
        return False
    return rebuilt or (solve is not None and solve.form == "milp" and solve.proof is None)
