"""Whether "infeasible" is true where an engine says it without a proof: with all rows loosened there is a plan.

The least loosening is then above 0 exactly where no plan keeps all rows. So the same engine, or another one where it
refuses that form, is asked for it: 0 refutes the word, a bound above 0 that is proved proves it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from hetplan.planner.answer import Certificate, Limits, Status, Vouched
from hetplan.planner.contract import Solver
from hetplan.planner.elastic import stretch_all
from hetplan.planner.forms.form import certify
from hetplan.planner.forms.milp import Milp
from hetplan.planner.tolerances import FEASIBILITY

__all__ = ["check_infeasible"]


def check_infeasible(form: Milp, certificate: Certificate, engines: Iterable[Solver], limits: Limits) -> Certificate:
    """The certificate of an unproved "infeasible", refuted or proved where that can be; the first engine said it."""
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
