"""A second engine is asked what a first one answered (`--recheck`): do both say what can be true together? And
the same engine is asked a looser form, where it says "infeasible" without a proof.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from hetplan.errors import Cancelled
from hetplan.planner.answer import Answer, Certificate, Limits, Status, Vouched
from hetplan.planner.contract import Solver
from hetplan.planner.elastic import stretch_all
from hetplan.planner.forms.form import Form, certify
from hetplan.planner.forms.milp import Milp
from hetplan.planner.tolerances import FEASIBILITY, VALUE

__all__ = ["put_to_test", "second_opinion"]


def second_opinion(
    second: Solver, given: Sequence[tuple[Form[Any], Answer[Any], Certificate]], limits: Limits
) -> tuple[str, bool, bool]:
    """What is to be written of it; whether the second engine confirms the answers; whether it contradicts one."""
    try:
        if reason := second.refuses(given[0][0]):
            return f"{second.name} refused: {reason}", False, False
        for form, mine, verdict in given:
            theirs = second.solve(form, limits)
            said = _contradiction(form, mine, verdict, theirs, certify(form, theirs))
            if said:
                return f"{second.name}: {said}", False, True
    except _Unusable as error:
        return f"{second.name} {error}", False, False
    except Cancelled:
        raise
    except Exception as error:
        return f"{second.name} failed: {error}", False, False
    return f"{second.name} agrees", True, False


class _Unusable(Exception):
    """A second engine's answer says nothing about the first one's."""


def _contradiction(form: Form[Any], mine: Answer[Any], a: Certificate, theirs: Answer[Any], b: Certificate) -> str:
    """What two certified answers say that cannot both be true ("" if nothing)."""
    if theirs.status is Status.NO_ANSWER:
        raise _Unusable(f"gave no answer ({theirs.stop})")
    if b.faults:
        raise _Unusable(f"gave an answer that its form refutes: {b.faults[0]}")
    if mine.status is Status.NO_ANSWER:
        return ""
    if (mine.status is Status.INFEASIBLE) != (theirs.status is Status.INFEASIBLE):
        return f"it says {theirs.status} where {mine.engine or 'the first'} says {mine.status}"
    if a.value is None or b.value is None:
        return ""
    sign = 1.0 if getattr(form, "sense", "min") == "min" else -1.0
    slack = VALUE * max(1.0, abs(a.value), abs(b.value))
    if a.bound is not None and sign * (a.bound - b.value) > slack:
        return f"it found {b.value:.9g}, beyond the bound {a.bound:.9g}"
    if b.bound is not None and sign * (b.bound - a.value) > slack:
        return f"its bound {b.bound:.9g} is beyond the value {a.value:.9g}"
    return ""


def put_to_test(form: Milp, certificate: Certificate, engines: Iterable[Solver], limits: Limits) -> Certificate:
    """A word of infeasibility without proof: the loosened form must then need loosening; the first
    of the engines gave the word, the others answer where it refuses."""
    loosened = stretch_all(form)
    others = iter(engines)
    first = next(others)
    engine = first if not first.refuses(loosened) else next((one for one in others if not one.refuses(loosened)), first)
    answer = engine.solve(loosened, replace(limits, gap=None))
    verdict = certify(loosened, answer)
    if answer.status is Status.INFEASIBLE or not verdict.sound:
        return replace(
            certificate, faults=("infeasible is refuted: the engine fails on the form with all rows loosened",)
        )
    if verdict.value is not None and verdict.value <= FEASIBILITY:
        return replace(certificate, faults=("infeasible is refuted: no row needs loosening",))
    if verdict.vouched is Vouched.CERTIFIED and verdict.bound is not None and verdict.bound > FEASIBILITY:
        return replace(certificate, infeasible=Vouched.CERTIFIED)
    return certificate
