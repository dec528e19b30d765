"""Bounds of a plan's claims, proved again by the planner's program.

A question is read again from the files, with the plan's formulation and options, and says which program bounds a claim
(`Problem.bounding`). The multipliers that the plan carries, by names of rows, are put to that program, with rounding on
the safe side. Where they show less than the claim says, an engine may solve the program anew. Of a fleet the plan
carries prices of what joins its applications: they split the program, and each part is asked and proved by itself.

So a plan cannot call a bound proved that its program does not have. Whether the program itself is right is not seen
here: it is the planner's own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from io import StringIO
from typing import TYPE_CHECKING, Any

import numpy as np

from hetplan.errors import HetplanError, InputError, Interrupted
from hetplan.planner.answer import Deadline, Limits, Status, relative_gap
from hetplan.planner.bound_verdicts import BoundVerdict, Word, compare_bound, unproved_bound
from hetplan.planner.forms.program import Program
from hetplan.planner.safe_bound import BoundTree, bound_of_tree
from hetplan.planner.summary import bounds_of
from hetplan.planner.tolerances import NO_GAP, PROOF_NUMBERS, VALUE
from hetplan.profiles.plan_file import with_digest

if TYPE_CHECKING:
    from hetplan.planner.forms.form import Form
    from hetplan.planner.solver_calls import Asking
    from hetplan.profiles.plan import Claim, Plan, Solve

__all__ = ["Bounding", "Certified", "Split", "carried_tree", "certificate_text", "prove_again", "with_vouched_bounds"]

HAIR = 1e-3
"""By so much, in parts of it, a claimed bound may give way to one that is proved."""

Bounds = Callable[["Claim"], "Iterable[Bounding] | None"]


@dataclass(frozen=True)
class Split:
    """A bound in parts: prices of what joins them split a program, and each part is asked by itself.

    What the plan's own prices show, and what prices show that are found anew. Either raises ValueError, where it shows
    nothing, with the reason.
    """

    carried: Callable[[Asking], float]
    anew: Callable[[Asking], float]


@dataclass(frozen=True)
class Bounding:
    """What bounds a claim: scale times the optimum of a form; or a bound that was worked out without one, or in parts.

    A `wider` one has plans that the claim is not about: where it does not prove the bound, nobody can say. The points
    of one `of_plans` are plans that the claim is about, of the value that the program says: one that beats the bound
    refutes it. A point of a relaxation is no plan.
    """

    form: Form[Any] | None = None
    split: Split | None = None
    scale: float = 1.0
    bound: float | None = None
    wider: bool = False
    of_plans: bool = False


@dataclass(frozen=True)
class Certified:
    """Of each claim what its bound is now; and of one that its own proof, or nobody, shows: (place, what is so)."""

    claims: tuple[BoundVerdict, ...]
    faults: tuple[tuple[str, str], ...] = ()


def prove_again(
    plan: Plan,
    bounds: Bounds,
    ask: Asking,
    *,
    anew: bool = True,
    every: bool = False,
    all_anew: bool = False,
    deadline: Deadline | None = None,
) -> Certified:
    """Prove every bound by what the plan carries; `bounds` says which programs bound a claim, the loosest first.

    None of a claim is a program that its question does not say; no program at all, that its formulation makes no such
    claim. If `anew`, programs are solved: of certified bounds for which the plan has no proof, of `every` bound that is
    not shown, or `all_anew`. Else only what is split is asked, part by part, at the plan's own prices. What is not
    begun by the deadline is left open; a cancel ends it all.
    """
    one = _Again(plan, bounds, ask, anew, every, all_anew)
    deadline = deadline or Deadline(Limits())
    claims, faults, seen = list[BoundVerdict](), list[tuple[str, str]](), set[tuple[str, str, str]]()
    for number, claim in enumerate(plan.claims):
        if deadline.cancelled:
            raise Interrupted("cancelled before every bound was checked")
        what, fault = (claim.about, claim.sense, claim.scope), None
        if what in seen:
            said = unproved_bound(claim, number, "it is claimed twice")
            faults.append((said.at, f"{claim.sense} {claim.about} is claimed twice"))
        elif deadline.is_set():
            said = unproved_bound(claim, number, "the time limit ended before it was checked")
        else:
            said, fault = one.of(number, claim)
        seen.add(what)
        claims.append(said)
        if fault is not None:
            faults.append((said.at, f"{plan.claims[number].vouched}, and {fault.text}"))
    return Certified(tuple(claims), tuple(faults))


def with_vouched_bounds(plan: Plan, bounds: Bounds, ask: Asking) -> Plan:
    """The plan with those least costs called certified whose bounds in parts its prices prove.

    Prices are found by programs whose bounds are an engine's word. A bound that is a hair lower and proved says more
    than one that nobody can prove.
    """

    def said(claim: Claim) -> Claim:
        programs = (bounds(claim) or ()) if claim.bound is not None else ()
        split = next((one.split for one in programs if one.split), None)
        try:
            shown = split.carried(ask) if split is not None else math.nan
        except (ValueError, HetplanError):
            return claim
        if claim.bound is None or not abs(min(shown - claim.bound, 0.0)) <= HAIR * abs(claim.bound):
            return claim
        least = claim.bound if compare_bound(claim, shown, 0).word is Word.PROVED else shown
        return claim.model_copy(
            update={"bound": least, "gap": relative_gap(claim.value, least), "vouched": "certified"}
        )

    claims = tuple(said(claim) for claim in plan.claims)
    summary = None if plan.summary is None else replace(plan.summary, bounds=bounds_of(claims))
    return with_digest(plan.model_copy(update={"claims": claims, "summary": summary}))


@dataclass(frozen=True)
class _Anew:
    """What became of a bound by solving its program: whether that came to an end, and whether a point beats the bound.

    Where one does, no proof of this program shows the bound.
    """

    said: BoundVerdict
    ended: bool = False
    beaten: bool = False


class _NoProof(Exception):
    """What is wrong with a proof."""


class _Unclear(_NoProof):
    """Why nobody can say what a proof shows."""


class _Unknown(_NoProof):
    """A proof has names that its program does not have; an older version may have written it with others."""


@dataclass(frozen=True)
class _Again:
    plan: Plan
    bounds: Bounds
    ask: Asking
    anew: bool
    every: bool
    all_anew: bool

    def of(self, number: int, claim: Claim) -> tuple[BoundVerdict, BoundVerdict | None]:
        """What a claim's bound is now; and where it is called certified, or carries a proof, what is so instead."""
        if claim.bound is None:
            return unproved_bound(claim, number, ""), None
        solve = next((one for one in self.plan.solves if one.id == claim.solve), None)
        carried = None if solve is None else solve.proof
        try:
            found = self.bounds(claim)
            programs = None if found is None else list(found)
            reason = "its question says no program that bounds it" if programs is None else ""
        except Exception as error:
            # A plan may say anything, so that anything may go wrong where its question is read by it.
            programs, reason = [], f"its program cannot be written: {error}"
        said, unclear = self._check_carried_proof(number, claim, programs or (), carried, reason)
        first, shown, left_out = said, said.word is Word.PROVED, _is_left_out(solve)
        told = programs is not None and not any(one.wider for one in programs)
        # A plan whose own proof is none of its bound is wrong, whatever its program has.
        silent = carried is None and not any(one.split for one in programs or ())
        wrong = told and not (shown or left_out or unclear or silent)
        wanted = self.all_anew or (not shown and (self.every or (claim.vouched == "certified" and not wrong)))
        anew = _Anew(said)
        if self.anew and wanted and programs and (programs[0].form or programs[0].split):
            anew = self._solve_again(number, claim, programs)
            said = said if shown and anew.said.word is not Word.REFUTED else anew.said
        if shown:
            return said, None
        if claim.vouched != "certified":
            # An engine's word needs no proof; but one that the plan carries, and that shows less, is none of it.
            # That of a fleet may be of fewer rows than the engine had.
            return said, first if wrong and carried is not None and self.plan.parts is None else None
        if wrong or said.word in (Word.PROVED, Word.FOUND):
            return said, first if wrong else None
        # What a plan has no room for excuses no bound that its program does not have, and none without a program.
        if left_out:
            return said, said if anew.beaten or (told and not programs) else None
        untold = solve is not None and solve.form == "milp" and carried is None
        return said, said if untold or (told and (anew.ended or not programs)) else None

    def _check_carried_proof(
        self,
        number: int,
        claim: Claim,
        programs: Sequence[Bounding],
        carried: Mapping[str, Any] | None,
        reason: str,
    ) -> tuple[BoundVerdict, bool]:
        """By what the plan carries; and whether it is unclear what that shows."""
        said, unclear = unproved_bound(claim, number, reason or "no program of its formulation bounds it"), False
        unknown = 0
        for program in programs:
            try:
                shown = (
                    self._of_parts(program.split.carried) if program.split else _shown_bound(program, carried, claim)
                )
                said = compare_bound(claim, shown, number)
                # A plan has 12 digits of each multiplier: where large terms cancel, that is what is missing.
                bound = claim.bound or 0.0
                unclear = unclear or (not program.split and abs(shown - bound) <= VALUE * max(abs(bound), 1e-9))
            except _NoProof as why:
                said, unclear = unproved_bound(claim, number, str(why)), unclear or isinstance(why, _Unclear)
                unknown += isinstance(why, _Unknown)
            if said.word is Word.PROVED:
                break
        return said, unclear or 0 < len(programs) == unknown

    def _solve_again(self, number: int, claim: Claim, programs: Sequence[Bounding]) -> _Anew:
        """By solving the programs again, the loosest first: a bound that none shows is held against the tightest."""
        anew = _Anew(unproved_bound(claim, number, ""))
        for program in programs:
            anew = (
                self._solve_programs(number, claim, program)
                if program.split is None
                else self._split(number, claim, program)
            )
            if anew.said.word in (Word.PROVED, Word.FOUND):
                break
        return anew

    def _of_parts(self, show: Callable[[Asking], float]) -> float:
        """What is shown part by part; else why not."""
        try:
            return show(self.ask)
        except Interrupted:
            if self.ask.deadline.cancelled:
                raise
            raise _Unclear("the time to ask its programs was over") from None
        except Exception as error:
            # A plan may say anything, and an engine may be anybody's.
            raise _NoProof(str(error)) from None

    def _split(self, number: int, claim: Claim, program: Bounding) -> _Anew:
        """By prices that are found anew."""
        assert program.split is not None
        try:
            said = compare_bound(claim, self._of_parts(program.split.anew), number)
        except _NoProof as why:
            return _Anew(unproved_bound(claim, number, f"by other prices, {why}"), ended=not isinstance(why, _Unclear))
        return _Anew(said, ended=True)

    def _solve_programs(self, number: int, claim: Claim, program: Bounding) -> _Anew:
        assert claim.bound is not None
        assert program.form is not None
        try:
            answer = self.ask(program.form, gap=NO_GAP, about=f"bound of {claim.about}")
        except Interrupted:
            if self.ask.deadline.cancelled:
                raise
            return _Anew(unproved_bound(claim, number, "the time to solve its program was over"))
        except Exception as error:
            # An engine may be anybody's.
            return _Anew(unproved_bound(claim, number, f"its program was not solved: {error}"))
        known = self.ask.record_of(answer)
        assert known is not None
        value, proved, bound = (
            None if one is None else program.scale * one
            for one in (known[1].value, known[1].certified_bound, known[1].bound)
        )
        ended = answer.status in (Status.OPTIMAL, Status.INFEASIBLE)
        sign = 1.0 if claim.sense == "max" else -1.0
        slip = VALUE * max(abs(claim.bound), abs(value or 0.0), 1e-9)
        if value is not None and sign * (value - claim.bound) > slip and not program.wider:
            said = unproved_bound(claim, number, f"its program is of more than plans, and has a point with {value:.9g}")
            if program.of_plans:
                text = f"bound {claim.bound:.6g}, and its program has a point with {value:.6g}: a better plan exists"
                said = BoundVerdict(said.at, said.about, Word.REFUTED, text)
            return _Anew(said, ended=True, beaten=True)
        if proved is not None and (said := compare_bound(claim, proved, number)).word is Word.PROVED:
            return _Anew(said, ended=True)
        if bound is not None and (said := compare_bound(claim, bound, number)).word is Word.PROVED:
            text = f"bound {claim.bound:.6g} was found again by an engine, which is no proof"
            return _Anew(BoundVerdict(said.at, said.about, Word.FOUND, text), ended)
        if bound is None:
            why = f"solved anew there is no bound: {answer.detail or answer.stop}"
        else:
            why = f"solved anew {bound:.9g} is as near as the proof comes"
        return _Anew(unproved_bound(claim, number, why), ended)


