"""When a running plan is made anew: rises at once, falls when they last, noise never."""

from __future__ import annotations

from itertools import accumulate, pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetplan.dispatch.replanning import Look, Replanning


def watched(trigger: Replanning, rates: list[float], *, every_s: float = 10.0, app: str = "a") -> list[Look]:
    """The looks at a stream with these rates, each due plan being made at once."""
    counts = [0, *accumulate(round(rate * every_s) for rate in rates)]
    looks = []
    for number, count in enumerate(counts):
        look = trigger.look(number * every_s, {app: count})
        if look.due:
            trigger.planned(number * every_s, look.demand_qps)
        looks.append(look)
    return looks


def trigger(**how: float) -> Replanning:
    made = Replanning(**{"period_s": 1e9, "change": 0.1, "hold_s": 60.0, "headroom": 0.0, **how})
    made.planned(0.0, {"a": 100.0})
    return made


def test_noise_within_the_band_moves_nothing() -> None:
    random = Random(1)
    looks = watched(trigger(change=0.15), [100 + random.uniform(-14, 14) for _ in range(500)])
    assert not any(look.due for look in looks)


def test_a_rise_is_answered_at_once_and_a_fall_when_it_has_lasted() -> None:
    rates = [100.0] * 5 + [200.0] * 20 + [50.0] * 40
    looks = watched(trigger(), rates)
    due = [number for number, look in enumerate(looks) if look.due]
    assert looks[6].due
    assert "rose" in looks[6].why
    falls = [number for number in due if "fell" in looks[number].why]
    assert falls[0] * 10 >= 250 + 60 - 10
    assert looks[-1].demand_qps["a"] == pytest.approx(50, rel=0.01)


def test_a_burst_shorter_than_the_hold_costs_one_plan_up_and_one_down() -> None:
    looks = watched(trigger(hold_s=100, com=0.1), [100.0] * 5 + [200.0, 100.0] * 4 + [100.0] * 30)
    directions = ["rose" in look.why for look in looks if look.due]
    assert directions.count(True) <= 2
    assert sorted(directions, reverse=True) == directions


def test_an_alternating_demand_does_not_flap() -> None:
    looks = watched(trigger(com=0.1), [100.0, 160.0] * 100)
    assert sum(look.due for look in looks) <= 3


def test_a_demand_that_was_only_stated_is_given_up_when_less_has_lasted() -> None:
    looks = watched(trigger(hold_s=60, period_s=20), [10.0] * 10)
    falls = [number * 10 for number, look in enumerate(looks) if "fell" in look.why]
    assert falls == [70]


def test_age_alone_plans_for_the_same_demand() -> None:
    looks = watched(trigger(period_s=50), [104.0] * 11)
    due = [look for look in looks if look.due]
    assert [look.why for look in due] == ["the plan is 50 s old", "the plan is 50 s old"]
    assert all(look.demand_qps == {"a": 100.0} for look in due)


def test_headroom_and_floor() -> None:
    watch = Replanning(headroom=0.25, floor_qps=2.0)
    watch.look(0, {"a": 0, "b": 0})
    look = watch.look(10, {"a": 1000, "b": 1})
    assert look.demand_qps == {"a": 125.0, "b": 2.0}


def test_a_counter_that_starts_anew_counts_from_nothing() -> None:
    watch = trigger()
    watch.look(10, {"a": 1000})
    assert watch.look(20, {"a": 900}).rate_qps == {"a": 90.0}


def test_an_application_that_was_not_planned_for_is_a_reason() -> None:
    watch = trigger()
    watch.look(0, {"a": 0, "new": 0})
    look = watch.look(10, {"a": 1000, "new": 300})
    assert look.due
    assert look.why.startswith("demand of new is measured for the first time")


def test_two_looks_at_one_moment_measure_no_rate() -> None:
    watch = trigger()
    watch.look(10, {"a": 1000})
    assert watch.look(10, {"a": 5000}).rate_qps == {}
    assert watch.look(20, {"a": 2000}).rate_qps == {"a": 100.0}


def test_failures_wait_twice_as_long_each_time_and_a_plan_forgets_them() -> None:
    watch = trigger(period_s=160)
    assert [watch.failed(0) for _ in range(6)] == [10, 20, 40, 80, 160, 160]
    watch.look(0, {"a": 0})
    assert not watch.look(100, {"a": 90_000}).due
    assert watch.look(170, {"a": 180_000}).due
    watch.planned(170, {"a": 1000.0})
    assert watch.failed(170) == 10


def test_after_a_failure_the_same_demand_is_tried_again() -> None:
    watch = trigger(period_s=160)
    watch.look(0, {"a": 0})
    watch.failed(0)
    look = watch.look(20, {"a": 2000})
    assert look.due
    assert look.demand_qps == {"a": 100.0}


@given(
    rates=st.lists(st.floats(0, 1e4), min_size=2, max_size=40),
    settle=st.sampled_from([0.0, 25.0]),
    hold=st.sampled_from([0.0, 30.0, 100.0]),
)
def test_what_is_planned_for_covers_the_forecast_and_waits_its_time(
    rates: list[float], settle: float, hold: float
) -> None:
    looks = watched(trigger(settle_s=settle, hold_s=hold), rates)
    for look in looks:
        if look.due and not look.why.startswith("the plan is"):
            assert all(look.demand_qps[app] >= rate - 1e-9 for app, rate in look.forecast_qps.items())
    due = [10.0 * number for number, look in enumerate(looks) if look.due]
    assert all(later - sooner >= settle for sooner, later in pairwise(due))


@pytest.mark.parametrize("wrong", [{"period_s": 0}, {"change": -1}, {"floor_qps": 0}, {"headroom": -0.1}])
def test_settings_without_meaning_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"above 0|0 or more|longer than 0"):
        Replanning(**wrong)
