"""Checks for searches of the BlackBox form: what they may measure, when they stop, and what they make of it.

The grid is small and its truth known, so that a search which may measure all of it has to come out with the best.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from hetplan.errors import Interrupted
from hetplan.planner.answer import Limits, Status, Stop
from hetplan.planner.contract import Event
from hetplan.planner.forms.black_box import Aim, BlackBox, Measured, Operator, OutOfTime, Placed, Verdict
from hetplan.planner.forms.form import certify
from hetplan.planner.tolerances import VALUE
from hetplan.testing.known_case import Check, Skipped, another_form, overheard

if TYPE_CHECKING:
    from hetplan.planner.contract import Solver

__all__ = ["black_box_checks", "small_box"]

LEVELS = (3, 2)
PLANS = 24


def small_box(*, target: float = 0.5, limit_s: float = 0.2, broken: tuple[int, ...] = (), **how: Any) -> BlackBox:
    """Two operators, six configurations, two tiers; the first is the slow and free one.

    >>> form = small_box()
    >>> len(form), len(form.configurations), best_cost(form)
    (24, 6, 1.84)
    """
    asked: list[int] = how.pop("asked", [])

    def measure(c: int) -> Measured:
        asked.append(c)
        if c in broken:
            return Measured(c, reason="broke")
        slow, good = divmod(c, 2)
        mean = 0.4 + 0.1 * slow + 0.15 * good
        return Measured(
            c, mean, 0.01, 50, Verdict.PASS if mean >= target else Verdict.FAIL, mean >= target,
            (0.01 + 0.01 * slow, 0.04 + 0.02 * slow + 0.01 * good), (1e4, 1e3), 2e4, 5.0,
        )  # fmt: skip

    placed = Placed(
        relative_time=np.array([6.0, 1.0]),
        price=np.array([0.0, 3.68]),
        second_per_byte=np.array([[0.0, 1e-7], [1e-7, 0.0]]),
        crossing_s=np.array([[0.0, 0.005], [0.005, 0.0]]),
    )
    placements = np.array([[a, b] for a in (0, 1) for b in (0, 1)], dtype=np.int64)
    operators = (Operator("cut", (0,)), Operator("name", (0, 1), (0,)))
    known: dict[str, Any] = {"most": 4 * PLANS, "ordered": (True, False), **how}
    return BlackBox(LEVELS, operators, placed, target, limit_s, measure, placements, **known)


def best_cost(form: BlackBox) -> float:
    """The least cost of all plans, each configuration measured."""
    known = replace(form, journal={})
    costs = []
    for c in range(len(known.configurations)):
        known.observe(c)
        costs.append(float(known.costs(c).min()))
    return min(costs)


def black_box_checks(solver: Solver) -> list[Check]:
    """Every check of an engine of this form."""
    del solver
    checks: tuple[tuple[str, Callable[[Solver], None]], ...] = (
        ("finds the best of all", _finds_the_best),
        ("refuses another form", another_form),
        ("finds the best of whatever is sought", _finds_what_is_sought),
        ("says that there is nothing only when that is so", _nothing_there),
        ("passes over what cannot be measured", _set_aside),
        ("gives up where nothing can be measured", _in_vain),
        ("ends when time does, with what it has", _out_of_time),
        ("never asks for a configuration twice", _never_twice),
        ("keeps to the number of measurements", _keeps_to_most),
        ("keeps to the seconds of the reference", _keeps_to_gpu_s),
        ("begins with the start", _begins_with_the_start),
        ("does the same twice", _same_twice),
        ("does not begin without time", _no_time),
        ("does not begin when cancelled", _cancelled_before),
        ("keeps what it has when cancelled", _cancelled_during),
        ("measures several at once", _several_at_once),
        ("reports progress truthfully", _events),
        ("is silent", _silent),
    )
    return [Check(name, run) for name, run in checks]


def _taken(solver: Solver, form: BlackBox) -> BlackBox:
    if reason := solver.refuses(form):
        raise Skipped(reason)
    return form


def _finds_the_best(solver: Solver) -> None:
    for limit_s in (0.2, 0.12, 1.0):
        form = _taken(solver, small_box(limit_s=limit_s))
        answer = solver.solve(form, Limits())
        certificate = certify(form, answer)
        assert certificate.sound, f"certify refutes the answer: {certificate.faults}"
        assert certificate.value is not None, "it found nothing"
        best = best_cost(form)
        assert abs(certificate.value - best) <= VALUE, f"{certificate.value} where {best} is best and all was measured"


def _finds_what_is_sought(solver: Solver) -> None:
    aims = (Aim(("quality",), 2.0), Aim(("quality",)), Aim(("latency",)), Aim(("latency",), 2.0), Aim(("cost",), 2.0))
    for aim in (*aims, Aim(("quality", "cost"))):
        form = small_box(aim=aim)
        if solver.refuses(form):
            continue
        certificate = certify(form, solver.solve(form, Limits()))
        assert certificate.sound, f"certify refutes the answer: {certificate.faults}"
        assert certificate.value is not None, f"it found nothing for {aim}"
        best = best_of(form)
        assert abs(certificate.value - best) <= VALUE, f"{certificate.value} where {best} is best of {aim}"


def best_of(form: BlackBox) -> float:
    """The best of the first figure sought, over all configurations, placements and shares, one by one."""
    best = math.inf
    for c in range(len(form.configurations)):
        found = form.measure(c)
        for where, shares in product(form.placements if found.passes else (), product(form.placed.shares, repeat=2)):
            placed = np.asarray(where)
            paid = form.placed.price[placed]
            slow = form.placed.relative_time[placed] / np.where(paid > 0, shares, 1.0)
            compute = (np.array(found.seconds) * slow)[None, None, :]
            sizes = np.array([found.bytes_out])
            latency = float(form.finish(compute, sizes, np.array([found.bytes_in]), placed[None, :])[0, 0])
            cost = float(paid @ shares)
            if latency <= form.limit_s and cost <= form.aim.budget:
                best = min(best, {"cost": cost, "quality": -found.mean, "latency": latency}[form.aim.of[0]])
    return best


def _nothing_there(solver: Solver) -> None:
    form = _taken(solver, small_box(target=0.9))
    answer = solver.solve(form, Limits())
    assert certify(form, answer).sound
    assert answer.status in (Status.INFEASIBLE, Status.NO_ANSWER), f"{answer.status}"
    cut = small_box(target=0.9, most=3)
    assert solver.solve(cut, Limits()).status is Status.NO_ANSWER, "infeasible, yet not all was measured"


def _set_aside(solver: Solver) -> None:
    form = _taken(solver, small_box(broken=(0, 3)))
    answer = solver.solve(form, Limits())
    certificate = certify(form, answer)
    assert certificate.sound
    assert certificate.value is not None
    assert {one.configuration for one in form.failed} <= {0, 3}


def _in_vain(solver: Solver) -> None:
    form = _taken(solver, small_box(broken=tuple(range(6))))
    assert solver.solve(form, Limits()).status is Status.NO_ANSWER


def _out_of_time(solver: Solver) -> None:
    whole = _taken(solver, small_box())

    def three(configuration: int) -> Measured:
        if len(cut.journal) == 3:
            raise OutOfTime("no time is left")
        return whole.measure(configuration)

    cut = replace(whole, measure=three, journal={})
    answer = solver.solve(cut, Limits())
    assert answer.stop is Stop.TIME, f"it says {answer.stop}"
    assert len(cut.journal) == 3
    assert certify(cut, answer).sound
    assert answer.status in (Status.FEASIBLE, Status.NO_ANSWER), f"{answer.status}, with half of it unmeasured"


def _never_twice(solver: Solver) -> None:
    asked: list[int] = []
    solver.solve(_taken(solver, small_box(asked=asked)), Limits())
    assert len(asked) == len(set(asked)), f"measured {asked}"


def _keeps_to_most(solver: Solver) -> None:
    for form, limits in ((small_box(most=2), Limits()), (small_box(), Limits(work=2))):
        solver.solve(_taken(solver, form), limits)
        assert len(form.journal) <= 2, f"{len(form.journal)} measured where two may be"


def _keeps_to_gpu_s(solver: Solver) -> None:
    form = _taken(solver, small_box(gpu_s=9.0))
    answer = solver.solve(form, Limits())
    assert len(form.journal) <= 2, "each takes 5 s, and it began another after 9 s were spent"
    assert answer.value == 0.0 or answer.stop is Stop.WORK or len(form.journal) < 2


def _begins_with_the_start(solver: Solver) -> None:
    for start in (5, 17):
        asked: list[int] = []
        solver.solve(_taken(solver, small_box(asked=asked)), Limits(), start=start)
        assert asked[0] == start // 4, f"the running plan is of configuration {start // 4}, it began with {asked[0]}"


def _same_twice(solver: Solver) -> None:
    reported = []
    for _ in range(2):
        asked: list[int] = []
        answer = solver.solve(_taken(solver, small_box(asked=asked)), Limits(seed=3))
        reported.append((answer.point, answer.value, asked))
    assert reported[0] == reported[1], "two courses from the same seed"


def _no_time(solver: Solver) -> None:
    form = _taken(solver, small_box())
    answer = solver.solve(form, Limits(seconds=0.0))
    assert (answer.status, answer.stop, len(form.journal)) == (Status.NO_ANSWER, Stop.TIME, 0)


def _cancelled_before(solver: Solver) -> None:
    cancel = threading.Event()
    cancel.set()
    form = _taken(solver, small_box())
    answer = solver.solve(form, Limits(cancel=cancel))
    assert (answer.status, answer.stop, len(form.journal)) == (Status.NO_ANSWER, Stop.CANCELLED, 0)


def _cancelled_during(solver: Solver) -> None:
    """The evaluator may be the one to stop; a plan that was found is still handed over."""
    form = _taken(solver, small_box(limit_s=0.12))
    inner = form.measure

    def measure(c: int) -> Measured:
        if len(form.journal) == 5:
            raise Interrupted("cancelled while measuring")
        return inner(c)

    form = replace(form, measure=measure)
    answer = solver.solve(form, Limits())
    assert answer.stop is Stop.CANCELLED, f"it says {answer.stop}"
    assert certify(form, answer).sound


def _several_at_once(solver: Solver) -> None:
    form = _taken(solver, small_box(parallel=3))
    answer = solver.solve(form, Limits())
    certificate = certify(form, answer)
    assert certificate.sound
    assert certificate.value is not None
    assert abs(certificate.value - best_cost(form)) <= VALUE


def _events(solver: Solver) -> None:
    form = _taken(solver, small_box())
    events: list[Event] = []
    answer = solver.solve(form, Limits(), on_event=events.append)
    reported = [event.value for event in events if event.value is not None]
    assert len(events) >= len(form.journal), "a measurement without a word"
    assert answer.value is not None
    assert all(value >= answer.value - VALUE for value in reported), "it reported a better plan than it returned"


def _silent(solver: Solver) -> None:
    form = _taken(solver, small_box())
    with overheard() as heard:
        solver.solve(form, Limits())
    assert not heard[0], f"it writes: {heard[0][:500]!r}"
