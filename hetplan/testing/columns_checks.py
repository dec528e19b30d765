"""Checks for engines of the Columns form: known cases with the cost of their best counts, limits and starts."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from hetplan.planner.answer import Limits, Stop
from hetplan.planner.forms.columns import Columns
from hetplan.planner.tolerances import VALUE
from hetplan.testing.known_case import Check, KnownCase, manners

if TYPE_CHECKING:
    from hetplan.planner.contract import Solver

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
        *(Check(f"answers: {case.name}", case.answered_by) for case in columns_cases()),
        *manners(_binding_form, _of_three_rooms),
        Check("is sound without time", partial(_sound_under, Limits(seconds=0.0))),
        Check("is sound without work", partial(_sound_under, Limits(work=1))),
        Check("does not begin when cancelled", _cancelled),
        Check("is not misled by a bad start", _bad_start),
        Check("is never worse than its start", _good_start),
    ]


def _binding(solver: Solver) -> KnownCase[Columns]:
    case = columns_cases()[1]
    case.taken_by(solver)
    return case


def _binding_form(solver: Solver) -> Columns:
    return _binding(solver).form


def _of_three_rooms(form: Columns) -> list[Columns]:
    return [replace(form, capacity=np.array([80.0, room])) for room in (0.0, 1.0, 2.0)]


def _sound_under(limits: Limits, solver: Solver) -> None:
    case = _binding(solver)
    case.judge(solver.solve(case.form, limits))


def _cancelled(solver: Solver) -> None:
    cancel = threading.Event()
    cancel.set()
    case = _binding(solver)
    answer = solver.solve(case.form, Limits(cancel=cancel))
    case.judge(answer)
    assert answer.stop is Stop.CANCELLED, f"it says {answer.stop}"


def _bad_start(solver: Solver) -> None:
    case = _binding(solver)
    size = case.form.cost.size
    for start in (np.full(size, 1e7), np.zeros(size + 1), np.full(size, np.nan), np.zeros(size)):
        case.judge(solver.solve(case.form, Limits(), start=start))


def _good_start(solver: Solver) -> None:
    case = _binding(solver)
    start = np.array([20.0, 1.0, 1.0])
    answer = solver.solve(case.form, Limits(work=1), start=start)
    case.judge(answer)
    assert answer.value is not None, "it lost the start"
    assert answer.value <= case.form.value(start) + VALUE, f"{answer.value} is worse than the start"
