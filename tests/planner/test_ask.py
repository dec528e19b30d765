"""The conversation: engines are chosen, lies are caught whoever tells them, deadlines are shared, all is recorded."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest

from hetplan.errors import InputError, Interrupted, NoSolver, SolverFailed
from hetplan.planner.answer import Answer, Limits, Status, Stop
from hetplan.planner.forms.milp import Builder, Milp
from hetplan.planner.solver_calls import Asking


def form(*, demand: float = 3.0, whole: bool = False) -> Milp:
    m = Builder("min")
    x = m.columns("x", ["a", "b"], upper=[2.0, 2.0], cost=[1.0, 2.0], whole=whole)
    m.add(m.rows("cover", ["all"], lower=demand), x, 1.0)
    return m.build()


@dataclass
class Liar:
    """An engine that answers through another and then changes the answer."""

    honest: Any
    lie: Any
    name: str = "liar"
    form: ClassVar[str] = "milp"

    def version(self) -> str:
        return "test"

    def refuses(self, form: Any) -> str:
        return ""

    def solve(self, form: Any, limits: Limits, *, start: Any = None, on_event: Any = None) -> Answer[Any]:
        return self.lie(form, self.honest.solve(form, limits))

    def solve_all(self, forms: Any, limits: Limits, *, on_event: Any = None) -> list[Answer[Any]]:
        return [self.solve(form, limits) for form in forms]


LIES = {
    "infeasible point": lambda form, a: replace(a, point=np.zeros_like(a.point)),
    "wrong value": lambda form, a: replace(a, value=a.value * 0.9),
    "false infeasible": lambda form, a: Answer(Status.INFEASIBLE),
    "false bound": lambda form, a: replace(a, bound=a.value + 1.0),
    "false ray": lambda form, a: Answer(Status.INFEASIBLE, ray=np.ones(form.row_lower.size)),
}


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("whole", [False, True])
def test_a_lie_is_caught_and_the_next_engine_asked(reference, lie, whole) -> None:
    ask = Asking([Liar(reference, LIES[lie]), reference])
    answer = ask(form(whole=whole))
    assert answer.value == pytest.approx(4.0)
    assert ask.records[0].engine == "reference"
    assert ask.records[0].refused
    assert ask.records[0].refused[0].startswith("liar")


@pytest.mark.parametrize("lie", LIES)
def test_a_named_liar_is_an_error(reference, lie) -> None:
    ask = Asking([Liar(reference, LIES[lie]), reference], solver="liar")
    with pytest.raises(SolverFailed, match="liar"):
        ask(form())


def test_a_liar_that_denies_infeasibility_only_where_it_is_not_tested(reference) -> None:
    """It calls the form infeasible, and tells the truth about the loosened form: the truth gives it away."""

    def sly(asked: Milp, answer: Answer[Any]) -> Answer[Any]:
        return Answer(Status.INFEASIBLE) if "stretched" not in asked.name else answer

    with pytest.raises(SolverFailed, match="no row needs loosening"):
        Asking([Liar(reference, sly)])(form())


def test_a_true_infeasible_is_certified_through_the_loosened_form(reference) -> None:
    ask = Asking([reference])
    assert ask(form(demand=5.0)).status is Status.INFEASIBLE
    assert ask.records[0].certificates[0].infeasible == "certified"


def test_a_word_of_infeasibility_that_need_not_be_tested_is_one_program(reference) -> None:
    heard: list[str] = []

    def note(asked: Milp, answer: Answer[Any]) -> Answer[Any]:
        heard.append(asked.name)
        return answer

    ask = Asking([Liar(reference, note)])
    ask(form(demand=5.0))
    assert len(heard) == 2
    assert ask.without_infeasibility_checks()(form(demand=5.0)).status is Status.INFEASIBLE
    assert ask.without_infeasibility_checks().all([form(demand=5.0)])[0].status is Status.INFEASIBLE
    assert len(heard) == 4
    assert ask.records[-1].certificates[0].infeasible != "certified"
    assert (ask.without_infeasibility_checks(gap=0.1).limits.gap, ask.limits.gap) == (0.1, None)


def test_what_no_claim_rests_on_is_not_proved(reference) -> None:
    """A proof may take longer than the answer."""
    proved: list[str] = []

    class Prover(Liar):
        def prove(self, form: Milp, answer: Answer[Any], limits: Limits) -> Answer[Any]:
            proved.append(form.name)
            return answer

    ask = Asking([Prover(reference, lambda form, answer: answer)])
    assert ask.without_proofs()(form(whole=True)).value == pytest.approx(4.0)
    assert ask.without_infeasibility_checks()(form(whole=True)).value == pytest.approx(4.0)
    assert not proved
    # Another word of infeasibility is tested all the same.
    assert ask.without_proofs()(form(demand=5.0)).status is Status.INFEASIBLE
    assert ask.records[-1].certificates[0].infeasible == "certified"
    ask(form(whole=True))
    assert len(proved) == 1


def test_a_crashing_engine_is_passed_over(reference) -> None:
    def crash(asked: Milp, answer: Answer[Any]) -> Answer[Any]:
        raise RuntimeError("segmentation of duty")

    ask = Asking([Liar(reference, crash), reference])
    assert ask(form()).value == pytest.approx(4.0)
    with pytest.raises(SolverFailed, match="segmentation of duty"):
        Asking([Liar(reference, crash)])(form())


def test_a_family_is_one_record(reference) -> None:
    ask = Asking([reference])
    answers = ask.all([form(demand=d) for d in (1.0, 2.0, 3.0)], about="three")
    assert [a.value for a in answers] == pytest.approx([1.0, 2.0, 4.0])
    assert len(ask.records) == 1
    assert ask.record_of(answers[1])[0].about == "three"
    assert ask.all([]) == []


def test_nobody_takes_it(reference) -> None:
    with pytest.raises(NoSolver, match="highs"):
        Asking([Refusing()])(form())
    with pytest.raises(NoSolver):
        Asking([reference])(form(), solver="absent")


@dataclass
class Refusing:
    name: ClassVar[str] = "highs"
    form: ClassVar[str] = "milp"

    def refuses(self, form: Any) -> str:
        return "not installed"


def test_one_deadline_for_the_whole_conversation(reference) -> None:
    now = [0.0]
    seen: list[float | None] = []

    def slow(asked: Milp, answer: Answer[Any]) -> Answer[Any]:
        now[0] += 4.0
        return answer

    engine = Liar(reference, slow)
    honest_solve = engine.solve
    engine.solve = lambda form, limits, **kw: (seen.append(limits.seconds), honest_solve(form, limits))[1]  # type: ignore[method-assign]
    ask = Asking([engine], Limits(seconds=10.0, clock=lambda: now[0]))
    ask(form())
    ask(form())
    assert seen == [10.0, 6.0]
    assert ask.remaining == pytest.approx(2.0)


def test_a_cancelled_conversation_stops(reference) -> None:
    cancel = threading.Event()
    cancel.set()
    with pytest.raises(Interrupted):
        Asking([reference], Limits(cancel=cancel))(form())
    empty = Liar(reference, lambda form, a: Answer(Status.NO_ANSWER, stop=Stop.CANCELLED))
    with pytest.raises(Interrupted):
        Asking([empty])(form())


def test_the_formulations_gap_gives_way_to_the_users(reference) -> None:
    gaps: list[float | None] = []
    engine = Liar(reference, lambda form, a: a)
    honest_solve = engine.solve
    engine.solve = lambda form, limits, **kw: (gaps.append(limits.gap), honest_solve(form, limits))[1]  # type: ignore[method-assign]
    Asking([engine])(form(), gap=1e-3)
    Asking([engine], Limits(gap=1e-5))(form(), gap=1e-3)
    assert gaps == [1e-3, 1e-5]


def test_what_was_found_is_settled_in_a_short_grace_after_the_deadline(reference) -> None:
    now = [0.0]
    ask = Asking([reference], Limits(seconds=10.0, clock=lambda: now[0]))
    ask(form(whole=True))
    now[0] = 11.0
    assert ask.remaining == 0.0
    assert ask(form()).value == pytest.approx(4.0)


def test_what_was_found_is_settled_after_a_cancel_and_only_then(reference) -> None:
    cancel = threading.Event()
    ask = Asking([reference], Limits(cancel=cancel))
    ask(form(whole=True))
    cancel.set()
    assert ask(form()).value == pytest.approx(4.0)
    with pytest.raises(Interrupted):
        Asking([reference], Limits(cancel=cancel))(form())


def test_the_grace_is_short(reference) -> None:
    now, given = [0.0], []
    engine = Liar(reference, lambda form, a: a)
    honest_solve = engine.solve
    engine.solve = lambda form, limits, **kw: (given.append(limits.seconds), honest_solve(form, limits))[1]  # type: ignore[method-assign]
    ask = Asking([engine], Limits(seconds=10.0, clock=lambda: now[0]))
    ask(form())
    for moment in (12.0, 12.375, 20.0, *range(21, 27)):
        now[0] = moment
        ask(form())
    assert given == [10.0, 0.5, 0.125, *[0.1] * 6, 0.0]


def test_an_engine_that_cannot_even_refuse_is_passed_over(reference) -> None:
    class Raw(Refusing):
        def refuses(self, form: Any) -> str:
            raise TypeError("unhashable duty")

    assert Asking([Raw(), reference])(form()).value == pytest.approx(4.0)


@pytest.mark.parametrize(
    "limits", [{"seconds": -1.0}, {"gap": float("nan")}, {"work": -1}, {"seed": -1}, {"threads": 0}]
)
def test_absurd_limits_are_refused(limits: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"limits\."):
        Limits(**limits)
