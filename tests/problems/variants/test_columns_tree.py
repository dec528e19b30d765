"""The tree over near columns: against all counts tried, and proofs that prove less than they say."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hetplan.planner.answer import Limits, Status, Vouched
from hetplan.planner.forms.columns import Columns, bound_of_tree, near_columns
from hetplan.planner.forms.columns_knapsack import cheapest_cover, covers_within
from hetplan.solvers.columns import ColumnsEngine


@st.composite
def forms(draw):
    """Some blocks of two or three items; the first two items of a block may be a group, each with its own limit."""
    block, gain, cost, group, use, upper = [], [], [], [], [], []
    need = draw(st.lists(st.sampled_from([1.0, 3.0, 4.5]), min_size=2, max_size=4))
    for b in range(len(need)):
        common = draw(st.booleans())
        for number in range(draw(st.integers(2, 3 if len(need) < 4 else 2))):
            joins = common and number == 1
            block.append(b)
            gain.append(gain[-1] if joins else draw(st.sampled_from([1.5, 2.0, 5.0])))
            group.append(group[-1] if joins else len(set(group)))
            cost.append(draw(st.sampled_from([0.0, 1.0, 1.7, 4.0, 9.0])))
            use.append([draw(st.sampled_from([0.0, 1.0, 2.3])) for _ in range(2)])
            upper.append(float(draw(st.integers(0, 3))) if common else np.ceil(need[b] / gain[-1]))
    groups = max(group) + 1
    return Columns(
        block=np.array(block), need=np.array(need), gain=np.array(gain), cost=np.array(cost), group=np.array(group),
        free=np.array([draw(st.sampled_from([0.0, 1.0])) for _ in range(groups)]),
        surcharge=np.array([draw(st.sampled_from([0.0, 0.6])) for _ in range(groups)]),
        upper=np.array(upper), use=np.array(use).T,
        capacity=np.array([draw(st.sampled_from([1.0, 3.0, 5.0, 8.0]))] * 2),
    )  # fmt: skip


def covers(form, b):
    """All counts of one block that cover it, by item of the form."""
    items = np.flatnonzero(form.block == b)
    for counts in itertools.product(*(range(int(form.upper[j]) + 1) for j in items)):
        if form.gain[items] @ counts >= form.need[b] - 1e-9:
            x = np.zeros(form.cost.size)
            x[items] = counts
            yield x


def least(form):
    """The least cost of all counts; None where nothing fits."""
    found = [(0.0, np.zeros(form.capacity.size))]
    for b in range(form.need.size):
        columns = [(form.value(x) - form.value(0 * x), form.use @ x) for x in covers(form, b)]
        found = [
            (v + c, taken + use) for v, taken in found for c, use in columns if (taken + use <= form.capacity).all()
        ]
        # Of choices so far only those that none beats in every respect.
        kept: list[tuple[float, np.ndarray]] = []
        for value, taken in sorted(found, key=lambda one: one[0]):
            if not any((other <= taken + 1e-12).all() for _, other in kept):
                kept.append((value, taken))
        found = kept
    return min((value for value, _ in found), default=None)


@pytest.mark.slow
@settings(max_examples=120, deadline=None)
@given(forms())
def test_what_is_proved_is_true_and_the_best_is_found(form):
    best = least(form)
    answer = ColumnsEngine().solve(form, Limits())
    certificate = form.certify(answer)
    assert not certificate.faults
    if best is None:
        assert answer.point is None
        return
    assert answer.value == pytest.approx(best)
    assert certificate.vouched is Vouched.CERTIFIED
    assert best * (1 - 2e-6) - 1e-9 <= certificate.bound <= best + 1e-9


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(forms(), st.tuples(st.sampled_from([0.0, 0.4, 2.0]), st.sampled_from([0.0, 0.7])), st.sampled_from([0.5, 3.0]))
def test_every_column_that_is_not_near_is_too_dear_or_takes_more_than_it_needs(form, prices, slack):
    mu = np.array(prices)
    near = near_columns(form, mu, slack)
    assume(near is not None)
    cheapest = form.price(mu)
    known = {tuple(near.counts(np.array([k]))) for k in range(near.block.size)}
    for b in range(form.need.size):
        of_block = {tuple(x) for x in covers(form, b)}
        least_here = min(form.value(np.array(x)) + mu @ form.use @ x for x in of_block)
        for x in of_block - known:
            fewer = (np.array(x) - step for step in np.eye(form.cost.size) if (np.array(x) - step >= 0).all())
            wasteful = any(tuple(one) in of_block for one in fewer)
            assert wasteful or form.value(np.array(x)) + mu @ form.use @ x > least_here + slack - 1e-9
    assert near.ceiling == pytest.approx(cheapest.bound + slack)


def gapped(blocks=5):
    """Each block takes 2 of the row for 1, or nothing for 2; an odd room leaves a gap that no price closes."""
    size = 2 * blocks
    return Columns(
        block=np.repeat(np.arange(blocks), 2), need=np.ones(blocks), gain=np.ones(size),
        cost=np.tile([1.0, 2.0], blocks) + 0.01 * np.arange(size), group=np.arange(size), free=np.zeros(size),
        surcharge=np.zeros(size), upper=np.ones(size), use=np.tile([2.0, 0.0], blocks)[None, :],
        capacity=np.array([5.0]),
    )  # fmt: skip


def test_a_tree_closes_what_prices_leave_open():
    form = gapped()
    answer = ColumnsEngine().solve(form, Limits())
    assert (answer.status, answer.value) == (Status.OPTIMAL, pytest.approx(least(form)))
    assert len(answer.proof["splits"]) > 0
    assert form.price(answer.proof["prices"]).bound < 0.97 * answer.value
    assert form.certify(answer).certified_bound == pytest.approx(answer.value, rel=2e-6)


def test_other_blocks_keep_their_columns_on_both_sides_of_a_split():
    near = near_columns(gapped(2), np.zeros(1), 9.0)
    more, fewer = near.parted(0, 1)
    assert more.tolist() == [True, False, True, True]
    assert fewer.tolist() == [False, True, True, True]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda proof: {"leaves": 0 * proof["leaves"], "prices_of_splits": 0 * proof["prices_of_splits"]},
        lambda proof: {"leaves": -proof["leaves"] - 1},
        lambda proof: {"leaves": np.full_like(proof["leaves"], np.nan)},
        lambda proof: {"leaves": proof["leaves"][:1]},
        lambda proof: {"slack": 0.0},
        lambda proof: {"slack": -1.0},
        lambda proof: {"limit": 0.5},
        lambda proof: {"limit": float("nan"), "slack": 9.0},
        lambda proof: {"splits": proof["splits"] * [1, 1, 0, 1]},
        lambda proof: {"splits": proof["splits"] * [1, 1, 1, -9]},
        lambda proof: {"splits": proof["splits"] + [99, 0, 0, 0]},
        lambda proof: {"splits": np.zeros((0, 4))},
        lambda proof: {"splits": "none"},
    ],
)
def test_a_spoilt_tree_proves_less(spoil):
    form = gapped()
    answer = ColumnsEngine().solve(form, Limits())
    spoilt = replace(answer, proof={**answer.proof, **spoil(answer.proof)})
    assert bound_of_tree(form, spoilt.proof) < 0.999 * answer.value
    assert form.certify(spoilt).vouched is Vouched.CLAIMED


def test_a_limit_too_high_proves_no_more_than_there_is():
    form = gapped()
    answer = ColumnsEngine().solve(form, Limits())
    boast = {**answer.proof, "limit": 99.0}
    assert bound_of_tree(form, boast) <= answer.value


def test_what_no_column_at_hand_allows_is_found_farther_off():
    # Three of a group, of two kinds that take different rows: columns of two items of one group are not at hand.
    form = Columns(
        block=np.array([0, 0, 1]), need=np.array([4.5, 1.0]), gain=np.full(3, 1.5), cost=np.zeros(3),
        group=np.array([0, 0, 1]), free=np.zeros(2), surcharge=np.array([0.0, 0.6]), upper=np.array([3.0, 3.0, 1.0]),
        use=np.array([[2.3, 0.0, 0.0], [0.0, 1.0, 2.3]]), capacity=np.array([5.0, 5.0]),
    )  # fmt: skip
    answer = ColumnsEngine().solve(form, Limits())
    assert answer.value == pytest.approx(0.6)
    tighter = replace(form, capacity=np.array([2.5, 4.4]))
    answer = ColumnsEngine().solve(tighter, Limits())
    assert answer.point.tolist() == [1, 2, 1]
    assert tighter.certify(answer).vouched is Vouched.CERTIFIED


def test_there_may_be_more_to_choose_from_than_calls_can_be_nested() -> None:
    segments = [(1.0, 1.0, 1)] * 1500
    cover = [(k, 1) for k in range(1400)]
    assert cheapest_cover(segments, 1400.0) == (1400.0, cover, 1400.0)
    assert covers_within(segments, 1400.0, 1400.5, 5000) is None


def test_so_many_covers_of_all_blocks_are_no_tree(monkeypatch) -> None:
    form = gapped()
    monkeypatch.setattr("hetplan.planner.forms.columns.MOST_STEPS", 10)
    assert near_columns(form, np.zeros(1), 9.0) is None
    answer = ColumnsEngine().solve(form, Limits())
    assert answer.value == pytest.approx(least(form))
    assert form.certify(answer).certified_bound < 0.97 * answer.value
