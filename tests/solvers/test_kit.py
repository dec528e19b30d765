"""The conformance kit finds what it is there to find."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest

from hetplan.planner.answer import Answer, Limits, Status, Stop
from hetplan.planner.forms.milp import Milp
from hetplan.planner.forms.queue_process import QueueProcess
from hetplan.solvers.highs import Highs
from hetplan.solvers.queue_structured import QueueStructured
from hetplan.testing import LIES, Lying, check_solver, solver_checks
from hetplan.testing.known_case import overheard


@pytest.mark.slow
def test_a_good_engine_passes_and_what_was_skipped_is_reported() -> None:
    assert check_solver(Highs()) == {}


@pytest.mark.parametrize("lie", sorted(LIES))
def test_a_liar_fails(lie: str) -> None:
    liar = Lying(Highs(), lie)
    failed = 0
    for check in solver_checks(liar):
        if check.name in {"answers: optimum of a maximum", "answers: a knapsack", "answers: tie between vertices"}:
            try:
                check.run(liar)
            except AssertionError:
                failed += 1
    assert failed


def test_everything_that_failed_is_reported_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = [check for check in solver_checks(Highs()) if check.name.startswith("answers: infeasible")]
    monkeypatch.setattr("hetplan.testing.conformance.solver_checks", lambda solver: kept)
    with pytest.raises(AssertionError, match=f"failed {len(kept)} checks"):
        check_solver(_Ill("claims optima"))


class _Ill(Highs):
    """HiGHS with one bad habit."""

    def __init__(self, habit: str) -> None:
        self.habit = habit

    def solve(self, form: Milp, limits: Limits, *, start=None, on_event=None) -> Answer:
        if self.habit == "talks":
            print("thinking", file=sys.stderr)
        if self.habit == "scribbles":
            form.cost[:] = form.cost + 1.0
        if self.habit == "forgets limits":
            limits = Limits(cancel=limits.cancel, work=3)
        if self.habit == "deaf":
            limits = replace(limits, cancel=None, seconds=min(limits.seconds or 1.0, 1.0))
        if self.habit == "swallows":
            on_event = on_event and (lambda event, tell=on_event: _quietly(tell, event))
        answer = super().solve(form, limits, start=start, on_event=on_event)
        if self.habit == "calls clocks deterministic":
            return replace(answer, deterministic=True)
        if self.habit == "claims optima":
            return replace(answer, status=Status.OPTIMAL)
        if self.habit == "wanders":
            _Ill.turn += 1
            return replace(answer, bound=None if _Ill.turn % 2 else answer.bound)
        return answer

    def solve_all(self, forms: Iterable[Milp], limits: Limits, *, on_event=None) -> list[Answer]:
        answers = super().solve_all(forms, limits, on_event=on_event)
        return [answers[0] for _ in answers] if self.habit == "repeats itself" else answers

    turn = 0


def _quietly(tell, event) -> None:
    try:
        tell(event)
    except Exception:
        return


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize(
    ("habit", "check"),
    [
        ("talks", "is silent"),
        ("scribbles", "leaves the form as it was"),
        ("forgets limits", "stops for time"),
        ("deaf", "stops when cancelled"),
        ("swallows", "reports progress truthfully"),
        ("calls clocks deterministic", "stops for time"),
        ("wanders", "gives the same answer twice"),
        ("repeats itself", "answers a family as one by one"),
    ],
)
def test_a_bad_habit_is_noticed(habit: str, check: str) -> None:
    checks = {each.name: each for each in solver_checks(Highs())}
    with pytest.raises(AssertionError):
        checks[check].run(_Ill(habit))


class _Odd(QueueStructured):
    """The engine of decision processes with one bad habit."""

    def __init__(self, habit: str) -> None:
        self.habit = habit

    def answer(self, form: QueueProcess, limits: Limits, *, start, on_event) -> Answer:
        found = super().answer(form, limits, start=start, on_event=on_event)
        if self.habit == "scribbles":
            form.accuracy[:] = form.accuracy / 2.0
        if self.habit == "calls the first policy best":
            first = form.policy(np.array(form.actions.first[:-1]))
            return replace(found, point=first, value=None, bound=None, proof={})
        if self.habit == "bounds too low":
            return replace(found, bound=found.value - 1.0)
        if self.habit == "gives up":
            return Answer(Status.INFEASIBLE, engine=self.name)
        return found


@pytest.mark.parametrize(
    ("habit", "check"),
    [
        ("scribbles", "leaves the form as it was"),
        ("calls the first policy best", "answers: per query"),
        ("bounds too low", "answers: per decision"),
        ("gives up", "answers: a hundred sweeps"),
    ],
)
def test_a_bad_habit_is_noticed_in_other_forms(habit: str, check: str) -> None:
    checks = {each.name: each for each in solver_checks(QueueStructured())}
    checks[check].run(QueueStructured())
    with pytest.raises(AssertionError):
        checks[check].run(_Odd(habit))


def test_a_start_is_kept_when_the_work_runs_out() -> None:
    from hetplan.testing.milp_cases import hard_mip

    form = hard_mip()
    first = Highs().solve(form, Limits(work=1))
    assert first.point is not None
    again = Highs().solve(form, Limits(work=0), start=first.point)
    assert again.value is not None
    assert again.value <= first.value
    assert again.stop is Stop.WORK


def test_other_forms_have_no_cases_yet() -> None:
    class Other(Highs):
        form = "other"

    with pytest.raises(ValueError, match="other form"):
        solver_checks(Other())


def test_overheard_hears_both_streams() -> None:
    with overheard() as heard:
        print("out")
        print("err", file=sys.stderr)
    assert "out" in heard[0]
    assert "err" in heard[0]
