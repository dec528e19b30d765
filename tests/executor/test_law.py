"""The worker's own reading of tables agrees with the profile's, point by point."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hetplan.errors import InputError
from hetplan.executor.serving.law import OffTable, ServiceLaw
from hetplan.profiles.tables import Table
from hetplan.serving.times import law_data

CELL = st.floats(0.5, 100.0)


@settings(max_examples=80, deadline=None)
@given(
    cells=st.lists(st.lists(CELL, min_size=3, max_size=3), min_size=2, max_size=2),
    outside=st.sampled_from(["refuse", "clamp", "linear"]),
    batch=st.integers(1, 20),
    tokens=st.floats(0.0, 300.0),
)
def test_tables_are_read_as_profiles_read_them(
    cells: list[list[float]], outside: str, batch: int, tokens: float
) -> None:
    axes = {"batch": (1.0, 8.0), "input_tokens": (16.0, 64.0, 256.0)}
    table = Table.model_validate({"quantity": "latency_ms", "axes": axes, "mean": cells, "outside": outside})
    law = ServiceLaw(law_data(table), statistic="mean")
    try:
        wanted = float(table.read([{"batch": float(batch), "input_tokens": tokens}]).values[0])
    except InputError:
        with pytest.raises(OffTable):
            law.mean_ms({"input_tokens": tokens}, batch)
    else:
        assert law.mean_ms({"input_tokens": tokens}, batch) == pytest.approx(wanted, rel=1e-9)


def test_a_query_that_carries_a_batch_makes_the_batch_larger_still() -> None:
    law = ServiceLaw({"axes": {"batch": [1, 64]}, "mean": [1.0, 64.0]})
    assert law.mean_ms({"batch": 8.0}, 4) == pytest.approx(32.0)
    assert law.draw_ms([{"batch": 2.0}, {"batch": 8.0}]) == pytest.approx(16.0), "as long as its slowest member"


def test_draws_have_the_tables_mean_and_spread() -> None:
    law = ServiceLaw({"axes": {}, "mean": 10.0, "std": 2.0, "max": 14.0}, seed=1)
    drawn = [law.draw_ms([{}]) for _ in range(4000)]
    assert max(drawn) <= 14.0
    assert statistics.mean(drawn) == pytest.approx(10.0, rel=0.02)
    exponential = ServiceLaw({"ms": 5.0}, statistic="exponential", seed=2)
    assert statistics.stdev([exponential.draw_ms([{}]) for _ in range(4000)]) == pytest.approx(5.0, rel=0.1)


def test_a_rate_is_the_time_that_a_request_takes_and_times_slows_it_down() -> None:
    law = ServiceLaw({"quantity": "requests_per_s", "axes": {}, "mean": 50.0}, times=2.0)
    assert law.mean_ms({}, 1) == pytest.approx(40.0)


@pytest.mark.parametrize(
    ("law", "statistic", "why"),
    [
        ({"axes": {}, "p95": 3.0}, "p99", "has no p99"),
        ({"axes": {"batch": [1]}, "mean": [None]}, "mean", "was never measured"),
        ({"axes": {"tokens": [1]}, "mean": [2.0]}, "mean", "where on the axis tokens"),
    ],
)  # fmt: skip
def test_what_a_table_does_not_hold_is_reported(law: dict[str, object], statistic: str, why: str) -> None:
    with pytest.raises(OffTable, match=why):
        ServiceLaw(law, statistic=statistic).mean_ms({}, 1)
