"""Checks for engines of the Columns form: known cases with their best values, and manners.

An engine need not find the best counts; what it returns must cover and fit, be worth what it says, and bound nothing
away that there is. What it calls infeasible must be.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from hetplan.planner.answer import Answer, Limits, Status, Stop
from hetplan.planner.certificate import Vouched, certify
from hetplan.planner.forms.columns import Columns
from hetplan.planner.tolerances import VALUE
from hetplan.testing.conformance import Check, Skipped, another_form
from hetplan.testing.known_case import KnownCase
from hetplan.testing.silence import overheard

if TYPE_CHECKING:
    from hetplan.planner.contract import Solver
    from hetplan.planner.forms.milp import Vector

__all__ = ["columns_cases", "columns_checks"]

Item = tuple[float, float, Sequence[float]]
"""What one of it gains, what it costs, what it takes of each row."""


def columns_cases() -> list[KnownCase[Columns]]:
    """Every known case."""
    return [*_of_one_block(), *_of_several(), *_at_the_edge(), *_drawn()]


def _form(
    blocks: Sequence[tuple[float, Sequence[Item]]],
    capacity: Sequence[float],
    *,
    free: dict[int, float] | None = None,
    surcharge: float = 0.0,
    most: float | None = None,
) -> Columns:
    """Blocks (need, items), every item a group of its own; of some groups so many are free of the surcharge."""
    items = [(b, need, item) for b, (need, listed) in enumerate(blocks) for item in listed]
    gain = np.array([item[0] for _, _, item in items], dtype=float)
    need = np.array([need for _, need, _ in items], dtype=float)
    size = len(items)
    spared = np.zeros(size)
    for group, count in (free or {}).items():
        spared[group] = count
    return Columns(
        block=np.array([b for b, _, _ in items], dtype=np.int64),
        need=np.array([need for need, _ in blocks], dtype=float),
        gain=gain,
        cost=np.array([item[1] for _, _, item in items], dtype=float),
        group=np.arange(size),
        free=spared,
        surcharge=np.full(size, surcharge),
        upper=np.ceil(need / gain) if most is None else np.full(size, most),
        use=np.array([item[2] for _, _, item in items], dtype=float).reshape(size, len(capacity)).T,
        capacity=np.array(capacity, dtype=float),
    )


TABLE_2: list[Item] = [(5.0, 1.0, (4.0, 0.0)), (100.0, 3.0, (0.0, 1.0)), (800.0, 16.0, (0.0, 0.0))]
"""The paper's three variants: slow and cheap on cores, quick on an accelerator, quick and dear."""


def _of_one_block() -> list[KnownCase[Columns]]:
    return [
        KnownCase("the paper's Table 3", partial(_form, [(1000.0, TABLE_2)], [1e4, 1e4]), 22.0),
        KnownCase("an accelerator too few", partial(_form, [(1000.0, TABLE_2)], [1e4, 1.0]), 32.0),
        KnownCase("a column of three items", partial(_form, [(918.0, TABLE_2)], [16.0, 1.0]), 23.0),
        KnownCase("a price between two columns", partial(_form, [(10.0, TABLE_2[:2])], [4.0, 9.0]), 3.0),
        KnownCase(
            "what runs is not loaded", partial(_form, [(10.0, TABLE_2)], [99.0, 9.0], free={0: 1.0}, surcharge=0.5),
            2.5,
        ),
        KnownCase("ties", partial(_form, [(3.0, [(1.0, 2.0, (1.0,)), (1.0, 2.0, (1.0,))])], [3.0]), 6.0),
    ]  # fmt: skip


def _of_several() -> list[KnownCase[Columns]]:
    pair: list[Item] = [(1.0, 1.0, (1.0,)), (1.0, 4.0, (0.0,))]
    odd: list[Item] = [(1.0, 1.0, (2.0,)), (1.0, 2.0, (0.0,))]
    return [
        KnownCase("one of two pays more", partial(_form, [(1.0, pair)] * 2, [1.0]), 5.0),
        KnownCase("the price has a gap", partial(_form, [(1.0, odd)] * 3, [5.0]), 4.0),
        KnownCase("three share what two need", partial(_form, [(1.0, [(1.0, 1.0, (1.0,))])] * 3, [2.0]), None),
        KnownCase("each alone would fit", partial(_form, [(2.0, [(1.0, 1.0, (1.0,))])] * 2, [3.0]), None),
    ]


def _at_the_edge() -> list[KnownCase[Columns]]:
    one: list[Item] = [(1.0, 1.0, (1.0,))]
    return [
        KnownCase("nothing is needed", partial(_form, [(0.0, TABLE_2)], [1.0, 1.0]), 0.0),
        KnownCase("one block needs nothing", partial(_form, [(0.0, one), (2.0, one)], [2.0]), 2.0),
        KnownCase("no rows", partial(_form, [(3.0, [(2.0, 1.0, ())])], []), 2.0),
        KnownCase("it costs nothing", partial(_form, [(3.0, [(1.0, 0.0, (1.0,))])], [3.0]), 0.0),
        KnownCase("a block without items", partial(_form, [(1.0, []), (1.0, one)], [9.0]), None),
        KnownCase("too few of each", partial(_form, [(5.0, one)], [9.0], most=4.0), None),
        KnownCase("no room at all", partial(_form, [(1.0, one)], [0.0]), None),
    ]


def _drawn() -> list[KnownCase[Columns]]:
    """Small enough for all counts to be tried."""
    cases = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        blocks = [
            (
                float(rng.integers(1, 9)),
                [
                    (float(rng.choice([1.0, 2.5, 4.0])), float(rng.integers(1, 9)), rng.integers(0, 4, 2).tolist())
                    for _ in range(2)
                ],
            )
            for _ in range(2)
        ]
        room = float(rng.choice([4.0, 7.0, 12.0]))
        write = partial(_form, blocks, [room, room], free={0: 1.0, 3: 2.0}, surcharge=0.75)
        cases.append(KnownCase(f"drawn {seed}", write, _tried(write())))
    return cases


