"""When a running plan is made anew: rises at once, falls when they last, noise never."""

from __future__ import annotations

from itertools import accumulate, pairwise
from random import Random
from typing import Any

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


def trigger(**how: Any) -> Replanning:
    made = Replanning(**{"every_s": 10.0, "period_s": 1e9, "change": 0.1, "hold_s": 60.0, "headroom": 0.0, **how})
    made.planned(0.0, {"a": 100.0})
    return made


def test_noise_within_the_band_moves_nothing_but_once_when_it_is_known() -> None:
    """Once enough was seen of it, what comes is known to be up to 14% above its mean, and is planned for."""
    random = Random(1)
    looks = watched(trigger(change=0.15), [100 + random.uniform(-14, 14) for _ in range(1000)])
    due = [number for number, look in enumerate(looks) if look.due]
    assert len(due) == 1
    assert due[0] >= 40
    assert "rose" in looks[due[0]].why
    assert looks[due[0]].demand_qps["a"] < 135


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
    looks = watched(trigger(hold_s=100, com=0.1), [100.0] * 150 + [200.0, 100.0] * 4 + [100.0] * 30)
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
    assert [watch.failed(170) for _ in range(2000)][-1] == 160


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


def test_one_rise_does_not_decide_what_is_kept_above_every_forecast() -> None:
    """It was missed by every forecast of its lead time, and by the average until that came near it."""
    looks = watched(trigger(lead_s=60.0, hold_s=30.0), [100.0] * 100 + [200.0] * 800)
    assert looks[101].due
    assert max(look.demand_qps["a"] for look in looks[1:]) == pytest.approx(200, rel=0.01)


def test_rises_that_come_again_and_again_are_what_is_kept_above_the_forecast() -> None:
    """Every tenth look brings half as much again: fifty rises were missed, and the next is not."""
    looks = watched(trigger(hold_s=0.0, change=0.0), [150.0 if look % 10 == 0 else 100.0 for look in range(500)])
    assert looks[30].demand_qps["a"] < 125
    assert min(look.demand_qps["a"] for look in looks[-9:]) > 130


def test_the_headroom_is_the_least_that_is_kept() -> None:
    looks = watched(trigger(headroom=0.3), [100.0] * 400)
    assert looks[10].demand_qps["a"] == looks[-1].demand_qps["a"] == pytest.approx(130)


def test_a_tenfold_rise_is_answered_at_the_first_look_and_let_go_when_it_has_gone() -> None:
    looks = watched(trigger(hold_s=60.0), [100.0] * 5 + [1000.0] * 10 + [100.0] * 40)
    assert looks[6].due
    assert looks[6].demand_qps["a"] > 950
    assert looks[10].demand_qps["a"] > 900
    assert all(look.demand_qps["a"] > 900 for look in looks[15:21])
    assert looks[-1].demand_qps["a"] == pytest.approx(100, rel=0.05)


@pytest.mark.parametrize("limits_s", [{"a": 0.5}, {}])
def test_what_has_piled_up_is_caught_up_where_it_is_known_what_is_usual(limits_s: dict[str, float]) -> None:
    """Of 100 a second 50 are under way where the limit is just kept; 650 more are served within a minute."""
    watch = trigger(hold_s=0.0)
    watch.runs(0.0, limits_s)
    watch.look(0, {"a": 0}, 0)
    assert watch.look(10, {"a": 1000}, 50).demand_qps["a"] == pytest.approx(100)
    piled = watch.look(20, {"a": 2000}, 650)
    assert piled.demand_qps["a"] == pytest.approx(110 if limits_s else 100)
    assert watch.look(30, {"a": 3000}).demand_qps["a"] == pytest.approx(100), "nobody knows how many are under way"


@pytest.mark.parametrize("told_at", [0, 3])
@pytest.mark.parametrize(("lead_s", "asked_s"), [(0.0, 100.0), (30.0, 70.0)])
def test_a_day_that_is_known_is_seen_coming_as_far_as_machines_take_to_start(
    lead_s: float, asked_s: float, told_at: int
) -> None:
    """At 100 s of its day demand trebles: machines that start for 30 s are asked for at 70 s, others at 100 s."""
    day = [100.0] * 10 + [300.0] * 10
    how: dict[str, Any] = {"season_s": 200.0, "history": {"a": day * 20}, "quantile": 0.5, "kind": "seasonal"}
    watch = trigger(**how)
    wanted = {}
    for number, count in enumerate([0, *accumulate(round(rate * 10) for rate in day)]):
        if number == told_at:
            watch.runs(lead_s, {})
        wanted[10.0 * number] = watch.look(10.0 * number, {"a": count}).demand_qps.get("a", 0.0)
    assert next(at for at, rate in wanted.items() if rate > 250) == asked_s


def test_a_look_that_comes_late_counts_for_those_that_were_left_out() -> None:
    """Planning and applying took a minute, in which as much came as at the last looks."""
    found = []
    for times in ([0, 10, 20, 80], range(0, 90, 10)):
        watch = trigger(com=3.0)
        looks = [watch.look(now, {"a": 100 * min(now, 20) + 110 * max(now - 20, 0)}) for now in times]
        found.append(looks[-1].forecast_qps["a"])
    assert found[0] == pytest.approx(found[1])
    assert 107 < found[0] < 110


@pytest.mark.parametrize(
    "wrong",
    [
        {"period_s": 0},
        {"change": -1},
        {"floor_qps": 0},
        {"headroom": -0.1},
        {"history": {"a": [-1.0]}},
        {"margin": 0},
        {"quantile": 0},
        {"lead_s": -9},
    ],
)
def test_settings_without_meaning_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"above 0|0 or more|longer than 0"):
        Replanning(**wrong)


def test_an_application_without_a_limit_does_not_keep_others_from_catching_up() -> None:
    """Its queries may be under way for as long as those of the application with the longest limit."""
    watch = Replanning(every_s=10.0, headroom=0.0)
    watch.runs(0.0, {"a": 0.5})
    watch.look(0, {"a": 0, "b": 0})
    watch.look(10, {"a": 500, "b": 500})
    piled = watch.look(20, {"a": 1000, "b": 1000}, 650)
    assert piled.demand_qps == pytest.approx({"a": 55, "b": 55})