def _is_left_out(solve: Solve | None) -> bool:
    """Whether a plan has no room for a proof: it is too long, or the log holds one of programs solved together."""
    return solve is not None and (solve.count > 1 or "left_out" in (solve.proof or {}))


def _shown_bound(program: Bounding, carried: Mapping[str, Any] | None, claim: Claim) -> float:
    """The bound of a claim that a plan's proof shows of a program."""
    if program.form is None:
        assert program.bound is not None
        return program.bound
    if carried is None:
        raise _NoProof("it carries no proof")
    if "left_out" in carried:
        raise _NoProof("its proof is too long for a plan")
    assert claim.bound is not None
    form = program.form
    try:
        # Only points that are better than the bound need a proof: what is worse keeps it.
        known = claim.bound / program.scale
        shown = _of_program(form, carried, known) if isinstance(form, Program) else form.bound_of_written(carried)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError):
        raise _NoProof("it carries no proof that can be read") from None
    if shown is None or math.isnan(shown):
        raise _NoProof("it carries no proof of its program")
    return program.scale * shown


def _of_program(form: Program, carried: Mapping[str, Any], known: float) -> float:
    """The bound that multipliers show, or a tree of them; `known` is a value beyond which nothing need be shown."""
    shown = bound_of_tree(form, carried_tree(form, carried), value=known)
    if shown is None:
        raise _NoProof("its tree is none of its program")
    return shown


