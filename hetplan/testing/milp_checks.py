"""Checks for engines of the Milp form: all of `milp_cases`, and manners.

Limits, cancelling, starts, families, silence, threads, the form left as it was. Judgement is by `certify` and by the
known value, never by comparing vectors, so that a new engine needs no new test.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from hetplan.planner.answer import Answer, Certificate, Limits, Status, Stop, Vouched, relative_gap
from hetplan.planner.contract import Event
from hetplan.planner.forms.form import certify
from hetplan.planner.tolerances import VALUE
from hetplan.testing.known_case import Check, Skipped, another_form, leaves_the_form, overheard, same_twice
from hetplan.testing.milp_cases import MilpCase, hard_lp, hard_mip, milp_cases, warm_family

if TYPE_CHECKING:
    from hetplan.planner.contract import Solver
    from hetplan.planner.forms.form import Form
    from hetplan.planner.forms.milp import Milp, Vector

__all__ = ["milp_checks"]


def milp_checks(solver: Solver) -> list[Check]:
    """Every check of an engine of this form."""
    del solver
    return [
        *(Check(f"answers: {case.name}", partial(_answers, case)) for case in milp_cases()),
        Check("refuses another form", another_form),
        Check("refuses what is not a number", _refuses_nan),
        Check("leaves the form as it was", partial(leaves_the_form, _form)),
        Check("answers a family as one by one", _family),
        Check("gives the same answer twice", partial(same_twice, _form)),
        Check("is silent", _silent),
        Check("works in two threads at once", _two_threads),
        Check("takes seed and threads", _seed_and_threads),
        Check("is never worse than its start", _never_worse_than_start),
        Check("is not misled by a bad start", _bad_start),
        Check("stops at a gap", _gap),
        Check("stops for work", _work_limit),
        Check("stops for time", _time_limit),
        Check("does not begin without time", _no_time),
        Check("does not begin when cancelled", _cancelled_before),
        Check("stops when cancelled", _cancelled_during),
        Check("reports progress truthfully", _events),
    ]


def _taken(solver: Solver, form: Form[Vector]) -> None:
    if reason := solver.refuses(form):
        raise Skipped(reason)


def _first_taken(solver: Solver, forms: Iterator[Milp]) -> Milp:
    reason = "no form"
    for form in forms:
        reason = solver.refuses(form)
        if not reason:
            return form
    raise Skipped(reason)


def _case(solver: Solver, *, with_point: bool = True) -> MilpCase:
    """The first case, integer ones before linear ones, that the engine takes and that has an optimum."""
    cases = [case for case in milp_cases() if case.status is Status.OPTIMAL and case.form.matrix.shape[0]]
    cases = [case for case in cases if case.point is not None or not with_point]
    cases.sort(key=lambda case: case.form.pure_lp)
    wanted = _first_taken(solver, (case.form for case in cases))
    return next(case for case in cases if case.form is wanted)


def _form(solver: Solver) -> Milp:
    return _case(solver).form


def _sound(form: Milp, answer: Answer[Vector]) -> Certificate:
    certificate = certify(form, answer)
    assert certificate.sound, f"certify refutes the answer: {certificate.faults}"
    return certificate


def _answers(case: MilpCase, solver: Solver) -> None:
    _taken(solver, case.form)
    _judge(case, solver.solve(case.form, Limits()), heuristic=getattr(solver, "heuristic", False))


def _judge(case: MilpCase, answer: Answer[Vector], *, heuristic: bool = False) -> None:
    certificate = _sound(case.form, answer)
    if heuristic:
        # It need not prove anything, but must find a point where there is one.
        wanted = {Status.OPTIMAL: {Status.OPTIMAL, Status.FEASIBLE}}.get(case.status, {case.status, Status.NO_ANSWER})
        assert answer.status in wanted, f"{answer.status} where the form is {case.status}: {answer.detail}"
    else:
        assert answer.status is case.status, f"{answer.status} where the form is {case.status}: {answer.detail}"
    if case.value is None:
        return
    assert certificate.value is not None, "no value"
    off = abs(certificate.value - case.value) / max(1.0, abs(case.value))
    assert answer.status is not Status.OPTIMAL or off <= VALUE, f"value {certificate.value}, known to be {case.value}"
    if answer.row_duals is not None and case.certifiable:
        assert certificate.certified_bound is not None, "its duals prove no bound"
        gap = abs(certificate.certified_bound - case.value) / max(1.0, abs(case.value))
        assert gap <= VALUE, f"its duals prove {certificate.certified_bound}, known to be {case.value}"
    if case.form.pure_lp and answer.row_duals is not None:
        assert certificate.vouched is Vouched.CERTIFIED or not case.certifiable


def _refuses_nan(solver: Solver) -> None:
    form = _case(solver).form
    broken = replace(form, row_upper=np.full_like(form.row_upper, np.nan))
    assert solver.refuses(broken), "it takes a form with a bound that is not a number"


def _family(solver: Solver) -> None:
    family = warm_family()
    if solver.refuses(family[0]):
        family = _whole_family()
    _taken(solver, family[0])
    together = solver.solve_all(family, Limits())
    assert len(together) == len(family)
    for form, answer in zip(family, together, strict=True):
        _sound(form, answer)
        alone = solver.solve(form, Limits())
        assert answer.status is alone.status, f"{answer.status} in the family, {alone.status} alone"
        if alone.value is not None:
            assert answer.value is not None
            assert abs(answer.value - alone.value) <= VALUE * max(1.0, abs(alone.value))


def _whole_family() -> list[Milp]:
    form = next(case.form for case in milp_cases() if case.name == "a knapsack")
    return [replace(form, row_upper=np.array([float(room)])) for room in range(4, 12)]


def _silent(solver: Solver) -> None:
    # What an engine writes, it writes of small forms too.
    forms = [case.form for case in milp_cases() if case.form.cost.size < 100 and not solver.refuses(case.form)]
    _first_taken(solver, iter(forms))
    with overheard() as heard:
        for form in forms:
            solver.solve(form, Limits(seconds=60.0))
    assert not heard[0], f"it writes: {heard[0][:500]!r}"


def _two_threads(solver: Solver) -> None:
    cases = [case for case in milp_cases() if case.form.cost.size < 100 and not solver.refuses(case.form)]
    _first_taken(solver, (case.form for case in cases))
    failures: list[str] = []

    def work(mine: list[MilpCase]) -> None:
        for case in mine:
            try:
                _answers(case, solver)
            except Exception as error:
                failures.append(f"{case.name}: {error}")

    threads = [threading.Thread(target=work, args=(part,)) for part in (cases, cases[::-1])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, "; ".join(failures)


def _seed_and_threads(solver: Solver) -> None:
    case = _case(solver)
    for limits in (Limits(seed=12345, threads=2), Limits(seed=2**40, threads=1)):
        _judge(case, solver.solve(case.form, limits), heuristic=getattr(solver, "heuristic", False))


def _never_worse_than_start(solver: Solver) -> None:
    case = _case(solver)
    start = np.array(case.point, dtype=float)
    answer = solver.solve(case.form, Limits(work=1), start=start)
    _sound(case.form, answer)
    sign = 1.0 if case.form.sense == "min" else -1.0
    assert answer.value is not None, "it lost the start"
    assert sign * answer.value <= sign * case.form.value(start) + VALUE, f"{answer.value} is worse than the start"


def _bad_start(solver: Solver) -> None:
    case = _case(solver)
    for start in (np.full(case.form.cost.size, 1e7), np.zeros(case.form.cost.size + 1), case.form.lower * np.nan):
        answer = solver.solve(case.form, Limits(), start=start)
        _judge(case, answer, heuristic=getattr(solver, "heuristic", False))


def _gap(solver: Solver) -> None:
    case = _case(solver)
    answer = solver.solve(case.form, Limits(gap=0.1))
    _sound(case.form, answer)
    assert answer.has_point, "no point"
    if answer.status is Status.OPTIMAL and answer.bound is not None and answer.value is not None:
        assert relative_gap(answer.value, answer.bound) <= 0.1 + VALUE


def _hard(solver: Solver) -> Milp:
    return _first_taken(solver, iter((hard_mip(), hard_lp())))


def _work_limit(solver: Solver) -> None:
    form = _hard(solver)
    answer = solver.solve(form, Limits(work=1, seconds=60.0))
    _sound(form, answer)
    assert answer.stop is not Stop.TIME, "a limit on work did not stop it within a minute"
    assert answer.status not in (Status.INFEASIBLE, Status.UNBOUNDED), f"{answer.status}, which is not so"


def _time_limit(solver: Solver) -> None:
    form = _hard(solver)
    answer = solver.solve(form, Limits(seconds=0.25))
    _sound(form, answer)
    assert answer.status not in (Status.INFEASIBLE, Status.UNBOUNDED), f"{answer.status}, which is not so"
    if form.pure_lp and answer.status is Status.OPTIMAL:
        raise Skipped("the linear program was solved within the limit")
    assert answer.stop is Stop.TIME, f"it says {answer.stop}"
    assert not answer.deterministic, "what a clock stopped is not deterministic"
    assert not (form.pure_lp and answer.bound is not None), "the objective of an unfinished linear program is no bound"


def _no_time(solver: Solver) -> None:
    answer = solver.solve(_hard(solver), Limits(seconds=0.0))
    assert (answer.status, answer.stop) == (Status.NO_ANSWER, Stop.TIME)


def _cancelled_before(solver: Solver) -> None:
    cancel = threading.Event()
    cancel.set()
    answer = solver.solve(_hard(solver), Limits(cancel=cancel))
    assert (answer.status, answer.stop) == (Status.NO_ANSWER, Stop.CANCELLED)
    family = [_hard(solver)] * 3
    assert [a.stop for a in solver.solve_all(family, Limits(cancel=cancel))] == [Stop.CANCELLED] * 3


def _cancelled_during(solver: Solver) -> None:
    if not getattr(solver, "interruptible", True):
        raise Skipped("it cannot be interrupted, and says so")
    form = hard_mip()
    _taken(solver, form)
    cancel = threading.Event()
    timer = threading.Timer(0.2, cancel.set)
    timer.start()
    try:
        answer = solver.solve(form, Limits(cancel=cancel, seconds=120.0))
    finally:
        timer.cancel()
    _sound(form, answer)
    assert answer.stop is Stop.CANCELLED, f"it says {answer.stop}"
    assert not answer.deterministic


def _events(solver: Solver) -> None:
    form = _first_taken(solver, iter((hard_mip(), hard_lp())))
    events: list[Event] = []
    enough = threading.Event()

    def listen(event: Event) -> None:
        events.append(event)
        if sum(event.what == "incumbent" for event in events) >= 3:
            enough.set()

    answer = solver.solve(form, Limits(seconds=0.7, cancel=enough), on_event=listen)
    sign = 1.0 if form.sense == "min" else -1.0
    for event in events:
        if event.what == "incumbent" and event.value is not None and answer.value is not None:
            assert sign * event.value >= sign * answer.value - VALUE, "it reported a better point than it returned"
    if not any(event.what == "incumbent" for event in events):
        raise Skipped("it reports no points")

    class Raised(Exception):
        pass

    heard = threading.Event()

    def refuse(_: Event) -> None:
        heard.set()  # which also ends an engine that goes on
        raise Raised

    try:
        solver.solve(form, Limits(seconds=60.0, cancel=heard), on_event=refuse)
    except Raised:
        return
    raise AssertionError("what its listener raised was lost")
