"""What verifier and questions read by the same code, or each by its own, held against each other or a third writing."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hetplan.profiles.fields import NANO, money_text
from hetplan.profiles.mix import count_into_bins
from hetplan.profiles.profile import Offer
from hetplan.profiles.slo import App, Mix
from hetplan.profiles.tables import Table
from hetplan.verifier.demand import classes_of
from hetplan.verifier.service import read_table

SIZES = st.sampled_from([1.0, 2.0, 4.0, 8.0])


@st.composite
def mixes(draw: st.DrawFn) -> Mix:
    """Bins of one or two axes, in any order and in no full grid, and sizes that some bin holds."""
    axes = draw(st.integers(1, 2))
    bins = draw(st.lists(st.tuples(*[SIZES] * axes), min_size=1, max_size=6, unique=True))
    largest = tuple(max(column) for column in zip(*bins, strict=True))
    bins = [*bins, *([] if largest in bins else [largest])]
    sizes = st.tuples(*(st.floats(0.5, high) for high in largest))
    observed = draw(st.lists(sizes, min_size=1, max_size=8))
    return Mix(axes=("batch", "tokens")[:axes], bins=tuple(bins), observed=tuple(observed))


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(mix=mixes())
def test_sizes_are_counted_into_the_same_bins_by_reader_and_verifier(mix: Mix) -> None:
    app = App.model_validate({"model": "m", "rate_qps": 1.0})
    app = app.model_copy(update={"mix": mix})
    counted = count_into_bins(mix).share
    assert counted is not None
    assert max(abs(one - other) for one, other in zip(classes_of(app).share, counted, strict=True)) < 1e-12


def test_of_two_bins_that_hold_a_size_the_one_fewest_steps_up_counts() -> None:
    """By hand: (2, 8) and (4, 2) are one step up, (8, 2) two and (8, 8) three: the first of the nearest."""
    bins = ((2.0, 8.0), (8.0, 2.0), (4.0, 2.0), (8.0, 8.0))
    mix = Mix(axes=("a", "b"), bins=bins, observed=((2.0, 2.0),))
    assert count_into_bins(mix).share == (1.0, 0.0, 0.0, 0.0)


@settings(max_examples=200, deadline=None)
@given(price=st.decimals(Decimal("0.000000001"), Decimal("99999"), places=9))
def test_money_is_read_as_the_fraction_that_is_written(price: Decimal) -> None:
    offer = Offer.model_validate({"hardware": "gpu", "price_per_hour": str(price)})
    assert Fraction(offer.price_per_hour, NANO) == Fraction(str(price))
    assert Fraction(money_text(offer.price_per_hour)) == Fraction(str(price))


@settings(max_examples=100, deadline=None)
@given(at=st.floats(0.0, 4.0), factors=st.lists(st.floats(1.0, 9.0), min_size=5, max_size=5))
def test_a_slowdown_is_read_alike_by_question_and_verifier(at: float, factors: list[float]) -> None:
    axes = {"co_load": [0.0, 1.0, 2.0, 3.0, 4.0]}
    table = Table.model_validate({"quantity": "slowdown", "axes": axes, "mean": factors})
    own = float(read_table(table, "mean", {"co_load": at}, 1)[0][0])
    assert abs(own - float(table.read([{"co_load": at}]).values[0])) < 1e-9