def carried_tree(form: Program, carried: Mapping[str, Any]) -> BoundTree:
    """The tree that a plan carries of a program; its one leaf, where it carries multipliers alone."""
    rows = _places(form.row_name(i) for i in range(form.row_lower.size))
    if "tree" not in carried:
        y = np.zeros(form.row_lower.size)
        for name, price in carried["row_duals"].items():
            y[_place(rows, name)] = float(price)
        if not np.isfinite(y).all():
            raise ValueError("a multiplier is no number")
        return BoundTree(np.zeros((0, 4), dtype=np.int64), y[None, :])
    tree = carried["tree"]
    if len(tree["leaves"]) > PROOF_NUMBERS:
        raise _NoProof("its tree is larger than any that a plan is given")
    columns = _places(form.column_name(j) for j in range(form.cost.size))
    named = [_place(columns, str(name)) for name in tree["columns"]]
    priced = [_place(rows, str(name)) for name in tree["rows"]]
    splits = np.array([[int(number) for number in str(line).split()] for line in tree["splits"]], dtype=np.int64)
    splits = splits.reshape(-1, 4)
    if splits.size and splits[:, 0].min() < 0:
        raise ValueError("a split of no column")
    splits[:, 0] = [named[place] for place in splits[:, 0].tolist()]
    leaves = np.zeros((len(tree["leaves"]), form.row_lower.size))
    for leaf, line in zip(leaves, tree["leaves"], strict=True):
        numbers = [float(number) for number in str(line).split()]
        if len(numbers) != len(priced):
            raise ValueError("a leaf has a multiplier for each row")
        leaf[priced] = numbers
    return BoundTree(splits, leaves)


