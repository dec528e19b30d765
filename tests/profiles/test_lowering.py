"""What a profile as a person writes it means: what is inherited, in any order of keys and any case of ids."""

from __future__ import annotations

from typing import Any

import pytest

from hetplan.errors import InputError
from hetplan.profiles import Profile, load_profile

MACHINES = {"h": {"price_per_hour": 2}, "t4": {"price_per_hour": 1}}


def read(models: Any, *others: Any) -> Profile:
    """The profile with these models; with others, of as many files."""
    files = [{"format": "hetplan/profile/1.0", "models": one} for one in (models, *others)]
    return load_profile({**files[0], "machines": MACHINES}, *files[1:])


MEASURED = {"batch": [1], "mean_ms": [10], "p99_ms": [12], "samples": [40], "max_qps": 90}


@pytest.mark.parametrize(
    "model",
    [
        {"runs": {"h": MEASURED, "t4": {"like": "h", "mean_ms": [100]}}},
        {**MEASURED, "runs": {"h": {}, "t4": {"mean_ms": [100]}}},
        {"p99_ms": [12], "batch": [1], "runs": {"t4": {"mean_ms": [100]}}},
    ],
)
@pytest.mark.parametrize("is_split", [False, True])
def test_a_run_that_says_a_time_inherits_none(model: Any, is_split: bool) -> None:
    """A p99 of one measurement beside the mean of another would be planned with: 12 ms where a batch takes 100."""
    table = read({"net": model}, *([{"net": {"task": "net"}}] if is_split else [])).tables["net-t4"]
    assert (table.mean, table.p99, table.axes) == ((100,), None, {"batch": (1,)})


def test_what_says_more_of_one_measurement_stays_with_it() -> None:
    (run,) = (
        one
        for one in read({"net": {"runs": {"h": MEASURED, "t4": {"like": "h", "mean_ms": [100]}}}}).variants["net"].runs
        if one.hardware == "t4"
    )
    assert run.saturation_qps == 10, "one batch of 1 in 100 ms"


def test_runs_share_points_that_one_of_them_has_of_its_own() -> None:
    own = {"axes": {"batch": [1], "length": [9]}, "mean_ms": [[7]]}
    models = {"net": {"batch": [1], "runs": {"h": {"mean_ms": [5]}, "t4": own}}}
    assert read(models) == read(models, {"net": {"task": "net"}})


RUNS = {"batch": [1], "runs": {"t4": {"mean_ms": [5]}}}


@pytest.mark.parametrize("other", [0.6, {"map": 0.6}, {"Top1": 0.6}])
def test_one_metric_of_a_task_in_any_order(other: Any) -> None:
    """A number without a metric was taken before one with, and refused after it."""
    models = {"a": {**RUNS, "task": "t", "quality": other}, "b": {**RUNS, "task": "T", "quality": {"top1": 0.7}}}
    for order in (models, dict(reversed(models.items()))):
        if other == {"Top1": 0.6}:
            assert read(order).tasks["t"].metric == "top1"
            continue
        with pytest.raises(InputError, match="one metric for all models of task") as caught:
            read(order)
        at = "$.models.a.quality" if other == 0.6 else "$.models.b.quality"
        assert [fault.path for fault in caught.value.faults] == [at]


def test_a_task_is_one_in_any_letters() -> None:
    profile = read({"a": {**RUNS, "task": "Cars"}, "b": {**RUNS, "task": "cars"}})
    assert (list(profile.tasks), profile.variants["a"].task) == (["cars"], "cars")


def test_a_profile_made_by_hand_is_joined_with_no_file() -> None:
    """One that was read from a file is: as that file says it."""
    made = Profile.model_validate({"hardware": {"t4": {"kind": "gpu"}}})
    prices = {"format": "hetplan/profile/1.0", "machines": {"t4": {"price_per_hour": 1}}}
    with pytest.raises(InputError, match="this one was made in Python"):
        load_profile(made, prices)
    read_again = load_profile({**prices, "machines": {"t4": {"provides": {"gpu": 1}}}})
    joined = load_profile(read_again, prices)
    assert (joined.hardware["t4"].provides, joined.offers["t4"].price_per_hour) == ({"gpu": 1.0}, 10**9)
