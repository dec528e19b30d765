"""GPU shares cut down: the minimal combinations, against trying every one and comparing all with all."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from hetplan.planner.forms.black_box import (
    BlackBox,
    Measured,
    Operator,
    Placed,
    Verdict,
    antichain,
    cheapest,
    least_shares,
)

GRID = (1.0, 0.75, 0.5, 0.25, 0.125)


def drawn(seed: int) -> tuple[BlackBox, Measured]:
    """Four operators, one of them batched, in a diamond over three tiers, one of which is free."""
    rng = np.random.default_rng(seed)
    after = ((), (0,), (0,), (1, 2))
    operators = tuple(Operator(f"o{n}", (0,), before, by_share=n != 1) for n, before in enumerate(after))
    measured = Measured(0, 0.9, 0.01, 100, Verdict.PASS, True, tuple(rng.uniform(0.01, 0.3, 4)), (1e5,) * 4, 1e5)
    placed = Placed(np.array([3.0, 2.0, 1.0]), np.array([0.0, 2.48, 3.67]), np.full((3, 3), 1e-7), np.zeros((3, 3)))
    form = BlackBox(
        levels=(1,), operators=operators, placed=placed, target=0.5, limit_s=float(rng.uniform(1.0, 2.0)),
        measure=lambda c: measured, placements=np.array(list(product(range(3), repeat=4))),
    )  # fmt: skip
    return form, form.observe(0)


def by_hand(form: BlackBox, measured: Measured, placement: int) -> set[tuple[float, ...]]:
    """All combinations of the priced operators within the limit than which no other is nowhere larger."""
    where = form.placements[placement]
    paid = np.flatnonzero(form.price[placement] > 0)
    found = []
    for shares in product(GRID, repeat=paid.size):
        slow = np.ones(4)
        slow[paid] = [1.0 / share if form.operators[o].by_share else 1.0 for o, share in zip(paid, shares, strict=True)]
        compute = (np.array(measured.seconds) * form.placed.relative_time[where] * slow)[None, None, :]
        ends = form.finish(compute, np.array([measured.bytes_out]), np.array([measured.bytes_in]), where[None, :])
        if ends[0, 0] <= form.limit_s:
            found.append(shares)
    rows = np.array(found).reshape(len(found), paid.size)
    return {tuple(row) for row in rows.tolist() if ((rows <= row).all(axis=1)).sum() == 1}


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("seed", range(3))
def test_the_antichain_is_that_of_trying_all(seed: int) -> None:
    form, measured = drawn(seed)
    rng = np.random.default_rng(seed)
    sizes = set()
    for placement in rng.choice(len(form.placements), 12, replace=False).tolist():
        shares, dollars = antichain(form, measured, placement)
        assert {tuple(row) for row in shares.tolist()} == by_hand(form, measured, placement)
        sizes.add(len(shares))
        if len(shares):
            assert cheapest(form, measured, placement)[0] == pytest.approx(dollars.min())
            paid = form.price[placement] > 0
            assert (shares >= least_shares(form, measured)[placement][paid]).all()
    assert max(sizes) > 1
    costs = form.costs(0)
    wanted = [cheapest(form, measured, placement)[0] for placement in range(len(form.placements))]
    assert (int(costs.argmin()), costs.min()) == (int(np.argmin(wanted)), pytest.approx(min(wanted)))


def test_seven_operators_are_cut_down_exactly() -> None:
    """More combinations than are tried at once: those too low for one operator alone are not among them."""
    measured = Measured(0, 0.9, 0.01, 100, Verdict.PASS, True, (0.1,) * 7, (0.0,) * 7)
    form = BlackBox(
        levels=(1,), operators=tuple(Operator(f"o{n}", (0,), (n - 1,) if n else ()) for n in range(7)), target=0.5,
        placed=Placed(np.ones(1), np.ones(1), np.zeros((1, 1)), np.zeros((1, 1))), limit_s=0.82,
        measure=lambda c: measured, placements=np.zeros((1, 7), np.int64),
    )  # fmt: skip
    form.observe(0)
    shares, dollars = antichain(form, measured, 0)
    assert dollars.tolist() == pytest.approx([6.25] * 35 + [6.5] * 7)
    assert (shares == 0.75).sum(axis=1).tolist() == [3] * 35 + [0] * 7
    assert (shares == 0.5).sum(axis=1).tolist() == [0] * 35 + [1] * 7
