"""A plan's claims put to the proof: the question is solved anew from the files, by the plan's own method and options.

A plan says of itself how good it is. The verifier proves its bounds again from the proofs that the plan carries, where
it knows the mathematics of the question. Here the bounds come from the files alone, and what the plan says is held
against them; so also bounds are proved for which a plan has no proof.

>>> import hetplan as hp
>>> from hetplan.proved_again import prove
>>> files = "examples/pool/profile.json", "examples/pool/slo.json"
>>> plan = hp.solve(*files).require()  # doctest: +SKIP
>>> [str(one) for one in prove(plan, hp.load_inputs(*files)).claims]  # doctest: +SKIP
['max rate_qps: bound 580.097 was found again (an engine says so)', ...]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, get_args

from hetplan import registry
from hetplan.front_door import plan_for
from hetplan.planner.tolerances import VALUE
from hetplan.profiles.tables import Statistic
from hetplan.verifier.claims_again import ClaimAgain, Word

if TYPE_CHECKING:
    from hetplan.planner.answer import Limits
    from hetplan.planner.contract import OnEvent
    from hetplan.planner.outcome import Outcome
    from hetplan.profiles.inputs import Inputs
    from hetplan.profiles.plan import Claim, Plan
    from hetplan.verifier.report import Report

__all__ = ["Again", "left_out", "options_again", "prove", "together"]

RUNS = ("workers", "routing", "dispatch", "policies", "tables", "periods", "actions")
"""What decides what runs."""
SAYS = ("status", "valid", "promises", "warnings", "unserved")
"""What the plan says of itself besides its claims."""


@dataclass(frozen=True)
class Again:
    """What a second solve says of a plan.

    `differs` names the parts of the plan made anew that are not this plan's: another plan may be as good, and no word
    of this one was proved for them.
    """

    claims: tuple[ClaimAgain, ...]
    differs: tuple[str, ...]
    outcome: Outcome

    @property
    def refuted(self) -> tuple[ClaimAgain, ...]:
        """The claims that cannot be so."""
        return tuple(one for one in self.claims if one.word is Word.REFUTED)


def prove(
    plan: Plan,
    inputs: Inputs,
    *,
    limits: Limits | None = None,
    solver: str | None = None,
    on_event: OnEvent | None = None,
) -> Again:
    """Solve the plan's question anew, and hold every claim against what comes back."""
    outcome = plan_for(
        inputs,
        question=plan.question,
        formulation=plan.method.formulation,
        options=options_again(plan),
        limits=limits,
        solver=solver,
        on_event=on_event,
    )
    if outcome.plan is None:
        text = f"solved anew there is no plan: {'; '.join(outcome.why) or outcome.reason}"
        claims = [ClaimAgain(_at(place), _about(claim), Word.OPEN, text) for place, claim in enumerate(plan.claims)]
        return Again(tuple(claims), (text,), outcome)
    found = [_held_against(place, claim, outcome.plan) for place, claim in enumerate(plan.claims)]
    return Again(tuple(found), tuple(_differences(plan, outcome.plan)), outcome)


def options_again(plan: Plan) -> dict[str, Any]:
    """The options of a plan, to ask its question again.

    A plan lists every option. A statistic that is only the default stays unsaid: one that is said is refused where a
    table lacks it, and the default is not.
    """
    asked = registry.problem(plan.question).formulations.get(plan.method.formulation)
    known = asked.model_fields if asked is not None else {}
    defaults = {name: one.default for name, one in known.items() if one.default in get_args(Statistic)}
    missing = object()
    return {name: at for name, at in plan.method.options.items() if at != defaults.get(name, missing)}


def left_out(plan: Plan, claims: Sequence[ClaimAgain]) -> bool:
    """Whether a bound is called certified by a proof that the plan says it has no room for.

    That is a proof that is too long, or one of several programs that were solved together.
    """
    proved = {one.at for one in claims if one.word is Word.PROVED}
    absent = {solve.id for solve in plan.solves if solve.count > 1 or "left_out" in (solve.proof or {})}
    return any(
        claim.vouched == "certified" and claim.solve in absent and _at(place) not in proved
        for place, claim in enumerate(plan.claims)
    )