def certificate_text(plan: Plan, bounds: Bounds, number: int) -> tuple[str, str]:
    """The proof that a plan carries of its claim of this number, as a VIPR certificate, and what it proves."""
    from hetplan.planner.forms.write_vipr import write_vipr

    if not 1 <= number <= len(plan.claims):
        count = len(plan.claims)
        remedy = f"Write {'ask=1' if count == 1 else f'a number from 1 to {count}: --set ask=1'}."
        raise InputError.one(
            file="plan", path="$.claims", why=f"it has {count}", remedy=remedy if count else "Plan with a bound."
        )
    claim = plan.claims[number - 1]
    solve = next((one for one in plan.solves if one.id == claim.solve), None)
    programs = [one for one in bounds(claim) or () if isinstance(one.form, Program)]
    why = "no mixed-integer program bounds it" if not programs else "it carries no proof"
    for program in programs if solve is not None and solve.proof and claim.bound is not None else ():
        form, stream = program.form, StringIO()
        assert isinstance(form, Program)
        assert solve is not None
        assert claim.bound is not None
        try:
            tree = carried_tree(form, solve.proof or {})
            shown = program.scale * float(write_vipr(form, tree, stream, wanted=claim.bound / program.scale))
        except (_NoProof, KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError, InputError) as no:
            why = str(no)
            continue
        if compare_bound(claim, shown, number).word is Word.PROVED:
            proved = f"{claim.sense} {claim.about} {shown:.9g}"
            return (
                f"% proves {proved}: {program.scale!r} times its bound, offset {form.offset!r}\n{stream.getvalue()}",
                proved,
            )
        why = f"in exact numbers it shows {shown:.9g}, and {claim.bound:.9g} is claimed"
    path, others = f"$.claims[{number - 1}]", [one for one in range(1, len(plan.claims) + 1) if one != number]
    remedy = f"Ask for another: --set ask={others[0]}." if others else "It is the plan's only claim."
    raise InputError.one(file="plan", path=path, value=claim.about, why=f"no certificate: {why}", remedy=remedy)


def _places(names: Iterable[str]) -> dict[str, int]:
    """Where each name is; -1 of one that several have."""
    found: dict[str, int] = {}
    for place, name in enumerate(names):
        found[name] = -1 if name in found else place
    return found


def _place(places: Mapping[str, int], name: str) -> int:
    place = places.get(name)
    if place is None:
        raise _Unknown(f"it prices {name}, which its program does not have")
    if place < 0:
        raise _Unclear(f"it prices {name}, of which its program has several")
    return place