def _tried(form: Columns) -> float | None:
    """The least cost of all counts, one by one."""
    values = []
    for counts in product(*(range(int(most) + 1) for most in form.upper)):
        x = np.array(counts, dtype=float)
        covered = np.bincount(form.block, weights=form.gain * x, minlength=form.need.size)
        if (covered >= form.need - 1e-9).all() and (form.use @ x <= form.capacity + 1e-9).all():
            values.append(form.value(x))
    return min(values, default=None)


def columns_checks(solver: Solver) -> list[Check]:
    """Every check of an engine of this form."""
    del solver
    return [
        *(Check(f"answers: {case.name}", partial(_answers, case)) for case in columns_cases()),
        Check("refuses another form", another_form),
        Check("leaves the form as it was", _leaves_the_form),
        Check("answers a family as one by one", _family),
        Check("gives the same answer twice", _same_twice),
        Check("is silent", _silent),
        Check("is sound without time", _no_time),
        Check("is sound without work", _no_work),
        Check("does not begin when cancelled", _cancelled),
        Check("is not misled by a bad start", _bad_start),
        Check("is never worse than its start", _good_start),
    ]


def _judge(case: KnownCase[Columns], answer: Answer[Vector]) -> None:
    certificate = certify(case.form, answer)
    assert certificate.sound, f"certify refutes the answer: {certificate.faults}"
    assert answer.status is not Status.UNBOUNDED, "nothing costs less than nothing"
    if case.value is None:
        assert answer.point is None, "counts where there are none"
        return
    slack = VALUE * max(1.0, abs(case.value))
    assert answer.status is not Status.INFEASIBLE, "infeasible, and it is not"
    assert certificate.infeasible is not Vouched.CERTIFIED, "proved infeasible, and it is not"
    for bound in (certificate.bound, certificate.certified_bound):
        assert bound is None or bound <= case.value + slack, f"bounds away {case.value}: {bound}"
    if certificate.value is not None:
        assert certificate.value >= case.value - slack, f"{certificate.value} is better than best"
    if answer.status is Status.OPTIMAL:
        assert certificate.value is not None, "optimal, and no counts"
        assert certificate.value <= case.value + slack, f"{certificate.value} where {case.value} is best"


def _answers(case: KnownCase[Columns], solver: Solver) -> None:
    answer = solver.solve(case.taken_by(solver), Limits())
    _judge(case, answer)
    # A few blocks of a few items: whoever finds no counts here finds none anywhere.
    assert case.value is None or answer.point is not None, f"no counts where {case.value} is best"


def _binding(solver: Solver) -> KnownCase[Columns]:
    case = columns_cases()[1]
    case.taken_by(solver)
    return case


def _leaves_the_form(solver: Solver) -> None:
    form = _binding(solver).form
    parts = (form.block, form.need, form.gain, form.cost, form.group, form.free, form.use, form.capacity, form.upper)
    before = [part.copy() for part in parts]
    solver.solve(form, Limits())
    assert all(np.array_equal(was, now) for was, now in zip(before, parts, strict=True)), "the form was changed"


def _family(solver: Solver) -> None:
    form = _binding(solver).form
    family = [replace(form, capacity=np.array([80.0, room])) for room in (0.0, 1.0, 2.0)]
    together = solver.solve_all(family, Limits())
    assert [answer.value for answer in together] == [solver.solve(one, Limits()).value for one in family]


def _same_twice(solver: Solver) -> None:
    form = _binding(solver).form
    one, other = solver.solve(form, Limits(seed=1)), solver.solve(form, Limits(seed=1))
    if not one.deterministic:
        raise Skipped("it says itself that it is not deterministic")
    assert (one.status, one.value, one.bound) == (other.status, other.value, other.bound)
    assert one.point is not None
    assert other.point is not None
    assert np.array_equal(one.point, other.point), "two choices from the same question"


def _silent(solver: Solver) -> None:
    forms = [case.taken_by(solver) for case in columns_cases()]
    with overheard() as heard:
        for form in forms:
            solver.solve(form, Limits(seconds=60.0))
    assert not heard[0], f"it writes: {heard[0][:500]!r}"


def _no_time(solver: Solver) -> None:
    case = _binding(solver)
    _judge(case, solver.solve(case.form, Limits(seconds=0.0)))


def _no_work(solver: Solver) -> None:
    case = _binding(solver)
    _judge(case, solver.solve(case.form, Limits(work=1)))


def _cancelled(solver: Solver) -> None:
    cancel = threading.Event()
    cancel.set()
    case = _binding(solver)
    answer = solver.solve(case.form, Limits(cancel=cancel))
    _judge(case, answer)
    assert answer.stop is Stop.CANCELLED, f"it says {answer.stop}"


def _bad_start(solver: Solver) -> None:
    case = _binding(solver)
    size = case.form.cost.size
    for start in (np.full(size, 1e7), np.zeros(size + 1), np.full(size, np.nan), np.zeros(size)):
        _judge(case, solver.solve(case.form, Limits(), start=start))


def _good_start(solver: Solver) -> None:
    case = _binding(solver)
    start = np.array([20.0, 1.0, 1.0])
    answer = solver.solve(case.form, Limits(work=1), start=start)
    _judge(case, answer)
    assert answer.value is not None, "it lost the start"
    assert answer.value <= case.form.value(start) + VALUE, f"{answer.value} is worse than the start"