def together(report: Report, again: Again) -> Report:
    """A report with what solving anew says of the claims, and where the plan made anew is another."""
    claims = (
        [_better(*both) for both in zip(report.claims, again.claims, strict=True)] if report.claims else again.claims
    )
    return replace(report, claims=tuple(claims), differs=again.differs)


def _better(checked: ClaimAgain, anew: ClaimAgain) -> ClaimAgain:
    """What is known of a claim that was checked by its proof and solved anew."""
    return checked if checked.word is Word.PROVED and anew.word is not Word.REFUTED else anew


def _at(place: int) -> str:
    return f"claims[{place}]"


def _about(claim: Claim) -> str:
    return f"{claim.sense} {claim.about}"


def _held_against(place: int, claim: Claim, anew: Plan) -> ClaimAgain:
    at, about = _at(place), _about(claim)
    if claim.bound is None:
        return ClaimAgain(at, about, Word.OPEN, "there is no bound")
    same = [one for one in anew.claims if (one.about, one.sense, one.scope) == (claim.about, claim.sense, claim.scope)]
    if not same or same[0].bound is None:
        return ClaimAgain(at, about, Word.OPEN, f"bound {claim.bound:.6g}: nothing is said of it when solved anew")
    other = same[0]
    assert other.bound is not None
    upper = claim.sense == "max"
    if claim.scope != "restriction" and _tighter(claim.bound, other.value, upper=upper):
        text = f"bound {claim.bound:.6g}, and a plan with {other.value:.6g} exists"
        return ClaimAgain(at, about, Word.REFUTED, text)
    if _tighter(claim.bound, other.bound, upper=upper):
        text = f"bound {claim.bound:.6g}, solved anew {other.bound:.6g} is as near as the proof comes"
        return ClaimAgain(at, about, Word.OPEN, text)
    if other.vouched == "certified":
        return ClaimAgain(at, about, Word.PROVED, f"bound {claim.bound:.6g} is proved again")
    return ClaimAgain(at, about, Word.FOUND, f"bound {claim.bound:.6g} was found again by an engine, which is no proof")


def _tighter(bound: float, other: float, *, upper: bool) -> bool:
    """Whether a bound says more than another figure allows, beyond what rounding to 12 digits explains."""
    slip = VALUE * max(abs(bound), abs(other), 1e-9)
    return bound < other - slip if upper else bound > other + slip


def _differences(plan: Plan, anew: Plan) -> Iterator[str]:
    was, now = plan.model_dump(mode="json", by_alias=True), anew.model_dump(mode="json", by_alias=True)
    for part in (*RUNS, *SAYS):
        yield from _unlike(was[part], now[part], part)


def _unlike(was: Any, now: Any, at: str) -> Iterator[str]:
    if isinstance(was, dict) and isinstance(now, dict):
        for name in sorted({*was, *now}):
            if name not in was or name not in now:
                yield f"{at}.{name}: only in the plan {'made anew' if name in now else 'given'}"
            else:
                yield from _unlike(was[name], now[name], f"{at}.{name}")
    elif isinstance(was, list) and isinstance(now, list):
        if len(was) != len(now):
            yield f"{at}: {len(was)} given, {len(now)} made anew"
        else:
            for place, (one, other) in enumerate(zip(was, now, strict=True)):
                yield from _unlike(one, other, f"{at}[{place}]")
    elif isinstance(was, float | int) and isinstance(now, float | int):
        if abs(was - now) > VALUE * max(abs(was), abs(now), 1e-9):
            yield f"{at}: {was:.9g} given, {now:.9g} made anew"
    elif was != now:
        yield f"{at}: {was} given, {now} made anew"
