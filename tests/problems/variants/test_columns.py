"""The form of configuration columns: its oracle against enumeration, and what its certificate does not believe."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hetplan.planner.answer import Answer, Limits, Status, Vouched
from hetplan.planner.forms.columns import Columns
from hetplan.planner.forms.columns_knapsack import cheapest_cover
from hetplan.solvers.columns import ColumnsEngine


def form(capacity=4.0):
    """Two items cover 10 by 5 (cost 1, taking 4) or by 100 (cost 3, taking nothing)."""
    return Columns(
        block=np.array([0, 0]), need=np.array([10.0]), gain=np.array([5.0, 100.0]), cost=np.array([1.0, 3.0]),
        group=np.array([0, 1]), free=np.zeros(2), surcharge=np.zeros(2), upper=np.array([2.0, 1.0]),
        use=np.array([[4.0, 0.0]]), capacity=np.array([capacity]),
    )  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from([1.0, 2.0, 3.5, 7.0]), st.sampled_from([0.0, 1.0, 2.5, 4.0]), st.integers(0, 4)),
        min_size=1, max_size=4,
    ),
    st.floats(0.5, 30),
    st.sampled_from([0, 1, 3, 9, 10_000]),
)  # fmt: skip
def test_the_knapsack_is_exact_or_bounded(segments, need, steps):
    best = min(
        (
            sum(cost * k for (_, cost, _), k in zip(segments, counts, strict=True))
            for counts in itertools.product(*(range(most + 1) for _, _, most in segments))
            if sum(gain * k for (gain, _, _), k in zip(segments, counts, strict=True)) >= need * (1 - 1e-9)
        ),
        default=None,
    )
    found = cheapest_cover(segments, need, steps)
    assert (found is None) == (best is None)
    if found is not None:
        assert found.bound <= best + 1e-9
        assert found.cost >= best - 1e-9
        if steps == 10_000:
            assert (found.cost, found.bound) == pytest.approx((best, best))
        covered = sum(segments[k][0] * count for k, count in found.counts)
        assert covered >= need * (1 - 1e-8)
        assert found.cost == pytest.approx(sum(segments[k][1] * count for k, count in found.counts))


def test_many_segments_of_one_rate_end_with_a_bound():
    # Whole even gains, an odd need: nothing but trying all sums tells that one more than the need must be paid.
    segments = [(2.0 * k, 2.0 * k, 1) for k in range(20, 60)]
    found = cheapest_cover(segments, 1201.0, 20_000)
    assert found.cost == 1202
    assert found.bound == pytest.approx(1201)


def test_blocks_of_many_items_of_nearly_one_rate_are_answered():
    rng = np.random.default_rng(0)
    size = 3 * 40
    gain = rng.uniform(5, 100, size)
    hard = Columns(
        block=np.repeat(np.arange(3), 40), need=rng.uniform(100, 1000, 3), gain=gain,
        cost=gain * (1 + 1e-6 * rng.random(size)), group=np.arange(size), free=np.zeros(size),
        surcharge=np.zeros(size), upper=np.full(size, 9.0), use=gain[None, :], capacity=np.array([9e9]),
    )  # fmt: skip
    answer = ColumnsEngine().solve(hard, Limits())
    certificate = hard.certify(answer)
    assert certificate.vouched is Vouched.CERTIFIED
    assert hard.need.sum() - 1e-5 <= certificate.bound <= answer.value <= 1.001 * hard.need.sum()


def test_members_of_a_group_have_limits_of_their_own():
    # Two cheap ones at most, the third of the group dear; the second of all that run is no longer free.
    one = Columns(
        block=np.zeros(3, np.int64), need=np.array([6.0]), gain=np.full(3, 2.0), cost=np.array([5.0, 1.0, 9.0]),
        group=np.zeros(3, np.int64), free=np.ones(1), surcharge=np.array([0.5]), upper=np.array([1.0, 1.0, 9.0]),
        use=np.zeros((1, 3)), capacity=np.ones(1),
    )  # fmt: skip
    answer = ColumnsEngine().solve(one, Limits())
    assert answer.point.tolist() == [1, 1, 1]
    assert (answer.status, answer.value) == (Status.OPTIMAL, 16.0)
    nothing = ColumnsEngine().solve(replace(one, upper=np.ones(3), need=np.array([7.0])), Limits())
    assert nothing.status is Status.INFEASIBLE


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"cost": np.array([-1.0, 3.0])}, "less than nothing"),
        ({"surcharge": np.array([0.0, -1.0])}, "less than nothing"),
        ({"use": np.array([[4.0, -1.0]])}, "less than nothing"),
        ({"gain": np.array([0.0, 1.0])}, "gains nothing"),
        ({"upper": np.array([np.inf, 1.0])}, "without limit"),
        ({"need": np.array([np.nan])}, "finite"),
        ({"capacity": np.array([np.inf])}, "finite"),
        ({"free": np.array([0.5, 0.0])}, "not whole"),
        ({"upper": np.array([2.0, 1.5])}, "not whole"),
    ],
)
def test_what_is_no_such_form_is_refused(change, why):
    with pytest.raises(ValueError, match=why):
        replace(form(), **change)


def test_prices_bound_over_all_columns():
    # One of 5 and ... only two of 5 (taking 8), or one of 100: 3 is best, and a price proves nearly as much.
    answer = ColumnsEngine().solve(form(), Limits())
    assert answer.value == 3
    certificate = form().certify(answer)
    assert certificate.vouched is Vouched.CERTIFIED
    assert certificate.bound <= 3


def test_room_for_all_is_optimal_without_prices():
    answer = ColumnsEngine().solve(form(8.0), Limits())
    assert (answer.status, answer.value) == (Status.OPTIMAL, 2)
    assert form(8.0).certify(answer).certified_bound == pytest.approx(2)


def test_no_room_at_all_is_proved():
    tight = replace(form(), use=np.array([[4.0, 5.0]]))
    answer = ColumnsEngine().solve(tight, Limits())
    assert answer.status is Status.INFEASIBLE
    assert tight.certify(answer).infeasible is Vouched.CERTIFIED


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"point": np.array([1.0, 0.0])}, "covered"),
        ({"point": np.array([2.0, 0.0])}, "takes 8"),
        ({"point": np.array([0.0, 0.5])}, "not whole"),
        ({"point": np.array([0.0, 2.0])}, "beyond its limits"),
        ({"point": np.array([0.0, 1.0]), "value": 2.0}, "where it is 3"),
        ({"point": np.array([0.0, 1.0]), "bound": 4.0}, "bounds all by 4"),
    ],
)
def test_lies_are_reported(change, said):
    answer = replace(Answer(Status.OPTIMAL, point=np.array([0.0, 1.0])), **change)
    assert said in form().certify(answer).faults[0]


def test_prices_that_prove_less_leave_the_engines_word_a_word():
    answer = Answer(Status.OPTIMAL, point=np.array([0.0, 1.0]), value=3.0, bound=3.0, proof={"prices": np.zeros(1)})
    certificate = form().certify(answer)
    assert (certificate.vouched, certificate.certified_bound) == (Vouched.CLAIMED, pytest.approx(2))
    for wrong in (np.array([-1.0]), np.zeros(2), np.array([np.nan])):
        assert form().certify(replace(answer, proof={"prices": wrong})).certified_bound is None
